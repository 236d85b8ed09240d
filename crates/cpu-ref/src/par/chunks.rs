//! Cutting a product into chunks that depend on the matrix alone, and running them on all cores.

use std::ops::Range;

/// Work units (entries plus rows) of a chunk: about 10 to 20 microseconds on one core. This is long
/// compared with handing a chunk to another thread, short compared with a product worth sharing.
pub(crate) const GRAIN: usize = 1 << 15;

/// Maximum number of parts of a balanced split, so that the carried sums fit on the stack.
pub(super) const MAX_PARTS: usize = 256;

/// Row starts of the chunks: `cuts[i]..cuts[i + 1]` are the rows of chunk `i`. Never empty; one
/// chunk for a matrix too small to share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cuts(Vec<usize>);

impl Cuts {
    /// Cuts `nrows` rows into chunks of about [`GRAIN`] work units, where `work_before(row)` is
    /// the work of all rows before `row`, ascending. Cuts fall on multiples of `align`.
    pub(super) fn balanced(
        nrows: usize,
        align: usize,
        work_before: impl Fn(usize) -> usize,
    ) -> Self {
        let total = work_before(nrows);
        let nchunks = (total / GRAIN).clamp(1, nrows.div_ceil(align).max(1));
        let mut cuts = vec![0];
        for chunk in 1..nchunks {
            // In 128 bits: chunk * total may exceed 64.
            let target = (chunk as u128 * total as u128 / nchunks as u128) as usize;
            let row = partition_point(0..nrows, |row| work_before(row) < target);
            let row = (row / align * align).min(nrows);
            if row > cuts[cuts.len() - 1] {
                cuts.push(row);
            }
        }
        if nrows > cuts[cuts.len() - 1] || nrows == 0 {
            cuts.push(nrows);
        }
        Self(cuts)
    }

    /// Cuts rows of equal work.
    pub(super) fn equal(nrows: usize, align: usize, work_per_row: usize) -> Self {
        Self::balanced(nrows, align, |row| row * (work_per_row + 1))
    }

    /// The cuts: the first is 0, the last the number of rows.
    pub(super) fn as_slice(&self) -> &[usize] {
        &self.0
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.0.as_slice())
    }

    /// Cuts at the given rows.
    pub(super) fn at(cuts: Vec<usize>) -> Self {
        debug_assert!(cuts.len() >= 2 && cuts[0] == 0 && cuts.is_sorted());
        Self(cuts)
    }

    /// Number of chunks.
    pub(super) fn len(&self) -> usize {
        self.0.len() - 1
    }
}

/// The first index of the range for which `before` is false.
pub(super) fn partition_point(range: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Splits every right-hand side's part of `y` at the same place.
#[inline]
pub(super) fn split_at<T, const R: usize>(
    ys: [&mut [T]; R],
    at: usize,
) -> ([&mut [T]; R], [&mut [T]; R]) {
    let mut heads = std::array::from_fn(|_| <&mut [T]>::default());
    let mut tails = std::array::from_fn(|_| <&mut [T]>::default());
    for (i, y) in ys.into_iter().enumerate() {
        (heads[i], tails[i]) = y.split_at_mut(at);
    }
    (heads, tails)
}

/// Calls `f(chunk, part)` for each chunk on all cores, where `part` holds
/// `cuts[chunk]..cuts[chunk + 1]` (times `scale`) of each array of `ys`. The arrays of `ys` start
/// at `cuts[0]`, which may be any number. Allocates nothing.
pub(super) fn for_each_chunk<T, F, const R: usize>(
    cuts: &[usize],
    scale: usize,
    ys: [&mut [T]; R],
    f: &F,
) where
    T: Send,
    F: Fn(usize, [&mut [T]; R]) + Sync,
{
    recurse(0, cuts, scale, ys, f);
}

fn recurse<T, F, const R: usize>(
    first: usize,
    cuts: &[usize],
    scale: usize,
    ys: [&mut [T]; R],
    f: &F,
) where
    T: Send,
    F: Fn(usize, [&mut [T]; R]) + Sync,
{
    let nchunks = cuts.len() - 1;
    if nchunks <= 1 {
        if nchunks == 1 {
            f(first, ys);
        }
        return;
    }
    let middle = nchunks / 2;
    let (left, right) = split_at(ys, (cuts[middle] - cuts[0]) * scale);
    rayon::join(
        || recurse(first, &cuts[..=middle], scale, left, f),
        || recurse(first + middle, &cuts[middle..], scale, right, f),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_cover_all_rows_and_keep_the_alignment() {
        for nrows in [0, 1, 7, 8, 9, 100_000] {
            let cuts = Cuts::equal(nrows, 8, 5);

            assert_eq!(cuts.as_slice()[0], 0);
            assert_eq!(cuts.as_slice()[cuts.len()], nrows);
            let inner = &cuts.as_slice()[1..cuts.len()];
            assert!(inner.iter().all(|cut| cut % 8 == 0));
        }
    }

    #[test]
    fn cuts_isolate_a_heavy_row() {
        // Row 3 alone holds a million work units.
        let work = |row: usize| row + if row > 3 { 1_000_000 } else { 0 };

        let cuts = Cuts::balanced(8, 1, work);

        assert_eq!(cuts.as_slice(), [0, 4, 8]);
    }

    #[test]
    fn chunks_see_their_part_of_every_right_hand_side() {
        let (mut a, mut b) = ([0; 10], [0; 10]);

        for_each_chunk(&[0, 3, 4, 10], 1, [&mut a, &mut b], &|chunk, ys: [&mut [i32]; 2]| {
            for y in ys {
                y.fill(chunk as i32);
            }
        });

        assert_eq!(a, [0, 0, 0, 1, 2, 2, 2, 2, 2, 2]);
        assert_eq!(a, b);
    }
}
