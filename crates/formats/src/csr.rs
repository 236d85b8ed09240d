//! Compressed sparse rows: the hub of the conversions and the format of the solvers.

use std::sync::Arc;

use crate::error::{check_i32, check_index, check_len, check_pointers};
use crate::{FormatError, Matrix, Pattern, Scalar, View};

/// The sparsity pattern of a CSR matrix.
///
/// Invariants, all enforced by [`CsrPattern::try_new`]:
/// 1. `nrows`, `ncols` and the number of entries fit `i32`.
/// 2. `row_ptr` has `nrows + 1` entries, starts at 0, never decreases and ends at `nnz`.
/// 3. `col_idx` has `nnz` entries, each in `0..ncols`.
/// 4. Columns ascend strictly in each row: sorted and without duplicates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CsrPattern {
    ncols: usize,
    row_ptr: Vec<i32>,
    col_idx: Vec<i32>,
}

/// A borrowed [`CsrPattern`], possibly one item of a [`RaggedCsr`](crate::RaggedCsr).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CsrPatternRef<'a> {
    ncols: usize,
    row_ptr: &'a [i32],
    col_idx: &'a [i32],
}

/// A matrix in compressed sparse rows.
///
/// # Examples
/// ```
/// use sparsebatch_formats::Csr;
/// // [2 0; 1 3]
/// let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 3.0])?;
/// assert_eq!(a.nnz(), 3);
/// # Ok::<(), sparsebatch_formats::FormatError>(())
/// ```
pub type Csr<T> = Matrix<CsrPattern, T>;

/// Checks the CSR invariants of borrowed arrays.
pub(crate) fn check_csr(
    nrows: usize,
    ncols: usize,
    row_ptr: &[i32],
    col_idx: &[i32],
) -> Result<(), FormatError> {
    check_i32("nrows", nrows)?;
    check_i32("ncols", ncols)?;
    check_i32("nnz", col_idx.len())?;
    check_len("row_ptr", nrows + 1, row_ptr.len())?;
    check_pointers("row_ptr", row_ptr, col_idx.len())?;
    for row in row_ptr.windows(2) {
        let mut previous = -1;
        let columns = &col_idx[row[0] as usize..row[1] as usize];
        for (position, &found) in (row[0] as usize..).zip(columns) {
            check_index("col_idx", position, found, ncols)?;
            if found <= previous {
                return Err(FormatError::NotAscending {
                    what: "col_idx",
                    position,
                    previous: i64::from(previous),
                    found: i64::from(found),
                });
            }
            previous = found;
        }
    }
    Ok(())
}

impl CsrPattern {
    /// Validates a pattern in one pass.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`], [`FormatError::Length`], [`FormatError::Pointer`],
    /// [`FormatError::IndexOutOfRange`] or [`FormatError::NotAscending`] for the first broken
    /// invariant.
    pub fn try_new(
        nrows: usize,
        ncols: usize,
        row_ptr: Vec<i32>,
        col_idx: Vec<i32>,
    ) -> Result<Self, FormatError> {
        check_csr(nrows, ncols, &row_ptr, &col_idx)?;
        Ok(Self { ncols, row_ptr, col_idx })
    }

    /// Skips validation: the arrays hold the invariants by construction.
    pub(crate) fn new_unvalidated(ncols: usize, row_ptr: Vec<i32>, col_idx: Vec<i32>) -> Self {
        debug_assert!(check_csr(row_ptr.len() - 1, ncols, &row_ptr, &col_idx).is_ok());
        Self { ncols, row_ptr, col_idx }
    }

    /// Row starts, `nrows + 1` of them.
    pub fn row_ptr(&self) -> &[i32] {
        &self.row_ptr
    }

    /// Column indices, row by row, ascending within each row.
    pub fn col_idx(&self) -> &[i32] {
        &self.col_idx
    }

    /// Splits the pattern into its row starts and its column indices.
    pub fn into_parts(self) -> (Vec<i32>, Vec<i32>) {
        (self.row_ptr, self.col_idx)
    }
}

impl Pattern for CsrPattern {
    type Ref<'a> = CsrPatternRef<'a>;
    const NAME: &'static str = "csr";

    fn view(&self) -> CsrPatternRef<'_> {
        CsrPatternRef { ncols: self.ncols, row_ptr: &self.row_ptr, col_idx: &self.col_idx }
    }
    fn nrows(&self) -> usize {
        self.row_ptr.len() - 1
    }
    fn ncols(&self) -> usize {
        self.ncols
    }
    fn nnz(&self) -> usize {
        self.col_idx.len()
    }
    fn stored_len(&self) -> usize {
        self.col_idx.len()
    }
    fn index_bytes(&self) -> usize {
        4 * (self.row_ptr.len() + self.col_idx.len())
    }
}

impl<'a> CsrPatternRef<'a> {
    /// Skips validation: the caller has checked the invariants.
    pub(crate) fn new_unvalidated(ncols: usize, row_ptr: &'a [i32], col_idx: &'a [i32]) -> Self {
        Self { ncols, row_ptr, col_idx }
    }

    /// Number of rows.
    #[inline]
    pub fn nrows(self) -> usize {
        self.row_ptr.len() - 1
    }

    /// Number of columns.
    #[inline]
    pub fn ncols(self) -> usize {
        self.ncols
    }

    /// Stored entries.
    #[inline]
    pub fn nnz(self) -> usize {
        self.col_idx.len()
    }

    /// Row starts, `nrows + 1` of them.
    #[inline]
    pub fn row_ptr(self) -> &'a [i32] {
        self.row_ptr
    }

    /// Column indices, row by row, ascending within each row.
    #[inline]
    pub fn col_idx(self) -> &'a [i32] {
        self.col_idx
    }

    /// The positions of a row's entries.
    ///
    /// # Panics
    /// When `row >= nrows()`.
    #[inline]
    pub fn row(self, row: usize) -> std::ops::Range<usize> {
        self.row_ptr[row] as usize..self.row_ptr[row + 1] as usize
    }

    /// The position of entry (`row`, `col`), by binary search; `None` where nothing is stored and
    /// outside the matrix.
    pub fn position(self, row: usize, col: usize) -> Option<usize> {
        if row >= self.nrows() {
            return None;
        }
        let col = i32::try_from(col).ok()?;
        let range = self.row(row);
        let start = range.start;
        self.col_idx[range].binary_search(&col).ok().map(|k| start + k)
    }

    /// A copy that owns its arrays.
    pub fn to_pattern(self) -> CsrPattern {
        CsrPattern {
            ncols: self.ncols,
            row_ptr: self.row_ptr.to_vec(),
            col_idx: self.col_idx.to_vec(),
        }
    }
}

impl<T: Scalar> Csr<T> {
    /// Validates a CSR matrix in one pass; see [`CsrPattern`] for the invariants.
    ///
    /// # Errors
    /// Those of [`CsrPattern::try_new`], and [`FormatError::Length`] when `values` does not hold
    /// one value per column index.
    pub fn try_new(
        nrows: usize,
        ncols: usize,
        row_ptr: Vec<i32>,
        col_idx: Vec<i32>,
        values: Vec<T>,
    ) -> Result<Self, FormatError> {
        let pattern = CsrPattern::try_new(nrows, ncols, row_ptr, col_idx)?;
        Self::from_parts(Arc::new(pattern), values)
    }

    /// A matrix without entries.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] when a dimension exceeds `i32`.
    pub fn zeros(nrows: usize, ncols: usize) -> Result<Self, FormatError> {
        check_i32("nrows", nrows)?;
        Self::try_new(nrows, ncols, vec![0; nrows + 1], Vec::new(), Vec::new())
    }

    /// Row starts, `nrows + 1` of them.
    pub fn row_ptr(&self) -> &[i32] {
        self.pattern().row_ptr()
    }

    /// Column indices, row by row, ascending within each row.
    pub fn col_idx(&self) -> &[i32] {
        self.pattern().col_idx()
    }

    /// The columns of a row, ascending, and their values.
    ///
    /// # Panics
    /// When `row >= nrows()`.
    ///
    /// # Examples
    /// ```
    /// use sparsebatch_formats::Csr;
    /// // [1 2; . 3]
    /// let a = Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![1.0, 2.0, 3.0])?;
    /// assert_eq!(a.row(0), (&[0, 1][..], &[1.0, 2.0][..]));
    /// let trace: f64 = a.triplet_iter().filter(|(row, col, _)| row == col).map(|(.., v)| v).sum();
    /// assert_eq!(trace, 4.0);
    /// # Ok::<(), sparsebatch_formats::FormatError>(())
    /// ```
    pub fn row(&self, row: usize) -> (&[i32], &[T]) {
        self.view().row(row)
    }

    /// The rows, first to last, as [`Csr::row`] gives them.
    pub fn row_iter(&self) -> impl ExactSizeIterator<Item = (&[i32], &[T])> {
        self.view().row_iter()
    }

    /// The entries as (row, column, value), row by row.
    pub fn triplet_iter(&self) -> impl Iterator<Item = (usize, usize, T)> {
        self.view().triplet_iter()
    }
}

impl<'a, T: Scalar> View<'a, CsrPattern, T> {
    /// The columns of a row, ascending, and their values.
    ///
    /// # Panics
    /// When `row >= nrows()`.
    pub fn row(self, row: usize) -> (&'a [i32], &'a [T]) {
        let range = self.pattern().row(row);
        (&self.pattern().col_idx()[range.clone()], &self.values()[range])
    }

    /// The rows, first to last, as [`View::row`] gives them.
    pub fn row_iter(self) -> impl ExactSizeIterator<Item = (&'a [i32], &'a [T])> {
        (0..self.pattern().nrows()).map(move |row| self.row(row))
    }

    /// The entries as (row, column, value), row by row.
    pub fn triplet_iter(self) -> impl Iterator<Item = (usize, usize, T)> {
        self.row_iter().enumerate().flat_map(|(row, (columns, values))| {
            columns.iter().zip(values).map(move |(&col, &value)| (row, col as usize, value))
        })
    }

    /// A copy that owns its arrays.
    pub fn to_csr(self) -> Csr<T> {
        Matrix::from_parts(Arc::new(self.pattern().to_pattern()), self.values().to_vec())
            .expect("a view's values fit its pattern")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_triplets_give_every_entry_once() {
        let a = Csr::try_new(3, 3, vec![0, 2, 2, 3], vec![0, 2, 1], vec![1.0, 2.0, 3.0]).unwrap();

        let triplets: Vec<_> = a.triplet_iter().collect();
        let lengths: Vec<usize> = a.row_iter().map(|(columns, _)| columns.len()).collect();

        assert_eq!(triplets, [(0, 0, 1.0), (0, 2, 2.0), (2, 1, 3.0)]);
        assert_eq!((lengths, a.row(2)), (vec![2, 0, 1], (&[1][..], &[3.0][..])));
    }

    #[test]
    fn positions_outside_the_matrix_are_none() {
        let a = Csr::try_new(2, 3, vec![0, 2, 3], vec![0, 2, 1], vec![1.0; 3]).unwrap();
        let pattern = a.view().pattern();

        let found = [(0, 2), (1, 1), (1, 0), (2, 0), (usize::MAX, 0), (0, 3), (0, 1 << 32)];
        let found = found.map(|(row, col)| pattern.position(row, col));

        assert_eq!(found, [Some(1), Some(2), None, None, None, None, None]);
    }

    #[test]
    fn dimensions_beyond_32_bits_are_refused() {
        for nrows in [1 << 31, usize::MAX] {
            let error = Csr::<f64>::zeros(nrows, 1).unwrap_err();
            assert!(matches!(error, FormatError::TooLarge { what: "nrows", .. }), "{error}");
        }
    }
}
