//! CSR to ELL and back.

use super::{DEFAULT_MAX_FILL, FromCsr, SlotMap, StorageSize, ToCsr, check_fill, row_lengths};
use crate::{CsrPattern, CsrPatternRef, EllPattern, FormatError, PADDING, Pattern};

/// The choices of a conversion to ELL. The width is the length of the longest row.
#[derive(Clone, Debug, PartialEq)]
pub struct EllOptions {
    /// Slots per entry above which the conversion is refused.
    pub max_fill: f64,
}

impl Default for EllOptions {
    fn default() -> Self {
        Self { max_fill: DEFAULT_MAX_FILL }
    }
}

fn width_of(pattern: CsrPatternRef<'_>) -> usize {
    row_lengths(pattern).max().unwrap_or(0)
}

/// The ELL pattern of the first `width` entries of each row, and the slot of every CSR entry.
/// `overflow(row, k)` returns the slot of an entry `k` beyond the width.
pub(super) fn fill(
    pattern: CsrPatternRef<'_>,
    width: usize,
    mut overflow: impl FnMut(usize, usize) -> u32,
) -> (EllPattern, Vec<u32>) {
    let nrows = pattern.nrows();
    let mut col_idx = vec![PADDING; width * nrows];
    let mut slots = Vec::with_capacity(pattern.nnz());
    let mut nnz = 0;
    for row in 0..nrows {
        for (s, k) in pattern.row(row).enumerate() {
            if s < width {
                col_idx[s * nrows + row] = pattern.col_idx()[k];
                slots.push((s * nrows + row) as u32);
                nnz += 1;
            } else {
                slots.push(overflow(row, k));
            }
        }
    }
    let ell = EllPattern::new_unvalidated(nrows, pattern.ncols(), width, nnz, col_idx);
    (ell, slots)
}

impl FromCsr for EllPattern {
    type Options = EllOptions;

    fn size_from_csr(
        pattern: CsrPatternRef<'_>,
        options: &EllOptions,
    ) -> Result<StorageSize, FormatError> {
        let slots = width_of(pattern) as u128 * pattern.nrows() as u128;
        let stored_len = check_fill(Self::NAME, slots, 4 * slots, pattern.nnz(), options.max_fill)?;
        Ok(StorageSize { stored_len, index_bytes: 4 * stored_len })
    }

    fn from_csr(
        pattern: CsrPatternRef<'_>,
        options: &EllOptions,
    ) -> Result<(Self, SlotMap), FormatError> {
        Self::size_from_csr(pattern, options)?;
        let (ell, slots) =
            fill(pattern, width_of(pattern), |_, _| unreachable!("the width is the longest row's"));
        Ok((ell, SlotMap::Slots(slots)))
    }
}

impl ToCsr for EllPattern {
    fn to_csr(&self, _: impl Fn(usize) -> bool) -> (CsrPattern, SlotMap) {
        let nrows = self.nrows();
        let mut row_ptr = Vec::with_capacity(nrows + 1);
        let mut col_idx = Vec::with_capacity(self.nnz());
        let mut slots = Vec::with_capacity(self.nnz());
        row_ptr.push(0);
        for row in 0..nrows {
            for slot in (0..self.width()).map(|s| s * nrows + row) {
                let col = self.col_idx()[slot];
                if col == PADDING {
                    break;
                }
                col_idx.push(col);
                slots.push(slot as u32);
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
    use crate::{Csr, Ell};

    #[test]
    fn rows_are_packed_left_and_padded() {
        // [1 0 2; 0 0 0; 0 3 0]
        let csr = Csr::try_new(3, 3, vec![0, 2, 2, 3], vec![0, 2, 1], vec![1.0, 2.0, 3.0]).unwrap();

        let ell = Ell::from_csr(&csr, &EllOptions::default()).unwrap();

        assert_eq!(ell.pattern().width(), 2);
        assert_eq!(ell.pattern().col_idx(), [0, -1, 1, 2, -1, -1]);
        assert_eq!(ell.values(), [1.0, 0.0, 3.0, 2.0, 0.0, 0.0]);
    }

    #[test]
    fn one_dense_row_is_refused_before_allocation() {
        // 10^6 rows, one of them with 10^6 entries: 10^12 slots.
        let count = 1_000_000;
        let mut row_ptr = vec![count; count as usize + 1];
        row_ptr[0] = 0;
        let pattern =
            CsrPattern::try_new(count as usize, count as usize, row_ptr, (0..count).collect())
                .unwrap();

        let error = EllPattern::from_csr(pattern.view(), &EllOptions::default()).unwrap_err();

        assert_eq!(
            error.to_string(),
            "ell of this matrix would hold 1000000000000 slots (12000000000000 bytes) for \
             1000000 entries, the limit is 20000000 slots"
        );
    }

    #[test]
    fn a_limit_that_is_no_number_is_refused() {
        let pattern = CsrPattern::try_new(1, 1, vec![0, 1], vec![0]).unwrap();

        let error = EllPattern::from_csr(pattern.view(), &EllOptions { max_fill: f64::NAN });

        assert!(matches!(error, Err(FormatError::Parameter { name: "max_fill", .. })));
    }
}
