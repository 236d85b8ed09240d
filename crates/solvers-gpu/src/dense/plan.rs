//! The plan: checked options, arrays on the device, launches, outcomes.

use sparsebatch_cuda::{Args, Executor, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::{Batch, CsrPatternRef, Pattern};
use sparsebatch_solve_core::{Method, Outcome, Scheme, SolveOptions, check_len};

use super::kernels;
use super::shape::{DenseForm, DenseShape, DenseTuning};
use crate::GpuSolveError;
use crate::common::outcomes::{DeviceOutcomes, Limits, Outcomes};
use crate::common::task::{
    Guess, check_active, check_apart, check_common, check_square, count_systems, item_major,
    shares_values,
};
use crate::common::{Confirmer, GpuSolver, LaunchReport, LaunchShape, PlanReport};

/// A bit of the kernel's `flags`.
const FROM_GUESS: u32 = 1;

/// Elimination with partial pivoting for every system of a uniform batch of at most
/// [`MOST_DENSE_ROWS`](crate::MOST_DENSE_ROWS) rows: the pivots are chosen by the values of each system. A group of 8 to
/// 64 threads solves each system; one launch covers all systems.
///
/// The matrix is dense in registers whatever its pattern, so the work grows with the cube of the
/// number of rows. For nearly full patterns that is the least; where rows have few entries,
/// [`GpuLu`](crate::GpuLu) takes less time but chooses no pivots by values.
///
/// The elimination is that of Gauss and Jordan, over rows scaled by powers of two. While the true
/// residual does not pass, the solution is refined, up to [`SolveOptions::max_restarts`] times. An
/// iteration is one elimination. Statuses: `Singular` where a column has no pivot, `NonFinite` where
/// values became NaN or infinite, `Converged` only after `b - A x` was recomputed in the same launch;
/// `Stagnated` and `MaxIterations` as for other solvers. A system's result is a function of that
/// system and of the kernel, bit for bit: not of its neighbours, its position in the batch, or the
/// order of threads.
///
/// `Converged` rests on the residual as the kernel computes it, without a bound of its rounding
/// errors; [`GpuSolver::confirm`] includes that bound.
///
/// # Source
/// Gauss-Jordan elimination and its errors: Higham, Accuracy and Stability of Numerical Algorithms,
/// 2nd ed. 2002, section 14.4; refinement: chapter 12. Batches of small matrices in registers, rows
/// that stay in their threads ("implicit pivoting"): Anzt, Dongarra, Flegar, Quintana-Orti, Batched
/// Gauss-Jordan elimination for block-Jacobi preconditioner generation on GPUs, 2017, doi
/// 10.1145/3026937.3026940.
pub struct DenseSolver<E: Executor, T: Value> {
    executor: E,
    nrows: usize,
    nnz: usize,
    nitems: usize,
    /// Number of participating items, the first ones.
    active: usize,
    nrhs: usize,
    key: KernelKey,
    shape: DenseShape,
    config: LaunchConfig,
    /// Where each entry lies in the dense matrix, as [`DenseShape::places`] orders them.
    places: E::Buffer<u16>,
    limits: Limits<E>,
    outcomes: Outcomes<E>,
    value: std::marker::PhantomData<T>,
}

impl<E: Executor + Clone, T: Value> DenseSolver<E, T> {
    /// Prepares `nitems` systems of `options.nrhs` right-hand sides each: allocates all device memory
    /// and compiles the kernel. Preconditioner and order of the options are ignored.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a matrix that is not square and for options out of range;
    /// [`GpuSolveError::Unsupported`] for options that the GPU does not support and for more than
    /// [`MOST_DENSE_ROWS`](crate::MOST_DENSE_ROWS) rows; [`GpuSolveError::Gpu`] when an allocation or
    /// the compiler fails.
    pub fn new(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        Self::with_tuning(executor, pattern, nitems, options, &DenseTuning::default())
    }

    /// As [`DenseSolver::new`], for the pattern of a batch.
    ///
    /// # Errors
    /// Those of [`DenseSolver::new`]; [`GpuSolveError::Unsupported`] for ragged batches and
    /// interleaved values.
    pub fn for_batch(
        executor: &E,
        batch: &Batch<T>,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let uniform = item_major(batch)?;
        Self::new(executor, uniform.pattern().view(), uniform.nitems(), options)
    }

    /// As [`DenseSolver::new`], with the choices in `tuning` fixed.
    ///
    /// # Errors
    /// Those of [`DenseSolver::new`]; [`GpuSolveError::Argument`] for threads and forms without a
    /// kernel.
    pub fn with_tuning(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
        tuning: &DenseTuning,
    ) -> Result<Self, GpuSolveError> {
        let nrows = pattern.nrows();
        check_square(0, pattern)?;
        check_supported(options)?;
        let systems = count_systems(nitems, options.nrhs)?;
        let criteria = options.criteria::<T>(systems)?;
        let shape = DenseShape::choose(nrows, size_of::<T>(), tuning)?;
        let info = executor.info();
        let shared_bytes = shape.shared_bytes(nrows, size_of::<T>());
        if shared_bytes > info.shared_bytes_per_block {
            return Err(GpuSolveError::Unsupported {
                what: "dense elimination beyond the shared memory of this GPU",
                instead: "take the sparse LU, or LU with partial pivoting on the CPU",
            });
        }
        let module = match shape.form {
            DenseForm::Rows => &kernels::DENSE,
            DenseForm::Tiles => &kernels::DENSE_TILES,
        };
        let key = KernelKey::new(module, shape.expression(T::CPP));
        executor.prepare(std::slice::from_ref(&key))?;
        let config = LaunchConfig { shared_bytes, ..LaunchConfig::linear(1, shape.block) };
        let resident = executor.resident_blocks(&key, config)?;
        let blocks = shape.blocks(nitems, resident, info, tuning);
        Ok(Self {
            executor: executor.clone(),
            nrows,
            nnz: pattern.nnz(),
            nitems,
            active: nitems,
            nrhs: options.nrhs,
            key,
            shape,
            config: LaunchConfig { grid: [blocks, 1, 1], ..config },
            places: executor.upload(&shape.places(pattern))?,
            limits: Limits::new(executor, criteria)?,
            outcomes: Outcomes::new(executor, systems)?,
            value: std::marker::PhantomData,
        })
    }

    /// Solves every system. Allocates nothing, launches one kernel and returns before it is done.
    ///
    /// `values` holds the entries of item 0 in CSR order, of item 1, ...; or those of one item,
    /// shared by all. `b` and `x` are item-major, one right-hand side after the other within an
    /// item. A system that does not converge is no error: see [`GpuSolver::outcomes`]; one that ends
    /// `Singular` keeps its guess.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, when `x` overlaps another array,
    /// [`GpuSolveError::Gpu`] when the launch is refused; `x` is untouched then.
    #[expect(unsafe_code, reason = "a launch")]
    pub fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let shared = shares_values(values.len(), self.nnz, self.nitems)?;
        let rows = self.nrows * self.nitems * self.nrhs;
        check_len("b", rows, b.len())?;
        check_len("x", rows, x.len())?;
        check_apart(b, x)?;
        check_apart(values, x)?;
        if self.active == 0 {
            return Ok(());
        }
        let mut args = Args::new();
        args.scalar(self.active as u32)
            .scalar(self.nrows as u32)
            .scalar(self.nrhs as u32)
            .scalar(self.nnz as u32)
            .input(&self.places)
            .input(values)
            .scalar(if shared { 0 } else { self.nnz as u64 })
            .input(b)
            .output(x)
            .scalar(if guess == Guess::InX { FROM_GUESS } else { 0 });
        self.limits.pass(&mut args);
        self.outcomes.pass(&mut args);
        // SAFETY: the arguments are those of `dense` and `dense_tiles`; lengths were checked here;
        // `with_tuning` made `places` of the pattern, below rows times stride, and the shared memory
        // for that; x overlaps neither values nor b, and everything else belongs to the plan.
        unsafe { self.executor.launch(&self.key, self.config, &mut args) }?;
        Ok(())
    }

    /// From now on only the first `items` items take part in solves. The arrays keep their lengths;
    /// their elements for the other items are not touched, outcomes included.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when `items` exceeds the plan's.
    pub fn set_active(&mut self, items: usize) -> Result<(), GpuSolveError> {
        check_active(items, self.nitems)?;
        self.active = items;
        Ok(())
    }

    /// The outcomes of the last solve in device memory, for kernels of the caller.
    pub fn device_outcomes(&self) -> DeviceOutcomes<'_, E> {
        self.outcomes.on_device()
    }
}

fn check_supported(options: &SolveOptions) -> Result<(), GpuSolveError> {
    match options.method {
        Method::Auto | Method::PivotingLu => check_common(options),
        Method::Cg | Method::BiCgStab | Method::Lu | Method::Banded => {
            Err(GpuSolveError::Unsupported {
                what: "a solver other than pivoting-lu",
                instead: "take pivoting-lu",
            })
        }
    }
}

impl<E, T> GpuSolver<E, T> for DenseSolver<E, T>
where
    E: Executor + Clone + Send + Sync,
    T: Value,
{
    fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        Self::solve(self, values, b, guess, x)
    }

    fn set_active(&mut self, items: usize) -> Result<(), GpuSolveError> {
        Self::set_active(self, items)
    }

    fn confirm(
        &mut self,
        confirmer: &Confirmer<E, T>,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let systems = self.active * self.nrhs;
        confirmer.confirm((&mut self.outcomes, systems), values, b, x)
    }

    fn outcomes(&self) -> Result<Vec<Outcome>, GpuSolveError> {
        Ok(self.outcomes.download(&self.executor)?)
    }

    fn outcome_arrays(&self) -> &Outcomes<E> {
        &self.outcomes
    }

    fn outcome_arrays_mut(&mut self) -> &mut Outcomes<E> {
        &mut self.outcomes
    }

    fn limits_mut(&mut self) -> &mut Limits<E> {
        &mut self.limits
    }

    fn explain(&self) -> PlanReport {
        let systems = self.nitems * self.nrhs;
        let launch = LaunchReport {
            scheme: Scheme::PivotingLu,
            kernel: self.key.expression.clone(),
            systems,
            patterns: 1,
            nrows: self.nrows,
            nnz: self.nnz,
            threads_per_system: self.shape.threads,
            systems_per_block: self.shape.systems_per_block(),
            threads_per_block: self.shape.block,
            blocks: self.config.grid[0],
            shared_bytes: self.config.shared_bytes,
            shape: LaunchShape::Dense(self.shape),
        };
        PlanReport {
            scheme: Scheme::PivotingLu,
            launches: vec![launch],
            pattern_bytes: self.places.len() as u64 * 2,
            workspace_bytes: (systems
                * (Outcomes::<E>::BYTES_A_SYSTEM + self.limits.bytes_a_system()))
                as u64,
            kept_bytes: 0,
        }
    }
}
