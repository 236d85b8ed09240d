//! Uniform batches with interleaved values and vectors: equal entries of all items are adjacent, so
//! that one pass over the pattern serves a whole vector register of items.

use std::ops::Range;

use sparsebatch_formats::{
    CooPattern, CsrPattern, CsrPatternRef, DiaPattern, EllPattern, HybPattern, PADDING, Pattern,
    Scalar, SellPPattern,
};

use super::ParSpmv;
use super::chunks::{Cuts, for_each_chunk};
use super::multi::Product;
use crate::seq::axpby;
use crate::simd::spmv::{Leaf, SpmvIsa, dispatch};

/// A format whose entries can be visited row by row.
pub(crate) trait RowEntries: ParSpmv {
    /// Index for finding a row's entries where the pattern has none: row starts (COO, HYB), or
    /// positions of rows in the slices (SELL-P). Empty for the other formats.
    fn row_index(pattern: Self::Ref<'_>) -> Vec<u32>;

    /// The pattern as CSR, where it is: then one loop multiplies many small items.
    fn as_csr(_: Self::Ref<'_>) -> Option<CsrPatternRef<'_>> {
        None
    }

    /// Calls `f(slot, col)` for each multiplied slot of a row, in the order of the row's sum.
    fn for_row(pattern: Self::Ref<'_>, index: &[u32], row: usize, f: impl FnMut(usize, usize));
}

impl RowEntries for CsrPattern {
    fn as_csr(pattern: Self::Ref<'_>) -> Option<CsrPatternRef<'_>> {
        Some(pattern)
    }

    fn row_index(_: Self::Ref<'_>) -> Vec<u32> {
        Vec::new()
    }

    #[inline(always)]
    fn for_row(pattern: Self::Ref<'_>, _: &[u32], row: usize, mut f: impl FnMut(usize, usize)) {
        for k in pattern.row(row) {
            f(k, pattern.col_idx()[k] as usize);
        }
    }
}

/// CSR row starts of a COO pattern, whose entries are row-major.
fn row_starts(pattern: &CooPattern) -> Vec<u32> {
    let mut starts = vec![0; pattern.nrows() + 1];
    for &row in pattern.row_idx() {
        starts[row as usize + 1] += 1;
    }
    for row in 0..pattern.nrows() {
        starts[row + 1] += starts[row];
    }
    starts
}

impl RowEntries for CooPattern {
    fn row_index(pattern: &Self) -> Vec<u32> {
        row_starts(pattern)
    }

    #[inline(always)]
    fn for_row(pattern: &Self, starts: &[u32], row: usize, mut f: impl FnMut(usize, usize)) {
        for k in starts[row] as usize..starts[row + 1] as usize {
            f(k, pattern.col_idx()[k] as usize);
        }
    }
}

impl RowEntries for EllPattern {
    fn row_index(_: &Self) -> Vec<u32> {
        Vec::new()
    }

    #[inline(always)]
    fn for_row(pattern: &Self, _: &[u32], row: usize, mut f: impl FnMut(usize, usize)) {
        for slot in 0..pattern.width() {
            let k = slot * pattern.nrows() + row;
            if pattern.col_idx()[k] == PADDING {
                break;
            }
            f(k, pattern.col_idx()[k] as usize);
        }
    }
}

impl RowEntries for HybPattern {
    fn row_index(pattern: &Self) -> Vec<u32> {
        row_starts(pattern.coo())
    }

    #[inline(always)]
    fn for_row(pattern: &Self, starts: &[u32], row: usize, mut f: impl FnMut(usize, usize)) {
        let (ell, coo) = (pattern.ell(), pattern.coo());
        let slots = (0..ell.width()).map(|slot| {
            let k = slot * ell.nrows() + row;
            (k, ell.col_idx()[k])
        });
        let entries = starts[row] as usize..starts[row + 1] as usize;
        let rest = entries.map(|k| (ell.stored_len() + k, coo.col_idx()[k]));
        // One call site of `f`: with two, `f` would not be inlined and so not be compiled for the
        // caller's instruction set.
        for (k, col) in slots.take_while(|slot| slot.1 != PADDING).chain(rest) {
            f(k, col as usize);
        }
    }
}

impl RowEntries for DiaPattern {
    fn row_index(_: &Self) -> Vec<u32> {
        Vec::new()
    }

    #[inline(always)]
    fn for_row(pattern: &Self, _: &[u32], row: usize, mut f: impl FnMut(usize, usize)) {
        for (d, &offset) in pattern.diag_offsets().iter().enumerate() {
            if pattern.is_entry(d, row) {
                f(d * pattern.nrows() + row, (row as i64 + i64::from(offset)) as usize);
            }
        }
    }
}

impl RowEntries for SellPPattern {
    fn row_index(pattern: &Self) -> Vec<u32> {
        let mut places = vec![0; pattern.nrows()];
        for (place, &row) in (0..).zip(pattern.row_perm()) {
            places[row as usize] = place;
        }
        places
    }

    #[inline(always)]
    fn for_row(pattern: &Self, places: &[u32], row: usize, mut f: impl FnMut(usize, usize)) {
        let b = pattern.slice_size();
        let (slice, lane) = (places[row] as usize / b, places[row] as usize % b);
        let slots =
            pattern.slice_ptr()[slice] as usize + lane..pattern.slice_ptr()[slice + 1] as usize;
        for k in slots.step_by(b) {
            if pattern.col_idx()[k] == PADDING {
                break;
            }
            f(k, pattern.col_idx()[k] as usize);
        }
    }
}

/// Interleaved values, or one value set for all items.
#[derive(Clone, Copy)]
pub(crate) enum InterleavedValues<'a, T> {
    /// `values[slot * nitems + item]`.
    PerItem(&'a [T]),
    /// `values[slot]`.
    Shared(&'a [T]),
}

/// Analysis of a product in the interleaved layout.
#[derive(Clone, Debug)]
pub(crate) struct InterleavedAnalysis {
    nitems: usize,
    row_index: Vec<u32>,
    /// Items per pass over the pattern, so that their part of `x` stays in the second-level cache.
    panel: usize,
    cuts: Cuts,
}

/// Approximate number of values of `x` in a panel.
const PANEL: usize = 1 << 16;

impl InterleavedAnalysis {
    pub(crate) fn new<P: RowEntries>(pattern: P::Ref<'_>, nitems: usize) -> Self {
        let (nrows, ncols) = P::shape(pattern);
        let row_index = P::row_index(pattern);
        let panel = (PANEL / ncols.max(1)).next_multiple_of(64).min(nitems.max(1));
        let mut work = vec![0];
        let mut sum = 0;
        for row in 0..nrows {
            P::for_row(pattern, &row_index, row, |_, _| sum += panel);
            sum += panel;
            work.push(sum);
        }
        Self { nitems, panel, cuts: Cuts::balanced(nrows, 1, |row| work[row]), row_index }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        4 * self.row_index.len() + self.cuts.bytes()
    }
}

/// A uniform batch in the interleaved layout, ready to be multiplied. As a [`Product`], it has the
/// rows of one item, each `nitems` values wide.
pub(crate) struct Interleaved<'a, P: RowEntries, T> {
    pub(crate) pattern: P::Ref<'a>,
    pub(crate) values: InterleavedValues<'a, T>,
    pub(crate) analysis: &'a InterleavedAnalysis,
}

impl<P: RowEntries, T: Scalar> Product<T> for Interleaved<'_, P, T> {
    fn shape(&self) -> (usize, usize) {
        let (nrows, ncols) = P::shape(self.pattern);
        (nrows * self.analysis.nitems, ncols * self.analysis.nitems)
    }

    fn apply<const R: usize>(&self, alpha: T, xs: [&[T]; R], beta: T, mut ys: [&mut [T]; R]) {
        let nitems = self.analysis.nitems;
        let cuts = self.analysis.cuts.as_slice();
        for first in (0..nitems).step_by(self.analysis.panel) {
            let items = first..nitems.min(first + self.analysis.panel);
            let panel = ys.each_mut().map(|y| &mut **y);
            for_each_chunk(cuts, nitems, panel, &|chunk, ys: [&mut [T]; R]| {
                dispatch(PanelLeaf {
                    batch: self,
                    rows: cuts[chunk]..cuts[chunk + 1],
                    items: items.clone(),
                    alpha,
                    xs,
                    beta,
                    ys,
                });
            });
        }
    }
}

struct PanelLeaf<'p, 'a, P: RowEntries, T, const R: usize> {
    batch: &'a Interleaved<'p, P, T>,
    rows: Range<usize>,
    items: Range<usize>,
    alpha: T,
    xs: [&'a [T]; R],
    beta: T,
    ys: [&'a mut [T]; R],
}

/// Number of items whose sums are kept in registers.
const TILE: usize = 16;

impl<P: RowEntries, T: Scalar, const R: usize> Leaf for PanelLeaf<'_, '_, P, T, R> {
    #[inline(always)]
    fn run<I: SpmvIsa>(mut self) {
        let nitems = self.batch.analysis.nitems;
        for row in self.rows.clone() {
            let y = (row - self.rows.start) * nitems;
            let mut item = self.items.start;
            while item + TILE <= self.items.end {
                let mut sums = [[T::ZERO; TILE]; R];
                self.tile::<I, TILE>(row, item, &mut sums);
                self.write(y + item, &sums);
                item += TILE;
            }
            while item < self.items.end {
                let mut sums = [[T::ZERO; 1]; R];
                self.tile::<I, 1>(row, item, &mut sums);
                self.write(y + item, &sums);
                item += 1;
            }
        }
    }
}

impl<P: RowEntries, T: Scalar, const R: usize> PanelLeaf<'_, '_, P, T, R> {
    /// The sums of one row for `W` items from `item`.
    #[inline(always)]
    fn tile<I: SpmvIsa, const W: usize>(&self, row: usize, item: usize, sums: &mut [[T; W]; R]) {
        let batch = self.batch;
        let (nitems, index) = (batch.analysis.nitems, &batch.analysis.row_index);
        let mut sum = *sums;
        P::for_row(batch.pattern, index, row, |slot, col| {
            let value: [T; W] = match batch.values {
                InterleavedValues::Shared(values) => [values[slot]; W],
                InterleavedValues::PerItem(values) => *chunk(values, slot * nitems + item),
            };
            for (sum, x) in sum.iter_mut().zip(self.xs) {
                let x: &[T; W] = chunk(x, col * nitems + item);
                for i in 0..W {
                    sum[i] = I::mul_add(value[i], x[i], sum[i]);
                }
            }
        });
        *sums = sum;
    }

    #[inline(always)]
    fn write<const W: usize>(&mut self, first: usize, sums: &[[T; W]; R]) {
        for (y, sums) in self.ys.iter_mut().zip(sums) {
            for (y, &sum) in y[first..first + W].iter_mut().zip(sums) {
                *y = axpby(self.alpha, sum, self.beta, *y);
            }
        }
    }
}

#[inline(always)]
fn chunk<T, const W: usize>(data: &[T], first: usize) -> &[T; W] {
    data[first..].first_chunk().expect("a tile's items are inside the batch")
}
