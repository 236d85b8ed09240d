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
//! dimensions or counts beyond `i32` ([`FormatError::TooLarge`](crate::FormatError::TooLarge)).
//! Where the other crate allows unsorted or duplicate entries (nalgebra's COO, faer), entries are
//! sorted and duplicates summed in the order given, which is their meaning there.

#[cfg(feature = "faer")]
mod faer;
#[cfg(feature = "nalgebra-sparse")]
mod nalgebra_sparse;
#[cfg(feature = "sprs")]
mod sprs;

/// Converts another crate's indices to local `i32` indices.
#[cfg(any(feature = "nalgebra-sparse", feature = "sprs", feature = "faer"))]
fn local_indices(
    what: &'static str,
    indices: impl Iterator<Item = usize>,
) -> Result<Vec<i32>, crate::FormatError> {
    indices.map(|index| crate::error::check_i32(what, index)).collect()
}

/// Converts local indices, never negative in CSR and COO, to the `usize` indices of other crates.
#[cfg(any(feature = "nalgebra-sparse", feature = "sprs"))]
fn usize_indices(indices: &[i32]) -> Vec<usize> {
    indices.iter().map(|&index| index as usize).collect()
}
