//! Offsets beyond 32 bits. In the emulation the arrays are sparse: only what the executed blocks
//! touch takes memory. On a GPU the arrays are real.
#![expect(unsafe_code, reason = "launches kernels")]

use kernel_emu::{Emulator, HostBuffer, Order};
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Args, Executor, KernelBuffer, KernelKey, LaunchConfig};
use sparsebatch_formats::{Batch, Csr, UniformBatch};
use sparsebatch_spmv_gpu::flexible::BatchSizes;
use sparsebatch_spmv_gpu::kernels::module;
use sparsebatch_spmv_gpu::{CsrArrays, PackedKernel, PackedPlan};

use super::{options, oracle, ragged, size_of_matrix, some};
use crate::common::arrays::{get, set};
use crate::common::matrices::{from_columns, integers};

/// A system is one piece; all systems together have just over 2^31 rows, and columns.
const SIZE: usize = 2048;
const NITEMS: usize = (1 << 20) + 3;

fn some_items() -> Vec<usize> {
    some(NITEMS as u64).into_iter().map(|item| item as usize).collect()
}

/// A system with two entries in most rows.
fn system() -> Csr<f32> {
    from_columns(SIZE, SIZE, |row, _| match row % 7 {
        3 => vec![],
        _ => vec![row / 2, SIZE / 2 + row / 3],
    })
}

fn expected(a: &Csr<f32>, x: &[f32]) -> Vec<f32> {
    oracle(&ragged(std::slice::from_ref(a)), 1, (1.0, x), (0.0, &[0.0; SIZE]))
}

/// One piece per block, and several pieces per block.
const SHARES: [usize; 2] = [usize::MAX, 1 << 14];

#[test]
fn more_rows_and_columns_than_31_bits_count_are_one_launch() {
    let executor = Emulator::new(Order::Forward).with_blocks(some);
    let a = system();
    let batch = Batch::Uniform(UniformBatch::shared(a.clone(), NITEMS));
    let Some(mut x) = executor.sparse::<f32>(NITEMS * SIZE) else { return };
    let Some(mut y) = executor.sparse::<f32>(NITEMS * SIZE) else { return };
    for item in some_items() {
        x.set(item * SIZE, &integers(SIZE, item as u64));
    }
    for share in SHARES {
        let options = options(1).share(Some(share));
        let plan = PackedPlan::new(executor.clone(), &batch, options).unwrap();
        assert_eq!((plan.explain().pieces, plan.explain().launches), (NITEMS, 1));
        // With several pieces per block, only the items of the first and of the last block are
        // known.
        let items = if share == usize::MAX { some_items() } else { vec![0, NITEMS - 1] };
        for &item in &items {
            y.set(item * SIZE, &[f32::NAN; SIZE]);
        }
        plan.apply(1.0, &x, 0.0, &mut y).unwrap();

        for &item in &items {
            let expected = expected(&a, &x.get(item * SIZE, SIZE));
            assert!(y.get(item * SIZE, SIZE) == expected, "item {item}, share {share}");
        }
    }
}

/// Offset of array `k` of a piece: beyond 2^32 elements, different for each array, a multiple of 16
/// bytes.
const fn far(k: usize) -> usize {
    (1 << 32) + 4096 * k
}

/// Strides between right-hand sides.
const X_STRIDE: usize = (1 << 32) + 32;
const Y_STRIDE: usize = (1 << 32) + 64;

/// A piece of 70 rows, the first one long, with columns up to 89.
fn piece() -> Csr<f32> {
    from_columns(70, 90, |row, random| match row {
        0 => (0..90).collect(),
        _ if row % 5 == 4 => vec![],
        _ => (0..row % 9).map(|_| 1 + random.below(88)).collect(),
    })
}

fn launch(executor: &Emulator, key: KernelKey, shape: (u32, u32, u32), args: &mut Args<'_>) {
    let (blocks, threads, shared_bytes) = shape;
    let config = LaunchConfig { shared_bytes, ..LaunchConfig::linear(blocks, threads) };
    // SAFETY: the callers pass each kernel its parameters, and arrays that match the descriptions.
    unsafe { executor.launch(&key, config, args) }.unwrap();
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// One piece on the device, with row pointers, entries and columns at far offsets.
struct FarPiece<'e> {
    executor: &'e Emulator,
    /// Whether values and columns are stored together.
    joint: bool,
    /// Whether columns have 32 bits.
    wide: bool,
    a: Csr<f32>,
    parts: HostBuffer<u64>,
    cuts: HostBuffer<u32>,
    row_ptr: HostBuffer<i32>,
    col_idx: HostBuffer<i32>,
    values: HostBuffer<f32>,
}

/// What `pack_measure` says of the piece.
struct Measures {
    nsegments: u32,
    nsteps: u32,
    flags: u32,
    /// The first steps of the eighths, in pairs.
    begins: [u32; 4],
}

impl Measures {
    fn index_len(&self, nrows: usize) -> u32 {
        (self.nsegments.div_ceil(32) + self.nsegments + nrows as u32 + 1).next_multiple_of(8)
    }
}

/// The packed piece, at far offsets.
struct FarPacked {
    values: HostBuffer<u8>,
    columns: HostBuffer<u8>,
    index: HostBuffer<u16>,
    /// Offsets of the values, the columns and the index.
    places: [usize; 3],
    /// The address of the columns that are stored with the values.
    joint_columns: u64,
}

fn pack_key(expression: &str) -> KernelKey {
    KernelKey::new(module("pack").unwrap(), expression)
}

impl<'e> FarPiece<'e> {
    fn new(executor: &'e Emulator, mode: u32) -> Option<Self> {
        let a = piece();
        let (nrows, ncols, nnz) = (a.nrows(), a.ncols(), a.nnz());
        let mut row_ptr = executor.sparse::<i32>(far(1) + nrows + 1)?;
        row_ptr.set(far(1), a.pattern().row_ptr());
        let mut col_idx = executor.sparse::<i32>(far(2) + nnz)?;
        col_idx.set(far(2), a.pattern().col_idx());
        // Offsets of values are those of the part's entries.
        let mut values = executor.sparse::<f32>(far(2) + nnz)?;
        values.set(far(2), a.values());
        let part = [far(1), far(2), far(3), far(4), nrows | ncols << 32, nrows << 32];
        let parts = executor.upload(&part.map(|word| word as u64)).unwrap();
        let cuts = executor.upload(&[7_u32]).unwrap();
        let (joint, wide) = (mode & 1 != 0, mode & 4 != 0);
        Some(Self { executor, joint, wide, a, parts, cuts, row_ptr, col_idx, values })
    }

    /// Cuts the rows, and checks which rows and columns the piece has.
    fn measure(&self) -> Measures {
        let executor = self.executor;
        let words = executor.upload(&[0, pair(1, 0)]).unwrap();
        let mut measures = executor.alloc::<u32>(8).unwrap();
        let mut windows = executor.alloc::<u32>(2).unwrap();
        let mut args = Args::new();
        args.input(&words).input(&self.parts).input(&self.cuts).input(&self.row_ptr);
        args.output(&mut measures);
        launch(executor, pack_key("pack_measure"), (1, 128, 0), &mut args);
        let mut args = Args::new();
        args.input(&words).input(&self.parts).input(&self.row_ptr).input(&self.col_idx);
        args.output(&mut windows);
        launch(executor, pack_key("pack_window"), (1, 128, 0), &mut args);
        assert_eq!(executor.download(&windows).unwrap(), [0, 89]);
        let measures = executor.download(&measures).unwrap();
        assert_eq!(measures[3] as usize, self.a.nrows());
        Measures {
            nsegments: measures[0],
            nsteps: measures[1],
            flags: measures[2],
            begins: [measures[4], measures[5], measures[6], measures[7]],
        }
    }

    fn pack(&self, of: &Measures) -> Option<FarPacked> {
        let &Self { executor, joint, wide, .. } = self;
        let (nrows, ncols) = (self.a.nrows() as u32, self.a.ncols() as u32);
        let to_columns = if joint { far(5) } else { far(6) };
        let places = [far(5), to_columns, far(7)];
        let [to_values, to_columns, to_index] = places;
        let words = [
            0,
            pair(1, 0),
            0,
            to_values as u64,
            to_columns as u64,
            to_index as u64,
            pair(0, of.nsegments),
            pair(0, ncols),
            pair(of.flags, 3 + 8 * u32::from(joint) + 4 * u32::from(wide)),
        ];
        let words = executor.upload(&words).unwrap();
        let step_bytes = 32 * (4 + if wide { 4 } else { 2 });
        let room = of.nsteps as usize * step_bytes;
        let mut values = executor.sparse::<u8>(to_values + room)?;
        let mut columns = executor.sparse::<u8>(to_columns + room)?;
        let index_len = of.index_len(self.a.nrows()) as usize;
        let mut index = executor.sparse::<u16>(to_index + index_len)?;
        let joint_columns = values.raw() + 128;
        let mut args = Args::new();
        args.input(&words).scalar(u32::MAX).input(&self.parts).input(&self.cuts);
        args.input(&self.row_ptr).input(&self.col_idx).input(&self.values);
        args.output(&mut values);
        if joint {
            args.raw(joint_columns)
        } else {
            args.output(&mut columns)
        };
        args.output(&mut index);
        let shared = 2 * (2 * of.nsegments + nrows + 1);
        launch(executor, pack_key("pack_fill<float>"), (1, 256, shared), &mut args);
        Some(FarPacked { values, columns, index, places, joint_columns })
    }

    /// The words of the packed piece, as `packed.cu` reads them.
    fn description(&self, of: &Measures, places: [usize; 3]) -> Vec<u64> {
        let (nrows, ncols) = (self.a.nrows(), self.a.ncols());
        let mut shorts = [of.nsteps; 14];
        let index_len = of.index_len(nrows);
        let sizes = [nrows as u32, ncols as u32, of.nsegments, of.flags, index_len];
        shorts[..5].copy_from_slice(&sizes);
        for (begin, both) in shorts[5..].iter_mut().zip(of.begins) {
            // 16 bits for each eighth of the steps.
            *begin = both & 0xffff;
        }
        let [to_values, to_columns, to_index] = places;
        let places = [to_values, to_columns, to_index, far(8), far(9), X_STRIDE, Y_STRIDE];
        let mut described: Vec<u64> = places.map(|place| place as u64).to_vec();
        described.extend(shorts.chunks(2).map(|both| pair(both[0], both[1])));
        described
    }

    /// Computes `y = 2 A x - y` with x and y at far offsets, and checks it.
    fn multiply(
        &self,
        of: &Measures,
        packed: &FarPacked,
        product: &str,
        staging: u32,
    ) -> Option<()> {
        const NRHS: usize = 2;
        let executor = self.executor;
        let (nrows, ncols) = (self.a.nrows(), self.a.ncols());
        let mut x = executor.sparse::<f32>(far(8) + X_STRIDE + ncols)?;
        let mut y = executor.sparse::<f32>(far(9) + Y_STRIDE + nrows)?;
        for rhs in 0..NRHS {
            x.set(far(8) + rhs * X_STRIDE, &integers(ncols, rhs as u64));
            y.set(far(9) + rhs * Y_STRIDE, &vec![1.0; nrows]);
        }
        let described = executor.upload(&self.description(of, packed.places)).unwrap();
        let room_bytes = 16 << 10;
        let mut args = Args::new();
        args.raw(0).scalar(0_u32).input(&described).input(&packed.values);
        if self.joint {
            args.raw(packed.joint_columns)
        } else {
            args.input(&packed.columns)
        };
        args.input(&packed.index).scalar(NRHS as u32).scalar(room_bytes);
        args.scalar(2.0_f32).input(&x).scalar(-1.0_f32).output(&mut y);
        let key = KernelKey::new(module("packed").unwrap(), product);
        launch(executor, key, (1, 128, staging + room_bytes), &mut args);

        let batch = ragged(std::slice::from_ref(&self.a));
        for rhs in 0..NRHS {
            let x = x.get(far(8) + rhs * X_STRIDE, ncols);
            let expected = oracle(&batch, 1, (2.0, &x), (-1.0, &vec![1.0; nrows]));
            assert_eq!(y.get(far(9) + rhs * Y_STRIDE, nrows), expected, "{product}");
        }
        Some(())
    }
}

/// Packs and multiplies one piece as the plan does, with all arrays at far offsets: row pointers,
/// entries and columns, the output of packing, and x and y.
fn check_far(executor: &Emulator, mode: u32, product: &str, staging: u32) -> Option<()> {
    let piece = FarPiece::new(executor, mode)?;
    let measures = piece.measure();
    let packed = piece.pack(&measures)?;
    piece.multiply(&measures, &packed, product, staging)
}

#[test]
fn every_array_of_a_piece_may_begin_beyond_32_bits() {
    let executor = Emulator::new(Order::Forward);
    for mode in [0, 1, 2, 3, 6, 7] {
        let column_bytes = if mode & 4 != 0 { 4 } else { 2 };
        let staging = 4 * 2 * 8 * 32 * (4 + column_bytes);
        let products = [
            (format!("packed_spmv<float, 4, 4, {mode}>"), 0),
            (format!("packed_stream<float, 8, 2, 4, {mode}>"), staging),
        ];
        for (product, staging) in products {
            if check_far(&executor, mode, &product, staging).is_none() {
                return;
            }
        }
    }
}

/// Repetitions of a part, as uniform batches pack them: their values begin at a far offset and have
/// a large stride.
#[test]
fn values_of_a_uniform_batch_may_be_beyond_32_bits() {
    const APART: usize = u32::MAX as usize - 3;
    let executor = Emulator::new(Order::Forward);
    let Some(mut values) = executor.sparse::<f64>(far(1) + 2 * APART + 2) else { return };
    let Some(mut packed) = executor.sparse::<f64>(far(2) / 8 + 2 * 32) else { return };
    let Some(mut index) = executor.sparse::<u16>(far(3)) else { return };
    for repetition in 0..3 {
        let own = [1.0, 2.0].map(|value| value + 10.0 * repetition as f64);
        values.set(far(1) + repetition * APART, &own);
    }
    // The row [a b], three times, interleaved.
    let parts = executor.upload(&[0, 0, 0, 0, pair(1, 2), pair(0, 1)]).unwrap();
    let (cuts, row_ptr) = (executor.upload(&[2_u32]).unwrap(), executor.upload(&[0, 2]).unwrap());
    let words: [u64; 9] =
        [0, pair(3, 1), far(1) as u64, far(2) as u64, 0, 0, pair(APART as u32, 3), 0, pair(0, 1)];
    let words = executor.upload(&words).unwrap();
    let mut args = Args::new();
    args.input(&words).scalar(u32::MAX).input(&parts).input(&cuts).input(&row_ptr).raw(0);
    args.input(&values);
    args.output(&mut packed).raw(0).output(&mut index);

    launch(
        &executor,
        KernelKey::new(module("pack").unwrap(), "pack_fill<double>"),
        (1, 256, 20),
        &mut args,
    );

    assert_eq!(packed.get(far(2) / 8, 3), [1.0, 11.0, 21.0]);
    assert_eq!(packed.get(far(2) / 8 + 32, 3), [2.0, 12.0, 22.0]);
}

/// 18 GB of vectors.
#[test]
fn more_rows_and_columns_than_31_bits_count_are_one_launch_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    if device.free_memory().unwrap() < 20 << 30 {
        println!("skipped: 20 GiB of GPU memory are needed");
        return;
    }
    let a = system();
    let batch = Batch::Uniform(UniformBatch::shared(a.clone(), NITEMS));
    let x = device.alloc_zeroed::<f32>(NITEMS * SIZE).unwrap();
    let mut y = device.alloc_zeroed::<f32>(NITEMS * SIZE).unwrap();
    for item in some_items() {
        set(&device, &x, item * SIZE, &integers(SIZE, item as u64));
    }
    for kernel in [None, Some(PackedKernel::Registers { depth: 4 })] {
        for share in SHARES {
            let options = options(1).kernel(kernel).share(Some(share));
            let plan = PackedPlan::new(device.clone(), &batch, options).unwrap();
            for item in some_items() {
                set(&device, &y, item * SIZE, &[f32::NAN; SIZE]);
            }
            plan.apply(1.0, &x, 0.0, &mut y).unwrap();
            for item in some_items() {
                let expected = expected(&a, &get(&device, &x, item * SIZE, SIZE));
                assert!(
                    get(&device, &y, item * SIZE, SIZE) == expected,
                    "item {item}, {options:?}"
                );
            }
        }
    }
}

/// 15 GB of values, packed into as many, beside 18 GB of vectors.
#[test]
fn more_values_than_31_bits_count_are_packed_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    if device.free_memory().unwrap() < 60 << 30 {
        println!("skipped: 60 GiB of GPU memory are needed");
        return;
    }
    let a = system();
    let values = device.alloc_zeroed::<f32>(NITEMS * a.nnz()).unwrap();
    let x = device.alloc_zeroed::<f32>(NITEMS * SIZE).unwrap();
    let mut y = device.alloc_zeroed::<f32>(NITEMS * SIZE).unwrap();
    let matrix = |item: usize| {
        let mut a = a.clone();
        let own = integers(a.nnz(), 7 + item as u64);
        a.values_mut().copy_from_slice(&own);
        a
    };
    for item in some_items() {
        set(&device, &values, item * a.nnz(), matrix(item).values());
        set(&device, &x, item * SIZE, &integers(SIZE, item as u64));
    }
    let arrays = CsrArrays {
        row_ptr: device.upload(a.pattern().row_ptr()).unwrap(),
        col_idx: device.upload(a.pattern().col_idx()).unwrap(),
        values,
    };
    let item = size_of_matrix(&a);
    let sizes = BatchSizes::Uniform { item, nitems: NITEMS, shared_values: false };
    let mut plan = PackedPlan::from_arrays(device.clone(), sizes, &arrays, options(1)).unwrap();
    for update in [false, true] {
        if update {
            plan.update_from(&arrays.values).unwrap();
        }
        for item in some_items() {
            set(&device, &y, item * SIZE, &[f32::NAN; SIZE]);
        }
        plan.apply(1.0, &x, 0.0, &mut y).unwrap();
        for item in some_items() {
            let expected = expected(&matrix(item), &get(&device, &x, item * SIZE, SIZE));
            assert!(get(&device, &y, item * SIZE, SIZE) == expected, "item {item}");
        }
    }
}
