//! Index arrays in the memory of an executor.

use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer};

/// Indices of 16 bits if the indices of all problems fit, else of 32 bits.
pub(super) enum Indices<E: Executor> {
    U16(E::Buffer<u16>),
    U32(E::Buffer<u32>),
    /// Arrays that the caller supplied. No index is negative, so kernels may read them as unsigned.
    I32(E::Buffer<i32>),
}

impl<E: Executor> Indices<E> {
    pub(super) fn upload(executor: &E, indices: &[u32], compact: bool) -> Result<Self, GpuError> {
        if compact {
            let short: Vec<u16> = indices.iter().map(|&index| index as u16).collect();
            executor.upload(&short).map(Self::U16)
        } else {
            executor.upload(indices).map(Self::U32)
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::U16(buffer) => 2 * buffer.len() as u64,
            Self::U32(buffer) => 4 * buffer.len() as u64,
            Self::I32(buffer) => 4 * buffer.len() as u64,
        }
    }

    pub(super) fn add_to<'a>(&'a self, args: &mut Args<'a>) {
        match self {
            Self::U16(buffer) => args.input(buffer),
            Self::U32(buffer) => args.input(buffer),
            Self::I32(buffer) => args.input(buffer),
        };
    }
}
