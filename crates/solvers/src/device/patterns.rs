//! The patterns of a solver's items: [`Patterns`], and of a batch without values:
//! [`BatchPatterns`].

use std::borrow::Cow;
use std::sync::Arc;

use sparsebatch_cpu_ref::CpuError;
use sparsebatch_formats::{
    Batch, BatchValues, CsrPattern, CsrPatternRef, Layout, Pattern, RaggedCsr, UniformBatch,
};

use crate::gpu::{GpuSolveError, ItemExtents, ValueGradient};
use crate::{GpuExecutor, SolveError, SolveScalar};

/// The patterns of a batch whose values lie on a GPU.
///
/// They come from patterns on the host, by `From`, or from index arrays on the GPU, by
/// [`BatchPatterns::from_device`] and [`BatchPatterns::ragged_from_device`].
#[derive(Clone, Debug)]
pub enum BatchPatterns<'a> {
    /// One pattern, and the number of items.
    Uniform(Cow<'a, CsrPattern>, usize),
    /// A pattern for each item.
    Ragged(Cow<'a, [CsrPattern]>),
}

impl<'a> From<(&'a CsrPattern, usize)> for BatchPatterns<'a> {
    fn from((pattern, nitems): (&'a CsrPattern, usize)) -> Self {
        Self::Uniform(Cow::Borrowed(pattern), nitems)
    }
}

impl<'a> From<&'a [CsrPattern]> for BatchPatterns<'a> {
    fn from(patterns: &'a [CsrPattern]) -> Self {
        Self::Ragged(Cow::Borrowed(patterns))
    }
}

/// Whether `len` values are those of one item, which all of several share.
fn shares_values(pattern: &CsrPattern, nitems: usize, len: usize) -> bool {
    len == pattern.nnz() && nitems != 1
}

impl BatchPatterns<'_> {
    /// Whether `len` values are those of one item, which all of several share.
    pub(super) fn shares(&self, len: usize) -> bool {
        matches!(self, Self::Uniform(pattern, nitems) if shares_values(pattern, *nitems, len))
    }

    /// The values of all items.
    pub(super) fn nvalues(&self) -> usize {
        match self {
            Self::Uniform(pattern, nitems) => pattern.nnz().saturating_mul(*nitems),
            Self::Ragged(patterns) => patterns.iter().map(Pattern::nnz).sum(),
        }
    }

    /// A batch with these patterns and values, in their layout. `values` has as many as
    /// [`BatchPatterns::nvalues`] says, or those of one item if they are [shared].
    ///
    /// [shared]: BatchPatterns::shares
    pub(super) fn batch<T: SolveScalar>(
        self,
        values: Vec<T>,
        layout: Layout,
    ) -> Result<Batch<T>, SolveError> {
        let is_shared = self.shares(values.len());
        match self {
            Self::Uniform(pattern, nitems) => {
                let values = match (is_shared, layout) {
                    (true, _) => BatchValues::Shared(values),
                    (false, Layout::ItemMajor) => BatchValues::ItemMajor(values),
                    (false, Layout::Interleaved) => BatchValues::Interleaved(values),
                };
                let batch = UniformBatch::try_new(Arc::new(pattern.into_owned()), nitems, values);
                Ok(Batch::Uniform(batch.map_err(CpuError::from)?))
            }
            Self::Ragged(patterns) => {
                let sizes =
                    |of: fn(&CsrPattern) -> usize| patterns.iter().map(of).collect::<Vec<_>>();
                let (nrows, ncols) = (sizes(Pattern::nrows), sizes(Pattern::ncols));
                let nnz = sizes(Pattern::nnz);
                let row_ptr = patterns.iter().flat_map(CsrPattern::row_ptr).copied().collect();
                let col_idx = patterns.iter().flat_map(CsrPattern::col_idx).copied().collect();
                let batch = RaggedCsr::try_new(&nrows, &ncols, &nnz, row_ptr, col_idx, values);
                Ok(Batch::Ragged(batch.map_err(CpuError::from)?))
            }
        }
    }
}

/// The patterns of a batch, for batches of some of its items.
pub(super) enum Patterns<T> {
    /// One for all items.
    One { pattern: Arc<CsrPattern>, nitems: usize },
    /// Those of a ragged batch, whose values do not matter.
    Several(RaggedCsr<T>),
}

impl<T: SolveScalar> Patterns<T> {
    pub(super) fn of(batch: &Batch<T>) -> Self {
        match batch {
            Batch::Uniform(uniform) => {
                let pattern = Arc::clone(uniform.pattern());
                Self::One { pattern, nitems: uniform.nitems() }
            }
            Batch::Ragged(ragged) => Self::Several(ragged.clone()),
        }
    }

    /// Writes gradients by the values of all items.
    pub(super) fn value_gradient<E: GpuExecutor>(
        &self,
        executor: &E,
        nrhs: usize,
    ) -> Result<ValueGradient<E, T>, GpuSolveError> {
        match self {
            Self::One { pattern, nitems } => {
                ValueGradient::new(executor, pattern.view(), *nitems, nrhs)
            }
            Self::Several(ragged) => ValueGradient::ragged(executor, ragged, nrhs),
        }
    }

    /// The pattern of an item.
    pub(super) fn item(&self, item: usize) -> CsrPatternRef<'_> {
        match self {
            Self::One { pattern, .. } => pattern.view(),
            Self::Several(ragged) => ragged.item(item).pattern(),
        }
    }

    /// Whether `len` values are those of one item, which all of several share.
    pub(super) fn shares(&self, len: usize) -> bool {
        match self {
            Self::One { pattern, nitems } => shares_values(pattern, *nitems, len),
            Self::Several(_) => false,
        }
    }

    /// A batch of some items whose values are 0; those of one pattern share them.
    pub(super) fn without_values(&self, items: &[usize]) -> Result<Batch<T>, SolveError> {
        let (len, is_shared) = match self {
            Self::One { pattern, .. } => (pattern.nnz(), true),
            Self::Several(_) => (items.iter().map(|&item| self.item(item).nnz()).sum(), false),
        };
        self.some(items, vec![T::ZERO; len], is_shared)
    }

    /// A batch of some items: `values` has those of each item, or those of one if it `is_shared`.
    pub(super) fn some(
        &self,
        items: &[usize],
        values: Vec<T>,
        is_shared: bool,
    ) -> Result<Batch<T>, SolveError> {
        let batch = match self {
            Self::One { pattern, .. } => {
                let values = match is_shared {
                    true => BatchValues::Shared(values),
                    false => BatchValues::ItemMajor(values),
                };
                let batch = UniformBatch::try_new(Arc::clone(pattern), items.len(), values);
                Batch::Uniform(batch.map_err(CpuError::from)?)
            }
            Self::Several(ragged) => {
                let mut some = RaggedCsr::new();
                items.iter().for_each(|&item| some.push(ragged.item(item)));
                sparsebatch_solve_core::check_len("values", some.total_nnz(), values.len())?;
                some.values_mut().copy_from_slice(&values);
                Batch::Ragged(some)
            }
        };
        Ok(batch)
    }
}

/// Parts of `all`, one for each of some items in order, with all their rows.
pub(super) fn by_item<'a, T>(
    mut all: &'a mut [T],
    items: &'a [usize],
    extents: &'a ItemExtents,
    nrhs: usize,
) -> impl Iterator<Item = (usize, &'a mut [T])> {
    items.iter().map(move |&item| {
        let (own, rest) = std::mem::take(&mut all).split_at_mut(extents.rows_of(item) * nrhs);
        all = rest;
        (item, own)
    })
}
