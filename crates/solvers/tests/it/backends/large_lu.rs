//! Sparse LU of systems whose factors do not fit on chip.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Executor;
use sparsebatch_formats::{Batch, BatchValues, UniformBatch};
use sparsebatch_solvers::{
    Backend, Chunks, Gpu, Method, SolveError, SolveOptions, SolveScalar, solve_on_executor,
};

use crate::backends::common::{agree, bits, chain, dense, gpu, gpu_or_cpu, patterns, ragged, rhs};
use crate::common::one_step;

fn lu(nrhs: usize) -> SolveOptions {
    one_step().method(Method::Lu).nrhs(nrhs)
}

/// Two dense matrices of one pattern.
fn uniform<T: SolveScalar>(n: usize) -> Batch<T> {
    let matrices = [dense::<T>(n, n as f64), dense(n, 1.5 * n as f64)];
    let values = matrices.iter().flat_map(|m| m.values().to_vec()).collect();
    let pattern = matrices[0].pattern().clone();
    Batch::Uniform(UniformBatch::try_new(pattern, 2, BatchValues::ItemMajor(values)).unwrap())
}

fn large<T: SolveScalar>(n: usize, nrhs: usize, expected: &str) {
    let batch = uniform::<T>(n);
    let b = rhs(&batch, nrhs);

    let solution =
        agree("large", &gpu(&Emulator::new(Order::Forward)), &batch, &b, None, &lu(nrhs));

    let report = &solution.report;
    assert!(report.all_converged());
    assert_eq!(
        (report.backend.name(), report.scheme.name(), report.cpu_reason()),
        ("gpu", "lu", None)
    );
    assert_eq!(report.kernel, expected);
    assert!(report.runs[0].composed_reason.is_none());
}

#[test]
fn factors_that_do_not_fit_on_chip_are_in_device_memory() {
    large::<f64>(180, 2, "lu(512 threads, by fronts)");
    large::<f64>(257, 1, "lu(512 threads, by fronts)");
    large::<f32>(245, 1, "lu(512 threads, by fronts)");
}

#[test]
fn large_and_small_systems_of_a_batch_have_the_lu_that_fits_each() {
    let mut matrices = patterns::<f64>(6);
    matrices.insert(2, dense(180, 200.0));
    let batch = ragged(matrices);
    let b = rhs(&batch, 1);
    let backend = gpu(&Emulator::new(Order::Forward));

    let solution = agree("ragged", &backend, &batch, &b, None, &lu(1));

    assert!(solution.report.all_converged());
    let kernel = &solution.report.kernel;
    for own in ["systems)", "lu(512 threads, by fronts)"] {
        assert!(kernel.contains(own), "{kernel}");
    }
    // No bit depends on the neighbours.
    let alone = ragged([dense::<f64>(180, 200.0)]);
    let of_alone = b[batch.row_offset(2)..batch.row_offset(3)].to_vec();
    let single = solve_on_executor(&backend, &alone, &of_alone, None, &lu(1)).unwrap();
    assert!(single.report.kernel.starts_with("lu(512 threads, "), "{}", single.report.kernel);
    assert_eq!(bits(&batch, &solution, 1, 2), bits(&alone, &single, 1, 0));
}

#[test]
fn chunks_change_no_bit() {
    let batch = uniform::<f64>(180);
    let b = rhs(&batch, 1);
    let executor = Emulator::new(Order::Forward);
    let whole = solve_on_executor(&gpu(&executor), &batch, &b, None, &lu(1)).unwrap();
    let chunks = Chunks::default().bytes(1).at_once(2);
    let backend = Backend::Gpu(Gpu::new(executor).chunks(chunks));

    let solution = solve_on_executor(&backend, &batch, &b, None, &lu(1)).unwrap();

    assert_eq!((whole.report.runs[0].chunks, solution.report.runs[0].chunks), (1, 2));
    for system in 0..2 {
        assert_eq!(bits(&batch, &solution, 1, system), bits(&batch, &whole, 1, system));
    }
}

#[test]
fn factors_in_device_memory_stay_within_the_limit() {
    let batch = uniform::<f64>(180);
    let b = rhs(&batch, 1);
    let solved = |memory_limit| {
        let executor = Emulator::new(Order::Forward);
        let gpu =
            Gpu::new(executor.clone()).memory_limit(memory_limit).in_chunks(true).or_cpu(true);
        let solution = solve_on_executor(&Backend::Gpu(gpu), &batch, &b, None, &lu(1)).unwrap();
        assert!(solution.report.all_converged());
        (solution, executor.most_bytes_in_use())
    };
    let (whole, bytes) = solved(None);
    // Memory for one block less.
    let limit = bytes - 10_000;
    let (within, most) = solved(Some(limit));
    assert!(most <= limit, "{most} bytes of {limit}");
    assert_eq!((within.report.backend.name(), within.report.cpu_reason()), ("gpu", None));
    for system in 0..2 {
        assert_eq!(bits(&batch, &within, 1, system), bits(&batch, &whole, 1, system));
    }
    // Not enough memory for one block.
    let (on_cpu, _) = solved(Some(1 << 20));
    assert_eq!(on_cpu.report.backend.name(), "cpu");
    let reason = on_cpu.report.cpu_reason().unwrap();
    assert!(reason.contains("out of GPU memory"), "{reason}");
}

#[test]
fn too_much_fill_is_refused_or_the_cpu_has_it() {
    let batch = ragged([dense::<f64>(480, 400.0), chain(5, 3.0)]);
    let b = rhs(&batch, 1);
    // No room for a front of 480 rows.
    let mut info = Emulator::new(Order::Forward).info().clone();
    info.shared_bytes_per_multiprocessor = 64 << 10;
    let executor = Emulator::with_info(info, Order::Forward);
    let refused = solve_on_executor(&gpu(&executor), &batch, &b, None, &lu(1)).map(drop);
    match refused {
        Err(error @ SolveError::Unsupported { .. }) => {
            assert!(error.to_string().contains("33554432 products"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let solution = agree("the CPU helps", &gpu_or_cpu(&executor), &batch, &b, None, &lu(1));
    let report = &solution.report;
    assert_eq!(report.backend.name(), "gpu+cpu");
    assert!(report.cpu_reason().unwrap().contains("33554432 products"), "{report:?}");
}
