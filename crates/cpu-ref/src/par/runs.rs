//! Slices of 8 rows in which a slot whose 8 columns are consecutive stores its first column only.
//!
//! In a stencil numbered along a line nearly every slot is such a run: the index traffic falls
//! from 4 bytes an entry to half a byte, and 8 entries of `x` come with one vector load.

use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_formats::convert::{FromCsr, SellPOptions};
use sparsebatch_formats::{CsrPattern, CsrPatternRef, PADDING, Pattern, Scalar, SellPPattern};

use super::chunks::Cuts;
use super::multi::{Product, RowKernel, apply_rows};
use crate::CpuError;
use crate::seq::axpby;
use crate::simd::spmv::{AHEAD, SpmvIsa, advise_huge_pages, prefetch};

/// Rows of a slice.
pub(crate) const LANES: usize = 8;

/// SELL-P with `b = 8`, `t = 1`, no sorting, and compressed columns.
#[derive(Clone, Debug)]
pub(crate) struct SellRuns<T> {
    nrows: usize,
    ncols: usize,
    /// First slot of each slice.
    slice_ptr: Vec<u32>,
    /// For each slot the first column of its run, or `!i` when the slot's columns are `cols[i]`.
    first_col: Vec<i32>,
    cols: Vec<[i32; LANES]>,
    values: Vec<[T; LANES]>,
    cuts: Cuts,
}

/// The columns of slot `slot` of a slice, [`PADDING`] where a row has none.
fn slot_cols(csr: CsrPatternRef<'_>, slice: usize, slot: usize) -> [i32; LANES] {
    std::array::from_fn(|lane| {
        let row = slice * LANES + lane;
        if row >= csr.nrows() {
            return PADDING;
        }
        let entries = csr.row(row);
        if slot < entries.len() { csr.col_idx()[entries.start + slot] } else { PADDING }
    })
}

fn is_run(cols: &[i32; LANES]) -> bool {
    cols[0] >= 0 && (0..LANES).all(|lane| cols[lane] == cols[0] + lane as i32)
}

fn width(csr: CsrPatternRef<'_>, slice: usize) -> usize {
    let rows = slice * LANES..((slice + 1) * LANES).min(csr.nrows());
    rows.map(|row| csr.row(row).len()).max().unwrap_or(0)
}

/// Number of slots (of 8 rows) and of runs among them, for the choice of a format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunStats {
    pub(crate) slots: usize,
    pub(crate) runs: usize,
}

impl RunStats {
    pub(crate) fn of(csr: CsrPatternRef<'_>) -> Self {
        let mut stats = Self::default();
        for slice in 0..csr.nrows().div_ceil(LANES) {
            let width = width(csr, slice);
            stats.slots += width;
            stats.runs += (0..width).filter(|&slot| is_run(&slot_cols(csr, slice, slot))).count();
        }
        stats
    }
}

impl<T: Scalar> SellRuns<T> {
    /// The layout of a CSR pattern, all values 0.
    ///
    /// # Errors
    /// [`CpuError::Format`] when padding would give more than `max_fill` slots per entry, or more
    /// slots than 32 bits count.
    pub(crate) fn new(csr: &CsrPattern, max_fill: f64) -> Result<Self, CpuError> {
        let view = csr.view();
        let nslices = view.nrows().div_ceil(LANES);
        let options = SellPOptions::default()
            .slice_size(LANES)
            .threads_per_row(1)
            .sort_window(None)
            .max_fill(max_fill);
        let total = SellPPattern::size_from_csr(view, &options)?.stored_len / LANES;
        let mut slice_ptr = Vec::with_capacity(nslices + 1);
        let mut first_col = Vec::with_capacity(total);
        let mut cols = Vec::new();
        slice_ptr.push(0);
        for slice in 0..nslices {
            for slot in 0..width(view, slice) {
                let slot_cols = slot_cols(view, slice, slot);
                if is_run(&slot_cols) {
                    first_col.push(slot_cols[0]);
                } else {
                    first_col.push(!(cols.len() as i32));
                    cols.push(slot_cols);
                }
            }
            slice_ptr.push(first_col.len() as u32);
        }
        let cuts = Cuts::balanced(view.nrows(), LANES, |row| {
            slice_ptr[row.div_ceil(LANES)] as usize * LANES + row
        });
        let values = vec![[T::ZERO; LANES]; total];
        advise_huge_pages(&values);
        Ok(Self {
            nrows: view.nrows(),
            ncols: view.ncols(),
            slice_ptr,
            first_col,
            cols,
            values,
            cuts,
        })
    }

    /// Replaces the values, given in the order of the CSR pattern.
    pub(crate) fn set_values(&mut self, csr: &CsrPattern, values: &[T]) {
        let csr = csr.view();
        let slice_ptr = &self.slice_ptr;
        // Slices have different widths, so the slots of each chunk are split off by hand.
        let cuts = self.cuts.as_slice();
        let mut pieces = Vec::with_capacity(self.cuts.len());
        let mut rest = self.values.as_mut_slice();
        for chunk in cuts.windows(2) {
            let slices = chunk[0] / LANES..chunk[1].div_ceil(LANES);
            let slots = slice_ptr[slices.end] - slice_ptr[slices.start];
            let (piece, tail) = std::mem::take(&mut rest).split_at_mut(slots as usize);
            pieces.push((slices, piece));
            rest = tail;
        }
        pieces.into_par_iter().for_each(|(slices, piece)| {
            let base = slice_ptr[slices.start];
            for slice in slices {
                let slots = &mut piece[(slice_ptr[slice] - base) as usize..];
                let rows = slice * LANES..((slice + 1) * LANES).min(csr.nrows());
                for (lane, row) in rows.enumerate() {
                    for (slot, k) in slots.iter_mut().zip(csr.row(row)) {
                        slot[lane] = values[k];
                    }
                }
            }
        });
    }

    /// Value slots, padding included.
    pub(crate) fn stored_len(&self) -> usize {
        self.values.len() * LANES
    }

    /// Bytes of values and indices.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.values.as_slice())
            + size_of_val(self.cols.as_slice())
            + 4 * (self.first_col.len() + self.slice_ptr.len())
            + self.cuts.bytes()
    }
}

impl<T: Scalar> Product<T> for SellRuns<T> {
    fn shape(&self) -> (usize, usize) {
        (self.nrows, self.ncols)
    }

    fn apply<const R: usize>(&self, alpha: T, xs: [&[T]; R], beta: T, ys: [&mut [T]; R]) {
        apply_rows(self, &self.cuts, alpha, xs, beta, ys);
    }
}

impl<T: Scalar> RowKernel<T> for SellRuns<T> {
    #[inline(always)]
    fn rows<I: SpmvIsa, const R: usize>(
        &self,
        rows: Range<usize>,
        alpha: T,
        xs: [&[T]; R],
        beta: T,
        mut ys: [&mut [T]; R],
    ) {
        for begin in rows.clone().step_by(LANES) {
            let slice = begin / LANES;
            let slots = self.slice_ptr[slice] as usize..self.slice_ptr[slice + 1] as usize;
            let values = &self.values[slots.clone()];
            let first_col = &self.first_col[slots.clone()];
            let mut sums = [[T::ZERO; LANES]; R];
            for (k, (value, &first)) in values.iter().zip(first_col).enumerate() {
                prefetch(&self.values, slots.start + k + AHEAD / size_of::<[T; LANES]>());
                if first >= 0 {
                    for (sums, x) in sums.iter_mut().zip(xs) {
                        let x: &[T; LANES] = x[first as usize..]
                            .first_chunk()
                            .expect("a run ends inside the matrix");
                        for lane in 0..LANES {
                            sums[lane] = I::mul_add(value[lane], x[lane], sums[lane]);
                        }
                    }
                } else {
                    let cols = &self.cols[!first as usize];
                    for (sums, x) in sums.iter_mut().zip(xs) {
                        for lane in 0..LANES {
                            // A padding slot's column, -1, lies outside every vector.
                            if let Some(&x) = x.get(cols[lane] as usize) {
                                sums[lane] = I::mul_add(value[lane], x, sums[lane]);
                            }
                        }
                    }
                }
            }
            let len = LANES.min(rows.end - begin);
            for (y, sums) in ys.iter_mut().zip(&sums) {
                let y = &mut y[begin - rows.start..][..len];
                for (y, &sum) in y.iter_mut().zip(sums) {
                    *y = axpby(alpha, sum, beta, *y);
                }
            }
        }
    }
}
