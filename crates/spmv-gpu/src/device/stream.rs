//! Queues of work.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUstream};

use super::driver::{bind, check};
use crate::GpuError;

/// A stream of a context: its own, or one of the caller.
pub(super) struct Stream {
    raw: CUstream,
    owned: bool,
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
        Ok(Self { raw, owned: true, context: Arc::clone(context) })
    }

    /// A stream that someone else destroys.
    ///
    /// # Safety
    /// The stream belongs to the context and outlives this value.
    pub(super) unsafe fn borrowed(context: &Arc<CudaContext>, raw: *mut c_void) -> Self {
        Self { raw: raw.cast(), owned: false, context: Arc::clone(context) }
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Whether the stream records a graph.
    pub(super) fn records(&self) -> Result<bool, GpuError> {
        bind(&self.context)?;
        let none = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let mut status = none;
        // SAFETY: (1) the context is current; (2) the stream is alive; (3) the pointer is to one
        // status.
        let result = unsafe { sys::cuStreamIsCapturing(self.raw, &mut status) };
        check("cuStreamIsCapturing", result)?;
        Ok(status != none)
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
