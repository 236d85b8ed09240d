//! The plan: checked options, arrays on the device, launches, outcomes.

use sparsebatch_cuda::{Args, Executor, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::{Batch, CsrPatternRef, Pattern};
use sparsebatch_solve_core::{ArgumentError, Method, Outcome, Scheme, SolveOptions, check_len};

use super::kernels;
use super::shape::{FrontalBlocks, FrontalShape, FrontalTuning};
use super::table::{FrontalTable, are_for};
use crate::GpuSolveError;
use crate::common::outcomes::{DeviceOutcomes, Limits, Outcomes};
use crate::common::task::{
    Guess, check_active, check_apart, check_common, check_square, count_systems, item_major,
    shares_values,
};
use crate::common::{Confirmer, GpuSolver, LaunchReport, LaunchShape, PlanReport};

/// Bits of the kernel's `flags`.
const FROM_GUESS: u32 = 1;
const FACTOR: u32 = 2;
const FROM_KEPT: u32 = 4;

/// Sparse LU without pivoting for every system of a uniform batch, front by front of an assembly
/// tree: a block factorises, solves and refines each system, with L + U in device memory. One
/// launch covers all systems.
///
/// This is the sparse LU of systems whose factors do not fit on chip; for smaller ones
/// [`GpuLu`](crate::GpuLu) takes less time. The order is that of minimum degree; fronts are those
/// of the pattern of `A + A^T`, so that a pattern far from symmetric gets more fill than by other
/// plans.
///
/// While the true residual does not pass, the solution is refined, up to
/// [`SolveOptions::max_restarts`] times, by the same factors, which serve all right-hand sides of
/// an item. An iteration is one solve with the factors. Statuses are those of the CPU's LU:
/// `ZeroPivot` where a pivot is zero and `NonFinite` where values became NaN or infinite;
/// `Converged` only after `b - A x` was recomputed in the same launch. A system's result is a
/// function of that system and the model of the device alone, bit for bit.
///
/// Memory besides the arrays: L + U and what fronts leave, for each block that runs at a time; with
/// kept factors L + U of every item, or of one where all share their values.
///
/// `Converged` rests on the residual as the kernel computes it, without a bound of its rounding
/// errors; [`GpuSolver::confirm`] includes that bound.
///
/// # Source
/// Multifrontal method: I. S. Duff and J. K. Reid, The multifrontal solution of indefinite sparse
/// symmetric linear equations, 1983, doi 10.1145/356044.356047; J. W. H. Liu, The multifrontal
/// method for sparse matrix solution, 1992, doi 10.1137/1034004. Refinement: Higham, Accuracy and
/// Stability of Numerical Algorithms, 2nd ed. 2002, chapter 12.
pub struct FrontalLu<E: Executor, T: Value> {
    executor: E,
    nnz: usize,
    nitems: usize,
    /// Number of participating items, the first ones.
    active: usize,
    nrhs: usize,
    key: KernelKey,
    table: FrontalTable,
    blocks: FrontalBlocks,
    config: LaunchConfig,
    words: E::Buffer<u32>,
    workspace: E::Buffer<T>,
    kept: Option<KeptFronts<E, T>>,
    limits: Limits<E>,
    outcomes: Outcomes<E>,
}

/// Factors of the last factorisation.
struct KeptFronts<E: Executor, T: Value> {
    factors: E::Buffer<T>,
    /// Whether they are those of one item for all.
    is_shared: bool,
    /// Number of items that have factors.
    made: usize,
}

/// The right-hand sides and the solutions.
type Vectors<'a, B> = (&'a B, &'a mut B);

/// The arrays of a launch.
struct FrontalTask<'a, E: Executor, T: Value> {
    items: usize,
    values: (&'a E::Buffer<T>, bool),
    vectors: Option<Vectors<'a, E::Buffer<T>>>,
    flags: u32,
}

impl<E: Executor + Clone, T: Value> FrontalLu<E, T> {
    /// Prepares `nitems` systems of `options.nrhs` right-hand sides each: analyses the pattern,
    /// allocates all device memory and compiles the kernel. Preconditioner and order of the options
    /// are ignored.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a matrix that is not square and for options out of range;
    /// [`GpuSolveError::Unsupported`] for options that the GPU does not support and for systems
    /// with fronts that exceed the shared memory of a block, more than about 1,600 rows in f64 on
    /// an H200; [`GpuSolveError::Gpu`] when an allocation or the compiler fails.
    pub fn new(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        Self::with_tuning(executor, pattern, nitems, options, &FrontalTuning::default())
    }

    /// As [`FrontalLu::new`], with the choices in `tuning` fixed.
    ///
    /// # Errors
    /// Those of [`FrontalLu::new`]; [`GpuSolveError::Argument`] for threads without a kernel.
    pub fn with_tuning(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
        tuning: &FrontalTuning,
    ) -> Result<Self, GpuSolveError> {
        check_square(0, pattern)?;
        check_supported(options)?;
        let systems = count_systems(nitems, options.nrhs)?;
        let criteria = options.criteria::<T>(systems)?;
        let (info, size) = (executor.info(), size_of::<T>());
        let blocks = FrontalBlocks::choose(info, nitems, size, tuning)?;
        let usual = FrontalBlocks::usual_capacity(info, size);
        let table = FrontalTable::new(pattern, usual, &blocks)?;
        let expression =
            format!("multifrontal<{}, {}, {}>", T::CPP, blocks.threads, blocks.resident);
        let key = KernelKey::new(&kernels::MULTIFRONTAL, expression);
        executor.prepare(std::slice::from_ref(&key))?;
        let limits = Limits::new(executor, criteria)?;
        let each = Outcomes::<E>::BYTES_A_SYSTEM + limits.bytes_a_system();
        let rest = (4 * table.words.len() + systems * each) as u64;
        let of_block = (table.block_values() * size) as u64;
        let memory = (executor.free_memory()?, tuning);
        let count = blocks.count(info, nitems, (of_block, rest), memory)?;
        let config = LaunchConfig {
            shared_bytes: blocks.shared_bytes,
            ..LaunchConfig::linear(count, blocks.threads)
        };
        Ok(Self {
            nnz: pattern.nnz(),
            nitems,
            active: nitems,
            nrhs: options.nrhs,
            key,
            blocks,
            config,
            words: executor.upload(&table.words)?,
            workspace: executor.alloc(count as usize * table.block_values())?,
            table,
            kept: None,
            limits,
            outcomes: Outcomes::new(executor, systems)?,
            executor: executor.clone(),
        })
    }

    /// Whether this solver is for a square pattern: not where eliminating in `A + A^T` takes more
    /// than eight times the multiply-adds of eliminating in A. Patterns that are not structurally
    /// symmetric are analysed.
    ///
    /// # Errors
    /// [`GpuSolveError::Symbolic`] where the pattern cannot be analysed.
    pub fn suits(pattern: CsrPatternRef<'_>) -> Result<bool, GpuSolveError> {
        are_for(pattern)
    }

    /// As [`FrontalLu::new`], for the pattern of a batch.
    ///
    /// # Errors
    /// Those of [`FrontalLu::new`]; [`GpuSolveError::Unsupported`] for ragged batches and
    /// interleaved values.
    pub fn for_batch(
        executor: &E,
        batch: &Batch<T>,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let uniform = item_major(batch)?;
        Self::new(executor, uniform.pattern().view(), uniform.nitems(), options)
    }

    /// Solves every system. Allocates nothing, launches one kernel and returns before it is done.
    ///
    /// `values` holds the entries of item 0 in CSR order, of item 1, ...; or those of one item,
    /// shared by all. `b` and `x` are item-major, one right-hand side after the other within an
    /// item. A system that does not converge is no error: see [`GpuSolver::outcomes`]; one that
    /// ends `ZeroPivot` keeps its guess.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, when `x` overlaps another array,
    /// [`GpuSolveError::Gpu`] when the launch is refused; `x` is untouched then.
    pub fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.start(values, b, if guess == Guess::InX { FROM_GUESS } else { 0 }, x)
    }

    /// Factorises the matrices and keeps the factors on the device, for any number of solves by
    /// [`FrontalLu::solve_again`]. The first call allocates memory for L + U of each item, or of
    /// one where all share `values`. Launches one kernel and returns before it is done.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when `values` does not fit, [`GpuSolveError::Gpu`] when the
    /// allocation fails or the launch is refused. Nothing is kept then.
    pub fn factor(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        let shared = shares_values(values.len(), self.nnz, self.nitems)?;
        let before = self.kept.take().filter(|kept| kept.is_shared == shared);
        let items = if shared { self.nitems.min(1) } else { self.nitems };
        let factors = match before {
            Some(kept) => kept.factors,
            None => self.executor.alloc(items * self.table.kept_values())?,
        };
        // The factors of one item shared by all are computed whatever `active` is.
        let made = if shared { items } else { self.active };
        self.kept = Some(KeptFronts {
            factors,
            is_shared: shared,
            made: if shared { self.nitems } else { self.active },
        });
        let task =
            FrontalTask { items: made, values: (values, shared), vectors: None, flags: FACTOR };
        let launched = self.launch(task);
        if launched.is_err() {
            self.kept = None;
        }
        launched
    }

    /// Solves every system with the factors of the last [`FrontalLu::factor`]. Arguments as for
    /// [`FrontalLu::solve`]; `values` serve the residuals: where they differ a little from those
    /// that were factorised, the solution is refined until the residual passes.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when there are no factors, or not of all items that take part;
    /// else those of [`FrontalLu::solve`].
    pub fn solve_again(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let made = self.kept.as_ref().map(|kept| kept.made);
        if made.is_none_or(|made| made < self.active) {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "factors",
                expected: "a call of factor before, for all items that take part",
                found: match made {
                    None => "none".to_owned(),
                    Some(made) => {
                        format!("factors of {made} items, where {} take part", self.active)
                    }
                },
            }));
        }
        let from = if guess == Guess::InX { FROM_GUESS } else { 0 };
        self.start(values, b, FROM_KEPT | from, x)
    }

    fn start(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        flags: u32,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let rows = self.table.nrows * self.nitems * self.nrhs;
        let shared = shares_values(values.len(), self.nnz, self.nitems)?;
        check_len("b", rows, b.len())?;
        check_len("x", rows, x.len())?;
        check_apart(values, x)?;
        check_apart(b, x)?;
        let (items, values) = (self.active, (values, shared));
        self.launch(FrontalTask { items, values, vectors: Some((b, x)), flags })
    }

    #[expect(unsafe_code, reason = "the one launch")]
    fn launch(&mut self, task: FrontalTask<'_, E, T>) -> Result<(), GpuSolveError> {
        let FrontalTask { items, values: (values, shared), vectors, flags } = task;
        if items == 0 {
            return Ok(());
        }
        let mut args = Args::new();
        args.scalar(items as u32)
            .scalar(self.nrhs as u32)
            .scalar(self.blocks.capacity)
            .input(&self.words)
            .input(values)
            .scalar(if shared { 0 } else { self.nnz as u64 });
        match vectors {
            Some((b, x)) => args.input(b).output(x),
            None => args.raw(0).raw(0),
        };
        args.output(&mut self.workspace).scalar(self.table.block_values() as u64);
        match &mut self.kept {
            Some(kept) if flags & (FACTOR | FROM_KEPT) != 0 => {
                let each = if kept.is_shared { 0 } else { self.table.kept_values() as u64 };
                args.output(&mut kept.factors).scalar(each)
            }
            _ => args.raw(0).scalar(0u64),
        };
        args.scalar(flags);
        self.limits.pass(&mut args);
        self.outcomes.pass(&mut args);
        // SAFETY: the arguments are those of `multifrontal`; `start` checked the lengths of arrays,
        // and `shares_values` those of `values`; the table is that of the pattern, for blocks of as
        // many threads and values, and the workspace has room for each block of the launch; `kept`
        // is there where the flags ask for it, with factors of `items` items or of one for all, and
        // is read only after it was written; a factorisation touches neither b nor x; x overlaps
        // neither values nor b, and everything else belongs to the plan.
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
        Method::Auto | Method::Lu => check_common(options),
        Method::Cg | Method::BiCgStab | Method::PivotingLu | Method::Banded => {
            Err(GpuSolveError::Unsupported { what: "a solver other than lu", instead: "take lu" })
        }
    }
}

impl<E, T> GpuSolver<E, T> for FrontalLu<E, T>
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

    fn keeps_factors(&self) -> bool {
        true
    }

    fn factor(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        Self::factor(self, values)
    }

    fn forget_factors(&mut self) {
        self.kept = None;
    }

    fn solve_again(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        Self::solve_again(self, values, b, guess, x)
    }

    fn solves_near(&self) -> bool {
        true
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
            scheme: Scheme::Lu,
            kernel: self.key.expression.clone(),
            systems,
            patterns: 1,
            nrows: self.table.nrows,
            nnz: self.nnz,
            threads_per_system: self.blocks.threads,
            systems_per_block: 1,
            threads_per_block: self.blocks.threads,
            blocks: self.config.grid[0],
            shared_bytes: self.config.shared_bytes,
            shape: LaunchShape::Frontal(FrontalShape {
                fronts: self.table.fronts,
                largest_front: self.table.largest,
                factor_entries: self.table.factor_entries,
            }),
        };
        let each = Outcomes::<E>::BYTES_A_SYSTEM + self.limits.bytes_a_system();
        let values = |buffer: &E::Buffer<T>| (buffer.len() * size_of::<T>()) as u64;
        PlanReport {
            scheme: Scheme::Lu,
            launches: vec![launch],
            pattern_bytes: self.words.len() as u64 * 4,
            workspace_bytes: values(&self.workspace) + (systems * each) as u64,
            kept_bytes: self.kept.as_ref().map_or(0, |kept| values(&kept.factors)),
        }
    }
}
