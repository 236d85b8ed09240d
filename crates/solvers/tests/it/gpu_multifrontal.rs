//! The sparse LU by fronts: ends, residuals and bits as they should be.

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr, CsrPattern, Pattern};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solve_core::symbolic::{FactorPattern, min_degree};
use sparsebatch_solvers::gpu::{
    FrontalLu, FrontalShape, FrontalTuning, GpuSolveError, GpuSolver, Guess,
};
use sparsebatch_solvers::{Method, SolveOptions, SolveScalar, Status};
use sparsebatch_testing::random_vector;

use crate::backends::common::dense;
use crate::common::{Solved, Systems, compare, on_cpu, residual_norm};
use crate::gpu_lu::agreement::residuals_are_small;
use crate::gpu_lu::independence::{Flaw, batch, flaw, sizes};
use crate::gpu_lu::statuses::{
    a_failure_keeps_the_guess, cases, end_as_expected, pattern_of_cases, scaled, systems,
};
use crate::gpu_lu::support::{matrix, options, pattern};

/// An emulation whose multiprocessors have so much shared memory, for four blocks.
fn with_shared(kib: u32, order: Order) -> Emulator {
    let mut info = Emulator::new(order).info().clone();
    info.shared_bytes_per_multiprocessor = kib << 10;
    Emulator::with_info(info, order)
}

/// An emulation of one multiprocessor, whose few blocks take one system after the other.
fn with_one_multiprocessor(order: Order) -> Emulator {
    let mut info = Emulator::new(order).info().clone();
    info.multiprocessors = 1;
    Emulator::with_info(info, order)
}

/// Matrices of a square grid.
fn grid(side: usize, items: u64) -> Vec<Csr<f64>> {
    let problem = Problem::new(Family::Lap2d, side * side).unwrap();
    let matrix = |item: u64| {
        let mut values = Vec::new();
        problem.push_values(item, &mut values);
        Csr::from_parts(problem.pattern().clone(), values).unwrap()
    };
    (0..items).map(matrix).collect()
}

fn shape<T: Value>(plan: &FrontalLu<Emulator, T>) -> FrontalShape {
    *plan.explain().launches[0].frontal().unwrap()
}

/// Solves from the guesses of `systems`. Solves by kept factors give the same bits.
fn solve_on<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    options: &SolveOptions,
) -> Solved<T> {
    solve_with(executor, systems, options, &FrontalTuning::default())
}

fn solve_with<T: Value>(
    executor: &Emulator,
    systems: &Systems<T>,
    options: &SolveOptions,
    tuning: &FrontalTuning,
) -> Solved<T> {
    let (pattern, items) = (systems.pattern(), systems.batch.nitems());
    let plan = FrontalLu::<_, T>::with_tuning(executor, pattern, items, options, tuning);
    let mut plan = plan.unwrap();
    let values = executor.upload(systems.values()).unwrap();
    let b = executor.upload(&systems.b).unwrap();
    let mut x = executor.upload(&systems.x0).unwrap();
    let before = executor.bytes_in_use();
    plan.solve(&values, &b, Guess::InX, &mut x).unwrap();
    assert_eq!(executor.bytes_in_use(), before, "a solve allocates nothing");
    let kernel = plan.explain().launches[0].kernel.clone();
    let found = executor.download(&x).unwrap();
    let solved = Solved { x: found, outcomes: plan.outcomes().unwrap(), kernel };

    plan.factor(&values).unwrap();
    executor.copy_from_host(&systems.x0, &mut x).unwrap();
    plan.solve_again(&values, &b, Guess::InX, &mut x).unwrap();
    let again = Solved {
        x: executor.download(&x).unwrap(),
        outcomes: plan.outcomes().unwrap(),
        kernel: String::new(),
    };
    for system in 0..solved.outcomes.len() {
        assert_eq!(solved.bits(system), again.bits(system), "by kept factors");
    }
    solved
}

fn random_patterns<T: SolveScalar>() {
    for (n, most, items, nrhs, kib) in [
        (1, 0, 3, 1, 228),
        (2, 1, 3, 2, 228),
        (13, 4, 3, 1, 228),
        (57, 5, 2, 3, 30),
        (80, 9, 2, 1, 40),
        (150, 3, 2, 1, 60),
        (280, 7, 2, 1, 228),
    ] {
        let pattern = pattern(n, most, n as u64);
        let matrices: Vec<Csr<T>> =
            (0..items).map(|item| matrix(&pattern, 1.1, item + 3)).collect();
        let len = n * matrices.len() * nrhs;
        let mut systems = Systems::new(&matrices, random_vector(len, 5));
        if n % 2 == 1 {
            systems.x0 = random_vector(len, 6);
        }
        let options = options().nrhs(nrhs);
        let cpu = on_cpu(&systems, &options);
        let gpu = solve_on(&with_shared(kib, Order::Random(5)), &systems, &options);
        let what = format!("{} n = {n}, {most} a row", T::CPP);
        let name = format!("multifrontal<{}, ", T::CPP);
        assert!(gpu.kernel.starts_with(&name), "{}", gpu.kernel);
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

#[test]
fn random_patterns_agree_in_f64() {
    random_patterns::<f64>();
}

#[test]
fn random_patterns_agree_in_f32() {
    random_patterns::<f32>();
}

/// Grids, whose trees have subtrees for all warps.
#[test]
fn grids_agree() {
    for (side, kib) in [(12, 228), (30, 228), (30, 80), (30, 60)] {
        let systems = Systems::new(&grid(side, 2), random_vector(2 * side * side, 3));
        let gpu = solve_on(&with_shared(kib, Order::Random(3)), &systems, &options());
        compare("a grid", &systems, &gpu, &on_cpu(&systems, &options()), 1e-10);
        residuals_are_small("a grid", &systems, &gpu);
    }
}

/// Kernels of all numbers of threads give the same bits, in f64 and f32.
#[test]
fn threads_change_no_bit() {
    fn check<T: Value>() {
        let n = 400;
        let matrices: Vec<Csr<T>> = grid(20, 2).iter().map(Csr::cast).collect();
        let systems = Systems::new(&matrices, random_vector(2 * n, 3));
        let executor = Emulator::new(Order::Random(7));
        let solved: Vec<Solved<T>> = [128, 256, 512]
            .map(|threads| {
                let tuning = FrontalTuning::default().threads(Some(threads));
                solve_with(&executor, &systems, &options(), &tuning)
            })
            .into();
        let first = &solved[0];
        for (solved, kernel) in solved.iter().zip(["128, 4", "256, 2", "512, 1"]) {
            assert_eq!(solved.kernel, format!("multifrontal<{}, {kernel}>", T::CPP));
            for item in 0..2 {
                assert_eq!(solved.outcomes[item].status, Status::Converged);
                assert_eq!(solved.bits(item), first.bits(item), "{kernel}");
            }
        }
    }
    check::<f64>();
    check::<f32>();
}

/// Fronts are those of A + A^T: a triangle fills in nothing, and its fronts do.
#[test]
fn patterns_far_from_symmetric_are_left_to_others() {
    let n = 3000;
    let entries: Vec<(i32, i32)> = (0..n)
        .flat_map(|row| {
            [(row, row), (row, (row * 17 + 5) % (row + 1)), (row, (row * 29) % (row + 1))]
        })
        .collect();
    let (rows, cols): (Vec<i32>, Vec<i32>) = entries.into_iter().unzip();
    let triangle =
        Csr::from_triplets(n as usize, n as usize, &rows, &cols, &vec![1.0; rows.len()]).unwrap();
    let suits = |matrix: &Csr<f64>| FrontalLu::<Emulator, f64>::suits(matrix.pattern().view());
    assert!(!suits(&triangle).unwrap());
    assert!(suits(&grid(12, 1)[0]).unwrap());
    // One entry without its opposite.
    assert!(suits(&matrix(&pattern(40, 2, 1), 1.1, 1)).unwrap());
    assert!(suits(&dense::<f64>(1, 1.0)).unwrap());
}

/// Where a block has little shared memory, more threads would leave too little for fronts.
#[test]
fn threads_without_room_are_not_taken() {
    let mut info = Emulator::new(Order::Forward).info().clone();
    info.shared_bytes_per_block = 24 << 10;
    let executor = Emulator::with_info(info, Order::Forward);
    let systems = Systems::new(&grid(12, 1), random_vector(144, 3));
    let solved = solve_on(&executor, &systems, &options());
    assert_eq!(
        (solved.statuses(), &*solved.kernel),
        (vec![Status::Converged], "multifrontal<double, 128, 4>")
    );
    for threads in [64, 512] {
        let tuning = FrontalTuning::default().threads(Some(threads));
        let plan =
            FrontalLu::<_, f64>::with_tuning(&executor, systems.pattern(), 1, &options(), &tuning);
        let error = plan.map(drop).unwrap_err();
        assert!(matches!(error, GpuSolveError::Argument(_)), "{threads}: {error}");
    }
    let none = FrontalTuning::default().max_blocks(Some(0));
    let plan = FrontalLu::<_, f64>::with_tuning(&executor, systems.pattern(), 1, &options(), &none);
    assert!(matches!(plan.map(drop).unwrap_err(), GpuSolveError::Argument(_)));
}

fn solve<T: Value>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
    solve_on(&Emulator::new(Order::Random(5)), systems, options)
}

fn table<T: SolveScalar>() {
    for n in [4, 40, 130] {
        let cases = cases(n);
        let systems = systems::<T>(&pattern_of_cases(n), &cases);
        let (gpu, cpu) = (solve(&systems, &options()), on_cpu(&systems, &options()));
        end_as_expected(&format!("{} n = {n}", T::CPP), &cases, &gpu, &cpu);
        a_failure_keeps_the_guess(&cases, &gpu.x);
        for (case, (g, c)) in cases.iter().zip(gpu.outcomes.iter().zip(&cpu.outcomes)) {
            assert!(
                !case.is_comparable() || g.iterations == c.iterations,
                "{} n = {n} {}: {g:?} {c:?}",
                T::CPP,
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
        assert_eq!(solve(&systems, &options()).statuses(), cpu.statuses());
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
    let (gpu, cpu) = (solve(&systems, &options), on_cpu(&systems, &options));

    assert_eq!(gpu.statuses(), cpu.statuses());
    let counts: Vec<(u32, u32)> = gpu.outcomes.iter().map(|o| (o.iterations, o.restarts)).collect();
    assert_eq!(counts, [(0, 0), (3, 2), (1, 0), (1, 0), (5, 4)]);
    assert_eq!(gpu.statuses()[4], Status::Stagnated);
}

#[test]
fn any_scale_is_solved_and_the_floor_accepts_what_rounding_leaves() {
    let n = 60;
    let sound = matrix::<f64>(&pattern(n, 3, 1), 1.2, 2);
    for (matrix_scale, exponent) in [(0, 0), (0, -990), (0, 990), (900, 300), (-300, -900)] {
        let b = random_vector::<f64>(n, 2).iter().map(|v| v * 2f64.powi(exponent)).collect();
        let systems = Systems::new(&[scaled(&sound, matrix_scale)], b);
        for options in [options(), options().rel_tol(0.0).floor(4.0)] {
            let (gpu, cpu) = (solve(&systems, &options), on_cpu(&systems, &options));
            let what = format!("A 2^{matrix_scale}, b 2^{exponent}: {:?}", gpu.outcomes);
            assert_eq!(gpu.statuses(), [Status::Converged], "{what}");
            assert_eq!(cpu.statuses(), gpu.statuses(), "{what}");
        }
    }
}

/// Solves all systems by many blocks, by fewer, and each alone: with the same bits.
fn neighbours_change_no_bit<T: Value>(
    what: &str,
    systems: &Systems<T>,
    options: &SolveOptions,
    seed: u64,
) -> Solved<T> {
    let all = solve_on(&Emulator::new(Order::Random(seed)), systems, options);
    let again = solve_on(&with_one_multiprocessor(Order::Reverse), systems, options);
    for item in 0..systems.batch.nitems() {
        let alone = systems.select(&[item]);
        let alone = solve_on(&Emulator::new(Order::Forward), &alone, options);
        assert_eq!(all.bits(item), again.bits(item), "{what}, system {item}, fewer blocks");
        assert_eq!(all.bits(item), alone.bits(0), "{what}, system {item}, alone");
    }
    all
}

#[test]
fn flawed_neighbours_change_no_bit() {
    let flaws = [Flaw::None, Flaw::Zero, Flaw::Nan, Flaw::Scaled(1e5), Flaw::Infinite, Flaw::None];
    for (n, most) in [(9, 3), (40, 38), (150, 2)] {
        let systems = batch::<f64>(n, most, &flaws, 6);
        let options = options().max_restarts(1);
        neighbours_change_no_bit(&format!("n = {n}"), &systems, &options, 5);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Neighbours, positions and the order of threads change no bit; ends are those of the CPU.
    #[test]
    fn systems_are_alone_among_others(
        (n, most) in sizes(), flaws in prop::collection::vec(flaw(), 1..6), seed in 0u64..1000
    ) {
        let systems = batch::<f64>(n, most, &flaws, seed);
        let what = format!("n = {n} {flaws:?} seed {seed}");
        let gpu = neighbours_change_no_bit(&what, &systems, &options(), seed);
        let cpu = on_cpu(&systems, &options());
        for (system, flaw) in flaws.iter().enumerate() {
            if !matches!(flaw, Flaw::Nan | Flaw::Infinite) {
                let (g, c) = (&gpu.outcomes[system], &cpu.outcomes[system]);
                prop_assert_eq!(g.status, c.status, "{}, {}: {:?} {:?}", &what, system, g, c);
            }
        }
    }
}

#[test]
fn several_right_hand_sides_are_those_of_solves_one_by_one() {
    let (matrices, nrhs, n) = (grid(12, 2), 3, 144);
    let executor = Emulator::new(Order::Random(3));
    let mut systems = Systems::new(&matrices, random_vector(2 * nrhs * n, 5));
    systems.x0 = random_vector(2 * nrhs * n, 6);
    let together = solve_on(&executor, &systems, &options().nrhs(nrhs));
    assert_eq!(together.statuses(), [Status::Converged; 6]);
    for rhs in 0..nrhs {
        let part = |all: &[f64]| -> Vec<f64> {
            (0..2).flat_map(|item| all[(item * nrhs + rhs) * n..][..n].to_vec()).collect()
        };
        let mut own = Systems::new(&matrices, part(&systems.b));
        own.x0 = part(&systems.x0);
        let alone = solve_on(&executor, &own, &options());
        for item in 0..2 {
            let found = together.bits(item * nrhs + rhs);
            assert_eq!(alone.bits(item), found, "item {item}, right-hand side {rhs}");
        }
    }
}

/// Solves from 0, `again`: by the factors that the plan keeps.
fn solve_from_zero(
    plan: &mut FrontalLu<Emulator, f64>,
    executor: &Emulator,
    (values, b): (&[f64], &[f64]),
    again: bool,
) -> Solved<f64> {
    let (values, on_b) = (executor.upload(values).unwrap(), executor.upload(b).unwrap());
    let mut x = executor.upload(&vec![f64::NAN; b.len()]).unwrap();
    if again {
        plan.solve_again(&values, &on_b, Guess::Zero, &mut x).unwrap();
    } else {
        plan.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
    }
    let kernel = plan.explain().launches[0].kernel.clone();
    Solved { x: executor.download(&x).unwrap(), outcomes: plan.outcomes().unwrap(), kernel }
}

#[test]
fn values_may_be_shared_and_factors_serve_other_values() {
    let matrices = vec![grid(12, 1).remove(0); 3];
    let systems = Systems::new(&matrices, random_vector(3 * 144, 3));
    let (one, b) = (matrices[0].values(), &systems.b[..]);
    let executor = Emulator::new(Order::Random(4));
    let mut plan = FrontalLu::<_, f64>::new(&executor, systems.pattern(), 3, &options()).unwrap();
    let own = solve_from_zero(&mut plan, &executor, (systems.values(), b), false);
    assert_eq!(own.statuses(), [Status::Converged; 3]);
    plan.factor(&executor.upload(systems.values()).unwrap()).unwrap();
    let bytes_of_all = plan.explain().kept_bytes;

    let shared = solve_from_zero(&mut plan, &executor, (one, b), false);
    plan.factor(&executor.upload(one).unwrap()).unwrap();
    let again = solve_from_zero(&mut plan, &executor, (one, b), true);

    assert_eq!(3 * plan.explain().kept_bytes, bytes_of_all);
    for item in 0..3 {
        assert_eq!(shared.bits(item), own.bits(item), "{item}");
        assert_eq!(again.bits(item), own.bits(item), "{item} by kept factors");
    }
    // The factors of one item for other values of each.
    assert!(plan.solves_near());
    let mut near = systems.clone();
    let changes = random_vector::<f64>(near.values().len(), 8);
    for (value, change) in near.batch.values_mut().iter_mut().zip(changes) {
        *value *= 1.0 + 1e-6 * change;
    }
    let gpu = solve_from_zero(&mut plan, &executor, (near.values(), b), true);
    for (item, o) in gpu.outcomes.iter().enumerate() {
        assert!(o.status == Status::Converged && o.iterations > 1, "{o:?}");
        assert!(residual_norm(&near, &gpu.x, item) <= 1.001e-10 * o.rhs_norm, "{o:?}");
    }
}

#[test]
fn fewer_items_take_part() {
    let n = 36;
    let systems = Systems::new(&grid(6, 3), random_vector(3 * n, 3));
    let executor = Emulator::new(Order::Random(2));
    let mut plan = FrontalLu::<_, f64>::new(&executor, systems.pattern(), 3, &options()).unwrap();
    let all = solve_from_zero(&mut plan, &executor, (systems.values(), &systems.b), false);
    let values = executor.upload(systems.values()).unwrap();
    let b = executor.upload(&systems.b).unwrap();
    let untouched = vec![9.0; 3 * n];
    let mut x = executor.upload(&untouched).unwrap();

    plan.set_active(1).unwrap();
    plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();

    let found = executor.download(&x).unwrap();
    assert_eq!((&found[..n], &found[n..]), (&all.x[..n], &untouched[n..]));
    assert_eq!(plan.outcomes().unwrap()[0], all.outcomes[0]);
    assert!(matches!(
        plan.set_active(4),
        Err(GpuSolveError::Argument(ArgumentError::Length { .. }))
    ));
    plan.factor(&values).unwrap();
    executor.copy_from_host(&untouched, &mut x).unwrap();
    plan.solve_again(&values, &b, Guess::Zero, &mut x).unwrap();
    assert_eq!(executor.download(&x).unwrap(), found);
    plan.set_active(3).unwrap();
    let error = plan.solve_again(&values, &b, Guess::Zero, &mut x).unwrap_err().to_string();
    assert!(error.contains("factors of 1 items"), "{error}");
    assert_eq!(executor.download(&x).unwrap(), found);
    // Factors that all share are there, however few items take part.
    plan.set_active(0).unwrap();
    let one = &systems.values()[..systems.pattern().nnz()];
    plan.factor(&executor.upload(one).unwrap()).unwrap();
    plan.set_active(3).unwrap();
    let again = solve_from_zero(&mut plan, &executor, (one, &systems.b), true);
    assert_eq!(again.statuses(), [Status::Converged; 3]);
    assert_eq!(again.bits(0), all.bits(0));
}

fn refusal(executor: &Emulator, matrix: &Csr<f64>, options: &SolveOptions) -> GpuSolveError {
    let plan = FrontalLu::<_, f64>::new(executor, matrix.pattern().view(), 2, options);
    plan.map(drop).unwrap_err()
}

#[test]
fn what_the_solver_does_not_take_is_refused() {
    let executor = Emulator::new(Order::Forward);
    let small = dense::<f64>(3, 25.0);
    let unsupported = |error: GpuSolveError| {
        let text = error.to_string();
        assert!(matches!(error, GpuSolveError::Unsupported { .. }), "{text}");
        assert!(text.contains("not supported on the GPU yet") && !text.contains('\n'), "{text}");
    };
    unsupported(refusal(&executor, &small, &options().method(Method::Cg)));
    unsupported(refusal(&executor, &small, &options().history(true)));
    // A row and a column of 300 values are more than the 3 KiB of a block.
    let large = dense(300, 200.0);
    unsupported(refusal(&with_shared(16, Order::Forward), &large, &options()));
    let tall = Csr::try_new(2, 1, vec![0, 1, 2], vec![0, 0], vec![1.0, 1.0]).unwrap();
    let bad = [options().nrhs(0), options().rel_tol(-1.0), options().rel_tol(vec![0.1])];
    let errors = bad.iter().map(|options| refusal(&executor, &small, options));
    for error in errors.chain([refusal(&executor, &tall, &options())]) {
        assert!(matches!(error, GpuSolveError::Argument(_)), "{error}");
    }

    let for_batch = |batch: &Batch<f64>| FrontalLu::for_batch(&executor, batch, &options());
    let ragged: Batch<f64> = [small.clone()].into_iter().collect();
    unsupported(for_batch(&ragged).map(drop).unwrap_err());
    let uniform = Systems::new(&[small.clone(), small], vec![1.0; 6]).batch;
    let interleaved = Batch::Uniform(uniform.to_interleaved());
    unsupported(for_batch(&interleaved).map(drop).unwrap_err());
    for_batch(&Batch::Uniform(uniform)).unwrap();
}

#[test]
fn arrays_that_do_not_fit_are_refused_and_factors_are_forgotten() {
    let executor = Emulator::new(Order::Forward);
    let matrix = dense::<f64>(3, 25.0);
    let pattern = matrix.pattern().view();
    let mut plan = FrontalLu::<_, f64>::new(&executor, pattern, 2, &options()).unwrap();
    let values = executor.upload(&[matrix.values(), matrix.values()].concat()).unwrap();
    let b = executor.upload(&[1.0; 6]).unwrap();
    let mut x = executor.upload(&[0.5; 6]).unwrap();
    let few = executor.upload(&[1.0; 17]).unwrap();
    let short = executor.upload(&[1.0; 5]).unwrap();
    let mut small = executor.upload(&[1.0; 5]).unwrap();
    let errors = [
        plan.solve_again(&values, &b, Guess::Zero, &mut x).unwrap_err(),
        plan.solve(&few, &b, Guess::Zero, &mut x).unwrap_err(),
        plan.solve(&values, &short, Guess::Zero, &mut x).unwrap_err(),
        plan.solve(&values, &b, Guess::Zero, &mut small).unwrap_err(),
        plan.factor(&few).unwrap_err(),
    ];
    let words = ["call of factor", "values has 17", "b has 5", "x has 5", "values has 17"];
    for (error, words) in errors.iter().zip(words) {
        assert!(matches!(error, GpuSolveError::Argument(_)), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(executor.download(&x).unwrap(), [0.5; 6]);
    plan.factor(&values).unwrap();
    assert!(plan.keeps_factors() && plan.explain().kept_bytes > 0);
    plan.forget_factors();
    assert_eq!(plan.explain().kept_bytes, 0);
    assert!(plan.solve_again(&values, &b, Guess::Zero, &mut x).is_err());
    assert_eq!(executor.download(&x).unwrap(), [0.5; 6]);
}

#[test]
fn a_batch_of_nothing_and_systems_without_rows() {
    let executor = Emulator::new(Order::Forward);
    let (some, none) = (pattern(5, 2, 1), CsrPattern::try_new(0, 0, vec![0], vec![]).unwrap());
    for (pattern, items) in [(&some, 0), (&none, 0), (&none, 2)] {
        let view = pattern.view();
        let mut plan = FrontalLu::<_, f64>::new(&executor, view, items, &options()).unwrap();
        let mut solved = vec![solve_from_zero(&mut plan, &executor, (&[], &[]), false)];
        plan.factor(&executor.upload(&[]).unwrap()).unwrap();
        solved.push(solve_from_zero(&mut plan, &executor, (&[], &[]), true));
        for solved in solved {
            assert_eq!(solved.statuses(), vec![Status::Converged; items]);
        }
    }
}

/// Less memory means fewer blocks; results are the same as long as there is memory for one block.
#[test]
fn memory_bounds_the_blocks() {
    let systems = Systems::new(&grid(12, 5), random_vector(5 * 144, 3));
    let arrays = (systems.values(), &systems.b[..]);
    let plan = |bytes: u64| {
        let executor = Emulator::with_memory(bytes);
        let plan = FrontalLu::<_, f64>::new(&executor, systems.pattern(), 5, &options());
        plan.map(|plan| (plan, executor))
    };
    let (mut large, executor) = plan(1 << 30).unwrap();
    let all = solve_from_zero(&mut large, &executor, arrays, false);
    assert_eq!(all.statuses(), [Status::Converged; 5]);
    // Plans leave some of the memory for other arrays.
    let (mut less, executor) = plan(large.explain().bytes()).unwrap();
    let some = solve_from_zero(&mut less, &executor, arrays, false);
    let (large, less) = (large.explain(), less.explain());
    assert!(less.launches[0].blocks < large.launches[0].blocks, "{less} {large}");
    for item in 0..5 {
        assert_eq!(some.bits(item), all.bits(item), "{item}");
    }
    match plan(less.pattern_bytes).map(drop) {
        Err(GpuSolveError::Gpu(GpuError::OutOfMemory { needed, free })) => {
            assert!(free == less.pattern_bytes && needed > free, "{needed} of {free}");
            let (least, _) = plan(needed).unwrap();
            assert_eq!((least.explain().bytes(), least.explain().launches[0].blocks), (needed, 1));
            assert!(plan(needed - 1).is_err());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_plan_is_reported() {
    let matrix = grid(30, 1).remove(0);
    let pattern = matrix.pattern().view();
    let executor = Emulator::new(Order::Forward);
    let plan = FrontalLu::<_, f64>::new(&executor, pattern, 7, &options()).unwrap();
    let (report, shape) = (plan.explain(), shape(&plan));
    assert_eq!((report.scheme.name(), report.launches.len()), ("lu", 1));
    assert_eq!((report.launches[0].systems, report.kept_bytes), (7, 0));
    assert!(report.pattern_bytes > 0 && report.workspace_bytes > 0, "{report}");
    assert!(shape.fronts > 1 && shape.fronts < 900, "{report}");
    assert!(shape.largest_front > 1 && shape.largest_front < 900, "{report}");
    let order = min_degree(pattern).unwrap();
    let factors = FactorPattern::lu(pattern, Some(&order), usize::MAX).unwrap();
    assert!(shape.factor_entries >= factors.nnz(), "{report}");
    assert!(report.name().contains("by fronts"), "{}", report.name());
    let text = report.to_string();
    assert!(text.starts_with("lu:") && text.contains("fronts of up to"), "{text}");
}
