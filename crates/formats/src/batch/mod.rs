//! Batches: many systems that are handled in one call.
//!
//! ```text
//! uniform   one pattern, nitems value sets            UniformBatch<P, T>, BatchCsr<T>
//!   item-major    values[item * stored_len + k]       |item 0: k0 k1 k2|item 1: k0 k1 k2| ..
//!   interleaved   values[k * nitems + item]           |k0: i0 i1 ..|k1: i0 i1 ..| ..
//!   shared        values[k], the same for all items   |k0 k1 k2|
//! ragged    every item its own size, pattern, values  RaggedCsr<T>, RaggedBatch<P, T>
//!   concatenated, with 64-bit offsets per item        |item 0 ........|item 1 ..|item 2 ....|
//! ```
//!
//! Vectors are plain slices in the same two layouts. Item-major: item after item, and with several
//! right-hand sides, right-hand side after right-hand side within the item. Interleaved (uniform
//! batches only): element after element, `v[(rhs * nrows + row) * nitems + item]`.

mod ragged;
mod uniform;

pub use ragged::{RaggedBatch, RaggedCsr};
pub use uniform::{BatchCsr, BatchValues, UniformBatch};

use crate::{CsrPatternRef, Pattern, Scalar, View};

/// How the numbers of a uniform batch's items stand in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Item after item.
    #[default]
    ItemMajor,
    /// Element after element, the items of each side by side.
    Interleaved,
}

/// A batch whose items can be borrowed one by one as matrices of format `P`.
pub trait BatchOf<P: Pattern, T: Scalar>: Sync {
    /// Systems in the batch.
    fn nitems(&self) -> usize;
    /// Borrows item `item`.
    ///
    /// # Panics
    /// When `item >= nitems()`, and for a uniform batch with interleaved values, whose items are
    /// not contiguous: convert it with [`UniformBatch::to_item_major`] first.
    fn item(&self, item: usize) -> View<'_, P, T>;
}

/// Any batch of CSR matrices: what solvers and files deal in.
#[derive(Clone, Debug, PartialEq)]
pub enum Batch<T> {
    /// One pattern for all items.
    Uniform(BatchCsr<T>),
    /// Every item has its own size and pattern.
    Ragged(RaggedCsr<T>),
}

impl<T: Scalar> Batch<T> {
    /// Systems in the batch.
    pub fn nitems(&self) -> usize {
        match self {
            Self::Uniform(batch) => batch.nitems(),
            Self::Ragged(batch) => batch.nitems(),
        }
    }

    /// The pattern of one item.
    ///
    /// # Panics
    /// When `item >= nitems()`.
    pub fn pattern(&self, item: usize) -> CsrPatternRef<'_> {
        match self {
            Self::Uniform(batch) => {
                assert!(item < batch.nitems(), "item {item} of {}", batch.nitems());
                batch.pattern().view()
            }
            Self::Ragged(batch) => batch.item(item).pattern(),
        }
    }

    /// The values of one item, in CSR order, where they are contiguous: not in a uniform batch
    /// with interleaved values.
    ///
    /// # Panics
    /// When `item >= nitems()`.
    pub fn item_values(&self, item: usize) -> Option<&[T]> {
        match self {
            Self::Uniform(batch) if batch.layout() == Layout::Interleaved => None,
            Self::Uniform(batch) => Some(batch.item(item).values()),
            Self::Ragged(batch) => Some(batch.item(item).values()),
        }
    }

    /// Copies the values of one item, in CSR order; `out` is overwritten.
    ///
    /// # Panics
    /// When `item >= nitems()`.
    pub fn copy_values(&self, item: usize, out: &mut Vec<T>) {
        out.clear();
        match self {
            Self::Uniform(batch) => batch.copy_values(item, out),
            Self::Ragged(batch) => out.extend_from_slice(batch.item(item).values()),
        }
    }

    /// The values of one item, in CSR order, by way of `copy` where they are not contiguous.
    ///
    /// # Panics
    /// When `item >= nitems()`.
    pub fn values_in<'a>(&'a self, item: usize, copy: &'a mut Vec<T>) -> &'a [T] {
        match self.item_values(item) {
            Some(values) => values,
            None => {
                self.copy_values(item, copy);
                copy
            }
        }
    }

    /// Rows of all items before `item`; with `item == nitems()`, of all items. This is where the
    /// item's part of an item-major result or right-hand side starts.
    pub fn row_offset(&self, item: usize) -> usize {
        match self {
            Self::Uniform(batch) => batch.pattern().nrows() * item,
            Self::Ragged(batch) => batch.row_offsets()[item],
        }
    }

    /// Columns of all items before `item`; with `item == nitems()`, of all items.
    pub fn col_offset(&self, item: usize) -> usize {
        match self {
            Self::Uniform(batch) => batch.pattern().ncols() * item,
            Self::Ragged(batch) => batch.col_offsets()[item],
        }
    }

    /// Stored entries of all items, shared values counted once per item.
    pub fn total_nnz(&self) -> usize {
        match self {
            Self::Uniform(batch) => batch.pattern().nnz() * batch.nitems(),
            Self::Ragged(batch) => batch.total_nnz(),
        }
    }

    /// The batch in another precision, each value rounded to nearest.
    pub fn cast<U: Scalar>(&self) -> Batch<U> {
        match self {
            Self::Uniform(batch) => Batch::Uniform(batch.cast()),
            Self::Ragged(batch) => Batch::Ragged(batch.cast()),
        }
    }
}

impl<T> From<BatchCsr<T>> for Batch<T> {
    fn from(batch: BatchCsr<T>) -> Self {
        Self::Uniform(batch)
    }
}

impl<T> From<RaggedCsr<T>> for Batch<T> {
    fn from(batch: RaggedCsr<T>) -> Self {
        Self::Ragged(batch)
    }
}

impl<T: Scalar> From<crate::Csr<T>> for Batch<T> {
    /// A batch of one.
    fn from(matrix: crate::Csr<T>) -> Self {
        let (pattern, values) = matrix.into_parts();
        Self::Uniform(
            UniformBatch::try_new(pattern, 1, BatchValues::ItemMajor(values))
                .expect("a matrix's values fit its pattern"),
        )
    }
}

impl<T: Scalar> FromIterator<crate::Csr<T>> for Batch<T> {
    /// A ragged batch, in the iterator's order.
    fn from_iter<I: IntoIterator<Item = crate::Csr<T>>>(matrices: I) -> Self {
        let mut batch = RaggedCsr::new();
        for matrix in matrices {
            batch.push(matrix.view());
        }
        Self::Ragged(batch)
    }
}
