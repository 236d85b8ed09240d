//! Banded elimination through `BatchSolver`: layouts, right-hand sides, ragged batches, the ladder,
//! kept factors, transposed systems, the choice of `auto`.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Executor;
use sparsebatch_formats::{Batch, BatchValues, Csr, Pattern, UniformBatch};
use sparsebatch_solvers::gpu::Guess;
use sparsebatch_solvers::{
    BatchSolver, DeviceSolver, Machine, Method, Rung, Scheme, SolveOptions, Status,
};
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

/// What `auto` takes on a GPU, from the host and with all data on the device.
#[test]
fn auto_eliminates_narrow_bands() {
    let options = one_step().method(Method::Auto);
    for (pattern, is_band) in [
        (band(40, 1, Look::Whole), true),
        (band(100, 1, Look::Shuffled), true),
        (band(70, 2, Look::WithHoles), true),
        (band(60, 3, Look::Whole), true),
        (band(40, 3, Look::Whole), false),
        (band(60, 3, Look::Shuffled), true),
        (band(40, 5, Look::Whole), false),
        (band(6657, 1, Look::Whole), true),
    ] {
        let matrices: Vec<Csr<f64>> = (0..2).map(|seed| matrix(&pattern, 1.4, seed)).collect();
        let batch = ragged(matrices.clone());
        let b = rhs(&batch, 1);
        let executor = emulator();

        let solver = BatchSolver::on_executor(&gpu(&executor), &batch, None, &options);
        let mut x = vec![0.0; b.len()];
        let report = solver.unwrap().solve(&batch, &b, &mut x).unwrap();

        let what = format!("{} {is_band} {}", pattern.nrows(), report.kernel);
        assert!(report.all_converged(), "{what}");
        assert_eq!(report.scheme == Scheme::Banded, is_band, "{what}");
        assert_eq!(report.kernel.starts_with("banded("), is_band, "{what}");
        assert_eq!(report.reason.starts_with("a narrow band"), is_band, "{}", report.reason);
        // The same systems in the memory of the device.
        let mut solver = DeviceSolver::new(&executor, &batch, &options).unwrap();
        let values: Vec<f64> = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
        let up = |v: &[f64]| executor.upload(v).unwrap();
        let mut there = up(&vec![0.0; b.len()]);
        let on_device = solver.solve(&up(&values), &up(&b), Guess::Zero, &mut there).unwrap();
        assert_eq!(on_device.into_report().scheme, report.scheme, "{what}");
        assert_eq!(executor.download(&there).unwrap(), x, "{what}");
    }
}

/// Pivots that vanish in the parts of the elimination, under `auto`: the ladder's, as after LU.
#[test]
fn systems_that_auto_eliminates_climb_the_ladder() {
    let n = 40;
    let pattern = band(n, 1, Look::Whole);
    let healthy = matrix::<f64>(&pattern, 1.5, 4);
    let mut values = healthy.values().to_vec();
    for row in 0..n {
        for k in pattern.view().row(row) {
            // Pairs of rows, to be exchanged.
            let col = pattern.view().col_idx()[k] as usize;
            values[k] = match (row == col, row / 2 == col / 2) {
                (true, _) => 0.0,
                (_, true) => 2.0,
                _ => 0.1,
            };
        }
    }
    let without = Csr::from_parts(pattern.clone().into(), values).unwrap();
    let batch = ragged([healthy.clone(), without, healthy]);
    let b = rhs(&batch, 1);
    for fallback in [false, true] {
        let options = one_step().method(Method::Auto).fallback(fallback);
        let solver = BatchSolver::on_executor(&gpu(&emulator()), &batch, None, &options);
        let mut x = vec![0.0; b.len()];

        let report = solver.unwrap().solve(&batch, &b, &mut x).unwrap();

        assert_eq!(report.scheme, Scheme::Banded);
        assert!(report.all_converged(), "{fallback} {:?}", report.systems);
        let rungs: Vec<Rung> = report.systems.iter().map(|system| system.rung).collect();
        assert_eq!(rungs, [Rung::First, Rung::StaticPivotingLu, Rung::First]);
        assert_eq!(x[..n], {
            let alone = ragged([batch.to_csr(0)]);
            let solver = BatchSolver::on_executor(&gpu(&emulator()), &alone, None, &options);
            let mut x = vec![0.0; n];
            solver.unwrap().solve(&alone, &b[..n], &mut x).unwrap();
            x
        });
    }
}
