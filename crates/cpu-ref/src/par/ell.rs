//! ELL: blocks of rows, slot column by slot column; a block's sums stay in the first-level cache.

use std::ops::Range;

use sparsebatch_formats::{EllPattern, Pattern, Scalar, View};

use super::chunks::Cuts;
use super::multi::{RowKernel, apply_rows};
use super::{ParSpmv, Schedule};
use crate::CpuError;
use crate::seq::axpby;
use crate::simd::spmv::SpmvIsa;

/// How an ELL product is shared between threads.
#[derive(Clone, Debug)]
pub struct EllAnalysis(pub(super) Cuts);

impl ParSpmv for EllPattern {
    type Analysis = EllAnalysis;

    fn analyse(pattern: &Self, _: Schedule) -> Result<EllAnalysis, CpuError> {
        Ok(EllAnalysis(Cuts::equal(pattern.nrows(), BLOCK, pattern.width())))
    }

    fn analysis_bytes(analysis: &EllAnalysis) -> usize {
        analysis.0.bytes()
    }

    fn apply<T: Scalar, const R: usize>(
        analysis: &EllAnalysis,
        alpha: T,
        a: View<'_, Self, T>,
        xs: [&[T]; R],
        beta: T,
        ys: [&mut [T]; R],
    ) {
        let kernel = EllRows { pattern: a.pattern(), values: a.values() };
        apply_rows(&kernel, &analysis.0, alpha, xs, beta, ys);
    }
}

/// Rows per block; their sums take 2 KiB of f64 per right-hand side.
const BLOCK: usize = 256;

/// An ELL matrix, alone or as the first part of a HYB matrix.
pub(super) struct EllRows<'a, T> {
    pub(super) pattern: &'a EllPattern,
    pub(super) values: &'a [T],
}

impl<T: Scalar> RowKernel<T> for EllRows<'_, T> {
    #[inline(always)]
    fn rows<I: SpmvIsa, const R: usize>(
        &self,
        rows: Range<usize>,
        alpha: T,
        xs: [&[T]; R],
        beta: T,
        mut ys: [&mut [T]; R],
    ) {
        let mut sums = [[T::ZERO; BLOCK]; R];
        for begin in rows.clone().step_by(BLOCK) {
            let len = BLOCK.min(rows.end - begin);
            for sums in &mut sums {
                sums[..len].fill(T::ZERO);
            }
            for slot in 0..self.pattern.width() {
                let k = slot * self.pattern.nrows() + begin;
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
                let y = &mut y[begin - rows.start..][..len];
                for (y, &sum) in y.iter_mut().zip(sums) {
                    *y = axpby(alpha, sum, beta, *y);
                }
            }
        }
    }
}
