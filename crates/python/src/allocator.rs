//! Memory of a GPU from PyTorch, CuPy or the caller: [`Allocator`].

use std::sync::Arc;

use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::prelude::*;
use sparsebatch::gpu::Device;

use crate::errors::{GpuError, OutOfMemory};
use crate::ffi::PythonAllocator;

/// Two functions of Python that allocate and free memory of a GPU.
#[pyclass(frozen, module = "sparsebatch._native")]
pub(crate) struct Allocator(Arc<PythonAllocator>);

impl Allocator {
    /// The device with memory from this allocator.
    pub(crate) fn on(&self, device: &Device) -> Device {
        self.0.on(device)
    }

    /// A result, or what the allocator raised where that is why it is an error.
    pub(crate) fn told<R>(&self, py: Python<'_>, result: PyResult<R>) -> PyResult<R> {
        let raised = self.0.take_raised();
        match (result, raised) {
            (Err(error), Some(raised)) if error.is_instance_of::<OutOfMemory>(py) => {
                Err(refusal(py, raised))
            }
            (result, _) => result,
        }
    }
}

/// One sentence about what an allocator raised, which is its cause.
fn refusal(py: Python<'_>, raised: PyErr) -> PyErr {
    if !raised.is_instance_of::<PyException>(py) {
        // Ctrl-C.
        return raised;
    }
    let kind = raised.get_type(py).name().map_or_else(|_| "an error".to_owned(), |n| n.to_string());
    let text = raised.value(py).to_string();
    let first = text.lines().next().unwrap_or_default();
    let message = format!("the allocator of GPU memory raised {kind}: {first}");
    let is_memory = raised.is_instance_of::<PyMemoryError>(py) || kind.contains("OutOfMemory");
    let error = match is_memory {
        true => OutOfMemory::new_err(message),
        false => GpuError::new_err(message),
    };
    error.set_cause(py, Some(raised));
    error
}

#[pymethods]
impl Allocator {
    /// `malloc(bytes, stream)` returns an address, which `free(address, bytes, stream)` takes back.
    #[new]
    fn new(malloc: Py<PyAny>, free: Py<PyAny>) -> Self {
        Self(PythonAllocator::new(malloc, free))
    }

    /// Allocates and frees a few bytes, to show a faulty allocator early.
    fn try_out(&self, py: Python<'_>, bytes: usize, stream: u64) -> PyResult<()> {
        self.0.try_out(py, bytes, stream).map_err(|()| match self.0.take_raised() {
            Some(raised) => refusal(py, raised),
            None => GpuError::new_err("the allocator of GPU memory did not answer"),
        })
    }
}
