//! Recorded sequences of launches.

use std::ptr;

use cudarc::driver::sys::{self, CUgraph, CUgraphExec};

use super::Device;
use super::driver::{bind, check};
use crate::GpuError;

/// Recorded work that one call starts again, on the stream it was recorded on.
pub struct Graph {
    raw: CUgraphExec,
    device: Device,
}

// SAFETY: the handle may be used from any thread to which the context is bound, which every method
// does first. It is not `Sync`: the driver does not synchronise access to it.
unsafe impl Send for Graph {}

impl Graph {
    /// Starts the recorded work. Does not wait for it.
    ///
    /// # Errors
    /// What the driver reports.
    ///
    /// # Safety
    /// The safety conditions of the recorded launches hold again: in particular the buffers they
    /// use, also those inside plans, are alive until the work is done.
    pub unsafe fn launch(&self) -> Result<(), GpuError> {
        bind(&self.device.shared.context)?;
        // SAFETY: (1) the context is current; (2) graph and stream are alive; (3) the memory that
        // the work uses is alive, by the contract of this function.
        let result = unsafe { sys::cuGraphLaunch(self.raw, self.device.stream.raw()) };
        check("cuGraphLaunch", result)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if bind(&self.device.shared.context).is_ok() {
            // SAFETY: the handle was made by `Device::capture` and is destroyed only here.
            unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}

impl Device {
    /// Records the work that `record` issues to the stream of this device, instead of running it.
    ///
    /// Kernels must be [prepared](crate::Executor::prepare) before, and `record` may launch, fill
    /// with zeros and record events, but neither allocate, free, copy to or from the host, nor
    /// wait.
    ///
    /// # Errors
    /// The error of `record`; what the driver reports, also for a forbidden operation in `record`.
    /// In either case the stream has stopped recording. The legacy default stream cannot record.
    pub fn capture(
        &self,
        record: impl FnOnce(&Device) -> Result<(), GpuError>,
    ) -> Result<Graph, GpuError> {
        let capture = Capture::begin(self)?;
        let recorded = record(self);
        let template = capture.end();
        recorded?;
        let template = template?;
        let mut raw = ptr::null_mut();
        // SAFETY: (1) the context is current; (2) the graph is alive; (3) the pointer is to one
        // handle.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, template.0, 0) };
        check("cuGraphInstantiate", result)?;
        Ok(Graph { raw, device: self.clone() })
    }

    /// Whether the stream is recording, whoever started the recording.
    pub(super) fn records(&self) -> Result<bool, GpuError> {
        bind(&self.shared.context)?;
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: (1) the context is current; (2) the stream is alive; (3) the pointer is to one
        // status.
        let result = unsafe { sys::cuStreamIsCapturing(self.stream.raw(), &mut status) };
        check("cuStreamIsCapturing", result)?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }
}

/// A graph as recorded, destroyed on drop.
struct Template(CUgraph);

impl Drop for Template {
    fn drop(&mut self) {
        // SAFETY: the handle was made by `cuStreamEndCapture` and is destroyed only here.
        unsafe { sys::cuGraphDestroy(self.0) };
    }
}

/// A running recording of a stream. It ends on drop, so that a panic does not leave the stream
/// recording.
struct Capture<'a> {
    device: &'a Device,
    ended: bool,
}

impl<'a> Capture<'a> {
    fn begin(device: &'a Device) -> Result<Self, GpuError> {
        bind(&device.shared.context)?;
        // Other threads may allocate during the recording.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: (1) the context is current; (2) the stream is alive.
        let result = unsafe { sys::cuStreamBeginCapture_v2(device.stream.raw(), mode) };
        check("cuStreamBeginCapture", result)?;
        Ok(Self { device, ended: false })
    }

    fn end(mut self) -> Result<Template, GpuError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<Template, GpuError> {
        self.ended = true;
        bind(&self.device.shared.context)?;
        let mut graph = ptr::null_mut();
        // SAFETY: (1) the context is current; (2) the stream is alive and records since `begin`;
        // (3) the pointer is to one handle.
        let result = unsafe { sys::cuStreamEndCapture(self.device.stream.raw(), &mut graph) };
        check("cuStreamEndCapture", result)?;
        Ok(Template(graph))
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.finish().ok();
        }
    }
}
