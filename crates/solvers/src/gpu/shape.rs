//! How many threads solve a system, and where its values are kept meanwhile.

use sparsebatch_formats::CsrPatternRef;
use sparsebatch_spmv_gpu::DeviceInfo;

use super::pattern::widths;
use crate::SolveError;

/// Where the values of a system are during its solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValuePlace {
    /// In registers, up to five entries a row: read from device memory once.
    Registers,
    /// In shared memory: read from device memory once.
    Shared,
    /// In device memory, through the caches, in every iteration.
    Global,
}

impl ValuePlace {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::Shared => "shared memory",
            Self::Global => "device memory",
        }
    }

    /// As the kernels number it.
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Registers => 0,
            Self::Shared => 1,
            Self::Global => 2,
        }
    }
}

/// Choices that a plan makes by itself where they are left open. For experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuTuning {
    /// Threads per system, a power of two from 2 to 1,024, and rows per thread; their product is at
    /// least the number of rows.
    pub group: Option<(u32, u32)>,
    /// Where values are kept.
    pub values: Option<ValuePlace>,
    /// The most blocks of the launch. Default: what the device can hold at once.
    pub max_blocks: Option<u32>,
}

/// The group of threads that solves a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Threads per system.
    pub(super) threads: u32,
    /// Rows per thread.
    pub(super) rows: u32,
    /// Entries a row in registers; 0 where values are elsewhere.
    pub(super) width: u32,
    /// Where values are.
    pub(super) place: ValuePlace,
}

/// What fits in the registers of a group: entries a row, then threads and rows of each.
type Table = &'static [(u32, u32)];

/// Few threads with many rows each beat many with few: their loads and sums overlap, and barriers
/// are cheaper.
const THREE_A_ROW: Table = &[(8, 2), (16, 2), (16, 4), (32, 4), (32, 8), (64, 8), (128, 8)];
const FIVE_A_ROW: Table = &[(8, 2), (16, 4), (32, 4), (32, 8), (64, 8), (128, 8)];
const IN_SHARED: Table =
    &[(8, 2), (32, 2), (32, 4), (64, 4), (128, 4), (128, 8), (256, 8), (512, 8)];
const IN_GLOBAL: Table = &[(128, 8), (512, 8)];

/// The most rows of a system.
pub(super) const MAX_ROWS: usize = 4096;

/// Shared memory beside the groups' own: sums of the warps.
const RESERVED_BYTES: u64 = 1024;

/// Shared memory of one group, in bytes: a vector, a 0 behind it, and values where they are there.
pub(super) fn group_bytes(shape: &Shape, places: usize, value_bytes: usize) -> u64 {
    let staged = if shape.place == ValuePlace::Shared { places } else { 0 };
    let vector = shape.threads as usize * shape.rows as usize + 1;
    ((vector + staged) * value_bytes) as u64
}

/// Chooses the shape for a pattern.
pub(super) fn choose(
    pattern: CsrPatternRef<'_>,
    value_bytes: usize,
    info: &DeviceInfo,
    tuning: &GpuTuning,
) -> Result<Shape, SolveError> {
    let nrows = pattern.nrows();
    if nrows > MAX_ROWS {
        return Err(SolveError::Unsupported {
            what: "systems of more than 4096 rows",
            instead: "solve them on the CPU",
        });
    }
    let (longest, _) = widths(pattern, 1);
    let register_table = match longest {
        0..=3 => Some((3, THREE_A_ROW)),
        4..=5 => Some((5, FIVE_A_ROW)),
        _ => None,
    };
    let from = |table: Table| {
        let fits = |&&(threads, rows): &&(u32, u32)| (threads * rows) as usize >= nrows;
        tuning.group.or_else(|| table.iter().find(fits).copied())
    };
    let shape = |place| {
        let (width, table) = match place {
            ValuePlace::Registers => register_table?,
            ValuePlace::Shared => (0, IN_SHARED),
            ValuePlace::Global => (0, IN_GLOBAL),
        };
        let (threads, rows) = from(table)?;
        let shape = Shape { threads, rows, width, place };
        let (_, places) = widths(pattern, threads as usize);
        // A warp has at least so many groups.
        let groups = u64::from(32 / threads.min(32));
        let bytes = groups * group_bytes(&shape, places, value_bytes) + RESERVED_BYTES;
        (bytes <= u64::from(info.shared_bytes_per_block)).then_some(shape)
    };
    check_tuning(nrows, info, tuning)?;
    let places = [ValuePlace::Registers, ValuePlace::Shared, ValuePlace::Global];
    let wanted = places.iter().filter(|&&place| tuning.values.is_none_or(|only| only == place));
    wanted.copied().find_map(shape).ok_or_else(|| SolveError::Option {
        name: "tuning",
        expected: "a place that holds the values of a system",
        found: format!("{tuning:?} for {nrows} rows of up to {longest} entries"),
    })
}

fn check_tuning(nrows: usize, info: &DeviceInfo, tuning: &GpuTuning) -> Result<(), SolveError> {
    if let Some((threads, rows)) = tuning.group {
        let most = info.max_threads_per_block.min(1024);
        let is_group = threads.is_power_of_two() && (2..=most).contains(&threads);
        let holds = u64::from(threads) * u64::from(rows);
        if !is_group || holds < nrows as u64 || holds > MAX_ROWS as u64 {
            return Err(SolveError::Option {
                name: "group",
                expected: "a power of two of threads, with rows enough for the system",
                found: format!("{threads} threads of {rows} rows for {nrows}"),
            });
        }
    }
    if tuning.max_blocks.is_some_and(|blocks| blocks == 0 || blocks > 1 << 20) {
        return Err(SolveError::Option {
            name: "max_blocks",
            expected: "1 to 1048576",
            found: format!("{:?}", tuning.max_blocks),
        });
    }
    Ok(())
}

/// The launch of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
}

/// As many blocks as the device holds at once, or as there is work for: they take systems from a
/// queue. A guess of the former, since registers are not known; blocks beyond it find the queue
/// empty.
pub(super) fn grid(
    shape: &Shape,
    places: usize,
    value_bytes: usize,
    systems: u64,
    info: &DeviceInfo,
    tuning: &GpuTuning,
) -> Grid {
    let bytes = group_bytes(shape, places, value_bytes);
    let threads = shape.threads.max(32);
    let shared_bytes = bytes * u64::from(threads / shape.threads);
    let by_threads = u64::from(info.max_threads_per_multiprocessor / threads);
    let by_shared =
        u64::from(info.shared_bytes_per_multiprocessor) / (shared_bytes + RESERVED_BYTES);
    let resident = by_threads.min(by_shared).clamp(1, 32) * u64::from(info.multiprocessors.max(1));
    let work = systems.div_ceil(u64::from(threads / shape.threads));
    let most = u64::from(tuning.max_blocks.unwrap_or(u32::MAX));
    let blocks = resident.min(work).min(most).max(1) as u32;
    Grid { blocks, threads, shared_bytes: shared_bytes as u32 }
}
