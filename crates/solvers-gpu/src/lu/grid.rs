//! Launches: threads, systems side by side, blocks, and what fits in their shared memory.

use sparsebatch_cuda::DeviceInfo;
use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::ArgumentError;

use super::graph::Places;
use super::order::LuOrder;
use crate::GpuSolveError;

/// Choices that a plan makes by itself where they are `None`. For experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LuTuning {
    /// Threads per block: 32, 64, 128, 256 or 512.
    pub threads: Option<u32>,
    /// Systems that a block solves side by side: 1 to 32.
    pub systems: Option<u32>,
    /// Blocks that a multiprocessor has at once: 1 to 6.
    pub resident: Option<u32>,
    /// The order of elimination.
    pub order: Option<LuOrder>,
    /// The most blocks of the launch. Default: what the device can hold at once.
    pub max_blocks: Option<u32>,
}

sparsebatch_formats::option_setters! {
    LuTuning {
        threads: Option<u32>,
        systems: Option<u32>,
        resident: Option<u32>,
        order: Option<LuOrder>,
        max_blocks: Option<u32>,
    }
}

pub(super) const THREADS: [u32; 5] = [32, 64, 128, 256, 512];
pub(super) const LANES: u32 = 32;

/// Number of partial sums of a norm: see `lu.cu`.
pub(super) const CHAINS: u64 = 16;

/// Shared memory that the device reserves per block.
pub(super) const RESERVED_BYTES: u64 = 1024;

/// Threads per multiprocessor at the register limit of the kernels: see `lu.cu`.
const fn resident_threads(info: &DeviceInfo) -> u32 {
    if info.compute_capability.0 < 9 { 512 } else { 768 }
}

/// Largest number of blocks per multiprocessor that is considered.
const MOST_RESIDENT: u32 = 6;

/// Largest number of values that the kernels of the LU can index with 16 bits: the kernels keep
/// 0xfffe and 0xffff for places without a value.
pub const MOST_LU_VALUES: u64 = 65_534;

/// Number of values that a system needs besides those of L + U.
pub fn values_beside_factors(a: CsrPatternRef<'_>) -> usize {
    Places::new(0, a).len
}

/// Largest number of values that fits in the shared memory of a block and that 16 bits can index.
pub(super) fn fit(value_bytes: usize, info: &DeviceInfo) -> usize {
    let bytes = u64::from(info.shared_bytes_per_block).saturating_sub(beside(1));
    (bytes / value_bytes as u64).min(MOST_LU_VALUES) as usize
}

/// Bytes of shared memory besides the values, for `systems` systems side by side.
fn beside(systems: u32) -> u64 {
    RESERVED_BYTES + (CHAINS + 1) * 8 * u64::from(systems) + 8
}

/// Refuses a pattern that is too large even without fill, before any order is looked for.
pub(super) fn check_size(
    a: CsrPatternRef<'_>,
    value_bytes: usize,
    info: &DeviceInfo,
) -> Result<(), GpuSolveError> {
    if Places::new(a.nnz(), a).len > fit(value_bytes, info) { Err(TOO_LARGE) } else { Ok(()) }
}

pub(super) const TOO_LARGE: GpuSolveError = GpuSolveError::Unsupported {
    what: "a system whose factors and vectors have more than 65534 values or exceed the shared \
           memory of a block",
    instead: "take FactoredSolver, or an iterative method",
};

/// The launch of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LuGrid {
    pub(super) threads: u32,
    /// Systems that a block solves side by side.
    pub(super) systems: u32,
    pub(super) blocks: u32,
    /// Blocks that a multiprocessor holds at once, a guess.
    pub(super) resident: u32,
    pub(super) shared_bytes: u32,
}

/// The launches to compare: more blocks per multiprocessor, or more systems side by side. Each has
/// as many blocks as the device holds at once, or as there is work for; blocks take systems from a
/// queue.
pub(super) fn grids(
    places: Places,
    value_bytes: usize,
    nsystems: u64,
    info: &DeviceInfo,
    tuning: &LuTuning,
    threads: u32,
) -> impl Iterator<Item = LuGrid> {
    let multiprocessors = u64::from(info.multiprocessors.max(1));
    let (of_block, of_all) =
        (u64::from(info.shared_bytes_per_block), u64::from(info.shared_bytes_per_multiprocessor));
    let each = (places.len * value_bytes) as u64;
    let (systems, max_blocks) = (tuning.systems, tuning.max_blocks);
    let most_resident =
        (resident_threads(info).min(info.max_threads_per_multiprocessor) / threads).max(1);
    let resident = (1..=most_resident.min(MOST_RESIDENT))
        .filter(|&n| tuning.resident.is_none_or(|wanted| wanted == n));
    resident.filter_map(move |resident| {
        let fits = |systems: u32| {
            let bytes = each * u64::from(systems) + beside(systems);
            bytes <= of_block && bytes * u64::from(resident) <= of_all
        };
        let most = match systems {
            Some(systems) => Some(systems).filter(|&systems| fits(systems)),
            None => (1..=LANES).rev().find(|&systems| fits(systems)),
        }?;
        // The least number of rounds, with as few systems per block as this allows.
        let rounds = nsystems.div_ceil(multiprocessors * u64::from(resident * most)).max(1);
        let few = nsystems.div_ceil(rounds.saturating_mul(multiprocessors * u64::from(resident)));
        let systems = systems.unwrap_or(most.min(few.clamp(1, u64::from(LANES)) as u32));
        let blocks =
            nsystems.div_ceil(u64::from(systems)).min(multiprocessors * u64::from(resident));
        let blocks = blocks.min(u64::from(max_blocks.unwrap_or(u32::MAX))).max(1) as u32;
        let shared_bytes = (each * u64::from(systems) + beside(systems) - RESERVED_BYTES) as u32;
        Some(LuGrid { threads, systems, blocks, resident, shared_bytes })
    })
}

pub(super) fn check_tuning(tuning: &LuTuning) -> Result<(), GpuSolveError> {
    let check = |name, expected, value: Option<u32>, fits: &dyn Fn(u32) -> bool| match value {
        Some(value) if !fits(value) => Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
            name,
            expected,
            found: value.to_string(),
        })),
        _ => Ok(()),
    };
    check("threads", "32, 64, 128, 256 or 512", tuning.threads, &|n| THREADS.contains(&n))?;
    check("systems", "1 to 32", tuning.systems, &|n| (1..=LANES).contains(&n))?;
    let most = |n| (1..=MOST_RESIDENT).contains(&n);
    check("resident", "1 to 6", tuning.resident, &most)?;
    let few = |blocks| (1..=1 << 20).contains(&blocks);
    check("max_blocks", "1 to 1048576", tuning.max_blocks, &few)
}
