//! Verdicts of the GPU held against the rules of the CPU: [`certify`].

use rayon::prelude::*;
use sparsebatch_cpu_ref::verdict::System;
use sparsebatch_cpu_ref::{CpuScalar, Criteria, Outcome};
use sparsebatch_formats::Batch;

/// Confirms the outcome of every system that has one, or changes it as [`System::confirm`] says. `guesses` is what x
/// was before, where it was not 0. Cost: two passes over values and solutions, on all cores.
pub(super) fn certify<T: CpuScalar>(
    batch: &Batch<T>,
    nrhs: usize,
    (b, guesses): (&[T], Option<&[T]>),
    x: &mut [T],
    criteria: &Criteria,
    outcomes: &mut [Option<Outcome>],
) {
    let mut tasks = Vec::with_capacity(outcomes.len());
    let (mut rest, mut start) = (x, 0);
    for (system, outcome) in outcomes.iter_mut().enumerate() {
        let nrows = batch.pattern(system / nrhs).nrows();
        let (part, after) = rest.split_at_mut(nrows);
        rest = after;
        if let Some(outcome) = outcome {
            tasks.push((system, start..start + nrows, part, outcome));
        }
        start += nrows;
    }
    tasks.into_par_iter().for_each_init(Vec::new, |copy, (system, rows, x, outcome)| {
        let item = system / nrhs;
        let values = batch.values_in(item, copy);
        let system = System::new(system, batch.pattern(item), values, &b[rows.clone()], criteria);
        system.confirm(guesses.map(|guesses| &guesses[rows]), x, outcome);
    });
}
