//! The formats with padding: ELL, DIA, SELL and SELL-P.
#![expect(unsafe_code, reason = "launches kernels")]

use sparsebatch_formats::{DiaPattern, EllPattern, Pattern, SellPPattern};

use super::super::kernels;
use super::sell_kernel::SellKernel;
use super::{BLOCK_THREADS, Product, ROW_BLOCK_THREADS, WARP_THREADS, instance, spread};
use sparsebatch_cuda::{Args, Executor, GpuError, KernelKey, LaunchConfig, Value};

/// A matrix in ELL.
pub(in crate::single) struct DeviceEll<E: Executor, T: Value> {
    key: KernelKey,
    nrows: u32,
    width: u32,
    col_idx: E::Buffer<i32>,
    pub(in crate::single) values: E::Buffer<T>,
}

impl<E: Executor, T: Value> DeviceEll<E, T> {
    pub(in crate::single) fn upload(
        executor: &E,
        pattern: &EllPattern,
        values: &[T],
    ) -> Result<Self, GpuError> {
        assert_eq!(values.len(), pattern.stored_len());
        Ok(Self {
            key: instance::<T>(&kernels::ELL, "ell"),
            nrows: pattern.nrows() as u32,
            // The width of a matrix without rows may be anything.
            width: if pattern.nrows() == 0 { 0 } else { pattern.width() as u32 },
            col_idx: executor.upload(pattern.col_idx())?,
            values: executor.upload(values)?,
        })
    }

    pub(in crate::single) fn keys(&self) -> Vec<KernelKey> {
        vec![self.key.clone()]
    }

    pub(in crate::single) fn multiply(&self, product: Product<'_, E, T>) -> Result<(), GpuError> {
        let Some(mut config) = spread(product.executor, self.nrows.into(), ROW_BLOCK_THREADS)
        else {
            return Ok(());
        };
        config.overlaps = product.overlaps;
        let mut args = Args::new();
        args.scalar(self.nrows).scalar(self.width).input(&self.col_idx).input(&self.values);
        args.scalar(product.alpha).input(product.x).scalar(product.beta).output(product.y);
        // SAFETY: 1. The arguments are the parameters of `ell`. 2. The arrays are those of a
        // validated ELL pattern, the vectors fit it, and there is a thread per row. 3. The arrays
        // were uploaded by the executor of the plan and `args` borrows them. 4. Only y is written,
        // and it overlaps nothing else. 5. The kernel waits for the launch ahead.
        unsafe { product.executor.launch(&self.key, config, &mut args) }
    }
}

/// The most diagonals that a thread of `dia` loads at once.
pub(in crate::single) const DIA_ROUND: usize = 9;

/// Diagonals per round: as few rounds as [`DIA_ROUND`] allows, with few unused places.
fn dia_unroll(ndiags: usize) -> usize {
    let rounds = ndiags.div_ceil(DIA_ROUND).max(1);
    let [few @ .., most] = [3, 5, 7, DIA_ROUND];
    few.into_iter().find(|&unroll| unroll * rounds >= ndiags).unwrap_or(most)
}

/// A matrix in DIA.
pub(in crate::single) struct DeviceDia<E: Executor, T: Value> {
    key: KernelKey,
    nrows: u32,
    ncols: u32,
    ndiags: u32,
    diag_offsets: E::Buffer<i32>,
    pub(in crate::single) values: E::Buffer<T>,
}

impl<E: Executor, T: Value> DeviceDia<E, T> {
    pub(in crate::single) fn upload(
        executor: &E,
        pattern: &DiaPattern,
        values: &[T],
    ) -> Result<Self, GpuError> {
        assert_eq!(values.len(), pattern.stored_len());
        let ndiags = pattern.diag_offsets().len();
        Ok(Self {
            key: KernelKey::new(&kernels::DIA, format!("dia<{}, {}>", T::CPP, dia_unroll(ndiags))),
            nrows: pattern.nrows() as u32,
            ncols: pattern.ncols() as u32,
            ndiags: ndiags as u32,
            diag_offsets: executor.upload(pattern.diag_offsets())?,
            values: executor.upload(values)?,
        })
    }

    pub(in crate::single) fn keys(&self) -> Vec<KernelKey> {
        vec![self.key.clone()]
    }

    pub(in crate::single) fn multiply(&self, product: Product<'_, E, T>) -> Result<(), GpuError> {
        let Some(mut config) = spread(product.executor, self.nrows.into(), BLOCK_THREADS) else {
            return Ok(());
        };
        config.overlaps = product.overlaps;
        let mut args = Args::new();
        args.scalar(self.nrows).scalar(self.ncols).scalar(self.ndiags).input(&self.diag_offsets);
        args.input(&self.values).scalar(product.alpha).input(product.x).scalar(product.beta);
        args.output(product.y);
        // SAFETY: 1. The arguments are the parameters of `dia`. 2. The arrays are those of a
        // validated DIA pattern, the vectors fit it, and there is a thread per row. 3. The arrays
        // were uploaded by the executor of the plan and `args` borrows them. 4. Only y is written,
        // and it overlaps nothing else. 5. The kernel waits for the launch ahead.
        unsafe { product.executor.launch(&self.key, config, &mut args) }
    }
}

/// A matrix in SELL or SELL-P, with the kernel for its slices.
pub(in crate::single) struct DeviceSell<E: Executor, T: Value> {
    key: KernelKey,
    nrows: u32,
    config: Option<LaunchConfig>,
    slice_ptr: E::Buffer<i32>,
    /// `None` with `sell` if rows are in order.
    row_perm: Option<E::Buffer<i32>>,
    col_idx: E::Buffer<i32>,
    pub(in crate::single) values: E::Buffer<T>,
}

impl<E: Executor, T: Value> DeviceSell<E, T> {
    /// For `sell`: `pattern` has slices of as many rows as a warp has lanes, and one thread per
    /// row.
    pub(in crate::single) fn sell(
        executor: &E,
        pattern: &SellPPattern,
        values: &[T],
    ) -> Result<Self, GpuError> {
        assert_eq!((pattern.slice_size(), pattern.threads_per_row()), (WARP_THREADS as usize, 1));
        let in_order = pattern.row_perm().iter().enumerate().all(|(k, &row)| k == row as usize);
        let row_perm = (!in_order).then(|| executor.upload(pattern.row_perm())).transpose()?;
        let info = executor.info();
        let kernel = SellKernel::of::<T>(info, pattern);
        let launch = (kernel.key::<T>(), kernel.config(info, pattern.nrows()));
        Self::upload(executor, pattern, values, launch, row_perm)
    }

    /// For `sellp`: a block per slice.
    pub(in crate::single) fn sellp(
        executor: &E,
        pattern: &SellPPattern,
        values: &[T],
    ) -> Result<Self, GpuError> {
        let block = [pattern.slice_size() as u32, pattern.threads_per_row() as u32, 1];
        let shared_bytes = block[0] * block[1] * size_of::<T>() as u32;
        let nslices = pattern.nslices() as u32;
        let linear = LaunchConfig::linear(nslices, 1);
        let config = (nslices > 0).then_some(LaunchConfig { block, shared_bytes, ..linear });
        let row_perm = Some(executor.upload(pattern.row_perm())?);
        Self::upload(
            executor,
            pattern,
            values,
            (instance::<T>(&kernels::SELLP, "sellp"), config),
            row_perm,
        )
    }

    fn upload(
        executor: &E,
        pattern: &SellPPattern,
        values: &[T],
        (key, config): (KernelKey, Option<LaunchConfig>),
        row_perm: Option<E::Buffer<i32>>,
    ) -> Result<Self, GpuError> {
        assert_eq!(values.len(), pattern.stored_len());
        Ok(Self {
            key,
            nrows: pattern.nrows() as u32,
            config,
            slice_ptr: executor.upload(pattern.slice_ptr())?,
            row_perm,
            col_idx: executor.upload(pattern.col_idx())?,
            values: executor.upload(values)?,
        })
    }

    pub(in crate::single) fn keys(&self) -> Vec<KernelKey> {
        vec![self.key.clone()]
    }

    pub(in crate::single) fn multiply(&self, product: Product<'_, E, T>) -> Result<(), GpuError> {
        let Some(mut config) = self.config else {
            return Ok(());
        };
        config.overlaps = product.overlaps;
        let mut args = Args::new();
        args.scalar(self.nrows).input(&self.slice_ptr);
        match &self.row_perm {
            Some(row_perm) => args.input(row_perm),
            None => args.raw(0),
        };
        args.input(&self.col_idx).input(&self.values).scalar(product.alpha).input(product.x);
        args.scalar(product.beta).output(product.y);
        // SAFETY: 1. The arguments are the parameters of the kernels of `sell.cu` and of `sellp`.
        // 2. The arrays are those of a validated SELL-P pattern and the vectors fit it. For sell it
        // has slices of 32 rows and one thread per row, and there is a thread per row in whole
        // warps; sellp always gets a permutation, and the launch has a block per slice, a thread
        // per row and slot and a value of shared memory per thread. 3. The arrays were uploaded by
        // the executor of the plan and `args` borrows them. 4. Only y is written, and it overlaps
        // nothing else. 5. All kernels wait for the launch ahead.
        unsafe { product.executor.launch(&self.key, config, &mut args) }
    }
}
