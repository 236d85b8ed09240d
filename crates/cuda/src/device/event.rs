//! Points in a stream, for timing and waiting.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUevent};

use super::Device;
use super::driver::{bind, check};
use crate::GpuError;

/// A point in the work of a stream. The GPU measures the time between two events.
#[derive(Debug)]
pub struct Event {
    raw: CUevent,
    context: Arc<CudaContext>,
}

// SAFETY: the handle may be used from any thread to which the context is bound, which every method
// does first; the driver synchronises access to it.
unsafe impl Send for Event {}
// SAFETY: as for `Send`.
unsafe impl Sync for Event {}

impl Event {
    /// An event that has passed.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn new(device: &Device) -> Result<Self, GpuError> {
        let context = Arc::clone(&device.shared.context);
        bind(&context)?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: (1) the context is current; (2) the pointer is to one handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, flags) })?;
        Ok(Self { raw, context })
    }

    /// Records the event after all work issued to the stream of `device` so far. Does not wait.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn record(&self, device: &Device) -> Result<(), GpuError> {
        bind(&self.context)?;
        // SAFETY: (1) the context is current; (2) event and stream are alive.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, device.stream.raw()) })
    }

    /// Makes all later work on the stream of `device` wait for the event. The host does not wait.
    ///
    /// # Errors
    /// What the driver reports, also while the stream records a graph that the event is not part
    /// of.
    pub fn hold(&self, device: &Device) -> Result<(), GpuError> {
        bind(&self.context)?;
        // SAFETY: (1) the context is current; (2) event and stream are alive; (3) 0 is the one flag
        // for streams that do not record.
        let result = unsafe { sys::cuStreamWaitEvent(device.stream.raw(), self.raw, 0) };
        check("cuStreamWaitEvent", result)
    }

    /// Waits until the event has passed.
    ///
    /// # Errors
    /// [`GpuError::ContextLost`] for a fault of a kernel before the event.
    pub fn wait(&self) -> Result<(), GpuError> {
        bind(&self.context)?;
        // SAFETY: (1) the context is current; (2) the event is alive.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Milliseconds from this event to a later one, both recorded before. Waits for the later one.
    ///
    /// # Errors
    /// As [`Event::wait`], and what the driver reports for an event that was never recorded.
    pub fn elapsed_ms(&self, later: &Self) -> Result<f32, GpuError> {
        later.wait()?;
        let mut ms = 0.0;
        // SAFETY: (1) the context is current; (2) both events are alive; (3) the pointer is to one
        // value.
        let result = unsafe { sys::cuEventElapsedTime_v2(&mut ms, self.raw, later.raw) };
        check("cuEventElapsedTime", result)?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if bind(&self.context).is_ok() {
            // SAFETY: the event was made by `Event::new` and is destroyed only here.
            unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}
