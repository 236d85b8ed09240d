//! What a plan accepts and refuses, and its report.

use std::sync::Arc;

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{DeviceInfo, Executor, GpuError, KernelKey, LaunchConfig};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchValues, Csr, CsrPattern, Pattern, RaggedCsr, UniformBatch};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::GpuSolveError;
use sparsebatch_solvers::gpu::module;
use sparsebatch_solvers::gpu::{FusedSolver, GpuTuning, Guess, ValuePlace};
use sparsebatch_solvers::{
    Engine, Method, Preconditioner, SolveOptions, SpmvOptions, Status, solve,
};
use sparsebatch_testing::random_vector;

use crate::common::one_step;
use crate::common::{Systems, on_gpu, options};

fn tri(n: usize, items: usize) -> (Arc<CsrPattern>, Vec<f64>, Vec<f64>) {
    let problem = Problem::new(Family::Tri, n).unwrap();
    let (mut values, mut b) = (Vec::new(), Vec::new());
    for item in 0..items as u64 {
        problem.push_values(item, &mut values);
        problem.push_rhs(item, &mut b);
    }
    (Arc::clone(problem.pattern()), values, b)
}

fn emulator() -> Emulator {
    Emulator::new(Order::Forward)
}

fn unsupported<T>(result: Result<T, GpuSolveError>) -> String {
    match result.map(drop) {
        Err(error @ GpuSolveError::Unsupported { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Each group of a launch begins with one system and takes further ones while there are any: with
/// any number of blocks all systems are solved, and the same plan can solve again.
#[test]
fn any_number_of_blocks_solves_all_systems() {
    let (pattern, values, b) = tri(16, 41);
    let executor = emulator();
    let options = options(Method::Cg, Preconditioner::Jacobi);
    let (values, b) = (executor.upload(&values).unwrap(), executor.upload(&b).unwrap());
    let mut found = Vec::new();
    // A block has eight groups.
    for blocks in [1, 2, 5, 6, 7] {
        let tuning = GpuTuning::default().max_blocks(Some(blocks));
        let mut plan =
            FusedSolver::<_, f64>::with_tuning(&executor, pattern.view(), 41, &options, &tuning)
                .unwrap();
        assert_eq!(plan.explain().launches[0].blocks, blocks.min(6));
        for _ in 0..2 {
            let mut x = executor.alloc_zeroed::<f64>(41 * 16).unwrap();
            plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
            let outcomes = plan.outcomes().unwrap();
            assert!(outcomes.iter().all(|outcome| outcome.status == Status::Converged));
            found.push(executor.download(&x).unwrap());
        }
    }
    assert!(found.iter().all(|x| *x == found[0]));
}

#[test]
fn blocks_that_are_resident_are_those_that_have_room() {
    let executor = emulator();
    let (pattern, ..) = tri(16, 1);
    let options = options(Method::Cg, Preconditioner::Jacobi);
    let plan = FusedSolver::<_, f64>::new(&executor, pattern.view(), 1, &options).unwrap();
    let key = KernelKey::new(module("cg").unwrap(), plan.explain().launches[0].kernel.clone());
    let info = executor.info();
    let resident = |threads, shared_bytes| {
        let config = LaunchConfig { shared_bytes, ..LaunchConfig::linear(1, threads) };
        executor.resident_blocks(&key, config)
    };
    assert_eq!(resident(32, 0).unwrap(), 32);
    assert_eq!(resident(1024, 0).unwrap(), info.max_threads_per_multiprocessor / 1024);
    let half = info.shared_bytes_per_multiprocessor / 2 - 2048;
    assert_eq!(resident(32, half).unwrap(), 2);
    assert!(matches!(resident(4096, 0), Err(GpuError::InvalidArgument { .. })));
}

#[test]
fn what_is_not_there_yet_is_refused_in_one_line() {
    let (pattern, ..) = tri(8, 1);
    let make = |options: &SolveOptions| {
        FusedSolver::<_, f64>::new(&emulator(), pattern.view(), 1, options)
    };
    let cg = options(Method::Cg, Preconditioner::Jacobi);
    let refused = [
        cg.clone().method(Method::Lu),
        cg.clone().preconditioner(Preconditioner::ILU0),
        cg.clone().preconditioner(Preconditioner::IC0),
        cg.clone().preconditioner(Preconditioner::BLOCK_JACOBI),
        cg.clone().history(true),
        cg.clone().engine(Engine::Composed(SpmvOptions::default())),
    ];

    for options in refused {
        let text = unsupported(make(&options));
        assert!(text.contains("not supported on the GPU yet") && !text.contains('\n'), "{text}");
    }
    // A device without clusters of blocks, which would take such a system.
    let older = DeviceInfo { compute_capability: (8, 0), ..emulator().info().clone() };
    let older = Emulator::with_info(older, Order::Forward);
    let (large, ..) = tri(4097, 1);
    unsupported(FusedSolver::<_, f64>::new(&older, large.view(), 1, &cg));
}

#[test]
fn options_and_lengths_are_checked() {
    let (pattern, values, b) = tri(8, 2);
    let cg = options(Method::Cg, Preconditioner::None);
    let make = |options: &SolveOptions| {
        FusedSolver::<_, f64>::new(&emulator(), pattern.view(), 2, options)
    };
    let bad = [cg.clone().rel_tol(-1.0), cg.clone().rel_tol(vec![0.1]), cg.clone().nrhs(0)];
    for options in bad {
        assert!(make(&options).is_err(), "{options:?}");
    }
    let wide = CsrPattern::try_new(1, 2, vec![0, 1], vec![0]).unwrap();
    let wide = FusedSolver::<_, f64>::new(&emulator(), wide.view(), 1, &cg);
    assert!(matches!(wide, Err(GpuSolveError::Argument(ArgumentError::NotSquare { .. }))));
    for group in [(3, 8), (8, 0), (4, 1), (2048, 1)] {
        let tuning = GpuTuning::default().group(Some(group));
        let plan = FusedSolver::<_, f64>::with_tuning(&emulator(), pattern.view(), 2, &cg, &tuning);
        assert!(
            matches!(
                plan,
                Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "group", .. }))
            ),
            "{group:?}"
        );
    }
    for parts in [0, 3, 16] {
        let tuning = GpuTuning::default().parts(Some(parts));
        let plan = FusedSolver::<_, f64>::with_tuning(&emulator(), pattern.view(), 2, &cg, &tuning);
        assert!(
            matches!(
                plan,
                Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "parts", .. }))
            ),
            "{parts}"
        );
    }
    let tuning = GpuTuning::default().vectors(Some(2));
    let plan = FusedSolver::<_, f64>::with_tuning(&emulator(), pattern.view(), 2, &cg, &tuning);
    assert!(matches!(
        plan,
        Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "vectors", .. }))
    ));

    let executor = emulator();
    let mut plan = FusedSolver::<_, f64>::new(&executor, pattern.view(), 2, &cg).unwrap();
    let up = |v: &[f64]| executor.upload(v).unwrap();
    let mut x = up(&[5.0; 16]);
    let short = plan.solve(&up(&values[1..]), &up(&b), Guess::Zero, &mut x);
    assert!(matches!(
        short,
        Err(GpuSolveError::Argument(ArgumentError::Length { what: "values", .. }))
    ));
    let short = plan.solve(&up(&values), &up(&b[1..]), Guess::Zero, &mut x);
    assert!(matches!(short, Err(GpuSolveError::Argument(ArgumentError::Length { what: "b", .. }))));
    let short = plan.solve(&up(&values), &up(&b), Guess::Zero, &mut up(&b[1..]));
    assert!(matches!(short, Err(GpuSolveError::Argument(ArgumentError::Length { what: "x", .. }))));
    assert_eq!(executor.download(&x).unwrap(), [5.0; 16]);

    let small = Emulator::with_memory(64);
    let plan = FusedSolver::<_, f64>::new(&small, pattern.view(), 2, &cg);
    assert!(matches!(plan, Err(GpuSolveError::Gpu(GpuError::OutOfMemory { .. }))));
}

/// Kernels are compiled for the features that solves use: guesses, a floor, both or neither.
#[test]
fn kernels_are_for_what_is_asked_of_them() {
    let (pattern, values, b) = tri(64, 5);
    for (floor, [plain, guessing]) in [(None, ["0", "1"]), (Some(4.0), ["2", "3"])] {
        let executor = emulator();
        let options = one_step().floor(floor);
        let tuning = GpuTuning::default().mixed(Some(true));
        let mut plan =
            FusedSolver::<_, f64>::with_tuning(&executor, pattern.view(), 5, &options, &tuning)
                .unwrap();
        plan.prepare(Guess::InX).unwrap();
        let values = executor.upload(&values).unwrap();
        let b = executor.upload(&b).unwrap();
        let mut x = executor.alloc_zeroed::<f64>(5 * 64).unwrap();

        plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
        let all = |may: &str| {
            let launched = executor.launched();
            assert_eq!(launched.len(), 2, "with what is left: {launched:?}");
            launched.iter().all(|key| key.ends_with(&format!("> -DFUSED_MAY={may}")))
        };
        assert!(all(plain));
        executor.forget_launched();
        plan.solve(&values, &b, Guess::InX, &mut x).unwrap();
        assert!(all(guessing));
    }
}

#[test]
fn solves_repeat_with_other_values_and_guesses() {
    let (pattern, values, b) = tri(40, 7);
    let executor = emulator();
    let options = options(Method::Cg, Preconditioner::Jacobi);
    let mut plan = FusedSolver::<_, f64>::new(&executor, pattern.view(), 7, &options).unwrap();
    let b = executor.upload(&b).unwrap();
    let first_values = executor.upload(&values).unwrap();
    let doubled: Vec<f64> = values.iter().map(|v| 2.0 * v).collect();
    let doubled = executor.upload(&doubled).unwrap();
    // Without guesses the initial contents of `x` do not matter.
    let mut x = executor.upload(&[f64::NAN; 280]).unwrap();
    let in_use = executor.bytes_in_use();

    plan.solve(&first_values, &b, Guess::Zero, &mut x).unwrap();
    let (first, outcomes) = (executor.download(&x).unwrap(), plan.outcomes().unwrap());
    plan.solve(&doubled, &b, Guess::Zero, &mut x).unwrap();
    let second = executor.download(&x).unwrap();
    plan.solve(&doubled, &b, Guess::InX, &mut x).unwrap();
    let again = plan.outcomes().unwrap();

    assert_eq!(executor.bytes_in_use(), in_use, "a solve allocates nothing");
    assert!(outcomes.iter().all(|o| o.status == Status::Converged && o.iterations > 0));
    // Scaling by a power of two changes no significant bit.
    assert!(first.iter().zip(&second).all(|(a, b)| *a == 2.0 * b));
    assert!(again.iter().all(|o| o.status == Status::Converged && o.iterations == 0));
}

#[test]
fn shared_values_and_several_right_hand_sides() {
    let (pattern, values, b) = tri(20, 6);
    let nnz = pattern.col_idx().len();
    let executor = emulator();
    let mut options = options(Method::Cg, Preconditioner::Jacobi);
    // Two items with three right-hand sides each.
    options.nrhs = 3;
    let mut plan = FusedSolver::<_, f64>::new(&executor, pattern.view(), 2, &options).unwrap();
    let own = &values[..2 * nnz];
    let b_buffer = executor.upload(&b).unwrap();
    let mut x = executor.upload(&vec![0.0; b.len()]).unwrap();

    plan.solve(&executor.upload(own).unwrap(), &b_buffer, Guess::Zero, &mut x).unwrap();
    let with_own = executor.download(&x).unwrap();
    plan.solve(&executor.upload(&values[..nnz]).unwrap(), &b_buffer, Guess::Zero, &mut x).unwrap();
    let with_shared = executor.download(&x).unwrap();

    let on_cpu = |batch: UniformBatch<CsrPattern, f64>| {
        solve(&Batch::Uniform(batch), &b, None, &options).unwrap().x
    };
    let item_major = BatchValues::ItemMajor(own.to_vec());
    let own = on_cpu(UniformBatch::try_new(pattern.clone(), 2, item_major).unwrap());
    let one = BatchValues::Shared(values[..nnz].to_vec());
    let shared = on_cpu(UniformBatch::try_new(pattern, 2, one).unwrap());
    for (found, expected) in [(with_own, own), (with_shared, shared)] {
        assert!(found.iter().zip(&expected).all(|(f, e)| (f - e).abs() <= 1e-8 * (1.0 + e.abs())));
    }
    assert_eq!(plan.outcomes().unwrap().len(), 6);
}

#[test]
fn empty_batches_and_systems_without_rows() {
    let executor = emulator();
    let options = options(Method::Cg, Preconditioner::Jacobi);
    let empty = executor.upload::<f64>(&[]).unwrap();
    let mut x = executor.upload::<f64>(&[]).unwrap();
    let (pattern, ..) = tri(8, 1);
    let mut none = FusedSolver::<_, f64>::new(&executor, pattern.view(), 0, &options).unwrap();
    none.solve(&empty, &empty, Guess::Zero, &mut x).unwrap();
    assert!(none.outcomes().unwrap().is_empty());

    let no_rows = CsrPattern::try_new(0, 0, vec![0], vec![]).unwrap();
    let mut plan = FusedSolver::<_, f64>::new(&executor, no_rows.view(), 3, &options).unwrap();
    plan.solve(&empty, &empty, Guess::InX, &mut x).unwrap();
    let outcomes = plan.outcomes().unwrap();
    assert_eq!(outcomes.len(), 3);
    assert!(outcomes.iter().all(|o| o.status == Status::Converged && o.iterations == 0));
}

#[test]
fn plans_explain_themselves() {
    let executor = emulator();
    let explain = |n: usize| {
        let (pattern, ..) = tri(n, 1000);
        let options = options(Method::Cg, Preconditioner::Jacobi);
        let plan = FusedSolver::<_, f64>::new(&executor, pattern.view(), 1000, &options);
        let explain = plan.unwrap().explain();
        assert_eq!((explain.scheme.name(), explain.launches.len()), ("cg", 1));
        (explain.launches[0].clone(), explain)
    };
    let (small, whole) = explain(30);

    let shape = small.fused().unwrap();
    assert_eq!((small.threads_per_system, shape.rows_per_thread), (8, 4));
    assert_eq!((shape.values, small.systems_per_block), (ValuePlace::Registers, 4));
    assert_eq!(small.kernel, "cg<double, 8, 4, 3, 0, 1, 1>");
    // For each of four systems: p and a 0; then b, a 0 and the values of the next system, with one
    // unused place after every 16.
    assert_eq!(small.shared_bytes, 4 * (33 + (32 + 2) + (1 + 88 + 5)) * 8);
    assert_eq!((small.nrows, small.nnz, shape.padding), (30, 88, 8));
    assert_eq!(whole.workspace_bytes, 25 * 1000 + 8);
    assert_eq!(whole.name(), "cg(8 threads x 4 rows, registers)");
    let text = whole.to_string();
    assert!(
        text.starts_with(
            "cg + jacobi: 1000 systems of up to 30 rows and 88 entries (1 patterns), 8 threads for one, \
             1 a row, with 4 rows each, values in registers"
        ),
        "{text}"
    );
    assert!(!text.contains('\n') && !text.contains("  "), "{text}");
    let (large, _) = explain(3000);
    assert_eq!((large.fused().unwrap().values, large.systems_per_block), (ValuePlace::Shared, 1));
    assert!(large.shared_bytes > 8 * (4096 + 8998));
}

/// Few: up to 8 systems for each of the two multiprocessors of the emulation; some: up to 96. An
/// item has two systems.
#[test]
fn threads_and_rows_go_by_how_many_systems_there_are() {
    let executor = emulator();
    let group = |(method, preconditioner), n: usize, items: usize, few| {
        let (pattern, ..) = tri(n, 1);
        let options = options(method, preconditioner).nrhs(2);
        let tuning = GpuTuning::default().few(few);
        let plan =
            FusedSolver::<_, f64>::with_tuning(&executor, pattern.view(), items, &options, &tuning);
        let launch = plan.unwrap().explain().launches[0].clone();
        (launch.threads_per_system, launch.fused().unwrap().rows_per_thread)
    };
    let groups = |how, n| [8, 9, 97].map(|items| group(how, n, items, None));
    let cg = (Method::Cg, Preconditioner::None);

    assert_eq!(groups(cg, 30), [(32, 1), (4, 8), (8, 4)]);
    assert_eq!(groups(cg, 60), [(32, 2), (16, 4), (16, 4)]);
    assert_eq!(groups(cg, 128), [(32, 4), (16, 8), (16, 8)]);
    assert_eq!(groups(cg, 200), [(32, 8), (32, 8), (32, 8)]);
    assert_eq!([8, 9].map(|items| group(cg, 30, items, Some(false))), [(8, 4), (8, 4)]);
    assert_eq!(group(cg, 30, 97, Some(true)), (32, 1));

    let bicgstab = (Method::BiCgStab, Preconditioner::None);
    assert_eq!(groups(bicgstab, 30), [(32, 1), (4, 8), (8, 4)]);
    assert_eq!(groups(bicgstab, 128), [(32, 4), (32, 4), (16, 8)]);
    let with_jacobi = (Method::BiCgStab, Preconditioner::Jacobi);
    assert_eq!(groups(with_jacobi, 30), [(32, 1), (8, 4), (8, 4)]);
    assert_eq!(groups(with_jacobi, 128), [(32, 4), (32, 4), (32, 4)]);
}

#[test]
fn dense_rows_beyond_shared_memory_are_read_from_device_memory() {
    let n = 200;
    let row_ptr = (0..=n).map(|row| (row * n) as i32).collect();
    let col_idx = (0..n * n).map(|k| (k % n) as i32).collect();
    let entry = |k: usize| if k / n == k % n { n as f64 } else { -0.5 };
    let values: Vec<f64> = (0..n * n).map(entry).collect();
    let matrix = Csr::try_new(n, n, row_ptr, col_idx, values).unwrap();
    let systems = Systems::new(&[matrix.clone(), matrix], random_vector(2 * n, 1));

    let solved = on_gpu(
        &emulator(),
        &systems,
        &options(Method::Cg, Preconditioner::None),
        &GpuTuning::default(),
    );

    assert_eq!(solved.kernel, "cg<double, 128, 8, 0, 2, 0, 0>");
    assert_eq!(solved.statuses(), [Status::Converged; 2]);
}

#[test]
fn only_the_active_items_take_part() {
    let (n, items, nrhs, active) = (12, 9, 2, 4);
    let (pattern, values, _) = tri(n, items);
    let emulator = emulator();
    let options = options(Method::Cg, Preconditioner::Jacobi).nrhs(nrhs);
    let rhs = random_vector::<f64>(n * items * nrhs, 5);
    let values = emulator.upload(&values).unwrap();
    let b = emulator.upload(&rhs).unwrap();
    let untouched = vec![7.0; rhs.len()];
    let mut x = emulator.upload(&untouched).unwrap();
    let mut plan = FusedSolver::<_, f64>::new(&emulator, pattern.view(), items, &options).unwrap();
    plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
    let whole = emulator.download(&x).unwrap();
    let outcomes = plan.outcomes().unwrap();

    let mut plan = FusedSolver::<_, f64>::new(&emulator, pattern.view(), items, &options).unwrap();
    plan.set_active(active).unwrap();
    emulator.copy_from_host(&untouched, &mut x).unwrap();
    plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();

    let found = emulator.download(&x).unwrap();
    let rows = n * nrhs * active;
    assert_eq!((&found[..rows], &found[rows..]), (&whole[..rows], &untouched[rows..]));
    assert_eq!(plan.outcomes().unwrap()[..active * nrhs], outcomes[..active * nrhs]);
    let on_device = emulator.download(plan.device_outcomes().iterations).unwrap();
    assert!(on_device[..active * nrhs].iter().all(|&k| k > 0));
    assert!(on_device[active * nrhs..].iter().all(|&k| k == 0));
    plan.set_active(0).unwrap();
    plan.solve(&values, &b, Guess::Zero, &mut x).unwrap();
    assert!(matches!(
        plan.set_active(items + 1),
        Err(GpuSolveError::Argument(ArgumentError::Length { .. }))
    ));

    let ragged = Batch::<f64>::Ragged(RaggedCsr::new());
    let mut plan = FusedSolver::for_batch(&emulator, &ragged, &options).unwrap();
    assert!(unsupported(plan.set_active(1)).contains("ragged"));
}
