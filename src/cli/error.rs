//! The error type of the command line.

use std::fmt;
use std::io::ErrorKind;

use sparsebatch::cpu::CpuError;
use sparsebatch::gpu::GpuError;
use sparsebatch::{FormatError, SolveError};

use super::Exit;

/// The error that ended a command.
#[derive(Debug)]
pub(crate) enum CliError {
    /// Bad usage or bad input.
    Input(String),
    /// A fault of the program or of the machine.
    Internal(String),
}

impl CliError {
    /// Bad input in one sentence: the subject, what was expected, and what was found.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::Input(message.into())
    }

    /// The exit code that it stands for.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Input(_) => Exit::BadInput,
            Self::Internal(_) => Exit::Internal,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Input(message) | Self::Internal(message)) = self;
        // File names may contain any character; the error stays one line.
        f.write_str(&message.replace(['\n', '\r'], " "))
    }
}

impl From<FormatError> for CliError {
    /// Memory that the system refuses is a fault of the machine; everything else is bad input.
    fn from(error: FormatError) -> Self {
        match error.innermost() {
            FormatError::Memory { .. } => Self::Internal(error.to_string()),
            FormatError::Io { source, .. } if source.kind() == ErrorKind::OutOfMemory => {
                Self::Internal(error.to_string())
            }
            FormatError::MemoryLimit { .. } => Self::Input(format!("{error} (--max-memory)")),
            _ => Self::Input(error.to_string()),
        }
    }
}

impl From<SolveError> for CliError {
    fn from(error: SolveError) -> Self {
        match error {
            SolveError::Gpu(error) => error.into(),
            error => Self::Input(error.to_string()),
        }
    }
}

impl From<CpuError> for CliError {
    fn from(error: CpuError) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<GpuError> for CliError {
    /// An error that another input or machine would avoid is bad input; the rest are faults.
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::NoDriver
            | GpuError::NoDevice { .. }
            | GpuError::DriverTooOld { .. }
            | GpuError::NvrtcMissing { .. }
            | GpuError::OutOfMemory { .. }
            | GpuError::InvalidArgument { .. }
            | GpuError::Format { .. } => Self::Input(error.to_string()),
            _ => Self::Internal(error.to_string()),
        }
    }
}
