//! CSR by rows and CSR-I.

use std::ops::Range;

use sparsebatch_formats::{CsrPattern, CsrPatternRef, Scalar, View};

use super::chunks::{Cuts, split_at};
use super::multi::{RowKernel, apply_rows};
use super::split::BalancedSplit;
use super::{ParSpmv, Schedule};
use crate::CpuError;
use crate::seq::axpby;
use crate::simd::spmv::{AHEAD, Leaf, SpmvIsa, Unfetched, dispatch};

/// How a CSR product is shared between threads.
#[derive(Clone, Debug)]
pub struct CsrAnalysis(CsrSchedule);

#[derive(Clone, Debug)]
enum CsrSchedule {
    Rows(Cuts),
    CsrI(BalancedSplit),
}

impl CsrAnalysis {
    /// The start rows, when the schedule is CSR-I.
    pub fn split(&self) -> Option<&BalancedSplit> {
        match &self.0 {
            CsrSchedule::Rows(_) => None,
            CsrSchedule::CsrI(split) => Some(split),
        }
    }
}

impl ParSpmv for CsrPattern {
    type Analysis = CsrAnalysis;

    fn analyse(pattern: CsrPatternRef<'_>, schedule: Schedule) -> Result<CsrAnalysis, CpuError> {
        let ptr = pattern.row_ptr();
        Ok(CsrAnalysis(match schedule {
            Schedule::Rows => {
                CsrSchedule::Rows(Cuts::balanced(pattern.nrows(), 1, |row| ptr[row] as usize + row))
            }
            Schedule::CsrI { parts } => CsrSchedule::CsrI(BalancedSplit::of_csr(pattern, parts)?),
        }))
    }

    fn analysis_bytes(analysis: &CsrAnalysis) -> usize {
        match &analysis.0 {
            CsrSchedule::Rows(cuts) => cuts.bytes(),
            CsrSchedule::CsrI(split) => split.bytes(),
        }
    }

    fn apply<T: Scalar, const R: usize>(
        analysis: &CsrAnalysis,
        alpha: T,
        a: View<'_, Self, T>,
        xs: [&[T]; R],
        beta: T,
        ys: [&mut [T]; R],
    ) {
        match &analysis.0 {
            CsrSchedule::Rows(cuts) => apply_rows(&a, cuts, alpha, xs, beta, ys),
            CsrSchedule::CsrI(split) => split.run(alpha, ys, &|p, ys: [&mut [T]; R], carried| {
                dispatch(CsrPart { split, p, a, alpha, xs, beta, ys, carried });
            }),
        }
    }
}

/// One part of a CSR-I product.
struct CsrPart<'v, 'a, T: Scalar, const R: usize> {
    split: &'a BalancedSplit,
    p: usize,
    a: View<'v, CsrPattern, T>,
    alpha: T,
    xs: [&'a [T]; R],
    beta: T,
    ys: [&'a mut [T]; R],
    carried: &'a mut [T; R],
}

impl<T: Scalar, const R: usize> Leaf for CsrPart<'_, '_, T, R> {
    #[inline(always)]
    fn run<I: SpmvIsa>(self) {
        let (a, p) = (self.a, self.p);
        *self.carried = row_sum::<I, T, R>(&a, self.split.carried_entries(p), self.xs);
        let (first, end) = (self.split.first_row()[p], self.split.first_row()[p + 1]);
        let Some(last) = end.checked_sub(1).filter(|&last| last >= first) else {
            return;
        };
        // All rows but the last end inside the part.
        let (whole, straddling) = split_at(self.ys, last - first);
        a.rows::<I, R>(first..last, self.alpha, self.xs, self.beta, whole);
        let row = a.pattern().row(last);
        let inside = row.start..row.end.min(self.split.entries(p).end);
        let sums = row_sum::<I, T, R>(&a, inside, self.xs);
        for (y, sum) in straddling.into_iter().zip(sums) {
            y[0] = axpby(self.alpha, sum, self.beta, y[0]);
        }
    }
}

/// Rows of at most this many entries are summed in order by one chain of additions; longer rows
/// by four chains.
const SHORT: usize = 9;

/// A column index as a product reads it.
pub(super) trait Column: Copy + Send + Sync {
    fn index(self) -> usize;
}

impl Column for i32 {
    #[inline(always)]
    fn index(self) -> usize {
        self as usize
    }
}

impl Column for u16 {
    #[inline(always)]
    fn index(self) -> usize {
        self.into()
    }
}

/// The sum of `values[k] * x[col_idx[k]]` over `entries` of one row, for each right-hand side.
/// The order of the additions depends on the number of entries alone.
#[inline(always)]
fn row_sum<I: SpmvIsa, T: Scalar, const R: usize>(
    a: &View<'_, CsrPattern, T>,
    entries: Range<usize>,
    xs: [&[T]; R],
) -> [T; R] {
    sum_of::<I, T, i32, R>(&a.values()[entries.clone()], &a.pattern().col_idx()[entries], xs)
}

/// [`row_sum`] of the entries given.
#[inline(always)]
pub(super) fn sum_of<I: SpmvIsa, T: Scalar, C: Column, const R: usize>(
    values: &[T],
    cols: &[C],
    xs: [&[T]; R],
) -> [T; R] {
    let mut sums = [T::ZERO; R];
    if values.len() <= SHORT {
        for (&value, &col) in values.iter().zip(cols) {
            for (sum, x) in sums.iter_mut().zip(xs) {
                *sum = I::mul_add(value, x[col.index()], *sum);
            }
        }
        return sums;
    }
    let (values4, values_rest) = values.as_chunks::<4>();
    let (cols4, cols_rest) = cols.as_chunks::<4>();
    for (sum, partial) in sums.iter_mut().zip(four_sums::<I, T, C, R>(values4, cols4, xs)) {
        *sum = (partial[0] + partial[2]) + (partial[1] + partial[3]);
    }
    for (&value, &col) in values_rest.iter().zip(cols_rest) {
        for (sum, x) in sums.iter_mut().zip(xs) {
            *sum = I::mul_add(value, x[col.index()], *sum);
        }
    }
    sums
}

/// Every fourth product belongs to the same sum.
#[inline(always)]
fn four_sums<I: SpmvIsa, T: Scalar, C: Column, const R: usize>(
    values: &[[T; 4]],
    cols: &[[C; 4]],
    xs: [&[T]; R],
) -> [[T; 4]; R] {
    let prefetch = |i: usize| {
        if i.is_multiple_of(2) {
            I::prefetch(values, i + AHEAD / size_of::<[T; 4]>());
            I::prefetch(cols, i + AHEAD / size_of::<[C; 4]>());
        }
    };
    if R == 1 {
        // As below, in a form that the compiler keeps in registers.
        let (x, mut one) = (xs[0], [T::ZERO; 4]);
        for (i, (value, col)) in values.iter().zip(cols).enumerate() {
            prefetch(i);
            let operand = col.map(|col| x[col.index()]);
            for lane in 0..4 {
                one[lane] = I::mul_add(value[lane], operand[lane], one[lane]);
            }
        }
        return [one; R];
    }
    let mut partial = [[T::ZERO; 4]; R];
    for (i, (value, col)) in values.iter().zip(cols).enumerate() {
        prefetch(i);
        for (partial, x) in partial.iter_mut().zip(xs) {
            for lane in 0..4 {
                partial[lane] = I::mul_add(value[lane], x[col[lane].index()], partial[lane]);
            }
        }
    }
    partial
}

impl<T: Scalar> RowKernel<T> for View<'_, CsrPattern, T> {
    #[inline(always)]
    fn rows<I: SpmvIsa, const R: usize>(
        &self,
        rows: Range<usize>,
        alpha: T,
        xs: [&[T]; R],
        beta: T,
        ys: [&mut [T]; R],
    ) {
        let ptr = &self.pattern().row_ptr()[rows.start..=rows.end];
        let entries = (self.values(), self.pattern().col_idx());
        grouped_rows::<I, T, i32, R>(ptr, entries, alpha, xs, beta, ys);
    }
}

/// Multiplies consecutive rows of a large matrix, whose entries begin at `ptr`. Groups rows of
/// equal length; the lengths that occur in stencils and finite elements get a loop of constant
/// length.
#[inline(always)]
pub(super) fn grouped_rows<I: SpmvIsa, T: Scalar, C: Column, const R: usize>(
    ptr: &[i32],
    (values, cols): (&[T], &[C]),
    alpha: T,
    xs: [&[T]; R],
    beta: T,
    mut ys: [&mut [T]; R],
) {
    let nrows = ptr.len() - 1;
    let mut row = 0;
    while row < nrows {
        let len = ptr[row + 1] - ptr[row];
        let mut end = row + 1;
        while end < nrows && ptr[end + 1] - ptr[end] == len {
            end += 1;
        }
        let all = (values, cols, ptr[row] as usize);
        let group = ys.each_mut().map(|y| &mut y[row..end]);
        // With several right-hand sides, the shared loads of a row make constant lengths
        // needless.
        match if R == 1 { len } else { i32::MAX } {
            1 => fixed::<I, T, C, R, 1>(all, alpha, xs, beta, group),
            2 => fixed::<I, T, C, R, 2>(all, alpha, xs, beta, group),
            3 => fixed::<I, T, C, R, 3>(all, alpha, xs, beta, group),
            4 => fixed::<I, T, C, R, 4>(all, alpha, xs, beta, group),
            5 => fixed::<I, T, C, R, 5>(all, alpha, xs, beta, group),
            6 => fixed::<I, T, C, R, 6>(all, alpha, xs, beta, group),
            7 => fixed::<I, T, C, R, 7>(all, alpha, xs, beta, group),
            8 => fixed::<I, T, C, R, 8>(all, alpha, xs, beta, group),
            9 => fixed::<I, T, C, R, 9>(all, alpha, xs, beta, group),
            27 => fixed::<I, T, C, R, 27>(all, alpha, xs, beta, group),
            _ => {
                let mut group = group;
                for i in 0..end - row {
                    let entries = ptr[row + i] as usize..ptr[row + i + 1] as usize;
                    I::prefetch(values, entries.end + AHEAD / size_of::<T>());
                    I::prefetch(cols, entries.end + AHEAD / size_of::<C>());
                    let sums = sum_of::<I, T, C, R>(&values[entries.clone()], &cols[entries], xs);
                    for (y, sum) in group.iter_mut().zip(sums) {
                        y[i] = axpby(alpha, sum, beta, y[i]);
                    }
                }
            }
        }
        row = end;
    }
}

/// Multiplies consecutive rows of `L` entries each, the first at entry `start`. The order of
/// additions is that of [`sum_of`].
#[inline(always)]
fn fixed<I: SpmvIsa, T: Scalar, C: Column, const R: usize, const L: usize>(
    (values, cols, start): (&[T], &[C], usize),
    alpha: T,
    xs: [&[T]; R],
    beta: T,
    mut ys: [&mut [T]; R],
) {
    let nrows = ys[0].len();
    let entries = start..start + nrows * L;
    let (of_rows, _) = values[entries.clone()].as_chunks::<L>();
    let (cols_of_rows, _) = cols[entries].as_chunks::<L>();
    for (row, (value, col)) in of_rows.iter().zip(cols_of_rows).enumerate() {
        I::prefetch(values, start + row * L + AHEAD / size_of::<T>());
        I::prefetch(cols, start + row * L + AHEAD / size_of::<C>());
        let sums = if L > SHORT {
            sum_of::<Unfetched<I>, T, C, R>(value, col, xs)
        } else {
            let mut sums = [T::ZERO; R];
            for i in 0..L {
                for (sum, x) in sums.iter_mut().zip(xs) {
                    *sum = I::mul_add(value[i], x[col[i].index()], *sum);
                }
            }
            sums
        };
        for (y, sum) in ys.iter_mut().zip(sums) {
            y[row] = axpby(alpha, sum, beta, y[row]);
        }
    }
}
