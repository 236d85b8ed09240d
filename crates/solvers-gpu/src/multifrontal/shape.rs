//! Threads and memory of a block.

use std::fmt;

use sparsebatch_cuda::{DeviceInfo, GpuError};
use sparsebatch_solve_core::ArgumentError;

use crate::GpuSolveError;

/// Threads of a block, and the blocks that a multiprocessor has at once: what registers suffice
/// for. The fewer systems there are, the more threads a system gets. Results have the same bits.
const KERNELS: [(u32, u32); 3] = [(512, 1), (256, 2), (128, 4)];

/// The kernel for many systems, for whose memory all systems are cut into fronts.
const USUAL: (u32, u32) = KERNELS[2];

/// Values of shared memory of a warp beside its front.
const HEAD: u32 = 128;

/// Values that a thread may read beyond the end of a front.
const SPARE: u32 = 8 * 18;

/// Bytes of shared memory of a warp for sums, and those of a block that the device reserves.
const SCRATCH_BYTES: u32 = 40;
const RESERVED_BYTES: u32 = 1024;

const LANES: u32 = 32;

/// The largest part of the free device memory that a plan takes for the factors of systems at work,
/// where no limit is given.
const MOST_OF_FREE: u64 = 2;

/// Choices that a plan makes by itself where they are `None`. For experiments; results have the
/// same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrontalTuning {
    /// Threads per system: 128, 256 or 512.
    pub threads: Option<u32>,
    /// The most blocks of the launch. Default: what the device can hold at once.
    pub max_blocks: Option<u32>,
    /// The most bytes of device memory that the plan takes, kept factors apart, which are those of
    /// each item; a smaller limit means fewer blocks. Default: half of the free memory.
    pub max_bytes: Option<u64>,
}

sparsebatch_formats::option_setters! {
    FrontalTuning {
        threads: Option<u32>,
        max_blocks: Option<u32>,
        max_bytes: Option<u64>,
    }
}

/// The shape of a launch of [`FrontalLu`](crate::FrontalLu).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrontalShape {
    /// Fronts of a system.
    pub fronts: usize,
    /// Rows of the largest front.
    pub largest_front: usize,
    /// Entries of L + U, zeros of merged fronts included.
    pub factor_entries: usize,
}

impl fmt::Display for FrontalShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fronts, largest_front, factor_entries } = self;
        write!(
            f,
            "{fronts} fronts of up to {largest_front} rows, {factor_entries} entries of L + U"
        )
    }
}

/// The blocks of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrontalBlocks {
    pub(super) threads: u32,
    /// Blocks that a multiprocessor has at once.
    pub(super) resident: u32,
    /// Values of shared memory for fronts.
    pub(super) capacity: u32,
    pub(super) shared_bytes: u32,
}

impl FrontalBlocks {
    /// Those for `nitems` items of values of `value_bytes`.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for threads without a kernel.
    pub(super) fn choose(
        info: &DeviceInfo,
        nitems: usize,
        value_bytes: usize,
        tuning: &FrontalTuning,
    ) -> Result<Self, GpuSolveError> {
        if tuning.max_blocks == Some(0) {
            return Err(out_of_range("max_blocks", "at least 1", 0));
        }
        let multiprocessors = info.multiprocessors.max(1) as usize;
        let usual = Self::of(info, value_bytes, USUAL);
        let fits = |blocks: &Self| {
            let takes_all = nitems <= multiprocessors * blocks.resident as usize;
            let is_asked = match tuning.threads {
                None => takes_all,
                Some(asked) => blocks.threads == asked,
            };
            // More warps leave less room for fronts where a block has little shared memory.
            is_asked && blocks.capacity >= usual.capacity
        };
        match KERNELS.map(|kernel| Self::of(info, value_bytes, kernel)).into_iter().find(fits) {
            Some(blocks) => Ok(blocks),
            None => match tuning.threads {
                None => Ok(usual),
                Some(asked) => Err(out_of_range(
                    "threads",
                    "128, 256 or 512, as far as shared memory has room for their fronts",
                    asked,
                )),
            },
        }
    }

    /// Values of shared memory of the usual block.
    pub(super) fn usual_capacity(info: &DeviceInfo, value_bytes: usize) -> usize {
        Self::of(info, value_bytes, USUAL).capacity as usize
    }

    pub(super) fn warps(&self) -> usize {
        (self.threads / LANES) as usize
    }

    fn of(info: &DeviceInfo, value_bytes: usize, (threads, resident): (u32, u32)) -> Self {
        let (warps, size) = (threads / LANES, value_bytes as u32);
        let bytes = info.shared_bytes_per_multiprocessor / resident;
        let bytes = bytes.saturating_sub(RESERVED_BYTES).min(info.shared_bytes_per_block);
        let values = bytes.saturating_sub(SCRATCH_BYTES * warps) / size;
        // Each warp has a share, aligned as the whole.
        // Places in a front have 16 bits.
        let values = values.saturating_sub(HEAD * warps + SPARE).min(1 << 16);
        let capacity = values / (4 * warps) * 4 * warps;
        let shared_bytes = SCRATCH_BYTES * warps + (HEAD * warps + SPARE + capacity) * size;
        Self { threads, resident, capacity, shared_bytes }
    }

    /// Number of blocks: as many as the device has room for at once, or as there are items, or as
    /// there is memory for. `of_block`, `rest`: bytes of device memory of a block, and of the plan
    /// besides.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`] when there is no memory for one block.
    pub(super) fn count(
        &self,
        info: &DeviceInfo,
        nitems: usize,
        (of_block, rest): (u64, u64),
        (free, tuning): (u64, &FrontalTuning),
    ) -> Result<u32, GpuError> {
        let at_once = u64::from(info.multiprocessors.max(1) * self.resident);
        let most = tuning.max_blocks.map_or(at_once, |most| at_once.min(most.into()));
        let free = tuning.max_bytes.map_or(free, |most| most.min(free));
        let left = free.checked_sub(rest).filter(|&left| left >= of_block);
        let needed = rest + of_block;
        let left = left.ok_or(GpuError::OutOfMemory { needed, free })?;
        let share = if tuning.max_bytes.is_some() { left } else { left / MOST_OF_FREE };
        let by_memory = (share / of_block.max(1)).max(1);
        Ok(most.min(nitems as u64).max(1).min(by_memory) as u32)
    }
}

fn out_of_range(name: &'static str, expected: &'static str, found: u32) -> GpuSolveError {
    let found = found.to_string();
    GpuSolveError::Argument(ArgumentError::OutOfRange { name, expected, found })
}
