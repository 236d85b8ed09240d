//! How a launch is shaped: [`DenseShape`].

use std::fmt;

use sparsebatch_cuda::DeviceInfo;
use sparsebatch_solve_core::ArgumentError;

use crate::GpuSolveError;

/// Most rows of a system that [`DenseSolver`](crate::DenseSolver) takes.
pub const MOST_DENSE_ROWS: usize = 64;

/// Threads of a warp.
const LANES: u32 = 32;

/// Shared memory that the device reserves per block.
const RESERVED_BYTES: u64 = 1024;

/// Most blocks of a multiprocessor that a launch is sized for.
const MOST_RESIDENT: u64 = 16;

/// Kernels: the most rows that each is taken for, its columns in registers, and its threads per system.
/// The quickest on an NVIDIA H200 for 10,000 full systems
/// (`benches/results/dense/2026-11-27-h200.jsonl`).
const IN_F64: &[(usize, u32, u32)] = &[
    (8, 8, 8),
    (16, 16, 16),
    (22, 24, 16),
    (24, 24, 32),
    (32, 32, 32),
    (40, 40, 32),
    (48, 48, 32),
    (56, 56, 32),
    (64, 64, 64),
];
const IN_F32: &[(usize, u32, u32)] = &[
    (8, 8, 8),
    (16, 16, 8),
    (24, 24, 16),
    (32, 32, 32),
    (40, 40, 32),
    (48, 48, 32),
    (56, 56, 64),
    (64, 64, 32),
];

/// The kernels that both precisions have, by which a number of threads that is asked for is found.
const ALL: &[(u32, u32)] = &[
    (8, 8),
    (16, 8),
    (16, 16),
    (24, 8),
    (24, 16),
    (24, 32),
    (32, 16),
    (32, 32),
    (40, 32),
    (48, 32),
    (56, 32),
    (56, 64),
    (64, 64),
];

/// Choices that a plan makes by itself where they are `None`. For experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DenseTuning {
    /// Threads per system: 8, 16, 32 or 64, as far as there is a kernel for the number of rows.
    pub threads: Option<u32>,
    /// The most blocks of the launch. Default: what the device can hold at once.
    pub max_blocks: Option<u32>,
}

sparsebatch_formats::option_setters! {
    DenseTuning {
        threads: Option<u32>,
        max_blocks: Option<u32>,
    }
}

/// The shape of a launch of [`DenseSolver`](crate::DenseSolver).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DenseShape {
    /// Columns of the matrix in registers, padding included.
    pub columns: u32,
    /// Rows that a thread holds.
    pub rows_per_thread: u32,
    /// Threads that solve a system.
    pub(super) threads: u32,
    /// Threads of a block.
    pub(super) block: u32,
}

impl DenseShape {
    /// The shape for systems of `nrows` rows with elements of `size` bytes.
    pub(super) fn choose(
        nrows: usize,
        size: usize,
        tuning: &DenseTuning,
    ) -> Result<Self, GpuSolveError> {
        if tuning.max_blocks == Some(0) {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "max_blocks",
                expected: "at least 1",
                found: "0".to_owned(),
            }));
        }
        if nrows > MOST_DENSE_ROWS {
            return Err(GpuSolveError::Unsupported {
                what: "dense elimination of a system of more than 64 rows",
                instead: "take the sparse LU, or LU with partial pivoting on the CPU",
            });
        }
        let own = if size == 4 { IN_F32 } else { IN_F64 };
        let fits = |columns: u32| nrows <= columns as usize;
        let found = match tuning.threads {
            None => own.iter().find(|kernel| nrows <= kernel.0).map(|kernel| (kernel.1, kernel.2)),
            Some(asked) => {
                let own = own.iter().map(|kernel| (kernel.1, kernel.2));
                let all = own.chain(ALL.iter().copied());
                let asked = all.filter(|&(columns, threads)| fits(columns) && threads == asked);
                asked.min_by_key(|kernel| kernel.0)
            }
        };
        let Some((columns, threads)) = found else {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "threads",
                expected: "threads per system that there is a kernel for",
                found: tuning.threads.unwrap_or_default().to_string(),
            }));
        };
        Ok(Self {
            columns,
            rows_per_thread: columns.div_ceil(threads),
            threads,
            block: threads.max(2 * LANES),
        })
    }

    /// Systems that a block solves side by side.
    pub(super) fn systems_per_block(&self) -> u32 {
        self.block / self.threads
    }

    /// Elements from one row of the matrix to the next in shared memory.
    pub(super) fn row_stride(&self) -> usize {
        self.columns as usize + 1
    }

    /// Bytes of shared memory of a system, as `DenseGroup::bytes` (dense.cu) counts them.
    fn group_bytes(&self, nrows: usize, size: usize) -> u32 {
        let columns = self.columns as usize;
        let warps = self.threads.div_ceil(LANES) as usize;
        let scratch = if warps > 1 { 5 * warps } else { 1 };
        let values = nrows.max(1) * self.row_stride() + 2 * warps * (columns + 2) + 2 * columns;
        (values * size + scratch * 8 + 2 * warps * 4).next_multiple_of(16) as u32
    }

    /// Bytes of shared memory of a block.
    pub(super) fn shared_bytes(&self, nrows: usize, size: usize) -> u32 {
        self.group_bytes(nrows, size) * self.systems_per_block()
    }

    /// Blocks for `nitems` items: as many as the device can hold at once, as far as there is work.
    pub(super) fn blocks(
        &self,
        nitems: usize,
        shared_bytes: u32,
        info: &DeviceInfo,
        tuning: &DenseTuning,
    ) -> u32 {
        let needed = (nitems as u64).div_ceil(u64::from(self.systems_per_block()));
        let bytes = u64::from(shared_bytes) + RESERVED_BYTES;
        let resident = u64::from(info.shared_bytes_per_multiprocessor) / bytes;
        let most = u64::from(info.multiprocessors) * resident.clamp(1, MOST_RESIDENT);
        let allowed = u64::from(tuning.max_blocks.unwrap_or(u32::MAX));
        needed.min(most).min(allowed).max(1) as u32
    }
}

impl fmt::Display for DenseShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} columns in registers, {} rows a thread", self.columns, self.rows_per_thread)
    }
}
