//! Properties and limits of a GPU.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUdevice_attribute as Attribute;

use super::driver::checked;
use crate::{CudaVersion, GpuError};

/// The name and the limits of a GPU. An emulation fills in the values that plans should see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name, such as `NVIDIA H200`.
    pub name: String,
    /// Index among the GPUs that the driver shows.
    pub ordinal: usize,
    /// Compute capability, major and minor, such as (9, 0).
    pub compute_capability: (u32, u32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Maximum number of threads of a block.
    pub max_threads_per_block: u32,
    /// Maximum number of resident threads of a multiprocessor.
    pub max_threads_per_multiprocessor: u32,
    /// Maximum shared memory of a block after opting in, in bytes.
    pub shared_bytes_per_block: u32,
    /// Shared memory of a multiprocessor, in bytes.
    pub shared_bytes_per_multiprocessor: u32,
    /// Second-level cache, in bytes.
    pub l2_bytes: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Highest clock of the multiprocessors, in kHz.
    pub clock_khz: u32,
    /// The newest CUDA that the driver supports.
    pub driver_version: CudaVersion,
}

impl DeviceInfo {
    /// The architecture that kernels are compiled for, such as `sm_90`.
    pub fn architecture(&self) -> String {
        let (major, minor) = self.compute_capability;
        format!("sm_{major}{minor}")
    }

    /// The most blocks of a cluster: 8, which every GPU with clusters supports, from compute
    /// capability 9.0 on, or 1.
    pub fn most_blocks_of_cluster(&self) -> u32 {
        if self.compute_capability >= (9, 0) { 8 } else { 1 }
    }

    /// Queries the driver for the GPU of a context.
    pub(super) fn of(context: &CudaContext, driver_version: CudaVersion) -> Result<Self, GpuError> {
        let number = |attribute| {
            let value = checked("cuDeviceGetAttribute", context.attribute(attribute))?;
            Ok::<u32, GpuError>(u32::try_from(value).unwrap_or(0))
        };
        Ok(Self {
            name: checked("cuDeviceGetName", context.name())?,
            ordinal: context.ordinal(),
            compute_capability: (
                number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            max_threads_per_block: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            max_threads_per_multiprocessor: number(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
            )?,
            shared_bytes_per_block: number(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            shared_bytes_per_multiprocessor: number(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            )?,
            l2_bytes: number(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
            memory_bytes: checked("cuDeviceTotalMem", context.total_mem())? as u64,
            clock_khz: number(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            driver_version,
        })
    }
}
