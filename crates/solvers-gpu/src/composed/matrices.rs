//! The matrices that a solver is made for, with their values or without: [`Matrices`].

use sparsebatch_formats::{Batch, CsrPatternRef, Scalar};

/// The matrices of a batch.
#[derive(Clone, Copy)]
pub(super) enum Matrices<'a, T> {
    Batch(&'a Batch<T>),
    /// Items of one pattern, whose values come with each solve.
    Pattern {
        pattern: CsrPatternRef<'a>,
        nitems: usize,
        /// Whether all items will have the values of one.
        shares_values: bool,
    },
}

impl<'a, T: Scalar> Matrices<'a, T> {
    pub(super) fn nitems(&self) -> usize {
        match self {
            Self::Batch(batch) => batch.nitems(),
            Self::Pattern { nitems, .. } => *nitems,
        }
    }

    pub(super) fn pattern(&self, item: usize) -> CsrPatternRef<'a> {
        match self {
            Self::Batch(batch) => batch.pattern(item),
            Self::Pattern { pattern, .. } => *pattern,
        }
    }

    /// Whether all items have one pattern, stored once.
    pub(super) fn is_uniform(&self) -> bool {
        matches!(self, Self::Batch(Batch::Uniform(_)) | Self::Pattern { .. })
    }

    /// Whether all items have the values of one.
    pub(super) fn shares_values(&self) -> bool {
        match self {
            Self::Batch(Batch::Uniform(uniform)) => uniform.is_shared(),
            Self::Batch(Batch::Ragged(_)) => false,
            Self::Pattern { shares_values, .. } => *shares_values,
        }
    }

    /// The items whose patterns are stored: the first alone where all have one pattern.
    pub(super) fn stored(&self) -> std::ops::Range<usize> {
        0..if self.is_uniform() { self.nitems().min(1) } else { self.nitems() }
    }

    /// The offset of the first value of each item.
    pub(super) fn first_values(&self) -> Vec<u64> {
        if self.is_uniform() {
            let nnz = self.stored().next().map_or(0, |item| self.pattern(item).nnz());
            let step = if self.shares_values() { 0 } else { nnz };
            return (0..self.nitems()).map(|item| (item * step) as u64).collect();
        }
        let mut first = 0;
        let each = self.stored().map(|item| {
            let before = first;
            first += self.pattern(item).nnz() as u64;
            before
        });
        each.collect()
    }

    /// The number of values of all items, or of one where all share them.
    pub(super) fn nvalues(&self) -> usize {
        let of_stored: usize = self.stored().map(|item| self.pattern(item).nnz()).sum();
        match self.is_uniform() && !self.shares_values() {
            true => of_stored * self.nitems(),
            false => of_stored,
        }
    }
}
