//! Which block multiplies which pieces, and the descriptions of the pieces for the kernels.

use std::ops::Range;

use rayon::prelude::*;

use super::options::{Class, Mode, PackedKernel};
use sparsebatch_cuda::DeviceInfo;

/// 64-bit words of a piece's description, as `PackedPiece` in `packed.cu` reads it.
pub(super) const PIECE_WORDS: usize = 14;

/// Shares of a piece: each warp of a block takes `SHARES / warps` of them.
pub(super) const SHARES: usize = 8;

/// Threads of a warp: slots per step and segments per slice.
pub(super) const WARP: usize = 32;

/// The length of an index is padded to a multiple of this many entries: 16 bytes.
const INDEX_ALIGNMENT: usize = 8;

/// Flag: the index lists where the sum of each segment is stored.
const SUMS_ARE_PLACED: u32 = 1;
/// Flag: rows have any number of segments, not one each.
const ROWS_ARE_CUT: u32 = 2;

/// Measurements of a packed pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) nrows: u32,
    /// The columns that are used; packed column indices count from the first of them.
    pub(super) columns: Range<u32>,
    pub(super) nsegments: u32,
    /// Steps of [`WARP`] slots.
    pub(super) nsteps: u32,
    pub(super) flags: u32,
    /// First step of each share, if the steps fit 16 bits.
    begins: [u16; SHARES],
}

impl Measured {
    /// Reads the words that `pack_measure` writes.
    pub(super) fn new(words: &[u32], ncols: usize) -> Self {
        let mut begins = [0; SHARES];
        for (pair, &word) in begins.chunks_mut(2).zip(&words[4..]) {
            pair.copy_from_slice(&[word as u16, (word >> 16) as u16]);
        }
        Self {
            nrows: words[3],
            columns: 0..ncols as u32,
            nsegments: words[0],
            nsteps: words[1],
            flags: words[2],
            begins,
        }
    }

    /// Whether segments, steps and rows can be counted with 16 bits.
    pub(super) fn is_countable(&self) -> bool {
        self.nsegments.max(self.nsteps).max(self.nrows) < u32::from(u16::MAX)
    }

    pub(super) fn is_cut(&self) -> bool {
        self.flags & ROWS_ARE_CUT != 0
    }

    /// The steps of the warp with most of them, among `warps` warps.
    pub(super) fn longest_share(&self, warps: usize) -> usize {
        let begins = (0..warps).map(|warp| usize::from(self.begins[warp * SHARES / warps]));
        let ends = begins.clone().skip(1).chain([self.nsteps as usize]);
        begins.zip(ends).map(|(begin, end)| end.saturating_sub(begin)).max().unwrap_or(0)
    }

    /// Entries of the index, padding included.
    pub(super) fn index_len(&self) -> usize {
        let placed = if self.flags & SUMS_ARE_PLACED != 0 { self.nsegments } else { 0 };
        let starts = if self.is_cut() { self.nrows + 1 } else { 0 };
        let len = self.nsegments.div_ceil(WARP as u32) + placed + starts;
        (len as usize).next_multiple_of(INDEX_ALIGNMENT)
    }

    /// Shared memory that a block needs: sums, x with a zero behind it (unless x is gathered), and
    /// the index, each in multiples of 16 bytes.
    fn shared_bytes(&self, mode: Mode, value_bytes: usize) -> usize {
        let values = |n: u32| (n as usize * value_bytes).next_multiple_of(16);
        let x = if mode.gathered { 0 } else { values(self.columns.end - self.columns.start + 1) };
        values(self.nsegments) + x + size_of::<u16>() * self.index_len()
    }
}

/// Offsets of the parts of a piece in the arrays of a plan: in bytes for values and columns, in
/// entries for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) values: u64,
    pub(super) columns: u64,
    pub(super) index: u64,
    pub(super) x: u64,
    pub(super) y: u64,
    pub(super) x_stride: u64,
    pub(super) y_stride: u64,
}

impl Places {
    /// The description of a piece for blocks of `warps` warps.
    pub(super) fn words(&self, measured: &Measured, warps: usize) -> [u64; PIECE_WORDS] {
        let mut shorts = [measured.nsteps; 14];
        shorts[0] = measured.nrows;
        shorts[1] = measured.columns.len() as u32;
        shorts[2] = measured.nsegments;
        shorts[3] = measured.flags;
        shorts[4] = measured.index_len() as u32;
        for (warp, begin) in shorts[5..5 + warps].iter_mut().enumerate() {
            *begin = measured.begins[warp * SHARES / warps].into();
        }
        let Self { values, columns, index, x, y, x_stride, y_stride } = *self;
        let mut words = [0; PIECE_WORDS];
        words[..7].copy_from_slice(&[values, columns, index, x, y, x_stride, y_stride]);
        for (word, pair) in words[7..].iter_mut().zip(shorts.chunks(2)) {
            *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        }
        words
    }
}

/// One launch: pieces with the same mode and the same class of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackedLaunch {
    /// Its range of blocks among the blocks of all launches.
    pub(super) blocks: Range<usize>,
    /// The first piece of its first block, and whether every block has one piece.
    pub(super) first_piece: usize,
    pub(super) one_each: bool,
    pub(super) mode: Mode,
    pub(super) warps: usize,
    /// Shared memory per block for pieces.
    pub(super) room_bytes: usize,
}

/// The order of the pieces and the work of every block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PackedWork {
    /// The pieces in the order of their descriptions.
    pub(super) order: Vec<u32>,
    /// Position in `order` of the first piece of each block; at the end, the number of pieces.
    pub(super) chunks: Vec<u32>,
    pub(super) launches: Vec<PackedLaunch>,
}

impl PackedWork {
    /// For each piece, in `order`, the number of warps of its block.
    pub(super) fn warps(&self) -> Vec<usize> {
        let mut warps = Vec::with_capacity(self.order.len());
        for launch in &self.launches {
            warps.resize(self.chunks[launch.blocks.end] as usize, launch.warps);
        }
        warps
    }
}

/// How a kernel uses a multiprocessor: its classes of blocks, from small pieces to large ones.
pub(super) struct Classes<'a> {
    pub(super) info: &'a DeviceInfo,
    pub(super) kernel: PackedKernel,
    pub(super) value_bytes: usize,
    /// Right-hand sides. Kernels count the pieces of a block times `nrhs` with 32 bits.
    pub(super) nrhs: usize,
}

/// Shared memory that CUDA reserves per block, in bytes.
const RESERVED_BYTES: usize = 1024;

/// Upper bound of the static shared memory of the kernels, in bytes.
const STATIC_BYTES: usize = 1536;

/// Most blocks that a multiprocessor can hold at once.
const MAX_RESIDENT: usize = 32;

/// Most pieces of a block, times right-hand sides.
pub(super) const MAX_UNITS: usize = i32::MAX as usize;

/// x is gathered if copying it would read more than this many columns per slot.
const COPIED_PER_SLOT: usize = 2;

/// If the pieces are few, x of up to this many columns is copied all the same: a gather for each
/// part of a long segment takes longer, and a single mode needs a single launch.
const FEW_COLUMNS: usize = 2048;

impl Classes<'_> {
    /// Chooses the mode and the class of blocks of a pattern. x is copied into shared memory if its
    /// columns are not too many for the slots (or at most `FEW_COLUMNS`, if the pieces are `few`)
    /// and a class has room for it; otherwise it is gathered where possible. The class is the first
    /// whose number of resident blocks fits a multiprocessor. `None` when there is no room.
    pub(super) fn of(&self, measured: &Measured, joint: bool, few: bool) -> Option<(Mode, usize)> {
        let ncols = measured.columns.len();
        let gathered = Mode { joint, gathered: true, wide: ncols >= usize::from(u16::MAX) };
        let copied = Mode { joint, gathered: false, wide: false };
        let class = |mode: Mode| {
            let bytes = measured.shared_bytes(mode, self.value_bytes);
            self.kernel.classes().iter().position(|class| {
                let blocks = self.resident(class.warps, mode, bytes);
                blocks.is_some_and(|blocks| blocks >= class.resident)
            })
        };
        if !measured.is_countable() {
            return None;
        }
        let most = COPIED_PER_SLOT * measured.nsteps as usize * WARP;
        let fits = !gathered.wide && ncols <= if few { most.max(FEW_COLUMNS) } else { most };
        (fits.then(|| class(copied)).flatten().map(|class| (copied, class)))
            .or_else(|| class(gathered).map(|class| (gathered, class)))
            .or_else(|| (!gathered.wide).then(|| class(copied)).flatten().map(|c| (copied, c)))
    }

    /// Shared memory of a block with this number of warps, besides that of its pieces.
    fn staging_bytes(&self, warps: usize, mode: Mode) -> usize {
        self.kernel.staging_bytes(warps, mode, self.value_bytes)
    }

    /// How many blocks of `warps` warps, with `room_bytes` for pieces, a multiprocessor holds at
    /// once. `None` if one block needs more shared memory than it may have.
    fn resident(&self, warps: usize, mode: Mode, room_bytes: usize) -> Option<usize> {
        let bytes = self.staging_bytes(warps, mode) + room_bytes + STATIC_BYTES;
        if bytes > self.info.shared_bytes_per_block as usize {
            return None;
        }
        let by_memory =
            self.info.shared_bytes_per_multiprocessor as usize / (bytes + RESERVED_BYTES);
        let by_threads = self.info.max_threads_per_multiprocessor as usize / (warps * WARP);
        Some(by_memory.min(by_threads).clamp(1, MAX_RESIDENT))
    }

    /// Shared memory for pieces in a launch whose largest piece needs `most`: twice as much, but at
    /// most what leaves room for `class.resident + 1` blocks, or for as many as with `most` if
    /// these are fewer.
    fn room_bytes(&self, class: &Class, mode: Mode, most: usize) -> usize {
        if !self.kernel.copies_ahead() {
            return most;
        }
        let resident = self.resident(class.warps, mode, most).unwrap_or(1);
        let wanted = resident.min(class.resident + 1);
        let of_multiprocessor = self.info.shared_bytes_per_multiprocessor as usize / wanted;
        let of_block = (of_multiprocessor - RESERVED_BYTES)
            .min(self.info.shared_bytes_per_block as usize)
            .saturating_sub(STATIC_BYTES + self.staging_bytes(class.warps, mode));
        (2 * most).min(of_block).max(most) / 16 * 16
    }

    /// Divides the pieces among blocks. A block takes `1/share` of what each resident block would
    /// get of the remaining work. `piece(i)` returns the measurements of piece `i`, and its mode
    /// and class by [`of`](Self::of). Pieces without rows get no work.
    pub(super) fn work<'p>(
        &self,
        npieces: usize,
        piece: impl Fn(usize) -> (&'p Measured, Mode, usize) + Sync,
        share: usize,
    ) -> PackedWork {
        let measured = |i: u32| piece(i as usize).0;
        let kind = |i: u32| {
            let (_, mode, class) = piece(i as usize);
            (mode, class)
        };
        let mut work = PackedWork {
            order: (0..npieces as u32).filter(|&i| measured(i).nrows > 0).collect(),
            ..PackedWork::default()
        };
        // Large pieces first, so that small ones fill the end.
        work.order.par_sort_by_cached_key(|&i| {
            let (mode, class) = kind(i);
            // Sort key: mode; then class and steps, descending; then the piece.
            let falling = u64::from(!((class as u32) << 16 | measured(i).nsteps));
            (u64::from(mode.number()) << 32 | falling, i)
        });
        let mut at = 0;
        while at < work.order.len() {
            let (mode, class) = kind(work.order[at]);
            let pieces = &work.order[at..];
            let count = pieces.iter().take_while(|&&i| kind(i) == (mode, class)).count();
            let pieces = &pieces[..count];
            let bytes = |&i: &u32| measured(i).shared_bytes(mode, self.value_bytes);
            let class = &self.kernel.classes()[class];
            let most = pieces.iter().map(bytes).max().unwrap_or(0);
            let room_bytes = self.room_bytes(class, mode, most);
            let warps = class.warps;
            let resident = self.resident(warps, mode, room_bytes).unwrap_or(1);
            let blocks = (self.info.multiprocessors as usize * resident).max(1);
            let first_block = work.chunks.len();
            let mut left: usize = pieces.iter().map(|&i| measured(i).nsteps as usize).sum();
            let (mut taken, mut wanted, mut first) = (0, 0, 0);
            for (k, &i) in pieces.iter().enumerate() {
                let too_many = (k - first + 1).saturating_mul(self.nrhs) > MAX_UNITS;
                if k == 0 || taken >= wanted || too_many {
                    left -= taken;
                    (taken, wanted, first) = (0, left / blocks.saturating_mul(share), k);
                    work.chunks.push((at + k) as u32);
                }
                taken += measured(i).nsteps as usize;
            }
            let blocks = first_block..work.chunks.len();
            let one_each = blocks.len() == count;
            let launch =
                PackedLaunch { blocks, first_piece: at, one_each, mode, warps, room_bytes };
            work.launches.push(launch);
            at += count;
        }
        work.chunks.push(at as u32);
        work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOINT: Mode = Mode { joint: true, gathered: false, wide: false };

    /// The chunks of `npieces` pieces of one step each.
    fn chunks(npieces: usize, nrhs: usize, share: usize) -> Vec<u32> {
        let info = DeviceInfo {
            multiprocessors: 2,
            max_threads_per_multiprocessor: 128,
            shared_bytes_per_block: 64 << 10,
            shared_bytes_per_multiprocessor: 64 << 10,
            ..DeviceInfo::default()
        };
        let classes = Classes {
            info: &info,
            kernel: PackedKernel::Registers { depth: 4 },
            value_bytes: 8,
            nrhs,
        };
        let mut words = [0; 4 + SHARES / 2];
        words[..4].copy_from_slice(&[1, 1, 0, 1]);
        let piece = Measured::new(&words, 1);
        let work = classes.work(npieces, |_| (&piece, JOINT, 0), share);
        assert_eq!(work.launches.len(), 1);
        assert_eq!(work.launches[0].one_each, work.chunks.len() == npieces + 1);
        work.chunks
    }

    #[test]
    fn blocks_take_parts_of_the_work_that_is_left() {
        assert_eq!(chunks(8, 1, 1), [0, 4, 6, 7, 8]);
        assert_eq!(chunks(8, 1, 2), [0, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(chunks(3, 1, usize::MAX), [0, 1, 2, 3]);
        assert_eq!(chunks(3, 1, 1 << 63), [0, 1, 2, 3]);
        assert_eq!(chunks(1, 1, 1), [0, 1]);
    }

    #[test]
    fn a_block_takes_no_more_pieces_than_32_bits_count_with_their_right_hand_sides() {
        assert_eq!(chunks(8, MAX_UNITS / 4, 1), [0, 4, 6, 7, 8]);
        assert_eq!(chunks(8, MAX_UNITS / 3, 1), [0, 3, 5, 6, 7, 8]);
        assert_eq!(chunks(4, MAX_UNITS, 1), [0, 1, 2, 3, 4]);
    }
}
