//! CUDA streams, and events by which streams wait for each other.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUevent, CUstream};

use super::driver::{bind, check};
use crate::GpuError;

/// A stream of a context, either owned or borrowed from the caller.
pub(super) struct Stream {
    raw: CUstream,
    owned: bool,
    // Declared before the context, since fields are dropped in order.
    mark: OnceLock<Mark>,
    context: Arc<CudaContext>,
}

// SAFETY: the handle may be used from any thread to which the context is bound, which every use
// does first; the driver synchronises access to it.
unsafe impl Send for Stream {}
// SAFETY: as for `Send`.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream, which does not wait for the legacy default stream.
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, GpuError> {
        bind(context)?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: (1) the context is current; (2) the pointer is to one handle.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, flags) })?;
        Ok(Self { raw, owned: true, mark: OnceLock::new(), context: Arc::clone(context) })
    }

    /// As [`Stream::new`], with the greatest priority: its kernels get the multiprocessors that become
    /// free before those of other streams whose blocks still wait.
    pub(super) fn urgent(context: &Arc<CudaContext>) -> Result<Self, GpuError> {
        bind(context)?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: (1) the context is current; (2) the pointers are to one number each.
        let range = unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) };
        check("cuCtxGetStreamPriorityRange", range)?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: (1) the context is current; (2) the pointer is to one handle; (3) the priority is in
        // the range.
        let made = unsafe { sys::cuStreamCreateWithPriority(&mut raw, flags, greatest) };
        check("cuStreamCreateWithPriority", made)?;
        Ok(Self { raw, owned: true, mark: OnceLock::new(), context: Arc::clone(context) })
    }

    /// A stream that its owner destroys.
    ///
    /// # Safety
    /// The stream belongs to the context and outlives this value.
    pub(super) unsafe fn borrowed(context: &Arc<CudaContext>, raw: *mut c_void) -> Self {
        Self { raw: raw.cast(), owned: false, mark: OnceLock::new(), context: Arc::clone(context) }
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Whether the stream records a graph.
    pub(super) fn records(&self) -> Result<bool, GpuError> {
        bind(&self.context)?;
        stream_records(self.raw)
    }

    /// The event of this stream that other streams wait for. The first call creates it.
    pub(super) fn mark(&self) -> Result<&Mark, GpuError> {
        if let Some(mark) = self.mark.get() {
            return Ok(mark);
        }
        let made = Mark::new(&self.context)?;
        Ok(self.mark.get_or_init(|| made))
    }

    pub(super) fn wait(&self) -> Result<(), GpuError> {
        bind(&self.context)?;
        // SAFETY: (1) the context is current; (2) the stream is alive.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned && bind(&self.context).is_ok() {
            // SAFETY: the stream was made by `Stream::new` and is destroyed only here; work still
            // in it is completed.
            unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// Whether a stream that is alive, of the current context, records a graph.
pub(super) fn stream_records(stream: CUstream) -> Result<bool, GpuError> {
    let none = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let mut status = none;
    // SAFETY: (1) the context is current and the stream alive, as the callers see to; (2) the
    // pointer is to one status.
    let result = unsafe { sys::cuStreamIsCapturing(stream, &mut status) };
    check("cuStreamIsCapturing", result)?;
    Ok(status != none)
}

/// An event without timing, by which streams wait for each other. If several threads record it at
/// the same time on one stream, they wait for more work than necessary, never for less.
pub struct Mark {
    raw: CUevent,
    context: Arc<CudaContext>,
}

// SAFETY: as for `Stream`.
unsafe impl Send for Mark {}
// SAFETY: as for `Stream`.
unsafe impl Sync for Mark {}

impl Mark {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, GpuError> {
        bind(context)?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: (1) the context is current; (2) the pointer is to one handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, flags) })?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    /// Records the event after all work issued to the stream so far.
    pub(super) fn record(&self, stream: &Stream) -> Result<(), GpuError> {
        bind(&self.context)?;
        // SAFETY: (1) the context is current; (2) event and stream are alive.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream.raw()) })
    }

    /// Makes all later work of the stream wait for the event. If the event belongs to a recording,
    /// a stream that does not record yet joins that recording.
    pub(super) fn hold(&self, stream: &Stream) -> Result<(), GpuError> {
        bind(&stream.context)?;
        // SAFETY: (1) the context of the stream is current; (2) event, which may be of another GPU,
        // and stream are alive; (3) 0 is the flag for events of this process.
        let result = unsafe { sys::cuStreamWaitEvent(stream.raw(), self.raw, 0) };
        check("cuStreamWaitEvent", result)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if bind(&self.context).is_ok() {
            // SAFETY: the event was made by `Mark::new` and is destroyed only here; the driver
            // keeps it until waits for it are over.
            unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}
