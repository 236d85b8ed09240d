//! Values and vectors of some items as contiguous arrays: borrowed if they are contiguous already,
//! otherwise copied to a buffer that is kept between solves, or to memory of the caller.

use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_formats::{Batch, BatchValues, CsrPattern, Pattern, Scalar, UniformBatch};

use sparsebatch_solve_core::Watch;

use crate::share::shares_values;

/// Values that a thread copies at a time: half a megabyte in f64.
const COPIED_AT_ONCE: usize = 1 << 16;

/// Items whose values a thread collects at a time.
const TILE: usize = 16;

/// Host memory for copies.
pub(super) struct Staging<T> {
    values: Vec<T>,
    vector: Vec<T>,
}

impl<T> Default for Staging<T> {
    fn default() -> Self {
        Self { values: Vec::new(), vector: Vec::new() }
    }
}

/// The systems of a solve.
#[derive(Clone, Copy)]
pub(super) struct Systems<'a, T> {
    pub(super) batch: &'a Batch<T>,
    pub(super) nrhs: usize,
    /// The item with which vectors and outcomes begin: 0 where they are those of the whole batch.
    pub(super) first: usize,
    /// One flag per system of the batch; all are wanted when absent.
    pub(super) wanted: Option<&'a [bool]>,
    /// Whether all guesses of wanted systems are known to be 0.
    pub(super) starts_at_zero: bool,
    pub(super) watch: Option<&'a Watch>,
}

impl<'a, T: Scalar> Systems<'a, T> {
    /// The matrices of all items, without vectors.
    pub(super) fn new(batch: &'a Batch<T>) -> Self {
        Self { batch, nrhs: 0, first: 0, wanted: None, starts_at_zero: false, watch: None }
    }

    /// Counts systems that have ended.
    pub(super) fn count(&self, ended: usize) {
        if let Some(watch) = self.watch {
            watch.add(ended);
        }
    }

    /// Whether a system is wanted.
    pub(super) fn wants(&self, system: usize) -> bool {
        self.wanted.is_none_or(|wanted| wanted[system])
    }

    /// The number of wanted systems of some items.
    pub(super) fn wanted_of(&self, items: &[u32]) -> usize {
        let systems = |&item: &u32| item as usize * self.nrhs..(item as usize + 1) * self.nrhs;
        match self.wanted {
            None => items.len() * self.nrhs,
            Some(wanted) => items.iter().flat_map(systems).filter(|&system| wanted[system]).count(),
        }
    }

    fn wants_all(&self, items: &[u32]) -> bool {
        let systems = |&item: &u32| item as usize * self.nrhs..(item as usize + 1) * self.nrhs;
        self.wanted.is_none() || items.iter().flat_map(systems).all(|system| self.wants(system))
    }

    /// Where an item begins in item-major vectors.
    pub(super) fn offset(&self, item: usize) -> usize {
        (self.batch.row_offset(item) - self.batch.row_offset(self.first)) * self.nrhs
    }

    /// The part of item-major vectors that belongs to an item.
    fn rows(&self, item: u32) -> Range<usize> {
        self.offset(item as usize)..self.offset(item as usize + 1)
    }

    /// The place of a system of the batch among the outcomes.
    pub(super) fn place(&self, system: usize) -> usize {
        system - self.first * self.nrhs
    }

    /// The part that belongs to consecutive items.
    fn all_rows(&self, items: &[u32]) -> Option<Range<usize>> {
        let range = run(items)?;
        Some(self.offset(range.start)..self.offset(range.end))
    }

    /// The values of items, one after the other; those of one item if the batch shares its values.
    pub(super) fn values<'v>(&self, items: &[u32], staging: &'v mut Staging<T>) -> &'v [T]
    where
        'a: 'v,
    {
        if let Some(values) = self.whole_values(items) {
            return values;
        }
        let copy = &mut staging.values;
        copy.resize(self.values_len(items), T::ZERO);
        self.values_into(items, copy);
        copy
    }

    /// The number of [`values`](Self::values).
    pub(super) fn values_len(&self, items: &[u32]) -> usize {
        match self.batch {
            Batch::Uniform(_) => {
                let nnz = items.first().map_or(0, |&item| self.batch.pattern(item as usize).nnz());
                if shares_values(self.batch) { nnz } else { nnz * items.len() }
            }
            Batch::Ragged(batch) => {
                let offsets = batch.nnz_offsets();
                items.iter().map(|&item| offsets[item as usize + 1] - offsets[item as usize]).sum()
            }
        }
    }

    /// Copies [`values`](Self::values) to the beginning of `copy`.
    pub(super) fn values_into(&self, items: &[u32], copy: &mut [T]) {
        match self.batch {
            Batch::Uniform(batch) => self.uniform_values_into(batch, items, copy),
            Batch::Ragged(batch) => {
                let offsets = batch.nnz_offsets();
                let mut rest = copy;
                let cut = |&item: &u32| {
                    let item = item as usize;
                    let values = &batch.values()[offsets[item]..offsets[item + 1]];
                    let (copy, left) = std::mem::take(&mut rest).split_at_mut(values.len());
                    rest = left;
                    (values, copy)
                };
                let each: Vec<(&[T], &mut [T])> = items.iter().map(cut).collect();
                let each = each.into_par_iter().with_min_len(TILE);
                each.for_each(|(values, copy)| copy.copy_from_slice(values));
            }
        }
    }

    /// [`values_into`](Self::values_into) of items that all have `nnz` values.
    fn uniform_values_into(
        &self,
        batch: &UniformBatch<CsrPattern, T>,
        items: &[u32],
        copy: &mut [T],
    ) {
        let nnz = batch.pattern().nnz();
        if nnz == 0 {
            return;
        }
        match (batch.values(), self.whole_values(items)) {
            (_, Some(values)) => copy_in_parallel(values, copy),
            (BatchValues::Shared(_), None) => unreachable!("shared values are contiguous"),
            (BatchValues::Interleaved(values), None) => {
                let tiles = copy[..nnz * items.len()].par_chunks_mut(TILE * nnz);
                tiles.zip(items.par_chunks(TILE)).for_each(|(copy, items)| {
                    // Neighbouring items share cache lines.
                    for (k, all) in values.chunks(batch.nitems().max(1)).enumerate() {
                        for (place, &item) in items.iter().enumerate() {
                            copy[place * nnz + k] = all[item as usize];
                        }
                    }
                });
            }
            (BatchValues::ItemMajor(values), None) => {
                let each = copy[..nnz * items.len()].par_chunks_mut(nnz).zip(items);
                each.with_min_len(TILE).for_each(|(copy, &item)| {
                    copy.copy_from_slice(&values[item as usize * nnz..][..nnz]);
                });
            }
        }
    }

    /// The values of items, if they are contiguous.
    pub(super) fn whole_values(&self, items: &[u32]) -> Option<&'a [T]> {
        match self.batch {
            Batch::Uniform(batch) => match batch.values() {
                BatchValues::Shared(values) => Some(values),
                BatchValues::ItemMajor(values) => run(items).map(|items| {
                    let nnz = self.batch.pattern(items.start).nnz();
                    &values[items.start * nnz..items.end * nnz]
                }),
                BatchValues::Interleaved(_) => None,
            },
            Batch::Ragged(batch) => run(items).map(|items| {
                let offsets = batch.nnz_offsets();
                &batch.values()[offsets[items.start]..offsets[items.end]]
            }),
        }
    }

    /// The rows of items of equal pattern in a vector, with 0 in systems that are not wanted: with
    /// a right-hand side of 0 they end at once.
    pub(super) fn gather<'v>(
        &self,
        items: &[u32],
        vector: &'v [T],
        staging: &'v mut Staging<T>,
    ) -> &'v [T] {
        if let Some(rows) = self.whole_rows(items) {
            return &vector[rows];
        }
        let copy = &mut staging.vector;
        copy.resize(self.rows_len(items), T::ZERO);
        self.gather_into(items, vector, copy);
        copy
    }

    /// The number of values of [`gather`](Self::gather).
    pub(super) fn rows_len(&self, items: &[u32]) -> usize {
        self.all_rows(items).map_or_else(
            || items.iter().map(|&item| self.rows(item).len()).sum(),
            |rows| rows.len(),
        )
    }

    /// Copies the values of [`gather`](Self::gather) to the beginning of `copy`.
    pub(super) fn gather_into(&self, items: &[u32], vector: &[T], copy: &mut [T]) {
        if let Some(rows) = self.whole_rows(items) {
            return copy_in_parallel(&vector[rows], copy);
        }
        let mut rest = copy;
        let cut = |&item: &u32| {
            let (rows, left) = std::mem::take(&mut rest).split_at_mut(self.rows(item).len());
            rest = left;
            (item, rows)
        };
        let each: Vec<(u32, &mut [T])> = items.iter().map(cut).collect();
        each.into_par_iter().for_each(|(item, copy)| {
            let rows = &vector[self.rows(item)];
            let nrows = rows.len() / self.nrhs;
            for rhs in 0..self.nrhs {
                let rows_of = rhs * nrows..(rhs + 1) * nrows;
                if self.wants(item as usize * self.nrhs + rhs) {
                    copy[rows_of.clone()].copy_from_slice(&rows[rows_of]);
                } else {
                    copy[rows_of].fill(T::ZERO);
                }
            }
        });
    }

    /// Whether the guesses of all wanted systems of the items, in a vector, are 0.
    pub(super) fn is_zero(&self, items: &[u32], vector: &[T]) -> bool {
        if self.starts_at_zero {
            return true;
        }
        let is_zero = |values: &[T]| values.iter().all(|&value| value == T::ZERO);
        if let Some(rows) = self.whole_rows(items) {
            return vector[rows].par_chunks(COPIED_AT_ONCE).all(is_zero);
        }
        items.par_iter().all(|&item| {
            let rows = &vector[self.rows(item)];
            let nrows = rows.len() / self.nrhs;
            (0..self.nrhs).all(|rhs| {
                !self.wants(item as usize * self.nrhs + rhs)
                    || is_zero(&rows[rhs * nrows..(rhs + 1) * nrows])
            })
        })
    }

    /// The rows of consecutive items, if all their systems are wanted.
    pub(super) fn whole_rows(&self, items: &[u32]) -> Option<Range<usize>> {
        if self.wants_all(items) { self.all_rows(items) } else { None }
    }

    /// Calls `fill` with memory for the rows of items, and copies the rows of wanted systems into a
    /// vector.
    pub(super) fn scatter<E>(
        &self,
        items: &[u32],
        vector: &mut [T],
        staging: &mut Staging<T>,
        fill: impl FnOnce(&mut [T]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(rows) = self.whole_rows(items) {
            return fill(&mut vector[rows]);
        }
        let copy = &mut staging.vector;
        copy.resize(self.rows_len(items), T::ZERO);
        fill(copy)?;
        self.scatter_from(items, copy, vector);
        Ok(())
    }

    /// Copies the rows of wanted systems from the beginning of `copy` into a vector.
    pub(super) fn scatter_from(&self, items: &[u32], copy: &[T], vector: &mut [T]) {
        if let Some(rows) = self.whole_rows(items) {
            return copy_in_parallel(&copy[..rows.len()], &mut vector[rows]);
        }
        let mut rest = copy;
        for &item in items {
            let rows = &mut vector[self.rows(item)];
            let nrows = rows.len() / self.nrhs;
            let (copy, left) = rest.split_at(rows.len());
            rest = left;
            for rhs in 0..self.nrhs {
                if self.wants(item as usize * self.nrhs + rhs) {
                    let rows_of = rhs * nrows..(rhs + 1) * nrows;
                    rows[rows_of.clone()].copy_from_slice(&copy[rows_of]);
                }
            }
        }
    }
}

/// Copies `from` to the beginning of `to`.
fn copy_in_parallel<T: Scalar>(from: &[T], to: &mut [T]) {
    let to = to[..from.len()].par_chunks_mut(COPIED_AT_ONCE);
    to.zip(from.par_chunks(COPIED_AT_ONCE)).for_each(|(to, from)| to.copy_from_slice(from));
}

/// The range of ascending items, if none is left out.
pub(super) fn run(items: &[u32]) -> Option<Range<usize>> {
    let (&first, &last) = (items.first()?, items.last()?);
    ((last - first) as usize + 1 == items.len()).then_some(first as usize..last as usize + 1)
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::generate::{Family, Problem};
    use sparsebatch_formats::{Csr, RaggedCsr};

    use super::*;

    /// Small items and large ones in turn, of more values than are copied at a time.
    fn ragged() -> Batch<f64> {
        let small = Problem::new(Family::Tri, 3).unwrap().batch(300).unwrap().batch;
        let large = Problem::new(Family::Rand9, 54).unwrap().batch(300).unwrap().batch;
        let mut all = RaggedCsr::new();
        (0..300).for_each(|item| {
            all.push(small.to_csr(item).view());
            all.push(large.to_csr(item).view());
        });
        assert!(all.total_nnz() > COPIED_AT_ONCE);
        Batch::Ragged(all)
    }

    fn interleaved(batch: &Batch<f64>) -> Batch<f64> {
        let Batch::Uniform(batch) = batch else { unreachable!("a uniform batch") };
        let (nitems, nnz) = (batch.nitems(), batch.pattern().nnz());
        let BatchValues::ItemMajor(given) = batch.values() else { unreachable!("item-major") };
        let values = (0..nnz * nitems).map(|at| given[at % nitems * nnz + at / nitems]).collect();
        let values = BatchValues::Interleaved(values);
        Batch::Uniform(UniformBatch::try_new(batch.pattern().clone(), nitems, values).unwrap())
    }

    #[test]
    fn all_values_are_copied() {
        let uniform = Problem::new(Family::Tri, 128).unwrap().batch(600).unwrap().batch;
        for (name, batch) in
            [("interleaved", interleaved(&uniform)), ("item-major", uniform), ("ragged", ragged())]
        {
            let gaps: Vec<u32> = (0..600).filter(|item| item % 7 != 3).collect();
            let lists = [(0..600).collect(), (1..600).collect(), (17..499).collect(), gaps];
            for items in &lists {
                let items: &Vec<u32> = items;
                let systems = Systems { nrhs: 1, ..Systems::new(&batch) };
                let each = |item: &u32| Csr::values(&batch.to_csr(*item as usize)).to_vec();
                let expected: Vec<Vec<f64>> = items.iter().map(each).collect();
                let mut copy = vec![f64::NAN; systems.values_len(items) + 3];

                systems.values_into(items, &mut copy);

                assert!(copy.iter().rev().take(3).all(|value| value.is_nan()), "{name}");
                copy.truncate(copy.len() - 3);
                assert!(copy == expected.concat(), "{name}, {} items", items.len());
            }
        }
    }
}
