//! Exceptions. Their classes are in `sparsebatch/errors.py`.

use pyo3::prelude::*;
use pyo3::{PyErr, import_exception};
use sparsebatch::cpu::CpuError;
use sparsebatch::gpu::GpuError as DeviceError;
use sparsebatch::{FormatError as MatrixError, SolveError};

import_exception!(sparsebatch.errors, FormatError);
import_exception!(sparsebatch.errors, OptionError);
import_exception!(sparsebatch.errors, Unsupported);
import_exception!(sparsebatch.errors, GpuError);
import_exception!(sparsebatch.errors, OutOfMemory);
import_exception!(sparsebatch.errors, Broken);
import_exception!(sparsebatch.errors, Forked);
import_exception!(sparsebatch.errors, RankFailed);
import_exception!(sparsebatch.errors, Stopped);

/// A solver or plan whose last call ended in a panic.
pub(crate) fn lost() -> PyErr {
    Broken::new_err("the solver was lost in an earlier failure: make it anew")
}

/// An exception of the class that fits an error of the library, with its message.
pub(crate) trait IntoException {
    fn into_exception(self) -> PyErr;
}

impl IntoException for MatrixError {
    fn into_exception(self) -> PyErr {
        let message = self.to_string();
        match self.innermost() {
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                pyo3::exceptions::PyFileNotFoundError::new_err(message)
            }
            Self::Io { .. } => pyo3::exceptions::PyOSError::new_err(message),
            Self::Memory { .. } | Self::MemoryLimit { .. } => {
                pyo3::exceptions::PyMemoryError::new_err(message)
            }
            _ => FormatError::new_err(message),
        }
    }
}

impl IntoException for CpuError {
    fn into_exception(self) -> PyErr {
        match self {
            Self::Format(error) => error.into_exception(),
            Self::Forked { .. } => Forked::new_err(format!("{self}; in Python, give threads=")),
            Self::Argument(error) => error.into_exception(),
            _ => OptionError::new_err(self.to_string()),
        }
    }
}

impl IntoException for DeviceError {
    fn into_exception(self) -> PyErr {
        let message = self.to_string();
        match self {
            Self::Format { .. } => FormatError::new_err(message),
            Self::Length { .. } | Self::InvalidArgument { .. } | Self::OtherPattern { .. } => {
                OptionError::new_err(message)
            }
            Self::OutOfMemory { .. } => OutOfMemory::new_err(message),
            _ => GpuError::new_err(message),
        }
    }
}

/// The names of options in Python, where they differ from those of the library.
const NAMES: &[(&str, &str)] =
    &[("rel_tol", "rtol"), ("abs_tol", "atol"), ("max_iters", "maxiter"), ("solver", "method")];

/// A message of another rank, whose options have their names in Python.
pub(crate) fn in_python(message: &str) -> String {
    NAMES.iter().fold(message.to_owned(), |message, (name, own)| {
        message.replacen(&format!("{name} is "), &format!("{own} is "), 1)
    })
}

impl IntoException for sparsebatch::ArgumentError {
    fn into_exception(mut self) -> PyErr {
        if let Self::OutOfRange { name, .. } | Self::Length { what: name, .. } = &mut self
            && let Some((_, in_python)) = NAMES.iter().find(|(other, _)| other == name)
        {
            *name = in_python;
        }
        OptionError::new_err(self.to_string())
    }
}

impl IntoException for SolveError {
    fn into_exception(self) -> PyErr {
        let message = self.to_string();
        match self {
            Self::Cpu(error) => error.into_exception(),
            Self::Argument(error) => error.into_exception(),
            Self::Gpu(error) => error.into_exception(),
            Self::Unsupported { .. } => Unsupported::new_err(message),
            Self::Stopped { .. } => Stopped::new_err(message),
            _ => OptionError::new_err(message),
        }
    }
}

/// `result.or_raise()?` in functions that Python calls.
pub(crate) trait OrRaise<T> {
    fn or_raise(self) -> PyResult<T>;
}

impl<T, E: IntoException> OrRaise<T> for Result<T, E> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(IntoException::into_exception)
    }
}
