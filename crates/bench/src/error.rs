//! The error type of this crate.

use std::path::PathBuf;

use sparsebatch_cuda::GpuError;
use sparsebatch_formats::FormatError;
use sparsebatch_rows::RowsError;
use sparsebatch_solvers::SolveError;

/// The error that ended a suite or a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// An option whose value matches no case, kernel or file.
    #[error("{option} is {found}, expected {expected}")]
    Option {
        /// The option as written on the command line.
        option: &'static str,
        /// The values that it accepts.
        expected: String,
        /// The value that was given.
        found: String,
    },
    /// There is no GPU, or it was lost.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A solver failed, other than by refusing a case.
    #[error(transparent)]
    Solve(SolveError),
    /// A matrix cannot be made or read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Another run is writing to the same file.
    #[error("{}: another run is writing to it, expected another --output", path.display())]
    Busy {
        /// The file of the other run.
        path: PathBuf,
    },
    /// The measured rows cannot be written to the requested file.
    #[error("{source}; {} holds the rows of this run", part.display())]
    Unfinished {
        /// The file that holds the rows so far.
        part: PathBuf,
        /// The error of writing.
        source: Box<FormatError>,
    },
    /// Rows, or recorded figures, cannot be read.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// The report cannot be printed.
    #[error("standard output: {0}")]
    Print(std::io::Error),
}

impl From<SolveError> for BenchError {
    fn from(error: SolveError) -> Self {
        match error {
            SolveError::Gpu(error) => Self::Gpu(error),
            error => Self::Solve(error),
        }
    }
}

impl BenchError {
    /// Returns a function that adds the path to an error of the operating system.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
