//! The one entry: [`solve`] for a batch at once, [`BatchSolver`] for repeated solves.

use std::time::{Duration, Instant};

use rayon::prelude::*;
use sparsebatch_cpu_ref::{CpuError, Isa, check_threads};
use sparsebatch_formats::{Batch, CsrPatternRef, Scalar};
use sparsebatch_solve_core::{
    ArgumentError, Engine, Outcome, ProductCost, Rhs, Scheme, Status, check_len,
};

use crate::again::{Adjoint, Matrices};
use crate::backend::{Backend, CpuBackend, GpuBackend, KeptFactors, Placement, SolveBackend};
use crate::choose::{Target, choose};
use crate::error::{go_on, stopped};
use crate::ladder::{HostSystems, Kept, Ladder};
use crate::report::{BatchReport, Rung, RungRun, SchemeRun, SystemReport};
use crate::scalar::{GpuExecutor, SolveScalar};
use crate::share::Share;
use crate::{SolveError, SolveOptions};

/// The solutions of a batch and how each system ended.
#[derive(Clone, Debug)]
pub struct Solution<T> {
    /// Item-major, like the right-hand sides.
    pub x: Vec<T>,
    /// How each system ended.
    pub report: BatchReport,
}

/// Solves `A_i x_i = b_i` for every system of a batch.
///
/// `b` and `x0` (0 when absent) are item-major: the rows of item 0, of item 1, ...; with
/// `options.nrhs` right-hand sides, those of an item follow each other. Work is spread over
/// rayon's current thread pool; no result depends on the number of threads.
///
/// # Errors
/// [`SolveError`] when nothing was solved: a matrix that is not square, a vector of the wrong
/// length, an option out of range, a forked process whose threads are in its parent. Systems that
/// do not converge are no error.
///
/// # Examples
/// ```
/// use sparsebatch_formats::{Batch, Csr};
/// use sparsebatch_solvers::{SolveOptions, solve};
/// // [4 1; 1 3] x = [1; 2]
/// let a = Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![4.0, 1.0, 1.0, 3.0])?;
/// let solution = solve(&Batch::from(a), &[1.0, 2.0], None, &SolveOptions::default())?;
/// assert!(solution.report.all_converged());
/// assert!((solution.x[0] - 1.0f64 / 11.0).abs() < 1e-9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn solve<T: SolveScalar>(
    batch: &Batch<T>,
    b: &[T],
    x0: Option<&[T]>,
    options: &SolveOptions,
) -> Result<Solution<T>, SolveError> {
    // Checked before memory is allocated for each system.
    check(batch, Some(Rhs { b, x0 }), options)?;
    BatchSolver::new(batch, options)?.into_solution(batch, b, x0)
}

/// [`solve`] on a backend: the same solve on the CPU or on a GPU.
///
/// # Errors
/// As [`BatchSolver::on_with_rhs`] and [`BatchSolver::solve`].
pub fn solve_on<T: SolveScalar>(
    backend: &Backend,
    batch: &Batch<T>,
    b: &[T],
    x0: Option<&[T]>,
    options: &SolveOptions,
) -> Result<Solution<T>, SolveError> {
    BatchSolver::on_with_rhs(backend, batch, Rhs { b, x0 }, options)?.into_solution(batch, b, x0)
}

/// [`solve_on`] any executor, such as an emulated GPU.
///
/// # Errors
/// As [`solve_on`].
#[doc(hidden)]
pub fn solve_on_executor<T: SolveScalar, E: GpuExecutor>(
    backend: &Backend<E>,
    batch: &Batch<T>,
    b: &[T],
    x0: Option<&[T]>,
    options: &SolveOptions,
) -> Result<Solution<T>, SolveError> {
    let rhs = Some(Rhs { b, x0 });
    BatchSolver::on_executor(backend, batch, rhs, options)?.into_solution(batch, b, x0)
}

/// The analysis of a batch, for repeated solves with other values, right-hand sides or guesses.
pub struct BatchSolver<T> {
    pub(crate) options: SolveOptions,
    pub(crate) backend: Box<dyn SolveBackend<T>>,
    /// The systems by first scheme; at least one share.
    pub(crate) shares: Vec<Share<T>>,
    /// The first scheme of each item; a single entry if all items have the same.
    pub(crate) first: Vec<Scheme>,
    pub(crate) nitems: usize,
    /// Analyses of the later rungs.
    kept: Vec<Kept<T>>,
    plan_time: Duration,
    pub(crate) keeps_factors: bool,
    /// The matrices of the last [`BatchSolver::factor`].
    pub(crate) matrices: Matrices<T>,
    /// The solver of the transposed matrices of the last [`BatchSolver::factor`], where the factors
    /// do not serve them.
    pub(crate) adjoint: Option<Box<Adjoint<T>>>,
}

impl<T: SolveScalar> BatchSolver<T> {
    /// As [`BatchSolver::new`], to solve on a backend.
    ///
    /// A GPU gets the kernels compiled, and memory for matrices, right-hand sides and solutions, or
    /// for some of the [chunks](crate::Chunks) in which a large batch goes through it; each solve
    /// copies them there and the solutions back.
    ///
    /// # Errors
    /// Those of [`BatchSolver::new`]; [`SolveError::Unsupported`] for what the GPU does not do,
    /// unless the [CPU may](crate::Gpu::or_cpu); [`SolveError::Gpu`] when memory or compiler fail.
    pub fn on(
        backend: &Backend,
        batch: &Batch<T>,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        T::analyse(backend, batch, None, options)
    }

    /// As [`BatchSolver::on`], for solves with right-hand sides and guesses of these lengths, which
    /// are checked before anything is analysed.
    ///
    /// # Errors
    /// Those of [`BatchSolver::on`]; [`SolveError::Argument`] when `rhs` does not fit.
    pub fn on_with_rhs(
        backend: &Backend,
        batch: &Batch<T>,
        rhs: Rhs<'_, T>,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        T::analyse(backend, batch, Some(rhs), options)
    }

    /// [`BatchSolver::on`] any executor, such as an emulated GPU, or [`BatchSolver::on_with_rhs`].
    /// Unlike those it is compiled where it is called.
    ///
    /// # Errors
    /// Those of [`BatchSolver::on_with_rhs`].
    #[doc(hidden)]
    pub fn on_executor<E: GpuExecutor>(
        backend: &Backend<E>,
        batch: &Batch<T>,
        rhs: Option<Rhs<'_, T>>,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        let backend: Box<dyn SolveBackend<T>> = match backend {
            Backend::Cpu => Box::new(CpuBackend),
            Backend::Gpu(gpu) => Box::new(GpuBackend::new(vec![gpu.clone()], options.clone())),
            Backend::Gpus(gpus) => Box::new(GpuBackend::new(gpus.each().to_vec(), options.clone())),
        };
        Self::analyse(backend, batch, rhs, options)
    }

    /// Chooses a method where the options say `auto`, and analyses the patterns of the batch, to
    /// solve on the CPU.
    ///
    /// # Errors
    /// [`SolveError::Argument`] for options that are out of range or
    /// exclude each other, [`SolveError::Cpu`] when a pattern cannot be analysed as asked, when
    /// there are more systems than can be counted, and in a forked process whose threads are in its
    /// parent.
    pub fn new(batch: &Batch<T>, options: &SolveOptions) -> Result<Self, SolveError> {
        T::analyse(&Backend::Cpu, batch, None, options)
    }

    pub(crate) fn analyse(
        backend: Box<dyn SolveBackend<T>>,
        batch: &Batch<T>,
        rhs: Option<Rhs<'_, T>>,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        check(batch, rhs, options)?;
        let start = Instant::now();
        check_engine(options)?;
        let choices = choose(batch, options, backend.target());
        backend.prepare(batch, &choices);
        let shares = choices
            .into_iter()
            .map(|chosen| Share::new(&*backend, batch, chosen, options))
            .collect::<Result<Vec<_>, _>>()?;
        let mut first = vec![shares[0].chosen.scheme];
        if shares.len() > 1 {
            first.resize(batch.nitems(), shares[0].chosen.scheme);
            for share in &shares {
                share.chosen.items.iter().for_each(|&item| first[item] = share.chosen.scheme);
            }
        }
        let plan_time = start.elapsed();
        let mut this = Self {
            options: options.clone(),
            backend,
            shares,
            first,
            nitems: batch.nitems(),
            kept: Vec::new(),
            plan_time,
            keeps_factors: false,
            matrices: Matrices::None,
            adjoint: None,
        };
        this.keeps_factors = this.kept_factors().is_some();
        Ok(this)
    }

    /// The engine that keeps factors, if one engine has all systems and supports it.
    pub(crate) fn kept_factors(&mut self) -> Option<&mut dyn KeptFactors<T>> {
        match self.shares.as_mut_slice() {
            [share] => share.engine.kept_factors(),
            _ => None,
        }
    }

    /// Takes tolerances and iteration limits of other options for the solves that follow. The
    /// analysis stays, and so do kept matrices and factors.
    ///
    /// # Errors
    /// [`SolveError::Argument`] when there is not one per system, for negative ones. The limits are
    /// as before then.
    ///
    /// # Examples
    /// ```
    /// use sparsebatch_formats::{Batch, Csr};
    /// use sparsebatch_solvers::{BatchSolver, Method, SolveOptions, Status};
    /// // [4 1; 1 3]
    /// let a = Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![4.0, 1.0, 1.0, 3.0])?;
    /// let batch = Batch::from(a);
    /// let options = SolveOptions::new().method(Method::Cg).fallback(false);
    /// let mut solver = BatchSolver::new(&batch, &options)?;
    /// solver.replace_limits(&options.clone().max_iters(1))?;
    /// let mut x = [0.0; 2];
    /// let report = solver.solve(&batch, &[1.0, 2.0], &mut x)?;
    /// assert_eq!(report.systems[0].outcome.status, Status::MaxIterations);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), SolveError> {
        let own = self.options.with_limits_of(options);
        own.criteria::<T>(self.nitems * own.nrhs)?;
        let mut shares = self.shares.iter_mut();
        let replaced = shares.try_for_each(|share| share.replace_limits(&own));
        let replaced = replaced.and_then(|()| match &mut self.adjoint {
            Some(adjoint) => adjoint.solver.replace_limits(&own),
            None => Ok(()),
        });
        if let Err(error) = replaced {
            for share in &mut self.shares {
                // The first error is the one to tell; shares that refuse limits have kept theirs.
                share.replace_limits(&self.options).ok();
            }
            return Err(error);
        }
        self.backend = self.backend.with_options(&own);
        if matches!(self.backend.target(), Target::Gpu(_)) {
            // Plans of later rungs hold limits.
            self.kept.clear();
        }
        self.options = own;
        Ok(())
    }

    /// Solves every system; `x` holds the initial guesses on entry and the solutions on return.
    ///
    /// `batch` is the one that was analysed, or one with the same patterns and other values. NaN
    /// and infinities in a guess end an iterative solve with `NonFinite`; to a factorisation they are
    /// 0.
    ///
    /// # Errors
    /// [`SolveError::Argument`] when `b` or `x` does not fit, [`SolveError::Cpu`] when the batch has
    /// other patterns than the one analysed, [`SolveError::Gpu`] with what the GPU reports.
    pub fn solve(
        &mut self,
        batch: &Batch<T>,
        b: &[T],
        x: &mut [T],
    ) -> Result<BatchReport, SolveError> {
        T::solve(self, batch, b, x)
    }

    /// [`BatchSolver::solve`], compiled where it is called: by [`SolveScalar`].
    pub(crate) fn solve_here(
        &mut self,
        batch: &Batch<T>,
        b: &[T],
        x: &mut [T],
    ) -> Result<BatchReport, SolveError> {
        let report = self.solve_watched(batch, b, x, false);
        stopped(&self.options.watch, report)
    }

    /// A solve; `by_kept`: by kept factors, which precondition or refine, where that is possible,
    /// and what they do not solve by factors of its own.
    pub(crate) fn solve_watched(
        &mut self,
        batch: &Batch<T>,
        b: &[T],
        x: &mut [T],
        by_kept: bool,
    ) -> Result<BatchReport, SolveError> {
        let nrhs = self.options.nrhs;
        check_threads()?;
        check_len("items of the batch", self.nitems, batch.nitems())?;
        let (systems, rows) = sizes(batch, nrhs)?;
        check_len("b", rows, b.len())?;
        check_len("x0", b.len(), x.len())?;
        let criteria = self.options.criteria::<T>(systems)?;
        if let Some(watch) = &criteria.watch {
            watch.begin(systems);
        }
        self.drop_lost_guesses(batch, x);
        let start = Instant::now();
        let mut outcomes = match self.shares.len() {
            1 => Vec::new(),
            _ => vec![None; self.nitems * nrhs],
        };
        go_on(&criteria.watch)?;
        let near = match (by_kept, self.kept_factors()) {
            (true, Some(factors)) => factors.solve_near(batch, nrhs, b, x, &criteria)?,
            _ => None,
        };
        if let Some(near) = near {
            go_on(&criteria.watch)?;
            let has_failed = |&system: &usize| near[system].status != Status::Converged;
            let failed: Vec<usize> = (0..near.len()).filter(has_failed).collect();
            outcomes = near.into_iter().map(Some).collect();
            if !failed.is_empty() {
                if let Some(watch) = &criteria.watch {
                    watch.begin(failed.len());
                }
                let engine = &mut self.shares[0].engine;
                let solved = engine.solve(batch, nrhs, b, x, &criteria, Some(&failed))?;
                for (system, outcome) in failed.into_iter().zip(solved) {
                    outcomes[system] = Some(outcome);
                }
            }
        } else {
            for share in &mut self.shares {
                go_on(&criteria.watch)?;
                share.solve(batch, nrhs, b, x, &criteria, &mut outcomes)?;
            }
        }
        go_on(&criteria.watch)?;
        let mut systems = reports(outcomes);
        let mut later = Vec::new();
        if self.climbs() {
            let mut site = HostSystems {
                backend: &*self.backend,
                batch,
                options: &self.options,
                criteria: &criteria,
                b,
                x,
                trial: &mut Vec::new(),
                kept: &mut self.kept,
            };
            let ladder = Ladder { options: &self.options, first: &self.first };
            later = ladder.climb(&mut site, &mut systems)?;
        }
        self.finish(systems, later, start)
    }

    /// Replaces NaN and infinities by 0 in the guesses of systems that start with a
    /// factorisation. It needs no guess and would fail because of them; iterations keep them and end with
    /// `NonFinite`.
    fn drop_lost_guesses(&self, batch: &Batch<T>, x: &mut [T]) {
        match &self.first[..] {
            [first] => {
                if first.is_direct() {
                    drop_lost(x);
                }
            }
            first => {
                let mut rest = x;
                for (item, &first) in first.iter().enumerate() {
                    let rows = batch.row_offset(item + 1) - batch.row_offset(item);
                    let part = rest.split_off_mut(..rows * self.options.nrhs);
                    let part = part.expect("x holds every row");
                    if first.is_direct() {
                        drop_lost(part);
                    }
                }
            }
        }
    }

    /// Whether systems that did not converge may be tried again: by the ladder, or by static
    /// pivoting in LU of a fixed order.
    pub(crate) fn climbs(&self) -> bool {
        self.options.fallback || self.first.iter().any(|first| first.has_fixed_order())
    }

    /// The report of a solve that began at `start`.
    pub(crate) fn finish(
        &mut self,
        systems: Vec<SystemReport>,
        later: Vec<RungRun>,
        start: Instant,
    ) -> Result<BatchReport, SolveError> {
        let solve_time = start.elapsed();
        let costs = self.shares.iter_mut().map(|share| share.engine.product_cost());
        let product_cost = ProductCost::together(costs.collect::<Result<Vec<_>, _>>()?);
        let product_cost = product_cost.map(|cost| cost.within(solve_time));
        Ok(self.report(systems, later, solve_time, product_cost))
    }

    fn report(
        &self,
        systems: Vec<SystemReport>,
        later: Vec<RungRun>,
        solve_time: Duration,
        product_cost: Option<ProductCost>,
    ) -> BatchReport {
        let placements: Vec<Placement> =
            self.shares.iter().map(|share| share.engine.placement()).collect();
        let schemes: Vec<SchemeRun> = self
            .shares
            .iter()
            .zip(&placements)
            .map(|(share, placement)| {
                let chosen = &share.chosen;
                SchemeRun {
                    scheme: chosen.scheme,
                    systems: chosen.items.len() * self.options.nrhs,
                    reason: chosen.reason.clone(),
                    kernel: placement.kernel.clone(),
                }
            })
            .collect();
        let placement = Placement::together(placements);
        let mut runs = vec![RungRun::new(Rung::First, systems.len(), placement.clone())];
        runs.extend(later);
        BatchReport {
            systems,
            scheme: schemes[0].scheme,
            reason: schemes[0].reason.clone(),
            schemes,
            backend: placement.backend,
            device: placement.device,
            format: self.shares[0].engine.format(),
            kernel: placement.kernel,
            runs,
            plan_time: self.plan_time,
            solve_time,
            product_cost,
        }
    }

    /// One solve, from the guesses or from 0.
    fn into_solution(
        mut self,
        batch: &Batch<T>,
        b: &[T],
        x0: Option<&[T]>,
    ) -> Result<Solution<T>, SolveError> {
        let mut x = x0.map_or_else(|| vec![T::ZERO; b.len()], <[T]>::to_vec);
        let report = self.solve(batch, b, &mut x)?;
        Ok(Solution { x, report })
    }
}

/// Replaces NaN and infinities by 0.
pub(crate) fn drop_lost<T: SolveScalar>(x: &mut [T]) {
    x.par_chunks_mut(1 << 16).for_each(|x| {
        x.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = T::ZERO);
    });
}

/// The reports after the first rung. Built in parallel: those of a large batch take hundreds of
/// megabytes.
pub(crate) fn reports(outcomes: Vec<Option<Outcome>>) -> Vec<SystemReport> {
    let told = |outcome: Option<Outcome>| outcome.expect("each share tells its outcomes");
    let reports = outcomes.into_par_iter().with_min_len(1 << 12);
    // Collected in place: the list of a large batch takes longer to move than to make.
    reports.map(|outcome| SystemReport::first(told(outcome))).collect()
}

/// Checks that batch, options and vectors fit together, and that the threads for the solve exist.
fn check<T: Scalar>(
    batch: &Batch<T>,
    rhs: Option<Rhs<'_, T>>,
    options: &SolveOptions,
) -> Result<(), SolveError> {
    check_threads()?;
    check_square(batch)?;
    check_nrhs(options)?;
    let (systems, rows) = sizes(batch, options.nrhs)?;
    options.criteria::<T>(systems)?;
    Ok(rhs.map_or(Ok(()), |rhs| rhs.check(rows))?)
}

/// The number of systems of a batch, and the total length of their right-hand sides.
fn sizes<T: Scalar>(batch: &Batch<T>, nrhs: usize) -> Result<(usize, usize), SolveError> {
    let systems = batch.count_systems(nrhs).map_err(CpuError::from)?;
    Ok((systems, batch.vector_len(nrhs).map_err(CpuError::from)?))
}

pub(crate) fn check_square<T: Scalar>(batch: &Batch<T>) -> Result<(), SolveError> {
    let items = match batch {
        Batch::Uniform(batch) => batch.nitems().min(1),
        Batch::Ragged(batch) => batch.nitems(),
    };
    (0..items).try_for_each(|item| check_square_pattern(item, batch.pattern(item)))
}

/// Refuses a pattern that is not square.
pub(crate) fn check_square_pattern(
    item: usize,
    pattern: CsrPatternRef<'_>,
) -> Result<(), SolveError> {
    let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
    if nrows != ncols {
        return Err(SolveError::Argument(ArgumentError::NotSquare { item, nrows, ncols }));
    }
    Ok(())
}

/// Refuses factorisations over products.
pub(crate) fn check_engine(options: &SolveOptions) -> Result<(), SolveError> {
    if matches!(options.engine, Engine::Composed(_)) && options.method.is_direct() {
        return Err(SolveError::Argument(ArgumentError::OutOfRange {
            name: "solver",
            expected: "cg or bicgstab with a composed engine (a format or a kernel)",
            found: options.method.name().to_owned(),
        }));
    }
    Ok(())
}

/// Refuses solves for no right-hand side.
pub(crate) fn check_nrhs(options: &SolveOptions) -> Result<(), SolveError> {
    if options.nrhs == 0 {
        return Err(SolveError::Argument(ArgumentError::OutOfRange {
            name: "nrhs",
            expected: "at least 1",
            found: "0".to_owned(),
        }));
    }
    Ok(())
}

/// Names of the instruction sets that the CPU backend can use on this machine, weakest first.
pub fn cpu_instruction_sets() -> Vec<&'static str> {
    Isa::available().into_iter().map(Isa::name).collect()
}
