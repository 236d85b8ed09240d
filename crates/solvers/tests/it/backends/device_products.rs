//! Solves over products of data on the device: systems of any size, residual histories, and engines
//! that are asked for.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Executor;
use sparsebatch_formats::{Batch, Csr, UniformBatch};
use sparsebatch_solve_core::{FormatChoice, KernelChoice, Scheme};
use sparsebatch_solvers::gpu::{
    GpuSolveError, Guess, PlanReport, SolverTuning, solver_for, solver_for_ragged,
};
use sparsebatch_solvers::{
    Backend, BatchSolver, DeviceData, DeviceSolver, Engine, Gpu, Method, Preconditioner, Rung,
    SolveError, SolveOptions, SpmvOptions, Status, Watch, solve_on_executor, solver_memory,
};

use crate::backends::common::{cg, chain, patterns, ragged, rhs};
use crate::backends::device::{agree, from_host, on_device, uniform, values_of};

/// More rows than a block or a cluster solves.
const LARGE: usize = 40_000;

fn emulator() -> Emulator {
    Emulator::new(Order::Forward)
}

/// CG over products of a format.
fn over(format: FormatChoice, kernel: KernelChoice) -> SolveOptions {
    cg().engine(Engine::Composed(SpmvOptions::default().format(format).kernel(kernel)))
}

fn engines() -> [(SolveOptions, &'static str, &'static str); 4] {
    [
        (over(FormatChoice::Auto, KernelChoice::Auto), "packed", "packed"),
        (over(FormatChoice::Auto, KernelChoice::CsrI), "csr", "batch-csr-i"),
        (over(FormatChoice::Ell, KernelChoice::Auto), "ell", "batch-ell"),
        (over(FormatChoice::SellP, KernelChoice::Rows), "sell-p", "batch-sell-p"),
    ]
}

/// Healthy systems of one pattern.
fn chains(items: usize) -> Batch<f64> {
    let matrices: Vec<Csr<f64>> =
        (0..items).map(|item| chain(20, 2.5 + 0.1 * item as f64)).collect();
    uniform(&matrices)
}

#[test]
fn an_engine_that_is_asked_for_runs_on_the_device() {
    let shared = Batch::Uniform(UniformBatch::shared(chain::<f64>(20, 2.5), 4));
    for batch in [chains(5), ragged(patterns(9)), shared] {
        for (options, format, kernel) in engines() {
            let report = agree(&batch, false, &options.nrhs(2));

            assert!(report.all_converged());
            let found = (report.format, report.kernel);
            assert_eq!(found, (format, format!("composed cg over {kernel}")));
            assert_eq!(report.runs[0].composed_reason, None);
            let cost = report.product_cost.unwrap();
            let most = report.systems.iter().map(|s| s.outcome.iterations).max().unwrap();
            assert!(cost.products > u64::from(most), "{cost:?}");
            assert!(cost.share_of_solve > 0.0, "{cost:?}");
        }
    }
}

#[test]
fn factorisations_are_not_asked_for_over_products() {
    let options = over(FormatChoice::Auto, KernelChoice::Auto).method(Method::Lu);
    let refused = DeviceSolver::new(&emulator(), &chains(3), &options).err().unwrap();
    assert!(matches!(refused, SolveError::Argument(_)), "{refused}");
    let dia = over(FormatChoice::Dia, KernelChoice::Auto);
    let refused = DeviceSolver::new(&emulator(), &chains(3), &dia).err().unwrap();
    assert!(matches!(refused, SolveError::Unsupported { .. }), "{refused}");
}

#[test]
fn histories_are_told_of_data_on_the_device() {
    for (batch, options) in [
        (chains(4), cg().history(true)),
        (ragged(patterns(9)), cg().history(true).nrhs(2)),
        (ragged(patterns(9)), cg().method(Method::BiCgStab).history(true)),
    ] {
        let report = agree(&batch, true, &options);

        let b = rhs(&batch, options.nrhs);
        let guesses: Vec<f64> = b.iter().map(|&b| 0.3 - b).collect();
        let (_, host) = from_host(&batch, &b, Some(&guesses), &options);
        for (system, expected) in report.systems.iter().zip(&host.systems) {
            let (outcome, expected) = (&system.outcome, &expected.outcome);
            assert_eq!(outcome.history.len(), outcome.iterations as usize + 1, "{outcome:?}");
            assert_eq!(outcome.history, expected.history);
        }
        let reason = report.runs[0].composed_reason.as_ref().unwrap();
        assert!(reason.contains("the residual history"), "{reason}");
    }
}

#[test]
fn systems_of_any_size_are_solved_on_the_device() {
    let sizes = [chain(12, 4.0), chain(LARGE, 4.0), chain(9, 4.0), chain(LARGE + 1, 4.0)];
    let batches: [Batch<f64>; 2] =
        [uniform(&[chain(LARGE, 4.0), chain(LARGE, 5.0)]), ragged(sizes)];
    for (batch, large) in batches.iter().zip([2, 2]) {
        let report = agree(batch, false, &cg());

        assert!(report.all_converged());
        assert_eq!((report.backend.name(), report.runs.len()), ("gpu", 1));
        let name =
            format!("composed cg over packed{}", if batch.nitems() > large { " (" } else { "" });
        assert!(report.kernel.contains(&name), "{}", report.kernel);
        let (reason, count) = (report.runs[0].composed_reason.as_ref().unwrap(), batch.nitems());
        assert!(reason.starts_with(&format!("{large} of {count} systems: ")), "{reason}");
    }
}

#[test]
fn plans_of_a_ragged_batch_are_those_of_its_sizes() {
    let executor = emulator();
    let options = cg();
    let scheme = Scheme::Cg(Preconditioner::Jacobi);
    let tuning = SolverTuning::default();
    let name = |report: PlanReport| report.name();
    let of = |matrices: Vec<Csr<f64>>| {
        let Batch::Ragged(batch) = ragged(matrices) else { unreachable!("a ragged batch") };
        let made = solver_for_ragged::<_, f64>(&executor, scheme, &batch, &options, &tuning);
        made.map(|made| name(made.explain()))
    };
    let large = || chain(LARGE, 4.0);

    assert!(of(vec![chain(5, 3.0), chain(6, 3.0)]).unwrap().starts_with("cg("));
    let composed = of(vec![large(), chain(LARGE + 1, 4.0)]).unwrap();
    assert_eq!(composed, "composed cg over packed");
    let refused = of(vec![large(), chain(6, 3.0)]).unwrap_err();
    assert!(matches!(refused, GpuSolveError::Unsupported { .. }), "{refused}");
    let alone =
        solver_for::<_, f64>(&executor, scheme, (large().view().pattern(), 1), &options, &tuning);
    let report = alone.unwrap().explain();
    let launch = &report.launches[0];
    assert_eq!((launch.nrows, launch.nnz, launch.patterns), (LARGE, 3 * LARGE - 2, 1));
    let explained = launch.composed().unwrap();
    assert!(explained.reason.as_ref().unwrap().contains("rows"));
    assert!(report.to_string().contains("several blocks 1"), "{report}");
}

/// Values of all items and of each are planned for as they come.
#[test]
fn values_may_become_those_of_all_items() {
    let matrices: Vec<Csr<f64>> = (0..3).map(|item| chain(20, 2.5 + item as f64)).collect();
    let (each, shared) = (uniform(&matrices), UniformBatch::shared(matrices[1].clone(), 3));
    let (shared, b) = (Batch::Uniform(shared), rhs(&each, 1));
    for floor in [None, Some(2.0)] {
        for (options, ..) in engines() {
            let options = options.floor(floor);
            let executor = emulator();
            let mut solver = DeviceSolver::new(&executor, &each, &options).unwrap();
            let on_b = executor.upload(&b).unwrap();
            let all = executor.upload(&values_of(&each)).unwrap();
            let one = executor.upload(matrices[1].values()).unwrap();
            let expected = [(&all, &each), (&one, &shared), (&one, &shared), (&all, &each)];
            for (values, batch) in expected {
                let mut x = executor.alloc_zeroed(b.len()).unwrap();

                let report = solver.solve(values, &on_b, Guess::Zero, &mut x).unwrap();

                let (expected, host) = from_host(batch, &b, None, &options);
                assert_eq!(executor.download(&x).unwrap(), expected);
                for (found, expected) in report.systems.iter().zip(&host.systems) {
                    assert_eq!(found.outcome.status, expected.outcome.status);
                }
            }
        }
    }
}

#[test]
fn failed_systems_climb_from_products_by_plans_of_their_own() {
    // Negative definite, singular, not finite.
    let mut matrices = patterns::<f64>(4);
    matrices.push(chain(12, -2.5));
    let mut lost = chain::<f64>(5, 2.5);
    lost.values_mut()[3] = f64::NAN;
    matrices.push(lost);
    let batch = ragged(matrices);
    let by_engine = over(FormatChoice::Auto, KernelChoice::Auto).fallback(true);
    // Preconditioners with factors keep no histories.
    let histories = cg().history(true).fallback(true);
    for (options, backend) in [(by_engine, "gpu"), (histories, "cpu")] {
        let report = agree(&batch, false, &options);

        let statuses: Vec<Status> = report.systems.iter().map(|s| s.outcome.status).collect();
        assert_eq!(statuses[..5], [Status::Converged; 5], "{report:?}");
        assert_eq!(statuses[5], Status::NonFinite);
        assert!(report.systems[4].rung > Rung::First);
        assert_eq!(report.runs[1].backend.name(), backend);
    }
}

#[test]
fn kept_matrices_and_their_transposes_are_solved_over_products() {
    let batch = chains(3);
    let b = rhs(&batch, 1);
    for (options, ..) in engines() {
        let executor = emulator();
        let mut solver = DeviceSolver::new(&executor, &batch, &options).unwrap();
        let values = executor.upload(&values_of(&batch)).unwrap();
        let on_b = executor.upload(&b).unwrap();
        assert!(!solver.keeps_factors());
        solver.factor(&values).unwrap();
        let mut x = executor.alloc_zeroed(b.len()).unwrap();
        let report = solver.solve_again(&on_b, Guess::Zero, &mut x).unwrap();
        assert!(report.all_converged());
        let plain = executor.download(&x).unwrap();
        assert_eq!(plain, on_device(&batch, &b, None, &options).0);

        // The matrices are symmetric.
        let mut x = executor.alloc_zeroed(b.len()).unwrap();
        assert!(solver.solve_transposed_again(&on_b, Guess::Zero, &mut x).unwrap().all_converged());
        assert_eq!(executor.download(&x).unwrap(), plain);

        let refused = solver.set_active(2).unwrap_err();
        assert!(matches!(refused, SolveError::Unsupported { .. }), "{refused}");
    }
}

#[test]
fn a_watch_counts_and_stops_solves_over_products() {
    let batch = ragged(patterns::<f64>(9));
    let b = rhs(&batch, 1);
    let watch = Watch::new();
    let options = over(FormatChoice::Auto, KernelChoice::Auto).watch(watch.clone());
    let executor = emulator();
    let mut solver = DeviceSolver::new(&executor, &batch, &options).unwrap();
    let values = executor.upload(&values_of(&batch)).unwrap();
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.alloc_zeroed(b.len()).unwrap();
    assert!(solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap().all_converged());
    let progress = watch.progress();
    assert_eq!((progress.ended, progress.systems), (9, 9));

    watch.stop();
    let stopped = solver.solve(&values, &on_b, Guess::Zero, &mut x).map(drop).unwrap_err();
    assert!(matches!(stopped, SolveError::Stopped { systems: 9, .. }), "{stopped}");
    watch.clear();
    assert!(solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap().all_converged());
}

#[test]
fn arrays_that_do_not_fit_are_refused_and_lose_nothing() {
    let batch = chains(3);
    let options = over(FormatChoice::Auto, KernelChoice::Auto);
    let executor = emulator();
    let mut solver = DeviceSolver::new(&executor, &batch, &options).unwrap();
    let b = rhs(&batch, 1);
    let (values, on_b) = (executor.upload(&values_of(&batch)), executor.upload(&b));
    let (values, on_b) = (values.unwrap(), on_b.unwrap());
    let few = executor.upload(&[1.0; 7]).unwrap();
    let mut x = executor.upload(&vec![7.0; b.len()]).unwrap();
    for (values, b) in [(&few, &on_b), (&values, &few)] {
        assert!(solver.solve(values, b, Guess::Zero, &mut x).is_err());
        assert_eq!(executor.download(&x).unwrap(), vec![7.0; 60]);
    }
    assert!(solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap().all_converged());
}

/// Products are planned by what the device measures.
#[test]
fn the_memory_of_products_is_not_told_before_they_are_planned() {
    let batch = chains(3);
    let options = over(FormatChoice::Auto, KernelChoice::Auto);
    let info = emulator().info().clone();
    let refused = solver_memory(&info, &batch, &options, Default::default()).unwrap_err();
    assert!(matches!(refused, SolveError::Unsupported { .. }), "{refused}");
    // What does not fit is said first, by `auto` too.
    let wide = Csr::try_new(2, 4, vec![0, 2, 4], vec![0, 2, 1, 3], vec![1.0; 4]).unwrap();
    let few = SolveOptions::new().rel_tol(vec![1e-8]);
    let wide = Batch::Uniform(UniformBatch::shared(wide, 3));
    for (batch, options) in [(&wide, SolveOptions::new()), (&batch, few)] {
        let refused = solver_memory(&info, batch, &options, Default::default()).unwrap_err();
        assert!(matches!(refused, SolveError::Argument(_)), "{refused}");
    }
    // A full column makes rows of the transposed matrix long.
    let n = 6000;
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..n {
        let entries = if row == 0 { vec![0] } else { vec![0, row] };
        values.extend(entries.iter().map(|&col| if col == row { 4.0 } else { 1e-3 }));
        col_idx.extend(entries.iter().map(|&col| col as i32));
        row_ptr.push(col_idx.len() as i32);
    }
    let arrow = Csr::<f64>::try_new(n, n, row_ptr, col_idx, values).unwrap();
    let arrow = Batch::Uniform(UniformBatch::shared(arrow, 2));
    let data = DeviceData::new().transposed(true);
    let refused = solver_memory(&info, &arrow, &cg(), data).unwrap_err();
    assert!(matches!(refused, SolveError::Unsupported { .. }), "{refused}");
}

/// A floor compares residuals with the entries of the matrices, of which the plan keeps a copy.
#[test]
fn a_floor_is_given_before_products_are_planned() {
    let executor = emulator();
    let options = cg();
    let (pattern, scheme) = (chain::<f64>(LARGE, 4.0), Scheme::Cg(Preconditioner::Jacobi));
    let systems = (pattern.view().pattern(), 1);
    let tuning = SolverTuning::default();
    let mut plan = solver_for::<_, f64>(&executor, scheme, systems, &options, &tuning).unwrap();
    plan.replace_limits(&executor, &options.clone().max_iters(7)).unwrap();
    let refused = plan.replace_limits(&executor, &options.floor(2.0)).unwrap_err();
    assert!(matches!(refused, GpuSolveError::Unsupported { .. }), "{refused}");
}

/// Systems that iterate over products make room for the others, in whatever order they come.
#[test]
fn systems_over_products_give_way_where_memory_is_short() {
    let large = || vec![chain::<f64>(LARGE, 4.0)];
    let small = || vec![chain::<f64>(2000, 4.0); 40];
    for matrices in [[large(), small()].concat(), [small(), large()].concat()] {
        let batch = ragged(matrices);
        let b = rhs(&batch, 1);
        let gpu = Gpu::new(emulator()).memory_limit(9 << 20).or_cpu(true);
        let alone = solve_on_executor(&Backend::Gpu(gpu), &batch, &b, None, &cg()).unwrap();

        assert!(alone.report.all_converged());
        assert_eq!(alone.report.backend.name(), "gpu+cpu");
        let reason = alone.report.cpu_reason().unwrap();
        assert!(reason.starts_with("1 of 41 systems: out of GPU memory"), "{reason}");
    }
    // In chunks they take turns, and the others stay, in whatever order they come.
    let three = [LARGE, LARGE + 1, LARGE + 2].map(|rows| chain::<f64>(rows, 4.0));
    let many = [vec![chain(LARGE, 4.0); 4], vec![chain(72_000, 4.0)]].concat();
    for (matrices, chunks) in [
        ([three.to_vec(), small()].concat(), 3),
        ([vec![chain(2000, 4.0)], many.clone()].concat(), 3),
        ([many, vec![chain(2000, 4.0)]].concat(), 3),
    ] {
        let batch = ragged(matrices);
        let b = rhs(&batch, 1);
        let on = |limit: Option<u64>| {
            let executor = emulator();
            let gpu = Gpu::new(executor.clone()).memory_limit(limit).in_chunks(true);
            let backend = Backend::Gpu(gpu);
            let mut solver = BatchSolver::on_executor(&backend, &batch, None, &cg()).unwrap();
            let stays = executor.bytes_in_use();
            let mut x = vec![0.0; b.len()];
            let report = solver.solve(&batch, &b, &mut x).unwrap();
            assert_eq!(executor.bytes_in_use(), stays);
            (report, x, stays)
        };
        let ((all, x, _), (limited, limited_x, stays)) = (on(None), on(Some(18 << 20)));
        assert_eq!((all.runs[0].chunks, limited.runs[0].chunks), (1, chunks));
        assert!(limited.runs[0].device_bytes <= 18 << 20, "{:?}", limited.runs);
        assert!(stays > 100_000, "{stays}");
        assert!(x == limited_x && all.systems == limited.systems);
        assert_eq!(all.kernel, limited.kernel);
    }
}

/// A stopped solve leaves nothing behind that the next one would miss.
#[test]
fn a_stopped_solve_in_turns_leaves_its_memory() {
    let watch = Watch::with_callback(|_| ControlFlow::Break(()));
    for sizes in [vec![LARGE; 3], vec![LARGE, LARGE + 1, LARGE + 2]] {
        let batch = ragged(sizes.into_iter().map(|rows| chain::<f64>(rows, 4.0)));
        let b = rhs(&batch, 1);
        let executor = emulator();
        let gpu = Gpu::new(executor.clone()).memory_limit(11 << 20).in_chunks(true);
        let options = cg().watch(watch.clone());
        let backend = Backend::Gpu(gpu);
        let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
        let stays = executor.bytes_in_use();
        for _ in 0..2 {
            let mut x = vec![0.0; b.len()];
            let stopped = solver.solve(&batch, &b, &mut x).unwrap_err();
            assert!(matches!(stopped, SolveError::Stopped { systems: 3, .. }), "{stopped}");
            assert_eq!(executor.bytes_in_use(), stays);
        }
    }
}

/// Ends are counted once, in the last chunk too, which is not full.
#[test]
fn a_watch_counts_no_padding() {
    let batch = chains(10);
    let b = rhs(&batch, 1);
    for limit in [None, Some(15_000)] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let watch = Watch::with_callback(move |progress| {
            log.lock().unwrap().push(progress.ended);
            ControlFlow::Continue(())
        });
        let options = over(FormatChoice::Auto, KernelChoice::Auto).watch(watch);
        let gpu = Gpu::new(emulator()).memory_limit(limit).in_chunks(true);
        let solved = solve_on_executor(&Backend::Gpu(gpu), &batch, &b, None, &options).unwrap();

        let chunks = solved.report.runs[0].chunks;
        assert_eq!(chunks > 1, limit.is_some(), "{:?}", solved.report.runs);
        let seen = seen.lock().unwrap();
        assert!(seen.is_sorted() && seen.len() >= chunks, "{seen:?}");
        assert_eq!(seen.last(), Some(&10), "{seen:?}");
        // Before the last chunk has ended no more than the chunks ahead of it have.
        let ahead = (chunks - 1) * 10usize.div_ceil(chunks);
        let early = seen.iter().filter(|&&ended| ended < 10).max();
        assert!(early.is_none_or(|&ended| ended <= ahead.max(9)), "{seen:?}");
    }
}
