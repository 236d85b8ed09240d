//! Fused solves in which a cluster of blocks solves a system, run by the emulation and compared
//! with the CPU's.

mod agreement;
mod independence;
mod plan;
mod trial;

use sparsebatch_solvers::gpu::{GpuTuning, ValuePlace};

/// Clusters for small systems: `(threads, rows per thread, blocks)`.
pub(crate) const SMALL: [(u32, u32, u32); 2] = [(64, 2, 2), (128, 4, 4)];

/// A tuning with such a cluster and values in `values`.
pub(crate) fn forced((threads, rows, blocks): (u32, u32, u32), values: ValuePlace) -> GpuTuning {
    let (group, cluster) = (Some((threads, rows)), Some(blocks));
    GpuTuning::default().group(group).cluster(cluster).values(Some(values))
}

mod honesty {
    crate::common::honesty_tests!(super::trial::Clusters);
}

mod statuses {
    crate::common::statuses_tests!(super::trial::Clusters);
}
