//! Solves with factors on the emulated GPU, and systems for them.

use kernel_emu::{Emulator, Order as Threads};
use sparsebatch_cuda::Value;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr, CsrPattern, Pattern, Scalar};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::GpuSolveError;
use sparsebatch_solvers::gpu::{FactoredPlace, FactoredSolver, FactoredTuning, Guess};
use sparsebatch_solvers::{Order, PrecondPrecision, Preconditioner, SolveOptions};
use sparsebatch_testing::random_vector;

use crate::common::{Solved, Systems, from_guesses};

/// The preconditioners that have factors.
pub(crate) const PRECONDITIONERS: [Preconditioner; 3] =
    [Preconditioner::BLOCK_JACOBI, Preconditioner::ILU0, Preconditioner::IC0];

/// The orders of ILU(0) and IC(0).
pub(crate) const ORDERS: [Order; 2] = [Order::Natural, Order::MinDegree];

/// The precisions of factors.
pub(crate) const PRECISIONS: [PrecondPrecision; 2] =
    [PrecondPrecision::Working, PrecondPrecision::Single];

/// Every group of threads in every place.
pub(crate) const SHAPES: [(u32, FactoredPlace); 7] = [
    (32, FactoredPlace::AllShared),
    (128, FactoredPlace::AllShared),
    (512, FactoredPlace::AllShared),
    (128, FactoredPlace::ValuesGlobal),
    (512, FactoredPlace::ValuesGlobal),
    (512, FactoredPlace::FactorsGlobal),
    (512, FactoredPlace::AllGlobal),
];

/// Solves on the emulated GPU, from the guesses of `systems`.
pub(crate) fn by_factors<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    options: &SolveOptions,
    tuning: &FactoredTuning,
) -> Solved<T> {
    let (pattern, items) = (systems.pattern(), systems.batch.nitems());
    let plan = FactoredSolver::<_, T>::with_tuning(executor, pattern, items, options, tuning);
    let mut plan = plan.unwrap();
    from_guesses(executor, systems, |values, b, x| {
        plan.solve(values, b, Guess::InX, x).unwrap();
        (plan.outcomes().unwrap(), plan.explain().launches[0].kernel.clone())
    })
}

/// A tuning with this shape.
pub(crate) fn tuning((threads, place): (u32, FactoredPlace)) -> FactoredTuning {
    FactoredTuning::default().threads(Some(threads)).place(Some(place))
}

/// Whether the place that a tuning fixes has room for the systems; device memory always has.
pub(crate) fn fits<T: Value>(
    systems: &Systems<T>,
    options: &SolveOptions,
    tuning: &FactoredTuning,
) -> bool {
    let executor = Emulator::new(Threads::Forward);
    match FactoredSolver::<_, T>::with_tuning(&executor, systems.pattern(), 1, options, tuning) {
        Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "tuning", .. })) => {
            assert!(tuning.place.is_some_and(|place| place != FactoredPlace::AllGlobal));
            false
        }
        plan => plan.is_ok(),
    }
}

/// Systems of a family, from x = 0.
pub(crate) fn family<T: Scalar>(family: Family, nrows: usize, items: usize) -> Systems<T> {
    let problem = Problem::new(family, nrows).unwrap().batch(items).unwrap();
    let Batch::Uniform(batch) = &problem.batch else { unreachable!("one pattern") };
    let matrices: Vec<Csr<T>> = (0..items).map(|item| convert(&batch.to_matrix(item))).collect();
    Systems::new(&matrices, problem.rhs.iter().map(|&v| T::from_f64(v)).collect())
}

/// A matrix in another precision.
pub(crate) fn convert<T: Scalar>(matrix: &Csr<f64>) -> Csr<T> {
    let values = matrix.values().iter().map(|&v| T::from_f64(v)).collect();
    Csr::from_parts(matrix.pattern().clone(), values).unwrap()
}

/// A pattern with a full diagonal and `most` other random entries per row, with `symmetric` also
/// their transposes.
pub(crate) fn pattern(n: usize, most: usize, symmetric: bool, seed: u64) -> CsrPattern {
    let draws = random_vector::<f64>(n * most, seed);
    let mut rows: Vec<Vec<i32>> = (0..n as i32).map(|row| vec![row]).collect();
    for (k, draw) in draws.iter().enumerate() {
        let (row, col) = (k / most, ((draw * 0.5 + 0.5) * n as f64) as usize % n);
        rows[row].push(col as i32);
        if symmetric {
            rows[col].push(row as i32);
        }
    }
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for mut row in rows {
        row.sort_unstable();
        row.dedup();
        col_idx.extend(row);
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap()
}

/// A matrix whose diagonal entries exceed `weight` times the sum of the others in their row.
/// Symmetric positive definite on a symmetric pattern with `symmetric`, else of either sign.
pub(crate) fn matrix<T: Scalar>(
    pattern: &CsrPattern,
    weight: f64,
    symmetric: bool,
    seed: u64,
) -> Csr<T> {
    let view = pattern.view();
    let draws = random_vector::<f64>(view.nnz(), seed);
    let entry = |row: usize, k: usize| {
        let col = view.col_idx()[k] as usize;
        if symmetric && col < row {
            let mirrored = view.row(col).find(|&k| view.col_idx()[k] as usize == row);
            draws[mirrored.expect("a symmetric pattern")]
        } else {
            draws[k]
        }
    };
    let mut values = vec![0.0; view.nnz()];
    for row in 0..view.nrows() {
        let mut sum = 0.0;
        for k in view.row(row) {
            values[k] = entry(row, k);
            sum += values[k].abs();
        }
        if let Some(k) = view.row(row).find(|&k| view.col_idx()[k] as usize == row) {
            let size = weight * (sum - values[k].abs()) + 0.1;
            values[k] = if symmetric { size } else { size.copysign(values[k]) };
        }
    }
    let values = values.into_iter().map(T::from_f64).collect();
    Csr::from_parts(pattern.clone().into(), values).unwrap()
}
