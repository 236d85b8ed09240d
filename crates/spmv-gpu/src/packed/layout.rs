//! How one pattern is packed.
//!
//! Rows are cut into segments of at most `cut` entries. Segments, longest first, fill slices of
//! [`SLICE`]; a slice has the length of its longest segment, and its slots are stored step by step,
//! one slot of each segment, so that 32 threads read consecutive memory. After: Anzt, Tomov and
//! Dongarra 2014 (SELL-P), Kreutzer et al. 2014 (sorting), with the cut in place of the window.

use sparsebatch_formats::CsrPatternRef;

/// Segments per slice: the threads of a warp.
pub(super) const SLICE: usize = 32;

/// The source of a slot that holds no entry.
pub(super) const PADDING: u32 = u32::MAX;

/// The sums of segments have places other than their order.
pub(super) const SUMS_ARE_PLACED: u32 = 1;
/// Rows have any number of segments, not one each.
pub(super) const ROWS_ARE_CUT: u32 = 2;

/// One packed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackedPattern {
    pub(super) nrows: usize,
    pub(super) ncols: usize,
    pub(super) nsegments: usize,
    /// Longest segment allowed.
    pub(super) cut: usize,
    pub(super) flags: u32,
    /// First slot of each slice, and the number of slots.
    pub(super) slices: Vec<u32>,
    /// Column of each slot; `ncols` in padding.
    pub(super) columns: Vec<u16>,
    /// Entry of each slot in CSR order, or [`PADDING`].
    pub(super) source: Vec<u32>,
    /// Place of each segment's sum, in packed order, where they are placed; then the first sum of
    /// each row and the number of sums, where rows are cut.
    pub(super) index: Vec<u16>,
}

/// A segment: a row's entries `start..start + len`.
#[derive(Clone, Copy)]
struct Segment {
    start: u32,
    len: u32,
}

/// Whether a pattern's columns and segments can be counted in 16 bits.
pub(super) fn fits(pattern: CsrPatternRef<'_>) -> bool {
    pattern.ncols() < usize::from(u16::MAX) && pattern.nrows() < usize::from(u16::MAX)
}

impl PackedPattern {
    /// Packs a pattern, which [`fits`], for values of `value_bytes`, with the cut that makes the
    /// product read least.
    pub(super) fn new(pattern: CsrPatternRef<'_>, value_bytes: usize) -> Self {
        let lengths: Vec<usize> = (0..pattern.nrows()).map(|row| pattern.row(row).len()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0).max(1);
        let mean = pattern.nnz().div_ceil(pattern.nrows().max(1)).max(1);
        let quarters = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32].map(|quarters| mean * quarters / 4);
        let cuts = (1..=8).chain(quarters).chain([longest]);
        let cut = (cuts.filter(|&cut| cut > 0 && cut <= longest && cut <= MAX_CUT.max(mean)))
            .min_by_key(|&cut| cost(&lengths, cut, value_bytes))
            .unwrap_or(MAX_CUT.min(longest));
        Self::with_cut(pattern, &lengths, cut)
    }

    fn with_cut(pattern: CsrPatternRef<'_>, lengths: &[usize], cut: usize) -> Self {
        // Rows without entries have no segments, so that no slice is empty.
        let rows_are_cut = lengths.iter().any(|&len| len > cut || len == 0);
        let mut segments = Vec::with_capacity(pattern.nrows());
        let mut row_starts = Vec::new();
        for row in 0..pattern.nrows() {
            let entries = pattern.row(row);
            if rows_are_cut {
                row_starts.push(segments.len() as u16);
            }
            if !rows_are_cut {
                segments.push(Segment { start: entries.start as u32, len: entries.len() as u32 });
                continue;
            }
            let mut start = entries.start;
            while start < entries.end {
                let len = cut.min(entries.end - start);
                segments.push(Segment { start: start as u32, len: len as u32 });
                start += len;
            }
        }
        if rows_are_cut {
            row_starts.push(segments.len() as u16);
        }
        // Longest first; equal ones in their order.
        let mut order: Vec<u32> = (0..segments.len() as u32).collect();
        order.sort_by_key(|&s| std::cmp::Reverse(segments[s as usize].len));
        let placed = order.windows(2).any(|pair| pair[0] > pair[1]);

        let mut packed = Self {
            nrows: pattern.nrows(),
            ncols: pattern.ncols(),
            nsegments: segments.len(),
            cut,
            flags: u32::from(placed) * SUMS_ARE_PLACED + u32::from(rows_are_cut) * ROWS_ARE_CUT,
            slices: vec![0],
            columns: Vec::new(),
            source: Vec::new(),
            index: if placed { order.iter().map(|&s| s as u16).collect() } else { Vec::new() },
        };
        packed.index.extend(row_starts);
        let cols = pattern.col_idx();
        for slice in order.chunks(SLICE) {
            let steps = segments[slice[0] as usize].len;
            for step in 0..steps {
                for lane in 0..SLICE {
                    let segment = slice.get(lane).map(|&s| segments[s as usize]);
                    let entry = segment.filter(|s| step < s.len).map(|s| s.start + step);
                    packed.source.push(entry.unwrap_or(PADDING));
                    packed.columns.push(match entry {
                        Some(k) => cols[k as usize] as u16,
                        None => pattern.ncols() as u16,
                    });
                }
            }
            packed.slices.push(packed.source.len() as u32);
        }
        packed
    }

    /// Slots, padding included.
    pub(super) fn nslots(&self) -> usize {
        self.source.len()
    }

    /// Values that a product holds in shared memory: x, a zero, and the sums.
    pub(super) fn shared_values(&self) -> usize {
        self.ncols + 1 + self.nsegments
    }
}

/// Longer segments leave the threads of other slices waiting.
const MAX_CUT: usize = 256;

/// What a sum in shared memory costs, in bytes read.
const SUM_BYTES: usize = 4;

/// Bytes that a product reads of the matrix, cut so, and what its sums cost besides.
fn cost(lengths: &[usize], cut: usize, value_bytes: usize) -> usize {
    let mut count = vec![0usize; cut + 1];
    let mut nsegments = 0;
    for &len in lengths {
        count[cut] += len / cut;
        nsegments += len.div_ceil(cut);
        if len % cut != 0 {
            count[len % cut] += 1;
        }
    }
    let mut slots = 0;
    // Segments so far in the slice that is being filled.
    let mut filled = 0;
    for len in (1..=cut).rev() {
        let mut left = count[len];
        if filled > 0 {
            let taken = left.min(SLICE - filled);
            (filled, left) = ((filled + taken) % SLICE, left - taken);
        }
        slots += left.div_ceil(SLICE) * SLICE * len;
        filled = if left > 0 { left % SLICE } else { filled };
    }
    let rows_are_cut = lengths.iter().any(|&len| len > cut || len == 0);
    slots * (value_bytes + 2)
        + (2 + SUM_BYTES) * nsegments
        + if rows_are_cut { 2 * lengths.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sparsebatch_formats::Csr;
    use sparsebatch_formats::testing::csr_integers;

    fn check(a: &Csr<f64>, cut: Option<usize>) {
        let pattern = a.view().pattern();
        let lengths: Vec<usize> = (0..a.nrows()).map(|row| pattern.row(row).len()).collect();
        let packed = match cut {
            Some(cut) => PackedPattern::with_cut(pattern, &lengths, cut),
            None => PackedPattern::new(pattern, 8),
        };
        // Every entry has one slot, with its column; the rest is padding.
        let mut seen = vec![0; a.nnz()];
        for (&source, &column) in packed.source.iter().zip(&packed.columns) {
            if source == PADDING {
                assert_eq!(usize::from(column), a.ncols());
            } else {
                seen[source as usize] += 1;
                assert_eq!(i32::from(column), pattern.col_idx()[source as usize]);
            }
        }
        assert!(seen.iter().all(|&times| times == 1));
        assert_eq!(packed.slices.len(), packed.nsegments.div_ceil(SLICE) + 1);
        assert_eq!(*packed.slices.last().unwrap() as usize, packed.nslots());
        let placed = packed.flags & SUMS_ARE_PLACED != 0;
        let cut_rows = packed.flags & ROWS_ARE_CUT != 0;
        assert_eq!(
            packed.index.len(),
            usize::from(placed) * packed.nsegments + usize::from(cut_rows) * (a.nrows() + 1)
        );
        let read = packed.nslots() * 10
            + (2 + SUM_BYTES) * packed.nsegments
            + if cut_rows { 2 * a.nrows() } else { 0 };
        assert_eq!(cost(&lengths, packed.cut, 8), read);
        assert!(packed.slices.windows(2).all(|slice| slice[0] < slice[1]), "an empty slice");
    }

    proptest! {
        #[test]
        fn every_entry_has_one_slot(a in csr_integers::<f64>(90, 70), cut in 1usize..40) {
            check(&a, None);
            check(&a, Some(cut));
        }
    }

    #[test]
    fn a_long_row_among_short_ones_is_cut() {
        let n = 200;
        let row = |r: usize| if r == 7 { (0..n).collect() } else { vec![r] };
        let mut row_ptr = vec![0];
        let mut col_idx = Vec::new();
        for r in 0..n {
            col_idx.extend(row(r).into_iter().map(|c| c as i32));
            row_ptr.push(col_idx.len() as i32);
        }
        let values = vec![1.0; col_idx.len()];
        let a = Csr::try_new(n, n, row_ptr, col_idx, values).unwrap();

        let packed = PackedPattern::new(a.view().pattern(), 8);

        assert!(packed.flags & ROWS_ARE_CUT != 0);
        assert!(packed.nslots() < 2 * a.nnz(), "{} slots", packed.nslots());
    }
}
