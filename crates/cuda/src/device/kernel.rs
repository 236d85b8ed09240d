//! Kernels loaded into a context.

use std::collections::HashMap;
use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUfunction, CUmodule, CUresult};

use super::cache::DiskCache;
use super::driver::{bind, check};
use super::nvrtc::{Compiled, CompiledKernel};
use super::resources::Resources;
use crate::executor::Kind;
use crate::{DeviceInfo, GpuError, KernelKey, LaunchConfig};

/// Maximum shared memory of a kernel without opting in, in bytes.
const SHARED_BYTES_WITHOUT_OPT_IN: u32 = 48 << 10;

/// Compiles and loads kernels, each once per context.
pub(super) struct KernelStore {
    architecture: String,
    disk: DiskCache,
    loaded: Mutex<HashMap<KernelKey, Arc<Kernel>>>,
    /// Per kernel, the lock held by the thread that compiles it; other threads wait for it.
    compiling: Mutex<HashMap<KernelKey, Arc<Mutex<()>>>>,
}

/// Locks, ignoring poisoning: a thread that panicked leaves no partial state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KernelStore {
    pub(super) fn new(architecture: String, disk: DiskCache) -> Self {
        Self { architecture, disk, loaded: Mutex::default(), compiling: Mutex::default() }
    }

    pub(super) fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Whether no kernel was loaded so far.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.loaded).is_empty()
    }

    /// The kernel of a key, compiled and loaded at its first use.
    pub(super) fn get(
        &self,
        context: &Arc<CudaContext>,
        key: &KernelKey,
    ) -> Result<Arc<Kernel>, GpuError> {
        let loaded = || lock(&self.loaded).get(key).map(Arc::clone);
        if let Some(kernel) = loaded() {
            return Ok(kernel);
        }
        // Threads compile different kernels concurrently, and each kernel once.
        let turn = Arc::clone(lock(&self.compiling).entry(key.clone()).or_default());
        let _turn = lock(&turn);
        if let Some(kernel) = loaded() {
            return Ok(kernel);
        }
        let kernel = self.load(context, key).map(Arc::new);
        if let Ok(kernel) = &kernel {
            lock(&self.loaded).insert(key.clone(), Arc::clone(kernel));
        }
        lock(&self.compiling).remove(key);
        kernel
    }

    fn load(&self, context: &Arc<CudaContext>, key: &KernelKey) -> Result<Kernel, GpuError> {
        let compiled = self.disk.compile_kernel(key, &self.architecture)?;
        let kernel = compiled.kernel(&key.expression).ok_or_else(|| GpuError::Compile {
            kernel: key.to_string(),
            architecture: self.architecture.clone(),
            options: key.options.join(" "),
            log: "the compiler gave no symbol for the expression".to_owned(),
        })?;
        Kernel::load(context, &compiled, kernel)
    }
}

/// A kernel, loaded in its own module.
pub(super) struct Kernel {
    module: CUmodule,
    function: CUfunction,
    context: Arc<CudaContext>,
    /// Sizes of the parameters in bytes; `None` if the driver does not report them.
    parameters: Option<Vec<usize>>,
    /// Static shared memory per block, in bytes.
    shared_bytes: u32,
    opted_in: AtomicBool,
    resources: Option<Resources>,
}

// SAFETY: the handles may be used from any thread to which the context is bound, which every use
// does first; the driver synchronises access to them.
unsafe impl Send for Kernel {}
// SAFETY: as for `Send`.
unsafe impl Sync for Kernel {}

impl Kernel {
    fn load(
        context: &Arc<CudaContext>,
        compiled: &Compiled,
        kernel: &CompiledKernel,
    ) -> Result<Self, GpuError> {
        bind(context)?;
        let mut loaded = Self {
            module: ptr::null_mut(),
            function: ptr::null_mut(),
            context: Arc::clone(context),
            parameters: None,
            shared_bytes: 0,
            opted_in: AtomicBool::new(false),
            resources: kernel.resources,
        };
        let image = compiled.image.as_ptr().cast();
        // SAFETY: (1) the context is current; (2) the image is a cubin, or PTX that ends with NUL,
        // which the driver copies: either NVRTC gave it to this process, or it was read from the
        // disk cache, which takes a file only where it is whole, was stored under the hash of the
        // source and options asked for, and could be written by nobody but the user and root, who
        // could change this program as well (`cache.rs`); (3) the pointer is to one handle.
        let result = unsafe { sys::cuModuleLoadData(&mut loaded.module, image) };
        check("cuModuleLoadData", result)?;
        let symbol = CString::new(kernel.symbol.as_str()).unwrap_or_default();
        // SAFETY: (1) the module is loaded; (2) the symbol is a C string; (3) the pointer is to one
        // handle.
        let result = unsafe {
            sys::cuModuleGetFunction(&mut loaded.function, loaded.module, symbol.as_ptr())
        };
        check("cuModuleGetFunction", result)?;
        // Without this the driver loads the code at the first launch, which a stream that records
        // would not allow.
        // SAFETY: the function belongs to a loaded module.
        check("cuFuncLoad", unsafe { sys::cuFuncLoad(loaded.function) })?;
        let mut shared = 0;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        // SAFETY: (1) the function belongs to a loaded module; (2) the pointer is to one integer.
        let result = unsafe { sys::cuFuncGetAttribute(&mut shared, attribute, loaded.function) };
        check("cuFuncGetAttribute", result)?;
        loaded.shared_bytes = u32::try_from(shared).unwrap_or(0);
        loaded.parameters = loaded.parameter_sizes();
        Ok(loaded)
    }

    /// Queries one parameter after the other until the driver reports that there is none.
    fn parameter_sizes(&self) -> Option<Vec<usize>> {
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: (1) the function belongs to a loaded module; (2) both pointers are to one
            // integer.
            let result = unsafe {
                sys::cuFuncGetParamInfo(self.function, sizes.len(), &mut offset, &mut size)
            };
            match result {
                CUresult::CUDA_SUCCESS => sizes.push(size),
                CUresult::CUDA_ERROR_INVALID_VALUE => return Some(sizes),
                _ => return None,
            }
        }
    }

    /// The resources of the kernel, as reported by the compiler.
    pub(super) fn resources(&self) -> Option<Resources> {
        self.resources
    }

    pub(super) fn function(&self) -> CUfunction {
        self.function
    }

    /// Checks arguments against the parameters, as far as number and size go.
    pub(super) fn check_args(&self, kinds: &[Kind]) -> Result<(), GpuError> {
        let Some(sizes) = &self.parameters else { return Ok(()) };
        if kinds.iter().map(|kind| kind.bytes()).eq(sizes.iter().copied()) {
            return Ok(());
        }
        Err(GpuError::InvalidArgument {
            name: "args",
            expected: format!("parameters of {sizes:?} bytes"),
            found: format!("{kinds:?}"),
        })
    }

    /// Checks the shared memory of a launch. The first launch that needs more than the default
    /// limit raises the kernel's limit to the maximum of a block.
    pub(super) fn allow_shared(
        &self,
        config: LaunchConfig,
        info: &DeviceInfo,
    ) -> Result<(), GpuError> {
        let dynamic_limit = info.shared_bytes_per_block.saturating_sub(self.shared_bytes);
        if config.shared_bytes > dynamic_limit {
            return Err(GpuError::InvalidArgument {
                name: "shared_bytes",
                expected: format!("at most {dynamic_limit} beside {} static", self.shared_bytes),
                found: config.shared_bytes.to_string(),
            });
        }
        let total = config.shared_bytes + self.shared_bytes;
        if total <= SHARED_BYTES_WITHOUT_OPT_IN || self.opted_in.load(Ordering::Relaxed) {
            return Ok(());
        }
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        bind(&self.context)?;
        // SAFETY: (1) the context is current; (2) the function belongs to a loaded module.
        let result =
            unsafe { sys::cuFuncSetAttribute(self.function, attribute, dynamic_limit as i32) };
        check("cuFuncSetAttribute", result)?;
        self.opted_in.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Number of blocks that a multiprocessor holds at once, at least 1. The caller has allowed
    /// their shared memory.
    pub(super) fn resident_blocks(&self, config: LaunchConfig) -> Result<u32, GpuError> {
        let threads = config.block.iter().product::<u32>() as i32;
        let mut blocks = 0;
        bind(&self.context)?;
        // SAFETY: (1) the context is current; (2) the function belongs to a loaded module; (3) the
        // pointer is to one integer.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.function,
                threads,
                config.shared_bytes as usize,
            )
        };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        Ok(blocks.max(1) as u32)
    }

    /// Number of clusters that the device holds at once, at least 1. The caller has allowed the
    /// shared memory of their blocks.
    pub(super) fn resident_clusters(
        &self,
        config: LaunchConfig,
        info: &DeviceInfo,
    ) -> Result<u32, GpuError> {
        let mut attributes = Attributes::of(config, info);
        let launch = attributes.launch(config, ptr::null_mut());
        let mut clusters = 0;
        bind(&self.context)?;
        // SAFETY: (1) the context is current; (2) the function belongs to a loaded module; (3) the
        // pointers are to one integer, and to a launch whose attributes live through the call.
        let result = unsafe {
            sys::cuOccupancyMaxActiveClusters(&mut clusters, self.function, &raw const launch)
        };
        check("cuOccupancyMaxActiveClusters", result)?;
        Ok(clusters.max(1) as u32)
    }
}

/// The attributes of a launch: overlap with the previous launch, and clusters.
pub(super) struct Attributes {
    values: [sys::CUlaunchAttribute; 2],
    count: u32,
}

impl Attributes {
    pub(super) fn of(config: LaunchConfig, info: &DeviceInfo) -> Self {
        type Value = sys::CUlaunchAttributeValue;
        let overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: Value { programmaticStreamSerializationAllowed: 1 },
        };
        let mut cluster = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            pad: [0; 4],
            value: Value { pad: [0; 64] },
        };
        cluster.value.clusterDim.x = config.cluster;
        cluster.value.clusterDim.y = 1;
        cluster.value.clusterDim.z = 1;
        let can_overlap = info.compute_capability >= (9, 0);
        match (config.overlaps && can_overlap, config.cluster > 1) {
            (false, false) => Self { values: [overlap, cluster], count: 0 },
            (true, false) => Self { values: [overlap, cluster], count: 1 },
            (false, true) => Self { values: [cluster, overlap], count: 1 },
            (true, true) => Self { values: [cluster, overlap], count: 2 },
        }
    }

    /// The launch configuration for the driver. It points to these attributes, which must neither
    /// move nor be dropped before the launch call.
    pub(super) fn launch(
        &mut self,
        config: LaunchConfig,
        stream: sys::CUstream,
    ) -> sys::CUlaunchConfig {
        sys::CUlaunchConfig {
            gridDimX: config.grid[0],
            gridDimY: config.grid[1],
            gridDimZ: config.grid[2],
            blockDimX: config.block[0],
            blockDimY: config.block[1],
            blockDimZ: config.block[2],
            sharedMemBytes: config.shared_bytes,
            hStream: stream,
            attrs: self.values.as_mut_ptr(),
            numAttrs: self.count,
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if !self.module.is_null() && bind(&self.context).is_ok() {
            // SAFETY: the module was loaded by `Kernel::load` and is unloaded only here.
            unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}
