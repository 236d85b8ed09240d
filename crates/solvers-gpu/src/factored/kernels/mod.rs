//! CG and BiCGStab with factored preconditioners, and the sparse LU in device memory.

use sparsebatch_cuda::Module;

use crate::common::kernels::SOLVER;

/// All instances of the factored kernels.
pub(crate) static FACTORED: Module = Module::new(
    "factored",
    include_str!("factored.cu"),
    &[
        SOLVER,
        ("factor.cuh", include_str!("factor.cuh")),
        ("invert.cuh", include_str!("invert.cuh")),
        ("factored_task.cuh", include_str!("factored_task.cuh")),
        ("factored_system.cuh", include_str!("factored_system.cuh")),
        ("factored.cuh", include_str!("factored.cuh")),
    ],
);
