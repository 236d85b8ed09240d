//! The one error type of this crate.

use sparsebatch_cuda::GpuError;
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solve_core::symbolic::SymbolicError;

/// Why a plan refused a batch, an option or an array, or what the GPU reports. A system that does
/// not converge is a result, not an error: see [`Status`](sparsebatch_solve_core::Status).
#[derive(Debug, thiserror::Error)]
pub enum GpuSolveError {
    /// An array, an option or a matrix does not fit.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// No solver of the GPU does this yet, or not this one.
    #[error("{what} is not supported on the GPU yet: {instead}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What can be done.
        instead: &'static str,
    },
    /// The solve was stopped by its [watch](sparsebatch_solve_core::Watch).
    #[error("the solve was stopped")]
    Stopped,
    /// A pattern cannot be analysed.
    #[error(transparent)]
    Symbolic(#[from] SymbolicError),
    /// The GPU refused the batch, or failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}
