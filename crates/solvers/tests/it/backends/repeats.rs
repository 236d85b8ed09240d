//! Solves with the analysis kept.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::{Batch, UniformBatch};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::{BatchSolver, SolveError, solve_on_executor};

use crate::backends::common::{cg, chain, dense, gpu, patterns, ragged, rhs};

#[test]
fn other_values_and_vectors_as_if_analysed_anew() {
    let executor = Emulator::new(Order::Forward);
    let first = ragged(patterns::<f64>(12));
    let second = ragged(patterns::<f64>(22).into_iter().skip(10));
    let b = rhs(&first, 1);
    let mut solver = BatchSolver::on_executor(&gpu(&executor), &first, None, &cg()).unwrap();
    let in_use = executor.bytes_in_use();
    for (batch, factor) in [(&first, 1.0), (&second, -3.0), (&first, 1.0)] {
        let b: Vec<f64> = b.iter().map(|v| factor * v).collect();
        let mut x = vec![0.0; b.len()];

        let report = solver.solve(batch, &b, &mut x).unwrap();
        let again = solver.solve(batch, &b, &mut x.clone()).unwrap();

        let fresh = solve_on_executor(&gpu(&executor), batch, &b, None, &cg()).unwrap();
        assert_eq!((x, report.systems), (fresh.x, fresh.report.systems));
        assert_eq!(again.iterations(), (0, 0.0, 0), "from the solution");
        assert_eq!(executor.bytes_in_use(), in_use, "a solve allocates nothing");
    }
}

#[test]
fn shared_values_where_there_were_own_ones() {
    let executor = Emulator::new(Order::Forward);
    let shared = UniformBatch::shared(chain::<f64>(12, 3.0), 6);
    let own = Batch::Uniform(shared.to_item_major());
    let shared = Batch::Uniform(shared);
    let b = rhs(&own, 1);
    for batches in [[&own, &shared], [&shared, &own]] {
        let mut solver =
            BatchSolver::on_executor(&gpu(&executor), batches[0], None, &cg()).unwrap();
        let [first, second] = batches.map(|batch| {
            let mut x = vec![0.0; b.len()];
            assert!(solver.solve(batch, &b, &mut x).unwrap().all_converged());
            x
        });
        assert_eq!(first, second);
    }
}

#[test]
fn other_patterns_and_lengths_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let batch = ragged([chain::<f64>(3, 2.5), chain(3, 2.5)]);
    let other = ragged([chain::<f64>(3, 2.5), dense(3, 2.5)]);
    let mut solver = BatchSolver::on_executor(&gpu(&executor), &batch, None, &cg()).unwrap();
    let mut x = [7.0; 6];

    let refused = solver.solve(&other, &[1.0; 6], &mut x);
    assert!(matches!(refused, Err(SolveError::Cpu(_))), "{refused:?}");
    let refused = solver.solve(&batch, &[1.0; 5], &mut x);
    assert!(
        matches!(refused, Err(SolveError::Argument(ArgumentError::Length { what: "b", .. }))),
        "{refused:?}"
    );
    let refused = solver.solve(&ragged([chain(3, 2.5)]), &[1.0; 3], &mut x[..3]);
    assert!(
        matches!(refused, Err(SolveError::Argument(ArgumentError::Length { .. }))),
        "{refused:?}"
    );

    assert_eq!(x, [7.0; 6]);
    assert!(executor.launched().is_empty());
}

#[test]
fn solvers_may_go_to_other_threads() {
    fn check<T: Send + Sync>(_: &T) {}
    let solver = BatchSolver::on_executor(
        &gpu(&Emulator::new(Order::Forward)),
        &ragged(patterns::<f64>(2)),
        None,
        &cg(),
    );
    check(&solver.unwrap());
}
