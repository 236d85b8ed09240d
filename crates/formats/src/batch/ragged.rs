//! Ragged batches: every item has its own size and pattern.

use super::{BatchOf, Values};
use crate::csr::check_csr;
use crate::error::check_len;
use crate::{CsrPattern, CsrPatternRef, FormatError, Matrix, Pattern, Scalar, View};

/// CSR matrices of any sizes, concatenated. Nothing is shared between items.
///
/// Item `i` has the rows `row_offsets[i]..row_offsets[i + 1]` of an item-major result, the
/// columns `col_offsets[i]..col_offsets[i + 1]` of an item-major operand, the entries
/// `nnz_offsets[i]..nnz_offsets[i + 1]`, and its own `row_ptr` (starting at 0, one entry more than
/// it has rows) at `row_offsets[i] + i`. Offsets are 64-bit; local indices `i32`.
///
/// Invariants: each item satisfies those of [`CsrPattern`]; offsets start at 0 and never decrease.
#[derive(Clone, Debug, PartialEq)]
pub struct RaggedCsr<T> {
    row_offsets: Vec<usize>,
    col_offsets: Vec<usize>,
    nnz_offsets: Vec<usize>,
    row_ptr: Vec<i32>,
    col_idx: Vec<i32>,
    values: Values<T>,
}

impl<T: Scalar> Default for RaggedCsr<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Scalar> RaggedCsr<T> {
    /// An empty batch.
    pub fn new() -> Self {
        Self {
            row_offsets: vec![0],
            col_offsets: vec![0],
            nnz_offsets: vec![0],
            row_ptr: Vec::new(),
            col_idx: Vec::new(),
            values: Values::from(Vec::new()),
        }
    }

    /// Validates concatenated arrays. `nrows`, `ncols` and `nnz` have one entry per item; the
    /// `row_ptr` of each item starts at 0.
    ///
    /// # Errors
    /// [`FormatError::Length`] when an array's length does not match the sizes, and the errors of
    /// [`CsrPattern::try_new`] for the first item that is broken (positions are relative to that
    /// item).
    pub fn try_new(
        nrows: &[usize],
        ncols: &[usize],
        nnz: &[usize],
        row_ptr: Vec<i32>,
        col_idx: Vec<i32>,
        values: Vec<T>,
    ) -> Result<Self, FormatError> {
        Self::from_values(nrows, ncols, nnz, row_ptr, col_idx, values.into())
    }

    /// As [`RaggedCsr::try_new`], for values that may be those of another owner.
    ///
    /// # Errors
    /// Those of [`RaggedCsr::try_new`].
    pub fn from_values(
        nrows: &[usize],
        ncols: &[usize],
        nnz: &[usize],
        row_ptr: Vec<i32>,
        col_idx: Vec<i32>,
        values: Values<T>,
    ) -> Result<Self, FormatError> {
        check_len("ncols", nrows.len(), ncols.len())?;
        check_len("nnz", nrows.len(), nnz.len())?;
        let row_offsets = offsets("rows of the batch", nrows)?;
        let col_offsets = offsets("columns of the batch", ncols)?;
        let nnz_offsets = offsets("entries of the batch", nnz)?;
        let total_nnz = nnz_offsets[nnz.len()];
        check_len("row_ptr", row_offsets[nrows.len()].saturating_add(nrows.len()), row_ptr.len())?;
        check_len("col_idx", total_nnz, col_idx.len())?;
        check_len("values", total_nnz, values.len())?;
        let batch = Self { row_offsets, col_offsets, nnz_offsets, row_ptr, col_idx, values };
        for item in 0..nrows.len() {
            let pattern = batch.item(item).pattern();
            check_csr(nrows[item], ncols[item], pattern.row_ptr(), pattern.col_idx())?;
        }
        Ok(batch)
    }

    /// Appends a copy of a matrix as the last item.
    pub fn push(&mut self, matrix: View<'_, CsrPattern, T>) {
        let pattern = matrix.pattern();
        self.row_offsets.push(self.row_offsets[self.nitems()] + pattern.nrows());
        self.col_offsets.push(self.col_offsets[self.col_offsets.len() - 1] + pattern.ncols());
        self.nnz_offsets.push(self.nnz_offsets[self.nnz_offsets.len() - 1] + pattern.nnz());
        self.row_ptr.extend_from_slice(pattern.row_ptr());
        self.col_idx.extend_from_slice(pattern.col_idx());
        self.values.make_vec().extend_from_slice(matrix.values());
    }

    /// Systems in the batch.
    pub fn nitems(&self) -> usize {
        self.row_offsets.len() - 1
    }

    /// Stored entries of all items.
    pub fn total_nnz(&self) -> usize {
        self.col_idx.len()
    }

    /// Rows before each item, and all rows at the end.
    pub fn row_offsets(&self) -> &[usize] {
        &self.row_offsets
    }

    /// Columns before each item, and all columns at the end.
    pub fn col_offsets(&self) -> &[usize] {
        &self.col_offsets
    }

    /// Entries before each item, and all entries at the end.
    pub fn nnz_offsets(&self) -> &[usize] {
        &self.nnz_offsets
    }

    /// The concatenated local row pointers; item `i` starts at `row_offsets[i] + i`.
    pub fn row_ptr(&self) -> &[i32] {
        &self.row_ptr
    }

    /// The concatenated local column indices.
    pub fn col_idx(&self) -> &[i32] {
        &self.col_idx
    }

    /// The concatenated values.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The concatenated values, to be changed in place; values of another owner are copied first.
    pub fn values_mut(&mut self) -> &mut [T] {
        self.values.make_mut()
    }

    /// Borrows item `item`.
    ///
    /// # Panics
    /// When `item >= nitems()`.
    pub fn item(&self, item: usize) -> View<'_, CsrPattern, T> {
        let entries = self.nnz_offsets[item]..self.nnz_offsets[item + 1];
        let pattern = CsrPatternRef::new_unvalidated(
            self.col_offsets[item + 1] - self.col_offsets[item],
            &self.row_ptr[self.row_offsets[item] + item..=self.row_offsets[item + 1] + item],
            &self.col_idx[entries.clone()],
        );
        View::new(pattern, &self.values[entries])
    }

    /// The batch in another precision, each value rounded to nearest.
    pub fn cast<U: Scalar>(&self) -> RaggedCsr<U> {
        RaggedCsr {
            row_offsets: self.row_offsets.clone(),
            col_offsets: self.col_offsets.clone(),
            nnz_offsets: self.nnz_offsets.clone(),
            row_ptr: self.row_ptr.clone(),
            col_idx: self.col_idx.clone(),
            values: self.values.iter().map(|v| U::from_f64(v.to_f64())).collect::<Vec<_>>().into(),
        }
    }
}

fn offsets(what: &'static str, counts: &[usize]) -> Result<Vec<usize>, FormatError> {
    let mut offsets = Vec::with_capacity(counts.len() + 1);
    let mut sum = 0usize;
    offsets.push(0);
    for &count in counts {
        sum = sum.checked_add(count).ok_or(FormatError::TooLarge {
            what,
            found: sum as u128 + count as u128,
            limit: usize::MAX as u128,
        })?;
        offsets.push(sum);
    }
    Ok(offsets)
}

impl<T: Scalar> BatchOf<CsrPattern, T> for RaggedCsr<T> {
    fn nitems(&self) -> usize {
        self.nitems()
    }

    fn item(&self, item: usize) -> View<'_, CsrPattern, T> {
        self.item(item)
    }

    fn total_rows(&self) -> u128 {
        self.row_offsets[self.nitems()] as u128
    }

    fn total_cols(&self) -> u128 {
        self.col_offsets[self.nitems()] as u128
    }
}

/// Matrices of any sizes in format `P`, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RaggedBatch<P, T> {
    items: Vec<Matrix<P, T>>,
}

impl<P: Pattern, T: Scalar> RaggedBatch<P, T> {
    /// A batch of the given matrices, in their order.
    pub fn new(items: Vec<Matrix<P, T>>) -> Self {
        Self { items }
    }

    /// The matrices.
    pub fn items(&self) -> &[Matrix<P, T>] {
        &self.items
    }

    /// The matrices, whose values may be changed in place.
    pub fn items_mut(&mut self) -> &mut [Matrix<P, T>] {
        &mut self.items
    }
}

impl<P: Pattern, T: Scalar> BatchOf<P, T> for RaggedBatch<P, T> {
    fn nitems(&self) -> usize {
        self.items.len()
    }

    fn item(&self, item: usize) -> View<'_, P, T> {
        self.items[item].view()
    }

    fn total_rows(&self) -> u128 {
        self.items.iter().map(|item| item.nrows() as u128).sum()
    }

    fn total_cols(&self) -> u128 {
        self.items.iter().map(|item| item.ncols() as u128).sum()
    }
}
