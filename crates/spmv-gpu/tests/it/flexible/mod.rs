//! The flexible batched product compared with the oracle on any executor: in the emulation, and, if
//! present, on a GPU.

mod plan;

use kernel_emu::{Emulator, Order};
use sparsebatch_cpu_ref::seq;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::accuracy::{PRODUCT_ERROR_FACTOR, assert_spmv_close, spmv_exact};
use sparsebatch_formats::generate::{banded, dense, pareto, random};
use sparsebatch_formats::{Batch, BatchCsr, BatchValues, Csr, CsrPattern, RaggedCsr, UniformBatch};
use sparsebatch_spmv_gpu::flexible::{FlexibleKernel, FlexibleOptions, FlexiblePlan};
use sparsebatch_testing::random_vector;

fn empty(nrows: usize, ncols: usize) -> Csr<f64> {
    Csr::try_new(nrows, ncols, vec![0; nrows + 1], vec![], vec![]).unwrap()
}

/// A matrix with every third row empty, one dense row, and short rows.
fn uneven(nrows: usize, ncols: usize) -> Csr<f64> {
    let mut row_ptr = vec![0];
    let mut col_idx = Vec::new();
    for row in 0..nrows {
        match row % 3 {
            _ if row == nrows / 2 => col_idx.extend(0..ncols as i32),
            0 => {}
            k => col_idx.extend((0..ncols.min(k + row % 5)).map(|c| c as i32)),
        }
        row_ptr.push(col_idx.len() as i32);
    }
    let values = random_vector(col_idx.len(), nrows as u64);
    Csr::try_new(nrows, ncols, row_ptr, col_idx, values).unwrap()
}

/// Systems at every boundary between cases of the kernels.
fn zoo() -> RaggedCsr<f64> {
    let matrices = [
        empty(0, 0),
        uneven(37, 70),
        empty(0, 5),
        empty(5, 0),
        empty(4, 4),
        dense(1, 1, 1).unwrap(),
        dense(1, 100, 2).unwrap(),
        dense(40, 1, 3).unwrap(),
        random(20, 33, 5, 4).unwrap(),
        random(33, 20, 1, 5).unwrap(),
        banded(65, 3, 6).unwrap(),
        uneven(150, 40),
        dense(3, 64, 7).unwrap(),
        pareto(64, 64, 1, 1.0, 8).unwrap(),
        random(31, 300, 33, 9).unwrap(),
        // The system has fewer entries than a large block has warps.
        dense(3, 3, 10).unwrap(),
    ];
    let mut batch = RaggedCsr::new();
    for matrix in &matrices {
        batch.push(matrix.view());
    }
    batch
}

fn integers<T: Value>(len: usize, seed: usize) -> Vec<T> {
    (0..len).map(|k| T::from_f64(((k * 7 + seed) % 17) as f64 - 8.0)).collect()
}

/// Computes one product on an executor.
fn product<E: Executor + Clone, T: Value>(
    executor: &E,
    batch: &Batch<T>,
    options: FlexibleOptions,
    (alpha, beta): (f64, f64),
    x: &[T],
    y: &[T],
) -> Vec<T> {
    let plan = FlexiblePlan::new(executor, batch, options).unwrap();
    apply(executor, &plan, (alpha, beta), x, y)
}

fn apply<E: Executor + Clone, T: Value>(
    executor: &E,
    plan: &FlexiblePlan<E, T>,
    (alpha, beta): (f64, f64),
    x: &[T],
    y: &[T],
) -> Vec<T> {
    let x = executor.upload(x).unwrap();
    let mut y = executor.upload(y).unwrap();
    plan.apply(T::from_f64(alpha), &x, T::from_f64(beta), &mut y).unwrap();
    executor.download(&y).unwrap()
}

/// Row by row |y - y^| <= c (nnz_row + 2) eps (|alpha| |A| |x| + |beta y|)_row: the bound of
/// [`PRODUCT_ERROR_FACTOR`] with the two terms of alpha and beta.
fn assert_close<T: Value>(
    batch: &RaggedCsr<T>,
    nrhs: usize,
    (alpha, beta): (f64, f64),
    x: &[T],
    y: &[T],
    found: &[T],
) {
    for item in 0..batch.nitems() {
        let a = batch.item(item);
        let (nrows, ncols) = (a.pattern().nrows(), a.pattern().ncols());
        for rhs in 0..nrhs {
            let x0 = batch.col_offsets()[item] * nrhs + rhs * ncols;
            let y0 = batch.row_offsets()[item] * nrhs + rhs * nrows;
            let (exact, scale) = spmv_exact(a, &x[x0..x0 + ncols]);
            for row in 0..nrows {
                let y = y[y0 + row].to_f64();
                let expected = alpha * exact[row] + beta * y;
                let terms = a.pattern().row(row).len() as f64 + 2.0;
                let size = alpha.abs() * scale[row] + (beta * y).abs();
                let bound = PRODUCT_ERROR_FACTOR * terms * T::EPSILON.to_f64() * size;
                let found = found[y0 + row].to_f64();
                assert!(
                    (found - expected).abs() <= bound,
                    "item {item}, rhs {rhs}, row {row}: {found:e}, expected {expected:e}"
                );
            }
        }
    }
}

/// Options that select different paths of a kernel.
fn variants(kernel: FlexibleKernel) -> Vec<FlexibleOptions> {
    let base = FlexibleOptions::new(kernel);
    let mut variants = vec![
        base.clone(),
        base.clone().nrhs(3).shared_bytes(Some(0)).threads(Some(32)),
        base.clone()
            .nrhs(2)
            .shared_bytes(Some(300))
            .threads(Some(96))
            .max_blocks(Some(3))
            .threads_per_row(8),
        base.clone().threads(Some(1024)).threads_per_row(2),
    ];
    if kernel == FlexibleKernel::SellP {
        variants.push(base.threads_per_row(1));
    }
    variants
}

fn check_zoo<E: Executor + Clone, T: Value>(executor: &E) {
    let real: RaggedCsr<T> = zoo().cast();
    let mut whole = real.clone();
    let values = integers(whole.total_nnz(), 5);
    whole.values_mut().copy_from_slice(&values);
    for options in FlexibleKernel::ALL.iter().copied().flat_map(variants) {
        let nrhs = options.nrhs;
        let (ncols, nrows) = (real.col_offsets()[16] * nrhs, real.row_offsets()[16] * nrhs);

        // Integers: sums are exact in any order, so all kernels agree with the oracle in each bit.
        let (x, y) = (integers(ncols, 1), integers(nrows, 2));
        let mut expected = y.clone();
        let (alpha, beta) = (T::from_f64(2.0), T::from_f64(-3.0));
        seq::batch_spmv::<CsrPattern, T>(alpha, &whole, nrhs, &x, beta, &mut expected).unwrap();
        let batch = Batch::Ragged(whole.clone());
        let found = product(executor, &batch, options.clone(), (2.0, -3.0), &x, &y);
        assert_eq!(found, expected, "{options:?}");

        // Real values, y of NaN where beta is 0.
        let batch = Batch::Ragged(real.clone());
        let plan = FlexiblePlan::new(executor, &batch, options.clone()).unwrap();
        let (x, y) = (random_vector(ncols, 1), random_vector(nrows, 2));
        let found = apply(executor, &plan, (-0.3, 1.7), &x, &y);
        let pair = (T::from_f64(-0.3).to_f64(), T::from_f64(1.7).to_f64());
        assert_close(&real, nrhs, pair, &x, &y, &found);
        let nan = vec![T::from_f64(f64::NAN); nrows];
        let found = apply(executor, &plan, (1.0, 0.0), &x, &nan);
        assert_close(&real, nrhs, (1.0, 0.0), &x, &vec![T::ZERO; nrows], &found);
    }
}

#[test]
fn every_kernel_agrees_with_the_oracle_in_every_order_of_threads() {
    for order in [Order::Forward, Order::Random(3)] {
        check_zoo::<_, f64>(&Emulator::new(order));
    }
    let executor = Emulator::new(Order::Reverse);
    check_zoo::<_, f32>(&executor);
    check_wide::<_, f32>(&executor);
    let launched = executor.launched();
    // 7 kernels and 3 more SELL-P instances, with indices of 16 bits and of 32.
    assert_eq!(launched.len(), 20 - 3, "{launched:?}");
}

#[test]
fn every_kernel_agrees_with_the_oracle_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    check_zoo::<_, f64>(&device);
    check_zoo::<_, f32>(&device);
    check_wide::<_, f64>(&device);
    check_special::<_, f64>(&device);
    check_uniform::<_, f64>(&device);
    check_tiny(&device, FlexibleKernel::ALL);
}

/// Systems with more columns than 16 bits count, and than shared memory holds.
fn check_wide<E: Executor + Clone, T: Value>(executor: &E) {
    let batch: RaggedCsr<T> = {
        let mut batch = RaggedCsr::new();
        batch.push(random(40, 70_000, 3, 1).unwrap().view());
        batch.push(banded(50, 5, 2).unwrap().view());
        batch.cast()
    };
    let (x, y) = (random_vector(70_050, 1), random_vector(90, 2));
    for &kernel in FlexibleKernel::ALL {
        let options = FlexibleOptions::new(kernel);
        let plan = FlexiblePlan::new(executor, &Batch::Ragged(batch.clone()), options).unwrap();
        assert_eq!(plan.explain().operands_in_shared, 1);
        assert!(!plan.batch().is_compact());
        let found = apply(executor, &plan, (0.5, 2.0), &x, &y);
        assert_close(&batch, 1, (0.5, 2.0), &x, &y, &found);
    }
}

#[test]
fn columns_beyond_16_bits_and_shared_memory_are_read() {
    check_wide::<_, f64>(&Emulator::new(Order::Forward));
}

#[test]
fn the_last_columns_of_16_bits_are_no_padding() {
    let executor = Emulator::new(Order::Forward);
    for ncols in [65_535, 65_536] {
        let column = ncols as i32 - 1;
        let a = Csr::try_new(2, ncols, vec![0, 2, 3], vec![0, column, column], vec![1.0; 3]);
        let batch = Batch::from(a.unwrap());
        let mut x = vec![f64::NAN; ncols];
        (x[0], x[ncols - 1]) = (2.0, 3.0);
        for &kernel in FlexibleKernel::ALL {
            let options = FlexibleOptions::new(kernel).shared_bytes(Some(0));

            let found = product(&executor, &batch, options, (1.0, 0.0), &x, &[0.0; 2]);

            assert_eq!(found, [5.0, 3.0], "{kernel} with {ncols} columns");
        }
    }
}

/// NaN and infinities in x reach exactly the rows that store their column.
fn check_special<E: Executor + Clone, T: Value>(executor: &E) {
    let batch: RaggedCsr<T> = zoo().cast();
    let mut x: Vec<T> = random_vector(batch.col_offsets()[16], 3);
    for k in (0..x.len()).step_by(9) {
        x[k] = T::from_f64([f64::NAN, f64::INFINITY, f64::NEG_INFINITY][k % 3]);
    }
    let nan = vec![T::from_f64(f64::NAN); batch.row_offsets()[16]];
    for options in FlexibleKernel::ALL.iter().copied().flat_map(variants) {
        let options = options.nrhs(1);
        let ragged = Batch::Ragged(batch.clone());
        let found = product(executor, &ragged, options, (1.0, 0.0), &x, &nan);
        for item in 0..batch.nitems() {
            let columns = batch.col_offsets()[item]..batch.col_offsets()[item + 1];
            let rows = batch.row_offsets()[item]..batch.row_offsets()[item + 1];
            assert_spmv_close(batch.item(item), &x[columns], &found[rows]);
        }
    }
}

#[test]
fn nan_and_infinity_reach_only_rows_that_store_their_column() {
    check_special::<_, f64>(&Emulator::new(Order::Random(1)));
}

/// Uniform batches in every layout, multiples of one matrix, and updates of values.
fn check_uniform<E: Executor + Clone, T: Value>(executor: &E) {
    let (matrix, nitems) = (uneven(37, 50), 9);
    let one: Vec<T> = integers(matrix.values().len(), 3);
    let many: Vec<T> = integers(one.len() * nitems, 4);
    let uniform = |values| UniformBatch::try_new(matrix.pattern().clone(), nitems, values).unwrap();
    let item_major: BatchCsr<T> = uniform(BatchValues::ItemMajor(many.clone()));
    let shared: BatchCsr<T> = uniform(BatchValues::Shared(one.clone()));
    let (x, y) = (integers(50 * nitems, 1), integers(37 * nitems, 2));
    let expected = |batch: &BatchCsr<T>, y: &[T]| {
        let mut y = y.to_vec();
        seq::batch_spmv::<CsrPattern, T>(T::ONE, batch, 1, &x, T::ONE, &mut y).unwrap();
        y
    };
    for &kernel in FlexibleKernel::ALL {
        let options = FlexibleOptions::new(kernel);
        for batch in [item_major.clone(), item_major.to_interleaved()] {
            let batch = Batch::Uniform(batch);
            let found = product(executor, &batch, options.clone(), (1.0, 1.0), &x, &y);
            assert_eq!(found, expected(&item_major, &y), "{kernel}");
        }

        let batch = Batch::Uniform(shared.clone());
        let mut plan = FlexiblePlan::new(executor, &batch, options.clone()).unwrap();
        assert_eq!(apply(executor, &plan, (1.0, 1.0), &x, &y), expected(&shared, &y), "{kernel}");

        let doubled: Vec<T> = one.iter().map(|&v| v + v).collect();
        plan.update_values(&doubled).unwrap();
        let found = apply(executor, &plan, (1.0, 1.0), &x, &y);
        assert_eq!(found, expected(&uniform(BatchValues::Shared(doubled)), &y), "{kernel}");

        let factors: Vec<T> = integers(nitems, 6);
        let scaled = factors.iter().flat_map(|&f| one.iter().map(move |&v| f * (v + v))).collect();
        plan.set_scale(Some(&factors)).unwrap();
        let found = apply(executor, &plan, (1.0, 1.0), &x, &y);
        assert_eq!(found, expected(&uniform(BatchValues::ItemMajor(scaled)), &y), "{kernel}");
    }
}

#[test]
fn uniform_batches_share_what_they_have_in_common() {
    check_uniform::<_, f64>(&Emulator::new(Order::Forward));
}

#[test]
fn factors_and_new_values_find_their_items_in_a_ragged_batch() {
    let executor = Emulator::new(Order::Forward);
    let batch = zoo();
    let values: Vec<f64> = integers(batch.total_nnz(), 8);
    let factors: Vec<f64> = integers(batch.nitems(), 3);
    let mut scaled = batch.clone();
    for (entries, &factor) in batch.nnz_offsets().windows(2).zip(&factors) {
        let entries = entries[0]..entries[1];
        for (scaled, value) in scaled.values_mut()[entries.clone()].iter_mut().zip(&values[entries])
        {
            *scaled = factor * value;
        }
    }
    let (x, y) = (integers(batch.col_offsets()[16], 1), integers(batch.row_offsets()[16], 2));
    let mut expected = y.clone();
    seq::batch_spmv::<CsrPattern, f64>(1.0, &scaled, 1, &x, 1.0, &mut expected).unwrap();
    for &kernel in FlexibleKernel::ALL {
        let options = FlexibleOptions::new(kernel);
        let batch = Batch::Ragged(batch.clone());
        let mut plan = FlexiblePlan::new(&executor, &batch, options).unwrap();

        plan.update_values(&values).unwrap();
        plan.set_scale(Some(&factors)).unwrap();

        assert_eq!(apply(&executor, &plan, (1.0, 1.0), &x, &y), expected, "{kernel}");
    }
}

/// 70,000 systems of up to three rows: more than 16 bits can count.
fn check_tiny<E: Executor + Clone>(executor: &E, kernels: &[FlexibleKernel]) {
    let mut batch = RaggedCsr::<f64>::new();
    for item in 0..70_000 {
        let n = item % 4;
        batch.push(dense(n, n, item as u64).unwrap().view());
    }
    let values = integers(batch.total_nnz(), 1);
    batch.values_mut().copy_from_slice(&values);
    let x = integers(batch.col_offsets()[70_000], 2);
    let mut expected = vec![0.0; batch.row_offsets()[70_000]];
    seq::batch_spmv::<CsrPattern, f64>(1.0, &batch, 1, &x, 0.0, &mut expected).unwrap();
    let nan = vec![f64::NAN; expected.len()];
    let batch = Batch::Ragged(batch);
    for &kernel in kernels {
        let options = FlexibleOptions::new(kernel);
        assert!(product(executor, &batch, options, (1.0, 0.0), &x, &nan) == expected, "{kernel}");
    }
}

#[test]
fn seventy_thousand_tiny_systems_are_one_launch() {
    check_tiny(&Emulator::new(Order::Forward), &[FlexibleKernel::CsrSmart, FlexibleKernel::CsrI]);
}

#[test]
fn results_depend_neither_on_the_order_of_threads_nor_on_neighbours() {
    let batch = zoo();
    let mut reversed = RaggedCsr::new();
    for item in (0..batch.nitems()).rev() {
        reversed.push(batch.item(item));
    }
    let x: Vec<f64> = random_vector(batch.col_offsets()[16], 4);
    let nrows = batch.row_offsets()[16];
    let reverse = |v: &[f64], offsets: &[usize]| -> Vec<f64> {
        offsets.windows(2).rev().flat_map(|w| v[w[0]..w[1]].to_vec()).collect()
    };
    for kernel in FlexibleKernel::ALL.iter().copied().filter(|kernel| kernel.is_repeatable()) {
        let options = FlexibleOptions::new(kernel).threads(Some(128));
        let run = |order, batch: &RaggedCsr<f64>, x: &[f64]| {
            let batch = Batch::Ragged(batch.clone());
            let y = vec![0.0; nrows];
            product(&Emulator::new(order), &batch, options.clone(), (1.0, 0.0), x, &y)
        };

        let first = run(Order::Forward, &batch, &x);

        assert_eq!(run(Order::Random(9), &batch, &x), first, "{kernel}");
        let found = run(Order::Reverse, &reversed, &reverse(&x, batch.col_offsets()));
        assert_eq!(found, reverse(&first, batch.row_offsets()), "{kernel}");
    }
}
