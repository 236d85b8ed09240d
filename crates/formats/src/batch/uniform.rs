//! Uniform batches: one pattern, many value sets.

use std::sync::Arc;

use super::{BatchOf, Layout, Values};
use crate::error::check_len;
use crate::{CsrPattern, FormatError, Matrix, Pattern, Scalar, View};

/// The values of a uniform batch, in one of the layouts drawn in [`crate::batch`]. `V` is their
/// array: a vector, [`Values`] or a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BatchValues<V> {
    /// `values[item * stored_len + k]`.
    ItemMajor(V),
    /// `values[k * nitems + item]`, the layout of species x zone codes.
    Interleaved(V),
    /// `values[k]`: the same matrix for every item, stored once.
    Shared(V),
}

impl<V> BatchValues<V> {
    /// The array, whatever its layout.
    pub fn into_array(self) -> V {
        match self {
            Self::ItemMajor(v) | Self::Interleaved(v) | Self::Shared(v) => v,
        }
    }

    /// Another array in the same layout.
    pub fn map<W>(self, array: impl FnOnce(V) -> W) -> BatchValues<W> {
        match self {
            Self::ItemMajor(v) => BatchValues::ItemMajor(array(v)),
            Self::Interleaved(v) => BatchValues::Interleaved(array(v)),
            Self::Shared(v) => BatchValues::Shared(array(v)),
        }
    }

    /// The same layout with a reference to the array.
    fn as_ref(&self) -> BatchValues<&V> {
        match self {
            Self::ItemMajor(v) => BatchValues::ItemMajor(v),
            Self::Interleaved(v) => BatchValues::Interleaved(v),
            Self::Shared(v) => BatchValues::Shared(v),
        }
    }
}

/// `nitems` matrices of format `P` with one pattern.
///
/// Invariant: the value array holds `nitems * stored_len` values, or `stored_len` when shared.
/// `nitems` may be 0.
#[derive(Clone, Debug, PartialEq)]
pub struct UniformBatch<P, T> {
    pattern: Arc<P>,
    nitems: usize,
    values: BatchValues<Values<T>>,
}

/// A uniform batch of CSR matrices.
pub type BatchCsr<T> = UniformBatch<CsrPattern, T>;

impl<P: Pattern, T: Scalar> UniformBatch<P, T> {
    /// Joins a pattern and the values of `nitems` items.
    ///
    /// # Errors
    /// [`FormatError::Length`] when the number of values is not what the layout requires,
    /// [`FormatError::TooLarge`] when that number overflows.
    pub fn try_new(
        pattern: Arc<P>,
        nitems: usize,
        values: BatchValues<Vec<T>>,
    ) -> Result<Self, FormatError> {
        Self::from_values(pattern, nitems, values.map(Values::from))
    }

    /// As [`UniformBatch::try_new`], for values that may be those of another owner.
    ///
    /// # Errors
    /// Those of [`UniformBatch::try_new`].
    pub fn from_values(
        pattern: Arc<P>,
        nitems: usize,
        values: BatchValues<Values<T>>,
    ) -> Result<Self, FormatError> {
        let stored_len = pattern.stored_len();
        let (expected, found) = match &values {
            BatchValues::ItemMajor(v) | BatchValues::Interleaved(v) => {
                let expected = stored_len.checked_mul(nitems).ok_or(FormatError::TooLarge {
                    what: "values of the batch",
                    found: stored_len as u128 * nitems as u128,
                    limit: usize::MAX as u128,
                })?;
                (expected, v.len())
            }
            BatchValues::Shared(v) => (stored_len, v.len()),
        };
        check_len("values", expected, found)?;
        Ok(Self { pattern, nitems, values })
    }

    /// `nitems` times the same matrix, its values stored once. Any `nitems` is allowed; operations
    /// that need memory for each item refuse one that is too large.
    pub fn shared(matrix: Matrix<P, T>, nitems: usize) -> Self {
        let (pattern, values) = matrix.into_parts();
        Self { pattern, nitems, values: BatchValues::Shared(values.into()) }
    }

    /// The pattern.
    pub fn pattern(&self) -> &Arc<P> {
        &self.pattern
    }

    /// Systems in the batch.
    pub fn nitems(&self) -> usize {
        self.nitems
    }

    /// The values, with their layout.
    pub fn values(&self) -> BatchValues<&[T]> {
        self.values.as_ref().map(|values| &**values)
    }

    /// The values, to be changed in place; values of another owner are copied first.
    pub fn values_mut(&mut self) -> &mut [T] {
        match &mut self.values {
            BatchValues::ItemMajor(v) | BatchValues::Interleaved(v) | BatchValues::Shared(v) => {
                v.make_mut()
            }
        }
    }

    /// The layout of the values; shared values count as item-major.
    pub fn layout(&self) -> Layout {
        match self.values {
            BatchValues::Interleaved(_) => Layout::Interleaved,
            BatchValues::ItemMajor(_) | BatchValues::Shared(_) => Layout::ItemMajor,
        }
    }

    /// Whether all items share one value set.
    pub fn is_shared(&self) -> bool {
        matches!(self.values, BatchValues::Shared(_))
    }

    /// Appends the values of one item, in the pattern's order.
    ///
    /// # Panics
    /// When `item >= nitems`.
    pub fn append_values(&self, item: usize, out: &mut Vec<T>) {
        assert!(item < self.nitems, "item {item} of {}", self.nitems);
        let stored_len = self.pattern.stored_len();
        match &self.values {
            BatchValues::ItemMajor(v) => {
                out.extend_from_slice(&v[item * stored_len..(item + 1) * stored_len]);
            }
            BatchValues::Interleaved(v) => {
                out.extend((0..stored_len).map(|k| v[k * self.nitems + item]));
            }
            BatchValues::Shared(v) => out.extend_from_slice(v),
        }
    }

    /// One item as a matrix of its own; the pattern is shared.
    ///
    /// # Panics
    /// When `item >= nitems`.
    pub fn to_matrix(&self, item: usize) -> Matrix<P, T> {
        let mut values = Vec::with_capacity(self.pattern.stored_len());
        self.append_values(item, &mut values);
        Matrix::from_parts(Arc::clone(&self.pattern), values)
            .expect("an item's values fit the pattern")
    }

    /// The same batch with item-major values (shared values are repeated).
    ///
    /// # Panics
    /// When the values do not fit into memory.
    pub fn to_item_major(&self) -> Self {
        let len = self.pattern.stored_len().saturating_mul(self.nitems);
        let mut values = Vec::with_capacity(len);
        for item in 0..self.nitems {
            self.append_values(item, &mut values);
        }
        Self {
            pattern: Arc::clone(&self.pattern),
            nitems: self.nitems,
            values: BatchValues::ItemMajor(values.into()),
        }
    }

    /// The same batch with interleaved values (shared values are repeated).
    ///
    /// # Panics
    /// When the values do not fit into memory.
    pub fn to_interleaved(&self) -> Self {
        let stored_len = self.pattern.stored_len();
        let values = match &self.values {
            BatchValues::Interleaved(v) => v.to_vec(),
            BatchValues::Shared(v) => {
                v.iter().flat_map(|&value| std::iter::repeat_n(value, self.nitems)).collect()
            }
            BatchValues::ItemMajor(v) => {
                let mut out = Vec::with_capacity(v.len());
                for k in 0..stored_len {
                    out.extend((0..self.nitems).map(|item| v[item * stored_len + k]));
                }
                out
            }
        };
        Self {
            pattern: Arc::clone(&self.pattern),
            nitems: self.nitems,
            values: BatchValues::Interleaved(values.into()),
        }
    }

    /// The batch in another precision, each value rounded to nearest.
    pub fn cast<U: Scalar>(&self) -> UniformBatch<P, U> {
        let cast = |v: &[T]| v.iter().map(|x| U::from_f64(x.to_f64())).collect::<Vec<U>>().into();
        UniformBatch {
            pattern: Arc::clone(&self.pattern),
            nitems: self.nitems,
            values: self.values().map(cast),
        }
    }
}

impl<P: Pattern, T: Scalar> BatchOf<P, T> for UniformBatch<P, T> {
    fn nitems(&self) -> usize {
        self.nitems
    }

    fn item(&self, item: usize) -> View<'_, P, T> {
        assert!(item < self.nitems, "item {item} of {}", self.nitems);
        let stored_len = self.pattern.stored_len();
        let values = match &self.values {
            BatchValues::ItemMajor(v) => &v[item * stored_len..(item + 1) * stored_len],
            BatchValues::Shared(v) => v,
            BatchValues::Interleaved(_) => panic!("the items of an interleaved batch are strided"),
        };
        View::new(self.pattern.view(), values)
    }

    fn total_rows(&self) -> u128 {
        self.pattern.nrows() as u128 * self.nitems as u128
    }

    fn total_cols(&self) -> u128 {
        self.pattern.ncols() as u128 * self.nitems as u128
    }

    fn has_contiguous_items(&self) -> bool {
        self.layout() == Layout::ItemMajor
    }
}
