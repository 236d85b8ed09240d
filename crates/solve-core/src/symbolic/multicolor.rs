//! Multicolour orders: rows of one colour share no entry.

use sparsebatch_formats::CsrPatternRef;

use super::min_degree::symmetric_neighbours;
use super::{SymbolicError, check_square};

/// An order by colours: position `k` of the permuted matrix holds row and column `result[k]` of A.
///
/// Each row takes the first colour that no earlier row has with which it shares an entry of
/// `A + A^T`; rows are ordered by colour, then by index. Rows of one colour do not depend on each
/// other in ILU(0) and IC(0), so that triangular solves take one step per colour: two for five- and
/// seven-point stencils, where the order of the rows takes about as many as there are rows along
/// all axes together. The factors of such orders precondition less well: see
/// [`Order::Multicolor`](crate::Order::Multicolor).
///
/// The result is a function of the pattern alone. Time and memory are proportional to rows and
/// entries.
///
/// # Errors
/// [`SymbolicError::NotSquare`].
///
/// # Examples
/// ```
/// use sparsebatch_formats::Csr;
/// use sparsebatch_solve_core::symbolic::multicolor;
/// // Tridiagonal: red and black rows in turns.
/// let a = Csr::try_new(3, 3, vec![0, 2, 5, 7], vec![0, 1, 0, 1, 2, 1, 2], vec![1.0; 7])?;
/// assert_eq!(multicolor(a.view().pattern())?, [0, 2, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
/// Y. Saad, Iterative Methods for Sparse Linear Systems, 2nd ed. 2003, sections 3.3.3 and 12.4.
pub fn multicolor(pattern: CsrPatternRef<'_>) -> Result<Vec<u32>, SymbolicError> {
    let nrows = check_square(pattern)?;
    let neighbours = symmetric_neighbours(pattern);
    let mut colors = vec![u32::MAX; nrows];
    // For each colour the last row that found it taken.
    let mut taken: Vec<usize> = Vec::new();
    for row in 0..nrows {
        for &other in &neighbours[row] {
            if let Some(taken) = taken.get_mut(colors[other as usize] as usize) {
                *taken = row;
            }
        }
        let color = taken.iter().position(|&by| by != row).unwrap_or(taken.len());
        if color == taken.len() {
            taken.push(usize::MAX);
        }
        colors[row] = color as u32;
    }
    let mut order: Vec<u32> = (0..nrows as u32).collect();
    order.sort_by_key(|&row| colors[row as usize]);
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sparsebatch_formats::generate::{Family, Problem};
    use sparsebatch_formats::{CsrPattern, Pattern};

    /// The lengths of the levels of a lower triangular solve in an order: the number of rows whose
    /// longest chain of earlier neighbours has length 0, 1, ...
    fn levels(pattern: CsrPatternRef<'_>, order: &[u32]) -> Vec<usize> {
        let neighbours = symmetric_neighbours(pattern);
        let mut level = vec![None; pattern.nrows()];
        let mut sizes: Vec<usize> = Vec::new();
        for &row in order {
            let earlier =
                neighbours[row as usize].iter().filter_map(|&other| level[other as usize]);
            let own = earlier.max().map_or(0, |level: usize| level + 1);
            level[row as usize] = Some(own);
            sizes.resize(sizes.len().max(own + 1), 0);
            sizes[own] += 1;
        }
        sizes
    }

    #[test]
    fn a_five_point_stencil_has_two_colours() {
        let systems = Problem::new(Family::Lap2d, 900).unwrap().batch(1).unwrap();
        let a = systems.batch.pattern(0);
        let natural: Vec<u32> = (0..900).collect();

        let order = multicolor(a).unwrap();

        assert_eq!(levels(a, &order), [450, 450]);
        assert_eq!(levels(a, &natural).len(), 59);
        assert_eq!(order[..3], [0, 2, 4]);
        assert_eq!(order[450..453], [1, 3, 5]);
    }

    #[test]
    fn a_full_matrix_has_a_colour_for_each_row() {
        let a = CsrPattern::try_new(3, 3, vec![0, 3, 6, 9], [0, 1, 2].repeat(3)).unwrap();
        assert_eq!(multicolor(a.view()).unwrap(), [0, 1, 2]);
    }

    #[test]
    fn an_entry_on_one_side_alone_separates_two_rows() {
        let a = CsrPattern::try_new(3, 3, vec![0, 2, 3, 4], vec![0, 2, 1, 2]).unwrap();
        assert_eq!(multicolor(a.view()).unwrap(), [0, 1, 2]);
        let a = CsrPattern::try_new(3, 3, vec![0, 2, 3, 4], vec![0, 1, 1, 2]).unwrap();
        assert_eq!(multicolor(a.view()).unwrap(), [0, 2, 1]);
    }

    #[test]
    fn no_rows_and_no_square() {
        let empty = CsrPattern::try_new(0, 0, vec![0], vec![]).unwrap();
        assert!(multicolor(empty.view()).unwrap().is_empty());
        let wide = CsrPattern::try_new(1, 2, vec![0, 0], vec![]).unwrap();
        let error = multicolor(wide.view());
        assert_eq!(error, Err(SymbolicError::NotSquare { nrows: 1, ncols: 2 }));
    }

    proptest! {
        #[test]
        fn solves_take_at_most_a_level_more_than_a_row_has_neighbours(
            entries in prop::collection::vec((0..30usize, 0..30usize), 0..120),
        ) {
            let mut rows = vec![std::collections::BTreeSet::new(); 30];
            for (row, column) in entries {
                rows[row].insert(column as i32);
            }
            let mut row_ptr = vec![0];
            row_ptr.extend(rows.iter().scan(0, |sum, row| {
                *sum += row.len() as i32;
                Some(*sum)
            }));
            let columns = rows.into_iter().flatten().collect();
            let a = CsrPattern::try_new(30, 30, row_ptr, columns).unwrap();
            let order = multicolor(a.view()).unwrap();
            let mut all = order.clone();
            all.sort_unstable();
            prop_assert_eq!(all, (0..30).collect::<Vec<u32>>());
            // A greedy colouring takes at most one colour more than a row has neighbours, and a
            // chain of earlier neighbours has a colour less at each row.
            let neighbours = symmetric_neighbours(a.view());
            let most = neighbours.iter().map(Vec::len).max().unwrap_or(0);
            prop_assert!(levels(a.view(), &order).len() <= most + 1);
        }
    }
}
