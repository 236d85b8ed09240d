//! Completes the verdicts of the GPU by the rules of the CPU: [`certify`].
//!
//! Plans confirm on the device which systems converged
//! ([`ConfirmedPlan`](super::plan::ConfirmedPlan)). What is left for the host are systems that did
//! not, which get the better of their guess and their x, and verdicts that no confirmer has seen.

use rayon::prelude::*;
use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_formats::Batch;
use sparsebatch_solve_core::verdict::{Sizes, System, frobenius_norm, keeps_rules, norm2};
use sparsebatch_solve_core::{Criteria, Outcome, Status};

use super::part::PartResults;
use crate::share::{rows_of, shares_values};

/// What bounds the rounding errors of verdicts that no device has confirmed: `||A||_F` and the
/// sizes of each item, or of one that stands for all.
pub(super) struct Unconfirmed(Vec<(f64, Sizes)>);

impl Unconfirmed {
    /// Of all items of a batch that is solved several times.
    pub(super) fn all<T: CpuScalar>(batch: &Batch<T>) -> Self {
        let items = if shares_values(batch) { batch.nitems().min(1) } else { batch.nitems() };
        let of = |copy: &mut Vec<T>, item| bounds_of(batch, item, copy);
        Self((0..items).into_par_iter().with_min_len(16).map_init(Vec::new, of).collect())
    }

    fn of_item(&self, item: usize) -> (f64, Sizes) {
        *self.0.get(item).unwrap_or(&self.0[0])
    }
}

fn bounds_of<T: CpuScalar>(batch: &Batch<T>, item: usize, copy: &mut Vec<T>) -> (f64, Sizes) {
    (frobenius_norm(batch.values_in(item, copy)), Sizes::of(batch.pattern(item)))
}

/// A copy of the initial guesses; `None` if they are 0 in all systems to be solved.
pub(super) fn guesses<T: CpuScalar>(
    batch: &Batch<T>,
    nrhs: usize,
    x: &[T],
    only: Option<&[usize]>,
) -> Option<Vec<T>> {
    let is_nonzero = |x: &T| *x != T::ZERO;
    let are_there = match only {
        None => x.par_chunks(1 << 14).any(|x| x.iter().any(is_nonzero)),
        Some(only) => only
            .par_iter()
            .with_min_len(64)
            .any(|&system| x[rows_of(batch, nrhs, system)].iter().any(is_nonzero)),
    };
    are_there.then(|| x.par_iter().copied().collect())
}

/// Confirms outcomes of a batch, or corrects them by [`System::confirm`]: those of systems that did
/// not converge, and the others, too, where they are `unconfirmed`. `guesses` are the initial
/// guesses, unless they were 0. Cost: a pass over the outcomes, and one or two products for each of
/// these systems, on all cores.
pub(super) fn certify<T: CpuScalar>(
    (batch, nrhs): (&Batch<T>, usize),
    (b, guesses): (&[T], Option<&[T]>),
    target: PartResults<'_, T>,
    criteria: &Criteria,
    unconfirmed: Option<&Unconfirmed>,
) {
    let PartResults { x, outcomes } = target;
    let each = outcomes.par_iter_mut().enumerate().with_min_len(1 << 12);
    let asked = each.filter_map(|(system, outcome)| {
        let outcome = outcome.as_mut()?;
        let asks = outcome.status != Status::Converged || unconfirmed.is_some();
        asks.then_some((system, outcome))
    });
    let asked: Vec<(usize, &mut Outcome)> = asked.collect();
    let (mut rest, mut start) = (x, 0);
    let mut tasks = Vec::with_capacity(asked.len());
    for (system, outcome) in asked {
        let rows = rows_of(batch, nrhs, system);
        let (_, from_here) = rest.split_at_mut(rows.start - start);
        let (own, after) = from_here.split_at_mut(rows.len());
        (rest, start) = (after, rows.end);
        tasks.push((system, rows, own, outcome));
    }
    let tasks = tasks.into_par_iter().with_min_len(16);
    tasks.for_each_init(Vec::new, |copy, (system, rows, x, outcome)| {
        let item = system / nrhs;
        if let (Some(unconfirmed), Status::Converged) = (unconfirmed, outcome.status) {
            let (norm, sizes) = unconfirmed.of_item(item);
            if keeps_rules::<T>(system, criteria, sizes, [norm, norm2(x)], outcome) {
                return;
            }
        }
        let (pattern, values) = (batch.pattern(item), batch.values_in(item, copy));
        let system = System::new(system, pattern, values, &b[rows.clone()], criteria);
        system.confirm(guesses.map(|guesses| &guesses[rows]), x, outcome);
    });
}
