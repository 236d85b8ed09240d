//! Plans over CSR arrays in the memory of an executor, in the emulation and on a GPU.
#![expect(unsafe_code, reason = "hands arrays to plans")]

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_cpu_ref::seq;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Device, DeviceBuffer, Executor, GpuError, Pod, Value};
use sparsebatch_formats::{BatchValues, Csr, CsrPattern, RaggedCsr, UniformBatch};
use sparsebatch_spmv_gpu::flexible::{
    BatchSizes, DeviceBatch, FlexibleKernel, FlexibleOptions, FlexiblePlan,
};
use sparsebatch_spmv_gpu::{CsrArrays, CsrSize, SingleKernel, SingleOptions, SinglePlan};
use sparsebatch_testing::csr_integers;

use crate::common::arrays::upload;
use crate::common::matrices::{banded, integers, mixed, oracle};

/// A plan that owns its arrays.
fn single_plan<E: Executor + Clone, T: Value>(
    executor: &E,
    (nrows, ncols): (usize, usize),
    arrays: CsrArrays<E, T>,
    options: &SingleOptions,
) -> Result<SinglePlan<E, T>, GpuError> {
    // SAFETY: every caller passes its only handles.
    unsafe { SinglePlan::from_arrays(executor, nrows, ncols, arrays, options) }
}

fn device_batch<E: Executor, T: Value>(
    executor: &E,
    sizes: BatchSizes<'_>,
    arrays: CsrArrays<E, T>,
) -> Result<DeviceBatch<E, T>, GpuError> {
    // SAFETY: every caller passes its only handles.
    unsafe { DeviceBatch::from_arrays(executor, sizes, arrays) }
}

fn csr_kernels() -> impl Iterator<Item = FlexibleKernel> {
    FlexibleKernel::ALL.iter().copied().filter(|kernel| kernel.name().starts_with("batch-csr"))
}

fn check_single<E: Executor + Clone, T: Value>(executor: &E, a: &Csr<T>) {
    let (x, y) = (integers::<T>(a.ncols(), 1), integers::<T>(a.nrows(), 2));
    let (alpha, beta) = (T::from_f64(2.0), T::from_f64(-3.0));
    for kernel in SingleKernel::ALL.iter().copied().filter(|kernel| kernel.reads_csr()) {
        let arrays = upload(executor, a.pattern().row_ptr(), a.pattern().col_idx(), a.values());
        let options = SingleOptions::with_kernel(kernel).parts(Some(5));
        let mut plan = single_plan(executor, (a.nrows(), a.ncols()), arrays, &options).unwrap();
        let x_device = executor.upload(&x).unwrap();
        let mut found = executor.upload(&y).unwrap();
        plan.apply(alpha, &x_device, beta, &mut found).unwrap();
        assert_eq!(executor.download(&found).unwrap(), oracle(alpha, a, &x, beta, &y), "{kernel}");

        let usual = SinglePlan::new(executor, a.view(), &options).unwrap();
        let (given, usual) = (plan.explain(), usual.explain());
        assert_eq!(given.device_bytes(), usual.device_bytes(), "{kernel}");
        assert_eq!((given.lanes, given.parts), (usual.lanes, usual.parts), "{kernel}");
    }
}

fn size_of_matrix<T: Value>(a: &Csr<T>) -> CsrSize {
    CsrSize { nrows: a.nrows(), ncols: a.ncols(), nnz: a.nnz() }
}

/// Ragged, uniform and shared batches of CSR arrays.
fn check_batches<E: Executor + Clone, T: Value>(executor: &E, matrices: &[Csr<T>]) {
    const NITEMS: usize = 7;
    let mut ragged = RaggedCsr::new();
    for matrix in matrices {
        ragged.push(matrix.view());
    }
    let sizes: Vec<CsrSize> = matrices.iter().map(size_of_matrix).collect();
    let (alpha, beta) = (T::from_f64(2.0), T::from_f64(-3.0));
    for kernel in csr_kernels() {
        let options = FlexibleOptions::new(kernel);
        let check = |batch: DeviceBatch<E, T>, x: &[T], y: &[T], expected: &[T]| {
            let plan = FlexiblePlan::with_batch(executor, batch, options.clone()).unwrap();
            let x = executor.upload(x).unwrap();
            let mut y = executor.upload(y).unwrap();
            plan.apply(alpha, &x, beta, &mut y).unwrap();
            assert_eq!(executor.download(&y).unwrap(), expected, "{kernel}");
        };

        let arrays = upload(executor, ragged.row_ptr(), ragged.col_idx(), ragged.values());
        let batch = device_batch(executor, BatchSizes::Ragged(&sizes), arrays).unwrap();
        assert_eq!(batch.nvalues(), ragged.total_nnz());
        let nitems = ragged.nitems();
        let x = integers::<T>(ragged.col_offsets()[nitems], 1);
        let y = integers::<T>(ragged.row_offsets()[nitems], 2);
        let mut expected = y.clone();
        seq::batch_spmv::<CsrPattern, T>(alpha, &ragged, 1, &x, beta, &mut expected).unwrap();
        check(batch, &x, &y, &expected);

        let Some(a) = matrices.last() else { continue };
        let (x, y) = (integers::<T>(a.ncols() * NITEMS, 1), integers::<T>(a.nrows() * NITEMS, 2));
        for shared_values in [false, true] {
            let values = integers::<T>(a.nnz() * if shared_values { 1 } else { NITEMS }, 4);
            let arrays = upload(executor, a.pattern().row_ptr(), a.pattern().col_idx(), &values);
            let item = size_of_matrix(a);
            let sizes = BatchSizes::Uniform { item, nitems: NITEMS, shared_values };
            let batch = device_batch(executor, sizes, arrays).unwrap();
            let values = match shared_values {
                true => BatchValues::Shared(values),
                false => BatchValues::ItemMajor(values),
            };
            let uniform = UniformBatch::try_new(a.pattern().clone(), NITEMS, values).unwrap();
            let mut expected = y.clone();
            seq::batch_spmv::<CsrPattern, T>(alpha, &uniform, 1, &x, beta, &mut expected).unwrap();
            check(batch, &x, &y, &expected);
        }
    }
}

fn some_matrices<T: Value>() -> Vec<Csr<T>> {
    vec![
        Csr::zeros(0, 0).unwrap(),
        Csr::zeros(0, 4).unwrap(),
        Csr::zeros(4, 0).unwrap(),
        Csr::zeros(3, 3).unwrap(),
        mixed(1, 50, Some(0)),
        banded(30, 33),
        mixed(70, 60, Some(9)),
    ]
}

#[test]
fn arrays_on_the_device_are_multiplied_as_they_are() {
    for order in [Order::Forward, Order::Reverse] {
        let executor = Emulator::new(order);
        for a in some_matrices::<f64>() {
            check_single(&executor, &a);
        }
        check_batches(&executor, &some_matrices::<f64>());
        check_batches(&executor, &some_matrices::<f32>());
        check_batches::<_, f64>(&executor, &[]);
    }
}

#[test]
fn arrays_on_the_device_are_multiplied_as_they_are_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    for a in some_matrices::<f64>() {
        check_single(&device, &a);
    }
    check_single(&device, &mixed::<f32>(20_000, 30_000, Some(500)));
    check_batches(&device, &some_matrices::<f64>());
    check_batches(&device, &some_matrices::<f32>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn random_arrays_on_the_device_are_multiplied(
        matrices in proptest::collection::vec(csr_integers::<f64>(30, 30), 0..4),
        seed: u64,
    ) {
        check_batches(&Emulator::new(Order::Random(seed)), &matrices);
    }

    /// The kernel that checks arrays accepts exactly those that the host accepts.
    #[test]
    fn arrays_are_checked_as_on_the_host(
        a in csr_integers::<f64>(12, 12),
        changes in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>(), -2i32..15), 0..3),
    ) {
        let (mut row_ptr, mut col_idx) = (a.pattern().row_ptr().to_vec(), a.pattern().col_idx().to_vec());
        for (pointers, at, to) in changes {
            let array = if pointers { &mut row_ptr } else { &mut col_idx };
            if !array.is_empty() {
                let at = at.index(array.len());
                array[at] = to;
            }
        }
        let executor = Emulator::new(Order::Reverse);
        let arrays = upload(&executor, &row_ptr, &col_idx, a.values());
        let size = (a.nrows(), a.ncols());
        let options = SingleOptions::with_kernel(SingleKernel::CsrScalar);

        let found = single_plan(&executor, size, arrays, &options).map(|_| ());

        let expected = CsrPattern::try_new(size.0, size.1, row_ptr, col_idx);
        prop_assert_eq!(found.is_ok(), expected.is_ok(), "{:?}, {:?}", found, expected);
    }
}

fn check_refusals<E: Executor + Clone>(executor: &E) {
    let refused = |size, row_ptr: &[i32], col_idx: &[i32]| {
        let values = vec![1.0; col_idx.len()];
        let arrays = upload(executor, row_ptr, col_idx, &values);
        let options = SingleOptions::with_kernel(SingleKernel::CsrVector);
        single_plan(executor, size, arrays, &options).map(|_| ()).unwrap_err().to_string()
    };
    let pointers = "row_ptr is wrong at row 1, expected row starts from 0 to 3 that never decrease";
    let columns = "col_idx is wrong at row 1, expected columns below 3 that ascend in each row";

    assert_eq!(refused((2, 3), &[0, 2, 4], &[0, 1, 2]), pointers);
    assert_eq!(refused((2, 3), &[0, 2, 2], &[0, 1, 2]), pointers);
    assert_eq!(refused((3, 3), &[0, 1, -1, 3], &[0, 1, 2]), pointers);
    assert_eq!(refused((3, 3), &[0, 2, 1, 3], &[0, 1, 2]), pointers);
    assert_eq!(refused((2, 3), &[0, 5, 3], &[0, 1, 2]).replace("row 0", "row 1"), pointers);
    assert_eq!(refused((2, 3), &[1, 2, 3], &[0, 1, 2]).replace("row 0", "row 1"), pointers);
    assert_eq!(refused((2, 3), &[0, 1, 3], &[0, 2, 1]), columns);
    assert_eq!(refused((2, 3), &[0, 1, 3], &[0, 1, 1]), columns);
    assert_eq!(refused((2, 3), &[0, 1, 3], &[0, 1, 3]), columns);
    assert_eq!(refused((2, 3), &[0, 1, 3], &[0, -1, 2]), columns);
    assert_eq!(refused((2, 3), &[0, 3], &[0, 1, 2]), "row_ptr has 2 entries, expected 3");
    assert!(refused((0, 3), &[1], &[]).starts_with("row_ptr is wrong at row 0"));
    // Of several errors the first is reported, wherever they are.
    let mut row_ptr: Vec<i32> = (0..=1000).collect();
    let mut col_idx = vec![0; 1000];
    (row_ptr[700], col_idx[400], col_idx[900]) = (5, 1, 7);
    assert!(refused((1000, 1), &row_ptr, &col_idx).starts_with("col_idx is wrong at row 400,"));

    let batch = |sizes: BatchSizes<'_>, row_ptr: &[i32], col_idx: &[i32], values: &[f32]| {
        let arrays = upload(executor, row_ptr, col_idx, values);
        device_batch(executor, sizes, arrays).map(|_| ()).unwrap_err().to_string()
    };
    let item = CsrSize { nrows: 1, ncols: 2, nnz: 1 };
    let two = BatchSizes::Ragged(&[item, item]);
    assert_eq!(
        batch(two, &[0, 1, 0, 1], &[1, 2], &[1.0; 2]),
        "col_idx is wrong at row 0 of item 1, expected columns below 2 that ascend in each row"
    );
    assert_eq!(batch(two, &[0, 1, 0, 1], &[1], &[1.0]), "col_idx has 1 entries, expected 2");
    assert_eq!(batch(two, &[0, 1, 0, 1], &[1, 0], &[1.0]), "values has 1 entries, expected 2");
    let uniform = BatchSizes::Uniform { item, nitems: 3, shared_values: false };
    assert_eq!(batch(uniform, &[0, 1], &[1], &[1.0; 2]), "values has 2 entries, expected 3");
}

#[test]
fn arrays_that_are_no_matrix_are_refused_with_their_first_fault() {
    for order in Order::ALL {
        check_refusals(&Emulator::new(order));
    }
}

#[test]
fn arrays_that_are_no_matrix_are_refused_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    check_refusals(&device);
}

#[test]
fn kernels_of_other_formats_and_values_of_other_lengths_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let plan = |kernel, values: &[f64]| {
        let arrays = upload(&executor, &[0, 1], &[0], values);
        let options = SingleOptions::with_kernel(kernel);
        single_plan(&executor, (1, 1), arrays, &options).map(|_| ()).unwrap_err()
    };
    let others: Vec<SingleKernel> =
        SingleKernel::ALL.iter().copied().filter(|kernel| !kernel.reads_csr()).collect();

    assert_eq!(others.len(), 7);
    for kernel in others {
        let refused = plan(kernel, &[1.0]);
        assert!(matches!(refused, GpuError::InvalidArgument { name: "kernel", .. }), "{refused}");
    }
    let refused = plan(SingleKernel::CsrSmart, &[1.0; 2]);
    assert_eq!(refused, GpuError::Length { name: "values", expected: 1, found: 2 });
    let arrays = upload(&executor, &[0, 1], &[0], &[1.0]);
    let size = CsrSize { nrows: 1, ncols: 1, nnz: 1 };
    let batch = device_batch(&executor, BatchSizes::Ragged(&[size]), arrays).unwrap();
    let refused =
        FlexiblePlan::with_batch(&executor, batch, FlexibleOptions::new(FlexibleKernel::Ell));
    assert!(matches!(refused.err(), Some(GpuError::InvalidArgument { .. })));
}

/// Memory owned by another library: the plan gets addresses only.
fn foreign<T: Pod>(owner: &DeviceBuffer<T>) -> DeviceBuffer<T> {
    // SAFETY: every caller keeps the owner until the end of the test and orders its work by one
    // stream.
    unsafe { DeviceBuffer::from_raw(owner.raw(), owner.len()) }
}

#[test]
fn values_change_in_place_in_memory_of_someone_else_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let a = mixed::<f64>(500, 400, Some(9));
    let mut owner: CsrArrays<Device, f64> =
        upload(&device, a.pattern().row_ptr(), a.pattern().col_idx(), a.values());
    let arrays = || CsrArrays {
        row_ptr: foreign(&owner.row_ptr),
        col_idx: foreign(&owner.col_idx),
        values: foreign(&owner.values),
    };
    let size = (a.nrows(), a.ncols());
    let mut single = single_plan(&device, size, arrays(), &SingleOptions::default()).unwrap();
    let sizes = [size_of_matrix(&a)];
    let batch = device_batch(&device, BatchSizes::Ragged(&sizes), arrays()).unwrap();
    let options = FlexibleOptions::new(FlexibleKernel::CsrSmart);
    let flexible = FlexiblePlan::with_batch(&device, batch, options).unwrap();
    let x = integers::<f64>(a.ncols(), 1);
    let (x_owner, y_owner) = (device.upload(&x).unwrap(), device.alloc::<f64>(a.nrows()).unwrap());
    for seed in [5, 6] {
        let mut changed = a.clone();
        let values = integers::<f64>(a.nnz(), seed);
        changed.values_mut().copy_from_slice(&values);
        device.copy_from_host(&values, &mut owner.values).unwrap();
        let expected = oracle(1.0, &changed, &x, 0.0, &vec![0.0; a.nrows()]);

        single.apply(1.0, &foreign(&x_owner), 0.0, &mut foreign(&y_owner)).unwrap();
        assert_eq!(device.download(&y_owner).unwrap(), expected);
        flexible.apply(1.0, &foreign(&x_owner), 0.0, &mut foreign(&y_owner)).unwrap();
        assert_eq!(device.download(&y_owner).unwrap(), expected);
    }
}

#[test]
fn vectors_that_share_memory_are_refused_by_batches_too_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let batch = sparsebatch_formats::Batch::from(mixed::<f64>(4, 4, None));
    let options = FlexibleOptions::new(FlexibleKernel::CsrI);
    let plan = FlexiblePlan::new(&device, &batch, options).unwrap();
    let both = device.upload(&[0.0; 8]).unwrap();
    let x = both.range(0..4).unwrap();
    let (mut apart, mut shared) = (both.range(4..8).unwrap(), both.range(3..7).unwrap());

    assert_eq!(plan.apply(1.0, &x, 0.0, &mut apart), Ok(()));
    let refused = plan.apply(1.0, &x, 0.0, &mut shared);

    assert!(matches!(refused, Err(GpuError::InvalidArgument { name: "y", .. })));
}
