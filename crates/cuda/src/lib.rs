//! The CUDA runtime of sparsebatch: devices, kernels compiled at run time, memory, streams and
//! graphs. It contains no matrices and no solvers.
//!
//! | module | holds |
//! | --- | --- |
//! | [`device`] | the GPU: availability, compiler and its cache, memory, streams, timing, graphs |
//! | [`executor`] | an [`Executor`] runs the kernels of plans on a [`Device`] or in an emulation |
//! | [`module`] | [`Module`]: a CUDA source with its headers, and the common prelude |
//! | [`kernels`] | kernels over vectors: copies, and those by which bandwidth is measured |
//!
//! Kernels are compiled by NVRTC for the GPU at hand and cached on disk. On machines with neither
//! driver nor CUDA the crate builds, and its functions return typed errors.
//!
//! Limitations: NVIDIA GPUs; a driver for CUDA 12.8 or newer; one GPU per [`Device`].
#![deny(unsafe_code)]

pub mod device;
mod error;
pub mod executor;
pub mod kernels;
mod lending;
pub mod module;
#[doc(hidden)]
pub mod testing;
mod value;
mod vector;

pub use device::{
    Device, DeviceAllocator, DeviceBuffer, DeviceInfo, DeviceModel, PageLocked, PinnedBuffer,
};
pub use error::{CudaVersion, GpuError, check_len};
pub use executor::{
    Args, Executor, KernelBuffer, KernelKey, KernelScalar, LaunchConfig, MemoryMeter, PinnedValues,
    Pod, check_apart,
};
pub use lending::{Lender, lending};
pub use module::Module;
pub use value::Value;
pub use vector::{copy_values, prepare_copy};
