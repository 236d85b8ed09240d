//! Which block multiplies what.

use std::ops::Range;

use super::layout::{PackedPattern, SLICE};
use crate::DeviceInfo;

/// 64-bit words of a piece's description, as `PackedPiece` in `packed.cu` reads it.
pub(super) const PIECE_WORDS: usize = 16;

/// Most warps of a block that the description of a piece has room for.
const MAX_WARPS: usize = 16;

/// Where the parts of a piece lie in the arrays of a plan, in entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) values: u64,
    pub(super) columns: u64,
    pub(super) index: u64,
    pub(super) x: u64,
    pub(super) y: u64,
}

impl Places {
    /// The description of a piece for blocks of so many warps.
    pub(super) fn words(&self, pattern: &PackedPattern, warps: usize) -> [u64; PIECE_WORDS] {
        let mut shorts = [0; 22];
        shorts[0] = pattern.nrows as u32;
        shorts[1] = pattern.ncols as u32;
        shorts[2] = pattern.nsegments as u32;
        shorts[3] = pattern.flags;
        shorts[4] = pattern.index.len() as u32;
        shorts[5..].copy_from_slice(&begins(pattern, warps));
        let mut words = [0; PIECE_WORDS];
        words[..5].copy_from_slice(&[self.values, self.columns, self.index, self.x, self.y]);
        for (word, pair) in words[5..].iter_mut().zip(shorts.chunks(2)) {
            *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        }
        words
    }
}

/// The first slot of each warp: those of the slices that start in its share. All further ones are
/// the number of slots.
fn begins(pattern: &PackedPattern, warps: usize) -> [u32; MAX_WARPS + 1] {
    let mut begins = [pattern.nslots() as u32; MAX_WARPS + 1];
    begins[0] = 0;
    let ends = pattern.ends();
    for (warp, begin) in begins.iter_mut().enumerate().take(warps).skip(1) {
        let share = pattern.nslots() * warp / warps;
        let before = ends.partition_point(|&end| usize::from(end) * SLICE < share);
        *begin = ends.get(before).map_or(*begin, |&end| u32::from(end) * SLICE as u32);
    }
    begins
}

/// One launch: pieces that need about the same shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    /// Its blocks, among those of all launches.
    pub(super) blocks: Range<usize>,
    pub(super) warps: usize,
    pub(super) rooms: Rooms,
}

/// What a block keeps in shared memory for any piece of its launch: values of x, of sums and of y,
/// and entries of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rooms {
    pub(super) x: usize,
    pub(super) sums: usize,
    pub(super) y: usize,
    pub(super) index: usize,
}

impl Rooms {
    fn of(pattern: &PackedPattern) -> Self {
        Self {
            x: (pattern.ncols + 1).next_multiple_of(4),
            sums: pattern.nsegments.next_multiple_of(4),
            y: pattern.nrows.next_multiple_of(4),
            index: pattern.index.len(),
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            x: self.x.max(other.x),
            sums: self.sums.max(other.sums),
            y: self.y.max(other.y),
            index: self.index.max(other.index),
        }
    }
}

/// The order of the pieces and the work of every block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// The pieces in the order of their descriptions, and the warps that each is for.
    pub(super) order: Vec<u32>,
    /// The first piece of each block in that order, and the number of pieces.
    pub(super) chunks: Vec<u32>,
    pub(super) launches: Vec<Launch>,
}

/// How a kernel uses a multiprocessor: the classes of blocks that it comes in, from those for small
/// pieces to those for large ones.
pub(super) struct Classes<'a> {
    pub(super) info: &'a DeviceInfo,
    pub(super) classes: &'a [Class],
    /// Shared memory of a block of so many warps with such rooms, in bytes.
    pub(super) shared_bytes: &'a (dyn Fn(usize, Rooms) -> usize + Sync),
}

/// Blocks of so many warps, of which so many shall find room on a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) warps: usize,
    pub(super) resident: usize,
}

/// Shared memory that the system takes of each block, in bytes.
const RESERVED_BYTES: usize = 1024;

/// At most this much is declared in the kernels themselves.
const STATIC_BYTES: usize = 1536;

/// Blocks that a multiprocessor can have at once, whatever they need.
const MAX_RESIDENT: usize = 16;

impl Classes<'_> {
    /// The class of a piece: the first whose blocks have room for it.
    pub(super) fn of(&self, pattern: &PackedPattern) -> Option<usize> {
        let rooms = Rooms::of(pattern);
        self.classes.iter().position(|class| {
            self.resident(class.warps, rooms).is_some_and(|blocks| blocks >= class.resident)
        })
    }

    /// How many blocks of so many warps with such rooms a multiprocessor holds at once.
    fn resident(&self, warps: usize, rooms: Rooms) -> Option<usize> {
        let bytes = (self.shared_bytes)(warps, rooms) + STATIC_BYTES;
        if bytes > self.info.shared_bytes_per_block as usize {
            return None;
        }
        let by_memory =
            self.info.shared_bytes_per_multiprocessor as usize / (bytes + RESERVED_BYTES);
        let by_threads = self.info.max_threads_per_multiprocessor as usize / (warps * SLICE);
        Some(by_memory.min(by_threads).clamp(1, MAX_RESIDENT))
    }

    /// Shares pieces out, `share` being the part of the work left that a block takes at once: one in
    /// `share` of what each resident block would get. `pattern(i)` is that of piece i, of which
    /// [`of`](Self::of) knows the class; pieces without rows get no work.
    pub(super) fn work<'p>(
        &self,
        npieces: usize,
        pattern: impl Fn(usize) -> &'p PackedPattern,
        share: usize,
    ) -> Work {
        let class = |i: u32| self.of(pattern(i as usize)).expect("a block has room for the piece");
        let slots = |i: u32| pattern(i as usize).nslots();
        let mut work = Work {
            order: (0..npieces as u32).filter(|&i| pattern(i as usize).nrows > 0).collect(),
            ..Work::default()
        };
        // Large pieces first, so that small ones fill the end.
        work.order
            .sort_by_cached_key(|&i| (std::cmp::Reverse(class(i)), std::cmp::Reverse(slots(i)), i));
        let mut at = 0;
        while at < work.order.len() {
            let this = class(work.order[at]);
            let pieces = &work.order[at..];
            let count = pieces.iter().take_while(|&&i| class(i) == this).count();
            let pieces = &pieces[..count];
            let rooms = pieces.iter().map(|&i| Rooms::of(pattern(i as usize)));
            let rooms = rooms.fold(Rooms::default(), Rooms::with);
            let warps = self.classes[this].warps;
            let resident = self.resident(warps, rooms).unwrap_or(1);
            let blocks = (self.info.multiprocessors as usize * resident).max(1);
            let first_block = work.chunks.len();
            let mut left: usize = pieces.iter().map(|&i| slots(i)).sum();
            let (mut taken, mut wanted) = (0, 0);
            for (k, &i) in pieces.iter().enumerate() {
                if k == 0 || taken >= wanted {
                    left -= taken;
                    (taken, wanted) = (0, left / (blocks * share));
                    work.chunks.push((at + k) as u32);
                }
                taken += slots(i);
            }
            work.launches.push(Launch { blocks: first_block..work.chunks.len(), warps, rooms });
            at += count;
        }
        work.chunks.push(at as u32);
        work
    }
}
