//! The ladder: systems that did not converge are tried again by stronger means.
//!
//! [`next_rung`] chooses the next rung of a system from that system and its statuses so far, never
//! from other systems. [`Ladder`] is the driver: it solves all systems that take the same rung in
//! one batch.

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_cpu_ref::CpuError;
use sparsebatch_cpu_ref::pivoting_lu::{PivotingLu, PivotingLuError};
use sparsebatch_formats::{Batch, CsrPatternRef, Scalar};
use sparsebatch_solve_core::symbolic::{FactorPattern, SymbolicError, min_degree};
use sparsebatch_solve_core::{
    Budget, Criteria, Order, Outcome, PrecondPrecision, Preconditioner, Scheme, Status, classes,
    residual_magnitude,
};

use crate::backend::{AnalysedSolve, SolveBackend};
use crate::choose::looks_semidefinite;
use crate::each::map_each;
use crate::error::go_on;
use crate::report::{Rung, RungRun, SystemReport};
use crate::share::rows_of;
use crate::static_pivoting::RowOrders;
use crate::{SolveError, SolveOptions};

/// The scheme of the stronger preconditioner.
const STRONGER: Scheme = Scheme::BiCgStab(Preconditioner::Ilu0 {
    order: Order::MinDegree,
    precision: PrecondPrecision::Working,
});

/// A restart is tried only if the residual has fallen below this fraction of `||b||`.
const GAINED: f64 = 0.1;

/// A residual below this many units of rounding of `|| |A||x| + |b| ||` cannot be reduced by
/// another method.
const ROUNDING_ERRORS: f64 = 8.0;

/// Climbers whose next rungs a thread finds in one go, at least. To wake another thread takes about
/// as long.
const CLIMBERS_OF_A_TASK: usize = 1 << 12;

/// The state of a system on the ladder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Climber {
    /// The rung that was tried last.
    at: Rung,
    /// The status with which that rung ended.
    last: Status,
    /// Norm of the true residual of the best x so far, and of the right-hand side.
    residual_norm: f64,
    rhs_norm: f64,
    /// The residual is at the level of rounding errors.
    at_rounding: bool,
    /// Whether a factorisation is within the budget; `None` until it is computed.
    affordable: Option<bool>,
    /// Whether the matrix may be semidefinite, so that CG is tried; `None` until it is computed.
    semidefinite: Option<bool>,
}

/// The next rung of a system, or the property that decides it and is still unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Next {
    /// The rung and its scheme.
    Rung(Rung, Scheme),
    /// [`Climber::affordable`].
    AskBudget,
    /// [`Climber::semidefinite`].
    AskSemidefinite,
    /// No rung is left.
    End,
}

/// The next rung of a system whose first scheme was `first`. Without `fallback` static pivoting is
/// the only rung: it is part of LU in a fixed order.
pub(crate) fn next_rung(climber: &Climber, first: Scheme, fallback: bool) -> Next {
    if climber.last == Status::Converged || climber.at_rounding {
        return Next::End;
    }
    let direct = first.is_direct();
    for rung in Rung::ALL.iter().copied().filter(|&rung| rung > climber.at) {
        let scheme = match rung {
            Rung::First => continue,
            Rung::Restart => first,
            Rung::StrongerPreconditioner => STRONGER,
            Rung::Lu | Rung::StaticPivotingLu => Scheme::Lu,
            Rung::Cg => Scheme::Cg(Preconditioner::Auto),
            Rung::BiCgStab => Scheme::BiCgStab(Preconditioner::Auto),
            Rung::PivotingLu => Scheme::PivotingLu,
        };
        let is_part_of_lu = first.has_fixed_order() && rung == Rung::StaticPivotingLu;
        if !(fallback || is_part_of_lu) {
            continue;
        }
        let takes = match rung {
            Rung::First => false,
            Rung::Restart => {
                let can_go_on = matches!(
                    climber.last,
                    Status::MaxIterations
                        | Status::BreakdownRho
                        | Status::BreakdownAlpha
                        | Status::BreakdownOmega
                        | Status::Stagnated
                );
                !direct && can_go_on && climber.residual_norm < GAINED * climber.rhs_norm
            }
            // A preconditioner is never stronger than the complete factors.
            Rung::StrongerPreconditioner => !direct && first != STRONGER,
            Rung::Lu => !direct,
            // Stagnation of a banded elimination shows growth, which large pivots may avoid.
            Rung::StaticPivotingLu => {
                climber.last == Status::ZeroPivot
                    || (first == Scheme::Banded && climber.last == Status::Stagnated)
            }
            // Factors may have failed where Jacobi does not.
            Rung::Cg => !matches!(first, Scheme::Cg(factors) if !factors.has_factors()),
            Rung::BiCgStab => !matches!(first, Scheme::BiCgStab(factors) if !factors.has_factors()),
            Rung::PivotingLu => first != Scheme::PivotingLu,
        };
        if !takes {
            continue;
        }
        match (rung, climber.affordable, climber.semidefinite) {
            (Rung::Lu | Rung::PivotingLu, None, _) => return Next::AskBudget,
            (Rung::Lu | Rung::PivotingLu, Some(false), _) => {}
            (Rung::Cg, _, None) => return Next::AskSemidefinite,
            (Rung::Cg, _, Some(false)) => {}
            _ => return Next::Rung(rung, scheme),
        }
    }
    Next::End
}

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
pub(crate) struct Ladder<'a, T> {
    pub(crate) backend: &'a dyn SolveBackend<T>,
    pub(crate) batch: &'a Batch<T>,
    pub(crate) options: &'a SolveOptions,
    pub(crate) criteria: &'a Criteria,
    pub(crate) b: &'a [T],
    /// The scheme that ran first, of each item or of all.
    pub(crate) first: &'a [Scheme],
}

impl<T: Scalar> Ladder<'_, T> {
    /// Runs the rungs in order. Each takes the systems that have not converged and starts from
    /// their best `x` so far. A system keeps the `x` with the smallest true residual, with the
    /// status and the rung of that `x`. An analysis of the last climb is reused if its rung has the
    /// same items with the same row orders. Returns what ran.
    pub(crate) fn climb(
        &self,
        x: &mut [T],
        systems: &mut [SystemReport],
        kept: &mut Vec<Kept<T>>,
    ) -> Result<Vec<RungRun>, SolveError> {
        let failed = |s: &usize| systems[*s].outcome.status != Status::Converged;
        let failed: Vec<usize> = (0..systems.len()).filter(failed).collect();
        let mut climbers: Vec<(usize, Climber)> =
            map_each(failed, |s| (s, self.climber(s, &systems[s].outcome, x)));
        let mut trial = vec![T::ZERO; x.len()];
        let mut runs = Vec::new();
        for &rung in Rung::ALL {
            let mut groups: Vec<(Scheme, Vec<usize>)> = Vec::new();
            for (place, next) in self.next(&mut climbers).into_iter().enumerate() {
                match next {
                    Next::Rung(next, scheme) if next == rung => {
                        match groups.iter_mut().find(|group| group.0 == scheme) {
                            Some(group) => group.1.push(place),
                            None => groups.push((scheme, vec![place])),
                        }
                    }
                    _ => {}
                }
            }
            for (scheme, places) in groups {
                if let Some(watch) = &self.options.watch {
                    watch.begin(places.len());
                }
                let only: Vec<usize> = places.iter().map(|&place| climbers[place].0).collect();
                let vectors = Vectors { x: &mut *x, trial: &mut trial };
                let ended = self.rung((rung, scheme), &only, vectors, systems, kept)?;
                go_on(&self.options.watch)?;
                let each = places.into_iter().zip(ended.statuses).collect();
                let now = map_each(each, |(place, status)| {
                    let (system, before) = climbers[place];
                    let now = self.climber(system, &systems[system].outcome, x);
                    let last = status.unwrap_or(before.last);
                    let Climber { affordable, semidefinite, .. } = before;
                    (place, Climber { at: rung, last, affordable, semidefinite, ..now })
                });
                now.into_iter().for_each(|(place, now)| climbers[place].1 = now);
                runs.extend(ended.run);
            }
        }
        self.tell_singular(x, systems, &climbers);
        for (system, climber) in climbers {
            let is_solved = systems[system].outcome.status == Status::Converged;
            systems[system].over_budget = !is_solved && climber.affordable == Some(false);
        }
        Ok(runs)
    }

    /// The next rung of every climber; computes the properties that decide it.
    fn next(&self, climbers: &mut [(usize, Climber)]) -> Vec<Next> {
        let item_of = |system: usize| system / self.options.nrhs;
        loop {
            let next = self.next_of_each(climbers);
            let asking = |what: Next| -> Vec<usize> {
                (0..next.len()).filter(|&place| next[place] == what).collect()
            };
            let of_values = asking(Next::AskSemidefinite);
            let of_factors = asking(Next::AskBudget);
            if of_values.is_empty() && of_factors.is_empty() {
                return next;
            }
            // The answer to one question may raise the other.
            let answers = of_values.par_iter().map(|&place| {
                let (item, mut copy) = (item_of(climbers[place].0), Vec::new());
                let values = self.batch.values_in(item, &mut copy);
                looks_semidefinite(self.batch.pattern(item), values)
            });
            let answers: Vec<bool> = answers.collect();
            for (place, answer) in of_values.into_iter().zip(answers) {
                climbers[place].1.semidefinite = Some(answer);
            }
            let mut items: Vec<usize> =
                of_factors.iter().map(|&place| item_of(climbers[place].0)).collect();
            items.dedup();
            let affordable = affordable(self.batch, &items, self.options.fallback_budget);
            for place in of_factors {
                let (system, climber) = &mut climbers[place];
                climber.affordable = Some(affordable.binary_search(&item_of(*system)).is_ok());
            }
        }
    }

    /// The next rung of every climber, or what decides it.
    fn next_of_each(&self, climbers: &[(usize, Climber)]) -> Vec<Next> {
        let fallback = self.options.fallback;
        let of = |&(system, ref climber): &(usize, Climber)| {
            next_rung(climber, self.first_of(system), fallback)
        };
        match climbers.len() {
            ..CLIMBERS_OF_A_TASK => climbers.iter().map(of).collect(),
            _ => climbers.par_iter().with_min_len(CLIMBERS_OF_A_TASK).map(of).collect(),
        }
    }

    fn first_of(&self, system: usize) -> Scheme {
        *self.first.get(system / self.options.nrhs).unwrap_or(&self.first[0])
    }

    /// The state of a system after its first scheme.
    fn climber(&self, system: usize, outcome: &Outcome, x: &[T]) -> Climber {
        let at_rounding = outcome.status == Status::Stagnated
            && outcome.residual_norm <= T::EPSILON.to_f64().sqrt() * outcome.rhs_norm
            && {
                let item = system / self.options.nrhs;
                let mut copy = Vec::new();
                let values = self.batch.values_in(item, &mut copy);
                let (x, b) = (&x[self.range(system)], &self.b[self.range(system)]);
                residual_magnitude(self.batch.pattern(item), values, x, b).is_ok_and(|size| {
                    outcome.residual_norm <= ROUNDING_ERRORS * T::EPSILON.to_f64() * size
                })
            };
        Climber {
            at: Rung::First,
            last: outcome.status,
            residual_norm: outcome.residual_norm,
            rhs_norm: outcome.rhs_norm,
            at_rounding,
            affordable: None,
            semidefinite: None,
        }
    }

    /// Solves systems by a scheme on a rung, and keeps the solutions that are better than before.
    fn rung(
        &self,
        (rung, scheme): (Rung, Scheme),
        asked: &[usize],
        vectors: Vectors<'_, T>,
        systems: &mut [SystemReport],
        kept: &mut Vec<Kept<T>>,
    ) -> Result<Ended, SolveError> {
        let Vectors { x, trial } = vectors;
        let mut statuses: Vec<Option<Status>> = vec![None; asked.len()];
        let Taken { items, only, batch, b, orders } = self.taken(rung, asked)?;
        if items.is_empty() {
            return Ok(Ended { statuses, run: None });
        }
        let Some(analysed) = self.analysed((rung, scheme), &batch, items, orders, kept)? else {
            return Ok(Ended { statuses, run: None });
        };
        let each = only.iter().zip(self.rows_of_each(&only, trial)).collect();
        map_each(each, |(&system, trial)| {
            let before = &systems[system].outcome;
            let useful = before.residual_norm < before.rhs_norm;
            match useful {
                true => trial.copy_from_slice(&x[self.range(system)]),
                false => trial.fill(T::ZERO),
            }
        });
        let nrhs = self.options.nrhs;
        let outcomes = analysed.solve(&batch, nrhs, &b, trial, self.criteria, Some(&only))?;
        let mut place = 0;
        for (&system, outcome) in only.iter().zip(&outcomes) {
            while asked[place] != system {
                place += 1;
            }
            statuses[place] = Some(outcome.status);
        }
        let reports = parts_of(systems, only.iter().map(|&system| system..system + 1));
        let each = only.iter().zip(self.rows_of_each(&only, x)).zip(reports).zip(outcomes);
        map_each(each.collect(), |(((&system, x), report), outcome)| {
            if take_better(&mut report[0], rung, outcome) {
                x.copy_from_slice(&trial[self.range(system)]);
            }
        });
        let run = RungRun::new(rung, only.len(), analysed.placement());
        Ok(Ended { statuses, run: Some(run) })
    }

    /// What a rung takes of the systems asked for: all of them as they are, but for static pivoting
    /// those that have a row order and affordable factors, with their rows in that order.
    fn taken<'s>(&'s self, rung: Rung, asked: &'s [usize]) -> Result<Taken<'s, T>, SolveError> {
        let nrhs = self.options.nrhs;
        let mut items: Vec<usize> = asked.iter().map(|system| system / nrhs).collect();
        items.dedup();
        let mut taken = Taken {
            items,
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

    /// The analysis of a scheme for items: a kept one if it has the same items and row orders, else
    /// a new one. Returns `None` if the factors are too large to hold.
    fn analysed<'k>(
        &self,
        (rung, scheme): (Rung, Scheme),
        batch: &Batch<T>,
        items: Vec<usize>,
        orders: Option<RowOrders>,
        kept: &'k mut Vec<Kept<T>>,
    ) -> Result<Option<&'k mut dyn AnalysedSolve<T>>, SolveError> {
        let is_of = |k: &Kept<T>| {
            (k.rung, k.scheme, &k.items, &k.orders) == (rung, scheme, &items, &orders)
        };
        let place = match kept.iter().position(is_of) {
            Some(place) => place,
            None => {
                // The old analysis is dropped first, to free its memory.
                kept.retain(|kept| (kept.rung, kept.scheme) != (rung, scheme));
                let analysed = match self.backend.analyse(batch, (rung, scheme), Some(&items)) {
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

    /// Marks the systems that iterations solved after LU failed and whose matrix is singular: their
    /// solution is one of many.
    fn tell_singular(&self, x: &[T], systems: &mut [SystemReport], climbers: &[(usize, Climber)]) {
        let candidates: Vec<usize> = climbers
            .iter()
            .filter(|(system, climber)| {
                let report = &systems[*system];
                report.outcome.status == Status::Converged
                    && matches!(report.rung, Rung::Cg | Rung::BiCgStab)
                    && climber.affordable != Some(false)
            })
            .map(|climber| climber.0)
            .collect();
        let singular: Vec<bool> = candidates
            .par_iter()
            .map(|&system| {
                let item = system / self.options.nrhs;
                let mut copy = Vec::new();
                let values = self.batch.values_in(item, &mut copy);
                let mut solution = x[self.range(system)].to_vec();
                let solved = PivotingLu::try_new(self.batch.pattern(item)).and_then(|mut lu| {
                    lu.factor_and_solve(values, &self.b[self.range(system)], &mut solution)
                });
                match solved {
                    Ok(report) => report.rcond < report.nrows as f64 * f64::EPSILON,
                    Err(error) => matches!(error, PivotingLuError::Singular { .. }),
                }
            })
            .collect();
        for (system, singular) in candidates.into_iter().zip(singular) {
            systems[system].singular = singular;
        }
    }

    fn range(&self, system: usize) -> Range<usize> {
        rows_of(self.batch, self.options.nrhs, system)
    }

    /// The rows of each of some systems, ascending, in a vector.
    fn rows_of_each<'v>(&self, systems: &[usize], vector: &'v mut [T]) -> Vec<&'v mut [T]> {
        parts_of(vector, systems.iter().map(|&system| self.range(system)))
    }
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

/// The solutions of a climb, and memory for those of a rung.
struct Vectors<'a, T> {
    /// The best so far.
    x: &'a mut [T],
    /// As long. Only the rows of systems that take the rung are set.
    trial: &'a mut [T],
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

/// Adds the outcome of a rung to the report of a system. Returns whether the solution of the rung
/// is better than the one before, and so replaces it.
fn take_better(report: &mut SystemReport, rung: Rung, mut outcome: Outcome) -> bool {
    let before = &mut report.outcome;
    outcome.iterations = outcome.iterations.saturating_add(before.iterations);
    outcome.restarts = outcome.restarts.saturating_add(before.restarts);
    let mut history = std::mem::take(&mut before.history);
    history.append(&mut outcome.history);
    outcome.history = history;
    report.singular |= outcome.status == Status::Singular;
    // NaN compares false: a finite residual replaces a NaN, never the reverse. If the residual is
    // unchanged, the verdict of partial pivoting counts.
    let says_singular =
        outcome.status == Status::Singular && outcome.residual_norm == before.residual_norm;
    let is_better = outcome.status == Status::Converged
        || outcome.residual_norm < before.residual_norm
        || (!before.residual_norm.is_finite() && outcome.residual_norm.is_finite())
        || says_singular;
    if is_better {
        report.rung = rung;
        *before = outcome;
    } else {
        before.iterations = outcome.iterations;
        before.restarts = outcome.restarts;
        before.history = outcome.history;
    }
    is_better
}

/// The result of a rung: the status of each system asked for, `None` if the rung could not take it,
/// and what ran.
struct Ended {
    statuses: Vec<Option<Status>>,
    run: Option<RungRun>,
}

/// Those of the given items (ascending) whose factorisation is within the budget.
fn affordable<T: Scalar>(batch: &Batch<T>, items: &[usize], budget: Budget) -> Vec<usize> {
    let mut within: Vec<usize> = classes(batch, Some(items))
        .into_par_iter()
        .filter(|class| is_affordable(batch.pattern(class[0] as usize), budget))
        .flatten_iter()
        .map(|item| item as usize)
        .collect();
    within.sort_unstable();
    within
}

fn is_affordable(pattern: CsrPatternRef<'_>, budget: Budget) -> bool {
    pattern.nnz() <= budget.entries
        && min_degree(pattern)
            .and_then(|order| FactorPattern::lu(pattern, Some(&order), budget.entries))
            .is_ok_and(|factors| factors.flops() <= budget.products)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CG: Scheme = Scheme::Cg(Preconditioner::Auto);
    const LU: Scheme = Scheme::Lu;

    fn climber(at: Rung, last: Status, residual_norm: f64) -> Climber {
        Climber {
            at,
            last,
            residual_norm,
            rhs_norm: 1.0,
            at_rounding: false,
            affordable: Some(true),
            semidefinite: Some(true),
        }
    }

    /// All rungs that a system takes when each of them ends with the status `last`.
    fn way(first: Scheme, last: Status, residual_norm: f64, fallback: bool) -> Vec<Rung> {
        let (mut way, mut at) = (Vec::new(), Rung::First);
        while let Next::Rung(rung, _) =
            next_rung(&climber(at, last, residual_norm), first, fallback)
        {
            way.push(rung);
            at = rung;
        }
        way
    }

    #[test]
    fn systems_climb_by_what_they_came_to() {
        use Rung::{BiCgStab, Lu, PivotingLu, Restart, StaticPivotingLu, StrongerPreconditioner};
        let last = Status::MaxIterations;
        assert_eq!(
            way(CG, last, 0.01, true),
            [Restart, StrongerPreconditioner, Lu, BiCgStab, PivotingLu]
        );
        assert_eq!(way(CG, last, 0.5, true)[0], StrongerPreconditioner);
        assert_eq!(way(LU, Status::ZeroPivot, 1.0, true)[0], StaticPivotingLu);
        assert_eq!(way(LU, Status::Stagnated, 1.0, true), [Rung::Cg, BiCgStab, PivotingLu]);
        assert_eq!(way(STRONGER, last, 0.5, true)[0], Lu);
        assert!(way(CG, Status::Converged, 0.0, true).is_empty());
        // Factors that fail are followed by the same method with Jacobi.
        let last = Status::SingularPreconditioner;
        assert_eq!(
            way(Scheme::Cg(Preconditioner::IC0), last, 1.0, true),
            [StrongerPreconditioner, Lu, Rung::Cg, BiCgStab, PivotingLu]
        );
        assert_eq!(
            way(Scheme::BiCgStab(Preconditioner::ILU0), last, 1.0, true),
            [StrongerPreconditioner, Lu, Rung::Cg, BiCgStab, PivotingLu]
        );
    }

    #[test]
    fn without_a_fallback_there_is_static_pivoting_alone() {
        assert_eq!(way(LU, Status::ZeroPivot, 1.0, false), [Rung::StaticPivotingLu]);
        assert!(way(LU, Status::Stagnated, 1.0, false).is_empty());
        assert!(way(CG, Status::ZeroPivot, 1.0, false).is_empty());
    }

    #[test]
    fn what_costs_too_much_is_left_out_and_rounding_ends_the_climb() {
        let failed = climber(Rung::StrongerPreconditioner, Status::MaxIterations, 0.5);
        let too_dear = Climber { affordable: Some(false), ..failed };
        let unknown = Climber { affordable: None, ..failed };
        let at_rounding = Climber { at_rounding: true, ..failed };

        let next = |climber| next_rung(&climber, CG, true);

        assert_eq!(next(unknown), Next::AskBudget);
        assert!(matches!(next(too_dear), Next::Rung(Rung::BiCgStab, _)));
        assert_eq!(next(Climber { at: Rung::BiCgStab, ..too_dear }), Next::End);
        assert_eq!(next(at_rounding), Next::End);
        let asks = Climber { at: Rung::Lu, semidefinite: None, ..failed };
        assert_eq!(next_rung(&asks, LU, true), Next::AskSemidefinite);
    }
}
