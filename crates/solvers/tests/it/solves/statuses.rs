//! Every status of the contract, produced by a real solve.

use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solvers::{
    Engine, Method, Preconditioner, SolveOptions, SolveScalar, Status, solve,
};

use crate::solves::support::{cast, dense, engines, options, residual_norm, tridiagonal};

#[derive(Clone)]
struct Row {
    name: &'static str,
    matrix: Csr<f64>,
    b: Vec<f64>,
    options: SolveOptions,
    expected: Status,
}

fn row(
    name: &'static str,
    rows: &[&[f64]],
    b: &[f64],
    (method, preconditioner): (Method, Preconditioner),
    expected: Status,
) -> Row {
    Row {
        name,
        matrix: dense(rows),
        b: b.to_vec(),
        options: options(method, preconditioner),
        expected,
    }
}

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// r0 = (1, 0, 0) is orthogonal to the first residual, which is not 0.
const RHO: &[&[f64]] = &[&[1.0, 0.0, 0.0], &[1.0, 1.0, 1.0], &[1.0, 0.0, 1.0]];
/// s = (0, -1, 0) is orthogonal to A s.
const OMEGA: &[&[f64]] = &[&[1.0, 0.0, 0.0], &[1.0, 0.0, 1.0], &[0.0, -1.0, 0.0]];
const SKEW: &[&[f64]] = &[&[0.0, 1.0], &[-1.0, 0.0]];
const SPD: &[&[f64]] = &[&[4.0, 1.0], &[1.0, 3.0]];
const SWAP: &[&[f64]] = &[&[0.0, 1.0], &[1.0, 0.0]];
const ONES: &[&[f64]] = &[&[1.0, 1.0], &[1.0, 1.0]];

/// Small matrices with the status that each method comes to by its iterations or by its pivots.
fn small_matrices() -> Vec<Row> {
    use Method::{BiCgStab, Cg, Lu};
    use Preconditioner::{Auto, Jacobi, None};
    let mut table = vec![
        row("spd", SPD, &[1.0, 2.0], (Cg, None), Status::Converged),
        row("spd", SPD, &[1.0, 2.0], (Cg, Preconditioner::IC0), Status::Converged),
        row("spd", SPD, &[1.0, 2.0], (BiCgStab, Jacobi), Status::Converged),
        row("spd", SPD, &[1.0, 2.0], (Lu, Auto), Status::Converged),
        row("negative diagonal", &[&[-1.0]], &[1.0], (Cg, Jacobi), Status::Indefinite),
        row("orthogonal residual", RHO, &[1.0, 0.0, 0.0], (BiCgStab, None), Status::BreakdownRho),
        row("orthogonal A s", OMEGA, &[1.0, 0.0, 0.0], (BiCgStab, None), Status::BreakdownOmega),
        row("skew", SKEW, &[1.0, 0.0], (BiCgStab, None), Status::BreakdownAlpha),
        row("zero matrix", &[&[0.0]], &[1.0], (BiCgStab, None), Status::BreakdownAlpha),
        row(
            "indefinite",
            &[&[1.0, 0.0], &[0.0, -1.0]],
            &[1.0, 2.0],
            (Cg, None),
            Status::Indefinite,
        ),
        row("zero matrix", &[&[0.0]], &[1.0], (Cg, None), Status::Indefinite),
        row("singular", ONES, &[1.0, 2.0], (Lu, Auto), Status::ZeroPivot),
    ];
    for entry in &mut table {
        if matches!(entry.expected, Status::BreakdownRho | Status::BreakdownOmega) {
            // A restart overcomes these breakdowns.
            entry.options.max_restarts = 0;
        }
    }
    table
}

/// Small matrices that have no preconditioner of a certain kind.
fn failed_preconditioners() -> Vec<Row> {
    use Method::{BiCgStab, Cg};
    use Preconditioner::Jacobi;
    let mut table = vec![
        row("no diagonal", SWAP, &[1.0, 2.0], (Cg, Jacobi), Status::ZeroDiagonal),
        row("no diagonal", SWAP, &[1.0, 2.0], (BiCgStab, Jacobi), Status::ZeroDiagonal),
        row(
            "no pivot",
            SWAP,
            &[1.0, 2.0],
            (BiCgStab, Preconditioner::ILU0),
            Status::SingularPreconditioner,
        ),
        row(
            "no pivot",
            SWAP,
            &[1.0, 2.0],
            (Cg, Preconditioner::ILU0),
            Status::SingularPreconditioner,
        ),
        row(
            "not positive",
            &[&[1.0, 2.0], &[2.0, 1.0]],
            &[1.0, 2.0],
            (Cg, Preconditioner::IC0),
            Status::SingularPreconditioner,
        ),
        row(
            "singular block",
            ONES,
            &[1.0, 2.0],
            (BiCgStab, Preconditioner::BLOCK_JACOBI),
            Status::SingularPreconditioner,
        ),
    ];
    for entry in table.iter_mut().filter(|entry| entry.name == "singular block") {
        entry.options = entry.options.clone().block_size(2);
    }
    table
}

/// Systems that need more iterations than they may have.
fn long_chains() -> Vec<Row> {
    let row = |method| {
        let mut limited = options(method, Preconditioner::None);
        limited.max_iters = 3.into();
        Row {
            name: "long chain",
            matrix: tridiagonal(40, -1.0, 2.0, -1.0),
            b: vec![1.0; 40],
            options: limited,
            expected: Status::MaxIterations,
        }
    };
    [Method::Cg, Method::BiCgStab].map(row).into()
}

/// Systems with NaN and infinities in the matrix or in the right-hand side.
fn nonfinite() -> Vec<Row> {
    use Method::{BiCgStab, Cg, Lu};
    use Preconditioner::{Jacobi, None};
    let mut table = Vec::new();
    for method in [Cg, BiCgStab, Lu] {
        for (name, value) in [("NaN in A", NAN), ("Inf in A", INF), ("-Inf in A", -INF)] {
            for preconditioner in [
                None,
                Jacobi,
                Preconditioner::BLOCK_JACOBI,
                Preconditioner::ILU0,
                Preconditioner::IC0,
            ] {
                let rows: &[&[f64]] = &[&[value, 1.0], &[1.0, 3.0]];
                let choice = (method, preconditioner);
                table.push(row(name, rows, &[1.0, 2.0], choice, Status::NonFinite));
            }
        }
        for (name, value) in [("NaN in b", NAN), ("Inf in b", INF)] {
            table.push(row(name, SPD, &[1.0, value], (method, None), Status::NonFinite));
        }
    }
    table
}

fn table() -> Vec<Row> {
    [small_matrices(), failed_preconditioners(), long_chains(), nonfinite()].concat()
}

fn check<T: SolveScalar>() {
    for row in table() {
        let (a, b) = (row.matrix.cast::<T>(), cast::<T>(&row.b));
        for engine in engines() {
            if row.options.method == Method::Lu && engine != Engine::Fused {
                continue;
            }
            let mut options = row.options.clone();
            options.engine = engine;
            options.history = true;
            let what = format!(
                "{} {} by {} {} {:?}",
                T::NAME,
                row.name,
                options.method,
                options.preconditioner,
                options.engine
            );

            let solution = solve(&Batch::from(a.clone()), &b, None, &options).unwrap();

            let outcome = &solution.report.systems[0].outcome;
            assert_eq!(outcome.status, row.expected, "{what}");
            let true_residual = residual_norm(&a, &b, &solution.x);
            if row.expected == Status::NonFinite {
                assert!(outcome.residual_norm.is_nan(), "{what}");
            } else {
                let off = (outcome.residual_norm - true_residual).abs();
                assert!(off <= 1e-6 * outcome.rhs_norm, "{what}: {outcome:?}, {true_residual}");
                if row.options.method != Method::Lu {
                    let expected = outcome.iterations as usize + 1;
                    assert_eq!(outcome.history.len(), expected, "{what}");
                }
            }
        }
    }
}

#[test]
fn every_status_is_reached_in_f64() {
    check::<f64>();
}

#[test]
fn every_status_is_reached_in_f32() {
    check::<f32>();
}

#[test]
fn the_table_and_the_tests_below_hold_every_status() {
    // `Singular` is reported by the last rung of the ladder: see `singular_matrices_end_singular`.
    let below = [Status::Stagnated, Status::Singular];
    for &status in Status::ALL {
        let listed = table().iter().any(|row| row.expected == status) || below.contains(&status);
        assert!(listed, "{status} is not tested");
    }
}

fn stagnates<T: SolveScalar>(rel_tol: f64) {
    let a = tridiagonal(24, -1.0, 2.5, -0.8).cast::<T>();
    let b = sparsebatch_testing::random_vector::<T>(24, 7);
    for method in [Method::Cg, Method::BiCgStab, Method::Lu] {
        for engine in engines() {
            let mut options = options(method, Preconditioner::None);
            (options.rel_tol, options.engine) = (Some(rel_tol.into()), engine);
            // CG requires symmetry.
            let a = match method {
                Method::Cg => tridiagonal(24, -1.0, 2.5, -1.0).cast::<T>(),
                _ => a.clone(),
            };
            if method == Method::Lu && options.engine != Engine::Fused {
                continue;
            }

            let solution = solve(&Batch::from(a.clone()), &b, None, &options).unwrap();

            let outcome = &solution.report.systems[0].outcome;
            assert_eq!(outcome.status, Status::Stagnated, "{method} {:?}", options.engine);
            assert_eq!(outcome.restarts, 4, "{method}");
            // The solution is as good as the precision allows, and the report is accurate.
            let norm = residual_norm(&a, &b, &solution.x);
            assert!(norm <= 50.0 * T::EPSILON.to_f64() * outcome.rhs_norm, "{method}: {norm}");
            assert!(outcome.residual_norm > rel_tol * outcome.rhs_norm, "{method}");
        }
    }
}

#[test]
fn a_tolerance_below_rounding_stagnates_after_all_restarts() {
    stagnates::<f64>(1e-22);
    stagnates::<f32>(1e-12);
}

fn overflows<T: SolveScalar>() {
    // A p overflows in two rows, and a small entry prevents scaling A.
    let large = T::MAX.to_f64() * 0.6;
    let small = 16.0 / T::MAX.to_f64();
    let rows: &[&[f64]] = &[&[large, large, 0.0], &[large, large * 1.5, 0.0], &[0.0, 0.0, small]];
    let a = dense::<T>(rows);
    // Here products stay in the range of T; their squares do not.
    let scaled = dense::<T>(&[&[large / 4.0, large / 4.0], &[large / 4.0, large / 2.0]]);
    for method in [Method::Cg, Method::BiCgStab] {
        for engine in engines() {
            let mut options = options(method, Preconditioner::None);
            options.engine = engine;

            let solution = solve(&Batch::from(a.clone()), &[T::ONE; 3], None, &options).unwrap();
            let solved = solve(&Batch::from(scaled.clone()), &[T::ONE; 2], None, &options).unwrap();

            let status = solution.report.systems[0].outcome.status;
            assert_eq!(status, Status::NonFinite, "{} {method}", T::NAME);
            assert!(solution.x.iter().all(|x| x.is_finite()), "{} {method}", T::NAME);
            assert!(solved.report.all_converged(), "{} {method}", T::NAME);
        }
    }
}

#[test]
fn overflow_inside_a_solve_is_non_finite() {
    overflows::<f64>();
    overflows::<f32>();
}

#[test]
fn breakdowns_of_rho_are_overcome_by_a_restart() {
    for engine in engines() {
        let mut options = options(Method::BiCgStab, Preconditioner::None);
        options.engine = engine;

        let solution =
            solve(&Batch::from(dense::<f64>(RHO)), &[1.0, 0.0, 0.0], None, &options).unwrap();

        let outcome = &solution.report.systems[0].outcome;
        assert_eq!(outcome.status, Status::Converged);
        assert!(outcome.restarts >= 1);
    }
}
