//! CSR to HYB and back.

use super::{DEFAULT_MAX_FILL, FromCsr, SlotMap, StorageSize, ToCsr, check_fill, ell, row_lengths};
use crate::stats::row_length_histogram;
use crate::{CooPattern, CsrPattern, CsrPatternRef, FormatError, HybPattern, PADDING, Pattern};

/// How many entries of each row the ELL part of HYB takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HybWidth {
    /// The histogram rule of Bell and Garland 2009: the largest width K such that at least
    /// `max(min_rows, fraction * nrows)` rows have K or more entries, since a slot column that is
    /// a third full is as fast in ELL as in COO, and fewer than 4,096 rows did not occupy their
    /// GPU. A matrix of fewer than `min_rows` rows follows `fraction * nrows` alone; the rule as
    /// printed would put all of it into COO.
    Auto {
        /// Rows below which a slot column is not worth its kernel; the paper's 4,096.
        min_rows: usize,
        /// Share of the rows that must fill a slot column; the paper's 1/3.
        fraction: f64,
    },
    /// This many slots per row, whatever the row lengths.
    Fixed(usize),
}

/// The choices of a conversion to HYB.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HybOptions {
    /// The split between ELL and COO.
    pub width: HybWidth,
    /// Slots per entry above which the conversion is refused.
    pub max_fill: f64,
}

crate::option_setters! {
    HybOptions {
        width: HybWidth,
        max_fill: f64,
    }
}

impl Default for HybOptions {
    fn default() -> Self {
        Self {
            width: HybWidth::Auto { min_rows: 4096, fraction: 1.0 / 3.0 },
            max_fill: DEFAULT_MAX_FILL,
        }
    }
}

/// The number of slots per row of the ELL part.
///
/// # Errors
/// [`FormatError::Parameter`] when the fraction is no number in 0..=1.
fn width_of(pattern: CsrPatternRef<'_>, width: HybWidth) -> Result<usize, FormatError> {
    let (min_rows, fraction) = match width {
        HybWidth::Fixed(width) => return Ok(width),
        HybWidth::Auto { min_rows, fraction } => (min_rows, fraction),
    };
    if !(0.0..=1.0).contains(&fraction) {
        return Err(FormatError::Parameter {
            name: "fraction",
            expected: "a share of the rows in 0..=1",
            found: fraction.to_string(),
        });
    }
    let nrows = pattern.nrows();
    let mut threshold = ((fraction * nrows as f64).ceil() as usize).max(1);
    if nrows >= min_rows {
        threshold = threshold.max(min_rows);
    }
    // Rows with at least `len` entries, counted from the longest down.
    let mut rows = 0;
    for (len, &count) in row_length_histogram(pattern).iter().enumerate().rev() {
        rows += count;
        if rows >= threshold {
            return Ok(len);
        }
    }
    Ok(0)
}

/// Slots of the ELL part and entries of the COO part.
fn parts(pattern: CsrPatternRef<'_>, width: usize) -> (u128, usize) {
    let overflow = row_lengths(pattern).map(|len| len.saturating_sub(width)).sum();
    (width as u128 * pattern.nrows() as u128, overflow)
}

impl FromCsr for HybPattern {
    type Options = HybOptions;

    fn size_from_csr(
        pattern: CsrPatternRef<'_>,
        options: &HybOptions,
    ) -> Result<StorageSize, FormatError> {
        let (ell, coo) = parts(pattern, width_of(pattern, options.width)?);
        let stored_len = check_fill(
            Self::NAME,
            ell + coo as u128,
            4 * ell + 8 * coo as u128,
            pattern.nnz(),
            options.max_fill,
        )?;
        Ok(StorageSize { stored_len, index_bytes: 4 * (stored_len + coo) })
    }

    fn from_csr(
        pattern: CsrPatternRef<'_>,
        options: &HybOptions,
    ) -> Result<(Self, SlotMap), FormatError> {
        Self::size_from_csr(pattern, options)?;
        let width = width_of(pattern, options.width)?;
        let (ell_slots, coo_len) = parts(pattern, width);
        let mut row_idx = Vec::with_capacity(coo_len);
        let mut col_idx = Vec::with_capacity(coo_len);
        let (ell, slots) = ell::fill(pattern, width, |row, k| {
            row_idx.push(row as i32);
            col_idx.push(pattern.col_idx()[k]);
            ell_slots as u32 + row_idx.len() as u32 - 1
        });
        let coo = CooPattern::new_unvalidated(pattern.nrows(), pattern.ncols(), row_idx, col_idx);
        Ok((Self::new_unvalidated(ell, coo), SlotMap::Slots(slots)))
    }
}

impl ToCsr for HybPattern {
    fn to_csr(&self, _: impl Fn(usize) -> bool) -> (CsrPattern, SlotMap) {
        let (ell, coo) = (self.ell(), self.coo());
        let nrows = self.nrows();
        let mut row_ptr = Vec::with_capacity(nrows + 1);
        let mut col_idx = Vec::with_capacity(self.nnz());
        let mut slots = Vec::with_capacity(self.nnz());
        row_ptr.push(0);
        let mut next = 0;
        for row in 0..nrows {
            for slot in (0..ell.width()).map(|s| s * nrows + row) {
                let col = ell.col_idx()[slot];
                if col == PADDING {
                    break;
                }
                col_idx.push(col);
                slots.push(slot as u32);
            }
            while coo.row_idx().get(next) == Some(&(row as i32)) {
                col_idx.push(coo.col_idx()[next]);
                slots.push((ell.stored_len() + next) as u32);
                next += 1;
            }
            row_ptr.push(col_idx.len() as i32);
        }
        let pattern = CsrPattern::new_unvalidated(self.ncols(), row_ptr, col_idx);
        (pattern, SlotMap::Slots(slots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Csr, Hyb};

    fn with_row_lengths(lengths: &[usize]) -> CsrPattern {
        let mut row_ptr = vec![0];
        let mut col_idx = Vec::new();
        for &len in lengths {
            col_idx.extend(0..len as i32);
            row_ptr.push(col_idx.len() as i32);
        }
        let ncols = lengths.iter().copied().max().unwrap_or(0);
        CsrPattern::try_new(lengths.len(), ncols, row_ptr, col_idx).unwrap()
    }

    #[test]
    fn width_is_the_longest_that_a_third_of_the_rows_reach() {
        let auto = HybOptions::default().width;
        let width = |lengths: &[usize]| width_of(with_row_lengths(lengths).view(), auto).unwrap();

        assert_eq!(width(&[1, 1, 1, 1, 5, 5]), 5);
        assert_eq!(width(&[1, 1, 1, 1, 2, 5]), 2);
        assert_eq!(width(&[1, 1, 1, 1, 1, 1, 5]), 1);
        assert_eq!(width(&[0, 0, 0, 0, 0, 0, 5]), 0);
        assert_eq!(width(&[]), 0);
    }

    #[test]
    fn large_matrices_need_4096_rows_for_a_slot_column() {
        let mut lengths = vec![1; 6000];
        lengths[..4095].fill(3);
        let auto = HybOptions::default().width;

        assert_eq!(width_of(with_row_lengths(&lengths).view(), auto).unwrap(), 1);
        lengths[4095] = 3;
        assert_eq!(width_of(with_row_lengths(&lengths).view(), auto).unwrap(), 3);
    }

    #[test]
    fn the_rest_of_long_rows_goes_to_coo() {
        // [1 2 3; 0 4 0; 0 0 0]
        let csr = Csr::try_new(3, 3, vec![0, 3, 4, 4], vec![0, 1, 2, 1], vec![1.0, 2.0, 3.0, 4.0])
            .unwrap();
        let options = HybOptions { width: HybWidth::Fixed(1), ..HybOptions::default() };

        let hyb = Hyb::from_csr(&csr, &options).unwrap();

        assert_eq!(hyb.pattern().ell().col_idx(), [0, 1, -1]);
        assert_eq!(hyb.pattern().coo().row_idx(), [0, 0]);
        assert_eq!(hyb.pattern().coo().col_idx(), [1, 2]);
        assert_eq!(hyb.values(), [1.0, 4.0, 0.0, 2.0, 3.0]);
        assert_eq!(hyb.to_csr(), csr);
    }

    #[test]
    fn a_share_above_one_is_refused() {
        let options = HybOptions {
            width: HybWidth::Auto { min_rows: 0, fraction: 1.5 },
            ..HybOptions::default()
        };

        let error = HybPattern::from_csr(with_row_lengths(&[1]).view(), &options).unwrap_err();

        assert_eq!(error.to_string(), "fraction is 1.5, expected a share of the rows in 0..=1");
    }
}
