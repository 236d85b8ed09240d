//! Copies between the GPUs of a process.

use std::ops::Range;

use cudarc::driver::sys;

use super::driver::{bind, check};
use super::{Device, DeviceBuffer};
use crate::executor::check_ranges;
use crate::{GpuError, Pod};

impl Device {
    /// Lets this GPU read the memory of another one, if the two are linked; true for one and the same
    /// context.
    pub(super) fn open_way_to(&self, other: &Self) -> Result<bool, GpuError> {
        let (own, others) = (&self.shared.context, &other.shared.context);
        if own.cu_ctx() == others.cu_ctx() {
            return Ok(true);
        }
        bind(own)?;
        let mut can = 0;
        // SAFETY: (1) the context is current; (2) the pointer is to one number; (3) both contexts are
        // those of devices.
        let asked =
            unsafe { sys::cuDeviceCanAccessPeer(&mut can, own.cu_device(), others.cu_device()) };
        check("cuDeviceCanAccessPeer", asked)?;
        if can == 0 {
            return Ok(false);
        }
        // SAFETY: (1) the context is current; (2) the other one is alive.
        let opened = unsafe { sys::cuCtxEnablePeerAccess(others.cu_ctx(), 0) };
        match opened {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
            opened => check("cuCtxEnablePeerAccess", opened).map(|()| true),
        }
    }

    /// Copies values of another GPU on the stream of this one.
    pub(super) fn copy_from_gpu<T: Pod>(
        &self,
        other: &Self,
        (from, range): (&DeviceBuffer<T>, Range<usize>),
        to: &mut DeviceBuffer<T>,
        at: usize,
    ) -> Result<(), GpuError> {
        check_ranges(from.len(), &range, to.len(), at)?;
        if range.is_empty() {
            return Ok(());
        }
        let (own, others) = (&self.shared.context, &other.shared.context);
        bind(own)?;
        let offset = |values: usize| (values * size_of::<T>()) as u64;
        // SAFETY: (1) the context is current, both contexts and the stream are alive; (2) the ranges
        // were checked to lie within the buffers, each of its own context; (3) the caller orders the
        // copy with other work on both.
        let copied = unsafe {
            sys::cuMemcpyPeerAsync(
                to.raw() + offset(at),
                own.cu_ctx(),
                from.raw() + offset(range.start),
                others.cu_ctx(),
                range.len() * size_of::<T>(),
                self.stream.raw(),
            )
        };
        check("cuMemcpyPeerAsync", copied)
    }
}
