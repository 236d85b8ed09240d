//! How a solve is finished: verdicts, items of other schemes, the ladder, the report.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use sparsebatch_cuda::{Executor, KernelBuffer};
use sparsebatch_formats::Batch;
use sparsebatch_solve_core::verdict::System;
use sparsebatch_solve_core::{ArgumentError, Criteria, Outcome, Scheme, Status};

use super::patterns::by_item;
use super::report::DeviceReport;
use super::{DeviceSolver, Factors, Matrices, Other, Started};
use crate::backend::{OutOfRange, Placement};
use crate::choose::Chosen;
use crate::error::{go_on, stopped};
use crate::gpu::{Guess, HostOutcomes, ItemArray, ItemList, check_apart};
use crate::ladder::{HostSystems, Kept, Ladder};
use crate::report::{BatchReport, Machine, Rung, RungRun, SchemeRun, SystemReport};
use crate::share::systems_of;
use crate::solver::drop_lost;
use crate::{GpuExecutor, SolveError, SolveScalar};

/// How the first method ended.
enum First {
    /// Every system converged.
    Solved(HostOutcomes),
    /// Some systems are left to solve.
    Left(Vec<SystemReport>),
}

/// The arrays of one solve.
struct Arrays<'a, E: Executor, T: SolveScalar> {
    values: &'a E::Buffer<T>,
    b: &'a E::Buffer<T>,
    x: &'a mut E::Buffer<T>,
}

/// The error of a finish without a solve of its kind.
pub(super) fn not_enqueued() -> SolveError {
    SolveError::Argument(ArgumentError::OutOfRange {
        name: "finish",
        expected: "a solve of its kind that was enqueued before",
        found: "none".to_owned(),
    })
}

/// Analyses of later rungs. They number items among those that failed, so that they serve the next
/// solve only if the same items fail.
pub(super) struct KeptRungs<T> {
    /// The items that failed, ascending.
    items: Vec<usize>,
    rungs: Vec<Kept<T>>,
}

impl<T> KeptRungs<T> {
    pub(super) fn new() -> Self {
        Self { items: Vec::new(), rungs: Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        self.rungs.clear();
    }

    /// The analyses for these items, after those for others were dropped.
    fn of(&mut self, items: &[usize]) -> &mut Vec<Kept<T>> {
        if self.items != items {
            self.rungs.clear();
            self.items = items.to_vec();
        }
        &mut self.rungs
    }
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
    ) -> Result<DeviceReport, SolveError> {
        check_apart(values, x)?;
        check_apart(b, x)?;
        self.with_staged_values(values, false, |solver, values| {
            solver.with_staged_vectors(b, None, x, |solver, b, x| {
                solver.complete(values, b, x, Matrices::Given)
            })
        })
    }

    /// Completes a solve of arrays in the order of solvers.
    pub(super) fn complete(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
        of: Matrices,
    ) -> Result<DeviceReport, SolveError> {
        let report = self.complete_watched(values, b, x, of);
        stopped(&self.options.watch, report)
    }

    fn complete_watched(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
        of: Matrices,
    ) -> Result<DeviceReport, SolveError> {
        let start = Instant::now();
        let Some(started) = self.started.filter(|started| started.of == of) else {
            return Err(not_enqueued());
        };
        self.plan.confirm(&self.confirmer, values, b, x)?;
        let first = self.first_outcomes()?;
        if let Some(watch) = &self.criteria.watch {
            watch.begin(self.systems());
            go_on(&self.criteria.watch)?;
            let of_plan = self.chosen.iter().map(|chosen| chosen.items.len()).sum::<usize>();
            watch.add(of_plan * self.options.nrhs);
        }
        let mut systems = match first {
            First::Solved(outcomes) => {
                let frame = self.report(Vec::new(), Vec::new(), start.elapsed());
                return Ok(DeviceReport::unlisted(outcomes, frame));
            }
            First::Left(systems) => systems,
        };
        let arrays = Arrays { values, b, x };
        let runs = self.finish_items(started, arrays, &mut systems)?;
        Ok(self.report(systems, runs, start.elapsed()).into())
    }

    /// How every system ended on the device. Waits for the solve, and for one copy.
    fn first_outcomes(&mut self) -> Result<First, SolveError> {
        let memory = self.on_host.get_mut().unwrap_or_else(PoisonError::into_inner);
        let ended = HostOutcomes::download(&self.executor, self.plan.outcome_arrays(), memory)?;
        Ok(match self.others.is_empty() && ended.all_converged() {
            true => First::Solved(ended),
            false => First::Left(ended.outcomes().map(SystemReport::first).collect()),
        })
    }

    /// Solves the items of other schemes and climbs the ladder with the systems that failed.
    fn finish_items(
        &mut self,
        started: Started,
        mut arrays: Arrays<'_, E, T>,
        systems: &mut [SystemReport],
    ) -> Result<Vec<RungRun>, SolveError> {
        let guess = started.guess;
        let (nitems, nrhs) = (self.extents.nitems(), self.options.nrhs);
        let mut others = std::mem::take(&mut self.others);
        let solved = others.iter_mut().try_for_each(|other| {
            go_on(&self.criteria.watch)?;
            self.solve_other(other, guess, &mut arrays, systems)
        });
        self.others = others;
        solved?;
        let left = self.left_by_the_plan(started, arrays.values, systems)?;
        let mut runs = Vec::new();
        for chosen in left {
            let count = chosen.items.len() * nrhs;
            let mut again = Other { chosen, analysed: None };
            self.solve_other(&mut again, guess, &mut arrays, systems)?;
            let placement = again.analysed.map(|analysed| analysed.placement());
            runs.extend(placement.map(|placement| RungRun::new(Rung::First, count, placement)));
        }
        let has_failed = |systems: &[SystemReport]| {
            systems.iter().any(|system| system.outcome.status != Status::Converged)
        };
        let items: Vec<usize> =
            (0..nitems).filter(|&i| has_failed(&systems[i * nrhs..(i + 1) * nrhs])).collect();
        go_on(&self.criteria.watch)?;
        if items.is_empty() {
            return Ok(runs);
        }
        let first = self.first_schemes();
        runs.extend(self.climb(&items, &first, guess, arrays, systems)?);
        Ok(runs)
    }

    /// The first scheme of every item.
    fn first_schemes(&self) -> Vec<Scheme> {
        let mut first = vec![self.scheme; self.extents.nitems()];
        for chosen in self.chosen.iter().chain(self.others.iter().map(|other| &other.chosen)) {
            chosen.items.iter().for_each(|&item| first[item] = chosen.scheme);
        }
        first
    }

    /// Copies items with failed systems to the host, climbs the ladder with these systems, and
    /// writes solutions and outcomes back to the device. `first` is the first scheme of every item
    /// of the batch. Returns the rungs that ran.
    fn climb(
        &mut self,
        items: &[usize],
        first: &[Scheme],
        guess: Guess,
        arrays: Arrays<'_, E, T>,
        systems: &mut [SystemReport],
    ) -> Result<Vec<RungRun>, SolveError> {
        let nrhs = self.options.nrhs;
        let list = ItemList::new(&self.executor, items, &self.extents, nrhs)?;
        let mut copied = self.copy(&list, items, guess, &arrays)?;
        if let Some(guesses) = &mut copied.guesses {
            let each = by_item(guesses, items, &self.extents, nrhs);
            let of_lu = each.filter(|(item, _)| first[*item].is_direct());
            of_lu.for_each(|(_, guess)| drop_lost(guess));
        }
        let places = systems_of(items, nrhs);
        let criteria = self.criteria.pick(&places);
        let mut some: Vec<SystemReport> = places.iter().map(|&s| systems[s].clone()).collect();
        self.keep_better(&mut copied, items, &criteria, &mut some);
        let mut runs = Vec::new();
        let some_first: Vec<Scheme> = items.iter().map(|&item| first[item]).collect();
        if self.options.fallback || some_first.iter().any(|first| first.has_fixed_order()) {
            // Plans of rungs hold the limits of their systems.
            let options = self.options.for_systems(&places);
            let backend = self.backend.with_options(&options);
            let mut site = HostSystems {
                backend: &*backend,
                batch: &copied.batch,
                options: &options,
                criteria: &criteria,
                b: &copied.b,
                x: &mut copied.x,
                kept: self.kept.of(items),
            };
            let ladder = Ladder { options: &options, first: &some_first };
            runs = ladder.climb(&mut site, &mut some)?;
        }
        self.put_back(&list, &copied.x, &some, arrays.x)?;
        for (place, report) in places.into_iter().zip(some) {
            systems[place] = report;
        }
        Ok(runs)
    }

    /// Items whose plan does less than their scheme does from the host, and which failed. Dense
    /// elimination leaves what it cannot solve to the CPU, and iterations leave matrices whose
    /// squares leave the range of the working precision. In guesses of factorisations NaN and
    /// infinities count as 0, which kernels do not know.
    fn left_by_the_plan(
        &self,
        started: Started,
        values: &E::Buffer<T>,
        systems: &[SystemReport],
    ) -> Result<Vec<Chosen>, SolveError> {
        let nrhs = self.options.nrhs;
        let ended = |item: usize, is: fn(Status) -> bool| {
            let own = &systems[item * nrhs..(item + 1) * nrhs];
            own.iter().any(|system| is(system.outcome.status))
        };
        let guesses = self.guesses.as_ref().filter(|_| started.guess == Guess::InX);
        let mut left = Vec::new();
        for chosen in &self.chosen {
            let those = |is: fn(Status) -> bool| {
                chosen.items.iter().copied().filter(|&item| ended(item, is)).collect::<Vec<_>>()
            };
            let items = match (chosen.scheme, guesses) {
                (Scheme::PivotingLu, _) => those(|status| status != Status::Converged),
                // They are to have factors of their own.
                _ if started.by == Factors::Near => those(|status| status != Status::Converged),
                (scheme, _) if scheme.krylov().is_some() => {
                    self.out_of_range(those(|status| status != Status::Converged), values)?
                }
                (_, Some(guesses)) => {
                    self.not_finite(those(|status| status == Status::NonFinite), guesses)?
                }
                (_, None) => Vec::new(),
            };
            if !items.is_empty() {
                left.push(Chosen { scheme: chosen.scheme, reason: chosen.reason.clone(), items });
            }
        }
        Ok(left)
    }

    /// Those of some items whose matrices the iterations of the CPU scale.
    fn out_of_range(
        &self,
        items: Vec<usize>,
        values: &E::Buffer<T>,
    ) -> Result<Vec<usize>, SolveError> {
        if items.is_empty() {
            return Ok(items);
        }
        let list = ItemList::new(&self.executor, &items, &self.extents, self.options.nrhs)?;
        let (values, is_shared) = self.values_of(&list, values)?;
        let batch = self.patterns.some(&items, values, is_shared)?;
        let places = OutOfRange::new(&batch).among((0..items.len()).collect(), |place| place);
        Ok(places.into_iter().map(|place| items[place]).collect())
    }

    /// The values of some items on the host, and whether all items share them.
    fn values_of(
        &self,
        list: &ItemList<E>,
        values: &E::Buffer<T>,
    ) -> Result<(Vec<T>, bool), SolveError> {
        let is_shared = self.patterns.shares(values.len());
        let values = match is_shared {
            true => self.executor.download(values)?,
            false => list.gather(ItemArray::Values, values)?,
        };
        Ok((values, is_shared))
    }

    /// Those of some items whose guesses have NaN or infinities.
    fn not_finite(
        &self,
        items: Vec<usize>,
        guesses: &E::Buffer<T>,
    ) -> Result<Vec<usize>, SolveError> {
        if items.is_empty() {
            return Ok(items);
        }
        let nrhs = self.options.nrhs;
        let list = ItemList::new(&self.executor, &items, &self.extents, nrhs)?;
        let mut guesses = list.gather(ItemArray::Rows, guesses)?;
        let each = by_item(&mut guesses, &items, &self.extents, nrhs);
        let is_finite = |guess: &[T]| guess.iter().all(|x| x.is_finite());
        Ok(each.filter(|(_, guess)| !is_finite(guess)).map(|(item, _)| item).collect())
    }

    /// Solves items that the plan does not take, or solves items once more.
    fn solve_other(
        &mut self,
        other: &mut Other<T>,
        guess: Guess,
        arrays: &mut Arrays<'_, E, T>,
        systems: &mut [SystemReport],
    ) -> Result<(), SolveError> {
        let (items, nrhs) = (&other.chosen.items, self.options.nrhs);
        let list = ItemList::new(&self.executor, items, &self.extents, nrhs)?;
        let mut copied = self.copy(&list, items, guess, arrays)?;
        copied.x = copied.guesses.take().unwrap_or_else(|| vec![T::ZERO; copied.x.len()]);
        if other.chosen.scheme.is_direct() {
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
        let (values, is_shared) = self.values_of(list, arrays.values)?;
        let guesses = self.guesses.as_ref().filter(|_| guess == Guess::InX);
        let guesses = guesses.map(|guesses| list.gather(ItemArray::Rows, guesses));
        Ok(Copied {
            batch: self.patterns.some(items, values, is_shared)?,
            b: list.gather(ItemArray::Rows, arrays.b)?,
            x: list.gather(ItemArray::Rows, &*arrays.x)?,
            guesses: guesses.transpose()?,
        })
    }

    /// Gives systems that did not converge the better of their guess and their x.
    fn keep_better(
        &self,
        copied: &mut Copied<T>,
        items: &[usize],
        criteria: &Criteria,
        systems: &mut [SystemReport],
    ) {
        let nrhs = self.options.nrhs;
        let Copied { batch, b, x, guesses } = copied;
        // Each system with the offset of its rows.
        let mut each = Vec::with_capacity(systems.len());
        let (mut rest, mut first) = (x.as_mut_slice(), 0);
        for (number, report) in systems.iter_mut().enumerate() {
            let nrows = self.extents.rows_of(items[number / nrhs]);
            let (own, after) = rest.split_at_mut(nrows);
            each.push((number, first, own, report));
            (rest, first) = (after, first + nrows);
        }
        each.into_par_iter().for_each_init(Vec::new, |values, (number, first, x, report)| {
            if report.outcome.status == Status::Converged {
                return;
            }
            let rows = first..first + x.len();
            let values = batch.values_in(number / nrhs, values);
            let pattern = self.patterns.item(items[number / nrhs]);
            let system = System::new(number, pattern, values, &b[rows.clone()], criteria);
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
        list.scatter(ItemArray::Rows, solutions, x)?;
        let outcomes: Vec<Outcome> = systems.iter().map(|system| system.outcome.clone()).collect();
        Ok(list.scatter_outcomes(&outcomes, self.plan.outcome_arrays_mut())?)
    }

    /// Bytes of the arrays that the solver holds besides those of its plan.
    fn own_bytes(&self) -> u64 {
        let guesses = self.guesses.as_ref().map_or(0, KernelBuffer::len);
        let kept = self.matrices.as_ref().map_or(0, |kept| kept.values.len());
        let transposed = self.transposed.as_ref().map_or(0, |transposed| transposed.bytes());
        let packed = self.plan.outcome_arrays().packed_bytes();
        self.staged_bytes() + transposed + packed + ((guesses + kept) * size_of::<T>()) as u64
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
            device_bytes: explained.bytes() + self.confirmer.bytes() + self.own_bytes(),
            cpu_reason: None,
            composed_reason: None,
            gpus: Vec::new(),
        };
        let of = |chosen: &Chosen, kernel: String| SchemeRun {
            scheme: chosen.scheme,
            systems: chosen.items.len() * self.options.nrhs,
            reason: chosen.reason.clone(),
            kernel,
        };
        let on_device = self.chosen.iter().filter(|chosen| {
            // A batch without items has a scheme all the same.
            !chosen.items.is_empty() || self.extents.nitems() == 0
        });
        let mut schemes: Vec<SchemeRun> =
            on_device.map(|chosen| of(chosen, explained.kernels_of(chosen.scheme))).collect();
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
        let mut runs = vec![RungRun::new(Rung::First, self.systems(), placement.clone())];
        runs.extend(later);
        BatchReport {
            systems,
            scheme: self.scheme,
            reason: self.reason.clone(),
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
