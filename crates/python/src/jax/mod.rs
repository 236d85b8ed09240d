//! Solves within JAX's programs: handlers that XLA calls, and the solvers that they keep.
//!
//! | file | holds |
//! | --- | --- |
//! | `xla/` | XLA's interface in C |
//! | `specs.rs` | patterns and options by the key that a program holds |
//! | `plans.rs` | analyses and factors, kept from call to call |
//! | `host.rs` | solves on the CPU |
//! | `device.rs` | solves on a GPU |

mod device;
mod host;
mod plans;
mod specs;
#[allow(unsafe_code)]
mod xla;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::options::Options;
use crate::patterns::Patterns;

/// Makes patterns and options known under a key that is made of their content. Programs find them
/// by it as long as the process lives.
#[pyfunction]
pub(crate) fn jax_register(
    key: String,
    patterns: Bound<'_, Patterns>,
    options: Options<'_>,
) -> PyResult<()> {
    specs::register(key, patterns.unbind(), options.solve_options()?);
    Ok(())
}

/// The handler of a platform: `"cpu"` or `"CUDA"`.
#[pyfunction]
pub(crate) fn jax_handler<'py>(py: Python<'py>, platform: &str) -> PyResult<Bound<'py, PyCapsule>> {
    xla::capsule(py, platform)
}

/// How many patterns were analysed since the start, how many analyses are kept, and how many solves
/// took kept factors.
#[pyfunction]
pub(crate) fn jax_counts() -> (usize, usize, usize) {
    plans::counts()
}

/// Drops the analyses and factors that are kept.
#[pyfunction]
pub(crate) fn jax_clear() {
    plans::clear();
}
