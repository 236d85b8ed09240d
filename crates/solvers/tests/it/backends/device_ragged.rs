//! Ragged batches that stay on the device: the same verdicts, bits and reports as from the host.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, KernelBuffer};
use sparsebatch_formats::{Batch, Csr, CsrPattern, RaggedCsr};
use sparsebatch_solvers::gpu::Guess;
use sparsebatch_solvers::{
    AdjointSolver, Backend, DeviceData, DeviceSolver, Method, Preconditioner, SolveError,
    SolveOptions, Status,
};

use crate::backends::common::{chain, dense, patterns, ragged, rhs};
use crate::backends::device::{agree, assert_same, from_host, methods, values_of};
use crate::common::cases;

/// Healthy systems beside a singular one without a solution, one that is not finite, and one whose
/// diagonal has zeros.
fn with_failing() -> Vec<Csr<f64>> {
    let mut matrices = patterns::<f64>(20);
    matrices[6].values_mut().fill(1.0);
    matrices[9].values_mut()[4] = f64::NAN;
    matrices[11].values_mut()[0] = 0.0;
    matrices
}

#[test]
fn the_device_says_what_the_host_says_of_ragged_batches() {
    for options in methods() {
        for &nrhs in cases(&[1, 3]) {
            for &x0 in cases(&[false, true]) {
                let options = options.clone().nrhs(nrhs);
                assert!(agree(&ragged(patterns::<f64>(17)), x0, &options).all_converged());
                let report = agree(&ragged(with_failing()), x0, &options);
                assert_eq!(report.systems[9 * nrhs].outcome.status, Status::NonFinite);
            }
        }
        // Kernels of the others in f32 are not among the emulated ones.
        if options.method == Method::Lu || options.preconditioner == Preconditioner::ILU0 {
            assert!(agree(&ragged(patterns::<f32>(11)), false, &options).all_converged());
        }
    }
}

#[test]
fn systems_of_a_ragged_batch_keep_their_own_limits() {
    let batch = ragged(patterns::<f64>(10));
    let limits: Vec<u32> = (0..10).map(|system| if system % 3 == 0 { 2 } else { 500 }).collect();
    let tolerances: Vec<f64> = (0..10).map(|system| 10f64.powi(-2 - system)).collect();
    for options in methods() {
        let options = options.max_iters(limits.clone()).rel_tol(tolerances.clone());
        agree(&batch, false, &options);
        agree(&batch, false, &options.fallback(false));
    }
}

#[test]
fn patterns_and_values_on_the_device_are_a_batch() {
    let executor = Emulator::new(Order::Forward);
    let matrices = patterns::<f64>(10);
    let batch = ragged(matrices.clone());
    let own: Vec<CsrPattern> = matrices.iter().map(|matrix| (**matrix.pattern()).clone()).collect();
    let b = rhs(&batch, 1);
    let values = executor.upload(&values_of(&batch)).unwrap();
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.alloc(b.len()).unwrap();
    let data = DeviceData::new();
    for options in methods() {
        let solver = DeviceSolver::with_values(&executor, &own[..], &values, &options, data);
        let report = solver.unwrap().solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
        let (expected, host) = from_host(&batch, &b, None, &options);
        assert_same(&report.systems, &host.systems);
        assert_eq!(executor.download(&x).unwrap(), expected);
    }
    let options = SolveOptions::new();
    let others = DeviceSolver::with_values(&executor, &own[1..], &values, &options, data);
    let error = others.err().unwrap().to_string();
    assert!(error.starts_with("values has"), "{error}");
}

#[test]
fn transposed_systems_of_kept_matrices_end_as_those_of_the_host() {
    let executor = Emulator::new(Order::Forward);
    let backend = Backend::Gpu(sparsebatch_solvers::Gpu::new(executor.clone()).or_cpu(true));
    let batch = ragged(with_failing());
    let b = rhs(&batch, 1);
    let values = executor.upload(&values_of(&batch)).unwrap();
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.alloc(b.len()).unwrap();
    let statuses = |report: &sparsebatch_solvers::BatchReport| -> Vec<Status> {
        report.systems.iter().map(|system| system.outcome.status).collect()
    };
    for options in methods() {
        let mut solver = DeviceSolver::new(&executor, &batch, &options).unwrap();
        solver.factor(&values).unwrap();
        for options in [options.clone(), options.clone().max_iters(1).fallback(false), options] {
            let mut expected = vec![0.0; b.len()];
            let adjoint = AdjointSolver::on_executor(&backend, &batch, None, &options);
            let host = adjoint.unwrap().solve(&batch, &b, &mut expected).unwrap();
            if options.fallback {
                solver.replace_limits(&options).unwrap();
                let report = solver.solve_transposed_again(&on_b, Guess::Zero, &mut x).unwrap();
                assert_eq!(statuses(&report), statuses(&host), "{options:?}");
                let found = executor.download(&x).unwrap();
                let apart = |(a, b): (&f64, &f64)| (a - b).abs() / (1.0 + b.abs());
                let apart = found.iter().zip(&expected).map(apart).fold(0.0, f64::max);
                assert!(apart < 1e-7, "{options:?}: {apart:e}");
            } else {
                // One iteration at most: the limit is the transposed side's, too.
                solver.replace_limits(&options).unwrap();
                let report = solver.solve_transposed_again(&on_b, Guess::Zero, &mut x).unwrap();
                let first = |s: &sparsebatch_solvers::SystemReport| {
                    let is_later = s.rung != sparsebatch_solvers::Rung::First;
                    s.outcome.iterations <= 1 || is_later || s.outcome.status == Status::Singular
                };
                let worst = report.systems.iter().find(|&system| !first(system));
                assert!(worst.is_none(), "{worst:?} {options:?}");
            }
        }
    }
}

#[test]
fn limits_of_ragged_batches_are_replaced() {
    let executor = Emulator::new(Order::Forward);
    let batch = ragged(patterns::<f64>(10));
    let b = rhs(&batch, 1);
    let values = executor.upload(&values_of(&batch)).unwrap();
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.alloc(b.len()).unwrap();
    for options in methods() {
        let limited = |most: u32| {
            options
                .clone()
                .max_iters((0..10).map(|s| if s == 3 { 1 } else { most }).collect::<Vec<_>>())
        };
        let mut solver = DeviceSolver::new(&executor, &batch, &limited(500)).unwrap();
        for options in [limited(2), limited(500)] {
            solver.replace_limits(&options).unwrap();
            let report = solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
            let (expected, host) = from_host(&batch, &b, None, &options);
            assert_same(&report.systems, &host.systems);
            assert_eq!(executor.download(&x).unwrap(), expected);
        }
    }
}

#[test]
fn matrices_of_ragged_batches_are_kept() {
    let executor = Emulator::new(Order::Forward);
    let batch = ragged(with_failing());
    for options in methods() {
        for transposed in [false, true] {
            let data = DeviceData::new().transposed(transposed);
            let mut solver = DeviceSolver::with_data(&executor, &batch, &options, data).unwrap();
            let b = rhs(&batch, 1);
            let on_b = executor.upload(&b).unwrap();
            let mut x = executor.alloc(b.len()).unwrap();
            let error = solver.solve_again(&on_b, Guess::Zero, &mut x).unwrap_err();
            assert!(matches!(error, SolveError::NotFactored), "{error}");
            let mut values = executor.upload(&values_of(&batch)).unwrap();
            solver.factor(&values).unwrap();
            let has_factors =
                options.method == Method::Lu || options.preconditioner == Preconditioner::ILU0;
            assert!(!has_factors || solver.keeps_factors());
            executor.fill_zero(&mut values).unwrap();

            let report = solver.solve_again(&on_b, Guess::Zero, &mut x).unwrap();
            let found = executor.download(&x).unwrap();

            let mut expected = vec![0.0; b.len()];
            let host = match transposed {
                true => {
                    let mut adjoint = AdjointSolver::on(&Backend::Cpu, &batch, &options).unwrap();
                    adjoint.solve(&batch, &b, &mut expected).unwrap()
                }
                false => {
                    let (x, report) = from_host(&batch, &b, None, &options);
                    expected = x;
                    report
                }
            };
            for (system, (found, expected)) in report.systems.iter().zip(&host.systems).enumerate()
            {
                assert_eq!(found.outcome.status, expected.outcome.status, "{system}");
            }
            for item in 0..batch.nitems() {
                let rows = batch.row_offset(item)..batch.row_offset(item + 1);
                let converged = report.systems[item].outcome.status == Status::Converged;
                // Solutions of singular systems are not unique.
                let is_unique = converged && item != 6 && !report.systems[item].singular;
                for row in rows.filter(|_| is_unique) {
                    let apart = (found[row] - expected[row]).abs();
                    assert!(
                        apart < 1e-6 * (1.0 + expected[row].abs()),
                        "{options:?} {item}: {apart}"
                    );
                }
            }
        }
    }
}

#[test]
fn schemes_of_a_ragged_batch_are_solved_by_their_own() {
    // Symmetric ones for CG, others for BiCGStab, small full ones for elimination.
    let mut matrices: Vec<Csr<f64>> = (0..6).map(|item| chain(12, 2.5 + item as f64)).collect();
    matrices.extend((0..4).map(|item| dense(6, 9.0 + item as f64)));
    for item in [1, 4, 7] {
        matrices[item].values_mut()[1] = 0.25;
    }
    let report = agree(&ragged(matrices), false, &SolveOptions::new());
    assert!(report.all_converged());
    assert_eq!(report.schemes.iter().map(|scheme| scheme.systems).sum::<usize>(), 10);
}

#[test]
fn items_that_the_device_refuses_are_solved_from_the_host() {
    let mut matrices = patterns::<f64>(10);
    matrices[4] = chain(70, 2.5);
    let options = SolveOptions::new().method(Method::PivotingLu);
    let report = agree(&ragged(matrices), false, &options);
    assert!(report.all_converged());
    // None at all is an error.
    let executor = Emulator::new(Order::Forward);
    let large = ragged([chain::<f64>(70, 2.5), chain(80, 2.5)]);
    let error = DeviceSolver::new(&executor, &large, &options).err().unwrap();
    assert!(matches!(error, SolveError::Unsupported { .. }), "{error}");
}

#[test]
fn a_ragged_batch_of_one_pattern_or_of_nothing() {
    let same = ragged((0..5).map(|item| chain::<f64>(7, 2.5 + item as f64)));
    for options in methods() {
        assert!(agree(&same, true, &options).all_converged());
    }
    let executor = Emulator::new(Order::Forward);
    for options in methods() {
        let none = Batch::Ragged(RaggedCsr::<f64>::new());
        let mut solver = DeviceSolver::new(&executor, &none, &options).unwrap();
        let empty = executor.upload::<f64>(&[]).unwrap();
        let mut x = executor.upload::<f64>(&[]).unwrap();
        assert!(empty.is_empty());
        let report = solver.solve(&empty, &empty, Guess::InX, &mut x).unwrap();
        assert!(report.systems.is_empty() && report.all_converged());
    }
}

#[test]
fn wrong_lengths_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let batch = ragged(patterns::<f64>(10));
    for options in methods() {
        let mut solver = DeviceSolver::new(&executor, &batch, &options).unwrap();
        let values = executor.upload(&values_of(&batch)).unwrap();
        let b = executor.upload(&rhs(&batch, 1)).unwrap();
        let mut x = executor.upload(&vec![0.5; b.len()]).unwrap();
        let short = executor.upload(&[1.0; 9]).unwrap();
        let refused = |error: SolveError, words: &str| {
            assert!(error.to_string().contains(words), "{error}");
        };
        refused(solver.enqueue(&short, &b, Guess::Zero, &mut x).unwrap_err(), "values has 9");
        refused(solver.enqueue(&values, &short, Guess::Zero, &mut x).unwrap_err(), "b has 9");
        refused(solver.factor(&short).unwrap_err(), "values has 9");
        let mut small = executor.upload(&[0.5; 7]).unwrap();
        refused(solver.enqueue(&values, &b, Guess::Zero, &mut small).unwrap_err(), "x has 7");
        assert!(executor.download(&x).unwrap().iter().all(|&x| x == 0.5));
        assert!(solver.solve(&values, &b, Guess::Zero, &mut x).unwrap().all_converged());
    }
}
