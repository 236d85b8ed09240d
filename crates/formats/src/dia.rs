//! Diagonal format: whole diagonals, without column indices.

use std::sync::Arc;

use crate::error::check_i32;
use crate::{CsrPatternRef, FormatError, Matrix, Pattern, Scalar};

/// Which diagonals a DIA matrix stores: the slot of row `r` on diagonal `d` is at `d * nrows + r`,
/// its column is `r + diag_offsets[d]`.
///
/// Invariants, all enforced by [`DiaPattern::try_new`]:
/// 1. `nrows`, `ncols` and the number of slots fit `i32`.
/// 2. `diag_offsets` (column minus row) ascend strictly, each in `-(nrows - 1)..=ncols - 1`.
///
/// Slots whose column lies outside the matrix are padding. In a pattern made [from
/// CSR](crate::convert), the fill of a partly occupied diagonal is padding too: the pattern keeps a
/// [bit per slot](DiaPattern::mask) of each such diagonal, and no mask for full diagonals. Kernels
/// skip padding whatever it holds, so a NaN or Inf in `x` reaches only the rows that store its
/// column. A pattern built by [`DiaPattern::try_new`] stores every slot that lies inside the
/// matrix. Converting from DIA drops zeros.
///
/// Source: Bell and Garland 2009 (doi 10.1145/1654059.1654078), DIA, which multiplies the fill.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DiaPattern {
    nrows: usize,
    ncols: usize,
    nnz: usize,
    diag_offsets: Vec<i32>,
    /// Per diagonal, the rows that store an entry: bit `row % 64` of word `row / 64`. `None` for a
    /// full diagonal, which stores an entry in every row in which it lies inside the matrix.
    masks: Vec<Option<Box<[u64]>>>,
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
        let masks = vec![None; diag_offsets.len()];
        Ok(Self { nrows, ncols, nnz, diag_offsets, masks })
    }

    /// The pattern of a CSR matrix, given its occupied diagonals and the number of entries on each.
    ///
    /// # Errors
    /// Those of [`DiaPattern::try_new`].
    pub(crate) fn of_csr(
        csr: CsrPatternRef<'_>,
        diag_offsets: Vec<i32>,
        entries: &[usize],
    ) -> Result<Self, FormatError> {
        let mut pattern = Self::try_new(csr.nrows(), csr.ncols(), diag_offsets)?;
        let words = csr.nrows().div_ceil(64);
        for (d, &entries) in entries.iter().enumerate() {
            if entries < pattern.rows(d).len() {
                pattern.masks[d] = Some(vec![0; words].into_boxed_slice());
            }
        }
        if pattern.masks.iter().any(Option::is_some) {
            let Self { diag_offsets, masks, .. } = &mut pattern;
            for_each_slot(csr, diag_offsets, |d, row| {
                if let Some(mask) = &mut masks[d] {
                    mask[row / 64] |= 1 << (row % 64);
                }
            });
        }
        pattern.nnz = csr.nnz();
        Ok(pattern)
    }

    /// Column minus row of each stored diagonal, ascending.
    pub fn diag_offsets(&self) -> &[i32] {
        &self.diag_offsets
    }

    /// The rows in which diagonal `d` stores an entry: bit `row % 64` of word `row / 64`. `None`
    /// when it stores an entry in all of [`DiaPattern::rows`].
    ///
    /// # Panics
    /// When `d >= diag_offsets().len()`.
    pub fn mask(&self, d: usize) -> Option<&[u64]> {
        self.masks[d].as_deref()
    }

    /// Whether diagonal `d` stores an entry in `row`.
    ///
    /// # Panics
    /// When `d >= diag_offsets().len()`.
    #[inline]
    pub fn is_entry(&self, d: usize, row: usize) -> bool {
        self.rows(d).contains(&row)
            && self.masks[d].as_ref().is_none_or(|mask| mask[row / 64] >> (row % 64) & 1 == 1)
    }

    /// The rows in which diagonal `d` lies inside the matrix.
    ///
    /// # Panics
    /// When `d >= diag_offsets().len()`.
    pub fn rows(&self, d: usize) -> std::ops::Range<usize> {
        rows_of(self.nrows, self.ncols, self.diag_offsets[d])
    }
}

/// Calls `f(diagonal, row)` for each entry of a CSR matrix, in CSR order. `diag_offsets` must
/// ascend and hold the offset of every entry.
pub(crate) fn for_each_slot(
    csr: CsrPatternRef<'_>,
    diag_offsets: &[i32],
    mut f: impl FnMut(usize, usize),
) {
    for row in 0..csr.nrows() {
        let mut d = 0;
        for &col in &csr.col_idx()[csr.row(row)] {
            let offset = col - row as i32;
            while diag_offsets[d] != offset {
                d += 1;
            }
            f(d, row);
        }
    }
}

/// The rows in which the diagonal with this offset lies inside the matrix.
pub(crate) fn rows_of(nrows: usize, ncols: usize, offset: i32) -> std::ops::Range<usize> {
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
        let masks = self.masks.iter().flatten().map(|mask| size_of_val(&**mask));
        4 * self.diag_offsets.len() + masks.sum::<usize>()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Csr;
    use crate::convert::DiaOptions;

    #[test]
    fn diagonals_with_holes_have_a_bit_per_row_and_full_ones_none() {
        // [1 2 .; . 3 .; 4 . 5]: diagonal 1 has no entry in row 1; diagonal -2 is full (one row).
        let csr = Csr::try_new(3, 3, vec![0, 2, 3, 5], vec![0, 1, 1, 0, 2], vec![1.0; 5]).unwrap();

        let dia = Dia::from_csr(&csr, &DiaOptions::default()).unwrap();

        let pattern = dia.pattern();
        assert_eq!(pattern.diag_offsets(), [-2, 0, 1]);
        assert_eq!([0, 1, 2].map(|d| pattern.mask(d)), [None, None, Some(&[0b001][..])]);
        assert_eq!(pattern.nnz(), 5);
        assert_eq!(pattern.index_bytes(), 4 * 3 + 8);
        let entries = |d| [0, 1, 2].map(|row| pattern.is_entry(d, row));
        assert_eq!(entries(0), [false, false, true]);
        assert_eq!(entries(1), [true; 3]);
        assert_eq!(entries(2), [true, false, false]);
    }

    #[test]
    fn a_pattern_by_hand_stores_all_that_lies_inside() {
        let pattern = DiaPattern::try_new(2, 2, vec![0, 1]).unwrap();

        assert_eq!((pattern.mask(1), pattern.nnz(), pattern.index_bytes()), (None, 3, 8));
        assert!(pattern.is_entry(1, 0) && !pattern.is_entry(1, 1));
    }

    #[test]
    fn masks_of_more_than_64_rows_have_several_words() {
        // A 130 x 130 matrix with entries in the even rows of the main diagonal.
        let rows = 130;
        let starts = (0..=rows).map(|row| (row + 1) / 2).collect();
        let columns = (0..rows).step_by(2).collect();
        let csr = Csr::try_new(130, 130, starts, columns, vec![1.0; 65]).unwrap();

        let dia = Dia::from_csr(&csr, &DiaOptions::default()).unwrap();

        let even = 0x5555_5555_5555_5555;
        assert_eq!(dia.pattern().mask(0), Some(&[even, even, 0b01][..]));
    }
}
