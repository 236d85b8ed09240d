//! Where batches are solved.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sparsebatch::gpu::{Device, device};
use sparsebatch::{Backend, Gpu, PlanPin};

use crate::errors::{IntoException, OptionError, OrRaise};

/// The GPU with this number.
pub(crate) fn device_of(ordinal: usize) -> PyResult<Device> {
    Device::of_process(ordinal).or_raise()
}

/// `("cpu", _)`, `("gpu", ordinals)`, or `("auto", ordinals)`: GPUs where there are some.
pub(crate) fn backend(place: &(String, Vec<usize>), pin: Option<&PlanPin>) -> PyResult<Backend> {
    let gpu = |&ordinal: &usize| Ok(Gpu::new(device_of(ordinal)?).or_cpu(true).in_chunks(true));
    let gpus = || Backend::gpus(place.1.iter().map(gpu).collect::<PyResult<_>>()?).or_raise();
    let backend = match place.0.as_str() {
        "cpu" => Backend::Cpu,
        "gpu" => gpus()?,
        "auto" => gpus().unwrap_or(Backend::Cpu),
        name => return Err(OptionError::new_err(format!("no backend is called {name}"))),
    };
    match pin {
        Some(pin) => backend.pinned(pin).or_raise(),
        None => Ok(backend),
    }
}

/// The GPUs that the driver shows: number, name, compute capability and bytes of memory.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let count = device::availability().or_raise()?.device_count;
    (0..count)
        .map(|ordinal| {
            let device = device_of(ordinal)?;
            let info = sparsebatch::gpu::Executor::info(&device);
            let entry = PyDict::new(py);
            entry.set_item("device", format!("cuda:{ordinal}"))?;
            entry.set_item("name", &info.name)?;
            entry.set_item("compute_capability", info.compute_capability)?;
            entry.set_item("total_bytes", device.memory().or_raise()?.total_bytes)?;
            Ok(entry)
        })
        .collect()
}

/// Why there is no usable GPU; `None` where there is one.
#[pyfunction]
pub(crate) fn gpu_unavailable() -> Option<String> {
    device::availability().err().map(|error| error.to_string())
}

/// The newest version of CUDA that the driver supports, as `(major, minor)`; `None` without a driver
/// or a GPU. Does not look for the compiler of the kernels.
#[pyfunction]
pub(crate) fn driver() -> Option<(u32, u32)> {
    let (version, count) = device::availability::driver().ok()?;
    (count > 0).then_some((version.major, version.minor))
}

/// Takes the compiler of the kernels from a file or folder, and returns its path and version.
#[pyfunction]
pub(crate) fn use_nvrtc(place: std::path::PathBuf) -> PyResult<(Option<String>, String)> {
    let info = device::library::use_nvrtc(place).map_err(IntoException::into_exception)?;
    Ok((info.path.map(|path| path.display().to_string()), info.version.to_string()))
}
