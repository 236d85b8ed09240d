//! CSR-Adaptive.
#![expect(unsafe_code, reason = "launches kernels")]

use super::super::kernels;
use super::{DeviceCsr, Product};
use crate::single::adaptive::{AdaptiveRows, shape};
use sparsebatch_cuda::{Args, Executor, GpuError, KernelKey, LaunchConfig, Value};

/// The blocks of rows, and the partial sums and counters with which blocks that share a row meet.
pub(in crate::single) struct AdaptiveKernel<E: Executor, T: Value> {
    key: KernelKey,
    config: Option<LaunchConfig>,
    blocks: E::Buffer<u64>,
    partials: E::Buffer<T>,
    counters: E::Buffer<u32>,
}

/// Length of `values` values with the gaps that `padded` of the kernel inserts.
fn padded(values: u32, bytes: u32) -> u32 {
    values + values / (128 / bytes)
}

impl<E: Executor, T: Value> AdaptiveKernel<E, T> {
    /// `rows` has been checked against the pattern that the kernel will be used with.
    pub(in crate::single) fn upload(executor: &E, rows: &AdaptiveRows) -> Result<Self, GpuError> {
        let (threads, steps) = shape(rows.block_entries());
        let bytes = size_of::<T>() as u32;
        // A block per row at most, or one per 64 entries of a row.
        let nblocks = u32::try_from(rows.nblocks()).expect("rows and entries fit i32");
        let config = LaunchConfig {
            shared_bytes: padded(threads * steps, bytes) * bytes,
            ..LaunchConfig::linear(nblocks, threads)
        };
        Ok(Self {
            key: KernelKey::new(
                &kernels::CSR_ADAPTIVE,
                format!("csr_adaptive<{}, {steps}>", T::CPP),
            ),
            config: (nblocks > 0).then_some(config),
            blocks: executor.upload(&rows.words())?,
            partials: executor.alloc(rows.nblocks())?,
            counters: executor.alloc_zeroed(rows.nblocks())?,
        })
    }

    pub(in crate::single) fn keys(&self) -> Vec<KernelKey> {
        vec![self.key.clone()]
    }

    pub(in crate::single) fn multiply(
        &mut self,
        a: &DeviceCsr<E, T>,
        product: Product<'_, E, T>,
    ) -> Result<(), GpuError> {
        let Some(mut config) = self.config else {
            return Ok(());
        };
        config.overlaps = product.overlaps;
        let Product { executor, alpha, x, beta, y, .. } = product;
        let mut args = Args::new();
        args.input(&self.blocks).input(&a.row_ptr).input(&a.col_idx).input(&a.values);
        args.scalar(alpha).input(x).scalar(beta).output(y);
        args.output(&mut self.partials).output(&mut self.counters);
        // SAFETY: 1. The arguments are the parameters of `csr_adaptive`. 2. The arrays are those of
        // a validated CSR pattern, for which the blocks were checked; the vectors fit it; partials
        // and counters have one value per block, and there is at least one block; the block size
        // and the shared memory are those of the number of entries. Counters were 0 at first and
        // each launch leaves them so; launches of this plan follow one another on its stream. 3.
        // All were made by the executor of the plan and `args` borrows them. 4. y, partials and
        // counters do not overlap. 5. The kernel waits for the launch ahead.
        unsafe { executor.launch(&self.key, config, &mut args) }
    }
}
