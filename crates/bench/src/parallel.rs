//! Arrays filled by all cores, and other loops on all threads. Their code is compiled once for each type
//! of results: that of a parallel iterator, some twenty functions for each use, was a third of this
//! crate.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use sparsebatch_formats::Scalar;

/// Values that a thread fills at a time; a longer part is filled by one thread.
const GRAIN: usize = 1 << 16;

/// A vector of consecutive parts, each filled by its own call of `fill`. `offsets` has the start of
/// each part, and the total length at the end.
///
/// # Panics
/// When there is no offset, or an offset is less than the one before.
pub(crate) fn in_parts<T: Copy + Default + Send>(
    offsets: &[usize],
    fill: &(impl Fn(usize, &mut [T]) + Sync),
) -> Vec<T> {
    let begin = offsets[0];
    // The zeroed pages are untouched yet; the threads that fill them touch them first.
    let mut values = vec![T::default(); offsets[offsets.len() - 1] - begin];
    fill_parts(0..offsets.len() - 1, offsets, &mut values, fill);
    values
}

fn fill_parts<T: Send>(
    parts: Range<usize>,
    offsets: &[usize],
    values: &mut [T],
    fill: &(impl Fn(usize, &mut [T]) + Sync),
) {
    let begin = offsets[parts.start];
    if parts.len() > 1 && values.len() > GRAIN {
        let middle = parts.start + parts.len() / 2;
        let (front, back) = values.split_at_mut(offsets[middle] - begin);
        rayon::join(
            || fill_parts(parts.start..middle, offsets, front, fill),
            || fill_parts(middle..parts.end, offsets, back, fill),
        );
        return;
    }
    let mut rest = values;
    for part in parts {
        let (values, behind) = rest.split_at_mut(offsets[part + 1] - offsets[part]);
        fill(part, values);
        rest = behind;
    }
}

/// What `work` gives for each number below `count`, in order. Each call is a task of its own.
pub(crate) fn map<R: Send>(count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let places: Vec<Mutex<Option<R>>> = (0..count).map(|_| Mutex::new(None)).collect();
    each(count, &|number| {
        let made = work(number);
        *places[number].lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
    });
    let made = places.into_iter().map(|place| place.into_inner());
    made.filter_map(|made| made.unwrap_or_else(PoisonError::into_inner)).collect()
}

fn each(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().with_max_len(1).for_each(work);
}

/// The values in f64.
pub(crate) fn in_f64<T: Scalar>(values: &[T]) -> Vec<f64> {
    values.par_iter().map(|value| value.to_f64()).collect()
}

/// `len` zeros, whose pages all threads touch: on one that is slow.
pub(crate) fn zeros<T: Scalar>(len: usize) -> Vec<T> {
    (0..len).into_par_iter().map(|_| T::ZERO).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_filled_where_they_belong() {
        let lengths = [0, 3, GRAIN + 1, 1, 0, 2 * GRAIN, 7];
        let mut offsets = vec![0];
        offsets.extend(lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        }));

        let values = in_parts(&offsets, &|part, values: &mut [usize]| values.fill(part));

        let expected = lengths.iter().enumerate().flat_map(|(part, &length)| vec![part; length]);
        assert!(values.into_iter().eq(expected));
        assert!(in_parts::<u8>(&[0], &|_, _| ()).is_empty());
    }

    #[test]
    fn results_are_in_order() {
        assert!(map(0, |number| number).is_empty());
        assert_eq!(map(1000, |number| 3 * number), (0..1000).map(|n| 3 * n).collect::<Vec<_>>());
        assert_eq!(in_f64(&[1.5f32, -2.0]), [1.5, -2.0]);
        assert_eq!(zeros::<f32>(3), [0.0; 3]);
    }
}
