//! Matrices and factors that stay on the GPU: the verdicts of whole solves, for batches of every kind.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Executor;
use sparsebatch_formats::{Batch, BatchValues, Csr, UniformBatch};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::{GpuSolveError, Guess, SolverTuning, solver_for};
use sparsebatch_solvers::{
    Backend, BatchSolver, Chunks, Gpu, LuForm, Method, Preconditioner, Rung, Scheme, SolveError,
    SolveOptions, Status,
};

use crate::backends::common::{chain, dense, gpu, gpu_or_cpu, patterns, ragged, rhs};
use crate::common::cases;

fn methods() -> [SolveOptions; 6] {
    let of =
        |method, preconditioner| SolveOptions::new().method(method).preconditioner(preconditioner);
    [
        of(Method::Lu, Preconditioner::Auto),
        of(Method::Lu, Preconditioner::Auto).lu_form(LuForm::BySystem),
        of(Method::BiCgStab, Preconditioner::ILU0),
        of(Method::Cg, Preconditioner::IC0),
        of(Method::BiCgStab, Preconditioner::None),
        of(Method::PivotingLu, Preconditioner::Auto),
    ]
}

/// Uniform, interleaved, shared and ragged batches; several patterns make several parts.
fn batches() -> Vec<Batch<f64>> {
    let chains: Vec<Csr<f64>> = (0..7).map(|item| chain(9, 2.3 + 0.1 * item as f64)).collect();
    let values: Vec<f64> = chains.iter().flat_map(|m| m.values().to_vec()).collect();
    let pattern = chains[0].pattern();
    let uniform = |values| UniformBatch::try_new(pattern.clone(), 7, values).unwrap();
    let item_major = uniform(BatchValues::ItemMajor(values));
    vec![
        Batch::Uniform(item_major.to_interleaved()),
        Batch::Uniform(item_major),
        Batch::Uniform(uniform(BatchValues::Shared(chains[2].values().to_vec()))),
        ragged(patterns(13)),
    ]
}

/// Statuses and rungs, and solutions up to rounding, of a solve with kept matrices and a whole one.
fn agree(solver: &mut BatchSolver<f64>, batch: &Batch<f64>, b: &[f64], what: &str) {
    let (mut whole, mut again) = (vec![0.0; b.len()], vec![0.0; b.len()]);
    let report = solver.solve_again(b, &mut again).unwrap();
    let expected = solver.solve(batch, b, &mut whole).unwrap();
    for (found, expected) in report.systems.iter().zip(&expected.systems) {
        assert_eq!(found.outcome.status, expected.outcome.status, "{what}");
        assert_eq!(found.rung, expected.rung, "{what}");
    }
    for (found, expected) in again.iter().zip(&whole) {
        let close = (found - expected).abs() <= 1e-8 * (1.0 + expected.abs());
        assert!(close || found.is_nan() && expected.is_nan(), "{what}: {found} {expected}");
    }
}

#[test]
fn kept_matrices_are_solved_as_given_ones() {
    for batch in batches() {
        for options in methods() {
            for nrhs in [1, 3] {
                let options = options.clone().nrhs(nrhs);
                let what = format!("{} {:?} {nrhs}", options.method, options.preconditioner);
                let backend = gpu_or_cpu(&Emulator::new(Order::Forward));
                let mut solver =
                    BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
                let has_factors = options.method == Method::Lu
                    || matches!(
                        options.preconditioner,
                        Preconditioner::Ilu0 { .. } | Preconditioner::Ic0 { .. }
                    );
                assert_eq!(solver.keeps_factors(), has_factors, "{what}");
                solver.factor(&batch).unwrap();
                let b = rhs(&batch, nrhs);
                // The second time another batch has been on the device.
                agree(&mut solver, &batch, &b, &what);
                agree(&mut solver, &batch, &b, &what);
                let mut x = vec![0.0; b.len()];
                assert!(solver.solve_again(&b, &mut x).unwrap().all_converged(), "{what}");
            }
        }
    }
}

#[test]
fn kept_matrices_outlive_changes_of_the_batch() {
    let mut matrices: Vec<Csr<f64>> = (0..4).map(|item| dense(6, 5.0 + item as f64)).collect();
    let batch = ragged(matrices.clone());
    let options = SolveOptions::new().method(Method::Lu);
    let backend = gpu(&Emulator::new(Order::Forward));
    let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
    let b = rhs(&batch, 1);
    let (mut first, mut other, mut again) = (vec![0.0; 24], vec![0.0; 24], vec![0.0; 24]);
    solver.factor(&batch).unwrap();
    solver.solve_again(&b, &mut first).unwrap();
    matrices.iter_mut().for_each(|matrix| matrix.values_mut().iter_mut().for_each(|v| *v *= 2.0));
    solver.solve(&ragged(matrices), &b, &mut other).unwrap();
    solver.solve_again(&b, &mut again).unwrap();
    assert_eq!(first, again);
    assert!(first.iter().zip(&other).any(|(a, b)| a != b));
}

#[test]
fn systems_that_fail_climb_with_their_kept_matrices() {
    let mut matrices: Vec<Csr<f64>> = (0..5).map(|item| dense(2, 3.0 + item as f64)).collect();
    // No pivot in any order, but rows that can be exchanged; and a zero matrix.
    matrices[1].values_mut().copy_from_slice(&[0.0, 2.0, 4.0, 0.0]);
    matrices[3].values_mut().fill(0.0);
    let batch = ragged(matrices);
    let options = SolveOptions::new().method(Method::Lu);
    let backend = gpu_or_cpu(&Emulator::new(Order::Forward));
    let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
    solver.factor(&batch).unwrap();
    let b = vec![2.0, 8.0, 2.0, 8.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
    let mut x = vec![0.0; 10];
    let report = solver.solve_again(&b, &mut x).unwrap();
    assert_eq!(report.systems[1].rung, Rung::StaticPivotingLu);
    assert_eq!(x[2..4], [2.0, 1.0]);
    assert_eq!(report.systems[3].outcome.status, Status::Singular);
    let healthy = [0, 1, 2, 4].map(|system| report.systems[system].outcome.status);
    assert_eq!(healthy, [Status::Converged; 4]);
}

#[test]
fn other_patterns_and_missing_matrices_are_refused() {
    let batch = ragged((0..3).map(|item| chain::<f64>(5, 3.0 + item as f64)));
    let options = SolveOptions::new().method(Method::Lu);
    let backend = gpu(&Emulator::new(Order::Forward));
    let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
    let (b, mut x) = (vec![1.0; 15], vec![0.0; 15]);
    assert!(matches!(solver.solve_again(&b, &mut x), Err(SolveError::NotFactored)));
    solver.factor(&batch).unwrap();
    let other = ragged((0..3).map(|item| dense::<f64>(5, 3.0 + item as f64)));
    assert!(matches!(solver.factor(&other), Err(SolveError::Cpu(_))));
    assert!(matches!(solver.solve_again(&b, &mut x), Err(SolveError::NotFactored)));
}

/// In chunks only the matrices are kept, on the host.
#[test]
fn batches_in_chunks_are_kept_on_the_host() {
    let matrices: Vec<Csr<f64>> = (0..400).map(|item| chain(9, 2.3 + 0.01 * item as f64)).collect();
    let values: Vec<f64> = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
    let pattern = matrices[0].pattern().clone();
    let batch = UniformBatch::try_new(pattern, 400, BatchValues::ItemMajor(values)).unwrap();
    let batch = Batch::Uniform(batch);
    let options = SolveOptions::new().method(Method::Lu);
    let chunks = Chunks::default().bytes(20 << 10);
    let backend: Backend<Emulator> =
        Backend::Gpu(Gpu::new(Emulator::new(Order::Forward)).chunks(chunks));
    let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
    assert!(!solver.keeps_factors());
    solver.factor(&batch).unwrap();
    let b = rhs(&batch, 1);
    let mut x = vec![0.0; b.len()];
    let report = solver.solve_again(&b, &mut x).unwrap();
    assert!(report.all_converged() && report.runs[0].chunks > 1, "{:?}", report.runs);
}

/// Limits and tolerances are those of each system on the ladder too.
#[test]
fn limits_of_systems_go_with_them() {
    let matrices: Vec<Csr<f64>> = (0..6).map(|item| chain(40, 2.2 + 0.1 * item as f64)).collect();
    let batch = ragged(matrices);
    let mut tolerances = vec![1e-2; 6];
    (tolerances[3], tolerances[5]) = (1e-12, 1e-11);
    let options = SolveOptions::new()
        .method(Method::BiCgStab)
        .preconditioner(Preconditioner::BLOCK_JACOBI)
        .rel_tol(tolerances.clone())
        .max_iters(vec![1000, 1000, 1000, 2, 1000, 2]);
    let backend = gpu_or_cpu(&Emulator::new(Order::Forward));
    let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
    assert!(solver.keeps_factors());
    solver.factor(&batch).unwrap();
    let b = rhs(&batch, 1);
    let mut x = vec![0.0; b.len()];
    let report = solver.solve_again(&b, &mut x).unwrap();
    assert!(report.all_converged(), "{:?}", report.systems);
    for (system, tolerance) in report.systems.iter().zip(&tolerances) {
        let outcome = &system.outcome;
        assert!(outcome.residual_norm <= tolerance * outcome.rhs_norm, "{outcome:?}");
    }
    assert!(report.systems[3].rung > Rung::First && report.systems[0].rung == Rung::First);
}

/// A guess that is not finite ends an iteration; a factorisation takes it as 0.
#[test]
fn guesses_that_are_not_finite_end_as_in_whole_solves() {
    let batch = ragged((0..3).map(|item| chain::<f64>(6, 2.5 + item as f64)));
    let of = |method, preconditioner| {
        SolveOptions::new().method(method).preconditioner(preconditioner).fallback(false)
    };
    for options in
        [of(Method::Lu, Preconditioner::Auto), of(Method::BiCgStab, Preconditioner::ILU0)]
    {
        let backend = gpu(&Emulator::new(Order::Forward));
        let mut solver = BatchSolver::on_executor(&backend, &batch, None, &options).unwrap();
        solver.factor(&batch).unwrap();
        let b = rhs(&batch, 1);
        let mut guesses = vec![0.0; b.len()];
        guesses[7] = f64::NAN;
        let (mut x, mut y) = (guesses.clone(), guesses);
        let again = solver.solve_again(&b, &mut x).unwrap();
        let whole = solver.solve(&batch, &b, &mut y).unwrap();
        for (again, whole) in again.systems.iter().zip(&whole.systems) {
            assert_eq!(again.outcome.status, whole.outcome.status);
        }
        assert_eq!(again.all_converged(), options.method == Method::Lu);
    }
}

/// Factors that do not fit in memory are made at each solve.
#[test]
fn factors_beyond_memory_are_not_kept() {
    let matrices: Vec<Csr<f64>> = (0..40).map(|item| dense(12, 9.0 + item as f64)).collect();
    let batch = ragged(matrices);
    let options = SolveOptions::new().method(Method::Lu);
    let executor = Emulator::new(Order::Forward);
    let whole = Gpu::new(executor.clone());
    let solver = BatchSolver::on_executor(&Backend::Gpu(whole), &batch, None, &options).unwrap();
    let needed = executor.most_bytes_in_use();
    drop(solver);
    let limited = Gpu::new(executor).memory_limit(needed + 2000);
    let mut solver =
        BatchSolver::on_executor(&Backend::Gpu(limited), &batch, None, &options).unwrap();
    assert!(solver.keeps_factors());
    solver.factor(&batch).unwrap();
    assert!(!solver.keeps_factors());
    let b = rhs(&batch, 1);
    let mut x = vec![0.0; b.len()];
    assert!(solver.solve_again(&b, &mut x).unwrap().all_converged());
}

/// Plans that keep factors refuse solves without any.
#[test]
fn plans_without_factors_say_so() {
    let executor = Emulator::new(Order::Forward);
    let matrix = chain::<f64>(6, 2.5);
    let up = |v: &[f64]| executor.upload(v).unwrap();
    let (values, b, mut x) = (up(matrix.values()), up(&[1.0; 6]), up(&[0.0; 6]));
    for (scheme, keeps) in [
        (Scheme::Lu, true),
        (Scheme::BiCgStab(Preconditioner::ILU0), true),
        (Scheme::Cg(Preconditioner::Jacobi), false),
        (Scheme::PivotingLu, false),
    ] {
        let of = (matrix.view().pattern(), 1);
        let (options, tuning) = (SolveOptions::new(), SolverTuning::default());
        let mut plan = solver_for::<_, f64>(&executor, scheme, of, &options, &tuning).unwrap();
        assert_eq!(plan.keeps_factors(), keeps, "{scheme}");
        let again = plan.solve_again(&values, &b, Guess::Zero, &mut x);
        let is_refused = matches!(
            again,
            Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "factors", .. }))
        );
        assert_eq!(is_refused, keeps, "{scheme}");
        let kept = plan.factor(&values);
        assert_eq!(matches!(kept, Err(GpuSolveError::Unsupported { .. })), !keeps, "{scheme}");
        plan.solve_again(&values, &b, Guess::Zero, &mut x).unwrap();
        plan.forget_factors();
        assert_eq!(plan.solve_again(&values, &b, Guess::Zero, &mut x).is_err(), keeps);
        assert_eq!(plan.explain().kept_bytes, 0);
    }
}

/// The batch with its values changed by `share` of them, those of entries alike in all items.
fn changed(batch: &Batch<f64>, share: f64) -> Batch<f64> {
    let mut changed = batch.clone();
    let each = |(k, value): (usize, &mut f64)| *value *= 1.0 + share * (1.0 + (k % 3) as f64);
    match &mut changed {
        Batch::Uniform(uniform) => uniform.values_mut().iter_mut().enumerate().for_each(each),
        Batch::Ragged(ragged) => ragged.values_mut().iter_mut().enumerate().for_each(each),
    }
    changed
}

/// Solutions of a batch near to the one that was factorised are those of a whole solve, within
/// tolerance.
#[test]
fn kept_factors_solve_matrices_that_are_near() {
    let backends = [Backend::Cpu, gpu_or_cpu(&Emulator::new(Order::Forward))];
    let backends = cases(&backends);
    for (batch, backend) in
        batches().iter().flat_map(|batch| backends.iter().map(move |b| (batch, b)))
    {
        for options in methods() {
            for &(nrhs, share) in cases(&[(1, 0.0), (1, 1e-4), (1, 0.3), (3, 1e-4)]) {
                let options = options.clone().nrhs(nrhs);
                let what =
                    format!("{} {:?} {nrhs} {share}", options.method, options.preconditioner);
                let (b, near) = (rhs(batch, nrhs), changed(batch, share));
                let mut solver = BatchSolver::on_executor(backend, batch, None, &options).unwrap();
                solver.factor(batch).unwrap();
                let (mut x, mut expected) = (vec![0.0; b.len()], vec![0.0; b.len()]);

                let report = solver.solve_near(&near, &b, &mut x).unwrap();

                let mut whole = BatchSolver::on_executor(backend, &near, None, &options).unwrap();
                assert!(whole.solve(&near, &b, &mut expected).unwrap().all_converged(), "{what}");
                assert!(report.all_converged(), "{what}");
                let apart = |(x, y): (&f64, &f64)| (x - y).abs() / (1.0 + y.abs());
                let apart = x.iter().zip(&expected).map(apart).fold(0.0, f64::max);
                assert!(apart < 1e-7, "{what}: {apart:e}");
                // The kept matrices are as before.
                agree(&mut solver, batch, &b, &what);
            }
        }
    }
}

/// A change that refinement overcomes takes steps of refinement with the old factors; a large one
/// takes factors of its own.
#[test]
fn refinement_serves_small_changes_and_factors_large_ones() {
    let batch = &batches()[1];
    let b = rhs(batch, 1);
    let options = SolveOptions::new().method(Method::Lu).fallback(false);
    let mut solver = BatchSolver::new(batch, &options).unwrap();
    solver.factor(batch).unwrap();
    for (share, refines) in [(0.0, false), (1e-4, true), (0.3, false)] {
        let mut x = vec![0.0; b.len()];
        let report = solver.solve_near(&changed(batch, share), &b, &mut x).unwrap();
        assert!(report.all_converged());
        let iterations = report.systems.iter().map(|system| system.outcome.iterations);
        assert!(iterations.clone().all(|n| (n > 1) == refines), "{share}: {iterations:?}");
    }
}

#[test]
fn near_matrices_that_fail_end_as_in_a_whole_solve() {
    let batch = &batches()[1];
    let b = rhs(batch, 1);
    for backend in [Backend::Cpu, gpu_or_cpu(&Emulator::new(Order::Forward))] {
        for options in methods().map(|options| options.fallback(false)) {
            let mut near = changed(batch, 1e-4);
            let Batch::Uniform(uniform) = &mut near else { unreachable!() };
            let nnz = uniform.values_mut().len() / 7;
            uniform.values_mut()[2 * nnz] = f64::NAN;
            uniform.values_mut()[4 * nnz..5 * nnz].fill(0.0);
            let mut solver = BatchSolver::on_executor(&backend, batch, None, &options).unwrap();
            solver.factor(batch).unwrap();
            let (mut x, mut expected) = (vec![0.25; b.len()], vec![0.25; b.len()]);

            let found = solver.solve_near(&near, &b, &mut x).unwrap();
            let mut whole = BatchSolver::on_executor(&backend, &near, None, &options).unwrap();
            let whole = whole.solve(&near, &b, &mut expected).unwrap();

            for (system, (found, whole)) in found.systems.iter().zip(&whole.systems).enumerate() {
                let statuses = (found.outcome.status, whole.outcome.status);
                assert_eq!(statuses.0, statuses.1, "{system} {options:?}");
            }
            let short = solver.solve_near(&near, &b[1..], &mut x).unwrap_err();
            assert!(matches!(short, SolveError::Argument(_)), "{short}");
            let others = solver.solve_near(&batches()[3], &b, &mut x).unwrap_err();
            assert!(matches!(others, SolveError::Argument(_)), "{others}");
        }
    }
}
