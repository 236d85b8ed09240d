//! Kernels that solve whole systems by CG and BiCGStab, one system per group of threads.

use sparsebatch_cuda::Module;
use sparsebatch_cuda::module::Header;

use crate::common::kernels::SOLVER;

const HEADERS: &[Header] = &[
    SOLVER,
    ("fused_task.cuh", include_str!("fused_task.cuh")),
    ("fused_queue.cuh", include_str!("fused_queue.cuh")),
    ("fused_system.cuh", include_str!("fused_system.cuh")),
    ("fused.cuh", include_str!("fused.cuh")),
];

/// CG.
pub(crate) static CG: Module = Module::new("cg", include_str!("cg.cu"), HEADERS);
/// BiCGStab.
pub(crate) static BICGSTAB: Module = Module::new("bicgstab", include_str!("bicgstab.cu"), HEADERS);
