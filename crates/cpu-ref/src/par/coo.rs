//! COO: equal parts of the entries, as in CSR-I, with the row indices read from the entries.

use std::ops::Range;

use sparsebatch_formats::{CooPattern, Scalar, View};

use super::split::BalancedSplit;
use super::{ParSpmv, Schedule};
use crate::CpuError;
use crate::simd::spmv::{Leaf, SpmvIsa, dispatch};

impl ParSpmv for CooPattern {
    type Analysis = BalancedSplit;

    fn analyse(pattern: &Self, schedule: Schedule) -> Result<BalancedSplit, CpuError> {
        let parts = match schedule {
            Schedule::Rows => None,
            Schedule::CsrI { parts } => parts,
        };
        BalancedSplit::of_coo(pattern, parts)
    }

    fn analysis_bytes(analysis: &BalancedSplit) -> usize {
        analysis.bytes()
    }

    fn apply<T: Scalar, const R: usize>(
        split: &BalancedSplit,
        alpha: T,
        a: View<'_, Self, T>,
        xs: [&[T]; R],
        beta: T,
        ys: [&mut [T]; R],
    ) {
        apply_entries(split, alpha, a.pattern(), a.values(), xs, beta, ys);
    }
}

/// The product of COO entries, alone or as the second part of a HYB matrix.
pub(super) fn apply_entries<T: Scalar, const R: usize>(
    split: &BalancedSplit,
    alpha: T,
    pattern: &CooPattern,
    values: &[T],
    xs: [&[T]; R],
    beta: T,
    ys: [&mut [T]; R],
) {
    split.run(alpha, ys, &|p, ys: [&mut [T]; R], carried| {
        dispatch(CooPart { split, p, pattern, values, alpha, xs, beta, ys, carried });
    });
}

struct CooPart<'a, T, const R: usize> {
    split: &'a BalancedSplit,
    p: usize,
    pattern: &'a CooPattern,
    values: &'a [T],
    alpha: T,
    xs: [&'a [T]; R],
    beta: T,
    ys: [&'a mut [T]; R],
    carried: &'a mut [T; R],
}

impl<T: Scalar, const R: usize> Leaf for CooPart<'_, T, R> {
    #[inline(always)]
    fn run<I: SpmvIsa>(mut self) {
        let carried = self.split.carried_entries(self.p);
        for k in carried.clone() {
            for (sum, x) in self.carried.iter_mut().zip(self.xs) {
                let col = self.pattern.col_idx()[k] as usize;
                *sum = I::mul_add(self.values[k], x[col], *sum);
            }
        }
        let own = carried.end..self.split.entries(self.p).end;
        scale(self.beta, &mut self.ys);
        self.sum_rows::<I>(own);
    }
}

/// `y = beta*y`, without reading y when `beta` is 0.
#[inline(always)]
fn scale<T: Scalar, const R: usize>(beta: T, ys: &mut [&mut [T]; R]) {
    if beta == T::ONE {
        return;
    }
    for y in ys {
        if beta == T::ZERO {
            y.fill(T::ZERO);
        } else {
            y.iter_mut().for_each(|y| *y = beta * *y);
        }
    }
}

impl<T: Scalar, const R: usize> CooPart<'_, T, R> {
    /// Adds `alpha` times the sums of the rows that begin in this part to the scaled `ys`.
    #[inline(always)]
    fn sum_rows<I: SpmvIsa>(&mut self, own: Range<usize>) {
        let first_row = self.split.first_row()[self.p];
        let rows = &self.pattern.row_idx()[own.clone()];
        let cols = &self.pattern.col_idx()[own.clone()];
        let values = &self.values[own];
        let mut k = 0;
        while k < rows.len() {
            let row = rows[k];
            let mut sums = [T::ZERO; R];
            while k < rows.len() && rows[k] == row {
                for (sum, x) in sums.iter_mut().zip(self.xs) {
                    *sum = I::mul_add(values[k], x[cols[k] as usize], *sum);
                }
                k += 1;
            }
            for (y, sum) in self.ys.iter_mut().zip(sums) {
                y[row as usize - first_row] += self.alpha * sum;
            }
        }
    }
}
