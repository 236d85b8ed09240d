//! The pattern of the factor L of a symmetric matrix.

use std::ops::Range;

use sparsebatch_formats::CsrPatternRef;

use super::{NO_SOURCE, Permutation, SymbolicError, check_square};

/// The pattern of a lower triangular factor L, where `L L^T` approximates `P A P^T`, by rows and,
/// below the diagonal, by columns.
///
/// Invariants, all enforced by the constructor:
/// 1. `perm` holds every index in `0..nrows` once: position -> row and column of A.
/// 2. `row_ptr` has `nrows + 1` entries, starts at 0, increases and ends at `nnz`.
/// 3. `cols` has `nnz` entries, permuted indices, ascending strictly in each row; the last one of
///    each row is its diagonal.
/// 4. `source` has `nnz` entries: the position in A's value array of the entry
///    `(perm[row], perm[col])`, or [`NO_SOURCE`] for a diagonal that A lacks.
/// 5. `col_ptr` has `nrows + 1` entries; `rows` and `pos` hold the entries strictly below the
///    diagonal column by column, rows ascending: `pos` is their position among the `nnz` entries.
/// 6. The counts fit `i32`.
///
/// Both triangular solves gather. Forward, rows ascending:
/// `y[i] = (b[i] - sum over k in strict(i) of l[k] * y[cols[k]]) / l[diagonal(i)]`. Backward, rows
/// descending:
/// `x[j] = (y[j] - sum over k in column(j) of l[pos[k]] * x[rows[k]]) / l[diagonal(j)]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowerPattern {
    perm: Vec<u32>,
    row_ptr: Vec<u32>,
    cols: Vec<u32>,
    source: Vec<u32>,
    missing_diagonal: Vec<u32>,
    col_ptr: Vec<u32>,
    rows: Vec<u32>,
    pos: Vec<u32>,
}

impl LowerPattern {
    /// The pattern of IC(0): the lower triangle of `P A P^T`, plus the diagonal where A lacks it.
    ///
    /// `order` is position -> index of A, `None` the natural order. Only the lower triangle of the
    /// permuted matrix is looked at: the upper one is taken for its mirror image, and an entry that
    /// A stores in the upper triangle alone is left out. Cost: one sort per row.
    ///
    /// # Errors
    /// [`SymbolicError::NotSquare`]; [`SymbolicError::OrderLength`] or
    /// [`SymbolicError::NotPermutation`] for a bad order; [`SymbolicError::TooManyEntries`] when
    /// the added diagonal exceeds `i32`.
    ///
    /// # Source
    /// J. A. Meijerink and H. A. van der Vorst, An iterative solution method for linear systems of
    /// which the coefficient matrix is a symmetric M-matrix, 1977,
    /// doi:10.1090/S0025-5718-1977-0438681-4 (ICCG(0)).
    pub fn ic0(pattern: CsrPatternRef<'_>, order: Option<&[u32]>) -> Result<Self, SymbolicError> {
        let nrows = check_square(pattern)?;
        let permutation = Permutation::try_new(order, nrows)?;
        let limit = i32::MAX as usize;
        let mut row_ptr = Vec::with_capacity(nrows + 1);
        row_ptr.push(0);
        let (mut cols, mut source) = (Vec::new(), Vec::new());
        let mut missing_diagonal = Vec::new();
        let mut row = Vec::new();
        for position in 0..nrows {
            let diagonal = position as u32;
            permutation.permuted_row(pattern, position, &mut row);
            row.truncate(row.partition_point(|entry| entry.0 <= diagonal));
            if row.last().is_none_or(|entry| entry.0 != diagonal) {
                row.push((diagonal, NO_SOURCE));
                missing_diagonal.push(permutation.order[position]);
            }
            cols.extend(row.iter().map(|entry| entry.0));
            source.extend(row.iter().map(|entry| entry.1));
            if cols.len() > limit {
                return Err(SymbolicError::TooManyEntries {
                    entries: cols.len(),
                    row: position,
                    nrows,
                    limit,
                });
            }
            row_ptr.push(cols.len() as u32);
        }
        let (col_ptr, rows, pos) = columns_below_diagonal(&row_ptr, &cols);
        Ok(Self {
            perm: permutation.order,
            row_ptr,
            cols,
            source,
            missing_diagonal,
            col_ptr,
            rows,
            pos,
        })
    }

    /// Rows (and columns) of the matrix.
    #[inline]
    pub fn nrows(&self) -> usize {
        self.perm.len()
    }

    /// Entries of L, the diagonal included.
    #[inline]
    pub fn nnz(&self) -> usize {
        self.cols.len()
    }

    /// Maps a position in the factor to the row and column of A.
    #[inline]
    pub fn perm(&self) -> &[u32] {
        &self.perm
    }

    /// Row starts, `nrows + 1` of them.
    #[inline]
    pub fn row_ptr(&self) -> &[u32] {
        &self.row_ptr
    }

    /// Columns in the permuted numbering, ascending in each row, the diagonal last.
    #[inline]
    pub fn cols(&self) -> &[u32] {
        &self.cols
    }

    /// The position of each entry in A's value array, or [`NO_SOURCE`].
    #[inline]
    pub fn source(&self) -> &[u32] {
        &self.source
    }

    /// Rows of A without a diagonal entry, in the order of the factor.
    #[inline]
    pub fn missing_diagonal(&self) -> &[u32] {
        &self.missing_diagonal
    }

    /// Column starts in `rows` and `pos`, `nrows + 1` of them.
    #[inline]
    pub fn col_ptr(&self) -> &[u32] {
        &self.col_ptr
    }

    /// Rows of the entries strictly below the diagonal, column by column, `nnz - nrows` of them.
    #[inline]
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// For each entry of `rows`, its position among the `nnz` entries of the factor.
    #[inline]
    pub fn pos(&self) -> &[u32] {
        &self.pos
    }

    /// The position of a row's diagonal entry.
    #[inline]
    pub fn diagonal(&self, row: usize) -> usize {
        self.row_ptr[row + 1] as usize - 1
    }

    /// The positions of a row's entries left of the diagonal.
    #[inline]
    pub fn strict(&self, row: usize) -> Range<usize> {
        self.row_ptr[row] as usize..self.diagonal(row)
    }

    /// The positions in `rows` and `pos` of a column's entries below the diagonal.
    #[inline]
    pub fn column(&self, col: usize) -> Range<usize> {
        self.col_ptr[col] as usize..self.col_ptr[col + 1] as usize
    }

    /// Multiply-adds `l[i][j] -= l[i][k] * l[j][k]` of the numeric phase. Divisions and square
    /// roots, one per entry, are not counted; nor are the solves, `nnz` multiply-adds each.
    pub fn flops(&self) -> u64 {
        let mut in_row = vec![usize::MAX; self.nrows()];
        let mut flops = 0;
        for row in 0..self.nrows() {
            for k in self.strict(row) {
                in_row[self.cols[k] as usize] = row;
            }
            for k in self.row_ptr[row] as usize..self.row_ptr[row + 1] as usize {
                let shared = &self.cols[self.strict(self.cols[k] as usize)];
                flops += shared.iter().filter(|&&col| in_row[col as usize] == row).count() as u64;
            }
        }
        flops
    }
}

/// The entries strictly below the diagonal by columns: column starts, rows, positions. The last
/// entry of each row is its diagonal.
fn columns_below_diagonal(row_ptr: &[u32], cols: &[u32]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let nrows = row_ptr.len() - 1;
    let strict = |row: usize| row_ptr[row] as usize..row_ptr[row + 1] as usize - 1;
    let mut col_ptr = vec![0u32; nrows + 1];
    for row in 0..nrows {
        for &col in &cols[strict(row)] {
            col_ptr[col as usize + 1] += 1;
        }
    }
    for col in 0..nrows {
        col_ptr[col + 1] += col_ptr[col];
    }
    let mut next = col_ptr.clone();
    let mut rows = vec![0; cols.len() - nrows];
    let mut pos = rows.clone();
    for row in 0..nrows {
        for k in strict(row) {
            let slot = &mut next[cols[k] as usize];
            rows[*slot as usize] = row as u32;
            pos[*slot as usize] = k as u32;
            *slot += 1;
        }
    }
    (col_ptr, rows, pos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};

    /// [x x . .; x x x .; . x x x; . . x x]
    fn tridiagonal() -> CsrPattern {
        CsrPattern::try_new(4, 4, vec![0, 2, 5, 8, 10], vec![0, 1, 0, 1, 2, 1, 2, 3, 2, 3]).unwrap()
    }

    #[test]
    fn ic0_holds_the_lower_triangle_with_the_diagonal_last() {
        let factor = LowerPattern::ic0(tridiagonal().view(), None).unwrap();

        assert_eq!(factor.row_ptr(), [0, 1, 3, 5, 7]);
        assert_eq!(factor.cols(), [0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(factor.source(), [0, 2, 3, 5, 6, 8, 9]);
        assert_eq!(factor.diagonal(2), 4);
        assert_eq!(factor.strict(2), 3..4);
        assert_eq!(factor.flops(), 3);
    }

    #[test]
    fn ic0_columns_point_into_the_rows() {
        let factor = LowerPattern::ic0(tridiagonal().view(), None).unwrap();

        assert_eq!(factor.col_ptr(), [0, 1, 2, 3, 3]);
        assert_eq!(factor.rows(), [1, 2, 3]);
        assert_eq!(factor.pos(), [1, 3, 5]);
        assert_eq!(factor.column(3), 3..3);
    }

    #[test]
    fn ic0_takes_entries_from_the_permuted_lower_triangle() {
        let factor = LowerPattern::ic0(tridiagonal().view(), Some(&[3, 1, 0, 2])).unwrap();

        // Permuted: row 1 is old 1 (no entry at old 3), row 2 old 0, row 3 old 2.
        assert_eq!(factor.cols(), [0, 1, 1, 2, 0, 1, 3]);
        assert_eq!(factor.source(), [9, 3, 1, 0, 7, 5, 6]);
    }

    #[test]
    fn ic0_leaves_out_missing_partners_and_names_missing_diagonals() {
        // [. x; . x]: the upper entry has no partner, row 0 no diagonal.
        let a = CsrPattern::try_new(2, 2, vec![0, 1, 2], vec![1, 1]).unwrap();

        let natural = LowerPattern::ic0(a.view(), None).unwrap();
        let reversed = LowerPattern::ic0(a.view(), Some(&[1, 0])).unwrap();

        assert_eq!(natural.cols(), [0, 1]);
        assert_eq!(natural.source(), [NO_SOURCE, 1]);
        assert_eq!(natural.missing_diagonal(), [0]);
        assert_eq!(reversed.cols(), [0, 0, 1]);
        assert_eq!(reversed.source(), [1, 0, NO_SOURCE]);
    }

    #[test]
    fn ic0_of_a_matrix_that_is_not_square_is_refused() {
        let a = CsrPattern::try_new(1, 2, vec![0, 1], vec![1]).unwrap();

        assert_eq!(
            LowerPattern::ic0(a.view(), None),
            Err(SymbolicError::NotSquare { nrows: 1, ncols: 2 })
        );
    }
}
