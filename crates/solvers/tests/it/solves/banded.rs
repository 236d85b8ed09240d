//! Banded LU on the CPU: sizes, orders, kept factors, systems that need pivots, patterns that are no
//! bands.

use sparsebatch_cpu_ref::CpuError;
use sparsebatch_formats::{Batch, Csr, Pattern};
use sparsebatch_solve_core::symbolic::SymbolicError;
use sparsebatch_solvers::{
    BatchSolver, Method, Preconditioner, Rung, SolveError, SolveOptions, SolveScalar, Status, solve,
};
use sparsebatch_testing::random_vector;

use crate::gpu_banded::support::{Look, band, pattern_of};
use crate::gpu_lu::support::matrix;
use crate::solves::support::{cast, options, ragged, residual_norm};

fn banded() -> SolveOptions {
    options(Method::Banded, Preconditioner::Auto)
}

fn solves_bands<T: SolveScalar>() {
    let mut matrices = Vec::new();
    for n in [1, 2, 3, 31, 32, 33, 100, 1000, 5000] {
        matrices.push(matrix::<T>(&band(n, 1, Look::Whole), 1.2, n as u64));
        if n <= 1000 {
            matrices.push(matrix::<T>(&band(n, 8, Look::WithHoles), 1.2, n as u64));
            matrices.push(matrix::<T>(&band(n, 2, Look::Shuffled), 1.2, n as u64));
        }
    }
    let batch = ragged(&matrices);
    let b: Vec<T> = cast(&random_vector::<f64>(batch.row_offset(batch.nitems()), 3));

    let solution = solve(&batch, &b, None, &banded()).unwrap();

    assert!(solution.report.all_converged(), "{:?}", solution.report.systems);
    assert!(solution.report.scheme.name() == "banded", "{}", solution.report.scheme);
    for (item, a) in matrices.iter().enumerate() {
        let rows = batch.rows(item);
        let outcome = &solution.report.systems[item].outcome;
        let found = residual_norm(a, &b[rows.clone()], &solution.x[rows]);
        let most = SolveOptions::default_rel_tol::<T>() * outcome.rhs_norm;
        assert!(found <= 1.01 * most, "{item}: {found:e}");
        assert_eq!((outcome.iterations, outcome.restarts), (1, 0), "{item}");
    }
}

#[test]
fn bands_are_solved_in_one_step() {
    solves_bands::<f64>();
    solves_bands::<f32>();
}

/// In the order of a tridiagonal matrix both eliminate alike.
#[test]
fn bits_are_those_of_the_lu_where_orders_agree() {
    let a = matrix::<f64>(&band(40, 1, Look::Whole), 1.2, 5);
    let batch = Batch::from(a);
    let b = random_vector::<f64>(40, 3);
    let by = |method| solve(&batch, &b, None, &options(method, Preconditioner::Auto)).unwrap();

    let (one, other) = (by(Method::Banded), by(Method::Lu));

    let apart = one.x.iter().zip(&other.x).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart <= 1e-13, "{apart:e}");
}

#[test]
fn kept_factors_give_the_same_bits_also_for_transposed_systems() {
    let pattern = band(50, 2, Look::WithHoles);
    let matrices: Vec<Csr<f64>> = (0..11).map(|seed| matrix(&pattern, 1.3, seed)).collect();
    let batch = ragged(&matrices);
    let nrhs = 2;
    let b = random_vector::<f64>(50 * 11 * nrhs, 3);
    let mut solver = BatchSolver::new(&batch, &banded().nrhs(nrhs)).unwrap();
    let (mut first, mut again, mut transposed) =
        (vec![0.0; b.len()], vec![0.0; b.len()], vec![0.0; b.len()]);
    assert!(solver.solve(&batch, &b, &mut first).unwrap().all_converged());

    solver.factor(&batch).unwrap();

    assert!(solver.keeps_factors());
    assert!(solver.solve_again(&b, &mut again).unwrap().all_converged());
    assert_eq!(first, again);
    assert!(solver.solve_transposed_again(&b, &mut transposed).unwrap().all_converged());
    // b' A^-1 b both ways.
    for system in 0..11 * nrhs {
        let rows = system * 50..(system + 1) * 50;
        let dot = |x: &[f64]| x.iter().zip(&b[rows.clone()]).map(|(x, b)| x * b).sum::<f64>();
        let (one, other) = (dot(&first[rows.clone()]), dot(&transposed[rows.clone()]));
        assert!((one - other).abs() <= 1e-8 * one.abs().max(1.0), "{one} {other}");
    }
}

/// Zero and tiny diagonals: rows are permuted, with the ladder and without.
#[test]
fn systems_that_need_pivots_are_solved_with_permuted_rows() {
    let n = 40;
    let pattern = band(n, 1, Look::Whole);
    let view = pattern.view();
    for size in [0.0, 1e-14, 1e-17] {
        let mut values = random_vector::<f64>(view.nnz(), 8);
        for row in 0..n {
            for k in view.row(row) {
                let col = view.col_idx()[k] as usize;
                values[k] = match (row == col, row / 2 == col / 2) {
                    (true, _) => size,
                    (_, true) => 2.0 + values[k],
                    _ => 0.1 * values[k],
                };
            }
        }
        let hard = Csr::from_parts(pattern.clone().into(), values).unwrap();
        let healthy = matrix::<f64>(&pattern, 1.5, 4);
        let batch = ragged(&[healthy.clone(), hard, healthy]);
        let b = random_vector::<f64>(3 * n, 3);
        let alone = solve(&ragged(&[batch.to_csr(0)]), &b[..n], None, &banded()).unwrap();
        for fallback in [false, true] {
            let options = banded().fallback(fallback);

            let solution = solve(&batch, &b, None, &options).unwrap();

            let report = &solution.report;
            assert!(report.all_converged(), "{size} {:?}", report.systems);
            assert_eq!(report.systems[0].rung, Rung::First);
            if size == 0.0 {
                assert_eq!(report.systems[1].rung, Rung::StaticPivotingLu, "{fallback}");
            }
            assert_eq!(solution.x[..n], alone.x);
        }
    }
}

#[test]
fn singular_and_flawed_systems_have_their_status() {
    let n = 33;
    let pattern = band(n, 1, Look::Whole);
    let healthy = matrix::<f64>(&pattern, 1.5, 4);
    let edited = |edit: &dyn Fn(&mut Vec<f64>)| {
        let mut values = healthy.values().to_vec();
        edit(&mut values);
        Csr::from_parts(pattern.clone().into(), values).unwrap()
    };
    let row = pattern.view().row(7);
    let matrices = [
        healthy.clone(),
        edited(&|v| v[row.clone()].fill(0.0)),
        edited(&|v| v[3] = f64::NAN),
        edited(&|v| v[5] = f64::INFINITY),
        edited(&|v| v.fill(0.0)),
        healthy.clone(),
    ];
    let batch = ragged(&matrices);
    let b = random_vector::<f64>(n * 6, 3);

    let solution = solve(&batch, &b, None, &banded()).unwrap();

    let statuses: Vec<Status> =
        solution.report.systems.iter().map(|system| system.outcome.status).collect();
    use Status::{Converged, NonFinite, ZeroPivot};
    assert_eq!(statuses, [Converged, ZeroPivot, NonFinite, NonFinite, ZeroPivot, Converged]);
    assert!(solution.x[n..5 * n].iter().all(|&x| x == 0.0));
}

#[test]
fn patterns_that_are_no_bands_are_an_error() {
    let arrow = pattern_of(40, |row, col| row == col || row == 0 || col == 0);
    let values = vec![1.0; arrow.nnz()];
    let batch = Batch::from(Csr::from_parts(arrow.into(), values).unwrap());

    let error = BatchSolver::new(&batch, &banded()).map(drop).unwrap_err();

    let SolveError::Cpu(CpuError::Symbolic(SymbolicError::NoBand { lower, upper, limit })) = &error
    else {
        panic!("{error}");
    };
    assert_eq!((*lower, *upper, *limit), (39, 39, 8));
    assert!(!error.to_string().contains('\n'));
}
