//! `nalgebra_sparse::{CsrMatrix, CooMatrix}`.

use nalgebra_sparse::{CooMatrix, CsrMatrix};

use super::{local_indices, usize_indices};
use crate::{Coo, Csr, FormatError, Scalar};

impl<T: Scalar> From<&Csr<T>> for CsrMatrix<T> {
    fn from(csr: &Csr<T>) -> Self {
        CsrMatrix::try_from_csr_data(
            csr.nrows(),
            csr.ncols(),
            usize_indices(csr.row_ptr()),
            usize_indices(csr.col_idx()),
            csr.values().to_vec(),
        )
        .expect("both crates ask for sorted rows without duplicates")
    }
}

impl<T: Scalar> TryFrom<&CsrMatrix<T>> for Csr<T> {
    type Error = FormatError;

    fn try_from(csr: &CsrMatrix<T>) -> Result<Self, FormatError> {
        Csr::try_new(
            csr.nrows(),
            csr.ncols(),
            local_indices("row_ptr", csr.row_offsets().iter().copied())?,
            local_indices("col_idx", csr.col_indices().iter().copied())?,
            csr.values().to_vec(),
        )
    }
}

impl<T: Scalar> From<&Coo<T>> for CooMatrix<T> {
    fn from(coo: &Coo<T>) -> Self {
        CooMatrix::try_from_triplets(
            coo.nrows(),
            coo.ncols(),
            usize_indices(coo.row_idx()),
            usize_indices(coo.col_idx()),
            coo.values().to_vec(),
        )
        .expect("a COO matrix's indices lie inside it")
    }
}

impl<T: Scalar> TryFrom<&CooMatrix<T>> for Csr<T> {
    type Error = FormatError;

    fn try_from(coo: &CooMatrix<T>) -> Result<Self, FormatError> {
        Csr::from_triplets(
            coo.nrows(),
            coo.ncols(),
            &local_indices("row_idx", coo.row_indices().iter().copied())?,
            &local_indices("col_idx", coo.col_indices().iter().copied())?,
            coo.values(),
        )
    }
}

impl<T: Scalar> TryFrom<&CooMatrix<T>> for Coo<T> {
    type Error = FormatError;

    fn try_from(coo: &CooMatrix<T>) -> Result<Self, FormatError> {
        Csr::try_from(coo).map(Self::from)
    }
}
