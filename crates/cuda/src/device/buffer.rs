//! Typed device memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUdeviceptr, CUresult};

use super::Device;
use super::driver::{bind, check};
use crate::{GpuError, KernelBuffer, Pod};

/// Values of type `T` in device memory.
///
/// A buffer owns its memory, shares it with the buffer it is a [range](DeviceBuffer::range) of, or
/// [refers to memory of another owner](DeviceBuffer::from_raw). Freeing memory waits for work that
/// may use it. Work on a buffer is ordered along the stream of the [`Device`] that issues it; use
/// on another stream needs [`Executor::synchronize`](crate::Executor::synchronize) in between.
pub struct DeviceBuffer<T: Pod> {
    address: CUdeviceptr,
    len: usize,
    memory: Option<Arc<Allocation>>,
    values: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Allocates `len` values without setting them.
    pub(super) fn new(device: &Device, len: usize) -> Result<Self, GpuError> {
        let memory = match len {
            // The driver refuses to allocate 0 bytes.
            0 => None,
            _ => Some(Arc::new(Allocation::new(device, len as u128 * size_of::<T>() as u128)?)),
        };
        let address = memory.as_ref().map_or(0, |memory| memory.address);
        Ok(Self { address, len, memory, values: PhantomData })
    }

    /// A buffer over memory with another owner, such as an array of another library.
    ///
    /// # Safety
    /// 1. `address` is a device address, aligned for `T`, with `len` values of `T` behind it, or
    ///    `len` is 0.
    /// 2. The memory can be reached by kernels of every [`Device`] that the buffer is used with.
    /// 3. It stays allocated until the buffer and its ranges are gone and the work that uses them
    ///    is done.
    /// 4. Other writes to it are ordered with the stream of the device.
    pub unsafe fn from_raw(address: u64, len: usize) -> Self {
        Self { address, len, memory: None, values: PhantomData }
    }

    /// A buffer over a range of the values. It shares the memory and keeps it alive.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when the range does not lie within the buffer.
    pub fn range(&self, range: Range<usize>) -> Result<Self, GpuError> {
        if range.start > range.end || range.end > self.len {
            return Err(GpuError::InvalidArgument {
                name: "range",
                expected: format!("a range within 0..{}", self.len),
                found: format!("{range:?}"),
            });
        }
        Ok(Self {
            address: self.address + (range.start * size_of::<T>()) as u64,
            len: range.len(),
            memory: self.memory.clone(),
            values: PhantomData,
        })
    }

    /// The address of the first value; 0 for a buffer that was allocated empty.
    pub fn raw(&self) -> u64 {
        self.address
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

impl<T: Pod> KernelBuffer<T> for DeviceBuffer<T> {
    fn raw(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl<T: Pod> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("type", &std::any::type_name::<T>())
            .field("address", &self.address)
            .field("len", &self.len)
            .finish()
    }
}

/// Memory allocated by the driver, freed on drop. Keeps the context alive.
struct Allocation {
    address: CUdeviceptr,
    context: Arc<CudaContext>,
}

impl Allocation {
    /// Allocates `bytes` bytes, more than 0.
    fn new(device: &Device, bytes: u128) -> Result<Self, GpuError> {
        let context = Arc::clone(&device.shared.context);
        bind(&context)?;
        let refused =
            |free| GpuError::OutOfMemory { needed: u64::try_from(bytes).unwrap_or(u64::MAX), free };
        // This also rejects sizes that would overflow inside the driver.
        let total = u128::from(device.shared.info.memory_bytes);
        let Some(size) = usize::try_from(bytes).ok().filter(|_| bytes <= total) else {
            return Err(refused(device.memory()?.free_bytes));
        };
        let mut address = 0;
        // SAFETY: (1) the context is current; (2) the pointer is to one address.
        let result = unsafe { sys::cuMemAlloc_v2(&mut address, size) };
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(refused(device.memory()?.free_bytes));
        }
        check("cuMemAlloc", result)?;
        Ok(Self { address, context })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // A lost context has freed its memory already.
        if bind(&self.context).is_ok() {
            // SAFETY: (1) the address is of `cuMemAlloc` and freed only here; (2) the call waits
            // for work that may still use the memory.
            unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}
