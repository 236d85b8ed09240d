//! The inverse of the diagonal of values on the device: [`Diagonal`].

use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::{Batch, Pattern};

use super::kernels;
use super::work::Work;

/// Threads of a block, and the most blocks, as `diagonal.cu` wants them.
const THREADS: u32 = 256;
const MOST_BLOCKS: usize = 4096;

/// Stands for an entry that is not there.
const NO_ENTRY: u64 = u64::MAX;

/// Where the diagonals of a batch are among its values: item after item in the order of CSR.
pub(super) struct Diagonal<E: Executor> {
    key: KernelKey,
    /// One for each row of the batch, or of the pattern where all have the same.
    entries: E::Buffer<u64>,
    is_uniform: bool,
    /// Values from item to item; 0 where places count from the first one, or values are shared.
    stride: u64,
}

impl<E: Executor> Diagonal<E> {
    pub(super) fn new<T: Value>(executor: &E, batch: &Batch<T>) -> Result<Self, GpuError> {
        let key = KernelKey::new(&kernels::DIAGONAL, format!("invert_diagonal<{}>", T::CPP));
        executor.prepare(std::slice::from_ref(&key))?;
        let (patterns, stride) = match batch {
            Batch::Uniform(uniform) if uniform.is_shared() => (batch.nitems().min(1), 0),
            Batch::Uniform(uniform) => (batch.nitems().min(1), uniform.pattern().nnz()),
            Batch::Ragged(_) => (batch.nitems(), 0),
        };
        let (mut entries, mut first) = (Vec::new(), 0);
        for item in 0..patterns {
            let pattern = batch.pattern(item);
            let entry = |row| pattern.position(row, row).map_or(NO_ENTRY, |k| (first + k) as u64);
            entries.extend((0..pattern.nrows()).map(entry));
            first += pattern.nnz();
        }
        Ok(Self {
            key,
            entries: executor.upload(&entries)?,
            is_uniform: matches!(batch, Batch::Uniform(_)),
            stride: stride as u64,
        })
    }

    /// `inverse` becomes 1 over the diagonal of `values`, or 1 where that is 0, for all systems of `work`,
    /// `nrhs` an item; `flawed`, unless it is empty, 1 for each system that has such a row. Enqueues and
    /// returns.
    #[expect(unsafe_code, reason = "the one launch")]
    pub(super) fn invert<T: Value>(
        &self,
        executor: &E,
        (work, nrhs): (&Work<E>, usize),
        values: &E::Buffer<T>,
        inverse: &mut E::Buffer<T>,
        flawed: &mut E::Buffer<u8>,
    ) -> Result<(), GpuError> {
        if inverse.is_empty() {
            return Ok(());
        }
        executor.fill_zero(flawed)?;
        let blocks = inverse.len().div_ceil(THREADS as usize).min(MOST_BLOCKS);
        let mut args = Args::new();
        args.scalar(inverse.len() as u64)
            .scalar(work.firsts.len() as u64 - 1)
            .scalar(nrhs as u32)
            .scalar(u32::from(self.is_uniform))
            .input(&work.firsts)
            .input(&self.entries)
            .scalar(self.stride)
            .input(values)
            .output(inverse);
        if flawed.is_empty() {
            args.raw(0);
        } else {
            args.output(flawed);
        }
        let config = LaunchConfig::linear(blocks as u32, THREADS);
        // SAFETY: (1) the arguments are those of `invert_diagonal`; (2) `work` and `entries` were made of
        // one batch, whose rows, `nrhs` times, `inverse` has, and whose systems `flawed` has; the caller
        // gives values of that batch; (3) all are of this executor; (4) what is written is borrowed
        // exclusively.
        unsafe { executor.launch(&self.key, config, &mut args) }
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        8 * self.entries.len() as u64
    }
}
