//! How a plan may be made, and the kernels it may use.

use super::kernels::PACKED;
use super::work::{MAX_UNITS, WARP};
use sparsebatch_cuda::{DeviceInfo, GpuError, KernelKey, Value};

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
    /// Systems of more entries are cut into pieces of some rows with about so many, large ones into
    /// 8192 at most; by the batch when absent: enough of them to keep the device busy.
    pub piece_entries: Option<usize>,
    /// A block takes one in `share` of what each resident block would get of the work left; by the
    /// batch when absent.
    pub share: Option<usize>,
}

impl Default for PackedOptions {
    fn default() -> Self {
        Self { nrhs: 1, kernel: None, group_entries: None, piece_entries: None, share: None }
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
        /// Warps of the blocks for small pieces: 1, 2 or 4.
        warps: usize,
    },
    /// `packed_spmv`: values and columns through registers, `depth` (4 or 6) loads of a thread under
    /// way at once.
    Registers {
        /// Loads of a thread under way at once.
        depth: usize,
    },
}

/// Pieces for each multiprocessor from which some wait for others.
const MANY_PIECES: usize = 16;

/// Steps of a piece that two warps do as fast as four.
const FEW_STEPS: usize = 100;

/// Steps of a piece from which blocks take less of the work left at once: 1.5 % faster on an H200;
/// with smaller pieces it is 1 to 5 % slower.
const LARGE_STEPS: usize = 300;

impl PackedKernel {
    /// The default for pieces of so many steps on average. Measured on an H200: two copies of 8 steps
    /// under way are best or within 1 % of it everywhere, since they leave room for most blocks;
    /// two warps are best where each would have less than two copies, unless all pieces are under
    /// way at once.
    pub(super) fn of(info: &DeviceInfo, npieces: usize, mean_steps: usize) -> Self {
        if info.compute_capability < (9, 0) {
            return Self::Registers { depth: 4 };
        }
        let many = npieces > MANY_PIECES * info.multiprocessors as usize;
        let warps = if many && mean_steps < FEW_STEPS { 2 } else { 4 };
        Self::Stream { steps: 8, stages: 2, warps }
    }

    fn check(self, info: &DeviceInfo) -> Result<(), GpuError> {
        let (expected, fine) = match self {
            Self::Registers { depth } => ("4 or 6 loads in registers", [4, 6].contains(&depth)),
            Self::Stream { steps, stages, warps } => (
                "copies of 4 steps in 3 or 4 stages or 8 in 2 to 4, on compute capability 9.0",
                [(4, 3), (4, 4), (8, 2), (8, 3), (8, 4)].contains(&(steps, stages))
                    && [1, 2, 4].contains(&warps)
                    && info.compute_capability >= (9, 0),
            ),
        };
        if fine { Ok(()) } else { Err(refused("kernel", expected, format!("{self:?}"))) }
    }

    /// Blocks for small pieces, larger ones, those that fill a multiprocessor, and those that leave
    /// least to copies under way.
    pub(super) fn classes(self) -> &'static [Class] {
        const CLASSES: [Class; 5] = [
            Class { warps: 1, resident: 4 },
            Class { warps: 2, resident: 4 },
            Class { warps: 4, resident: 3 },
            Class { warps: 8, resident: 1 },
            Class { warps: 4, resident: 1 },
        ];
        match self {
            Self::Stream { warps: 1, .. } => &CLASSES,
            Self::Stream { warps: 2, .. } => &CLASSES[1..],
            _ => &CLASSES[2..],
        }
    }

    /// The instance for blocks of so many warps.
    pub(super) fn key<T: Value>(self, warps: usize, mode: Mode) -> KernelKey {
        let (value, mode) = (T::CPP, mode.number());
        let expression = match self {
            Self::Registers { depth } => format!("packed_spmv<{value}, {depth}, {warps}, {mode}>"),
            Self::Stream { steps, stages, .. } => {
                format!("packed_stream<{value}, {steps}, {stages}, {warps}, {mode}>")
            }
        };
        KernelKey::new(&PACKED, expression)
    }

    /// Shared memory of a block of so many warps for what is under way, in bytes.
    pub(super) fn staging_bytes<T: Value>(self, warps: usize, mode: Mode) -> usize {
        match self {
            Self::Registers { .. } => 0,
            Self::Stream { steps, stages, .. } => warps * stages * steps * mode.step_bytes::<T>(),
        }
    }

    /// Whether a launch waits by itself for those ahead.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Stream { .. })
    }

    /// Whether the next piece is copied into shared memory beside the one that is multiplied.
    pub(super) fn copies_ahead(self) -> bool {
        matches!(self, Self::Stream { .. })
    }
}

/// Blocks of so many warps, of which so many shall find room on a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) warps: usize,
    pub(super) resident: usize,
}

/// How a piece is stored and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    /// Values and columns of a step lie together.
    pub(super) joint: bool,
    /// x is read from where it is, not copied into shared memory.
    pub(super) gathered: bool,
    /// Columns have 32 bits.
    pub(super) wide: bool,
}

impl Mode {
    /// As the kernels number it.
    pub(super) fn number(self) -> u32 {
        u32::from(self.joint) + 2 * u32::from(self.gathered) + 4 * u32::from(self.wide)
    }

    fn column_bytes(self) -> usize {
        if self.wide { size_of::<u32>() } else { size_of::<u16>() }
    }

    fn step_bytes<T: Value>(self) -> usize {
        WARP * (size_of::<T>() + self.column_bytes())
    }

    /// Bytes of so many steps in the array of values and in that of columns.
    pub(super) fn bytes<T: Value>(self, nsteps: usize) -> (u64, u64) {
        let all = (nsteps * self.step_bytes::<T>()) as u64;
        let columns = (nsteps * WARP * self.column_bytes()) as u64;
        if self.joint { (all, 0) } else { (all - columns, columns) }
    }
}

impl PackedOptions {
    /// How much a block takes at once, for pieces of so many steps on average.
    pub(super) fn share(&self, mean_steps: usize) -> usize {
        self.share.unwrap_or(if mean_steps < LARGE_STEPS { 1 } else { 2 })
    }

    pub(super) fn check(&self, info: &DeviceInfo) -> Result<(), GpuError> {
        if self.nrhs == 0 || self.nrhs > MAX_UNITS {
            return Err(refused("nrhs", "1 to 2147483647", self.nrhs.to_string()));
        }
        if self.piece_entries == Some(0) {
            return Err(refused("piece_entries", "at least 1", "0".to_owned()));
        }
        if self.share == Some(0) {
            return Err(refused("share", "at least 1", "0".to_owned()));
        }
        self.kernel.map_or(Ok(()), |kernel| kernel.check(info))
    }
}

fn refused(name: &'static str, expected: &str, found: String) -> GpuError {
    GpuError::InvalidArgument { name, expected: expected.to_owned(), found }
}
