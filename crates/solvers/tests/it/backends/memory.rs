//! Batches and the memory of the device.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError};
use sparsebatch_formats::{Batch, Csr, Layout, UniformBatch};
use sparsebatch_solve_core::KernelChoice;
use sparsebatch_solvers::gpu::Guess;
use sparsebatch_solvers::{
    Backend, BatchSolver, DeviceData, DeviceSolver, Engine, Gpu, LuForm, Method, Preconditioner,
    SolveError, SolveOptions, SpmvOptions, solve_on_executor, solver_memory,
};

use crate::backends::common::{agree, bits, cg, chain, dense, gpu, patterns, ragged, rhs};
use crate::backends::device::{methods, uniform};

/// Systems of one pattern and right-hand sides, about 24 KiB on the device.
fn batch() -> (Batch<f64>, Vec<f64>) {
    let batch = ragged((0..50).map(|i| chain(12, 2.5 + 0.01 * i as f64)));
    let b = rhs(&batch, 1);
    (batch, b)
}

fn in_chunks(executor: &Emulator, memory_limit: Option<u64>) -> Backend<Emulator> {
    let gpu = Gpu::new(executor.clone());
    Backend::Gpu(gpu.in_chunks(true).memory_limit(memory_limit))
}

fn out_of_memory<T>(result: Result<T, SolveError>) -> (u64, u64) {
    match result.map(drop) {
        Err(SolveError::Gpu(GpuError::OutOfMemory { needed, free })) => (needed, free),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_that_does_not_fit_is_refused_before_anything_is_launched() {
    let (batch, _) = batch();
    let small = Emulator::with_memory(8 << 10);

    let (needed, free) = out_of_memory(BatchSolver::on_executor(&gpu(&small), &batch, None, &cg()));

    assert_eq!(free, 8 << 10);
    // At least values, b and x.
    assert!(needed > 50 * (34 + 24) * 8 && needed < 50 * 1024, "{needed}");
    assert!(small.launched().is_empty());
    assert_eq!(small.bytes_in_use(), 0);
    let limited = Gpu::new(Emulator::new(Order::Forward)).memory_limit(4096);
    let refused = BatchSolver::on_executor(&Backend::Gpu(limited), &batch, None, &cg());
    assert_eq!(out_of_memory(refused).1, 4096);
}

#[test]
fn chunks_give_the_same_bits() {
    let (batch, b) = batch();
    let all =
        solve_on_executor(&gpu(&Emulator::new(Order::Forward)), &batch, &b, None, &cg()).unwrap();
    assert_eq!(all.report.runs[0].chunks, 1);
    let roomy = Emulator::new(Order::Forward);
    for (executor, limit, least) in [
        (Emulator::with_memory(8 << 10), None, 4),
        (Emulator::with_memory(1800), None, 15),
        (roomy.clone(), Some(8 << 10), 4),
        (roomy, Some(1 << 20), 1),
    ] {
        let backend = in_chunks(&executor, limit);
        let solution = agree("chunks", &backend, &batch, &b, None, &cg());

        let run = &solution.report.runs[0];
        assert!(run.chunks >= least && (least > 1 || run.chunks == 1), "{run:?}");
        assert_eq!((run.backend.name(), &run.cpu_reason), ("gpu", &None));
        for system in 0..batch.nitems() {
            assert_eq!(bits(&batch, &solution, 1, system), bits(&batch, &all, 1, system));
        }
        assert_eq!(executor.bytes_in_use(), 0);
    }
}

#[test]
fn chunks_of_several_patterns_limits_and_layouts() {
    let several = ragged(patterns::<f64>(40));
    let b = rhs(&several, 2);
    let options = cg()
        .nrhs(2)
        .rel_tol((0..80).map(|s| 10f64.powi(-(s % 11) - 1)).collect::<Vec<_>>())
        .max_iters((0..80).map(|s| if s % 5 == 2 { 3 } else { 50 }).collect::<Vec<_>>())
        .fallback(true);
    let small = Emulator::with_memory(2500);
    let solution = agree("several", &in_chunks(&small, None), &several, &b, None, &options);
    assert!(solution.report.runs[0].chunks > 1);

    let shared = UniformBatch::shared(chain::<f64>(12, 3.0), 40);
    let own = shared.to_item_major();
    for uniform in [own.to_interleaved(), own, shared] {
        let batch = Batch::Uniform(uniform);
        let b = rhs(&batch, 1);
        let solution = agree("layout", &in_chunks(&small, None), &batch, &b, None, &cg());
        assert!(solution.report.runs[0].chunks > 1);
    }
}

/// Memory that the first rung keeps counts for the later ones.
#[test]
fn rungs_stay_within_the_limit() {
    let batch = ragged((0..15).map(|i| chain::<f64>(12, 20.0 + i as f64)));
    let b = rhs(&batch, 1);
    let few = |system: usize| system % 4 == 1;
    let options = cg()
        .max_iters((0..15).map(|s| if few(s) { 5 } else { 40 }).collect::<Vec<_>>())
        .fallback(true);
    let executor = Emulator::new(Order::Forward);
    let limited = |limit| Backend::Gpu(Gpu::new(executor.clone()).memory_limit(limit));
    let (needed, _) = out_of_memory(BatchSolver::on_executor(&limited(1), &batch, None, &options));
    for (limit, backend) in [(needed, "cpu"), (3 * needed, "gpu")] {
        let solution = agree("limit", &limited(limit), &batch, &b, None, &options);

        let report = &solution.report;
        assert!(report.all_converged() && report.backend.name() == "gpu", "{report:?}");
        let restart = &report.runs[1];
        assert_eq!((restart.backend.name(), restart.systems), (backend, 4));
        let reason = restart.cpu_reason.as_deref().unwrap_or("out of GPU memory");
        assert!(reason.contains("out of GPU memory"), "{reason}");
    }
}

#[test]
fn one_system_that_does_not_fit_is_refused_or_goes_to_the_cpu() {
    let batch = ragged([chain(5, 2.5), chain::<f64>(1000, 2.5), chain(5, 2.6)]);
    let b = rhs(&batch, 1);
    let small = Emulator::with_memory(4 << 10);

    let (needed, free) =
        out_of_memory(BatchSolver::on_executor(&in_chunks(&small, None), &batch, None, &cg()));
    let gpu = Gpu::new(small.clone()).in_chunks(true).or_cpu(true);
    let solution = agree("large", &Backend::Gpu(gpu), &batch, &b, None, &cg());

    assert!(needed > 4 << 10 && free <= 4 << 10, "{needed} {free}");
    let report = &solution.report;
    assert_eq!(report.backend.name(), "gpu+cpu");
    assert!(
        report.cpu_reason().unwrap().contains("1 of 3 systems: out of GPU memory"),
        "{report:?}"
    );
    assert_eq!(small.free_memory().unwrap(), 4 << 10);
}

/// Composed solves stay within the memory: in chunks, one after the other, and all of it is freed.
#[test]
fn composed_solves_are_cut_into_chunks_too() {
    let batch = ragged((0..12).map(|i| chain::<f64>(40 + i, 4.0)));
    let nrhs = 2;
    let b = rhs(&batch, nrhs);
    let history = cg().history(true).nrhs(nrhs);
    let spmv = SpmvOptions::default().kernel(KernelChoice::CsrI);
    let by_name = cg().engine(Engine::Composed(spmv)).nrhs(nrhs);
    for options in [history, by_name] {
        let executor = Emulator::new(Order::Forward);
        let all = agree("all", &in_chunks(&executor, None), &batch, &b, None, &options);
        assert_eq!(all.report.runs[0].chunks, 1);
        assert_eq!(executor.bytes_in_use(), 0);
        let limit = 40_000;
        let limited = Gpu::new(executor.clone()).memory_limit(limit);
        let backend = Backend::Gpu(limited.clone().in_chunks(true));

        let solution = agree("chunks", &backend, &batch, &b, None, &options);
        let refused = BatchSolver::on_executor(&Backend::Gpu(limited), &batch, None, &options);

        let report = &solution.report;
        assert!(report.runs[0].chunks > 1, "{:?}", report.runs);
        assert_eq!((report.backend.name(), report.cpu_reason()), ("gpu", None));
        assert_eq!(report.kernel, all.report.kernel);
        assert_eq!(report.product_cost.is_some(), all.report.product_cost.is_some());
        assert_eq!(executor.bytes_in_use(), 0);
        let (needed, free) = out_of_memory(refused);
        assert!(needed > limit && free == limit, "{needed} {free}");
    }
}

#[test]
fn the_memory_of_a_solver_is_known_before_it_is_made() {
    let chains: Vec<Csr<f64>> = (0..9).map(|item| chain(9, 2.3 + 0.1 * item as f64)).collect();
    let batches = [uniform(&chains), ragged(patterns::<f64>(15))];
    let layouts = [
        DeviceData::new(),
        DeviceData::new().transposed(true),
        DeviceData::new().vectors(Layout::Interleaved),
    ];
    for (batch, (options, data)) in batches.iter().flat_map(|batch| {
        let each =
            methods().into_iter().flat_map(|options| layouts.map(|data| (options.clone(), data)));
        each.map(move |asked| (batch, asked))
    }) {
        if matches!(batch, Batch::Ragged(_)) && data == layouts[2] {
            continue;
        }
        let options = options.nrhs(2);
        let executor = Emulator::new(Order::Forward);

        let memory = solver_memory(executor.info(), batch, &options, data).unwrap();
        let mut solver = DeviceSolver::with_data(&executor, batch, &options, data).unwrap();

        assert_eq!(memory.bytes, executor.bytes_in_use(), "{options:?} {data:?}");
        assert_eq!(memory.most_bytes, executor.most_bytes_in_use(), "{options:?} {data:?}");
        solver.prepare_guesses().unwrap();
        assert_eq!(memory.bytes_with_guesses, executor.bytes_in_use(), "{options:?} {data:?}");
    }
}

#[test]
fn a_solver_that_a_gpu_has_no_memory_for_is_refused_before_it_is_made() {
    let executor = Emulator::with_memory(4 << 10);
    let batch = uniform(&vec![chain::<f64>(200, 2.5); 20]);

    let refused = solver_memory(executor.info(), &batch, &cg(), DeviceData::new());

    let Err(SolveError::Gpu(GpuError::OutOfMemory { needed, free })) = refused else {
        panic!("{refused:?}");
    };
    assert!(needed > free && free <= 4 << 10);
}

/// Factors that the device has no memory for are made in each solve, uniform batches and parts of
/// ragged ones alike.
#[test]
fn factors_that_do_not_fit_are_not_kept() {
    let lu = SolveOptions::new().method(Method::Lu).fallback(false);
    let by_system = lu.clone().lu_form(LuForm::BySystem);
    let ilu0 = lu.clone().method(Method::BiCgStab).preconditioner(Preconditioner::ILU0);
    let uniform = uniform(&vec![dense::<f64>(12, 20.0); 20]);
    let several = ragged((0..20).map(|item| dense::<f64>(9 + item % 3, 20.0)));
    for batch in [&uniform, &several] {
        for options in [&lu, &by_system, &ilu0] {
            let info = Emulator::new(Order::Forward).info().clone();
            let memory = solver_memory(&info, batch, options, DeviceData::new()).unwrap();
            let all: Vec<f64> =
                (0..20).flat_map(|item| batch.to_csr(item).values().to_vec()).collect();
            let b = rhs(batch, 1);
            // The arrays of the caller and a copy of the values fit, and hardly anything more.
            let arrays = (2 * all.len() + 2 * b.len()) * size_of::<f64>();
            let executor = Emulator::with_memory(memory.most_bytes + arrays as u64 + 3000);
            let values = executor.upload(&all).unwrap();
            let on_b = executor.upload(&b).unwrap();
            let mut x = executor.alloc(b.len()).unwrap();
            let mut solver = DeviceSolver::new(&executor, batch, options).unwrap();
            assert!(solver.keeps_factors());
            let report = solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();
            assert!(report.all_converged());
            let expected = executor.download(&x).unwrap();

            solver.factor(&values).unwrap();

            let what = format!("{options:?}, {} items", batch.nitems());
            assert!(!solver.keeps_factors(), "{what}");
            let in_use = executor.bytes_in_use();
            let report = solver.solve_again(&on_b, Guess::Zero, &mut x).unwrap();
            assert!(report.all_converged(), "{what}");
            assert_eq!(executor.download(&x).unwrap(), expected, "{what}");
            assert!(executor.bytes_in_use() <= in_use + 2048, "{what}");
        }
    }
}
