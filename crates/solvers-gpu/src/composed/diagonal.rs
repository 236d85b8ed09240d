//! [`Diagonal`]: inverts the diagonals of values on the device.

use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value};

use super::kernels;
use super::matrices::Matrices;
use super::work::SystemBlocks;

/// Threads of a block, and the most blocks, as `diagonal.cu` expects.
const THREADS: u32 = 256;
const MOST_BLOCKS: usize = 4096;

/// Marks an absent diagonal entry.
const NO_ENTRY: u64 = u64::MAX;

/// Positions of the diagonal entries among the values of a batch, item after item in CSR order.
pub(super) struct Diagonal<E: Executor> {
    key: KernelKey,
    /// One for each row of the batch, or of the pattern if all items share it.
    entries: E::Buffer<u64>,
    is_uniform: bool,
    /// Number of values per item; 0 where positions are absolute, or values are shared.
    stride: u64,
}

impl<E: Executor> Diagonal<E> {
    pub(super) fn new<T: Value>(
        executor: &E,
        matrices: &Matrices<'_, T>,
    ) -> Result<Self, GpuError> {
        let key = KernelKey::new(&kernels::DIAGONAL, format!("invert_diagonal<{}>", T::CPP));
        executor.prepare(std::slice::from_ref(&key))?;
        let (mut entries, mut first) = (Vec::new(), 0);
        for item in matrices.stored() {
            let pattern = matrices.pattern(item);
            let entry = |row| pattern.position(row, row).map_or(NO_ENTRY, |k| (first + k) as u64);
            entries.extend((0..pattern.nrows()).map(entry));
            first += pattern.nnz();
        }
        let is_uniform = matrices.is_uniform();
        let has_stride = is_uniform && !matrices.shares_values();
        Ok(Self {
            key,
            entries: executor.upload(&entries)?,
            is_uniform,
            stride: if has_stride { first as u64 } else { 0 },
        })
    }

    /// Writes to `inverse`, for all systems of `work`, `nrhs` per item, the reciprocals of the
    /// diagonal of `values`, with 1 in place of a zero. Unless `flawed` is empty, sets it to 1 for
    /// each system with such a zero. Enqueues and returns.
    #[expect(unsafe_code, reason = "the one launch")]
    pub(super) fn invert<T: Value>(
        &self,
        executor: &E,
        (work, nrhs): (&SystemBlocks<E>, usize),
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
        // SAFETY: (1) the arguments are those of `invert_diagonal`; (2) `work` and `entries` were
        // made of one batch; `inverse` has its rows, `nrhs` times, and `flawed` its systems; the
        // caller gives values of that batch; (3) all buffers are of this executor; (4) what is
        // written is borrowed exclusively.
        unsafe { executor.launch(&self.key, config, &mut args) }
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        8 * self.entries.len() as u64
    }
}
