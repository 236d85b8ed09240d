//! A matrix is a pattern and separate values: [`Matrix`], [`View`] and the [`Pattern`] trait.

use std::fmt::Debug;
use std::sync::Arc;

use crate::error::check_len;
use crate::{FormatError, Scalar};

/// The sparsity pattern of a matrix: the positions of its entries, without their values. Each
/// format has one: [`CsrPattern`](crate::CsrPattern), [`CooPattern`](crate::CooPattern),
/// [`EllPattern`](crate::EllPattern), [`DiaPattern`](crate::DiaPattern),
/// [`HybPattern`](crate::HybPattern), [`SellPPattern`](crate::SellPPattern).
///
/// A pattern is validated once, when it is built, and cannot be changed afterwards: kernels rely
/// on its invariants. One pattern serves a whole uniform batch.
pub trait Pattern: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// A borrowed pattern, cheap to copy.
    type Ref<'a>: Copy + Send + Sync;

    /// The format's name: `"csr"`, `"coo"`, `"ell"`, `"dia"`, `"hyb"`, `"sellp"`.
    const NAME: &'static str;

    /// Borrows the pattern.
    fn view(&self) -> Self::Ref<'_>;
    /// Number of rows.
    fn nrows(&self) -> usize;
    /// Number of columns.
    fn ncols(&self) -> usize;
    /// Stored entries, explicit zeros included, padding not. For DIA, the slots inside the matrix,
    /// except those that its [masks](crate::DiaPattern::mask) exclude.
    fn nnz(&self) -> usize;
    /// Slots in the value array, padding included.
    fn stored_len(&self) -> usize;
    /// Bytes of the index arrays.
    fn index_bytes(&self) -> usize;
}

/// A sparse matrix: a shared pattern of format `P` and one value per slot.
///
/// Use it by its format's name: [`Csr`](crate::Csr), [`Coo`](crate::Coo), [`Ell`](crate::Ell),
/// [`Dia`](crate::Dia), [`Hyb`](crate::Hyb), [`SellP`](crate::SellP). Invariant:
/// `values.len() == pattern.stored_len()`. Padding slots hold 0 after a conversion; kernels skip
/// them whatever they hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix<P, T> {
    pattern: Arc<P>,
    values: Vec<T>,
}

impl<P: Pattern, T: Scalar> Matrix<P, T> {
    /// Joins a pattern and its values.
    ///
    /// # Errors
    /// [`FormatError::Length`] unless `values.len() == pattern.stored_len()`.
    pub fn from_parts(pattern: Arc<P>, values: Vec<T>) -> Result<Self, FormatError> {
        check_len("values", pattern.stored_len(), values.len())?;
        Ok(Self { pattern, values })
    }

    /// The pattern, shared with every matrix and batch made from it.
    pub fn pattern(&self) -> &Arc<P> {
        &self.pattern
    }

    /// The values, one per slot.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The values, to be changed in place; the pattern stays.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// Splits the matrix into its pattern and its values.
    pub fn into_parts(self) -> (Arc<P>, Vec<T>) {
        (self.pattern, self.values)
    }

    /// Number of rows.
    pub fn nrows(&self) -> usize {
        self.pattern.nrows()
    }

    /// Number of columns.
    pub fn ncols(&self) -> usize {
        self.pattern.ncols()
    }

    /// Stored entries, explicit zeros included, padding not.
    pub fn nnz(&self) -> usize {
        self.pattern.nnz()
    }

    /// Slots, padding included.
    pub fn stored_len(&self) -> usize {
        self.values.len()
    }

    /// Bytes of indices and values.
    pub fn bytes(&self) -> usize {
        self.pattern.index_bytes() + size_of_val(self.values.as_slice())
    }

    /// Borrows the matrix for a kernel.
    pub fn view(&self) -> View<'_, P, T> {
        View { pattern: self.pattern.view(), values: &self.values }
    }

    /// The same matrix in another precision, each value rounded to nearest.
    pub fn cast<U: Scalar>(&self) -> Matrix<P, U> {
        Matrix {
            pattern: Arc::clone(&self.pattern),
            values: self.values.iter().map(|v| U::from_f64(v.to_f64())).collect(),
        }
    }
}

/// A borrowed matrix: what kernels take, whether it came from a single matrix or from a batch.
pub struct View<'a, P: Pattern, T> {
    pattern: P::Ref<'a>,
    values: &'a [T],
}

impl<'a, P: Pattern, T> View<'a, P, T> {
    /// Joins both unchecked: the caller has checked that `values` fits `pattern`.
    pub(crate) fn new(pattern: P::Ref<'a>, values: &'a [T]) -> Self {
        Self { pattern, values }
    }

    /// The pattern.
    #[inline]
    pub fn pattern(&self) -> P::Ref<'a> {
        self.pattern
    }

    /// The values, one per slot.
    #[inline]
    pub fn values(&self) -> &'a [T] {
        self.values
    }
}

impl<P: Pattern, T> Clone for View<'_, P, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Pattern, T> Copy for View<'_, P, T> {}
