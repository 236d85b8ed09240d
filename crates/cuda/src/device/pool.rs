//! Memory of the driver that stays with the process: [`DevicePool`].

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys;

use super::memory::allocated;
use super::stream::stream_records;
use super::{Device, DeviceAllocator};
use crate::GpuError;
use crate::device::driver::{bind, check};

/// Memory of a GPU from a pool of the driver (`cuMemAllocFromPoolAsync`), for
/// [`Device::with_allocator`]: buffers that are given back are taken again without a call of the
/// operating system. It pays where solvers and plans are made again and again, above all large
/// ones.
///
/// Measured on an NVIDIA H200 (driver 580): 16 buffers of 1 MiB take 0.85 ms to allocate and free
/// by `cuMemAlloc`, 0.05 ms from a pool; of 512 MiB 7.1 and 0.07 ms. The first buffer of a pool
/// takes 10 ms. A device does not use a pool by itself, since such memory cannot be shared between
/// processes by CUDA's older handles, as some libraries of MPI do, and since a free has to know the
/// streams that use it.
///
/// A pool serves devices of the GPU that it was made for, in one process. Other GPUs do not read
/// its memory directly: copies between GPUs go by way of the host.
///
/// # Examples
/// ```no_run
/// use sparsebatch_cuda::Device;
/// use sparsebatch_cuda::device::DevicePool;
///
/// let device = Device::new(0)?;
/// let pool = DevicePool::new(&device, 1 << 30)?;
/// // SAFETY: all work with its buffers is issued to the stream of this device.
/// let device = unsafe { device.with_allocator(pool) };
/// # let _ = device;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DevicePool {
    pool: sys::CUmemoryPool,
    context: Arc<CudaContext>,
}

// SAFETY: the handle may be used from any thread to which the context is bound, which every use
// does first; the driver synchronises access to it.
unsafe impl Send for DevicePool {}
// SAFETY: as for `Send`.
unsafe impl Sync for DevicePool {}

impl DevicePool {
    /// A pool of the GPU of `device`, which keeps up to `keep` free bytes whenever work is waited
    /// for.
    ///
    /// # Errors
    /// [`GpuError::Driver`] where the driver makes no pools.
    pub fn new(device: &Device, keep: u64) -> Result<Arc<Self>, GpuError> {
        let context = Arc::clone(&device.shared.context);
        bind(&context)?;
        // SAFETY: numbers, null pointers and enums that have a variant 0.
        let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = context.ordinal() as i32;
        let mut pool = std::ptr::null_mut();
        // SAFETY: (1) the context is current; (2) the pointers are to a handle and to properties.
        check("cuMemPoolCreate", unsafe { sys::cuMemPoolCreate(&mut pool, &properties) })?;
        let this = Self { pool, context };
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let mut keep = keep;
        // SAFETY: (1) the pool is alive; (2) the attribute is an integer of 64 bits.
        let result = unsafe {
            sys::cuMemPoolSetAttribute(this.pool, attribute, (&raw mut keep).cast::<c_void>())
        };
        check("cuMemPoolSetAttribute", result)?;
        Ok(Arc::new(this))
    }

    /// The bytes that the pool holds of the GPU, in buffers or kept.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn held_bytes(&self) -> Result<u64, GpuError> {
        self.attribute(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    }

    /// A number of bytes.
    fn attribute(&self, attribute: sys::CUmemPool_attribute) -> Result<u64, GpuError> {
        bind(&self.context)?;
        let mut held = 0u64;
        // SAFETY: as in `new`.
        let result = unsafe {
            sys::cuMemPoolGetAttribute(self.pool, attribute, (&raw mut held).cast::<c_void>())
        };
        check("cuMemPoolGetAttribute", result)?;
        Ok(held)
    }
}

// SAFETY: the driver aligns memory of pools to 512 bytes, and gives it to nobody else until it is
// freed; work that is issued to the stream after the call may use it.
unsafe impl DeviceAllocator for DevicePool {
    fn allocate(&self, bytes: usize, stream: *mut c_void) -> Result<u64, GpuError> {
        bind(&self.context)?;
        // In a recording the allocation would become a part of the graph.
        if stream_records(stream.cast())? {
            let result = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            check("cuMemAllocFromPoolAsync", result)?;
        }
        let mut address = 0;
        // SAFETY: (1) the context is current; (2) the pointer is to one address; (3) pool and
        // stream are alive.
        let result =
            unsafe { sys::cuMemAllocFromPoolAsync(&mut address, bytes, self.pool, stream.cast()) };
        allocated("cuMemAllocFromPoolAsync", result)?;
        Ok(address)
    }

    fn kept_bytes(&self) -> u64 {
        let used = self.attribute(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
        match (self.held_bytes(), used) {
            (Ok(held), Ok(used)) => held.saturating_sub(used),
            _ => 0,
        }
    }

    unsafe fn free(&self, address: u64, _: usize, stream: *mut c_void) {
        if bind(&self.context).is_ok() {
            // SAFETY: the caller gives back memory of `allocate`, once; the stream is alive.
            unsafe { sys::cuMemFreeAsync(address, stream.cast()) };
        }
    }
}

impl fmt::Debug for DevicePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevicePool").field("held_bytes", &self.held_bytes().ok()).finish()
    }
}

impl Drop for DevicePool {
    fn drop(&mut self) {
        if bind(&self.context).is_ok() {
            // SAFETY: the pool was made by `new` and is destroyed only here; buffers keep it alive.
            unsafe { sys::cuMemPoolDestroy(self.pool) };
        }
    }
}
