//! Solves on an NVIDIA GPU, for data on the device: [`FusedSolver`], [`FactoredSolver`],
//! [`ComposedSolver`], [`GpuLu`], [`FrontalLu`], [`DenseSolver`] and [`BandedSolver`]. For data on
//! the host see `BatchSolver::on`, which uses these plans.
//!
//! | folder | holds |
//! | --- | --- |
//! | `fused/` | CG and BiCGStab in one launch, without preconditioner or with Jacobi |
//! | `factored/` | CG and BiCGStab with block-Jacobi, ILU(0), IC(0); sparse LU level by level |
//! | `lu/` | sparse LU on chip |
//! | `lu_columns/` | sparse LU on chip for systems of any patterns, a team of warps for each |
//! | `multifrontal/` | sparse LU beyond the chip, front by front, a block for each system |
//! | `dense/` | elimination with partial pivoting, dense in registers, at most 64 rows |
//! | `banded/` | elimination within a narrow band, rows spread over threads |
//! | `composed/` | CG and BiCGStab over the products of a plan, systems of any size |
//! | `divided/` | batches of several patterns or schemes, in parts with a solver each |
//! | `choose.rs` | the solver of a scheme: [`solver_for`] |
//! | `common/` | shared: limits, outcomes, checks; [`Confirmer`], [`ShiftedValues`], [`ValueGradient`] |
//!
//! Each solver has its plan, its kernels (`kernels/`) and the lists of their instances.
//!
//! Plans are written over [`Executor`](sparsebatch_cuda::Executor), like the products: tests run
//! the same kernels on the CPU.
//!
//! Limitations: without preconditioner or with Jacobi, fused CG and BiCGStab solve systems of at
//! most 4,096 rows, 32,768 from compute capability 9.0 on. Other preconditioners and the LU are for
//! uniform, item-major batches ([`DividedSolver`] has one of them for each pattern). ILU(0), IC(0)
//! and the sparse LU have no pivoting; ILU(0) and IC(0), and the LU where a front exceeds the
//! shared memory of a block, have at most 33,554,432 products per factorisation. Composed solves
//! take systems of any size and record residual histories; they wait on the host and cannot be
//! captured in graphs. There is no ladder. Everything else is refused with
//! [`GpuSolveError::Unsupported`].
#![deny(unsafe_code)]

mod banded;
mod choose;
mod common;
mod composed;
mod dense;
mod divided;
mod error;
mod factored;
mod fused;
mod lu;
mod lu_columns;
mod multifrontal;

#[doc(hidden)]
pub use banded::banded_shape;
pub use banded::{BandedShape, BandedSolver, BandedTuning};
pub use choose::{BatchPlan, SolverTuning, solver_for, solver_for_batch, solver_for_ragged};
#[doc(hidden)]
pub use choose::{TakenTogether, iterates_over_products, taken_together, takes_several_patterns};
#[doc(hidden)]
pub use common::{
    ArrayMove, FailedSystem, HostOutcomes, ItemArray, ItemExtents, ItemList, Limits,
    NO_SUBSTITUTION, OutcomeMemory, OutcomeSlices, Outcomes, PinnedOutcomes, Settled, Span,
    SpanList, check_apart, kernels_in_words,
};
pub use common::{
    Confirmer, DeferredSolve, DeviceOutcomes, GpuSolver, Guess, LaunchReport, LaunchShape, Layouts,
    PlanReport, ShiftedValues, ValueGradient,
};
pub use composed::{
    Amortisation, ComposedExplain, ComposedSolver, DeviceLinOp, KrylovSteps, ProductKernel, Step,
    StepMethod, StepPrecond, StepVector,
};
pub use dense::{DenseForm, DenseShape, DenseSolver, DenseTuning, MOST_DENSE_ROWS};
pub use divided::{DividedSolver, RefusedItems, SchemeItems};
pub use error::GpuSolveError;
pub use factored::{FactoredPlace, FactoredShape, FactoredSolver, FactoredTuning, RaggedFactored};
pub use fused::{FusedShape, FusedSolver, GpuTuning, ValuePlace, most_rows};
pub use lu::{GpuLu, LuOrder, LuShape, LuTuning};
#[doc(hidden)]
pub use lu::{MOST_LU_VALUES, values_beside_factors};
pub use lu_columns::{ColumnsShape, RaggedLu};
pub use multifrontal::{FrontalLu, FrontalShape, FrontalTuning};

/// Every module of kernels of the solvers.
#[doc(hidden)]
pub static MODULES: &[&sparsebatch_cuda::Module] = &[
    &fused::kernels::CG,
    &fused::kernels::BICGSTAB,
    &dense::kernels::DENSE,
    &dense::kernels::DENSE_TILES,
    &banded::kernels::BANDED,
    &lu::kernels::LU,
    &lu_columns::kernels::LU_COLUMNS,
    &multifrontal::kernels::MULTIFRONTAL,
    &lu::kernels::LU_KEPT,
    &lu::kernels::LU_SUBSTITUTE,
    &lu::kernels::LU_TRANSPOSE,
    &lu::kernels::LU_VERIFY,
    &composed::kernels::KRYLOV,
    &common::kernels::CONFIRM,
    &factored::kernels::FACTORED,
    &common::kernels::SHIFT,
    &common::kernels::ITEMS,
    &common::kernels::MOVES,
    &common::kernels::GRADIENT,
    &composed::kernels::DIAGONAL,
    &composed::kernels::KRYLOV_STEPS,
];

/// A module of the solvers.
#[doc(hidden)]
pub fn module(name: &str) -> Option<&'static sparsebatch_cuda::Module> {
    MODULES.iter().copied().find(|module| module.name() == name)
}
