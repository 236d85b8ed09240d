//! Solves on an NVIDIA GPU of data that lies there: [`FusedSolver`], [`FactoredSolver`],
//! [`ComposedSolver`] and [`GpuLu`]. For data on the host see
//! [`BatchSolver::on`](crate::BatchSolver::on), which uses these plans.
//!
//! | file | holds |
//! | --- | --- |
//! | `fused.rs` | the plan and its launches |
//! | `task.rs` | what a plan is asked for, and what it refuses |
//! | `outcomes.rs` | tolerances and limits of the systems, and how each ended |
//! | `bins.rs` | which systems a launch solves, and where their numbers are |
//! | `shape/` | threads per system, and where its values are kept: what was quickest, what tuning may ask for |
//! | `confirm.rs` | [`Confirmer`]: whether what converged did so, rounding errors counted |
//! | `pattern.rs`, `banks.rs` | a pattern in the order of the kernel |
//! | `explain.rs` | what was chosen, in words |
//! | `choose.rs` | when LU is estimated to be quicker than iterations |
//! | `shift.rs` | [`ShiftedValues`]: matrices `I/dt - J` formed on the device |
//! | `composed/` | CG and BiCGStab over the products of a plan |
//! | `factored/` | CG and BiCGStab with block-Jacobi, ILU(0) and IC(0); sparse LU in device memory |
//! | `lu/` | sparse LU on chip: its plan, its schedule |
//!
//! Plans are written over [`Executor`](sparsebatch_cuda::Executor), like the products: tests run
//! the same kernels on the CPU.
//!
//! Limitations: CG and BiCGStab with no preconditioner or Jacobi, fused of at most 4,096 rows, 32,768 from
//! compute capability 9.0 on; with others for uniform batches, item-major, ILU(0), IC(0) and LU of up to 33,554,432
//! products a factorisation, without pivoting; residual histories of composed solves alone, which wait on the host and are
//! not for graphs; no ladder. Everything else is refused with
//! [`SolveError::Unsupported`](crate::SolveError::Unsupported).

mod choose;
mod common;
mod composed;
mod factored;
mod fused;
mod lu;

pub(crate) use choose::OnChip;
pub use choose::choose_methods;
pub use common::{Confirmer, DeviceOutcomes, FusedMethod, Guess, Layouts, ShiftedValues};
pub(crate) use common::{Outcomes, PinnedOutcomes};
pub use composed::{Amortisation, ComposedExplain, ComposedSolver, ProductKernel};
pub use factored::{FactoredExplain, FactoredPlace, FactoredSolver, FactoredTuning};
pub use fused::{FusedSolver, GpuBin, GpuExplain, GpuTuning, ValuePlace, most_rows};
pub use lu::{GpuLu, GpuLuExplain, LuOrder, LuSolve, LuTuning};

/// Every module of kernels of the solvers.
#[doc(hidden)]
pub static MODULES: &[&sparsebatch_cuda::Module] = &[
    &fused::kernels::CG,
    &fused::kernels::BICGSTAB,
    &lu::kernels::LU,
    &lu::kernels::LU_KEPT,
    &lu::kernels::LU_SUBSTITUTE,
    &lu::kernels::LU_VERIFY,
    &composed::kernels::KRYLOV,
    &common::kernels::CONFIRM,
    &factored::kernels::FACTORED,
    &common::kernels::SHIFT,
    &composed::kernels::DIAGONAL,
];

/// A module of the solvers.
#[doc(hidden)]
pub fn module(name: &str) -> Option<&'static sparsebatch_cuda::Module> {
    MODULES.iter().copied().find(|module| module.name() == name)
}
