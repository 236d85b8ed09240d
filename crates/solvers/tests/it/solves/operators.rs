//! Operators and preconditioners of the caller, on the CPU.

use sparsebatch_cpu_ref::seq;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr, Pattern};
use sparsebatch_solvers::{
    Engine, Method, OperatorError, Preconditioner, Solution, SolveError, SolveOptions, SpmvOptions,
    Status, Watch, solve, solve_operator, solve_preconditioned,
};
use sparsebatch_testing::random_vector;

const ITEMS: usize = 7;

/// Systems with a diagonal that spans four orders of magnitude, so that Jacobi matters.
fn graded() -> (Batch<f64>, Vec<f64>) {
    let plain = Problem::new(Family::Tri, 24).unwrap().batch(ITEMS).unwrap().batch;
    let scale = |item: usize, row: usize| 10f64.powf(0.1 * ((7 * row + item) % 21) as f64);
    let scaled = |item: usize| {
        let matrix: Csr<f64> = plain.to_csr(item);
        let pattern = matrix.pattern();
        let entries = |row: usize| pattern.view().row(row).map(move |k| (row, k));
        let value = |(row, k): (usize, usize)| {
            let col = pattern.col_idx()[k] as usize;
            matrix.values()[k] * scale(item, row) * scale(item, col)
        };
        let values = (0..24).flat_map(entries).map(value).collect();
        Csr::from_parts(pattern.clone(), values).unwrap()
    };
    ((0..ITEMS).map(scaled).collect(), random_vector(24 * ITEMS, 5))
}

/// `y = A x` for the items of a batch, with several right-hand sides each.
fn product(batch: &Batch<f64>, nrhs: usize, x: &[f64], y: &mut [f64]) {
    let mut first = 0;
    for item in 0..batch.nitems() {
        let matrix: Csr<f64> = batch.to_csr(item);
        let n = matrix.pattern().nrows();
        for _ in 0..nrhs {
            let rows = first..first + n;
            seq::spmv(1.0, matrix.view(), &x[rows.clone()], 0.0, &mut y[rows]).unwrap();
            first += n;
        }
    }
}

/// The inverse of the diagonal, row by row.
fn inverse_diagonal(batch: &Batch<f64>) -> Vec<f64> {
    let of_item = |item: usize| {
        let matrix = batch.to_csr(item);
        let entry = |row: usize| {
            let position = matrix.pattern().view().position(row, row).unwrap();
            1.0 / matrix.values()[position]
        };
        (0..matrix.pattern().nrows()).map(entry).collect::<Vec<f64>>()
    };
    (0..batch.nitems()).flat_map(of_item).collect()
}

fn outcomes(solution: &Solution<f64>) -> Vec<(Status, u32)> {
    let systems = solution.report.systems.iter();
    systems.map(|system| (system.outcome.status, system.outcome.iterations)).collect()
}

#[test]
fn a_preconditioner_of_the_caller_is_applied() {
    let (batch, b) = graded();
    let inverse = inverse_diagonal(&batch);
    for method in [Method::Cg, Method::BiCgStab] {
        let composed = Engine::Composed(SpmvOptions::default());
        let own = SolveOptions::new().method(method).fallback(false);
        let jacobi = own.clone().engine(composed).preconditioner(Preconditioner::Jacobi);
        let mut scale = |r: &[f64], z: &mut [f64]| -> Result<(), OperatorError> {
            z.iter_mut().zip(r).zip(&inverse).for_each(|((z, r), m)| *z = m * r);
            Ok(())
        };

        let given = solve_preconditioned(&batch, &mut scale, &b, None, &own).unwrap();

        let built_in = solve(&batch, &b, None, &jacobi).unwrap();
        assert!(given.report.all_converged());
        assert_eq!(outcomes(&given), outcomes(&built_in), "{method:?}");
        let without = own.engine(Engine::Composed(SpmvOptions::default()));
        let without = solve(&batch, &b, None, &without.preconditioner(Preconditioner::None));
        let slower = outcomes(&without.unwrap());
        assert!(outcomes(&given).iter().zip(slower).all(|(given, none)| given.1 < none.1));
    }
}

#[test]
fn an_operator_is_solved_as_its_matrix_is() {
    let (batch, _) = graded();
    let rows = [24; ITEMS];
    let inverse = inverse_diagonal(&batch);
    for nrhs in [1, 3] {
        let b = random_vector(24 * ITEMS * nrhs, 6);
        let x0 = random_vector(b.len(), 7);
        for (method, guess) in
            [Method::Cg, Method::BiCgStab].map(|m| [(m, false), (m, true)]).concat()
        {
            let options = SolveOptions::new().method(method).fallback(false).nrhs(nrhs);
            let x0 = guess.then_some(&x0[..]);
            let mut multiply = |x: &[f64], y: &mut [f64]| -> Result<(), OperatorError> {
                product(&batch, nrhs, x, y);
                Ok(())
            };
            let mut scale = |r: &[f64], z: &mut [f64]| -> Result<(), OperatorError> {
                for (place, z) in z.iter_mut().enumerate() {
                    let row = place / (24 * nrhs) * 24 + place % 24;
                    *z = inverse[row] * r[place];
                }
                Ok(())
            };

            let found =
                solve_operator(&rows, &mut multiply, Some(&mut scale), &b, x0, &options).unwrap();

            let composed = options.engine(Engine::Composed(SpmvOptions::default()));
            let jacobi = composed.preconditioner(Preconditioner::Jacobi);
            let expected = solve(&batch, &b, x0, &jacobi).unwrap();
            assert!(found.report.all_converged());
            // The first residual is rounded otherwise, which changes iterations a little.
            for (found, expected) in outcomes(&found).into_iter().zip(outcomes(&expected)) {
                let difference = found.1.abs_diff(expected.1);
                assert!(difference <= 1 + expected.1 / 5, "{method:?} {nrhs} {guess} {difference}");
            }
            let mut ax = vec![0.0; b.len()];
            product(&batch, nrhs, &found.x, &mut ax);
            for (system, report) in found.report.systems.iter().enumerate() {
                let rows = 24 * system..24 * (system + 1);
                let residual: f64 = rows.map(|row| (b[row] - ax[row]).powi(2)).sum::<f64>().sqrt();
                let told = report.outcome.residual_norm;
                assert!((residual - told).abs() <= 1e-3 * told, "{residual} {told}");
            }
        }
    }
}

/// Diagonal systems of 4 rows, one for each diagonal.
fn diagonal(
    diagonals: &[[f64; 4]],
    b: &[f64],
    x0: Option<&[f64]>,
    options: &SolveOptions,
) -> Solution<f64> {
    let mut multiply = |x: &[f64], y: &mut [f64]| -> Result<(), OperatorError> {
        for (system, d) in diagonals.iter().enumerate() {
            (0..4).for_each(|row| y[4 * system + row] = d[row] * x[4 * system + row]);
        }
        Ok(())
    };
    let rows = vec![4; diagonals.len()];
    solve_operator(&rows, &mut multiply, None, b, x0, options).unwrap()
}

#[test]
fn each_system_ends_by_itself() {
    let sound = [1.0, 2.0, 3.0, 4.0];
    let diagonals =
        [sound, [1.0, -2.0, 3.0, 4.0], [f64::NAN, 1.0, 1.0, 1.0], sound, sound, [1.0; 4]];
    let mut b = vec![1.0; 24];
    b[16..20].fill(0.0);
    let limits = vec![50, 50, 50, 2, 50, 50];
    let options = SolveOptions::new().method(Method::Cg).max_iters(limits);
    let x0: Vec<f64> = (0..24).map(|place| if place < 20 { 0.5 } else { 1.0 }).collect();

    let solution = diagonal(&diagonals, &b, Some(&x0), &options);

    use Status::{Converged, Indefinite, MaxIterations, NonFinite};
    let statuses: Vec<Status> = outcomes(&solution).into_iter().map(|(status, _)| status).collect();
    assert_eq!(statuses, [Converged, Indefinite, NonFinite, MaxIterations, Converged, Converged]);
    assert_eq!(solution.x[8..12], x0[8..12]);
    assert_eq!(solution.x[16..20], [0.0; 4]);
    assert_eq!(solution.report.systems[5].outcome.iterations, 0);
    let alone =
        diagonal(&[sound], &b[..4], Some(&x0[..4]), &SolveOptions::new().method(Method::Cg));
    assert_eq!(alone.x, solution.x[..4]);
}

#[test]
fn a_failed_system_is_never_worse_than_its_guess() {
    // Rotations: the residual of CG grows.
    let mut turn = |x: &[f64], y: &mut [f64]| -> Result<(), OperatorError> {
        y.copy_from_slice(&[0.1 * x[0] + x[1], 0.1 * x[1] - x[0]]);
        Ok(())
    };
    let options = SolveOptions::new().method(Method::Cg).max_iters(1);
    let x0 = [-1.0, 1.0];

    let solution = solve_operator(&[2], &mut turn, None, &[1.0, 1.0], Some(&x0), &options).unwrap();

    let outcome = &solution.report.systems[0].outcome;
    assert_eq!(outcome.status, Status::MaxIterations);
    assert_eq!(solution.x, x0);
    assert!((outcome.residual_norm - 0.1 * 2f64.sqrt()).abs() < 1e-12, "{outcome:?}");
}

#[test]
fn an_operator_that_fails_ends_the_solve() {
    let (batch, b) = graded();
    let mut calls = 0;
    let mut fails = |x: &[f64], y: &mut [f64]| -> Result<(), OperatorError> {
        calls += 1;
        y.copy_from_slice(x);
        if calls == 3 { Err("no more".into()) } else { Ok(()) }
    };
    let options = SolveOptions::new();

    let as_preconditioner = solve_preconditioned(&batch, &mut fails, &b, None, &options);
    let mut refuses =
        |_: &[f64], _: &mut [f64]| -> Result<(), OperatorError> { Err("out of order".into()) };
    let as_operator =
        solve_operator(&[24; ITEMS], &mut refuses, None, &b, Some(&b.clone()), &options);

    for (solved, why) in [(as_preconditioner, "no more"), (as_operator, "out of order")] {
        let Err(error @ SolveError::Operator(_)) = solved else { panic!("{why}") };
        assert_eq!(error.to_string(), format!("an operator of the caller failed: {why}"));
    }
}

#[test]
fn a_watch_stops_the_solve_of_an_operator() {
    let watch = Watch::new();
    let stop = watch.clone();
    let mut stops = move |x: &[f64], y: &mut [f64]| -> Result<(), OperatorError> {
        stop.stop();
        y.copy_from_slice(x);
        y[0] = 2.0 * x[0];
        Ok(())
    };
    let options = SolveOptions::new().watch(watch);

    let stopped = solve_operator(&[3], &mut stops, None, &[1.0; 3], None, &options);

    assert!(matches!(stopped, Err(SolveError::Stopped { ended: 0, systems: 1 })), "{stopped:?}");
}

#[test]
fn what_does_not_fit_an_operator_is_refused() {
    let mut same = |x: &[f64], y: &mut [f64]| -> Result<(), OperatorError> {
        y.copy_from_slice(x);
        Ok(())
    };
    let options = SolveOptions::new();
    let of = |options: SolveOptions, expected: &str| (options, [1.0; 6], expected.to_owned());
    for (options, b, expected) in [
        of(options.clone().method(Method::Lu), "method is lu, expected cg or bicgstab"),
        of(
            options.clone().preconditioner(Preconditioner::Jacobi),
            "preconditioner is jacobi, expected none beside that of the caller",
        ),
        of(
            options.clone().floor(4.0),
            "floor is a rounding floor, expected none where A is an operator",
        ),
        of(
            options.clone().engine(Engine::Composed(SpmvOptions::default())),
            "engine is composed, expected no products where A is an operator",
        ),
        of(options.clone().nrhs(0), "nrhs is 0, expected at least 1"),
        of(options.clone().nrhs(2), "b has 6 entries, expected 12"),
    ] {
        let refused = solve_operator(&[2, 4], &mut same, None, &b, None, &options);
        assert_eq!(refused.unwrap_err().to_string(), expected);
    }
    let refused = solve_operator(&[2, 4], &mut same, None, &[1.0; 6], Some(&[1.0]), &options);
    assert_eq!(refused.unwrap_err().to_string(), "x0 has 1 entries, expected 6");
    let wide = Csr::try_new(1, 2, vec![0, 1], vec![0], vec![1.0]).unwrap();
    let batch: Batch<f64> = [wide].into_iter().collect();
    let refused = solve_preconditioned(&batch, &mut same, &[1.0], None, &options);
    assert_eq!(refused.unwrap_err().to_string(), "system 0 is 1 x 2, expected a square matrix");
    let none = solve_operator(&[], &mut same, None, &[], None, &options).unwrap();
    assert!(none.x.is_empty() && none.report.systems.is_empty());
}
