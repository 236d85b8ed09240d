//! Fused solves whose systems a cluster of blocks has, run by the emulation and held against the CPU's.

#[path = "../gpu/common.rs"]
mod common;
#[path = "../gpu/honesty.rs"]
mod honesty;
#[path = "../gpu/statuses.rs"]
mod statuses;

mod agreement;
mod independence;
mod plan;
mod trial;

use sparsebatch_solvers::gpu::{GpuTuning, ValuePlace};

/// Clusters that small systems are forced into: threads, rows of each, and blocks.
pub(crate) const SMALL: [(u32, u32, u32); 2] = [(64, 2, 2), (128, 4, 4)];

/// Such a cluster, with values there.
pub(crate) fn forced((threads, rows, blocks): (u32, u32, u32), values: ValuePlace) -> GpuTuning {
    let (group, cluster) = (Some((threads, rows)), Some(blocks));
    GpuTuning { group, cluster, values: Some(values), ..GpuTuning::default() }
}
