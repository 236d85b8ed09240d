//! Batches and systems without items, rows, columns or entries, and with one row.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Executor;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_formats::{Batch, BatchCsr, Csr, RaggedCsr, UniformBatch};
use sparsebatch_spmv_gpu::flexible::BatchSizes;
use sparsebatch_spmv_gpu::{CsrSize, PackedPlan};
use sparsebatch_testing::random_vector;

use super::{
    REGISTERS, columns, multiply, options, oracle, ragged, rows, uneven, uniform, upload,
    with_arrays,
};
use crate::common::matrices::integers;

fn zeros(nrows: usize, ncols: usize) -> Csr<f64> {
    Csr::zeros(nrows, ncols).unwrap()
}

/// A matrix of one row with every `step`-th column.
fn row(ncols: usize, step: usize) -> Csr<f64> {
    let col_idx: Vec<i32> = (0..ncols as i32).step_by(step).collect();
    let values = integers(col_idx.len(), 3);
    Csr::try_new(1, ncols, vec![0, col_idx.len() as i32], col_idx, values).unwrap()
}

/// A dense matrix of integers of any shape.
fn dense(nrows: usize, ncols: usize) -> Csr<f64> {
    let row_ptr = (0..=nrows).map(|row| (row * ncols) as i32).collect();
    let col_idx = (0..nrows).flat_map(|_| 0..ncols as i32).collect();
    Csr::try_new(nrows, ncols, row_ptr, col_idx, integers(nrows * ncols, 4)).unwrap()
}

fn with_integers(mut a: Csr<f64>) -> Csr<f64> {
    let values = integers(a.nnz(), 8);
    a.values_mut().copy_from_slice(&values);
    a
}

fn one_each(a: Csr<f64>, nitems: usize) -> [Batch<f64>; 3] {
    let mut own = uniform(&a, nitems);
    let values = integers(a.nnz() * nitems, 5);
    own.values_mut().copy_from_slice(&values);
    let interleaved = Batch::Uniform(own.to_interleaved());
    [Batch::Uniform(own), interleaved, Batch::Uniform(UniformBatch::shared(a, nitems))]
}

fn batches() -> Vec<(&'static str, Batch<f64>)> {
    let mut all = vec![
        ("no items", Batch::Ragged(RaggedCsr::new())),
        ("nothing in the only item", ragged(&[zeros(0, 0)])),
        ("no rows", ragged(&[zeros(0, 5), zeros(0, 1)])),
        ("no columns", ragged(&[zeros(4, 0), zeros(70, 0)])),
        ("no entries", ragged(&[zeros(3, 4), zeros(100, 2), zeros(1, 3000)])),
        ("many rows without entries", ragged(&[zeros(5000, 3)])),
        ("many columns without entries", ragged(&[zeros(3, 100_000)])),
        ("one entry", ragged(&[row(1, 1)])),
        ("one row", ragged(&[row(40, 3)])),
        ("a long row", ragged(&[row(60_000, 1)])),
        ("a row longer than a piece", ragged(&[row(90_000, 1)])),
        ("far columns of a row", ragged(&[row(200_000, 1000)])),
        ("more rows than columns", ragged(&[dense(300, 2), dense(33, 1)])),
        ("more columns than rows", ragged(&[dense(2, 300), dense(1, 33)])),
        (
            "nothing among others",
            ragged(&[
                zeros(0, 0),
                dense(3, 4),
                zeros(0, 7),
                zeros(5, 0),
                with_integers(uneven(20, 30)),
                zeros(2, 2),
                zeros(0, 1),
                zeros(0, 0),
                dense(1, 1),
                zeros(9, 0),
                with_integers(uneven(2500, 40)),
                zeros(0, 0),
                zeros(3, 1),
                dense(5, 5),
                zeros(0, 2),
            ]),
        ),
    ];
    let uniform_ones: [(&str, Csr<f64>, usize); 9] = [
        ("0 systems", dense(3, 3), 0),
        ("7 of nothing", zeros(0, 0), 7),
        ("7 without rows", zeros(0, 4), 7),
        ("7 without columns", zeros(4, 0), 7),
        ("7 without entries", zeros(4, 5), 7),
        ("1 entry each", dense(1, 1), 100),
        ("one dense row each", row(50, 1), 9),
        ("more rows than columns", dense(40, 3), 5),
        ("more columns than rows", dense(3, 40), 5),
    ];
    for (name, a, nitems) in uniform_ones {
        all.extend(one_each(a, nitems).map(|batch| (name, batch)));
    }
    all
}

fn check_batches<E: Executor + Clone>(executor: &E) {
    for (name, batch) in batches() {
        for nrhs in [1, 2, 3] {
            let x = integers::<f64>(columns(&batch) * nrhs, 1);
            let y = integers::<f64>(rows(&batch) * nrhs, 2);
            for (kernel, group_entries) in
                [(None, Some(0)), (REGISTERS, Some(10_000)), (None, Some(10_000))]
            {
                let options = options(nrhs).kernel(kernel).group_entries(group_entries);
                let plan = PackedPlan::new(executor.clone(), &batch, options).unwrap();
                let nan = vec![f64::NAN; y.len()];

                let found = multiply(executor, &plan, (2.0, &x), (0.0, &nan));
                let expected = oracle(&batch, nrhs, (2.0, &x), (0.0, &y));
                assert_eq!(found, expected, "{name}, {nrhs} right-hand sides, {options:?}");
                let found = multiply(executor, &plan, (2.0, &x), (-3.0, &y));
                let expected = oracle(&batch, nrhs, (2.0, &x), (-3.0, &y));
                assert_eq!(found, expected, "{name}, {nrhs} right-hand sides, {options:?}");
                assert_eq!(plan.explain().nnz, batch.total_nnz() as u64, "{name}");
                assert!(plan.explain().slots >= plan.explain().nnz, "{name}");
            }
        }
    }
}

#[test]
fn batches_with_little_or_nothing_in_them_are_multiplied() {
    for order in [Order::Forward, Order::Random(9)] {
        check_batches(&Emulator::new(order));
    }
}

#[test]
fn batches_with_little_or_nothing_in_them_are_multiplied_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    check_batches(&device);
}

#[test]
fn nothing_is_launched_for_batches_without_rows() {
    for batch in [
        Batch::Ragged(RaggedCsr::new()),
        ragged(&[zeros(0, 0), zeros(0, 9)]),
        Batch::Uniform(BatchCsr::shared(dense(3, 3), 0)),
        Batch::Uniform(BatchCsr::shared(zeros(0, 3), 5)),
    ] {
        let executor = Emulator::new(Order::Forward);
        let mut plan = PackedPlan::new(executor.clone(), &batch, options(1)).unwrap();
        plan.update_values(&batch).unwrap();
        let x: Vec<f64> = random_vector(columns(&batch), 1);

        assert_eq!(multiply(&executor, &plan, (1.0, &x), (0.0, &[])), []);
        let explain = plan.explain();
        assert_eq!((explain.launches, explain.blocks, explain.slots), (0, 0, 0));
        let fills = executor.launched().iter().any(|kernel| kernel.contains("pack_fill"));
        assert!(!fills, "{:?}", executor.launched());
    }
}

#[test]
fn arrays_with_nothing_in_them_make_plans() {
    let executor = Emulator::new(Order::Forward);
    let none = CsrSize { nrows: 0, ncols: 0, nnz: 0 };
    let some = CsrSize { nrows: 2, ncols: 3, nnz: 4 };
    for sizes in [
        BatchSizes::Ragged(&[]),
        BatchSizes::Uniform { item: none, nitems: 0, shared_values: false },
        BatchSizes::Uniform { item: some, nitems: 0, shared_values: true },
    ] {
        let arrays = upload::<_, f64>(&executor, &[], &[], &[]);
        let plan = PackedPlan::from_arrays(executor.clone(), sizes, &arrays, options(2)).unwrap();
        assert_eq!(multiply(&executor, &plan, (1.0, &[]), (0.0, &[])), []);
    }
    for (name, batch) in batches().into_iter().filter(|(_, batch)| batch.nitems() > 0) {
        let x = integers::<f64>(columns(&batch), 1);
        let plan = with_arrays(&executor, &batch, |sizes, arrays| {
            PackedPlan::from_arrays(executor.clone(), sizes, &arrays, options(1)).unwrap()
        });
        let y = vec![f64::NAN; rows(&batch)];
        let found = multiply(&executor, &plan, (1.0, &x), (0.0, &y));
        assert_eq!(found, oracle(&batch, 1, (1.0, &x), (0.0, &y)), "{name}");
    }
}
