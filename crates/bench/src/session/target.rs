//! What a run measures.

use sparsebatch_cuda::device::availability;

use crate::BenchError;

/// What is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The first GPU.
    #[default]
    Gpu,
    /// The processor.
    Cpu,
    /// One after the other.
    Both,
}

/// What of a machine is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The processor.
    pub(crate) host: bool,
    /// Why the GPU is not; `None` where it is.
    pub(crate) no_gpu: Option<String>,
}

impl Target {
    /// What was asked for, else the GPU if there is one, else the processor.
    ///
    /// # Errors
    /// The reason why there is no GPU, where it was asked for.
    pub(crate) fn of(backend: Option<Backend>) -> Result<Self, BenchError> {
        Ok(match backend {
            None => match availability() {
                Ok(_) => Self { host: false, no_gpu: None },
                Err(error) => Self { host: true, no_gpu: Some(format!("no GPU: {error}")) },
            },
            Some(Backend::Cpu) => {
                Self { host: true, no_gpu: Some("left out by --backend cpu".to_owned()) }
            }
            Some(backend) => {
                availability()?;
                Self { host: backend == Backend::Both, no_gpu: None }
            }
        })
    }

    /// The same, on the processor whether or not there is a GPU; a GPU where there is one.
    ///
    /// # Errors
    /// As [`Target::of`].
    pub(crate) fn with_host(backend: Option<Backend>) -> Result<Self, BenchError> {
        let found = Self::of(backend)?;
        Ok(Self { host: found.host || backend.is_none(), ..found })
    }
}
