//! What is kept in one of two precisions, behind a lock.

use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::errors::lost;

/// Calls the same method of the variants `F64` and `F32` of an enum.
macro_rules! each {
    ($kind:ident, $engine:expr, $own:ident => $call:expr) => {
        match $engine {
            $kind::F64($own) => $call,
            $kind::F32($own) => $call,
        }
    };
}
pub(crate) use each;

/// Waits for a lock that another thread of the program may hold, without the interpreter's lock.
pub(crate) fn locked<'a, V>(py: Python<'_>, value: &'a Mutex<V>) -> PyResult<MutexGuard<'a, V>> {
    value.lock_py_attached(py).map_err(|_| lost())
}
