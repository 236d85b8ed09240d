//! Verdicts of the GPU held against the rules of the CPU.

use rayon::prelude::*;
use sparsebatch_cpu_ref::verdict::{System, keeps_rules, norm2};
use sparsebatch_cpu_ref::{CpuScalar, Criteria, Outcome};
use sparsebatch_formats::{Batch, BatchValues};

use super::staging::Systems;

/// What of the matrices bounds the errors of residuals: made while the GPU solves.
pub(super) struct Bounds {
    /// `||A||_F` by item, or one where all share their values; of items that are not wanted 0.
    norms: Vec<f64>,
    /// The entries of the longest row, by item, or one where all share their pattern.
    longest_rows: Vec<usize>,
}

impl Bounds {
    /// Those of the items that are wanted. Cost: a pass over the values, on all cores.
    pub(super) fn new<T: CpuScalar>(systems: Systems<'_, T>) -> Self {
        let batch = systems.batch;
        let longest_row = |item: usize| {
            let pattern = batch.pattern(item);
            (0..pattern.nrows()).map(|row| pattern.row(row).len()).max().unwrap_or(0)
        };
        let (patterns, matrices) = match batch {
            Batch::Uniform(b) if matches!(b.values(), BatchValues::Shared(_)) => (1, 1),
            Batch::Uniform(b) => (1, b.nitems()),
            Batch::Ragged(b) => (b.nitems(), b.nitems()),
        };
        let (patterns, matrices) = (patterns.min(batch.nitems()), matrices.min(batch.nitems()));
        let norm = |copy: &mut Vec<T>, item: usize| {
            let mut of_item = item * systems.nrhs..(item + 1) * systems.nrhs;
            let is_wanted = matrices < batch.nitems() || of_item.any(|s| systems.wants(s));
            if is_wanted { norm2(batch.values_in(item, copy)) } else { 0.0 }
        };
        Self {
            norms: (0..matrices)
                .into_par_iter()
                .with_min_len(16)
                .map_init(Vec::new, norm)
                .collect(),
            longest_rows: (0..patterns).into_par_iter().with_min_len(64).map(longest_row).collect(),
        }
    }

    fn of(&self, item: usize) -> (f64, usize) {
        let longest_row = *self.longest_rows.get(item).unwrap_or(&self.longest_rows[0]);
        (*self.norms.get(item).unwrap_or(&self.norms[0]), longest_row)
    }
}

/// What x is on entry, unless that is 0 in all systems that are solved.
pub(super) fn guesses<T: CpuScalar>(
    batch: &Batch<T>,
    nrhs: usize,
    x: &[T],
    only: Option<&[usize]>,
) -> Option<Vec<T>> {
    let is_nonzero = |x: &T| *x != T::ZERO;
    let are_there = match only {
        None => x.par_iter().any(is_nonzero),
        Some(only) => only.par_iter().with_min_len(64).any(|&system| {
            let (item, rhs) = (system / nrhs, system % nrhs);
            let nrows = batch.pattern(item).nrows();
            let first = batch.row_offset(item) * nrhs + rhs * nrows;
            x[first..first + nrows].iter().any(is_nonzero)
        }),
    };
    are_there.then(|| x.par_iter().copied().collect())
}

/// Confirms the outcome of every system that has one, or changes it as [`System::confirm`] says. `guesses` is what x
/// was before, where it was not 0. Cost: a pass over the solutions, on all cores.
pub(super) fn certify<T: CpuScalar>(
    batch: &Batch<T>,
    nrhs: usize,
    bounds: &Bounds,
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
    let tasks = tasks.into_par_iter().with_min_len(16);
    tasks.for_each_init(Vec::new, |copy, (system, rows, x, outcome)| {
        let item = system / nrhs;
        let (norm, longest_row) = bounds.of(item);
        let sizes = (rows.len(), longest_row);
        if keeps_rules::<T>(system, criteria, sizes, [norm, norm2(x)], outcome) {
            return;
        }
        let values = batch.values_in(item, copy);
        let system = System::new(system, batch.pattern(item), values, &b[rows.clone()], criteria);
        system.confirm(guesses.map(|guesses| &guesses[rows]), x, outcome);
    });
}
