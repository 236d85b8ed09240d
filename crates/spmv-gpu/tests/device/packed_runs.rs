//! Repeated packed products on a GPU, every row compared with the oracle: to find rare races
//! between threads and asynchronous copies.

use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Device, Executor};
use sparsebatch_formats::accuracy::assert_spmv_close;
use sparsebatch_formats::generate::pareto;
use sparsebatch_formats::{Batch, Csr, RaggedCsr, UniformBatch};
use sparsebatch_spmv_gpu::{PackedKernel, PackedOptions, PackedPlan};
use sparsebatch_testing::random_vector;

const RUNS: usize = 20;

fn kernels() -> Vec<Option<PackedKernel>> {
    let stream = |steps, stages, warps| PackedKernel::Stream { steps, stages, warps };
    let kernels = [
        stream(8, 2, 1),
        stream(8, 2, 2),
        stream(8, 2, 4),
        stream(8, 3, 4),
        stream(4, 3, 4),
        PackedKernel::Registers { depth: 4 },
    ];
    [None].into_iter().chain(kernels.map(Some)).collect()
}

/// Checks that every run has the same bits and is close to exact sums.
fn check(device: &Device, batch: &Batch<f64>, options: PackedOptions) {
    let x: Vec<f64> = random_vector(batch.col_offset(batch.nitems()), 3);
    let operand = device.upload(&x).unwrap();
    let plan = PackedPlan::new(device.clone(), batch, options).unwrap();
    let mut first: Option<Vec<u64>> = None;
    for run in 0..RUNS {
        let mut y = device.alloc_zeroed(batch.row_offset(batch.nitems())).unwrap();
        plan.apply(1.0, &operand, 1.0, &mut y).unwrap();
        let y = device.download(&y).unwrap();
        let bits: Vec<u64> = y.iter().map(|value| value.to_bits()).collect();
        let Some(first) = &first else {
            for item in 0..batch.nitems() {
                let pattern = batch.pattern(item);
                let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
                let values = batch.values_in(item, &mut Vec::new()).to_vec();
                let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
                let a = Csr::try_new(nrows, ncols, row_ptr, col_idx, values).unwrap();
                let x = &x[batch.col_offset(item)..][..ncols];
                let y = &y[batch.row_offset(item)..][..nrows];
                assert_spmv_close(a.view(), x, y);
            }
            first = Some(bits);
            continue;
        };
        let differ = first.iter().zip(&bits).filter(|(a, b)| a != b).count();
        assert_eq!(differ, 0, "rows that differ in run {run} with {options:?}");
    }
}

#[test]
fn one_matrix_with_gathered_operands_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    for shape in [4.0, 1.0] {
        let mut batch = RaggedCsr::new();
        batch.push(pareto(30_000, 30_000, 32, shape, 1).unwrap().view());
        let batch = Batch::Ragged(batch);
        for kernel in kernels() {
            for piece_entries in [None, Some(900)] {
                let options = PackedOptions::default().kernel(kernel).piece_entries(piece_entries);
                check(&device, &batch, options);
            }
        }
    }
}

#[test]
fn batches_of_all_sizes_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let sizes = [11, 1000, 90, 332, 822, 23, 500, 1500, 3000];
    let matrices: Vec<Csr<f64>> = (sizes.iter().zip(1..))
        .map(|(&n, seed)| pareto(n, n, (n / 40).max(3), 1.5, seed).unwrap())
        .collect();
    let mut ragged = RaggedCsr::new();
    for k in 0..2000 {
        ragged.push(matrices[k * k % matrices.len()].view());
    }
    let ragged = Batch::Ragged(ragged);
    let uniform = Batch::Uniform(UniformBatch::shared(matrices[3].clone(), 2000));
    for kernel in kernels() {
        for (share, group_entries) in [(None, None), (Some(1), Some(0)), (Some(1000), Some(8192))] {
            let options =
                PackedOptions::default().kernel(kernel).share(share).group_entries(group_entries);
            check(&device, &ragged, options);
            check(&device, &uniform, options);
        }
    }
}
