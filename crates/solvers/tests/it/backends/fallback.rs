//! Systems and options that the GPU does not support, and the ladder.

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::Csr;
use sparsebatch_solve_core::{FormatChoice, KernelChoice};
use sparsebatch_solvers::{
    Backend, BatchSolver, Engine, Method, Preconditioner, Rung, SolveError, SolveOptions,
    SpmvOptions, Status, solve, solve_on_executor,
};

use crate::backends::common::{agree, bits, cg, chain, gpu, gpu_or_cpu, patterns, ragged, rhs};

fn emulator() -> Emulator {
    Emulator::new(Order::Forward)
}

/// Options that no plan of the GPU supports.
fn unsupported() -> Vec<SolveOptions> {
    let dia = SpmvOptions::default().format(FormatChoice::Dia);
    vec![
        cg().preconditioner(Preconditioner::BLOCK_JACOBI).history(true),
        cg().engine(Engine::Composed(dia)),
    ]
}

#[test]
fn what_the_gpu_cannot_do_is_refused_in_one_line() {
    let batch = ragged(patterns::<f64>(9));
    for options in unsupported() {
        let executor = emulator();
        match BatchSolver::on_executor(&gpu(&executor), &batch, None, &options).map(drop) {
            Err(error @ SolveError::Unsupported { .. }) => {
                let text = error.to_string();
                assert!(
                    text.contains("not supported on the GPU") && !text.contains('\n'),
                    "{text}"
                );
            }
            other => panic!("{options:?}: {other:?}"),
        }
        assert!(executor.launched().is_empty());
    }
}

#[test]
fn the_cpu_takes_it_where_it_may_and_the_report_says_so() {
    let batch = ragged(patterns::<f64>(9));
    let b = rhs(&batch, 1);
    for options in unsupported() {
        let solution =
            solve_on_executor(&gpu_or_cpu(&emulator()), &batch, &b, None, &options).unwrap();
        let cpu = solve(&batch, &b, None, &options).unwrap();

        assert_eq!(solution.x, cpu.x);
        let report = &solution.report;
        assert_eq!((report.backend.name(), &report.device), ("cpu", &cpu.report.device));
        assert_eq!(report.kernel, cpu.report.kernel);
        assert!(report.cpu_reason().unwrap().contains("not supported on the GPU"), "{report:?}");
        assert_eq!(report.runs[0].cpu_reason.as_deref(), report.cpu_reason());
    }
}

#[test]
fn systems_that_are_too_large_for_one_kernel_are_solved_over_products() {
    let large = 70_000;
    let mut matrices = patterns::<f64>(6);
    matrices.insert(2, chain(large, 4.0));
    let batch = ragged(matrices);
    let b = rhs(&batch, 1);

    let solution = agree("large", &gpu(&emulator()), &batch, &b, None, &cg());

    let report = &solution.report;
    assert!(report.all_converged());
    assert_eq!((report.backend.name(), report.format, report.cpu_reason()), ("gpu", "csr", None));
    let kernel = &report.kernel;
    assert!(kernel.starts_with("cg("), "{kernel}");
    assert!(kernel.ends_with("composed cg over packed (1 systems)"), "{kernel}");
    let reason = report.runs[0].composed_reason.as_ref().unwrap();
    assert!(reason.starts_with("1 of 7 systems: ") && reason.contains("rows"), "{reason}");
    assert!(report.product_cost.is_none());
}

/// A cluster would pad every row of the slice to the length of the longest row.
#[test]
fn systems_with_one_long_row_are_solved_over_products() {
    let n = 5000;
    let mut row_ptr = vec![0];
    let (mut col_idx, mut values) = (Vec::new(), Vec::new());
    for row in 0..n {
        let entries = match row {
            0 => (0..n).collect(),
            _ => vec![0, row],
        };
        col_idx.extend(entries.iter().map(|&col| col as i32));
        values.extend(entries.iter().map(|&col| if col == row { 4.0 } else { 1e-3 }));
        row_ptr.push(col_idx.len() as i32);
    }
    let arrow = Csr::<f64>::try_new(n, n, row_ptr, col_idx, values).unwrap();
    let batch = ragged([chain(12, 3.0), arrow]);
    let b = rhs(&batch, 1);

    let solution = agree("arrow", &gpu(&emulator()), &batch, &b, None, &cg());

    let report = &solution.report;
    assert!(report.all_converged());
    assert_eq!((report.backend.name(), report.cpu_reason()), ("gpu", None));
    let reason = report.runs[0].composed_reason.as_ref().unwrap();
    assert!(reason.starts_with("1 of 2 systems: ") && reason.contains("one row"), "{reason}");
}

/// The reported reason is that of the last solver that was tried.
#[test]
fn systems_that_the_composed_solver_has_no_memory_for_say_so() {
    let batch = ragged([chain::<f64>(40_000, 4.0)]);
    let b = rhs(&batch, 1);
    let small = Emulator::with_memory(4 << 20);

    let solution = agree("no memory", &gpu_or_cpu(&small), &batch, &b, None, &cg());

    assert_eq!(solution.report.backend.name(), "cpu");
    let reason = solution.report.cpu_reason().unwrap();
    assert!(reason.contains("out of GPU memory"), "{reason}");
}

#[test]
fn histories_come_from_the_gpu_and_the_report_says_how() {
    let batch = ragged(patterns::<f64>(9));
    let b = rhs(&batch, 1);
    let options = cg().history(true);

    let solution = agree("history", &gpu(&emulator()), &batch, &b, None, &options);

    let report = &solution.report;
    assert_eq!((report.backend.name(), report.format), ("gpu", "packed"));
    let reason = report.runs[0].composed_reason.as_ref().unwrap();
    assert!(reason.starts_with("9 of 9 systems: the residual history"), "{reason}");
    for system in &report.systems {
        let outcome = &system.outcome;
        assert_eq!(outcome.history.len(), outcome.iterations as usize + 1, "{outcome:?}");
    }
}

#[test]
fn a_composed_engine_runs_over_the_products_that_were_asked_for() {
    let batch = ragged(patterns::<f64>(9));
    let b = rhs(&batch, 1);
    for (format, kernel, expected) in [
        (FormatChoice::Auto, KernelChoice::Auto, ("packed", "packed")),
        (FormatChoice::Csr, KernelChoice::Auto, ("csr", "batch-csr-smart")),
        (FormatChoice::Csr, KernelChoice::Rows, ("csr", "batch-csr-scalar")),
        (FormatChoice::Auto, KernelChoice::CsrI, ("csr", "batch-csr-i")),
        (FormatChoice::Coo, KernelChoice::Auto, ("coo", "batch-coo")),
        (FormatChoice::Ell, KernelChoice::Auto, ("ell", "batch-ell")),
        (FormatChoice::SellP, KernelChoice::Rows, ("sell-p", "batch-sell-p")),
    ] {
        let spmv = SpmvOptions::default().format(format).kernel(kernel);
        let options = cg().engine(Engine::Composed(spmv));
        let mut solver =
            BatchSolver::on_executor(&gpu(&emulator()), &batch, None, &options).unwrap();
        let mut x = vec![0.0; b.len()];

        let report = solver.solve(&batch, &b, &mut x).unwrap();

        let found = (report.format, report.kernel.as_str());
        assert_eq!(found, (expected.0, format!("composed cg over {}", expected.1).as_str()));
        assert!(report.all_converged() && report.backend.name() == "gpu", "{report:?}");
        assert_eq!(report.runs[0].composed_reason, None);
        let cost = report.product_cost.unwrap();
        let most = report.systems.iter().map(|s| u64::from(s.outcome.iterations)).max().unwrap();
        assert!(cost.products > most && cost.product_time.as_nanos() > 0, "{cost:?}");
        assert!(cost.plan_time.as_nanos() > 0 && cost.break_even_products > 0, "{cost:?}");
    }
}

/// The rung `Restart` runs on the GPU; only systems that reached their iteration limit take it.
#[test]
fn rungs_run_on_the_gpu_for_some_of_the_systems() {
    // Systems need eight iterations, or five and some after a restart.
    let batch = ragged((0..15).map(|i| chain::<f64>(12 + 4 * (i % 3), 20.0 + i as f64)));
    let nrhs = 2;
    let b = rhs(&batch, nrhs);
    let few = |system: usize| system % 4 == 1;
    let options =
        cg().nrhs(nrhs).max_iters((0..30).map(|s| if few(s) { 5 } else { 40 }).collect::<Vec<_>>());
    let with_ladder = options.clone().fallback(true);
    let executor = emulator();
    let backend = gpu(&executor);

    let plain = solve_on_executor(&backend, &batch, &b, None, &options).unwrap();
    let solution = agree("restart", &backend, &batch, &b, None, &with_ladder);

    let report = &solution.report;
    assert!(report.all_converged(), "{:?}", report.status_counts());
    let restart = report.runs.iter().find(|run| run.rung == Rung::Restart).unwrap();
    let restarted = report.systems.iter().filter(|s| s.rung == Rung::Restart).count();
    assert_eq!((restart.backend.name(), restart.systems), ("gpu", restarted));
    assert!(restarted > 0 && restart.cpu_reason.is_none());
    for (system, ended) in plain.report.systems.iter().enumerate() {
        if ended.outcome.status == Status::Converged {
            let same = bits(&batch, &plain, nrhs, system) == bits(&batch, &solution, nrhs, system);
            assert!(same && report.systems[system].rung == Rung::First, "system {system}");
        }
    }
}

#[test]
fn a_stronger_preconditioner_runs_on_the_gpu() {
    // Negative definite matrices, for which CG fails.
    let flawed = [chain::<f64>(12, -2.5), chain(5, -2.5)];
    let batch = ragged(patterns(4).into_iter().chain(flawed));
    let b = rhs(&batch, 1);
    let options = cg().fallback(true);

    let solution = agree("stronger", &gpu(&emulator()), &batch, &b, None, &options);

    let report = &solution.report;
    assert!(report.all_converged());
    assert_eq!((report.backend.name(), report.cpu_reason()), ("gpu", None));
    let later = &report.runs[1];
    assert_eq!((later.rung, later.systems), (Rung::StrongerPreconditioner, 2));
    assert_eq!((later.backend.name(), &later.cpu_reason), ("gpu", &None));
    assert!(later.kernel.contains("bicgstab("), "{}", later.kernel);
    assert!(report.systems[..4].iter().all(|system| system.rung == Rung::First));
}

#[test]
fn bad_options_are_refused_alike() {
    let batch = ragged(patterns::<f64>(3));
    let bad = [
        cg().nrhs(0),
        cg().rel_tol(-1.0),
        cg().rel_tol(vec![0.1]),
        cg().method(Method::Lu).engine(Engine::Composed(SpmvOptions::default())),
    ];
    let backends: [Backend<Emulator>; 2] = [Backend::Cpu, gpu(&emulator())];
    for options in bad {
        let [cpu, gpu] = backends.each_ref().map(|backend| {
            BatchSolver::on_executor(backend, &batch, None, &options).map(drop).unwrap_err()
        });
        assert_eq!(cpu.to_string(), gpu.to_string());
    }
}
