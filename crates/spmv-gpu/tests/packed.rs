//! The packed product of whole batches against exact sums, in the emulation and, where there is
//! one, on a GPU.

mod common;

use common::emulator::Emulator;
use kernel_emu::Order;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::testing::{
    assert_spmv_close, csr_integers, integer_vector, random_vector,
};
use sparsebatch_formats::{Batch, BatchCsr, Csr, RaggedCsr, Scalar, UniformBatch};
use sparsebatch_spmv_gpu::flexible::BatchSizes;
use sparsebatch_spmv_gpu::testing::device_or_skip;
use sparsebatch_spmv_gpu::{
    CsrArrays, CsrSize, DeviceInfo, Executor, GpuError, PackedKernel, PackedOptions, PackedPlan,
    Value,
};

/// `A x` of all systems, y being NaN before.
fn product<E: Executor + Clone, T: Value>(
    executor: &E,
    batch: &Batch<T>,
    options: PackedOptions,
    x: &[T],
) -> Vec<T> {
    let plan = PackedPlan::new(executor.clone(), batch, options).unwrap();
    let rows = batch.row_offset(batch.nitems()) * options.nrhs;
    let x = executor.upload(x).unwrap();
    let mut y = executor.upload(&vec![T::from_f64(f64::NAN); rows]).unwrap();
    plan.apply(T::ONE, &x, T::ZERO, &mut y).unwrap();
    executor.synchronize().unwrap();
    executor.download(&y).unwrap()
}

fn check<E: Executor + Clone, T: Value>(
    executor: &E,
    batch: &Batch<T>,
    options: PackedOptions,
    x: &[T],
) {
    let y = product(executor, batch, options, x);
    for item in 0..batch.nitems() {
        let mut values = Vec::new();
        batch.copy_values(item, &mut values);
        let pattern = batch.pattern(item);
        let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
        let a = Csr::try_new(pattern.nrows(), pattern.ncols(), row_ptr, col_idx, values).unwrap();
        for rhs in 0..options.nrhs {
            let x0 = batch.col_offset(item) * options.nrhs + rhs * pattern.ncols();
            let y0 = batch.row_offset(item) * options.nrhs + rhs * pattern.nrows();
            let (x, y) = (&x[x0..x0 + pattern.ncols()], &y[y0..y0 + pattern.nrows()]);
            assert_spmv_close(a.view(), x, y);
        }
    }
}

fn ragged<T: Scalar>(matrices: &[Csr<T>]) -> Batch<T> {
    let mut batch = RaggedCsr::new();
    for matrix in matrices {
        batch.push(matrix.view());
    }
    Batch::Ragged(batch)
}

fn options(nrhs: usize) -> PackedOptions {
    PackedOptions { nrhs, ..PackedOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn batches_of_any_shapes(
        matrices in proptest::collection::vec(csr_integers::<f64>(60, 50), 0..6),
        nrhs in 1usize..3,
        seed in any::<u64>(),
    ) {
        let batch = ragged(&matrices);
        let x = random_vector(batch.col_offset(batch.nitems()) * nrhs, seed);
        let registers = Some(PackedKernel::Registers { depth: 4 });
        for order in Order::ALL {
            // One block, a block a piece, and systems by themselves.
            for (share, group_entries, piece_entries) in
                [(1, Some(300), None), (1000, None, Some(40)), (1, Some(0), None)]
            {
                for kernel in [None, registers] {
                    let options =
                        PackedOptions {
                        nrhs,
                        kernel,
                        group_entries,
                        piece_entries,
                        share: Some(share),
                    };
                    check(&Emulator::new(order), &batch, options, &x);
                }
            }
        }
    }

    #[test]
    fn values_may_be_anything(
        matrices in proptest::collection::vec(csr_integers::<f32>(40, 30), 1..3),
        at in any::<prop::sample::Index>(),
        odd in prop_oneof![Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY)],
    ) {
        let batch = ragged(&matrices);
        let mut x: Vec<f32> = random_vector(batch.col_offset(batch.nitems()), 5);
        if !x.is_empty() {
            let at = at.index(x.len());
            x[at] = odd;
        }
        check(&Emulator::new(Order::Forward), &batch, options(1), &x);
    }
}

/// A system with a dense row, empty rows, and short ones.
fn uneven(nrows: usize, ncols: usize) -> Csr<f64> {
    let mut row_ptr = vec![0];
    let mut col_idx: Vec<i32> = Vec::new();
    for row in 0..nrows {
        match row % 7 {
            _ if row == nrows / 2 => col_idx.extend(0..ncols as i32),
            0 => {}
            r => {
                let mut cols: Vec<i32> =
                    (0..r * r % 13).map(|k| ((row * 31 + k * 17) % ncols) as i32).collect();
                cols.sort_unstable();
                cols.dedup();
                col_idx.extend(cols);
            }
        }
        row_ptr.push(col_idx.len() as i32);
    }
    let values = random_vector(col_idx.len(), 11);
    Csr::try_new(nrows, ncols, row_ptr, col_idx, values).unwrap()
}

fn shapes() -> Batch<f64> {
    ragged(&[
        uneven(900, 700),
        uneven(1, 2000),
        uneven(3, 3),
        uneven(200, 210),
        uneven(0, 5),
        Csr::try_new(4, 0, vec![0; 5], vec![], vec![]).unwrap(),
        uneven(40, 40),
        uneven(1500, 1),
    ])
}

#[test]
fn large_small_and_degenerate_systems_together() {
    let batch = shapes();
    let x: Vec<f64> = random_vector(batch.col_offset(batch.nitems()), 2);
    for order in [Order::Forward, Order::Reverse, Order::Random(3)] {
        check(&Emulator::new(order), &batch, options(1), &x);
    }
}

#[test]
fn every_kernel_agrees_with_exact_sums_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let batch = shapes();
    let x: Vec<f64> = random_vector(batch.col_offset(batch.nitems()), 2);
    let stream = |steps, stages, warps| PackedKernel::Stream { steps, stages, warps };
    let registers = |depth| PackedKernel::Registers { depth };
    for kernel in [
        registers(4),
        registers(6),
        stream(4, 3, 2),
        stream(4, 3, 1),
        stream(4, 4, 4),
        stream(8, 3, 4),
    ] {
        for share in [1, 1000] {
            let options = PackedOptions { kernel: Some(kernel), share: Some(share), ..options(1) };
            check(&device, &batch, options, &x);
        }
    }
    let single = batch.cast::<f32>();
    let x: Vec<f32> = random_vector(x.len(), 2);
    check(&device, &single, options(1), &x);
}

#[test]
fn uniform_batches_store_what_they_share_once() {
    let problem = Problem::new(Family::Lap2d, 256).unwrap();
    let batch = problem.batch(9).unwrap().batch;
    let Batch::Uniform(uniform) = &batch else { panic!("a problem makes uniform batches") };
    let first = uniform.to_matrix(0);
    let shared: BatchCsr<f64> = UniformBatch::shared(first, 9);
    let interleaved = Batch::Uniform(uniform.to_interleaved());
    let shared = Batch::Uniform(shared);
    let executor = Emulator::new(Order::Forward);
    let x: Vec<f64> = random_vector(9 * 256 * 2, 8);

    for batch in [&batch, &interleaved, &shared] {
        check(&executor, batch, options(2), &x);
    }
    let bytes = |batch: &Batch<f64>| {
        PackedPlan::new(executor.clone(), batch, options(1)).unwrap().explain().device_bytes
    };
    let values = 8 * batch.total_nnz() as u64;
    assert!(bytes(&batch) < values * 3 / 2);
    assert!(bytes(&shared) < values / 3);
}

#[test]
fn alpha_and_beta_scale_and_new_values_replace_old_ones() {
    let batch = shapes();
    let executor = Emulator::new(Order::Forward);
    let (cols, rows) = (batch.col_offset(8), batch.row_offset(8));
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut integers = |len| integer_vector::<f64>(len).new_tree(&mut runner).unwrap().current();
    let (x, y0) = (integers(cols), integers(rows));
    let Batch::Ragged(mut ragged) = batch.clone() else { panic!("made ragged") };
    ragged.values_mut().iter_mut().for_each(|v| *v = v.signum());
    let signs = Batch::Ragged(ragged);
    let mut plan = PackedPlan::new(executor.clone(), &batch, options(1)).unwrap();

    plan.update_values(&signs).unwrap();
    let x_device = executor.upload(&x).unwrap();
    let mut y = executor.upload(&y0).unwrap();
    plan.apply(2.0, &x_device, -3.0, &mut y).unwrap();

    // Integers: exact whatever the order.
    let y = executor.download(&y).unwrap();
    let plain = product(&executor, &signs, options(1), &x);
    let expected: Vec<f64> = plain.iter().zip(&y0).map(|(ax, y)| 2.0 * ax - 3.0 * y).collect();
    assert_eq!(y, expected);
}

#[test]
fn results_do_not_depend_on_neighbours_or_place() {
    let (a, b) = (uneven(300, 310), uneven(900, 700));
    let executor = Emulator::new(Order::Forward);
    let x: Vec<f64> = random_vector(310, 4);
    let alone = product(&executor, &ragged(std::slice::from_ref(&a)), options(1), &x);
    let others: Vec<f64> = random_vector(700, 5);

    let after = product(&executor, &ragged(&[b, a]), options(1), &[others, x].concat());

    let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&after[900..]), bits(&alone));
}

#[test]
fn what_does_not_fit_is_refused_with_one_error() {
    let executor = Emulator::new(Order::Forward);
    let fine = ragged(&[uneven(20, 30)]);
    let refused = |batch: &Batch<f64>, options| {
        PackedPlan::new(executor.clone(), batch, options).err().unwrap()
    };
    let kernel = |kernel| PackedOptions { kernel: Some(kernel), ..options(1) };
    for (name, options) in [
        ("nrhs", PackedOptions { nrhs: 0, ..options(1) }),
        ("share", PackedOptions { share: Some(0), ..options(1) }),
        ("kernel", kernel(PackedKernel::Registers { depth: 5 })),
        ("kernel", kernel(PackedKernel::Stream { steps: 4, stages: 5, warps: 4 })),
    ] {
        let GpuError::InvalidArgument { name: found, .. } = refused(&fine, options) else {
            panic!("another error");
        };
        assert_eq!(found, name);
    }
    let mut plan = PackedPlan::new(executor.clone(), &fine, options(1)).unwrap();
    let (short, mut y) =
        (executor.upload(&[0.0; 29]).unwrap(), executor.upload(&[0.0; 20]).unwrap());
    let error = plan.apply(1.0, &short, 0.0, &mut y).unwrap_err();
    assert_eq!(error, GpuError::Length { name: "x", expected: 30, found: 29 });
    let error = plan.update_values(&ragged(&[uneven(2, 3), uneven(2, 3)])).unwrap_err();
    assert_eq!(error, GpuError::Length { name: "batch", expected: 1, found: 2 });
    let Batch::Ragged(one) = &fine else { panic!("made ragged") };
    let nnz = one.total_nnz();
    // As many entries, other rows.
    let other =
        Csr::try_new(1, nnz, vec![0, nnz as i32], (0..nnz as i32).collect(), vec![1.0; nnz]);
    let error = plan.update_values(&ragged(&[other.unwrap()])).unwrap_err();
    assert!(matches!(error, GpuError::InvalidArgument { name: "batch", .. }), "{error}");
    let short = executor.upload(&vec![0.0; nnz - 1]).unwrap();
    let error = plan.update_from(&short).unwrap_err();
    assert_eq!(error, GpuError::Length { name: "values", expected: nnz, found: nnz - 1 });
}

/// Rows that use few columns, far apart from those of other rows, or many from all over.
fn spread(nrows: usize, ncols: usize, far: bool) -> Csr<f64> {
    let mut row_ptr = vec![0];
    let mut col_idx: Vec<i32> = Vec::new();
    for row in 0..nrows {
        let first = row * ncols / nrows;
        let stride = if far { 7919 } else { 1 };
        let mut cols: Vec<i32> =
            (0..row % 6).map(|k| ((first + k * stride) % ncols) as i32).collect();
        cols.sort_unstable();
        cols.dedup();
        col_idx.extend(cols);
        row_ptr.push(col_idx.len() as i32);
    }
    let values = random_vector(col_idx.len(), 12);
    Csr::try_new(nrows, ncols, row_ptr, col_idx, values).unwrap()
}

/// Systems of more than one piece, of columns that 16 bits do not count, beside small ones.
fn large() -> Batch<f64> {
    ragged(&[
        uneven(10, 40_000),
        spread(5000, 5000, false),
        uneven(40, 40),
        spread(3000, 200_000, true),
        spread(2500, 30_000, true),
        spread(70_000, 70_000, false),
        uneven(30, 20),
    ])
}

#[test]
fn systems_of_any_size_together() {
    let batch = large();
    let registers = Some(PackedKernel::Registers { depth: 4 });
    for (nrhs, kernel) in [(1, None), (2, None), (1, registers)] {
        let x: Vec<f64> = random_vector(batch.col_offset(batch.nitems()) * nrhs, 2);
        let options = PackedOptions { kernel, ..options(nrhs) };
        check(&Emulator::new(Order::Forward), &batch, options, &x);
    }
    if let Some(device) = device_or_skip() {
        let x: Vec<f64> = random_vector(batch.col_offset(batch.nitems()), 2);
        check(&device, &batch, options(1), &x);
    }
}

#[test]
fn uniform_batches_of_large_systems_share_their_pieces() {
    let first = spread(3000, 200_000, true);
    let shared = Batch::Uniform(UniformBatch::shared(first, 3));
    let executor = Emulator::new(Order::Forward);
    let x: Vec<f64> = random_vector(shared.col_offset(3), 2);

    check(&executor, &shared, options(1), &x);
}

#[test]
fn arrays_on_the_device_make_the_same_plan() {
    let batch = large();
    let Batch::Ragged(host) = &batch else { panic!("made ragged") };
    let executor = Emulator::new(Order::Forward);
    let sizes: Vec<CsrSize> = (0..host.nitems())
        .map(|item| {
            let pattern = batch.pattern(item);
            CsrSize { nrows: pattern.nrows(), ncols: pattern.ncols(), nnz: pattern.nnz() }
        })
        .collect();
    let mut arrays = CsrArrays {
        row_ptr: executor.upload(host.row_ptr()).unwrap(),
        col_idx: executor.upload(host.col_idx()).unwrap(),
        values: executor.upload(host.values()).unwrap(),
    };
    let x: Vec<f64> = random_vector(host.col_offsets()[host.nitems()], 9);
    let operand = executor.upload(&x).unwrap();
    let expected = product(&executor, &batch, options(1), &x);
    let sizes = BatchSizes::Ragged(&sizes);

    let mut plan = PackedPlan::from_arrays(executor.clone(), sizes, &arrays, options(1)).unwrap();

    let mut y = executor.alloc(expected.len()).unwrap();
    plan.apply(1.0, &operand, 0.0, &mut y).unwrap();
    assert_eq!(executor.download(&y).unwrap(), expected);
    // The plan has its own.
    let doubled: Vec<f64> = host.values().iter().map(|v| 2.0 * v).collect();
    executor.copy_from_host(&doubled, &mut arrays.values).unwrap();
    executor.fill_zero(&mut arrays.row_ptr).unwrap();
    plan.apply(1.0, &operand, 0.0, &mut y).unwrap();
    assert_eq!(executor.download(&y).unwrap(), expected);
    plan.update_from(&arrays.values).unwrap();
    plan.apply(0.5, &operand, 0.0, &mut y).unwrap();
    assert_eq!(executor.download(&y).unwrap(), expected);
    let broken = PackedPlan::from_arrays(executor.clone(), sizes, &arrays, options(1));
    let error = broken.err().unwrap();
    assert!(matches!(error, GpuError::InvalidArgument { name: "row_ptr", .. }), "{error}");
}

#[test]
fn vectors_that_overlap_are_refused() {
    let Some(device) = device_or_skip() else { return };
    let plan = PackedPlan::new(device.clone(), &ragged(&[uneven(20, 20)]), options(1)).unwrap();
    let all = device.alloc_zeroed::<f64>(30).unwrap();
    let (x, mut y) = (all.range(0..20).unwrap(), all.range(10..30).unwrap());

    let error = plan.apply(1.0, &x, 0.0, &mut y).unwrap_err();

    assert!(matches!(error, GpuError::InvalidArgument { name: "y", .. }), "{error}");
}

#[test]
fn a_block_takes_no_more_shared_memory_than_there_is() {
    // A device with little of it: the same batch runs, or is refused.
    let small = DeviceInfo {
        shared_bytes_per_block: 64 << 10,
        shared_bytes_per_multiprocessor: 96 << 10,
        ..Emulator::new(Order::Forward).info().clone()
    };
    let executor = Emulator::with_info(small, Order::Forward);
    let x: Vec<f64> = random_vector(500, 1);

    check(&executor, &ragged(&[uneven(400, 500)]), options(1), &x);
    check(&executor, &ragged(&[uneven(4000, 4000)]), options(1), &random_vector(4000, 1));
    let tiny = DeviceInfo { shared_bytes_per_block: 8 << 10, ..executor.info().clone() };
    let executor = Emulator::with_info(tiny, Order::Forward);
    let error = PackedPlan::new(executor, &ragged(&[uneven(400, 500)]), options(1)).err().unwrap();
    assert!(error.to_string().contains("item 0 with 400 rows"), "{error}");
}
