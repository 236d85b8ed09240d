//! Where the memory of a device comes from: the driver, or an [allocator of the
//! caller](DeviceAllocator).

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUdeviceptr, CUresult};

use super::Device;
use super::driver::{bind, check};
use super::stream::Stream;
use crate::GpuError;

/// Where a [`Device`] takes its memory from: the memory of another library, such as the caching
/// allocators of PyTorch and CuPy or a resource of RMM. See [`Device::with_allocator`].
///
/// # Safety
/// An implementation keeps what its functions promise.
pub unsafe trait DeviceAllocator: Send + Sync {
    /// Allocates `bytes` bytes, at least 1, and returns their address: aligned to 256 bytes, for
    /// kernels on this GPU to read and write, and nobody else's until they are given back. Work
    /// that is issued to `stream` (a `CUstream`) after the call may use them.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`] when there are not as many.
    fn allocate(&self, bytes: usize, stream: *mut c_void) -> Result<u64, GpuError>;

    /// Bytes that the allocator holds and nobody uses, which the driver does not count as free.
    fn kept_bytes(&self) -> u64 {
        0
    }

    /// Takes back memory of [`allocate`](DeviceAllocator::allocate), with the bytes and the stream
    /// of that call. All work on that stream is done.
    ///
    /// # Safety
    /// The memory was allocated by this allocator and is given back once.
    unsafe fn free(&self, address: u64, bytes: usize, stream: *mut c_void);
}

/// What memory was allocated by, and what frees it.
#[derive(Clone)]
pub(super) enum MemorySource {
    /// `cuMemAlloc`.
    Driver,
    Caller(Arc<dyn DeviceAllocator>),
}

impl MemorySource {
    /// Bytes that can be allocated beside those that the driver says are free.
    pub(super) fn kept_bytes(&self) -> u64 {
        match self {
            Self::Driver => 0,
            Self::Caller(allocator) => allocator.kept_bytes(),
        }
    }
}

/// Memory of a device, given back on drop. Keeps the context alive.
pub(super) struct Allocation {
    pub(super) address: CUdeviceptr,
    bytes: usize,
    source: MemorySource,
    stream: Arc<Stream>,
    context: Arc<CudaContext>,
}

impl Allocation {
    /// Allocates `bytes` bytes, more than 0.
    pub(super) fn new(device: &Device, bytes: u128) -> Result<Self, GpuError> {
        let context = Arc::clone(&device.shared.context);
        bind(&context)?;
        // This also rejects sizes that would overflow inside the driver.
        let total = u128::from(device.shared.info.memory_bytes);
        let Some(size) = usize::try_from(bytes).ok().filter(|_| bytes <= total) else {
            let needed = u64::try_from(bytes).unwrap_or(u64::MAX);
            return Err(GpuError::OutOfMemory { needed, free: device.memory()?.free_bytes });
        };
        let (source, stream) = (device.memory.clone(), Arc::clone(&device.stream));
        let allocated = match &source {
            MemorySource::Driver => allocate_by_driver(size),
            MemorySource::Caller(allocator) => allocator.allocate(size, stream.raw().cast()),
        };
        let address = match allocated {
            Err(GpuError::OutOfMemory { .. }) => {
                let free = device.memory()?.free_bytes;
                return Err(GpuError::OutOfMemory { needed: size as u64, free });
            }
            allocated => allocated?,
        };
        Ok(Self { address, bytes: size, source, stream, context })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // A lost context has freed its memory already.
        if bind(&self.context).is_err() {
            return;
        }
        match &self.source {
            // SAFETY: (1) the address is of `cuMemAlloc` and freed only here; (2) the call waits
            // for work that may still use the memory.
            MemorySource::Driver => unsafe {
                sys::cuMemFree_v2(self.address);
            },
            // Where the wait fails (the stream is recording, or the context is lost) the memory is
            // not given to anybody. A wait for all streams of the context would end the recordings
            // of other threads.
            MemorySource::Caller(allocator) => {
                let is_recording = self.stream.records().unwrap_or(true);
                if !is_recording && self.stream.wait().is_ok() {
                    // SAFETY: the memory is the allocator's and freed only here; work on the stream
                    // is done, and other work by the contract of `Device::with_allocator`.
                    unsafe {
                        allocator.free(self.address, self.bytes, self.stream.raw().cast());
                    }
                }
            }
        }
    }
}

fn allocate_by_driver(bytes: usize) -> Result<u64, GpuError> {
    let mut address = 0;
    // SAFETY: (1) the caller has bound the context; (2) the pointer is to one address.
    allocated("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, bytes) })?;
    Ok(address)
}

/// Passes the result of an allocation on; the number of free bytes is still to be found out.
pub(super) fn allocated(call: &'static str, result: CUresult) -> Result<(), GpuError> {
    match result {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(GpuError::OutOfMemory { needed: 0, free: 0 }),
        result => check(call, result),
    }
}
