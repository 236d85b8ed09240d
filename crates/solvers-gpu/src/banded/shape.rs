//! How a launch is shaped: [`BandedShape`].

use std::fmt;

use sparsebatch_solve_core::ArgumentError;

use crate::GpuSolveError;

/// Threads of a warp.
const LANES: u32 = 32;

/// The most diagonals on each side of the main one that there are kernels for.
pub(super) const MOST_HALF_WIDTH: usize = 4;

/// A kernel: rows per thread, threads per system in one block, and blocks per system.
type Instance = (u32, u32, u32);

/// Kernels for tridiagonal systems, by the number of rows that they have room for. A thread with
/// many rows has much work that needs no other thread, and few threads exchange little; more than 17
/// rows do not stay in the registers that let a multiprocessor hold enough systems. What exceeds
/// the shared memory of a block is spread over a cluster of blocks, so small that a multiprocessor
/// holds several.
const TRIDIAGONAL: &[Instance] = &[
    (3, 8, 1),
    (5, 8, 1),
    (9, 8, 1),
    (9, 16, 1),
    (9, 32, 1),
    (17, 32, 1),
    (17, 64, 1),
    (17, 128, 1),
    (17, 256, 1),
    (13, 512, 1),
    (17, 512, 1),
    (17, 128, 4),
    (17, 128, 8),
    (17, 256, 8),
];

/// Kernels for two diagonals on each side.
const PENTADIAGONAL: &[Instance] = &[
    (5, 8, 1),
    (9, 8, 1),
    (9, 16, 1),
    (9, 32, 1),
    (9, 64, 1),
    (9, 128, 1),
    (9, 256, 1),
    (7, 512, 1),
    (11, 512, 1),
    (17, 128, 2),
    (9, 128, 4),
    (9, 128, 8),
    (9, 256, 8),
    (7, 512, 8),
];

/// Kernels for three diagonals on each side, each with the least number of rows for which it takes
/// no longer than the sparse LU, in batches of 1,000 and of 10,000 in f64 and f32 on an H200. The
/// time of a kernel is that of all rows that it has room for.
const SEVEN_DIAGONALS: &[(Instance, usize)] = &[
    ((9, 4, 1), 25),
    ((9, 8, 1), 52),
    ((9, 16, 1), 88),
    ((9, 32, 1), 145),
    ((9, 64, 1), 289),
    ((9, 128, 1), 577),
    ((9, 256, 1), 1153),
    ((9, 128, 4), 2305),
    ((9, 128, 8), 4609),
];

/// The same for four diagonals on each side.
const NINE_DIAGONALS: &[(Instance, usize)] = &[
    ((9, 16, 1), 118),
    ((9, 32, 1), 172),
    ((9, 64, 1), 325),
    ((9, 128, 1), 577),
    ((9, 256, 1), 1153),
    ((9, 128, 4), 2048),
    ((9, 128, 8), 4609),
];

/// Choices that a plan makes by itself where they are `None`. For experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BandedTuning {
    /// Threads per system in one block: 4, 8, 16, 32, 64, 128, 256 or 512, as far as there is a
    /// kernel for the number of rows.
    pub threads: Option<u32>,
    /// Blocks per system: 1, 2, 4 or 8, as far as there is a kernel for the number of rows.
    pub cluster: Option<u32>,
    /// The most blocks of the launch, but at least those of one system. Default: one for each group
    /// of systems; of clusters as many as the GPU holds at once.
    pub max_blocks: Option<u32>,
}

sparsebatch_formats::option_setters! {
    BandedTuning {
        threads: Option<u32>,
        cluster: Option<u32>,
        max_blocks: Option<u32>,
    }
}

/// What to do where there is no kernel.
const INSTEAD: &str = "take the sparse LU, or the banded one on the CPU";

/// The half width of the kernels for bands with `half_width` diagonals on a side, the kernels, and
/// the least number of rows for each.
fn kernels(
    half_width: usize,
) -> Result<(u32, impl Iterator<Item = (Instance, usize)>), GpuSolveError> {
    let (half_width, narrow, wide): (u32, &[Instance], &[(Instance, usize)]) = match half_width {
        0 | 1 => (1, TRIDIAGONAL, &[]),
        2 => (2, PENTADIAGONAL, &[]),
        3 => (3, &[], SEVEN_DIAGONALS),
        MOST_HALF_WIDTH => (4, &[], NINE_DIAGONALS),
        _ => {
            let what = "banded elimination with more than four diagonals on a side";
            return Err(GpuSolveError::Unsupported { what, instead: INSTEAD });
        }
    };
    let narrow = narrow.iter().map(|&instance| (instance, 0));
    Ok((half_width, narrow.chain(wide.iter().copied())))
}

/// What a block may have on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockLimits {
    /// Bytes of shared memory.
    pub(super) shared_bytes: u32,
    /// The most blocks of a cluster.
    pub(super) cluster: u32,
}

/// The shape of a launch of [`BandedSolver`](crate::BandedSolver).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BandedShape {
    /// Diagonals on each side of the main one that the kernel takes: 1 to 4.
    pub half_width: u32,
    /// Rows that a thread holds.
    pub rows_per_thread: u32,
    /// Threads of a block that solve a system.
    pub(super) threads: u32,
    /// Blocks that solve a system together, each with consecutive rows.
    pub cluster: u32,
    /// Threads of a block.
    pub(super) block: u32,
}

impl BandedShape {
    /// The shape for systems of `nrows` rows, with elements of `size` bytes, whose entries are at
    /// most `half_width` from the diagonal, on a GPU with these limits.
    pub(super) fn choose(
        (nrows, half_width): (usize, usize),
        size: usize,
        limits: BlockLimits,
        tuning: &BandedTuning,
    ) -> Result<Self, GpuSolveError> {
        if tuning.max_blocks == Some(0) {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "max_blocks",
                expected: "at least 1",
                found: "0".to_owned(),
            }));
        }
        let (half_width, instances) = kernels(half_width)?;
        let shape = |((rows_per_thread, threads, cluster), least): (Instance, usize)| {
            let block = threads.max(2 * LANES);
            (Self { half_width, rows_per_thread, threads, cluster, block }, least)
        };
        let fits = |(shape, _): &(Self, usize)| {
            nrows <= shape.rows()
                && shape.shared_bytes(size) <= limits.shared_bytes
                && shape.cluster <= limits.cluster
        };
        let mut fitting = instances.map(shape).filter(fits);
        let BandedTuning { threads, cluster, .. } = *tuning;
        if threads.is_some() || cluster.is_some() {
            let is_asked = |shape: &Self| {
                threads.is_none_or(|threads| shape.threads == threads)
                    && cluster.is_none_or(|cluster| shape.cluster == cluster)
            };
            return fitting.map(|(shape, _)| shape).find(is_asked).ok_or_else(|| {
                GpuSolveError::Argument(ArgumentError::OutOfRange {
                    name: if threads.is_some() { "threads" } else { "cluster" },
                    expected: "threads and blocks per system that there is a kernel for",
                    found: format!("{threads:?} threads, {cluster:?} blocks"),
                })
            });
        }
        let what = match fitting.next() {
            Some((shape, least)) if nrows >= least => return Ok(shape),
            Some(_) => "banded elimination of systems for which the sparse LU is quicker",
            None => "banded elimination of systems that exceed a multiprocessor or a cluster",
        };
        Err(GpuSolveError::Unsupported { what, instead: INSTEAD })
    }

    /// Rows that a block has room for, of each of its systems.
    pub(super) fn rows_of_block(&self) -> usize {
        self.rows_per_thread as usize * self.threads as usize
    }

    /// Rows that all threads of a system have room for.
    pub fn rows(&self) -> usize {
        self.rows_of_block() * self.cluster as usize
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
        let numbers = 2 * width * width + width;
        let told = if is_block { numbers * self.threads as usize } else { 0 };
        let warps = (self.threads * self.cluster / LANES) as usize;
        let scratch = if is_block { 5 * warps } else { 1 };
        let ends = (1 + 2 * self.cluster as usize) * numbers + 2 * width;
        let ends = if self.cluster > 1 { ends } else { 0 };
        let values = groups * self.rows_of_block() * (self.diagonals() + 1) + told + ends;
        ((values * size).next_multiple_of(8) + groups * scratch * 8) as u32
    }

    /// Blocks for `nitems` items, whole clusters.
    pub(super) fn blocks(&self, nitems: usize, tuning: &BandedTuning) -> u32 {
        const MOST: u32 = i32::MAX as u32;
        let needed = (nitems as u64).div_ceil(u64::from(self.systems_per_block()));
        let most = tuning.max_blocks.unwrap_or(MOST).min(MOST) / self.cluster;
        needed.min(u64::from(most)).max(1) as u32 * self.cluster
    }
}

impl fmt::Display for BandedShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, rows) = (self.half_width, self.rows_per_thread);
        write!(f, "{rows} rows a thread, {width} diagonals on each side")?;
        match self.cluster {
            1 => Ok(()),
            blocks => write!(f, ", {blocks} blocks a system"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: BlockLimits = BlockLimits { shared_bytes: 232_448, cluster: 8 };

    fn shape(nrows: usize, half_width: usize, size: usize) -> Result<BandedShape, GpuSolveError> {
        BandedShape::choose((nrows, half_width), size, H200, &BandedTuning::default())
    }

    #[test]
    fn the_smallest_kernel_with_room_is_taken() {
        for (nrows, half_width, expected) in [
            (0, 0, (3, 8, 1)),
            (32, 1, (5, 8, 1)),
            (64, 1, (9, 8, 1)),
            (256, 1, (9, 32, 1)),
            (512, 1, (17, 32, 1)),
            (1024, 1, (17, 64, 1)),
            (6656, 1, (13, 512, 1)),
            (6657, 1, (17, 128, 4)),
            (8705, 1, (17, 128, 8)),
            (34_816, 1, (17, 256, 8)),
            (1024, 2, (9, 128, 1)),
            (3584, 2, (7, 512, 1)),
            (3585, 2, (17, 128, 2)),
            (4353, 2, (9, 128, 4)),
            (28_672, 2, (7, 512, 8)),
            (25, 3, (9, 4, 1)),
            (144, 4, (9, 16, 1)),
            (2304, 3, (9, 256, 1)),
            (2304, 4, (9, 128, 4)),
            (9216, 4, (9, 128, 8)),
        ] {
            let found = shape(nrows, half_width, 8).unwrap();
            let found = (found.rows_per_thread, found.threads, found.cluster);
            assert_eq!(found, expected, "{nrows} {half_width}");
        }
        let in_f32 = shape(8704, 1, 4).unwrap();
        assert_eq!((in_f32.rows_per_thread, in_f32.cluster), (17, 1));
    }

    #[test]
    fn what_exceeds_shared_memory_or_four_diagonals_is_refused() {
        let refused = |nrows, half_width, limits| {
            let tuning = BandedTuning::default();
            let shape = BandedShape::choose((nrows, half_width), 8, limits, &tuning);
            assert!(matches!(shape, Err(GpuSolveError::Unsupported { .. })), "{nrows}");
        };
        for (nrows, half_width) in [(34_817, 1), (28_673, 2), (9217, 3), (9217, 4), (200, 5)] {
            refused(nrows, half_width, H200);
        }
        // Without clusters.
        for (nrows, half_width) in [(6657, 1), (3585, 2)] {
            refused(nrows, half_width, BlockLimits { cluster: 1, ..H200 });
        }
    }

    #[test]
    fn wide_bands_for_which_the_sparse_lu_is_quicker_are_refused() {
        for (nrows, half_width, is_taken) in [
            (24, 3, false),
            (25, 3, true),
            (37, 3, false),
            (52, 3, true),
            (117, 4, false),
            (118, 4, true),
            (145, 4, false),
            (1153, 4, false),
            (2048, 4, true),
        ] {
            assert_eq!(shape(nrows, half_width, 8).is_ok(), is_taken, "{nrows} {half_width}");
        }
        // Unless the kernel is asked for.
        let tuning = BandedTuning::default().threads(Some(64));
        assert!(BandedShape::choose((10, 4), 8, H200, &tuning).is_ok());
    }

    #[test]
    fn launches_have_whole_clusters() {
        let shape = shape(8000, 1, 8).unwrap();
        assert_eq!(shape.blocks(3, &BandedTuning::default()), 12);
        assert_eq!(shape.blocks(3, &BandedTuning::default().max_blocks(Some(9))), 8);
        assert_eq!(shape.blocks(3, &BandedTuning::default().max_blocks(Some(1))), 4);
        assert_eq!(shape.blocks(0, &BandedTuning::default()), 4);
    }
}
