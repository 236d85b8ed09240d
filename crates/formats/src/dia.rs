//! Diagonal format: whole diagonals, without column indices.

use std::sync::Arc;

use crate::error::check_i32;
use crate::{FormatError, Matrix, Pattern, Scalar};

/// Which diagonals a DIA matrix stores: the slot of row `r` on diagonal `d` is at
/// `d * nrows + r` and stands for column `r + diag_offsets[d]`.
///
/// Invariants, all enforced by [`DiaPattern::try_new`]:
/// 1. `nrows`, `ncols` and the number of slots fit `i32`.
/// 2. `diag_offsets` (column minus row) ascend strictly, each in `-(nrows - 1)..=ncols - 1`.
///
/// Slots whose column lies outside the matrix are padding and are skipped. Slots inside are
/// multiplied, fill included, so NaN or Inf in `x` also reaches rows that merely fill an occupied
/// diagonal. A slot of value 0 cannot be told from fill: converting from DIA drops zeros.
///
/// Source: Bell and Garland 2009 (doi 10.1145/1654059.1654078), DIA.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DiaPattern {
    nrows: usize,
    ncols: usize,
    nnz: usize,
    diag_offsets: Vec<i32>,
}

/// A matrix in diagonal format.
pub type Dia<T> = Matrix<DiaPattern, T>;

impl DiaPattern {
    /// Validates a pattern in one pass.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`], [`FormatError::Parameter`] for an offset outside the matrix or
    /// [`FormatError::NotAscending`].
    pub fn try_new(
        nrows: usize,
        ncols: usize,
        diag_offsets: Vec<i32>,
    ) -> Result<Self, FormatError> {
        check_i32("nrows", nrows)?;
        check_i32("ncols", ncols)?;
        check_i32("stored_len", nrows.saturating_mul(diag_offsets.len()))?;
        let mut nnz = 0;
        for (position, &offset) in diag_offsets.iter().enumerate() {
            if position > 0 && offset <= diag_offsets[position - 1] {
                return Err(FormatError::NotAscending {
                    what: "diag_offsets",
                    position,
                    previous: i64::from(diag_offsets[position - 1]),
                    found: i64::from(offset),
                });
            }
            let rows = rows_of(nrows, ncols, offset);
            if rows.is_empty() {
                return Err(FormatError::Parameter {
                    name: "diag_offsets",
                    expected: "offsets in -(nrows - 1)..=ncols - 1",
                    found: offset.to_string(),
                });
            }
            nnz += rows.len();
        }
        Ok(Self { nrows, ncols, nnz, diag_offsets })
    }

    /// Column minus row of each stored diagonal, ascending.
    pub fn diag_offsets(&self) -> &[i32] {
        &self.diag_offsets
    }

    /// The rows in which diagonal `d` lies inside the matrix.
    pub fn rows(&self, d: usize) -> std::ops::Range<usize> {
        rows_of(self.nrows, self.ncols, self.diag_offsets[d])
    }
}

fn rows_of(nrows: usize, ncols: usize, offset: i32) -> std::ops::Range<usize> {
    let offset = i64::from(offset);
    let start = (-offset).max(0);
    let end = (ncols as i64 - offset).min(nrows as i64);
    start as usize..end.max(start) as usize
}

impl Pattern for DiaPattern {
    type Ref<'a> = &'a Self;
    const NAME: &'static str = "dia";

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
        self.nrows * self.diag_offsets.len()
    }
    fn index_bytes(&self) -> usize {
        4 * self.diag_offsets.len()
    }
}

impl<T: Scalar> Dia<T> {
    /// Validates a DIA matrix; see [`DiaPattern`] for the invariants.
    ///
    /// # Errors
    /// Those of [`DiaPattern::try_new`], and [`FormatError::Length`] when `values` does not hold
    /// `nrows` values per diagonal.
    pub fn try_new(
        nrows: usize,
        ncols: usize,
        diag_offsets: Vec<i32>,
        values: Vec<T>,
    ) -> Result<Self, FormatError> {
        let pattern = DiaPattern::try_new(nrows, ncols, diag_offsets)?;
        Self::from_parts(Arc::new(pattern), values)
    }
}
