//! Arrays of other libraries by DLPack: [`ManagedArray`].
//!
//! The structs are those of `dlpack.h`, versions 0.8 and 1.x, which keep their layout within a
//! major version.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::slice;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
/// The newest major version whose layout is known.
const MAJOR: u32 = 1;
const READ_ONLY: u64 = 1;

/// Of an array that was copied for us: what is written there does not reach its owner.
const IS_COPIED: u64 = 2;
/// More dimensions than any array has; NumPy allows 64.
const MOST_DIMENSIONS: i32 = 64;

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct Plain {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Plain)>,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

/// What a capsule held. The producer keeps the memory until this is dropped.
enum Managed {
    Plain(NonNull<Plain>),
    Versioned(NonNull<Versioned>),
}

// SAFETY: DLPack lets any thread use a tensor and call its deleter.
unsafe impl Send for Managed {}
// SAFETY: nothing is written through the pointers before they are dropped.
unsafe impl Sync for Managed {}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: the consumer of a capsule calls the deleter once, which frees the struct; the
        // capsule was renamed, so that nobody else does.
        unsafe {
            match *self {
                Self::Plain(managed) => {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
                Self::Versioned(managed) => {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
            }
        }
    }
}

/// An array of another library, taken out of the capsule of its `__dlpack__`.
#[pyclass(frozen, module = "sparsebatch._native")]
pub(crate) struct ManagedArray(Managed);

impl ManagedArray {
    fn tensor(&self) -> &Tensor {
        // SAFETY: the structs live until this value is dropped.
        unsafe {
            match &self.0 {
                Managed::Plain(managed) => &managed.as_ref().tensor,
                Managed::Versioned(managed) => &managed.as_ref().tensor,
            }
        }
    }

    fn numbers(&self, numbers: *const i64) -> Vec<i64> {
        let ndim = usize::try_from(self.tensor().ndim).unwrap_or(0);
        match numbers.is_null() || ndim == 0 {
            true => Vec::new(),
            // SAFETY: shape and strides have one number for each dimension, says DLPack; `new` has
            // checked that there are not more dimensions than an array can have.
            false => unsafe { slice::from_raw_parts(numbers, ndim).to_vec() },
        }
    }
}

#[pymethods]
impl ManagedArray {
    /// Takes the array out of a capsule.
    #[new]
    fn new(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let raw = capsule.as_ptr();
        let refused = |text: String| PyBufferError::new_err(text);
        // SAFETY: (1) the object is alive and the interpreter's lock is held; (2) a capsule with
        // one of these names holds a pointer to the struct of this name; (3) renamed, it is not
        // consumed again, and its own destructor leaves the struct alone.
        let managed = unsafe {
            if ffi::PyCapsule_IsValid(raw, VERSIONED.as_ptr()) == 1 {
                let pointer = ffi::PyCapsule_GetPointer(raw, VERSIONED.as_ptr());
                let managed = NonNull::new(pointer.cast::<Versioned>());
                let managed = managed.ok_or_else(|| refused("the capsule is empty".to_owned()))?;
                if managed.as_ref().major != MAJOR {
                    let (major, minor) = (managed.as_ref().major, managed.as_ref().minor);
                    return Err(refused(format!(
                        "the capsule has DLPack version {major}.{minor}, expected {MAJOR}"
                    )));
                }
                rename(raw, c"used_dltensor_versioned")?;
                Managed::Versioned(managed)
            } else if ffi::PyCapsule_IsValid(raw, PLAIN.as_ptr()) == 1 {
                let pointer = ffi::PyCapsule_GetPointer(raw, PLAIN.as_ptr());
                let managed = NonNull::new(pointer.cast::<Plain>());
                let managed = managed.ok_or_else(|| refused("the capsule is empty".to_owned()))?;
                rename(raw, c"used_dltensor")?;
                Managed::Plain(managed)
            } else {
                let text = "it returned no capsule of DLPack, or one that was used";
                return Err(refused(text.to_owned()));
            }
        };
        let this = Self(managed);
        let tensor = this.tensor();
        if !(0..=MOST_DIMENSIONS).contains(&tensor.ndim)
            || (tensor.ndim > 0 && tensor.shape.is_null())
        {
            let ndim = tensor.ndim;
            return Err(refused(format!("the tensor has {ndim} dimensions and no shape for them")));
        }
        Ok(this)
    }

    /// Kind and number of the device, as in `__dlpack_device__`.
    #[getter]
    fn device(&self) -> (i32, i32) {
        (self.tensor().device_type, self.tensor().device_id)
    }

    /// Code, bits and lanes of an element.
    #[getter]
    fn dtype(&self) -> (u8, u8, u16) {
        let tensor = self.tensor();
        (tensor.code, tensor.bits, tensor.lanes)
    }

    /// The address of the first element.
    #[getter]
    fn address(&self) -> u64 {
        (self.tensor().data.addr() as u64).wrapping_add(self.tensor().byte_offset)
    }

    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.numbers(self.tensor().shape)
    }

    /// Strides in elements; `None` for C order.
    #[getter]
    fn strides(&self) -> Option<Vec<i64>> {
        let strides = self.tensor().strides;
        (!strides.is_null()).then(|| self.numbers(strides))
    }

    #[getter]
    fn readonly(&self) -> bool {
        match &self.0 {
            Managed::Plain(_) => false,
            // SAFETY: as for `tensor`.
            Managed::Versioned(managed) => unsafe {
                managed.as_ref().flags & (READ_ONLY | IS_COPIED) != 0
            },
        }
    }
}

/// Marks a capsule as consumed.
///
/// # Safety
/// `capsule` is a capsule, and the interpreter's lock is held.
unsafe fn rename(capsule: *mut ffi::PyObject, name: &'static CStr) -> PyResult<()> {
    // SAFETY: the contract of this function; the name is static.
    match unsafe { ffi::PyCapsule_SetName(capsule, name.as_ptr()) } {
        0 => Ok(()),
        _ => Err(PyBufferError::new_err("the capsule could not be marked as used")),
    }
}
