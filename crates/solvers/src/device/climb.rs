//! The ladder over systems whose data lies on the device.
//!
//! A rung has a plan of its own for the items that take it, [`DeviceRung`]. Their values and
//! right-hand sides are copied to its arrays on the device, and solutions that are better come back
//! from there; the host sees outcomes alone. Some rungs go through the host: static pivoting, which
//! needs the values; those with an item that no plan on the device takes, or for which memory is
//! short; and systems that a plan leaves to the CPU. So do the questions whether a matrix looks
//! semidefinite and whether it is singular.

use std::ops::Range;

use sparsebatch_cuda::{GpuError, KernelBuffer, copy_values, prepare_copy};
use sparsebatch_solve_core::verdict::System;
use sparsebatch_solve_core::{Criteria, Engine, Outcome, Scheme, Status};

use super::finish::{Arrays, Copied, SettledSystems};
use super::patterns::Patterns;
use super::{DeviceSolver, confirmer_of, plan_for};
use crate::backend::{Placement, SolveBackend};
use crate::choose::Chosen;
use crate::each::map_each;
use crate::gpu::{
    Confirmer, FailedSystem, GpuSolver, Guess, HostOutcomes, ItemArray, ItemExtents, ItemList,
    OutcomeMemory, Span, SpanList,
};
use crate::ladder::{
    Ended, HostSystems, Kept, LadderSystems, affordable, starts_from_x, take_better,
};
use crate::report::{Rung, RungRun, SystemReport};
use crate::share::{items_of, rows_of, systems_of};
use crate::{GpuExecutor, SolveError, SolveOptions, SolveScalar};

/// The analyses of rungs, kept for the next solve.
pub(super) struct KeptRungs<E: GpuExecutor, T: SolveScalar> {
    on_device: Vec<DeviceRung<E, T>>,
    on_host: Vec<HostRung<T>>,
    refused: Vec<RefusedRung>,
}

/// A rung that no plan on the device takes.
struct RefusedRung {
    of: (Rung, Scheme),
    /// The items; `None` for any, which have one pattern.
    items: Option<Vec<usize>>,
}

impl<E: GpuExecutor, T: SolveScalar> KeptRungs<E, T> {
    pub(super) fn new() -> Self {
        Self { on_device: Vec::new(), on_host: Vec::new(), refused: Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        self.on_device.clear();
        self.on_host.clear();
        self.refused.clear();
    }

    /// Drops plans that are too large for so many failed items.
    pub(super) fn release_for(&mut self, items: usize) {
        self.on_device.retain(|kept| kept.extents.nitems() <= MOST_IN_EXCESS * items);
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        self.on_device.iter().map(DeviceRung::bytes).sum()
    }

    fn is_refused(&self, of: (Rung, Scheme), items: &[usize]) -> bool {
        let takes = |own: &Option<Vec<usize>>| own.as_ref().is_none_or(|own| own == items);
        self.refused.iter().any(|refused| refused.of == of && takes(&refused.items))
    }
}

/// The analysis of a rung that goes through the host. It numbers items among those that take it, so
/// that it serves these alone.
struct HostRung<T> {
    of: (Rung, Scheme),
    items: Vec<usize>,
    kept: Vec<Kept<T>>,
}

/// The plan of a rung, and its arrays.
struct DeviceRung<E: GpuExecutor, T: SolveScalar> {
    of: (Rung, Scheme),
    /// The items; `None` where any items are taken, up to their number, since they have one pattern
    /// and common limits.
    items: Option<Vec<usize>>,
    extents: ItemExtents,
    plan: Box<dyn GpuSolver<E, T>>,
    confirmer: Confirmer<E, T>,
    /// Empty where items share their values.
    values: E::Buffer<T>,
    b: E::Buffer<T>,
    start: E::Buffer<T>,
    x: E::Buffer<T>,
    on_host: OutcomeMemory<E>,
}

/// A plan for any items of one pattern has room for at most this many times the items that take the
/// rung. The places that are left over have a right-hand side of 0.
const MOST_IN_EXCESS: usize = 4;

/// A plan of a rung, or why there is none.
enum Made<E: GpuExecutor, T: SolveScalar> {
    Rung(Box<DeviceRung<E, T>>),
    /// No plan takes all items.
    Refused,
    MemoryIsShort,
}

impl<E: GpuExecutor, T: SolveScalar> DeviceRung<E, T> {
    /// Analyses items.
    fn make(
        solver: &DeviceSolver<E, T>,
        of: (Rung, Scheme),
        items: &[usize],
        shares_values: bool,
    ) -> Result<Made<E, T>, SolveError> {
        match Self::try_new(solver, of, items, shares_values) {
            Err(SolveError::Unsupported { .. }) | Ok(None) => Ok(Made::Refused),
            Err(SolveError::Gpu(GpuError::OutOfMemory { .. })) => Ok(Made::MemoryIsShort),
            Err(error) => Err(error),
            Ok(Some(made)) => Ok(Made::Rung(Box::new(made))),
        }
    }

    /// As [`DeviceRung::make`]; `None` where a plan does not take all items.
    fn try_new(
        solver: &DeviceSolver<E, T>,
        of: (Rung, Scheme),
        items: &[usize],
        shares_values: bool,
    ) -> Result<Option<Self>, SolveError> {
        let DeviceSolver { executor, options, patterns, .. } = solver;
        let takes_any = solver.rungs_take_any();
        let own: Vec<usize> = match takes_any {
            true => (0..items.len().next_power_of_two().min(solver.extents.nitems())).collect(),
            false => items.to_vec(),
        };
        let batch = patterns.without_values(&own)?;
        let options = match takes_any {
            true => options.clone(),
            false => options.for_systems(&systems_of(&own, options.nrhs)),
        };
        // Products were asked for where the first rung iterates over some.
        let options = options.engine(Engine::Fused);
        let items_of_plan = (0..own.len()).collect();
        let chosen = Chosen { scheme: of.1, reason: String::new(), items: items_of_plan };
        let (_, refused, plan) = plan_for(executor, &batch, vec![chosen], &options)?;
        if !refused.is_empty() {
            return Ok(None);
        }
        let extents = ItemExtents::of(&batch);
        let rows = extents.total_rows() * options.nrhs;
        Ok(Some(Self {
            of,
            items: (!takes_any).then(|| items.to_vec()),
            plan,
            confirmer: confirmer_of(executor, &batch, &options)?,
            values: executor.alloc_zeroed(if shares_values {
                0
            } else {
                extents.total_values()
            })?,
            b: executor.alloc(rows)?,
            start: executor.alloc(rows)?,
            x: executor.alloc(rows)?,
            on_host: OutcomeMemory::default(),
            extents,
        }))
    }

    /// Whether it takes items by a scheme.
    fn serves(&self, of: (Rung, Scheme), items: &[usize], shares_values: bool) -> bool {
        let nitems = self.extents.nitems();
        let takes = match &self.items {
            Some(own) => own == items,
            None => (items.len()..=MOST_IN_EXCESS * items.len()).contains(&nitems),
        };
        // Without entries both are empty.
        let has_values = self.values.len() == self.extents.total_values();
        self.of == of && takes && (shares_values || has_values)
    }

    /// Bytes on the device.
    fn bytes(&self) -> u64 {
        let arrays = self.values.len() + self.b.len() + self.start.len() + self.x.len();
        let arrays = (arrays * size_of::<T>()) as u64;
        self.plan.explain().bytes() + self.confirmer.bytes() + arrays
    }

    fn placement(&self, executor: &E) -> Placement {
        let kernels = self.plan.explain().kernels();
        Placement::on_gpu(&executor.info().name, kernels, self.bytes())
    }
}

impl<E: GpuExecutor, T: SolveScalar> DeviceSolver<E, T> {
    /// Whether the plan of a rung takes any items: they have one pattern and common limits.
    fn rungs_take_any(&self) -> bool {
        matches!(self.patterns, Patterns::One { .. }) && !self.options.has_own_limits()
    }
}

/// What came of systems on a rung.
struct Tried {
    /// The outcome of each.
    outcomes: Vec<Outcome>,
    /// Those that did not converge.
    settled: SettledSystems,
}

/// The systems of a solve that climb.
pub(super) struct DeviceSystems<'a, E: GpuExecutor, T: SolveScalar> {
    pub(super) solver: &'a DeviceSolver<E, T>,
    pub(super) arrays: Arrays<'a, E, T>,
    pub(super) kept: &'a mut KeptRungs<E, T>,
    /// What was found of systems that did not converge, with their best x so far.
    pub(super) settled: SettledSystems,
}

impl<E: GpuExecutor, T: SolveScalar> LadderSystems for DeviceSystems<'_, E, T> {
    fn epsilon(&self) -> f64 {
        T::EPSILON.to_f64()
    }

    fn magnitudes(&mut self, systems: &[usize]) -> Result<Vec<Option<f64>>, SolveError> {
        let mut sizes: Vec<Option<f64>> = systems
            .iter()
            .map(|system| self.settled.get(system).map(|settled| settled.magnitude))
            .collect();
        let unknown: Vec<usize> = (0..sizes.len()).filter(|&k| sizes[k].is_none()).collect();
        if !unknown.is_empty() {
            let of: Vec<usize> = unknown.iter().map(|&place| systems[place]).collect();
            let mut copy = HostCopy::of(self, &of)?;
            let local = copy.local(&of);
            let found = copy.systems(&mut Vec::new()).magnitudes(&local)?;
            unknown.into_iter().zip(found).for_each(|(place, size)| sizes[place] = size);
        }
        Ok(sizes)
    }

    fn look_semidefinite(&mut self, items: &[usize]) -> Result<Vec<bool>, SolveError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let systems: Vec<usize> =
            items.iter().map(|item| item * self.solver.options.nrhs).collect();
        let mut copy = HostCopy::of(self, &systems)?;
        let local: Vec<usize> = (0..items.len()).collect();
        copy.systems(&mut Vec::new()).look_semidefinite(&local)
    }

    fn affordable(&self, items: &[usize]) -> Result<Vec<usize>, SolveError> {
        let batch = self.solver.patterns.without_values(items)?;
        let local: Vec<usize> = (0..items.len()).collect();
        let within = affordable(&batch, &local, self.solver.options.fallback_budget);
        Ok(within.into_iter().map(|place| items[place]).collect())
    }

    fn attempt(
        &mut self,
        of: (Rung, Scheme),
        asked: &[usize],
        systems: &mut [SystemReport],
    ) -> Result<Ended, SolveError> {
        let (rung, scheme) = of;
        let items = items_of(asked, self.solver.options.nrhs);
        let Some(place) = self.rung(of, &items)? else {
            return self.attempt_from_host(of, asked, systems);
        };
        let Tried { outcomes, settled } = self.solve(place, &items, asked, systems)?;
        let lost = self.left_by_plans(scheme, asked, &outcomes, &settled)?;
        if let Some(watch) = &self.solver.criteria.watch {
            watch.add(asked.len() - lost.len());
        }
        let mut statuses = Vec::with_capacity(asked.len());
        let mut better = Vec::new();
        for (&system, outcome) in asked.iter().zip(outcomes) {
            if lost.binary_search(&system).is_ok() {
                statuses.push(None);
                continue;
            }
            statuses.push(Some(outcome.status));
            if take_better(&mut systems[system], rung, outcome) {
                better.push(system);
                match settled.get(&system) {
                    Some(&settled) => self.settled.insert(system, settled),
                    None => self.settled.remove(&system),
                };
            }
        }
        self.take(place, &items, &better)?;
        let placement = self.kept.on_device[place].placement(&self.solver.executor);
        let mut runs = Vec::new();
        if lost.len() < asked.len() {
            runs.push(RungRun::new(rung, asked.len() - lost.len(), placement));
        }
        if !lost.is_empty() {
            let ended = self.attempt_from_host(of, &lost, systems)?;
            for (system, status) in lost.into_iter().zip(ended.statuses) {
                let place = asked.binary_search(&system);
                place.into_iter().for_each(|place| statuses[place] = status);
            }
            runs.extend(ended.runs);
        }
        Ok(Ended { statuses, runs })
    }

    fn are_singular(&mut self, systems: &[usize]) -> Result<Vec<bool>, SolveError> {
        let mut copy = HostCopy::of(self, systems)?;
        let local = copy.local(systems);
        copy.systems(&mut Vec::new()).are_singular(&local)
    }
}

impl<E: GpuExecutor, T: SolveScalar> DeviceSystems<'_, E, T> {
    fn shares_values(&self) -> bool {
        self.solver.patterns.shares(self.arrays.values.len())
    }

    /// The place of a plan for items among those that are kept; `None` for what goes through the
    /// host.
    fn rung(&mut self, of: (Rung, Scheme), items: &[usize]) -> Result<Option<usize>, SolveError> {
        if of.0 == Rung::StaticPivotingLu {
            return Ok(None);
        }
        let shares_values = self.shares_values();
        let kept = &mut self.kept.on_device;
        if let Some(place) = kept.iter().position(|kept| kept.serves(of, items, shares_values)) {
            return Ok(Some(place));
        }
        // The old plan is dropped first, to free its memory.
        kept.retain(|kept| kept.of != of);
        if self.kept.is_refused(of, items) {
            return Ok(None);
        }
        match DeviceRung::make(self.solver, of, items, shares_values)? {
            Made::Rung(made) => {
                self.kept.on_device.push(*made);
                return Ok(Some(self.kept.on_device.len() - 1));
            }
            Made::Refused => {
                let own = (!self.solver.rungs_take_any()).then(|| items.to_vec());
                self.kept.refused.retain(|refused| refused.of != of);
                self.kept.refused.push(RefusedRung { of, items: own });
            }
            // What other rungs hold may be what is missing on the host's way.
            Made::MemoryIsShort => self.kept.on_device.clear(),
        }
        Ok(None)
    }

    /// Copies items to the arrays of a rung, and the best x so far of the systems asked for where
    /// it is better than 0. Returns before the launches are done, which the lists must outlive.
    fn load(
        &mut self,
        place: usize,
        items: &[usize],
        asked: &[usize],
        systems: &[SystemReport],
    ) -> Result<(Guess, Vec<SpanList<E>>), SolveError> {
        let shares_values = self.shares_values();
        let DeviceSolver { executor, options, extents, .. } = self.solver;
        let (nrhs, arrays) = (options.nrhs, &self.arrays);
        let kept = &mut self.kept.on_device[place];
        let spans = |array: ItemArray, of: &ItemExtents| -> Vec<Span> {
            let each = items.iter().enumerate().map(|(number, &item)| Span {
                from: extents.span_of(array, item, nrhs),
                to: of.span_of(array, number, nrhs).start,
            });
            each.collect()
        };
        let mut lists = Vec::new();
        if !shares_values {
            let list = SpanList::new(executor, &spans(ItemArray::Values, &kept.extents))?;
            list.copy(arrays.values, &mut kept.values)?;
            lists.push(list);
        }
        executor.fill_zero(&mut kept.b)?;
        let list = SpanList::new(executor, &spans(ItemArray::Rows, &kept.extents))?;
        list.copy(arrays.b, &mut kept.b)?;
        lists.push(list);
        let starts_from_x = |&&system: &&usize| starts_from_x(&systems[system].outcome);
        let from_x = asked.iter().filter(starts_from_x).map(|&system| Span {
            from: extents.rows_of_system(system, nrhs),
            to: kept.extents.rows_of_system(own_number(items, system, nrhs), nrhs).start,
        });
        let from_x: Vec<Span> = from_x.collect();
        if from_x.is_empty() {
            return Ok((Guess::Zero, lists));
        }
        let list = SpanList::new(executor, &from_x)?;
        executor.fill_zero(&mut kept.x)?;
        list.copy(&*arrays.x, &mut kept.x)?;
        prepare_copy::<T>(executor)?;
        copy_values(executor, &kept.x, &mut kept.start)?;
        lists.push(list);
        Ok((Guess::InX, lists))
    }

    /// Solves systems by the plan of a rung.
    fn solve(
        &mut self,
        place: usize,
        items: &[usize],
        asked: &[usize],
        systems: &[SystemReport],
    ) -> Result<Tried, SolveError> {
        let (guess, lists) = self.load(place, items, asked, systems)?;
        let shares_values = self.shares_values();
        let DeviceSolver { executor, options, .. } = self.solver;
        let kept = &mut self.kept.on_device[place];
        let values = if shares_values { self.arrays.values } else { &kept.values };
        kept.plan.solve(values, &kept.b, guess, &mut kept.x)?;
        kept.plan.confirm(&kept.confirmer, values, &kept.b, &kept.x)?;
        let ended =
            HostOutcomes::download(executor, kept.plan.outcome_arrays(), &mut kept.on_host)?;
        drop(lists);
        let own = |system: &usize| own_number(items, *system, options.nrhs);
        let histories = kept.plan.histories();
        let outcome = |system: &usize| Outcome {
            history: histories.get(own(system)).cloned().unwrap_or_default(),
            ..ended.outcome(own(system))
        };
        let mut outcomes: Vec<Outcome> = asked.iter().map(outcome).collect();
        let failed: Vec<usize> =
            (0..asked.len()).filter(|&place| outcomes[place].status != Status::Converged).collect();
        let listed: Vec<FailedSystem> = failed
            .iter()
            .map(|&place| FailedSystem { system: own(&asked[place]), drops_lost_guess: false })
            .collect();
        let settled = kept.confirmer.settle(
            kept.plan.outcome_arrays_mut(),
            &listed,
            (values, &kept.b),
            (guess == Guess::InX).then_some(&mut kept.start),
            &mut kept.x,
        )?;
        for (&place, settled) in failed.iter().zip(&settled) {
            let before = &systems[asked[place]].outcome;
            let outcome = &mut outcomes[place];
            outcome.residual_norm = match settled.is_restored {
                true if settled.residual_norm.is_finite() => of_start(before, outcome.rhs_norm),
                _ => settled.residual_norm,
            };
        }
        let settled = failed.into_iter().map(|place| asked[place]).zip(settled).collect();
        Ok(Tried { outcomes, settled })
    }

    /// Replaces the x of systems by those of a rung.
    fn take(&mut self, place: usize, items: &[usize], systems: &[usize]) -> Result<(), SolveError> {
        if systems.is_empty() {
            return Ok(());
        }
        let DeviceSolver { executor, options, extents, .. } = self.solver;
        let kept = &self.kept.on_device[place];
        let span = |&system: &usize| Span {
            from: kept
                .extents
                .rows_of_system(own_number(items, system, options.nrhs), options.nrhs),
            to: extents.rows_of_system(system, options.nrhs).start,
        };
        let spans: Vec<Span> = systems.iter().map(span).collect();
        let list = SpanList::new(executor, &spans)?;
        list.copy(&kept.x, self.arrays.x)?;
        // The list must outlive the launch.
        Ok(executor.synchronize()?)
    }

    /// The systems that a plan has tried and that are the CPU's, ascending: what dense elimination
    /// does not solve, and iterations with matrices whose squares leave the range of the working
    /// precision.
    fn left_by_plans(
        &self,
        scheme: Scheme,
        asked: &[usize],
        outcomes: &[Outcome],
        settled: &SettledSystems,
    ) -> Result<Vec<usize>, SolveError> {
        let nrhs = self.solver.options.nrhs;
        let each = asked.iter().zip(outcomes);
        let failed: Vec<usize> = each
            .filter(|(_, outcome)| outcome.status != Status::Converged)
            .map(|(&system, _)| system)
            .collect();
        if scheme == Scheme::PivotingLu {
            return Ok(failed);
        }
        if scheme.krylov().is_none() {
            return Ok(Vec::new());
        }
        let items = items_of(&failed, nrhs);
        let items = self.solver.out_of_range(items, self.arrays.values, settled)?;
        let is_left = |system: &usize| items.binary_search(&(system / nrhs)).is_ok();
        Ok(failed.into_iter().filter(is_left).collect())
    }

    /// A rung by way of the host.
    fn attempt_from_host(
        &mut self,
        of: (Rung, Scheme),
        asked: &[usize],
        systems: &mut [SystemReport],
    ) -> Result<Ended, SolveError> {
        let mut copy = HostCopy::of(self, asked)?;
        let local = copy.local(asked);
        let mut some: Vec<SystemReport> = copy.places.iter().map(|&s| systems[s].clone()).collect();
        // Residuals are compared, so that both are to be evaluated alike.
        copy.evaluate(&local, &mut some);
        let kept = &mut self.kept.on_host;
        kept.retain(|kept| kept.of != of || kept.items == copy.items);
        let place = match kept.iter().position(|kept| kept.of == of) {
            Some(place) => place,
            None => {
                kept.push(HostRung { of, items: copy.items.clone(), kept: Vec::new() });
                kept.len() - 1
            }
        };
        let ended = copy.systems(&mut kept[place].kept).attempt(of, &local, &mut some)?;
        copy.list.scatter(ItemArray::Rows, &copy.copied.x, self.arrays.x)?;
        for (&system, &own) in asked.iter().zip(&local) {
            systems[system] = some[own].clone();
            let outcome = &mut systems[system].outcome;
            let mut x = copy.copied.x[copy.rows_of(own)].iter();
            if outcome.residual_norm.is_finite() && x.all(|&x| x == T::ZERO) {
                // That of the device, with which later rungs compare.
                outcome.residual_norm = outcome.rhs_norm;
            }
            self.settled.remove(&system);
        }
        Ok(ended)
    }
}

/// The residual norm of what a rung started from: the x before, or 0 unless that was better. It is
/// that of the report where the two are equal but for roundings, which make no x better.
fn of_start(before: &Outcome, rhs_norm: f64) -> f64 {
    if before.residual_norm <= rhs_norm * (1.0 + EQUAL) { before.residual_norm } else { rhs_norm }
}

/// Norms that differ by this fraction at most may be those of the same vector.
const EQUAL: f64 = 1e-12;

/// The number of a system among those of some items.
fn own_number(items: &[usize], system: usize, nrhs: usize) -> usize {
    items.partition_point(|&item| item < system / nrhs) * nrhs + system % nrhs
}

/// The items of some systems, copied to the host.
struct HostCopy<E: GpuExecutor, T: SolveScalar> {
    items: Vec<usize>,
    list: ItemList<E>,
    /// The systems of all items.
    places: Vec<usize>,
    backend: Box<dyn SolveBackend<T>>,
    options: SolveOptions,
    criteria: Criteria,
    copied: Copied<T>,
    /// Memory for the solutions of a rung.
    trial: Vec<T>,
}

impl<E: GpuExecutor, T: SolveScalar> HostCopy<E, T> {
    fn of(site: &DeviceSystems<'_, E, T>, systems: &[usize]) -> Result<Self, SolveError> {
        let (solver, arrays) = (site.solver, &site.arrays);
        let nrhs = solver.options.nrhs;
        let items = items_of(systems, nrhs);
        let places = systems_of(&items, nrhs);
        let list = ItemList::new(&solver.executor, &items, &solver.extents, nrhs)?;
        // Plans of rungs hold the limits of their systems.
        let options = solver.options.for_systems(&places);
        Ok(Self {
            backend: solver.backend.with_options(&options),
            criteria: solver.criteria.pick(&places),
            copied: solver.copy(&list, &items, arrays, Some(&*arrays.x))?,
            trial: Vec::new(),
            items,
            list,
            places,
            options,
        })
    }

    /// The numbers of some systems among those that were copied.
    fn local(&self, systems: &[usize]) -> Vec<usize> {
        let nrhs = self.options.nrhs;
        systems.iter().map(|&system| own_number(&self.items, system, nrhs)).collect()
    }

    fn systems<'a>(&'a mut self, kept: &'a mut Vec<Kept<T>>) -> HostSystems<'a, T> {
        HostSystems {
            backend: &*self.backend,
            batch: &self.copied.batch,
            options: &self.options,
            criteria: &self.criteria,
            b: &self.copied.b,
            x: &mut self.copied.x,
            trial: &mut self.trial,
            kept,
        }
    }

    /// The rows of a system that was copied.
    fn rows_of(&self, number: usize) -> Range<usize> {
        rows_of(&self.copied.batch, self.options.nrhs, number)
    }

    /// Evaluates the residuals of systems that did not converge.
    fn evaluate(&self, numbers: &[usize], systems: &mut [SystemReport]) {
        let (nrhs, Copied { batch, b, x }) = (self.options.nrhs, &self.copied);
        let of = |number: usize| {
            let rows = self.rows_of(number);
            let mut copy = Vec::new();
            let values = batch.values_in(number / nrhs, &mut copy);
            let (pattern, b) = (batch.pattern(number / nrhs), &b[rows.clone()]);
            let x = x[rows].to_vec();
            let mut outcome = systems[number].outcome.clone();
            let system = System::new(number, pattern, values, b, &self.criteria);
            system.confirm(Some(&x), &mut x.clone(), &mut outcome);
            outcome.residual_norm
        };
        let norms = map_each(numbers.to_vec(), of);
        for (&number, norm) in numbers.iter().zip(norms) {
            systems[number].outcome.residual_norm = norm;
        }
    }
}
