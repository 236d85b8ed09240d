//! Memory of a GPU from an allocator of Python: [`PythonAllocator`].

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use sparsebatch::gpu::{Device, DeviceAllocator, GpuError};

/// Two functions of Python: `malloc(bytes, stream) -> address`, `free(address, bytes, stream)`.
pub(crate) struct PythonAllocator {
    malloc: Py<PyAny>,
    free: Py<PyAny>,
    /// What `malloc` raised last.
    raised: Mutex<Option<PyErr>>,
}

impl PythonAllocator {
    pub(crate) fn new(malloc: Py<PyAny>, free: Py<PyAny>) -> Arc<Self> {
        Arc::new(Self { malloc, free, raised: Mutex::default() })
    }

    /// The device with memory from this allocator.
    pub(crate) fn on(self: &Arc<Self>, device: &Device) -> Device {
        // SAFETY: solvers of this package use the memory on the stream of their device alone, and
        // their branches have ended when a call returns.
        unsafe { device.with_allocator(Arc::clone(self) as Arc<dyn DeviceAllocator>) }
    }

    /// What `malloc` raised since the last call of this function.
    pub(crate) fn take_raised(&self) -> Option<PyErr> {
        self.raised.lock().ok()?.take()
    }

    /// Allocates memory and frees it, as a device does; the exception is in `take_raised`.
    pub(crate) fn try_out(&self, py: Python<'_>, bytes: usize, stream: u64) -> Result<(), ()> {
        py.detach(|| {
            let stream = std::ptr::without_provenance_mut::<c_void>(stream as usize);
            let address = self.allocate(bytes, stream).map_err(drop)?;
            // SAFETY: the memory is that of the line above.
            unsafe { DeviceAllocator::free(self, address, bytes, stream) };
            Ok(())
        })
    }

    /// Calls `malloc`, and checks what it returns.
    fn address(&self, py: Python<'_>, bytes: usize, stream: u64) -> PyResult<u64> {
        let address = self.malloc.bind(py).call1((bytes, stream))?.extract::<u64>()?;
        match address != 0 && address % 256 == 0 {
            true => Ok(address),
            false => Err(pyo3::exceptions::PyValueError::new_err(format!(
                "malloc returned {address:#x}, expected an address that is a multiple of 256"
            ))),
        }
    }

    fn release(&self, py: Python<'_>, address: u64, bytes: usize, stream: u64) {
        if let Err(error) = self.free.bind(py).call1((address, bytes, stream)) {
            // As for exceptions of `__del__`: nobody is there to catch it.
            error.write_unraisable(py, Some(self.free.bind(py)));
        }
    }
}

// SAFETY: the contract is that of the functions of Python, said in the documentation of `Solver`;
// addresses are checked for their alignment.
unsafe impl DeviceAllocator for PythonAllocator {
    fn allocate(&self, bytes: usize, stream: *mut c_void) -> Result<u64, GpuError> {
        let refused = GpuError::OutOfMemory { needed: bytes as u64, free: 0 };
        let address = Python::try_attach(|py| {
            self.address(py, bytes, stream.addr() as u64).map_err(|error| {
                if let Ok(mut raised) = self.raised.lock() {
                    *raised = Some(error);
                }
            })
        });
        match address {
            Some(Ok(address)) => Ok(address),
            // The allocator raised, or the interpreter is about to end.
            _ => Err(refused),
        }
    }

    unsafe fn free(&self, address: u64, bytes: usize, stream: *mut c_void) {
        // Without an interpreter the process ends, and the memory with it.
        Python::try_attach(|py| self.release(py, address, bytes, stream.addr() as u64));
    }
}
