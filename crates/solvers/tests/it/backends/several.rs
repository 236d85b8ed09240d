//! Several emulated GPUs: the bits of one, and where the systems go.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{DeviceInfo, Executor};
use sparsebatch_formats::{Batch, BatchValues, UniformBatch};
use sparsebatch_solvers::{
    Backend, BatchSolver, Chunks, Engine, Gpu, Machine, Method, PlanPin, Preconditioner, Solution,
    SolveError, SolveOptions, SpmvOptions, Watch, solve_on_executor,
};

use crate::backends::common::{agree, bits, cg, chain, dense, gpu, patterns, ragged, rhs};
use crate::common::one_step;

fn emulator() -> Emulator {
    Emulator::new(Order::Forward)
}

/// So many emulated GPUs with chunks of `bytes`.
pub(crate) fn several(count: usize, bytes: u64) -> Backend<Emulator> {
    let gpu = |_| Gpu::new(emulator()).chunks(Chunks::default().bytes(bytes));
    Backend::gpus((0..count).map(gpu).collect()).unwrap()
}

/// `len` different tridiagonal items of 12 rows; some need more iterations than others.
pub(crate) fn uniform(len: usize) -> Batch<f64> {
    let of = |item: usize| chain::<f64>(12, 2.05 + 0.3 * (item % 7) as f64);
    let values = (0..len).flat_map(|item| of(item).values().to_vec()).collect();
    let pattern = of(0).pattern().clone();
    let values = BatchValues::ItemMajor(values);
    Batch::Uniform(UniformBatch::try_new(pattern, len, values).unwrap())
}

fn batches() -> Vec<(&'static str, Batch<f64>)> {
    let Batch::Uniform(own) = uniform(31) else { unreachable!() };
    vec![
        ("interleaved", Batch::Uniform(own.to_interleaved())),
        ("uniform", Batch::Uniform(own)),
        ("shared", Batch::Uniform(UniformBatch::shared(chain(12, 2.2), 31))),
        ("ragged", ragged(patterns(31))),
    ]
}

fn choices() -> Vec<SolveOptions> {
    let bicgstab = one_step().method(Method::BiCgStab);
    vec![
        cg(),
        bicgstab.clone().preconditioner(Preconditioner::Jacobi),
        bicgstab.preconditioner(Preconditioner::ILU0),
        one_step().method(Method::Lu),
        one_step().method(Method::PivotingLu),
        SolveOptions::new(),
    ]
}

pub(crate) fn assert_same(
    what: &str,
    batch: &Batch<f64>,
    nrhs: usize,
    found: &Solution<f64>,
    expected: &Solution<f64>,
) {
    assert_eq!(found.report.systems.len(), batch.nitems() * nrhs, "{what}");
    for system in 0..batch.nitems() * nrhs {
        let bits = |solution| bits(batch, solution, nrhs, system);
        assert_eq!(bits(found), bits(expected), "{what}, system {system}");
    }
    assert_eq!(found.report.systems, expected.report.systems, "{what}");
}

/// The number of systems of each GPU.
fn counts(solution: &Solution<f64>) -> Vec<usize> {
    solution.report.gpus().iter().map(|gpu| gpu.systems).collect()
}

/// Whether the emulation lacks a kernel of this solve: it has those that some test launches.
pub(crate) fn lacks_a_kernel(error: &SolveError) -> bool {
    error.to_string().contains("a kernel that kernel-emu registers")
}

#[test]
fn any_number_of_gpus_gives_the_bits_of_one() {
    let mut compared = 0;
    for (name, batch) in batches() {
        for options in choices() {
            for (nrhs, is_guessed) in [(1, false), (2, true), (2, false)] {
                let options = options.clone().nrhs(nrhs);
                let b = rhs(&batch, nrhs);
                let x0: Vec<f64> = b.iter().map(|b| 0.5 - b).collect();
                let guess = is_guessed.then_some(&*x0);
                let solve =
                    |backend: &Backend<_>| solve_on_executor(backend, &batch, &b, guess, &options);
                let one = match solve(&gpu(&emulator())) {
                    Err(error) if lacks_a_kernel(&error) => continue,
                    one => one.unwrap(),
                };
                assert!(one.report.all_converged() && one.report.gpus().is_empty());
                for (gpus, bytes) in [(1, 3000), (2, 1), (2, 3000), (3, 3000), (3, 1 << 14)] {
                    let what = format!("{name} {} {nrhs} {gpus} {bytes}", options.method);
                    let found = solve(&several(gpus, bytes)).unwrap();
                    assert_same(&what, &batch, nrhs, &found, &one);
                    let expected = if gpus == 1 { 0 } else { 31 * nrhs };
                    assert_eq!(counts(&found).iter().sum::<usize>(), expected, "{what}");
                    let device = &found.report.device;
                    let named = format!("{gpus} x emulation");
                    assert!(gpus == 1 || device.starts_with(&named), "{what}: {device}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared >= 200, "{compared} solves");
}

#[test]
fn static_pieces_are_of_equal_cost_and_small_batches_stay_on_one_gpu() {
    let batch = uniform(30);
    let b = rhs(&batch, 1);
    let solve = |backend: Backend<_>| solve_on_executor(&backend, &batch, &b, None, &cg()).unwrap();
    assert_eq!(counts(&solve(several(3, 1 << 14))), [10, 10, 10]);
    // By default less than a mebibyte is not worth another GPU.
    let gpus = (0..3).map(|_| Gpu::new(emulator())).collect();
    assert_eq!(counts(&solve(Backend::gpus(gpus).unwrap())), [30, 0, 0]);
    // The first third are the larger ones.
    let large = (0..10).map(|item| chain(12, 3.0 + f64::from(item)));
    let mixed = ragged(large.chain(patterns(20)));
    let b = rhs(&mixed, 1);
    let found = solve_on_executor(&several(2, 1 << 14), &mixed, &b, None, &cg()).unwrap();
    let found = counts(&found);
    assert!(found[0] < found[1] && found.iter().sum::<usize>() == 30, "{found:?}");
}

#[test]
fn fewer_items_than_gpus_and_none() {
    for (items, bytes) in [(0, 1), (1, 1), (2, 1), (2, 1 << 10)] {
        for batch in [uniform(items), ragged(patterns(items))] {
            let b = rhs(&batch, 1);
            let solve =
                |backend: &Backend<_>| solve_on_executor(backend, &batch, &b, None, &cg()).unwrap();
            let one = solve(&gpu(&emulator()));
            assert_same("few", &batch, 1, &solve(&several(3, bytes)), &one);
        }
    }
}

#[test]
fn a_solver_solves_again_with_other_values_guesses_and_limits() {
    let batch = uniform(23);
    let other = {
        let of = |item: usize| chain::<f64>(12, 4.0 - 0.1 * (item % 9) as f64);
        let values = (0..23).flat_map(|item| of(item).values().to_vec()).collect();
        let values = BatchValues::ItemMajor(values);
        Batch::Uniform(UniformBatch::try_new(of(0).pattern().clone(), 23, values).unwrap())
    };
    let options = cg()
        .nrhs(2)
        .rel_tol((0..46).map(|s| 10f64.powi(-(s % 11) - 1)).collect::<Vec<_>>())
        .max_iters((0..46).map(|s| if s % 5 == 2 { 3 } else { 50 }).collect::<Vec<_>>());
    for bytes in [1, 3000, 1 << 14] {
        let backends = [gpu(&emulator()), several(2, bytes)];
        let mut solvers = backends
            .map(|backend| BatchSolver::on_executor(&backend, &batch, None, &options).unwrap());
        for batch in [&batch, &other, &batch] {
            let b = rhs(batch, 2);
            let [one, two] = solvers.each_mut().map(|solver| {
                let mut x = vec![0.25; b.len()];
                let report = solver.solve(batch, &b, &mut x).unwrap();
                Solution { x, report }
            });
            assert_same("again", batch, 2, &two, &one);
        }
    }
}

/// Matrices near to those of a batch.
fn near(batch: &Batch<f64>) -> Batch<f64> {
    let matrices = (0..batch.nitems()).map(|item| {
        let mut matrix = batch.to_csr(item);
        matrix.values_mut().iter_mut().for_each(|value| *value *= 1.0 + 1e-4 * item as f64);
        matrix
    });
    match batch {
        Batch::Ragged(_) => ragged(matrices),
        Batch::Uniform(uniform) => {
            let values = matrices.flat_map(|matrix| matrix.values().to_vec()).collect();
            let (pattern, values) = (uniform.pattern().clone(), BatchValues::ItemMajor(values));
            Batch::Uniform(UniformBatch::try_new(pattern, batch.nitems(), values).unwrap())
        }
    }
}

#[test]
fn kept_factors_lie_where_the_systems_are_solved() {
    for batch in [uniform(31), ragged(patterns(31))] {
        let near = near(&batch);
        for options in [one_step().method(Method::Lu), cg().preconditioner(Preconditioner::IC0)] {
            let options = options.nrhs(2);
            let b = rhs(&batch, 2);
            let mut expected: Option<Vec<Solution<f64>>> = None;
            for backend in [gpu(&emulator()), several(2, 1 << 14), several(3, 1 << 14)] {
                let what = format!("{} {}", options.method, PlanPin::of(&backend));
                let mut solver =
                    BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
                solver.factor(&batch).unwrap();
                assert!(solver.keeps_factors(), "{what}");
                let mut solved = |step: usize| {
                    let mut x = vec![0.0; b.len()];
                    let report = match step {
                        0 | 3 => solver.solve_again(&b, &mut x),
                        1 => solver.solve_transposed_again(&b, &mut x),
                        _ => solver.solve_near(&near, &b, &mut x),
                    };
                    Solution { x, report: report.unwrap() }
                };
                let found: Vec<_> = (0..4).map(&mut solved).collect();
                match &expected {
                    None => expected = Some(found),
                    Some(expected) => {
                        for (found, expected) in found.iter().zip(expected) {
                            assert!(found.report.all_converged(), "{what}");
                            assert_same(&what, &batch, 2, found, expected);
                        }
                        let least = counts(&found[0]).into_iter().min();
                        assert!(least > Some(0), "{what}: {:?}", counts(&found[0]));
                    }
                }
            }
        }
    }
}

#[test]
fn the_ladder_and_what_only_the_cpu_can_solve() {
    // Item 3 needs pivots; dense systems of 200 rows go to the composed solver.
    let matrices = (0..24).map(|item| match item {
        3 => chain(12, 0.0),
        7 | 19 => dense(200, 300.0),
        _ => chain(12, 2.1 + 0.1 * item as f64),
    });
    let batch = ragged(matrices);
    let b = rhs(&batch, 1);
    let options = SolveOptions::new().method(Method::Cg).preconditioner(Preconditioner::Jacobi);
    let one = agree("ladder", &gpu(&emulator()), &batch, &b, None, &options);
    let two = agree("ladder", &several(2, 1 << 12), &batch, &b, None, &options);
    assert_same("ladder", &batch, 1, &two, &one);
    assert!(two.report.runs.len() > 1);
    // Block-Jacobi with a history is the CPU's.
    let options = cg().preconditioner(Preconditioner::BLOCK_JACOBI).history(true);
    let or_cpu = |_| Gpu::new(emulator()).or_cpu(true).chunks(Chunks::default().bytes(1000));
    let backend = Backend::gpus((0..2).map(or_cpu).collect()).unwrap();
    let found = agree("history", &backend, &batch, &b, None, &options);
    assert_eq!(found.report.backend, Machine::Cpu);
    assert!(found.report.cpu_reason().unwrap().contains("not supported"));
    let refused = solve_on_executor(&several(2, 1000), &batch, &b, None, &options);
    assert!(matches!(refused, Err(SolveError::Unsupported { .. })));
}

#[test]
fn products_that_were_asked_for_run_on_one_gpu() {
    let batch = uniform(31);
    let b = rhs(&batch, 1);
    let options = cg().engine(Engine::Composed(SpmvOptions::default()));
    let solve =
        |backend: &Backend<_>| solve_on_executor(backend, &batch, &b, None, &options).unwrap();
    let (one, two) = (solve(&gpu(&emulator())), solve(&several(2, 3000)));
    assert_same("products", &batch, 1, &two, &one);
    assert_eq!(counts(&two), [31, 0]);
    assert_eq!(two.report.format, one.report.format);
    assert!(two.report.product_cost.is_some());
}

#[test]
fn several_schemes_of_one_batch() {
    // The choice of `auto` differs between the items.
    let matrices = (0..40).map(|item| match item % 3 {
        0 => chain(12, 2.5),
        1 => dense(20, 30.0),
        _ => chain(12, -2.5),
    });
    let batch = ragged(matrices);
    let b = rhs(&batch, 2);
    let options = SolveOptions::new().nrhs(2);
    let one = solve_on_executor(&gpu(&emulator()), &batch, &b, None, &options).unwrap();
    let two = solve_on_executor(&several(2, 2000), &batch, &b, None, &options).unwrap();
    assert_same("schemes", &batch, 2, &two, &one);
    assert_eq!(two.report.schemes.len(), one.report.schemes.len());
    assert_eq!(counts(&two).iter().sum::<usize>(), 80);
}

#[test]
fn a_watch_counts_every_system_once_and_stops_all_gpus() {
    for batch in [uniform(60), ragged(patterns(60))] {
        let b = rhs(&batch, 1);
        let watch = Watch::new();
        let options = cg().watch(watch.clone());
        let backend = several(2, 1);
        let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
        let mut x = vec![0.0; b.len()];
        watch.stop();
        let stopped = solver.solve(&batch, &b, &mut x);
        assert!(matches!(stopped, Err(SolveError::Stopped { ended: 0, systems: 60 })));
        assert!(x.iter().all(|&x| x == 0.0));

        let report = solver.solve(&batch, &b, &mut x).unwrap();

        assert_eq!((watch.progress().ended, watch.progress().systems), (60, 60));
        let one = solve_on_executor(&gpu(&emulator()), &batch, &b, None, &cg()).unwrap();
        assert_same("after a stop", &batch, 1, &Solution { x, report }, &one);
    }
    // A request from within ends the solve with some systems solved.
    let batch = uniform(60);
    let watch = Watch::with_callback(|_| std::ops::ControlFlow::Break(()));
    let mut x = vec![0.0; 60 * 12];
    let options = cg().watch(watch);
    let solver = BatchSolver::on_executor(&several(2, 1), &batch, None, &options);
    let stopped = solver.unwrap().solve(&batch, &rhs(&batch, 1), &mut x);
    match stopped {
        Err(SolveError::Stopped { ended, systems: 60 }) => assert!((1..60).contains(&ended)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn gpus_of_different_models_plan_as_the_least() {
    let info = emulator().info().clone();
    let small = DeviceInfo {
        name: "small".to_owned(),
        shared_bytes_per_block: 24_576,
        multiprocessors: 5,
        ..info
    };
    let small = Emulator::with_info(small, Order::Forward);
    let chunks = Chunks::default().bytes(1 << 17);
    let gpus = [emulator(), small.clone()].map(|gpu| Gpu::new(gpu).chunks(chunks));
    let backend = Backend::gpus(gpus.to_vec()).unwrap();
    let model = PlanPin::of(&backend).device().copied().unwrap();
    assert_eq!((model.multiprocessors, model.shared_bytes_per_block), (2, 24_576));
    let batch = ragged((0..6).map(|item| dense(70, 90.0 + f64::from(item))));
    let b = rhs(&batch, 1);
    let options = SolveOptions::new().rel_tol(1e-6);
    // One GPU, pinned to that model.
    let pinned = gpu(&emulator()).pinned(&PlanPin::of(&backend)).unwrap();
    let [one, two] = [&pinned, &backend]
        .map(|backend| solve_on_executor(backend, &batch, &b, None, &options).unwrap());
    assert_same("models", &batch, 1, &two, &one);
    assert_eq!(two.report.device, "emulation, small");
    assert!(backend.pinned(&PlanPin::of(&pinned)).is_ok());
}

#[test]
fn lists_that_are_no_backend() {
    let error = |gpus| Backend::gpus(gpus).map(drop).unwrap_err().to_string();
    assert!(error(vec![]).contains("gpus is none, expected at least one GPU"), "{}", error(vec![]));
    let differ = error(vec![Gpu::new(emulator()), Gpu::new(emulator()).or_cpu(true)]);
    assert!(differ.contains("for all GPUs") && differ.contains("GPU 1"), "{differ}");
    let one = Backend::gpus(vec![Gpu::new(emulator())]).unwrap();
    assert!(matches!(one, Backend::Gpu(_)));
}
