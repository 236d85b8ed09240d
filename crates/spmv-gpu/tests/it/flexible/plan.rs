//! What plans refuse, and their reports.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError};
use sparsebatch_formats::generate::dense;
use sparsebatch_formats::{Batch, BatchValues, Csr, RaggedCsr, UniformBatch};
use sparsebatch_spmv_gpu::flexible::{FlexibleKernel, FlexibleOptions, FlexiblePlan};

use super::{apply, empty};

#[test]
fn nothing_to_do_is_no_launch() {
    let executor = Emulator::new(Order::Forward);
    let shared = UniformBatch::shared(empty(0, 3), 4);
    let batches = [Batch::Ragged(RaggedCsr::<f64>::new()), Batch::Uniform(shared)];
    for batch in &batches {
        for &kernel in FlexibleKernel::ALL {
            let plan = FlexiblePlan::new(&executor, batch, FlexibleOptions::new(kernel)).unwrap();
            let x = vec![1.0; plan.batch().total_cols()];

            assert!(apply(&executor, &plan, (1.0, 0.0), &x, &[]).is_empty());
            assert_eq!(plan.explain().blocks, 0);
        }
    }
    assert!(executor.launched().is_empty());
}

#[test]
fn numbers_of_items_and_values_do_not_wrap() {
    let executor = Emulator::new(Order::Forward);
    let a = dense(2, 2, 1).unwrap();
    let text = |batch: &Batch<f64>, nrhs| {
        let options = FlexibleOptions::new(FlexibleKernel::CsrScalar).nrhs(nrhs);
        FlexiblePlan::new(&executor, batch, options).map(drop).unwrap_err().to_string()
    };
    let shared = |nitems| Batch::Uniform(UniformBatch::shared(a.clone(), nitems));

    for nitems in [1 << 63, usize::MAX] {
        let expected =
            format!("number of systems is {nitems}, the largest supported is 4000000000");
        assert_eq!(text(&shared(nitems), 1), expected);
    }
    let wide = Batch::Uniform(UniformBatch::shared(wide(), 1000));
    assert!(text(&wide, u32::MAX as usize).starts_with("number of values of x and y is "));
    assert_eq!(executor.bytes_in_use(), 0);
}

/// A row of 2^31 - 1 columns.
fn wide() -> Csr<f64> {
    Csr::try_new(1, i32::MAX as usize, vec![0, 1], vec![0], vec![1.0]).unwrap()
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let executor = Emulator::new(Order::Forward);
    let batch = Batch::from(dense(3, 2, 1).unwrap());
    let base = FlexibleOptions::new(FlexibleKernel::SellP);
    let mut plan = FlexiblePlan::new(&executor, &batch, base.clone()).unwrap();
    let length = |result: Result<(), GpuError>| match result.unwrap_err() {
        GpuError::Length { name, expected, found } => (name, expected, found),
        other => panic!("{other}"),
    };
    let (x, long) = (executor.upload(&[1.0; 2]).unwrap(), executor.upload(&[1.0; 4]).unwrap());
    let mut y = executor.upload(&[7.0; 3]).unwrap();
    let mut short = executor.upload(&[7.0; 2]).unwrap();

    assert_eq!(length(plan.apply(1.0, &long, 0.0, &mut y)), ("x", 2, 4));
    assert_eq!(length(plan.apply(1.0, &x, 0.0, &mut short)), ("y", 3, 2));
    assert_eq!(executor.download(&y).unwrap(), [7.0; 3]);
    assert_eq!(length(plan.update_values(&[1.0; 5])), ("values", 6, 5));
    assert_eq!(length(plan.set_scale(Some(&[1.0; 2]))), ("scale", 1, 2));

    let options = [
        ("nrhs", base.clone().nrhs(0)),
        ("threads", base.clone().threads(Some(33))),
        ("threads", base.clone().threads(Some(2048))),
        ("max_blocks", base.clone().max_blocks(Some(0))),
        ("shared_bytes", base.clone().shared_bytes(Some(232_448))),
        ("threads_per_row", base.clone().threads_per_row(16)),
    ];
    for (expected, options) in options {
        match FlexiblePlan::new(&executor, &batch, options) {
            Err(GpuError::InvalidArgument { name, .. }) => assert_eq!(name, expected),
            other => panic!("{expected}: {:?}", other.map(|_| ())),
        }
    }
    let other = FlexibleOptions::new(FlexibleKernel::Ell);
    let found = FlexiblePlan::with_batch(&executor, plan.into_batch(), other).map(|_| ());
    assert!(matches!(found, Err(GpuError::InvalidArgument { name: "storage of the batch", .. })));
}

#[test]
fn storage_that_would_not_fit_is_refused_before_it_is_made() {
    let executor = Emulator::new(Order::Forward);
    // One row of 2^15 entries makes ELL 2^30 slots of 10 bytes; the emulation has 2^30 bytes.
    let n = 1 << 15;
    let mut row_ptr = vec![n as i32; n + 1];
    row_ptr[0] = 0;
    let a = Csr::try_new(n, n, row_ptr, (0..n as i32).collect(), vec![1.0; n]).unwrap();

    let options = FlexibleOptions::new(FlexibleKernel::Ell);
    let error = FlexiblePlan::new(&executor, &Batch::from(a), options).map(|_| ()).unwrap_err();

    assert_eq!(error, GpuError::OutOfMemory { needed: 10 << 30, free: 1 << 30 });
}

#[test]
fn explanations_count_bytes_and_padding() {
    let executor = Emulator::new(Order::Forward);
    // Rows of 3, 0 and 1 entries; two items with values of their own.
    let a = Csr::try_new(3, 4, vec![0, 3, 3, 4], vec![0, 1, 2, 3], vec![1.0; 4]).unwrap();
    let values = BatchValues::ItemMajor(vec![1.0; 8]);
    let batch = Batch::Uniform(UniformBatch::try_new(a.pattern().clone(), 2, values).unwrap());
    let explain = |kernel| {
        let plan = FlexiblePlan::new(&executor, &batch, FlexibleOptions::new(kernel)).unwrap();
        plan.explain()
    };
    // Columns and values; descriptors; x.
    let ell = explain(FlexibleKernel::Ell);
    assert_eq!((ell.nnz, ell.padding, ell.flops()), (8, 10, 16));
    assert_eq!(ell.matrix_bytes, 9 * 2 + 18 * 8);
    assert_eq!(ell.bytes_read, ell.matrix_bytes + 2 * 64 + 8 * 8);
    assert_eq!((ell.bytes_written, ell.operands_in_shared, ell.blocks), (6 * 8, 2, 2));

    // In addition, row pointers and the start rows of the one warp.
    let csr_i = explain(FlexibleKernel::CsrI);
    assert_eq!((csr_i.padding, csr_i.threads), (0, 32));
    assert_eq!(csr_i.bytes_read, 4 * 4 + 4 * 2 + 8 * 8 + 2 * 64 + 4 + 8 * 8);
    assert!(csr_i.to_string().starts_with("batch-csr-i (batch_csr_i<double, u16>): 2 systems, "));
}
