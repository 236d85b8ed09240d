//! Solves batches of thousands of sparse linear systems at once.
//!
//! A batch is either *uniform* (one pattern, many value sets) or *ragged* (every system its own
//! size and pattern). Every system has its own tolerance test, iteration count and [`Status`], and
//! counts as converged only after its true residual `b - A x` was recomputed.
//!
//! ```
//! use sparsebatch::{Batch, BatchValues, Csr, SolveOptions, Status, UniformBatch, solve};
//!
//! // Two systems with the pattern of [4 1; 1 3].
//! let a = Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![4.0, 1.0, 1.0, 3.0])?;
//! let values = BatchValues::ItemMajor(vec![4.0, 1.0, 1.0, 3.0, 2.0, 0.0, 0.0, 5.0]);
//! let batch = Batch::Uniform(UniformBatch::try_new(a.pattern().clone(), 2, values)?);
//!
//! let solution = solve(&batch, &[5.0, 4.0, 2.0, 10.0], None, &SolveOptions::default())?;
//!
//! assert!(solution.report.all_converged());
//! assert_eq!(solution.report.systems[1].outcome.status, Status::Converged);
//! for (x, expected) in solution.x.iter().zip([1.0f64, 1.0, 1.0, 2.0]) {
//!     assert!((x - expected).abs() < 1e-9);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Tour
//!
//! | task | start from |
//! | --- | --- |
//! | hold a matrix | [`Csr`], [`Coo`], [`Ell`], [`Dia`], [`Hyb`], [`SellP`]: a validated pattern and values |
//! | convert it | [`convert`](mod@convert), `Ell::from_csr`, `to_csr`, `Matrix::convert` |
//! | hold many | [`UniformBatch`], [`RaggedCsr`], either of them in [`Batch`] |
//! | read and write files | [`io::load`], [`io::read_matrix_market`], [`io::write_batch`] and the rest of [`io`] |
//! | take matrices of other crates | `TryFrom` of `nalgebra_sparse`, `sprs` and `faer` matrices (features of these names) |
//! | look at a matrix | [`stats::MatrixStats`] |
//! | make test problems | [`generate`] |
//! | multiply once | [`cpu::seq`] (the reference), [`cpu::par`] (all cores) |
//! | multiply often | [`cpu::SpmvPlan`] |
//! | multiply on a GPU | [`gpu::device::availability()`], [`gpu::SinglePlan`], [`gpu::PackedPlan`] for batches |
//! | solve a batch | [`solve`], or [`BatchSolver`] to solve again with the analysis kept |
//! | solve on a GPU | [`solve_on`], [`BatchSolver::on`] or [`BatchSolver::on_with_rhs`] with a [`Backend`]; [`gpu`] for data on the device |
//! | solve with products or a preconditioner of one's own | [`solve_operator`], [`solve_preconditioned`] |
//! | choose how | [`SolveOptions`]: [`Method`], [`Preconditioner`], [`PrecondPrecision`], [`InnerPrecision`], [`Order`], [`LuForm`], tolerances, fallback |
//! | see how it went | [`BatchReport`]: a [`Status`], iterations, the true residual of every system |
//!
//! # Limits
//!
//! Values are real, `f64` or `f32`; local indices are 32-bit. Solvers and products run on the CPU
//! or on an NVIDIA GPU. On the GPU there is no pivoting LU, and only solves over products have
//! residual histories; machines without a GPU need no part of CUDA. Threads are those of the
//! current rayon pool. A process forked from one that solved with these threads does not have them:
//! it gets [`cpu::CpuError::Forked`], unless it solves within a pool of its own
//! (`rayon::ThreadPool::install`).
#![forbid(unsafe_code)]

pub use sparsebatch_formats::{
    Batch, BatchCsr, BatchOf, BatchValues, Coo, CooPattern, Csr, CsrPattern, CsrPatternRef, Dia,
    DiaPattern, Ell, EllPattern, FormatError, Hyb, HybPattern, Layout, Matrix, PADDING, Pattern,
    RaggedBatch, RaggedCsr, Scalar, SellP, SellPPattern, UniformBatch, View, accuracy, batch,
    convert, generate, interop, io, stats,
};
pub use sparsebatch_solve_core::{
    ArgumentError, Criteria, norm2, residual, residual_magnitude, symbolic, verdict,
};
pub use sparsebatch_solvers::{
    AdjointSolver, Backend, BatchReport, BatchSolver, Budget, Chunks, CpuScalar, Engine,
    FormatChoice, Gpu, GpuExecutor, GpuRun, Gpus, InnerPrecision, KernelChoice, Krylov, LinOp,
    LuForm, Machine, Method, OperatorError, Order, Outcome, PerSystem, PlanPin, PrecondPrecision,
    Preconditioner, ProductCost, Progress, Rhs, Rung, RungRun, Scheme, SchemeRun, Solution,
    SolveError, SolveOptions, SolveScalar, SpmvOptions, Status, SystemReport, Watch,
    choose_schemes, cpu_instruction_sets, solve, solve_on, solve_operator, solve_preconditioned,
    value_gradient,
};

/// Products on the CPU: the sequential reference, all cores, plans for repeated products.
pub mod cpu {
    pub use sparsebatch_cpu_ref::{
        CpuError, CpuScalar, Explain, Isa, PlanSource, SpmvPlan, check_threads, par, seq,
    };
}

/// An NVIDIA GPU: devices and memory, plans for products, solvers of data on the device.
pub mod gpu {
    #[doc(hidden)]
    pub use sparsebatch_cuda::testing;
    pub use sparsebatch_cuda::{
        Args, CudaVersion, Device, DeviceAllocator, DeviceBuffer, DeviceInfo, DeviceModel,
        Executor, GpuError, KernelBuffer, KernelKey, KernelScalar, LaunchConfig, Lender,
        MemoryMeter, Module, PageLocked, PinnedBuffer, PinnedValues, Pod, Value, check_apart,
        device, executor, lending,
    };
    pub use sparsebatch_solvers::gpu::{
        Amortisation, BandedShape, BandedSolver, BandedTuning, BatchPlan, ColumnsShape,
        ComposedExplain, ComposedSolver, Confirmer, DeferredSolve, DenseForm, DenseShape,
        DenseSolver, DenseTuning, DeviceLinOp, DeviceOutcomes, DividedSolver, FactoredPlace,
        FactoredShape, FactoredSolver, FactoredTuning, FrontalLu, FrontalShape, FrontalTuning,
        FusedShape, FusedSolver, GpuLu, GpuSolveError, GpuSolver, GpuTuning, Guess, LaunchReport,
        LaunchShape, Layouts, LuOrder, LuShape, LuTuning, MOST_DENSE_ROWS, PlanReport,
        ProductKernel, RaggedFactored, RaggedLu, RefusedItems, SchemeItems, ShiftedValues,
        SolverTuning, ValueGradient, ValuePlace, most_rows, solver_for, solver_for_batch,
        solver_for_ragged,
    };
    pub use sparsebatch_solvers::{
        BatchPatterns, DeviceArrays, DeviceData, DeviceReport, DeviceSolver, DeviceSolvers,
        SolverMemory, kernels_of, solver_memory,
    };
    pub use sparsebatch_spmv_gpu::{
        AdaptiveRows, BalancedRows, CsrArrays, CsrSize, FlexibleKernel, FlexibleOptions,
        FlexiblePlan, PackedExplain, PackedKernel, PackedOptions, PackedPlan, SingleExplain,
        SingleKernel, SingleOptions, SinglePlan, flexible, packed, single,
    };
}

#[cfg(any(doc, doctest))]
pub mod book;

// The command line names the library as its other users do.
#[cfg(feature = "cli")]
extern crate self as sparsebatch;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;

/// The README's program is compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
