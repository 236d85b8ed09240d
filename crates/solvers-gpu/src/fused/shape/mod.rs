//! How many threads solve a system, and where its values are kept meanwhile.

mod choose;
mod tables;
mod tuning;

use sparsebatch_cuda::{DeviceInfo, Executor, GpuError, KernelKey, LaunchConfig};

use super::pattern::{skewed, waiting};

pub(super) use choose::choose;
pub(super) use tables::Load;
pub use tuning::GpuTuning;

/// Where the values of a system are kept during its solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValuePlace {
    /// In registers, up to nine entries a row: read from device memory once.
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

    /// The name in options, and in rows of measurements.
    pub fn key(self) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::Shared => "shared",
            Self::Global => "global",
        }
    }

    /// The kernels' number for this place.
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Registers => 0,
            Self::Shared => 1,
            Self::Global => 2,
        }
    }
}

/// The group of threads that solves a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupShape {
    /// Threads per system that have rows of their own.
    pub(super) threads: u32,
    /// Threads that share the entries of each row; each has the row's elements of the vectors.
    pub(super) parts: u32,
    /// Rows per thread.
    pub(super) rows: u32,
    /// Entries per row where columns are in registers; 0 where they are not.
    pub(super) width: u32,
    /// Where values are.
    pub(super) place: ValuePlace,
    /// Whether a thread owns consecutive rows.
    pub(super) near: bool,
    /// Number of vectors in shared memory.
    pub(super) vectors: u32,
    /// Whether iterations run in f32 on values in f64.
    pub(super) mixed: bool,
    /// Blocks per system that read each other's shared memory; each has an equal share of the
    /// threads.
    pub(super) cluster: u32,
}

impl GroupShape {
    /// The shape for systems that iterations in f32 left unsolved.
    pub(super) fn unmixed(self) -> Self {
        Self { mixed: false, ..self }
    }

    /// Bytes of a number in registers and vectors during iterations.
    pub(super) fn work_bytes(&self, value_bytes: usize) -> usize {
        if self.mixed { size_of::<f32>() } else { value_bytes }
    }

    /// Threads per system.
    pub(super) fn team(&self) -> u32 {
        self.threads * self.parts
    }

    /// Threads per system in one block.
    pub(super) fn team_of_block(&self) -> u32 {
        self.team() / self.cluster
    }

    /// Whether values are copied to shared memory.
    pub(super) fn keeps_in_shared(&self) -> bool {
        self.place == ValuePlace::Shared
    }

    /// The row in a slot; at least `nrows` if the slot has none.
    pub(super) fn row_in(&self, slot: usize, nrows: usize) -> usize {
        let (threads, rows) = (self.threads as usize, self.rows as usize);
        let (slices, of_block) = self.slices_and_threads_of_block(nrows);
        let (slice, thread) = (slot / threads, slot % threads);
        if self.near {
            thread * rows + slice
        } else if self.cluster > 1 && slice < slices {
            (thread / of_block * slices + slice) * of_block + thread % of_block
        } else {
            slot
        }
    }

    /// The slot of one of `nrows` rows.
    pub(super) fn slot_of(&self, row: usize, nrows: usize) -> usize {
        let (threads, rows) = (self.threads as usize, self.rows as usize);
        if self.near {
            row % rows * threads + row / rows
        } else if self.cluster > 1 {
            let (slices, of_block) = self.slices_and_threads_of_block(nrows);
            let (slice, block) = (row / of_block % slices, row / of_block / slices);
            slice * threads + block * of_block + row % of_block
        } else {
            row
        }
    }

    /// Number of slices with rows when each block of a cluster has consecutive rows, and threads of
    /// each block.
    fn slices_and_threads_of_block(&self, nrows: usize) -> (usize, usize) {
        let threads = self.threads as usize;
        (nrows.div_ceil(threads).max(1), threads / self.cluster as usize)
    }

    /// Number of places of a row that are kept for the diagonal and its neighbours.
    pub(super) fn own_places(&self) -> usize {
        match (self.width, self.near) {
            (0, _) => 0,
            (_, false) => 1,
            (_, true) => 3,
        }
    }
}

/// The most rows of a system per block (`MAX_ROWS`) and per cluster.
const MAX_ROWS: usize = 4096;
const MAX_ROWS_OF_CLUSTER: usize = 32_768;

/// The most rows of a system that [`FusedSolver`](super::FusedSolver) takes on a device: 4,096 with
/// one block per system; 32,768 with a cluster of blocks, from compute capability 9.0 on.
pub fn most_rows(info: &DeviceInfo) -> usize {
    if info.most_blocks_of_cluster() > 1 { MAX_ROWS_OF_CLUSTER } else { MAX_ROWS }
}

/// Shared memory of a block beside its groups' own: partial sums of warps, in a cluster those of
/// all blocks.
fn reserved_bytes(shape: &GroupShape) -> u64 {
    if shape.cluster > 1 { 256 + 5 * 8 * u64::from(shape.team() / 32) } else { 1536 }
}

/// Number of values that a group, or each block of it, keeps in shared memory beside its vectors:
/// those of the system, or (values in registers) those of the next system and its right-hand side.
pub(super) fn stored(shape: &GroupShape, places: usize, nnz: usize, value_bytes: usize) -> usize {
    match shape.place {
        // Values, followed by columns.
        ValuePlace::Shared if shape.parts > 1 => nnz + (2 * nnz).div_ceil(value_bytes),
        ValuePlace::Registers => {
            skewed(shape.threads as usize * shape.rows as usize) + waiting(nnz)
        }
        ValuePlace::Shared => places / shape.cluster as usize,
        ValuePlace::Global => 0,
    }
}

/// Bytes of shared memory of one group, or of each block of it: vectors with a 0 behind each, the
/// solution where iterations run in f32 on f64, and the `stored` values.
pub(super) fn group_bytes(shape: &GroupShape, stored: usize, value_bytes: usize) -> u64 {
    let vector = (shape.threads / shape.cluster * shape.rows) as usize + 1;
    let (vectors, work_bytes) = (shape.vectors as usize, shape.work_bytes(value_bytes));
    let beside = if shape.mixed { vectors * work_bytes + vector * value_bytes } else { 0 };
    (vectors * vector * work_bytes + beside + stored * value_bytes) as u64
}

/// The dimensions of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FusedGrid {
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
}

/// As many blocks, in whole clusters, as the device holds at once or as there is work for. Each
/// group begins with one system and takes further ones from a queue.
pub(super) fn grid<E: Executor>(
    executor: &E,
    key: &KernelKey,
    shape: &GroupShape,
    bytes_of_group: u64,
    systems: u64,
    tuning: &GpuTuning,
) -> Result<FusedGrid, GpuError> {
    let (threads, cluster) = (shape.team_of_block().max(32), shape.cluster);
    let groups = u64::from(threads / shape.team_of_block());
    let shared_bytes = (bytes_of_group * groups) as u32;
    let config = LaunchConfig { shared_bytes, cluster, ..LaunchConfig::linear(cluster, threads) };
    let resident = if cluster > 1 {
        u64::from(executor.resident_clusters(key, config)?)
    } else {
        u64::from(executor.resident_blocks(key, config)?)
            * u64::from(executor.info().multiprocessors.max(1))
    };
    let most = u64::from(tuning.max_blocks.unwrap_or(u32::MAX) / cluster);
    let clusters = resident.min(systems.div_ceil(groups)).min(most).max(1) as u32;
    Ok(FusedGrid { blocks: clusters * cluster, threads, shared_bytes })
}
