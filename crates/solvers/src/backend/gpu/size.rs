//! How much of the GPU's memory items take, and the chunks that they are cut into.

use sparsebatch_cuda::Value;
use sparsebatch_formats::{Batch, CsrPatternRef};

use crate::backend::Chunks;
use crate::share::shares_values;

/// Approximate bytes on the GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Bytes of the plan that do not depend on the number of items.
    pub(super) fixed: u64,
    /// Bytes of an item's values and vectors.
    pub(super) data: u64,
    /// Bytes of the plan per item.
    pub(super) plan: u64,
}

/// Bytes of a plan per system: outcome and limits, where they are given per system for the plan and
/// to confirm its verdicts.
pub(super) const SYSTEM_BYTES: u64 = 25 + 2 * LIMIT_BYTES;
pub(super) const LIMIT_BYTES: u64 = 20;

/// Bounds of the default size of a chunk. Below the lower bound, copies and launches take longer to
/// start than to run; above the upper bound they do not become faster.
const CHUNK_BYTES: [u64; 2] = [8 << 20, 64 << 20];

/// Default number of chunks of a batch, within these bounds. Nothing is solved while the first
/// chunk is copied to the GPU and the last one back.
const USUAL_CHUNKS: u64 = 8;

impl Size {
    pub(super) fn of<T: Value>(pattern: CsrPatternRef<'_>, batch: &Batch<T>, nrhs: usize) -> Self {
        let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
        let (value, nrhs) = (size_of::<T>() as u64, nrhs as u64);
        let shared = shares_values(batch);
        Self {
            fixed: pattern_bytes(pattern) + if shared { nnz * value } else { 0 },
            data: nrhs * 2 * nrows * value + if shared { 0 } else { nnz * value },
            plan: nrhs * SYSTEM_BYTES,
        }
    }

    /// Of items that iterate together over products.
    pub(super) fn over_products<T: Value>(
        self,
        pattern: CsrPatternRef<'_>,
        batch: &Batch<T>,
        nrhs: usize,
    ) -> Self {
        let matrix = product_matrix_bytes::<T>(pattern);
        let vectors = product_bytes::<T>(pattern, nrhs) - matrix;
        match shares_values(batch) {
            true => Self { fixed: self.fixed + matrix, plan: self.plan + vectors, ..self },
            false => Self { plan: self.plan + matrix + vectors, ..self },
        }
    }

    /// Bytes of items in chunks.
    pub(super) fn bytes(&self, split: Split) -> u64 {
        let (chunk, at_once) = (split.chunk as u64, split.at_once as u64);
        self.fixed + chunk * (self.plan + at_once * self.data)
    }
}

/// Bytes of a pattern: columns of 16 bits, half of them padding, what a row needs, and what
/// confirms verdicts.
pub(super) fn pattern_bytes(pattern: CsrPatternRef<'_>) -> u64 {
    let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
    4 * nnz + 16 * nrows + confirming_bytes(pattern)
}

/// Approximate bytes of an item in a plan that iterates over products, beside its values and
/// vectors: its matrix, held twice while the plan is made, and the vectors of its systems.
pub(super) fn product_bytes<T: Value>(pattern: CsrPatternRef<'_>, nrhs: usize) -> u64 {
    const SYSTEM_BYTES: u64 = 200;
    const VECTORS: u64 = 7;
    let of_system = VECTORS * pattern.nrows() as u64 * size_of::<T>() as u64 + SYSTEM_BYTES;
    product_matrix_bytes::<T>(pattern) + nrhs as u64 * of_system
}

fn product_matrix_bytes<T: Value>(pattern: CsrPatternRef<'_>) -> u64 {
    pattern.nnz() as u64 * (2 * size_of::<T>() as u64 + 8) + 16 * pattern.nrows() as u64
}

/// Bytes of the pattern by which the verdicts of a plan are confirmed.
pub(super) fn confirming_bytes(pattern: CsrPatternRef<'_>) -> u64 {
    let column = if pattern.ncols() <= 1 << 16 { 2 } else { 4 };
    column * pattern.nnz() as u64 + 4 * (pattern.nrows() as u64 + 1)
}

impl Chunks {
    /// Bytes of one chunk of a batch of `bytes`.
    pub(super) fn usual_bytes(&self, all: u64) -> u64 {
        let [least, most] = CHUNK_BYTES;
        self.bytes.unwrap_or((all / USUAL_CHUNKS).clamp(least, most))
    }
}

/// How items go through the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// Items of a chunk.
    pub(super) chunk: usize,
    /// Chunks that the GPU holds at a time.
    pub(super) at_once: usize,
}

impl Split {
    /// All items in one chunk.
    pub(super) fn whole(nitems: usize) -> Self {
        Self { chunk: nitems, at_once: 1 }
    }

    /// Chunks of about equal size.
    fn even(nitems: usize, most: usize, at_once: usize) -> Self {
        let chunks = nitems.div_ceil(most.clamp(1, nitems));
        Self { chunk: nitems.div_ceil(chunks), at_once: at_once.clamp(1, chunks) }
    }

    /// The division into chunks of the usual size.
    pub(super) fn usual(nitems: usize, size: &Size, chunks: &Chunks) -> Self {
        let all = size.data.saturating_mul(nitems as u64);
        let most = chunks.usual_bytes(all) / size.data.max(1);
        Self::even(nitems, most as usize, chunks.at_once)
    }

    /// The division into chunks that fit in the given bytes; `None` if a single item does not fit.
    pub(super) fn within(budget: u64, nitems: usize, size: &Size, chunks: &Chunks) -> Option<Self> {
        let usual = Self::usual(nitems, size, chunks);
        (1..=chunks.at_once.max(1)).rev().find_map(|at_once| {
            let each = size.plan + at_once as u64 * size.data;
            let most = budget.checked_sub(size.fixed)? / each;
            (most > 0).then(|| Self::even(nitems, usual.chunk.min(most as usize), at_once))
        })
    }

    /// Chunks of half the size.
    pub(super) fn halved(self) -> Self {
        Self { chunk: self.chunk.div_ceil(2), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { fixed: 1000, data: 1 << 10, plan: 45 };

    #[test]
    fn small_batches_stay_whole_large_ones_do_not() {
        let usual = |nitems| Split::usual(nitems, &SIZE, &Chunks::default());
        for (nitems, chunks, at_once) in
            [(1, 1, 1), (8 << 10, 1, 1), (9 << 10, 2, 2), (1 << 18, 8, 3), (1 << 24, 256, 3)]
        {
            let split = usual(nitems);
            let found = (nitems.div_ceil(split.chunk), split.at_once);
            assert_eq!(found, (chunks, at_once), "{nitems}");
        }
        let asked = Chunks { bytes: Some(1), at_once: 5 };
        assert_eq!(Split::usual(4, &SIZE, &asked), Split { chunk: 1, at_once: 4 });
    }

    #[test]
    fn what_fits_is_taken_in_chunks_that_overlap_where_that_is_possible() {
        for (budget, expected) in [
            (1 << 30, Some((100, 1))),
            (1000 + 3 * 10 * 1200, Some((10, 3))),
            (1000 + 3 * 1200, Some((1, 3))),
            (1000 + 2500, Some((1, 2))),
            (1000 + 1100, Some((1, 1))),
            (1000 + 1050, None),
            (999, None),
        ] {
            let split = Split::within(budget, 100, &SIZE, &Chunks::default());
            let found = split.map(|split| (split.chunk, split.at_once));
            assert!(split.is_none_or(|split| SIZE.bytes(split) <= budget), "{split:?}");
            match expected {
                Some((chunk, at_once)) if chunk == 100 => assert_eq!(found, Some((chunk, at_once))),
                Some((chunk, at_once)) => {
                    let (found, chunks) = found.unwrap();
                    assert!(found >= chunk && chunks == at_once, "{budget}: {split:?}");
                }
                None => assert_eq!(found, None, "{budget}"),
            }
        }
    }
}
