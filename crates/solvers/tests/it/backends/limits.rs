//! Other tolerances and iteration limits for the solves of a solver that was analysed before.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Executor;
use sparsebatch_formats::Batch;
use sparsebatch_solvers::gpu::Guess;
use sparsebatch_solvers::{
    Backend, BatchSolver, Chunks, DeviceSolver, Engine, Gpu, Method, Preconditioner, SolveError,
    SolveOptions, SpmvOptions, Status, solve_on_executor,
};

use crate::backends::common::{chain, gpu, ragged, rhs};
use crate::backends::device::{uniform, values_of};
use crate::common::one_step;

fn chains(nitems: usize) -> Vec<sparsebatch_formats::Csr<f64>> {
    (0..nitems).map(|item| chain(30, 2.1 + 0.2 * item as f64)).collect()
}

/// Common limits, limits of each of `n` systems, and common ones again.
fn sequence(options: &SolveOptions, n: usize) -> Vec<SolveOptions> {
    let each = |of: fn(usize) -> f64| (0..n).map(of).collect::<Vec<_>>();
    vec![
        options.clone().max_iters(2),
        options.clone().rel_tol(each(|system| 10f64.powi(-2 - (system % 5) as i32))),
        options.clone().abs_tol(each(|system| if system % 2 == 0 { f64::INFINITY } else { 0.0 })),
        options.clone().rel_tol(1e-3),
        options.clone(),
    ]
}

#[test]
fn a_solver_with_other_limits_solves_as_one_that_was_made_with_them() {
    let executor = Emulator::new(Order::Forward);
    let in_chunks =
        Backend::Gpu(Gpu::new(executor.clone()).chunks(Chunks::default().bytes(1).at_once(1)));
    let batches: [Batch<f64>; 2] = [uniform(&chains(7)), ragged(chains(7))];
    for backend in [Backend::Cpu, gpu(&executor), in_chunks] {
        for (batch, method) in batches.iter().zip([Method::Cg, Method::BiCgStab]) {
            let options = SolveOptions::new().method(method).preconditioner(Preconditioner::None);
            let mut solver = BatchSolver::on_executor(&backend, batch, None, &options).unwrap();
            let b = rhs(batch, 1);
            for limited in sequence(&options, 7) {
                solver.replace_limits(&limited).unwrap();
                let mut x = vec![0.5; b.len()];
                let report = solver.solve(batch, &b, &mut x).unwrap();
                let guess = vec![0.5; b.len()];
                let expected =
                    solve_on_executor(&backend, batch, &b, Some(&guess), &limited).unwrap();
                assert_eq!(x, expected.x);
                assert_eq!(report.systems, expected.report.systems);
            }
        }
    }
}

#[test]
fn kept_factors_stay_when_limits_are_replaced() {
    let batch = uniform(&chains(5));
    let options = SolveOptions::new().method(Method::Lu);
    let mut solver = BatchSolver::new(&batch, &options).unwrap();
    solver.factor(&batch).unwrap();
    let b = rhs(&batch, 1);
    let skipped = options.clone().abs_tol(vec![f64::INFINITY, 0.0, f64::INFINITY, 0.0, 0.0]);
    solver.replace_limits(&skipped).unwrap();
    let guess = vec![0.25; b.len()];

    for is_transposed in [false, true] {
        let mut x = guess.clone();
        let report = match is_transposed {
            false => solver.solve_again(&b, &mut x).unwrap(),
            true => solver.solve_transposed_again(&b, &mut x).unwrap(),
        };
        assert_eq!(report.systems[0].outcome.iterations, 0);
        assert!(report.systems[1].outcome.iterations > 0);
        assert!(x[..30].iter().all(|&x| x == 0.25) && x[30..60].iter().all(|&x| x != 0.25));
    }

    solver.replace_limits(&options).unwrap();
    let report = solver.solve_again(&b, &mut guess.clone()).unwrap();
    assert!(report.systems.iter().all(|system| system.outcome.iterations > 0));
}

/// Systems whose tolerance is infinite end on entry, whatever the method, with the x they had.
#[test]
fn an_infinite_tolerance_leaves_a_system_as_it_is_on_the_device() {
    let executor = Emulator::new(Order::Forward);
    let batch = uniform(&chains(4));
    let (values, b) = (values_of(&batch), rhs(&batch, 1));
    let (on_values, on_b) = (executor.upload(&values).unwrap(), executor.upload(&b).unwrap());
    let methods = [
        (Method::Cg, Preconditioner::Jacobi),
        (Method::BiCgStab, "ilu0".parse().unwrap()),
        (Method::Lu, Preconditioner::None),
        (Method::PivotingLu, Preconditioner::None),
    ];
    for (method, precond) in methods {
        let options = SolveOptions::new().method(method).preconditioner(precond);
        let mut solver = DeviceSolver::new(&executor, &batch, &options).unwrap();
        let tolerances = vec![0.0, f64::INFINITY, 0.0, f64::INFINITY];
        solver.replace_limits(&options.clone().abs_tol(tolerances)).unwrap();
        let mut x = executor.upload(&vec![0.25; b.len()]).unwrap();

        let report = solver.solve(&on_values, &on_b, Guess::InX, &mut x).unwrap();

        let x = executor.download(&x).unwrap();
        for (system, x) in x.chunks(30).enumerate() {
            let outcome = &report.systems[system].outcome;
            assert_eq!(outcome.status, Status::Converged, "{method}");
            let is_left = system % 2 == 1;
            assert_eq!(x.iter().all(|&x| x == 0.25), is_left, "{method} {system}");
            assert_eq!(outcome.iterations == 0, is_left, "{method} {system}");
        }
    }
}

#[test]
fn limits_that_do_not_fit_are_refused_and_change_nothing() {
    let batch = uniform(&chains(3));
    let options = SolveOptions::new().method(Method::Cg);
    let mut solver = BatchSolver::new(&batch, &options).unwrap();
    for bad in [options.clone().rel_tol(vec![1e-3; 2]), options.clone().abs_tol(-1.0)] {
        assert!(matches!(solver.replace_limits(&bad), Err(SolveError::Argument(_))));
    }
    let b = rhs(&batch, 1);
    let mut x = vec![0.0; b.len()];
    assert!(solver.solve(&batch, &b, &mut x).unwrap().all_converged());
}

/// Iterations over products count to the largest limit of any system.
#[test]
fn limits_of_composed_solves_are_replaced() {
    let executor = Emulator::new(Order::Forward);
    let batch = uniform(&chains(4));
    let b = rhs(&batch, 1);
    let options = one_step().method(Method::Cg).max_iters(1);
    let composed = options.clone().engine(Engine::Composed(SpmvOptions::default()));
    for options in [composed, options.history(true)] {
        let mut solver = BatchSolver::on_executor(&gpu(&executor), &batch, None, &options).unwrap();
        let solve = |solver: &mut BatchSolver<f64>| {
            let mut x = vec![0.0; b.len()];
            let report = solver.solve(&batch, &b, &mut x).unwrap();
            report.systems.iter().map(|system| system.outcome.status).collect::<Vec<_>>()
        };
        assert_eq!(solve(&mut solver), [Status::MaxIterations; 4]);
        for bad in [options.clone().rel_tol(vec![1e-3; 2]), options.clone().abs_tol(-1.0)] {
            assert!(matches!(solver.replace_limits(&bad), Err(SolveError::Argument(_))));
        }
        assert_eq!(solve(&mut solver), [Status::MaxIterations; 4]);

        solver.replace_limits(&options.clone().max_iters(1000)).unwrap();

        assert_eq!(solve(&mut solver), [Status::Converged; 4]);
    }
}
