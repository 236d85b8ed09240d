//! Multicore products of SELL-P matrices, slice by slice. The copy that plans keep, slices of 8
//! rows with one column per run, is in `runs.rs`.

use std::ops::Range;

use sparsebatch_formats::{Pattern, Scalar, SellPPattern, View};

use super::chunks::{Cuts, GRAIN};
use super::multi::{RowKernel, apply_rows};
use super::{ParSpmv, Schedule};
use crate::CpuError;
use crate::seq::axpby;
use crate::simd::spmv::SpmvIsa;

/// How a SELL-P product is shared between threads.
#[derive(Clone, Debug)]
pub struct SellPAnalysis {
    cuts: Cuts,
    /// Position of each row in the slices, if the rows are permuted so widely that chunks cannot
    /// consist of slices; empty otherwise.
    places: Vec<u32>,
}

impl ParSpmv for SellPPattern {
    type Analysis = SellPAnalysis;

    /// A chunk may end where the rows so far are `0..k` in some order; sorting in windows leaves
    /// such an end after every window. If such ends are too rare, rows are computed one by one.
    fn analyse(pattern: &Self, _: Schedule) -> Result<SellPAnalysis, CpuError> {
        let (nrows, b) = (pattern.nrows(), pattern.slice_size());
        let work = |place: usize| pattern.slice_ptr()[place.div_ceil(b)] as usize + place;
        let (mut cuts, mut highest, mut longest) = (vec![0], -1, 0);
        for (slice, rows) in pattern.row_perm().chunks(b).enumerate() {
            highest = rows.iter().copied().fold(highest, i32::max);
            let end = slice * b + rows.len();
            let since = work(end) - work(cuts[cuts.len() - 1]);
            if highest as usize + 1 == end && (since >= GRAIN || end == nrows) {
                cuts.push(end);
                longest = longest.max(since);
            }
        }
        if nrows == 0 {
            cuts.push(0);
        }
        if longest <= 16 * GRAIN {
            return Ok(SellPAnalysis { cuts: Cuts::at(cuts), places: Vec::new() });
        }
        let mut places = vec![0; nrows];
        for (place, &row) in (0..).zip(pattern.row_perm()) {
            places[row as usize] = place;
        }
        let mean = pattern.nnz() / nrows;
        Ok(SellPAnalysis { cuts: Cuts::equal(nrows, 1, mean), places })
    }

    fn analysis_bytes(analysis: &SellPAnalysis) -> usize {
        analysis.cuts.bytes() + 4 * analysis.places.len()
    }

    fn apply<T: Scalar, const R: usize>(
        analysis: &SellPAnalysis,
        alpha: T,
        a: View<'_, Self, T>,
        xs: [&[T]; R],
        beta: T,
        ys: [&mut [T]; R],
    ) {
        let (pattern, values) = (a.pattern(), a.values());
        let cuts = &analysis.cuts;
        if analysis.places.is_empty() {
            let kernel = Slices { pattern, values };
            apply_rows(&kernel, cuts, alpha, xs, beta, ys);
        } else {
            let places = &analysis.places;
            let kernel = ScatteredRows { pattern, values, places };
            apply_rows(&kernel, cuts, alpha, xs, beta, ys);
        }
    }
}

/// Number of rows of a slice that are summed together.
const LANES: usize = 64;

struct Slices<'a, T> {
    pattern: &'a SellPPattern,
    values: &'a [T],
}

impl<T: Scalar> RowKernel<T> for Slices<'_, T> {
    #[inline(always)]
    fn rows<I: SpmvIsa, const R: usize>(
        &self,
        rows: Range<usize>,
        alpha: T,
        xs: [&[T]; R],
        beta: T,
        mut ys: [&mut [T]; R],
    ) {
        let b = self.pattern.slice_size();
        let mut sums = [[T::ZERO; LANES]; R];
        for begin in rows.clone().step_by(b) {
            let slice = begin / b;
            let slots = self.pattern.slice_ptr()[slice] as usize
                ..self.pattern.slice_ptr()[slice + 1] as usize;
            let end = (begin + b).min(rows.end);
            for place in (begin..end).step_by(LANES) {
                let len = LANES.min(end - place);
                for sums in &mut sums {
                    sums[..len].fill(T::ZERO);
                }
                for k in slots.clone().step_by(b) {
                    let k = k + place - begin;
                    let cols = &self.pattern.col_idx()[k..k + len];
                    let values = &self.values[k..k + len];
                    for (i, (&col, &value)) in cols.iter().zip(values).enumerate() {
                        for (sums, x) in sums.iter_mut().zip(xs) {
                            // A padding slot's column, -1, lies outside every vector.
                            if let Some(&x) = x.get(col as usize) {
                                sums[i] = I::mul_add(value, x, sums[i]);
                            }
                        }
                    }
                }
                for (y, sums) in ys.iter_mut().zip(&sums) {
                    let perm = &self.pattern.row_perm()[place..place + len];
                    for (&row, &sum) in perm.iter().zip(sums) {
                        let y = &mut y[row as usize - rows.start];
                        *y = axpby(alpha, sum, beta, *y);
                    }
                }
            }
        }
    }
}

/// Computes rows one by one at their permuted positions, in the order of additions of [`Slices`].
struct ScatteredRows<'a, T> {
    pattern: &'a SellPPattern,
    values: &'a [T],
    places: &'a [u32],
}

impl<T: Scalar> RowKernel<T> for ScatteredRows<'_, T> {
    #[inline(always)]
    fn rows<I: SpmvIsa, const R: usize>(
        &self,
        rows: Range<usize>,
        alpha: T,
        xs: [&[T]; R],
        beta: T,
        mut ys: [&mut [T]; R],
    ) {
        let b = self.pattern.slice_size();
        for (i, &place) in self.places[rows].iter().enumerate() {
            let (slice, lane) = (place as usize / b, place as usize % b);
            let begin = self.pattern.slice_ptr()[slice] as usize + lane;
            let end = self.pattern.slice_ptr()[slice + 1] as usize;
            let mut sums = [T::ZERO; R];
            for k in (begin..end).step_by(b) {
                let col = self.pattern.col_idx()[k] as usize;
                for (sum, x) in sums.iter_mut().zip(xs) {
                    if let Some(&x) = x.get(col) {
                        *sum = I::mul_add(self.values[k], x, *sum);
                    }
                }
            }
            for (y, sum) in ys.iter_mut().zip(sums) {
                y[i] = axpby(alpha, sum, beta, y[i]);
            }
        }
    }
}
