//! Inputs that are refused, and the error for each.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{DeviceInfo, Executor, GpuError};
use sparsebatch_formats::{Batch, Csr, UniformBatch};
use sparsebatch_spmv_gpu::flexible::BatchSizes;
use sparsebatch_spmv_gpu::{CsrSize, PackedKernel, PackedOptions, PackedPlan};
use sparsebatch_testing::random_vector;

use super::{check, options, ragged, uneven, upload, with_lengths};
use crate::common::matrices::banded;

fn refused(batch: &Batch<f64>, options: PackedOptions) -> GpuError {
    PackedPlan::new(Emulator::new(Order::Forward), batch, options).err().unwrap()
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let fine = ragged(&[uneven(20, 30)]);
    let kernel = |kernel| options(1).kernel(Some(kernel));
    let stream = |steps, stages, warps| kernel(PackedKernel::Stream { steps, stages, warps });
    for (name, options) in [
        ("nrhs", options(1).nrhs(0)),
        ("nrhs", options(1).nrhs(1 << 31)),
        ("nrhs", options(1).nrhs(usize::MAX)),
        ("share", options(1).share(Some(0))),
        ("piece_entries", options(1).piece_entries(Some(0))),
        ("kernel", kernel(PackedKernel::Registers { depth: 5 })),
        ("kernel", stream(4, 5, 4)),
        ("kernel", stream(8, 3, 3)),
    ] {
        let error = refused(&fine, options);
        let GpuError::InvalidArgument { name: found, .. } = error else { panic!("{error}") };
        assert_eq!(found, name);
    }
    let older =
        DeviceInfo { compute_capability: (8, 9), ..Emulator::new(Order::Forward).info().clone() };
    let older = Emulator::with_info(older, Order::Forward);
    let error = PackedPlan::new(older.clone(), &fine, stream(8, 3, 4)).err().unwrap();
    assert!(matches!(error, GpuError::InvalidArgument { name: "kernel", .. }), "{error}");
    check(&older, &fine, options(1), &random_vector::<f64>(30, 1));
    assert!(older.launched().iter().any(|kernel| kernel.contains("packed_spmv")));
}

#[test]
fn vectors_of_other_lengths_are_refused_by_name() {
    let executor = Emulator::new(Order::Forward);
    let plan = PackedPlan::new(executor.clone(), &ragged(&[uneven(20, 30)]), options(2)).unwrap();
    let apply = |x: usize, y: usize| {
        let x = executor.upload(&vec![0.0; x]).unwrap();
        plan.apply(1.0, &x, 0.0, &mut executor.upload(&vec![0.0; y]).unwrap())
    };

    assert_eq!(apply(60, 40), Ok(()));
    for x in [30, 59, 61] {
        assert_eq!(apply(x, 40), Err(GpuError::Length { name: "x", expected: 60, found: x }));
    }
    for y in [20, 39, 41] {
        assert_eq!(apply(60, y), Err(GpuError::Length { name: "y", expected: 40, found: y }));
    }
}

#[test]
fn vectors_that_overlap_are_refused_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let plan = PackedPlan::new(device.clone(), &ragged(&[uneven(20, 20)]), options(1)).unwrap();
    let all = device.alloc_zeroed::<f64>(30).unwrap();
    let (x, mut y) = (all.range(0..20).unwrap(), all.range(10..30).unwrap());

    let error = plan.apply(1.0, &x, 0.0, &mut y).unwrap_err();

    assert!(matches!(error, GpuError::InvalidArgument { name: "y", .. }), "{error}");
}

#[test]
fn a_block_takes_no_more_shared_memory_than_there_is() {
    // A device with little shared memory: a batch runs, or is refused.
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

/// A row of more than two million entries has more steps than 16 bits can count.
#[test]
fn a_system_that_cannot_be_divided_is_named() {
    let too_long = with_lengths::<f64>(&[2_200_000], 2_200_000);
    let executor = Emulator::new(Order::Forward);
    let batch = ragged(&[banded(4, 4), too_long, banded(3, 3)]);

    let error = PackedPlan::new(executor.clone(), &batch, options(1)).err().unwrap();

    let GpuError::InvalidArgument { name: "batch", found, .. } = error else { panic!("{error}") };
    assert_eq!(found, "item 1 with 1 rows, 2200000 entries");
    assert_eq!(executor.bytes_in_use(), 0);
}

#[test]
fn batches_of_more_items_than_can_be_launched_are_refused() {
    let shared = |a: Csr<f64>, nitems| Batch::Uniform(UniformBatch::shared(a, nitems));
    let alone = options(1).group_entries(Some(0));
    for (batch, options) in [
        (shared(banded(2, 2), 1 << 31), alone),
        (shared(banded(2, 2), 1 << 32), alone),
        (shared(banded(2, 2), (1 << 32) + 1), alone),
        (shared(banded(2, 2), 1 << 32), options(2)),
        (shared(banded(2, 2), 1 << 60), options(1)),
        (shared(banded(2, 2), usize::MAX), options(1)),
        (shared(Csr::zeros(1, 1).unwrap(), usize::MAX), options(1)),
        (shared(Csr::zeros(0, 0).unwrap(), usize::MAX), options(1)),
        (shared(banded(5000, 2), 1 << 30), options(1)),
    ] {
        let error = refused(&batch, options);
        assert!(matches!(error, GpuError::InvalidArgument { name: "batch", .. }), "{error}");
    }
}

#[test]
fn sizes_that_overflow_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let arrays = upload(&executor, &[0, 2], &[0, 1], &[1.0, 2.0]);
    let refused = |sizes: BatchSizes<'_>, options| {
        PackedPlan::from_arrays(executor.clone(), sizes, &arrays, options).err().unwrap()
    };
    let most = usize::MAX;
    for size in [
        CsrSize { nrows: most, ncols: 2, nnz: 2 },
        CsrSize { nrows: 1, ncols: most, nnz: 2 },
        CsrSize { nrows: 1, ncols: 2, nnz: most },
        CsrSize { nrows: 1 << 63, ncols: 1 << 63, nnz: 1 << 63 },
    ] {
        let twice = [size, size];
        for sizes in [
            BatchSizes::Ragged(&twice[..1]),
            BatchSizes::Ragged(&twice),
            BatchSizes::Uniform { item: size, nitems: 2, shared_values: false },
        ] {
            let error = refused(sizes, options(1));
            assert!(matches!(error, GpuError::InvalidArgument { .. }), "{error}");
        }
    }
    // 2 (2^63 + 1) values wrap to 2 in 64 bits.
    let item = CsrSize { nrows: 1, ncols: 2, nnz: 2 };
    for (nitems, shared_values) in [((1 << 63) + 1, false), (most, false), (most, true)] {
        let error = refused(BatchSizes::Uniform { item, nitems, shared_values }, options(1));
        assert!(matches!(error, GpuError::InvalidArgument { name: "batch", .. }), "{error}");
    }
    // 2^31 columns with the largest number of right-hand sides.
    let wide = BatchSizes::Uniform { item, nitems: 1 << 30, shared_values: true };
    let error = refused(wide, options(i32::MAX as usize));
    assert!(matches!(error, GpuError::InvalidArgument { name: "batch", .. }), "{error}");
}
