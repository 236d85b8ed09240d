//! Matrices in device memory and the launches of their kernels: all unsafe code of products with
//! one matrix.
//!
//! The fields of each type stay together: they are uploaded from one validated pattern, which is
//! what the launches rely on, and only values can be replaced.

mod adaptive;
mod coo;
mod csr;
mod padded;
mod sell_kernel;

pub(super) use adaptive::AdaptiveKernel;
pub(super) use coo::DeviceCoo;
pub(super) use csr::{BalancedKernel, DeviceCsr, RowKernel};
pub(super) use padded::{DIA_ROUND, DeviceDia, DeviceEll, DeviceSell};

use sparsebatch_cuda::{DeviceInfo, Executor, GpuError, KernelKey, LaunchConfig, Module, Value};

/// `BLOCK_THREADS` of the kernels.
const BLOCK_THREADS: u32 = 256;
const WARP_THREADS: u32 = 32;
/// `BLOCK_THREADS` of `sell.cu` and `ell.cu`.
const ROW_BLOCK_THREADS: u32 = 128;
/// Blocks per multiprocessor below which blocks are made smaller.
const SPREAD_BLOCKS: u64 = 4;

/// The vectors and factors of `y = alpha*A*x + beta*y`.
///
/// Code that makes a `Product` has checked that `x` has a value for each column, `y` one for each
/// row, and that they do not overlap.
pub(super) struct Product<'a, E: Executor, T: Value> {
    pub(super) executor: &'a E,
    pub(super) alpha: T,
    pub(super) x: &'a E::Buffer<T>,
    pub(super) beta: T,
    pub(super) y: &'a mut E::Buffer<T>,
    /// Whether the kernel may begin before the launch ahead has ended: only if nobody but the plan,
    /// which waits for its own writes, writes to the matrix.
    pub(super) overlaps: bool,
}

/// A launch of at least `threads` threads in blocks of `block`; `None` without threads.
fn linear(threads: u64, block: u32) -> Option<LaunchConfig> {
    // At most 2^31 rows of 32 threads in blocks of at least 32.
    let blocks = u32::try_from(threads.div_ceil(block.into())).expect("rows fit i32");
    (blocks > 0).then(|| LaunchConfig::linear(blocks, block))
}

/// As [`linear`], with blocks of at most `largest` threads. Where there are few threads, blocks
/// shrink down to a warp, so that every multiprocessor gets some.
fn spread<E: Executor>(executor: &E, threads: u64, largest: u32) -> Option<LaunchConfig> {
    spread_over(executor.info(), threads, largest)
}

fn spread_over(info: &DeviceInfo, threads: u64, largest: u32) -> Option<LaunchConfig> {
    let enough = u64::from(info.multiprocessors) * SPREAD_BLOCKS;
    let mut block = largest;
    while block > WARP_THREADS && threads.div_ceil(block.into()) < enough {
        block /= 2;
    }
    linear(threads, block)
}

fn instance<T: Value>(module: &'static Module, kernel: &str) -> KernelKey {
    KernelKey::new(module, format!("{kernel}<{}>", T::CPP))
}

/// Partial sums of the kernels that cut entries into parts: `head` and `tail` have one per part.
struct Parts<E: Executor, T: Value> {
    nparts: u32,
    head: E::Buffer<T>,
    tail: E::Buffer<T>,
}

impl<E: Executor, T: Value> Parts<E, T> {
    fn new(executor: &E, nparts: u32) -> Result<Self, GpuError> {
        let len = nparts as usize;
        Ok(Self { nparts, head: executor.alloc(len)?, tail: executor.alloc(len)? })
    }

    /// The launch: one warp per part.
    fn config(&self) -> Option<LaunchConfig> {
        linear(u64::from(self.nparts) * u64::from(WARP_THREADS), BLOCK_THREADS)
    }
}
