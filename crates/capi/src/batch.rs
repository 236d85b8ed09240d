//! The patterns of a batch: [`Batch`].

use std::sync::Arc;

use sparsebatch::batch::Values;
use sparsebatch::gpu::BatchPatterns;
use sparsebatch::{
    BatchValues, CsrPattern, FormatError, Layout, Pattern, RaggedCsr, Scalar, UniformBatch,
};

use crate::context::Context;
use crate::status::Failure;

/// The type of values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DType {
    F64,
    F32,
}

/// How the values of a batch lie in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    ItemMajor,
    Interleaved,
    Shared,
}

impl Place {
    /// The layout of values that are not shared.
    pub(crate) fn layout(self) -> Layout {
        match self {
            Self::Interleaved => Layout::Interleaved,
            Self::ItemMajor | Self::Shared => Layout::ItemMajor,
        }
    }
}

/// The patterns of the items, valid: one for all items, or one for each.
pub(crate) enum Patterns {
    Uniform { pattern: Arc<CsrPattern>, nitems: usize },
    Ragged(Vec<CsrPattern>),
}

/// The patterns of a batch, and what its values are.
pub(crate) struct Batch {
    pub(crate) context: Arc<Context>,
    pub(crate) dtype: DType,
    pub(crate) place: Place,
    pub(crate) patterns: Patterns,
}

/// The arrays of a pattern, or of several, with the number of their first row.
#[derive(Clone, Copy)]
pub(crate) struct Indices<'a> {
    pub(crate) row_ptr: &'a [i32],
    pub(crate) col_idx: &'a [i32],
    pub(crate) base: i32,
}

impl Indices<'_> {
    /// The pattern of a matrix.
    fn pattern(self, nrows: usize, ncols: usize) -> Result<CsrPattern, FormatError> {
        let from_0 = |indices: &[i32]| -> Vec<i32> {
            // An index that is too small stays wrong.
            indices.iter().map(|&index| index.saturating_sub(self.base)).collect()
        };
        CsrPattern::try_new(nrows, ncols, from_0(self.row_ptr), from_0(self.col_idx))
    }
}

impl Patterns {
    pub(crate) fn uniform(
        nrows: usize,
        ncols: usize,
        indices: Indices<'_>,
        nitems: usize,
    ) -> Result<Self, Failure> {
        Ok(Self::Uniform { pattern: Arc::new(indices.pattern(nrows, ncols)?), nitems })
    }

    /// Sizes are rows, columns and entries of an item; the arrays are as long as they say.
    pub(crate) fn ragged(
        sizes: impl Iterator<Item = (usize, usize, usize)>,
        indices: Indices<'_>,
    ) -> Result<Self, Failure> {
        let (mut row_ptr, mut col_idx) = (indices.row_ptr, indices.col_idx);
        let patterns = sizes.enumerate().map(|(item, (nrows, ncols, nnz))| {
            let (own_rows, rest_rows) = row_ptr.split_at(nrows + 1);
            let (own_cols, rest_cols) = col_idx.split_at(nnz);
            (row_ptr, col_idx) = (rest_rows, rest_cols);
            let own = Indices { row_ptr: own_rows, col_idx: own_cols, base: indices.base };
            own.pattern(nrows, ncols).map_err(|error| {
                let failure = Failure::from(error);
                Failure { message: format!("item {item}: {}", failure.message), ..failure }
            })
        });
        Ok(Self::Ragged(patterns.collect::<Result<_, _>>()?))
    }

    pub(crate) fn nitems(&self) -> usize {
        match self {
            Self::Uniform { nitems, .. } => *nitems,
            Self::Ragged(patterns) => patterns.len(),
        }
    }

    /// The sum of a size over the items.
    pub(crate) fn total(&self, size: fn(&CsrPattern) -> usize) -> usize {
        match self {
            Self::Uniform { pattern, nitems } => size(pattern).saturating_mul(*nitems),
            Self::Ragged(patterns) => patterns.iter().map(size).sum(),
        }
    }

    /// The patterns as solvers of device data take them.
    pub(crate) fn items(&self) -> BatchPatterns<'_> {
        match self {
            Self::Uniform { pattern, nitems } => BatchPatterns::from((&**pattern, *nitems)),
            Self::Ragged(patterns) => BatchPatterns::from(&patterns[..]),
        }
    }
}

impl Batch {
    /// The number of values.
    pub(crate) fn nvalues(&self) -> usize {
        match (&self.patterns, self.place) {
            (Patterns::Uniform { pattern, .. }, Place::Shared) => pattern.nnz(),
            (patterns, _) => patterns.total(|pattern| pattern.nnz()),
        }
    }
}

/// The batch of patterns and values.
pub(crate) fn with_values<T: Scalar>(
    patterns: &Patterns,
    place: Place,
    values: Values<T>,
) -> Result<sparsebatch::Batch<T>, FormatError> {
    match patterns {
        Patterns::Uniform { pattern, nitems } => {
            let values = match place {
                Place::ItemMajor => BatchValues::ItemMajor(values),
                Place::Interleaved => BatchValues::Interleaved(values),
                Place::Shared => BatchValues::Shared(values),
            };
            let batch = UniformBatch::from_values(Arc::clone(pattern), *nitems, values)?;
            Ok(sparsebatch::Batch::Uniform(batch))
        }
        Patterns::Ragged(patterns) => {
            let sizes = |size: fn(&CsrPattern) -> usize| -> Vec<usize> {
                patterns.iter().map(size).collect()
            };
            let (nrows, ncols) = (sizes(Pattern::nrows), sizes(Pattern::ncols));
            let nnz = sizes(Pattern::nnz);
            let row_ptr = patterns.iter().flat_map(CsrPattern::row_ptr).copied().collect();
            let col_idx = patterns.iter().flat_map(CsrPattern::col_idx).copied().collect();
            let batch = RaggedCsr::from_values(&nrows, &ncols, &nnz, row_ptr, col_idx, values)?;
            Ok(sparsebatch::Batch::Ragged(batch))
        }
    }
}
