//! Which block does which systems.

use super::layout::{PackedPattern, SLICE};
use crate::DeviceInfo;

/// 64-bit words of a system's description, as `PackedSystem` in `packed.cu` reads it.
pub(super) const SYSTEM_WORDS: usize = 8;

/// Where the parts of a system lie in the arrays of a plan, in entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) values: u64,
    pub(super) columns: u64,
    pub(super) index: u64,
    pub(super) slices: u64,
    pub(super) x: u64,
    pub(super) y: u64,
}

impl Places {
    /// The description of a system.
    pub(super) fn words(&self, pattern: &PackedPattern) -> [u64; SYSTEM_WORDS] {
        let pair = |low: usize, high: u64| low as u64 | high << 32;
        [
            self.values,
            self.columns,
            self.x,
            self.y,
            self.index,
            self.slices,
            pair(pattern.nrows, pattern.ncols as u64),
            pair(pattern.nslots(), pattern.nsegments as u64 | u64::from(pattern.flags) << 16),
        ]
    }
}

/// One launch: blocks that need about the same shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) first_block: usize,
    pub(super) blocks: usize,
    /// Dynamic shared memory of a block, in values.
    pub(super) shared_values: usize,
    /// The part of it that a warp has which takes a system by itself.
    pub(super) warp_share: usize,
}

/// The order of the systems and the work of every block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// The systems in the order of their descriptions.
    pub(super) order: Vec<u32>,
    /// Per block: its first system in that order, and how many its warps take by themselves, or 0
    /// when they share one.
    pub(super) blocks: Vec<u32>,
    pub(super) launches: Vec<Launch>,
}

/// Systems of up to this many slots are left to a warp.
const WARP_SLOTS: usize = 1536;

/// Blocks per multiprocessor that a class of systems leaves room for, from small to large ones.
const RESIDENT_BLOCKS: [u32; 3] = [5, 2, 1];

/// Shared memory that the system takes of each block, in bytes.
const RESERVED_BYTES: u32 = 1024;

/// At most this much is declared in the kernels themselves.
const STATIC_BYTES: u32 = 1024;

impl Work {
    /// Shares systems out. `pattern(i)` is that of system i, for which a block [has room](Room::holds); systems without
    /// rows get no work.
    pub(super) fn new<'p>(
        nsystems: usize,
        pattern: impl Fn(usize) -> &'p PackedPattern,
        warps: usize,
        room: &Room<'_>,
    ) -> Self {
        let limits = room.limits();
        let class = |i: usize| {
            let pattern = pattern(i);
            let class = limits.iter().position(|&limit| pattern.shared_values() <= limit);
            let class = class.expect("the system fits a block");
            let alone = class == 0
                && pattern.nslots() <= WARP_SLOTS
                && pattern.shared_values() <= limits[0] / warps;
            (class, alone)
        };
        let mut order: Vec<u32> =
            (0..nsystems as u32).filter(|&i| pattern(i as usize).nrows > 0).collect();
        // Large systems first, so that small ones fill the end.
        order.sort_by_cached_key(|&i| {
            let (class, alone) = class(i as usize);
            (std::cmp::Reverse(class), alone, std::cmp::Reverse(pattern(i as usize).nslots()), i)
        });
        let mut work = Self { order, blocks: Vec::new(), launches: Vec::new() };
        let mut start = 0;
        while start < work.order.len() {
            let of = |at: usize| class(work.order[at] as usize);
            let shared = |at: usize| pattern(work.order[at] as usize).shared_values();
            let this = of(start);
            let same = (start..work.order.len()).take_while(|&at| of(at).0 == this.0);
            let end = start + same.count();
            let first_block = work.blocks.len() / 2;
            let (mut shared_values, mut warp_share) = (0, 0);
            let mut at = start;
            while at < end {
                if of(at).1 {
                    let count = warps.min(end - at);
                    work.blocks.extend([at as u32, count as u32]);
                    warp_share = (at..at + count).map(shared).fold(warp_share, usize::max);
                    at += count;
                } else {
                    work.blocks.extend([at as u32, 0]);
                    shared_values = shared_values.max(shared(at));
                    at += 1;
                }
            }
            work.launches.push(Launch {
                first_block,
                blocks: work.blocks.len() / 2 - first_block,
                shared_values: shared_values.max(warp_share * warps),
                warp_share,
            });
            start = end;
        }
        work
    }
}

/// The shared memory of a block.
pub(super) struct Room<'a> {
    pub(super) info: &'a DeviceInfo,
    pub(super) value_bytes: usize,
    /// What is set aside for copies under way.
    pub(super) staging_bytes: usize,
}

impl Room<'_> {
    /// The values that a block of each class may hold.
    fn limits(&self) -> [usize; RESIDENT_BLOCKS.len()] {
        RESIDENT_BLOCKS.map(|blocks| {
            let of_multiprocessor = self.info.shared_bytes_per_multiprocessor / blocks;
            let share = of_multiprocessor.saturating_sub(RESERVED_BYTES);
            let share = share.min(self.info.shared_bytes_per_block.saturating_sub(STATIC_BYTES));
            (share as usize).saturating_sub(self.staging_bytes) / self.value_bytes
        })
    }

    /// Whether a block has room for a system.
    pub(super) fn holds(&self, pattern: &PackedPattern) -> bool {
        let largest = self.limits()[RESIDENT_BLOCKS.len() - 1];
        pattern.shared_values() <= largest && pattern.nsegments < usize::from(u16::MAX)
    }
}

/// Threads of a block with so many warps.
pub(super) fn block_threads(warps: usize) -> u32 {
    (warps * SLICE) as u32
}
