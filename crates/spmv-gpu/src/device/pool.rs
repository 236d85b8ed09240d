//! Device memory, kept for the next who asks.
//!
//! The driver takes about a millisecond for each gigabyte that it maps. A pool of the driver's keeps
//! what buffers give back. Allocating and freeing wait, so that memory may be used on any stream.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUdeviceptr, CUmemPool_attribute, CUmemoryPool, CUresult};

use super::driver::{bind, check};
use super::stream::Stream;
use crate::GpuError;

/// Memory of a GPU that is given out in parts.
pub(super) struct Pool {
    raw: CUmemoryPool,
    /// Where allocations are ordered. Nothing else is.
    stream: Stream,
    context: Arc<CudaContext>,
}

// SAFETY: the driver synchronises access to pools.
unsafe impl Send for Pool {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pool {}

impl Pool {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, GpuError> {
        let stream = Stream::new(context)?;
        let mut properties = sys::CUmemPoolProps {
            allocType: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            // SAFETY: null pointers and zeros are values of the other fields.
            ..unsafe { std::mem::zeroed() }
        };
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = context.cu_device();
        let mut raw = std::ptr::null_mut();
        // SAFETY: (1) `Stream::new` has made the context current; (2) the pointers are to one handle
        // and to properties.
        check("cuMemPoolCreate", unsafe { sys::cuMemPoolCreate(&mut raw, &properties) })?;
        let pool = Self { raw, stream, context: Arc::clone(context) };
        let mut keep = u64::MAX;
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: (1) the pool is alive; (2) this attribute is one number of 64 bits.
        let result = unsafe { sys::cuMemPoolSetAttribute(raw, attribute, (&raw mut keep).cast()) };
        check("cuMemPoolSetAttribute", result)?;
        Ok(pool)
    }

    /// Allocates some bytes, above 0. `None` when there are not as many.
    pub(super) fn allocate(&self, bytes: usize) -> Result<Option<CUdeviceptr>, GpuError> {
        bind(&self.context)?;
        // What is kept in parts that are too small goes back to the driver before it gives up.
        for trim in [false, true] {
            if trim {
                self.trim()?;
            }
            let mut address = 0;
            // SAFETY: (1) the context is current, pool and stream are alive; (2) the pointer is to
            // one address.
            let result = unsafe {
                sys::cuMemAllocFromPoolAsync(&mut address, bytes, self.raw, self.stream.raw())
            };
            if result != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                check("cuMemAllocFromPoolAsync", result)?;
                self.stream.wait()?;
                return Ok(Some(address));
            }
        }
        Ok(None)
    }

    /// Takes memory back when all work of the context is done. Where that cannot be waited for, as
    /// when the context is lost, it is not given to anyone else.
    pub(super) fn free(&self, address: CUdeviceptr) {
        if bind(&self.context).is_ok() && self.context.synchronize().is_ok() {
            // SAFETY: (1) the context is current, the stream is alive; (2) the address is of
            // `allocate` and freed only once, by the one buffer that owned it; (3) no work uses it.
            unsafe { sys::cuMemFreeAsync(address, self.stream.raw()) };
        }
    }

    /// Bytes that are kept and not in use.
    pub(super) fn unused(&self) -> Result<u64, GpuError> {
        bind(&self.context)?;
        let number = |attribute| {
            let mut number = 0_u64;
            // SAFETY: (1) the pool is alive; (2) these attributes are one number of 64 bits.
            let result = unsafe {
                sys::cuMemPoolGetAttribute(self.raw, attribute, (&raw mut number).cast())
            };
            check("cuMemPoolGetAttribute", result).map(|()| number)
        };
        let reserved = number(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let used = number(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        Ok(reserved.saturating_sub(used))
    }

    /// Gives what is not in use back to the driver.
    pub(super) fn trim(&self) -> Result<(), GpuError> {
        bind(&self.context)?;
        // SAFETY: (1) the context is current; (2) the pool is alive.
        check("cuMemPoolTrimTo", unsafe { sys::cuMemPoolTrimTo(self.raw, 0) })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if bind(&self.context).is_ok() {
            // SAFETY: the pool was made by `Pool::new` and is destroyed only here; buffers keep it
            // alive, so nothing of it is in use.
            unsafe { sys::cuMemPoolDestroy(self.raw) };
        }
    }
}
