//! Figures of the blocks of `csr-adaptive` for a matrix.

use crate::single::adaptive::{AdaptiveRows, Block};

/// As in the kernel: a row with more than `LONG_STEPS` entries per lane waits until `LONG_LANES`
/// lanes of its warp add it up; a warp adds up to `LONG_ROWS` such rows at a time.
const LONG_STEPS: u32 = 16;
const LONG_LANES: u32 = 8;
const LONG_ROWS: usize = 4;

const WARP_THREADS: u32 = 32;

/// Figures of the blocks of one size. A step is an addition that waits for the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Blocks {
    /// Blocks, of all kinds.
    pub count: usize,
    /// Steps of the longest row that does not wait: its entries per lane.
    pub steps: u32,
    /// Most groups of waiting rows that a warp adds up, one after the other.
    pub groups: u32,
    /// Steps of these groups in the warp with the most steps.
    pub group_steps: u32,
    /// Steps of these groups, summed over all warps.
    pub all_group_steps: u64,
    /// Whether blocks share a row.
    pub meet: bool,
    /// Most rounds of a block beyond the first: rounds of loads for a row of its own, or of partial
    /// sums where the pieces of a row meet.
    pub rounds: u32,
}

impl Blocks {
    /// Cuts rows into blocks of at most `entries` entries. Cost: two passes over the row pointers.
    pub(super) fn of_row_ptr(row_ptr: &[i32], entries: u32) -> Self {
        let rows = AdaptiveRows::of_row_ptr(row_ptr, entries);
        let threads = crate::single::adaptive::shape(entries).0;
        let mut found = Self { count: rows.nblocks(), ..Self::default() };
        for block in rows.blocks() {
            let rounds = match (block.lanes, block.pieces) {
                (0, 0) => (block.end - block.first).div_ceil(entries),
                (0, pieces) => pieces.div_ceil(threads),
                _ => {
                    found.add_rows(block, row_ptr);
                    1
                }
            };
            found.meet |= block.pieces > 1;
            found.rounds = found.rounds.max(rounds.max(1) - 1);
        }
        found
    }

    /// Counts the steps of a block of rows.
    fn add_rows(&mut self, block: &Block, row_ptr: &[i32]) {
        let ends = &row_ptr[block.first_row as usize..=block.end_row as usize];
        let most = LONG_STEPS * block.lanes;
        let rows = (WARP_THREADS / block.lanes) as usize;
        let longest = |rows: &[i32]| rows.windows(2).map(|row| (row[1] - row[0]) as u32).max();
        if longest(ends).unwrap_or(0) <= most {
            self.steps = self.steps.max(longest(ends).unwrap_or(0).div_ceil(block.lanes));
            return;
        }
        for first in (0..ends.len() - 1).step_by(rows) {
            let ends = &ends[first..=(first + rows).min(ends.len() - 1)];
            // Rows in the current group, and the length of its longest row.
            let (mut in_group, mut group_longest) = (0, 0);
            let (mut groups, mut steps) = (0, 0);
            for row in ends.windows(2) {
                let length = (row[1] - row[0]) as u32;
                if length <= most {
                    self.steps = self.steps.max(length.div_ceil(block.lanes));
                    continue;
                }
                if in_group == LONG_ROWS {
                    steps += u32::div_ceil(group_longest, LONG_LANES);
                    (in_group, group_longest) = (0, 0);
                }
                groups += u32::from(in_group == 0);
                in_group += 1;
                group_longest = group_longest.max(length);
            }
            steps += group_longest.div_ceil(LONG_LANES);
            self.groups = self.groups.max(groups);
            self.group_steps = self.group_steps.max(steps);
            self.all_group_steps += u64::from(steps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(lengths: &[i32], entries: u32) -> Blocks {
        let mut row_ptr = vec![0];
        row_ptr.extend(lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        }));
        Blocks::of_row_ptr(&row_ptr, entries)
    }

    #[test]
    fn rows_of_like_length_take_the_steps_of_a_lane() {
        // 32 threads for 6 rows: 4 lanes for each.
        let found = blocks(&[20; 6], 128);

        assert_eq!(found, Blocks { count: 1, steps: 5, ..Blocks::default() });
    }

    #[test]
    fn long_rows_of_a_warp_wait_four_at_a_time() {
        // A lane for each of the 32 rows of a warp; five rows are too long for one.
        let mut lengths = [1; 64];
        for (row, length) in [(0, 17), (5, 24), (9, 18), (11, 20), (31, 41), (40, 33)] {
            lengths[row] = length;
        }
        let found = blocks(&lengths, 256);

        let expected = Blocks {
            count: 1,
            steps: 1,
            groups: 2,
            group_steps: 3 + 6,
            all_group_steps: 3 + 6 + 5,
            ..Blocks::default()
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn whole_blocks_have_rounds_and_pieces_meet() {
        assert_eq!(blocks(&[200], 128), Blocks { count: 1, rounds: 1, ..Blocks::default() });

        // The sums of 79 pieces take 32 threads three rounds.
        let found = blocks(&[1, 10_000], 128);
        assert_eq!((found.count, found.meet, found.rounds), (80, true, 2));
        assert_eq!(blocks(&[], 512), Blocks::default());
    }
}
