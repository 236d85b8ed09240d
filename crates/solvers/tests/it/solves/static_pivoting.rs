//! Static pivoting: systems with a zero pivot in the order of the sparse LU are solved with
//! permuted rows.

use sparsebatch_formats::{Batch, Csr, Scalar};
use sparsebatch_solvers::{
    BatchSolver, Method, Preconditioner, Rung, SolveOptions, SolveScalar, Status, solve,
};
use sparsebatch_testing::random_vector;

use crate::solves::support::{
    Bits, Kind, cast, matrix, options, pattern, ragged, residual_norm, tridiagonal, uniform,
};

fn lu() -> SolveOptions {
    options(Method::Lu, Preconditioner::Auto)
}

/// The matrix with its rows rotated: row `k` is row `k + by` of `a`. Of a band, nothing is left on
/// the diagonal.
fn rotated<T: Scalar>(a: &Csr<T>, by: usize) -> Csr<T> {
    let n = a.nrows();
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in (0..n).map(|row| (row + by) % n) {
        let entries = a.view().pattern().row(row);
        col_idx.extend_from_slice(&a.col_idx()[entries.clone()]);
        values.extend_from_slice(&a.values()[entries]);
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
}

/// Bands of several sizes and values, every second one rotated.
fn bands<T: SolveScalar>() -> Vec<Csr<T>> {
    let band = |i: usize| tridiagonal(8 + 5 * (i / 2 % 3), -1.0, 3.0 + 0.1 * i as f64, -1.5);
    let of = |i: usize| if i % 2 == 1 { rotated(&band(i), 2 + i % 4) } else { band(i) };
    (0..24).map(|i| of(i).cast()).collect()
}

fn solves_all<T: SolveScalar>(bound: f64) {
    let matrices = bands::<T>();
    let batch = ragged(&matrices);
    let nrhs = 2;
    let b: Vec<T> = cast(&random_vector::<f64>(batch.row_offset(batch.nitems()) * nrhs, 4));
    for fallback in [false, true] {
        let options = lu().nrhs(nrhs).fallback(fallback);

        let solution = solve(&batch, &b, None, &options).unwrap();

        let report = &solution.report;
        assert_eq!(
            report.rung_counts(),
            [(Rung::First, 24), (Rung::StaticPivotingLu, 24)],
            "{fallback}"
        );
        assert_eq!((report.runs[1].rung, report.runs[1].systems), (Rung::StaticPivotingLu, 24));
        let mut start = 0;
        for (s, system) in report.systems.iter().enumerate() {
            let a = &matrices[s / nrhs];
            let rows = start..start + a.nrows();
            start = rows.end;
            let outcome = &system.outcome;
            assert_eq!(outcome.status, Status::Converged, "system {s}: {outcome:?}");
            let residual = residual_norm(a, &b[rows.clone()], &solution.x[rows]);
            assert!(residual <= bound * outcome.rhs_norm, "system {s}: {residual}");
        }
    }
}

#[test]
fn systems_without_a_diagonal_are_solved_without_a_ladder() {
    solves_all::<f64>(1.001e-10);
    solves_all::<f32>(2e-5);
}

/// Skew-symmetric matrices, which have a zero diagonal, and a zero matrix, with the pattern of
/// healthy ones.
#[test]
fn neighbours_of_a_pattern_keep_every_bit() {
    let shape = pattern(9, 3);
    let healthy: Vec<Csr<f64>> = (0..5).map(|i| matrix(&shape, Kind::Dominant, i)).collect();
    let mut matrices = healthy.clone();
    for (place, kind) in [(1, Kind::Skew), (3, Kind::Zero), (5, Kind::Skew)] {
        matrices.insert(place, matrix(&shape, kind, 40 + place as u64));
    }
    let b: Vec<f64> = random_vector(9 * 8, 8);
    let rows = |i: usize| 9 * i..9 * i + 9;
    let places = [0, 2, 4, 6, 7];
    let b_healthy: Vec<f64> = places.iter().flat_map(|&i| &b[rows(i)]).copied().collect();

    let with = solve(&Batch::from(uniform(&matrices)), &b, None, &lu()).unwrap();
    let without = solve(&Batch::from(uniform(&healthy)), &b_healthy, None, &lu()).unwrap();

    let bits = |solution: &sparsebatch_solvers::Solution<f64>, i: usize| {
        Bits::new(&solution.report.systems[i].outcome, &solution.x[rows(i)])
    };
    for (k, place) in places.into_iter().enumerate() {
        assert_eq!(bits(&with, place), bits(&without, k), "{place}");
    }
    assert_eq!(with.report.systems[3].outcome.status, Status::ZeroPivot);
    // A skew-symmetric matrix of odd size is singular, whatever the order.
    assert_ne!(with.report.systems[1].outcome.status, Status::Converged);
}

/// The analysis is kept where row orders are equal, and made again where they are not.
#[test]
fn later_solves_have_orders_of_their_own_values() {
    let n = 12;
    let both = |on: f64, rotated_on: f64| -> Csr<f64> {
        // A cyclic band and a rotated one, on one pattern.
        let entry = |row: usize, col: usize| match (col + n - row) % n {
            2 => Some(on),
            3 | 1 => Some(on / 4.0),
            6 => Some(rotated_on),
            7 | 5 => Some(rotated_on / 4.0),
            _ => None,
        };
        let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in 0..n {
            for (col, value) in (0..n).filter_map(|col| Some((col, entry(row, col)?))) {
                col_idx.push(col as i32);
                values.push(value);
            }
            row_ptr.push(col_idx.len() as i32);
        }
        Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
    };
    let batch = |values: &[(f64, f64)]| {
        let matrices: Vec<_> = values.iter().map(|&(on, other)| both(on, other)).collect();
        Batch::from(uniform(&matrices))
    };
    let first = batch(&[(2.0, 0.0), (0.0, 3.0), (5.0, 0.0)]);
    let alike = batch(&[(3.0, 0.0), (0.0, 1.0), (7.0, 0.0)]);
    let others = batch(&[(0.0, 1.0), (4.0, 0.0), (1.0, 0.0)]);
    let b: Vec<f64> = random_vector(3 * n, 1);
    for fallback in [false, true] {
        let options = lu().fallback(fallback);
        let mut solver = BatchSolver::new(&first, &options).unwrap();
        let mut rungs = |batch: &Batch<f64>| {
            let mut x = vec![0.0; b.len()];
            let report = solver.solve(batch, &b, &mut x).unwrap();
            solver.factor(batch).unwrap();
            let mut again = vec![0.0; b.len()];
            let kept = solver.solve_again(&b, &mut again).unwrap();
            assert!(kept.all_converged());
            assert_eq!(again, x);
            let of =
                |system: &sparsebatch_solvers::SystemReport| (system.outcome.status, system.rung);
            report.systems.iter().map(of).collect::<Vec<_>>()
        };

        let solved = (Status::Converged, Rung::StaticPivotingLu);
        assert_eq!(rungs(&first), [solved; 3]);
        assert_eq!(rungs(&alike), [solved; 3]);
        assert_eq!(rungs(&others), [solved; 3]);
    }
}
