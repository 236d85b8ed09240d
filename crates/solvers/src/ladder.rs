//! The fallback ladder: systems that did not converge are tried again by stronger means.

use std::borrow::Cow;

use sparsebatch_cpu_ref::lanes::LaneMethod;
use sparsebatch_cpu_ref::symbolic::SymbolicError;
use sparsebatch_cpu_ref::{CpuError, Criteria, Status};
use sparsebatch_formats::{Batch, Scalar};

use crate::backend::{AnalysedSolve, SolveBackend};
use crate::choose::{STRONGER, Step};
use crate::report::{Rung, RungRun, SystemReport};
use crate::static_pivoting::RowOrders;
use crate::{SolveError, SolveOptions};

/// The sparse LU, with which static pivoting goes.
pub(crate) const LU: Step = Step::Lanes(LaneMethod::Lu);

/// The analysis of a rung, kept for the next solve.
pub(crate) struct Kept<T> {
    rung: Rung,
    /// The items that it is of.
    items: Vec<usize>,
    /// The orders of their rows, in static pivoting.
    orders: Option<RowOrders>,
    analysed: Box<dyn AnalysedSolve<T>>,
}

/// One batched solve with everything the rungs need.
pub(crate) struct Ladder<'a, T> {
    pub(crate) backend: &'a dyn SolveBackend<T>,
    pub(crate) batch: &'a Batch<T>,
    pub(crate) options: &'a SolveOptions,
    pub(crate) criteria: &'a Criteria,
    pub(crate) b: &'a [T],
    /// The step that ran first.
    pub(crate) first: Step,
}

impl<T: Scalar> Ladder<'_, T> {
    /// Climbs: each rung takes the systems that are still not converged, starting from the best
    /// `x` so far. A system keeps the `x` with the smallest true residual, and when no rung
    /// solves it, the status of the last one that was tried. Analyses of the last climb are used again
    /// where a rung has the same items, and their rows the same order. Returns what ran.
    ///
    /// Where the options allow no ladder, static pivoting alone is left: it is part of the sparse LU.
    pub(crate) fn climb(
        &self,
        x: &mut [T],
        systems: &mut [SystemReport],
        kept: &mut Vec<Kept<T>>,
    ) -> Result<Vec<RungRun>, SolveError> {
        let mut runs = Vec::new();
        let mut rungs = vec![
            (Rung::Restart, self.first),
            (Rung::StrongerPreconditioner, Step::Lanes(STRONGER)),
            (Rung::Lu, LU),
            (Rung::StaticPivotingLu, LU),
            (Rung::PivotingLu, Step::PivotingLu),
        ];
        if self.first == LU {
            // Nothing iterative is stronger than the factors themselves.
            rungs.retain(|rung| matches!(rung.0, Rung::StaticPivotingLu | Rung::PivotingLu));
        }
        if !self.options.fallback {
            rungs.retain(|rung| rung.0 == Rung::StaticPivotingLu && self.first == LU);
        }
        // The step of the first rung is another one with factors in the working precision, or with rows in
        // another order.
        let is_new = |rung| match rung {
            Rung::StrongerPreconditioner => self.options.precond_precision.is_mixed::<T>(),
            rung => matches!(rung, Rung::Restart | Rung::StaticPivotingLu),
        };
        rungs.retain(|rung| rung.1 != self.first || is_new(rung.0));
        for (rung, step) in rungs {
            let worth = |s: &SystemReport| match s.outcome.status {
                Status::Converged => false,
                status if rung == Rung::StaticPivotingLu => status == Status::Singular,
                Status::MaxIterations
                | Status::BreakdownRho
                | Status::BreakdownAlpha
                | Status::BreakdownOmega
                | Status::Stagnated => {
                    // Starting again helps only where something had been gained.
                    rung != Rung::Restart || s.outcome.residual_norm < 0.1 * s.outcome.rhs_norm
                }
                _ => rung != Rung::Restart,
            };
            let only: Vec<usize> = (0..systems.len()).filter(|&s| worth(&systems[s])).collect();
            if !only.is_empty() {
                runs.extend(self.rung((rung, step), &only, x, systems, kept)?);
            }
        }
        Ok(runs)
    }

    fn rung(
        &self,
        (rung, step): (Rung, Step),
        only: &[usize],
        x: &mut [T],
        systems: &mut [SystemReport],
        kept: &mut Vec<Kept<T>>,
    ) -> Result<Option<RungRun>, SolveError> {
        let nrhs = self.options.nrhs;
        let mut items: Vec<usize> = only.iter().map(|system| system / nrhs).collect();
        items.dedup();
        let mut only = Cow::Borrowed(only);
        let (mut batch, mut b) = (Cow::Borrowed(self.batch), Cow::Borrowed(self.b));
        let mut orders = None;
        if rung == Rung::StaticPivotingLu {
            let found = RowOrders::find(self.batch, &items)?;
            only.to_mut().retain(|system| found.has(system / nrhs));
            items = found.items();
            if items.is_empty() {
                return Ok(None);
            }
            batch = Cow::Owned(found.batch(self.batch));
            b = Cow::Owned(found.rhs(self.batch, nrhs, self.b));
            orders = Some(found);
        }
        let is_of = |k: &Kept<T>| (k.rung, &k.items, &k.orders) == (rung, &items, &orders);
        let place = match kept.iter().position(is_of) {
            Some(place) => place,
            None => {
                // First, so that its memory is free.
                kept.retain(|kept| kept.rung != rung);
                let analysed = match self.backend.analyse(&batch, (rung, step), Some(&items)) {
                    // Factors too large to hold: the next rung may still do.
                    Err(SolveError::Cpu(CpuError::Symbolic(SymbolicError::TooManyEntries {
                        ..
                    }))) => return Ok(None),
                    analysed => analysed?,
                };
                kept.push(Kept { rung, items, orders, analysed });
                kept.len() - 1
            }
        };
        let analysed = &mut kept[place].analysed;
        let mut trial = x.to_vec();
        for &system in only.iter() {
            let before = &systems[system].outcome;
            let useful = before.residual_norm < before.rhs_norm;
            if !useful {
                trial[self.range(system)].fill(T::ZERO);
            }
        }
        let outcomes = analysed.solve(&batch, nrhs, &b, &mut trial, self.criteria, Some(&only))?;
        for (&system, mut outcome) in only.iter().zip(outcomes) {
            let report = &mut systems[system];
            let before = &mut report.outcome;
            outcome.iterations = outcome.iterations.saturating_add(before.iterations);
            outcome.restarts = outcome.restarts.saturating_add(before.restarts);
            let mut history = std::mem::take(&mut before.history);
            history.append(&mut outcome.history);
            outcome.history = history;
            // NaN compares false: a finite residual replaces one that is not, never the reverse.
            let better = outcome.status == Status::Converged
                || outcome.residual_norm < before.residual_norm
                || !before.residual_norm.is_finite();
            if better {
                let range = self.range(system);
                x[range.clone()].copy_from_slice(&trial[range]);
                report.rung = rung;
            } else {
                outcome.residual_norm = before.residual_norm;
            }
            *before = outcome;
        }
        Ok(Some(RungRun::new(rung, only.len(), analysed.placement())))
    }

    fn range(&self, system: usize) -> std::ops::Range<usize> {
        let (item, rhs) = (system / self.options.nrhs, system % self.options.nrhs);
        let nrows = self.batch.pattern(item).nrows();
        let start = self.batch.row_offset(item) * self.options.nrhs + rhs * nrows;
        start..start + nrows
    }
}
