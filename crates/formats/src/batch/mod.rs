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

mod fingerprint;
mod ragged;
mod uniform;
mod values;

pub use fingerprint::PatternFingerprint;
pub use ragged::{RaggedBatch, RaggedCsr};
pub use uniform::{BatchCsr, BatchValues, UniformBatch};
pub use values::Values;

use crate::{CsrPatternRef, FormatError, Pattern, Scalar, View};

/// The memory layout of the items of a uniform batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Item after item.
    #[default]
    ItemMajor,
    /// Element after element: the values of one element for all items are adjacent.
    Interleaved,
}

/// The most systems that are solved in one call: solvers number them with 32 bits.
pub const MAX_SYSTEMS: usize = 4_000_000_000;

/// The number of systems, `nitems * nrhs`.
///
/// # Errors
/// [`FormatError::TooLarge`] above [`MAX_SYSTEMS`].
pub fn count_systems(nitems: usize, nrhs: usize) -> Result<usize, FormatError> {
    let (found, limit) = (nitems as u128 * nrhs as u128, MAX_SYSTEMS as u128);
    if found > limit {
        return Err(FormatError::TooLarge { what: "number of systems", found, limit });
    }
    Ok(found as usize)
}

/// The length of `nrhs` concatenated vectors of `len` values: `len * nrhs`.
///
/// # Errors
/// [`FormatError::TooLarge`] when a vector of 8-byte values cannot be that long.
pub fn checked_len(what: &'static str, len: u128, nrhs: usize) -> Result<usize, FormatError> {
    let limit = (isize::MAX / 8) as u128;
    let found = len.saturating_mul(nrhs as u128);
    if found > limit {
        return Err(FormatError::TooLarge { what, found, limit });
    }
    Ok(found as usize)
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
    /// Rows of all items.
    fn total_rows(&self) -> u128;
    /// Columns of all items.
    fn total_cols(&self) -> u128;
    /// Whether the values of each item are contiguous, so that [`BatchOf::item`] can borrow them.
    fn has_contiguous_items(&self) -> bool {
        true
    }
}

/// Any batch of CSR matrices: the type that solvers and files use.
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

    /// A copy that owns its values, whoever owns those of this batch: unlike a clone it does not
    /// change with an array of another owner.
    #[must_use]
    pub fn with_own_values(&self) -> Self {
        let mut copy = self.clone();
        match &mut copy {
            Self::Uniform(batch) => {
                batch.values_mut();
            }
            Self::Ragged(batch) => {
                batch.values_mut();
            }
        }
        copy
    }

    /// Copies the values of one item, in CSR order; `out` is overwritten.
    ///
    /// # Panics
    /// When `item >= nitems()`.
    pub fn copy_values(&self, item: usize, out: &mut Vec<T>) {
        out.clear();
        match self {
            Self::Uniform(batch) => batch.append_values(item, out),
            Self::Ragged(batch) => out.extend_from_slice(batch.item(item).values()),
        }
    }

    /// One item as a matrix of its own: its values are copied, and so is the pattern of a ragged
    /// item.
    ///
    /// # Panics
    /// When `item >= nitems()`.
    pub fn to_csr(&self, item: usize) -> crate::Csr<T> {
        match self {
            Self::Uniform(batch) => batch.to_matrix(item),
            Self::Ragged(batch) => batch.item(item).to_csr(),
        }
    }

    /// The values of one item, in CSR order: borrowed where they are contiguous, else copied into
    /// `copy`.
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
    /// item's part of an item-major result or right-hand side starts. `usize::MAX` where 64 bits
    /// cannot count them (a uniform batch may repeat one matrix any number of times).
    ///
    /// # Panics
    /// When `item > nitems()`, for a ragged batch.
    pub fn row_offset(&self, item: usize) -> usize {
        match self {
            Self::Uniform(batch) => batch.pattern().nrows().saturating_mul(item),
            Self::Ragged(batch) => batch.row_offsets()[item],
        }
    }

    /// The part of an item-major right-hand side or result that belongs to an item.
    ///
    /// # Panics
    /// When `item >= nitems()`, for a ragged batch.
    pub fn rows(&self, item: usize) -> std::ops::Range<usize> {
        self.row_offset(item)..self.row_offset(item + 1)
    }

    /// Columns of all items before `item`; with `item == nitems()`, of all items. Saturates and
    /// panics as [`Batch::row_offset`].
    pub fn col_offset(&self, item: usize) -> usize {
        match self {
            Self::Uniform(batch) => batch.pattern().ncols().saturating_mul(item),
            Self::Ragged(batch) => batch.col_offsets()[item],
        }
    }

    /// The number of values of an item-major right-hand side or solution with `nrhs` vectors per
    /// item.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] when no vector can be that long.
    pub fn vector_len(&self, nrhs: usize) -> Result<usize, FormatError> {
        let rows = match self {
            Self::Uniform(batch) => batch.total_rows(),
            Self::Ragged(batch) => batch.total_rows(),
        };
        checked_len("number of values of the right-hand sides", rows, nrhs)
    }

    /// The number of systems to solve with `nrhs` right-hand sides per item.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] above [`MAX_SYSTEMS`].
    pub fn count_systems(&self, nrhs: usize) -> Result<usize, FormatError> {
        count_systems(self.nitems(), nrhs)
    }

    /// Stored entries of all items, shared values counted once per item; `usize::MAX` where 64
    /// bits cannot count them.
    pub fn total_nnz(&self) -> usize {
        match self {
            Self::Uniform(batch) => batch.pattern().nnz().saturating_mul(batch.nitems()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Csr;

    #[test]
    fn sums_over_all_items_are_checked_or_saturate() {
        let a = Csr::try_new(2, 2, vec![0, 1, 2], vec![0, 1], vec![1.0; 2]).unwrap();
        let shared = |nitems| Batch::Uniform(UniformBatch::shared(a.clone(), nitems));
        let half = 1usize << 63;

        assert_eq!(shared(3).vector_len(5).unwrap(), 30);
        assert_eq!(shared(3).count_systems(5).unwrap(), 15);
        let batch = shared(half);
        let ends = [batch.row_offset(half), batch.col_offset(half), batch.total_nnz()];
        assert_eq!(ends, [usize::MAX; 3]);
        assert_eq!(
            shared(2).vector_len(half).unwrap_err().to_string(),
            "number of values of the right-hand sides is 36893488147419103232, \
             the largest supported is 1152921504606846975"
        );
        assert_eq!(
            shared(2).count_systems(half).unwrap_err().to_string(),
            "number of systems is 18446744073709551616, the largest supported is 4000000000"
        );
    }
}
