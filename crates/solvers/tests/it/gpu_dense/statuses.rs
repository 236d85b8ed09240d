//! Every status with which dense elimination can end, each among healthy neighbours.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::{Batch, Csr, Pattern};
use sparsebatch_solvers::gpu::DenseTuning;
use sparsebatch_solvers::{
    Backend, BatchSolver, Gpu, Machine, Method, Rung, SolveOptions, SolveScalar, Status,
};
use sparsebatch_testing::random_vector;

use crate::common::{Solved, Systems};
use crate::gpu_dense::support::{by_dense, options, pattern_with_shift, shifted};
use crate::gpu_lu::statuses::{cases, pattern_of_cases, scaled, systems};
use crate::gpu_lu::support::{matrix, pattern};

fn solve<T: SolveScalar>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
    by_dense(&Emulator::new(Order::Random(5)), systems, options, &DenseTuning::default())
}

fn table<T: SolveScalar>() {
    for n in [4, 9, 20, 30, 40, 60] {
        let cases = cases(n);
        let systems = systems::<T>(&pattern_of_cases(n), &cases);
        let gpu = solve(&systems, &options());
        for (case, outcome) in cases.iter().zip(&gpu.outcomes) {
            let what = format!("{} n = {n} {}: {outcome:?}", T::CPP, case.name);
            if case.name == "equal rows" {
                // A cancelling pivot may leave a rounding error.
                assert_ne!(outcome.status, Status::Converged, "{what}");
                continue;
            }
            // Elimination without pivoting says `ZeroPivot` where there is none at all.
            let expected = match case.expected {
                Status::ZeroPivot => Status::Singular,
                status => status,
            };
            assert_eq!(outcome.status, expected, "{what}");
        }
        crate::gpu_lu::statuses::a_failure_keeps_the_guess(&cases, &gpu.x);
    }
}

#[test]
fn bad_systems_end_with_their_status() {
    table::<f64>();
    table::<f32>();
}

#[test]
fn a_tolerance_below_rounding_stagnates_after_all_refinements() {
    let n = 24;
    let healthy = matrix::<f64>(&pattern(n, 3, 1), 1.2, 2);
    let systems = Systems::new(&[healthy.clone(), healthy], random_vector(2 * n, 7));
    let mut options = options();
    options.rel_tol = Some((vec![1e-22, 1e-3]).into());

    let gpu = solve(&systems, &options);

    assert_eq!(gpu.statuses(), [Status::Stagnated, Status::Converged]);
    assert_eq!((gpu.outcomes[0].restarts, gpu.outcomes[0].iterations), (4, 5));
    assert_eq!((gpu.outcomes[1].restarts, gpu.outcomes[1].iterations), (0, 1));
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

    let iterations: Vec<u32> = gpu.outcomes.iter().map(|o| o.iterations).collect();
    assert_eq!(iterations, [0, 3, 1, 1]);
    for system in [0, 1, 3] {
        assert_eq!(gpu.statuses()[system], Status::MaxIterations);
    }
    (options.max_iters, options.abs_tol) = (1000.into(), vec![0.5, 1e9, 0.0, 0.0].into());
    let gpu = solve(&systems, &options);
    assert!(gpu.outcomes[0].residual_norm <= 0.5 && gpu.outcomes[0].iterations == 1);
    assert_eq!(gpu.outcomes[1].iterations, 0);
}

#[test]
fn matrices_and_right_hand_sides_of_any_scale_are_solved() {
    for n in [12, 50] {
        for (matrix_scale, exponent) in
            [(0, -990), (0, 990), (900, 300), (-900, -300), (300, 900), (-300, -900)]
        {
            let a = scaled(&matrix::<f64>(&pattern(n, 3, 1), 1.2, 2), matrix_scale);
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
    for n in [3, 50] {
        let small = scaled(&matrix::<f64>(&pattern(n, 2, 1), 1.2, 2), -900);
        let b = random_vector::<f64>(n, 2).iter().map(|v| v * 2f64.powi(900)).collect();

        let gpu = solve(&Systems::new(&[small], b), &options());

        assert_eq!(gpu.statuses(), [Status::NonFinite]);
    }
}

/// What elimination on the GPU leaves goes to the CPU, which names singular matrices; the rest stays
/// on the GPU.
#[test]
fn the_cpu_takes_what_elimination_leaves() {
    let n = 30;
    let pattern = pattern_with_shift(n, 6, 2, 1);
    let healthy = shifted::<f64>(&pattern, 2, 4);
    let mut values = healthy.values().to_vec();
    values[pattern.view().row(3)].fill(0.0);
    let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
    let singular = Csr::try_new(n, n, row_ptr, col_idx, values).unwrap();
    let systems = Systems::new(&[healthy.clone(), singular, healthy], random_vector(3 * n, 3));
    let batch = Batch::Uniform(systems.batch.clone());
    let executor = Emulator::new(Order::Forward);
    let gpu = Gpu::new(executor);
    let options = options();
    let mut solver = BatchSolver::on_executor(&Backend::Gpu(gpu), &batch, None, &options).unwrap();
    let mut x = vec![0.0; systems.b.len()];

    let report = solver.solve(&batch, &systems.b, &mut x).unwrap();

    let statuses: Vec<Status> = report.systems.iter().map(|s| s.outcome.status).collect();
    assert_eq!(statuses, [Status::Converged, Status::Singular, Status::Converged]);
    assert!(report.systems.iter().all(|s| s.rung == Rung::First));
    assert_eq!(report.backend, Machine::GpuAndCpu);
    assert!(report.kernel.contains("dense") && report.kernel.ends_with("; pivoting-lu"));
    let reason = report.runs[0].cpu_reason.as_deref();
    assert_eq!(reason, Some("1 systems that dense elimination left unsolved"));
    assert!(report.systems[1].singular && report.singular() == 1);
    // The CPU alone agrees.
    let mut solver = BatchSolver::new(&batch, &options).unwrap();
    let mut y = vec![0.0; systems.b.len()];
    let on_cpu = solver.solve(&batch, &systems.b, &mut y).unwrap();
    assert_eq!(on_cpu.systems[1].outcome.status, Status::Singular);
    assert_eq!(x[n..2 * n], y[n..2 * n]);
    assert_eq!(options.method, Method::PivotingLu);
}

/// The last rung of the ladder runs on the GPU where systems are small.
#[test]
fn the_last_rung_stays_on_the_gpu() {
    // In any order of elimination the second pivot is 1 - 1 = 0, although static pivoting sees no
    // reason to move a row.
    let values = vec![1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 1.0, -1.0, 1.0];
    let columns = vec![0, 1, 2, 0, 1, 2, 0, 1, 2];
    let cancels = Csr::try_new(3, 3, vec![0, 3, 6, 9], columns, values).unwrap();
    let batch = Batch::from(cancels);
    let gpu = Gpu::new(Emulator::new(Order::Forward));
    let options = SolveOptions::new().method(Method::Lu).max_iters(1);
    let mut solver = BatchSolver::on_executor(&Backend::Gpu(gpu), &batch, None, &options).unwrap();
    let mut x = vec![0.0; 3];

    let report = solver.solve(&batch, &[1.0, 2.0, 3.5], &mut x).unwrap();

    assert!(report.all_converged(), "{:?}", report.systems);
    let last = report.runs.last().unwrap();
    assert_eq!((last.rung, last.backend), (Rung::PivotingLu, Machine::Gpu), "{:?}", report.runs);
    assert!(last.kernel.contains("dense"), "{}", last.kernel);
}
