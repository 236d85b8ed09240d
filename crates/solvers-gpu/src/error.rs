//! The one error type of this crate.

use sparsebatch_cuda::GpuError;
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solve_core::symbolic::SymbolicError;

/// Why a plan refused a batch, an option or an array, or what the GPU reports. A system that does
/// not converge is a result, not an error: see [`Status`](sparsebatch_solve_core::Status).
#[derive(Debug, thiserror::Error)]
pub enum GpuSolveError {
    /// A system has more rows than columns or the reverse.
    #[error("system {item} is {nrows} x {ncols}, expected a square matrix")]
    NotSquare {
        /// The first such system.
        item: usize,
        /// Its rows.
        nrows: usize,
        /// Its columns.
        ncols: usize,
    },
    /// An array has another length than the plan asks for.
    #[error("{what} has {found} entries, expected {expected}")]
    Length {
        /// The array.
        what: &'static str,
        /// The length that the plan asks for.
        expected: usize,
        /// Its length.
        found: usize,
    },
    /// An option has a value outside its range.
    #[error("{name} is {found}, expected {expected}")]
    Option {
        /// The option.
        name: &'static str,
        /// Its range.
        expected: &'static str,
        /// Its value.
        found: String,
    },
    /// No solver of the GPU does this yet, or not this one.
    #[error("{what} is not supported on the GPU yet: {instead}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What can be done.
        instead: &'static str,
    },
    /// A pattern cannot be analysed.
    #[error(transparent)]
    Symbolic(#[from] SymbolicError),
    /// The GPU refused the batch, or failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl From<ArgumentError> for GpuSolveError {
    fn from(error: ArgumentError) -> Self {
        match error {
            ArgumentError::Length { what, expected, found } => {
                Self::Length { what, expected, found }
            }
            ArgumentError::OutOfRange { name, expected, found } => {
                Self::Option { name, expected, found }
            }
        }
    }
}
