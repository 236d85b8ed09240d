//! ELLPACK: every row has the same number of slots, stored slot column by slot column.

use std::sync::Arc;

use crate::error::{check_i32, check_len};
use crate::{FormatError, Matrix, Pattern, Scalar};

/// The column of a padding slot in ELL, SELL-P and HYB. Kernels skip such slots.
pub const PADDING: i32 = -1;

/// The sparsity pattern of an ELL matrix: slot `s` of row `r` is at `s * nrows + r`.
///
/// Invariants, all enforced by [`EllPattern::try_new`]:
/// 1. `nrows`, `ncols` and the number of slots fit `i32`.
/// 2. `col_idx` has `width * nrows` entries, each in `0..ncols` or [`PADDING`].
/// 3. In each row the columns ascend strictly, entries first, padding after them.
///
/// Source: Bell and Garland 2009 (doi 10.1145/1654059.1654078), ELL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EllPattern {
    nrows: usize,
    ncols: usize,
    width: usize,
    nnz: usize,
    col_idx: Vec<i32>,
}

/// A matrix in ELLPACK format.
pub type Ell<T> = Matrix<EllPattern, T>;

/// Checks the slots of one row, given in order with their positions: ascending columns, then
/// padding. Returns the number of entries.
pub(crate) fn check_slots(
    slots: impl Iterator<Item = (usize, i32)>,
    ncols: usize,
) -> Result<usize, FormatError> {
    let (mut entries, mut previous, mut padded) = (0, -1, false);
    for (position, found) in slots {
        if found == PADDING {
            padded = true;
            continue;
        }
        crate::error::check_index("col_idx", position, found, ncols)?;
        if padded || found <= previous {
            return Err(FormatError::NotAscending {
                what: "col_idx",
                position,
                previous: i64::from(if padded { PADDING } else { previous }),
                found: i64::from(found),
            });
        }
        previous = found;
        entries += 1;
    }
    Ok(entries)
}

impl EllPattern {
    /// Validates a pattern in one pass.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`], [`FormatError::Length`], [`FormatError::IndexOutOfRange`] or
    /// [`FormatError::NotAscending`] for the first broken invariant.
    pub fn try_new(
        nrows: usize,
        ncols: usize,
        width: usize,
        col_idx: Vec<i32>,
    ) -> Result<Self, FormatError> {
        check_i32("nrows", nrows)?;
        check_i32("ncols", ncols)?;
        let slots = width.saturating_mul(nrows);
        check_i32("stored_len", slots)?;
        check_len("col_idx", slots, col_idx.len())?;
        let mut nnz = 0;
        for row in 0..nrows {
            let positions = (0..width).map(|s| s * nrows + row);
            nnz += check_slots(positions.map(|k| (k, col_idx[k])), ncols)?;
        }
        Ok(Self { nrows, ncols, width, nnz, col_idx })
    }

    /// Skips validation: the arrays hold the invariants by construction.
    pub(crate) fn new_unvalidated(
        nrows: usize,
        ncols: usize,
        width: usize,
        nnz: usize,
        col_idx: Vec<i32>,
    ) -> Self {
        debug_assert!(
            Self::try_new(nrows, ncols, width, col_idx.clone()).is_ok_and(|p| p.nnz == nnz)
        );
        Self { nrows, ncols, width, nnz, col_idx }
    }

    /// Slots per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Column of each slot, or [`PADDING`]; slot `s` of row `r` is at `s * nrows + r`.
    pub fn col_idx(&self) -> &[i32] {
        &self.col_idx
    }
}

impl Pattern for EllPattern {
    type Ref<'a> = &'a Self;
    const NAME: &'static str = "ell";

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
        self.nnz
    }
    fn stored_len(&self) -> usize {
        self.col_idx.len()
    }
    fn index_bytes(&self) -> usize {
        4 * self.col_idx.len()
    }
}

impl<T: Scalar> Ell<T> {
    /// Validates an ELL matrix in one pass; see [`EllPattern`] for the invariants.
    ///
    /// # Errors
    /// Those of [`EllPattern::try_new`], and [`FormatError::Length`] when `values` does not hold
    /// one value per slot.
    pub fn try_new(
        nrows: usize,
        ncols: usize,
        width: usize,
        col_idx: Vec<i32>,
        values: Vec<T>,
    ) -> Result<Self, FormatError> {
        let pattern = EllPattern::try_new(nrows, ncols, width, col_idx)?;
        Self::from_parts(Arc::new(pattern), values)
    }
}
