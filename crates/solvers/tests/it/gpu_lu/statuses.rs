//! Every status with which the LU can end, each among healthy neighbours, as on the CPU.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Value;
use sparsebatch_formats::{Csr, CsrPattern, Pattern, Scalar};
use sparsebatch_solvers::gpu::LuTuning;
use sparsebatch_solvers::{SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::common::{Solved, Systems, compare, on_cpu};
use crate::gpu_lu::support::{by_lu, matrix, options, pattern};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

/// A system with its expected end; `entries` replaces some entries of its matrix.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    entries: fn(usize, usize) -> Option<f64>,
    b: Vec<f64>,
    x0: Vec<f64>,
    pub(crate) expected: Status,
}

impl Case {
    /// Whether a plan on the GPU ends as a `BatchSolver` on the CPU. It does not where a cancelling
    /// pivot may leave a rounding error, nor from a non-finite guess, which the solver drops and
    /// the plan uses.
    pub(crate) fn is_comparable(&self) -> bool {
        self.name != "equal rows" && self.x0.iter().all(|x| x.is_finite())
    }
}

pub(crate) fn cases(n: usize) -> Vec<Case> {
    use Status::{Converged, NonFinite, ZeroPivot};
    let b = random_vector::<f64>(n, 3);
    let case = |name, entries: fn(usize, usize) -> Option<f64>, expected| Case {
        name,
        entries,
        b: b.clone(),
        x0: vec![0.0; n],
        expected,
    };
    let mut cases = vec![
        case("healthy", |_, _| None, Converged),
        case("zero matrix", |_, _| Some(0.0), ZeroPivot),
        case("row of zeros", |row, _| (row == 1).then_some(0.0), ZeroPivot),
        case("column of zeros", |_, col| (col == 0).then_some(0.0), ZeroPivot),
        case("equal rows", |row, col| (row < 2).then_some((col + 1) as f64), ZeroPivot),
        case("NaN in A", |row, col| (row == 1 && col == 1).then_some(NAN), NonFinite),
        case("Inf in A", |row, col| (row == 1 && col == 1).then_some(INF), NonFinite),
        case("-Inf in A", |row, col| (row == 0 && col == 0).then_some(-INF), NonFinite),
        case("healthy", |_, _| None, Converged),
        case("negative", |row, col| (row == col).then_some(-3.0 * 1e3), Converged),
    ];
    for (name, value) in [("NaN in b", NAN), ("Inf in b", INF)] {
        let mut bad = case(name, |_, _| None, NonFinite);
        bad.b[n - 1] = value;
        cases.push(bad);
    }
    for (name, value) in [("NaN in x0", NAN), ("Inf in x0", -INF)] {
        let mut bad = case(name, |_, _| None, NonFinite);
        bad.x0[0] = value;
        cases.push(bad);
    }
    let mut trivial = case("b = 0", |_, _| None, Converged);
    trivial.b.fill(0.0);
    trivial.x0.fill(7.0);
    cases.push(trivial);
    let mut nan_and_zero = case("NaN in A, b = 0", |row, _| (row == 1).then_some(NAN), NonFinite);
    nan_and_zero.b.fill(0.0);
    cases.push(nan_and_zero);
    let mut guessed = case("a guess", |_, _| None, Converged);
    guessed.x0.copy_from_slice(&random_vector::<f64>(n, 9));
    cases.push(guessed);
    let mut singular_guess =
        case("singular from a guess", |row, _| (row == 1).then_some(0.0), ZeroPivot);
    singular_guess.x0.fill(2.0);
    cases.push(singular_guess);
    cases
}

pub(crate) fn systems<T: Scalar>(pattern: &CsrPattern, cases: &[Case]) -> Systems<T> {
    let view = pattern.view();
    let n = view.nrows();
    let of = |case: &Case| {
        let mut values = matrix::<f64>(pattern, 1.5, 4).values().to_vec();
        for row in 0..n {
            for k in view.row(row) {
                if let Some(value) = (case.entries)(row, view.col_idx()[k] as usize) {
                    values[k] = value;
                }
            }
        }
        let values = values.into_iter().map(T::from_f64).collect();
        Csr::try_new(n, n, view.row_ptr().to_vec(), view.col_idx().to_vec(), values).unwrap()
    };
    let matrices: Vec<Csr<T>> = cases.iter().map(of).collect();
    let cast = |v: &Vec<f64>| v.iter().map(|&v| T::from_f64(v)).collect::<Vec<T>>();
    let mut systems = Systems::new(&matrices, cases.iter().flat_map(|c| cast(&c.b)).collect());
    systems.x0 = cases.iter().flat_map(|c| cast(&c.x0)).collect();
    systems
}

/// The pattern of the cases: rows 0 and 1 have equal patterns, so that their values can be equal.
pub(crate) fn pattern_of_cases(n: usize) -> CsrPattern {
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for row in 0..n {
        let cols = if row < 2 { 0..n.min(4) } else { row - 2..(row + 3).min(n) };
        col_idx.extend(cols.map(|col| col as i32));
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap()
}

fn solve<T: Value>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
    by_lu(&Emulator::new(Order::Random(5)), systems, options, &LuTuning::default())
}

/// Checks how the systems ended, on the GPU and on the CPU.
pub(crate) fn end_as_expected<T: Value>(
    what: &str,
    cases: &[Case],
    gpu: &Solved<T>,
    cpu: &Solved<T>,
) {
    for (case, (g, c)) in cases.iter().zip(gpu.outcomes.iter().zip(&cpu.outcomes)) {
        let what = format!("{what} {}: {g:?} {c:?}", case.name);
        // A cancelling pivot may leave a rounding error: then only `Converged` is excluded.
        if case.name == "equal rows" {
            assert_ne!(g.status, Status::Converged, "{what}");
            continue;
        }
        if !case.is_comparable() {
            assert_eq!((g.status, c.status), (case.expected, Status::Converged), "{what}");
            continue;
        }
        assert_eq!((g.status, c.status), (case.expected, case.expected), "{what}");
        assert_eq!(g.restarts, c.restarts, "{what}");
    }
}

pub(crate) fn a_failure_keeps_the_guess<T: Scalar>(cases: &[Case], x: &[T]) {
    let n = x.len() / cases.len();
    let singular = cases.iter().position(|c| c.name == "singular from a guess").unwrap();
    assert!(x[singular * n..(singular + 1) * n].iter().all(|&x| x == T::from_f64(2.0)));
}

fn table<T: SolveScalar>() {
    for n in [4, 9, 40, 130] {
        let cases = cases(n);
        let systems = systems::<T>(&pattern_of_cases(n), &cases);
        let options = options();
        let (gpu, cpu) = (solve(&systems, &options), on_cpu(&systems, &options));
        let what = format!("{} n = {n}", T::CPP);
        end_as_expected(&what, &cases, &gpu, &cpu);
        let sure: Vec<usize> = (0..cases.len()).filter(|&i| cases[i].is_comparable()).collect();
        let part = |solved: &Solved<T>| Solved {
            x: sure.iter().flat_map(|&i| solved.x[i * n..(i + 1) * n].to_vec()).collect(),
            outcomes: sure.iter().map(|&i| solved.outcomes[i].clone()).collect(),
            kernel: solved.kernel.clone(),
        };
        let rel_tol = SolveOptions::default_rel_tol::<T>();
        compare(&what, &systems.select(&sure), &part(&gpu), &part(&cpu), rel_tol);
        a_failure_keeps_the_guess(&cases, &gpu.x);
    }
}

#[test]
fn bad_systems_end_as_on_the_cpu_in_f64() {
    table::<f64>();
}

#[test]
fn bad_systems_end_as_on_the_cpu_in_f32() {
    table::<f32>();
}

/// A diagonal entry that is not stored, and one that fill adds.
#[test]
fn missing_diagonals_end_as_on_the_cpu() {
    // Row 2 is empty.
    let empty_row = CsrPattern::try_new(4, 4, vec![0, 2, 3, 3, 4], vec![0, 1, 0, 3]).unwrap();
    // [4 1; 1 .]: the second pivot is -1/4.
    let filled = CsrPattern::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 0]).unwrap();
    for (pattern, expected) in [(empty_row, Status::ZeroPivot), (filled, Status::Converged)] {
        let n = pattern.nrows();
        let values = vec![4.0, 1.0, 1.0, 2.0][..pattern.view().nnz()].to_vec();
        let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
        let matrix = Csr::<f64>::try_new(n, n, row_ptr, col_idx, values).unwrap();
        let systems = Systems::new(&[matrix.clone(), matrix], vec![1.0; 2 * n]);
        let options = options();

        let (gpu, cpu) = (solve(&systems, &options), on_cpu(&systems, &options));

        assert_eq!(cpu.statuses()[0], expected);
        assert_eq!(gpu.statuses(), cpu.statuses());
    }
}

fn stagnates<T: SolveScalar>(rel_tol: f64) {
    let n = 24;
    let healthy = matrix::<T>(&pattern(n, 3, 1), 1.2, 2);
    let systems = Systems::new(&[healthy.clone(), healthy], random_vector::<T>(2 * n, 7));
    let mut options = options();
    options.rel_tol = Some((vec![rel_tol, 1e-3]).into());

    let gpu = solve(&systems, &options);

    assert_eq!(gpu.statuses(), [Status::Stagnated, Status::Converged]);
    let outcome = &gpu.outcomes[0];
    assert_eq!((outcome.restarts, outcome.iterations), (4, 5));
    assert!(outcome.residual_norm <= 50.0 * T::EPSILON.to_f64() * outcome.rhs_norm);
    assert!(outcome.residual_norm > rel_tol * outcome.rhs_norm);
    let cpu = on_cpu(&systems, &options);
    assert_eq!(cpu.statuses(), gpu.statuses());
    assert_eq!(cpu.outcomes[0].iterations, 5);
}

#[test]
fn a_tolerance_below_rounding_stagnates_after_all_refinements() {
    stagnates::<f64>(1e-22);
    stagnates::<f32>(1e-12);
}

#[test]
fn the_floor_accepts_what_rounding_leaves() {
    for n in [6, 60] {
        let mut systems =
            Systems::new(&[matrix::<f64>(&pattern(n, 3, 1), 1.2, 2)], random_vector(n, 7));
        let mut options = options();
        (options.rel_tol, options.floor) = (Some(0.0.into()), Some(4.0));
        for scale in [1.0, 1e-200, 1e200] {
            systems.b = random_vector::<f64>(n, 7).iter().map(|b| b * scale).collect();

            let (gpu, cpu) = (solve(&systems, &options), on_cpu(&systems, &options));

            assert_eq!(gpu.statuses(), [Status::Converged], "{scale}");
            assert_eq!(cpu.statuses(), gpu.statuses());
            assert!(gpu.outcomes[0].accepted_by_floor || gpu.outcomes[0].residual_norm == 0.0);
        }
        // A floor of 0 accepts nothing more.
        options.floor = Some(0.0);
        let gpu = solve(&systems, &options);
        assert!(!gpu.outcomes[0].accepted_by_floor);
    }
}

#[test]
fn limits_and_tolerances_are_kept_system_by_system() {
    let n = 20;
    let matrices = vec![matrix::<f64>(&pattern(n, 3, 1), 1.2, 2); 4];
    let systems = Systems::new(&matrices, random_vector(4 * n, 7));
    let mut options = options();
    options.max_iters = (vec![0, 3, 1000, 1]).into();
    options.rel_tol = Some((vec![1e-10, 0.0, 1e-10, 0.0]).into());

    let gpu = solve(&systems, &options);

    let cpu = on_cpu(&systems, &options);
    assert_eq!(gpu.statuses(), cpu.statuses());
    let iterations: Vec<u32> = gpu.outcomes.iter().map(|o| o.iterations).collect();
    assert_eq!(iterations, [0, 3, 1, 1]);
    for system in [0, 1, 3] {
        assert_eq!(gpu.statuses()[system], Status::MaxIterations);
    }
    // The larger one of absolute and relative tolerance decides.
    (options.max_iters, options.abs_tol) = (1000.into(), vec![0.5, 1e9, 0.0, 0.0].into());
    let gpu = solve(&systems, &options);
    assert!(gpu.outcomes[0].residual_norm <= 0.5 && gpu.outcomes[0].iterations == 1);
    assert_eq!(gpu.outcomes[1].iterations, 0);
}

#[test]
fn overflow_inside_a_solve_is_non_finite() {
    for n in [3, 80] {
        let small = scaled(&matrix::<f64>(&pattern(n, 2, 1), 1.2, 2), -900);
        let b = random_vector::<f64>(n, 2).iter().map(|v| v * 2f64.powi(900)).collect();
        let systems = Systems::new(&[small], b);

        let (gpu, cpu) = (solve(&systems, &options()), on_cpu(&systems, &options()));

        assert_eq!(gpu.statuses(), [Status::NonFinite]);
        assert_eq!(cpu.statuses(), gpu.statuses());
    }
}

/// A matrix times a power of two.
pub(crate) fn scaled(a: &Csr<f64>, exponent: i32) -> Csr<f64> {
    let pattern = a.view().pattern();
    let values = a.values().iter().map(|v| v * 2f64.powi(exponent)).collect();
    let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
    Csr::try_new(pattern.nrows(), pattern.ncols(), row_ptr, col_idx, values).unwrap()
}

#[test]
fn matrices_and_right_hand_sides_of_any_scale_are_solved() {
    for n in [12, 70] {
        for (matrix_scale, exponent) in [
            (0, -990),
            (0, -700),
            (0, 700),
            (0, 990),
            (900, 300),
            (-900, -300),
            (300, 900),
            (-300, -900),
        ] {
            let a = scaled(&matrix::<f64>(&pattern(n, 3, 1), 1.2, 2), matrix_scale);
            let b = random_vector::<f64>(n, 2).iter().map(|v| v * 2f64.powi(exponent)).collect();
            let systems = Systems::new(&[a], b);
            let options = options();

            let (gpu, cpu) = (solve(&systems, &options), on_cpu(&systems, &options));

            let what = format!("A 2^{matrix_scale}, b 2^{exponent}");
            assert_eq!(cpu.statuses(), [Status::Converged], "{what}");
            assert_eq!(gpu.statuses(), cpu.statuses(), "{what}");
            assert!(gpu.outcomes[0].residual_norm <= 1e-10 * gpu.outcomes[0].rhs_norm, "{what}");
        }
    }
}
