//! The devices that a run measures.

use sparsebatch_cuda::device::availability;

use crate::BenchError;

/// The devices to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The first GPU.
    #[default]
    Gpu,
    /// The processor.
    Cpu,
    /// The GPU and the processor, one after the other.
    Both,
}

/// The devices of a machine that are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The processor.
    pub(crate) host: bool,
    /// Why the GPU is not measured; `None` where it is.
    pub(crate) no_gpu: Option<String>,
}

impl Target {
    /// The requested devices; without a request, the GPU if there is one, else the processor.
    ///
    /// # Errors
    /// The reason why there is no GPU, if one was requested.
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

    /// As [`Target::of`], but without a request the processor is measured as well as a GPU.
    ///
    /// # Errors
    /// As [`Target::of`].
    pub(crate) fn with_host(backend: Option<Backend>) -> Result<Self, BenchError> {
        let found = Self::of(backend)?;
        Ok(Self { host: found.host || backend.is_none(), ..found })
    }
}
