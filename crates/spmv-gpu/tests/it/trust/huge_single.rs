//! One matrix with almost 2^31 entries: byte offsets far beyond 32 bits.
#![expect(unsafe_code, reason = "hands arrays to plans")]

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Executor;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_spmv_gpu::{CsrArrays, SingleKernel, SingleOptions, SinglePlan};

use crate::common::matrices::integers;

const KERNELS: [SingleKernel; 6] = [
    SingleKernel::CsrScalar,
    SingleKernel::CsrUnrolled,
    SingleKernel::CsrVector,
    SingleKernel::CsrSmart,
    SingleKernel::CsrTile,
    SingleKernel::CsrBalanced,
];

/// Only the last block of a launch.
fn last(count: u64) -> Vec<u64> {
    vec![count - 1]
}

/// The first row has nearly all entries, the others two each. Only the last rows are multiplied:
/// columns and values of the first row are not set.
#[test]
fn entries_up_to_the_last_of_31_bits_are_read() {
    const NNZ: usize = i32::MAX as usize;
    const NROWS: usize = 600;
    const NCOLS: usize = i32::MAX as usize;
    const FIRST: usize = NNZ - 2 * (NROWS - 1);
    let executor = Emulator::new(Order::Forward).with_blocks(last);
    let mut row_ptr = vec![0];
    row_ptr.extend((0..NROWS).map(|row| (FIRST + 2 * row) as i32));
    let columns: Vec<i32> =
        (1..NROWS).flat_map(|row| [row as i32, (NCOLS - NROWS + row) as i32]).collect();
    let entries = integers::<f64>(columns.len(), 3);
    let Some(mut x) = executor.sparse::<f64>(NCOLS) else { return };
    x.set(0, &integers(NROWS, 1));
    x.set(NCOLS - NROWS, &integers(NROWS, 2));
    let x_of = |column: i32| x.get(column as usize, 1)[0];
    let expected: Vec<f64> = (0..NROWS - 1)
        .map(|k| (2 * k..2 * k + 2).map(|k| entries[k] * x_of(columns[k])).sum())
        .collect();
    for kernel in KERNELS {
        let Some(mut col_idx) = executor.sparse::<i32>(NNZ) else { return };
        let Some(mut values) = executor.sparse::<f64>(NNZ) else { return };
        col_idx.set(FIRST, &columns);
        values.set(FIRST, &entries);
        let arrays = CsrArrays { row_ptr: executor.upload(&row_ptr).unwrap(), col_idx, values };
        let options = SingleOptions::with_kernel(kernel).parts(Some(1 << 24));
        // SAFETY: the arrays are the plan's own. The rows that are checked and multiplied are those
        // of the last block.
        let plan = unsafe { SinglePlan::from_arrays(&executor, NROWS, NCOLS, arrays, &options) };
        let mut y = executor.upload(&[f64::NAN; NROWS]).unwrap();

        plan.unwrap().apply(1.0, &x, 0.0, &mut y).unwrap();

        // The last block has at least four rows; for csr-balanced it has the last 1,024 entries.
        let y = executor.download(&y).unwrap();
        assert_eq!(y[NROWS - 4..], expected[NROWS - 5..], "{kernel}");
        assert!(y[0].is_nan(), "{kernel}: the first row was multiplied");
    }
}

/// A dense matrix of 46,340 rows, whose entries are 88,048 fewer than 2^31: 17 GB.
#[test]
fn a_matrix_of_almost_31_bits_of_entries_on_a_gpu() {
    const SIZE: usize = 46_340;
    const ROWS_AT_ONCE: usize = 1_000;
    let Some(device) = device_or_skip() else { return };
    if device.free_memory().unwrap() < 20 << 30 {
        println!("skipped: 20 GiB of GPU memory are needed");
        return;
    }
    let columns: Vec<i32> = (0..SIZE as i32).collect();
    let row = integers::<f32>(SIZE, 3);
    let (many_columns, many_rows) = (columns.repeat(ROWS_AT_ONCE), row.repeat(ROWS_AT_ONCE));
    let row_ptr: Vec<i32> = (0..=SIZE).map(|row| (row * SIZE) as i32).collect();
    let row_ptr = device.upload(&row_ptr).unwrap();
    let col_idx = device.alloc::<i32>(SIZE * SIZE).unwrap();
    let values = device.alloc::<f32>(SIZE * SIZE).unwrap();
    for first in (0..SIZE).step_by(ROWS_AT_ONCE) {
        let len = SIZE * ROWS_AT_ONCE.min(SIZE - first);
        let range = first * SIZE..first * SIZE + len;
        let mut part = col_idx.range(range.clone()).unwrap();
        device.copy_from_host(&many_columns[..len], &mut part).unwrap();
        let mut part = values.range(range).unwrap();
        device.copy_from_host(&many_rows[..len], &mut part).unwrap();
    }
    // x is 1 at every 97th column: sums of few small integers, exact in any order.
    let x: Vec<f32> = (0..SIZE).map(|k| if k % 97 == 0 { 1.0 } else { 0.0 }).collect();
    let sum: f32 = row.iter().step_by(97).sum();
    let x = device.upload(&x).unwrap();
    for kernel in KERNELS {
        let arrays = CsrArrays {
            row_ptr: row_ptr.range(0..SIZE + 1).unwrap(),
            col_idx: col_idx.range(0..SIZE * SIZE).unwrap(),
            values: values.range(0..SIZE * SIZE).unwrap(),
        };
        let options = SingleOptions::with_kernel(kernel);
        // SAFETY: nobody writes to the arrays.
        let plan = unsafe { SinglePlan::from_arrays(&device, SIZE, SIZE, arrays, &options) };
        let mut y = device.upload(&vec![f32::NAN; SIZE]).unwrap();

        plan.unwrap().apply(1.0, &x, 0.0, &mut y).unwrap();

        assert!(device.download(&y).unwrap() == vec![sum; SIZE], "{kernel}");
    }
}
