//! Banded elimination on the emulated GPU, and bands for it.

use kernel_emu::Emulator;
use sparsebatch_cuda::Value;
use sparsebatch_formats::CsrPattern;
use sparsebatch_solvers::gpu::{BandedSolver, BandedTuning, GpuSolver, Guess};
use sparsebatch_solvers::{Method, SolveOptions};
use sparsebatch_testing::{band_pattern, random_vector};

use crate::common::{Solved, Systems, from_guesses, one_step};

/// Default options with banded elimination.
pub(crate) fn options() -> SolveOptions {
    one_step().method(Method::Banded)
}

/// Solves by banded elimination on the emulated GPU, from the guesses of `systems`.
pub(crate) fn by_banded<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    options: &SolveOptions,
    tuning: &BandedTuning,
) -> Solved<T> {
    let (pattern, items) = (systems.pattern(), systems.batch.nitems());
    let plan = BandedSolver::<_, T>::with_tuning(executor, pattern, items, options, tuning);
    let mut plan = plan.unwrap();
    from_guesses(executor, systems, |values, b, x| {
        plan.solve(values, b, Guess::InX, x).unwrap();
        (plan.outcomes().unwrap(), plan.explain().launches[0].kernel.clone())
    })
}

/// A square pattern of the places that `has` names.
pub(crate) fn pattern_of(n: usize, has: impl Fn(usize, usize) -> bool) -> CsrPattern {
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for row in 0..n {
        col_idx.extend((0..n as i32).filter(|&col| has(row, col as usize)));
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap()
}

/// How the entries of a band lie in the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// All of them, in the order of the band.
    Whole,
    /// Some are missing, but for the diagonal.
    WithHoles,
    /// Rows and columns in another order.
    Shuffled,
}

/// The pattern of a band with `half` diagonals on each side.
pub(crate) fn band(n: usize, half: usize, look: Look) -> CsrPattern {
    let draws = random_vector::<f64>(n.max(1) * (2 * half + 1), 11);
    let is_hole = |row: usize, col: usize| {
        look == Look::WithHoles && draws[row * (2 * half + 1) + col + half - row] > 0.5
    };
    // 7 divides no size of the tests that are shuffled.
    let step = if look == Look::Shuffled { 7 } else { 1 };
    band_pattern(n, half, step, |row, col| !is_hole(row, col))
}
