//! Every status with which CG and BiCGStab can end, each among healthy neighbours, as on the CPU.

use sparsebatch_formats::{Csr, CsrPattern, Scalar};
use sparsebatch_solvers::{
    InnerPrecision, Method, Preconditioner, SolveOptions, SolveScalar, Status,
};
use sparsebatch_testing::random_vector;

use crate::common::{ENDLESS, METHODS, Systems, Trial, compare, compare_within, on_cpu, options};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

/// A tridiagonal matrix of `n` rows with the entries `entry(row, column)`.
pub(crate) fn chain_of<T: Scalar>(n: usize, entry: impl Fn(usize, usize) -> f64) -> Csr<T> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..n {
        for col in row.saturating_sub(1)..(row + 2).min(n) {
            col_idx.push(col as i32);
            values.push(T::from_f64(entry(row, col)));
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
}

/// A healthy tridiagonal matrix; `edits` replace entries: row, column, value.
pub(crate) fn chain<T: Scalar>(n: usize, edits: &[(usize, usize, f64)]) -> Csr<T> {
    chain_of(n, |row, col| {
        let edit = edits.iter().find(|&&(r, c, _)| (r, c) == (row, col));
        let value = if row == col { 2.5 } else { -1.0 };
        edit.map_or(value, |&(_, _, value)| value)
    })
}

/// A system with its expected end.
struct Case {
    name: &'static str,
    edits: Vec<(usize, usize, f64)>,
    b: Vec<f64>,
    x0: Vec<f64>,
    /// Expected without a preconditioner, and with Jacobi.
    expected: [Status; 2],
}

fn cases(n: usize, method: Method) -> Vec<Case> {
    use Status::{BreakdownAlpha, Converged, Indefinite, NonFinite, ZeroDiagonal};
    let is_cg = method == Method::Cg;
    let b = random_vector::<f64>(n, 3);
    let case = |name, edits: &[(usize, usize, f64)], expected| Case {
        name,
        edits: edits.to_vec(),
        b: b.clone(),
        x0: vec![0.0; n],
        expected,
    };
    let row_of_zeros = [(0, 0, 0.0), (0, 1, 0.0), (1, 0, 0.0)];
    let negative: Vec<_> = (0..n).map(|row| (row, row, -2.5)).collect();
    let zero: Vec<_> = (0..n)
        .flat_map(|row| (row.saturating_sub(1)..(row + 2).min(n)).map(move |c| (row, c, 0.0)))
        .collect();
    let mut cases = vec![
        case("healthy", &[], [Converged; 2]),
        case(
            "zero diagonal",
            &[(n / 2, n / 2, 0.0)],
            [if is_cg { Indefinite } else { Converged }, ZeroDiagonal],
        ),
        case("negative", &negative, if is_cg { [Indefinite; 2] } else { [Converged; 2] }),
        case("zero matrix", &zero, [if is_cg { Indefinite } else { BreakdownAlpha }, ZeroDiagonal]),
        case("NaN in A", &[(1, 1, NAN)], [NonFinite; 2]),
        case("Inf in A", &[(1, 0, INF)], [NonFinite; 2]),
        case("-Inf in A", &[(0, 0, -INF)], [NonFinite; 2]),
        case("healthy", &[], [Converged; 2]),
    ];
    for (name, value) in [("NaN in b", NAN), ("Inf in b", INF)] {
        let mut bad = case(name, &[], [NonFinite; 2]);
        bad.b[n - 1] = value;
        cases.push(bad);
    }
    for (name, value) in [("NaN in x0", NAN), ("Inf in x0", -INF)] {
        let mut bad = case(name, &[], [NonFinite; 2]);
        bad.x0[0] = value;
        cases.push(bad);
    }
    let mut trivial = case("b = 0", &[], [Converged; 2]);
    trivial.b.fill(0.0);
    trivial.x0.fill(7.0);
    cases.push(trivial);
    let mut nan_and_zero = case("NaN in A, b = 0", &[(1, 1, NAN)], [NonFinite; 2]);
    nan_and_zero.b.fill(0.0);
    cases.push(nan_and_zero);
    let mut empty = case("row of zeros", &row_of_zeros, [Converged, ZeroDiagonal]);
    empty.b[0] = 0.0;
    cases.push(empty);
    let mut guessed = case("a guess", &[], [Converged; 2]);
    guessed.x0.copy_from_slice(&random_vector::<f64>(n, 9));
    cases.push(guessed);
    cases
}

fn systems<T: Scalar>(n: usize, cases: &[Case]) -> Systems<T> {
    let matrices: Vec<Csr<T>> = cases.iter().map(|case| chain(n, &case.edits)).collect();
    let cast = |v: &Vec<f64>| v.iter().map(|&v| T::from_f64(v)).collect::<Vec<T>>();
    let mut systems = Systems::new(&matrices, cases.iter().flat_map(|c| cast(&c.b)).collect());
    systems.x0 = cases.iter().flat_map(|c| cast(&c.x0)).collect();
    systems
}

fn table<S: Trial, T: SolveScalar>(method: Method, inner_precision: InnerPrecision) {
    for n in [2, 7, 24, 100, 300] {
        let cases = cases(n, method);
        let systems = systems::<T>(n, &cases);
        for (k, preconditioner) in
            [Preconditioner::None, Preconditioner::Jacobi].into_iter().enumerate()
        {
            let options = options(method, preconditioner).inner_precision(inner_precision);
            let gpu = S::solve(&systems, &options);
            let cpu = on_cpu(&systems, &options);
            let what = format!("{} n = {n} {method} {preconditioner} {inner_precision}", T::CPP);
            for (case, outcome) in cases.iter().zip(&gpu.outcomes) {
                let name = case.name;
                assert_eq!(outcome.status, case.expected[k], "{what} {name}: {outcome:?}");
            }
            let rel_tol = SolveOptions::default_rel_tol::<T>();
            if inner_precision == InnerPrecision::Auto {
                compare_within(&what, &systems, &gpu, &cpu, rel_tol, ENDLESS);
            } else {
                compare(&what, &systems, &gpu, &cpu, rel_tol);
            }
        }
        // Lenient Jacobi never ends with `ZeroDiagonal`.
        let options = options(method, Preconditioner::Auto).inner_precision(inner_precision);
        let (gpu, cpu) = (S::solve(&systems, &options), on_cpu(&systems, &options));
        assert_eq!(gpu.statuses(), cpu.statuses(), "{} n = {n} {method} lenient", T::CPP);
    }
}

pub(crate) fn bad_systems_end_as_on_the_cpu_in_f64<S: Trial>() {
    METHODS.into_iter().for_each(|method| table::<S, f64>(method, InnerPrecision::Working));
}

pub(crate) fn bad_systems_end_as_on_the_cpu_with_iterations_in_f32<S: Trial>() {
    METHODS.into_iter().for_each(|method| table::<S, f64>(method, InnerPrecision::Auto));
}

pub(crate) fn bad_systems_end_as_on_the_cpu_in_f32<S: Trial>() {
    METHODS.into_iter().for_each(|method| table::<S, f32>(method, InnerPrecision::Working));
}

/// A diagonal entry is not stored; the pattern has an empty row.
pub(crate) fn missing_entries_end_as_on_the_cpu<S: Trial>() {
    let pattern = CsrPattern::try_new(4, 4, vec![0, 2, 3, 3, 4], vec![0, 1, 0, 3]).unwrap();
    let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
    let matrix = Csr::try_new(4, 4, row_ptr, col_idx, vec![4.0, 1.0, 1.0, 2.0]).unwrap();
    let mut systems = Systems::new(&[matrix.clone(), matrix], vec![1.0; 8]);
    // Solvable, since b = 0 in the empty row.
    systems.b[2] = 0.0;
    let cases = [
        (Preconditioner::None, Status::Converged),
        (Preconditioner::Auto, Status::Converged),
        (Preconditioner::Jacobi, Status::ZeroDiagonal),
    ];
    for (method, (preconditioner, expected)) in
        METHODS.into_iter().flat_map(|method| cases.map(|case| (method, case)))
    {
        let options = options(method, preconditioner);
        let (gpu, cpu) = (S::solve(&systems, &options), on_cpu(&systems, &options));

        assert_eq!(gpu.statuses()[0], cpu.statuses()[0], "{method} {preconditioner}");
        // The unknown of the empty column may grow without bound, which no residual shows.
        assert_ne!(gpu.statuses()[1], Status::Converged, "{method} {preconditioner}");
        assert_ne!(cpu.statuses()[1], Status::Converged, "{method} {preconditioner}");
        assert_eq!(
            gpu.statuses()[0],
            if expected == Status::Converged { cpu.statuses()[0] } else { expected }
        );
    }
}

fn stagnates<S: Trial, T: SolveScalar>(rel_tol: f64) {
    let n = 24;
    let healthy = chain::<T>(n, &[]);
    let systems = Systems::new(&[healthy.clone(), healthy], random_vector::<T>(2 * n, 7));
    let preconditioners = [Preconditioner::None, Preconditioner::Jacobi];
    for (method, preconditioner) in
        METHODS.into_iter().flat_map(|method| preconditioners.map(|p| (method, p)))
    {
        let mut options = options(method, preconditioner);
        options.rel_tol = Some((vec![rel_tol, 1e-3]).into());

        let gpu = S::solve(&systems, &options);

        assert_eq!(gpu.statuses(), [Status::Stagnated, Status::Converged]);
        let outcome = &gpu.outcomes[0];
        assert_eq!(outcome.restarts, 4);
        let most = 50.0 * T::EPSILON.to_f64() * outcome.rhs_norm;
        assert!(outcome.residual_norm <= most, "{outcome:?}");
        assert!(outcome.residual_norm > rel_tol * outcome.rhs_norm);
        assert_eq!(on_cpu(&systems, &options).statuses(), gpu.statuses());
    }
}

pub(crate) fn a_tolerance_below_rounding_stagnates_after_all_restarts<S: Trial>() {
    stagnates::<S, f64>(1e-22);
    stagnates::<S, f32>(1e-12);
}

pub(crate) fn a_tolerance_of_zero_and_the_floor<S: Trial>() {
    let n = 30;
    let systems = Systems::new(&[chain::<f64>(n, &[])], random_vector(n, 7));
    let mut options = options(Method::Cg, Preconditioner::Jacobi);
    options.rel_tol = Some((0.0).into());
    let statuses =
        |options| (S::solve(&systems, options).statuses(), on_cpu(&systems, options).statuses());

    // The recurrence goes on until values underflow; the last bits decide which of them vanishes
    // first.
    let (gpu, cpu) = statuses(&options);
    for status in [gpu[0], cpu[0]] {
        let failed = [Status::BreakdownRho, Status::Indefinite, Status::Stagnated];
        assert!(failed.contains(&status), "{status}");
    }
    assert!(!S::LIKE_THE_CPU || gpu == cpu, "{gpu:?}, {cpu:?}");

    options.floor = Some(4.0);
    let (gpu, cpu) = (S::solve(&systems, &options), on_cpu(&systems, &options));
    assert_eq!(
        (gpu.statuses(), cpu.statuses()),
        (vec![Status::Converged], vec![Status::Converged])
    );
    assert!(gpu.outcomes[0].accepted_by_floor && cpu.outcomes[0].accepted_by_floor);
}

pub(crate) fn limits_are_kept_system_by_system<S: Trial>() {
    let n = 40;
    let matrices = vec![chain::<f64>(n, &[]); 4];
    let systems = Systems::new(&matrices, random_vector(4 * n, 7));
    let mut options = options(Method::Cg, Preconditioner::None);
    options.max_iters = (vec![0, 3, 1000, 1]).into();

    let gpu = S::solve(&systems, &options);

    let iterations: Vec<u32> = gpu.outcomes.iter().map(|o| o.iterations).collect();
    assert_eq!(gpu.statuses(), on_cpu(&systems, &options).statuses());
    assert_eq!(gpu.statuses()[2], Status::Converged);
    assert_eq!([iterations[0], iterations[1], iterations[3]], [0, 3, 1]);
    for system in [0, 1, 3] {
        assert_eq!(gpu.statuses()[system], Status::MaxIterations);
    }
    // The larger one of absolute and relative tolerance decides.
    (options.max_iters, options.abs_tol) = (1000.into(), vec![0.5, 1e9, 0.0, 0.0].into());
    let gpu = S::solve(&systems, &options);
    assert!(gpu.outcomes[0].residual_norm <= 0.5 && gpu.outcomes[0].iterations > 0);
    assert_eq!(gpu.outcomes[1].iterations, 0);
}

/// The last bits decide how such a solve ends, but it does not converge.
pub(crate) fn singular_systems_without_a_solution_do_not_converge<S: Trial>() {
    for n in [2, 20, 150] {
        let edits = [(0, 0, 0.0), (0, 1, 0.0), (1, 0, 0.0)];
        let systems = Systems::new(&[chain::<f64>(n, &edits)], vec![1.0; n]);
        for preconditioner in [Preconditioner::None, Preconditioner::Auto] {
            let options = options(Method::Cg, preconditioner);
            let (gpu, cpu) = (S::solve(&systems, &options), on_cpu(&systems, &options));

            for solved in [gpu, cpu] {
                let outcome = &solved.outcomes[0];
                let failed = [Status::Indefinite, Status::NonFinite, Status::MaxIterations];
                assert!(failed.contains(&outcome.status), "n = {n}: {outcome:?}");
            }
        }
    }
}

pub(crate) fn overflow_inside_a_solve_is_non_finite<S: Trial>() {
    for n in [8, 100] {
        let large = f64::MAX * 0.6;
        let edits: Vec<_> = (0..n).map(|row| (row, row, large)).collect();
        let edits = [edits, vec![(0, 1, large), (1, 0, large)]].concat();
        let systems = Systems::new(&[chain::<f64>(n, &edits)], vec![1.0; n]);

        for method in METHODS {
            let gpu = S::solve(&systems, &options(method, Preconditioner::None));

            assert_eq!(gpu.statuses(), [Status::NonFinite], "{method}");
        }
    }
}

pub(crate) fn right_hand_sides_of_any_scale_are_solved<S: Trial>() {
    for n in [12, 70] {
        for exponent in [-990, -700, -300, 0, 300, 700, 990] {
            let b = random_vector::<f64>(n, 2).iter().map(|v| v * 2f64.powi(exponent)).collect();
            let systems = Systems::new(&[chain::<f64>(n, &[])], b);
            let preconditioners = [Preconditioner::None, Preconditioner::Jacobi];
            for (method, preconditioner) in
                METHODS.into_iter().flat_map(|method| preconditioners.map(|p| (method, p)))
            {
                let options = options(method, preconditioner);
                let (gpu, cpu) = (S::solve(&systems, &options), on_cpu(&systems, &options));

                assert_eq!(gpu.statuses(), [Status::Converged], "2^{exponent} {method}");
                assert_eq!(gpu.outcomes[0].iterations, cpu.outcomes[0].iterations, "2^{exponent}");
                assert!(gpu.outcomes[0].residual_norm <= 1e-10 * gpu.outcomes[0].rhs_norm);
            }
        }
    }
}

/// Dense matrices of three rows.
fn dense<T: Scalar>(rows: [[f64; 3]; 3]) -> Csr<T> {
    let values = rows.as_flattened().iter().map(|&v| T::from_f64(v)).collect();
    let col_idx = (0..9).map(|k| k % 3).collect();
    Csr::try_new(3, 3, vec![0, 3, 6, 9], col_idx, values).unwrap()
}

/// Breakdowns of BiCGStab, and restarts that overcome them.
fn breakdowns<S: Trial, T: SolveScalar>() {
    // r^ is orthogonal to the first residual, which is not 0.
    let rho = dense::<T>([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0, 1.0]]);
    // s = (0, -1, 0) is orthogonal to A s.
    let omega = dense([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0], [0.0, -1.0, 0.0]]);
    let skew = dense([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]);
    let healthy = dense([[4.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 1.0]]);
    let matrices = [healthy.clone(), rho, healthy.clone(), omega, skew, healthy];
    let b: Vec<T> = (0..18).map(|k| if k % 3 == 0 { T::ONE } else { T::ZERO }).collect();
    let systems = Systems::new(&matrices, b);
    let mut options = options(Method::BiCgStab, Preconditioner::None);
    options.max_restarts = 0;

    let (gpu, cpu) = (S::solve(&systems, &options), on_cpu(&systems, &options));

    use Status::{BreakdownAlpha, BreakdownOmega, BreakdownRho, Converged};
    let expected = [Converged, BreakdownRho, Converged, BreakdownOmega, BreakdownAlpha, Converged];
    assert_eq!(gpu.statuses(), expected);
    compare("breakdowns", &systems, &gpu, &cpu, SolveOptions::default_rel_tol::<T>());

    options.max_restarts = 4;
    let (gpu, cpu) = (S::solve(&systems, &options), on_cpu(&systems, &options));
    assert_eq!(gpu.statuses(), cpu.statuses());
    assert_eq!(gpu.statuses()[1], Converged);
    assert!(gpu.outcomes[1].restarts >= 1);
    assert_eq!(gpu.outcomes[4].restarts, 4);
}

pub(crate) fn breakdowns_of_bicgstab_and_restarts_after_them<S: Trial>() {
    breakdowns::<S, f64>();
    breakdowns::<S, f32>();
}

/// The tests of this file for one solver.
macro_rules! statuses_tests {
    ($solver:ty) => {
        crate::common::statuses_tests! { $solver:
            bad_systems_end_as_on_the_cpu_in_f64
            bad_systems_end_as_on_the_cpu_with_iterations_in_f32
            bad_systems_end_as_on_the_cpu_in_f32
            missing_entries_end_as_on_the_cpu
            a_tolerance_below_rounding_stagnates_after_all_restarts
            a_tolerance_of_zero_and_the_floor
            limits_are_kept_system_by_system
            singular_systems_without_a_solution_do_not_converge
            overflow_inside_a_solve_is_non_finite
            right_hand_sides_of_any_scale_are_solved
            breakdowns_of_bicgstab_and_restarts_after_them
        }
    };
    ($solver:ty: $($name:ident)*) => {$(
        #[test]
        fn $name() {
            crate::common::statuses::$name::<$solver>();
        }
    )*};
}
pub(crate) use statuses_tests;
