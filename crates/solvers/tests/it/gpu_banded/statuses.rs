//! Every status with which banded elimination can end, each among healthy neighbours, as on the CPU.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::{Csr, CsrPattern, Pattern};
use sparsebatch_solvers::gpu::BandedTuning;
use sparsebatch_solvers::{SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::common::{Solved, Systems, on_cpu};
use crate::gpu_banded::support::{Look, band, by_banded, options};
use crate::gpu_lu::statuses::{a_failure_keeps_the_guess, cases, end_as_expected, scaled, systems};
use crate::gpu_lu::support::matrix;

/// As [`solve`], by the blocks of a cluster.
fn solve_in_blocks<T: SolveScalar>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
    let tuning = BandedTuning::default().cluster(Some(4));
    by_banded(&Emulator::new(Order::Random(5)), systems, options, &tuning)
}

fn solve<T: SolveScalar>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
    by_banded(&Emulator::new(Order::Random(5)), systems, options, &BandedTuning::default())
}

type Solve = fn(&Systems<f64>, &SolveOptions) -> Solved<f64>;

fn table<T: SolveScalar>() {
    for (n, half) in [
        (4, 1),
        (9, 1),
        (33, 1),
        (130, 1),
        (600, 1),
        (5, 2),
        (40, 2),
        (130, 2),
        (300, 2),
        (2500, 1),
        (60, 3),
        (120, 4),
    ] {
        let cases = cases(n);
        let systems = systems::<T>(&band(n, half, Look::Whole), &cases);
        let cpu = on_cpu(&systems, &options());
        let in_blocks = solve_in_blocks(&systems, &options());
        for gpu in [solve(&systems, &options()), in_blocks] {
            let what = format!("{} n = {n}, {half} on a side, {}", T::CPP, gpu.kernel);
            // Without the ladder the CPU still permutes the rows of the case "equal rows".
            end_as_expected(&what, &cases, &gpu, &cpu);
            a_failure_keeps_the_guess(&cases, &gpu.x);
        }
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

/// Rows of zeros and entries that are NaN or infinite are told wherever they are: among the rows of
/// a thread, in the reduced system, in the first block of a cluster and in the last.
#[test]
fn a_flaw_is_told_wherever_it_is() {
    for (n, half) in
        [(20, 1), (100, 1), (40, 2), (700, 1), (8900, 1), (4700, 2), (3600, 2), (100, 3), (130, 4)]
    {
        let pattern = band(n, half, Look::Whole);
        let healthy = matrix::<f64>(&pattern, 1.5, 4);
        let view = pattern.view();
        for (flaw, expected) in [
            (0.0, Status::ZeroPivot),
            (f64::NAN, Status::NonFinite),
            (f64::INFINITY, Status::NonFinite),
        ] {
            let flawed = |row: usize| {
                let mut values = healthy.values().to_vec();
                values[view.row(row)].fill(flaw);
                Csr::from_parts(pattern.clone().into(), values).unwrap()
            };
            let rows: Vec<usize> = (0..n).step_by(1 + n / 50).collect();
            let mut matrices: Vec<Csr<f64>> = rows.iter().map(|&row| flawed(row)).collect();
            matrices.push(healthy.clone());
            let systems = Systems::new(&matrices, random_vector(n * matrices.len(), 3));

            let gpu = solve(&systems, &options());

            for (row, outcome) in rows.iter().zip(&gpu.outcomes) {
                assert_eq!(outcome.status, expected, "{n} {half}, row {row}: {outcome:?}");
            }
            assert_eq!(gpu.statuses()[rows.len()], Status::Converged);
            assert!(gpu.x[..n * rows.len()].iter().all(|&x| x == 0.0));
        }
    }
}

/// A singular matrix whose pivots are 1 but for one: that of the equations which the blocks of a
/// cluster have left, between the last row of the first block and the first border of the second.
#[test]
fn a_zero_pivot_between_blocks_is_told() {
    let n = 2300;
    let pattern = band(n, 1, Look::Whole);
    let mut values = Vec::new();
    for row in 0..n {
        for &col in &pattern.col_idx()[pattern.view().row(row)] {
            let (low, high) = (row.min(col as usize), row.max(col as usize));
            values.push(match (low, high - low) {
                (2175, 0) => 18.0,
                (2177..=2191, 0) => 2.0,
                (2192, 0) => 1.5,
                (_, 0) => 1.0,
                (2175..=2191, _) => -1.0,
                _ => 0.0,
            });
        }
    }
    let singular = Csr::from_parts(pattern.clone().into(), values).unwrap();
    let healthy = matrix::<f64>(&pattern, 1.5, 4);
    let systems = Systems::new(&[singular, healthy], random_vector(2 * n, 3));

    let gpu = solve_in_blocks(&systems, &options());

    // The first block has rows 0 to 2175.
    assert!(gpu.kernel.ends_with("17, 128, 4>"), "{}", gpu.kernel);
    assert_eq!(gpu.statuses(), [Status::ZeroPivot, Status::Converged]);
}

/// Elimination lets entries grow where pivots are small; the residual shows it, and no system is said
/// to be solved that is not.
#[test]
fn small_pivots_are_never_said_to_converge_falsely() {
    let n = 60;
    let pattern = band(n, 1, Look::Whole);
    let view = pattern.view();
    for exponent in [-8, -14, -16, -18, -30, -200] {
        let mut values = random_vector::<f64>(view.nnz(), 8);
        for row in 0..n {
            let k = view.position(row, row).unwrap();
            values[k] *= 10f64.powi(exponent);
        }
        let hard = Csr::from_parts(pattern.clone().into(), values).unwrap();
        let healthy = matrix::<f64>(&pattern, 1.5, 4);
        let systems = Systems::new(&[healthy.clone(), hard, healthy], random_vector(3 * n, 3));

        let gpu = solve(&systems, &options());

        let what = format!("1e{exponent}: {:?}", gpu.outcomes[1]);
        assert_eq!([gpu.statuses()[0], gpu.statuses()[2]], [Status::Converged; 2]);
        let found = crate::common::residual_norm(&systems, &gpu.x, 1);
        let most = 1e-10 * gpu.outcomes[1].rhs_norm;
        match gpu.outcomes[1].status {
            Status::Converged => assert!(found <= 1.01 * most, "{what}: {found:e}"),
            Status::Stagnated | Status::ZeroPivot | Status::NonFinite => {}
            other => panic!("{other:?} {what}"),
        }
    }
}

#[test]
fn a_tolerance_below_rounding_stagnates_after_all_refinements() {
    for (n, solve) in [(50, solve as Solve), (2300, solve_in_blocks)] {
        let healthy = matrix::<f64>(&band(n, 1, Look::Whole), 1.2, 2);
        let systems = Systems::new(&[healthy.clone(), healthy], random_vector(2 * n, 7));
        let mut options = options();
        options.rel_tol = Some((vec![1e-22, 1e-3]).into());

        let gpu = solve(&systems, &options);

        assert_eq!(gpu.statuses(), [Status::Stagnated, Status::Converged]);
        assert_eq!((gpu.outcomes[0].restarts, gpu.outcomes[0].iterations), (4, 5));
        assert_eq!((gpu.outcomes[1].restarts, gpu.outcomes[1].iterations), (0, 1));
    }
}

#[test]
fn limits_and_tolerances_are_kept_system_by_system() {
    limits_and_tolerances(20, solve);
    limits_and_tolerances(1300, solve_in_blocks);
}

fn limits_and_tolerances(n: usize, solve: Solve) {
    let matrices = vec![matrix::<f64>(&band(n, 2, Look::Whole), 1.2, 2); 4];
    let systems = Systems::new(&matrices, random_vector(4 * n, 7));
    let mut options = options();
    options.max_iters = (vec![0, 3, 1000, 1]).into();
    options.rel_tol = Some((vec![1e-10, 0.0, 1e-10, 0.0]).into());

    let gpu = solve(&systems, &options);

    let iterations: Vec<u32> = gpu.outcomes.iter().map(|o| o.iterations).collect();
    assert_eq!(iterations, [0, 3, 1, 1]);
    for system in [0, 1, 3] {
        assert_eq!(gpu.statuses()[system], Status::MaxIterations);
    }
    assert!(gpu.x[..n].iter().all(|&x| x == 0.0));
    (options.max_iters, options.abs_tol) = (1000.into(), vec![0.5, 1e9, 0.0, 0.0].into());
    let gpu = solve(&systems, &options);
    assert!(gpu.outcomes[0].residual_norm <= 0.5 && gpu.outcomes[0].iterations == 1);
    assert_eq!(gpu.outcomes[1].iterations, 0);
}

#[test]
fn matrices_and_right_hand_sides_of_any_scale_are_solved() {
    for (n, solve) in [(12, solve as Solve), (200, solve), (2300, solve_in_blocks)] {
        for (matrix_scale, exponent) in
            [(0, -990), (0, 990), (900, 300), (-900, -300), (300, 900), (-300, -900)]
        {
            let a = scaled(&matrix::<f64>(&band(n, 1, Look::Whole), 1.2, 2), matrix_scale);
            let b = random_vector::<f64>(n, 2).iter().map(|v| v * 2f64.powi(exponent)).collect();

            let gpu = solve(&Systems::new(&[a], b), &options());

            let what = format!("A 2^{matrix_scale}, b 2^{exponent}");
            assert_eq!(gpu.statuses(), [Status::Converged], "{what}");
            assert!(gpu.outcomes[0].residual_norm <= 1e-10 * gpu.outcomes[0].rhs_norm, "{what}");
        }
    }
}

#[test]
fn overflow_inside_a_solve_is_non_finite() {
    for (n, solve) in [(3, solve as Solve), (50, solve), (2300, solve_in_blocks)] {
        let small = scaled(&matrix::<f64>(&band(n, 1, Look::Whole), 1.2, 2), -900);
        let b = random_vector::<f64>(n, 2).iter().map(|v| v * 2f64.powi(900)).collect();

        let gpu = solve(&Systems::new(&[small], b), &options());

        assert_eq!(gpu.statuses(), [Status::NonFinite]);
    }
}

/// A row without entries, in the middle and at the end.
#[test]
fn empty_rows_are_zero_pivots() {
    for row_ptr in [vec![0, 1, 1, 2], vec![0, 1, 2, 2]] {
        let pattern = CsrPattern::try_new(3, 3, row_ptr, vec![0, 1]).unwrap();
        let empty = Csr::<f64>::from_parts(pattern.into(), vec![1.0; 2]).unwrap();

        let gpu = solve(&Systems::new(&[empty], vec![1.0; 3]), &options());

        assert_eq!(gpu.statuses(), [Status::ZeroPivot]);
    }
}
