//! COO.
#![expect(unsafe_code, reason = "launches kernels")]

use sparsebatch_formats::{CooPattern, Pattern};

use super::super::kernels;
use super::{BLOCK_THREADS, Parts, Product, instance, linear};
use sparsebatch_cuda::{Args, Executor, GpuError, KernelKey, Value};

/// A matrix in COO, and the partial sums of its parts.
pub(in crate::single) struct DeviceCoo<E: Executor, T: Value> {
    scale: KernelKey,
    first: KernelKey,
    second: KernelKey,
    nrows: u32,
    nnz: u32,
    row_idx: E::Buffer<i32>,
    col_idx: E::Buffer<i32>,
    pub(in crate::single) values: E::Buffer<T>,
    parts: Parts<E, T>,
}

impl<E: Executor, T: Value> DeviceCoo<E, T> {
    /// `nparts` is at most the number of entries, and 0 only without any.
    pub(in crate::single) fn upload(
        executor: &E,
        pattern: &CooPattern,
        values: &[T],
        nparts: u32,
    ) -> Result<Self, GpuError> {
        assert_eq!(values.len(), pattern.nnz());
        assert!(nparts as usize <= pattern.nnz() && (nparts > 0 || pattern.nnz() == 0));
        Ok(Self {
            scale: instance::<T>(&kernels::COO, "coo_scale"),
            first: instance::<T>(&kernels::COO, "coo_parts"),
            second: instance::<T>(&kernels::COO, "coo_carries"),
            nrows: pattern.nrows() as u32,
            nnz: pattern.nnz() as u32,
            row_idx: executor.upload(pattern.row_idx())?,
            col_idx: executor.upload(pattern.col_idx())?,
            values: executor.upload(values)?,
            parts: Parts::new(executor, nparts)?,
        })
    }

    pub(in crate::single) fn keys(&self) -> Vec<KernelKey> {
        vec![self.scale.clone(), self.first.clone(), self.second.clone()]
    }

    pub(in crate::single) fn nparts(&self) -> u32 {
        self.parts.nparts
    }

    pub(in crate::single) fn multiply(
        &mut self,
        product: Product<'_, E, T>,
    ) -> Result<(), GpuError> {
        let Product { executor, alpha, x, beta, y, overlaps } = product;
        // Scaling by 1 changes nothing, unless alpha*0 is not 0.
        if let Some(config) = linear(self.nrows.into(), BLOCK_THREADS)
            && (beta != T::ONE || !alpha.is_finite())
        {
            let mut args = Args::new();
            args.scalar(self.nrows).scalar(alpha).scalar(beta).output(y);
            // SAFETY: 1. The arguments are the parameters of `coo_scale`. 2. y has a value per row,
            // and there is a thread per row. 3. y is borrowed. 4. There is no other buffer.
            unsafe { executor.launch(&self.scale, config, &mut args) }?;
        }
        self.add(Product { executor, alpha, x, beta: T::ONE, y, overlaps })
    }

    /// `y += alpha*A*x`, whatever `beta` is.
    pub(in crate::single) fn add(&mut self, product: Product<'_, E, T>) -> Result<(), GpuError> {
        let Some(config) = self.parts.config() else {
            return Ok(());
        };
        let Product { executor, alpha, x, y, .. } = product;
        let Parts { nparts, head, tail } = &mut self.parts;
        let mut args = Args::new();
        args.scalar(self.nnz).input(&self.row_idx).input(&self.col_idx).input(&self.values);
        args.scalar(*nparts).scalar(alpha).input(x).output(y).output(head).output(tail);
        // SAFETY: 1. The arguments are the parameters of `coo_parts`. 2. The arrays are those of a
        // validated COO pattern and the vectors fit it; head and tail have one value per part, and
        // there are at least one part and at most one per entry. 3. All were made by the executor
        // of the plan and `args` borrows them. 4. y, head and tail do not overlap.
        unsafe { executor.launch(&self.first, config, &mut args) }?;
        let mut args = Args::new();
        args.scalar(self.nnz).input(&self.row_idx).scalar(*nparts).scalar(alpha).output(y);
        args.input(head).input(tail);
        // SAFETY: 1. The arguments are the parameters of `coo_carries`. 2. to 4. as above; the
        // launch before wrote the entries of head and tail that this one reads.
        unsafe { executor.launch(&self.second, config, &mut args) }
    }
}
