//! LU on the emulated GPU, and random systems for it.

use sparsebatch_cuda::Value;
use sparsebatch_formats::{Csr, CsrPattern, Pattern, Scalar};
use sparsebatch_solve_core::PerSystem;
use sparsebatch_solvers::gpu::{GpuLu, Guess, LuTuning};
use sparsebatch_solvers::{Method, SolveOptions};
use sparsebatch_testing::random_vector;

use crate::common::one_step;
use crate::common::{Solved, Systems, from_guesses};
use kernel_emu::Emulator;

/// Default options with LU.
pub(crate) fn options() -> SolveOptions {
    one_step().method(Method::Lu)
}

/// For every third seed: tolerances of `items` systems with which every other system is refined
/// while its neighbours stop.
pub(crate) fn mixed_tolerances(items: usize, seed: u64) -> Option<PerSystem<f64>> {
    let of = |item: usize| if item.is_multiple_of(2) { 0.0 } else { 1e-3 };
    seed.is_multiple_of(3).then(|| PerSystem::Each((0..items).map(of).collect()))
}

/// Solves by LU on the emulated GPU, from the guesses of `systems`.
pub(crate) fn by_lu<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    options: &SolveOptions,
    tuning: &LuTuning,
) -> Solved<T> {
    let (pattern, items) = (systems.pattern(), systems.batch.nitems());
    let plan = GpuLu::<_, T>::with_tuning(executor, pattern, items, options, tuning);
    let mut plan = plan.unwrap();
    from_guesses(executor, systems, |values, b, x| {
        plan.solve(values, b, Guess::InX, x).unwrap();
        (plan.outcomes().unwrap(), plan.explain().launches[0].kernel.clone())
    })
}

/// A pattern with a full diagonal and up to `most` other random entries per row; the upper and the
/// lower triangle differ.
pub(crate) fn pattern(n: usize, most: usize, seed: u64) -> CsrPattern {
    let draws = random_vector::<f64>(n * most, seed);
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for row in 0..n {
        let draws = &draws[row * most..(row + 1) * most];
        let mut cols: Vec<i32> = draws
            .iter()
            .map(|draw| (((draw * 0.5 + 0.5) * n as f64) as usize % n) as i32)
            .collect();
        cols.push(row as i32);
        cols.sort_unstable();
        cols.dedup();
        col_idx.extend(cols);
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap()
}

/// An unsymmetric matrix whose diagonal entries, of either sign, exceed `weight` times the sum of
/// the others in their row.
pub(crate) fn matrix<T: Scalar>(pattern: &CsrPattern, weight: f64, seed: u64) -> Csr<T> {
    let view = pattern.view();
    let mut values = random_vector::<f64>(view.nnz(), seed);
    for row in 0..view.nrows() {
        let is_diagonal = |k: &usize| view.col_idx()[*k] as usize == row;
        let sum: f64 = view.row(row).filter(|k| !is_diagonal(k)).map(|k| values[k].abs()).sum();
        if let Some(k) = view.row(row).find(is_diagonal) {
            values[k] = (weight * sum + 0.1).copysign(values[k]);
        }
    }
    let values = values.into_iter().map(T::from_f64).collect();
    let (row_ptr, col_idx) = (view.row_ptr().to_vec(), view.col_idx().to_vec());
    Csr::try_new(view.nrows(), view.nrows(), row_ptr, col_idx, values).unwrap()
}
