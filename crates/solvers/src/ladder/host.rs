//! Systems that climb with their data on the host.

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_cpu_ref::CpuError;
use sparsebatch_cpu_ref::pivoting_lu::{PivotingLu, PivotingLuError};
use sparsebatch_formats::{Batch, Scalar};
use sparsebatch_solve_core::symbolic::SymbolicError;
use sparsebatch_solve_core::{Criteria, Scheme, Status, residual_magnitude};

use super::{Ended, LadderSystems, affordable, starts_from_x, take_better};
use crate::backend::{AnalysedSolve, SolveBackend};
use crate::choose::looks_semidefinite;
use crate::each::map_each;
use crate::report::{Rung, RungRun, SystemReport};
use crate::share::{items_of, rows_of};
use crate::static_pivoting::RowOrders;
use crate::{SolveError, SolveOptions};

/// The analysis of a rung, kept for the next solve.
pub(crate) struct Kept<T> {
    rung: Rung,
    scheme: Scheme,
    /// The items analysed.
    items: Vec<usize>,
    /// For static pivoting, the row orders of these items.
    orders: Option<RowOrders>,
    analysed: Box<dyn AnalysedSolve<T>>,
}

/// One batched solve, with what every rung needs.
pub(crate) struct HostSystems<'a, T> {
    pub(crate) backend: &'a dyn SolveBackend<T>,
    pub(crate) batch: &'a Batch<T>,
    pub(crate) options: &'a SolveOptions,
    pub(crate) criteria: &'a Criteria,
    pub(crate) b: &'a [T],
    /// The best solutions so far.
    pub(crate) x: &'a mut [T],
    /// Memory for the solutions of a rung. Only the rows of systems that take it are set.
    pub(crate) trial: &'a mut Vec<T>,
    /// An analysis of the last climb is reused if its rung has the same items with the same row
    /// orders.
    pub(crate) kept: &'a mut Vec<Kept<T>>,
}

impl<T: Scalar> LadderSystems for HostSystems<'_, T> {
    fn epsilon(&self) -> f64 {
        T::EPSILON.to_f64()
    }

    fn magnitudes(&mut self, systems: &[usize]) -> Result<Vec<Option<f64>>, SolveError> {
        let this = &*self;
        let of = |system: usize| {
            let item = system / this.options.nrhs;
            let mut copy = Vec::new();
            let values = this.batch.values_in(item, &mut copy);
            let (x, b) = (&this.x[this.range(system)], &this.b[this.range(system)]);
            residual_magnitude(this.batch.pattern(item), values, x, b).ok()
        };
        Ok(map_each(systems.to_vec(), of))
    }

    fn look_semidefinite(&mut self, items: &[usize]) -> Result<Vec<bool>, SolveError> {
        let of = |&item: &usize| {
            let mut copy = Vec::new();
            looks_semidefinite(self.batch.pattern(item), self.batch.values_in(item, &mut copy))
        };
        Ok(items.par_iter().map(of).collect())
    }

    fn affordable(&self, items: &[usize]) -> Result<Vec<usize>, SolveError> {
        Ok(affordable(self.batch, items, self.options.fallback_budget))
    }

    fn attempt(
        &mut self,
        (rung, scheme): (Rung, Scheme),
        asked: &[usize],
        systems: &mut [SystemReport],
    ) -> Result<Ended, SolveError> {
        let mut statuses: Vec<Option<Status>> = vec![None; asked.len()];
        let Taken { items, only, batch, b, orders } = self.taken(rung, asked)?;
        if items.is_empty() {
            return Ok(Ended { statuses, runs: Vec::new() });
        }
        let analysis = analysed(self.backend, (rung, scheme), &batch, items, orders, self.kept)?;
        let Some(analysed) = analysis else {
            return Ok(Ended { statuses, runs: Vec::new() });
        };
        let trial = &mut *self.trial;
        trial.resize(self.x.len(), T::ZERO);
        let nrhs = self.options.nrhs;
        let ranges = || only.iter().map(|&system| rows_of(self.batch, nrhs, system));
        let each = only.iter().zip(parts_of(trial, ranges())).collect();
        let x = &*self.x;
        map_each(each, |(&system, trial)| match starts_from_x(&systems[system].outcome) {
            true => trial.copy_from_slice(&x[rows_of(self.batch, nrhs, system)]),
            false => trial.fill(T::ZERO),
        });
        let outcomes = analysed.solve(&batch, nrhs, &b, trial, self.criteria, Some(&only))?;
        let mut place = 0;
        for (&system, outcome) in only.iter().zip(&outcomes) {
            while asked[place] != system {
                place += 1;
            }
            statuses[place] = Some(outcome.status);
        }
        let reports = parts_of(systems, only.iter().map(|&system| system..system + 1));
        let parts = parts_of(self.x, ranges());
        let each = only.iter().zip(parts).zip(reports).zip(outcomes);
        map_each(each.collect(), |(((&system, x), report), outcome)| {
            if take_better(&mut report[0], rung, outcome) {
                x.copy_from_slice(&trial[rows_of(self.batch, nrhs, system)]);
            }
        });
        let run = RungRun::new(rung, only.len(), analysed.placement());
        Ok(Ended { statuses, runs: vec![run] })
    }

    fn are_singular(&mut self, systems: &[usize]) -> Result<Vec<bool>, SolveError> {
        let this = &*self;
        let of = |&system: &usize| {
            let item = system / this.options.nrhs;
            let mut copy = Vec::new();
            let values = this.batch.values_in(item, &mut copy);
            let mut solution = this.x[this.range(system)].to_vec();
            let solved = PivotingLu::try_new(this.batch.pattern(item)).and_then(|mut lu| {
                lu.factor_and_solve(values, &this.b[this.range(system)], &mut solution)
            });
            match solved {
                Ok(report) => report.rcond < report.nrows as f64 * f64::EPSILON,
                Err(error) => matches!(error, PivotingLuError::Singular { .. }),
            }
        };
        Ok(systems.par_iter().map(of).collect())
    }
}

impl<'a, T: Scalar> HostSystems<'a, T> {
    fn range(&self, system: usize) -> Range<usize> {
        rows_of(self.batch, self.options.nrhs, system)
    }

    /// What a rung takes of the systems asked for: all of them as they are, but for static pivoting
    /// those that have a row order and affordable factors, with their rows in that order.
    fn taken<'s>(&self, rung: Rung, asked: &'s [usize]) -> Result<Taken<'s, T>, SolveError>
    where
        'a: 's,
    {
        let nrhs = self.options.nrhs;
        let mut taken = Taken {
            items: items_of(asked, nrhs),
            only: Cow::Borrowed(asked),
            batch: Cow::Borrowed(self.batch),
            b: Cow::Borrowed(self.b),
            orders: None,
        };
        if rung == Rung::StaticPivotingLu {
            let mut found = RowOrders::find(self.batch, &taken.items)?;
            let permuted = found.batch(self.batch);
            found.keep(&affordable(&permuted, &found.items(), self.options.fallback_budget));
            taken.only.to_mut().retain(|system| found.has(system / nrhs));
            taken.items = found.items();
            if !taken.items.is_empty() {
                taken.batch = Cow::Owned(permuted);
                taken.b = Cow::Owned(found.rhs(self.batch, nrhs, self.b));
                taken.orders = Some(found);
            }
        }
        Ok(taken)
    }
}

/// The analysis of a scheme for items: a kept one if it has the same items and row orders, else
/// a new one. Returns `None` if the factors are too large to hold.
fn analysed<'k, T: Scalar>(
    backend: &dyn SolveBackend<T>,
    (rung, scheme): (Rung, Scheme),
    batch: &Batch<T>,
    items: Vec<usize>,
    orders: Option<RowOrders>,
    kept: &'k mut Vec<Kept<T>>,
) -> Result<Option<&'k mut dyn AnalysedSolve<T>>, SolveError> {
    let is_of =
        |k: &Kept<T>| (k.rung, k.scheme, &k.items, &k.orders) == (rung, scheme, &items, &orders);
    let place = match kept.iter().position(is_of) {
        Some(place) => place,
        None => {
            // The old analysis is dropped first, to free its memory.
            kept.retain(|kept| (kept.rung, kept.scheme) != (rung, scheme));
            let analysed = match backend.analyse(batch, (rung, scheme), Some(&items)) {
                // The next rung may still succeed.
                Err(SolveError::Cpu(CpuError::Symbolic(SymbolicError::TooManyEntries {
                    ..
                }))) => return Ok(None),
                analysed => analysed?,
            };
            kept.push(Kept { rung, scheme, items, orders, analysed });
            kept.len() - 1
        }
    };
    Ok(Some(&mut *kept[place].analysed))
}

/// Parts of a slice, whose ranges ascend and do not overlap.
fn parts_of<V>(mut rest: &mut [V], ranges: impl Iterator<Item = Range<usize>>) -> Vec<&mut [V]> {
    let mut start = 0;
    let cut = |range: Range<usize>| {
        let (_, after) = std::mem::take(&mut rest).split_at_mut(range.start - start);
        let (own, after) = after.split_at_mut(range.len());
        (rest, start) = (after, range.end);
        own
    };
    ranges.map(cut).collect()
}

/// What a rung takes of the systems asked for.
struct Taken<'a, T: Scalar> {
    items: Vec<usize>,
    /// The systems.
    only: Cow<'a, [usize]>,
    batch: Cow<'a, Batch<T>>,
    b: Cow<'a, [T]>,
    /// For static pivoting, the row orders of the items.
    orders: Option<RowOrders>,
}
