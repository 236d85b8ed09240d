//! The fallback ladder: which rung solves which systems, and its limits.

use proptest::prelude::*;
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solvers::{
    BatchReport, Engine, Method, Order, Preconditioner, Rung, SolveOptions, SolveScalar, Status,
    solve,
};
use sparsebatch_testing::random_vector;

use crate::solves::support::{
    Kind, cast, dense, engines, iterative, matrix, options, pattern, ragged, residual_norm,
    tridiagonal,
};

fn one(a: &Csr<f64>, b: &[f64], options: &SolveOptions) -> (BatchReport, Vec<f64>) {
    let solution = solve(&Batch::from(a.clone()), b, None, options).unwrap();
    (solution.report, solution.x)
}

fn with_fallback(method: Method, preconditioner: Preconditioner) -> SolveOptions {
    options(method, preconditioner).fallback(true)
}

#[test]
fn each_rung_solves_what_the_ones_before_cannot() {
    use Preconditioner::{Auto, Jacobi, None};
    let chain = tridiagonal(60, -1.0, 2.0, -1.0);
    let swap: Csr<f64> = dense(&[&[0.0, 2.0], &[4.0, 0.0]]);
    // The second pivot is 1 - 1 = 0, although static pivoting sees no reason to move a row.
    let cancels: Csr<f64> = dense(&[&[1.0, 1.0, 0.0], &[1.0, 1.0, 1.0], &[0.0, 1.0, 1.0]]);
    let few = |preconditioner| with_fallback(Method::BiCgStab, preconditioner).max_iters(20);
    let once = |method, preconditioner| with_fallback(method, preconditioner).max_iters(1);
    let half = |preconditioner| with_fallback(Method::Cg, preconditioner).max_iters(200);
    let lots = with_fallback(Method::Cg, None).max_iters(50);
    let smooth: Vec<f64> = random_vector(60, 3);
    let easy = tridiagonal(60, -1.0, 2.05, -1.0);
    let table = [
        ("easy", &easy, smooth.clone(), half(None), Rung::First),
        ("once more", &easy, smooth.clone(), lots, Rung::Restart),
        ("stronger", &chain, smooth.clone(), few(Jacobi), Rung::StrongerPreconditioner),
        (
            "no diagonal",
            &swap,
            vec![2.0, 8.0],
            with_fallback(Method::Lu, Auto),
            Rung::StaticPivotingLu,
        ),
        (
            "no diagonal",
            &swap,
            vec![2.0, 8.0],
            with_fallback(Method::Cg, Jacobi),
            Rung::StaticPivotingLu,
        ),
        ("no pivot", &cancels, vec![1.0; 3], with_fallback(Method::Lu, Auto), Rung::BiCgStab),
        ("no pivot", &cancels, vec![1.0, 2.0, 3.5], once(Method::Lu, Auto), Rung::PivotingLu),
        ("no pivot", &cancels, vec![1.0, 2.0, 3.5], once(Method::Cg, Jacobi), Rung::PivotingLu),
    ];
    for (name, a, b, options, expected) in table {
        let (report, x) = one(a, &b, &options);

        let system = &report.systems[0];
        assert_eq!(system.outcome.status, Status::Converged, "{name}");
        assert_eq!(system.rung, expected, "{name}: {:?}", system.outcome);
        assert_eq!(report.rung_counts(), [(expected, 1)], "{name}");
        assert!(residual_norm(a, &b, &x) <= 1e-10 * system.outcome.rhs_norm * 1.001, "{name}");
    }
}

#[test]
fn the_lu_rung_takes_what_incomplete_factors_cannot() {
    // ILU(0) meets a zero pivot; the complete factors, with their fill, do not.
    let rows: &[&[f64]] = &[
        &[1.0, 1.0, 0.0, 1.0],
        &[1.0, 1.0, 1.0, 0.0],
        &[0.0, 1.0, 0.0, 1.0],
        &[1.0, 0.0, 1.0, 0.0],
    ];
    let a: Csr<f64> = dense(rows);
    let expected = crate::solves::support::dense_solve(&a, &[1.0, 2.0, 3.0, 4.0]);
    for (method, preconditioner) in iterative() {
        let (report, x) = one(&a, &[1.0, 2.0, 3.0, 4.0], &with_fallback(method, preconditioner));

        assert!(report.all_converged(), "{method} {preconditioner}: {:?}", report.systems);
        for (x, expected) in x.iter().zip(&expected) {
            assert!((x - expected).abs() <= 1e-9, "{method} {preconditioner}");
        }
    }
}

#[test]
fn singular_matrices_end_singular() {
    let ones: Csr<f64> = dense(&[&[1.0, 1.0], &[1.0, 1.0]]);
    // The Laplacian of a path graph, whose null vector is all ones.
    let mut rows = vec![vec![0.0; 9]; 9];
    for i in 0..9usize {
        if i > 0 {
            rows[i][i - 1] = -1.0;
            rows[i][i] += 1.0;
        }
        if i < 8 {
            rows[i][i + 1] = -1.0;
            rows[i][i] += 1.0;
        }
    }
    let laplacian: Csr<f64> = dense(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let empty_row: Csr<f64> = dense(&[&[1.0, 2.0], &[0.0, 0.0]]);
    let empty_col: Csr<f64> = dense(&[&[1.0, 0.0], &[2.0, 0.0]]);
    let mut all = iterative();
    all.extend([(Method::Lu, Preconditioner::Auto), (Method::Auto, Preconditioner::Auto)]);
    for (name, a) in
        [("ones", ones), ("laplacian", laplacian), ("row", empty_row), ("column", empty_col)]
    {
        for &(method, preconditioner) in &all {
            let mut b = vec![1.0; a.nrows()];
            b[0] = 3.0;

            let (report, x) = one(&a, &b, &with_fallback(method, preconditioner));

            let outcome = &report.systems[0].outcome;
            assert_eq!(outcome.status, Status::Singular, "{name} {method} {preconditioner}");
            assert!(x.iter().all(|v| v.is_finite()), "{name} {method} {preconditioner}");
        }
    }
}

#[test]
fn a_singular_system_whose_b_lies_in_the_range_may_converge() {
    let ones: Csr<f64> = dense(&[&[1.0, 1.0], &[1.0, 1.0]]);

    let (report, x) = one(&ones, &[2.0, 2.0], &with_fallback(Method::Cg, Preconditioner::None));

    assert_eq!(report.systems[0].outcome.status, Status::Converged);
    assert_eq!(x[0] + x[1], 2.0);
}

#[test]
fn nan_is_non_finite_on_every_rung() {
    let a: Csr<f64> = dense(&[&[2.0, f64::NAN], &[1.0, 2.0]]);
    let good = tridiagonal(2, 1.0, 3.0, 1.0);
    let mut all = iterative();
    all.push((Method::Lu, Preconditioner::Auto));
    for (method, preconditioner) in all {
        let options = with_fallback(method, preconditioner);

        let batch = ragged(&[good.clone(), a.clone(), good.clone()]);
        let report = solve(&batch, &[1.0; 6], None, &options).unwrap().report;

        let status = |i: usize| report.systems[i].outcome.status;
        assert_eq!(status(1), Status::NonFinite, "{method} {preconditioner}");
        assert_eq!((status(0), status(2)), (Status::Converged, Status::Converged));
    }
}

fn no_worse<T: SolveScalar>(nrows: usize, seed: u64) {
    let pattern = pattern(nrows, seed);
    let matrices: Vec<Csr<T>> =
        Kind::ALL.iter().map(|&kind| matrix(&pattern, kind, seed).cast()).collect();
    let b: Vec<T> = cast(&random_vector::<f64>(nrows * Kind::ALL.len() * 2, seed ^ 5));
    let mut all = iterative();
    all.push((Method::Lu, Preconditioner::Auto));
    for (method, preconditioner) in all {
        for engine in engines() {
            if method == Method::Lu && engine != Engine::Fused {
                continue;
            }
            let mut options = options(method, preconditioner);
            (options.engine, options.max_iters, options.nrhs) = (engine, 6.into(), 2);
            options = options.order(Order::MinDegree).history(true);
            let batch = ragged(&matrices);
            let before = solve(&batch, &b, None, &options).unwrap();
            options.fallback = true;

            let after = solve(&batch, &b, None, &options).unwrap();

            for s in 0..before.report.systems.len() {
                let (x_rows, kind) = (s * nrows..(s + 1) * nrows, Kind::ALL[s / 2]);
                let what = format!("{} {kind:?} {method} {preconditioner}", T::NAME);
                let (old, new) = (&before.report.systems[s].outcome, &after.report.systems[s]);
                let old_rung = before.report.systems[s].rung;
                // The sparse LU may permute rows even without a ladder.
                let permuted = method == Method::Lu && old_rung == Rung::StaticPivotingLu;
                assert!(permuted || old_rung == Rung::First, "{what}");
                let outcome = &new.outcome;
                assert!(outcome.iterations >= old.iterations, "{what}");
                assert!(outcome.restarts >= old.restarts, "{what}");
                let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<u64>>();
                let (old_history, history) = (bits(&old.history), bits(&outcome.history));
                assert!(history.starts_with(&old_history), "{what}");
                let fine = outcome.status == Status::Converged
                    || outcome.residual_norm <= old.residual_norm
                    || old.residual_norm.is_nan();
                assert!(fine, "{what}: {old:?}, {outcome:?}");
                if new.rung == old_rung {
                    let same = before.x[x_rows.clone()]
                        .iter()
                        .zip(&after.x[x_rows])
                        .all(|(a, b)| a == b || a.to_f64().is_nan());
                    assert!(same, "{what}: x of the first rung was touched");
                }
                let regular = matches!(kind, Kind::Spd | Kind::Dominant);
                if regular {
                    assert_eq!(outcome.status, Status::Converged, "{what}: {outcome:?}");
                }
                if matches!(kind, Kind::Nan | Kind::Infinite) {
                    assert_eq!(outcome.status, Status::NonFinite, "{what}: {outcome:?}");
                }
                if kind == Kind::Zero {
                    assert_eq!(outcome.status, Status::Singular, "{what}: {outcome:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn the_ladder_never_makes_a_system_worse(nrows in 1usize..12, seed in any::<u64>()) {
        no_worse::<f64>(nrows, seed);
        no_worse::<f32>(nrows, seed);
    }
}
