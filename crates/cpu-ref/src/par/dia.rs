//! DIA: blocks of rows, diagonal after diagonal; and the block-major copy that plans keep.

use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_formats::convert::{DiaOptions, dia_pattern};
use sparsebatch_formats::{CsrPattern, DiaPattern, Pattern, Scalar, View};

use super::chunks::Cuts;
use super::multi::{Product, RowKernel, apply_rows};
use super::{ParSpmv, Schedule};
use crate::CpuError;
use crate::seq::axpby;
use crate::simd::spmv::{AHEAD, SpmvIsa, advise_huge_pages, prefetch};

/// How a DIA product is shared between threads.
#[derive(Clone, Debug)]
pub struct DiaAnalysis(Cuts);

impl ParSpmv for DiaPattern {
    type Analysis = DiaAnalysis;

    fn analyse(pattern: &Self, _: Schedule) -> Result<DiaAnalysis, CpuError> {
        Ok(DiaAnalysis(cuts(pattern)))
    }

    fn analysis_bytes(analysis: &DiaAnalysis) -> usize {
        analysis.0.bytes()
    }

    fn apply<T: Scalar, const R: usize>(
        analysis: &DiaAnalysis,
        alpha: T,
        a: View<'_, Self, T>,
        xs: [&[T]; R],
        beta: T,
        ys: [&mut [T]; R],
    ) {
        let kernel = DiaRows { pattern: a.pattern(), values: a.values(), by_blocks: false };
        apply_rows(&kernel, &analysis.0, alpha, xs, beta, ys);
    }
}

fn cuts(pattern: &DiaPattern) -> Cuts {
    Cuts::equal(pattern.nrows(), BLOCK, pattern.diag_offsets().len())
}

/// Rows per block of the block-major copy: a diagonal's share of a block is one page of f64.
pub(crate) const BLOCK: usize = 512;

struct DiaRows<'a, T> {
    pattern: &'a DiaPattern,
    values: &'a [T],
    /// `false`: slot `r` of diagonal `d` is at `d * nrows + r`. `true`: values are in blocks of
    /// [`BLOCK`] rows, diagonal after diagonal within a block.
    by_blocks: bool,
}

impl<T: Scalar> RowKernel<T> for DiaRows<'_, T> {
    #[inline(always)]
    fn rows<I: SpmvIsa, const R: usize>(
        &self,
        rows: Range<usize>,
        alpha: T,
        xs: [&[T]; R],
        beta: T,
        mut ys: [&mut [T]; R],
    ) {
        let (nrows, offsets) = (self.pattern.nrows(), self.pattern.diag_offsets());
        let mut sums = [[T::ZERO; BLOCK]; R];
        for begin in rows.clone().step_by(BLOCK) {
            let len = BLOCK.min(rows.end - begin);
            let (first, stride) =
                if self.by_blocks { (begin * offsets.len(), len) } else { (begin, nrows) };
            for sums in &mut sums {
                sums[..len].fill(T::ZERO);
            }
            for (d, &offset) in offsets.iter().enumerate() {
                let inside = self.pattern.rows(d);
                let low = inside.start.clamp(begin, begin + len);
                let high = inside.end.clamp(low, begin + len);
                let values = &self.values[first + d * stride..][..len];
                let values = &values[low - begin..high - begin];
                let col = if low < high { (low as i64 + i64::from(offset)) as usize } else { 0 };
                for (sums, x) in sums.iter_mut().zip(xs) {
                    let x = &x[col..col + values.len()];
                    let sums = &mut sums[low - begin..high - begin];
                    match self.pattern.mask(d) {
                        None => add_products::<I, T>(values, x, sums),
                        Some(mask) => add_entries::<I, T>(mask, low, values, x, sums),
                    }
                }
            }
            for (y, sums) in ys.iter_mut().zip(&sums) {
                let y = &mut y[begin - rows.start..][..len];
                for (y, &sum) in y.iter_mut().zip(sums) {
                    *y = axpby(alpha, sum, beta, *y);
                }
            }
        }
    }
}

/// `sums[i] += values[i] * x[i]` where bit `first + i` of the mask is set.
#[inline(always)]
fn add_entries<I: SpmvIsa, T: Scalar>(
    mask: &[u64],
    first: usize,
    values: &[T],
    x: &[T],
    sums: &mut [T],
) {
    let len = values.len();
    // The mask bits from `at` to the end of the word or of the rows, and their number.
    let bits_at = |at: usize| {
        let (word, bit) = ((first + at) / 64, (first + at) % 64);
        let count = (64 - bit).min(len - at);
        (mask[word] >> bit & u64::MAX >> (64 - count), count)
    };
    let is_full = |(bits, count): (u64, usize)| bits == u64::MAX >> (64 - count);
    let mut at = 0;
    while at < len {
        let (bits, count) = bits_at(at);
        let mut end = at + count;
        if is_full((bits, count)) {
            // Consecutive full words form one run.
            while end < len && is_full(bits_at(end)) {
                end += bits_at(end).1;
            }
            add_products::<I, T>(&values[at..end], &x[at..end], &mut sums[at..end]);
        } else if bits != 0 {
            let products = values[at..end].iter().zip(&x[at..end]);
            for (i, (sum, (&value, &x))) in sums[at..end].iter_mut().zip(products).enumerate() {
                let added = I::mul_add(value, x, *sum);
                *sum = if bits >> i & 1 == 1 { added } else { *sum };
            }
        }
        at = end;
    }
}

/// `sums[i] += values[i] * x[i]`, with prefetches of the values.
#[inline(always)]
fn add_products<I: SpmvIsa, T: Scalar>(values: &[T], x: &[T], sums: &mut [T]) {
    let (values_by_8, values_rest) = values.as_chunks::<8>();
    let (x_by_8, x_rest) = x.as_chunks::<8>();
    let (sums_by_8, sums_rest) = sums.as_chunks_mut::<8>();
    let products = values_by_8.iter().zip(x_by_8);
    for (i, (sums, (value, x))) in sums_by_8.iter_mut().zip(products).enumerate() {
        prefetch(values_by_8, i + AHEAD / size_of::<[T; 8]>());
        for lane in 0..8 {
            sums[lane] = I::mul_add(value[lane], x[lane], sums[lane]);
        }
    }
    for (sum, (&value, &x)) in sums_rest.iter_mut().zip(values_rest.iter().zip(x_rest)) {
        *sum = I::mul_add(value, x, *sum);
    }
}

/// A DIA matrix whose values are stored in blocks of [`BLOCK`] rows, diagonal after diagonal
/// within a block, so that a product reads them as one stream.
#[derive(Clone, Debug)]
pub(crate) struct DiaBlocks<T> {
    pattern: DiaPattern,
    values: Vec<T>,
    cuts: Cuts,
}

impl<T: Scalar> DiaBlocks<T> {
    /// The layout of a CSR pattern, all values 0.
    ///
    /// # Errors
    /// [`CpuError::Format`] when the diagonals exceed the limit of the options or 32 bits.
    pub(crate) fn new(csr: &CsrPattern, options: &DiaOptions) -> Result<Self, CpuError> {
        let pattern = dia_pattern(csr.view(), options)?;
        let values = vec![T::ZERO; pattern.stored_len()];
        advise_huge_pages(&values);
        Ok(Self { values, cuts: cuts(&pattern), pattern })
    }

    /// Replaces the values, given in the order of the CSR pattern.
    pub(crate) fn set_values(&mut self, csr: &CsrPattern, values: &[T]) {
        let offsets = self.pattern.diag_offsets();
        if offsets.is_empty() {
            return;
        }
        let csr = csr.view();
        let blocks = self.values.par_chunks_mut(BLOCK * offsets.len());
        blocks.enumerate().for_each(|(block, slots)| {
            let len = slots.len() / offsets.len();
            slots.fill(T::ZERO);
            for i in 0..len {
                let row = block * BLOCK + i;
                let mut d = 0;
                for k in csr.row(row) {
                    let offset = csr.col_idx()[k] - row as i32;
                    while offsets[d] != offset {
                        d += 1;
                    }
                    slots[d * len + i] = values[k];
                }
            }
        });
    }

    /// Value slots, fill included.
    pub(crate) fn stored_len(&self) -> usize {
        self.values.len()
    }

    /// Bytes of values and offsets.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.values.as_slice()) + self.pattern.index_bytes() + self.cuts.bytes()
    }
}

impl<T: Scalar> Product<T> for DiaBlocks<T> {
    fn shape(&self) -> (usize, usize) {
        (self.pattern.nrows(), self.pattern.ncols())
    }

    fn apply<const R: usize>(&self, alpha: T, xs: [&[T]; R], beta: T, ys: [&mut [T]; R]) {
        let kernel = DiaRows { pattern: &self.pattern, values: &self.values, by_blocks: true };
        apply_rows(&kernel, &self.cuts, alpha, xs, beta, ys);
    }
}
