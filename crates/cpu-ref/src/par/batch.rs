//! Batched products, item by item: items are shared between threads by their work, and a large
//! item is split between threads like a single matrix.

use std::ops::Range;

use sparsebatch_formats::{BatchOf, Scalar};

use super::chunks::{GRAIN, partition_point};
use super::{Analysed, ParSpmv, Product, Schedule};
use crate::seq::check_batch;
use crate::{CpuError, check_threads};

/// Where the items of an item-major batch begin, for one right-hand side.
#[derive(Clone, Debug)]
pub(crate) enum BatchShape {
    /// All items have `nrows` rows, `ncols` columns and `work` stored slots and rows.
    Uniform { nitems: usize, nrows: usize, ncols: usize, work: usize },
    /// Rows, columns and work before each item, and the totals at the end.
    Ragged { rows: Vec<usize>, cols: Vec<usize>, work: Vec<usize> },
}

impl BatchShape {
    /// The shape of a ragged batch from each item's rows, columns and work.
    pub(crate) fn ragged(items: impl Iterator<Item = (usize, usize, usize)>) -> Self {
        let (mut rows, mut cols, mut work) = (vec![0], vec![0], vec![0]);
        let mut sums = (0, 0, 0);
        for item in items {
            sums = (sums.0 + item.0, sums.1 + item.1, sums.2 + item.2);
            rows.push(sums.0);
            cols.push(sums.1);
            work.push(sums.2);
        }
        Self::Ragged { rows, cols, work }
    }

    pub(crate) fn nitems(&self) -> usize {
        match self {
            Self::Uniform { nitems, .. } => *nitems,
            Self::Ragged { rows, .. } => rows.len() - 1,
        }
    }

    /// Rows of all items before `item`.
    pub(crate) fn row_start(&self, item: usize) -> usize {
        match self {
            Self::Uniform { nrows, .. } => item * nrows,
            Self::Ragged { rows, .. } => rows[item],
        }
    }

    /// Columns of all items before `item`.
    pub(crate) fn col_start(&self, item: usize) -> usize {
        match self {
            Self::Uniform { ncols, .. } => item * ncols,
            Self::Ragged { cols, .. } => cols[item],
        }
    }

    fn work_before(&self, item: usize) -> usize {
        match self {
            Self::Uniform { work, .. } => item * work,
            Self::Ragged { work, .. } => work[item],
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Uniform { .. } => 0,
            Self::Ragged { rows, cols, work } => 8 * (rows.len() + cols.len() + work.len()),
        }
    }
}

/// Calls `some(items, x, y)` on all cores for ranges of items that together are all of them, with
/// their parts of `x` and `y`. A range has at most [`GRAIN`] units of work, times `nrhs`, or is one
/// item. The ranges are a function of the shape alone. Allocates nothing.
pub(crate) fn share_items<T: Scalar>(
    shape: &BatchShape,
    nrhs: usize,
    x: &[T],
    y: &mut [T],
    some: &(impl Fn(Range<usize>, &[T], &mut [T]) + Sync),
) {
    share(shape, nrhs, 0..shape.nitems(), x, y, some);
}

/// Halves the range of items by work until its work is at most [`GRAIN`].
fn share<T: Scalar>(
    shape: &BatchShape,
    nrhs: usize,
    items: Range<usize>,
    x: &[T],
    y: &mut [T],
    some: &(impl Fn(Range<usize>, &[T], &mut [T]) + Sync),
) {
    let (start, end) = (shape.work_before(items.start), shape.work_before(items.end));
    if items.len() <= 1 || (end - start).saturating_mul(nrhs) <= GRAIN {
        return some(items, x, y);
    }
    let half = start + (end - start) / 2;
    let middle =
        partition_point(items.start + 1..items.end - 1, |item| shape.work_before(item) < half);
    let cols = shape.col_start(middle) - shape.col_start(items.start);
    let rows = shape.row_start(middle) - shape.row_start(items.start);
    let (x_left, x_right) = x.split_at(cols * nrhs);
    let (y_left, y_right) = y.split_at_mut(rows * nrhs);
    rayon::join(
        || share(shape, nrhs, items.start..middle, x_left, y_left, some),
        || share(shape, nrhs, middle..items.end, x_right, y_right, some),
    );
}

/// `Y_i = alpha*A_i*X_i + beta*Y_i` for every item; `analysis(item)` returns the item's analysis.
/// The caller has checked the lengths. Allocates nothing.
#[expect(clippy::too_many_arguments, reason = "the product's five and the plan's three")]
pub(crate) fn apply_batch<'a, P: ParSpmv, T: Scalar>(
    batch: &'a impl BatchOf<P, T>,
    analysis: impl Fn(usize) -> &'a P::Analysis + Sync,
    shape: &'a BatchShape,
    nrhs: usize,
    alpha: T,
    x: &[T],
    beta: T,
    y: &mut [T],
) {
    share_items(shape, nrhs, x, y, &|items, mut x: &[T], mut y: &mut [T]| {
        for item in items {
            let product = Analysed::<P, T> { analysis: analysis(item), view: batch.item(item) };
            let (nrows, ncols) = product.shape();
            let (x_now, x_rest) = x.split_at(ncols * nrhs);
            let (y_now, y_rest) = y.split_at_mut(nrows * nrhs);
            product.apply_all(alpha, nrhs, x_now, beta, y_now);
            (x, y) = (x_rest, y_rest);
        }
    });
}

/// `Y_i = alpha*A_i*X_i + beta*Y_i` for every item of a batch, on all cores, with `nrhs`
/// right-hand sides per item.
///
/// `x` and `y` are item-major: item after item, right-hand side after right-hand side within the
/// item. Each item is analysed in the call; use a [`SpmvPlan`](crate::SpmvPlan) for repeated
/// products, or for vectors in the interleaved layout.
///
/// # Errors
/// [`CpuError::Argument`] when `x` or `y` does not fit; [`CpuError::Format`] when the length
/// overflows; [`CpuError::Argument`] for a uniform batch with interleaved values;
/// [`CpuError::Forked`] in a forked process whose threads are in its parent. On an error `y` is
/// untouched.
pub fn batch_spmv<P: ParSpmv, T: Scalar>(
    alpha: T,
    batch: &impl BatchOf<P, T>,
    nrhs: usize,
    x: &[T],
    beta: T,
    y: &mut [T],
) -> Result<(), CpuError> {
    check_threads()?;
    check_batch(batch, nrhs, x, y)?;
    if x.is_empty() && y.is_empty() {
        return Ok(());
    }
    let items = || (0..batch.nitems()).map(|item| batch.item(item));
    let shape = BatchShape::ragged(items().map(|a| {
        let (nrows, ncols) = P::shape(a.pattern());
        (nrows, ncols, nrows + a.values().len())
    }));
    let analyses =
        items().map(|a| P::analyse(a.pattern(), Schedule::Rows)).collect::<Result<Vec<_>, _>>()?;
    apply_batch(batch, |item| &analyses[item], &shape, nrhs, alpha, x, beta, y);
    Ok(())
}
