//! An [`Executor`] on host memory: kernels run in the emulation of `kernel-emu`.
//!
//! Memory that no kernel or copy has set holds a pattern that is NaN as a float and -1 as an index.
//! Guards around every buffer show what is written beside it.
#![allow(unsafe_code, reason = "hands host memory to kernels")]
#![allow(dead_code, reason = "each test file uses a part of this one")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use kernel_emu::Order;
use sparsebatch_spmv_gpu::{
    Args, DeviceInfo, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Pod,
};

/// Runs kernels on the CPU. Clones share limits and order.
#[derive(Clone)]
pub(crate) struct Emulator {
    info: Arc<DeviceInfo>,
    order: Order,
    launched: Arc<Mutex<BTreeSet<String>>>,
}

impl Emulator {
    /// Looks like a small GPU, so that plans cut small matrices into several parts. Threads run in
    /// the given order.
    pub(crate) fn new(order: Order) -> Self {
        Self::with_info(
            DeviceInfo {
                name: "emulation".to_owned(),
                compute_capability: (9, 0),
                multiprocessors: 2,
                max_threads_per_block: 1024,
                max_threads_per_multiprocessor: 2048,
                shared_bytes_per_block: kernel_emu::MAX_SHARED_BYTES,
                shared_bytes_per_multiprocessor: 233_472,
                l2_bytes: 1 << 20,
                memory_bytes: 1 << 30,
                clock_khz: 1_000_000,
                ..DeviceInfo::default()
            },
            order,
        )
    }

    /// Looks like the GPU described.
    pub(crate) fn with_info(info: DeviceInfo, order: Order) -> Self {
        Self { info: Arc::new(info), order, launched: Arc::default() }
    }

    /// The kernels launched so far, as `module.cu: expression`, sorted.
    pub(crate) fn launched(&self) -> Vec<String> {
        self.launched.lock().unwrap().iter().cloned().collect()
    }
}

/// Alignment of a buffer, as `cudaMalloc` aligns.
const ALIGNMENT: usize = 256;
/// Bytes of a guard. A sanitizer watches the edges of an allocation better than a guard does, reads
/// included.
const GUARD_BYTES: usize = if option_env!("KERNEL_EMU_SANITIZE").is_some() { 0 } else { ALIGNMENT };
/// Memory that was not set, and the guards.
const UNSET: u8 = 0xff;
const GUARD: u8 = 0xa5;

/// Host memory with a guard on either side.
pub(crate) struct HostBuffer<T> {
    memory: NonNull<u8>,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Pod> HostBuffer<T> {
    fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc(layout) });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        let bytes = len * size_of::<T>();
        // SAFETY: the memory holds a guard, the values and another guard.
        unsafe {
            memory.write_bytes(GUARD, layout.size());
            memory.add(GUARD_BYTES).write_bytes(UNSET, bytes);
        }
        Self { memory, len, values: PhantomData }
    }

    fn address(&self) -> *mut T {
        // SAFETY: the guard is part of the memory.
        unsafe { self.memory.add(GUARD_BYTES).as_ptr().cast() }
    }

    fn values(&self) -> &[T] {
        // SAFETY: `len` values follow the guard; every bit pattern is a value; kernels write only
        // during a launch, which borrows the buffer or runs between calls of this function.
        unsafe { std::slice::from_raw_parts(self.address(), self.len) }
    }

    fn values_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `values`, and the buffer is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address(), self.len) }
    }
}

impl<T> HostBuffer<T> {
    fn layout(len: usize) -> Layout {
        let bytes = (len * size_of::<T>() + 2 * GUARD_BYTES).max(1);
        Layout::from_size_align(bytes, ALIGNMENT).expect("tests use little memory")
    }

    fn assert_guards(&self) {
        let end = GUARD_BYTES + self.len * size_of::<T>();
        for first in [0, end] {
            // SAFETY: both guards are part of the memory and were written in `new`.
            let guard =
                unsafe { std::slice::from_raw_parts(self.memory.add(first).as_ptr(), GUARD_BYTES) };
            let whole = guard.iter().all(|&byte| byte == GUARD);
            assert!(whole, "a kernel wrote beside a buffer of {} values", self.len);
        }
    }
}

impl<T> Drop for HostBuffer<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_guards();
        }
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.len)) };
    }
}

impl<T: Pod> KernelBuffer<T> for HostBuffer<T> {
    fn raw(&self) -> u64 {
        self.address() as u64
    }
    fn len(&self) -> usize {
        self.len
    }
}

fn check_len(name: &'static str, expected: usize, found: usize) -> Result<(), GpuError> {
    if expected == found { Ok(()) } else { Err(GpuError::Length { name, expected, found }) }
}

impl Executor for Emulator {
    type Buffer<T: Pod> = HostBuffer<T>;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn free_memory(&self) -> Result<u64, GpuError> {
        Ok(self.info.memory_bytes)
    }

    fn alloc<T: Pod>(&self, len: usize) -> Result<HostBuffer<T>, GpuError> {
        let (needed, free) = ((len * size_of::<T>()) as u64, self.info.memory_bytes);
        if needed > free {
            return Err(GpuError::OutOfMemory { needed, free });
        }
        Ok(HostBuffer::new(len))
    }

    fn fill_zero<T: Pod>(&self, buffer: &mut HostBuffer<T>) -> Result<(), GpuError> {
        buffer.values_mut().fill(T::default());
        Ok(())
    }

    fn copy_from_host<T: Pod>(
        &self,
        host: &[T],
        buffer: &mut HostBuffer<T>,
    ) -> Result<(), GpuError> {
        check_len("host", buffer.len, host.len())?;
        buffer.values_mut().copy_from_slice(host);
        Ok(())
    }

    fn copy_to_host<T: Pod>(&self, buffer: &HostBuffer<T>, host: &mut [T]) -> Result<(), GpuError> {
        check_len("host", buffer.len, host.len())?;
        buffer.assert_guards();
        host.copy_from_slice(buffer.values());
        Ok(())
    }

    fn prepare(&self, keys: &[KernelKey]) -> Result<(), GpuError> {
        keys.iter().try_for_each(|key| parameters(key).map(drop))
    }

    unsafe fn launch(
        &self,
        key: &KernelKey,
        config: LaunchConfig,
        args: &mut Args<'_>,
    ) -> Result<(), GpuError> {
        config.check(&self.info)?;
        let expected = parameters(key)?;
        let found: Vec<usize> = args.kinds().iter().map(|kind| kind.bytes()).collect();
        if found != expected {
            return Err(GpuError::InvalidArgument {
                name: "args",
                expected: format!("parameters of {expected:?} bytes for {key}"),
                found: format!("{found:?}"),
            });
        }
        self.launched.lock().unwrap().insert(key.to_string());
        let LaunchConfig { grid, block, shared_bytes } = config;
        let pointers = args.pointers().as_mut_ptr();
        // SAFETY: number and sizes of the parameters were compared; the rest is the caller's
        // promise.
        unsafe { kernel_emu::launch(&name(key), grid, block, shared_bytes, pointers, self.order) }
            .unwrap_or_else(|fault| panic!("{key}: {fault}"));
        Ok(())
    }

    fn synchronize(&self) -> Result<(), GpuError> {
        Ok(())
    }
}

fn name(key: &KernelKey) -> String {
    format!("{}:{}", key.module, key.expression)
}

/// The sizes of a kernel's parameters.
fn parameters(key: &KernelKey) -> Result<&'static [usize], GpuError> {
    kernel_emu::parameter_bytes(&name(key)).map_err(|reason| GpuError::InvalidArgument {
        name: "key",
        expected: "a kernel that kernel-emu registers".to_owned(),
        found: reason,
    })
}
