//! Verdicts of the GPU held against the rules of the CPU.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_formats::{Batch, Pattern, Scalar};
use sparsebatch_solve_core::verdict::{Sizes, System, frobenius_norm, keeps_rules, norm2};
use sparsebatch_solve_core::{Criteria, Outcome};

use crate::share::{rows_of, shares_values};

/// What of the matrices bounds the errors of residuals.
pub(super) struct Bounds {
    /// `||A||_F` by item, or one where all share their values: the bits of an f64, NaN where nobody has made it yet.
    norms: Vec<AtomicU64>,
    /// By item, or one where all share their pattern.
    sizes: Vec<Sizes>,
}

impl Bounds {
    /// Those of a batch, without norms yet.
    pub(super) fn new<T: CpuScalar>(batch: &Batch<T>) -> Self {
        let (patterns, matrices) = match batch {
            Batch::Uniform(b) => (1, if shares_values(batch) { 1 } else { b.nitems() }),
            Batch::Ragged(b) => (b.nitems(), b.nitems()),
        };
        let (patterns, matrices) = (patterns.min(batch.nitems()), matrices.min(batch.nitems()));
        let unknown = || AtomicU64::new(f64::NAN.to_bits());
        let norms = (0..matrices).into_par_iter().with_min_len(1 << 12).map(|_| unknown());
        let sizes = (0..patterns).into_par_iter().with_min_len(64);
        let sizes = sizes.map(|item| Sizes::of(batch.pattern(item)));
        Self { norms: norms.collect(), sizes: sizes.collect() }
    }

    /// Takes over the values of an item while they are at hand.
    pub(super) fn see<T: Scalar>(&self, item: usize, values: &[T]) {
        if let Some(norm) = self.norms.get(item) {
            norm.store(frobenius_norm(values).to_bits(), Ordering::Relaxed);
        }
    }

    /// `||A||_F` of an item, and its sizes.
    fn of<T: CpuScalar>(&self, batch: &Batch<T>, item: usize, copy: &mut Vec<T>) -> (f64, Sizes) {
        let place = if self.norms.len() == 1 { 0 } else { item };
        let mut norm = f64::from_bits(self.norms[place].load(Ordering::Relaxed));
        if norm.is_nan() {
            self.see(place, batch.values_in(item, copy));
            norm = f64::from_bits(self.norms[place].load(Ordering::Relaxed));
        }
        (norm, *self.sizes.get(item).unwrap_or(&self.sizes[0]))
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
        None => x.par_chunks(1 << 14).any(|x| x.iter().any(is_nonzero)),
        Some(only) => only
            .par_iter()
            .with_min_len(64)
            .any(|&system| x[rows_of(batch, nrhs, system)].iter().any(is_nonzero)),
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
    let confirm = |copy: &mut Vec<T>, (system, start, x, outcome): Task<'_, T>| {
        let Some(outcome) = outcome else { return };
        let (item, rows) = (system / nrhs, start..start + x.len());
        let (norm, sizes) = bounds.of(batch, item, copy);
        if keeps_rules::<T>(system, criteria, sizes, [norm, norm2(x)], outcome) {
            return;
        }
        let values = batch.values_in(item, copy);
        let system = System::new(system, batch.pattern(item), values, &b[rows.clone()], criteria);
        system.confirm(guesses.map(|guesses| &guesses[rows]), x, outcome);
    };
    match batch {
        Batch::Uniform(uniform) if uniform.pattern().nrows() > 0 => {
            let nrows = uniform.pattern().nrows();
            let each = x.par_chunks_mut(nrows).zip(outcomes).enumerate().with_min_len(16);
            each.for_each_init(Vec::new, |copy, (system, (x, outcome))| {
                confirm(copy, (system, system * nrows, x, outcome));
            });
        }
        _ => {
            let (mut rest, mut start) = (x, 0);
            let mut tasks: Vec<Task<'_, T>> = Vec::with_capacity(outcomes.len());
            for (system, outcome) in outcomes.iter_mut().enumerate() {
                let nrows = batch.pattern(system / nrhs).nrows();
                let (part, after) = rest.split_at_mut(nrows);
                rest = after;
                tasks.push((system, start, part, outcome));
                start += nrows;
            }
            tasks.into_par_iter().with_min_len(16).for_each_init(Vec::new, confirm);
        }
    }
}

/// A system: its number, where its rows begin, its x, and how it ended if it was solved.
type Task<'a, T> = (usize, usize, &'a mut [T], &'a mut Option<Outcome>);
