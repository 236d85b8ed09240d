//! Coordinate format: one row index, one column index and one value per entry.

use std::sync::Arc;

use crate::error::{check_i32, check_index, check_len};
use crate::{Csr, FormatError, Matrix, Pattern, Scalar};

/// The sparsity pattern of a COO matrix.
///
/// Invariants, all enforced by [`CooPattern::try_new`]:
/// 1. `nrows`, `ncols` and the number of entries fit `i32`.
/// 2. `row_idx` and `col_idx` have the same length, each index inside the matrix.
/// 3. Entries ascend strictly by (row, column): row-major and without duplicates.
///
/// Triplets in any order, with duplicates to be summed, go through [`Coo::from_triplets`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CooPattern {
    nrows: usize,
    ncols: usize,
    row_idx: Vec<i32>,
    col_idx: Vec<i32>,
}

/// A matrix in coordinate format.
pub type Coo<T> = Matrix<CooPattern, T>;

impl CooPattern {
    /// Validates a pattern in one pass.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`], [`FormatError::Length`], [`FormatError::IndexOutOfRange`] or
    /// [`FormatError::NotAscending`] for the first broken invariant.
    pub fn try_new(
        nrows: usize,
        ncols: usize,
        row_idx: Vec<i32>,
        col_idx: Vec<i32>,
    ) -> Result<Self, FormatError> {
        check_i32("nrows", nrows)?;
        check_i32("ncols", ncols)?;
        check_i32("nnz", col_idx.len())?;
        check_len("row_idx", col_idx.len(), row_idx.len())?;
        let mut previous = (-1, -1);
        for (position, (&row, &col)) in row_idx.iter().zip(&col_idx).enumerate() {
            check_index("row_idx", position, row, nrows)?;
            check_index("col_idx", position, col, ncols)?;
            if row < previous.0 {
                return Err(FormatError::NotAscending {
                    what: "row_idx",
                    position,
                    previous: i64::from(previous.0),
                    found: i64::from(row),
                });
            }
            if (row, col) <= previous {
                return Err(FormatError::NotAscending {
                    what: "col_idx",
                    position,
                    previous: i64::from(previous.1),
                    found: i64::from(col),
                });
            }
            previous = (row, col);
        }
        Ok(Self { nrows, ncols, row_idx, col_idx })
    }

    /// Skips validation: the arrays hold the invariants by construction.
    pub(crate) fn new_unvalidated(
        nrows: usize,
        ncols: usize,
        row_idx: Vec<i32>,
        col_idx: Vec<i32>,
    ) -> Self {
        Self { nrows, ncols, row_idx, col_idx }
    }

    /// Row of each entry, ascending.
    pub fn row_idx(&self) -> &[i32] {
        &self.row_idx
    }

    /// Column of each entry, ascending within a row.
    pub fn col_idx(&self) -> &[i32] {
        &self.col_idx
    }
}

impl Pattern for CooPattern {
    type Ref<'a> = &'a Self;
    const NAME: &'static str = "coo";

    fn view(&self) -> &Self {
        self
    }
    fn nrows(&self) -> usize {
        self.nrows
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
        4 * (self.row_idx.len() + self.col_idx.len())
    }
}

impl<T: Scalar> Coo<T> {
    /// Validates a COO matrix in one pass; see [`CooPattern`] for the invariants.
    ///
    /// # Errors
    /// Those of [`CooPattern::try_new`], and [`FormatError::Length`] when `values` does not hold
    /// one value per entry.
    pub fn try_new(
        nrows: usize,
        ncols: usize,
        row_idx: Vec<i32>,
        col_idx: Vec<i32>,
        values: Vec<T>,
    ) -> Result<Self, FormatError> {
        let pattern = CooPattern::try_new(nrows, ncols, row_idx, col_idx)?;
        Self::from_parts(Arc::new(pattern), values)
    }

    /// Builds a matrix from triplets in any order. Duplicates are summed in the order given.
    ///
    /// # Errors
    /// Those of [`Coo::try_new`], except for the order of the entries.
    pub fn from_triplets(
        nrows: usize,
        ncols: usize,
        row_idx: &[i32],
        col_idx: &[i32],
        values: &[T],
    ) -> Result<Self, FormatError> {
        Csr::from_triplets(nrows, ncols, row_idx, col_idx, values).map(Self::from)
    }

    /// Row of each entry, ascending.
    pub fn row_idx(&self) -> &[i32] {
        self.pattern().row_idx()
    }

    /// Column of each entry, ascending within a row.
    pub fn col_idx(&self) -> &[i32] {
        self.pattern().col_idx()
    }

    /// The entries as (row, column, value), row by row.
    pub fn triplet_iter(&self) -> impl Iterator<Item = (usize, usize, T)> {
        let indices = self.row_idx().iter().zip(self.col_idx());
        let entries = indices.zip(self.values());
        entries.map(|((&row, &col), &value)| (row as usize, col as usize, value))
    }
}
