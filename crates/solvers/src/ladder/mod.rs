//! The ladder: systems that did not converge are tried again by stronger means.
//!
//! [`next_rung`] chooses the next rung of a system from that system and its statuses so far, never
//! from other systems. [`Ladder`] is the driver: it solves all systems that take the same rung in
//! one batch. Where their data lies is the business of [`LadderSystems`]: on the host
//! ([`HostSystems`]) or on a GPU (`device/climb.rs`).

mod host;

use rayon::prelude::*;
use sparsebatch_formats::{Batch, CsrPatternRef, Scalar};
use sparsebatch_solve_core::symbolic::{FactorPattern, min_degree};
use sparsebatch_solve_core::{
    Budget, Order, Outcome, PrecondPrecision, Preconditioner, Scheme, Status, classes,
};

use crate::error::go_on;
use crate::report::{Rung, RungRun, SystemReport};
use crate::share::items_of;
use crate::{SolveError, SolveOptions};

pub(crate) use host::{HostSystems, Kept};

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

/// Systems that climb, wherever their data lies. They are numbered item by item, `nrhs` each; lists
/// of systems and of items are ascending.
pub(crate) trait LadderSystems {
    /// The unit of rounding of the working precision.
    fn epsilon(&self) -> f64;

    /// `|| |A||x| + |b| ||_2` of some systems, by their best x so far; `None` where it is not
    /// known.
    fn magnitudes(&mut self, systems: &[usize]) -> Result<Vec<Option<f64>>, SolveError>;

    /// Whether the matrices of some items may be semidefinite.
    fn look_semidefinite(&mut self, items: &[usize]) -> Result<Vec<bool>, SolveError>;

    /// Those of some items whose factorisation is within the budget.
    fn affordable(&self, items: &[usize]) -> Result<Vec<usize>, SolveError>;

    /// Solves systems by the scheme of a rung, from their best x so far, and keeps the solutions
    /// that are better, with their reports.
    fn attempt(
        &mut self,
        rung: (Rung, Scheme),
        asked: &[usize],
        systems: &mut [SystemReport],
    ) -> Result<Ended, SolveError>;

    /// Whether the matrices of some systems are singular, as partial pivoting sees them.
    fn are_singular(&mut self, systems: &[usize]) -> Result<Vec<bool>, SolveError>;
}

/// How a rung ended.
pub(crate) struct Ended {
    /// The status of each system asked for, `None` if the rung could not take it.
    pub(crate) statuses: Vec<Option<Status>>,
    /// What ran.
    pub(crate) runs: Vec<RungRun>,
}

/// The driver of one climb.
pub(crate) struct Ladder<'a> {
    pub(crate) options: &'a SolveOptions,
    /// The scheme that ran first, of each item or of all.
    pub(crate) first: &'a [Scheme],
}

impl Ladder<'_> {
    /// Runs the rungs in order. Each takes the systems that have not converged and starts from
    /// their best `x` so far. A system keeps the `x` with the smallest true residual, with the
    /// status and the rung of that `x`. Returns what ran.
    pub(crate) fn climb(
        &self,
        site: &mut dyn LadderSystems,
        systems: &mut [SystemReport],
    ) -> Result<Vec<RungRun>, SolveError> {
        let failed = |s: &usize| systems[*s].outcome.status != Status::Converged;
        let failed: Vec<usize> = (0..systems.len()).filter(failed).collect();
        let first = states(site, &failed, systems)?;
        let mut climbers: Vec<(usize, Climber)> = failed.into_iter().zip(first).collect();
        let mut runs = Vec::new();
        for &rung in Rung::ALL {
            let mut groups: Vec<(Scheme, Vec<usize>)> = Vec::new();
            for (place, next) in self.next(site, &mut climbers)?.into_iter().enumerate() {
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
                let ended = site.attempt((rung, scheme), &only, systems)?;
                go_on(&self.options.watch)?;
                let now = states(site, &only, systems)?;
                for ((place, status), now) in places.into_iter().zip(ended.statuses).zip(now) {
                    let climber = &mut climbers[place].1;
                    let last = status.unwrap_or(climber.last);
                    let Climber { affordable, semidefinite, .. } = *climber;
                    *climber = Climber { at: rung, last, affordable, semidefinite, ..now };
                }
                runs.extend(ended.runs);
            }
        }
        tell_singular(site, systems, &climbers)?;
        for (system, climber) in climbers {
            let is_solved = systems[system].outcome.status == Status::Converged;
            systems[system].over_budget = !is_solved && climber.affordable == Some(false);
        }
        Ok(runs)
    }

    /// The next rung of every climber; asks for the properties that decide it.
    fn next(
        &self,
        site: &mut dyn LadderSystems,
        climbers: &mut [(usize, Climber)],
    ) -> Result<Vec<Next>, SolveError> {
        loop {
            let next = self.next_of_each(climbers);
            let asking = |what: Next| -> Vec<usize> {
                (0..next.len()).filter(|&place| next[place] == what).collect()
            };
            let of_values = asking(Next::AskSemidefinite);
            let of_factors = asking(Next::AskBudget);
            if of_values.is_empty() && of_factors.is_empty() {
                return Ok(next);
            }
            // The answer to one question may raise the other.
            let item_of = |system: usize| system / self.options.nrhs;
            let items_at = |places: &[usize], climbers: &[(usize, Climber)]| {
                let systems: Vec<usize> = places.iter().map(|&place| climbers[place].0).collect();
                items_of(&systems, self.options.nrhs)
            };
            let items = items_at(&of_values, climbers);
            let answers = site.look_semidefinite(&items)?;
            for place in of_values {
                let (system, climber) = &mut climbers[place];
                let answer = items.binary_search(&item_of(*system)).map(|k| answers[k]);
                climber.semidefinite = Some(answer.is_ok_and(|answer| answer));
            }
            let affordable = site.affordable(&items_at(&of_factors, climbers))?;
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
}

/// The states of some systems after their first scheme.
fn states(
    site: &mut dyn LadderSystems,
    which: &[usize],
    systems: &[SystemReport],
) -> Result<Vec<Climber>, SolveError> {
    let epsilon = site.epsilon();
    let may_be_at_rounding = |system: usize| {
        let outcome = &systems[system].outcome;
        outcome.status == Status::Stagnated
            && outcome.residual_norm <= epsilon.sqrt() * outcome.rhs_norm
    };
    let small: Vec<usize> = which.iter().copied().filter(|&s| may_be_at_rounding(s)).collect();
    let magnitudes = if small.is_empty() { Vec::new() } else { site.magnitudes(&small)? };
    let at_rounding = |system: usize, outcome: &Outcome| {
        let place = small.binary_search(&system).ok();
        let size = place.and_then(|place| magnitudes[place]);
        size.is_some_and(|size| outcome.residual_norm <= ROUNDING_ERRORS * epsilon * size)
    };
    let each = which.iter().map(|&system| {
        let outcome = &systems[system].outcome;
        Climber {
            at: Rung::First,
            last: outcome.status,
            residual_norm: outcome.residual_norm,
            rhs_norm: outcome.rhs_norm,
            at_rounding: at_rounding(system, outcome),
            affordable: None,
            semidefinite: None,
        }
    });
    Ok(each.collect())
}

/// Marks the systems that iterations solved after LU failed and whose matrix is singular: their
/// solution is one of many.
fn tell_singular(
    site: &mut dyn LadderSystems,
    systems: &mut [SystemReport],
    climbers: &[(usize, Climber)],
) -> Result<(), SolveError> {
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
    if candidates.is_empty() {
        return Ok(());
    }
    let singular = site.are_singular(&candidates)?;
    for (system, singular) in candidates.into_iter().zip(singular) {
        systems[system].singular = singular;
    }
    Ok(())
}

/// Whether a rung starts from the best x so far, rather than from 0.
pub(crate) fn starts_from_x(before: &Outcome) -> bool {
    before.residual_norm < before.rhs_norm
}

/// Adds the outcome of a rung to the report of a system. Returns whether the solution of the rung
/// is better than the one before, and so replaces it.
pub(crate) fn take_better(report: &mut SystemReport, rung: Rung, mut outcome: Outcome) -> bool {
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

/// Those of the given items (ascending) whose factorisation is within the budget.
pub(crate) fn affordable<T: Scalar>(
    batch: &Batch<T>,
    items: &[usize],
    budget: Budget,
) -> Vec<usize> {
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
