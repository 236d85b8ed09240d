//! How a solve is finished: verdicts, items of other schemes, the ladder, the report.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use sparsebatch_cuda::{Executor, KernelBuffer};
use sparsebatch_formats::Batch;
use sparsebatch_solve_core::verdict::needs_no_scale;
use sparsebatch_solve_core::{ArgumentError, Engine, Outcome, Scheme, Status};

use super::climb::{DeviceSystems, KeptRungs};
use super::patterns::by_item;
use super::report::DeviceReport;
use super::{DeviceSolver, Factors, Matrices, Other, Started};
use crate::backend::{OutOfRange, Placement};
use crate::choose::Chosen;
use crate::error::{go_on, stopped};
use crate::gpu::{
    FailedSystem, Guess, HostOutcomes, ItemArray, ItemList, LaunchReport, PlanReport, Settled,
    check_apart,
};
use crate::ladder::Ladder;
use crate::report::{BatchReport, Rung, RungRun, SchemeRun, SystemReport};
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
pub(super) struct Arrays<'a, E: Executor, T: SolveScalar> {
    pub(super) values: &'a E::Buffer<T>,
    pub(super) b: &'a E::Buffer<T>,
    pub(super) x: &'a mut E::Buffer<T>,
}

/// What was found of systems that did not converge, by their numbers.
pub(super) type SettledSystems = HashMap<usize, Settled>;

/// The systems that did not converge.
fn failed_systems(systems: &[SystemReport]) -> Vec<usize> {
    let has_failed = |system: &usize| systems[*system].outcome.status != Status::Converged;
    (0..systems.len()).filter(has_failed).collect()
}

/// The error of a finish without a solve of its kind.
pub(super) fn not_enqueued() -> SolveError {
    SolveError::Argument(ArgumentError::OutOfRange {
        name: "finish",
        expected: "a solve of its kind that was enqueued before",
        found: "none".to_owned(),
    })
}

/// Some items of a solve, copied to the host.
pub(super) struct Copied<T> {
    pub(super) batch: Batch<T>,
    pub(super) b: Vec<T>,
    pub(super) x: Vec<T>,
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
        // A graph may be launched again.
        self.started = Some(Started { launching: Duration::ZERO, ..started });
        self.plan.confirm(&self.confirmer, values, b, x)?;
        let first = self.first_outcomes()?;
        if let Some(watch) = &self.criteria.watch {
            watch.begin(self.active_systems());
            go_on(&self.criteria.watch)?;
            let of_others = self.others.iter().map(|other| other.chosen.items.len()).sum::<usize>();
            watch.add((self.active - of_others) * self.options.nrhs);
        }
        let mut systems = match first {
            First::Solved(outcomes) => {
                let time = started.launching + start.elapsed();
                let frame = self.report(Vec::new(), Vec::new(), time)?;
                return Ok(DeviceReport::unlisted(outcomes, frame));
            }
            First::Left(systems) => systems,
        };
        let arrays = Arrays { values, b, x };
        let runs = self.finish_items(started, arrays, &mut systems)?;
        Ok(self.report(systems, runs, started.launching + start.elapsed())?.into())
    }

    /// How every system ended on the device. Waits for the solve, and for one copy.
    fn first_outcomes(&mut self) -> Result<First, SolveError> {
        let memory = self.on_host.get_mut().unwrap_or_else(PoisonError::into_inner);
        let ended = HostOutcomes::download(&self.executor, self.plan.outcome_arrays(), memory)?
            .of_first(self.active * self.options.nrhs);
        if self.others.is_empty() && ended.all_converged() && !self.options.history {
            return Ok(First::Solved(ended));
        }
        let mut systems: Vec<SystemReport> = ended.outcomes().map(SystemReport::first).collect();
        let each = systems.iter_mut().zip(self.plan.histories());
        each.for_each(|(system, history)| system.outcome.history = history);
        Ok(First::Left(systems))
    }

    /// Solves the items of other schemes and climbs the ladder with the systems that failed.
    fn finish_items(
        &mut self,
        started: Started,
        mut arrays: Arrays<'_, E, T>,
        systems: &mut [SystemReport],
    ) -> Result<Vec<RungRun>, SolveError> {
        let guess = started.guess;
        let nrhs = self.options.nrhs;
        let mut others = std::mem::take(&mut self.others);
        let solved = others.iter_mut().try_for_each(|other| {
            go_on(&self.criteria.watch)?;
            self.solve_other(other, guess, &mut arrays, systems)
        });
        self.others = others;
        solved?;
        let first = self.first_schemes();
        let mut left = self.lost_guesses(started, systems)?;
        let mut settled = self.settle(&first, guess, &mut arrays, systems)?;
        left.extend(self.left_by_the_plan(started, arrays.values, systems, &settled)?);
        let mut runs = Vec::new();
        for chosen in left {
            let count = chosen.items.len() * nrhs;
            let mut again = Other { chosen, analysed: None };
            self.solve_other(&mut again, guess, &mut arrays, systems)?;
            // They have another x now.
            for system in systems_of(&again.chosen.items, nrhs) {
                settled.remove(&system);
            }
            let placement = again.analysed.map(|analysed| analysed.placement());
            runs.extend(placement.map(|placement| RungRun::new(Rung::First, count, placement)));
        }
        let failed = failed_systems(systems);
        go_on(&self.criteria.watch)?;
        let has_fixed_order = |system: &usize| first[system / nrhs].has_fixed_order();
        if !failed.is_empty() && (self.options.fallback || failed.iter().any(has_fixed_order)) {
            runs.extend(self.climb(&failed, &first, settled, arrays, systems)?);
        }
        Ok(runs)
    }

    /// Gives failed systems the better of their guess and their x. `first` is the first scheme of
    /// every item.
    fn settle(
        &mut self,
        first: &[Scheme],
        guess: Guess,
        arrays: &mut Arrays<'_, E, T>,
        systems: &mut [SystemReport],
    ) -> Result<SettledSystems, SolveError> {
        let failed = failed_systems(systems);
        // Factorisations need no guess.
        let drops = |system: usize| first[system / self.options.nrhs].is_direct();
        let listed: Vec<FailedSystem> = failed
            .iter()
            .map(|&system| FailedSystem { system, drops_lost_guess: drops(system) })
            .collect();
        let settled = self.confirmer.settle(
            self.plan.outcome_arrays_mut(),
            &listed,
            (arrays.values, arrays.b),
            self.guesses.as_mut().filter(|_| guess == Guess::InX),
            arrays.x,
        )?;
        for (&system, settled) in failed.iter().zip(&settled) {
            systems[system].outcome.residual_norm = settled.residual_norm;
        }
        Ok(failed.into_iter().zip(settled).collect())
    }

    /// The first scheme of every item.
    fn first_schemes(&self) -> Vec<Scheme> {
        let mut first = vec![self.scheme; self.extents.nitems()];
        for chosen in self.chosen.iter().chain(self.others.iter().map(|other| &other.chosen)) {
            chosen.items.iter().for_each(|&item| first[item] = chosen.scheme);
        }
        first
    }

    /// Climbs the ladder with failed systems, and writes their outcomes to the device. `first` is
    /// the first scheme of every item. Returns the rungs that ran.
    fn climb(
        &mut self,
        failed: &[usize],
        first: &[Scheme],
        settled: SettledSystems,
        arrays: Arrays<'_, E, T>,
        systems: &mut [SystemReport],
    ) -> Result<Vec<RungRun>, SolveError> {
        let mut kept = std::mem::replace(&mut self.kept, KeptRungs::new());
        kept.release_for(failed.len().div_ceil(self.options.nrhs));
        let mut site = DeviceSystems { solver: self, arrays, kept: &mut kept, settled };
        let ladder = Ladder { options: &self.options, first };
        let runs = ladder.climb(&mut site, systems);
        self.kept = kept;
        let runs = runs?;
        self.put_outcomes(failed, systems)?;
        Ok(runs)
    }

    /// Writes the outcomes of some systems to the device.
    fn put_outcomes(&mut self, some: &[usize], systems: &[SystemReport]) -> Result<(), SolveError> {
        let outcomes: Vec<Outcome> = some.iter().map(|&s| systems[s].outcome.clone()).collect();
        Ok(self.plan.outcome_arrays_mut().overwrite(&self.executor, some, &outcomes)?)
    }

    /// Items for whose factorisations NaN and infinities in guesses count as 0, which kernels do
    /// not know, and which failed with such a guess.
    fn lost_guesses(
        &self,
        started: Started,
        systems: &[SystemReport],
    ) -> Result<Vec<Chosen>, SolveError> {
        let Some(guesses) = self.guesses.as_ref().filter(|_| started.guess == Guess::InX) else {
            return Ok(Vec::new());
        };
        let direct = self.chosen.iter().filter(|chosen| {
            chosen.scheme != Scheme::PivotingLu && chosen.scheme.krylov().is_none()
        });
        // The others are to have factors of their own.
        let of_plan = direct.filter(|_| started.by != Factors::Near);
        let mut lost = Vec::new();
        for chosen in of_plan {
            let items = self.ended(chosen, systems, |status| status == Status::NonFinite);
            let items = self.not_finite(items, guesses)?;
            lost.extend(chosen.with_items(items));
        }
        Ok(lost)
    }

    /// The items of a share that take part.
    fn active_items<'a>(&self, chosen: &'a Chosen) -> impl Iterator<Item = usize> + 'a {
        let active = self.active;
        chosen.items.iter().copied().take_while(move |&item| item < active)
    }

    /// The items of a share with a system that ended in a certain way.
    fn ended(
        &self,
        chosen: &Chosen,
        systems: &[SystemReport],
        is: fn(Status) -> bool,
    ) -> Vec<usize> {
        let nrhs = self.options.nrhs;
        let ended = |item: usize| {
            let own = &systems[item * nrhs..(item + 1) * nrhs];
            own.iter().any(|system| is(system.outcome.status))
        };
        self.active_items(chosen).filter(|&item| ended(item)).collect()
    }

    /// Items whose plan does less than their scheme does from the host, and which failed: dense
    /// elimination leaves what it cannot solve to the CPU, and iterations leave matrices whose
    /// squares leave the range of the working precision.
    fn left_by_the_plan(
        &self,
        started: Started,
        values: &E::Buffer<T>,
        systems: &[SystemReport],
        settled: &SettledSystems,
    ) -> Result<Vec<Chosen>, SolveError> {
        let mut left = Vec::new();
        for chosen in &self.chosen {
            let failed = || self.ended(chosen, systems, |status| status != Status::Converged);
            let items = match chosen.scheme {
                Scheme::PivotingLu => failed(),
                // They are to have factors of their own.
                _ if started.by == Factors::Near => failed(),
                scheme if scheme.krylov().is_some() => {
                    self.out_of_range(failed(), values, settled)?
                }
                _ => Vec::new(),
            };
            left.extend(chosen.with_items(items));
        }
        Ok(left)
    }

    /// Those of some items whose matrices the iterations of the CPU scale. The norms of most
    /// matrices show that they are none of these; the values of others are looked at.
    pub(super) fn out_of_range(
        &self,
        mut items: Vec<usize>,
        values: &E::Buffer<T>,
        settled: &SettledSystems,
    ) -> Result<Vec<usize>, SolveError> {
        let nrhs = self.options.nrhs;
        items.retain(|&item| {
            let mut own = (item * nrhs..(item + 1) * nrhs).filter_map(|s| settled.get(&s));
            let count = self.patterns.item(item).nnz();
            // The sums of norms have other roundings.
            let is_plain = |norm: f64| {
                [0.5 * norm, 2.0 * norm].iter().all(|&norm| needs_no_scale::<T>(norm, count))
            };
            !own.next().is_some_and(|settled| is_plain(settled.matrix_norm))
        });
        if items.is_empty() {
            return Ok(items);
        }
        let list = ItemList::new(&self.executor, &items, &self.extents, nrhs)?;
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
        let guesses = self.guesses.as_ref().filter(|_| guess == Guess::InX);
        let mut copied = self.copy(&list, items, arrays, guesses)?;
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
        let Copied { batch, b, x } = &mut copied;
        let outcomes = analysed.solve(batch, nrhs, b, x, &criteria, None)?;
        let some: Vec<_> = outcomes.into_iter().map(SystemReport::first).collect();
        list.scatter(ItemArray::Rows, x, arrays.x)?;
        for (&place, report) in places.iter().zip(some) {
            systems[place] = report;
        }
        self.put_outcomes(&places, systems)
    }

    /// Copies some items to the host, with their rows of `x`, or zeros without it.
    pub(super) fn copy(
        &self,
        list: &ItemList<E>,
        items: &[usize],
        arrays: &Arrays<'_, E, T>,
        x: Option<&E::Buffer<T>>,
    ) -> Result<Copied<T>, SolveError> {
        let (values, is_shared) = self.values_of(list, arrays.values)?;
        let x = x.map(|x| list.gather(ItemArray::Rows, x)).transpose()?;
        Ok(Copied {
            batch: self.patterns.some(items, values, is_shared)?,
            b: list.gather(ItemArray::Rows, arrays.b)?,
            x: x.unwrap_or_else(|| vec![T::ZERO; list.len(ItemArray::Rows)]),
        })
    }

    /// Bytes of the arrays that the solver holds besides those of its plan.
    fn own_bytes(&self) -> u64 {
        let guesses = self.guesses.as_ref().map_or(0, KernelBuffer::len);
        let kept = self.matrices.as_ref().map_or(0, |kept| kept.values.len());
        let transposed = self.transposed.as_ref().map_or(0, |transposed| transposed.bytes());
        let packed = self.plan.outcome_arrays().packed_bytes();
        let arrays = ((guesses + kept) * size_of::<T>()) as u64;
        self.staged_bytes() + transposed + packed + self.kept.bytes() + arrays
    }

    /// The placement of what the plan solves, and the format of its products.
    fn placement(&self, explained: &PlanReport) -> (Placement, &'static str) {
        let bytes = explained.bytes() + self.confirmer.bytes() + self.own_bytes();
        let mut placement =
            Placement::on_gpu(&self.executor.info().name, explained.kernels(), bytes);
        let composed = || explained.launches.iter().filter_map(LaunchReport::composed);
        let whys = explained.launches.iter().filter_map(|launch| {
            let reason = launch.composed()?.reason.as_ref()?;
            let systems = self.systems();
            Some(format!("{} of {systems} systems: {reason}", launch.systems))
        });
        let whys: Vec<String> = whys.collect();
        placement.composed_reason = (!whys.is_empty()).then(|| whys.join("; "));
        let all_composed = composed().count() == explained.launches.len();
        let format = composed().next().filter(|_| all_composed).map_or("csr", |of| of.format);
        (placement, format)
    }

    fn report(
        &mut self,
        systems: Vec<SystemReport>,
        later: Vec<RungRun>,
        solve_time: Duration,
    ) -> Result<BatchReport, SolveError> {
        let product_cost = match self.options.engine {
            Engine::Composed(_) => self.plan.product_cost()?.map(|cost| cost.within(solve_time)),
            Engine::Fused => None,
        };
        let explained = self.plan.explain();
        let (of_plan, format) = self.placement(&explained);
        let of = |chosen: &Chosen, kernel: String| SchemeRun {
            scheme: chosen.scheme,
            systems: self.active_items(chosen).count() * self.options.nrhs,
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
        let mut runs = vec![RungRun::new(Rung::First, self.active_systems(), placement.clone())];
        runs.extend(later);
        Ok(BatchReport {
            systems,
            scheme: self.scheme,
            reason: self.reason.clone(),
            schemes,
            backend: placement.backend,
            device: placement.device,
            format,
            kernel: placement.kernel,
            runs,
            plan_time: self.plan_time,
            solve_time,
            product_cost,
        })
    }
}
