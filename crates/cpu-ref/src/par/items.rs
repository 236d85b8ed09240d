//! CSR by rows for batches of small matrices: one loop, compiled once for the instruction set,
//! multiplies many items.
//!
//! The sum of a row is that of a single matrix, addition for addition.

use std::ops::Range;

use sparsebatch_formats::{CsrPatternRef, RaggedCsr, Scalar};

use super::batch::{BatchShape, share_items};
use super::chunks::{Cuts, GRAIN};
use super::csr::{Column, grouped_rows, sum_of};
use super::multi::{Product, RowKernel, apply_rows};
use crate::seq::axpby;
use crate::simd::spmv::{Leaf, SpmvIsa, Unfetched, advise_huge_pages, dispatch};

/// A CSR matrix, borrowed; the row starts count from the first value.
#[derive(Clone, Copy)]
struct CsrRows<'a, T, C> {
    row_ptr: &'a [i32],
    cols: &'a [C],
    values: &'a [T],
    ncols: usize,
}

impl<T, C> CsrRows<'_, T, C> {
    fn shape(&self) -> (usize, usize) {
        (self.row_ptr.len() - 1, self.ncols)
    }
}

impl<T: Scalar, C: Column> RowKernel<T> for CsrRows<'_, T, C> {
    #[inline(always)]
    fn rows<I: SpmvIsa, const R: usize>(
        &self,
        rows: Range<usize>,
        alpha: T,
        xs: [&[T]; R],
        beta: T,
        mut ys: [&mut [T]; R],
    ) {
        let ends = &self.row_ptr[rows.start..=rows.end];
        let mut start = ends[0] as usize;
        for (row, &end) in ends[1..].iter().enumerate() {
            let entries = start..end as usize;
            start = entries.end;
            let sums = sum_of::<I, T, C, R>(&self.values[entries.clone()], &self.cols[entries], xs);
            for (y, sum) in ys.iter_mut().zip(sums) {
                y[row] = axpby(alpha, sum, beta, y[row]);
            }
        }
    }
}

/// A small matrix within a loop that is compiled for `I`.
struct Within<'a, I, T, C> {
    matrix: CsrRows<'a, T, C>,
    isa: std::marker::PhantomData<I>,
}

impl<I: SpmvIsa, T: Scalar, C: Column> Product<T> for Within<'_, I, T, C> {
    fn shape(&self) -> (usize, usize) {
        self.matrix.shape()
    }

    #[inline(always)]
    fn apply<const R: usize>(&self, alpha: T, xs: [&[T]; R], beta: T, ys: [&mut [T]; R]) {
        self.matrix.rows::<Unfetched<I>, R>(0..self.shape().0, alpha, xs, beta, ys);
    }
}

/// The rows of a large matrix, in groups of equal length.
struct Grouped<'a, T, C>(CsrRows<'a, T, C>);

impl<T: Scalar, C: Column> RowKernel<T> for Grouped<'_, T, C> {
    #[inline(always)]
    fn rows<I: SpmvIsa, const R: usize>(
        &self,
        rows: Range<usize>,
        alpha: T,
        xs: [&[T]; R],
        beta: T,
        ys: [&mut [T]; R],
    ) {
        let ptr = &self.0.row_ptr[rows.start..=rows.end];
        grouped_rows::<I, T, C, R>(ptr, (self.0.values, self.0.cols), alpha, xs, beta, ys);
    }
}

/// A large matrix, whose rows threads share.
struct Shared<'a, T, C> {
    matrix: Grouped<'a, T, C>,
    cuts: &'a Cuts,
}

impl<T: Scalar, C: Column> Product<T> for Shared<'_, T, C> {
    fn shape(&self) -> (usize, usize) {
        self.matrix.0.shape()
    }

    fn apply<const R: usize>(&self, alpha: T, xs: [&[T]; R], beta: T, ys: [&mut [T]; R]) {
        apply_rows(&self.matrix, self.cuts, alpha, xs, beta, ys);
    }
}

/// The products of the items `items`.
struct ItemsLeaf<'a, F, T> {
    items: Range<usize>,
    item: &'a F,
    nrhs: usize,
    alpha: T,
    x: &'a [T],
    beta: T,
    y: &'a mut [T],
}

impl<'m, F, T, C> Leaf for ItemsLeaf<'_, F, T>
where
    F: Fn(usize) -> CsrRows<'m, T, C>,
    T: Scalar,
    C: Column + 'm,
{
    #[inline(always)]
    fn run<I: SpmvIsa>(self) {
        let Self { items, item, nrhs, alpha, mut x, beta, mut y } = self;
        for number in items {
            let product = Within::<I, T, C> { matrix: item(number), isa: std::marker::PhantomData };
            let (nrows, ncols) = product.shape();
            let (x_now, x_rest) = x.split_at(ncols * nrhs);
            let (y_now, y_rest) = std::mem::take(&mut y).split_at_mut(nrows * nrhs);
            product.apply_all(alpha, nrhs, x_now, beta, y_now);
            (x, y) = (x_rest, y_rest);
        }
    }
}

/// `Y_i = alpha*A_i*X_i + beta*Y_i` for every item. `cuts(i)` are those of an item of several
/// chunks of work, whose rows threads share. The caller has checked the lengths. Allocates
/// nothing.
#[expect(clippy::too_many_arguments, reason = "the product's five and the batch's three")]
fn apply_items<'m, 'c, T: Scalar, C: Column + 'm>(
    item: impl Fn(usize) -> CsrRows<'m, T, C> + Sync,
    cuts: impl Fn(usize) -> Option<&'c Cuts> + Sync,
    shape: &BatchShape,
    nrhs: usize,
    alpha: T,
    x: &[T],
    beta: T,
    y: &mut [T],
) {
    share_items(shape, nrhs, x, y, &|items: Range<usize>, x: &[T], y: &mut [T]| {
        if items.len() == 1
            && let Some(cuts) = cuts(items.start)
        {
            let product = Shared { matrix: Grouped(item(items.start)), cuts };
            return product.apply_all(alpha, nrhs, x, beta, y);
        }
        dispatch(ItemsLeaf { items, item: &item, nrhs, alpha, x, beta, y });
    });
}

/// `Y_i = alpha*A_i*X_i + beta*Y_i` for items of one pattern, each of a single chunk of work;
/// `values(i)` are those of item `i`. The caller has checked the lengths. Allocates nothing.
#[expect(clippy::too_many_arguments, reason = "the product's five and the batch's three")]
pub(crate) fn apply_alike<'m, T: Scalar>(
    pattern: CsrPatternRef<'m>,
    values: impl Fn(usize) -> &'m [T] + Sync,
    shape: &BatchShape,
    nrhs: usize,
    alpha: T,
    x: &[T],
    beta: T,
    y: &mut [T],
) {
    let item = |item: usize| CsrRows {
        row_ptr: pattern.row_ptr(),
        cols: pattern.col_idx(),
        values: values(item),
        ncols: pattern.ncols(),
    };
    apply_items(item, |_| None, shape, nrhs, alpha, x, beta, y);
}

/// Column indices, in 16 bits where the matrices are no wider: a product is as fast as its
/// matrices are read, and reads 10 bytes an entry then instead of 12 (f64).
#[derive(Debug)]
enum Columns {
    Narrow(Vec<u16>),
    Wide(Vec<i32>),
}

/// A batch of any CSR matrices, for products by rows.
#[derive(Debug)]
pub(crate) struct RaggedRows<T> {
    shape: BatchShape,
    /// Row starts of each item, with the end: `nrows + 1` numbers.
    row_ptr: Vec<i32>,
    /// Entries before each item, and the total.
    entries: Vec<usize>,
    cols: Columns,
    values: Vec<T>,
    /// Items that threads share, ascending, and where.
    large: Vec<(usize, Cuts)>,
}

impl<T: Scalar> RaggedRows<T> {
    /// The patterns of a batch, with all values 0.
    pub(crate) fn new(batch: &RaggedCsr<T>) -> Self {
        let patterns = || (0..batch.nitems()).map(|item| batch.item(item).pattern());
        let narrow = patterns().all(|pattern| pattern.ncols() <= 1 << 16);
        let values = vec![T::ZERO; batch.total_nnz()];
        advise_huge_pages(&values);
        let large = patterns().enumerate().filter(|(_, p)| p.nrows() + p.nnz() >= 2 * GRAIN);
        Self {
            shape: BatchShape::ragged(
                patterns().map(|p| (p.nrows(), p.ncols(), p.nrows() + p.nnz())),
            ),
            row_ptr: batch.row_ptr().to_vec(),
            entries: batch.nnz_offsets().to_vec(),
            cols: if narrow {
                Columns::Narrow(batch.col_idx().iter().map(|&col| col as u16).collect())
            } else {
                Columns::Wide(batch.col_idx().to_vec())
            },
            values,
            large: large
                .map(|(item, pattern)| {
                    let ptr = pattern.row_ptr();
                    let before = |row: usize| ptr[row] as usize + row;
                    (item, Cuts::balanced(pattern.nrows(), 1, before))
                })
                .collect(),
        }
    }

    /// `Y_i = alpha*A_i*X_i + beta*Y_i` for every item; the lengths have been checked.
    pub(crate) fn apply(&self, alpha: T, nrhs: usize, x: &[T], beta: T, y: &mut [T]) {
        match &self.cols {
            Columns::Narrow(cols) => self.apply_with(cols, alpha, nrhs, x, beta, y),
            Columns::Wide(cols) => self.apply_with(cols, alpha, nrhs, x, beta, y),
        }
    }

    fn apply_with<C: Column>(
        &self,
        cols: &[C],
        alpha: T,
        nrhs: usize,
        x: &[T],
        beta: T,
        y: &mut [T],
    ) {
        let item = |item: usize| {
            let (start, end) = (self.shape.row_start(item), self.shape.row_start(item + 1));
            let entries = self.entries[item]..self.entries[item + 1];
            CsrRows {
                row_ptr: &self.row_ptr[start + item..=end + item],
                cols: &cols[entries.clone()],
                values: &self.values[entries],
                ncols: self.shape.col_start(item + 1) - self.shape.col_start(item),
            }
        };
        let cuts = |item: usize| {
            let at = self.large.binary_search_by_key(&item, |&(item, _)| item).ok()?;
            Some(&self.large[at].1)
        };
        apply_items(item, cuts, &self.shape, nrhs, alpha, x, beta, y);
    }

    /// Replaces the values, item after item in CSR order.
    pub(crate) fn set_values(&mut self, values: &[T]) {
        self.values.copy_from_slice(values);
    }

    /// Value slots.
    pub(crate) fn stored_len(&self) -> usize {
        self.values.len()
    }

    /// Bytes of values and indices.
    pub(crate) fn matrix_bytes(&self) -> usize {
        let cols = match &self.cols {
            Columns::Narrow(cols) => size_of_val(cols.as_slice()),
            Columns::Wide(cols) => size_of_val(cols.as_slice()),
        };
        size_of_val(self.values.as_slice()) + cols + size_of_val(self.row_ptr.as_slice())
    }

    /// Bytes held beside the matrices.
    pub(crate) fn other_bytes(&self) -> usize {
        let large: usize = self.large.iter().map(|(_, cuts)| cuts.bytes() + 8).sum();
        self.shape.bytes() + size_of_val(self.entries.as_slice()) + large
    }
}
