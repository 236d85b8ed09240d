//! The GPU of a command: which one, or why none.

use sparsebatch::gpu::Device;

use super::error::CliError;
use super::options::Backend;

/// The GPU that commands use.
pub(crate) const ORDINAL: usize = 0;

/// A GPU and why it is taken, or why none is.
pub(crate) type Found<D = Device> = Result<(D, &'static str), String>;

/// Opens the GPU, as `--backend` says.
///
/// # Errors
/// Without a usable GPU when it was asked for.
pub(crate) fn open(backend: Backend) -> Result<Found, CliError> {
    if backend == Backend::Cpu {
        return Ok(Err("asked for".to_owned()));
    }
    match (Device::new(ORDINAL), backend) {
        (Ok(device), Backend::Gpu) => Ok(Ok((device, "asked for"))),
        (Ok(device), _) => Ok(Ok((device, "there is a GPU"))),
        (Err(error), Backend::Gpu) => Err(refused(error)),
        (Err(error), _) => Ok(Err(format!("no GPU: {error}"))),
    }
}

/// What `--backend gpu` ends with.
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
