//! SELL-P: slices of rows, each padded to its own width, the width rounded up for `t` threads.

use std::sync::Arc;

use crate::ell::check_slots;
use crate::error::{check_i32, check_len, check_pointers};
use crate::{FormatError, Matrix, Pattern, Scalar};

/// The sparsity pattern of a SELL-P matrix. Slice `s` holds the rows `row_perm[s * slice_size ..]`
/// (at most `slice_size` of them) and the slots `slice_ptr[s]..slice_ptr[s + 1]`; slot `j` of the
/// slice's `i`-th row is at `slice_ptr[s] + j * slice_size + i`.
///
/// Invariants, all enforced by [`SellPPattern::try_new`]:
/// 1. `nrows`, `ncols` and the number of slots fit `i32`; `slice_size` and `threads_per_row` are
///    at least 1.
/// 2. `slice_ptr` has one entry more than there are slices, starts at 0, never decreases and ends
///    at the number of slots; each slice's width `(slice_ptr[s + 1] - slice_ptr[s]) / slice_size`
///    is a whole multiple of `threads_per_row`.
/// 3. `row_perm` is a permutation of the rows (the identity unless rows were sorted in windows).
/// 4. Columns ascend strictly in each row, entries first, padding after them; the slots of rows
///    missing from the last slice are padding.
///
/// Source: Anzt, Tomov and Dongarra 2014 (UT-EECS-14-727), SELL-P; the sorting window is that of
/// SELL-C-sigma, Kreutzer et al. 2014 (doi 10.1137/130930352).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SellPPattern {
    ncols: usize,
    slice_size: usize,
    threads_per_row: usize,
    nnz: usize,
    slice_ptr: Vec<i32>,
    row_perm: Vec<i32>,
    col_idx: Vec<i32>,
}

/// A matrix in SELL-P format.
pub type SellP<T> = Matrix<SellPPattern, T>;

impl SellPPattern {
    /// Validates a pattern in one pass. `row_perm` has one entry per row.
    ///
    /// # Errors
    /// [`FormatError::Parameter`], [`FormatError::TooLarge`], [`FormatError::Length`],
    /// [`FormatError::Pointer`], [`FormatError::IndexOutOfRange`] or
    /// [`FormatError::NotAscending`] for the first broken invariant.
    pub fn try_new(
        ncols: usize,
        slice_size: usize,
        threads_per_row: usize,
        slice_ptr: Vec<i32>,
        row_perm: Vec<i32>,
        col_idx: Vec<i32>,
    ) -> Result<Self, FormatError> {
        let nrows = row_perm.len();
        check_i32("nrows", nrows)?;
        check_i32("ncols", ncols)?;
        check_i32("stored_len", col_idx.len())?;
        for (name, value) in [("slice_size", slice_size), ("threads_per_row", threads_per_row)] {
            if value == 0 || i32::try_from(value).is_err() {
                return Err(FormatError::Parameter {
                    name,
                    expected: "a positive 32-bit number",
                    found: value.to_string(),
                });
            }
        }
        check_len("slice_ptr", nrows.div_ceil(slice_size) + 1, slice_ptr.len())?;
        check_pointers("slice_ptr", &slice_ptr, col_idx.len())?;
        for (position, slice) in slice_ptr.windows(2).enumerate() {
            let slots = (slice[1] - slice[0]) as usize;
            if !slots.is_multiple_of(slice_size.saturating_mul(threads_per_row)) {
                return Err(FormatError::Pointer {
                    what: "slice_ptr",
                    position: position + 1,
                    expected: format!(
                        "{} plus a multiple of slice_size * threads_per_row = {}",
                        slice[0],
                        slice_size * threads_per_row
                    ),
                    found: i64::from(slice[1]),
                });
            }
        }
        let mut seen = vec![false; nrows];
        for (position, &row) in row_perm.iter().enumerate() {
            crate::error::check_index("row_perm", position, row, nrows)?;
            if std::mem::replace(&mut seen[row as usize], true) {
                return Err(FormatError::Parameter {
                    name: "row_perm",
                    expected: "a permutation of the rows",
                    found: format!("row {row} twice"),
                });
            }
        }
        let mut nnz = 0;
        for s in 0..slice_ptr.len() - 1 {
            let (start, end) = (slice_ptr[s] as usize, slice_ptr[s + 1] as usize);
            for i in 0..slice_size {
                let slots = (start + i..end).step_by(slice_size).map(|k| (k, col_idx[k]));
                let limit = if s * slice_size + i < nrows { ncols } else { 0 };
                nnz += check_slots(slots, limit)?;
            }
        }
        Ok(Self { ncols, slice_size, threads_per_row, nnz, slice_ptr, row_perm, col_idx })
    }

    /// Skips validation: the arrays hold the invariants by construction.
    pub(crate) fn new_unvalidated(
        ncols: usize,
        (slice_size, threads_per_row): (usize, usize),
        nnz: usize,
        slice_ptr: Vec<i32>,
        row_perm: Vec<i32>,
        col_idx: Vec<i32>,
    ) -> Self {
        let pattern =
            Self { ncols, slice_size, threads_per_row, nnz, slice_ptr, row_perm, col_idx };
        debug_assert!(pattern.is_valid());
        pattern
    }

    /// Whether the pattern passes its own validation.
    fn is_valid(&self) -> bool {
        Self::try_new(
            self.ncols,
            self.slice_size,
            self.threads_per_row,
            self.slice_ptr.clone(),
            self.row_perm.clone(),
            self.col_idx.clone(),
        )
        .is_ok_and(|valid| valid == *self)
    }

    /// Rows per slice, b.
    pub fn slice_size(&self) -> usize {
        self.slice_size
    }

    /// Threads per row, t: every slice width is a multiple of it.
    pub fn threads_per_row(&self) -> usize {
        self.threads_per_row
    }

    /// Number of slices.
    pub fn nslices(&self) -> usize {
        self.slice_ptr.len() - 1
    }

    /// First slot of each slice, and the number of slots at the end.
    pub fn slice_ptr(&self) -> &[i32] {
        &self.slice_ptr
    }

    /// The row stored at each position, slice by slice.
    pub fn row_perm(&self) -> &[i32] {
        &self.row_perm
    }

    /// Column of each slot, or [`PADDING`](crate::PADDING).
    pub fn col_idx(&self) -> &[i32] {
        &self.col_idx
    }
}

impl Pattern for SellPPattern {
    type Ref<'a> = &'a Self;
    const NAME: &'static str = "sellp";

    fn view(&self) -> &Self {
        self
    }
    fn nrows(&self) -> usize {
        self.row_perm.len()
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
        4 * (self.slice_ptr.len() + self.row_perm.len() + self.col_idx.len())
    }
}

impl<T: Scalar> SellP<T> {
    /// Validates a SELL-P matrix in one pass; see [`SellPPattern`] for the invariants.
    ///
    /// # Errors
    /// Those of [`SellPPattern::try_new`], and [`FormatError::Length`] when `values` does not
    /// hold one value per slot.
    pub fn try_new(
        ncols: usize,
        slice_size: usize,
        threads_per_row: usize,
        slice_ptr: Vec<i32>,
        row_perm: Vec<i32>,
        col_idx: Vec<i32>,
        values: Vec<T>,
    ) -> Result<Self, FormatError> {
        let pattern = SellPPattern::try_new(
            ncols,
            slice_size,
            threads_per_row,
            slice_ptr,
            row_perm,
            col_idx,
        )?;
        Self::from_parts(Arc::new(pattern), values)
    }
}
