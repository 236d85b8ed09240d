//! The plan: checked options, arrays on the device, launches, outcomes.

use sparsebatch_cuda::{Args, Executor, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::{Batch, CsrPatternRef, Pattern};
use sparsebatch_solve_core::{ArgumentError, Method, Outcome, Scheme, SolveOptions, check_len};

use super::backward::CHUNKS;
use super::deferred::Deferred;
use super::explain::LuShape;
use super::grid::LuTuning;
use super::kept::{Factored, KeptSolve, LuKept};
use super::kernels;
use super::schedule::Schedule;
use crate::GpuSolveError;
use crate::common::outcomes::{DeviceOutcomes, Limits, Outcomes};
use crate::common::task::{
    Guess, check_active, check_apart, check_common, check_square, count_systems, item_major,
    shares_values,
};
use crate::common::{Confirmer, DeferredSolve, GpuSolver, LaunchReport, LaunchShape, PlanReport};

/// A bit of the kernel's `flags`.
const FROM_GUESS: u32 = 1;

/// Sparse LU for every system of a uniform batch. A block of threads factorises, solves and refines
/// each system; one launch covers all systems.
///
/// The order of elimination and the filled pattern are computed once per pattern, on the CPU. There
/// is no pivoting (`BatchSolver` permutes the rows of systems that end `Singular`). While the true
/// residual does not pass, the solution is refined, up to [`SolveOptions::max_restarts`] times. An
/// iteration is one solve with the factors. Statuses are those of the CPU's LU: `Singular` where a
/// pivot is zero and `NonFinite` where values became NaN or infinite; `Converged` only after
/// `b - A x` was recomputed in the same launch. A system's result is a function of that system and
/// of the plan's schedule, bit for bit: not of its neighbours, its position in the batch, or the
/// order of threads.
///
/// Factors and vectors are in the shared memory of a block, which limits the size. L + U, two
/// vectors, and one partial sum for every 24 entries of the longer rows of A are at most 65,532
/// values, and must fit in the shared memory of a block (227 KiB on the H200: about 29,000 values
/// in f64). [`FrontalLu`](crate::FrontalLu) has the LU of larger systems. A
/// refinement factorises again; [`GpuLu::factor`] and [`GpuLu::solve_again`] keep the factors in
/// device memory instead, for several solves with each.
///
/// `Converged` rests on the residual as the kernels compute it, without a bound of its rounding
/// errors; [`GpuLu::confirm`] includes that bound.
///
/// # Source
/// One system per lane, the values of many systems interleaved: as on the CPU. Work in parallel
/// within a system by list scheduling of its sums (Graham 1969, doi 10.1137/0117039). Refinement:
/// Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. 2002, chapter 12.
pub struct GpuLu<E: Executor, T: Value> {
    pub(super) executor: E,
    pub(super) nrows: usize,
    nnz: usize,
    pub(super) nitems: usize,
    /// Number of participating items, the first ones.
    pub(super) active: usize,
    pub(super) nrhs: usize,
    key: KernelKey,
    schedule: Schedule,
    words: E::Buffer<u32>,
    starts: E::Buffer<u32>,
    targets: E::Buffer<u16>,
    pub(super) perm: E::Buffer<u16>,
    pub(super) limits: Limits<E>,
    queue: E::Buffer<u32>,
    outcomes: Outcomes<E>,
    pub(super) kept: Option<LuKept<E, T>>,
    pub(super) deferred: Option<Deferred<E>>,
}

impl<E: Executor + Clone, T: Value> GpuLu<E, T> {
    /// Analyses a pattern for `nitems` systems of `options.nrhs` right-hand sides each, allocates
    /// all device memory and compiles the kernel. Preconditioner and order of the options are
    /// ignored.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a matrix that is not square and for
    /// options out of range; [`GpuSolveError::Unsupported`] for options that the GPU does not
    /// support and for factors beyond its shared memory; [`GpuSolveError::Gpu`] when an allocation
    /// or the compiler fails.
    pub fn new(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        Self::with_tuning(executor, pattern, nitems, options, &LuTuning::default())
    }

    /// As [`GpuLu::new`], for the pattern of a batch.
    ///
    /// # Errors
    /// Those of [`GpuLu::new`]; [`GpuSolveError::Unsupported`] for ragged batches and interleaved
    /// values.
    pub fn for_batch(
        executor: &E,
        batch: &Batch<T>,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let uniform = item_major(batch)?;
        Self::new(executor, uniform.pattern().view(), uniform.nitems(), options)
    }

    /// As [`GpuLu::new`], with the choices in `tuning` fixed.
    ///
    /// # Errors
    /// Those of [`GpuLu::new`]; [`GpuSolveError::Argument`] for choices that do not fit the pattern.
    pub fn with_tuning(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
        tuning: &LuTuning,
    ) -> Result<Self, GpuSolveError> {
        let nrows = pattern.nrows();
        check_square(0, pattern)?;
        check_supported(options)?;
        let systems = count_systems(nitems, options.nrhs)?;
        let criteria = options.criteria::<T>(systems)?;
        let info = executor.info();
        let schedule = Schedule::choose(pattern, size_of::<T>(), systems as u64, info, tuning)?;
        let expression = format!("lu<{}, {}>", T::CPP, schedule.grid.threads);
        let key = KernelKey::new(&kernels::LU, expression);
        executor.prepare(std::slice::from_ref(&key))?;
        let perm: Vec<u16> = schedule.pattern.perm().iter().map(|&row| row as u16).collect();
        Ok(Self {
            nrows,
            nnz: pattern.nnz(),
            nitems,
            active: nitems,
            nrhs: options.nrhs,
            key,
            words: executor.upload(&schedule.words)?,
            starts: executor.upload(&schedule.starts)?,
            targets: executor.upload(&schedule.targets)?,
            perm: executor.upload(&perm)?,
            schedule,
            limits: Limits::new(executor, criteria)?,
            queue: executor.alloc_zeroed(2)?,
            outcomes: Outcomes::new(executor, systems)?,
            executor: executor.clone(),
            kept: None,
            deferred: None,
        })
    }

    /// Solves every system. Allocates nothing, launches one kernel and returns before it is done.
    ///
    /// `values` holds the entries of item 0 in CSR order, of item 1, ...; or those of one item,
    /// shared by all. `b` and `x` are item-major, one right-hand side after the other within an
    /// item. A system that does not converge is no error: see [`GpuLu::outcomes`].
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, when `x`
    /// overlaps another array, [`GpuSolveError::Gpu`] when the launch is refused; `x` is untouched
    /// then.
    #[expect(unsafe_code, reason = "a launch")]
    pub fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let shared = shares_values(values.len(), self.nnz, self.nitems)?;
        self.check_vectors(b, x)?;
        check_apart(values, x)?;
        if self.active == 0 {
            return Ok(());
        }
        let config = self.config();
        let mut args = Args::new();
        args.scalar((self.active * self.nrhs) as u32)
            .scalar(self.schedule.grid.systems)
            .scalar(self.nrows as u32)
            .scalar(self.nrhs as u32)
            .scalar(self.nnz as u32)
            .input(&self.words)
            .input(&self.starts)
            .input(&self.targets)
            .scalar((self.schedule.targets.len() - self.nrows) as u32)
            .scalar(self.schedule.first_chunk as u32)
            .scalar(self.schedule.groups as u32)
            .scalar(self.schedule.sharing.systems)
            .input(&self.perm)
            .scalar(self.schedule.places.len as u32)
            .scalar(self.schedule.places.y)
            .input(values)
            .scalar(if shared { 0 } else { self.nnz as u64 })
            .input(b)
            .output(x)
            .scalar(if guess == Guess::InX { FROM_GUESS } else { 0 });
        self.limits.pass(&mut args);
        args.output(&mut self.queue);
        self.outcomes.pass(&mut args);
        // SAFETY: the arguments are those of `lu`; lengths were checked here; `new` made the plan's
        // own arrays of the same pattern: positions below `nplaces`, rows and entries below those
        // of A; x overlaps neither values nor b, and everything else belongs to the plan; the queue
        // holds zeros before and after each launch.
        unsafe { self.executor.launch(&self.key, config, &mut args) }?;
        Ok(())
    }

    /// Factorises the matrices and keeps factors and matrices on the device, for any number of
    /// solves by [`GpuLu::solve_again`]. Launches one kernel and returns before it is done. The
    /// first call compiles kernels and allocates memory for the entries of L + U and of A of each
    /// item; later calls allocate nothing. `values` as for [`GpuLu::solve`]; they are not read any
    /// more once the kernel is done.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when `values` does not fit, [`GpuSolveError::Unsupported`] when
    /// two vectors of two items exceed the shared memory of a block, [`GpuSolveError::Gpu`] when an
    /// allocation or the compiler fails or the launch is refused. Nothing is kept then.
    #[expect(unsafe_code, reason = "a launch")]
    pub fn factor(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        let shared = shares_values(values.len(), self.nnz, self.nitems)?;
        let config = self.config();
        let kept = match &mut self.kept {
            Some(kept) => kept,
            none => {
                none.insert(LuKept::new(&self.executor, &self.schedule, self.nitems, self.nrhs)?)
            }
        };
        kept.begin(&self.executor)?;
        // The factors of one item shared by all are computed whatever `active` is.
        if self.active > 0 || shared && self.nitems > 0 {
            let key = kept.factor.clone();
            let mut args = Args::new();
            args.scalar(if shared { 1 } else { self.active } as u32)
                .scalar(self.schedule.grid.systems)
                .scalar(self.nrows as u32)
                .scalar(self.nnz as u32)
                .scalar(self.schedule.places.len as u32)
                .scalar(self.schedule.places.y)
                .input(values)
                .scalar(if shared { 0 } else { self.nnz as u64 })
                .output(&mut self.queue);
            kept.pass_to_factor(&mut args);
            // SAFETY: the arguments are those of `lu_factor`; lengths as for `lu`, whose positions
            // these are; `kept` has room for all items, of which there is at least one.
            unsafe {
                self.executor.launch(&key, LaunchConfig { overlaps: true, ..config }, &mut args)
            }?;
        }
        kept.note(if shared { Factored::Shared } else { Factored::Items(self.active) });
        Ok(())
    }

    /// Solves every system with the factors of the last [`GpuLu::factor`], refinement included.
    /// Residuals are summed in another order than by [`GpuLu::solve`], so last bits differ; results
    /// are as repeatable, bit for bit. Allocates nothing, launches one kernel and returns before it
    /// is done. Arguments as for [`GpuLu::solve`].
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when there are no factors; else those of [`GpuLu::solve`].
    pub fn solve_again(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.check_vectors(b, x)?;
        let Some(kept) = factors(&self.kept, self.active, self.nitems)? else { return Ok(()) };
        let call = KeptCall {
            counts: (self.active, self.nrhs),
            is_shared: kept.is_shared(),
            perm: &self.perm,
            b,
            guess,
            limits: &self.limits,
        };
        call.launch(&self.executor, &kept.solve, x, (&mut self.queue, &mut self.outcomes))
    }

    /// Solves every system `A' x = b` with the factors of the last [`GpuLu::factor`], refinement
    /// included. The first solve after a factorisation launches one more kernel, which makes the
    /// factors of the transposed matrices of those that are kept; the first of all allocates memory
    /// for them. Arguments as for [`GpuLu::solve`]; [`GpuLu::confirm`] needs a confirmer and values
    /// of the transposed matrices.
    ///
    /// # Errors
    /// Those of [`GpuLu::solve_again`]; [`GpuSolveError::Unsupported`] where the transposed
    /// matrices need too much shared memory; [`GpuSolveError::Gpu`] when memory or compiler fail.
    pub fn solve_transposed_again(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.check_vectors(b, x)?;
        if factors(&self.kept, self.active, self.nitems)?.is_none() {
            return Ok(());
        }
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let is_shared = kept.is_shared();
        let solve = kept.transposed(&self.executor, &self.schedule.pattern, self.nitems)?;
        let call = KeptCall {
            counts: (self.active, self.nrhs),
            is_shared,
            perm: &self.perm,
            b,
            guess,
            limits: &self.limits,
        };
        call.launch(&self.executor, solve, x, (&mut self.queue, &mut self.outcomes))
    }

    /// From now on only the first `items` items take part in factorisations and solves. The arrays
    /// keep their lengths; their elements for the other items are not touched, outcomes included.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when `items` exceeds the plan's.
    pub fn set_active(&mut self, items: usize) -> Result<(), GpuSolveError> {
        check_active(items, self.nitems)?;
        self.active = items;
        Ok(())
    }

    /// Checks the lengths of right-hand sides and solutions, and that they do not overlap.
    pub(super) fn check_vectors(
        &self,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let rows = self.nrows * self.nitems * self.nrhs;
        check_len("b", rows, b.len())?;
        check_len("x", rows, x.len())?;
        check_apart(b, x)
    }

    /// The launch of a solve or a factorisation.
    fn config(&self) -> LaunchConfig {
        LaunchConfig {
            shared_bytes: self.schedule.grid.shared_bytes,
            ..LaunchConfig::linear(self.schedule.grid.blocks, self.schedule.grid.threads)
        }
    }

    /// The outcomes of the last solve in device memory, for kernels of the caller.
    pub fn device_outcomes(&self) -> DeviceOutcomes<'_, E> {
        self.outcomes.on_device()
    }

    /// Confirms which systems of the last solve converged, with the rounding errors of their
    /// residuals bounded: see [`Confirmer`]. `values`, `b` and `x` are those of that solve.
    /// Allocates nothing, launches one kernel behind the solve and returns before it is done.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, or the confirmer is for another number
    /// of systems; [`GpuSolveError::Gpu`] when the launch is refused. Nothing has changed then.
    pub fn confirm(
        &mut self,
        confirmer: &Confirmer<E, T>,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let systems = self.active * self.nrhs;
        confirmer.confirm((&mut self.outcomes, systems), values, b, x)
    }

    /// How each system of the last solve ended, item by item. Waits for the solve.
    ///
    /// # Errors
    /// [`GpuSolveError::Gpu`] with the device's error.
    pub fn outcomes(&self) -> Result<Vec<Outcome>, GpuSolveError> {
        Ok(self.outcomes.download(&self.executor)?)
    }

    /// The plan's choices and its memory.
    pub fn explain(&self) -> PlanReport {
        let bytes = |len: usize, each: usize| (len * each) as u64;
        let schedule = &self.schedule;
        let launch = LaunchReport {
            scheme: Scheme::Lu,
            kernel: self.key.expression.clone(),
            systems: self.nitems * self.nrhs,
            patterns: 1,
            nrows: self.nrows,
            nnz: self.nnz,
            threads_per_system: schedule.grid.threads / schedule.grid.systems.max(1),
            systems_per_block: schedule.grid.systems,
            threads_per_block: schedule.grid.threads,
            blocks: schedule.grid.blocks,
            shared_bytes: schedule.grid.shared_bytes,
            shape: LaunchShape::Lu(LuShape {
                order: schedule.order,
                factor_entries: schedule.pattern.nnz(),
                depth: schedule.depth,
                steps: schedule.steps,
                chunks: schedule.groups * CHUNKS,
                chunk_lanes: schedule.sharing.lanes(),
                pairs: schedule.pairs,
                padding: schedule.padding,
                systems_per_multiprocessor: schedule.grid.resident * schedule.grid.systems,
                cycles: schedule.cycles,
            }),
        };
        PlanReport {
            scheme: Scheme::Lu,
            launches: vec![launch],
            pattern_bytes: bytes(self.words.len() + self.starts.len(), 4)
                + bytes(self.targets.len() + self.perm.len(), 2),
            workspace_bytes: bytes(
                self.nitems * self.nrhs,
                Outcomes::<E>::BYTES_A_SYSTEM + self.limits.bytes_a_system(),
            ) + 8
                + self.deferred.as_ref().map_or(0, Deferred::bytes),
            kept_bytes: self.kept.as_ref().map_or(0, LuKept::bytes),
        }
    }
}

/// A solve with kept values.
struct KeptCall<'a, E: Executor, T: Value> {
    /// Items and right-hand sides of each.
    counts: (usize, usize),
    is_shared: bool,
    perm: &'a E::Buffer<u16>,
    b: &'a E::Buffer<T>,
    guess: Guess,
    limits: &'a Limits<E>,
}

impl<E: Executor, T: Value> KeptCall<'_, E, T> {
    /// Launches `lu_kept`; `b` and `x` have the lengths of the plan and do not overlap.
    #[expect(unsafe_code, reason = "a launch")]
    fn launch(
        &self,
        executor: &E,
        solve: &KeptSolve<E, T>,
        x: &mut E::Buffer<T>,
        (queue, outcomes): (&mut E::Buffer<u32>, &mut Outcomes<E>),
    ) -> Result<(), GpuSolveError> {
        let mut args = Args::new();
        solve.pass_to_solve(&mut args, self.counts, self.is_shared);
        let flags = if self.guess == Guess::InX { FROM_GUESS } else { 0 };
        args.input(self.perm).input(self.b).output(x).scalar(flags);
        self.limits.pass(&mut args);
        args.output(queue);
        outcomes.pass(&mut args);
        let config = solve.config(self.counts.0 * self.counts.1, executor.info());
        // SAFETY: the arguments are those of `lu_kept`; the lengths of b and x are the plan's,
        // those of the plan's own arrays are what they were made as; x does not overlap b, and
        // everything else belongs to the plan; the queue holds zeros before and after each launch.
        unsafe { executor.launch(&solve.key, config, &mut args) }?;
        Ok(())
    }
}

/// The kept factors; `None` if no item takes part.
///
/// # Errors
/// [`GpuSolveError::Argument`] when some participating item has no factors.
pub(super) fn factors<E: Executor, T: Value>(
    kept: &Option<LuKept<E, T>>,
    active: usize,
    nitems: usize,
) -> Result<Option<&LuKept<E, T>>, GpuSolveError> {
    let items = kept.as_ref().map_or(0, |kept| kept.items(nitems));
    if items < active {
        return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
            name: "factors",
            expected: "a call of factor before, for all items that take part",
            found: format!("factors of {items} items, where {active} take part"),
        }));
    }
    Ok(kept.as_ref().filter(|_| active > 0))
}

fn check_supported(options: &SolveOptions) -> Result<(), GpuSolveError> {
    match options.method {
        Method::Auto | Method::Lu => check_common(options),
        Method::Cg | Method::BiCgStab | Method::PivotingLu | Method::Banded => {
            Err(GpuSolveError::Unsupported { what: "a solver other than lu", instead: "take lu" })
        }
    }
}

impl<E, T> GpuSolver<E, T> for GpuLu<E, T>
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
        shares_values(values.len(), self.nnz, self.nitems)?;
        Self::solve_again(self, b, guess, x)
    }

    fn solve_transposed_again(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        Self::solve_transposed_again(self, b, guess, x)
    }

    fn set_active(&mut self, items: usize) -> Result<(), GpuSolveError> {
        Self::set_active(self, items)
    }

    fn substitutes(&self) -> bool {
        true
    }

    fn substitute(&mut self, b: &E::Buffer<T>, x: &mut E::Buffer<T>) -> Result<(), GpuSolveError> {
        Self::substitute(self, b, x)
    }

    fn verify(&mut self, solves: &[DeferredSolve<'_, E::Buffer<T>>]) -> Result<(), GpuSolveError> {
        Self::verify(self, solves)
    }

    fn verified_on_device(&self) -> Option<DeviceOutcomes<'_, E>> {
        Self::verified_on_device(self)
    }

    fn confirm(
        &mut self,
        confirmer: &Confirmer<E, T>,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        Self::confirm(self, confirmer, values, b, x)
    }

    fn outcomes(&self) -> Result<Vec<Outcome>, GpuSolveError> {
        Self::outcomes(self)
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
        Self::explain(self)
    }
}
