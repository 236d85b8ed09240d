//! `sprs::CsMat` and its relatives.

use std::ops::Deref;

use sprs::{CsMatBase, CsMatI, SpIndex};

use super::{local_indices, usize_indices};
use crate::{Csr, FormatError, Scalar};

impl<T: Scalar> From<&Csr<T>> for CsMatI<T, usize> {
    fn from(csr: &Csr<T>) -> Self {
        CsMatI::new(
            (csr.nrows(), csr.ncols()),
            usize_indices(csr.row_ptr()),
            usize_indices(csr.col_idx()),
            csr.values().to_vec(),
        )
    }
}

impl<T: Scalar> From<&Csr<T>> for CsMatI<T, i32> {
    fn from(csr: &Csr<T>) -> Self {
        CsMatI::new(
            (csr.nrows(), csr.ncols()),
            csr.row_ptr().to_vec(),
            csr.col_idx().to_vec(),
            csr.values().to_vec(),
        )
    }
}

impl<T, I, Iptr, Starts, Indices, Values> TryFrom<&CsMatBase<T, I, Starts, Indices, Values, Iptr>>
    for Csr<T>
where
    T: Scalar,
    I: SpIndex,
    Iptr: SpIndex,
    Starts: Deref<Target = [Iptr]>,
    Indices: Deref<Target = [I]>,
    Values: Deref<Target = [T]>,
{
    type Error = FormatError;

    fn try_from(
        matrix: &CsMatBase<T, I, Starts, Indices, Values, Iptr>,
    ) -> Result<Self, FormatError> {
        // An index that does not fit `usize` is too large for `i32` as well.
        let starts = matrix.proper_indptr();
        let starts = starts.iter().map(|i| i.try_index().unwrap_or(usize::MAX));
        let indices = matrix.indices().iter();
        let indices = indices.map(|i| i.try_index().unwrap_or(usize::MAX));
        let (outer, inner) = if matrix.is_csr() {
            (matrix.rows(), matrix.cols())
        } else {
            (matrix.cols(), matrix.rows())
        };
        let compressed = Csr::try_new(
            outer,
            inner,
            local_indices("row_ptr", starts)?,
            local_indices("col_idx", indices)?,
            matrix.data().to_vec(),
        )?;
        // The CSC arrays of a matrix are the CSR arrays of its transpose.
        Ok(if matrix.is_csr() { compressed } else { compressed.transpose() })
    }
}
