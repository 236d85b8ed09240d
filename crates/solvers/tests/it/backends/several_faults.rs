//! Several emulated GPUs of which some fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kernel_emu::{Call, Emulator, Order};
use sparsebatch_cuda::GpuError;
use sparsebatch_formats::Batch;
use sparsebatch_solvers::{
    Backend, BatchSolver, Chunks, Engine, Gpu, Method, Solution, SolveError, SolveOptions,
    SpmvOptions, Watch, solve_on_executor,
};

use crate::backends::common::{cg, chain, gpu, patterns, ragged, rhs};

use crate::backends::several::{assert_same, uniform};
use crate::common::one_step;

fn emulator() -> Emulator {
    Emulator::new(Order::Forward)
}

fn lost() -> GpuError {
    let message = "an illegal memory access was encountered".to_owned();
    GpuError::ContextLost { call: "cuStreamSynchronize", code: 700, message }
}

fn full() -> GpuError {
    GpuError::OutOfMemory { needed: 1 << 40, free: 7 }
}

fn backend(gpus: &[Emulator], bytes: u64, or_cpu: bool) -> Backend<Emulator> {
    let chunks = Chunks::default().bytes(bytes);
    let gpu = |executor: &Emulator| Gpu::new(executor.clone()).chunks(chunks).or_cpu(or_cpu);
    Backend::gpus(gpus.iter().map(gpu).collect()).unwrap()
}

/// Two GPUs, the second of which fails.
fn two(left: u64, call: Call, error: GpuError) -> [Emulator; 2] {
    let second = emulator().failing_after(left, call, error);
    [emulator().behind(&second), second]
}

/// Solves on one GPU that does not fail.
fn alone(
    batch: &Batch<f64>,
    b: &[f64],
    x0: Option<&[f64]>,
    options: &SolveOptions,
) -> Solution<f64> {
    solve_on_executor(&gpu(&emulator()), batch, b, x0, options).unwrap()
}

#[test]
fn the_others_end_the_batch_of_a_gpu_that_fails_in_a_solve() {
    for batch in [uniform(31), ragged(patterns(31))] {
        let b = rhs(&batch, 2);
        let x0: Vec<f64> = b.iter().map(|b| 0.5 - b).collect();
        for options in [cg(), one_step().method(Method::Lu), SolveOptions::new()] {
            let options = options.nrhs(2);
            for (guess, bytes) in [(None, 1), (Some(&*x0), 1), (Some(&*x0), 1 << 14)] {
                let expected = alone(&batch, &b, guess, &options);
                for (left, call, error) in [
                    (0, Call::Launch, lost()),
                    (1, Call::Launch, lost()),
                    (2, Call::Launch, lost()),
                    (0, Call::CopyToHost, lost()),
                    (1, Call::CopyToHost, lost()),
                    (0, Call::Launch, full()),
                ] {
                    if bytes > 1 && left > 1 {
                        // Each piece is two launches.
                        continue;
                    }
                    let what = format!("{} {bytes} {left} {call:?} {error}", options.method);
                    let gpus = two(left, call, error.clone());
                    let backend = backend(&gpus, bytes, false);
                    let found = solve_on_executor(&backend, &batch, &b, guess, &options);
                    let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_same(&what, &batch, 2, &found, &expected);
                    assert!(gpus[1].has_failed(), "{what}");
                    let runs = found.report.gpus();
                    assert_eq!(runs[0].lost, None, "{what}");
                    let reason = runs[1].lost.as_deref();
                    assert_eq!(reason, Some(&*error.to_string()), "{what}");
                    let solved = runs[0].systems + runs[1].systems;
                    assert_eq!(solved, 62, "{what}: {runs:?}");
                    // A share of the systems may have had work for one GPU only.
                    let is_one_share = found.report.schemes.len() == 1;
                    assert!(!is_one_share || !found.report.device.contains("2 x"), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_gpu_without_memory_leaves_its_items_to_the_others_in_the_analysis() {
    for batch in [uniform(31), ragged(patterns(31))] {
        let b = rhs(&batch, 1);
        let expected = alone(&batch, &b, None, &cg());
        for bytes in [1, 1 << 14] {
            for (left, or_cpu) in [(0, false), (3, false), (3, true)] {
                let gpus = two(left, Call::Alloc, full());
                let backend = backend(&gpus, bytes, or_cpu);
                let found = solve_on_executor(&backend, &batch, &b, None, &cg()).unwrap();
                assert_same("full", &batch, 1, &found, &expected);
                let runs = found.report.gpus();
                assert_eq!((runs[0].systems, runs[1].systems), (31, 0));
                assert!(runs[1].lost.as_deref().unwrap().contains("out of GPU memory"));
                assert_eq!(found.report.cpu_reason(), None);
            }
        }
    }
}

#[test]
fn where_all_gpus_fail_the_rules_of_one_hold() {
    for batch in [uniform(31), ragged(patterns(31))] {
        let b = rhs(&batch, 1);
        for bytes in [1, 1 << 14] {
            let failing = |left, call, error: GpuError| {
                [(); 3].map(|()| emulator().failing_after(left, call, error.clone()))
            };
            // In the solve: the error of the last one, now and in the next solve.
            let gpus = failing(0, Call::Launch, lost());
            let backend_lost = backend(&gpus, bytes, true);
            let solver = BatchSolver::on_executor(&backend_lost, &batch, None, &cg());
            let mut solver = solver.unwrap();
            let mut x = vec![0.0; b.len()];
            for _ in 0..2 {
                let error = solver.solve(&batch, &b, &mut x).unwrap_err();
                assert!(matches!(error, SolveError::Gpu(GpuError::ContextLost { .. })), "{error}");
            }
            // In the analysis: without memory the CPU solves where it may.
            let gpus = failing(0, Call::Alloc, full());
            let refused = solve_on_executor(&backend(&gpus, bytes, false), &batch, &b, None, &cg());
            let error = refused.map(drop).unwrap_err();
            assert!(matches!(error, SolveError::Gpu(GpuError::OutOfMemory { .. })), "{error}");
            let gpus = failing(0, Call::Alloc, full()).map(Gpu::new);
            let gpus = gpus
                .map(|gpu| gpu.or_cpu(true).in_chunks(true).chunks(Chunks::default().bytes(bytes)));
            let backend = Backend::gpus(gpus.to_vec()).unwrap();
            let found = solve_on_executor(&backend, &batch, &b, None, &cg()).unwrap();
            assert!(found.report.all_converged());
            assert!(found.report.cpu_reason().unwrap().contains("out of GPU memory"));
        }
    }
}

#[test]
fn kept_factors_of_a_gpu_that_fails_are_made_again_elsewhere() {
    let batch = ragged((0..31).map(|item| chain(12, 2.5 + 0.1 * f64::from(item))));
    let b = rhs(&batch, 1);
    let options = one_step().method(Method::Lu);
    let mut one = BatchSolver::on_executor(&gpu(&emulator()), &batch, None, &options).unwrap();
    one.factor(&batch).unwrap();
    let solve = |solver: &mut BatchSolver<f64>, transposed: bool| {
        let mut x = vec![0.0; b.len()];
        let report = match transposed {
            false => solver.solve_again(&b, &mut x),
            true => solver.solve_transposed_again(&b, &mut x),
        };
        Solution { x, report: report.unwrap() }
    };
    let expected = [false, true].map(|transposed| solve(&mut one, transposed));
    let mut seen = 0;
    for left in 0..8 {
        let second = emulator().failing_after(left, Call::Launch, lost());
        let gpus = [emulator(), second.clone()];
        let backend = backend(&gpus, 1 << 14, false);
        let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
        solver.factor(&batch).unwrap();
        assert!(solver.keeps_factors());
        let in_factor = second.has_failed();
        for (expected, transposed) in expected.iter().zip([false, true]) {
            let found = solve(&mut solver, transposed);
            assert_same("kept", &batch, 1, &found, expected);
        }
        seen += usize::from(second.has_failed() && !in_factor);
    }
    assert!(seen > 0, "a GPU fails after it has factorised");
}

#[test]
fn a_batch_that_fits_no_gpu_at_once_is_refused_unless_in_chunks() {
    // Two GPUs with memory for a third of the batch each.
    let batch = uniform(600);
    let b = rhs(&batch, 1);
    let little = || Emulator::with_memory(100_000);
    let gpus = |in_chunks| {
        let chunks = Chunks::default().bytes(20_000).at_once(2);
        let gpu = |_| Gpu::new(little()).in_chunks(in_chunks).chunks(chunks);
        Backend::gpus((0..2).map(gpu).collect()).unwrap()
    };
    let refused = solve_on_executor(&gpus(false), &batch, &b, None, &cg()).map(drop);
    match refused.unwrap_err() {
        SolveError::Gpu(GpuError::OutOfMemory { needed, free }) => {
            assert!(needed > free && free == 200_000, "{needed} {free}");
        }
        other => panic!("{other}"),
    }
    let found = solve_on_executor(&gpus(true), &batch, &b, None, &cg()).unwrap();
    assert_same("chunks", &batch, 1, &found, &alone(&batch, &b, None, &cg()));
}

#[test]
fn progress_counts_the_systems_of_a_lost_gpu_once() {
    // Pieces of several parts, so that some systems have ended on the GPU that is lost.
    let batch = ragged(patterns::<f64>(31));
    let b = rhs(&batch, 1);
    let mut most = 0;
    for left in 0..6 {
        let seen = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let own = std::sync::Arc::clone(&seen);
        let watch = Watch::with_callback(move |progress| {
            own.fetch_max(progress.ended, std::sync::atomic::Ordering::SeqCst);
            assert!(progress.ended <= progress.systems);
            std::ops::ControlFlow::Continue(())
        });
        let gpus = two(left, Call::CopyToHost, lost());
        // The other GPU does not wait, since this one may not fail.
        let gpus = [gpus[0].clone().without_faults(), gpus[1].clone()];
        let backend = backend(&gpus, 1 << 14, false);
        let options = cg().watch(watch.clone());
        solve_on_executor(&backend, &batch, &b, None, &options).unwrap();

        assert_eq!((watch.progress().ended, watch.progress().systems), (31, 31), "{left}");
        most = most.max(seen.load(std::sync::atomic::Ordering::SeqCst));
    }
    assert_eq!(most, 31);
}

#[test]
fn products_that_were_asked_for_go_to_the_next_gpu_as_products() {
    let batch = uniform(31);
    let b = rhs(&batch, 1);
    let options = cg().engine(Engine::Composed(SpmvOptions::default()));
    let expected = alone(&batch, &b, None, &options);
    for left in [0, 5] {
        let first = emulator().failing_after(left, Call::Launch, lost());
        let gpus = [first.clone(), emulator()];
        let backend = backend(&gpus, 1 << 14, false);
        let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
        for _ in 0..2 {
            let mut x = vec![0.0; b.len()];
            let report = solver.solve(&batch, &b, &mut x).unwrap();
            assert_eq!(report.kernel, expected.report.kernel);
            assert_eq!(report.format, expected.report.format);
            assert_eq!(report.gpus()[0].lost.as_deref(), Some(&*lost().to_string()));
            assert_same("products", &batch, 1, &Solution { x, report }, &expected);
        }
        assert!(first.has_failed());
    }
}

#[test]
fn limits_are_replaced_and_those_that_are_refused_change_nothing() {
    let batch = uniform(31);
    let b = rhs(&batch, 1);
    for options in [cg(), cg().engine(Engine::Composed(SpmvOptions::default()))] {
        let gpus = [(); 2].map(|()| emulator());
        let backend = backend(&gpus, 1 << 14, false);
        let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
        let solve = |solver: &mut BatchSolver<f64>| {
            let mut x = vec![0.0; b.len()];
            let report = solver.solve(&batch, &b, &mut x).unwrap();
            Solution { x, report }
        };
        let before = solve(&mut solver);
        assert!(before.report.all_converged());

        let refused = solver.replace_limits(&options.clone().rel_tol(vec![0.1; 2])).unwrap_err();

        assert!(matches!(refused, SolveError::Argument(_)), "{refused}");
        assert_same("limits", &batch, 1, &solve(&mut solver), &before);

        solver.replace_limits(&options.clone().max_iters(1)).unwrap();
        assert_eq!(solve(&mut solver).report.converged(), 0);
        solver.replace_limits(&options).unwrap();
        assert_same("limits", &batch, 1, &solve(&mut solver), &before);
    }
}

#[test]
fn an_item_that_no_gpu_has_memory_for_goes_to_the_cpu() {
    // The last item is too large for either GPU, even for one that is empty.
    let items: Vec<_> = (0..30).map(|_| chain::<f64>(12, 2.5)).collect();
    let small = ragged(items.clone());
    let batch = ragged(items.into_iter().chain([chain(400, 2.5)]));
    let b = rhs(&batch, 1);
    let rows = small.row_offset(30);
    let expected = alone(&small, &b[..rows], None, &cg());
    for or_cpu in [false, true] {
        let gpu = |_| Gpu::new(Emulator::with_memory(10_000)).or_cpu(or_cpu).in_chunks(true);
        let backend = Backend::gpus((0..2).map(gpu).collect()).unwrap();
        let found = solve_on_executor(&backend, &batch, &b, None, &cg());
        if !or_cpu {
            let error = found.map(drop).unwrap_err();
            assert!(matches!(error, SolveError::Gpu(GpuError::OutOfMemory { .. })), "{error}");
            continue;
        }
        let found = found.unwrap();
        assert!(found.report.all_converged());
        let reason = found.report.cpu_reason().unwrap();
        assert!(reason.contains("out of GPU memory"), "{reason}");
        assert_eq!(found.x[..rows], expected.x);
        let gpus = found.report.gpus();
        assert_eq!(gpus.iter().map(|gpu| gpu.systems).sum::<usize>(), 30, "{gpus:?}");
        assert!(gpus.iter().any(|gpu| gpu.lost.is_none()), "{gpus:?}");
    }
}

#[test]
fn factors_that_the_other_gpu_cannot_hold_are_an_error_that_leaves_the_guess() {
    let batch = ragged((0..31).map(|item| chain(12, 2.5 + 0.1 * f64::from(item))));
    let b = rhs(&batch, 1);
    let guess: Vec<f64> = b.iter().map(|b| 0.5 - b).collect();
    let options = one_step().method(Method::Lu);
    let (mut refused, mut solved) = (0, 0);
    // Memory for the factors of half of the items, or for all of them.
    for memory in (4..12).map(|k| (30_000.0 * 1.2f64.powi(k)) as u64) {
        for left in [0, 1, 2, 4, 6] {
            let little = || Emulator::with_memory(memory);
            let second = little().failing_after(left, Call::Launch, lost());
            let gpus = [little(), second.clone()];
            let backend = backend(&gpus, 1 << 14, false);
            let Ok(mut solver) = BatchSolver::on_executor(&backend, &batch, None, &options) else {
                continue;
            };
            if solver.factor(&batch).is_err() || !solver.keeps_factors() || second.has_failed() {
                continue;
            }
            let mut x = guess.clone();
            match solver.solve_again(&b, &mut x) {
                Ok(report) => solved += usize::from(second.has_failed() && report.all_converged()),
                Err(
                    error @ (SolveError::Unsupported { .. }
                    | SolveError::Gpu(GpuError::OutOfMemory { .. })),
                ) => {
                    assert!(second.has_failed(), "{error}");
                    assert_eq!(x, guess, "{error}");
                    refused += 1;
                }
                Err(other) => panic!("{memory} {left}: {other}"),
            }
        }
    }
    assert!(refused > 0 && solved > 0, "{refused} {solved}");
}

#[test]
fn a_solve_after_one_that_panicked_does_not_report_success() {
    for batch in [uniform(31), ragged(patterns(31))] {
        let b = rhs(&batch, 1);
        for bytes in [1, 1 << 14] {
            let second = emulator().panicking_after(0, Call::Launch);
            let gpus = [emulator().behind(&second), second];
            let backend = backend(&gpus, bytes, false);
            let mut solver = BatchSolver::on_executor(&backend, &batch, None, &cg()).unwrap();
            let mut solve = || {
                let mut x = vec![0.0; b.len()];
                catch_unwind(AssertUnwindSafe(|| solver.solve(&batch, &b, &mut x).map(drop)))
            };
            assert!(solve().is_err(), "the panic of a GPU's thread is passed on");
            assert!(solve().is_err(), "systems have no outcome");
        }
    }
}
