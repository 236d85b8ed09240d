//! The LU of systems whose factors are in device memory, compared with the CPU's.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr, CsrPattern, Pattern};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::GpuSolveError;
use sparsebatch_solvers::gpu::{
    FactoredPlace, FactoredSolver, FactoredTuning, GpuLu, Guess, PlanReport,
};
use sparsebatch_solvers::{PrecondPrecision, Preconditioner, SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::common::{Solved, Systems, compare, on_cpu, residual_norm};
use crate::gpu_factored::support::by_factors;
use crate::gpu_lu::agreement::residuals_are_small;
use crate::gpu_lu::independence::{Flaw, batch};
use crate::gpu_lu::statuses::{
    a_failure_keeps_the_guess, cases, end_as_expected, pattern_of_cases, scaled, systems,
};
use crate::gpu_lu::support::{matrix, options, pattern};

const PLACES: [FactoredPlace; 2] = [FactoredPlace::FactorsGlobal, FactoredPlace::AllGlobal];

fn tuning(place: FactoredPlace) -> FactoredTuning {
    FactoredTuning::default().place(Some(place))
}

fn solve<T: Value>(
    systems: &Systems<T>,
    options: &SolveOptions,
    place: FactoredPlace,
) -> Solved<T> {
    by_factors(&Emulator::new(Order::Random(5)), systems, options, &tuning(place))
}

fn random_patterns<T: SolveScalar>() {
    for (n, most, items, nrhs) in
        [(1, 0, 3, 1), (2, 1, 3, 2), (13, 4, 3, 1), (57, 5, 2, 3), (80, 9, 2, 1), (150, 3, 2, 1)]
    {
        let pattern = pattern(n, most, n as u64);
        let matrices: Vec<Csr<T>> =
            (0..items).map(|item| matrix(&pattern, 1.1, item + 3)).collect();
        let len = n * matrices.len() * nrhs;
        let mut systems = Systems::new(&matrices, random_vector(len, 5));
        if n % 2 == 1 {
            systems.x0 = random_vector(len, 6);
        }
        // Preconditioner and precision of factors are ignored.
        let options = options()
            .preconditioner(Preconditioner::IC0)
            .precond_precision(PrecondPrecision::Single)
            .nrhs(nrhs);
        let cpu = on_cpu(&systems, &options);
        for place in PLACES {
            let gpu = solve(&systems, &options, place);
            let what = format!("{} n = {n}, {most} a row, {place:?}", T::CPP);
            let code = if place == FactoredPlace::AllGlobal { 3 } else { 2 };
            assert_eq!(gpu.kernel, format!("factored<{}, 512, 2, 0, {code}>", T::CPP));
            assert_eq!(gpu.statuses(), vec![Status::Converged; cpu.outcomes.len()], "{what}");
            compare(&what, &systems, &gpu, &cpu, SolveOptions::default_rel_tol::<T>());
            let counts = |solved: &Solved<T>| -> Vec<(u32, u32)> {
                solved.outcomes.iter().map(|o| (o.iterations, o.restarts)).collect()
            };
            assert_eq!(counts(&gpu), counts(&cpu), "{what}");
            if nrhs == 1 {
                residuals_are_small(&what, &systems, &gpu);
            }
        }
    }
}

#[test]
fn random_patterns_agree_in_f64() {
    random_patterns::<f64>();
}

#[test]
fn random_patterns_agree_in_f32() {
    random_patterns::<f32>();
}

fn table<T: SolveScalar>() {
    for (n, place) in [4, 40, 130].into_iter().flat_map(|n| PLACES.map(|place| (n, place))) {
        let cases = cases(n);
        let systems = systems::<T>(&pattern_of_cases(n), &cases);
        let (gpu, cpu) = (solve(&systems, &options(), place), on_cpu(&systems, &options()));
        end_as_expected(&format!("{} n = {n} {place:?}", T::CPP), &cases, &gpu, &cpu);
        a_failure_keeps_the_guess(&cases, &gpu.x);
        for (case, (g, c)) in cases.iter().zip(gpu.outcomes.iter().zip(&cpu.outcomes)) {
            assert!(
                !case.is_comparable() || g.iterations == c.iterations,
                "{}: {g:?} {c:?}",
                case.name
            );
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

/// A diagonal entry that is not stored, one that fill adds, and one that is stored as 0.
#[test]
fn diagonals_without_entries_end_as_on_the_cpu() {
    let empty_row = CsrPattern::try_new(4, 4, vec![0, 2, 3, 3, 4], vec![0, 1, 0, 3]).unwrap();
    // [4 1; 1 .] and [4 1; 1 0]: the second pivot is -1/4.
    let filled = CsrPattern::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 0]).unwrap();
    let stored = CsrPattern::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1]).unwrap();
    for (pattern, expected) in
        [(empty_row, Status::ZeroPivot), (filled, Status::Converged), (stored, Status::Converged)]
    {
        let n = pattern.nrows();
        let values = [4.0, 1.0, 1.0, 0.0][..pattern.view().nnz()].to_vec();
        let matrix = Csr::<f64>::from_parts(pattern.into(), values).unwrap();
        let systems = Systems::new(&[matrix.clone(), matrix], vec![1.0; 2 * n]);
        let cpu = on_cpu(&systems, &options());
        assert_eq!(cpu.statuses(), [expected; 2]);
        for place in PLACES {
            assert_eq!(solve(&systems, &options(), place).statuses(), cpu.statuses(), "{place:?}");
        }
    }
}

#[test]
fn refinements_are_counted_and_limited_as_on_the_cpu() {
    let n = 24;
    let matrices = vec![matrix::<f64>(&pattern(n, 3, 1), 1.2, 2); 5];
    let systems = Systems::new(&matrices, random_vector(5 * n, 7));
    let mut options = options();
    options.max_iters = (vec![0, 3, 1000, 1, 1000]).into();
    options.rel_tol = Some((vec![1e-10, 0.0, 1e-10, 0.0, 1e-22]).into());
    let cpu = on_cpu(&systems, &options);
    for place in PLACES {
        let gpu = solve(&systems, &options, place);

        assert_eq!(gpu.statuses(), cpu.statuses(), "{place:?}");
        let counts: Vec<(u32, u32)> =
            gpu.outcomes.iter().map(|o| (o.iterations, o.restarts)).collect();
        assert_eq!(counts, [(0, 0), (3, 2), (1, 0), (1, 0), (5, 4)], "{place:?}");
        assert_eq!(gpu.statuses()[4], Status::Stagnated);
    }
}

#[test]
fn any_scale_is_solved_and_the_floor_accepts_what_rounding_leaves() {
    let n = 60;
    let sound = matrix::<f64>(&pattern(n, 3, 1), 1.2, 2);
    for (matrix_scale, exponent) in [(0, 0), (0, -990), (0, 990), (900, 300), (-300, -900)] {
        let b = random_vector::<f64>(n, 2).iter().map(|v| v * 2f64.powi(exponent)).collect();
        let systems = Systems::new(&[scaled(&sound, matrix_scale)], b);
        let floor = options().rel_tol(0.0).floor(4.0);
        for (options, place) in [(options(), PLACES[0]), (options(), PLACES[1]), (floor, PLACES[1])]
        {
            let gpu = solve(&systems, &options, place);
            let cpu = on_cpu(&systems, &options);
            let what = format!("A 2^{matrix_scale}, b 2^{exponent}: {:?}", gpu.outcomes);
            assert_eq!(gpu.statuses(), [Status::Converged], "{what}");
            assert_eq!(cpu.statuses(), gpu.statuses(), "{what}");
        }
    }
}

#[test]
fn flawed_neighbours_change_no_bit() {
    let flaws = [Flaw::None, Flaw::Zero, Flaw::Nan, Flaw::Scaled(1e5), Flaw::Infinite, Flaw::None];
    for ((n, most), place) in
        [(9, 3), (40, 38), (150, 2)].into_iter().flat_map(|size| PLACES.map(|place| (size, place)))
    {
        let systems = batch::<f64>(n, most, &flaws, 6);
        let options = options().max_restarts(1);
        let all = solve(&systems, &options, place);
        let one_block = tuning(place).max_blocks(Some(1));
        let again = by_factors(&Emulator::new(Order::Reverse), &systems, &options, &one_block);
        for item in 0..flaws.len() {
            let alone = systems.select(&[item]);
            let alone =
                by_factors(&Emulator::new(Order::Forward), &alone, &options, &tuning(place));
            let what = format!("n = {n}, {place:?}, system {item}");
            assert_eq!(all.bits(item), again.bits(item), "{what}");
            assert_eq!(all.bits(item), alone.bits(0), "{what}");
        }
    }
}

/// Sums of all lengths, computed by one lane or by several.
#[test]
fn factors_beyond_shared_memory_are_made_in_device_memory() {
    let pattern = pattern(280, 7, 9);
    let matrices: Vec<Csr<f64>> = (0..2).map(|item| matrix(&pattern, 1.1, item)).collect();
    let systems = Systems::new(&matrices, random_vector(560, 3));
    let executor = Emulator::new(Order::Forward);
    let refused = GpuLu::<_, f64>::new(&executor, pattern.view(), 2, &options()).map(drop);
    assert!(matches!(refused, Err(GpuSolveError::Unsupported { .. })), "{refused:?}");
    let plan = FactoredSolver::<_, f64>::new(&executor, pattern.view(), 2, &options()).unwrap();
    let explain = plan.explain();
    let shape = explain.launches[0].factored().unwrap();
    assert!(shape.factor_entries > 28_910 && shape.factor_bytes > 231_280, "{explain}");
    assert_eq!((explain.scheme.name(), shape.order.name()), ("lu", "min-degree"));
    assert_eq!(shape.place, FactoredPlace::FactorsGlobal, "{explain}");
    let text = explain.to_string();
    assert!(
        text.starts_with("lu:") && text.contains("complete factors (min-degree order)"),
        "{text}"
    );
    assert!(text.contains("vectors in shared memory, factors in device memory"), "{text}");
    let cpu = on_cpu(&systems, &options());
    for place in PLACES {
        let gpu = solve(&systems, &options(), place);
        compare(&format!("{place:?}"), &systems, &gpu, &cpu, 1e-10);
        residuals_are_small(&format!("{place:?}"), &systems, &gpu);
    }
}

/// Less memory means fewer blocks; results are the same as long as there is memory for one block.
#[test]
fn blocks_are_as_many_as_there_is_memory_for() {
    let pattern = pattern(150, 3, 4);
    let matrices: Vec<Csr<f64>> = (0..5).map(|item| matrix(&pattern, 1.1, item)).collect();
    let systems = Systems::new(&matrices, random_vector(750, 3));
    for place in PLACES {
        let all = solve(&systems, &options(), place);
        let plan = |max_bytes| {
            let tuning = tuning(place).max_bytes(max_bytes);
            let executor = Emulator::new(Order::Forward);
            let plan = FactoredSolver::<_, f64>::with_tuning(
                &executor,
                pattern.view(),
                5,
                &options(),
                &tuning,
            );
            let plan = plan.map(|plan| plan.explain());
            let bytes = |e: PlanReport| (e.launches[0].blocks, e.bytes());
            plan.map(|explain| (bytes(explain), tuning))
        };
        let ((blocks, bytes), _) = plan(None).unwrap();
        assert!(blocks > 1);
        let ((fewer, less), tuning) = plan(Some(bytes - 16)).unwrap();
        assert!(fewer < blocks && less <= bytes - 16, "{fewer} blocks, {less} of {bytes} bytes");
        let some = by_factors(&Emulator::new(Order::Reverse), &systems, &options(), &tuning);
        for item in 0..5 {
            assert_eq!(some.bits(item), all.bits(item), "{place:?}");
        }
        match plan(Some(1000)) {
            Err(GpuSolveError::Gpu(GpuError::OutOfMemory { needed, free: 1000 })) => {
                assert!(needed > 1000 && needed <= less, "{needed} {less}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A grid of 70 x 70: 178 thousand factor entries, from 4 million products.
#[test]
fn a_large_grid_is_solved_in_device_memory() {
    let problem = Problem::new(Family::Lap2d, 4900).unwrap().batch(1).unwrap();
    let Batch::Uniform(batch) = &problem.batch else { unreachable!("one pattern") };
    let systems = Systems::new(&[batch.to_matrix(0)], problem.rhs.clone());
    let cpu = on_cpu(&systems, &options());
    let executor = Emulator::new(Order::Forward);

    let gpu = by_factors(&executor, &systems, &options(), &FactoredTuning::default());

    assert_eq!(gpu.kernel, "factored<double, 512, 2, 0, 3>");
    compare("a grid", &systems, &gpu, &cpu, 1e-10);
    residuals_are_small("a grid", &systems, &gpu);
}

#[test]
fn kept_factors_refine_solutions_of_values_that_changed() {
    let pattern = pattern(70, 4, 2);
    let make = |seed, weight| {
        let matrices: Vec<Csr<f64>> =
            (0..3u64).map(|k| matrix(&pattern, weight, seed + k)).collect();
        Systems::new(&matrices, random_vector(210, 3))
    };
    let (then, now) = (make(1, 1.5), make(1, 1.501));
    let options = options().max_restarts(10);
    for place in PLACES {
        let executor = Emulator::new(Order::Forward);
        let mut plan = FactoredSolver::<_, f64>::with_tuning(
            &executor,
            pattern.view(),
            3,
            &options,
            &tuning(place),
        )
        .unwrap();
        let up = |v: &[f64]| executor.upload(v).unwrap();
        plan.factorise(&up(then.values())).unwrap();
        for (systems, most) in [(&then, 1), (&now, 6)] {
            let mut x = up(&systems.x0);
            plan.solve(&up(systems.values()), &up(&systems.b), Guess::Zero, &mut x).unwrap();
            let x = executor.download(&x).unwrap();
            for (system, o) in plan.outcomes().unwrap().iter().enumerate() {
                assert_eq!(o.status, Status::Converged, "{place:?} {o:?}");
                assert!(o.iterations <= most, "{place:?} {o:?}");
                assert!(residual_norm(systems, &x, system) <= 1.001e-10 * o.rhs_norm);
            }
        }
    }
}

#[test]
fn what_is_not_there_is_refused_in_one_line() {
    let small = pattern(8, 2, 1);
    let unsupported = |pattern: &CsrPattern, options: &SolveOptions| {
        let executor = Emulator::new(Order::Forward);
        match FactoredSolver::<_, f64>::new(&executor, pattern.view(), 1, options).map(drop) {
            Err(error @ GpuSolveError::Unsupported { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let text = unsupported(&small, &options().history(true));
    assert!(text.contains("not supported on the GPU yet"), "{text}");
    // Its factorisation has about 480^3 / 3 products.
    let row_ptr = (0..=480).map(|row| row * 480).collect();
    let dense = CsrPattern::try_new(480, 480, row_ptr, (0..480 * 480).map(|k| k % 480).collect());
    let text = unsupported(&dense.unwrap(), &options());
    assert!(text.contains("LU of more than 33554432 products") && !text.contains('\n'), "{text}");
    // A place that only other methods have kernels for.
    let executor = Emulator::new(Order::Forward);
    let tuning = tuning(FactoredPlace::AllShared);
    let plan =
        FactoredSolver::<_, f64>::with_tuning(&executor, small.view(), 1, &options(), &tuning);
    assert!(matches!(
        plan,
        Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "tuning", .. }))
    ));
}
