//! Solves of batches whose data lies on a GPU: [`DeviceSolver`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use sparsebatch_cpu_ref::check_threads;
use sparsebatch_cuda::{Executor, KernelBuffer, copy_values, prepare_copy};
use sparsebatch_formats::{Batch, BatchValues, CsrPattern, Pattern, UniformBatch};
use sparsebatch_solve_core::verdict::System;
use sparsebatch_solve_core::{ArgumentError, Criteria, Engine, Outcome, Scheme, Status, check_len};

use crate::backend::{AnalysedSolve, GpuBackend, Placement, SolveBackend, tuning};
use crate::choose::{Chosen, choose};
use crate::error::{go_on, stopped};
use crate::gpu::{Confirmer, DeviceOutcomes, GpuSolver, Guess, ItemList, solver_for};
use crate::ladder::{Kept, Ladder};
use crate::report::{BatchReport, Machine, Rung, RungRun, SchemeRun, SystemReport};
use crate::share::systems_of;
use crate::solver::drop_lost;
use crate::{Gpu, GpuExecutor, SolveError, SolveOptions, SolveScalar};

/// Solves batches of systems of one pattern whose values, right-hand sides and solutions lie on a
/// GPU, with `auto`, the ladder and the report of [`BatchSolver`](crate::BatchSolver).
///
/// It takes what [`solver_for`] takes: systems of at most 4,096 rows (32,768 from compute capability
/// 9.0 on) without factors, no composed engine, no residual history. `BatchSolver` takes the rest.
///
/// The arrays are item-major: `nnz` values per item, or those of one item for all; `nrows * nrhs`
/// elements of `b` and of `x` per item, one right-hand side after the other.
///
/// [`DeviceSolver::enqueue`] starts the first method on the executor's stream, allocates nothing and
/// returns at once. [`DeviceSolver::finish`] waits, confirms every verdict as the host's solver does,
/// and climbs the ladder with the systems that failed: these alone are copied to the host and their
/// solutions back. [`DeviceSolver::solve`] is both. Verdicts, and solutions of systems that converge
/// by the first method, are those of `BatchSolver` on the same GPU.
///
/// # Examples
/// ```no_run
/// use sparsebatch_cuda::{Device, Executor};
/// use sparsebatch_formats::generate::{Family, Problem};
/// use sparsebatch_solvers::gpu::Guess;
/// use sparsebatch_solvers::{DeviceSolver, SolveOptions};
///
/// let device = Device::new(0)?;
/// let systems = Problem::new(Family::Tri, 32)?.batch(1000)?;
/// let mut solver = DeviceSolver::new(&device, &systems.batch, &SolveOptions::new())?;
/// // What a simulation has on the GPU already.
/// let items = (0..1000).map(|item| systems.batch.item_values(item).unwrap());
/// let values = device.upload(&items.flatten().copied().collect::<Vec<f64>>())?;
/// let b = device.upload(&systems.rhs)?;
/// let mut x = device.alloc(systems.rhs.len())?;
/// let report = solver.solve(&values, &b, Guess::Zero, &mut x)?;
/// assert!(report.all_converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceSolver<E: GpuExecutor, T: SolveScalar> {
    executor: E,
    options: SolveOptions,
    criteria: Criteria,
    pattern: Arc<CsrPattern>,
    nitems: usize,
    backend: Box<dyn SolveBackend<T>>,
    /// The scheme of most items, and its plan for all of them.
    chosen: Chosen,
    plan: Box<dyn GpuSolver<E, T>>,
    confirmer: Confirmer<E, T>,
    /// Items that `auto` solves by other schemes.
    others: Vec<Other<T>>,
    /// The initial guesses of the last solve, if it had some.
    guesses: Option<E::Buffer<T>>,
    guess: Option<Guess>,
    /// Analyses of later rungs.
    kept: Vec<Kept<T>>,
    plan_time: Duration,
}

/// Items with another scheme than most, which are solved when the solve is finished.
struct Other<T> {
    chosen: Chosen,
    analysed: Option<Box<dyn AnalysedSolve<T>>>,
}

/// The arrays of one solve.
struct Arrays<'a, E: Executor, T: SolveScalar> {
    values: &'a E::Buffer<T>,
    b: &'a E::Buffer<T>,
    x: &'a mut E::Buffer<T>,
}

/// Some items of a solve, copied to the host.
struct Copied<T> {
    batch: Batch<T>,
    b: Vec<T>,
    x: Vec<T>,
    /// Initial guesses, unless they were 0.
    guesses: Option<Vec<T>>,
}

impl<E: GpuExecutor, T: SolveScalar> DeviceSolver<E, T> {
    /// Analyses a uniform batch, whose values decide what `auto` takes for each item. Later solves may
    /// have other values. Allocates the memory of the solver and compiles its kernels.
    ///
    /// # Errors
    /// [`SolveError::Argument`] for a matrix that is not square and options out of range;
    /// [`SolveError::Unsupported`] for ragged batches, composed engines and residual histories;
    /// [`SolveError::Gpu`] when memory or compiler fail.
    pub fn new(executor: &E, batch: &Batch<T>, options: &SolveOptions) -> Result<Self, SolveError> {
        let start = Instant::now();
        check_threads()?;
        let Batch::Uniform(uniform) = batch else {
            return Err(SolveError::Unsupported {
                what: "a ragged batch on the device",
                instead: "use BatchSolver, or a uniform batch for each pattern",
            });
        };
        if options.engine != Engine::Fused || options.history {
            return Err(SolveError::Unsupported {
                what: "a composed engine or a residual history on the device",
                instead: "use BatchSolver",
            });
        }
        let (nitems, pattern) = (uniform.nitems(), Arc::clone(uniform.pattern()));
        let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
        if nrows != ncols {
            return Err(SolveError::Argument(ArgumentError::NotSquare { item: 0, nrows, ncols }));
        }
        if options.nrhs == 0 {
            return Err(SolveError::Argument(ArgumentError::OutOfRange {
                name: "nrhs",
                expected: "at least 1",
                found: "0".to_owned(),
            }));
        }
        let criteria = options.criteria::<T>(nitems.saturating_mul(options.nrhs))?;
        let gpu = Gpu::new(executor.clone()).or_cpu(true).in_chunks(true);
        let backend: Box<dyn SolveBackend<T>> = Box::new(GpuBackend::new(gpu, options.clone()));
        let target = backend.target();
        let mut choices = choose(batch, options, target).into_iter();
        let chosen = choices.next().expect("there is at least one choice");
        let others = choices.map(|chosen| Other { chosen, analysed: None }).collect();
        let of = (pattern.view(), nitems);
        let plan = solver_for::<E, T>(executor, chosen.scheme, of, options, &tuning(None))?;
        ItemList::prepare::<T>(executor)?;
        Ok(Self {
            confirmer: Confirmer::new(executor, pattern.view(), nitems, options)?,
            executor: executor.clone(),
            options: options.clone(),
            criteria,
            pattern,
            nitems,
            backend,
            chosen,
            plan,
            others,
            guesses: None,
            guess: None,
            kept: Vec::new(),
            plan_time: start.elapsed(),
        })
    }

    /// As [`DeviceSolver::new`], from a pattern on the host and values on the device, which are copied
    /// to the host once: `nnz` for each item, or those of one item for all.
    ///
    /// # Errors
    /// Those of [`DeviceSolver::new`]; [`SolveError::Argument`] for another number of values.
    pub fn with_values(
        executor: &E,
        pattern: &CsrPattern,
        nitems: usize,
        values: &E::Buffer<T>,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        let nnz = pattern.nnz();
        let is_shared = values.len() == nnz && nitems != 1;
        if !is_shared {
            check_len("values", nnz.saturating_mul(nitems), values.len())?;
        }
        let values = executor.download(values)?;
        let values = match is_shared {
            true => BatchValues::Shared(values),
            false => BatchValues::ItemMajor(values),
        };
        let batch = UniformBatch::try_new(Arc::new(pattern.clone()), nitems, values);
        let batch = batch.map_err(sparsebatch_cpu_ref::CpuError::from)?;
        Self::new(executor, &Batch::Uniform(batch), options)
    }

    /// Makes solves from guesses ready: compiles their kernels and allocates memory for a copy of the
    /// guesses. Without this call the first such solve does so, which cannot be recorded in a graph.
    ///
    /// # Errors
    /// [`SolveError::Gpu`] when memory or compiler fail.
    pub fn prepare_guesses(&mut self) -> Result<(), SolveError> {
        self.plan.prepare(Guess::InX)?;
        prepare_copy::<T>(&self.executor)?;
        if self.guesses.is_none() {
            let rows = self.nitems * self.options.nrhs * self.pattern.nrows();
            self.guesses = Some(self.executor.alloc(rows)?);
        }
        Ok(())
    }

    /// Takes tolerances and iteration limits of other options for the solves that follow. Each must be
    /// given per system if and only if it was before. Waits for the last solve. A graph that was
    /// recorded before keeps the limits that are common to all systems.
    ///
    /// # Errors
    /// [`SolveError::Argument`] when there is not one per system, for negative ones.
    pub fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), SolveError> {
        let mut own = self.options.clone();
        own.rel_tol.clone_from(&options.rel_tol);
        own.abs_tol.clone_from(&options.abs_tol);
        own.max_iters.clone_from(&options.max_iters);
        let criteria = own.criteria::<T>(self.nitems * own.nrhs)?;
        self.plan.replace_limits(&self.executor, &own)?;
        self.confirmer.replace_limits(&own)?;
        // Plans of other schemes and of later rungs hold limits.
        self.backend = self.backend.with_options(&own);
        self.kept.clear();
        self.others.iter_mut().for_each(|other| other.analysed = None);
        (self.options, self.criteria) = (own, criteria);
        Ok(())
    }

    /// Starts the first method for every item, from the guesses in `x` or from 0, and returns. Allocates
    /// nothing (from guesses: after [`DeviceSolver::prepare_guesses`]) and may be recorded in a graph;
    /// each launch of the graph is a solve that [`DeviceSolver::finish`] completes.
    ///
    /// Items for which `auto` takes another method than for most are solved by
    /// [`DeviceSolver::finish`], and so are systems that fail.
    ///
    /// # Errors
    /// [`SolveError::Argument`] when an array does not fit, or `x` overlaps another one;
    /// [`SolveError::Gpu`] when a launch is refused.
    pub fn enqueue(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError> {
        self.guess = None;
        if let Some(watch) = &self.criteria.watch {
            watch.begin(self.nitems * self.options.nrhs);
        }
        if guess == Guess::InX {
            check_len("x", self.nitems * self.options.nrhs * self.pattern.nrows(), x.len())?;
            self.prepare_guesses()?;
            if let Some(guesses) = &mut self.guesses {
                copy_values(&self.executor, &*x, guesses)?;
            }
        }
        self.plan.solve(values, b, guess, x)?;
        self.guess = Some(guess);
        Ok(())
    }

    /// The outcomes of the last solve on the device, for kernels of the caller. After
    /// [`DeviceSolver::enqueue`] they are those of the first method, not confirmed; after
    /// [`DeviceSolver::finish`] those of the report.
    pub fn device_outcomes(&self) -> DeviceOutcomes<'_, E> {
        self.plan.outcome_arrays().on_device()
    }

    /// Waits for the last [`DeviceSolver::enqueue`], whose arrays these are, confirms its verdicts,
    /// solves what is left, and tells how each system ended.
    ///
    /// A system that did not converge has the better of its guess and its last iterate in `x`. After a
    /// graph the guesses are those of the last call of `enqueue`, which is to be the recorded one.
    ///
    /// # Errors
    /// [`SolveError::Argument`] without a solve before, or when an array does not fit;
    /// [`SolveError::Gpu`] with what the device reports; [`SolveError::Stopped`].
    pub fn finish(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
    ) -> Result<BatchReport, SolveError> {
        let report = self.finish_watched(values, b, x);
        stopped(&self.options.watch, report)
    }

    fn finish_watched(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
    ) -> Result<BatchReport, SolveError> {
        let start = Instant::now();
        let Some(guess) = self.guess else {
            return Err(SolveError::Argument(ArgumentError::OutOfRange {
                name: "finish",
                expected: "a solve that was enqueued before",
                found: "none".to_owned(),
            }));
        };
        if b.shares_memory_with(x) || values.shares_memory_with(x) {
            return Err(SolveError::Argument(ArgumentError::OutOfRange {
                name: "x",
                expected: "memory apart from values and b",
                found: "memory shared with them".to_owned(),
            }));
        }
        self.plan.confirm(&self.confirmer, values, b, x)?;
        let mut systems: Vec<SystemReport> =
            self.plan.outcomes()?.into_iter().map(SystemReport::first).collect();
        if let Some(watch) = &self.criteria.watch {
            watch.begin(systems.len());
            go_on(&self.criteria.watch)?;
            watch.add(self.chosen.items.len() * self.options.nrhs);
        }
        let arrays = Arrays { values, b, x };
        let runs = self.finish_items(guess, arrays, &mut systems)?;
        Ok(self.report(systems, runs, start.elapsed()))
    }

    /// [`DeviceSolver::enqueue`] and [`DeviceSolver::finish`].
    ///
    /// # Errors
    /// Those of the two.
    pub fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<BatchReport, SolveError> {
        self.enqueue(values, b, guess, x)?;
        self.finish(values, b, x)
    }

    /// Solves the items of other schemes and climbs the ladder with the systems that failed.
    fn finish_items(
        &mut self,
        guess: Guess,
        mut arrays: Arrays<'_, E, T>,
        systems: &mut [SystemReport],
    ) -> Result<Vec<RungRun>, SolveError> {
        let nrhs = self.options.nrhs;
        let mut first = vec![self.chosen.scheme; self.nitems];
        let mut others = std::mem::take(&mut self.others);
        let solved = others.iter_mut().try_for_each(|other| {
            go_on(&self.criteria.watch)?;
            other.chosen.items.iter().for_each(|&item| first[item] = other.chosen.scheme);
            self.solve_other(other, guess, &mut arrays, systems)
        });
        self.others = others;
        solved?;
        let lost = self.lost_guesses(guess, systems)?;
        if !lost.is_empty() {
            let reason = self.chosen.reason.clone();
            let chosen = Chosen { scheme: Scheme::Lu, reason, items: lost };
            let mut again = Other { chosen, analysed: None };
            self.solve_other(&mut again, guess, &mut arrays, systems)?;
        }
        let has_failed = |systems: &[SystemReport]| {
            systems.iter().any(|system| system.outcome.status != Status::Converged)
        };
        let items: Vec<usize> =
            (0..self.nitems).filter(|&i| has_failed(&systems[i * nrhs..(i + 1) * nrhs])).collect();
        go_on(&self.criteria.watch)?;
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let list = ItemList::new(&self.executor, &items, self.nitems)?;
        let mut copied = self.copy(&list, &items, guess, &arrays)?;
        if let Some(guesses) = &mut copied.guesses {
            let each = guesses.chunks_mut((self.pattern.nrows() * nrhs).max(1));
            let of_lu = items.iter().zip(each).filter(|(item, _)| first[**item] == Scheme::Lu);
            of_lu.for_each(|(_, guess)| drop_lost(guess));
        }
        let places = systems_of(&items, nrhs);
        let criteria = self.criteria.pick(&places);
        let mut some: Vec<SystemReport> = places.iter().map(|&s| systems[s].clone()).collect();
        self.keep_better(&mut copied, &criteria, &mut some);
        let some_first: Vec<Scheme> = items.iter().map(|&item| first[item]).collect();
        let mut runs = Vec::new();
        if self.options.fallback || some_first.contains(&Scheme::Lu) {
            // Plans of rungs hold the limits of their systems.
            let options = self.options.for_systems(&places);
            let backend = self.backend.with_options(&options);
            if options.has_own_limits() {
                self.kept.clear();
            }
            let ladder = Ladder {
                backend: &*backend,
                batch: &copied.batch,
                options: &options,
                criteria: &criteria,
                b: &copied.b,
                first: &some_first,
            };
            runs = ladder.climb(&mut copied.x, &mut some, &mut self.kept)?;
        }
        self.put_back(&list, &copied.x, &some, arrays.x)?;
        for (place, report) in places.into_iter().zip(some) {
            systems[place] = report;
        }
        Ok(runs)
    }

    /// Items of the first scheme that the sparse LU failed on because of their guesses: NaN and
    /// infinities there count as 0, which its kernel does not know.
    fn lost_guesses(
        &self,
        guess: Guess,
        systems: &[SystemReport],
    ) -> Result<Vec<usize>, SolveError> {
        let Some(guesses) = self.guesses.as_ref().filter(|_| guess == Guess::InX) else {
            return Ok(Vec::new());
        };
        let nrhs = self.options.nrhs;
        let is_lost = |item: usize| {
            let own = &systems[item * nrhs..(item + 1) * nrhs];
            own.iter().any(|system| system.outcome.status == Status::NonFinite)
        };
        let items = match self.chosen.scheme {
            Scheme::Lu => self.chosen.items.iter().copied().filter(|&item| is_lost(item)).collect(),
            _ => Vec::new(),
        };
        if items.is_empty() {
            return Ok(items);
        }
        let guesses = ItemList::new(&self.executor, &items, self.nitems)?.gather(guesses)?;
        let each = guesses.chunks((self.pattern.nrows() * nrhs).max(1));
        let lost = items.into_iter().zip(each);
        let is_finite = |guess: &[T]| guess.iter().all(|x| x.is_finite());
        Ok(lost.filter(|(_, guess)| !is_finite(guess)).map(|(item, _)| item).collect())
    }

    /// Solves items of another scheme than most, or once more.
    fn solve_other(
        &mut self,
        other: &mut Other<T>,
        guess: Guess,
        arrays: &mut Arrays<'_, E, T>,
        systems: &mut [SystemReport],
    ) -> Result<(), SolveError> {
        let (items, nrhs) = (&other.chosen.items, self.options.nrhs);
        let list = ItemList::new(&self.executor, items, self.nitems)?;
        let mut copied = self.copy(&list, items, guess, arrays)?;
        copied.x = copied.guesses.take().unwrap_or_else(|| vec![T::ZERO; copied.x.len()]);
        if other.chosen.scheme == Scheme::Lu {
            drop_lost(&mut copied.x);
        }
        let places = systems_of(items, nrhs);
        let analysed = match &mut other.analysed {
            Some(analysed) => analysed,
            none => {
                let options = self.options.for_systems(&places);
                let backend = self.backend.with_options(&options);
                let scheme = (Rung::First, other.chosen.scheme);
                none.insert(backend.analyse(&copied.batch, scheme, None)?)
            }
        };
        let criteria = self.criteria.pick(&places);
        let Copied { batch, b, x, .. } = &mut copied;
        let outcomes = analysed.solve(batch, nrhs, b, x, &criteria, None)?;
        let some: Vec<_> = outcomes.into_iter().map(SystemReport::first).collect();
        self.put_back(&list, x, &some, arrays.x)?;
        for (place, report) in places.into_iter().zip(some) {
            systems[place] = report;
        }
        Ok(())
    }

    /// Copies some items to the host.
    fn copy(
        &self,
        list: &ItemList<E>,
        items: &[usize],
        guess: Guess,
        arrays: &Arrays<'_, E, T>,
    ) -> Result<Copied<T>, SolveError> {
        let is_shared = arrays.values.len() == self.pattern.nnz() && self.nitems != 1;
        let values = match is_shared {
            true => BatchValues::Shared(self.executor.download(arrays.values)?),
            false => BatchValues::ItemMajor(list.gather(arrays.values)?),
        };
        let batch = UniformBatch::try_new(Arc::clone(&self.pattern), items.len(), values);
        let guesses = self.guesses.as_ref().filter(|_| guess == Guess::InX);
        Ok(Copied {
            batch: Batch::Uniform(batch.map_err(sparsebatch_cpu_ref::CpuError::from)?),
            b: list.gather(arrays.b)?,
            x: list.gather(&*arrays.x)?,
            guesses: guesses.map(|guesses| list.gather(guesses)).transpose()?,
        })
    }

    /// Gives systems that did not converge the better of their guess and their x.
    fn keep_better(
        &self,
        copied: &mut Copied<T>,
        criteria: &Criteria,
        systems: &mut [SystemReport],
    ) {
        let nrows = self.pattern.nrows();
        let Copied { batch, b, x, guesses } = copied;
        let each = x.par_chunks_mut(nrows.max(1)).zip(systems).enumerate();
        each.for_each_init(Vec::new, |values, (number, (x, report))| {
            if report.outcome.status == Status::Converged {
                return;
            }
            let rows = number * nrows..(number + 1) * nrows;
            let values = batch.values_in(number / self.options.nrhs, values);
            let system =
                System::new(number, self.pattern.view(), values, &b[rows.clone()], criteria);
            let guess = guesses.as_ref().map(|guesses| &guesses[rows]);
            system.confirm(guess, x, &mut report.outcome);
        });
    }

    /// Writes the solutions and outcomes of some items to the device.
    fn put_back(
        &mut self,
        list: &ItemList<E>,
        solutions: &[T],
        systems: &[SystemReport],
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError> {
        list.scatter(solutions, x)?;
        let outcomes: Vec<Outcome> = systems.iter().map(|system| system.outcome.clone()).collect();
        Ok(list.scatter_outcomes(&outcomes, self.plan.outcome_arrays_mut())?)
    }

    fn report(
        &self,
        systems: Vec<SystemReport>,
        later: Vec<RungRun>,
        solve_time: Duration,
    ) -> BatchReport {
        let explained = self.plan.explain();
        let of_plan = Placement {
            backend: Machine::Gpu,
            device: self.executor.info().name.clone(),
            kernel: explained.kernels(),
            chunks: 1,
            device_bytes: explained.bytes() + self.confirmer.bytes(),
            cpu_reason: None,
            composed_reason: None,
        };
        let of = |chosen: &Chosen, kernel: String| SchemeRun {
            scheme: chosen.scheme,
            systems: chosen.items.len() * self.options.nrhs,
            reason: chosen.reason.clone(),
            kernel,
        };
        let mut schemes = vec![of(&self.chosen, of_plan.kernel.clone())];
        let mut placements = vec![of_plan];
        for other in &self.others {
            let placement = other.analysed.as_ref().map(|analysed| analysed.placement());
            schemes.push(of(
                &other.chosen,
                placement.as_ref().map_or(String::new(), |p| p.kernel.clone()),
            ));
            placements.extend(placement);
        }
        let placement = Placement::together(placements);
        let mut runs = vec![RungRun::new(Rung::First, systems.len(), placement.clone())];
        runs.extend(later);
        BatchReport {
            systems,
            scheme: self.chosen.scheme,
            reason: self.chosen.reason.clone(),
            schemes,
            backend: placement.backend,
            device: placement.device,
            format: "csr",
            kernel: placement.kernel,
            runs,
            plan_time: self.plan_time,
            solve_time,
            product_cost: None,
        }
    }
}
