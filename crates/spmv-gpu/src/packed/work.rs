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

/// The first slot of each warp: of the slice that starts nearest to its share. All further ones are
/// the number of slots.
fn begins(pattern: &PackedPattern, warps: usize) -> [u32; MAX_WARPS + 1] {
    let mut begins = [pattern.nslots() as u32; MAX_WARPS + 1];
    begins[0] = 0;
    let ends = pattern.ends();
    for (warp, begin) in begins.iter_mut().enumerate().take(warps).skip(1) {
        let share = pattern.nslots() * warp / warps;
        let below = ends.partition_point(|&end| usize::from(end) * SLICE < share);
        let start = |slice: usize| match slice {
            0 => 0,
            _ => ends.get(slice - 1).map_or(pattern.nslots(), |&end| usize::from(end) * SLICE),
        };
        let (before, after) = (start(below), start(below + 1));
        *begin = if share - before.min(share) < after - share { before } else { after } as u32;
    }
    begins
}

/// One launch: pieces that need about the same shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    /// Its blocks, among those of all launches.
    pub(super) blocks: Range<usize>,
    pub(super) warps: usize,
    /// Shared memory of a block for pieces.
    pub(super) room_bytes: usize,
}

/// Shared memory that a block needs for a piece: its sums, x and a zero, and its index, each in
/// multiples of 16 bytes.
fn piece_bytes(pattern: &PackedPattern, value_bytes: usize) -> usize {
    let values = |n: usize| (n * value_bytes).next_multiple_of(16);
    values(pattern.nsegments) + values(pattern.ncols + 1) + size_of_val(pattern.index.as_slice())
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
    pub(super) value_bytes: usize,
    /// Shared memory of a block of so many warps beside that of its pieces.
    pub(super) staging_bytes: &'a (dyn Fn(usize) -> usize + Sync),
    /// Whether two pieces find room at once, where that costs no resident block.
    pub(super) copies_ahead: bool,
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
const MAX_RESIDENT: usize = 32;

impl Classes<'_> {
    /// The class of a piece: the first whose blocks have room for it.
    pub(super) fn of(&self, pattern: &PackedPattern) -> Option<usize> {
        let bytes = piece_bytes(pattern, self.value_bytes);
        self.classes.iter().position(|class| {
            self.resident(class.warps, bytes).is_some_and(|blocks| blocks >= class.resident)
        })
    }

    /// How many blocks of so many warps and bytes for pieces a multiprocessor holds at once.
    fn resident(&self, warps: usize, room_bytes: usize) -> Option<usize> {
        let bytes = (self.staging_bytes)(warps) + room_bytes + STATIC_BYTES;
        if bytes > self.info.shared_bytes_per_block as usize {
            return None;
        }
        let by_memory =
            self.info.shared_bytes_per_multiprocessor as usize / (bytes + RESERVED_BYTES);
        let by_threads = self.info.max_threads_per_multiprocessor as usize / (warps * SLICE);
        Some(by_memory.min(by_threads).clamp(1, MAX_RESIDENT))
    }

    /// The room of a launch whose largest piece needs `most`: twice as much where the class still
    /// has its blocks, else what leaves as many blocks as `most` does.
    fn room_bytes(&self, class: &Class, most: usize) -> usize {
        if !self.copies_ahead {
            return most;
        }
        let resident = self.resident(class.warps, most).unwrap_or(1);
        let wanted = resident.min(class.resident + 1);
        let of_multiprocessor = self.info.shared_bytes_per_multiprocessor as usize / wanted;
        let of_block = (of_multiprocessor - RESERVED_BYTES)
            .min(self.info.shared_bytes_per_block as usize)
            .saturating_sub(STATIC_BYTES + (self.staging_bytes)(class.warps));
        (2 * most).min(of_block).max(most) / 16 * 16
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
            let bytes = |&i: &u32| piece_bytes(pattern(i as usize), self.value_bytes);
            let class = &self.classes[this];
            let room_bytes = self.room_bytes(class, pieces.iter().map(bytes).max().unwrap_or(0));
            let warps = class.warps;
            let resident = self.resident(warps, room_bytes).unwrap_or(1);
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
            work.launches.push(Launch {
                blocks: first_block..work.chunks.len(),
                warps,
                room_bytes,
            });
            at += count;
        }
        work.chunks.push(at as u32);
        work
    }
}
