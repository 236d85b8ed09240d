//! CSR and CSR-I.
#![expect(unsafe_code, reason = "launches kernels")]

use sparsebatch_formats::CsrPatternRef;

use super::super::kernels;
use super::{BLOCK_THREADS, Parts, Product, WARP_THREADS, instance, spread};
use crate::CsrArrays;
use crate::single::BalancedRows;
use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, KernelKey, Value};

/// CSR arrays.
pub(in crate::single) struct DeviceCsr<E: Executor, T: Value> {
    nrows: u32,
    nnz: u32,
    pub(super) row_ptr: E::Buffer<i32>,
    pub(super) col_idx: E::Buffer<i32>,
    pub(in crate::single) values: E::Buffer<T>,
}

impl<E: Executor, T: Value> DeviceCsr<E, T> {
    /// `values` are in CSR order, one per entry.
    pub(in crate::single) fn upload(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        values: &[T],
    ) -> Result<Self, GpuError> {
        assert_eq!(values.len(), pattern.nnz());
        Ok(Self {
            nrows: pattern.nrows() as u32,
            nnz: pattern.nnz() as u32,
            row_ptr: executor.upload(pattern.row_ptr())?,
            col_idx: executor.upload(pattern.col_idx())?,
            values: executor.upload(values)?,
        })
    }
}

impl<E: Executor, T: Value> DeviceCsr<E, T> {
    /// Takes arrays that are on the device and have been checked.
    pub(in crate::single) fn of(nrows: usize, arrays: CsrArrays<E, T>) -> Self {
        let CsrArrays { row_ptr, col_idx, values } = arrays;
        Self { nrows: nrows as u32, nnz: col_idx.len() as u32, row_ptr, col_idx, values }
    }
}

/// A kernel of `csr.cu`; the kernels differ in the threads per row.
#[derive(Clone, Debug)]
pub(in crate::single) struct RowKernel {
    key: KernelKey,
    threads_per_row: u32,
    block: u32,
}

impl RowKernel {
    pub(in crate::single) fn scalar<T: Value>() -> Self {
        let key = instance::<T>(&kernels::CSR, "csr_scalar");
        Self { key, threads_per_row: 1, block: BLOCK_THREADS }
    }

    pub(in crate::single) fn unrolled<T: Value>() -> Self {
        let key = instance::<T>(&kernels::CSR, "csr_scalar_unrolled");
        Self { key, threads_per_row: 1, block: BLOCK_THREADS }
    }

    /// `lanes` is 2, 4, 8, 16 or 32.
    pub(in crate::single) fn vector<T: Value>(lanes: u32) -> Self {
        let key = KernelKey::new(&kernels::CSR, format!("csr_vector<{}, {lanes}>", T::CPP));
        Self { key, threads_per_row: lanes, block: BLOCK_THREADS }
    }

    pub(in crate::single) fn tile<T: Value>() -> Self {
        let key = instance::<T>(&kernels::CSR, "csr_tile");
        // `TILE_WARPS` warps, as in the kernel.
        Self { key, threads_per_row: WARP_THREADS, block: 4 * WARP_THREADS }
    }

    pub(in crate::single) fn keys(&self) -> Vec<KernelKey> {
        vec![self.key.clone()]
    }

    pub(in crate::single) fn multiply<E: Executor, T: Value>(
        &self,
        a: &DeviceCsr<E, T>,
        product: Product<'_, E, T>,
    ) -> Result<(), GpuError> {
        let threads = u64::from(a.nrows) * u64::from(self.threads_per_row);
        let Some(mut config) = spread(product.executor, threads, self.block) else {
            return Ok(());
        };
        config.overlaps = product.overlaps;
        let mut args = Args::new();
        args.scalar(a.nrows).input(&a.row_ptr).input(&a.col_idx).input(&a.values);
        args.scalar(product.alpha).input(product.x).scalar(product.beta).output(product.y);
        // SAFETY: 1. All kernels that `key` can name take these parameters. 2. The arrays are those
        // of a validated CSR pattern, the vectors fit it, and the grid has the threads per row and
        // the block size of the kernel. 3. The arrays were uploaded by the executor of the plan,
        // and `args` borrows them. 4. Only y is written, and it overlaps nothing else. 5. All
        // kernels wait for the launch ahead.
        unsafe { product.executor.launch(&self.key, config, &mut args) }
    }
}

/// CSR-I.
pub(in crate::single) struct BalancedKernel<E: Executor, T: Value> {
    first: KernelKey,
    second: KernelKey,
    start_rows: E::Buffer<i32>,
    parts: Parts<E, T>,
    /// The kernel for a matrix without entries.
    empty: RowKernel,
}

impl<E: Executor, T: Value> BalancedKernel<E, T> {
    /// `rows` has been checked against the pattern that the kernel will be used with.
    pub(in crate::single) fn upload(executor: &E, rows: &BalancedRows) -> Result<Self, GpuError> {
        Ok(Self {
            first: instance::<T>(&kernels::CSR_BALANCED, "balanced_parts"),
            second: instance::<T>(&kernels::CSR_BALANCED, "balanced_carries"),
            start_rows: executor.upload(rows.start_rows())?,
            parts: Parts::new(executor, rows.nparts() as u32)?,
            empty: RowKernel::scalar::<T>(),
        })
    }

    pub(in crate::single) fn keys(&self) -> Vec<KernelKey> {
        if self.parts.nparts == 0 {
            return self.empty.keys();
        }
        vec![self.first.clone(), self.second.clone()]
    }

    pub(in crate::single) fn multiply(
        &mut self,
        a: &DeviceCsr<E, T>,
        product: Product<'_, E, T>,
    ) -> Result<(), GpuError> {
        let Some(config) = self.parts.config() else {
            return self.empty.multiply(a, product);
        };
        let Product { executor, alpha, x, beta, y, .. } = product;
        let Parts { nparts, head, tail } = &mut self.parts;
        let mut args = Args::new();
        args.scalar(a.nrows).scalar(a.nnz).input(&a.row_ptr).input(&a.col_idx).input(&a.values);
        args.scalar(*nparts).input(&self.start_rows).scalar(alpha).input(x).scalar(beta);
        args.output(y).output(head).output(tail);
        // SAFETY: 1. The arguments are the parameters of `balanced_parts`. 2. The arrays are those
        // of a validated CSR pattern, for which the start rows were checked; the vectors fit it;
        // head and tail have one value per part, and there are at least one part and at most one
        // per entry. 3. All were made by the executor of the plan and `args` borrows them. 4. y,
        // head and tail do not overlap.
        unsafe { executor.launch(&self.first, config, &mut args) }?;
        let mut args = Args::new();
        args.scalar(a.nnz).input(&a.row_ptr).scalar(*nparts).input(&self.start_rows);
        args.scalar(alpha).scalar(beta).output(y).input(head).input(tail);
        // SAFETY: 1. The arguments are the parameters of `balanced_carries`. 2. to 4. as above; the
        // launch before wrote the entries of head and tail that this one reads.
        unsafe { executor.launch(&self.second, config, &mut args) }
    }
}
