//! Arrays on a GPU by their address.

use std::ffi::c_void;

use sparsebatch::gpu::{Device, DeviceBuffer, Pod};

/// A buffer over `len` values at an address that a Python array has told.
///
/// The Python part of this package holds the array for as long as the call or the solver that uses
/// the buffer, and takes address, length and device from its `__cuda_array_interface__` or its
/// methods, whose owner answers for them.
pub(crate) fn view<T: Pod>(address: u64, len: usize) -> DeviceBuffer<T> {
    // SAFETY: see above; other writes are ordered by the stream that comes with the arrays.
    unsafe { DeviceBuffer::from_raw(address, len) }
}

/// The device with a stream of another library, by its address.
pub(crate) fn device_on(device: &Device, stream: u64) -> Device {
    // SAFETY: the Python part takes streams from CuPy, PyTorch or JAX, of the device's primary
    // context, and holds them for as long as the solver.
    unsafe { device.with_raw_stream(stream as usize as *mut c_void) }
}
