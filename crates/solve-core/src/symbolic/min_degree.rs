//! Approximate minimum degree on a quotient graph.

use sparsebatch_formats::CsrPatternRef;

use super::quotient_graph::QuotientGraph;
use super::{SymbolicError, check_square};

/// A fill-reducing order for LU or Cholesky without pivoting: position `k` of the permuted matrix
/// holds row and column `result[k]` of A.
///
/// Minimum degree on the graph of `A + A^T`, the diagonal left aside. Steps, with `|X|` the number
/// of rows and columns that the supervariables in `X` stand for:
/// 1. Eliminate the variable p of least (approximate) degree, the lowest index first. It becomes
///    an element: `L_p = (A_p + union of L_e over its elements e) \ {p}`; those e are absorbed.
/// 2. For each i in `L_p`: drop from `A_i` what p now covers; absorb elements inside `L_p`; bound
///    the degree by
///    `min(left - |i|, d_i + |L_p \ i|, |A_i \ i| + |L_p \ i| + sum over e of |L_e \ L_p|)`.
/// 3. Variables without neighbours outside `L_p` are eliminated with p (mass elimination);
///    variables with equal neighbours become one supervariable.
///
/// Rows with more than `max(16, 10 sqrt(nrows))` neighbours are left out and ordered last, by
/// number of neighbours, then index. The result is a function of the pattern alone. Memory: a few
/// times the pattern.
///
/// # Errors
/// [`SymbolicError::NotSquare`].
///
/// # Examples
/// ```
/// use sparsebatch_solve_core::symbolic::min_degree;
/// use sparsebatch_formats::Csr;
/// // The first row and column are full: eliminated first, they would fill everything.
/// let arrow = Csr::try_new(4, 4, vec![0, 4, 6, 8, 10], vec![0, 1, 2, 3, 0, 1, 0, 2, 0, 3], vec![1.0; 10])?;
/// assert_eq!(min_degree(arrow.view().pattern())?[..2], [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
/// P. R. Amestoy, T. A. Davis, I. S. Duff, An approximate minimum degree ordering algorithm, 1996,
/// doi:10.1137/S0895479894278952.
pub fn min_degree(pattern: CsrPatternRef<'_>) -> Result<Vec<u32>, SymbolicError> {
    check_square(pattern)?;
    let neighbours = symmetric_neighbours(pattern);
    Ok(QuotientGraph::new(neighbours).order())
}

/// For each row, the other rows that share an entry of `A + A^T` with it, each once.
pub(super) fn symmetric_neighbours(pattern: CsrPatternRef<'_>) -> Vec<Vec<u32>> {
    let nrows = pattern.nrows();
    let mut neighbours: Vec<Vec<u32>> = vec![Vec::new(); nrows];
    for row in 0..nrows {
        for &col in &pattern.col_idx()[pattern.row(row)] {
            let col = col as usize;
            if col == row {
                continue;
            }
            neighbours[row].push(col as u32);
            if pattern.position(col, row).is_none() {
                neighbours[col].push(row as u32);
            }
        }
    }
    neighbours
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};

    /// A pattern with the diagonal and the given entries.
    fn with_diagonal(nrows: usize, entries: &[(usize, usize)]) -> CsrPattern {
        let mut rows: Vec<Vec<i32>> = (0..nrows as i32).map(|row| vec![row]).collect();
        for &(row, col) in entries {
            rows[row].push(col as i32);
        }
        let mut row_ptr = vec![0];
        let mut col_idx = Vec::new();
        for mut row in rows {
            row.sort_unstable();
            col_idx.append(&mut row);
            row_ptr.push(col_idx.len() as i32);
        }
        CsrPattern::try_new(nrows, nrows, row_ptr, col_idx).unwrap()
    }

    #[test]
    fn a_star_ends_with_its_centre() {
        let star = with_diagonal(5, &[(2, 0), (2, 1), (2, 3), (2, 4)]);

        let order = min_degree(star.view()).unwrap();

        // Of centre 2 and last leaf 4, both of degree 1 then, the lower index comes first.
        assert_eq!(order, [0, 1, 3, 2, 4]);
    }

    #[test]
    fn a_path_is_eliminated_from_an_end() {
        let path = with_diagonal(4, &[(0, 1), (1, 2), (2, 3)]);

        assert_eq!(min_degree(path.view()).unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn ties_go_to_the_lowest_index() {
        let diagonal = with_diagonal(4, &[]);

        assert_eq!(min_degree(diagonal.view()).unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn rows_beyond_the_dense_limit_come_last_by_degree() {
        // Limit 10 * sqrt(400) = 200: row 0 has 399 neighbours, row 1 has 300.
        let nrows = 400;
        let mut entries: Vec<_> = (1..nrows).map(|col| (0, col)).collect();
        entries.extend((2..301).map(|col| (1, col)));
        let a = with_diagonal(nrows, &entries);

        let order = min_degree(a.view()).unwrap();

        assert_eq!(order[398..], [1, 0]);
        assert_eq!(order[..3], [2, 3, 4]);
    }

    #[test]
    fn a_matrix_that_is_not_square_is_refused() {
        let a = CsrPattern::try_new(1, 2, vec![0, 1], vec![1]).unwrap();

        assert_eq!(min_degree(a.view()), Err(SymbolicError::NotSquare { nrows: 1, ncols: 2 }));
    }

    #[test]
    fn a_matrix_without_rows_has_an_empty_order() {
        let a = CsrPattern::try_new(0, 0, vec![0], vec![]).unwrap();

        assert!(min_degree(a.view()).unwrap().is_empty());
    }
}
