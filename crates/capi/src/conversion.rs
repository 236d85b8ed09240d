//! The pattern of a uniform batch in another format, and its values: [`Conversion`].

use std::sync::Arc;

use sparsebatch::convert::{EllOptions, FromCsr, SlotMap};
use sparsebatch::gpu::Pod;
use sparsebatch::{CooPattern, EllPattern, FormatChoice, PADDING, Pattern, Scalar};

use crate::batch::{Batch, DType, Patterns, Place};
use crate::context::Context;
use crate::ffi::{Input, Output};
use crate::status::{Failure, check_len};

/// A pattern in another format than CSR.
enum Target {
    Coo(CooPattern),
    Ell(EllPattern),
}

/// A pattern in another format, and the slot of each CSR entry.
pub(crate) struct Conversion {
    pub(crate) context: Arc<Context>,
    dtype: DType,
    place: Place,
    nitems: usize,
    nnz: usize,
    target: Target,
    slots: SlotMap,
    index_base: i32,
}

impl Conversion {
    pub(crate) fn new(batch: &Batch, format: &str, index_base: i32) -> Result<Self, Failure> {
        let Patterns::Uniform { pattern, nitems } = &batch.patterns else {
            return Err(Failure::unsupported(
                "a conversion of a ragged batch is not supported yet: convert one by one",
            ));
        };
        let view = pattern.view();
        let (target, slots) = match format.parse::<FormatChoice>()? {
            FormatChoice::Coo => {
                let (coo, slots) = CooPattern::from_csr(view, &())?;
                (Target::Coo(coo), slots)
            }
            FormatChoice::Ell => {
                let (ell, slots) = EllPattern::from_csr(view, &EllOptions::default())?;
                (Target::Ell(ell), slots)
            }
            _ => return Err(Failure::argument(format!("format is {format}, expected coo or ell"))),
        };
        Ok(Self {
            context: Arc::clone(&batch.context),
            dtype: batch.dtype,
            place: batch.place,
            nitems: *nitems,
            nnz: pattern.nnz(),
            target,
            slots,
            index_base,
        })
    }

    /// The slots of an item.
    pub(crate) fn nslots(&self) -> usize {
        match &self.target {
            Target::Coo(coo) => coo.stored_len(),
            Target::Ell(ell) => ell.stored_len(),
        }
    }

    /// Slots of a row of ELL; 0 for COO.
    pub(crate) fn width(&self) -> usize {
        match &self.target {
            Target::Coo(_) => 0,
            Target::Ell(ell) => ell.width(),
        }
    }

    /// Writes the index arrays; ELL has no rows.
    pub(crate) fn indices(&self, rows: Output, cols: Output) -> Result<(), Failure> {
        let in_c = |&index: &i32| if index == PADDING { index } else { index + self.index_base };
        let (row_idx, col_idx) = match &self.target {
            Target::Coo(coo) => (coo.row_idx(), coo.col_idx()),
            Target::Ell(ell) => (&[][..], ell.col_idx()),
        };
        check_len("col_idx", col_idx.len(), cols.len())?;
        rows.fill(row_idx.len(), row_idx.iter().map(in_c))?;
        cols.fill(col_idx.len(), col_idx.iter().map(in_c))
    }

    /// Copies values in CSR order to slots, padding being 0, or from there back.
    pub(crate) fn values(&self, from: Input, to: Output, back: bool) -> Result<(), Failure> {
        match self.dtype {
            DType::F64 => self.move_values::<f64>(from, to, back),
            DType::F32 => self.move_values::<f32>(from, to, back),
        }
    }

    fn move_values<T: Scalar + Pod>(
        &self,
        from: Input,
        mut to: Output,
        back: bool,
    ) -> Result<(), Failure> {
        // In a batch item by item; or in blocks of as many values as there are items.
        let (items, block) = match self.place {
            Place::ItemMajor => (self.nitems, 1),
            Place::Interleaved => (1, self.nitems),
            Place::Shared => (1, 1),
        };
        let (entries, slots) = (self.nnz * block, self.nslots() * block);
        let (nfrom, nto) = if back { (slots, entries) } else { (entries, slots) };
        check_len(from.name(), items.saturating_mul(nfrom), from.len())?;
        check_len(to.as_input().name(), items.saturating_mul(nto), to.len())?;
        to.check_apart::<T>(from)?;
        let (from, to) = (from.slice::<T>()?, to.slice_mut::<T>()?);
        if from.is_empty() {
            to.fill(T::ZERO);
            return Ok(());
        }
        let mut own = Vec::new();
        for (from, to) in from.chunks_exact(nfrom).zip(to.chunks_exact_mut(nto)) {
            if back {
                own.clear();
                self.slots.gather(from, block, &mut own);
                to.copy_from_slice(&own);
            } else {
                to.fill(T::ZERO);
                self.slots.scatter(from, block, to);
            }
        }
        Ok(())
    }
}
