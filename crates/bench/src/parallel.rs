//! Arrays filled by all cores.

use std::ops::Range;

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
}
