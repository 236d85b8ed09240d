//! The kernels of CG and BiCGStab between the products of a plan.

use sparsebatch_cuda::Module;

use crate::common::kernels::{EVALUATE, SOLVER};

/// The phases of a solve, over all systems.
pub(crate) static KRYLOV: Module = Module::new(
    "krylov",
    include_str!("krylov.cu"),
    &[SOLVER, EVALUATE, ("krylov.cuh", include_str!("krylov.cuh"))],
);
/// Krylov methods with vectors that are divided among GPUs.
pub(crate) static KRYLOV_STEPS: Module =
    Module::new("krylov_steps", include_str!("krylov_steps.cu"), &[]);
/// Inverts diagonals.
pub(crate) static DIAGONAL: Module = Module::new("diagonal", include_str!("diagonal.cu"), &[]);
