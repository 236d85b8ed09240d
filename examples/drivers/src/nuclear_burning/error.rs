//! The error type of the driver.

use std::fmt;
use std::path::PathBuf;

use sparsebatch::gpu::GpuError;
use sparsebatch::{FormatError, SolveError};

/// The reason why there is no result. A zone that could not be carried to its end is a result: see
/// [`Outcome`](crate::nuclear_burning::integrator::Outcome).
#[derive(Debug)]
pub enum BurningError {
    /// A file cannot be read, or is not JSON of the documented form.
    File {
        /// The file.
        path: PathBuf,
        /// The reason in words.
        problem: String,
    },
    /// An invalid network.
    Network {
        /// The position in the file: `nuclides[3]`, `rates[7] "c12 + he4 --> o16"`.
        place: String,
        /// The expected and the found value.
        problem: String,
    },
    /// A temperature, density, composition or time out of range.
    Zone {
        /// The zone, counted from 0.
        zone: usize,
        /// The expected and the found value.
        problem: String,
    },
    /// A setting out of range.
    Setting(String),
    /// The solver refused the linear systems, or failed.
    Solve(SolveError),
    /// A result cannot be written.
    Write(FormatError),
    /// A plot cannot be drawn.
    Plot(String),
}

impl fmt::Display for BurningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, problem } => write!(f, "{}: {problem}", path.display()),
            Self::Network { place, problem } => write!(f, "{place}: {problem}"),
            Self::Zone { zone, problem } => write!(f, "zone {zone}: {problem}"),
            Self::Setting(problem) => write!(f, "{problem}"),
            Self::Solve(error) => write!(f, "{error}"),
            Self::Write(error) => write!(f, "{error}"),
            Self::Plot(problem) => write!(f, "plot: {problem}"),
        }
    }
}

impl std::error::Error for BurningError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Solve(error) => Some(error),
            Self::Write(error) => Some(error),
            _ => None,
        }
    }
}

impl From<SolveError> for BurningError {
    fn from(error: SolveError) -> Self {
        Self::Solve(error)
    }
}

impl From<GpuError> for BurningError {
    fn from(error: GpuError) -> Self {
        Self::Solve(SolveError::Gpu(error))
    }
}

impl From<FormatError> for BurningError {
    fn from(error: FormatError) -> Self {
        Self::Write(error)
    }
}
