//! Arrays of Python by the buffer protocol: [`Input`], [`Output`].

use std::slice;

use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;

use crate::errors::OptionError;

/// An array that is read. The buffer is held: NumPy refuses to resize it meanwhile, and it stays
/// alive when its last name is deleted.
pub(crate) struct Input<T: Element>(PyBuffer<T>);

impl<T: Element> Input<T> {
    pub(crate) fn of(name: &str, array: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(contiguous(name, array)?))
    }
}

impl<T: Element> AsRef<[T]> for Input<T> {
    fn as_ref(&self) -> &[T] {
        match self.0.as_slice_ptr() {
            None => &[],
            Some(values) if values.is_empty() => &[],
            // SAFETY: the buffer is contiguous, of elements of this type, and held by this value.
            // Programs do not write to arrays of a solve before it has ended: the documentation of
            // the package says so, and NumPy's own functions without the interpreter's lock expect
            // the same.
            Some(values) => unsafe { slice::from_raw_parts(values.as_ptr().cast(), values.len()) },
        }
    }
}

/// An array that is written to.
pub(crate) struct Output<T: Element>(PyBuffer<T>);

impl<T: Element> Output<T> {
    pub(crate) fn of(name: &str, array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(name, array)?;
        match buffer.readonly() {
            true => Err(OptionError::new_err(format!(
                "{name} is read-only, expected an array to write to"
            ))),
            false => Ok(Self(buffer)),
        }
    }

    pub(crate) fn as_mut(&mut self) -> &mut [T] {
        match self.0.as_slice_ptr() {
            None => &mut [],
            Some(values) if values.is_empty() => &mut [],
            // SAFETY: as for `Input`; the buffer may be written to, and the Python part of this
            // package passes no array twice in a call.
            Some(values) => unsafe {
                slice::from_raw_parts_mut(values.as_ptr().cast(), values.len())
            },
        }
    }
}

fn contiguous<T: Element>(name: &str, array: &Bound<'_, PyAny>) -> PyResult<PyBuffer<T>> {
    let buffer = PyBuffer::<T>::get(array)
        .map_err(|error| OptionError::new_err(format!("{name}: {error}")))?;
    match buffer.as_slice_ptr() {
        Some(_) => Ok(buffer),
        None => Err(OptionError::new_err(format!("{name} is not contiguous, expected C order"))),
    }
}
