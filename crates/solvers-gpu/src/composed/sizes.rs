//! The norms that rounding floors compare residuals with: [`SystemSizes`].

use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::Batch;

use super::kernels;
use super::matrices::Matrices;
use super::product::values_of;
use sparsebatch_cuda::kernels::VECTOR;

/// Grid of the launch that copies values.
const COPY_BLOCKS: u32 = 1024;
const COPY_THREADS: u32 = 256;

/// Computes `|| |A||x| + |b| ||` of the systems that are judged, from the matrices in CSR.
pub(super) struct SystemSizes<E: Executor, T: Value> {
    pub(super) whole: KernelKey,
    pub(super) part: KernelKey,
    copy: KernelKey,
    row_ptr: E::Buffer<i32>,
    col_idx: E::Buffer<i32>,
    values: E::Buffer<T>,
    /// Offset of each item's first value.
    entries: E::Buffer<u64>,
    is_uniform: bool,
    nrhs: usize,
}

impl<E: Executor, T: Value> SystemSizes<E, T> {
    pub(super) fn new(
        executor: &E,
        matrices: &Matrices<'_, T>,
        nrhs: usize,
    ) -> Result<Self, GpuError> {
        let name = |kernel| KernelKey::new(&kernels::KRYLOV, format!("{kernel}<{}>", T::CPP));
        let (whole, part) = (name("krylov_sizes"), name("krylov_sizes_part"));
        let copy = KernelKey::new(&VECTOR, format!("axpby<{}>", T::CPP));
        executor.prepare(&[whole.clone(), part.clone(), copy.clone()])?;
        let (mut row_ptr, mut col_idx) = (Vec::new(), Vec::new());
        for item in matrices.stored() {
            row_ptr.extend_from_slice(matrices.pattern(item).row_ptr());
            col_idx.extend_from_slice(matrices.pattern(item).col_idx());
        }
        Ok(Self {
            whole,
            part,
            copy,
            row_ptr: executor.upload(&row_ptr)?,
            col_idx: executor.upload(&col_idx)?,
            values: match matrices {
                Matrices::Batch(batch) => executor.upload(&values_of(batch))?,
                Matrices::Pattern { .. } => executor.alloc_zeroed(matrices.nvalues())?,
            },
            entries: executor.upload(&matrices.first_values())?,
            is_uniform: matrices.is_uniform(),
            nrhs,
        })
    }

    /// Replaces the values by those of a batch of the same patterns, shared as before.
    pub(super) fn update_values(&mut self, executor: &E, batch: &Batch<T>) -> Result<(), GpuError> {
        executor.copy_from_host(&values_of(batch), &mut self.values)
    }

    /// As `update_values`, for values on the device. Enqueues and returns.
    #[expect(unsafe_code, reason = "a launch")]
    pub(super) fn update_from(
        &mut self,
        executor: &E,
        values: &E::Buffer<T>,
    ) -> Result<(), GpuError> {
        let mut args = Args::new();
        args.scalar(values.len() as u64).scalar(T::ONE).input(values).scalar(T::ZERO);
        args.output(&mut self.values);
        let config = LaunchConfig::linear(COPY_BLOCKS, COPY_THREADS);
        // SAFETY: (1) the arguments are those of `axpby`; (2) the caller gives as many values as
        // were uploaded; (3) both buffers are of this executor; (4) the copy is borrowed
        // exclusively.
        unsafe { executor.launch(&self.copy, config, &mut args) }
    }

    /// Appends `row_ptr, col_idx, values, entries, is_uniform, nrhs`.
    pub(super) fn pass<'a>(&'a self, args: &mut Args<'a>) {
        args.input(&self.row_ptr)
            .input(&self.col_idx)
            .input(&self.values)
            .input(&self.entries)
            .scalar(u32::from(self.is_uniform))
            .scalar(self.nrhs as u32);
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        let indices = 4 * (self.row_ptr.len() + self.col_idx.len()) + 8 * self.entries.len();
        (indices + self.values.len() * size_of::<T>()) as u64
    }
}
