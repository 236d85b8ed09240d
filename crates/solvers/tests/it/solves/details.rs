//! The contract's details: tolerances and limits per system, history, the true residual, restarts,
//! the rounding floor.

use proptest::prelude::*;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solvers::{
    Method, Outcome, Preconditioner, SolveOptions, SolveScalar, Status, solve,
};
use sparsebatch_testing::random_vector;

use crate::solves::support::{
    Kind, cast, engines, iterative, magnitude, matrix, options, pattern, ragged, residual_norm,
    tridiagonal, uniform,
};

/// Checks that the report of a system agrees with what is computed from `x`.
fn check_honest<T: SolveScalar>(
    a: &Csr<T>,
    b: &[T],
    x: &[T],
    outcome: &Outcome,
    threshold: f64,
    what: &str,
) {
    let eps = T::EPSILON.to_f64();
    let norm = residual_norm(a, b, x);
    if outcome.status == Status::NonFinite && outcome.residual_norm.is_nan() {
        return;
    }
    let rounding = (2.0 + a.nrows() as f64) * eps * magnitude(a, b, x);
    assert!((outcome.residual_norm - norm).abs() <= rounding, "{what}: {outcome:?}, {norm:e}");
    if outcome.status == Status::Converged && !outcome.accepted_by_floor {
        assert!(outcome.residual_norm <= threshold, "{what}: {outcome:?}");
        // A solve that ends at its iteration limit or by a breakdown is `Converged` by its true
        // residual alone. The recurrence's last residual may exceed the threshold by their
        // difference from rounding.
        if let Some(&last) = outcome.history.last() {
            let largest = outcome.history.iter().copied().fold(magnitude(a, b, x), f64::max);
            let steps = f64::from(outcome.iterations + 2) * (2.0 + a.nrows() as f64);
            assert!(last <= threshold + steps * eps * largest, "{what}: {outcome:?}");
        }
    } else if outcome.status != Status::Converged {
        assert!(outcome.residual_norm > threshold, "{what}: {outcome:?}");
    }
}

fn honest<T: SolveScalar>(nrows: usize, seed: u64) {
    let pattern = pattern(nrows, seed);
    let kinds = [Kind::Spd, Kind::Dominant, Kind::Slow, Kind::Wild, Kind::Skew, Kind::Zero];
    let matrices: Vec<Csr<T>> =
        kinds.iter().map(|&kind| matrix(&pattern, kind, seed ^ 3).cast()).collect();
    let b: Vec<T> = random_vector(nrows * kinds.len(), seed ^ 4);
    let x0: Vec<T> = random_vector(nrows * kinds.len(), seed ^ 5);
    for (method, preconditioner) in iterative() {
        for engine in engines() {
            let mut options = options(method, preconditioner);
            (options.engine, options.history, options.max_iters) = (engine, true, 50.into());
            let rel_tol = SolveOptions::default_rel_tol::<T>();

            let solution = solve(&ragged(&matrices), &b, Some(&x0), &options).unwrap();

            for (i, a) in matrices.iter().enumerate() {
                let outcome = &solution.report.systems[i].outcome;
                let rows = i * nrows..(i + 1) * nrows;
                let what = format!("{} {:?} {method} {preconditioner}", T::NAME, kinds[i]);
                let (b, x) = (&b[rows.clone()], &solution.x[rows.clone()]);
                let threshold = rel_tol * outcome.rhs_norm;
                check_honest(a, b, x, outcome, threshold, &what);
                assert_eq!(outcome.history.len(), outcome.iterations as usize + 1, "{what}");
                let first = residual_norm(a, b, &x0[rows.clone()]);
                let rounding = 8.0 * T::EPSILON.to_f64() * magnitude(a, b, &x0[rows]);
                assert!((outcome.history[0] - first).abs() <= rounding, "{what}");
                assert!(outcome.iterations <= 50, "{what}");
            }
        }
    }
}

/// The iteration limit ends CG in f32 with the recurrence's residual above the threshold and the
/// true residual below it.
#[test]
fn a_limit_may_end_a_solve_whose_true_residual_passes() {
    honest::<f32>(9, 12_358_665_551_529_774_516);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn reports_tell_the_truth_whatever_the_matrix(nrows in 1usize..13, seed in any::<u64>()) {
        honest::<f64>(nrows, seed);
        honest::<f32>(nrows, seed);
    }

    /// CG on matrices that it is not made for may fail, but must not claim a solution.
    #[test]
    fn cg_stays_honest_on_nonsymmetric_matrices(nrows in 2usize..13, seed in any::<u64>()) {
        let pattern = pattern(nrows, seed);
        let b: Vec<f64> = random_vector(nrows, seed ^ 6);
        for kind in [Kind::Dominant, Kind::Wild] {
            let a = matrix(&pattern, kind, seed);
            for engine in engines() {
                for fallback in [false, true] {
                    let mut options = options(Method::Cg, Preconditioner::None);
                    (options.engine, options.fallback) = (engine.clone(), fallback);
                    let solution = solve(&Batch::from(a.clone()), &b, None, &options).unwrap();

                    let outcome = &solution.report.systems[0].outcome;
                    let threshold = 1e-10 * outcome.rhs_norm;
                    check_honest(&a, &b, &solution.x, outcome, threshold, "cg");
                    if fallback && kind == Kind::Dominant {
                        prop_assert_eq!(outcome.status, Status::Converged);
                    }
                }
            }
        }
    }
}

#[test]
fn tolerances_and_limits_are_each_systems_own() {
    let a = tridiagonal(60, -1.0, 2.001, -1.0);
    let batch = Batch::from(uniform(&vec![a.clone(); 6]));
    let one: Vec<f64> = random_vector(60, 8);
    let b = one.repeat(6);
    let norm = one.iter().map(|v| v * v).sum::<f64>().sqrt();
    for (method, preconditioner) in iterative().into_iter().filter(|m| m.1 != Preconditioner::IC0) {
        for engine in engines() {
            let mut options = options(method, preconditioner);
            options.engine = engine;
            options.rel_tol = Some((vec![1e-2, 1e-12, 0.0, 1e-12, 1e-12, 2.0]).into());
            options.abs_tol = (vec![0.0, 0.0, 0.1 * norm, 0.0, 2.0 * norm, 0.0]).into();
            options.max_iters = (vec![1000, 1000, 1000, 1, 1000, 1000]).into();

            let report = solve(&batch, &b, None, &options).unwrap().report;

            let outcomes: Vec<&Outcome> = report.systems.iter().map(|s| &s.outcome).collect();
            let relative = |i: usize| outcomes[i].residual_norm / norm;
            let what = format!("{method} {preconditioner}");
            for i in [0, 1, 2, 4, 5] {
                assert_eq!(outcomes[i].status, Status::Converged, "{what} {i}");
            }
            assert!(relative(0) <= 1e-2 && relative(1) <= 1e-12 && relative(2) <= 0.1, "{what}");
            let iterations = outcomes.iter().map(|o| o.iterations).collect::<Vec<_>>();
            assert_eq!(iterations[4..], [0, 0], "{what}");
            if preconditioner != Preconditioner::ILU0 {
                assert!(iterations[2] <= iterations[0], "{what}: {iterations:?}");
                assert!(iterations[0] < iterations[1], "{what}: {iterations:?}");
                assert_eq!(outcomes[3].status, Status::MaxIterations, "{what}");
                assert_eq!(iterations[3], 1, "{what}");
            }
        }
    }
}

#[test]
fn limits_per_right_hand_side_follow_the_order_of_the_systems() {
    let a = tridiagonal(30, -1.0, 2.0, -1.0);
    let b: Vec<f64> = random_vector(30 * 4, 9);
    let mut options = options(Method::Cg, Preconditioner::None);
    (options.nrhs, options.max_iters) = (2, vec![3, 5, 7, 1000].into());

    let batch = Batch::from(uniform(&[a.clone(), a]));
    let report = solve(&batch, &b, None, &options).unwrap().report;

    let iterations = report.systems.iter().map(|s| s.outcome.iterations).collect::<Vec<_>>();
    assert_eq!(iterations[..3], [3, 5, 7]);
    assert!(iterations[3] > 7);
    assert_eq!(report.converged(), 1);
    assert_eq!(report.status_counts(), [(Status::Converged, 1), (Status::MaxIterations, 3)]);
}

#[test]
fn iteration_limits_count_restarts_in() {
    for engine in engines() {
        let mut options = options(Method::Cg, Preconditioner::None);
        (options.engine, options.rel_tol, options.max_iters) =
            (engine, Some(1e-30.into()), 70.into());
        let a = tridiagonal(24, -1.0, 2.5, -1.0);

        let solution = solve(&Batch::from(a), &random_vector(24, 1), None, &options).unwrap();

        let outcome = &solution.report.systems[0].outcome;
        assert!(outcome.iterations <= 70, "{outcome:?}");
        assert_ne!(outcome.status, Status::Converged);
    }
}

#[test]
fn a_recurrence_that_runs_ahead_is_restarted() {
    // Condition number about 1e9: the recurrence's residual deviates from the true one.
    let n = 96;
    let a = tridiagonal(n, -1.0, 2.0, -1.0);
    let mut values = a.values().to_vec();
    let view = a.view();
    for row in 0..n {
        for k in view.pattern().row(row) {
            let col = view.pattern().col_idx()[k] as usize;
            values[k] *= 10f64.powf(-3.5 * (row + col) as f64 / n as f64);
        }
    }
    let (row_ptr, col_idx) = (view.pattern().row_ptr().to_vec(), view.pattern().col_idx().to_vec());
    let a = Csr::try_new(n, n, row_ptr, col_idx, values).unwrap();
    let b: Vec<f64> = random_vector(n, 21);
    for engine in engines() {
        let mut options = options(Method::Cg, Preconditioner::None);
        (options.engine, options.rel_tol, options.max_iters) =
            (engine, Some(1e-12.into()), 20_000.into());
        options.history = true;

        let solution = solve(&Batch::from(a.clone()), &b, None, &options).unwrap();

        let outcome = &solution.report.systems[0].outcome;
        let threshold = 1e-12 * outcome.rhs_norm;
        assert!(outcome.restarts > 0, "{:?}", (outcome.status, outcome.iterations));
        assert!(matches!(outcome.status, Status::Converged | Status::Stagnated));
        check_honest(&a, &b, &solution.x, outcome, threshold, "restart");
        let below = outcome.history[1..].iter().filter(|&&v| v <= threshold).count();
        assert!(below > outcome.restarts as usize, "each restart follows a passed test");
    }
}

#[test]
fn the_rounding_floor_accepts_what_no_vector_does_better() {
    // A residual of 1e-22 is out of reach; a few eps of || |A||x| + |b| || are not.
    let a = tridiagonal(24, -1.0, 2.5, -1.0);
    let b: Vec<f64> = random_vector(48, 7);
    let batch = Batch::from(uniform(&[a.clone(), a.clone()]));
    for method in [Method::Cg, Method::BiCgStab, Method::Lu] {
        let mut options = options(method, Preconditioner::None);
        options.rel_tol = Some((vec![1e-22, 1e-8]).into());
        let strict = solve(&batch, &b, None, &options).unwrap().report;
        options.floor = Some(4.0);

        let solution = solve(&batch, &b, None, &options).unwrap();

        assert_eq!(strict.converged(), 1, "{method}");
        assert_eq!(strict.accepted_by_floor(), 0, "{method}");
        let report = &solution.report;
        assert!(report.all_converged(), "{method}");
        assert_eq!(report.accepted_by_floor(), 1, "{method}");
        let first = &report.systems[0].outcome;
        assert!(first.accepted_by_floor && !report.systems[1].outcome.accepted_by_floor);
        let bound = 4.0 * f64::EPSILON * magnitude(&a, &b[..24], &solution.x[..24]);
        assert!(first.residual_norm <= bound * (1.0 + 1e-12), "{method}");
        assert!(first.residual_norm > 1e-22 * first.rhs_norm, "{method}");
    }
}

#[test]
fn single_precision_solves_to_its_own_tolerance() {
    for (family, nrows, method) in
        [(Family::Tri, 64, Method::Cg), (Family::Rand9, 54, Method::BiCgStab)]
    {
        let generated = Problem::new(family, nrows).unwrap().batch(50).unwrap();
        let (batch, b) = (generated.batch.cast::<f32>(), cast::<f32>(&generated.rhs));

        let report =
            solve(&batch, &b, None, &options(method, Preconditioner::Jacobi)).unwrap().report;

        assert!(report.all_converged());
        assert!(report.max_relative_residual().unwrap() <= 1e-5);
    }
}
