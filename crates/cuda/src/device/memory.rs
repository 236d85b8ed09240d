//! Where the memory of a device comes from: a pool of the driver, or an [allocator of the
//! caller](DeviceAllocator).

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    self, CUdevice_attribute, CUdeviceptr, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
    CUresult,
};

use super::Device;
use super::driver::{bind, check, checked};
use super::stream::Stream;
use crate::GpuError;

/// Unused bytes that the pool keeps for later allocations. Memory beyond goes back to the driver,
/// and so to other libraries.
const KEPT_BYTES: u64 = 64 << 20;

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

    /// Takes back memory of [`allocate`](DeviceAllocator::allocate), with the bytes and the stream of
    /// that call. No work uses it any more.
    ///
    /// # Safety
    /// The memory was allocated by this allocator and is given back once.
    unsafe fn free(&self, address: u64, bytes: usize, stream: *mut c_void);
}

/// What memory was allocated by, and what frees it.
#[derive(Clone)]
pub(super) enum MemorySource {
    /// `cuMemAlloc`, of devices without pools.
    Driver,
    Pool(Arc<Pool>),
    Caller(Arc<dyn DeviceAllocator>),
}

impl MemorySource {
    /// The pool of this process for the GPU, where that has pools.
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, GpuError> {
        let asked = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
        let has_pools = checked("cuDeviceGetAttribute", context.attribute(asked))? != 0;
        Ok(if has_pools { Self::Pool(Pool::shared(context)?) } else { Self::Driver })
    }

    /// Unused bytes that are kept for later allocations.
    pub(super) fn kept_bytes(&self) -> u64 {
        match self {
            Self::Pool(pool) => pool.unused_bytes(),
            Self::Driver | Self::Caller(_) => 0,
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
            MemorySource::Pool(pool) => pool.allocate(size),
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
        if let MemorySource::Driver = self.source {
            // SAFETY: (1) the address is of `cuMemAlloc` and freed only here; (2) the call waits
            // for work that may still use the memory.
            unsafe { sys::cuMemFree_v2(self.address) };
            return;
        }
        // Streams that this crate does not know may use the memory, too. Where the wait fails (a
        // stream is recording, or the context is lost) the memory is not given to anybody.
        if self.context.synchronize().is_err() {
            return;
        }
        match &self.source {
            MemorySource::Driver => {}
            // SAFETY: the memory is the pool's and freed only here; all work is done.
            MemorySource::Pool(pool) => unsafe { pool.free(self.address) },
            // SAFETY: as for the pool.
            MemorySource::Caller(allocator) => unsafe {
                allocator.free(self.address, self.bytes, self.stream.raw().cast());
            },
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
fn allocated(call: &'static str, result: CUresult) -> Result<(), GpuError> {
    match result {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(GpuError::OutOfMemory { needed: 0, free: 0 }),
        result => check(call, result),
    }
}

/// A memory pool of the driver. It keeps up to [`KEPT_BYTES`] that are not used, so that memory
/// that comes and goes does not take a call of the operating system each time.
pub(super) struct Pool {
    raw: CUmemoryPool,
    // Allocations are ordered along this stream, which nothing else uses. Declared before the
    // context, since fields are dropped in order.
    stream: Mutex<Stream>,
    context: Arc<CudaContext>,
}

// SAFETY: the handle may be used from any thread to which the context is bound, which every use
// does first; the driver synchronises access to it.
unsafe impl Send for Pool {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pool {}

/// The pools in use, with the index of their GPU.
static POOLS: Mutex<Vec<(usize, Weak<Pool>)>> = Mutex::new(Vec::new());

impl Pool {
    /// The pool of a GPU that all its devices share.
    fn shared(context: &Arc<CudaContext>) -> Result<Arc<Self>, GpuError> {
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|(_, pool)| pool.strong_count() > 0);
        let own = pools.iter().find(|(ordinal, _)| *ordinal == context.ordinal());
        if let Some(pool) = own.and_then(|(_, pool)| pool.upgrade()) {
            return Ok(pool);
        }
        let pool = Arc::new(Self::new(context)?);
        pools.push((context.ordinal(), Arc::downgrade(&pool)));
        Ok(pool)
    }

    fn new(context: &Arc<CudaContext>) -> Result<Self, GpuError> {
        bind(context)?;
        // SAFETY: the struct is plain integers, enums that have a 0, and a pointer.
        let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = i32::try_from(context.ordinal()).unwrap_or_default();
        let mut raw = std::ptr::null_mut();
        // SAFETY: (1) the context is current; (2) the pointers are to a handle and to properties.
        check("cuMemPoolCreate", unsafe { sys::cuMemPoolCreate(&mut raw, &properties) })?;
        let stream = Mutex::new(Stream::new(context)?);
        let pool = Self { raw, stream, context: Arc::clone(context) };
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let mut kept = KEPT_BYTES;
        // SAFETY: (1) the context is current; (2) the pool is alive; (3) the value is a `u64`, as
        // this attribute asks.
        let result =
            unsafe { sys::cuMemPoolSetAttribute(pool.raw, attribute, (&raw mut kept).cast()) };
        check("cuMemPoolSetAttribute", result)?;
        Ok(pool)
    }

    fn allocate(&self, bytes: usize) -> Result<u64, GpuError> {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let mut address = 0;
        // SAFETY: (1) the caller has bound the context; (2) pool and stream are alive; (3) the
        // pointer is to one address.
        let result =
            unsafe { sys::cuMemAllocFromPoolAsync(&mut address, bytes, self.raw, stream.raw()) };
        allocated("cuMemAllocFromPoolAsync", result)?;
        // Any stream may use the memory from now on.
        stream.wait()?;
        Ok(address)
    }

    /// # Safety
    /// The memory is of this pool, is freed once, and no work uses it; the context is current.
    unsafe fn free(&self, address: u64) {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: that of this function; the stream is alive.
        unsafe { sys::cuMemFreeAsync(address, stream.raw()) };
        // The pool gives memory back to the driver when a stream is waited for.
        stream.wait().ok();
    }

    fn unused_bytes(&self) -> u64 {
        let of = |attribute| {
            let mut bytes = 0u64;
            // SAFETY: (1) the pool is alive; (2) the value is a `u64`, as both attributes ask.
            let result =
                unsafe { sys::cuMemPoolGetAttribute(self.raw, attribute, (&raw mut bytes).cast()) };
            check("cuMemPoolGetAttribute", result).map_or(0, |()| bytes)
        };
        let reserved = of(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        reserved.saturating_sub(of(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if bind(&self.context).is_ok() {
            // SAFETY: the pool was made by `Pool::new` and is destroyed only here; its allocations
            // keep it alive.
            unsafe { sys::cuMemPoolDestroy(self.raw) };
        }
    }
}
