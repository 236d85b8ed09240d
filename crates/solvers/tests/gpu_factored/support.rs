//! Solves with factors on the emulated GPU, and systems for them.

use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr, Scalar};
use sparsebatch_solvers::gpu::{FactoredPlace, FactoredSolver, FactoredTuning, Guess};
use sparsebatch_solvers::{Order, Preconditioner, SolveOptions};
use sparsebatch_spmv_gpu::{Executor, Value};

use crate::common::emulator::Emulator;
use crate::common::{Solved, Systems};

/// The preconditioners that have factors.
pub(crate) const PRECONDITIONERS: [Preconditioner; 3] =
    [Preconditioner::BlockJacobi, Preconditioner::Ilu0, Preconditioner::Ic0];

/// The orders of ILU(0) and IC(0).
pub(crate) const ORDERS: [Order; 2] = [Order::Natural, Order::MinDegree];

/// Solves on the emulated GPU, from the guesses.
pub(crate) fn by_factors<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    options: &SolveOptions,
    tuning: &FactoredTuning,
) -> Solved<T> {
    let items = systems.batch.nitems();
    let mut plan =
        FactoredSolver::<_, T>::with_tuning(executor, systems.pattern(), items, options, tuning)
            .unwrap();
    let values = executor.upload(systems.values()).unwrap();
    let b = executor.upload(&systems.b).unwrap();
    let mut x = executor.upload(&systems.x0).unwrap();
    let before = executor.bytes_in_use();
    plan.solve(&values, &b, Guess::InX, &mut x).unwrap();
    assert_eq!(executor.bytes_in_use(), before, "a solve allocates nothing");
    Solved {
        x: executor.download(&x).unwrap(),
        outcomes: plan.outcomes().unwrap(),
        kernel: plan.explain().kernel,
    }
}

/// A tuning that says where everything is.
pub(crate) fn tuning(threads: u32, place: FactoredPlace) -> FactoredTuning {
    FactoredTuning { threads: Some(threads), place: Some(place), ..FactoredTuning::default() }
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
    let pattern = matrix.view().pattern();
    let values = matrix.values().iter().map(|&v| T::from_f64(v)).collect();
    let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
    Csr::try_new(pattern.nrows(), pattern.ncols(), row_ptr, col_idx, values).unwrap()
}
