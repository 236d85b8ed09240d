//! CUDA backend of sparsebatch.
//!
//! | module | holds |
//! | --- | --- |
//! | [`device`] | the GPU: availability, compiler, cache of compiled kernels, memory, streams, timing, graphs |
//! | [`executor`] | the seam between host plans and kernels: an [`Executor`] runs kernels on a [`Device`] or in an emulation |
//! | [`flexible`] | products of a whole batch in one launch, systems of any sizes and patterns |
//! | [`kernels`] | the CUDA sources, embedded |
//! | [`packed`] | [`PackedPlan`]: products of whole batches, the default |
//! | [`single`] | products with one matrix: a plan for each format and kernel |
//!
//! Kernels are compiled at run time by NVRTC for the GPU at hand and kept on disk. The crate builds
//! and its functions return typed errors on machines with neither driver nor CUDA.
//!
//! Limitations: NVIDIA GPUs; a driver for CUDA 12.8 or newer; one GPU per [`Device`].
#![deny(unsafe_code)]

mod csr_arrays;
pub mod device;
mod error;
pub mod executor;
pub mod flexible;
pub mod kernels;
pub mod packed;
pub mod single;
#[doc(hidden)]
pub mod testing;
mod value;

pub use csr_arrays::{CsrArrays, CsrSize};
pub use device::{Device, DeviceBuffer, DeviceInfo, PinnedBuffer};
pub use error::{CudaVersion, GpuError};
pub use executor::{
    Args, Executor, KernelBuffer, KernelKey, KernelScalar, LaunchConfig, PinnedValues, Pod, Source,
};
pub use flexible::{FlexibleKernel, FlexibleOptions, FlexiblePlan};
pub use packed::{PackedExplain, PackedKernel, PackedOptions, PackedPlan};
pub use single::{
    AdaptiveRows, BalancedRows, SingleExplain, SingleKernel, SingleOptions, SinglePlan,
};
pub use value::Value;
