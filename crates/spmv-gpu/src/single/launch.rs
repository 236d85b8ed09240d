//! Matrices in device memory and the launches of their kernels: all the unsafe of this module.
//!
//! The fields of each type stay together: they are uploaded from one validated pattern, which is
//! what the launches rely on, and only values can be replaced.
#![expect(unsafe_code, reason = "launches kernels")]

use sparsebatch_formats::{
    CooPattern, CsrPatternRef, DiaPattern, EllPattern, Pattern, SellPPattern,
};

use super::BalancedRows;
use crate::{Args, Executor, GpuError, KernelKey, LaunchConfig, Value};

/// As `BLOCK_THREADS` of the kernels.
const BLOCK_THREADS: u32 = 256;
const WARP_THREADS: u32 = 32;

/// The vectors and factors of `y = alpha*A*x + beta*y`.
///
/// Whoever makes one has checked that `x` has a value for each column, `y` one for each row, and
/// that they do not overlap.
pub(super) struct Product<'a, E: Executor, T: Value> {
    pub(super) executor: &'a E,
    pub(super) alpha: T,
    pub(super) x: &'a E::Buffer<T>,
    pub(super) beta: T,
    pub(super) y: &'a mut E::Buffer<T>,
}

/// At least this many threads in blocks of `block`; `None` for no threads at all.
fn linear(threads: u64, block: u32) -> Option<LaunchConfig> {
    // At most 2^31 rows of 32 threads in blocks of at least 128.
    let blocks = u32::try_from(threads.div_ceil(block.into())).expect("rows fit i32");
    (blocks > 0).then(|| LaunchConfig::linear(blocks, block))
}

fn instance<T: Value>(module: &'static str, kernel: &str) -> KernelKey {
    KernelKey::new(module, format!("{kernel}<{}>", T::CPP))
}

/// CSR arrays.
pub(super) struct DeviceCsr<E: Executor, T: Value> {
    nrows: u32,
    nnz: u32,
    row_ptr: E::Buffer<i32>,
    col_idx: E::Buffer<i32>,
    pub(super) values: E::Buffer<T>,
}

impl<E: Executor, T: Value> DeviceCsr<E, T> {
    /// `values` in CSR order, one per entry.
    pub(super) fn upload(
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

/// A kernel of `csr.cu`: they differ in the threads that a row gets.
#[derive(Clone, Debug)]
pub(super) struct RowKernel {
    key: KernelKey,
    threads_per_row: u32,
    block: u32,
}

impl RowKernel {
    pub(super) fn scalar<T: Value>() -> Self {
        let key = instance::<T>("csr", "csr_scalar");
        Self { key, threads_per_row: 1, block: BLOCK_THREADS }
    }

    pub(super) fn unrolled<T: Value>() -> Self {
        let key = instance::<T>("csr", "csr_scalar_unrolled");
        Self { key, threads_per_row: 1, block: BLOCK_THREADS }
    }

    /// `lanes` is 2, 4, 8, 16 or 32.
    pub(super) fn vector<T: Value>(lanes: u32) -> Self {
        let key = KernelKey::new("csr", format!("csr_vector<{}, {lanes}>", T::CPP));
        Self { key, threads_per_row: lanes, block: BLOCK_THREADS }
    }

    pub(super) fn tile<T: Value>() -> Self {
        let key = instance::<T>("csr", "csr_tile");
        // As TILE_WARPS of the kernel.
        Self { key, threads_per_row: WARP_THREADS, block: 4 * WARP_THREADS }
    }

    pub(super) fn keys(&self) -> Vec<KernelKey> {
        vec![self.key.clone()]
    }

    pub(super) fn multiply<E: Executor, T: Value>(
        &self,
        a: &DeviceCsr<E, T>,
        product: Product<'_, E, T>,
    ) -> Result<(), GpuError> {
        let threads = u64::from(a.nrows) * u64::from(self.threads_per_row);
        let Some(config) = linear(threads, self.block) else {
            return Ok(());
        };
        let mut args = Args::new();
        args.scalar(a.nrows).input(&a.row_ptr).input(&a.col_idx).input(&a.values);
        args.scalar(product.alpha).input(product.x).scalar(product.beta).output(product.y);
        // SAFETY: 1. all kernels that `key` can name take these parameters. 2. The arrays are those
        // of a validated CSR pattern, the vectors fit it, and the grid has the threads per row and
        // the block size of the kernel. 3. The arrays were uploaded by the executor of the plan,
        // and `args` borrows them. 4. Only y is written, and it overlaps nothing else.
        unsafe { product.executor.launch(&self.key, config, &mut args) }
    }
}

/// What the kernels that cut entries into parts need.
struct Parts<E: Executor, T: Value> {
    nparts: u32,
    head: E::Buffer<T>,
    tail: E::Buffer<T>,
}

impl<E: Executor, T: Value> Parts<E, T> {
    fn new(executor: &E, nparts: u32) -> Result<Self, GpuError> {
        let len = nparts as usize;
        Ok(Self { nparts, head: executor.alloc(len)?, tail: executor.alloc(len)? })
    }

    /// A warp per part.
    fn config(&self) -> Option<LaunchConfig> {
        linear(u64::from(self.nparts) * u64::from(WARP_THREADS), BLOCK_THREADS)
    }
}

/// CSR-I.
pub(super) struct BalancedKernel<E: Executor, T: Value> {
    first: KernelKey,
    second: KernelKey,
    start_rows: E::Buffer<i32>,
    parts: Parts<E, T>,
    /// For a matrix without entries.
    empty: RowKernel,
}

impl<E: Executor, T: Value> BalancedKernel<E, T> {
    /// `rows` has been checked against the pattern that the kernel will be used with.
    pub(super) fn upload(executor: &E, rows: &BalancedRows) -> Result<Self, GpuError> {
        Ok(Self {
            first: instance::<T>("csr_balanced", "balanced_parts"),
            second: instance::<T>("csr_balanced", "balanced_carries"),
            start_rows: executor.upload(rows.start_rows())?,
            parts: Parts::new(executor, rows.nparts() as u32)?,
            empty: RowKernel::scalar::<T>(),
        })
    }

    pub(super) fn keys(&self) -> Vec<KernelKey> {
        if self.parts.nparts == 0 {
            return self.empty.keys();
        }
        vec![self.first.clone(), self.second.clone()]
    }

    pub(super) fn multiply(
        &mut self,
        a: &DeviceCsr<E, T>,
        product: Product<'_, E, T>,
    ) -> Result<(), GpuError> {
        let Some(config) = self.parts.config() else {
            return self.empty.multiply(a, product);
        };
        let Product { executor, alpha, x, beta, y } = product;
        let Parts { nparts, head, tail } = &mut self.parts;
        let mut args = Args::new();
        args.scalar(a.nrows).scalar(a.nnz).input(&a.row_ptr).input(&a.col_idx).input(&a.values);
        args.scalar(*nparts).input(&self.start_rows).scalar(alpha).input(x).scalar(beta);
        args.output(y).output(head).output(tail);
        // SAFETY: 1. the parameters of balanced_parts. 2. The arrays are those of a validated CSR
        // pattern, for which the start rows were checked; the vectors fit it; head and tail have a
        // value per part, of which there is at least one and at most one per entry. 3. All were
        // made by the executor of the plan and `args` borrows them. 4. y, head and tail are apart.
        unsafe { executor.launch(&self.first, config, &mut args) }?;
        let mut args = Args::new();
        args.scalar(a.nnz).input(&a.row_ptr).scalar(*nparts).input(&self.start_rows);
        args.scalar(alpha).scalar(beta).output(y).input(head).input(tail);
        // SAFETY: 1. the parameters of balanced_carries. 2. to 4. as above; the launch before wrote
        // the entries of head and tail that this one reads.
        unsafe { executor.launch(&self.second, config, &mut args) }
    }
}

/// A matrix in COO and the sums that its parts carry.
pub(super) struct DeviceCoo<E: Executor, T: Value> {
    scale: KernelKey,
    first: KernelKey,
    second: KernelKey,
    nrows: u32,
    nnz: u32,
    row_idx: E::Buffer<i32>,
    col_idx: E::Buffer<i32>,
    pub(super) values: E::Buffer<T>,
    parts: Parts<E, T>,
}

impl<E: Executor, T: Value> DeviceCoo<E, T> {
    /// `nparts` is at most the number of entries, and 0 only without any.
    pub(super) fn upload(
        executor: &E,
        pattern: &CooPattern,
        values: &[T],
        nparts: u32,
    ) -> Result<Self, GpuError> {
        assert_eq!(values.len(), pattern.nnz());
        assert!(nparts as usize <= pattern.nnz() && (nparts > 0 || pattern.nnz() == 0));
        Ok(Self {
            scale: instance::<T>("coo", "coo_scale"),
            first: instance::<T>("coo", "coo_parts"),
            second: instance::<T>("coo", "coo_carries"),
            nrows: pattern.nrows() as u32,
            nnz: pattern.nnz() as u32,
            row_idx: executor.upload(pattern.row_idx())?,
            col_idx: executor.upload(pattern.col_idx())?,
            values: executor.upload(values)?,
            parts: Parts::new(executor, nparts)?,
        })
    }

    pub(super) fn keys(&self) -> Vec<KernelKey> {
        vec![self.scale.clone(), self.first.clone(), self.second.clone()]
    }

    pub(super) fn nparts(&self) -> u32 {
        self.parts.nparts
    }

    pub(super) fn multiply(&mut self, product: Product<'_, E, T>) -> Result<(), GpuError> {
        let Product { executor, alpha, x, beta, y } = product;
        // Scaling by 1 changes nothing, unless alpha*0 is not 0.
        if let Some(config) = linear(self.nrows.into(), BLOCK_THREADS)
            && (beta != T::ONE || !alpha.is_finite())
        {
            let mut args = Args::new();
            args.scalar(self.nrows).scalar(alpha).scalar(beta).output(y);
            // SAFETY: 1. the parameters of coo_scale. 2. y has a value per row, and there is a
            // thread per row. 3. y is borrowed. 4. There is no other buffer.
            unsafe { executor.launch(&self.scale, config, &mut args) }?;
        }
        self.add(Product { executor, alpha, x, beta: T::ONE, y })
    }

    /// `y += alpha*A*x`, whatever `beta` is.
    pub(super) fn add(&mut self, product: Product<'_, E, T>) -> Result<(), GpuError> {
        let Some(config) = self.parts.config() else {
            return Ok(());
        };
        let Product { executor, alpha, x, y, .. } = product;
        let Parts { nparts, head, tail } = &mut self.parts;
        let mut args = Args::new();
        args.scalar(self.nnz).input(&self.row_idx).input(&self.col_idx).input(&self.values);
        args.scalar(*nparts).scalar(alpha).input(x).output(y).output(head).output(tail);
        // SAFETY: 1. the parameters of coo_parts. 2. The arrays are those of a validated COO
        // pattern and the vectors fit it; head and tail have a value per part, of which there is at
        // least one and at most one per entry. 3. All were made by the executor of the plan and
        // `args` borrows them. 4. y, head and tail are apart.
        unsafe { executor.launch(&self.first, config, &mut args) }?;
        let mut args = Args::new();
        args.scalar(self.nnz).input(&self.row_idx).scalar(*nparts).scalar(alpha).output(y);
        args.input(head).input(tail);
        // SAFETY: 1. the parameters of coo_carries. 2. to 4. as above; the launch before wrote the
        // entries of head and tail that this one reads.
        unsafe { executor.launch(&self.second, config, &mut args) }
    }
}

/// A matrix in ELL.
pub(super) struct DeviceEll<E: Executor, T: Value> {
    key: KernelKey,
    nrows: u32,
    width: u32,
    col_idx: E::Buffer<i32>,
    pub(super) values: E::Buffer<T>,
}

impl<E: Executor, T: Value> DeviceEll<E, T> {
    pub(super) fn upload(
        executor: &E,
        pattern: &EllPattern,
        values: &[T],
    ) -> Result<Self, GpuError> {
        assert_eq!(values.len(), pattern.stored_len());
        Ok(Self {
            key: instance::<T>("ell", "ell"),
            nrows: pattern.nrows() as u32,
            // Of a matrix without rows a width may be anything.
            width: if pattern.nrows() == 0 { 0 } else { pattern.width() as u32 },
            col_idx: executor.upload(pattern.col_idx())?,
            values: executor.upload(values)?,
        })
    }

    pub(super) fn keys(&self) -> Vec<KernelKey> {
        vec![self.key.clone()]
    }

    pub(super) fn multiply(&self, product: Product<'_, E, T>) -> Result<(), GpuError> {
        let Some(config) = linear(self.nrows.into(), BLOCK_THREADS) else {
            return Ok(());
        };
        let mut args = Args::new();
        args.scalar(self.nrows).scalar(self.width).input(&self.col_idx).input(&self.values);
        args.scalar(product.alpha).input(product.x).scalar(product.beta).output(product.y);
        // SAFETY: 1. the parameters of ell. 2. The arrays are those of a validated ELL pattern, the
        // vectors fit it, and there is a thread per row. 3. The arrays were uploaded by the
        // executor of the plan and `args` borrows them. 4. Only y is written, and it overlaps
        // nothing else.
        unsafe { product.executor.launch(&self.key, config, &mut args) }
    }
}

/// A matrix in DIA.
pub(super) struct DeviceDia<E: Executor, T: Value> {
    key: KernelKey,
    nrows: u32,
    ncols: u32,
    ndiags: u32,
    diag_offsets: E::Buffer<i32>,
    pub(super) values: E::Buffer<T>,
}

impl<E: Executor, T: Value> DeviceDia<E, T> {
    pub(super) fn upload(
        executor: &E,
        pattern: &DiaPattern,
        values: &[T],
    ) -> Result<Self, GpuError> {
        assert_eq!(values.len(), pattern.stored_len());
        Ok(Self {
            key: instance::<T>("dia", "dia"),
            nrows: pattern.nrows() as u32,
            ncols: pattern.ncols() as u32,
            ndiags: pattern.diag_offsets().len() as u32,
            diag_offsets: executor.upload(pattern.diag_offsets())?,
            values: executor.upload(values)?,
        })
    }

    pub(super) fn keys(&self) -> Vec<KernelKey> {
        vec![self.key.clone()]
    }

    pub(super) fn multiply(&self, product: Product<'_, E, T>) -> Result<(), GpuError> {
        let Some(config) = linear(self.nrows.into(), BLOCK_THREADS) else {
            return Ok(());
        };
        let mut args = Args::new();
        args.scalar(self.nrows).scalar(self.ncols).scalar(self.ndiags).input(&self.diag_offsets);
        args.input(&self.values).scalar(product.alpha).input(product.x).scalar(product.beta);
        args.output(product.y);
        // SAFETY: 1. the parameters of dia. 2. The arrays are those of a validated DIA pattern, the
        // vectors fit it, and there is a thread per row. 3. The arrays were uploaded by the
        // executor of the plan and `args` borrows them. 4. Only y is written, and it overlaps
        // nothing else.
        unsafe { product.executor.launch(&self.key, config, &mut args) }
    }
}

/// A matrix in SELL-P.
pub(super) struct DeviceSellP<E: Executor, T: Value> {
    key: KernelKey,
    nrows: u32,
    config: Option<LaunchConfig>,
    slice_ptr: E::Buffer<i32>,
    row_perm: E::Buffer<i32>,
    col_idx: E::Buffer<i32>,
    pub(super) values: E::Buffer<T>,
}

impl<E: Executor, T: Value> DeviceSellP<E, T> {
    pub(super) fn upload(
        executor: &E,
        pattern: &SellPPattern,
        values: &[T],
    ) -> Result<Self, GpuError> {
        assert_eq!(values.len(), pattern.stored_len());
        let block = [pattern.slice_size() as u32, pattern.threads_per_row() as u32, 1];
        let shared_bytes = block[0] * block[1] * size_of::<T>() as u32;
        let grid = [pattern.nslices() as u32, 1, 1];
        Ok(Self {
            key: instance::<T>("sellp", "sellp"),
            nrows: pattern.nrows() as u32,
            config: (grid[0] > 0).then_some(LaunchConfig { grid, block, shared_bytes }),
            slice_ptr: executor.upload(pattern.slice_ptr())?,
            row_perm: executor.upload(pattern.row_perm())?,
            col_idx: executor.upload(pattern.col_idx())?,
            values: executor.upload(values)?,
        })
    }

    pub(super) fn keys(&self) -> Vec<KernelKey> {
        vec![self.key.clone()]
    }

    pub(super) fn multiply(&self, product: Product<'_, E, T>) -> Result<(), GpuError> {
        let Some(config) = self.config else {
            return Ok(());
        };
        let mut args = Args::new();
        args.scalar(self.nrows).input(&self.slice_ptr).input(&self.row_perm).input(&self.col_idx);
        args.input(&self.values).scalar(product.alpha).input(product.x).scalar(product.beta);
        args.output(product.y);
        // SAFETY: 1. the parameters of sellp. 2. The arrays are those of a validated SELL-P
        // pattern, the vectors fit it, and the launch has a block per slice, a thread per row and
        // slot and a value of shared memory per thread. 3. The arrays were uploaded by the executor
        // of the plan and `args` borrows them. 4. Only y is written, and it overlaps nothing else.
        unsafe { product.executor.launch(&self.key, config, &mut args) }
    }
}
