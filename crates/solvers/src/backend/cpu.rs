//! The CPU: solves in SIMD lanes, and the primitives over rayon and an SpMV plan.

use std::ops::Range;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use sparsebatch_cpu_ref::lanes::{self, LaneOptions, LanePlan, SystemPreconditioner};
use sparsebatch_cpu_ref::pivoting_lu::{PivotingLu, PivotingLuError};
use sparsebatch_cpu_ref::{CpuError, CpuScalar, Isa, SpmvPlan};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solve_core::verdict::{Stop, System};
use sparsebatch_solve_core::{
    Criteria, Outcome, Scheme, SolveOptions, SpmvOptions, Status, is_stopped,
};

use super::{AnalysedSolve, KeptFactors, Placement, Primitives, SolveBackend};
use crate::composed::offsets_of;
use crate::products::ComposedEngine;
use crate::report::{Machine, Rung};
use crate::{LinOp, SolveError};

/// All cores of rayon's current pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuBackend;

impl CpuBackend {
    /// The placement of a kernel on the CPU.
    pub(crate) fn placement(kernel: String) -> Placement {
        let device = format!("{} threads, {}", rayon::current_num_threads(), Isa::best().name());
        let (device_bytes, cpu_reason, composed_reason) = (0, None, None);
        Placement {
            backend: Machine::Cpu,
            device,
            kernel,
            chunks: 1,
            device_bytes,
            cpu_reason,
            composed_reason,
            gpus: Vec::new(),
        }
    }
}

impl<T: CpuScalar> SolveBackend<T> for CpuBackend {
    fn with_options(&self, _: &SolveOptions) -> Box<dyn SolveBackend<T>> {
        Box::new(*self)
    }

    fn analyse_composed(
        &self,
        batch: &Batch<T>,
        scheme: Scheme,
        spmv: &SpmvOptions,
        nrhs: usize,
    ) -> Result<Box<dyn AnalysedSolve<T>>, SolveError> {
        Ok(Box::new(ComposedEngine::new(batch, scheme, spmv, nrhs, None)?))
    }

    fn analyse(
        &self,
        batch: &Batch<T>,
        (_, scheme): (Rung, Scheme),
        only: Option<&[usize]>,
    ) -> Result<Box<dyn AnalysedSolve<T>>, SolveError> {
        if scheme == Scheme::PivotingLu {
            return Ok(Box::new(Pivoting));
        }
        let plan = LanePlan::new(batch, scheme, LaneOptions::default(), only)?;
        Ok(Box::new(Lanes { scheme, plan }))
    }
}

struct Lanes {
    scheme: Scheme,
    plan: LanePlan,
}

impl<T: CpuScalar> AnalysedSolve<T> for Lanes {
    fn placement(&self) -> Placement {
        let kind = if self.scheme == Scheme::Lu { "lanes-lu" } else { "lanes" };
        CpuBackend::placement(format!("{kind} {} x {}", self.plan.isa().name(), self.plan.lanes()))
    }

    fn solve(
        &mut self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
        only: Option<&[usize]>,
    ) -> Result<Vec<Outcome>, SolveError> {
        Ok(self.plan.solve(batch, nrhs, b, x, criteria, only)?)
    }

    fn kept_factors(&mut self) -> Option<&mut dyn KeptFactors<T>> {
        if self.plan.keeps_factors() { Some(self) } else { None }
    }
}

impl<T: CpuScalar> KeptFactors<T> for Lanes {
    fn factor(&mut self, batch: &Batch<T>) -> Result<(), SolveError> {
        Ok(self.plan.factor(batch)?)
    }

    fn solve_again(
        &mut self,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Vec<Outcome>, SolveError> {
        Ok(self.plan.solve_again(nrhs, b, x, criteria)?)
    }

    fn solve_transposed_again(
        &mut self,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Option<Vec<Outcome>>, SolveError> {
        Ok(Some(self.plan.solve_transposed_again(nrhs, b, x, criteria)?))
    }

    fn solve_near(
        &mut self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Option<Vec<Outcome>>, SolveError> {
        Ok(Some(self.plan.solve_near(batch, nrhs, b, x, criteria)?))
    }

    fn item(&self, item: usize) -> Option<(Csr<T>, Range<usize>)> {
        self.plan.kept_item(item)
    }
}

/// The last rung: faer's LU with partial pivoting, system by system, spread over the cores.
struct Pivoting;

impl<T: CpuScalar> AnalysedSolve<T> for Pivoting {
    fn placement(&self) -> Placement {
        CpuBackend::placement("pivoting-lu".to_owned())
    }

    fn solve(
        &mut self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
        only: Option<&[usize]>,
    ) -> Result<Vec<Outcome>, SolveError> {
        let wanted = wanted(batch.nitems() * nrhs, only);
        let mut tasks = Vec::new();
        for_each_system(batch, nrhs, x, |system, rows, x| {
            if wanted[system] {
                tasks.push((system, &b[rows], x));
            }
        });
        let solve = |analysed: &mut Option<PivotingLu>, (system, b, x)| {
            if is_stopped(&criteria.watch) {
                return Outcome::not_begun();
            }
            let outcome = pivoting(batch, system, nrhs, b, x, criteria, analysed);
            if let Some(watch) = &criteria.watch {
                watch.add(1);
            }
            outcome
        };
        Ok(tasks.into_par_iter().map_init(|| None, solve).collect())
    }
}

fn pivoting<T: CpuScalar>(
    batch: &Batch<T>,
    system: usize,
    nrhs: usize,
    b: &[T],
    x: &mut [T],
    criteria: &Criteria,
    analysed: &mut Option<PivotingLu>,
) -> Outcome {
    let item = system / nrhs;
    let pattern = batch.pattern(item);
    let mut values = Vec::new();
    batch.copy_values(item, &mut values);
    let view = System::new(system, pattern, &values, b, criteria);
    let mut r = vec![T::ZERO; b.len()];
    let entry = view.enter(x, &mut r);
    if let Some(status) = entry.status {
        return entry.outcome(status, criteria.history);
    }
    if analysed.as_ref().is_none_or(|a| sparsebatch_formats::Pattern::view(a.pattern()) != pattern)
    {
        *analysed = PivotingLu::try_new(pattern).ok();
    }
    let guess = x.to_vec();
    let solved = match analysed {
        Some(analysed) => analysed.factor_and_solve(&values, b, x),
        None => Err(PivotingLuError::OutOfMemory),
    };
    let mut check = view.check(&entry, x, &mut r);
    let failed = match &solved {
        Ok(report) if report.is_singular(entry.threshold) => Status::Singular,
        Ok(_) => Status::Stagnated,
        Err(PivotingLuError::NonFinite { .. }) => Status::NonFinite,
        // No pivot was found, or there was no memory for the factorisation.
        Err(_) => Status::Singular,
    };
    let status = check
        .status(Stop::Failed(failed), criteria.max_restarts, false, criteria)
        .unwrap_or(failed);
    if status != Status::Converged {
        view.keep_better(&entry, Some(&guess), &mut check, x, &mut r);
    }
    let mut history = Vec::new();
    if criteria.history {
        history.extend([entry.residual_norm, check.residual_norm]);
    }
    Outcome {
        status,
        iterations: solved.map_or(0, |report| 1 + report.refinements),
        restarts: 0,
        residual_norm: check.residual_norm,
        rhs_norm: entry.rhs_norm,
        accepted_by_floor: check.floor_passed,
        history,
    }
}

/// One flag per system: whether it is wanted.
pub(crate) fn wanted(systems: usize, only: Option<&[usize]>) -> Vec<bool> {
    match only {
        None => vec![true; systems],
        Some(only) => {
            let mut wanted = vec![false; systems];
            for &system in only {
                wanted[system] = true;
            }
            wanted
        }
    }
}

/// Calls `f` with each system's number, its range in item-major vectors and its part of `v`.
fn for_each_system<'v, T: CpuScalar, U>(
    batch: &Batch<T>,
    nrhs: usize,
    v: &'v mut [U],
    mut f: impl FnMut(usize, std::ops::Range<usize>, &'v mut [U]),
) {
    let (mut rest, mut start) = (v, 0);
    for item in 0..batch.nitems() {
        let nrows = batch.pattern(item).nrows();
        for system in item * nrhs..(item + 1) * nrhs {
            let (part, after) = rest.split_at_mut(nrows);
            rest = after;
            f(system, start..start + nrows, part);
            start += nrows;
        }
    }
}

/// `y = A x` of all systems.
enum Product<'a, T> {
    Plan(&'a SpmvPlan<T>),
    Given(&'a mut dyn LinOp<T>),
}

/// `z = M r` of the systems that iterate.
enum Precond<'a, T> {
    /// One for each item; `None` where it failed.
    Items {
        each: Vec<Option<SystemPreconditioner<'a, T>>>,
        is_identity: bool,
    },
    Given(&'a mut dyn LinOp<T>),
}

/// The primitives on one batch.
pub(crate) struct CpuPrimitives<'a, T> {
    product: Product<'a, T>,
    preconditioner: Precond<'a, T>,
    /// Start of each system in item-major vectors, and their length at the end.
    offsets: Vec<usize>,
    nrhs: usize,
    /// Products done, and the time in them.
    pub(crate) products: u64,
    pub(crate) product_time: Duration,
}

impl<'a, T: CpuScalar> CpuPrimitives<'a, T> {
    /// Factorises the preconditioner of every item; an item whose preconditioner fails comes with
    /// its status.
    ///
    /// # Errors
    /// [`SolveError::Cpu`] when the patterns are not those of the analysis.
    pub(crate) fn new(
        batch: &Batch<T>,
        nrhs: usize,
        plan: &'a SpmvPlan<T>,
        analysis: &'a LanePlan,
    ) -> Result<(Self, Vec<Option<Status>>), SolveError> {
        let rows: Vec<usize> =
            (0..batch.nitems()).map(|item| batch.pattern(item).nrows()).collect();
        let items = (0..batch.nitems()).into_par_iter();
        let made = items.map(|item| {
            Ok(match analysis.preconditioner(batch, item)? {
                Ok(preconditioner) => (Some(preconditioner), None),
                Err(status) => (None, Some(status)),
            })
        });
        let made: Vec<_> = made.collect::<Result<_, CpuError>>()?;
        let (each, failed) = made.into_iter().unzip();
        let preconditioner = Precond::Items { each, is_identity: !analysis.is_preconditioned() };
        Ok((Self::of(Product::Plan(plan), preconditioner, &rows, nrhs), failed))
    }

    /// Products of a plan, and a preconditioner of the caller. `rows` are the rows of each item.
    pub(crate) fn preconditioned(
        plan: &'a SpmvPlan<T>,
        preconditioner: &'a mut dyn LinOp<T>,
        rows: &[usize],
        nrhs: usize,
    ) -> Self {
        Self::of(Product::Plan(plan), Precond::Given(preconditioner), rows, nrhs)
    }

    /// Products and a preconditioner of the caller.
    pub(crate) fn operators(
        product: &'a mut dyn LinOp<T>,
        preconditioner: Option<&'a mut dyn LinOp<T>>,
        rows: &[usize],
        nrhs: usize,
    ) -> Self {
        let preconditioner = match preconditioner {
            Some(given) => Precond::Given(given),
            None => Precond::Items { each: Vec::new(), is_identity: true },
        };
        Self::of(Product::Given(product), preconditioner, rows, nrhs)
    }

    fn of(
        product: Product<'a, T>,
        preconditioner: Precond<'a, T>,
        rows: &[usize],
        nrhs: usize,
    ) -> Self {
        let offsets = offsets_of(rows, nrhs);
        let product_time = Duration::ZERO;
        Self { product, preconditioner, offsets, nrhs, products: 0, product_time }
    }

    fn systems(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The parts of a vector that belong to the unmasked systems.
    fn parts<'v>(&self, mask: &[bool], v: &'v mut [T]) -> Vec<(usize, &'v mut [T])> {
        let mut rest = v;
        let mut parts = Vec::with_capacity(self.systems());
        for (system, ends) in self.offsets.windows(2).enumerate() {
            let (part, after) = rest.split_at_mut(ends[1] - ends[0]);
            rest = after;
            if mask[system] {
                parts.push((system, part));
            }
        }
        parts
    }
}

/// The part of a vector that belongs to a system, given where each system begins.
fn parts_by<T>(offsets: &[usize]) -> impl Fn(usize, &[T]) -> &[T] + Sync {
    move |system, v| &v[offsets[system]..offsets[system + 1]]
}

impl<T: CpuScalar> Primitives<T> for CpuPrimitives<'_, T> {
    fn spmv(&mut self, x: &[T], y: &mut [T]) -> Result<(), SolveError> {
        let start = Instant::now();
        match &mut self.product {
            Product::Plan(plan) => plan.apply(T::ONE, x, T::ZERO, y)?,
            Product::Given(operator) => operator.apply(x, y).map_err(SolveError::Operator)?,
        }
        self.products += 1;
        self.product_time += start.elapsed();
        Ok(())
    }

    fn dot(&self, mask: &[bool], a: &[T], b: &[T], out: &mut [T]) {
        let part = parts_by(&self.offsets);
        let each = out.par_iter_mut().enumerate().filter(|(system, _)| mask[*system]);
        each.for_each(|(system, out)| *out = lanes::dot(part(system, a), part(system, b)));
    }

    fn axpby(&self, mask: &[bool], alpha: &[T], x: &[T], beta: &[T], y: &mut [T]) {
        let part = parts_by(&self.offsets);
        self.parts(mask, y).into_par_iter().for_each(|(system, y)| {
            let (alpha, beta) = (alpha[system], beta[system]);
            for (y, &x) in y.iter_mut().zip(part(system, x)) {
                *y = alpha * x + beta * *y;
            }
        });
    }

    fn copy(&self, mask: &[bool], x: &[T], y: &mut [T]) {
        let (part, parts) = (parts_by(&self.offsets), self.parts(mask, y));
        parts.into_par_iter().for_each(|(system, y)| y.copy_from_slice(part(system, x)));
    }

    fn is_preconditioned(&self) -> bool {
        !matches!(self.preconditioner, Precond::Items { is_identity: true, .. })
    }

    fn precondition(&mut self, mask: &[bool], r: &[T], z: &mut [T]) -> Result<(), SolveError> {
        if !self.is_preconditioned() {
            self.copy(mask, r, z);
            return Ok(());
        }
        if let Precond::Given(operator) = &mut self.preconditioner {
            return operator.apply(r, z).map_err(SolveError::Operator);
        }
        let mut parts: Vec<Vec<(usize, &mut [T])>> = Vec::new();
        parts.resize_with(self.systems() / self.nrhs, Vec::new);
        for (system, part) in self.parts(mask, z) {
            parts[system / self.nrhs].push((system, part));
        }
        let offsets = &self.offsets;
        let Precond::Items { each, .. } = &mut self.preconditioner else { return Ok(()) };
        each.par_iter_mut().zip(parts).for_each(|(preconditioner, parts)| {
            let Some(preconditioner) = preconditioner else {
                return;
            };
            for (system, z) in parts {
                preconditioner.apply(&r[offsets[system]..offsets[system + 1]], z);
            }
        });
        Ok(())
    }
}
