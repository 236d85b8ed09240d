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

/// One packed pattern: of a system, or of several side by side, whose columns and segments follow
/// each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackedPattern {
    pub(super) nrows: usize,
    pub(super) ncols: usize,
    pub(super) nnz: usize,
    pub(super) nsegments: usize,
    pub(super) flags: u32,
    /// Column of each slot; `ncols` in padding.
    pub(super) columns: Vec<u16>,
    /// Entry of each slot in CSR order, or [`PADDING`].
    pub(super) source: Vec<u32>,
    /// Where each slice ends, in steps of [`SLICE`] slots; the place of each segment's sum, in packed
    /// order, where they are placed; the first sum of each row and the number of sums, where rows
    /// are cut; zeros up to a multiple of 8.
    pub(super) index: Vec<u16>,
}

/// A segment: entries `start..start + len` of the systems packed together.
#[derive(Clone, Copy)]
struct Segment {
    start: u32,
    len: u32,
}

impl PackedPattern {
    /// Packs patterns side by side for values of `value_bytes`, the rows of each cut so that its
    /// product by itself reads least. `None` when 16 bits do not count the columns, segments or
    /// steps.
    pub(super) fn new(patterns: &[CsrPatternRef<'_>], value_bytes: usize) -> Option<Self> {
        Self::with_cuts(patterns, |pattern, lengths| best_cut(pattern, lengths, value_bytes))
    }

    fn with_cuts(
        patterns: &[CsrPatternRef<'_>],
        cut_of: impl Fn(CsrPatternRef<'_>, &[usize]) -> usize,
    ) -> Option<Self> {
        let (mut segments, mut row_starts, mut cols) = (Vec::new(), Vec::new(), Vec::new());
        let (mut nrows, mut ncols, mut nnz) = (0, 0, 0);
        let mut rows_are_cut = false;
        for &pattern in patterns {
            let lengths: Vec<usize> =
                (0..pattern.nrows()).map(|row| pattern.row(row).len()).collect();
            let cut = cut_of(pattern, &lengths);
            // Rows without entries have no segments, so that no slice is empty.
            rows_are_cut |= lengths.iter().any(|&len| len > cut || len == 0);
            for row in 0..pattern.nrows() {
                let entries = pattern.row(row);
                row_starts.push(segments.len() as u32);
                for start in entries.clone().step_by(cut) {
                    segments.push(Segment {
                        start: (nnz + start) as u32,
                        len: cut.min(entries.end - start) as u32,
                    });
                }
            }
            cols.extend(pattern.col_idx().iter().map(|&col| col as u32 + ncols as u32));
            nrows += pattern.nrows();
            ncols += pattern.ncols();
            nnz += pattern.nnz();
        }
        row_starts.push(segments.len() as u32);
        if ncols.max(segments.len()) >= usize::from(u16::MAX) {
            return None;
        }
        // Longest first; equal ones in their order.
        let mut order: Vec<u32> = (0..segments.len() as u32).collect();
        order.sort_by_key(|&s| std::cmp::Reverse(segments[s as usize].len));
        let placed = order.windows(2).any(|pair| pair[0] > pair[1]);
        let steps = |slice: &[u32]| segments[slice[0] as usize].len as usize;
        let nsteps: usize = order.chunks(SLICE).map(steps).sum();
        if nsteps > usize::from(u16::MAX) {
            return None;
        }

        let mut packed = Self {
            nrows,
            ncols,
            nnz,
            nsegments: segments.len(),
            flags: u32::from(placed) * SUMS_ARE_PLACED + u32::from(rows_are_cut) * ROWS_ARE_CUT,
            columns: Vec::with_capacity(nsteps * SLICE),
            source: Vec::with_capacity(nsteps * SLICE),
            index: Vec::new(),
        };
        for slice in order.chunks(SLICE) {
            for step in 0..steps(slice) as u32 {
                for lane in 0..SLICE {
                    let segment = slice.get(lane).map(|&s| segments[s as usize]);
                    let entry = segment.filter(|s| step < s.len).map(|s| s.start + step);
                    packed.source.push(entry.unwrap_or(PADDING));
                    let column = entry.map_or(ncols as u32, |entry| cols[entry as usize]);
                    packed.columns.push(column as u16);
                }
            }
            packed.index.push((packed.source.len() / SLICE) as u16);
        }
        if placed {
            packed.index.extend(order.iter().map(|&s| s as u16));
        }
        if rows_are_cut {
            packed.index.extend(row_starts.iter().map(|&s| s as u16));
        }
        packed.index.resize(packed.index.len().next_multiple_of(INDEX_ALIGNMENT), 0);
        Some(packed)
    }

    /// Slots, padding included.
    pub(super) fn nslots(&self) -> usize {
        self.source.len()
    }

    /// Whether rows have any number of segments.
    pub(super) fn is_cut(&self) -> bool {
        self.flags & ROWS_ARE_CUT != 0
    }

    /// Where each slice ends, in steps.
    pub(super) fn ends(&self) -> &[u16] {
        &self.index[..self.nsegments.div_ceil(SLICE)]
    }
}

/// The index of a pattern has a multiple of so many entries: 16 bytes.
const INDEX_ALIGNMENT: usize = 8;

/// The cut with which the rows of a system read least.
fn best_cut(pattern: CsrPatternRef<'_>, lengths: &[usize], value_bytes: usize) -> usize {
    let longest = lengths.iter().copied().max().unwrap_or(0).max(1);
    let mean = pattern.nnz().div_ceil(pattern.nrows().max(1)).max(1);
    let quarters = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32].map(|quarters| mean * quarters / 4);
    let cuts = (1..=8).chain(quarters).chain([longest]);
    (cuts.filter(|&cut| cut > 0 && cut <= longest && cut <= MAX_CUT.max(mean)))
        .min_by_key(|&cut| cost(lengths, cut, value_bytes))
        .unwrap_or(MAX_CUT.min(longest))
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

    fn check(parts: &[Csr<f64>], cut: Option<usize>) {
        let patterns: Vec<_> = parts.iter().map(|a| a.view().pattern()).collect();
        let packed = match cut {
            Some(cut) => PackedPattern::with_cuts(&patterns, |_, _| cut),
            None => PackedPattern::new(&patterns, 8),
        };
        let packed = packed.unwrap();
        let mut columns = Vec::new();
        let mut ncols = 0;
        for pattern in &patterns {
            columns.extend(pattern.col_idx().iter().map(|&col| col + ncols));
            ncols += pattern.ncols() as i32;
        }
        // Every entry has one slot, with its column; the rest is padding.
        let mut seen = vec![0; columns.len()];
        for (&source, &column) in packed.source.iter().zip(&packed.columns) {
            if source == PADDING {
                assert_eq!(i32::from(column), ncols);
            } else {
                seen[source as usize] += 1;
                assert_eq!(i32::from(column), columns[source as usize]);
            }
        }
        assert!(seen.iter().all(|&times| times == 1));
        let last = packed.ends().last().copied().unwrap_or(0);
        assert_eq!(usize::from(last) * SLICE, packed.nslots());
        assert!(packed.ends().is_sorted_by(|a, b| a < b), "an empty slice");
        let placed = packed.flags & SUMS_ARE_PLACED != 0;
        let cut_rows = packed.flags & ROWS_ARE_CUT != 0;
        let used = packed.ends().len()
            + usize::from(placed) * packed.nsegments
            + usize::from(cut_rows) * (packed.nrows + 1);
        assert_eq!(packed.index.len(), used.next_multiple_of(INDEX_ALIGNMENT));
        if let ([pattern], Some(cut)) = (patterns.as_slice(), cut) {
            let lengths: Vec<usize> = (0..packed.nrows).map(|r| pattern.row(r).len()).collect();
            let read = packed.nslots() * 10
                + (2 + SUM_BYTES) * packed.nsegments
                + if cut_rows { 2 * packed.nrows } else { 0 };
            assert_eq!(cost(&lengths, cut, 8), read);
        }
    }

    proptest! {
        #[test]
        fn every_entry_has_one_slot(
            parts in proptest::collection::vec(csr_integers::<f64>(90, 70), 1..4),
            cut in 1usize..40,
        ) {
            check(&parts, None);
            check(&parts, Some(cut));
            check(&parts[..1], Some(cut));
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

        let packed = PackedPattern::new(&[a.view().pattern()], 8).unwrap();

        assert!(packed.flags & ROWS_ARE_CUT != 0);
        assert!(packed.nslots() < 2 * a.nnz(), "{} slots", packed.nslots());
    }
}
