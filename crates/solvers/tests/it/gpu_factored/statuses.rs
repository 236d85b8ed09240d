//! Every status with which solves with factors can end, each among healthy neighbours, as on the
//! CPU.

use kernel_emu::{Emulator, Order as Threads};
use sparsebatch_cuda::Value;
use sparsebatch_formats::{Csr, CsrPattern, Scalar};
use sparsebatch_solvers::gpu::FactoredTuning;
use sparsebatch_solvers::{
    Method, PrecondPrecision, Preconditioner, SolveOptions, SolveScalar, Status,
};
use sparsebatch_testing::random_vector;

use crate::common::{METHODS, Solved, Systems, compare, on_cpu, options};
use crate::gpu_factored::support::{PRECISIONS, PRECONDITIONERS, SHAPES, by_factors, tuning};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

/// Pentadiagonal matrices of `n` rows; `edits` replace entries: row, column, value.
fn band<T: Scalar>(n: usize, edits: &[(usize, usize, f64)]) -> Csr<T> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..n {
        for col in row.saturating_sub(2)..(row + 3).min(n) {
            let edit = edits.iter().find(|&&(r, c, _)| (r, c) == (row, col));
            let value = if row == col { 4.5 } else { -1.0 };
            col_idx.push(col as i32);
            values.push(T::from_f64(edit.map_or(value, |&(_, _, value)| value)));
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
}

/// A system with its expected end.
struct Case {
    name: &'static str,
    edits: Vec<(usize, usize, f64)>,
    b: Vec<f64>,
    x0: Vec<f64>,
    /// By CG and by BiCGStab. `None` where it depends on the preconditioner: then as on the CPU.
    expected: Option<[Status; 2]>,
}

fn cases(n: usize, preconditioner: Preconditioner) -> Vec<Case> {
    use Status::{Converged, Indefinite, NonFinite, SingularPreconditioner};
    let b = random_vector::<f64>(n, 3);
    let case = |name, edits: &[(usize, usize, f64)], expected: [Status; 2]| Case {
        name,
        edits: edits.to_vec(),
        b: b.clone(),
        x0: vec![0.0; n],
        expected: Some(expected),
    };
    let cross = |value: f64| -> Vec<_> {
        (0..n.min(3)).flat_map(|other| [(0, other, value), (other, 0, value)]).collect()
    };
    let negative: Vec<_> = (0..n).map(|row| (row, row, -4.5)).collect();
    let zero: Vec<_> = (0..n)
        .flat_map(|row| (row.saturating_sub(2)..(row + 3).min(n)).map(move |c| (row, c, 0.0)))
        .collect();
    // Cholesky requires positive pivots.
    let of_negative = if preconditioner == Preconditioner::IC0 {
        [Indefinite, SingularPreconditioner]
    } else {
        [Indefinite, Converged]
    };
    let mut cases = vec![
        case("healthy", &[], [Converged; 2]),
        case("negative", &negative, of_negative),
        case("zero matrix", &zero, [SingularPreconditioner; 2]),
        case("row and column of zeros", &cross(0.0), [SingularPreconditioner; 2]),
        case("NaN in A", &[(1, 1, NAN)], [NonFinite; 2]),
        case("Inf in A", &[(1, 0, INF)], [NonFinite; 2]),
        case("-Inf in A", &[(0, 0, -INF)], [NonFinite; 2]),
        case("healthy", &[], [Converged; 2]),
    ];
    let mut indefinite = case("zero diagonal", &[(n / 2, n / 2, 0.0)], [Converged; 2]);
    indefinite.expected = None;
    cases.push(indefinite);
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
    let mut guessed = case("a guess", &[], [Converged; 2]);
    guessed.x0.copy_from_slice(&random_vector::<f64>(n, 9));
    cases.push(guessed);
    let mut singular_guess = case("singular from a guess", &zero, [SingularPreconditioner; 2]);
    singular_guess.x0.fill(2.0);
    cases.push(singular_guess);
    cases
}

fn systems<T: Scalar>(n: usize, cases: &[Case]) -> Systems<T> {
    let matrices: Vec<Csr<T>> = cases.iter().map(|case| band(n, &case.edits)).collect();
    let cast = |v: &Vec<f64>| v.iter().map(|&v| T::from_f64(v)).collect::<Vec<T>>();
    let mut systems = Systems::new(&matrices, cases.iter().flat_map(|c| cast(&c.b)).collect());
    systems.x0 = cases.iter().flat_map(|c| cast(&c.x0)).collect();
    systems
}

fn solve_with<T: Value>(
    systems: &Systems<T>,
    options: &SolveOptions,
    tuning: &FactoredTuning,
) -> Solved<T> {
    by_factors(&Emulator::new(Threads::Random(5)), systems, options, tuning)
}

fn solve<T: Value>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
    solve_with(systems, options, &FactoredTuning::default())
}

fn table<T: SolveScalar>(precond_precision: PrecondPrecision) {
    for (n, preconditioner) in [4, 9, 70]
        .into_iter()
        .flat_map(|n| PRECONDITIONERS.map(|preconditioner| (n, preconditioner)))
    {
        let cases = cases(n, preconditioner);
        let systems = systems::<T>(n, &cases);
        for (k, method) in METHODS.into_iter().enumerate() {
            let options = options(method, preconditioner).precond_precision(precond_precision);
            let cpu = on_cpu(&systems, &options);
            for shape in SHAPES {
                let gpu = solve_with(&systems, &options, &tuning(shape));
                let what = format!("{} n = {n} {method} {preconditioner} {shape:?}", T::CPP);
                for (case, outcome) in cases.iter().zip(&gpu.outcomes) {
                    let name = case.name;
                    if let Some(expected) = case.expected {
                        assert_eq!(outcome.status, expected[k], "{what} {name}: {outcome:?}");
                    }
                }
                let rel_tol = SolveOptions::default_rel_tol::<T>();
                compare(&what, &systems, &gpu, &cpu, rel_tol);
                // A system whose preconditioner fails keeps its guess.
                let kept = &gpu.x[(cases.len() - 1) * n..];
                assert!(kept.iter().all(|&x| x == T::from_f64(2.0)), "{what}");
            }
        }
    }
}

#[test]
fn bad_systems_end_as_on_the_cpu_in_f64() {
    table::<f64>(PrecondPrecision::Working);
}

#[test]
fn bad_systems_end_as_on_the_cpu_in_f32() {
    table::<f32>(PrecondPrecision::Working);
}

#[test]
fn bad_systems_end_as_on_the_cpu_with_factors_in_f32() {
    table::<f64>(PrecondPrecision::Single);
}

/// A diagonal entry is not stored; the pattern has an empty row.
#[test]
fn missing_entries_end_as_on_the_cpu() {
    let pattern = CsrPattern::try_new(4, 4, vec![0, 2, 3, 3, 4], vec![0, 1, 0, 3]).unwrap();
    let matrix = Csr::from_parts(pattern.into(), vec![4.0, 1.0, 1.0, 2.0]).unwrap();
    let systems = Systems::new(&[matrix.clone(), matrix], vec![1.0; 8]);
    for method in METHODS {
        for (preconditioner, precond_precision) in PRECONDITIONERS
            .into_iter()
            .flat_map(|preconditioner| PRECISIONS.map(|precision| (preconditioner, precision)))
        {
            let options = options(method, preconditioner).precond_precision(precond_precision);
            let (gpu, cpu) = (solve(&systems, &options), on_cpu(&systems, &options));

            assert_eq!(gpu.statuses(), [Status::SingularPreconditioner; 2], "{preconditioner}");
            assert_eq!(gpu.statuses(), cpu.statuses(), "{method} {preconditioner}");
        }
    }
}

fn stagnates<T: SolveScalar>(rel_tol: f64) {
    let n = 24;
    let healthy = band::<T>(n, &[]);
    let systems = Systems::new(&[healthy.clone(), healthy], random_vector::<T>(2 * n, 7));
    for (method, preconditioner) in
        METHODS.into_iter().flat_map(|method| PRECONDITIONERS.map(|p| (method, p)))
    {
        let mut options = options(method, preconditioner);
        options.rel_tol = Some((vec![rel_tol, 1e-3]).into());

        let gpu = solve(&systems, &options);

        assert_eq!(gpu.statuses(), [Status::Stagnated, Status::Converged]);
        let outcome = &gpu.outcomes[0];
        assert_eq!(outcome.restarts, 4);
        let most = 50.0 * T::EPSILON.to_f64() * outcome.rhs_norm;
        assert!(outcome.residual_norm <= most, "{outcome:?}");
        assert!(outcome.residual_norm > rel_tol * outcome.rhs_norm);
        assert_eq!(on_cpu(&systems, &options).statuses(), gpu.statuses());
    }
}

#[test]
fn a_tolerance_below_rounding_stagnates_after_all_restarts() {
    stagnates::<f64>(1e-22);
    stagnates::<f32>(1e-12);
}

#[test]
fn the_floor_accepts_what_rounding_leaves() {
    let n = 30;
    let mut systems = Systems::new(&[band::<f64>(n, &[])], random_vector(n, 7));
    let mut options = options(Method::Cg, Preconditioner::ILU0);
    (options.rel_tol, options.floor) = (Some(0.0.into()), Some(4.0));
    for scale in [1.0, 1e-200, 1e200] {
        systems.b = random_vector::<f64>(n, 7).iter().map(|b| b * scale).collect();
        let (gpu, cpu) = (solve(&systems, &options), on_cpu(&systems, &options));
        assert_eq!(gpu.statuses(), [Status::Converged], "{scale}");
        assert_eq!(cpu.statuses(), gpu.statuses());
        assert!(gpu.outcomes[0].accepted_by_floor && cpu.outcomes[0].accepted_by_floor);
    }
    options.floor = None;
    assert_ne!(solve(&systems, &options).statuses(), [Status::Converged]);
}

#[test]
fn limits_are_kept_system_by_system() {
    let n = 40;
    let matrices = vec![band::<f64>(n, &[]); 4];
    let systems = Systems::new(&matrices, random_vector(4 * n, 7));
    for method in METHODS {
        let mut options = options(method, Preconditioner::BLOCK_JACOBI).block_size(1);
        options.max_iters = (vec![0, 3, 1000, 1]).into();

        let gpu = solve(&systems, &options);

        let iterations: Vec<u32> = gpu.outcomes.iter().map(|o| o.iterations).collect();
        assert_eq!(gpu.statuses(), on_cpu(&systems, &options).statuses());
        assert_eq!(gpu.statuses()[2], Status::Converged);
        assert_eq!([iterations[0], iterations[1], iterations[3]], [0, 3, 1]);
        for system in [0, 1, 3] {
            assert_eq!(gpu.statuses()[system], Status::MaxIterations);
        }
        // The larger one of absolute and relative tolerance decides.
        (options.max_iters, options.abs_tol) = (1000.into(), vec![0.5, 1e9, 0.0, 0.0].into());
        let gpu = solve(&systems, &options);
        assert!(gpu.outcomes[0].residual_norm <= 0.5 && gpu.outcomes[0].iterations > 0);
        assert_eq!(gpu.outcomes[1].iterations, 0);
    }
}

#[test]
fn overflow_inside_a_solve_is_non_finite() {
    for n in [8usize, 100] {
        let small: Vec<_> = (0..n)
            .flat_map(|row| {
                (row.saturating_sub(2)..(row + 3).min(n)).map(move |col| {
                    (row, col, if row == col { 4.5 } else { -1.0 } * 2f64.powi(-900))
                })
            })
            .collect();
        let b = random_vector::<f64>(n, 2).iter().map(|v| v * 2f64.powi(900)).collect();
        let systems = Systems::new(&[band::<f64>(n, &small)], b);
        for (method, preconditioner) in
            METHODS.into_iter().flat_map(|method| PRECONDITIONERS.map(|p| (method, p)))
        {
            let options = options(method, preconditioner);
            let (gpu, cpu) = (solve(&systems, &options), on_cpu(&systems, &options));

            assert_eq!(gpu.statuses(), cpu.statuses(), "{method} {preconditioner}");
            assert_eq!(gpu.statuses(), [Status::NonFinite], "{method} {preconditioner}");
        }
    }
}

#[test]
fn right_hand_sides_of_any_scale_are_solved() {
    for n in [12, 70] {
        for exponent in [-990, -700, -300, 0, 300, 700, 990] {
            let b = random_vector::<f64>(n, 2).iter().map(|v| v * 2f64.powi(exponent)).collect();
            let systems = Systems::new(&[band::<f64>(n, &[])], b);
            for (method, preconditioner) in
                METHODS.into_iter().flat_map(|method| PRECONDITIONERS.map(|p| (method, p)))
            {
                let options = options(method, preconditioner);
                let (gpu, cpu) = (solve(&systems, &options), on_cpu(&systems, &options));

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

/// Breakdowns of BiCGStab, and restarts that overcome them; negative curvature in CG. The diagonals
/// are 1, so that blocks of one row change nothing.
fn breakdowns<T: SolveScalar>() {
    // r^ is orthogonal to the first residual, which is not 0.
    let rho = dense::<T>([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0, 1.0]]);
    // s = (0, -1, -1) is orthogonal to A s.
    let omega = dense([[1.0, 0.0, 0.0], [1.0, 1.0, -3.0], [1.0, 1.0, 1.0]]);
    let alpha = dense([[1.0, -3.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    let healthy = dense([[1.0, 0.25, 0.0], [0.25, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    let matrices = [healthy.clone(), rho, healthy.clone(), omega, alpha, healthy.clone()];
    let mut b: Vec<T> = (0..18).map(|k| if k % 3 == 0 { T::ONE } else { T::ZERO }).collect();
    b[13] = T::ONE;
    let systems = Systems::new(&matrices, b);
    let mut blocks =
        options(Method::BiCgStab, Preconditioner::BLOCK_JACOBI).block_size(1).max_restarts(0);

    let (gpu, cpu) = (solve(&systems, &blocks), on_cpu(&systems, &blocks));

    use Status::{BreakdownAlpha, BreakdownOmega, BreakdownRho, Converged, Indefinite};
    let expected = [Converged, BreakdownRho, Converged, BreakdownOmega, BreakdownAlpha, Converged];
    assert_eq!(gpu.statuses(), expected);
    compare("breakdowns", &systems, &gpu, &cpu, SolveOptions::default_rel_tol::<T>());

    blocks.max_restarts = 4;
    let (gpu, cpu) = (solve(&systems, &blocks), on_cpu(&systems, &blocks));
    assert_eq!(gpu.statuses(), cpu.statuses());
    assert_eq!(gpu.statuses()[1], Converged);
    assert!(gpu.outcomes[1].restarts >= 1);
    assert_eq!(gpu.outcomes[4].restarts, 4);

    let indefinite = dense([[1.0, 3.0, 0.0], [3.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    let b = [1.0, -1.0, 0.0].repeat(2).into_iter().map(T::from_f64).collect();
    let systems = Systems::new(&[indefinite, healthy], b);
    blocks.method = Method::Cg;
    let (gpu, cpu) = (solve(&systems, &blocks), on_cpu(&systems, &blocks));
    assert_eq!(gpu.statuses(), [Indefinite, Converged]);
    assert_eq!(gpu.statuses(), cpu.statuses());
}

#[test]
fn breakdowns_and_restarts_after_them() {
    breakdowns::<f64>();
    breakdowns::<f32>();
}
