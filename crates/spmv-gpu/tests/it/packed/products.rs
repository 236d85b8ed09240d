//! Products of batches of any shape compared with exact sums.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchCsr, UniformBatch};
use sparsebatch_spmv_gpu::{PackedKernel, PackedPlan};
use sparsebatch_testing::random_vector;

use super::{REGISTERS, check, columns, large, options, shapes, spread};

#[test]
fn large_small_and_degenerate_systems_together() {
    let batch = shapes();
    let x: Vec<f64> = random_vector(columns(&batch), 2);
    for order in [Order::Forward, Order::Reverse, Order::Random(3)] {
        check(&Emulator::new(order), &batch, options(1), &x);
    }
}

#[test]
fn every_kernel_agrees_with_exact_sums_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let batch = shapes();
    let x: Vec<f64> = random_vector(columns(&batch), 2);
    let stream = |steps, stages, warps| PackedKernel::Stream { steps, stages, warps };
    let registers = |depth| PackedKernel::Registers { depth };
    for kernel in [
        registers(4),
        registers(6),
        stream(4, 3, 2),
        stream(4, 3, 1),
        stream(4, 4, 4),
        stream(8, 3, 4),
        stream(8, 4, 4),
    ] {
        for share in [1, 1000] {
            let options = options(1).kernel(Some(kernel)).share(Some(share));
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
fn systems_of_any_size_together() {
    let batch = large();
    for (nrhs, kernel) in [(1, None), (2, None), (1, REGISTERS)] {
        let x: Vec<f64> = random_vector(columns(&batch) * nrhs, 2);
        let options = options(nrhs).kernel(kernel);
        check(&Emulator::new(Order::Forward), &batch, options, &x);
    }
}

#[test]
fn systems_of_any_size_together_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let batch = large();
    for (nrhs, kernel) in [(1, None), (3, None), (1, REGISTERS), (2, REGISTERS)] {
        let x: Vec<f64> = random_vector(columns(&batch) * nrhs, 2);
        let options = options(nrhs).kernel(kernel);
        check(&device, &batch, options, &x);
        let x: Vec<f32> = random_vector(columns(&batch) * nrhs, 3);
        check(&device, &batch.cast::<f32>(), options, &x);
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
