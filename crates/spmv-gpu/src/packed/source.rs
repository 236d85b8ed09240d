//! A batch in CSR, from the host or in the memory of an executor.

use sparsebatch_formats::{Batch, Layout};

use crate::flexible::BatchSizes;
use crate::{CsrArrays, CsrSize};
use sparsebatch_cuda::{Executor, GpuError, Value};

/// The sizes of a batch, and where its items begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ItemSizes {
    nitems: usize,
    /// One size per item, or one for all items.
    sizes: Vec<CsrSize>,
    /// Rows, columns and entries before each size; at the end, their totals.
    offsets: Vec<[usize; 3]>,
    pub(super) uniform: bool,
    pub(super) shared_values: bool,
}

impl ItemSizes {
    /// The totals of the sizes must fit 64 bits.
    pub(super) fn new(sizes: BatchSizes<'_>) -> Self {
        let patterns = patterns(&sizes).to_vec();
        let (nitems, uniform, shared_values) = match sizes {
            BatchSizes::Uniform { nitems, shared_values, .. } => (nitems, true, shared_values),
            BatchSizes::Ragged(sizes) => (sizes.len(), false, false),
        };
        let mut offsets = vec![[0; 3]];
        for size in &patterns {
            let [rows, cols, nnz] = offsets[offsets.len() - 1];
            offsets.push([rows + size.nrows, cols + size.ncols, nnz + size.nnz]);
        }
        Self { nitems, sizes: patterns, offsets, uniform, shared_values }
    }

    pub(super) fn of<T: Value>(batch: &Batch<T>) -> Self {
        let size = |item| {
            let pattern = batch.pattern(item);
            CsrSize { nrows: pattern.nrows(), ncols: pattern.ncols(), nnz: pattern.nnz() }
        };
        match batch {
            Batch::Uniform(uniform) => {
                let (nitems, shared_values) = (uniform.nitems(), uniform.is_shared());
                let none = CsrSize { nrows: 0, ncols: 0, nnz: 0 };
                let item = if nitems == 0 { none } else { size(0) };
                Self::new(BatchSizes::Uniform { item, nitems, shared_values })
            }
            Batch::Ragged(ragged) => {
                let sizes: Vec<CsrSize> = (0..ragged.nitems()).map(size).collect();
                Self::new(BatchSizes::Ragged(&sizes))
            }
        }
    }

    /// Checks that the bytes of every array and vector fit 64 bits: a uniform batch may repeat
    /// small arrays any number of times.
    pub(super) fn check(&self, nrhs: usize) -> Result<(), GpuError> {
        let repeated = if self.uniform { self.nitems as u128 } else { 1 };
        let [rows, cols, nnz] = self.offsets[self.sizes.len()].map(|n| n as u128 * repeated);
        let largest = nnz.max(rows.max(cols).saturating_mul(nrhs as u128));
        if largest > (i64::MAX / 8) as u128 {
            return Err(GpuError::InvalidArgument {
                name: "batch",
                expected: format!("at most {} values in each array and vector", i64::MAX / 8),
                found: format!("{largest}"),
            });
        }
        Ok(())
    }

    /// Bytes of the arrays in CSR, and the fewest bytes that they take when packed: a copy of the
    /// row pointers, 16-bit columns, and values.
    pub(super) fn bytes<T: Value>(&self) -> (u64, u64) {
        let [rows, _, nnz] = self.offsets[self.sizes.len()].map(|n| n as u64);
        let pointers = 4 * (rows + self.sizes.len() as u64);
        let values = (self.nvalues() * size_of::<T>()) as u64;
        (pointers + 4 * nnz + values, pointers + 2 * nnz + values)
    }

    pub(super) fn nitems(&self) -> usize {
        self.nitems
    }

    pub(super) fn size(&self, item: usize) -> CsrSize {
        self.sizes[if self.uniform { 0 } else { item }]
    }

    /// The sizes of the distinct patterns.
    pub(super) fn sizes(&self) -> &[CsrSize] {
        &self.sizes
    }

    /// Rows, columns and entries before `item`; the totals if `item` is the number of items.
    pub(super) fn before(&self, item: usize) -> [usize; 3] {
        if self.uniform {
            self.offsets[self.sizes.len()].map(|n| n * item)
        } else {
            self.offsets[item]
        }
    }

    /// Rows, columns and entries before a distinct pattern.
    pub(super) fn before_pattern(&self, pattern: usize) -> [usize; 3] {
        self.offsets[pattern]
    }

    /// Number of stored values.
    pub(super) fn nvalues(&self) -> usize {
        let sets = if self.shared_values { self.nitems.min(1) } else { self.nitems };
        self.before(sets)[2]
    }
}

/// Checks that `needed` bytes of memory are free.
pub(super) fn check_room<E: Executor>(executor: &E, needed: u64) -> Result<(), GpuError> {
    let free = executor.free_memory()?;
    if needed > free { Err(GpuError::OutOfMemory { needed, free }) } else { Ok(()) }
}

/// The sizes of the distinct patterns.
pub(super) fn patterns<'a>(sizes: &'a BatchSizes<'a>) -> &'a [CsrSize] {
    match sizes {
        BatchSizes::Uniform { nitems: 0, .. } => &[],
        BatchSizes::Uniform { item, .. } => std::slice::from_ref(item),
        BatchSizes::Ragged(sizes) => sizes,
    }
}

/// The arrays of a batch, uploaded as they are.
pub(super) fn upload<E: Executor, T: Value>(
    executor: &E,
    batch: &Batch<T>,
) -> Result<CsrArrays<E, T>, GpuError> {
    let (row_ptr, col_idx): (&[i32], &[i32]) = match batch {
        Batch::Uniform(uniform) if uniform.nitems() == 0 => (&[], &[]),
        Batch::Uniform(uniform) => (uniform.pattern().row_ptr(), uniform.pattern().col_idx()),
        Batch::Ragged(ragged) => (ragged.row_ptr(), ragged.col_idx()),
    };
    Ok(CsrArrays {
        row_ptr: executor.upload(row_ptr)?,
        col_idx: executor.upload(col_idx)?,
        values: upload_values(executor, batch)?,
    })
}

/// The values of a batch, item after item; one set where they are shared.
pub(super) fn upload_values<E: Executor, T: Value>(
    executor: &E,
    batch: &Batch<T>,
) -> Result<E::Buffer<T>, GpuError> {
    match batch {
        Batch::Uniform(batch) if batch.nitems() == 0 => executor.upload(&[]),
        Batch::Uniform(batch) if batch.layout() == Layout::Interleaved => {
            executor.upload(batch.to_item_major().values().into_array())
        }
        Batch::Uniform(batch) => executor.upload(batch.values().into_array()),
        Batch::Ragged(batch) => executor.upload(batch.values()),
    }
}
