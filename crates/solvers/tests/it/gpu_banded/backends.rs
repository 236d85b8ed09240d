//! Banded elimination through `BatchSolver`: layouts, right-hand sides, ragged batches, the ladder,
//! kept factors, transposed systems.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::{Batch, BatchValues, Csr, Pattern, UniformBatch};
use sparsebatch_solvers::{BatchSolver, Machine, Method, Rung, SolveOptions, Status};
use sparsebatch_testing::random_vector;

use crate::backends::common::{agree, bits, gpu, ragged, rhs};
use crate::common::one_step;
use crate::gpu_banded::support::{Look, band};
use crate::gpu_lu::support::matrix;

fn emulator() -> Emulator {
    Emulator::new(Order::Forward)
}

fn banded() -> SolveOptions {
    one_step().method(Method::Banded)
}

#[test]
fn layouts_and_right_hand_sides_give_the_same() {
    let pattern = band(60, 2, Look::WithHoles);
    let matrices: Vec<Csr<f64>> = (0..7).map(|seed| matrix(&pattern, 1.2, seed)).collect();
    let values = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
    let pattern = matrices[0].pattern().clone();
    let own = UniformBatch::try_new(pattern, 7, BatchValues::ItemMajor(values)).unwrap();
    let shared = UniformBatch::shared(matrices[3].clone(), 7);
    for nrhs in [1, 3] {
        let options = banded().nrhs(nrhs);
        let solve = |batch: &Batch<f64>| {
            let b = rhs(batch, nrhs);
            agree("layout", &gpu(&emulator()), batch, &b, None, &options)
        };
        let item_major = solve(&Batch::Uniform(own.clone()));
        assert!(item_major.report.kernel.starts_with("banded("), "{}", item_major.report.kernel);
        assert_eq!(item_major.report.backend, Machine::Gpu);
        assert_eq!(item_major.x, solve(&Batch::Uniform(own.to_interleaved())).x);
        assert_eq!(item_major.x, solve(&ragged(matrices.clone())).x);
        assert_eq!(
            solve(&Batch::Uniform(shared.clone())).x,
            solve(&Batch::Uniform(shared.to_item_major())).x
        );
    }
}

#[test]
fn ragged_batches_are_solved_pattern_by_pattern() {
    let patterns =
        [band(5, 1, Look::Whole), band(33, 2, Look::Shuffled), band(100, 1, Look::Whole)];
    let matrices: Vec<Csr<f64>> =
        (0..9).map(|item| matrix(&patterns[item % 3], 1.2, item as u64)).collect();
    let batch = ragged(matrices.clone());
    let b = rhs(&batch, 1);

    let solution = agree("ragged", &gpu(&emulator()), &batch, &b, None, &banded());

    assert!(solution.report.all_converged());
    for (item, matrix) in matrices.into_iter().enumerate() {
        let alone = ragged([matrix]);
        let rows = batch.rows(item);
        let single = agree("alone", &gpu(&emulator()), &alone, &b[rows], None, &banded());
        assert_eq!(bits(&batch, &solution, 1, item), bits(&alone, &single, 1, 0), "{item}");
    }
}

/// Zero diagonals and growth: systems that a fixed order does not take climb the ladder.
#[test]
fn systems_that_need_pivots_climb_the_ladder() {
    let n = 40;
    let pattern = band(n, 1, Look::Whole);
    let view = pattern.view();
    let healthy = matrix::<f64>(&pattern, 1.5, 4);
    let with_diagonal = |size: f64| {
        let mut values = random_vector::<f64>(view.nnz(), 8);
        for row in 0..n {
            for k in view.row(row) {
                // Pairs of rows that belong to each other: well conditioned with rows exchanged.
                let col = view.col_idx()[k] as usize;
                values[k] = match (row == col, row / 2 == col / 2) {
                    (true, _) => size * values[k],
                    (_, true) => 2.0 + values[k],
                    _ => 0.1 * values[k],
                };
            }
        }
        Csr::from_parts(pattern.clone().into(), values).unwrap()
    };
    let matrices = [healthy.clone(), with_diagonal(0.0), with_diagonal(1e-13), healthy];
    let batch = ragged(matrices);
    let b = rhs(&batch, 1);
    let backend = gpu(&emulator());
    let mut solver =
        BatchSolver::on_executor(&backend, &batch, None, &banded().fallback(true)).unwrap();
    let mut x = vec![0.0; b.len()];

    let report = solver.solve(&batch, &b, &mut x).unwrap();

    assert!(report.all_converged(), "{:?}", report.systems);
    let rungs: Vec<Rung> = report.systems.iter().map(|system| system.rung).collect();
    assert_eq!([rungs[0], rungs[1], rungs[3]], [Rung::First, Rung::StaticPivotingLu, Rung::First]);
    // Without the ladder permuted rows are part of the method.
    let mut solver = BatchSolver::on_executor(&backend, &batch, None, &banded()).unwrap();
    let mut again = vec![0.0; b.len()];
    let report = solver.solve(&batch, &b, &mut again).unwrap();
    assert_eq!(report.systems[1].rung, Rung::StaticPivotingLu);
    assert_eq!(report.systems[1].outcome.status, Status::Converged);
}

#[test]
fn kept_factors_and_transposed_systems() {
    let n = 50;
    let pattern = band(n, 2, Look::WithHoles);
    let matrices: Vec<Csr<f64>> = (0..5).map(|seed| matrix(&pattern, 1.3, seed)).collect();
    let batch = ragged(matrices);
    let b = rhs(&batch, 1);
    let backend = gpu(&emulator());
    let mut solver = BatchSolver::on_executor(&backend, &batch, None, &banded()).unwrap();
    let mut first = vec![0.0; b.len()];
    assert!(solver.solve(&batch, &b, &mut first).unwrap().all_converged());

    solver.factor(&batch).unwrap();
    let mut again = vec![0.0; b.len()];
    let report = solver.solve_again(&b, &mut again).unwrap();

    assert!(report.all_converged());
    assert_eq!(first, again);
    let mut transposed = vec![0.0; b.len()];
    let report = solver.solve_transposed_again(&b, &mut transposed).unwrap();
    assert!(report.all_converged());
    // b' A^-1 b both ways.
    let dot = |x: &[f64]| x.iter().zip(&b).map(|(x, b)| x * b).sum::<f64>();
    let (one, other) = (dot(&first), dot(&transposed));
    assert!((one - other).abs() <= 1e-8 * one.abs().max(1.0), "{one} {other}");
}
