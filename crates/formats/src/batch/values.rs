//! The values of a batch, owned or borrowed from another owner: [`Values`].

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// An array of values: a vector, or the array of another owner, which is read in place.
///
/// An array of another owner, such as one of NumPy, becomes a batch without a copy. It is copied
/// where it is to be changed through this type.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use sparsebatch_formats::batch::Values;
///
/// let owner: Arc<[f64]> = Arc::from([1.0, 2.0]);
/// let mut values = Values::of_owner(Arc::clone(&owner));
/// assert_eq!(values.as_ptr(), owner.as_ptr());
/// values.make_mut()[0] = 3.0;
/// assert_eq!((values[0], owner[0]), (3.0, 1.0));
/// ```
#[derive(Clone)]
pub struct Values<T>(Storage<T>);

#[derive(Clone)]
enum Storage<T> {
    Own(Vec<T>),
    Other(Owner<T>, usize),
}

/// Another owner of an array.
type Owner<T> = Arc<dyn AsRef<[T]> + Send + Sync>;

impl<T> Values<T> {
    /// The array of another owner, which is kept alive. The owner must return the same array at
    /// every call; where its length has changed, access panics.
    pub fn of_owner(owner: impl AsRef<[T]> + Send + Sync + 'static) -> Self {
        let len = owner.as_ref().len();
        Self(Storage::Other(Arc::new(owner), len))
    }

    /// The array to be changed; that of another owner is copied first.
    pub fn make_mut(&mut self) -> &mut [T]
    where
        T: Clone,
    {
        self.make_vec()
    }

    /// As [`Values::make_mut`], to grow.
    pub(super) fn make_vec(&mut self) -> &mut Vec<T>
    where
        T: Clone,
    {
        if let Storage::Other(..) = self.0 {
            self.0 = Storage::Own(self.to_vec());
        }
        match &mut self.0 {
            Storage::Own(values) => values,
            Storage::Other(..) => unreachable!("was copied above"),
        }
    }

    /// The array as a vector; that of another owner is copied.
    pub fn into_vec(self) -> Vec<T>
    where
        T: Clone,
    {
        match self.0 {
            Storage::Own(values) => values,
            Storage::Other(..) => self.to_vec(),
        }
    }
}

impl<T> Deref for Values<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Storage::Own(values) => values,
            Storage::Other(owner, len) => {
                let values = (**owner).as_ref();
                assert_eq!(values.len(), *len, "the owner of an array has changed its length");
                values
            }
        }
    }
}

impl<T> From<Vec<T>> for Values<T> {
    fn from(values: Vec<T>) -> Self {
        Self(Storage::Own(values))
    }
}

impl<T: fmt::Debug> fmt::Debug for Values<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Values<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::batch::{Batch, BatchOf, BatchValues, RaggedCsr, UniformBatch};
    use crate::{CsrPattern, FormatError};

    #[test]
    fn arrays_of_others_are_read_in_place_and_copied_to_be_changed() {
        let owner: Arc<[f64]> = Arc::from([1.0, 2.0]);
        let values = Values::of_owner(Arc::clone(&owner));
        let clone = values.clone();
        let mut changed = values.clone();
        changed.make_mut()[1] = 5.0;

        assert_eq!((values.as_ptr(), clone.as_ptr()), (owner.as_ptr(), owner.as_ptr()));
        assert_eq!((&*changed, &*owner), (&[1.0, 5.0][..], &[1.0, 2.0][..]));
        assert_eq!(values, Values::from(vec![1.0, 2.0]));
        assert_eq!(format!("{values:?}"), "[1.0, 2.0]");
        assert_eq!((values.into_vec(), changed.into_vec()), (vec![1.0, 2.0], vec![1.0, 5.0]));
        drop(clone);
        assert_eq!(Arc::strong_count(&owner), 1, "the owner is let go");
    }

    #[test]
    fn batches_read_the_arrays_of_others() {
        let owner: Arc<[f64]> = Arc::from([1.0, 2.0, 3.0, 4.0]);
        let values = || Values::of_owner(Arc::clone(&owner));
        let pattern = CsrPattern::try_new(2, 2, vec![0, 1, 2], vec![0, 1]).unwrap();

        let item_major = BatchValues::ItemMajor(values());
        let mut uniform = UniformBatch::from_values(Arc::new(pattern), 2, item_major).unwrap();
        let (sizes, row_ptr) = ([2, 2], vec![0, 1, 2, 0, 1, 2]);
        let ragged =
            RaggedCsr::from_values(&sizes, &sizes, &sizes, row_ptr, vec![0, 1, 0, 1], values());

        assert_eq!(uniform.item(1).values().as_ptr(), owner[2..].as_ptr());
        assert_eq!(ragged.unwrap().item(1).values().as_ptr(), owner[2..].as_ptr());
        let batch = Batch::Uniform(uniform.clone());
        assert_eq!(batch.clone().item_values(0).unwrap().as_ptr(), owner.as_ptr());
        let own = batch.with_own_values();
        assert_ne!(own.item_values(0).unwrap().as_ptr(), owner.as_ptr());
        assert_eq!(own, batch);
        uniform.values_mut()[0] = 7.0;
        assert_eq!((uniform.values().into_array()[0], owner[0]), (7.0, 1.0));
        let short = BatchValues::Shared(values());
        let refused = UniformBatch::from_values(Arc::clone(uniform.pattern()), 3, short);
        assert!(matches!(refused, Err(FormatError::Length { .. })));
    }

    /// Returns one value less at every call.
    struct Shrinking(AtomicUsize);

    impl AsRef<[f64]> for Shrinking {
        fn as_ref(&self) -> &[f64] {
            &[1.0, 2.0, 3.0][..self.0.fetch_sub(1, Ordering::Relaxed)]
        }
    }

    #[test]
    #[should_panic(expected = "has changed its length")]
    fn an_owner_that_changes_its_length_is_found_out() {
        let values = Values::of_owner(Shrinking(AtomicUsize::new(3)));

        let _ = values[0];
    }
}
