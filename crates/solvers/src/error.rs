//! Why a batch was not solved at all.

use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers_gpu::GpuSolveError;

/// Why no system of a batch was solved. A system that does not converge is a result, not an
/// error: see [`Status`](crate::Status).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SolveError {
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
    /// A vector or an array of per-system options has another length than the batch asks for.
    #[error("{what} has {found} entries, expected {expected}")]
    Length {
        /// The array.
        what: &'static str,
        /// The length that the batch asks for.
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
    /// A solve with kept matrices was asked for, and none are kept.
    #[error("no matrices are kept to solve with: expected a call of factor before solve_again")]
    NotFactored,
    /// The GPU backend does not do this yet.
    #[error("{what} is not supported on the GPU yet: {instead}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What can be done.
        instead: &'static str,
    },
    /// The GPU refused the batch, or failed.
    #[error(transparent)]
    Gpu(#[from] sparsebatch_cuda::GpuError),
    /// The CPU backend refused the batch or the options.
    #[error(transparent)]
    Cpu(#[from] sparsebatch_cpu_ref::CpuError),
}

impl From<GpuSolveError> for SolveError {
    fn from(error: GpuSolveError) -> Self {
        match error {
            GpuSolveError::NotSquare { item, nrows, ncols } => {
                Self::NotSquare { item, nrows, ncols }
            }
            GpuSolveError::Length { what, expected, found } => {
                Self::Length { what, expected, found }
            }
            GpuSolveError::Option { name, expected, found } => {
                Self::Option { name, expected, found }
            }
            GpuSolveError::Unsupported { what, instead } => Self::Unsupported { what, instead },
            GpuSolveError::Symbolic(error) => Self::Cpu(error.into()),
            GpuSolveError::Gpu(error) => Self::Gpu(error),
        }
    }
}

impl From<ArgumentError> for SolveError {
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
