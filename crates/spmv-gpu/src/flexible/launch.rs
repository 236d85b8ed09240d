//! The shape of a launch and the arrays that describe its problems.

use super::batch::{DeviceBatch, FlexibleShape};
use super::kernel::{FlexibleKernel, Storage};
use super::plan::FlexibleOptions;
use super::tuning::{operand_limit, smart_lanes, threads_per_problem};
use sparsebatch_cuda::{DeviceInfo, Executor, LaunchConfig, Value};

/// Words of a descriptor, in the layout of `prelude.cuh`.
const PROBLEM_WORDS: usize = 8;

/// The shape of the launch.
pub(super) struct FlexibleLaunch {
    blocks: u32,
    threads: u32,
    shared_bytes: u32,
    /// The largest operand that is read into shared memory, in bytes.
    limit: u64,
}

impl FlexibleLaunch {
    /// Chooses what the options leave open.
    pub(super) fn choose<E: Executor, T: Value>(
        info: &DeviceInfo,
        batch: &DeviceBatch<E, T>,
        options: &FlexibleOptions,
        problems: usize,
    ) -> Self {
        let operands =
            || batch.shapes().iter().map(|shape| operand_bytes::<T>(batch.storage(), shape));
        let suggested = operand_limit(info, operands().sum(), batch.shapes().len() as u64);
        let limit = u64::from(options.shared_bytes.unwrap_or(suggested));
        let shared_bytes = operands().filter(|&bytes| bytes <= limit).max().unwrap_or(0) as u32;
        let useful = batch
            .shapes()
            .iter()
            .map(|shape| useful_threads(options.kernel, shape))
            .max()
            .unwrap_or(0);
        let threads = options
            .threads
            .unwrap_or_else(|| threads_per_problem(info, problems as u64, shared_bytes, useful));
        let most = options.max_blocks.unwrap_or(i32::MAX as u32);
        let blocks = u32::try_from(problems).unwrap_or(u32::MAX).clamp(1, most);
        Self { blocks, threads, shared_bytes, limit }
    }

    pub(super) fn warps(&self) -> u32 {
        self.threads / 32
    }

    pub(super) fn config(&self) -> LaunchConfig {
        LaunchConfig {
            shared_bytes: self.shared_bytes,
            ..LaunchConfig::linear(self.blocks, self.threads)
        }
    }
}

/// For each distinct pattern the row in which each warp's part of the entries begins.
pub(super) fn start_rows<E: Executor, T: Value>(batch: &DeviceBatch<E, T>, warps: u32) -> Vec<u32> {
    let mut starts = Vec::with_capacity(batch.shapes().len() * warps as usize);
    for shape in batch.shapes() {
        let row_ends = &batch.row_ptr(shape)[1..];
        for warp in 0..u64::from(warps) {
            let first = (u64::from(shape.nnz) * warp / u64::from(warps)) as i32;
            starts.push(row_ends.partition_point(|&end| end <= first) as u32);
        }
    }
    starts
}

/// The descriptors of the items in `order`, and the number of items with their operand in shared
/// memory.
pub(super) fn describe<E: Executor, T: Value>(
    batch: &DeviceBatch<E, T>,
    options: &FlexibleOptions,
    launch: &FlexibleLaunch,
    order: &[usize],
) -> (Vec<u64>, usize) {
    let uniform = batch.shapes().len() == 1;
    // Where the vectors of each item of a ragged batch begin.
    let mut firsts = Vec::with_capacity(if uniform { 0 } else { batch.nitems() });
    if !uniform {
        let (mut x, mut y) = (0, 0);
        for shape in batch.shapes() {
            firsts.push((x, y));
            x += u64::from(shape.ncols);
            y += u64::from(shape.nrows);
        }
    }
    let mut in_shared = 0;
    let mut words = Vec::with_capacity(order.len() * PROBLEM_WORDS);
    for &item in order {
        let shape = batch.shape(item);
        let (x, y) = match firsts.get(item) {
            Some(&firsts) => firsts,
            None => (item as u64 * u64::from(shape.ncols), item as u64 * u64::from(shape.nrows)),
        };
        let width = match options.kernel {
            FlexibleKernel::CsrSmart => smart_lanes(shape.nrows, shape.nnz),
            _ => shape.width,
        };
        let shared = operand_bytes::<T>(batch.storage(), shape) <= launch.limit;
        in_shared += usize::from(shared);
        let pattern = if uniform { 0 } else { item as u64 };
        let starts = pattern * u64::from(launch.warps());
        words.extend([
            shape.pointers,
            shape.indices,
            batch.first_value(item),
            x,
            y,
            u64::from(shape.nrows) | u64::from(shape.ncols) << 32,
            u64::from(shape.stored) | u64::from(width) << 32,
            u64::from(shared) | starts << 1,
        ]);
    }
    (words, in_shared)
}

/// Bytes of shared memory that a system's operand takes: x, and in COO also one sum per row.
fn operand_bytes<T>(storage: Storage, shape: &FlexibleShape) -> u64 {
    let rows = if storage == Storage::Coo { u64::from(shape.nrows) } else { 0 };
    (u64::from(shape.ncols) + rows) * size_of::<T>() as u64
}

/// Threads that a system has work for.
fn useful_threads(kernel: FlexibleKernel, shape: &FlexibleShape) -> u64 {
    let rows = u64::from(shape.nrows);
    match kernel {
        FlexibleKernel::CsrScalar | FlexibleKernel::Ell => rows,
        FlexibleKernel::CsrVector => 32 * rows,
        FlexibleKernel::CsrSmart => rows * u64::from(smart_lanes(shape.nrows, shape.nnz)),
        FlexibleKernel::Coo | FlexibleKernel::CsrI => rows.max(shape.stored.into()),
        FlexibleKernel::SellP => rows.max(u64::from(shape.stored)),
    }
}
