//! Assigns rows to threads: [`SystemBlocks`].

use sparsebatch_cuda::{Executor, GpuError, KernelBuffer};

/// Threads of a block, as in `krylov.cuh`.
pub(super) const THREADS: u32 = 256;

/// `(lanes, rows)`: `lanes` threads handle a whole system of up to `rows` rows. The choice depends
/// on the system alone, since the order of its sums depends on it.
pub(super) const OF_LANES: [(u32, u64); 3] = [(8, 32), (32, 512), (THREADS, 8192)];

/// Rows of one part of a larger system.
pub(super) const PART_ROWS: u32 = 4096;

/// Systems by size, and the blocks that handle them.
pub(super) struct SystemBlocks<E: Executor> {
    /// Systems that are handled whole, in the order of the blocks.
    pub(super) order: E::Buffer<u32>,
    /// The first row of each system, then the total number of rows.
    pub(super) firsts: E::Buffer<u64>,
    /// A word for each block of whole systems.
    pub(super) whole: E::Buffer<u64>,
    /// Two words for each block of a part.
    pub(super) parts: E::Buffer<u64>,
    /// Number of systems for each entry of `OF_LANES`, then of systems in parts.
    pub(super) systems: [usize; 4],
}

impl<E: Executor> SystemBlocks<E> {
    /// Assigns `nrhs` systems per item, given the number of rows of each item.
    pub(super) fn new(executor: &E, rows: &[usize], nrhs: usize) -> Result<Self, GpuError> {
        let systems = rows.len() * nrhs;
        let mut firsts = Vec::with_capacity(systems + 1);
        let mut by_lanes: [Vec<u32>; 3] = Default::default();
        let (mut parts, mut in_parts, mut places) = (Vec::new(), 0, 0u64);
        let mut first = 0;
        for system in 0..systems as u64 {
            let nrows = rows[system as usize / nrhs] as u64;
            firsts.push(first);
            first += nrows;
            match OF_LANES.iter().position(|&(_, most)| nrows <= most) {
                Some(class) => by_lanes[class].push(system as u32),
                None => {
                    let count = nrows.div_ceil(PART_ROWS.into());
                    let words = |part: u64| [system | part << 32, places | count << 32];
                    parts.extend((0..count).flat_map(words));
                    places += count;
                    in_parts += 1;
                }
            }
        }
        firsts.push(first);
        let (mut order, mut whole) = (Vec::new(), Vec::new());
        for ((lanes, _), systems) in OF_LANES.into_iter().zip(&by_lanes) {
            for together in systems.chunks((THREADS / lanes) as usize) {
                let (first, count) = (order.len() as u64, together.len() as u64);
                whole.push(first | count << 32 | u64::from(lanes) << 48);
                order.extend_from_slice(together);
            }
        }
        let [few, some, many] = by_lanes.map(|systems| systems.len());
        Ok(Self {
            order: executor.upload(&order)?,
            firsts: executor.upload(&firsts)?,
            whole: executor.upload(&whole)?,
            parts: executor.upload(&parts)?,
            systems: [few, some, many, in_parts],
        })
    }

    /// Number of parts of all systems.
    pub(super) fn parts(&self) -> usize {
        self.parts.len() / 2
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        let words = self.firsts.len() + self.whole.len() + self.parts.len();
        (4 * self.order.len() + 8 * words) as u64
    }
}
