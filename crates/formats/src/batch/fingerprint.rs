//! [`PatternFingerprint`]: tells whether two batches have the same patterns, without keeping them.

use super::Batch;
use crate::{CsrPatternRef, Pattern, Scalar};

/// The patterns of a batch as 64-bit hashes: one for a uniform batch, one per item for a ragged
/// one. A plan that takes new values but keeps the patterns in its own form checks new batches with
/// it.
///
/// Equal patterns have equal hashes. Different patterns collide by accident with probability 2^-64;
/// the hashes are no protection against patterns made to collide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternFingerprint {
    nitems: usize,
    /// Whether the batch is uniform: `hashes` then holds one hash for all items.
    uniform: bool,
    hashes: Vec<u64>,
}

impl PatternFingerprint {
    /// Hashes the index arrays of a batch, reading them once; a uniform batch has one set of them.
    pub fn of<T: Scalar>(batch: &Batch<T>) -> Self {
        let (nitems, uniform, hashes) = match batch {
            Batch::Uniform(batch) => {
                let nitems = batch.nitems();
                let one = (nitems > 0).then(|| hash(batch.pattern().view()));
                (nitems, true, one.into_iter().collect())
            }
            Batch::Ragged(batch) => {
                let nitems = batch.nitems();
                let hashes = (0..nitems).map(|item| hash(batch.item(item).pattern()));
                (nitems, false, hashes.collect())
            }
        };
        Self { nitems, uniform, hashes }
    }

    /// Systems of the batch.
    pub fn nitems(&self) -> usize {
        self.nitems
    }

    /// The first item of `batch` whose pattern differs from that of the same item here; `None` when
    /// all agree. Only items that both batches have are compared.
    pub fn first_difference<T: Scalar>(&self, batch: &Batch<T>) -> Option<usize> {
        let nitems = self.nitems.min(batch.nitems());
        let own = |item: usize| self.hashes[if self.uniform { 0 } else { item }];
        match batch {
            _ if nitems == 0 => None,
            Batch::Uniform(batch) => {
                let theirs = hash(batch.pattern().view());
                let items = if self.uniform { 1 } else { nitems };
                (0..items).find(|&item| own(item) != theirs)
            }
            Batch::Ragged(batch) => {
                (0..nitems).find(|&item| own(item) != hash(batch.item(item).pattern()))
            }
        }
    }

    /// Bytes held by the hashes.
    pub fn bytes(&self) -> usize {
        size_of_val(self.hashes.as_slice())
    }
}

/// The multiplier of `mix`: 2^64 divided by the golden ratio, odd and without a simple bit pattern.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// A hash of the sizes and index arrays. Four independent streams run side by side: four
/// multiplications can start within the latency of one.
fn hash(pattern: CsrPatternRef<'_>) -> u64 {
    let sizes = [pattern.nrows(), pattern.ncols(), pattern.nnz()];
    let start = sizes.iter().fold(FACTOR, |hash, &size| mix(hash, size as u64));
    words(words(start, pattern.row_ptr()), pattern.col_idx())
}

fn words(start: u64, indices: &[i32]) -> u64 {
    let mut streams = [start, start ^ FACTOR, !start, start.rotate_left(32)];
    let (chunks, rest) = indices.as_chunks::<8>();
    let pair = |low: i32, high: i32| u64::from(low as u32) | u64::from(high as u32) << 32;
    for chunk in chunks {
        for (k, stream) in streams.iter_mut().enumerate() {
            *stream = mix(*stream, pair(chunk[2 * k], chunk[2 * k + 1]));
        }
    }
    for &index in rest {
        streams[0] = mix(streams[0], u64::from(index as u32));
    }
    streams.into_iter().fold(FACTOR, mix)
}

fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(FACTOR);
    product ^ product >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Csr, RaggedCsr, UniformBatch};

    fn matrix(nrows: usize, row_ptr: &[i32], col_idx: &[i32]) -> Csr<f64> {
        let values = vec![1.0; col_idx.len()];
        Csr::try_new(nrows, nrows, row_ptr.to_vec(), col_idx.to_vec(), values).unwrap()
    }

    fn ragged(items: &[&Csr<f64>]) -> Batch<f64> {
        Batch::Ragged(items.iter().fold(RaggedCsr::new(), |mut batch, item| {
            batch.push(item.view());
            batch
        }))
    }

    #[test]
    fn the_first_item_of_another_pattern_is_found() {
        let a = matrix(3, &[0, 2, 3, 5], &[0, 2, 1, 0, 2]);
        // Has as many rows and entries as `a`.
        let moved = matrix(3, &[0, 1, 3, 5], &[0, 0, 1, 1, 2]);
        let empty = matrix(3, &[0, 0, 0, 0], &[]);
        let print = PatternFingerprint::of(&ragged(&[&a, &moved, &a]));

        assert_eq!(print.nitems(), 3);
        assert_eq!(print.first_difference(&ragged(&[&a, &moved, &a])), None);
        assert_eq!(print.first_difference(&ragged(&[&a, &a, &a])), Some(1));
        assert_eq!(print.first_difference(&ragged(&[&a, &moved, &empty])), Some(2));
        assert_eq!(print.first_difference(&ragged(&[])), None);
    }

    #[test]
    fn uniform_batches_are_compared_with_ragged_ones() {
        let a = matrix(3, &[0, 2, 3, 5], &[0, 2, 1, 0, 2]);
        let moved = matrix(3, &[0, 1, 3, 5], &[0, 0, 1, 1, 2]);
        let shared = |matrix: &Csr<f64>, n| Batch::Uniform(UniformBatch::shared(matrix.clone(), n));
        let print = PatternFingerprint::of(&shared(&a, usize::MAX));

        assert_eq!(print.bytes(), 8);
        assert_eq!(print.first_difference(&shared(&a, 2)), None);
        assert_eq!(print.first_difference(&shared(&moved, 2)), Some(0));
        assert_eq!(print.first_difference(&ragged(&[&a, &moved])), Some(1));
        let of_ragged = PatternFingerprint::of(&ragged(&[&a, &moved]));
        assert_eq!(of_ragged.first_difference(&shared(&a, 2)), Some(1));
        assert_eq!(
            PatternFingerprint::of(&shared(&a, 0)).first_difference(&shared(&moved, 3)),
            None
        );
    }

    #[test]
    fn every_single_change_of_an_index_is_seen() {
        // A band of 20 rows; one entry at a time is left out.
        let rows = 20i32;
        let columns = |row: i32| (row - 1).max(0)..(row + 2).min(rows);
        let all: Vec<(i32, i32)> =
            (0..rows).flat_map(|row| columns(row).map(move |col| (row, col))).collect();
        let without = |left_out: Option<usize>| {
            let entries: Vec<_> =
                (0..all.len()).filter(|&k| Some(k) != left_out).map(|k| all[k]).collect();
            let starts: Vec<i32> = (0..=rows)
                .map(|row| entries.iter().filter(|entry| entry.0 < row).count() as i32)
                .collect();
            let columns: Vec<i32> = entries.iter().map(|entry| entry.1).collect();
            hash(matrix(rows as usize, &starts, &columns).view().pattern())
        };
        let mut hashes: Vec<u64> = (0..all.len()).map(Some).chain([None]).map(without).collect();

        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();

        assert_eq!(hashes.len(), count);
    }
}
