//! Typed device memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;

use super::Device;
use super::memory::Allocation;
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
