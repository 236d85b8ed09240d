//! The pattern of the factors L and U of an unsymmetric matrix.

use sparsebatch_formats::CsrPatternRef;

use super::reach::Reach;
use super::{NO_SOURCE, Permutation, SymbolicError, check_square};

/// The pattern of `L + U`, where `L U` is (or approximates) `P A P^T`: L is unit lower triangular
/// (its diagonal is not stored), U is upper triangular, and both are stored together row by row.
///
/// Invariants, all enforced by the constructors:
/// 1. `perm` holds every index in `0..nrows` once: position -> row and column of A.
/// 2. `row_ptr` has `nrows + 1` entries, starts at 0, never decreases and ends at `nnz`.
/// 3. `cols` has `nnz` entries, permuted indices in `0..nrows`, ascending strictly in each row.
/// 4. Every row holds its diagonal, at position `diag[row]`; the entries before it belong to L,
///    those from it on to U.
/// 5. `source` has `nnz` entries: the position in A's value array of the entry
///    `(perm[row], perm[col])`, or [`NO_SOURCE`] where A has none. Every entry of A has one slot.
/// 6. The counts fit `i32`.
///
/// A numeric phase gathers A through `source` (0 for [`NO_SOURCE`]) and eliminates row after row:
/// for each `k < row` in the row, ascending, `l = a[row][k] / u[k][k]`, then
/// `a[row][j] -= l * u[k][j]` for the entries `j > k` of row k that row `row` has too. With
/// [`FactorPattern::lu`] row `row` has all of them; with [`FactorPattern::ilu0`] the others are
/// dropped. Both triangular solves run over rows and gather.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactorPattern {
    perm: Vec<u32>,
    row_ptr: Vec<u32>,
    cols: Vec<u32>,
    diag: Vec<u32>,
    source: Vec<u32>,
    missing_diagonal: Vec<u32>,
}

impl FactorPattern {
    /// The pattern of ILU(0): that of `P A P^T`, plus the diagonal where A lacks it.
    ///
    /// `order` is position -> index of A, `None` the natural order. Added diagonal slots have the
    /// source [`NO_SOURCE`]; [`missing_diagonal`](Self::missing_diagonal) names their rows.
    /// Cost: one sort per row.
    ///
    /// # Errors
    /// [`SymbolicError::NotSquare`]; [`SymbolicError::OrderLength`] or
    /// [`SymbolicError::NotPermutation`] for a bad order; [`SymbolicError::TooManyEntries`] when
    /// the added diagonal exceeds `i32`.
    ///
    /// # Source
    /// Y. Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., 2003, algorithm 10.4,
    /// doi:10.1137/1.9780898718003.
    pub fn ilu0(pattern: CsrPatternRef<'_>, order: Option<&[u32]>) -> Result<Self, SymbolicError> {
        let nrows = check_square(pattern)?;
        let mut build = Builder::new(pattern, Permutation::try_new(order, nrows)?);
        let mut row = Vec::new();
        for position in 0..nrows {
            build.permutation.permuted_row(pattern, position, &mut row);
            let col = position as u32;
            if let Err(slot) = row.binary_search_by_key(&col, |entry| entry.0) {
                row.insert(slot, (col, NO_SOURCE));
            }
            build.push_row(&row, i32::MAX as usize)?;
        }
        Ok(build.finish())
    }

    /// The pattern of the factors of `P A P^T` by elimination without pivoting, all fill included.
    ///
    /// `order` is position -> index of A, `None` the natural order;
    /// [`min_degree`](super::min_degree()) gives one with little fill. `limit` is the largest
    /// number of entries of `L + U` allowed (capped at `i32::MAX`). Entries that cancel
    /// numerically are kept: the pattern holds for any values.
    ///
    /// Row `i` holds all `j` that can be reached from the entries of row `i` of `P A P^T` through
    /// rows of U with an index below `min(i, j)`. Rows of U are pruned symmetrically, so that the
    /// search costs O(entries of `L + U`) on structurally symmetric patterns and at most
    /// O([`flops`](Self::flops)) otherwise, plus one sort per row.
    ///
    /// # Errors
    /// [`SymbolicError::NotSquare`]; [`SymbolicError::OrderLength`] or
    /// [`SymbolicError::NotPermutation`] for a bad order; [`SymbolicError::TooManyEntries`] when
    /// the factors exceed `limit`.
    ///
    /// # Source
    /// J. R. Gilbert and T. Peierls, Sparse partial pivoting in time proportional to arithmetic
    /// operations, 1988, doi:10.1137/0909058; S. C. Eisenstat and J. W. H. Liu, Exploiting
    /// structural symmetry in unsymmetric sparse symbolic factorization, 1992,
    /// doi:10.1137/0613013.
    pub fn lu(
        pattern: CsrPatternRef<'_>,
        order: Option<&[u32]>,
        limit: usize,
    ) -> Result<Self, SymbolicError> {
        let nrows = check_square(pattern)?;
        let limit = limit.min(i32::MAX as usize);
        let mut build = Builder::new(pattern, Permutation::try_new(order, nrows)?);
        let mut search = Reach::new(nrows);
        let (mut row, mut filled) = (Vec::new(), Vec::new());
        for position in 0..nrows {
            build.permutation.permuted_row(pattern, position, &mut row);
            search.row(position, &row, &build.row_ptr, &build.diag, &build.cols);
            filled.clear();
            let mut own = row.iter().copied().peekable();
            for &col in &search.found {
                let entry = own.next_if(|entry| entry.0 == col);
                filled.push(entry.unwrap_or((col, NO_SOURCE)));
            }
            build.push_row(&filled, limit)?;
            search.prune(position, &build.row_ptr, &build.diag, &build.cols);
        }
        Ok(build.finish())
    }

    /// Rows (and columns) of the matrix.
    #[inline]
    pub fn nrows(&self) -> usize {
        self.perm.len()
    }

    /// Entries of `L + U`, the diagonal counted once.
    #[inline]
    pub fn nnz(&self) -> usize {
        self.cols.len()
    }

    /// Maps a position in the factors to the row and column of A.
    #[inline]
    pub fn perm(&self) -> &[u32] {
        &self.perm
    }

    /// Row starts, `nrows + 1` of them.
    #[inline]
    pub fn row_ptr(&self) -> &[u32] {
        &self.row_ptr
    }

    /// Columns in the permuted numbering, ascending in each row, `nnz` of them.
    #[inline]
    pub fn cols(&self) -> &[u32] {
        &self.cols
    }

    /// The position of each row's diagonal entry among the `nnz` entries.
    #[inline]
    pub fn diag(&self) -> &[u32] {
        &self.diag
    }

    /// The position of each entry in A's value array, or [`NO_SOURCE`].
    #[inline]
    pub fn source(&self) -> &[u32] {
        &self.source
    }

    /// The positions of a row's entries of L, its unit diagonal not among them.
    #[inline]
    pub fn lower(&self, row: usize) -> std::ops::Range<usize> {
        self.row_ptr[row] as usize..self.diag[row] as usize
    }

    /// The positions of a row's entries of U right of the diagonal.
    #[inline]
    pub fn upper(&self, row: usize) -> std::ops::Range<usize> {
        self.diag[row] as usize + 1..self.row_ptr[row + 1] as usize
    }

    /// Rows of A without a diagonal entry, in the order of the factors.
    #[inline]
    pub fn missing_diagonal(&self) -> &[u32] {
        &self.missing_diagonal
    }

    /// Entries of `L + U` that A does not have, added diagonals among them.
    pub fn fill(&self) -> usize {
        self.source.iter().filter(|&&k| k == NO_SOURCE).count()
    }

    /// Multiply-adds `a[i][j] -= l[i][k] * u[k][j]` of the numeric phase. The divisions, one per
    /// entry of L, are not counted; nor are the solves, `nnz` multiply-adds each.
    pub fn flops(&self) -> u64 {
        let mut in_row = vec![usize::MAX; self.nrows()];
        let mut flops = 0;
        for row in 0..self.nrows() {
            for k in self.row_ptr[row] as usize..self.row_ptr[row + 1] as usize {
                in_row[self.cols[k] as usize] = row;
            }
            for k in self.lower(row) {
                let updates = &self.cols[self.upper(self.cols[k] as usize)];
                flops += updates.iter().filter(|&&col| in_row[col as usize] == row).count() as u64;
            }
        }
        flops
    }
}

/// A [`FactorPattern`] that grows row by row.
struct Builder {
    permutation: Permutation,
    row_ptr: Vec<u32>,
    cols: Vec<u32>,
    diag: Vec<u32>,
    source: Vec<u32>,
    missing_diagonal: Vec<u32>,
}

impl Builder {
    fn new(pattern: CsrPatternRef<'_>, permutation: Permutation) -> Self {
        let nrows = permutation.order.len();
        let mut row_ptr = Vec::with_capacity(nrows + 1);
        row_ptr.push(0);
        Self {
            permutation,
            row_ptr,
            cols: Vec::with_capacity(pattern.nnz()),
            diag: Vec::with_capacity(nrows),
            source: Vec::with_capacity(pattern.nnz()),
            missing_diagonal: Vec::new(),
        }
    }

    /// Appends a row: (column, source), columns ascending, the diagonal among them.
    fn push_row(&mut self, row: &[(u32, u32)], limit: usize) -> Result<(), SymbolicError> {
        let position = self.diag.len();
        let entries = self.cols.len() + row.len();
        if entries > limit {
            return Err(SymbolicError::TooManyEntries {
                entries,
                row: position,
                nrows: self.permutation.order.len(),
                limit,
            });
        }
        for &(col, source) in row {
            if col as usize == position {
                self.diag.push(self.cols.len() as u32);
                // Fill on the diagonal counts as missing: A itself has no such entry.
                if source == NO_SOURCE {
                    self.missing_diagonal.push(self.permutation.order[position]);
                }
            }
            self.cols.push(col);
            self.source.push(source);
        }
        self.row_ptr.push(entries as u32);
        debug_assert_eq!(self.diag.len(), position + 1);
        Ok(())
    }

    fn finish(self) -> FactorPattern {
        FactorPattern {
            perm: self.permutation.order,
            row_ptr: self.row_ptr,
            cols: self.cols,
            diag: self.diag,
            source: self.source,
            missing_diagonal: self.missing_diagonal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};

    fn pattern(nrows: usize, rows: &[&[i32]]) -> CsrPattern {
        let mut row_ptr = vec![0];
        let mut col_idx = Vec::new();
        for row in rows {
            col_idx.extend_from_slice(row);
            row_ptr.push(col_idx.len() as i32);
        }
        CsrPattern::try_new(rows.len(), nrows, row_ptr, col_idx).unwrap()
    }

    /// Row and column 0 full, else diagonal.
    fn arrow() -> CsrPattern {
        pattern(4, &[&[0, 1, 2, 3], &[0, 1], &[0, 2], &[0, 3]])
    }

    #[test]
    fn lu_of_an_arrow_fills_up_in_natural_order() {
        let factor = FactorPattern::lu(arrow().view(), None, 16).unwrap();

        assert_eq!(factor.nnz(), 16);
        assert_eq!(factor.fill(), 6);
        assert_eq!(factor.row_ptr(), [0, 4, 8, 12, 16]);
        assert_eq!(factor.diag(), [0, 5, 10, 15]);
        assert_eq!(factor.source()[4..8], [4, 5, NO_SOURCE, NO_SOURCE]);
        // 3 rows x 3 columns, then 2 x 2, then 1.
        assert_eq!(factor.flops(), 9 + 4 + 1);
        assert!(factor.missing_diagonal().is_empty());
    }

    #[test]
    fn lu_of_an_arrow_has_no_fill_when_reversed() {
        let factor = FactorPattern::lu(arrow().view(), Some(&[3, 2, 1, 0]), 10).unwrap();

        assert_eq!(factor.nnz(), 10);
        assert_eq!(factor.fill(), 0);
        assert_eq!(factor.perm(), [3, 2, 1, 0]);
        assert_eq!(factor.cols(), [0, 3, 1, 3, 2, 3, 0, 1, 2, 3]);
        assert_eq!(factor.source(), [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
        assert_eq!(factor.flops(), 3);
        assert_eq!(factor.lower(3), 6..9);
        assert_eq!(factor.upper(0), 1..2);
    }

    #[test]
    fn lu_names_the_size_that_passes_the_limit() {
        let error = FactorPattern::lu(arrow().view(), None, 15).unwrap_err();

        assert_eq!(
            error.to_string(),
            "the factors hold 16 entries up to row 3 of 4, the limit is 15"
        );
    }

    #[test]
    fn lu_follows_unsymmetric_paths() {
        // Row 2 reaches column 3 through row 0, then row 1: 2 -> 0 -> 1 -> 3.
        let a = pattern(4, &[&[0, 1], &[1, 3], &[0, 2], &[3]]);

        let factor = FactorPattern::lu(a.view(), None, 16).unwrap();

        assert_eq!(factor.cols(), [0, 1, 1, 3, 0, 1, 2, 3, 3]);
        assert_eq!(factor.fill(), 2);
    }

    #[test]
    fn ilu0_keeps_the_pattern_and_adds_missing_diagonals() {
        let a = pattern(3, &[&[1], &[0, 1, 2], &[]]);

        let factor = FactorPattern::ilu0(a.view(), Some(&[2, 1, 0])).unwrap();

        assert_eq!(factor.row_ptr(), [0, 1, 4, 6]);
        assert_eq!(factor.cols(), [0, 0, 1, 2, 1, 2]);
        assert_eq!(factor.source(), [NO_SOURCE, 3, 2, 1, 0, NO_SOURCE]);
        assert_eq!(factor.diag(), [0, 2, 5]);
        assert_eq!(factor.missing_diagonal(), [2, 0]);
    }

    #[test]
    fn ilu0_counts_only_updates_inside_the_pattern() {
        let factor = FactorPattern::ilu0(arrow().view(), None).unwrap();

        assert_eq!(factor.fill(), 0);
        assert_eq!(factor.flops(), 3);
    }

    #[test]
    fn a_matrix_that_is_not_square_is_refused() {
        let a = pattern(3, &[&[0], &[1]]);
        let expected = SymbolicError::NotSquare { nrows: 2, ncols: 3 };

        assert_eq!(FactorPattern::ilu0(a.view(), None).err(), Some(expected.clone()));
        assert_eq!(FactorPattern::lu(a.view(), None, 9).err(), Some(expected));
    }

    #[test]
    fn a_matrix_without_rows_has_empty_factors() {
        let a = CsrPattern::try_new(0, 0, vec![0], vec![]).unwrap();

        let factor = FactorPattern::lu(a.view(), Some(&[]), 0).unwrap();

        assert_eq!((factor.nrows(), factor.nnz(), factor.flops()), (0, 0, 0));
        assert_eq!(factor.row_ptr(), [0]);
    }
}
