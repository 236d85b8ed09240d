//! [`TransposedBatch`]: the transposed matrices of a batch.

use std::sync::Arc;

use rayon::prelude::*;
use sparsebatch_cpu_ref::CpuError;
use sparsebatch_formats::convert::SlotMap;
use sparsebatch_formats::{
    Batch, BatchValues, Csr, CsrPattern, CsrPatternRef, Pattern, RaggedCsr, Scalar, UniformBatch,
};
use sparsebatch_solve_core::{ArgumentError, check_len};

use crate::SolveError;

/// The transposed matrices of a batch, with a copy of its values that follows the original's:
/// patterns are transposed once, values are moved at every
/// [`update_values`](TransposedBatch::update_values).
#[derive(Clone, Debug)]
pub(crate) struct TransposedBatch<T> {
    batch: Batch<T>,
    /// For each entry of an item, its position in the transposed item: of the one pattern, or of all
    /// items one after the other.
    slots: Vec<u32>,
}

impl<T: Scalar> TransposedBatch<T> {
    /// The transposed matrices of a batch. Cost: a pass over all entries, O(nrows + ncols) for each
    /// pattern.
    pub(crate) fn new(original: &Batch<T>) -> Self {
        let (batch, slots) = match original {
            Batch::Uniform(uniform) => {
                let (pattern, slots) = transposed(uniform.pattern());
                let values = uniform.values().map(|values| vec![T::ZERO; values.len()]);
                let batch = UniformBatch::try_new(Arc::new(pattern), uniform.nitems(), values);
                (Batch::Uniform(batch.expect("as many values as before")), slots)
            }
            Batch::Ragged(ragged) => {
                let mut batch = RaggedCsr::new();
                let mut slots = Vec::with_capacity(ragged.total_nnz());
                for item in 0..ragged.nitems() {
                    let matrix = ragged.item(item);
                    let (pattern, own) = transposed(&matrix.pattern().to_pattern());
                    let zeros = vec![T::ZERO; own.len()];
                    let empty = Csr::from_parts(Arc::new(pattern), zeros);
                    batch.push(empty.expect("one value per entry").view());
                    slots.extend(own);
                }
                (Batch::Ragged(batch), slots)
            }
        };
        let mut transposed = Self { batch, slots };
        transposed.update_values(original).expect("the batch that it was made of");
        transposed
    }

    /// The transposed matrices.
    pub(crate) fn batch(&self) -> &Batch<T> {
        &self.batch
    }

    /// For each entry of the transposed item, its position in the original: of the one pattern in its
    /// item, of a ragged batch in the array of all items.
    ///
    /// # Errors
    /// [`SolveError::Unsupported`] for a ragged batch of more than 4,294,967,295 entries.
    pub(crate) fn sources(&self) -> Result<Vec<u32>, SolveError> {
        if u32::try_from(self.slots.len()).is_err() {
            return Err(SolveError::Unsupported {
                what: "transposed systems of a batch of more than 4294967295 entries",
                instead: "give the transposed matrices",
            });
        }
        let mut sources = vec![0; self.slots.len()];
        let mut invert = |first: usize, end: usize| {
            for k in first..end {
                sources[first + self.slots[k] as usize] = k as u32;
            }
        };
        match &self.batch {
            Batch::Uniform(_) => invert(0, self.slots.len()),
            Batch::Ragged(ragged) => {
                ragged.nnz_offsets().windows(2).for_each(|item| invert(item[0], item[1]));
            }
        }
        Ok(sources)
    }

    /// Takes the values of `original` as [`TransposedBatch::update_values`] does, or becomes its
    /// transpose where it has another layout.
    pub(crate) fn follow(&mut self, original: &Batch<T>) {
        if self.update_values(original).is_err() {
            *self = Self::new(original);
        }
    }

    /// Takes the values of `original`, a batch with the patterns and the layout of the one that this
    /// was made of.
    ///
    /// # Errors
    /// [`SolveError::Argument`] for another number of items or another layout, [`SolveError::Cpu`] for
    /// an item with another pattern.
    pub(crate) fn update_values(&mut self, original: &Batch<T>) -> Result<(), SolveError> {
        check_len("items of the batch", self.batch.nitems(), original.nitems())?;
        match (&mut self.batch, original) {
            (Batch::Uniform(own), Batch::Uniform(uniform)) => {
                update_uniform(own, uniform, &self.slots)
            }
            (Batch::Ragged(own), Batch::Ragged(ragged)) => update_ragged(own, ragged, &self.slots),
            (Batch::Uniform(_), Batch::Ragged(_)) | (Batch::Ragged(_), Batch::Uniform(_)) => {
                Err(other_layout())
            }
        }
    }
}

/// Moves the values of a uniform batch to their transposed positions, after a check of pattern and
/// layout.
fn update_uniform<T: Scalar>(
    own: &mut UniformBatch<CsrPattern, T>,
    uniform: &UniformBatch<CsrPattern, T>,
    slots: &[u32],
) -> Result<(), SolveError> {
    let (nitems, nnz) = (own.nitems(), slots.len());
    if !is_transpose(uniform.pattern().view(), own.pattern().view(), slots) {
        return Err(other_pattern(0));
    }
    let same = own.is_shared() == uniform.is_shared() && own.layout() == uniform.layout();
    if !same {
        return Err(other_layout());
    }
    let is_interleaved = matches!(uniform.values(), BatchValues::Interleaved(_));
    let from = uniform.values().into_array();
    let to = own.values_mut();
    if nnz == 0 || nitems == 0 {
        return Ok(());
    }
    if is_interleaved {
        // Rows of `nitems` values move as a whole; their places are all different.
        let mut source = vec![0; nnz];
        slots.iter().enumerate().for_each(|(k, &slot)| source[slot as usize] = k);
        to.par_chunks_mut(nitems).zip(&source).for_each(|(to, &k)| {
            to.copy_from_slice(&from[k * nitems..(k + 1) * nitems]);
        });
    } else {
        let each = to.par_chunks_mut(nnz).zip(from.par_chunks(nnz)).with_min_len(64);
        each.for_each(|(to, from)| scatter(slots, from, to));
    }
    Ok(())
}

/// Moves the values of a ragged batch to their transposed positions, after a check of all patterns.
fn update_ragged<T: Scalar>(
    own: &mut RaggedCsr<T>,
    ragged: &RaggedCsr<T>,
    slots: &[u32],
) -> Result<(), SolveError> {
    let offsets = own.nnz_offsets().to_vec();
    let transposed = &*own;
    let is_other = |&item: &usize| {
        let slots = &slots[offsets[item]..offsets[item + 1]];
        let (from, to) = (ragged.item(item).pattern(), transposed.item(item).pattern());
        !is_transpose(from, to, slots)
    };
    let items = (0..ragged.nitems()).into_par_iter().with_min_len(64);
    if let Some(item) = items.find_first(is_other) {
        return Err(other_pattern(item));
    }
    let mut parts = Vec::with_capacity(offsets.len());
    let mut rest = own.values_mut();
    for item in offsets.windows(2) {
        let (part, after) = rest.split_at_mut(item[1] - item[0]);
        parts.push((item[0]..item[1], part));
        rest = after;
    }
    let values = ragged.values();
    parts.into_par_iter().with_min_len(64).for_each(|(entries, to)| {
        scatter(&slots[entries.clone()], &values[entries], to);
    });
    Ok(())
}

fn other_layout() -> SolveError {
    SolveError::Argument(ArgumentError::OutOfRange {
        name: "batch",
        expected: "uniform or ragged, shared or not, interleaved or not as the batch analysed",
        found: "another layout".to_owned(),
    })
}

fn other_pattern(item: usize) -> SolveError {
    SolveError::Cpu(CpuError::OtherPattern { item })
}

/// Whether `to` is the transposed pattern, in which entry k is at position `slots[k]`. The positions
/// are all different.
fn is_transpose(from: CsrPatternRef<'_>, to: CsrPatternRef<'_>, slots: &[u32]) -> bool {
    let is_at = |row: usize, k: usize| {
        let (col, slot) = (from.col_idx()[k] as usize, slots[k] as usize);
        to.row(col).contains(&slot) && to.col_idx()[slot] as usize == row
    };
    (from.nrows(), from.ncols(), from.nnz()) == (to.ncols(), to.nrows(), slots.len())
        && (0..from.nrows()).all(|row| from.row(row).all(|k| is_at(row, k)))
}

fn transposed(pattern: &CsrPattern) -> (CsrPattern, Vec<u32>) {
    let (transposed, map) = pattern.transpose();
    let slots = match map {
        SlotMap::Slots(slots) => slots,
        SlotMap::Identity => (0..pattern.nnz() as u32).collect(),
    };
    (transposed, slots)
}

fn scatter<T: Copy>(slots: &[u32], from: &[T], to: &mut [T]) {
    for (&slot, &value) in slots.iter().zip(from) {
        to[slot as usize] = value;
    }
}
