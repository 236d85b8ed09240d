//! Iterations in f32 within f64 solves.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{DeviceInfo, Executor};
use sparsebatch_formats::Csr;
use sparsebatch_formats::generate::Family;
use sparsebatch_solvers::gpu::{FusedSolver, GpuTuning, Guess};
use sparsebatch_solvers::{InnerPrecision, Method, Preconditioner, SolveOptions, Status};
use sparsebatch_testing::random_vector;

use crate::common::{ENDLESS, METHODS, Systems, compare_within, on_cpu, on_gpu, options};
use crate::gpu::agreement::family;

fn in_f32(method: Method, preconditioner: Preconditioner) -> SolveOptions {
    options(method, preconditioner).inner_precision(InnerPrecision::Auto)
}

const PRECONDITIONERS: [Preconditioner; 2] = [Preconditioner::None, Preconditioner::Jacobi];

#[test]
fn families_agree_with_the_cpu() {
    for (kind, nrows, items) in [
        (Family::Tri, 1, 9),
        (Family::Tri, 32, 9),
        (Family::Tri, 50, 5),
        (Family::Tri, 128, 3),
        (Family::Tri, 200, 2),
        (Family::Tri, 512, 2),
        (Family::Tri, 1000, 1),
        (Family::Lap2d, 16, 9),
        (Family::Lap2d, 64, 5),
        (Family::Lap2d, 100, 3),
        (Family::Lap2d, 256, 3),
        (Family::Lap2d, 400, 2),
        (Family::Lap2d, 900, 1),
        (Family::Rand9, 54, 5),
        (Family::Rand9, 100, 3),
        (Family::Rand9, 144, 3),
        (Family::Rand9, 200, 2),
        (Family::Rand9, 512, 1),
        (Family::Rand9, 992, 1),
    ] {
        let systems = family::<f64>(kind, nrows, items);
        for (method, preconditioner) in
            METHODS.into_iter().flat_map(|method| PRECONDITIONERS.map(|p| (method, p)))
        {
            if method == Method::Cg && kind == Family::Rand9 {
                continue;
            }
            let executor = Emulator::new(Order::Random(3));
            let mixed = in_f32(method, preconditioner);
            let gpu = on_gpu(&executor, &systems, &mixed, &GpuTuning::default());
            let cpu = on_cpu(&systems, &options(method, preconditioner));
            let what = format!("{} {nrows} {method} {preconditioner}", kind.name());
            assert!(gpu.kernel.ends_with("float>"), "{what}: {}", gpu.kernel);
            assert!(gpu.statuses().iter().all(|&status| status == Status::Converged), "{what}");
            // Larger systems do not end by exhausting the Krylov space; BiCGStab restarts on the
            // way and may need fewer iterations.
            let close = if nrows >= 128 { (0.25, 3.0) } else { ENDLESS };
            compare_within(&what, &systems, &gpu, &cpu, 1e-10, close);
        }
    }
}

/// Systems that f32 cannot represent, or that no method solves, end bit for bit as without f32; the
/// others are not solved twice.
#[test]
fn what_f32_leaves_is_solved_in_f64() {
    let n = 24;
    let healthy: Vec<Csr<f64>> = {
        let systems = family::<f64>(Family::Tri, n, 7);
        (0..7).map(|item| systems.batch.to_matrix(item)).collect()
    };
    let times = |matrix: &Csr<f64>, factor: f64| {
        let mut matrix = matrix.clone();
        matrix.values_mut().iter_mut().for_each(|value| *value *= factor);
        matrix
    };
    // Healthy; beyond the largest f32; near its smallest; NaN; an unreachable tolerance; an
    // iteration limit; healthy.
    let mut matrices = healthy.clone();
    matrices[1] = times(&healthy[1], 1e60);
    matrices[2] = times(&healthy[2], 1e-60);
    matrices[3].values_mut()[4] = f64::NAN;
    let systems = Systems::new(&matrices, random_vector(7 * n, 3));
    let mut rel_tols = vec![1e-10; 7];
    rel_tols[4] = 1e-22;
    let mut limits = vec![1000; 7];
    limits[5] = 7;
    let mut guessed = systems.clone();
    guessed.x0 = random_vector(7 * n, 4);
    guessed.x0[n..3 * n].fill(0.0);
    for (systems, method) in
        [&systems, &guessed].into_iter().flat_map(|s| METHODS.map(|method| (s, method)))
    {
        let of =
            |options: SolveOptions| options.rel_tol(rel_tols.clone()).max_iters(limits.clone());
        let tuning = GpuTuning::default().group(Some((8, 4))).vectors(Some(1));
        let solve = |options| on_gpu(&Emulator::new(Order::Random(1)), systems, &options, &tuning);
        let mixed = solve(of(in_f32(method, Preconditioner::None)));
        let plain = solve(of(options(method, Preconditioner::None)));

        let statuses = [
            Status::Converged,
            Status::Converged,
            Status::Converged,
            Status::NonFinite,
            Status::Stagnated,
            Status::MaxIterations,
            Status::Converged,
        ];
        assert_eq!(mixed.statuses(), statuses, "{method}");
        assert_eq!(plain.statuses(), statuses, "{method}");
        for system in 1..6 {
            assert_eq!(mixed.bits(system), plain.bits(system), "{method}, system {system}");
        }
        for system in [0, 6] {
            assert_ne!(mixed.bits(system), plain.bits(system), "{method}, system {system}");
        }
    }
}

/// Matrices, right-hand sides and tolerances of many sizes.
#[test]
fn scales_do_not_matter_where_f32_holds_them() {
    for (exponent, rel_tol) in [(-140, 1e-3), (-30, 1e-6), (0, 1e-12), (9, 1e-13), (140, 1e-10)] {
        let mut systems = family::<f64>(Family::Lap2d, 64, 2);
        systems.b.iter_mut().for_each(|b| *b *= 10f64.powi(exponent));
        for (method, preconditioner) in
            METHODS.into_iter().flat_map(|method| PRECONDITIONERS.map(|p| (method, p)))
        {
            let with = |options: SolveOptions| options.rel_tol(rel_tol);
            let executor = Emulator::new(Order::Forward);
            let mixed = with(in_f32(method, preconditioner));
            let gpu = on_gpu(&executor, &systems, &mixed, &GpuTuning::default());
            let cpu = on_cpu(&systems, &with(options(method, preconditioner)));
            let what = format!("1e{exponent} to {rel_tol} by {method} {preconditioner}");
            compare_within(&what, &systems, &gpu, &cpu, rel_tol, ENDLESS);
        }
    }
}

/// Tridiagonal matrices of 128 rows whose diagonal exceeds the sum of the others in a row by
/// `above`: the condition number is 4 / `above`.
fn chains(above: f64) -> Systems<f64> {
    let systems = family::<f64>(Family::Tri, 128, 3);
    let matrices: Vec<Csr<f64>> = (0..3)
        .map(|item| {
            let mut matrix = systems.batch.to_matrix(item);
            let pattern = systems.pattern();
            for row in 0..128 {
                for entry in pattern.row(row) {
                    let is_diagonal = pattern.col_idx()[entry] as usize == row;
                    matrix.values_mut()[entry] = if is_diagonal { 2.0 + above } else { -1.0 };
                }
            }
            matrix
        })
        .collect();
    Systems::new(&matrices, random_vector(3 * 128, 5))
}

/// Iterations in f32 go on while the residual decreases slowly, and give up where it takes too
/// long: then a system ends bit for bit as without them.
#[test]
fn what_takes_too_long_in_f32_is_solved_in_f64() {
    let tuning = GpuTuning::default().group(Some((32, 4))).vectors(Some(1));
    for (above, is_left) in [(0.5, false), (0.02, false), (1e-4, true)] {
        let systems = chains(above);
        for method in METHODS {
            let executor = Emulator::new(Order::Random(2));
            let solve = |options| on_gpu(&executor, &systems, &options, &tuning);
            let mixed = solve(in_f32(method, Preconditioner::None));
            let plain = solve(options(method, Preconditioner::None));
            let what = format!("{method}, {above}");
            assert_eq!(mixed.statuses(), [Status::Converged; 3], "{what}");
            for system in 0..3 {
                assert_eq!(mixed.bits(system) == plain.bits(system), is_left, "{what}, {system}");
            }
            compare_within(&what, &systems, &mixed, &plain, 1e-10, (0.25, 3.0));
        }
    }
}

#[test]
fn plans_solve_again_and_say_what_they_are() {
    let good = family::<f64>(Family::Tri, 32, 5);
    let mut bad = good.clone();
    bad.b[40] = f64::INFINITY;
    let executor = Emulator::new(Order::Forward);
    let mixed = in_f32(Method::Cg, Preconditioner::Jacobi);
    let tuning = GpuTuning::default().mixed(Some(true));
    let mut plan =
        FusedSolver::<_, f64>::with_tuning(&executor, good.pattern(), 5, &mixed, &tuning).unwrap();
    let values = executor.upload(good.values()).unwrap();
    let mut x = executor.alloc_zeroed::<f64>(good.b.len()).unwrap();
    let mut solve = |systems: &Systems<f64>| {
        let b = executor.upload(&systems.b).unwrap();
        plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
        let statuses: Vec<Status> = plan.outcomes().unwrap().iter().map(|o| o.status).collect();
        (executor.download(&x).unwrap(), statuses)
    };
    let (first, statuses) = solve(&good);
    assert_eq!(statuses, [Status::Converged; 5]);
    let (_, statuses) = solve(&bad);
    assert_eq!(statuses[1], Status::NonFinite);
    assert_eq!(statuses.iter().filter(|&&s| s == Status::Converged).count(), 4);
    let (again, statuses) = solve(&good);
    assert_eq!(statuses, [Status::Converged; 5]);
    assert_eq!(first, again);

    let explain = plan.explain();
    assert!(explain.is_mixed() && explain.to_string().contains("iterations in f32"));
    // 8 bytes for the queue, 24 for the list of systems left.
    assert_eq!(explain.workspace_bytes, 5 * 25 + 8 + 24);
}

#[test]
fn iterations_are_in_f32_where_that_is_quicker() {
    let is_mixed = |kind, nrows, few, inner_precision| {
        let systems = family::<f64>(kind, nrows, 1);
        let options =
            options(Method::BiCgStab, Preconditioner::Jacobi).inner_precision(inner_precision);
        let tuning = GpuTuning::default().few(Some(few));
        let executor = Emulator::new(Order::Forward);
        let plan =
            FusedSolver::<_, f64>::with_tuning(&executor, systems.pattern(), 1, &options, &tuning);
        plan.unwrap().explain().is_mixed()
    };
    let auto = InnerPrecision::Auto;
    assert!(!is_mixed(Family::Tri, 32, false, auto));
    assert!(is_mixed(Family::Tri, 64, false, auto));
    assert!(!is_mixed(Family::Tri, 512, true, auto));
    assert!(is_mixed(Family::Lap2d, 900, true, auto));
    assert!(!is_mixed(Family::Rand9, 1100, false, auto), "values are not in registers");
    assert!(!is_mixed(Family::Tri, 64, false, InnerPrecision::Working));
}

/// Systems left by f32 are solved in f64, whose vectors take more shared memory: a shape in which
/// only the f32 iterations fit is not chosen.
#[test]
fn both_launches_have_room_in_shared_memory() {
    let systems = family::<f64>(Family::Rand9, 992, 2);
    let mixed = in_f32(Method::BiCgStab, Preconditioner::Jacobi);
    let tuning = GpuTuning::default().mixed(Some(true));
    let usual = Emulator::new(Order::Forward);
    let plan = |executor: &Emulator| {
        FusedSolver::<_, f64>::with_tuning(executor, systems.pattern(), 2, &mixed, &tuning).unwrap()
    };
    let bin = plan(&usual).explain().launches[0].clone();
    assert!(bin.fused().is_some_and(|shape| shape.is_mixed && shape.vectors == 3));
    // Room for the f32 iterations and what a plan reserves; then for more and more of the f64
    // launch.
    for beside in [1536, 2048, 4080, 8000] {
        let shared_bytes_per_block = bin.shared_bytes + beside;
        let info = DeviceInfo { shared_bytes_per_block, ..usual.info().clone() };
        let executor = Emulator::with_info(info, Order::Forward);
        let solved = on_gpu(&executor, &systems, &mixed, &tuning);
        assert_eq!(solved.statuses(), [Status::Converged; 2], "{shared_bytes_per_block}");
    }
}
