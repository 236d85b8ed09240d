//! The matrices that plans hold, each ready to multiply and to take new values.

use std::fmt::Debug;
use std::sync::Arc;

use sparsebatch_formats::convert::{FromCsr, SlotMap};
use sparsebatch_formats::{
    BatchOf, BatchValues, CsrPattern, Layout, Matrix, Pattern, RaggedBatch, RaggedCsr, Scalar,
    UniformBatch,
};

use crate::CpuError;
use crate::par::{
    Analysed, BatchShape, DiaBlocks, Interleaved, InterleavedAnalysis, InterleavedValues, ParSpmv,
    Product, RaggedRows, RowEntries, Schedule, SellRuns, WHOLE, apply_alike, apply_batch,
};
use crate::simd::spmv::advise_huge_pages;

/// Bytes and slots of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Value slots, shared values counted once.
    pub(super) stored_len: usize,
    /// Bytes of values and indices that a product reads.
    pub(super) matrix_bytes: usize,
    /// Bytes held in addition to `matrix_bytes`: start rows, chunk limits, the map for new values.
    pub(super) other_bytes: usize,
}

/// A matrix or batch in the form in which a plan multiplies it.
pub(super) trait Engine<T>: Debug + Send + Sync {
    /// `y = alpha*A*x + beta*y`; lengths have been checked.
    fn apply(&self, alpha: T, nrhs: usize, x: &[T], beta: T, y: &mut [T]);
    /// Takes new values, in CSR order and in the layout of the plan's source; their number has
    /// been checked.
    fn set_values(&mut self, values: &[T]);
    /// Slots and bytes held.
    fn size(&self) -> Size;
}

fn map_bytes(map: &SlotMap) -> usize {
    match map {
        SlotMap::Identity => 0,
        SlotMap::Slots(slots) => 4 * slots.len(),
    }
}

/// A single matrix in its format's own layout.
#[derive(Debug)]
pub(super) struct SingleMatrix<P: ParSpmv, T> {
    matrix: Matrix<P, T>,
    map: SlotMap,
    analysis: P::Analysis,
}

impl<P: ParSpmv, T: Scalar> SingleMatrix<P, T> {
    pub(super) fn new(pattern: Arc<P>, map: SlotMap, schedule: Schedule) -> Result<Self, CpuError> {
        let values = vec![T::ZERO; pattern.stored_len()];
        advise_huge_pages(&values);
        Ok(Self {
            analysis: P::analyse(pattern.view(), schedule)?,
            matrix: Matrix::from_parts(pattern, values)?,
            map,
        })
    }
}

impl<P: ParSpmv, T: Scalar> Engine<T> for SingleMatrix<P, T> {
    fn apply(&self, alpha: T, nrhs: usize, x: &[T], beta: T, y: &mut [T]) {
        let product = Analysed::<P, T> { analysis: &self.analysis, view: self.matrix.view() };
        product.apply_all(alpha, nrhs, x, beta, y);
    }

    fn set_values(&mut self, values: &[T]) {
        self.map.scatter(values, 1, self.matrix.values_mut());
    }

    fn size(&self) -> Size {
        Size {
            stored_len: self.matrix.stored_len(),
            matrix_bytes: self.matrix.bytes(),
            other_bytes: P::analysis_bytes(&self.analysis) + map_bytes(&self.map),
        }
    }
}

/// A single matrix in a layout of this crate; new values arrive in the order of its CSR pattern.
#[derive(Debug)]
pub(super) struct Packed<M> {
    pub(super) matrix: M,
    pub(super) csr: Arc<CsrPattern>,
}

macro_rules! packed {
    ($matrix:ident) => {
        impl<T: Scalar> Engine<T> for Packed<$matrix<T>> {
            fn apply(&self, alpha: T, nrhs: usize, x: &[T], beta: T, y: &mut [T]) {
                self.matrix.apply_all(alpha, nrhs, x, beta, y);
            }

            fn set_values(&mut self, values: &[T]) {
                self.matrix.set_values(&self.csr, values);
            }

            fn size(&self) -> Size {
                Size {
                    stored_len: self.matrix.stored_len(),
                    matrix_bytes: self.matrix.bytes(),
                    other_bytes: self.csr.index_bytes(),
                }
            }
        }
    };
}
packed!(DiaBlocks);
packed!(SellRuns);

/// A uniform batch with vectors in one of the two layouts.
#[derive(Debug)]
pub(super) struct Uniform<P: ParSpmv, T> {
    batch: UniformBatch<P, T>,
    map: SlotMap,
    /// Entries per item, without padding.
    nnz: usize,
    /// Layout of the values that [`Engine::set_values`] is given.
    source: Layout,
    kind: UniformAnalysis<P>,
}

#[derive(Debug)]
enum UniformAnalysis<P: ParSpmv> {
    /// `in_one_loop`: items are CSR by rows, and each is one chunk of work.
    ItemMajor {
        analysis: P::Analysis,
        shape: BatchShape,
        in_one_loop: bool,
    },
    Interleaved(InterleavedAnalysis),
}

impl<P: RowEntries, T: Scalar> Uniform<P, T> {
    /// `source` and `shared` describe the values that will be set, `layout` the vectors.
    pub(super) fn new(
        (pattern, map): (Arc<P>, SlotMap),
        nnz: usize,
        (nitems, shared): (usize, bool),
        (source, layout): (Layout, Layout),
        schedule: Schedule,
    ) -> Result<Self, CpuError> {
        let stored_len = pattern.stored_len();
        let zeros = |count: usize| vec![T::ZERO; stored_len * count];
        let (values, kind) = match layout {
            Layout::Interleaved => (
                BatchValues::Interleaved(zeros(if shared { 0 } else { nitems })),
                UniformAnalysis::Interleaved(InterleavedAnalysis::new::<P>(pattern.view(), nitems)),
            ),
            Layout::ItemMajor => (
                BatchValues::ItemMajor(zeros(if shared { 0 } else { nitems })),
                UniformAnalysis::ItemMajor {
                    analysis: P::analyse(pattern.view(), schedule)?,
                    in_one_loop: schedule == Schedule::Rows
                        && P::as_csr(pattern.view()).is_some()
                        && pattern.nrows() + stored_len < 2 * WHOLE,
                    shape: BatchShape::Uniform {
                        nitems,
                        nrows: pattern.nrows(),
                        ncols: pattern.ncols(),
                        work: pattern.nrows() + stored_len,
                    },
                },
            ),
        };
        let values = if shared { BatchValues::Shared(zeros(1)) } else { values };
        Ok(Self { batch: UniformBatch::try_new(pattern, nitems, values)?, map, nnz, source, kind })
    }
}

impl<P: RowEntries, T: Scalar> Engine<T> for Uniform<P, T> {
    fn apply(&self, alpha: T, nrhs: usize, x: &[T], beta: T, y: &mut [T]) {
        match &self.kind {
            UniformAnalysis::ItemMajor { analysis, shape, in_one_loop } => {
                let pattern = P::as_csr(self.batch.pattern().view()).filter(|_| *in_one_loop);
                let Some(csr) = pattern else {
                    let analysis = |_| analysis;
                    return apply_batch::<P, T>(
                        &self.batch,
                        analysis,
                        shape,
                        nrhs,
                        alpha,
                        x,
                        beta,
                        y,
                    );
                };
                let values = |item: usize| self.batch.item(item).values();
                apply_alike(csr, values, shape, nrhs, alpha, x, beta, y);
            }
            UniformAnalysis::Interleaved(analysis) => {
                let values = match self.batch.values() {
                    BatchValues::Shared(values) => InterleavedValues::Shared(values),
                    BatchValues::ItemMajor(values) | BatchValues::Interleaved(values) => {
                        InterleavedValues::PerItem(values)
                    }
                };
                let product =
                    Interleaved::<P, T> { pattern: self.batch.pattern().view(), values, analysis };
                product.apply_all(alpha, nrhs, x, beta, y);
            }
        }
    }

    fn set_values(&mut self, values: &[T]) {
        let (nitems, nnz, map) = (self.batch.nitems(), self.nnz, &self.map);
        let stored_len = self.batch.pattern().stored_len();
        let (shared, target) = (self.batch.is_shared(), self.batch.layout());
        let slots = self.batch.values_mut();
        if shared {
            return map.scatter(values, 1, slots);
        }
        match (self.source, target) {
            (Layout::ItemMajor, Layout::ItemMajor) => {
                for item in 0..nitems {
                    let item_slots = &mut slots[item * stored_len..(item + 1) * stored_len];
                    map.scatter(&values[item * nnz..(item + 1) * nnz], 1, item_slots);
                }
            }
            (Layout::Interleaved, Layout::Interleaved) if nitems > 0 => {
                map.scatter(values, nitems, slots);
            }
            (Layout::Interleaved, Layout::Interleaved) => {}
            (Layout::ItemMajor, Layout::Interleaved) => {
                for k in 0..nnz {
                    let slot = map.slot(k) * nitems;
                    for (item, value) in slots[slot..slot + nitems].iter_mut().enumerate() {
                        *value = values[item * nnz + k];
                    }
                }
            }
            (Layout::Interleaved, Layout::ItemMajor) => {
                for k in 0..nnz {
                    for (item, &value) in values[k * nitems..(k + 1) * nitems].iter().enumerate() {
                        slots[item * stored_len + map.slot(k)] = value;
                    }
                }
            }
        }
    }

    fn size(&self) -> Size {
        let values = self.batch.values().into_array();
        Size {
            stored_len: values.len(),
            matrix_bytes: size_of_val(values) + self.batch.pattern().index_bytes(),
            other_bytes: map_bytes(&self.map)
                + match &self.kind {
                    UniformAnalysis::ItemMajor { analysis, .. } => P::analysis_bytes(analysis),
                    UniformAnalysis::Interleaved(analysis) => analysis.bytes(),
                },
        }
    }
}

impl<T: Scalar> Engine<T> for RaggedRows<T> {
    fn apply(&self, alpha: T, nrhs: usize, x: &[T], beta: T, y: &mut [T]) {
        self.apply(alpha, nrhs, x, beta, y);
    }

    fn set_values(&mut self, values: &[T]) {
        self.set_values(values);
    }

    fn size(&self) -> Size {
        Size {
            stored_len: self.stored_len(),
            matrix_bytes: self.matrix_bytes(),
            other_bytes: self.other_bytes(),
        }
    }
}

/// A ragged batch in another format than CSR by rows, each item converted by itself.
#[derive(Debug)]
pub(super) struct RaggedItems<P: ParSpmv, T> {
    batch: RaggedBatch<P, T>,
    maps: Vec<SlotMap>,
    analyses: Vec<P::Analysis>,
    nnz_offsets: Vec<usize>,
    shape: BatchShape,
}

impl<P: ParSpmv + FromCsr, T: Scalar> RaggedItems<P, T> {
    pub(super) fn new(
        batch: &RaggedCsr<T>,
        options: &P::Options,
        schedule: Schedule,
    ) -> Result<Self, CpuError> {
        let (mut items, mut maps, mut analyses) = (Vec::new(), Vec::new(), Vec::new());
        for item in 0..batch.nitems() {
            let (pattern, map) = P::from_csr(batch.item(item).pattern(), options)?;
            analyses.push(P::analyse(pattern.view(), schedule)?);
            maps.push(map);
            let zeros = vec![T::ZERO; pattern.stored_len()];
            items.push(Matrix::from_parts(Arc::new(pattern), zeros)?);
        }
        Ok(Self {
            shape: BatchShape::ragged(
                items.iter().map(|a| (a.nrows(), a.ncols(), a.nrows() + a.stored_len())),
            ),
            batch: RaggedBatch::new(items),
            maps,
            analyses,
            nnz_offsets: batch.nnz_offsets().to_vec(),
        })
    }
}

impl<P: ParSpmv, T: Scalar> Engine<T> for RaggedItems<P, T> {
    fn apply(&self, alpha: T, nrhs: usize, x: &[T], beta: T, y: &mut [T]) {
        let analysis = |item: usize| &self.analyses[item];
        apply_batch::<P, T>(&self.batch, analysis, &self.shape, nrhs, alpha, x, beta, y);
    }

    fn set_values(&mut self, values: &[T]) {
        for (item, matrix) in self.batch.items_mut().iter_mut().enumerate() {
            let entries = self.nnz_offsets[item]..self.nnz_offsets[item + 1];
            self.maps[item].scatter(&values[entries], 1, matrix.values_mut());
        }
    }

    fn size(&self) -> Size {
        let items = self.batch.items();
        let analyses = self.analyses.iter().map(P::analysis_bytes);
        Size {
            stored_len: items.iter().map(Matrix::stored_len).sum(),
            matrix_bytes: items.iter().map(Matrix::bytes).sum(),
            other_bytes: self.shape.bytes()
                + 8 * self.nnz_offsets.len()
                + self.maps.iter().map(map_bytes).sum::<usize>()
                + analyses.sum::<usize>(),
        }
    }
}
