//! Figures of a matrix that the choice depends on.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use rayon::prelude::*;
use sparsebatch_formats::CsrPatternRef;

use super::blocks::Blocks;
use crate::single::adaptive::BLOCK_ENTRIES;

/// Rows that a warp of the row kernels takes, and rows of a slice of `sell`.
const WARP_ROWS: usize = 32;

/// Lanes that `csr-vector` can give a row; 1 stands for `csr-scalar`.
pub const LANES: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Windows in which `sell` may sort rows by length; `None` leaves them in order.
pub const WINDOWS: [Option<usize>; 3] = [None, Some(128), Some(1024)];

/// Rows that a thread looks through at a time.
const ROWS_AT_ONCE: usize = 4096;

/// Slots, or entries per lane, in one step: the loads that the kernels have in flight at once.
const SLOTS_PER_STEP: usize = 8;
const ENTRIES_PER_STEP: usize = 4;

/// Slices of 32 rows, each as wide as its longest row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slices {
    /// Slots, padding included.
    pub slots: usize,
    /// Steps of eight slots per row, over all slices.
    pub steps: usize,
}

/// Figures of a CSR pattern. Cost: a few passes over the row pointers, and one over the columns
/// that ends as soon as there are too many diagonals for DIA.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatrixShape {
    /// Rows.
    pub nrows: usize,
    /// Columns.
    pub ncols: usize,
    /// Entries.
    pub nnz: usize,
    /// Entries of the longest row.
    pub longest: usize,
    /// The standard deviation of the row lengths.
    pub deviation: f64,
    /// Occupied diagonals; `None` if DIA would have more than twice as many slots as entries, or
    /// the columns were not looked at.
    pub ndiags: Option<usize>,
    /// Estimated number of 32-byte sectors of x that the rows of all warps gather, from a sample; 0
    /// if the columns were not looked at.
    pub sectors: f64,
    /// Slices for each of [`WINDOWS`]. `None` for sorted rows if rows in order need little padding.
    pub slices: [Option<Slices>; WINDOWS.len()],
    /// For each of [`LANES`], the steps of four entries per lane, summed over all warps: each warp
    /// takes as many as its longest row needs.
    pub steps: [usize; LANES.len()],
    /// The blocks of `csr-adaptive`, for each of their sizes.
    pub blocks: [Blocks; BLOCK_ENTRIES.len()],
}

impl MatrixShape {
    /// Computes the figures of a pattern.
    pub fn new(pattern: CsrPatternRef<'_>) -> Self {
        let by_columns = || (diagonals(pattern), sectors(pattern));
        let by_rows = || Self::of_row_ptr(pattern.row_ptr(), pattern.ncols());
        let (shape, (ndiags, sectors)) = rayon::join(by_rows, by_columns);
        Self { ndiags, sectors, ..shape }
    }

    /// The figures that row pointers alone determine.
    pub(in crate::single) fn of_row_ptr(row_ptr: &[i32], ncols: usize) -> Self {
        let lengths: Vec<u32> = row_ptr.windows(2).map(|row| (row[1] - row[0]) as u32).collect();
        let nrows = lengths.len();
        let nnz = row_ptr.last().map_or(0, |&end| end as usize);
        let mean = nnz as f64 / nrows.max(1) as f64;
        let squares: f64 = lengths.iter().map(|&length| (f64::from(length) - mean).powi(2)).sum();
        let in_order = slices(&lengths);
        // Padding of up to a twentieth is not worth sorting rows.
        let is_padded = in_order.slots > nnz + nnz / 20;
        let (mut steps_of, mut blocks) =
            ([0; LANES.len()], [Blocks::default(); BLOCK_ENTRIES.len()]);
        rayon::join(
            || {
                let lanes = steps_of.par_iter_mut().zip(LANES);
                lanes.for_each(|(found, lanes)| *found = steps(&lengths, lanes as usize));
            },
            || {
                let sizes = blocks.par_iter_mut().zip(BLOCK_ENTRIES);
                sizes.for_each(|(found, entries)| *found = Blocks::of_row_ptr(row_ptr, entries));
            },
        );
        Self {
            nrows,
            ncols,
            nnz,
            longest: lengths.iter().copied().max().unwrap_or(0) as usize,
            deviation: (squares / nrows.max(1) as f64).sqrt(),
            ndiags: None,
            sectors: 0.0,
            slices: WINDOWS.map(|window| match window {
                None => Some(in_order),
                Some(window) => is_padded.then(|| slices(&sorted(&lengths, window))),
            }),
            steps: steps_of,
            blocks,
        }
    }

    /// Entries per row.
    pub fn mean(&self) -> f64 {
        self.nnz as f64 / self.nrows.max(1) as f64
    }
}

/// The length of the longest row in each run of `rows` rows.
fn longest_of(lengths: &[u32], rows: usize) -> impl Iterator<Item = usize> {
    lengths.chunks(rows).map(|chunk| chunk.iter().copied().max().unwrap_or(0) as usize)
}

fn steps(lengths: &[u32], lanes: usize) -> usize {
    longest_of(lengths, WARP_ROWS / lanes)
        .map(|longest| longest.div_ceil(lanes * ENTRIES_PER_STEP))
        .sum()
}

fn slices(lengths: &[u32]) -> Slices {
    let mut found = Slices::default();
    for width in longest_of(lengths, WARP_ROWS) {
        found.slots += width * WARP_ROWS;
        found.steps += width.div_ceil(SLOTS_PER_STEP);
    }
    found
}

fn sorted(lengths: &[u32], window: usize) -> Vec<u32> {
    let mut sorted = lengths.to_vec();
    sorted.chunks_mut(window).for_each(<[u32]>::sort_unstable);
    sorted
}

/// Different sectors of x in each run of 32 rows, summed over the runs; an estimate from a sample
/// of runs if there are many. If the rows of a run gather more than a multiprocessor caches, they
/// share no sectors.
fn sectors(pattern: CsrPatternRef<'_>) -> f64 {
    /// Columns per sector, for doubles.
    const COLUMNS: i32 = 4;
    const SAMPLES: usize = 256;
    /// Sectors that a multiprocessor caches: 128 KiB.
    const KEPT: usize = 4096;
    let row_ptr = pattern.row_ptr();
    let runs = pattern.nrows().div_ceil(WARP_ROWS);
    let (mut found, mut looked_at) = (0, 0);
    for run in (0..runs).step_by(runs.div_ceil(SAMPLES).max(1)) {
        let (first, end) = (run * WARP_ROWS, pattern.nrows().min((run + 1) * WARP_ROWS));
        let entries = row_ptr[first] as usize..row_ptr[end] as usize;
        looked_at += entries.len();
        let distinct = |entries: std::ops::Range<usize>| {
            let columns = &pattern.col_idx()[entries];
            let mut sectors: Vec<i32> = columns.iter().map(|column| column / COLUMNS).collect();
            sectors.sort_unstable();
            sectors.dedup();
            sectors.len()
        };
        let shared = distinct(entries);
        found += match shared {
            0..=KEPT => shared,
            _ => (first..end).map(|row| distinct(pattern.row(row))).sum(),
        };
    }
    found as f64 * pattern.nnz() as f64 / looked_at.max(1) as f64
}

/// The number of occupied diagonals; `None` if there are too many for DIA.
fn diagonals(pattern: CsrPatternRef<'_>) -> Option<usize> {
    let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
    let most = (2 * pattern.nnz()).checked_div(nrows)?;
    let occupied: Vec<AtomicBool> =
        (0..nrows + ncols).into_par_iter().map(|_| AtomicBool::new(false)).collect();
    let count = AtomicUsize::new(0);
    (0..nrows).into_par_iter().with_min_len(ROWS_AT_ONCE).try_for_each(|row| {
        for &column in &pattern.col_idx()[pattern.row(row)] {
            let place = &occupied[column as usize + nrows - row];
            if !place.load(Relaxed) && !place.swap(true, Relaxed) {
                count.fetch_add(1, Relaxed);
            }
        }
        (count.load(Relaxed) <= most).then_some(())
    })?;
    Some(count.into_inner())
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::generate::{Stencil, laplace};
    use sparsebatch_formats::{Csr, Pattern};

    use super::*;

    #[test]
    fn a_stencil_has_its_diagonals_and_hardly_any_padding() {
        let a: Csr<f64> = laplace(Stencil::Point5, &[64, 64]).unwrap();

        let shape = MatrixShape::new(a.view().pattern());

        assert_eq!((shape.ndiags, shape.longest), (Some(5), 5));
        assert_eq!(
            shape.slices,
            [Some(Slices { slots: 5 * 4096 - 4 * 32, steps: 128 }), None, None]
        );
        // A row of 5 entries takes one lane two steps, and two lanes one step.
        assert_eq!(shape.steps[..2], [128 * 2 - 4, 256]);
        assert!(shape.deviation < 0.3 && shape.mean() < 5.0);
    }

    #[test]
    fn scattered_entries_are_given_up_as_diagonals() {
        let columns = (0..100).map(|row| row * 37 % 100).collect();
        let pattern =
            sparsebatch_formats::CsrPattern::try_new(100, 100, (0..=100).collect(), columns);

        let shape = MatrixShape::new(pattern.unwrap().view());

        assert_eq!(shape.ndiags, None);
    }

    #[test]
    fn sorting_gathers_long_rows() {
        let lengths: Vec<u32> = (0..1024).map(|row| if row % 32 == 0 { 16 } else { 1 }).collect();

        assert_eq!(slices(&lengths), Slices { slots: 1024 * 16, steps: 64 });
        // One slice of four is wide.
        assert_eq!(slices(&sorted(&lengths, 128)).slots, 8 * 32 * (16 + 3));
        assert_eq!(slices(&sorted(&lengths, 1024)).slots, 32 * (16 + 31));
    }

    #[test]
    fn long_rows_share_no_sectors() {
        let dense = |nrows: usize, ncols: i32| {
            let row_ptr = (0..=nrows as i32).map(|row| row * ncols).collect();
            let columns = (0..nrows).flat_map(|_| 0..ncols).collect();
            let pattern =
                sparsebatch_formats::CsrPattern::try_new(nrows, ncols as usize, row_ptr, columns);
            sectors(pattern.unwrap().view())
        };

        assert_eq!(dense(32, 400), 100.0);
        assert_eq!(dense(4, 20_000), 4.0 * 5000.0);
    }

    #[test]
    fn nothing_has_no_figures() {
        let shape = MatrixShape::of_row_ptr(&[0], 5);

        assert_eq!((shape.nrows, shape.nnz, shape.longest), (0, 0, 0));
        assert_eq!(shape.steps, [0; 6]);
    }
}
