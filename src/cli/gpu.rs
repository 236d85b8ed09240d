//! The GPU of a command, or the reason why none is used.

use sparsebatch::gpu::Device;

use super::error::CliError;
use super::options::Backend;

/// Ordinal of the GPU that commands use.
pub(crate) const ORDINAL: usize = 0;

/// A GPU with the reason why it is used, or the reason why none is.
pub(crate) type Found<D = Device> = Result<(D, &'static str), String>;

/// Opens the GPU if `--backend` allows it.
///
/// # Errors
/// When a GPU was requested and none is usable.
pub(crate) fn open(backend: Backend) -> Result<Found, CliError> {
    open_at(backend, ORDINAL)
}

/// As [`open`], another GPU.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_at(backend: Backend, ordinal: usize) -> Result<Found, CliError> {
    if backend == Backend::Cpu {
        return Ok(Err("asked for".to_owned()));
    }
    match (Device::new(ordinal), backend) {
        (Ok(device), Backend::Gpu) => Ok(Ok((device, "asked for"))),
        (Ok(device), _) => Ok(Ok((device, "there is a GPU"))),
        (Err(error), Backend::Gpu) => Err(refused(error)),
        (Err(error), _) => Ok(Err(format!("no GPU: {error}"))),
    }
}

/// The error that ends a command with `--backend gpu`.
pub(crate) fn refused(error: impl Into<CliError>) -> CliError {
    match error.into() {
        CliError::Input(text) => CliError::Input(format!("--backend gpu: {text}")),
        CliError::Internal(text) => CliError::Internal(format!("--backend gpu: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch::gpu::GpuError;

    use super::*;

    #[test]
    fn a_missing_gpu_is_bad_usage_and_a_failing_one_a_fault() {
        let fails = GpuError::Driver { call: "cuInit", code: 999, message: "unknown".to_owned() };

        let missing = refused(GpuError::NoDevice { ordinal: 0, count: 0 });
        assert!(matches!(missing, CliError::Input(_)));
        assert!(missing.to_string().starts_with("--backend gpu: no GPU number 0"));
        assert!(matches!(refused(fails), CliError::Internal(_)));
    }

    #[test]
    fn the_cpu_is_taken_where_it_is_asked_for() {
        assert_eq!(open(Backend::Cpu).unwrap().err().as_deref(), Some("asked for"));
    }
}
