//! Conversions from and to the matrices of other crates, each behind a feature of that crate's
//! name (all on by default).
//!
//! | crate | their type | from ours | to ours |
//! | --- | --- | --- | --- |
//! | `nalgebra-sparse` | `CsrMatrix<T>` | `From<&Csr<T>>` | `TryFrom<&CsrMatrix<T>> for Csr<T>` |
//! | | `CooMatrix<T>` | `From<&Coo<T>>` | `TryFrom<&CooMatrix<T>> for Coo<T>`, `Csr<T>` |
//! | `sprs` | `CsMatI<T, I, Iptr>`, indices `usize` or `i32` | `From<&Csr<T>>` (CSR storage) | `TryFrom` of any matrix or view, CSR or CSC storage, any index type |
//! | `faer` | `SparseRowMat<I, T>`, `SparseColMat<I, T>` | `From<&Csr<T>>` | `TryFrom` of a matrix or a view |
//!
//! Values are copied bit for bit, explicit zeros too. What this library cannot hold is an error:
//! dimensions or counts beyond `i32` ([`FormatError::TooLarge`](crate::FormatError::TooLarge)). Where the other crate allows
//! entries out of order or several at one place (nalgebra's COO, faer), they are sorted, and
//! summed in the order given, which is what they mean there.

#[cfg(feature = "faer")]
mod faer;
#[cfg(feature = "nalgebra-sparse")]
mod nalgebra_sparse;
#[cfg(feature = "sprs")]
mod sprs;

/// Local indices from another crate's.
#[cfg(any(feature = "nalgebra-sparse", feature = "sprs", feature = "faer"))]
fn local_indices(
    what: &'static str,
    indices: impl Iterator<Item = usize>,
) -> Result<Vec<i32>, crate::FormatError> {
    indices.map(|index| crate::error::check_i32(what, index)).collect()
}

/// The other crates' indices from local ones, which are never negative there.
#[cfg(any(feature = "nalgebra-sparse", feature = "sprs"))]
fn usize_indices(indices: &[i32]) -> Vec<usize> {
    indices.iter().map(|&index| index as usize).collect()
}
