//! Arrays of a call as values of a batch: [`Lent`].

use std::marker::PhantomData;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use sparsebatch::batch::Values;

/// An array that a batch reads in place while this value lives.
///
/// A batch that is kept for longer finds its array empty, and panics.
pub(in crate::jax) struct Lent<'a, T> {
    array: Arc<Shared<T>>,
    _lender: PhantomData<&'a [T]>,
}

struct Shared<T> {
    /// Null once the array has gone.
    start: AtomicPtr<T>,
    len: usize,
}

/// The owner of the array that the batch knows.
struct Owner<T>(Arc<Shared<T>>);

impl<T> AsRef<[T]> for Owner<T> {
    fn as_ref(&self) -> &[T] {
        let start = self.0.start.load(Ordering::Acquire);
        match start.is_null() || self.0.len == 0 {
            true => &[],
            // SAFETY: the array is one of `Lent`, which has not been dropped: it is dropped after
            // the solve, whose threads have ended, and after the batch that it was lent to.
            false => unsafe { slice::from_raw_parts(start, self.0.len) },
        }
    }
}

impl<'a, T: Send + Sync + 'static> Lent<'a, T> {
    pub(in crate::jax) fn new(array: &'a [T]) -> Self {
        let start = AtomicPtr::new(array.as_ptr().cast_mut());
        Self { array: Arc::new(Shared { start, len: array.len() }), _lender: PhantomData }
    }

    /// The array, for a batch that is dropped before this value.
    pub(in crate::jax) fn values(&self) -> Values<T> {
        Values::of_owner(Owner(Arc::clone(&self.array)))
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        self.array.start.store(std::ptr::null_mut(), Ordering::Release);
    }
}
