//! The GPU: availability, compiler, memory, streams, timing and graphs.
//!
//! | start from | for |
//! | --- | --- |
//! | [`availability()`] | whether there is a GPU to use, and if not, why |
//! | [`Device`] | a GPU and a stream; launches and copies by its [`Executor`](crate::Executor) |
//! | [`DeviceBuffer`], [`PinnedBuffer`] | typed memory: of the GPU; pinned, on the host |
//! | [`Event`], [`Graph`] | timing; recorded sequences of launches |
//! | [`nvrtc`], [`cache`] | compiling without a GPU; compiled kernels on disk |
//!
//! This module holds all unsafe code of the crate, except the contract of
//! [`Executor::launch`](crate::Executor::launch): calls of the driver and of NVRTC, and device
//! addresses. The context is bound to the calling thread before every driver call.
#![allow(unsafe_code)]

pub mod availability;
mod bandwidth;
mod buffer;
pub mod cache;
mod driver;
mod event;
mod graph;
mod info;
mod kernel;
mod launch;
pub mod library;
mod memory;
mod model;
pub mod nvrtc;
mod page_locked;
mod peer;
mod pinned;
mod pointer;
mod pool;
mod resources;
mod staging;
mod stream;

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cudarc::driver::CudaContext;

pub use availability::{DriverInfo, availability};
pub use bandwidth::{Bandwidth, measure_bandwidth};
pub use buffer::DeviceBuffer;
pub use event::Event;
pub use graph::Graph;
pub use info::DeviceInfo;
pub use memory::DeviceAllocator;
pub use model::DeviceModel;
pub use page_locked::PageLocked;
pub use pinned::PinnedBuffer;
pub use pointer::ordinal_of;
pub use pool::DevicePool;
pub use resources::Resources;
pub use stream::Mark;

use crate::{GpuError, KernelKey};
use cache::DiskCache;
use driver::checked;
use kernel::{Kernel, KernelStore};
use memory::MemorySource;
use staging::Staging;
use stream::Stream;

/// A GPU and one of its streams. Clones share both; all handles of one GPU share its memory.
///
/// Work is ordered along the stream. A device may be used from several threads at once. Dropping
/// the last handle waits for all work.
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
    stream: Arc<Stream>,
    memory: MemorySource,
    /// What plans see, where that is another model.
    planned: Option<Arc<DeviceInfo>>,
}

/// The state of a GPU that does not depend on the stream.
struct Shared {
    // Declared before the context, since fields are dropped in order.
    kernels: KernelStore,
    staging: Mutex<Vec<Staging>>,
    info: DeviceInfo,
    context: Arc<CudaContext>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Kernels are unloaded next, and some may still run. If the wait fails, none is running.
        self.context.synchronize().ok();
    }
}

/// Memory of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free bytes.
    pub free_bytes: u64,
    /// Total bytes.
    pub total_bytes: u64,
}

impl Device {
    /// The GPU with index `ordinal`, from 0, and a new stream. Kernels compiled before are loaded
    /// from [`DiskCache::from_env`].
    ///
    /// Uses the primary context, as other libraries in the process do, so that memory is shared
    /// with them.
    ///
    /// # Errors
    /// Those of [`availability()`]; [`GpuError::NoDevice`] when there are fewer GPUs;
    /// [`GpuError::Driver`] when the driver refuses the context, as in exclusive mode.
    pub fn new(ordinal: usize) -> Result<Self, GpuError> {
        Self::with_cache(ordinal, DiskCache::from_env())
    }

    /// As [`Device::new`], made at the first call for a number and returned by later ones, for
    /// libraries whose callers do not hold a device: kernels are compiled once for all of them.
    ///
    /// # Errors
    /// As [`Device::new`].
    pub fn of_process(ordinal: usize) -> Result<Self, GpuError> {
        static DEVICES: LazyLock<Mutex<HashMap<usize, Device>>> = LazyLock::new(Mutex::default);
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = devices.get(&ordinal) {
            return Ok(device.clone());
        }
        let device = Self::new(ordinal)?;
        devices.insert(ordinal, device.clone());
        Ok(device)
    }

    /// As [`Device::new`], with the given cache of compiled kernels.
    ///
    /// # Errors
    /// As [`Device::new`].
    pub fn with_cache(ordinal: usize, disk: DiskCache) -> Result<Self, GpuError> {
        let driver = availability()?;
        let count = driver.device_count;
        if ordinal >= count {
            return Err(GpuError::NoDevice { ordinal, count });
        }
        let context = checked("cuDevicePrimaryCtxRetain", CudaContext::new(ordinal))?;
        // SAFETY: the memory types of the bindings, which the events would order between streams,
        // are not used here.
        unsafe { context.disable_event_tracking() };
        let info = DeviceInfo::of(&context, driver.version)?;
        let architecture = compiled_for(&info)?;
        let stream = Arc::new(Stream::new(&context)?);
        let kernels = KernelStore::new(architecture, disk);
        let memory = MemorySource::Driver;
        let shared = Shared { kernels, staging: Mutex::default(), info, context };
        Ok(Self { shared: Arc::new(shared), stream, memory, planned: None })
    }

    /// The same GPU with a stream of the caller, such as one created by another library. Null is
    /// the legacy default stream. Kernels are shared with `self`.
    ///
    /// # Safety
    /// 1. `stream` is a `CUstream` (or `cudaStream_t`) of the primary context of this GPU.
    /// 2. It outlives the returned device, its clones, its graphs and the buffers that they allocate.
    pub unsafe fn with_raw_stream(&self, stream: *mut c_void) -> Self {
        // SAFETY: (1) and (2) are the contract of this function.
        let stream = unsafe { Stream::borrowed(&self.shared.context, stream) };
        Self { stream: Arc::new(stream), ..self.clone() }
    }

    /// The same GPU and stream, with buffers from an allocator of the caller. Solvers and plans
    /// that are made with this device, or with executors branched off it, take their memory there
    /// when they are made, and later only where their documentation says so.
    ///
    /// # Safety
    /// A buffer of the returned device goes back to the allocator when it is dropped, after a wait
    /// for the stream of the device. Other streams have done with it by then.
    pub unsafe fn with_allocator(&self, allocator: Arc<dyn DeviceAllocator>) -> Self {
        Self { memory: MemorySource::Caller(allocator), ..self.clone() }
    }

    /// The stream, as a `CUstream`. It lives as long as this device and its clones.
    pub fn raw_stream(&self) -> *mut c_void {
        self.stream.raw().cast()
    }

    /// The current free and total memory of the GPU.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn memory(&self) -> Result<MemoryInfo, GpuError> {
        let (free, total) = checked("cuMemGetInfo", self.shared.context.mem_get_info())?;
        Ok(MemoryInfo { free_bytes: free as u64, total_bytes: total as u64 })
    }

    /// The architecture that kernels are compiled for: that of the GPU, or PTX of the newest one
    /// that the compiler knows.
    pub fn architecture(&self) -> &str {
        self.shared.kernels.architecture()
    }

    /// The resources that a kernel uses; `None` for PTX, which the driver compiles. Compiles and
    /// loads the kernel if necessary.
    ///
    /// # Errors
    /// As [`Executor::prepare`](crate::Executor::prepare).
    pub fn resources(&self, key: &KernelKey) -> Result<Option<Resources>, GpuError> {
        Ok(self.kernel(key)?.resources())
    }

    fn kernel(&self, key: &KernelKey) -> Result<Arc<Kernel>, GpuError> {
        self.shared.kernels.get(&self.shared.context, key)
    }

    fn wait(&self) -> Result<(), GpuError> {
        self.stream.wait()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("info", &self.shared.info)
            .field("stream", &self.stream.raw())
            .finish()
    }
}

/// The architecture that kernels of a GPU are compiled for by the NVRTC of this machine; see
/// [`Device::architecture`]. Needs no GPU.
///
/// # Errors
/// [`GpuError::NvrtcMissing`].
pub fn compiled_for(info: &DeviceInfo) -> Result<String, GpuError> {
    let (major, minor) = info.compute_capability;
    Ok(architecture_for(10 * major + minor, &nvrtc::architectures()?))
}

/// `sm_N` for a compute capability N, such as 90, that the compiler knows. For a newer one, PTX
/// (`compute_M`) of the newest known capability below it, which drivers compile for later GPUs.
fn architecture_for(capability: u32, known: &[u32]) -> String {
    match known.iter().filter(|&&known| known <= capability).max() {
        Some(&newest) if capability > newest => format!("compute_{newest}"),
        _ => format!("sm_{capability}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_newer_gpus_get_ptx() {
        let known = [75, 80, 90, 120];

        assert_eq!(architecture_for(90, &known), "sm_90");
        assert_eq!(architecture_for(130, &known), "compute_120");
        assert_eq!(architecture_for(103, &known), "compute_90");
        assert_eq!(architecture_for(90, &[]), "sm_90");
    }

    #[test]
    fn devices_and_buffers_may_go_to_other_threads() {
        fn check<T: Send + Sync>() {}

        check::<Device>();
        check::<DeviceBuffer<f64>>();
        check::<Event>();
    }

    #[test]
    fn pinned_memory_may_go_to_another_thread() {
        fn check<T: Send>() {}

        check::<PinnedBuffer<f64>>();
    }
}
