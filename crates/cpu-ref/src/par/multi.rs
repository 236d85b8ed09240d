//! Builds products with any number of right-hand sides from inner loops over chunks of rows.

use std::ops::Range;

use sparsebatch_formats::{Scalar, View};

use super::ParSpmv;
use super::chunks::{Cuts, for_each_chunk};
use crate::simd::spmv::{Leaf, SpmvIsa, dispatch};

/// The inner loop of a format whose rows can be computed independently.
pub(super) trait RowKernel<T: Scalar>: Sync {
    /// `ys[j] = alpha*A[rows]*xs[j] + beta*ys[j]`; `ys` hold the chunk's rows only. Inlined into
    /// code for the instruction set `I`.
    fn rows<I: SpmvIsa, const R: usize>(
        &self,
        rows: Range<usize>,
        alpha: T,
        xs: [&[T]; R],
        beta: T,
        ys: [&mut [T]; R],
    );
}

struct RowsLeaf<'a, K, T, const R: usize> {
    kernel: &'a K,
    rows: Range<usize>,
    alpha: T,
    xs: [&'a [T]; R],
    beta: T,
    ys: [&'a mut [T]; R],
}

impl<K: RowKernel<T>, T: Scalar, const R: usize> Leaf for RowsLeaf<'_, K, T, R> {
    #[inline(always)]
    fn run<I: SpmvIsa>(self) {
        self.kernel.rows::<I, R>(self.rows, self.alpha, self.xs, self.beta, self.ys);
    }
}

/// Runs a row kernel chunk by chunk on all cores.
pub(super) fn apply_rows<K: RowKernel<T>, T: Scalar, const R: usize>(
    kernel: &K,
    cuts: &Cuts,
    alpha: T,
    xs: [&[T]; R],
    beta: T,
    ys: [&mut [T]; R],
) {
    let cuts = cuts.as_slice();
    for_each_chunk(cuts, 1, ys, &|chunk, ys: [&mut [T]; R]| {
        dispatch(RowsLeaf { kernel, rows: cuts[chunk]..cuts[chunk + 1], alpha, xs, beta, ys });
    });
}

/// A matrix that is ready to be multiplied.
pub(crate) trait Product<T: Scalar> {
    /// Rows and columns.
    fn shape(&self) -> (usize, usize);

    /// `ys[j] = alpha*A*xs[j] + beta*ys[j]`.
    fn apply<const R: usize>(&self, alpha: T, xs: [&[T]; R], beta: T, ys: [&mut [T]; R]);

    /// Applies [`Product::apply`] to `nrhs` right-hand sides, stored one after the other in `x` and
    /// `y`, in groups of four, two or one. The grouping changes no result.
    #[inline(always)]
    fn apply_all(&self, alpha: T, nrhs: usize, x: &[T], beta: T, y: &mut [T]) {
        let (nrows, ncols) = self.shape();
        let (mut x, mut y, mut left) = (x, y, nrhs);
        while left > 0 {
            let group = match left {
                4.. => 4,
                2..4 => 2,
                _ => 1,
            };
            let (x_now, x_rest) = x.split_at(group * ncols);
            let (y_now, y_rest) = y.split_at_mut(group * nrows);
            match group {
                4 => self.apply::<4>(alpha, parts(x_now, ncols), beta, parts_mut(y_now, nrows)),
                2 => self.apply::<2>(alpha, parts(x_now, ncols), beta, parts_mut(y_now, nrows)),
                _ => self.apply::<1>(alpha, [x_now], beta, [y_now]),
            }
            (x, y, left) = (x_rest, y_rest, left - group);
        }
    }
}

#[inline(always)]
fn parts<T, const R: usize>(x: &[T], len: usize) -> [&[T]; R] {
    std::array::from_fn(|j| &x[j * len..(j + 1) * len])
}

#[inline(always)]
fn parts_mut<T, const R: usize>(mut y: &mut [T], len: usize) -> [&mut [T]; R] {
    std::array::from_fn(|_| {
        let (part, rest) = std::mem::take(&mut y).split_at_mut(len);
        y = rest;
        part
    })
}

/// A borrowed matrix with its analysis.
pub(crate) struct Analysed<'a, P: ParSpmv, T> {
    pub(crate) analysis: &'a P::Analysis,
    pub(crate) view: View<'a, P, T>,
}

impl<P: ParSpmv, T: Scalar> Product<T> for Analysed<'_, P, T> {
    fn shape(&self) -> (usize, usize) {
        P::shape(self.view.pattern())
    }

    fn apply<const R: usize>(&self, alpha: T, xs: [&[T]; R], beta: T, ys: [&mut [T]; R]) {
        P::apply(self.analysis, alpha, self.view, xs, beta, ys);
    }
}
