//! Conversions of whole batches: a uniform batch converts its pattern once.

use std::sync::Arc;

use super::{FromCsr, SlotMap, ToCsr};
use crate::{
    BatchCsr, BatchValues, FormatError, Matrix, Pattern, RaggedBatch, RaggedCsr, Scalar,
    UniformBatch,
};

impl<P: FromCsr, T: Scalar> UniformBatch<P, T> {
    /// Converts a uniform batch of CSR matrices to format `P`. The layout of the values stays, and
    /// so do shared values.
    ///
    /// # Errors
    /// Those of [`FromCsr::size_from_csr`], and [`FormatError::TooLarge`] when the slots of all
    /// items overflow.
    pub fn from_csr(batch: &BatchCsr<T>, options: &P::Options) -> Result<Self, FormatError> {
        let (pattern, map) = P::from_csr(batch.pattern().view(), options)?;
        let (nnz, nitems) = (batch.pattern().nnz(), batch.nitems());
        let stored_len = pattern.stored_len();
        let slots = stored_len.checked_mul(nitems).ok_or(FormatError::TooLarge {
            what: "values of the batch",
            found: stored_len as u128 * nitems as u128,
            limit: usize::MAX as u128,
        })?;
        let values = match batch.values() {
            BatchValues::Shared(v) => BatchValues::Shared(scattered(&map, v, 1, stored_len)),
            BatchValues::Interleaved(v) => {
                BatchValues::Interleaved(scattered(&map, v, nitems, slots))
            }
            BatchValues::ItemMajor(v) => {
                let mut out = vec![T::ZERO; slots];
                if stored_len > 0 {
                    for (item, out) in out.chunks_exact_mut(stored_len).enumerate() {
                        map.scatter(&v[item * nnz..(item + 1) * nnz], 1, out);
                    }
                }
                BatchValues::ItemMajor(out)
            }
        };
        Self::try_new(Arc::new(pattern), nitems, values)
    }
}

fn scattered<T: Scalar>(map: &SlotMap, entries: &[T], block: usize, len: usize) -> Vec<T> {
    let mut out = vec![T::ZERO; len];
    if block > 0 {
        map.scatter(entries, block, &mut out);
    }
    out
}

impl<P: ToCsr, T: Scalar> UniformBatch<P, T> {
    /// Converts the batch to CSR. The layout of the values stays, and so do shared values. From
    /// DIA, slots whose value is zero in all items are dropped.
    pub fn to_csr(&self) -> BatchCsr<T> {
        let (stored_len, nitems) = (self.pattern().stored_len(), self.nitems());
        let nonzero = |value: &T| *value != T::ZERO;
        let (pattern, map) = self.pattern().to_csr(|slot| match self.values() {
            BatchValues::Shared(v) => nonzero(&v[slot]),
            BatchValues::Interleaved(v) => {
                v[slot * nitems..(slot + 1) * nitems].iter().any(nonzero)
            }
            BatchValues::ItemMajor(v) => {
                (0..nitems).any(|item| nonzero(&v[item * stored_len + slot]))
            }
        });
        let mut out = Vec::with_capacity(pattern.nnz() * nitems);
        let values = match self.values() {
            BatchValues::Shared(v) => {
                map.gather(v, 1, &mut out);
                BatchValues::Shared(out)
            }
            BatchValues::Interleaved(v) => {
                map.gather(v, nitems, &mut out);
                BatchValues::Interleaved(out)
            }
            BatchValues::ItemMajor(v) => {
                for item in 0..nitems {
                    map.gather(&v[item * stored_len..(item + 1) * stored_len], 1, &mut out);
                }
                BatchValues::ItemMajor(out)
            }
        };
        UniformBatch::try_new(Arc::new(pattern), nitems, values)
            .expect("the map has one slot per entry")
    }
}

impl<P: FromCsr, T: Scalar> RaggedBatch<P, T> {
    /// Converts each item of a ragged batch to format `P`.
    ///
    /// # Errors
    /// Those of [`FromCsr::size_from_csr`] for the first item that is refused.
    pub fn from_csr(batch: &RaggedCsr<T>, options: &P::Options) -> Result<Self, FormatError> {
        (0..batch.nitems())
            .map(|item| Matrix::from_csr_view(batch.item(item), options))
            .collect::<Result<_, _>>()
            .map(Self::new)
    }
}

impl<P: ToCsr, T: Scalar> RaggedBatch<P, T> {
    /// Converts each item to CSR. From DIA, slots of value zero are dropped.
    pub fn to_csr(&self) -> RaggedCsr<T> {
        let mut batch = RaggedCsr::new();
        for matrix in self.items() {
            batch.push(matrix.to_csr().view());
        }
        batch
    }
}
