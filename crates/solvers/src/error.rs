//! Why a batch was not solved at all.

use sparsebatch_solve_core::{ArgumentError, Progress, Watch};
use sparsebatch_solvers_gpu::GpuSolveError;

use crate::operators::OperatorError;

/// Why no system of a batch was solved. A system that does not converge is a result, not an
/// error: see [`Status`](crate::Status).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SolveError {
    /// An array, an option or a matrix does not fit.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// A solve with kept matrices was asked for, and none are kept.
    #[error("no matrices are kept to solve with: expected a call of factor before solve_again")]
    NotFactored,
    /// The solve was stopped by its [watch](crate::Watch). For each system `x` then holds its
    /// guess, an iterate or its solution. On the ladder the counts are those of the rung.
    #[error("the solve was stopped: {ended} of {systems} systems had ended")]
    Stopped {
        /// Number of systems that had ended.
        ended: usize,
        /// Number of systems to solve.
        systems: usize,
    },
    /// A [pin](crate::PlanPin) that was taken elsewhere cannot be kept here.
    #[error(
        "the plan is pinned to {what} {pinned}, here it is {found}: \
         solve where it can be kept, or without the pin"
    )]
    OtherPlan {
        /// What differs.
        what: &'static str,
        /// What the pin says.
        pinned: String,
        /// What is here.
        found: String,
    },
    /// An [operator](crate::LinOp) of the caller failed.
    #[error("an operator of the caller failed: {0}")]
    Operator(#[source] OperatorError),
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
            GpuSolveError::Argument(error) => Self::Argument(error),
            GpuSolveError::Unsupported { what, instead } => Self::Unsupported { what, instead },
            GpuSolveError::Symbolic(error) => Self::Cpu(error.into()),
            GpuSolveError::Gpu(error) => Self::Gpu(error),
            // The counts are added where the watch is known.
            GpuSolveError::Stopped => Self::Stopped { ended: 0, systems: 0 },
        }
    }
}

/// Refuses to go on when the watch was asked to stop.
pub(crate) fn go_on(watch: &Option<Watch>) -> Result<(), SolveError> {
    match watch {
        Some(watch) if watch.is_stopped() => {
            let Progress { ended, systems, .. } = watch.progress();
            Err(SolveError::Stopped { ended, systems })
        }
        _ => Ok(()),
    }
}

/// Completes the error of a stopped solve by its counts, and forgets the request to stop.
pub(crate) fn stopped<R>(
    watch: &Option<Watch>,
    result: Result<R, SolveError>,
) -> Result<R, SolveError> {
    match (result, watch) {
        (Err(SolveError::Stopped { .. }), Some(watch)) => {
            let Progress { ended, systems, .. } = watch.progress();
            watch.clear();
            Err(SolveError::Stopped { ended, systems })
        }
        (result, _) => result,
    }
}
