//! Options of a plan, and the kernels it may use.

use super::kernels::PACKED;
use super::work::{MAX_UNITS, WARP};
use sparsebatch_cuda::{DeviceInfo, GpuError, KernelKey, Value};

/// Options for experiments; the default suits everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackedOptions {
    /// Right-hand sides per system.
    pub nrhs: usize,
    /// Kernel of the product. `None`: chosen from the device and the batch.
    pub kernel: Option<PackedKernel>,
    /// Consecutive small systems are multiplied together as long as they have at most this many
    /// entries in total. `None`: chosen from the batch. Only with one right-hand side.
    pub group_entries: Option<usize>,
    /// Systems with more entries are cut into pieces of consecutive rows with about this many
    /// entries each, large systems into pieces of at most about 8192 entries. `None`: chosen from
    /// the batch, so that there are enough pieces to keep the device busy.
    pub piece_entries: Option<usize>,
    /// A block takes `1/share` of what each resident block would get if the remaining work were
    /// divided equally. `None`: chosen from the batch.
    pub share: Option<usize>,
}

sparsebatch_formats::option_setters! {
    PackedOptions {
        nrhs: usize,
        kernel: Option<PackedKernel>,
        group_entries: Option<usize>,
        piece_entries: Option<usize>,
        share: Option<usize>,
    }
}

impl Default for PackedOptions {
    fn default() -> Self {
        Self { nrhs: 1, kernel: None, group_entries: None, piece_entries: None, share: None }
    }
}

/// How the matrix gets to the threads that multiply it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedKernel {
    /// `packed_stream`: everything is copied into shared memory ahead of its use, values and
    /// columns in bulk. A copy moves `steps` (4 or 8) times 32 slots; each warp has `stages` (2 to
    /// 4) copies in flight. Needs compute capability 9.0.
    Stream {
        /// Slots per thread in one copy.
        steps: usize,
        /// Copies that each warp has in flight.
        stages: usize,
        /// Warps per block for small pieces: 1, 2 or 4.
        warps: usize,
    },
    /// `packed_spmv`: values and columns go through registers; each thread has `depth` (4 or 6)
    /// loads in flight.
    Registers {
        /// Loads that each thread has in flight.
        depth: usize,
    },
}

/// Pieces per multiprocessor above which some pieces wait for others.
const MANY_PIECES: usize = 16;

/// Pieces per multiprocessor up to which a product's time is that of its longest piece.
const PIECES_FOR_DEEPER_COPIES: usize = 6;

/// Steps per piece below which two warps are as fast as four.
const FEW_STEPS: usize = 100;

/// Steps per piece from which a block takes a smaller share of the remaining work at once: 1.5 %
/// faster on an H200; with smaller pieces it is 1 to 5 % slower.
const LARGE_STEPS: usize = 300;

impl PackedKernel {
    /// The default kernel for `npieces` pieces of `mean_steps` steps on average. Measured on an
    /// H200: two copies of 8 steps in flight are best or within 1 % of it in large batches, since
    /// they leave room for the most blocks; two warps are best where each warp would have less than two
    /// copies, unless all pieces are processed at once.
    pub(super) fn of(info: &DeviceInfo, npieces: usize, mean_steps: usize) -> Self {
        if info.compute_capability < (9, 0) {
            return Self::Registers { depth: 4 };
        }
        let many = npieces > MANY_PIECES * info.multiprocessors as usize;
        let warps = if many && mean_steps < FEW_STEPS { 2 } else { 4 };
        Self::Stream { steps: 8, stages: 2, warps }
    }

    /// The kernel to take instead where pieces are few, and one of them keeps a warp busy for
    /// longer than two copies. More copies in flight then shorten the product by more than the fewer
    /// blocks that a multiprocessor holds cost it. On an H200, mixes of 5 to 100 systems take 0.85 to 0.96
    /// of the time with two; for groups of tiny systems, whose warps have few steps each, two are
    /// better. Only for joint pieces whose x is copied, and so not for uniform batches.
    pub(super) fn for_few(
        info: &DeviceInfo,
        npieces: usize,
        longest_share: impl Fn(usize) -> usize,
    ) -> Option<Self> {
        const WARPS: usize = 4;
        const STEPS: usize = 8;
        let few = npieces <= PIECES_FOR_DEEPER_COPIES * info.multiprocessors as usize;
        (few && info.compute_capability >= (9, 0) && longest_share(WARPS) > 2 * STEPS)
            .then_some(Self::Stream { steps: STEPS, stages: 4, warps: WARPS })
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

    /// Classes of blocks: for small pieces, for larger ones, for pieces that fill a multiprocessor,
    /// and last the class that leaves the least shared memory to copies in flight.
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

    /// The kernel instance for blocks of `warps` warps.
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

    /// Shared memory for copies in flight in a block of `warps` warps, in bytes.
    pub(super) fn staging_bytes(self, warps: usize, mode: Mode, value_bytes: usize) -> usize {
        match self {
            Self::Registers { .. } => 0,
            Self::Stream { steps, stages, .. } => {
                warps * stages * steps * mode.step_bytes(value_bytes)
            }
        }
    }

    /// Whether the kernel itself waits for the launches ahead, so that its launch may overlap them.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Stream { .. })
    }

    /// Whether the next piece is copied into shared memory while the current one is multiplied.
    pub(super) fn copies_ahead(self) -> bool {
        matches!(self, Self::Stream { .. })
    }
}

/// A class of blocks: each has `warps` warps, and a multiprocessor shall hold at least `resident`.
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
    /// x is gathered from global memory instead of copied into shared memory.
    pub(super) gathered: bool,
    /// Column indices have 32 bits instead of 16.
    pub(super) wide: bool,
}

impl Mode {
    /// The number of this mode in the kernels (`MODE`).
    pub(super) fn number(self) -> u32 {
        u32::from(self.joint) + 2 * u32::from(self.gathered) + 4 * u32::from(self.wide)
    }

    fn column_bytes(self) -> usize {
        if self.wide { size_of::<u32>() } else { size_of::<u16>() }
    }

    fn step_bytes(self, value_bytes: usize) -> usize {
        WARP * (value_bytes + self.column_bytes())
    }

    /// Bytes of `nsteps` steps in the array of values and in the array of columns.
    pub(super) fn bytes<T: Value>(self, nsteps: usize) -> (u64, u64) {
        let all = (nsteps * self.step_bytes(size_of::<T>())) as u64;
        let columns = (nsteps * WARP * self.column_bytes()) as u64;
        if self.joint { (all, 0) } else { (all - columns, columns) }
    }
}

impl PackedOptions {
    /// The `share` option, or its default for pieces of `mean_steps` steps on average.
    pub(super) fn chosen_share(&self, mean_steps: usize) -> usize {
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
