//! `faer::sparse::{SparseRowMat, SparseColMat}`.

use faer::Index;
use faer::sparse::{
    SparseColMat, SparseColMatRef, SparseRowMat, SparseRowMatRef, SymbolicSparseColMat,
    SymbolicSparseRowMat,
};

use super::local_indices;
use crate::error::check_i32;
use crate::{Csr, FormatError, Scalar};

fn their_indices<I: Index>(indices: &[i32]) -> Vec<I> {
    // Every index type of faer holds the positive 32-bit numbers.
    indices.iter().map(|&i| I::truncate(i as usize)).collect()
}

impl<I: Index, T: Scalar> From<&Csr<T>> for SparseRowMat<I, T> {
    fn from(csr: &Csr<T>) -> Self {
        let symbolic = SymbolicSparseRowMat::new_checked(
            csr.nrows(),
            csr.ncols(),
            their_indices(csr.row_ptr()),
            None,
            their_indices(csr.col_idx()),
        );
        Self::new(symbolic, csr.values().to_vec())
    }
}

impl<I: Index, T: Scalar> From<&Csr<T>> for SparseColMat<I, T> {
    fn from(csr: &Csr<T>) -> Self {
        let transposed = csr.transpose();
        let symbolic = SymbolicSparseColMat::new_checked(
            csr.nrows(),
            csr.ncols(),
            their_indices(transposed.row_ptr()),
            None,
            their_indices(transposed.col_idx()),
        );
        Self::new(symbolic, transposed.into_parts().1)
    }
}

/// Copies rows that may end in unused slots, be unsorted, or hold duplicates.
fn from_rows<I: Index, T: Scalar>(
    matrix: SparseRowMatRef<'_, I, T>,
) -> Result<Csr<T>, FormatError> {
    let (nrows, ncols) = (matrix.nrows(), matrix.ncols());
    check_i32("nrows", nrows)?;
    check_i32("ncols", ncols)?;
    let nnz = matrix.symbolic().compute_nnz();
    check_i32("nnz", nnz)?;
    let mut row_ptr = Vec::with_capacity(nrows + 1);
    let mut col_idx = Vec::with_capacity(nnz);
    let mut values = Vec::with_capacity(nnz);
    let mut sorted = true;
    row_ptr.push(0);
    for row in 0..nrows {
        let range = matrix.symbolic().row_range(row);
        let columns = matrix.symbolic().col_idx()[range.clone()].iter();
        let start = col_idx.len();
        col_idx.append(&mut local_indices("col_idx", columns.map(|col| col.zx()))?);
        values.extend_from_slice(&matrix.val()[range]);
        sorted &= col_idx[start..].is_sorted_by(|a, b| a < b);
        row_ptr.push(col_idx.len() as i32);
    }
    if sorted {
        return Csr::try_new(nrows, ncols, row_ptr, col_idx, values);
    }
    let mut row_idx = Vec::with_capacity(nnz);
    for (row, bounds) in row_ptr.windows(2).enumerate() {
        let len = (bounds[1] - bounds[0]) as usize;
        row_idx.extend(std::iter::repeat_n(row as i32, len));
    }
    Csr::from_triplets(nrows, ncols, &row_idx, &col_idx, &values)
}

impl<I: Index, T: Scalar> TryFrom<SparseRowMatRef<'_, I, T>> for Csr<T> {
    type Error = FormatError;

    fn try_from(matrix: SparseRowMatRef<'_, I, T>) -> Result<Self, FormatError> {
        from_rows(matrix)
    }
}

impl<I: Index, T: Scalar> TryFrom<&SparseRowMat<I, T>> for Csr<T> {
    type Error = FormatError;

    fn try_from(matrix: &SparseRowMat<I, T>) -> Result<Self, FormatError> {
        from_rows(matrix.as_ref())
    }
}

impl<I: Index, T: Scalar> TryFrom<SparseColMatRef<'_, I, T>> for Csr<T> {
    type Error = FormatError;

    fn try_from(matrix: SparseColMatRef<'_, I, T>) -> Result<Self, FormatError> {
        from_rows(matrix.transpose()).map(|transposed| transposed.transpose())
    }
}

impl<I: Index, T: Scalar> TryFrom<&SparseColMat<I, T>> for Csr<T> {
    type Error = FormatError;

    fn try_from(matrix: &SparseColMat<I, T>) -> Result<Self, FormatError> {
        Csr::try_from(matrix.as_ref())
    }
}
