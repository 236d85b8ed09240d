//! Batched CG, BiCGStab and sparse LU with a status and a true residual for every system.
//!
//! | method | for | module with algorithm and source |
//! | --- | --- | --- |
//! | CG | symmetric positive definite matrices | [`Method::Cg`] |
//! | BiCGStab | any matrix | [`Method::BiCgStab`] |
//! | sparse LU | patterns that fill in little; the ladder | [`Method::Lu`] |
//! | banded LU | tridiagonal and other narrow bands | [`Method::Banded`] |
//! | LU with partial pivoting | systems whose pivots depend on their values; the ladder | [`Method::PivotingLu`] |
//!
//! [`solve`] takes a [`Batch`](sparsebatch_formats::Batch), right-hand sides and [`SolveOptions`],
//! and returns the solutions with a [`BatchReport`]: a [`Status`], the true residual, iterations
//! and the [`Rung`] for every system. [`BatchSolver`] keeps the analysis for further solves, and
//! with [`BatchSolver::factor`] the factors of the sparse LU. The engine is either
//! [fused](Engine::Fused) (whole solves in SIMD lanes) or [composed](Engine::Composed) of products
//! and vector operations over all systems.
//!
//! The same solve runs on the CPU or on an NVIDIA GPU, selected by one argument, a [`Backend`]: see
//! [`solve_on`] and [`BatchSolver::on`]. Systems that the GPU does not support go to the CPU where
//! that is allowed, and the report says so. [`gpu`] has the plans of the GPU, for data that is on
//! the device.
//!
//! A process forked from one that has solved gets
//! [`CpuError::Forked`](sparsebatch_cpu_ref::CpuError::Forked) on the CPU, unless it calls from
//! within a thread pool of its own. A CUDA context does not outlive a fork: make solvers on a GPU
//! in the child, of a parent that has used none.
//!
//! Limitations: real `f32` and `f64` matrices; on the CPU vectors are item-major; on the GPU those
//! of [`gpu`].
#![deny(unsafe_code)]

mod adjoint;
mod again;
mod backend;
mod choose;
mod composed;
mod device;
mod each;
mod error;
mod ladder;
mod merge;
mod operators;
mod packed;
mod pin;
mod products;
mod rehearsal;
mod report;
mod scalar;
mod share;
mod solver;
mod static_pivoting;

pub use adjoint::{AdjointSolver, value_gradient};
pub use backend::{Backend, Chunks, Gpu, Gpus};
pub use choose::choose_schemes;
pub use device::{
    BatchPatterns, DeviceArrays, DeviceData, DeviceReport, DeviceSolver, DeviceSolvers,
    SolverMemory, solver_memory,
};
pub use error::SolveError;
pub use operators::{LinOp, OperatorError, solve_operator, solve_preconditioned};
pub use pin::PlanPin;
pub use rehearsal::kernels_of;
pub use report::{BatchReport, GpuRun, Machine, Rung, RungRun, SchemeRun, SystemReport};
pub use scalar::{GpuExecutor, SolveScalar};
#[doc(hidden)]
pub use solver::solve_on_executor;
pub use solver::{BatchSolver, Solution, cpu_instruction_sets, solve, solve_on};
pub use sparsebatch_cpu_ref::CpuScalar;
pub use sparsebatch_solve_core::{
    Budget, Engine, FormatChoice, InnerPrecision, KernelChoice, Krylov, LuForm, Method, Order,
    Outcome, PerSystem, PrecondPrecision, Preconditioner, ProductCost, Progress, Rhs, Scheme,
    SolveOptions, SpmvOptions, Status, Watch,
};
pub use sparsebatch_solvers_gpu as gpu;
