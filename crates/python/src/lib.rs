//! The native part of the Python package `sparsebatch`: arrays by the buffer protocol or by their
//! address on a GPU, solvers, products, reports. Its Python part is in `python/sparsebatch`.
#![deny(unsafe_code)]

mod allocator;
mod backend;
mod device;
mod distributed;
mod errors;
#[allow(unsafe_code)]
mod ffi;
mod files;
mod formats;
mod interrupt;
mod jax;
mod limits;
mod memory;
mod options;
mod patterns;
mod precision;
mod ranks;
mod report;
mod solver;
mod spmv;

use pyo3::prelude::*;

/// The native part of `sparsebatch`.
#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use super::allocator::Allocator;
    #[pymodule_export]
    use super::backend::{devices, driver, gpu_unavailable, use_nvrtc};
    #[pymodule_export]
    use super::command_line;
    #[pymodule_export]
    use super::device::DeviceSolver;
    #[pymodule_export]
    use super::distributed::Distributed;
    #[pymodule_export]
    use super::ffi::ManagedArray;
    #[pymodule_export]
    use super::files::{load, save};
    #[pymodule_export]
    use super::formats::{convert, to_csr};
    #[pymodule_export]
    use super::jax::{jax_clear, jax_counts, jax_handler, jax_register};
    #[pymodule_export]
    use super::memory::{ordinal_of, synchronize, to_host};
    #[pymodule_export]
    use super::patterns::Patterns;
    #[pymodule_export]
    use super::ranks::{
        costs_of, machine_of, own_cores, rank_gpus, rank_threads, seen_gpus, shares_of,
    };
    #[pymodule_export]
    use super::report::{Report, rung_names, status_names};
    #[pymodule_export]
    use super::solver::Solver;
    #[pymodule_export]
    use super::spmv::{DeviceSpmv, Spmv};

    /// The version of the library.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}

/// Runs the command line with these arguments, the name of the program among them, and returns its
/// exit code.
#[pyfunction]
fn command_line(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| sparsebatch::cli::main_with(arguments))
}
