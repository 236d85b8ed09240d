//! The packed product of whole batches: packing, results, and limits. In the emulation and, if
//! present, on a GPU.

mod degenerate;
mod graphs;
mod huge;
mod many;
mod memory;
mod packing;
mod places;
mod products;
mod properties;
mod refusals;
mod rows_apart;
mod updates;

use std::sync::Arc;

use crate::common::arrays::upload;
use sparsebatch_cpu_ref::seq;
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::accuracy::assert_spmv_close;
use sparsebatch_formats::{Batch, BatchValues, Csr, CsrPattern, RaggedCsr, Scalar, UniformBatch};
use sparsebatch_spmv_gpu::flexible::BatchSizes;
use sparsebatch_spmv_gpu::{CsrArrays, CsrSize, PackedKernel, PackedOptions, PackedPlan};
use sparsebatch_testing::random_vector;

/// `alpha A x + beta y` of all systems.
fn multiply<E: Executor + Clone, T: Value>(
    executor: &E,
    plan: &PackedPlan<E, T>,
    (alpha, x): (T, &[T]),
    (beta, y): (T, &[T]),
) -> Vec<T> {
    let x = executor.upload(x).unwrap();
    let mut y = executor.upload(y).unwrap();
    plan.apply(alpha, &x, beta, &mut y).unwrap();
    executor.synchronize().unwrap();
    executor.download(&y).unwrap()
}

/// `A x` of all systems, into y = NaN.
fn product<E: Executor + Clone, T: Value>(
    executor: &E,
    batch: &Batch<T>,
    options: PackedOptions,
    x: &[T],
) -> Vec<T> {
    let plan = PackedPlan::new(executor.clone(), batch, options).unwrap();
    let nan = vec![T::from_f64(f64::NAN); rows(batch) * options.nrhs];
    multiply(executor, &plan, (T::ONE, x), (T::ZERO, &nan))
}

/// Compares `A x` of every system with exact sums.
fn check<E: Executor + Clone, T: Value>(
    executor: &E,
    batch: &Batch<T>,
    options: PackedOptions,
    x: &[T],
) {
    let y = product(executor, batch, options, x);
    for item in 0..batch.nitems() {
        let a = matrix(batch, item);
        for rhs in 0..options.nrhs {
            let x0 = batch.col_offset(item) * options.nrhs + rhs * a.ncols();
            let y0 = batch.row_offset(item) * options.nrhs + rhs * a.nrows();
            assert_spmv_close(a.view(), &x[x0..x0 + a.ncols()], &y[y0..y0 + a.nrows()]);
        }
    }
}

/// `alpha A x + beta y` by the oracle.
fn oracle<T: Value>(
    batch: &Batch<T>,
    nrhs: usize,
    (alpha, x): (T, &[T]),
    (beta, y): (T, &[T]),
) -> Vec<T> {
    let mut y = y.to_vec();
    let matrices: Vec<Csr<T>> = (0..batch.nitems()).map(|item| matrix(batch, item)).collect();
    let Batch::Ragged(batch) = ragged(&matrices) else { panic!("made ragged") };
    seq::batch_spmv::<CsrPattern, T>(alpha, &batch, nrhs, x, beta, &mut y).unwrap();
    y
}

fn matrix<T: Scalar>(batch: &Batch<T>, item: usize) -> Csr<T> {
    let mut values = Vec::new();
    batch.copy_values(item, &mut values);
    let pattern = batch.pattern(item);
    let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
    Csr::try_new(pattern.nrows(), pattern.ncols(), row_ptr, col_idx, values).unwrap()
}

fn ragged<T: Scalar>(matrices: &[Csr<T>]) -> Batch<T> {
    let mut batch = RaggedCsr::new();
    for matrix in matrices {
        batch.push(matrix.view());
    }
    Batch::Ragged(batch)
}

/// `nitems` systems with the pattern of a matrix, each with random values of its own.
fn uniform<T: Scalar>(matrix: &Csr<T>, nitems: usize) -> UniformBatch<CsrPattern, T> {
    let pattern = Arc::new(pattern_of(matrix));
    let values = BatchValues::ItemMajor(random_vector(matrix.nnz() * nitems, 21));
    UniformBatch::try_new(pattern, nitems, values).unwrap()
}

fn pattern_of<T: Scalar>(matrix: &Csr<T>) -> CsrPattern {
    let pattern = matrix.pattern();
    let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
    CsrPattern::try_new(matrix.nrows(), matrix.ncols(), row_ptr, col_idx).unwrap()
}

fn rows<T: Scalar>(batch: &Batch<T>) -> usize {
    batch.row_offset(batch.nitems())
}

fn columns<T: Scalar>(batch: &Batch<T>) -> usize {
    batch.col_offset(batch.nitems())
}

fn size_of_matrix<T: Scalar>(a: &Csr<T>) -> CsrSize {
    CsrSize { nrows: a.nrows(), ncols: a.ncols(), nnz: a.nnz() }
}

/// Uploads the arrays of a batch and passes them with their sizes to `then`, for a plan over
/// arrays.
fn with_arrays<E: Executor, T: Value, R>(
    executor: &E,
    batch: &Batch<T>,
    then: impl FnOnce(BatchSizes<'_>, CsrArrays<E, T>) -> R,
) -> R {
    match batch {
        Batch::Ragged(host) => {
            let sizes: Vec<CsrSize> =
                (0..host.nitems()).map(|item| size_of_matrix(&matrix(batch, item))).collect();
            let arrays = upload(executor, host.row_ptr(), host.col_idx(), host.values());
            then(BatchSizes::Ragged(&sizes), arrays)
        }
        Batch::Uniform(host) => {
            let sizes = BatchSizes::Uniform {
                item: size_of_matrix(&host.to_matrix(0)),
                nitems: host.nitems(),
                shared_values: host.is_shared(),
            };
            let own = host.to_item_major();
            let values = if host.is_shared() { host.values() } else { own.values() };
            let (BatchValues::Shared(values) | BatchValues::ItemMajor(values)) = values else {
                panic!("made item-major")
            };
            let pattern = host.pattern();
            then(sizes, upload(executor, pattern.row_ptr(), pattern.col_idx(), values))
        }
    }
}

/// Of many blocks the first two, one in the middle and the last two; of few all.
fn some(count: u64) -> Vec<u64> {
    if count <= 4096 { (0..count).collect() } else { vec![0, 1, count / 2, count - 2, count - 1] }
}

fn options(nrhs: usize) -> PackedOptions {
    PackedOptions::default().nrhs(nrhs)
}

const REGISTERS: Option<PackedKernel> = Some(PackedKernel::Registers { depth: 4 });

/// A matrix with rows of the given lengths, whose columns are evenly spaced.
fn with_lengths<T: Scalar>(lengths: &[usize], ncols: usize) -> Csr<T> {
    let mut row_ptr = vec![0];
    let mut col_idx: Vec<i32> = Vec::new();
    for (row, &len) in lengths.iter().enumerate() {
        let stride = ncols / len.max(1);
        col_idx.extend((0..len).map(|k| (row % stride + k * stride) as i32));
        row_ptr.push(col_idx.len() as i32);
    }
    let values = random_vector(col_idx.len(), 17);
    Csr::try_new(lengths.len(), ncols, row_ptr, col_idx, values).unwrap()
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

/// A matrix whose rows have few columns each: adjacent ones, or with `far` ones that are far apart.
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

/// Small systems of all kinds.
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

/// Systems that are divided or gather x, beside small ones.
fn divided() -> Batch<f64> {
    ragged(&[
        uneven(10, 40_000),
        spread(2500, 2500, false),
        uneven(40, 40),
        spread(2100, 200_000, true),
        uneven(30, 20),
    ])
}

/// Systems of more than one piece, with columns beyond 16 bits, beside small ones.
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
