//! Choices that a caller may fix, and their limits.

use sparsebatch_cuda::DeviceInfo;
use sparsebatch_solve_core::ArgumentError;

use super::tables::THREADS_IN_CLUSTER;
use super::{MAX_ROWS, MAX_ROWS_OF_CLUSTER, ValuePlace};
use crate::GpuSolveError;

/// Overrides of a plan's own choices, for experiments. `None` leaves a choice to the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuTuning {
    /// Threads per system, a power of two from 2 to 1,024 (in a cluster, from 32 in each block),
    /// and rows per thread. Their product is at least the number of rows.
    pub group: Option<(u32, u32)>,
    /// Blocks that solve a system together: 1, or 2, 4 or 8 from compute capability 9.0 on.
    /// Default: more than 1 for systems that are too large for a block.
    pub cluster: Option<u32>,
    /// Threads that share the entries of each row: 1, 2, 4 or 8. They multiply the threads per
    /// system. More than 1 requires values in shared memory and columns not in registers.
    pub parts: Option<u32>,
    /// Where values are kept.
    pub values: Option<ValuePlace>,
    /// Vectors of BiCGStab in shared memory: 1, or 3 where registers are short.
    pub vectors: Option<u32>,
    /// Whether the batch counts as few systems, or as many; this selects threads and rows per
    /// thread. Default: few, some or many, by the number of systems per multiprocessor.
    pub few: Option<bool>,
    /// Whether f64 solves iterate in f32, where they may. Default: where that is faster.
    pub mixed: Option<bool>,
    /// Whether a thread owns consecutive rows where it can, and so has most operands in registers.
    /// Default: where most rows have both neighbours.
    pub near: Option<bool>,
    /// Blocks that a multiprocessor is to hold; limits the registers per thread accordingly.
    pub resident: Option<u32>,
    /// The most blocks of a launch. Default: as many as the device holds at once.
    pub max_blocks: Option<u32>,
}

sparsebatch_formats::option_setters! {
    GpuTuning {
        group: Option<(u32, u32)>,
        cluster: Option<u32>,
        parts: Option<u32>,
        values: Option<ValuePlace>,
        vectors: Option<u32>,
        few: Option<bool>,
        mixed: Option<bool>,
        near: Option<bool>,
        resident: Option<u32>,
        max_blocks: Option<u32>,
    }
}

/// Refuses choices that no launch can have, and groups with too few rows.
pub(super) fn check_tuning(
    nrows: usize,
    info: &DeviceInfo,
    tuning: &GpuTuning,
) -> Result<(), GpuSolveError> {
    let cluster = tuning.cluster.unwrap_or(1);
    let most = info.most_blocks_of_cluster();
    let is_too_large = nrows > MAX_ROWS && tuning.cluster == Some(1);
    if !cluster.is_power_of_two() || cluster > most || is_too_large {
        return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
            name: "cluster",
            expected: "blocks that have a system together: 1 for up to 4096 rows, or 2, 4 or 8 from compute \
                       capability 9.0",
            found: format!("{cluster} for {nrows} rows"),
        }));
    }
    if let Some((threads, rows)) = tuning.group {
        // With the number of blocks left open, blocks have their usual size.
        let blocks = match tuning.cluster {
            None if nrows > MAX_ROWS => (threads / THREADS_IN_CLUSTER).clamp(2, most.max(2)),
            _ => cluster,
        };
        let (least, rows_of_group) = match blocks {
            1 => (2, MAX_ROWS),
            _ => (32 * blocks, MAX_ROWS_OF_CLUSTER),
        };
        let most = info.max_threads_per_block.min(1024) * blocks;
        let is_group = threads.is_power_of_two() && (least..=most).contains(&threads);
        let holds = u64::from(threads) * u64::from(rows);
        if !is_group || holds < nrows as u64 || holds > rows_of_group as u64 {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "group",
                expected: "a power of two of threads, with rows enough for the system",
                found: format!("{threads} threads of {rows} rows for {nrows}"),
            }));
        }
    }
    if tuning.parts.is_some_and(|parts| !parts.is_power_of_two() || parts > 8) {
        return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
            name: "parts",
            expected: "1, 2, 4 or 8",
            found: format!("{:?}", tuning.parts),
        }));
    }
    if tuning.vectors.is_some_and(|vectors| vectors != 1 && vectors != 3) {
        return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
            name: "vectors",
            expected: "1 or 3",
            found: format!("{:?}", tuning.vectors),
        }));
    }
    if tuning.resident.is_some_and(|resident| resident == 0 || resident > 32) {
        return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
            name: "resident",
            expected: "1 to 32",
            found: format!("{:?}", tuning.resident),
        }));
    }
    if tuning.max_blocks.is_some_and(|blocks| blocks == 0 || blocks > 1 << 20) {
        return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
            name: "max_blocks",
            expected: "1 to 1048576",
            found: format!("{:?}", tuning.max_blocks),
        }));
    }
    Ok(())
}
