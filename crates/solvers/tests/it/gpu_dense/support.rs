//! Dense elimination on the emulated GPU, and systems that need pivots.

use kernel_emu::Emulator;
use sparsebatch_cuda::Value;
use sparsebatch_formats::{Csr, CsrPattern, Pattern, Scalar};
use sparsebatch_solvers::gpu::{DenseSolver, DenseTuning, GpuSolver, Guess};
use sparsebatch_solvers::{Method, SolveOptions};
use sparsebatch_testing::random_vector;

use crate::common::{Solved, Systems, from_guesses, one_step};

/// Default options with LU with partial pivoting.
pub(crate) fn options() -> SolveOptions {
    one_step().method(Method::PivotingLu)
}

/// Solves by dense elimination on the emulated GPU, from the guesses of `systems`.
pub(crate) fn by_dense<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    options: &SolveOptions,
    tuning: &DenseTuning,
) -> Solved<T> {
    let (pattern, items) = (systems.pattern(), systems.batch.nitems());
    let plan = DenseSolver::<_, T>::with_tuning(executor, pattern, items, options, tuning);
    let mut plan = plan.unwrap();
    from_guesses(executor, systems, |values, b, x| {
        plan.solve(values, b, Guess::InX, x).unwrap();
        (plan.outcomes().unwrap(), plan.explain().launches[0].kernel.clone())
    })
}

/// A matrix that elimination in a fixed order cannot take: the diagonal is zero, and the large
/// entries lie on a cyclic shift of the columns, which `pattern` must hold. In f64 rows
/// differ in size by up to 2^20, in f32 by 2^4.
pub(crate) fn shifted<T: Scalar>(pattern: &CsrPattern, shift: usize, seed: u64) -> Csr<T> {
    let view = pattern.view();
    let n = view.nrows();
    let mut values = random_vector::<f64>(view.nnz(), seed);
    for row in 0..n {
        let range = if size_of::<T>() == 8 { 10 } else { 2 };
        let size = 2f64.powi((seed as i32 + row as i32 * 7) % (2 * range + 1) - range);
        for k in view.row(row) {
            let col = view.col_idx()[k] as usize;
            let is_large = col == (row + shift) % n;
            let value = match (is_large, col == row && !shift.is_multiple_of(n)) {
                (true, _) => (2.0 + values[k].abs()).copysign(values[k]),
                (_, true) => 0.0,
                _ => values[k] * 0.3,
            };
            values[k] = value * size;
        }
    }
    let values = values.into_iter().map(T::from_f64).collect();
    let (row_ptr, col_idx) = (view.row_ptr().to_vec(), view.col_idx().to_vec());
    Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
}

/// Some columns of each row: the diagonal, the shifted one, and `most` random ones.
pub(crate) fn pattern_with_shift(n: usize, most: usize, shift: usize, seed: u64) -> CsrPattern {
    let draws = random_vector::<f64>(n * most, seed);
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for row in 0..n {
        let mut cols: Vec<i32> = (0..most)
            .map(|k| (((draws[row * most + k] * 0.5 + 0.5) * n as f64) as usize % n) as i32)
            .collect();
        cols.extend([row as i32, ((row + shift) % n) as i32]);
        cols.sort_unstable();
        cols.dedup();
        col_idx.extend(cols);
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap()
}
