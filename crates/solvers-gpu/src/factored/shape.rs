//! The threads that solve a system, and what is in shared memory during the solve.

use sparsebatch_cuda::{DeviceInfo, GpuError, KernelKey, Value};
use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::symbolic::DiagonalBlocks;
use sparsebatch_solve_core::{ArgumentError, Scheme};

use super::kernels::FACTORED;
use super::programs::Factors;
use super::streams::Streams;
use crate::GpuSolveError;

/// What is in shared memory during a solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactoredPlace {
    /// Values, factors and vectors.
    AllShared,
    /// Factors and vectors; values are read from device memory, through the caches, in every
    /// product.
    ValuesGlobal,
    /// Vectors; factors are in a workspace on the device.
    FactorsGlobal,
    /// Nothing: factors and vectors are in a workspace on the device. For systems of any size.
    AllGlobal,
}

impl FactoredPlace {
    /// All places, the fastest first.
    pub const ALL: &[Self] =
        &[Self::AllShared, Self::ValuesGlobal, Self::FactorsGlobal, Self::AllGlobal];

    /// The places in groups, the fastest first; in a group the pattern decides.
    const BY_SPEED: [&[Self]; 3] =
        [&[Self::AllShared, Self::ValuesGlobal], &[Self::FactorsGlobal], &[Self::AllGlobal]];

    /// A description for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllShared => "values, factors and vectors in shared memory",
            Self::ValuesGlobal => "factors and vectors in shared memory",
            Self::FactorsGlobal => "vectors in shared memory, factors in device memory",
            Self::AllGlobal => "factors and vectors in device memory",
        }
    }

    /// The kernels' number for this place.
    pub(super) fn code(self) -> u32 {
        self as u32
    }

    /// Whether positions have 32 bits.
    pub(super) fn is_wide(self) -> bool {
        self == Self::AllGlobal
    }

    /// The numbers of threads per system for which kernels of a method exist.
    fn threads(self, scheme: Scheme) -> &'static [u32] {
        match (self, scheme) {
            (Self::FactorsGlobal | Self::AllGlobal, _) => &[512],
            // LU of systems that fit in shared memory is done by `GpuLu`.
            (_, Scheme::Lu | Scheme::PivotingLu | Scheme::Banded) => &[],
            (Self::AllShared, _) => &[32, 128, 512],
            (Self::ValuesGlobal, _) => &[128, 512],
        }
    }
}

/// The kernels' number for a scheme.
fn code(scheme: Scheme) -> u32 {
    match scheme {
        Scheme::Cg(_) => 0,
        Scheme::BiCgStab(_) => 1,
        Scheme::Lu | Scheme::PivotingLu | Scheme::Banded => 2,
    }
}

/// Number of vectors of a system.
fn vectors(scheme: Scheme) -> usize {
    match scheme {
        Scheme::Cg(_) => 5,
        Scheme::BiCgStab(_) => 7,
        Scheme::Lu | Scheme::PivotingLu | Scheme::Banded => 3,
    }
}

/// Overrides of a plan's own choices, for experiments. `None` leaves a choice to the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FactoredTuning {
    /// Threads per system: 32, 128 or 512 with everything in shared memory, 128 or 512 with values
    /// in device memory, else 512. LU: 512.
    pub threads: Option<u32>,
    /// What is in shared memory. LU: [`FactoredPlace::FactorsGlobal`] or
    /// [`FactoredPlace::AllGlobal`].
    pub place: Option<FactoredPlace>,
    /// The most blocks of a launch. Default: as many as the device holds at once.
    pub max_blocks: Option<u32>,
    /// The most bytes of device memory that the plan takes; a smaller limit means fewer blocks
    /// where each block has factors there. Default: the free memory.
    pub max_bytes: Option<u64>,
}

sparsebatch_formats::option_setters! {
    FactoredTuning {
        threads: Option<u32>,
        place: Option<FactoredPlace>,
        max_blocks: Option<u32>,
        max_bytes: Option<u64>,
    }
}

/// Shared memory of a block beside that of systems, at most: sums of warps, and what the device
/// reserves.
const RESERVED_BYTES: u64 = 2048;

/// What the device reserves of it, and the unit in which blocks get shared memory.
const DEVICE_BYTES: u64 = 1024;
const UNIT_BYTES: u64 = 128;

/// Bytes of the sums of a warp.
const SUMS_BYTES: u64 = 40;

/// The largest size that 16-bit positions allow; 0xffff marks an absent position.
const MOST_NARROW: usize = 0xfffe;

/// Candidate numbers of systems per block where a warp solves a system, largest first.
const WARPS_A_BLOCK: [u32; 3] = [4, 2, 1];

/// The most blocks that a multiprocessor can hold.
const MOST_RESIDENT: u64 = 32;

/// Rough cycle costs of an iteration, by which groups are compared.
mod cycles {
    /// A row in all vectors, and an entry of a row, with its value in shared memory or not.
    pub(super) const ROW: u64 = 150;
    pub(super) const ENTRY: u64 = 25;
    pub(super) const GLOBAL_ENTRY: u64 = 60;
    /// Reductions and barriers of a warp, and of a block.
    pub(super) const WARP: u64 = 500;
    pub(super) const BLOCK: u64 = 1000;
    /// A step of the inversion of a block by a warp, and what each row of the block adds to it.
    pub(super) const INVERSION: u64 = 450;
    pub(super) const INVERSION_ROW: u64 = 15;
    /// Assumed number of iterations per factorisation.
    pub(super) const ITERATIONS: u64 = 8;
}

/// The precision of stored numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Precision {
    /// Bytes of a value of A and of a vector element.
    pub(super) value_bytes: usize,
    /// Whether factors are stored in half as many bytes.
    pub(super) is_mixed: bool,
}

/// The memory of a system, and its threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct FactoredPlacement {
    pub(super) place: FactoredPlace,
    /// Threads of a group, which solves one system at a time.
    pub(super) threads: u32,
    /// Number of groups in a block.
    pub(super) groups: u32,
    pub(super) blocks: u32,
    /// Estimated number of blocks that a multiprocessor holds at once.
    pub(super) resident: u32,
    pub(super) shared_bytes: u32,
    /// Whether the factors are inverses of blocks.
    inverts: bool,
    /// Bytes of a system's values, factors and vectors.
    pub(super) system_bytes: u64,
    /// Whether factors are stored in lower precision than values; then the bytes of the factors.
    pub(super) is_mixed: bool,
    pub(super) factor_bytes: u64,
    /// Number of values of a group in shared memory, and in the workspace.
    pub(super) shared: u64,
    pub(super) workspace: u64,
    /// Number of levels of the factorisation, and of an application.
    pub(super) levels: [usize; 2],
}

impl FactoredPlacement {
    /// Chooses, among what the tuning allows, threads and place with the least estimated time:
    /// where values in device memory leave room for more systems at once, the iterations of one
    /// hide those of others. Factors and vectors go to device memory only for lack of room. The
    /// number of systems affects only the blocks.
    pub(super) fn choose(
        a: CsrPatternRef<'_>,
        factors: &Factors,
        scheme: Scheme,
        precision: Precision,
        nsystems: usize,
        info: &DeviceInfo,
        tuning: &FactoredTuning,
    ) -> Result<Self, GpuSolveError> {
        check_tuning(tuning)?;
        let size = Size {
            nrows: a.nrows(),
            nnz: a.nnz(),
            nfactors: factors.len(),
            vectors: vectors(scheme),
            precision,
            inverts: matches!(factors, Factors::Blocks(_)),
        };
        let is_numbered =
            size.nrows <= MOST_NARROW && (size.nfactors <= MOST_NARROW || size.inverts);
        for places in FactoredPlace::BY_SPEED {
            let places = places.iter().copied().filter(|&place| {
                tuning.place.is_none_or(|wanted| wanted == place)
                    && (place.is_wide() || is_numbered)
            });
            let threads = places.flat_map(|place| {
                place.threads(scheme).iter().map(move |&threads| (place, threads))
            });
            let shapes: Vec<Self> = threads
                .filter(|&(_, threads)| tuning.threads.is_none_or(|wanted| wanted == threads))
                .filter_map(|(place, threads)| size.shape(place, threads, nsystems, info, tuning))
                .collect();
            let time = |(shape, latency): &(Self, u64)| {
                latency.div_ceil(u64::from(shape.resident * shape.groups))
            };
            let latencies = latencies(a, factors, &shapes);
            if let Some((mut best, _)) = shapes.into_iter().zip(latencies).min_by_key(time) {
                if let Factors::Sums(sums) = factors {
                    best.levels = [sums.factorisation.nlevels(), sums.application.nlevels()];
                }
                return Ok(best);
            }
        }
        Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
            name: "tuning",
            expected: "threads and a place that there is room and a kernel for",
            found: format!("{tuning:?}"),
        }))
    }
}

/// The sizes that the memory depends on.
struct Size {
    nrows: usize,
    nnz: usize,
    nfactors: usize,
    vectors: usize,
    precision: Precision,
    inverts: bool,
}

/// Number of vectors in use (x and r) while factors of lower precision are computed in the memory
/// of the others.
const VECTORS_AT_ONCE: usize = 2;

impl Size {
    /// Memory of the factors, in values of A's precision: the factors, a 0 and, in lower precision,
    /// the exponents of rows and columns.
    fn factors(&self) -> u64 {
        let nfactors = self.nfactors as u64;
        if self.precision.is_mixed {
            (nfactors + 1 + self.nrows as u64).div_ceil(2)
        } else {
            nfactors + 1
        }
    }

    /// Number of values of a group in shared memory, and in the workspace: see `FactoredShape` of
    /// the kernels.
    fn memory(&self, place: FactoredPlace) -> (u64, u64) {
        let (nrows, nfactors) = (self.nrows as u64, self.nfactors as u64);
        let vectors = self.vectors as u64 * nrows + 1;
        // Outside of shared memory, factors of lower precision are computed in memory of their own.
        let made = nfactors + 1 + if self.precision.is_mixed { nrows.div_ceil(2) } else { 0 };
        let before = match place {
            FactoredPlace::AllShared => vectors + self.nnz as u64,
            FactoredPlace::ValuesGlobal => vectors,
            FactoredPlace::FactorsGlobal => return (vectors, made),
            FactoredPlace::AllGlobal => return (0, vectors + made),
        };
        let before = if self.precision.is_mixed {
            before.max(VECTORS_AT_ONCE as u64 * nrows + nfactors / 2 + 1)
        } else {
            before
        };
        (before + self.factors(), 0)
    }

    fn shape(
        &self,
        place: FactoredPlace,
        threads: u32,
        nsystems: usize,
        info: &DeviceInfo,
        tuning: &FactoredTuning,
    ) -> Option<FactoredPlacement> {
        let (shared, workspace) = self.memory(place);
        let value_bytes = self.precision.value_bytes;
        let vectors = (self.vectors * self.nrows + 1) as u64;
        let shape = FactoredPlacement {
            place,
            threads,
            groups: 1,
            blocks: 1,
            resident: 1,
            shared_bytes: 0,
            inverts: self.inverts,
            system_bytes: (vectors + self.factors() + self.nnz as u64) * value_bytes as u64,
            is_mixed: self.precision.is_mixed,
            factor_bytes: self.factors() * value_bytes as u64,
            shared: 0,
            workspace: 0,
            levels: [1, 1],
        };
        shape.with_memory((shared, workspace), value_bytes, nsystems, info, tuning)
    }
}

impl FactoredPlacement {
    /// The same threads and place for groups with `shared` values in shared memory and `workspace`
    /// values in the workspace, and the blocks for `nsystems` systems; nothing if a block has no
    /// room.
    pub(super) fn with_memory(
        mut self,
        (shared, workspace): (u64, u64),
        value_bytes: usize,
        nsystems: usize,
        info: &DeviceInfo,
        tuning: &FactoredTuning,
    ) -> Option<Self> {
        let bytes = shared * value_bytes as u64;
        let fits = |&groups: &u32| {
            let block = u64::from(groups) * bytes + RESERVED_BYTES;
            block <= u64::from(info.shared_bytes_per_block)
        };
        let groups = match self.threads {
            32 => WARPS_A_BLOCK.into_iter().find(fits)?,
            _ => Some(1).filter(fits)?,
        };
        let shared_bytes = u64::from(groups) * bytes;
        let sums = SUMS_BYTES * (self.warps() * groups as usize) as u64;
        let of_block = (shared_bytes + sums + DEVICE_BYTES).next_multiple_of(UNIT_BYTES);
        let by_shared = u64::from(info.shared_bytes_per_multiprocessor) / of_block;
        let most_threads = info.max_threads_per_multiprocessor.min(self.most_threads());
        let by_threads = most_threads / (self.threads * groups);
        let resident = by_shared.min(u64::from(by_threads)).clamp(1, MOST_RESIDENT);
        let most = resident * u64::from(info.multiprocessors.max(1));
        let work = (nsystems as u64).div_ceil(u64::from(groups));
        let blocks = most.min(work).min(u64::from(tuning.max_blocks.unwrap_or(u32::MAX))).max(1);
        self.groups = groups;
        self.blocks = blocks as u32;
        self.resident = resident as u32;
        self.shared_bytes = shared_bytes as u32;
        (self.shared, self.workspace) = (shared, workspace);
        Some(self)
    }

    /// The warps of a group.
    fn warps(&self) -> usize {
        self.threads as usize / 32
    }

    /// The most threads of a multiprocessor, given the registers of the kernel.
    fn most_threads(&self) -> u32 {
        match (self.threads > 128, self.inverts) {
            (true, _) => self.threads,
            (false, true) => 512,
            (false, false) => 640,
        }
    }

    /// The instance of the kernel `name` that computes these factors and solves by this scheme.
    pub(super) fn key<T: Value>(&self, name: &str, scheme: Scheme) -> KernelKey {
        let expression = format!(
            "{name}<{}, {}, {}, {}, {}{}>",
            T::CPP,
            self.threads,
            code(scheme),
            u8::from(self.inverts),
            self.place.code(),
            if self.is_mixed { ", float" } else { "" }
        );
        KernelKey::new(&FACTORED, expression)
    }

    /// Bytes of the workspace of a block.
    pub(super) fn block_bytes(&self, value_bytes: usize) -> u64 {
        u64::from(self.groups) * self.workspace * value_bytes as u64
    }

    /// Reduces the blocks to those that fit in `free` bytes, of which the rest of the plan takes
    /// `rest`.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`] when there is no memory for one block.
    pub(super) fn fit(&mut self, rest: u64, value_bytes: usize, free: u64) -> Result<(), GpuError> {
        let each = self.block_bytes(value_bytes);
        let left = free.checked_sub(rest).filter(|&left| left >= each);
        let Some(left) = left else {
            return Err(GpuError::OutOfMemory { needed: rest + each, free });
        };
        let most = left.checked_div(each).map_or(u32::MAX, |most| most.min(1 << 20) as u32);
        self.blocks = self.blocks.min(most);
        Ok(())
    }
}

/// Estimated cycles of an iteration for each of some shapes.
fn latencies(a: CsrPatternRef<'_>, factors: &Factors, shapes: &[FactoredPlacement]) -> Vec<u64> {
    let nrows = a.nrows() as u64;
    let width = (a.nnz() as u64).div_ceil(nrows.max(1));
    let turns = |shape: &FactoredPlacement| nrows.div_ceil(u64::from(shape.threads)).max(1);
    let of_rows = shapes.iter().map(|shape| {
        let sums = if shape.threads == 32 { cycles::WARP } else { cycles::BLOCK };
        let entry = match shape.place {
            FactoredPlace::AllShared => cycles::ENTRY,
            _ => cycles::GLOBAL_ENTRY,
        };
        turns(shape) * (cycles::ROW + width * entry) + sums
    });
    let mut all: Vec<u64> = of_rows.collect();
    match factors {
        Factors::Blocks(blocks) => {
            let most = (0..blocks.nblocks()).map(|block| blocks.rows(block).len()).max();
            let of_block = most.unwrap_or(0) as u64 * cycles::ENTRY;
            for (all, shape) in all.iter_mut().zip(shapes) {
                let made = inversions(blocks, shape.warps());
                *all += turns(shape) * of_block + made / cycles::ITERATIONS;
            }
        }
        // Nothing to compare.
        Factors::Sums(_) if shapes.len() < 2 => {}
        Factors::Sums(sums) => {
            let mut warps: Vec<usize> = shapes.iter().map(FactoredPlacement::warps).collect();
            warps.sort_unstable();
            warps.dedup();
            let of = |tasks| Streams::latencies(&tasks, &warps);
            let application = of(sums.application.to_narrow());
            let factorisation = of(sums.factorisation.to_narrow());
            for (all, shape) in all.iter_mut().zip(shapes) {
                let number = warps.partition_point(|&warps| warps < shape.warps());
                *all += application[number] + factorisation[number] / cycles::ITERATIONS;
            }
        }
    }
    all
}

/// Estimated cycles in which some warps, a block each in turn, invert the diagonal blocks.
fn inversions(blocks: &DiagonalBlocks, warps: usize) -> u64 {
    let mut of_warps = vec![0; warps];
    for block in 0..blocks.nblocks() {
        let rows = blocks.rows(block).len() as u64;
        of_warps[block % warps] += rows * (cycles::INVERSION + cycles::INVERSION_ROW * rows);
    }
    of_warps.into_iter().max().unwrap_or(0)
}

fn check_tuning(tuning: &FactoredTuning) -> Result<(), GpuSolveError> {
    let refuse = |name, expected, found: u32| {
        Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
            name,
            expected,
            found: found.to_string(),
        }))
    };
    match (tuning.threads, tuning.max_blocks) {
        (Some(threads), _) if ![32, 128, 512].contains(&threads) => {
            refuse("threads", "32, 128 or 512", threads)
        }
        (_, Some(blocks)) if !(1..=1 << 20).contains(&blocks) => {
            refuse("max_blocks", "1 to 1048576", blocks)
        }
        _ => Ok(()),
    }
}
