//! The value types of solves, for which solves are compiled in this crate.

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_cuda::{DeviceInfo, Executor, KernelKey, Value};
use sparsebatch_formats::Batch;

use crate::device::memory_of;
use crate::rehearsal::rehearse;
use crate::{
    Backend, BatchReport, BatchSolver, DeviceData, Rhs, SolveError, SolveOptions, SolverMemory,
};

/// A value type that CPU and GPU solve in: `f32` and `f64`.
///
/// Its methods are those of [`BatchSolver`]. They are compiled once per type in this crate, not
/// again in every program that solves.
pub trait SolveScalar: CpuScalar + Value {
    /// [`BatchSolver::on_with_rhs`], with right-hand sides or without.
    #[doc(hidden)]
    fn analyse(
        backend: &Backend,
        batch: &Batch<Self>,
        rhs: Option<Rhs<'_, Self>>,
        options: &SolveOptions,
    ) -> Result<BatchSolver<Self>, SolveError>;

    /// [`BatchSolver::solve`].
    #[doc(hidden)]
    fn solve(
        solver: &mut BatchSolver<Self>,
        batch: &Batch<Self>,
        b: &[Self],
        x: &mut [Self],
    ) -> Result<BatchReport, SolveError>;

    /// [`BatchSolver::factor`].
    #[doc(hidden)]
    fn factor(solver: &mut BatchSolver<Self>, batch: &Batch<Self>) -> Result<(), SolveError>;

    /// [`BatchSolver::solve_again`].
    #[doc(hidden)]
    fn solve_again(
        solver: &mut BatchSolver<Self>,
        b: &[Self],
        x: &mut [Self],
    ) -> Result<BatchReport, SolveError>;

    /// [`BatchSolver::solve_transposed_again`].
    #[doc(hidden)]
    fn solve_transposed_again(
        solver: &mut BatchSolver<Self>,
        g: &[Self],
        lambda: &mut [Self],
    ) -> Result<BatchReport, SolveError>;

    /// [`BatchSolver::solve_near`].
    #[doc(hidden)]
    fn solve_near(
        solver: &mut BatchSolver<Self>,
        batch: &Batch<Self>,
        b: &[Self],
        x: &mut [Self],
    ) -> Result<BatchReport, SolveError>;

    /// [`solver_memory`](crate::solver_memory).
    #[doc(hidden)]
    fn memory(
        info: &DeviceInfo,
        batch: &Batch<Self>,
        options: &SolveOptions,
        data: DeviceData,
    ) -> Result<SolverMemory, SolveError>;

    /// [`kernels_of`](crate::kernels_of).
    #[doc(hidden)]
    fn rehearse(
        info: &DeviceInfo,
        batch: &Batch<Self>,
        rhs: Rhs<'_, Self>,
        options: &SolveOptions,
        or_cpu: bool,
    ) -> Result<Vec<KernelKey>, SolveError>;
}

macro_rules! compiled_here {
    ($($scalar:ty)*) => {$(
        impl SolveScalar for $scalar {
            fn analyse(
                backend: &Backend,
                batch: &Batch<Self>,
                rhs: Option<Rhs<'_, Self>>,
                options: &SolveOptions,
            ) -> Result<BatchSolver<Self>, SolveError> {
                BatchSolver::on_executor(backend, batch, rhs, options)
            }

            fn solve(
                solver: &mut BatchSolver<Self>,
                batch: &Batch<Self>,
                b: &[Self],
                x: &mut [Self],
            ) -> Result<BatchReport, SolveError> {
                solver.solve_here(batch, b, x)
            }

            fn factor(
                solver: &mut BatchSolver<Self>,
                batch: &Batch<Self>,
            ) -> Result<(), SolveError> {
                solver.factor_here(batch)
            }

            fn solve_again(
                solver: &mut BatchSolver<Self>,
                b: &[Self],
                x: &mut [Self],
            ) -> Result<BatchReport, SolveError> {
                solver.solve_again_here(b, x)
            }

            fn solve_transposed_again(
                solver: &mut BatchSolver<Self>,
                g: &[Self],
                lambda: &mut [Self],
            ) -> Result<BatchReport, SolveError> {
                solver.solve_transposed_again_here(g, lambda)
            }

            fn solve_near(
                solver: &mut BatchSolver<Self>,
                batch: &Batch<Self>,
                b: &[Self],
                x: &mut [Self],
            ) -> Result<BatchReport, SolveError> {
                solver.solve_near_here(batch, b, x)
            }

            fn memory(
                info: &DeviceInfo,
                batch: &Batch<Self>,
                options: &SolveOptions,
                data: DeviceData,
            ) -> Result<SolverMemory, SolveError> {
                memory_of(info, batch, options, data)
            }

            fn rehearse(
                info: &DeviceInfo,
                batch: &Batch<Self>,
                rhs: Rhs<'_, Self>,
                options: &SolveOptions,
                or_cpu: bool,
            ) -> Result<Vec<KernelKey>, SolveError> {
                rehearse(info, batch, rhs, options, or_cpu)
            }
        }
    )*};
}
compiled_here!(f32 f64);

/// What runs the kernels of a backend: a GPU, or an emulation of one.
pub trait GpuExecutor: Executor + Clone + Send + Sync + 'static {}

impl<E: Executor + Clone + Send + Sync + 'static> GpuExecutor for E {}
