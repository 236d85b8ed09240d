//! [`FusedSolver`]: whole solves by CG or BiCGStab, one launch for all systems of a kind.

mod banks;
mod bins;
mod explain;
pub(crate) mod kernels;
mod pattern;
mod shape;

use sparsebatch_cuda::{Args, DeviceInfo, Executor, GpuError, LaunchConfig, Value};
use sparsebatch_formats::{Batch, CsrPatternRef, Pattern, RaggedCsr};
use sparsebatch_solve_core::{Outcome, Preconditioner, Scheme, SolveOptions, by_pattern};

pub use explain::FusedShape;
pub use shape::{GpuTuning, ValuePlace, most_rows};

use crate::GpuSolveError;
use crate::common::Confirmer;
use crate::common::outcomes::{DeviceOutcomes, Limits, Outcomes};
use crate::common::task::{
    ArraySizes, Guess, Layouts, Strides, UniformPlaces, check_active, check_apart, check_supported,
    count_systems, ragged_sizes,
};
use crate::common::{GpuSolver, PlanReport};
use bins::{Addresses, Asked, Bin, Class, Common, bins, prepare};
use shape::{Load, choose};

/// Bits of the kernel's `flags`.
const FROM_GUESS: u32 = 1;
const LENIENT: u32 = 2;

/// CG or BiCGStab for every system of a batch. A group of threads solves each system whole; one
/// launch covers all systems of about one size, and several launches run at once.
///
/// Statuses, restarts and the true residual are those of the CPU solvers, except for one rule:
/// `Converged` is reported after `b - A x` was recomputed in the same launch, without a bound on
/// the rounding errors of that residual. In singular systems x may grow to 1e16, and the computed
/// residual may be 0 by chance. [`FusedSolver::confirm`] checks this in a launch of its own, and
/// `BatchSolver` always does. A system's result is a function of that system and of the plan's
/// kernel, bit for bit: not of its neighbours, its position in the batch, or the order of threads.
/// [`InnerPrecision`](sparsebatch_solve_core::InnerPrecision) says what differs with iterations in
/// f32.
///
/// A system of up to 4,096 rows is solved by one block or part of a block. From compute capability
/// 9.0 on, a system of up to 32,768 rows is solved by a cluster of 2, 4 or 8 blocks, which read
/// operands in each other's shared memory. Larger systems are refused;
/// [`ComposedSolver`](crate::ComposedSolver) takes them.
///
/// # Source
/// Hestenes and Stiefel 1952 (doi 10.6028/jres.049.044), van der Vorst 1992 (doi 10.1137/0913035);
/// batched solvers in one kernel: Aggarwal, Kashi, Nayak, Anzt 2021
/// (doi 10.1109/ScalA54577.2021.00010).
pub struct FusedSolver<E: Executor, T: Value> {
    executor: E,
    scheme: Scheme,
    bins: Vec<Bin<E>>,
    /// Executors of all launches but the first.
    branches: Vec<E>,
    sizes: ArraySizes,
    /// Number of participating items (`active <= nitems`).
    active: usize,
    steps: Strides,
    lenient: bool,
    limits: Limits<E>,
    outcomes: Outcomes<E>,
    values: std::marker::PhantomData<T>,
}

impl<E: Executor + Clone, T: Value> FusedSolver<E, T> {
    /// Analyses a pattern for `nitems` systems of `options.nrhs` right-hand sides each, allocates
    /// all device memory and compiles the kernel.
    /// [`Method::Auto`](sparsebatch_solve_core::Method::Auto) is CG.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a matrix that is not square and for
    /// options out of range; [`GpuSolveError::Unsupported`] for systems or options that the GPU
    /// does not support; [`GpuSolveError::Gpu`] when an allocation or the compiler fails.
    pub fn new(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        Self::with_tuning(executor, pattern, nitems, options, &GpuTuning::default())
    }

    /// As [`FusedSolver::new`], for the patterns of a batch. Vectors are item-major; values are
    /// laid out as in the batch.
    ///
    /// # Errors
    /// Those of [`FusedSolver::new`].
    pub fn for_batch(
        executor: &E,
        batch: &Batch<T>,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let tuning = GpuTuning::default();
        match batch {
            Batch::Ragged(ragged) => Self::ragged(executor, ragged, options, &tuning),
            Batch::Uniform(uniform) => {
                let layouts = Layouts::of(uniform);
                let (pattern, nitems) = (uniform.pattern().view(), uniform.nitems());
                Self::with_layouts(executor, pattern, nitems, layouts, options, &tuning)
            }
        }
    }

    /// As [`FusedSolver::new`], with the choices in `tuning` fixed.
    ///
    /// # Errors
    /// Those of [`FusedSolver::new`]; [`GpuSolveError::Argument`] for choices that do not fit the
    /// pattern.
    pub fn with_tuning(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
        tuning: &GpuTuning,
    ) -> Result<Self, GpuSolveError> {
        Self::with_layouts(executor, pattern, nitems, Layouts::default(), options, tuning)
    }

    /// As [`FusedSolver::with_tuning`], for arrays of the given `layouts`.
    ///
    /// # Errors
    /// Those of [`FusedSolver::with_tuning`].
    pub fn with_layouts(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        layouts: Layouts,
        options: &SolveOptions,
        tuning: &GpuTuning,
    ) -> Result<Self, GpuSolveError> {
        let places = UniformPlaces::new(pattern, nitems, options.nrhs, layouts)?;
        let (value, row) = (|item| places.value(item), |item| places.row(item));
        let addresses = if places.is_item_major() {
            Addresses::Uniform
        } else {
            Addresses::Scattered { value: &value, row: &row }
        };
        let (sizes, steps) = (places.sizes, places.steps);
        let make_classes = || vec![Class { pattern, items: (0..nitems as u32).collect() }];
        Self::plan(executor, sizes, steps, make_classes, addresses, options, tuning)
    }

    /// As [`FusedSolver::with_tuning`], for the patterns of a ragged batch, whose arrays are
    /// concatenated.
    ///
    /// # Errors
    /// Those of [`FusedSolver::with_tuning`].
    pub fn ragged(
        executor: &E,
        batch: &RaggedCsr<T>,
        options: &SolveOptions,
        tuning: &GpuTuning,
    ) -> Result<Self, GpuSolveError> {
        let (nitems, sizes) = (batch.nitems(), ragged_sizes(batch, options.nrhs)?);
        let value_of = |item: u32| batch.nnz_offsets()[item as usize] as u64;
        let row_of = |item: u32| (batch.row_offsets()[item as usize] * options.nrhs) as u64;
        let addresses = Addresses::Scattered { value: &value_of, row: &row_of };
        let steps = Strides { item: 1, value: 1, row: 1 };
        let make_classes = || {
            let class =
                |items: Vec<u32>| Class { pattern: batch.item(items[0] as usize).pattern(), items };
            by_pattern(nitems, |item| batch.item(item).pattern()).into_iter().map(class).collect()
        };
        Self::plan(executor, sizes, steps, make_classes, addresses, options, tuning)
    }

    /// Whether [`FusedSolver::with_tuning`] takes systems of a pattern on such a device.
    ///
    /// # Errors
    /// [`GpuSolveError::Unsupported`] where it does not, with the reason.
    pub(crate) fn takes(
        info: &DeviceInfo,
        pattern: CsrPatternRef<'_>,
        options: &SolveOptions,
        tuning: &GpuTuning,
    ) -> Result<(), GpuSolveError> {
        let (method, jacobi) = check_supported(options)?;
        let how = (method, jacobi, options.inner_precision.may_mix::<T>());
        let load = Load::of(1, info, tuning);
        choose(pattern, how, size_of::<T>(), load, info, tuning).map(drop)
    }

    fn plan<'a>(
        executor: &E,
        sizes: ArraySizes,
        steps: Strides,
        make_classes: impl FnOnce() -> Vec<Class<'a>>,
        addresses: Addresses<'_>,
        options: &SolveOptions,
        tuning: &GpuTuning,
    ) -> Result<Self, GpuSolveError> {
        let (method, jacobi) = check_supported(options)?;
        let mixed = options.inner_precision.may_mix::<T>();
        let systems = count_systems(sizes.nitems, sizes.nrhs)?;
        let criteria = options.criteria::<T>(systems)?;
        let load = Load::of(systems, executor.info(), tuning);
        let asked = Asked { guesses: false, floor: criteria.floor.is_some() };
        let nrhs = sizes.nrhs;
        let scheme = options.scheme::<T>();
        let common = Common { scheme, method, jacobi, mixed, asked, nrhs, addresses, load, tuning };
        let bins = bins::<E, T>(executor, make_classes(), &common)?;
        Ok(Self {
            scheme,
            branches: executor.branches(bins.len().saturating_sub(1))?,
            bins,
            active: sizes.nitems,
            sizes,
            steps,
            lenient: options.preconditioner == Preconditioner::Auto,
            limits: Limits::new(executor, criteria)?,
            outcomes: Outcomes::new(executor, systems)?,
            executor: executor.clone(),
            values: std::marker::PhantomData,
        })
    }

    fn asked(&self, guess: Guess) -> Asked {
        Asked { guesses: guess == Guess::InX, floor: self.limits.has_floor() }
    }

    /// Compiles the kernels for solves from `guess`. Those for [`Guess::Zero`] are ready already.
    /// Without this call the first solve from another guess compiles them, which is not possible on
    /// a stream that is being recorded.
    ///
    /// # Errors
    /// [`GpuSolveError::Gpu`] when the compiler fails.
    pub fn prepare(&self, guess: Guess) -> Result<(), GpuSolveError> {
        let keys = self.bins.iter().flat_map(Bin::keys);
        Ok(prepare(&self.executor, keys, self.asked(guess))?)
    }

    /// Solves every system. Allocates nothing, launches one kernel for each bin (two with
    /// iterations in f32) and returns before the solves are done. The first solve from guesses
    /// compiles kernels, unless they are [prepared](FusedSolver::prepare).
    ///
    /// `values` holds the values of the batch in its layout, entries in CSR order; for a uniform
    /// batch it may hold the values of one item, shared by all. `b` and `x` have the plan's layout,
    /// one right-hand side after the other within an item. A system that does not converge is no
    /// error: see [`FusedSolver::outcomes`].
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, when `x`
    /// overlaps another array, [`GpuSolveError::Gpu`] when a launch is refused; `x` is untouched in
    /// the first two cases.
    pub fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let shared = self.sizes.check(values, b, x)?;
        check_apart(values, x)?;
        check_apart(b, x)?;
        if self.active == 0 {
            return Ok(());
        }
        // `values` may be those of one item, shared by all.
        let steps = match shared {
            true => Strides { item: 0, value: 1, ..self.steps },
            false => self.steps,
        };
        self.executor.fork(&self.branches)?;
        // Launches for systems that iterations in f32 left come last: no bin waits behind
        // another's.
        let launched = [false, true].into_iter().try_for_each(|of_rest| {
            (0..self.bins.len()).try_for_each(|bin| {
                if of_rest && self.bins[bin].rest.is_none() {
                    return Ok(());
                }
                self.launch(bin, of_rest, steps, values, b, guess, x)
            })
        });
        let joined = self.executor.join(&self.branches);
        let failed = launched.is_err();
        let mut ended = launched.and(joined);
        if failed {
            // The refused launch may be the one that solves the systems left and resets their
            // count.
            let rests = self.bins.iter_mut().filter_map(|bin| bin.rest.as_mut());
            let cleared = rests.map(|rest| self.executor.fill_zero(&mut rest.left));
            // Clears the counts of all bins; the first error is returned.
            let cleared = cleared.fold(Ok(()), Result::and);
            ended = ended.and(cleared);
        }
        Ok(ended?)
    }

    /// Launches the solves of a bin, or (`of_rest`) of the systems that iterations in f32 left in
    /// it.
    #[expect(unsafe_code, reason = "the one launch")]
    #[expect(clippy::too_many_arguments, reason = "those of a solve, and which launch it is")]
    fn launch(
        &mut self,
        number: usize,
        of_rest: bool,
        steps: Strides,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        let asked = self.asked(guess);
        let flags = if guess == Guess::InX { FROM_GUESS } else { 0 }
            | if self.lenient { LENIENT } else { 0 };
        let executor = if number == 0 { &self.executor } else { &self.branches[number - 1] };
        let bin = &mut self.bins[number];
        let mut args = Args::new();
        // Only in a uniform batch may fewer items than all take part; its one bin has them in
        // order.
        let systems = bin.systems.min((self.active * self.sizes.nrhs) as u32);
        args.scalar(systems)
            .scalar(bin.nrows)
            .scalar(bin.entries)
            .scalar(self.sizes.nrhs as u32)
            .input(&bin.starts)
            .input(&bin.firsts)
            .input(&bin.columns)
            .input(&bin.order)
            .scalar(bin.stored)
            .input(&bin.items)
            .input(&bin.patterns)
            .input(values)
            .scalar(steps.item)
            .scalar(steps.value)
            .scalar(steps.row)
            .input(b)
            .output(x)
            .scalar(flags);
        self.limits.pass(&mut args);
        args.output(&mut bin.queue);
        self.outcomes.pass(&mut args);
        let (keys, grid) = match &mut bin.rest {
            None => {
                args.raw(0);
                (&bin.keys, bin.grid)
            }
            Some(rest) => {
                args.output(&mut rest.left);
                if of_rest { (&rest.keys, rest.grid) } else { (&bin.keys, bin.grid) }
            }
        };
        let config = LaunchConfig {
            shared_bytes: grid.shared_bytes,
            overlaps: of_rest,
            cluster: bin.cluster,
            ..LaunchConfig::linear(grid.blocks, grid.threads)
        };
        // SAFETY: the arguments are those of `cg` and `bicgstab`. `solve` checked the lengths of
        // arrays; `plan` made its own arrays from the same numbers, with columns below the number
        // of rows and each item in one bin. `x` overlaps neither `values` nor `b`; everything else
        // belongs to the plan. The queue holds zeros before and after each launch, and all launches
        // of one solve run after those of the one before. `left` has room for all systems behind a
        // count, which is 0 before and after the launches of a bin; the launch for the rest waits
        // for the one ahead before it touches anything.
        unsafe { executor.launch(keys.of(asked), config, &mut args) }
    }

    /// From now on only the first `items` items take part in solves. The arrays keep their lengths;
    /// their elements for the other items are not touched, outcomes included.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when `items` exceeds the plan's; [`GpuSolveError::Unsupported`]
    /// for ragged batches.
    pub fn set_active(&mut self, items: usize) -> Result<(), GpuSolveError> {
        if self.sizes.shared.is_none() {
            return Err(GpuSolveError::Unsupported {
                what: "fewer items than all of a ragged batch",
                instead: "make a plan for the items that take part",
            });
        }
        check_active(items, self.sizes.nitems)?;
        self.active = items;
        Ok(())
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
        let systems = self.active * self.sizes.nrhs;
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
        let systems = self.sizes.nitems * self.sizes.nrhs;
        let each = Outcomes::<E>::BYTES_A_SYSTEM + self.limits.bytes_a_system();
        PlanReport {
            scheme: self.scheme,
            launches: self.bins.iter().map(|bin| bin.explain.clone()).collect(),
            pattern_bytes: self.bins.iter().map(Bin::pattern_bytes).sum(),
            workspace_bytes: (systems * each) as u64
                + self.bins.iter().map(Bin::workspace_bytes).sum::<u64>(),
            kept_bytes: 0,
        }
    }
}

impl<E, T> GpuSolver<E, T> for FusedSolver<E, T>
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

    fn prepare(&self, guess: Guess) -> Result<(), GpuSolveError> {
        Self::prepare(self, guess)
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
