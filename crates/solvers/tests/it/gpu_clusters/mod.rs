//! Fused solves whose systems a cluster of blocks has, run by the emulation and held against the CPU's.

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

mod honesty {
    crate::common::honesty_tests!(super::trial::Clusters);
}

mod statuses {
    crate::common::statuses_tests!(super::trial::Clusters);
}
