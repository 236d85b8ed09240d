//! A batch in the memory of an executor.

use sparsebatch_formats::batch::count_systems;
use sparsebatch_formats::{Batch, CsrPatternRef, Layout};

use super::indices::Indices;
use super::kernel::Storage;
use super::slots::{PADDING, measure, push_slice_ptr, push_slots};
use crate::csr_arrays::check_csr;
use crate::{CsrArrays, CsrSize};
use sparsebatch_cuda::{Executor, GpuError, KernelBuffer, Value, check_len, copy_values};

/// Sizes of the items of a batch in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSizes<'a> {
    /// `nitems` systems of one pattern. Values are item-major, or one set for all items if
    /// `shared_values`.
    Uniform {
        /// The size of each system.
        item: CsrSize,
        /// Number of systems.
        nitems: usize,
        /// Whether all systems share one set of values.
        shared_values: bool,
    },
    /// Systems of these sizes. Arrays are concatenated; the row pointers of each begin at 0.
    Ragged(&'a [CsrSize]),
}

/// The size of a distinct pattern, and where its arrays begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlexibleShape {
    pub(super) nrows: u32,
    pub(super) ncols: u32,
    pub(super) nnz: u32,
    /// Slots, with padding.
    pub(super) stored: u32,
    /// Slots per row in ELL, else 0.
    pub(super) width: u32,
    /// Offset of its row pointers on the host.
    pub(super) row_ptr: usize,
    /// Offset of its row or slice pointers on the device.
    pub(super) pointers: u64,
    /// Offset of its indices.
    pub(super) indices: u64,
}

/// A batch of matrices in the memory of an executor, in one of the storages that the kernels read.
///
/// A uniform batch stores its pattern once, and shared values once. Offsets have 64 bits; indices
/// have 16 bits if the indices of all problems fit. Row pointers are kept on the host too.
pub struct DeviceBatch<E: Executor, T: Value> {
    storage: Storage,
    compact: bool,
    nitems: usize,
    /// One shape for all items, or one per item.
    shapes: Vec<FlexibleShape>,
    shared_values: bool,
    /// Row pointers on the host. For arrays that the caller supplied, empty until a plan needs
    /// them.
    row_ptr: Vec<i32>,
    /// Row pointers of CSR, slice pointers of SELL-P.
    pub(super) pointers: Option<Indices<E>>,
    /// Rows of COO.
    pub(super) row_idx: Option<Indices<E>>,
    pub(super) col_idx: Indices<E>,
    pub(super) values: E::Buffer<T>,
}

impl<E: Executor, T: Value> DeviceBatch<E, T> {
    /// Converts a batch to a storage and uploads it. Waits for the copies.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], before any conversion, when the arrays would not fit;
    /// [`GpuError::InvalidArgument`] when a system has more than `i32::MAX` slots or SELL-P has no
    /// kernel for this number of threads per row; [`GpuError::Format`] for more than
    /// [`MAX_SYSTEMS`](sparsebatch_formats::batch::MAX_SYSTEMS) items.
    pub fn upload(executor: &E, batch: &Batch<T>, storage: Storage) -> Result<Self, GpuError> {
        storage.check()?;
        batch.count_systems(1)?;
        let npatterns = match batch {
            Batch::Uniform(batch) => usize::from(batch.nitems() > 0),
            Batch::Ragged(batch) => batch.nitems(),
        };
        let (shapes, Lengths { pointers, indices }) = lay_out(batch, npatterns, storage)?;
        let compact = shapes.iter().all(|s| storage.is_compact(s.nrows as usize, s.ncols as usize));
        let shared_values = matches!(batch, Batch::Uniform(batch) if batch.is_shared());
        let value_sets = match batch {
            Batch::Uniform(batch) if !shared_values => batch.nitems() as u64,
            _ => 1,
        };
        let index_bytes = if compact { 2 } else { 4 };
        let index_arrays = if storage == Storage::Coo { 2 } else { 1 };
        let needed = indices * index_bytes * index_arrays
            + indices.saturating_mul(value_sets).saturating_mul(size_of::<T>() as u64)
            + 4 * pointers;
        let free = executor.free_memory()?;
        if needed > free {
            return Err(GpuError::OutOfMemory { needed, free });
        }

        let mut host = HostArrays::default();
        for item in 0..npatterns {
            host.push(storage, batch.pattern(item));
        }
        let row_idx = match storage {
            Storage::Coo => Some(Indices::upload(executor, &host.row_idx, compact)?),
            _ => None,
        };
        let pointers = match storage {
            Storage::Csr | Storage::SellP { .. } => {
                Some(Indices::U32(executor.upload(&host.pointers)?))
            }
            Storage::Coo | Storage::Ell => None,
        };
        let mut uploaded = Self {
            storage,
            compact,
            nitems: batch.nitems(),
            shapes,
            shared_values,
            pointers,
            row_idx,
            col_idx: Indices::upload(executor, &host.col_idx, compact)?,
            row_ptr: host.row_ptr,
            values: executor.alloc((indices * value_sets) as usize)?,
        };
        uploaded.upload_values(executor, batch)?;
        Ok(uploaded)
    }

    /// Uploads the values of the batch that these arrays were made for.
    fn upload_values(&mut self, executor: &E, batch: &Batch<T>) -> Result<(), GpuError> {
        match batch {
            // Without items, shared values are not uploaded.
            Batch::Uniform(batch) if batch.nitems() == 0 => Ok(()),
            Batch::Uniform(batch) if batch.layout() == Layout::Interleaved => {
                self.update_values(executor, batch.to_item_major().values().into_array())
            }
            Batch::Uniform(batch) => self.update_values(executor, batch.values().into_array()),
            Batch::Ragged(batch) => self.update_values(executor, batch.values()),
        }
    }

    /// A batch over CSR arrays that already lie in the memory of the executor. No value or column
    /// is copied. A kernel checks the arrays, and the call waits for it. Indices are read with 32
    /// bits.
    ///
    /// The batch keeps the arrays. Values may be changed in place, in the order of the stream, and
    /// the next product uses them.
    ///
    /// # Errors
    /// [`GpuError::Length`] when the lengths of the arrays do not match the sizes;
    /// [`GpuError::InvalidArgument`] for sizes above `i32::MAX` and arrays that are no CSR
    /// matrices, naming the first item and row that is wrong; [`GpuError::OutOfMemory`]; errors of
    /// compiling and running the check.
    ///
    /// # Safety
    /// 1. Nobody writes to `row_ptr` and `col_idx` between this call and the end of the work of the
    ///    last product: the kernels follow them without further checks.
    ///
    /// The requirements of a [buffer from an address](sparsebatch_cuda::DeviceBuffer::from_raw)
    /// apply as well.
    #[expect(unsafe_code, reason = "what others do to the arrays later cannot be checked")]
    pub unsafe fn from_arrays(
        executor: &E,
        sizes: BatchSizes<'_>,
        arrays: CsrArrays<E, T>,
    ) -> Result<Self, GpuError> {
        let (nitems, patterns, value_sets) = match &sizes {
            BatchSizes::Uniform { nitems: 0, .. } => (0, &[][..], 0),
            BatchSizes::Uniform { item, nitems, shared_values } => {
                (*nitems, std::slice::from_ref(item), if *shared_values { 1 } else { *nitems })
            }
            BatchSizes::Ragged(items) => (items.len(), *items, 1),
        };
        count_systems(nitems, 1)?;
        check_csr(executor, patterns, &arrays.row_ptr, &arrays.col_idx)?;
        let nvalues = arrays.col_idx.len().saturating_mul(value_sets);
        check_len("values", nvalues, arrays.values.len())?;
        let mut shapes = Vec::with_capacity(patterns.len());
        let (mut row_ptr, mut indices) = (0, 0);
        for size in patterns {
            shapes.push(FlexibleShape {
                nrows: size.nrows as u32,
                ncols: size.ncols as u32,
                nnz: size.nnz as u32,
                stored: size.nnz as u32,
                width: 0,
                row_ptr,
                pointers: row_ptr as u64,
                indices,
            });
            row_ptr += size.nrows + 1;
            indices += size.nnz as u64;
        }
        Ok(Self {
            storage: Storage::Csr,
            compact: false,
            nitems,
            shapes,
            shared_values: matches!(sizes, BatchSizes::Uniform { shared_values: true, .. }),
            row_ptr: Vec::new(),
            pointers: Some(Indices::I32(arrays.row_ptr)),
            row_idx: None,
            col_idx: Indices::I32(arrays.col_idx),
            values: arrays.values,
        })
    }

    /// Copies the row pointers to the host if they are not there yet.
    pub(super) fn fetch_row_ptr(&mut self, executor: &E) -> Result<(), GpuError> {
        if let (Some(Indices::I32(pointers)), true) = (&self.pointers, self.row_ptr.is_empty()) {
            self.row_ptr = executor.download(pointers)?;
        }
        Ok(())
    }

    /// Overwrites the values. `values` are in CSR order, item after item, or one set if they are
    /// shared. Waits for the copy. For padded storages the host makes a padded copy first.
    ///
    /// # Errors
    /// [`GpuError::Length`] unless there are as many values as the batch has.
    pub fn update_values(&mut self, executor: &E, values: &[T]) -> Result<(), GpuError> {
        check_len("values", self.nvalues(), values.len())?;
        if matches!(self.storage, Storage::Csr | Storage::Coo) {
            return executor.copy_from_host(values, &mut self.values);
        }
        let mut padded = Vec::with_capacity(self.values.len());
        let mut rest = values;
        let sets = if self.shared_values { self.shapes.len() } else { self.nitems };
        for item in 0..sets {
            let shape = self.shape(item);
            let (entries, after) = rest.split_at(shape.nnz as usize);
            push_slots(self.storage, self.row_ptr(shape), entries, T::ZERO, &mut padded);
            rest = after;
        }
        executor.copy_from_host(&padded, &mut self.values)
    }

    /// As [`update_values`](Self::update_values), for values on the device. Enqueues the copy and
    /// returns; for padded storages it waits, since the copy is padded on the host.
    ///
    /// # Errors
    /// [`GpuError::Length`] unless there are as many values as the batch has;
    /// [`GpuError::InvalidArgument`] for values that are those of the batch itself.
    pub fn update_from(&mut self, executor: &E, values: &E::Buffer<T>) -> Result<(), GpuError> {
        check_len("values", self.nvalues(), values.len())?;
        match self.storage {
            Storage::Csr | Storage::Coo => copy_values(executor, values, &mut self.values),
            Storage::Ell | Storage::SellP { .. } => {
                self.update_values(executor, &executor.download(values)?)
            }
        }
    }

    /// How the batch is stored.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// Systems in the batch.
    pub fn nitems(&self) -> usize {
        self.nitems
    }

    /// Rows of all items.
    pub fn total_rows(&self) -> usize {
        self.total(|shape| shape.nrows)
    }

    /// Columns of all items.
    pub fn total_cols(&self) -> usize {
        self.total(|shape| shape.ncols)
    }

    /// Entries of all items; shared entries count once per item.
    pub fn total_nnz(&self) -> usize {
        self.total(|shape| shape.nnz)
    }

    /// Slots of all items, with padding; shared slots count once per item.
    pub fn total_stored(&self) -> usize {
        self.total(|shape| shape.stored)
    }

    /// Values of all items, without padding; shared values count once.
    /// [`update_values`](Self::update_values) takes this many.
    pub fn nvalues(&self) -> usize {
        if self.shared_values {
            self.shapes.iter().map(|shape| shape.nnz as usize).sum()
        } else {
            self.total_nnz()
        }
    }

    /// Whether indices have 16 bits.
    pub fn is_compact(&self) -> bool {
        self.compact
    }

    /// Bytes of the arrays on the device.
    pub fn bytes(&self) -> u64 {
        let pointers = self.pointers.as_ref().map_or(0, Indices::bytes);
        let row_idx = self.row_idx.as_ref().map_or(0, Indices::bytes);
        let values = (self.values.len() * size_of::<T>()) as u64;
        pointers + row_idx + self.col_idx.bytes() + values
    }

    pub(super) fn shape(&self, item: usize) -> &FlexibleShape {
        &self.shapes[if self.shapes.len() == 1 { 0 } else { item }]
    }

    /// The distinct patterns: one for each item, or one for all.
    pub(super) fn shapes(&self) -> &[FlexibleShape] {
        &self.shapes
    }

    pub(super) fn row_ptr(&self, shape: &FlexibleShape) -> &[i32] {
        &self.row_ptr[shape.row_ptr..=shape.row_ptr + shape.nrows as usize]
    }

    /// Offset of the values of an item.
    pub(super) fn first_value(&self, item: usize) -> u64 {
        let shape = self.shape(item);
        match self.shapes.len() {
            _ if self.shared_values => 0,
            1 => item as u64 * u64::from(shape.stored),
            _ => shape.indices,
        }
    }

    fn total(&self, count: impl Fn(&FlexibleShape) -> u32) -> usize {
        match self.shapes.as_slice() {
            [one] => self.nitems * count(one) as usize,
            all => all.iter().map(|shape| count(shape) as usize).sum(),
        }
    }
}

/// Lengths of the arrays of all distinct patterns.
#[derive(Default)]
struct Lengths {
    /// Row or slice pointers on the device.
    pointers: u64,
    /// Column indices, padding included.
    indices: u64,
}

/// Measures the first `npatterns` patterns of a batch and places their arrays one after the other.
fn lay_out<T: Value>(
    batch: &Batch<T>,
    npatterns: usize,
    storage: Storage,
) -> Result<(Vec<FlexibleShape>, Lengths), GpuError> {
    let mut shapes = Vec::with_capacity(npatterns);
    let (mut row_ptr, mut lengths) = (0, Lengths::default());
    for item in 0..npatterns {
        let pattern = batch.pattern(item);
        let (width, stored) = measure(storage, pattern)?;
        shapes.push(FlexibleShape {
            nrows: pattern.nrows() as u32,
            ncols: pattern.ncols() as u32,
            nnz: pattern.nnz() as u32,
            stored,
            width,
            row_ptr,
            pointers: lengths.pointers,
            indices: lengths.indices,
        });
        row_ptr += pattern.nrows() + 1;
        lengths.pointers += match storage {
            Storage::Csr => pattern.nrows() as u64 + 1,
            Storage::SellP { threads_per_row: t } => {
                (pattern.nrows() as u64).div_ceil(32 / u64::from(t)) + 1
            }
            Storage::Coo | Storage::Ell => 0,
        };
        lengths.indices += u64::from(stored);
    }
    Ok((shapes, lengths))
}

/// Concatenated arrays of all distinct patterns.
#[derive(Default)]
struct HostArrays {
    row_ptr: Vec<i32>,
    pointers: Vec<u32>,
    row_idx: Vec<u32>,
    col_idx: Vec<u32>,
}

impl HostArrays {
    fn push(&mut self, storage: Storage, pattern: CsrPatternRef<'_>) {
        let row_ptr = pattern.row_ptr();
        self.row_ptr.extend_from_slice(row_ptr);
        match storage {
            Storage::Csr => self.pointers.extend(row_ptr.iter().map(|&k| k as u32)),
            Storage::SellP { threads_per_row } => {
                push_slice_ptr(row_ptr, threads_per_row, &mut self.pointers);
            }
            Storage::Coo => {
                for row in 0..pattern.nrows() {
                    let len = pattern.row(row).len();
                    self.row_idx.extend(std::iter::repeat_n(row as u32, len));
                }
            }
            Storage::Ell => {}
        }
        if matches!(storage, Storage::Csr | Storage::Coo) {
            self.col_idx.extend(pattern.col_idx().iter().map(|&column| column as u32));
        } else {
            let columns: Vec<u32> = pattern.col_idx().iter().map(|&c| c as u32).collect();
            push_slots(storage, row_ptr, &columns, PADDING, &mut self.col_idx);
        }
    }
}
