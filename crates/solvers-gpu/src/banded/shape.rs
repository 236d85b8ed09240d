//! How a launch is shaped: [`BandedShape`].

use std::fmt;

use sparsebatch_solve_core::ArgumentError;

use crate::GpuSolveError;

/// Threads of a warp.
const LANES: u32 = 32;

/// The most diagonals on each side of the main one that there are kernels for.
pub(super) const MOST_HALF_WIDTH: usize = 2;

/// A kernel: rows per thread, and threads per system.
type Instance = (u32, u32);

/// Kernels for tridiagonal systems, by the number of rows that they have room for. A thread with
/// many rows has much work that needs no other thread, and few threads exchange little; more than 17
/// rows do not stay in the registers that let a multiprocessor hold enough systems.
const TRIDIAGONAL: &[Instance] = &[
    (3, 8),
    (5, 8),
    (9, 8),
    (9, 16),
    (9, 32),
    (17, 32),
    (17, 64),
    (17, 128),
    (17, 256),
    (13, 512),
    (17, 512),
];

/// Kernels for two diagonals on each side.
const PENTADIAGONAL: &[Instance] =
    &[(5, 8), (9, 8), (9, 16), (9, 32), (9, 64), (9, 128), (9, 256), (7, 512), (11, 512)];

/// Choices that a plan makes by itself where they are `None`. For experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BandedTuning {
    /// Threads per system: 8, 16, 32, 64, 128, 256 or 512, as far as there is a kernel for the number
    /// of rows.
    pub threads: Option<u32>,
    /// The most blocks of the launch. Default: one for each group of systems.
    pub max_blocks: Option<u32>,
}

sparsebatch_formats::option_setters! {
    BandedTuning {
        threads: Option<u32>,
        max_blocks: Option<u32>,
    }
}

/// The shape of a launch of [`BandedSolver`](crate::BandedSolver).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BandedShape {
    /// Diagonals on each side of the main one that the kernel takes: 1 or 2.
    pub half_width: u32,
    /// Rows that a thread holds.
    pub rows_per_thread: u32,
    /// Threads that solve a system.
    pub(super) threads: u32,
    /// Threads of a block.
    pub(super) block: u32,
}

impl BandedShape {
    /// The shape for systems of `nrows` rows, with elements of `size` bytes, whose entries are at
    /// most `half_width` from the diagonal, on a GPU with `most_shared` bytes for a block.
    pub(super) fn choose(
        (nrows, half_width): (usize, usize),
        size: usize,
        most_shared: u32,
        tuning: &BandedTuning,
    ) -> Result<Self, GpuSolveError> {
        if tuning.max_blocks == Some(0) {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "max_blocks",
                expected: "at least 1",
                found: "0".to_owned(),
            }));
        }
        let (half_width, instances) = match half_width {
            0 | 1 => (1, TRIDIAGONAL),
            MOST_HALF_WIDTH => (2, PENTADIAGONAL),
            _ => {
                return Err(GpuSolveError::Unsupported {
                    what: "banded elimination with more than two diagonals on a side",
                    instead: "take the sparse LU, or the banded one on the CPU",
                });
            }
        };
        let shape = |&(rows_per_thread, threads): &Instance| Self {
            half_width,
            rows_per_thread,
            threads,
            block: threads.max(2 * LANES),
        };
        let mut fitting = instances
            .iter()
            .map(shape)
            .filter(|shape| nrows <= shape.rows() && shape.shared_bytes(size) <= most_shared);
        if let Some(threads) = tuning.threads {
            return fitting.find(|shape| shape.threads == threads).ok_or_else(|| {
                GpuSolveError::Argument(ArgumentError::OutOfRange {
                    name: "threads",
                    expected: "threads per system that there is a kernel for",
                    found: threads.to_string(),
                })
            });
        }
        fitting.next().ok_or(GpuSolveError::Unsupported {
            what: "banded elimination of systems that exceed a multiprocessor",
            instead: "take the sparse LU, or the banded one on the CPU",
        })
    }

    /// Rows that a group of threads has room for.
    fn rows(&self) -> usize {
        self.rows_per_thread as usize * self.threads as usize
    }

    /// Diagonals of the band, the main one included.
    pub(super) fn diagonals(&self) -> usize {
        2 * self.half_width as usize + 1
    }

    /// Systems that a block solves side by side.
    pub(super) fn systems_per_block(&self) -> u32 {
        self.block / self.threads
    }

    /// Bytes of shared memory of a block, as `BandedBlock::BYTES` (banded.cu) counts them.
    pub(super) fn shared_bytes(&self, size: usize) -> u32 {
        let (groups, width) = (self.systems_per_block() as usize, self.half_width as usize);
        let is_block = self.threads > LANES;
        let told = if is_block { (2 * width * width + width) * self.threads as usize } else { 0 };
        let scratch = if is_block { 5 * (self.threads / LANES) as usize } else { 1 };
        let values = groups * self.rows() * (self.diagonals() + 1) + told;
        ((values * size).next_multiple_of(8) + groups * scratch * 8) as u32
    }

    /// Blocks for `nitems` items.
    pub(super) fn blocks(&self, nitems: usize, tuning: &BandedTuning) -> u32 {
        const MOST: u32 = i32::MAX as u32;
        let needed = (nitems as u64).div_ceil(u64::from(self.systems_per_block()));
        needed.min(u64::from(tuning.max_blocks.unwrap_or(MOST).min(MOST))).max(1) as u32
    }
}

impl fmt::Display for BandedShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, rows) = (self.half_width, self.rows_per_thread);
        write!(f, "{rows} rows a thread, {width} diagonals on each side")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: u32 = 232_448;

    fn shape(nrows: usize, half_width: usize, size: usize) -> Result<BandedShape, GpuSolveError> {
        BandedShape::choose((nrows, half_width), size, H200, &BandedTuning::default())
    }

    #[test]
    fn the_smallest_kernel_with_room_is_taken() {
        for (nrows, half_width, expected) in [
            (0, 0, (3, 8)),
            (32, 1, (5, 8)),
            (64, 1, (9, 8)),
            (256, 1, (9, 32)),
            (512, 1, (17, 32)),
            (1024, 1, (17, 64)),
            (6656, 1, (13, 512)),
            (1024, 2, (9, 128)),
            (3584, 2, (7, 512)),
        ] {
            let found = shape(nrows, half_width, 8).unwrap();
            assert_eq!((found.rows_per_thread, found.threads), expected, "{nrows} {half_width}");
        }
        assert_eq!(shape(8704, 1, 4).unwrap().rows_per_thread, 17);
    }

    #[test]
    fn what_exceeds_shared_memory_or_two_diagonals_is_refused() {
        for (nrows, half_width) in [(6657, 1), (3585, 2), (10, 3)] {
            let refused = shape(nrows, half_width, 8);
            assert!(matches!(refused, Err(GpuSolveError::Unsupported { .. })), "{nrows}");
        }
    }
}
