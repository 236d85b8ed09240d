//! Memory of a GPU of libraries that are not known, by its address.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sparsebatch::gpu::{Executor, device};

use crate::backend::device_of;
use crate::device::buffer;
use crate::errors::OrRaise;
use crate::ffi::device_on;

/// The number of the GPU that has this address.
#[pyfunction]
pub(crate) fn ordinal_of(address: u64) -> PyResult<usize> {
    device::ordinal_of(address).or_raise()
}

/// Bytes on a GPU, after the work on a stream.
#[pyfunction]
pub(crate) fn to_host<'py>(
    py: Python<'py>,
    ordinal: usize,
    stream: u64,
    address: u64,
    bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let copied = py.detach(|| {
        let device = device_on(&device_of(ordinal)?, stream);
        device.download(&buffer::<u8>((address, bytes))).or_raise()
    })?;
    Ok(PyBytes::new(py, &copied))
}

/// Waits for a stream of another library.
#[pyfunction]
pub(crate) fn synchronize(py: Python<'_>, ordinal: usize, stream: u64) -> PyResult<()> {
    py.detach(|| device_on(&device_of(ordinal)?, stream).synchronize().or_raise())
}
