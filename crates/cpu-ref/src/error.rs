//! The one error type of this crate.

use sparsebatch_formats::FormatError;

/// Why a product, a plan or a batched solve was refused. Nothing is written to an output then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// A vector or value array has another length than the matrix and the options ask for.
    #[error("{what} has {found} entries, expected {expected}")]
    Length {
        /// The array, by its name in the call.
        what: &'static str,
        /// The length asked for.
        expected: usize,
        /// The length given.
        found: usize,
    },
    /// An option is outside its range, or two options exclude each other.
    #[error("{name} is {found}, expected {expected}")]
    Parameter {
        /// The option.
        name: &'static str,
        /// Its range.
        expected: &'static str,
        /// Its value.
        found: String,
    },
    /// A pattern could not be ordered or factorised.
    #[error(transparent)]
    Symbolic(#[from] crate::symbolic::SymbolicError),
    /// A matrix or batch could not be brought into the format asked for.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Checks the length of an array.
pub(crate) fn check_len(what: &'static str, expected: usize, found: usize) -> Result<(), CpuError> {
    if expected == found { Ok(()) } else { Err(CpuError::Length { what, expected, found }) }
}
