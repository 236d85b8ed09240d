//! Builds CSR from entries in file order, in little memory.

use std::sync::Arc;

use super::market_header::MarketSymmetry;
use crate::error::{check_i32, zeros};
use crate::{Csr, CsrPattern, FormatError, Matrix};

/// Entries per block, 1 MiB.
const BLOCK: usize = 64 * 1024;

/// A block of entries could not be allocated. The error holds no data, so that the loop over
/// entries stays quick.
#[derive(Debug)]
pub(super) struct NoBlock;

impl From<NoBlock> for FormatError {
    fn from(_: NoBlock) -> Self {
        let bytes = (BLOCK * size_of::<(i32, i32, f64)>()) as u128;
        Self::Memory { what: "a block of entries", bytes }
    }
}

/// Entries in any order, duplicates allowed, in blocks that never move. At the peak of
/// [`Triplets::into_csr`] each entry takes 16 bytes here and 12 in the CSR matrix; the blocks are
/// freed while the matrix is filled.
#[derive(Default)]
pub(super) struct Triplets {
    blocks: Vec<Vec<(i32, i32, f64)>>,
}

impl Triplets {
    /// Appends an entry, zero-based.
    ///
    /// # Errors
    /// When another block cannot be allocated.
    #[inline(always)]
    pub(super) fn push(&mut self, row: i32, col: i32, value: f64) -> Result<(), NoBlock> {
        match self.blocks.last_mut() {
            // The first block starts small and grows, since many files are small.
            Some(block) if block.len() < BLOCK => block.push((row, col, value)),
            Some(_) => return self.push_to_new_block((row, col, value)),
            None => self.blocks.push(vec![(row, col, value)]),
        }
        Ok(())
    }

    #[cold]
    fn push_to_new_block(&mut self, entry: (i32, i32, f64)) -> Result<(), NoBlock> {
        let mut block = Vec::new();
        block.try_reserve_exact(BLOCK).map_err(|_| NoBlock)?;
        block.push(entry);
        self.blocks.push(block);
        Ok(())
    }

    /// Visits the entries in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, i32, f64)> + '_ {
        self.blocks.iter().flatten().copied()
    }

    /// Visits the entries in their order, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (i32, i32, f64)> + '_ {
        self.blocks.iter_mut().flatten()
    }

    /// Keeps the entries that `keep` accepts.
    pub(super) fn retain(&mut self, keep: impl Fn(&(i32, i32, f64)) -> bool) {
        self.blocks.iter_mut().for_each(|block| block.retain(&keep));
    }

    /// Number of entries held.
    pub(super) fn len(&self) -> usize {
        // All blocks but the last are full.
        match self.blocks.split_last() {
            Some((last, full)) => full.len() * BLOCK + last.len(),
            None => 0,
        }
    }

    /// The most entries held for a matrix with `places` positions, where [`Triplets::compact`] is
    /// called after every `step` entries.
    pub(super) fn most_held(places: u128, step: usize) -> u128 {
        2 * places + (BLOCK + step) as u128
    }

    /// Sums duplicates in their order, once there are more entries than twice the positions of the
    /// matrix and a block. A file of duplicates thus takes no more memory than the matrix it makes.
    ///
    /// # Errors
    /// [`FormatError::Memory`] when an index of all positions cannot be allocated.
    pub(super) fn compact(&mut self, nrows: usize, ncols: usize) -> Result<(), FormatError> {
        let places = nrows as u128 * ncols as u128;
        if self.len() as u128 <= 2 * places + BLOCK as u128 {
            return Ok(());
        }
        // For each position, the number of its entry in `distinct`, counted from 1; 0 for none.
        let mut found: Vec<u32> = zeros("index of places", places as usize)?;
        let mut distinct = Self::default();
        for (row, col, value) in self.iter() {
            let found = &mut found[row as usize * ncols + col as usize];
            match *found as usize {
                0 => {
                    distinct.push(row, col, value)?;
                    *found = distinct.len() as u32;
                }
                at => distinct.blocks[(at - 1) / BLOCK][(at - 1) % BLOCK].2 += value,
            }
        }
        *self = distinct;
        Ok(())
    }

    /// The most bytes that `entries` entries take until the end of [`Triplets::into_csr`], the
    /// matrix of `nrows` rows included.
    pub(super) fn peak_bytes(entries: usize, nrows: usize, symmetry: MarketSymmetry) -> u128 {
        let expanded = if symmetry == MarketSymmetry::General { entries } else { 2 * entries };
        16 * entries as u128 + 12 * expanded as u128 + 4 * (nrows as u128 + 1)
    }

    /// Builds the matrix: adds the entries that `symmetry` implies and sums duplicates in their
    /// order.
    ///
    /// The caller has checked that all indices lie inside the matrix.
    pub(super) fn into_csr(
        self,
        nrows: usize,
        ncols: usize,
        symmetry: MarketSymmetry,
    ) -> Result<Csr<f64>, FormatError> {
        let mirrored = symmetry != MarketSymmetry::General;
        let sign = if symmetry == MarketSymmetry::SkewSymmetric { -1.0 } else { 1.0 };
        let mut total: usize = self.blocks.iter().map(Vec::len).sum();
        if mirrored {
            total += self.iter().filter(|&(row, col, _)| row != col).count();
        }
        check_i32("nnz", total)?;
        check_i32("nrows", nrows)?;
        check_i32("ncols", ncols)?;
        let mut row_ptr: Vec<i32> = zeros("row_ptr", nrows + 1)?;
        for (row, col, _) in self.iter() {
            row_ptr[row as usize] += 1;
            if mirrored && row != col {
                row_ptr[col as usize] += 1;
            }
        }
        // Counts become row starts, which advance to the row ends while the rows are filled.
        let mut start = 0;
        for slot in &mut row_ptr {
            start += std::mem::replace(slot, start);
        }
        let mut col_idx: Vec<i32> = zeros("col_idx", total)?;
        let mut values: Vec<f64> = zeros("values", total)?;
        for block in self.blocks {
            let mut place = |row: i32, col: i32, value: f64| {
                let slot = &mut row_ptr[row as usize];
                col_idx[*slot as usize] = col;
                values[*slot as usize] = value;
                *slot += 1;
            };
            for (row, col, value) in block {
                place(row, col, value);
                if mirrored && row != col {
                    place(col, row, sign * value);
                }
            }
        }
        row_ptr.copy_within(0..nrows, 1);
        row_ptr[0] = 0;
        sort_and_sum(&mut row_ptr, &mut col_idx, &mut values);
        let pattern = CsrPattern::new_unvalidated(ncols, row_ptr, col_idx);
        Matrix::from_parts(Arc::new(pattern), values)
    }
}

/// Sorts each row by column and sums duplicates in their order.
///
/// Rows that ascend already (files sorted by column, as those of SuiteSparse are) are not sorted
/// again. Extra memory: 16 bytes per entry of the longest row that is sorted.
pub(super) fn sort_and_sum(row_ptr: &mut [i32], col_idx: &mut Vec<i32>, values: &mut Vec<f64>) {
    let (mut keys, mut row_values): (Vec<u64>, Vec<f64>) = (Vec::new(), Vec::new());
    let (mut begin, mut written) = (0, 0);
    for end in &mut row_ptr[1..] {
        let row = begin..*end as usize;
        begin = row.end;
        if col_idx[row.clone()].is_sorted_by(|a, b| a < b) {
            let length = row.len();
            if written != row.start {
                col_idx.copy_within(row.clone(), written);
                values.copy_within(row, written);
            }
            written += length;
        } else {
            // The key is the column, then the position, which keeps equal columns in order.
            keys.clear();
            keys.extend(
                (0u64..).zip(&col_idx[row.clone()]).map(|(k, &col)| (col as u64) << 32 | k),
            );
            keys.sort_unstable();
            row_values.clear();
            row_values.extend_from_slice(&values[row]);
            let row_start = written;
            for &key in &keys {
                let (col, value) = ((key >> 32) as i32, row_values[key as u32 as usize]);
                if written > row_start && col_idx[written - 1] == col {
                    values[written - 1] += value;
                } else {
                    (col_idx[written], values[written]) = (col, value);
                    written += 1;
                }
            }
        }
        *end = written as i32;
    }
    if written < col_idx.len() {
        col_idx.truncate(written);
        col_idx.shrink_to_fit();
        values.truncate(written);
        values.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_summed_in_their_order() {
        let mut triplets = Triplets::default();
        // In this order the sum is 1; summed from the right it is 0.
        for value in [1e20, -1e20, 1.0] {
            triplets.push(0, 1, value).unwrap();
        }
        triplets.push(0, 0, 7.0).unwrap();

        let a = triplets.into_csr(1, 2, MarketSymmetry::General).unwrap();

        assert_eq!(a.col_idx(), [0, 1]);
        assert_eq!(a.values(), [7.0, 1.0]);
    }

    #[test]
    fn rows_after_a_summed_one_move_up() {
        let mut triplets = Triplets::default();
        for (row, col) in [(2, 0), (0, 1), (2, 1), (0, 1), (1, 0)] {
            triplets.push(row, col, 1.0).unwrap();
        }

        let a = triplets.into_csr(3, 2, MarketSymmetry::General).unwrap();

        assert_eq!(a.row_ptr(), [0, 1, 2, 4]);
        assert_eq!(a.col_idx(), [1, 0, 0, 1]);
        assert_eq!(a.values(), [2.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn many_duplicates_are_summed_before_the_matrix_is_built() {
        let fill = |triplets: &mut Triplets| {
            for k in 0..BLOCK as i32 + 9 {
                triplets.push(k % 2, 1, if k < 6 { 1e16 } else { 1.0 }).unwrap();
            }
        };
        let (mut all, mut compacted) = (Triplets::default(), Triplets::default());
        for _ in 0..2 {
            fill(&mut all);
            fill(&mut compacted);
            compacted.compact(2, 2).unwrap();
            assert_eq!(compacted.len(), 2);
        }

        let compacted = compacted.into_csr(2, 2, MarketSymmetry::General).unwrap();

        // The same sums in the same order: 1 beside 1e16 is lost.
        assert_eq!(compacted, all.into_csr(2, 2, MarketSymmetry::General).unwrap());
        assert!(compacted.values()[0] < 6e16 + 9.0);
    }

    #[test]
    fn blocks_keep_the_order() {
        let mut triplets = Triplets::default();
        let count = 2 * BLOCK as i32 + 5;
        for k in 0..count {
            triplets.push(0, count - 1 - k, f64::from(k)).unwrap();
        }

        let a = triplets.into_csr(1, count as usize, MarketSymmetry::General).unwrap();

        assert_eq!(a.nnz(), count as usize);
        assert_eq!(a.values()[0], f64::from(count - 1));
        assert_eq!(a.values()[count as usize - 1], 0.0);
    }
}
