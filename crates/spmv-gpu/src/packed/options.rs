//! How a plan may be made, and the kernels it may use.

use super::layout::SLICE;
use super::work::{Class, Rooms};
use crate::value::Value;
use crate::{DeviceInfo, GpuError, KernelKey};

/// What experiments may change; the default is right for everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedOptions {
    /// Right-hand sides per system.
    pub nrhs: usize,
    /// By the device when absent.
    pub kernel: Option<PackedKernel>,
    /// Small systems that follow each other are multiplied together as long as they have at most so
    /// many entries; by the batch when absent. Only with one right-hand side.
    pub group_entries: Option<usize>,
    /// A block takes one in `share` of what each resident block would get of the work left.
    pub share: usize,
}

impl Default for PackedOptions {
    fn default() -> Self {
        Self { nrhs: 1, kernel: None, group_entries: None, share: 3 }
    }
}

/// How the matrix gets to the threads that multiply it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedKernel {
    /// `packed_stream`: everything is copied into shared memory ahead of its use, values and columns
    /// in bulk, `steps` (4 or 8) times 32 slots at a time, `stages` (2 to 4) of them under way per
    /// warp. Needs compute capability 9.0.
    Stream {
        /// Slots of each thread per copy.
        steps: usize,
        /// Copies of a warp under way at once.
        stages: usize,
    },
    /// `packed_spmv`: values and columns through registers, `depth` (4 or 6) loads of a thread under
    /// way at once.
    Registers {
        /// Loads of a thread under way at once.
        depth: usize,
    },
}

impl PackedKernel {
    pub(super) fn of(info: &DeviceInfo) -> Self {
        if info.compute_capability >= (9, 0) {
            Self::Stream { steps: 4, stages: 4 }
        } else {
            Self::Registers { depth: 4 }
        }
    }

    fn check(self, info: &DeviceInfo) -> Result<(), GpuError> {
        let (expected, fine) = match self {
            Self::Registers { depth } => ("4 or 6 loads in registers", [4, 6].contains(&depth)),
            Self::Stream { steps, stages } => (
                "copies of 4 steps in 2 to 4 stages or 8 in 2 or 3, on compute capability 9.0",
                [(4, 2), (4, 3), (4, 4), (8, 2), (8, 3)].contains(&(steps, stages))
                    && info.compute_capability >= (9, 0),
            ),
        };
        if fine { Ok(()) } else { Err(refused("kernel", expected, format!("{self:?}"))) }
    }

    /// Blocks for small pieces, larger ones, those that fill a multiprocessor, and those that leave
    /// least to copies under way.
    pub(super) fn classes(self) -> &'static [Class] {
        &[
            Class { warps: 4, resident: 3 },
            Class { warps: 8, resident: 2 },
            Class { warps: 16, resident: 1 },
            Class { warps: 4, resident: 1 },
        ]
    }

    /// The instance for blocks of so many warps.
    pub(super) fn key<T: Value>(self, warps: usize) -> KernelKey {
        let value = T::CPP;
        let expression = match self {
            Self::Registers { depth } => format!("packed_spmv<{value}, {depth}, {warps}>"),
            Self::Stream { steps, stages } => {
                format!("packed_stream<{value}, {steps}, {stages}, {warps}>")
            }
        };
        KernelKey::new("packed", expression)
    }

    /// Dynamic shared memory of a block, in bytes.
    pub(super) fn shared_bytes<T: Value>(self, warps: usize, rooms: Rooms) -> usize {
        let Rooms { x, sums, y, index } = rooms;
        match self {
            Self::Registers { .. } => (x + sums) * size_of::<T>(),
            Self::Stream { steps, stages } => {
                let slots = warps * stages * steps * SLICE;
                slots * (size_of::<T>() + size_of::<u16>())
                    + (2 * x + sums + y) * size_of::<T>()
                    + 2 * index * size_of::<u16>()
            }
        }
    }
}

impl PackedOptions {
    pub(super) fn check(&self, info: &DeviceInfo) -> Result<(), GpuError> {
        if self.nrhs == 0 || self.nrhs > u32::MAX as usize {
            return Err(refused("nrhs", "1 to 4294967295", self.nrhs.to_string()));
        }
        if self.share == 0 {
            return Err(refused("share", "at least 1", self.share.to_string()));
        }
        self.kernel.map_or(Ok(()), |kernel| kernel.check(info))
    }
}

fn refused(name: &'static str, expected: &str, found: String) -> GpuError {
    GpuError::InvalidArgument { name, expected: expected.to_owned(), found }
}
