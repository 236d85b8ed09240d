//! CSR to COO and back: both store the entries in the same order, so values are copied as they are.

use super::{FromCsr, SlotMap, StorageSize, ToCsr, row_lengths};
use crate::{CooPattern, CsrPattern, CsrPatternRef, FormatError, Pattern};

/// The COO pattern of a CSR pattern: the row of each entry written out.
pub(super) fn expand_rows(pattern: CsrPatternRef<'_>) -> CooPattern {
    let mut row_idx = Vec::with_capacity(pattern.nnz());
    for (row, len) in row_lengths(pattern).enumerate() {
        row_idx.extend(std::iter::repeat_n(row as i32, len));
    }
    CooPattern::new_unvalidated(
        pattern.nrows(),
        pattern.ncols(),
        row_idx,
        pattern.col_idx().to_vec(),
    )
}

impl FromCsr for CooPattern {
    type Options = ();

    fn size_from_csr(pattern: CsrPatternRef<'_>, (): &()) -> Result<StorageSize, FormatError> {
        Ok(StorageSize { stored_len: pattern.nnz(), index_bytes: 8 * pattern.nnz() })
    }

    fn from_csr(pattern: CsrPatternRef<'_>, (): &()) -> Result<(Self, SlotMap), FormatError> {
        Ok((expand_rows(pattern), SlotMap::Identity))
    }
}

impl ToCsr for CooPattern {
    fn to_csr(&self, _: impl Fn(usize) -> bool) -> (CsrPattern, SlotMap) {
        let mut row_ptr = vec![0i32; self.nrows() + 1];
        for &row in self.row_idx() {
            row_ptr[row as usize + 1] += 1;
        }
        super::csr::accumulate(&mut row_ptr);
        let pattern = CsrPattern::new_unvalidated(self.ncols(), row_ptr, self.col_idx().to_vec());
        (pattern, SlotMap::Identity)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Coo, Csr};

    #[test]
    fn csr_to_coo_writes_the_rows_out() {
        let csr =
            Csr::try_new(3, 2, vec![0, 2, 2, 3], vec![0, 1, 1], vec![1.0f32, 0.0, 3.0]).unwrap();

        let coo = Coo::from(csr.clone());

        assert_eq!(coo.row_idx(), [0, 0, 2]);
        assert_eq!(coo.col_idx(), [0, 1, 1]);
        assert_eq!(coo.values(), [1.0, 0.0, 3.0]);
        assert_eq!(Csr::from(coo), csr);
    }
}
