//! Batches whose arrays are longer than 32 bits can count. In the emulation the arrays are sparse:
//! only what the executed blocks touch takes memory. On a GPU they are real.
#![expect(unsafe_code, reason = "launches kernels, hands arrays to plans")]

use std::sync::Arc;

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Args, Executor, KernelKey, LaunchConfig};
use sparsebatch_formats::{Batch, BatchValues, Csr, CsrPattern, UniformBatch};
use sparsebatch_spmv_gpu::flexible::{BatchSizes, DeviceBatch};
use sparsebatch_spmv_gpu::flexible::{FlexibleKernel, FlexibleOptions, FlexiblePlan};
use sparsebatch_spmv_gpu::kernels::module;
use sparsebatch_spmv_gpu::{CsrArrays, CsrSize};

use crate::common::arrays::{get, set};
use crate::common::matrices::{banded, integers, oracle};
use crate::common::systems::bits;

/// Offset of the arrays of a problem: beyond 2^32 elements.
const FAR: usize = (1 << 32) + 5;

/// The arrays of one problem of 3 rows and 4 columns in one storage format. Each has its offset in
/// a longer array.
struct Arrays {
    module: &'static str,
    expression: &'static str,
    pointers: &'static [u32],
    rows: &'static [u16],
    columns: &'static [u16],
    values: &'static [f32],
    starts: &'static [u32],
    width: u32,
}

const NONE: u16 = u16::MAX;

/// [1 2 0 3; 0 0 0 0; 0 4 0 0] in every storage format. SELL-P has 8 threads per row: slices of 4
/// rows, in which slot j of row i is number 4*j + i.
fn all_arrays() -> Vec<Arrays> {
    let csr = |expression, starts, width| Arrays {
        module: "batch_csr",
        expression,
        pointers: &[0, 3, 3, 4],
        rows: &[],
        columns: &[0, 1, 3, 1],
        values: &[1.0, 2.0, 3.0, 4.0],
        starts,
        width,
    };
    vec![
        csr("batch_csr<float, u16, 1>", &[], 0),
        csr("batch_csr<float, u16, 32>", &[], 0),
        csr("batch_csr<float, u16, 0>", &[], 2),
        csr("batch_csr_i<float, u16>", &[0, 0], 0),
        Arrays {
            module: "batch_coo",
            expression: "batch_coo<float, u16>",
            pointers: &[],
            rows: &[0, 0, 0, 2],
            ..csr("", &[], 0)
        },
        Arrays {
            module: "batch_ell",
            expression: "batch_ell<float, u16>",
            pointers: &[],
            columns: &[0, NONE, 1, 1, NONE, NONE, 3, NONE, NONE],
            values: &[1.0, 0.0, 4.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0],
            ..csr("", &[], 3)
        },
        Arrays {
            module: "batch_sellp",
            expression: "batch_sellp<float, u16, 8>",
            pointers: &[0, 32],
            columns: &[
                0, NONE, 1, NONE, 1, NONE, NONE, NONE, 3, NONE, NONE, NONE, NONE, NONE, NONE, NONE,
                NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE,
                NONE, NONE,
            ],
            values: &[
                1.0, 0.0, 4.0, 0.0, 2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
                0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
            ],
            ..csr("", &[], 0)
        },
    ]
}

#[test]
fn every_array_of_a_problem_may_begin_beyond_32_bits() {
    const NRHS: usize = 2;
    let executor = Emulator::new(Order::Forward);
    // Each array begins at another offset, so that none is taken for another.
    let at = |k: usize| FAR + 1000 * k;
    let Some(mut pointers) = executor.sparse::<u32>(at(0) + 4) else { return };
    let Some(mut rows) = executor.sparse::<u16>(at(1) + 4) else { return };
    let Some(mut columns) = executor.sparse::<u16>(at(1) + 32) else { return };
    let Some(mut values) = executor.sparse::<f32>(at(2) + 32) else { return };
    let Some(mut starts) = executor.sparse::<u32>(at(3) + 2) else { return };
    let Some(mut x) = executor.sparse::<f32>((at(4) + 4) * NRHS) else { return };
    let Some(mut y) = executor.sparse::<f32>((at(5) + 3) * NRHS) else { return };
    // Wrong start rows at the offset cut to 32 bits: zeros there, unlike in other arrays, would do
    // no harm.
    starts.set(at(3) - (1 << 32), &[2, 2]);
    x.set(at(4) * NRHS, &[1.0, 10.0, 100.0, 1000.0, 2.0, 20.0, 200.0, 2000.0]);
    for arrays in all_arrays() {
        for in_shared in [false, true] {
            pointers.set(at(0), arrays.pointers);
            rows.set(at(1), arrays.rows);
            columns.set(at(1), arrays.columns);
            values.set(at(2), arrays.values);
            starts.set(at(3), arrays.starts);
            y.set(at(5) * NRHS, &[1.0; 6]);
            let words = [
                at(0) as u64,
                at(1) as u64,
                at(2) as u64,
                at(4) as u64,
                at(5) as u64,
                3 | 4 << 32,
                arrays.columns.len() as u64 | u64::from(arrays.width) << 32,
                u64::from(in_shared) | (at(3) as u64) << 1,
            ];
            let problems = executor.upload(&words).unwrap();
            let config = LaunchConfig { shared_bytes: 7 * 4, ..LaunchConfig::linear(1, 64) };
            let mut args = Args::new();
            args.scalar(1_u64).input(&problems).raw(0).scalar(NRHS as u32);
            if !arrays.pointers.is_empty() {
                args.input(&pointers);
            }
            if !arrays.rows.is_empty() {
                args.input(&rows);
            }
            args.input(&columns).input(&values);
            if !arrays.starts.is_empty() {
                args.input(&starts);
            }
            args.scalar(2.0_f32).input(&x).scalar(-1.0_f32).output(&mut y);

            let key = KernelKey::new(module(arrays.module).unwrap(), arrays.expression);
            // SAFETY: the arguments are those of the kernel; the description is that of the arrays;
            // two warps, for which there are start rows; shared memory for x and one sum per row.
            unsafe { executor.launch(&key, config, &mut args) }.unwrap();

            let found = y.get(at(5) * NRHS, 6);
            let expected = [6041.0, -1.0, 79.0, 12083.0, -1.0, 159.0];
            assert_eq!(found, expected, "{}, x in shared memory: {in_shared}", arrays.expression);
        }
    }
}

/// Systems of 4096 rows and columns: just over 2^31 rows, and columns, in total.
const SIZE: usize = 1 << 12;
const NITEMS: usize = (1 << 19) + 3;

/// The first two items, one in the middle and the last two.
fn some(count: u64) -> Vec<u64> {
    if count < 5 { (0..count).collect() } else { vec![0, 1, count / 2 + 1, count - 2, count - 1] }
}

/// A pattern with two entries in most rows.
fn pattern() -> Arc<CsrPattern> {
    let rows: Vec<Vec<i32>> = (0..SIZE)
        .map(|row| match row % 7 {
            3 => vec![],
            _ => vec![(row / 2) as i32, (SIZE / 2 + row / 3) as i32],
        })
        .collect();
    let mut row_ptr = vec![0];
    for row in &rows {
        row_ptr.push(row_ptr.last().unwrap() + row.len() as i32);
    }
    Arc::new(CsrPattern::try_new(SIZE, SIZE, row_ptr, rows.concat()).unwrap())
}

fn expected(pattern: &CsrPattern, values: &[f32], x: &[f32]) -> Vec<f32> {
    let (row_ptr, columns) = (pattern.row_ptr(), pattern.col_idx());
    let entries = |row: usize| row_ptr[row] as usize..row_ptr[row + 1] as usize;
    (0..SIZE).map(|row| entries(row).map(|k| values[k] * x[columns[k] as usize]).sum()).collect()
}

#[test]
fn more_rows_and_columns_than_31_bits_count_are_one_launch() {
    let executor = Emulator::new(Order::Forward).with_blocks(some);
    let pattern = pattern();
    let values = integers::<f32>(pattern.col_idx().len(), 3);
    let shared = BatchValues::Shared(values.clone());
    let batch = Batch::Uniform(UniformBatch::try_new(pattern.clone(), NITEMS, shared).unwrap());
    let Some(mut x) = executor.sparse::<f32>(NITEMS * SIZE) else { return };
    let Some(mut y) = executor.sparse::<f32>(NITEMS * SIZE) else { return };
    let items: Vec<usize> = some(NITEMS as u64).into_iter().map(|item| item as usize).collect();
    for &item in &items {
        x.set(item * SIZE, &integers(SIZE, item as u64));
    }
    for &kernel in FlexibleKernel::ALL {
        for shared_bytes in [None, Some(0)] {
            let threads = Some(64);
            let options = FlexibleOptions::new(kernel).shared_bytes(shared_bytes).threads(threads);
            let plan = FlexiblePlan::new(&executor, &batch, options).unwrap();
            for &item in &items {
                y.set(item * SIZE, &[f32::NAN; SIZE]);
            }
            plan.apply(1.0, &x, 0.0, &mut y).unwrap();

            for &item in &items {
                let expected = expected(&pattern, &values, &x.get(item * SIZE, SIZE));
                assert!(y.get(item * SIZE, SIZE) == expected, "{kernel}, item {item}");
            }
        }
    }
}

#[test]
fn more_values_than_31_bits_count_are_one_launch() {
    let executor = Emulator::new(Order::Forward);
    let pattern = pattern();
    let nnz = pattern.col_idx().len();
    let items: Vec<usize> = some(NITEMS as u64).into_iter().map(|item| item as usize).collect();
    let Some(mut x) = executor.sparse::<f32>(NITEMS * SIZE) else { return };
    let Some(mut y) = executor.sparse::<f32>(NITEMS * SIZE) else { return };
    for &item in &items {
        x.set(item * SIZE, &integers(SIZE, item as u64));
    }
    for kernel in FlexibleKernel::ALL.iter().copied().filter(|k| k.name().starts_with("batch-csr"))
    {
        let Some(mut values) = executor.sparse::<f32>(NITEMS * nnz) else { return };
        for &item in &items {
            values.set(item * nnz, &integers(nnz, 7 + item as u64));
        }
        let arrays = CsrArrays {
            row_ptr: executor.upload(pattern.row_ptr()).unwrap(),
            col_idx: executor.upload(pattern.col_idx()).unwrap(),
            values,
        };
        let size = CsrSize { nrows: SIZE, ncols: SIZE, nnz };
        let sizes = BatchSizes::Uniform { item: size, nitems: NITEMS, shared_values: false };
        // SAFETY: the arrays are the batch's own.
        let batch = unsafe { DeviceBatch::from_arrays(&executor, sizes, arrays) }.unwrap();
        let options = FlexibleOptions::new(kernel).threads(Some(64));
        let some_blocks = executor.clone().with_blocks(some);
        let plan = FlexiblePlan::with_batch(&some_blocks, batch, options).unwrap();
        for &item in &items {
            y.set(item * SIZE, &[f32::NAN; SIZE]);
        }

        plan.apply(1.0, &x, 0.0, &mut y).unwrap();

        for &item in &items {
            let values = integers(nnz, 7 + item as u64);
            let expected = expected(&pattern, &values, &x.get(item * SIZE, SIZE));
            assert!(y.get(item * SIZE, SIZE) == expected, "{kernel}, item {item}");
        }
    }
}

/// The same with real arrays: 18 GB of vectors.
#[test]
fn more_rows_and_columns_than_31_bits_count_are_one_launch_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let pattern = pattern();
    let values = integers::<f32>(pattern.col_idx().len(), 3);
    let shared = BatchValues::Shared(values.clone());
    let batch = Batch::Uniform(UniformBatch::try_new(pattern.clone(), NITEMS, shared).unwrap());
    if device.free_memory().unwrap() < 20 << 30 {
        println!("skipped: 20 GiB of GPU memory are needed");
        return;
    }
    let x = device.alloc_zeroed::<f32>(NITEMS * SIZE).unwrap();
    let mut y = device.alloc_zeroed::<f32>(NITEMS * SIZE).unwrap();
    let items: Vec<usize> = some(NITEMS as u64).into_iter().map(|item| item as usize).collect();
    for &item in &items {
        set(&device, &x, item * SIZE, &integers(SIZE, item as u64));
    }
    for &kernel in FlexibleKernel::ALL {
        let plan = FlexiblePlan::new(&device, &batch, FlexibleOptions::new(kernel)).unwrap();
        for &item in &items {
            set(&device, &y, item * SIZE, &[f32::NAN; SIZE]);
        }
        plan.apply(1.0, &x, 0.0, &mut y).unwrap();

        for &item in &items {
            let x = get(&device, &x, item * SIZE, SIZE);
            let expected = expected(&pattern, &values, &x);
            assert!(get(&device, &y, item * SIZE, SIZE) == expected, "{kernel}, item {item}");
        }
    }
}

/// 2^31 systems do not fit in memory; a number of blocks beyond 16 bits does, for every kernel.
#[test]
fn more_systems_than_16_bits_count_are_one_launch_of_every_kernel() {
    const COUNT: usize = 65_600;
    let executor = Emulator::new(Order::Reverse).with_blocks(some);
    let a: Csr<f64> = banded(2, 2);
    let batch = Batch::Uniform(UniformBatch::shared(a.clone(), COUNT));
    let x_host = integers::<f64>(2 * COUNT, 1);
    let x = executor.upload(&x_host).unwrap();
    for &kernel in FlexibleKernel::ALL {
        let plan = FlexiblePlan::new(&executor, &batch, FlexibleOptions::new(kernel)).unwrap();
        let mut y = executor.alloc(2 * COUNT).unwrap();

        plan.apply(1.0, &x, 0.0, &mut y).unwrap();

        // Uninitialised memory of the emulation has all bits set.
        let mut expected = vec![f64::from_bits(u64::MAX); 2 * COUNT];
        for item in some(COUNT as u64).into_iter().map(|item| 2 * item as usize) {
            let y = oracle(1.0, &a, &x_host[item..item + 2], 0.0, &[0.0; 2]);
            expected[item..item + 2].copy_from_slice(&y);
        }
        assert!(bits(&executor.download(&y).unwrap()) == bits(&expected), "{kernel}");
    }
}
