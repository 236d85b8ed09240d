//! What the kernels read of a pattern: programs, row pointers, columns, sources of the factors.

use sparsebatch_cuda::{DeviceInfo, Executor, GpuError, KernelBuffer, Value};
use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::Scheme;

use super::layout::{RowLists, Words};
use super::programs::Factors;
use super::shape::{FactoredPlacement, FactoredTuning, Precision};
use super::streams::SliceLanes;
use crate::GpuSolveError;

/// The analysis of a pattern.
pub(super) struct PatternTables {
    pub(super) nrows: usize,
    pub(super) nnz: usize,
    pub(super) nfactors: usize,
    pub(super) shape: FactoredPlacement,
    /// Whether the factors are those of Cholesky.
    pub(super) root: bool,
    pub(super) words: Words,
    pub(super) rows: RowLists,
    /// Entries that factors are made of; in f32 within f64 also their rows and columns.
    pub(super) sources: Vec<u32>,
}

impl PatternTables {
    /// Finds the factors and their programs. The number of systems affects only the blocks.
    pub(super) fn new<T: Value>(
        pattern: CsrPatternRef<'_>,
        (scheme, lanes): (Scheme, SliceLanes),
        systems: usize,
        info: &DeviceInfo,
        tuning: &FactoredTuning,
    ) -> Result<Self, GpuSolveError> {
        let factors = Factors::new(pattern, scheme)?;
        let is_mixed = scheme.preconditioner().precision().is_mixed::<T>();
        let precision = Precision { value_bytes: size_of::<T>(), is_mixed };
        let shape =
            FactoredPlacement::choose(pattern, &factors, scheme, precision, systems, info, tuning)?;
        let nrows = pattern.nrows();
        let mut sources = factors.sources();
        if is_mixed {
            factors.positions().into_iter().for_each(|numbers| sources.extend(numbers));
        }
        Ok(Self {
            nrows,
            nnz: pattern.nnz(),
            nfactors: factors.len(),
            root: matches!(&factors, Factors::Sums(sums) if sums.root),
            words: Words::new(&factors, nrows, shape.threads, (shape.place.is_wide(), lanes))?,
            rows: RowLists::new(pattern)?,
            sources,
            shape,
        })
    }

    /// Bytes of all arrays.
    pub(super) fn bytes(&self) -> usize {
        let columns = self.rows.columns.len() * if self.shape.place.is_wide() { 4 } else { 2 };
        let index = self.rows.index.len() + self.sources.len();
        4 * (self.words.words.len() + self.words.starts.len() + index) + columns
    }

    /// Values of the factors of an item that are kept, with what follows them.
    pub(super) fn kept_len(&self) -> usize {
        self.nfactors + 1 + if self.shape.is_mixed { self.nrows } else { 0 }
    }
}

/// Factors and a 0, item by item; in f32, followed by the exponents that scale rows and columns.
pub(super) enum KeptFactors<E: Executor, T: Value> {
    Working(E::Buffer<T>),
    Single(E::Buffer<f32>),
}

impl<E: Executor, T: Value> KeptFactors<E, T> {
    pub(super) fn alloc(executor: &E, len: usize, is_mixed: bool) -> Result<Self, GpuError> {
        Ok(match is_mixed {
            true => Self::Single(executor.alloc(len)?),
            false => Self::Working(executor.alloc(len)?),
        })
    }

    pub(super) fn raw(&self) -> u64 {
        match self {
            Self::Working(factors) => factors.raw(),
            Self::Single(factors) => factors.raw(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Working(factors) => (factors.len() * size_of::<T>()) as u64,
            Self::Single(factors) => (factors.len() * size_of::<f32>()) as u64,
        }
    }
}
