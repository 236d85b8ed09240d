//! The plan: checked options, arrays on the device, launches, outcomes.

use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::{Batch, CsrPatternRef, Pattern};
use sparsebatch_solve_core::{ArgumentError, Outcome, Scheme, SolveOptions, check_len};

use super::explain::FactoredShape;
use super::layout::RowLists;
use super::shape::{FactoredPlacement, FactoredTuning};
use super::streams::SliceLanes;
use super::tables::{KeptFactors, PatternTables};
use crate::GpuSolveError;
use crate::common::Confirmer;
use crate::common::GpuSolver;
use crate::common::outcomes::{DeviceOutcomes, Limits, Outcomes};
use crate::common::task::{
    Guess, check_active, check_apart, check_common, check_square, count_systems, item_major,
    shares_values,
};
use crate::common::{LaunchReport, LaunchShape, PlanReport};

/// Bits of the kernel's `flags`.
pub(super) const FROM_GUESS: u32 = 1;
pub(super) const ROOT: u32 = 2;
pub(super) const KEPT: u32 = 4;
pub(super) const KEEP: u32 = 8;
const ONE_KEPT: u32 = 16;

/// CG or BiCGStab with block-Jacobi, ILU(0) or IC(0), or the sparse LU, for every system of a
/// uniform batch. A group of threads factorises and solves each system whole; one launch covers all
/// systems.
///
/// The levels of the factorisation and of the triangular solves are computed once per pattern, on
/// the CPU. Statuses, restarts and the true residual are those of the CPU solvers:
/// `SingularPreconditioner` where a pivot is zero (with IC(0): not positive), `Converged` only
/// after `b - A x` was recomputed in the same launch. A system's result is a function of that
/// system and of the plan's kernel, bit for bit: not of its neighbours, its position in the batch,
/// or the order of threads.
///
/// With [`PrecondPrecision::Single`](sparsebatch_solve_core::PrecondPrecision::Single) the factors
/// of f64 systems are stored in f32, in half of the memory. They are computed in f64, from the
/// matrix with its rows and columns scaled by powers of two, in memory that later holds vectors and
/// values.
///
/// By default each solve computes the factors of each system and does not keep them. After
/// [`FactoredSolver::factorise`] solves use the factors that it kept: a lagged preconditioner for
/// values that have changed since. The residual is still the true one.
///
/// With [`Scheme::Lu`] the factors are complete, in minimum-degree order whatever the options say,
/// without pivoting, and in the precision of the values; there is no scaling, as on the CPU. They
/// are in device memory: the LU of what neither [`GpuLu`](crate::GpuLu) nor
/// [`FrontalLu`](crate::FrontalLu) takes; a factorisation may have up to 33,554,432 products. An
/// iteration is a solve with the factors. While the true residual does not pass, the solution is
/// refined with the same factors, up to [`SolveOptions::max_restarts`] times. A system with a zero
/// pivot is `Singular` (`BatchSolver` permutes its rows and tries again). Statuses and counts are
/// those of `GpuLu` and the CPU. The order of elimination is that of the CPU; sums are added in
/// another order.
///
/// As much as fits is in the shared memory of a block, the rest in a workspace on the device
/// ([`FactoredPlace`](super::FactoredPlace)), so systems may have any size. ILU(0) and IC(0), too,
/// may have up to 33,554,432 products per factorisation. With several right-hand sides the factors
/// are computed once for each, unless they are kept.
///
/// `Converged` rests on the residual as the kernels compute it, without a bound of its rounding
/// errors; [`FactoredSolver::confirm`] includes that bound.
///
/// # Source
/// Y. Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., 2003, algorithms 10.4 (ILU(0))
/// and 9.1 (CG); Meijerink and van der Vorst 1977 (doi 10.1090/S0025-5718-1977-0438681-4, IC(0));
/// Anzt et al. 2019 (doi 10.1016/j.parco.2017.12.006, block-Jacobi by Gauss-Jordan with row
/// pivoting; doi 10.1002/cpe.4460, its blocks in less precision); van der Vorst 1992
/// (doi 10.1137/0913035, BiCGStab); levels of triangular solves: Anderson and Saad 1989
/// (doi 10.1142/S0129053389000056).
pub struct FactoredSolver<E: Executor, T: Value> {
    executor: E,
    scheme: Scheme,
    nrows: usize,
    nnz: usize,
    nfactors: usize,
    /// Values of an item's kept factors.
    kept_len: usize,
    nitems: usize,
    /// Number of participating items (`active <= nitems`).
    active: usize,
    nrhs: usize,
    root: bool,
    key: KernelKey,
    shape: FactoredPlacement,
    words: E::Buffer<u32>,
    starts: E::Buffer<u32>,
    index: E::Buffer<u32>,
    columns: FactoredColumns<E>,
    sources: E::Buffer<u32>,
    workspace: E::Buffer<T>,
    kept: Option<FactoredKept<E, T>>,
    limits: Limits<E>,
    queue: E::Buffer<u32>,
    outcomes: Outcomes<E>,
}

/// Column indices in 16 or 32 bits.
enum FactoredColumns<E: Executor> {
    Narrow(E::Buffer<u16>),
    Wide(E::Buffer<u32>),
}

impl<E: Executor> FactoredColumns<E> {
    fn upload(executor: &E, rows: &RowLists, wide: bool) -> Result<Self, GpuError> {
        Ok(match wide {
            true => Self::Wide(executor.upload(&rows.columns)?),
            false => Self::Narrow(executor.upload(&rows.narrow_columns())?),
        })
    }
}

/// Factors that are kept between solves.
struct FactoredKept<E: Executor, T: Value> {
    /// The factors of each item, or of one item for all.
    factors: KeptFactors<E, T>,
    /// 1 for items that could not be factorised.
    refused: E::Buffer<u8>,
    /// Number of items that the factors serve.
    made: usize,
}

impl<E: Executor + Clone, T: Value> FactoredSolver<E, T> {
    /// Analyses a pattern for `nitems` systems of `options.nrhs` right-hand sides each, allocates
    /// all device memory and compiles the kernel.
    /// [`Method::Auto`](sparsebatch_solve_core::Method::Auto) is CG.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a matrix that is not square and for
    /// options out of range; [`GpuSolveError::Symbolic`] for a block size out of range;
    /// [`GpuSolveError::Unsupported`] for options that the GPU does not support, for too many
    /// products, and for preconditioners without factors; [`GpuSolveError::Gpu`] when an allocation
    /// or the compiler fails.
    pub fn new(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        Self::with_tuning(executor, pattern, nitems, options, &FactoredTuning::default())
    }

    /// As [`FactoredSolver::new`], for the pattern of a batch.
    ///
    /// # Errors
    /// Those of [`FactoredSolver::new`]; [`GpuSolveError::Unsupported`] for ragged batches and
    /// interleaved values.
    pub fn for_batch(
        executor: &E,
        batch: &Batch<T>,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let uniform = item_major(batch)?;
        Self::new(executor, uniform.pattern().view(), uniform.nitems(), options)
    }

    /// As [`FactoredSolver::new`], with the choices in `tuning` fixed.
    ///
    /// # Errors
    /// Those of [`FactoredSolver::new`]; [`GpuSolveError::Argument`] for choices that do not fit the
    /// pattern.
    pub fn with_tuning(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
        tuning: &FactoredTuning,
    ) -> Result<Self, GpuSolveError> {
        check_square(0, pattern)?;
        check_common(options)?;
        let scheme = options.scheme::<T>();
        let systems = count_systems(nitems, options.nrhs)?;
        let criteria = options.criteria::<T>(systems)?;
        let of = (scheme, SliceLanes::All);
        let tables = PatternTables::new::<T>(pattern, of, systems, executor.info(), tuning)?;
        let key = tables.shape.key::<T>("factored", scheme);
        executor.prepare(std::slice::from_ref(&key))?;
        let limits = Limits::new(executor, criteria)?;
        let each = Outcomes::<E>::BYTES_A_SYSTEM + limits.bytes_a_system();
        let free = executor.free_memory()?;
        let free = tuning.max_bytes.map_or(free, |most| most.min(free));
        let mut shape = tables.shape;
        shape.fit((tables.bytes() + systems * each) as u64, size_of::<T>(), free)?;
        let groups = u64::from(shape.blocks * shape.groups);
        let PatternTables { words, rows, .. } = &tables;
        Ok(Self {
            scheme,
            nrows: tables.nrows,
            nnz: tables.nnz,
            nfactors: tables.nfactors,
            kept_len: tables.kept_len(),
            nitems,
            active: nitems,
            nrhs: options.nrhs,
            root: tables.root,
            key,
            words: executor.upload(&words.words)?,
            starts: executor.upload(&words.starts)?,
            index: executor.upload(&rows.index)?,
            columns: FactoredColumns::upload(executor, rows, shape.place.is_wide())?,
            sources: executor.upload(&tables.sources)?,
            workspace: executor.alloc((groups * shape.workspace) as usize)?,
            kept: None,
            shape,
            limits,
            queue: executor.alloc_zeroed(2)?,
            outcomes: Outcomes::new(executor, systems)?,
            executor: executor.clone(),
        })
    }

    /// Computes the factors of every item from `values`, as [`FactoredSolver::solve`] takes them,
    /// and keeps them on the device: from now on [`FactoredSolver::solve`] uses them, whatever its
    /// values ([`GpuSolver::solve`] computes its own, [`GpuSolver::solve_again`] uses these). The first
    /// call allocates the memory. Launches one kernel and returns before it is done.
    ///
    /// An item that cannot be factorised is no error: its systems end with
    /// `SingularPreconditioner`, by LU with `Singular`.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when the array does not fit, [`GpuSolveError::Gpu`] when memory is
    /// short or the launch is refused; the factors kept before are lost then.
    pub fn factorise(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        let shared = shares_values(values.len(), self.nnz, self.nitems)?;
        let items = if shared { self.nitems.min(1) } else { self.nitems };
        let mut kept = match self.kept.take().filter(|kept| kept.refused.len() == items) {
            Some(kept) => kept,
            None => FactoredKept {
                factors: KeptFactors::alloc(
                    &self.executor,
                    items * self.kept_len,
                    self.shape.is_mixed,
                )?,
                refused: self.executor.alloc(items)?,
                made: 0,
            },
        };
        kept.made = if shared { self.nitems } else { self.active };
        // The factors of one item shared by all are computed whatever `active` is.
        if kept.made > 0 {
            self.launch(LaunchTask { values, shared, keep: Some(&kept), vectors: None })?;
        }
        self.kept = Some(kept);
        Ok(())
    }

    /// Drops the kept factors: solves compute their own again.
    pub fn forget_factors(&mut self) {
        self.kept = None;
    }

    /// Solves every system. Allocates nothing, launches one kernel and returns before it is done.
    ///
    /// `values` holds the entries of item 0 in CSR order, of item 1, ...; or those of one item,
    /// shared by all. `b` and `x` are item-major, one right-hand side after the other within an
    /// item. A system that does not converge is no error: see [`FactoredSolver::outcomes`].
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, when `x`
    /// overlaps another array or factors are kept for too few items, [`GpuSolveError::Gpu`] when
    /// the launch is refused; `x` is untouched then.
    pub fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let rows = self.nrows * self.nitems * self.nrhs;
        let shared = shares_values(values.len(), self.nnz, self.nitems)?;
        check_len("b", rows, b.len())?;
        check_len("x", rows, x.len())?;
        check_apart(values, x)?;
        check_apart(b, x)?;
        if let Some(kept) = self.kept.as_ref().filter(|kept| kept.made < self.active) {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "factors",
                expected: "a call of factorise before, for all items that take part",
                found: format!("factors of {} items, where {} take part", kept.made, self.active),
            }));
        }
        if self.active == 0 {
            return Ok(());
        }
        self.launch(LaunchTask { values, shared, keep: None, vectors: Some((b, guess, x)) })
    }

    #[expect(unsafe_code, reason = "the one launch")]
    fn launch(&mut self, task: LaunchTask<'_, E, T>) -> Result<(), GpuSolveError> {
        let LaunchTask { values, shared, keep, vectors } = task;
        let mut flags = if self.root { ROOT } else { 0 };
        let (systems, nrhs) = match keep {
            Some(kept) => (kept.refused.len().min(kept.made), 1),
            None => (self.active * self.nrhs, self.nrhs),
        };
        let kept = keep.or(self.kept.as_ref());
        flags |= match (keep, kept) {
            (Some(_), _) => KEEP,
            (None, Some(kept)) if kept.refused.len() == self.nitems => KEPT,
            (None, Some(_)) => KEPT | ONE_KEPT,
            (None, None) => 0,
        };
        let (b, x) = match vectors {
            Some((b, guess, x)) => {
                flags |= if guess == Guess::InX { FROM_GUESS } else { 0 };
                (b.raw(), x.raw())
            }
            None => (0, 0),
        };
        let mut args = Args::new();
        args.scalar(systems as u32)
            .scalar(self.nrows as u32)
            .scalar(nrhs as u32)
            .scalar(self.nnz as u32)
            .scalar(self.nfactors as u32)
            .input(&self.words)
            .input(&self.starts)
            .input(&self.index);
        match &self.columns {
            FactoredColumns::Narrow(columns) => args.input(columns),
            FactoredColumns::Wide(columns) => args.input(columns),
        };
        args.input(&self.sources)
            .output(&mut self.workspace)
            .raw(kept.map_or(0, |kept| kept.factors.raw()))
            .raw(kept.map_or(0, |kept| kept.refused.raw()))
            .input(values)
            .scalar(if shared { 0 } else { self.nnz as u64 })
            .raw(b)
            .raw(x)
            .scalar(flags);
        self.limits.pass(&mut args);
        args.output(&mut self.queue);
        self.outcomes.pass(&mut args);
        let config = LaunchConfig {
            shared_bytes: self.shape.shared_bytes,
            ..LaunchConfig::linear(self.shape.blocks, self.shape.threads * self.shape.groups)
        };
        // SAFETY: the arguments are those of `factored`. The callers checked the lengths of values,
        // b and x, and that x overlaps neither of the others; all three are borrowed as long as
        // `task` is. Kept factors have `nfactors + 1` values (in f32: and `nrows` more) and a byte
        // for as many items as the flags say; the kernel writes them only for KEEP, when no other
        // launch is given them. `with_tuning` made the plan's own arrays of one pattern: positions
        // below the numbers of factors and rows, columns below the rows, entries below those of A,
        // a workspace for each group of the launch. The queue holds zeros before and after each
        // launch.
        unsafe { self.executor.launch(&self.key, config, &mut args) }?;
        Ok(())
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
        let (shape, value) = (&self.shape, size_of::<T>());
        let columns = match &self.columns {
            FactoredColumns::Narrow(columns) => bytes(columns.len(), 2),
            FactoredColumns::Wide(columns) => bytes(columns.len(), 4),
        };
        let numbers = self.words.len() + self.starts.len() + self.index.len() + self.sources.len();
        let launch = LaunchReport {
            scheme: self.scheme,
            kernel: self.key.expression.clone(),
            systems: self.nitems * self.nrhs,
            patterns: 1,
            nrows: self.nrows,
            nnz: self.nnz,
            threads_per_system: shape.threads,
            systems_per_block: shape.groups,
            threads_per_block: shape.threads * shape.groups,
            blocks: shape.blocks,
            shared_bytes: shape.shared_bytes,
            shape: LaunchShape::Factored(FactoredShape::new::<T>(
                self.scheme,
                self.nfactors,
                shape,
            )),
        };
        PlanReport {
            scheme: self.scheme,
            launches: vec![launch],
            pattern_bytes: bytes(numbers, 4) + columns,
            workspace_bytes: bytes(self.workspace.len(), value)
                + bytes(
                    self.nitems * self.nrhs,
                    Outcomes::<E>::BYTES_A_SYSTEM + self.limits.bytes_a_system(),
                )
                + 8,
            kept_bytes: self
                .kept
                .as_ref()
                .map_or(0, |kept| kept.factors.bytes() + bytes(kept.refused.len(), 1)),
        }
    }
}

/// The input and output of one launch.
struct LaunchTask<'a, E: Executor, T: Value> {
    values: &'a E::Buffer<T>,
    /// Whether all items share the values of one item.
    shared: bool,
    /// Factors to compute and keep; if `Some`, nothing is solved.
    keep: Option<&'a FactoredKept<E, T>>,
    vectors: Option<Vectors<'a, E, T>>,
}

/// Right-hand sides, whether the solutions hold guesses, solutions.
type Vectors<'a, E, T> =
    (&'a <E as Executor>::Buffer<T>, Guess, &'a mut <E as Executor>::Buffer<T>);

impl<E, T> GpuSolver<E, T> for FactoredSolver<E, T>
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
        // Factors that are kept serve `solve_again` alone.
        let kept = self.kept.take();
        let started = Self::solve(self, values, b, guess, x);
        self.kept = kept;
        started
    }

    fn keeps_factors(&self) -> bool {
        true
    }

    fn factor(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        self.factorise(values)
    }

    fn forget_factors(&mut self) {
        Self::forget_factors(self);
    }

    fn solves_near(&self) -> bool {
        true
    }

    fn solve_again(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        if self.kept.is_none() {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "factors",
                expected: "a call of factor before",
                found: "none".to_owned(),
            }));
        }
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
