//! Solves that are followed and stopped from outside.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::Batch;
use sparsebatch_formats::generate::{Stencil, laplace};
use sparsebatch_solvers::{
    Backend, BatchSolver, Chunks, Engine, Gpu, Method, Preconditioner, Progress, SolveError,
    SolveOptions, SpmvOptions, Watch, solve_on_executor,
};

use crate::backends::common::{cg, chain, gpu, patterns, ragged, rhs};
use crate::common::one_step;

/// A watch that records every progress, and stops the solve once `limit` systems have ended.
fn recording(limit: usize) -> (Watch, Arc<Mutex<Vec<Progress>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&seen);
    let watch = Watch::with_callback(move |progress| {
        list.lock().unwrap().push(progress);
        if progress.ended < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    (watch, seen)
}

/// One item in each chunk, one chunk at a time.
fn item_by_item(executor: &Emulator) -> Backend<Emulator> {
    Backend::Gpu(Gpu::new(executor.clone()).chunks(Chunks::default().bytes(1).at_once(1)))
}

fn composed() -> SolveOptions {
    cg().engine(Engine::Composed(SpmvOptions::default()))
}

#[test]
fn a_watch_counts_every_system_once_and_changes_no_bit() {
    let executor = Emulator::new(Order::Forward);
    let batch = ragged::<f64>(patterns(23));
    let b = rhs(&batch, 2);
    let lu = one_step().method(Method::Lu);
    for backend in [Backend::Cpu, gpu(&executor), item_by_item(&executor)] {
        for options in [cg(), lu.clone(), composed()] {
            let options = options.nrhs(2);
            let plain = solve_on_executor(&backend, &batch, &b, None, &options).unwrap();
            let (watch, seen) = recording(usize::MAX);
            let watched = options.watch(watch.clone());

            let found = solve_on_executor(&backend, &batch, &b, None, &watched).unwrap();

            assert_eq!(found.x, plain.x);
            assert_eq!(found.report.systems, plain.report.systems);
            let last = watch.progress();
            assert_eq!((last.ended, last.systems), (46, 46));
            let most = seen.lock().unwrap().iter().map(|progress| progress.ended).max();
            assert_eq!(most, Some(46));
        }
    }
}

#[test]
fn the_ladder_counts_its_own_systems() {
    let batch: Batch<f64> = ragged([chain(40, 2.0), chain(40, 2.5)]);
    let watch = Watch::new();
    // CG needs more than two iterations on the first system only.
    let options = SolveOptions::new().method(Method::Cg).preconditioner(Preconditioner::None);
    let limits = vec![2, 1000];
    let options = options.max_iters(limits).watch(watch.clone());
    let mut x = vec![0.0; 80];

    let mut solver = BatchSolver::new(&batch, &options).unwrap();
    let report = solver.solve(&batch, &rhs(&batch, 1), &mut x).unwrap();

    assert!(report.runs.len() > 1);
    assert_eq!(watch.progress().systems, 1);
    assert_eq!(watch.progress().ended, 1);
}

#[test]
fn a_stopped_solve_says_how_far_it_came_and_the_next_one_is_whole() {
    let executor = Emulator::new(Order::Forward);
    let batch = ragged::<f64>(patterns(400));
    let b = rhs(&batch, 1);
    let guesses = vec![0.25; b.len()];
    for backend in [Backend::Cpu, item_by_item(&executor)] {
        let (watch, _) = recording(1);
        let options = cg().watch(watch.clone());
        let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
        let mut x = guesses.clone();

        let error = solver.solve(&batch, &b, &mut x).unwrap_err();

        let SolveError::Stopped { ended, systems } = error else { panic!("{error}") };
        assert!((1..400).contains(&ended) && systems == 400, "{ended} of {systems}");
        let untouched = x.iter().filter(|&&x| x == 0.25).count();
        assert!(untouched > 0, "systems that were not begun keep their guesses");
        let told = format!("the solve was stopped: {ended} of 400 systems had ended");
        assert_eq!(SolveError::Stopped { ended, systems }.to_string(), told);
        assert!(x.iter().all(|x| x.is_finite()));
        assert!(!watch.is_stopped());
    }
    let options = cg().watch(Watch::new());
    let mut solver = BatchSolver::new(&batch, &options).unwrap();
    let mut x = guesses;
    assert!(solver.solve(&batch, &b, &mut x).unwrap().all_converged());
}

#[test]
fn a_request_between_solves_stops_the_next_one_before_it_begins() {
    let executor = Emulator::new(Order::Forward);
    let batch = ragged::<f64>(patterns(10));
    let b = rhs(&batch, 1);
    let lu = one_step().method(Method::Lu);
    for backend in [Backend::Cpu, gpu(&executor)] {
        for options in [cg(), lu.clone(), composed()] {
            let watch = Watch::new();
            let options = options.watch(watch.clone());
            let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
            let mut x = vec![0.5; b.len()];
            watch.stop();

            let error = solver.solve(&batch, &b, &mut x).unwrap_err();

            assert!(matches!(error, SolveError::Stopped { ended: 0, systems: 10 }), "{error}");
            assert_eq!(x, vec![0.5; b.len()]);
            assert!(solver.solve(&batch, &b, &mut x).unwrap().all_converged());
        }
    }
}

#[test]
fn kept_factors_and_composed_iterations_stop_too() {
    let executor = Emulator::new(Order::Forward);
    let batch = ragged::<f64>((0..64).map(|item| chain(30, 2.5 + 0.1 * item as f64)));
    let b = rhs(&batch, 1);
    let watch = Watch::new();
    let options = one_step().method(Method::Lu).watch(watch.clone());
    let mut solver = BatchSolver::new(&batch, &options).unwrap();
    solver.factor(&batch).unwrap();
    let mut x = vec![0.0; b.len()];
    watch.stop();
    let error = solver.solve_again(&b, &mut x).unwrap_err();
    assert!(matches!(error, SolveError::Stopped { ended: 0, systems: 64 }), "{error}");
    assert!(x.iter().all(|&x| x == 0.0));
    assert!(solver.solve_again(&b, &mut x).unwrap().all_converged());

    // The callback of the first system that ends stops the iterations of the others.
    let hard: Batch<f64> = ragged([chain(1, 3.0), chain(200, 2.0)]);
    let b = rhs(&hard, 1);
    for backend in [Backend::Cpu, gpu(&executor)] {
        let (watch, _) = recording(1);
        let options = composed().watch(watch);
        let found = solve_on_executor(&backend, &hard, &b, None, &options);
        assert!(matches!(found, Err(SolveError::Stopped { .. })));
    }
}

#[test]
fn a_stopped_composed_solve_leaves_numbers_without_its_scales() {
    // Iterations work on b 2^-scale, and on a scaled x.
    let batch: Batch<f32> = ragged([chain(1, 3.0), chain(200, 2.0)]);
    let b: Vec<f32> = rhs(&batch, 1).iter().map(|b: &f32| b * 1e12).collect();
    let (watch, _) = recording(1);
    let options = composed().watch(watch);
    let mut x = vec![1e12; b.len()];
    let mut solver = BatchSolver::new(&batch, &options).unwrap();
    assert!(matches!(solver.solve(&batch, &b, &mut x), Err(SolveError::Stopped { .. })));
    // The iterates of the system that had not ended are of the size of the guess, not of that by
    // 2^-scale.
    assert!(x[1..].iter().all(|x| (1e11..1e13).contains(x)), "{x:?}");
}

/// Stops a solve of one system of 90,000 rows after a tenth of a second, and returns how long it
/// took to end, and its x.
fn stop_large(options: &SolveOptions) -> (Duration, Vec<f64>) {
    let batch = Batch::from(laplace(Stencil::Point5, &[300, 300]).unwrap());
    let b = vec![1.0; 90_000];
    let watch = Watch::new();
    let mut solver = BatchSolver::new(&batch, &options.clone().watch(watch.clone())).unwrap();
    let mut x = vec![0.0; b.len()];
    let asked = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        watch.stop();
        Instant::now()
    });

    let error = solver.solve(&batch, &b, &mut x).unwrap_err();

    let ended = Instant::now();
    assert!(matches!(error, SolveError::Stopped { systems: 1, .. }), "{error}");
    (ended.duration_since(asked.join().unwrap()), x)
}

#[test]
fn the_iterations_of_one_large_system_stop() {
    // The tolerance is below what rounding allows: without the stop they take minutes.
    let endless = SolveOptions::new().rel_tol(0.0).max_iters(1_000_000).max_restarts(1_000_000);
    let ilu0 = "ilu0".parse().unwrap();
    for (method, precond) in [
        (Method::Cg, Preconditioner::None),
        (Method::BiCgStab, Preconditioner::None),
        (Method::BiCgStab, ilu0),
    ] {
        let options = endless.clone().method(method).preconditioner(precond);
        let (took, x) = stop_large(&options);
        assert!(took < Duration::from_secs(1), "{method} {took:?}");
        // x is the better of guess and iterate.
        assert!(x.iter().all(|x| x.is_finite()), "{method}");
    }
    let composed = endless.method(Method::Cg).engine(Engine::Composed(SpmvOptions::default()));
    let (took, _) = stop_large(&composed.preconditioner(Preconditioner::None));
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn the_factorisation_of_one_large_system_stops() {
    let (took, x) = stop_large(&SolveOptions::new().method(Method::Lu));
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(x.iter().all(|&x| x == 0.0));
}
