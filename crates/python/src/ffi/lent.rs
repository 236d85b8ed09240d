//! What crosses the interpreter's lock or its memory for the time of a call: [`LentBytes`],
//! [`Carried`].

use std::ffi::{c_char, c_int};
use std::marker::PhantomData;

use pyo3::ffi;
use pyo3::prelude::*;

/// Bytes of Rust that Python sees for as long as this value borrows them.
pub(crate) struct LentBytes<'b> {
    start: *mut u8,
    len: usize,
    flags: c_int,
    bytes: PhantomData<&'b mut [u8]>,
}

impl<'b> LentBytes<'b> {
    /// To read from.
    pub(crate) fn of(bytes: &'b [u8]) -> Self {
        let start = bytes.as_ptr().cast_mut();
        Self { start, len: bytes.len(), flags: ffi::PyBUF_READ, bytes: PhantomData }
    }

    /// To write to.
    pub(crate) fn of_mut(bytes: &'b mut [u8]) -> Self {
        let start = bytes.as_mut_ptr();
        Self { start, len: bytes.len(), flags: ffi::PyBUF_WRITE, bytes: PhantomData }
    }

    /// A `memoryview` of them.
    ///
    /// # Safety
    /// No code of Python keeps a view, or a part of one, for longer than this value lives.
    pub(crate) unsafe fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let len = self.len.try_into()?;
        // SAFETY: the interpreter's lock is held; the memory has `len` bytes, which nobody else writes
        // to while this value borrows them, and views are gone before it is. A view to read from
        // refuses to be written to.
        unsafe {
            let view = ffi::PyMemoryView_FromMemory(self.start.cast::<c_char>(), len, self.flags);
            Bound::from_owned_ptr_or_err(py, view)
        }
    }
}

/// A value that one thread at a time uses.
///
/// Work without the interpreter's lock is asked to be `Send`, so that it holds no object of Python
/// that needs the lock; work on the threads of a solver goes to one of them, while the thread that
/// gave it waits. A rank's transport may be in both.
pub(crate) struct Carried<V> {
    value: V,
}

// SAFETY: one thread at a time uses the value: that which has the lock or made it, or the one for which
// that waits. What it holds of Python is counted under the interpreter's lock (`Py`), which its methods
// take, and MPI allows calls from several threads one after the other, which the Python part of the
// package has checked.
unsafe impl<V> Send for Carried<V> {}

impl<V> Carried<V> {
    pub(crate) fn new(value: V) -> Self {
        Self { value }
    }

    pub(crate) fn take(self) -> V {
        self.value
    }

    pub(crate) fn get(&self) -> &V {
        &self.value
    }

    pub(crate) fn get_mut(&mut self) -> &mut V {
        &mut self.value
    }
}
