//! Checks the verdicts of the GPU by the rules of the CPU.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_formats::{Batch, Pattern, Scalar};
use sparsebatch_solve_core::verdict::{
    Sizes, System, frobenius_norm, keeps_rules, norm_of_squares, norm2,
};
use sparsebatch_solve_core::{Criteria, Outcome};

use super::part::PartResults;
use super::staging::Systems;
use crate::share::{rows_of, shares_values};

/// Norms and sizes of the matrices, which bound the rounding errors of residuals.
pub(super) struct Bounds {
    /// `||A||_F` per item, or one entry if all items share their values: the bits of an f64, NaN
    /// until it is computed.
    norms: Vec<AtomicU64>,
    /// Sizes per item, or one entry if all items share their pattern.
    sizes: Vec<Sizes>,
}

impl Bounds {
    /// The sizes of a batch; norms are computed when they are needed.
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

    /// Computes the norm of an item whose values are being copied anyway.
    pub(super) fn see<T: Scalar>(&self, item: usize, values: &[T]) {
        if let Some(norm) = self.norms.get(item) {
            norm.store(frobenius_norm(values).to_bits(), Ordering::Relaxed);
        }
    }

    /// Takes the [sum of squares](sum_of_squares) of an item's values, where it tells the norm.
    ///
    /// [sum_of_squares]: sparsebatch_solve_core::verdict::sum_of_squares
    pub(super) fn take_squares(&self, item: usize, sum: f64) {
        if let (Some(place), Some(norm)) = (self.norms.get(item), norm_of_squares(sum)) {
            place.store(norm.to_bits(), Ordering::Relaxed);
        }
    }

    /// `||A||_F` and sizes of an item.
    pub(super) fn of<T: CpuScalar>(
        &self,
        batch: &Batch<T>,
        item: usize,
        copy: &mut Vec<T>,
    ) -> (f64, Sizes) {
        let place = if self.norms.len() == 1 { 0 } else { item };
        let mut norm = f64::from_bits(self.norms[place].load(Ordering::Relaxed));
        if norm.is_nan() {
            self.see(place, batch.values_in(item, copy));
            norm = f64::from_bits(self.norms[place].load(Ordering::Relaxed));
        }
        (norm, *self.sizes.get(item).unwrap_or(&self.sizes[0]))
    }
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

/// Confirms the outcome of every solved system, or corrects it by [`System::confirm`]. `guesses`
/// are the initial guesses, unless they were 0; all vectors begin with the first item of `systems`.
/// Cost: a pass over the solutions, on all cores.
pub(super) fn certify<T: CpuScalar>(
    systems: Systems<'_, T>,
    (b, guesses): (&[T], Option<&[T]>),
    target: PartResults<'_, T>,
    criteria: &Criteria,
) {
    let Systems { batch, nrhs, first, bounds, .. } = systems;
    let PartResults { x, outcomes } = target;
    let first = first * nrhs;
    let confirm = |copy: &mut Vec<T>, (system, start, x, outcome): Task<'_, T>| {
        let Some(outcome) = outcome else { return };
        let system = first + system;
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
                let nrows = batch.pattern((first + system) / nrhs).nrows();
                let (part, after) = rest.split_at_mut(nrows);
                rest = after;
                tasks.push((system, start, part, outcome));
                start += nrows;
            }
            tasks.into_par_iter().with_min_len(16).for_each_init(Vec::new, confirm);
        }
    }
}

/// A system: its place among the outcomes, its first row, its x, and its outcome if it was solved.
type Task<'a, T> = (usize, usize, &'a mut [T], &'a mut Option<Outcome>);
