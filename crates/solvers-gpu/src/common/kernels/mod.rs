//! What the kernels of all solvers share, and those that belong to none.

use sparsebatch_cuda::Module;
use sparsebatch_cuda::module::Header;

/// How a system begins and ends, its teams of threads and their sums.
pub(crate) const SOLVER: Header = ("solver.cuh", include_str!("solver.cuh"));
/// Residuals with bounds of their evaluation's error.
pub(crate) const EVALUATE: Header = ("evaluate.cuh", include_str!("evaluate.cuh"));

/// Confirms what converged.
pub(crate) static CONFIRM: Module =
    Module::new("confirm", include_str!("confirm.cu"), &[EVALUATE, SOLVER]);
/// Matrices `I/dt - J`.
pub(crate) static SHIFT: Module = Module::new("shift", include_str!("shift.cu"), &[]);
