//! Page-locked host memory, which the GPU copies from and to directly.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUresult};

use super::driver::{bind, check};
use super::{Device, DeviceBuffer, Event};
use crate::error::check_len;
use crate::{GpuError, PinnedValues, Pod};

/// Values of type `T` in page-locked host memory. Copies between it and a [`DeviceBuffer`] need no
/// staging, run at the full speed of the bus, and are asynchronous.
///
/// Only reading and writing the values, and dropping the buffer, wait for the copies that were
/// started. Page-locked memory is a resource of the whole machine: use it for data that is copied
/// repeatedly, not for everything.
///
/// # Examples
/// ```no_run
/// use sparsebatch_cuda::{Device, Executor, PinnedBuffer};
/// let device = Device::new(0)?;
/// let mut host = PinnedBuffer::from_slice(&device, &[1.0, 2.0])?;
/// let mut x = device.alloc(2)?;
/// device.copy_from_pinned(&host, &mut x)?; // returns at once
/// host.as_mut_slice()?[0] = 3.0; // waits for the copy
/// assert_eq!(device.download(&x)?, [1.0, 2.0]);
/// # Ok::<(), sparsebatch_cuda::GpuError>(())
/// ```
pub struct PinnedBuffer<T: Pod> {
    memory: Option<PinnedMemory>,
    len: usize,
    /// The event after all copies of this buffer, on whichever streams.
    done: Event,
    /// Held while a copy is started.
    turn: Mutex<()>,
    /// Whether no copy to this buffer is under way: only a borrow that excludes readers starts one.
    arrived: AtomicBool,
    values: PhantomData<T>,
}

impl<T: Pod> PinnedBuffer<T> {
    /// `len` values of zero bytes. Works with any device: memory is pinned for all GPUs of the
    /// process.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the system cannot provide pinned memory.
    pub fn new(device: &Device, len: usize) -> Result<Self, GpuError> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| GpuError::InvalidArgument {
            name: "len",
            expected: "a size that fits memory".to_owned(),
            found: len.to_string(),
        })?;
        // The driver refuses to allocate 0 bytes.
        let memory = (bytes > 0).then(|| PinnedMemory::new(device, bytes)).transpose()?;
        if let Some(memory) = &memory {
            // SAFETY: the memory has that many bytes.
            unsafe { memory.start().write_bytes(0, bytes) };
        }
        let (done, arrived) = (Event::new(device)?, AtomicBool::new(true));
        Ok(Self { memory, len, done, turn: Mutex::default(), arrived, values: PhantomData })
    }

    /// A copy of `host`.
    ///
    /// # Errors
    /// As [`PinnedBuffer::new`].
    pub fn from_slice(device: &Device, host: &[T]) -> Result<Self, GpuError> {
        let mut buffer = Self::new(device, host.len())?;
        buffer.as_mut_slice()?.copy_from_slice(host);
        Ok(buffer)
    }

    /// The values, after all copies to this buffer. Once they have been read, they can be read again
    /// without a wait, until the next copy.
    ///
    /// # Errors
    /// [`GpuError::ContextLost`] for a fault of the work before the copies.
    pub fn as_slice(&self) -> Result<&[T], GpuError> {
        if !self.arrived.load(Ordering::Acquire) {
            self.done.wait()?;
            self.arrived.store(true, Ordering::Release);
        }
        // SAFETY: (1) `start` has `len` values of `T`, of which every bit pattern is a value; (2)
        // no copy is under way, and starting one into this buffer borrows it exclusively.
        Ok(unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.len) })
    }

    /// The values, after all copies of this buffer.
    ///
    /// # Errors
    /// As [`PinnedBuffer::as_slice`].
    pub fn as_mut_slice(&mut self) -> Result<&mut [T], GpuError> {
        self.done.wait()?;
        // SAFETY: as in `as_slice`; (3) starting any copy borrows this buffer.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.len) })
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn start(&self) -> NonNull<T> {
        self.memory.as_ref().map_or(NonNull::dangling(), |memory| memory.start().cast())
    }

    /// Starts a copy on the stream of `device`, after all earlier copies of this buffer, and
    /// records the event after it.
    fn copy(
        &self,
        device: &Device,
        start: impl FnOnce() -> (&'static str, CUresult),
    ) -> Result<(), GpuError> {
        if device.stream.records()? {
            return Err(GpuError::InvalidArgument {
                name: "stream",
                expected: "one that does not record: a graph would outlive the host memory".into(),
                found: "one that records".to_owned(),
            });
        }
        // The event will mark the end of this copy; it must also mark the end of earlier ones, so that
        // copies from other threads are started before or after this one.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.done.hold(device)?;
        let (call, result) = start();
        check(call, result)?;
        self.done.record(device).or_else(|error| {
            // Without the event later accesses would not wait for the copy.
            device.wait()?;
            Err(error)
        })
    }
}

impl Device {
    /// See [`Executor::copy_from_pinned`](crate::Executor::copy_from_pinned); refused with
    /// [`GpuError::InvalidArgument`] while the stream records a graph.
    pub(super) fn start_from_pinned<T: Pod>(
        &self,
        host: &PinnedBuffer<T>,
        buffer: &mut DeviceBuffer<T>,
    ) -> Result<(), GpuError> {
        check_len("host", buffer.len(), host.len().min(buffer.len()))?;
        if buffer.is_empty() {
            return Ok(());
        }
        host.copy(self, || {
            let (from, to) = (host.start().as_ptr().cast(), buffer.raw());
            // SAFETY: (1) `hold` bound the context; (2) both have as many bytes at least, checked
            // above; (3) the host memory is neither written nor freed before the event that `copy`
            // records has passed, nor the device's, since freeing it waits.
            let result =
                unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, buffer.bytes(), self.stream.raw()) };
            ("cuMemcpyHtoDAsync", result)
        })
    }

    /// See [`Executor::copy_to_pinned`](crate::Executor::copy_to_pinned); refused as
    /// [`Device::start_from_pinned`] is.
    pub(super) fn start_to_pinned<T: Pod>(
        &self,
        buffer: &DeviceBuffer<T>,
        host: &mut PinnedBuffer<T>,
    ) -> Result<(), GpuError> {
        check_len("host", buffer.len(), host.len().min(buffer.len()))?;
        if buffer.is_empty() {
            return Ok(());
        }
        *host.arrived.get_mut() = false;
        host.copy(self, || {
            let (from, to) = (buffer.raw(), host.start().as_ptr().cast());
            // SAFETY: as in `start_from_pinned`, and the host memory is not read before either.
            let result =
                unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, buffer.bytes(), self.stream.raw()) };
            ("cuMemcpyDtoHAsync", result)
        })
    }
}

impl<T: Pod> PinnedValues<T> for PinnedBuffer<T> {
    fn as_slice(&self) -> Result<&[T], GpuError> {
        self.as_slice()
    }

    fn as_mut_slice(&mut self) -> Result<&mut [T], GpuError> {
        self.as_mut_slice()
    }
}

impl<T: Pod> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        match self.done.wait() {
            // With a lost context no copy runs any more.
            Ok(()) | Err(GpuError::ContextLost { .. }) => {}
            // A copy may still run: leak the memory rather than let it write to reused memory.
            Err(_) => std::mem::forget(self.memory.take()),
        }
    }
}

impl<T: Pod> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer")
            .field("type", &std::any::type_name::<T>())
            .field("len", &self.len)
            .finish()
    }
}

/// Page-locked bytes, freed on drop. Code that starts copies must end them before the drop.
pub(super) struct PinnedMemory {
    start: NonNull<u8>,
    context: Arc<CudaContext>,
}

// SAFETY: the memory belongs to no thread; the driver frees it from any thread to which the context
// is bound, which `drop` does first.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above; a shared borrow of the memory only tells its address.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates `bytes` bytes, more than 0.
    pub(super) fn new(device: &Device, bytes: usize) -> Result<Self, GpuError> {
        let context = Arc::clone(&device.shared.context);
        bind(&context)?;
        let mut start = std::ptr::null_mut();
        // SAFETY: (1) the context is current; (2) the pointer is to one pointer; (3) the flag says
        // that all contexts know that the memory is pinned.
        let result =
            unsafe { sys::cuMemHostAlloc(&mut start, bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        check("cuMemHostAlloc", result)?;
        let start = NonNull::new(start.cast()).ok_or_else(|| GpuError::Driver {
            call: "cuMemHostAlloc",
            code: 0,
            message: "null pointer without an error".to_owned(),
        })?;
        Ok(Self { start, context })
    }

    /// The first byte, aligned to a page.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if bind(&self.context).is_ok() {
            // SAFETY: the memory is of `cuMemHostAlloc` and freed only here; no copy is under way,
            // as the type asks for.
            unsafe { sys::cuMemFreeHost(self.start.as_ptr().cast()) };
        }
    }
}
