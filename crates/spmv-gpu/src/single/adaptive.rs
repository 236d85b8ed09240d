//! The preprocessing of `csr-adaptive`.

use std::time::{Duration, Instant};

use sparsebatch_formats::CsrPatternRef;

use sparsebatch_cuda::GpuError;

/// Numbers of entries that a block of `csr-adaptive` may be limited to.
pub(super) const BLOCK_ENTRIES: [u32; 5] = [128, 256, 512, 1024, 2048];

/// A row with more entries than this many blocks hold is cut into pieces. A shorter row takes one
/// block at most this many rounds of loads, which costs about as much as joining pieces.
const WHOLE_ROW_BLOCKS: usize = 2;

/// A row with more entries than this is added up by a whole block rather than by one warp.
const WARP_ROW: i32 = 512;

/// Blocks of rows with about the same number of entries: made once per CSR pattern, used by every
/// product of `csr-adaptive` and every set of values.
///
/// Rows stay in order. A block takes rows while it has room. A row with more than 512 entries, or
/// more than a block holds, gets a block of its own; a row with more than two blocks hold is cut
/// into equal pieces, one per block.
///
/// Source: Greathouse and Daga 2014 (doi 10.1109/SC.2014.68); the header of the kernel says how
/// this one deviates.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveRows {
    nrows: usize,
    entries: u32,
    blocks: Vec<Block>,
    time: Duration,
}

/// Descriptor of a block, in the terms of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Block {
    pub(super) first: u32,
    pub(super) end: u32,
    pub(super) first_row: u32,
    pub(super) end_row: u32,
    pub(super) pieces: u32,
    first_piece: u32,
    pub(super) lanes: u32,
}

/// The threads of a block for at most `entries` entries, and how many entries each thread loads.
pub(super) fn shape(entries: u32) -> (u32, u32) {
    let steps = if entries <= 1024 { 4 } else { 8 };
    (entries / steps, steps)
}

impl AdaptiveRows {
    /// Cuts the rows of a pattern into blocks of at most `entries` entries: 128, 256, 512, 1,024 or
    /// 2,048. Cost: a pass over the row pointers.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for any other number of entries.
    pub fn new(pattern: CsrPatternRef<'_>, entries: u32) -> Result<Self, GpuError> {
        check_entries(entries)?;
        Ok(Self::of_row_ptr(pattern.row_ptr(), entries))
    }

    /// As [`AdaptiveRows::new`], from the row pointers of a valid pattern and a number of entries
    /// that was checked.
    pub(super) fn of_row_ptr(row_ptr: &[i32], entries: u32) -> Self {
        let clock = Instant::now();
        let max_rows = shape(entries).0 as usize;
        let nrows = row_ptr.len() - 1;
        let mut rows = Self { nrows, entries, blocks: Vec::new(), time: Duration::ZERO };
        let mut row = 0;
        while row < nrows {
            // The number of rows that fit, by bisection: row ends do not decrease.
            let room = row_ptr[row].saturating_add(entries as i32);
            let within = &row_ptr[row + 1..=nrows.min(row + max_rows)];
            let fit = within.partition_point(|&end| end <= room);
            let is_long = |k: &usize| row_ptr[row + k + 1] - row_ptr[row + k] > WARP_ROW;
            let fit = (0..fit).find(is_long).unwrap_or(fit);
            if fit > 0 {
                rows.push_rows(row_ptr, row, row + fit);
            } else {
                rows.push_long(row_ptr, row);
            }
            row += fit.max(1);
        }
        rows.time = clock.elapsed();
        rows
    }

    fn push_rows(&mut self, row_ptr: &[i32], first_row: usize, end_row: usize) {
        let (first, end) = (row_ptr[first_row] as u32, row_ptr[end_row] as u32);
        let nrows = (end_row - first_row) as u32;
        let room = prev_power_of_two(shape(self.entries).0 / nrows);
        let mean = (end - first).div_ceil(nrows).next_power_of_two();
        self.blocks.push(Block {
            first,
            end,
            first_row: first_row as u32,
            end_row: end_row as u32,
            lanes: room.min(mean).min(32),
            ..Block::default()
        });
    }

    fn push_long(&mut self, row_ptr: &[i32], row: usize) {
        let (first, end) = (row_ptr[row] as usize, row_ptr[row + 1] as usize);
        let entries = self.entries as usize;
        let whole = end - first <= WHOLE_ROW_BLOCKS * entries;
        let pieces = if whole { 1 } else { (end - first).div_ceil(entries) };
        let start = |piece: usize| {
            (first as u128 + piece as u128 * (end - first) as u128 / pieces as u128) as u32
        };
        let first_piece = self.blocks.len() as u32;
        self.blocks.extend((0..pieces).map(|piece| Block {
            first: start(piece),
            end: start(piece + 1),
            first_row: row as u32,
            end_row: row as u32 + 1,
            pieces: if whole { 0 } else { pieces as u32 },
            first_piece,
            lanes: 0,
        }));
    }

    /// The number of blocks; 0 for a pattern without rows.
    pub fn nblocks(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The most entries that a block of several rows may have.
    pub fn block_entries(&self) -> u32 {
        self.entries
    }

    /// How long the preprocessing took.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Bytes on the device: descriptors and counters.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * (size_of::<[u64; 4]>() + size_of::<u32>())
    }

    /// The descriptors as the kernel reads them.
    pub(super) fn words(&self) -> Vec<u64> {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words = |b: &Block| {
            [
                pair(b.first, b.end),
                pair(b.first_row, b.end_row),
                pair(b.pieces, b.first_piece),
                pair(b.lanes, 0),
            ]
        };
        self.blocks.iter().flat_map(words).collect()
    }

    /// Checks that the blocks were made from a pattern with these rows. Cost: O(nblocks).
    pub(super) fn check(&self, pattern: CsrPatternRef<'_>) -> Result<(), GpuError> {
        let refuse = |found: String| GpuError::InvalidArgument {
            name: "adaptive rows",
            expected: "rows computed from this matrix".to_owned(),
            found,
        };
        if self.nrows != pattern.nrows() {
            return Err(refuse(format!("those of a matrix with {} rows", self.nrows)));
        }
        let row_ptr = pattern.row_ptr();
        for (number, block) in self.blocks.iter().enumerate() {
            // Pieces follow one another, from the first entry of the row to its last.
            let piece = number as u32 - if block.pieces > 0 { block.first_piece } else { 0 };
            let begins = block.pieces == 0 || piece == 0;
            let ends = block.pieces == 0 || piece + 1 == block.pieces;
            let holds = (!begins || row_ptr[block.first_row as usize] as u32 == block.first)
                && (!ends || row_ptr[block.end_row as usize] as u32 == block.end);
            if !holds {
                return Err(refuse(format!("{} for row {}", block.end, block.first_row)));
            }
        }
        Ok(())
    }
}

/// Refuses numbers of entries that no instance of the kernel takes.
pub(super) fn check_entries(entries: u32) -> Result<u32, GpuError> {
    if BLOCK_ENTRIES.contains(&entries) {
        return Ok(entries);
    }
    Err(GpuError::InvalidArgument {
        name: "block_entries",
        expected: "128, 256, 512, 1024 or 2048".to_owned(),
        found: entries.to_string(),
    })
}

fn prev_power_of_two(number: u32) -> u32 {
    1 << number.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row pointers of rows of these lengths.
    fn row_ptr(lengths: &[i32]) -> Vec<i32> {
        let mut end = 0;
        let ends = lengths.iter().map(|length| {
            end += length;
            end
        });
        std::iter::once(0).chain(ends).collect()
    }

    fn blocks(lengths: &[i32], entries: u32) -> Vec<Block> {
        AdaptiveRows::of_row_ptr(&row_ptr(lengths), entries).blocks
    }

    #[test]
    fn rows_fill_blocks_in_order() {
        let found = blocks(&[100, 28, 1, 0, 127, 1], 128);

        let rows: Vec<_> = found.iter().map(|b| (b.first_row, b.end_row)).collect();
        assert_eq!(rows, [(0, 2), (2, 5), (5, 6)]);
        let entries: Vec<_> = found.iter().map(|b| (b.first, b.end)).collect();
        assert_eq!(entries, [(0, 128), (128, 256), (256, 257)]);
        // 32 threads for 2, 3 and 1 rows.
        assert_eq!(found.iter().map(|b| b.lanes).collect::<Vec<_>>(), [16, 8, 1]);
    }

    #[test]
    fn a_block_has_no_more_rows_than_threads() {
        let found = blocks(&[0; 70], 128);

        let rows: Vec<_> = found.iter().map(|b| b.end_row - b.first_row).collect();
        assert_eq!(rows, [32, 32, 6]);
        assert!(found.iter().all(|b| b.lanes == 1));
    }

    #[test]
    fn long_rows_are_blocks_of_their_own_and_longer_ones_pieces() {
        let found = blocks(&[1, 256, 300, 2], 128);

        let entries: Vec<_> = found.iter().map(|b| (b.first, b.end)).collect();
        assert_eq!(entries, [(0, 1), (1, 257), (257, 357), (357, 457), (457, 557), (557, 559)]);
        assert_eq!((found[1].pieces, found[1].lanes), (0, 0));
        assert!(found[2..5].iter().all(|b| (b.pieces, b.first_piece, b.lanes) == (3, 2, 0)));
    }

    #[test]
    fn a_row_that_would_keep_a_warp_busy_gets_a_block() {
        let found = blocks(&[3, 513, 4, 512], 1024);

        let rows: Vec<_> = found.iter().map(|b| (b.first_row, b.end_row, b.lanes > 0)).collect();
        assert_eq!(rows, [(0, 1, true), (1, 2, false), (2, 4, true)]);
    }

    #[test]
    fn preprocessing_of_another_pattern_is_refused() {
        let pattern = |lengths: &[i32]| {
            let row_ptr = row_ptr(lengths);
            let columns = lengths.iter().flat_map(|&length| 0..length).collect();
            sparsebatch_formats::CsrPattern::try_new(lengths.len(), 400, row_ptr, columns).unwrap()
        };
        let of = pattern(&[1, 256, 300, 2]);
        use sparsebatch_formats::Pattern;
        let rows = AdaptiveRows::new(of.view(), 128).unwrap();

        assert_eq!(rows.check(of.view()), Ok(()));
        for other in [&[1, 256, 300][..], &[1, 256, 301, 2], &[2, 255, 300, 2], &[1, 256, 300, 3]] {
            let error = rows.check(pattern(other).view()).unwrap_err();
            assert!(error.to_string().starts_with("adaptive rows is "), "{error}");
        }
        assert!(AdaptiveRows::new(of.view(), 100).is_err());
    }
}
