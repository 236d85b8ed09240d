//! Values and vectors of some items, one after the other: borrowed where they stand so already,
//! otherwise by way of a copy that is kept between solves.

use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_formats::{Batch, BatchValues, Scalar};

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
    /// One flag per system; all are wanted when absent.
    pub(super) wanted: Option<&'a [bool]>,
}

impl<'a, T: Scalar> Systems<'a, T> {
    /// Whether a system is wanted.
    pub(super) fn wants(&self, system: usize) -> bool {
        self.wanted.is_none_or(|wanted| wanted[system])
    }

    fn wants_all(&self, items: &[u32]) -> bool {
        let systems = |&item: &u32| item as usize * self.nrhs..(item as usize + 1) * self.nrhs;
        self.wanted.is_none() || items.iter().flat_map(systems).all(|system| self.wants(system))
    }

    /// The part of item-major vectors that belongs to an item.
    fn rows(&self, item: u32) -> Range<usize> {
        let offset = |item| self.batch.row_offset(item) * self.nrhs;
        offset(item as usize)..offset(item as usize + 1)
    }

    /// The part that belongs to items which follow each other.
    fn all_rows(&self, items: &[u32]) -> Option<Range<usize>> {
        let range = run(items)?;
        let offset = |item| self.batch.row_offset(item) * self.nrhs;
        Some(offset(range.start)..offset(range.end))
    }

    /// The values of items of equal pattern, item after item; one item's where the batch shares
    /// them.
    pub(super) fn values<'v>(&self, items: &[u32], staging: &'v mut Staging<T>) -> &'v [T]
    where
        'a: 'v,
    {
        let whole = match self.batch {
            Batch::Uniform(batch) => match batch.values() {
                BatchValues::Shared(values) => return values,
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
        };
        if let Some(values) = whole {
            return values;
        }
        let nnz = items.first().map_or(0, |&item| self.batch.pattern(item as usize).nnz());
        let copy = &mut staging.values;
        copy.clear();
        copy.resize(nnz * items.len(), T::ZERO);
        copy.par_chunks_mut(nnz.max(1)).zip(items).for_each(|(copy, &item)| {
            self.copy_values(item as usize, copy);
        });
        copy
    }

    fn copy_values(&self, item: usize, copy: &mut [T]) {
        match self.batch {
            Batch::Uniform(batch) => match batch.values() {
                BatchValues::Interleaved(values) => {
                    let strided = values[item..].iter().step_by(self.batch.nitems());
                    copy.iter_mut().zip(strided).for_each(|(copy, &value)| *copy = value);
                }
                BatchValues::ItemMajor(_) | BatchValues::Shared(_) => {
                    copy.copy_from_slice(self.batch.item_values(item).unwrap_or_default());
                }
            },
            Batch::Ragged(batch) => {
                let offsets = batch.nnz_offsets();
                copy.copy_from_slice(&batch.values()[offsets[item]..offsets[item + 1]]);
            }
        }
    }

    /// The rows of items of equal pattern in a vector; 0 in systems that are not wanted, which end
    /// at once where the right-hand side is 0.
    pub(super) fn gather<'v>(
        &self,
        items: &[u32],
        vector: &'v [T],
        staging: &'v mut Staging<T>,
    ) -> &'v [T] {
        let all = self.wants_all(items);
        if let (true, Some(rows)) = (all, self.all_rows(items)) {
            return &vector[rows];
        }
        let copy = &mut staging.vector;
        let len = items.first().map_or(0, |&item| self.rows(item).len());
        copy.clear();
        copy.resize(len * items.len(), T::ZERO);
        copy.par_chunks_mut(len.max(1)).zip(items).for_each(|(copy, &item)| {
            let rows = &vector[self.rows(item)];
            let nrows = len / self.nrhs;
            for rhs in 0..self.nrhs {
                if self.wants(item as usize * self.nrhs + rhs) {
                    let rows_of = rhs * nrows..(rhs + 1) * nrows;
                    copy[rows_of.clone()].copy_from_slice(&rows[rows_of]);
                }
            }
        });
        copy
    }

    /// Hands `fill` a place for the rows of items, and brings those of wanted systems into a vector.
    pub(super) fn scatter<E>(
        &self,
        items: &[u32],
        vector: &mut [T],
        staging: &mut Staging<T>,
        fill: impl FnOnce(&mut [T]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let (true, Some(rows)) = (self.wants_all(items), self.all_rows(items)) {
            return fill(&mut vector[rows]);
        }
        let copy = &mut staging.vector;
        let len = items.first().map_or(0, |&item| self.rows(item).len());
        copy.resize(len * items.len(), T::ZERO);
        fill(copy)?;
        let nrows = len / self.nrhs;
        for (copy, &item) in copy.chunks(len.max(1)).zip(items) {
            let rows = &mut vector[self.rows(item)];
            for rhs in 0..self.nrhs {
                if self.wants(item as usize * self.nrhs + rhs) {
                    let rows_of = rhs * nrows..(rhs + 1) * nrows;
                    rows[rows_of.clone()].copy_from_slice(&copy[rows_of]);
                }
            }
        }
        Ok(())
    }
}

/// The range of ascending items, if none is left out.
fn run(items: &[u32]) -> Option<Range<usize>> {
    let (&first, &last) = (items.first()?, items.last()?);
    ((last - first) as usize + 1 == items.len()).then_some(first as usize..last as usize + 1)
}
