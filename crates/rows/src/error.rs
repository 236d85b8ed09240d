//! The one error type of this crate.

use std::path::PathBuf;

/// Why a file of rows could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A line of a file is not a row.
    #[error("{}:{line}: expected a row of a bench, found {reason}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What the parser met.
        reason: String,
    },
    /// A line of a file is a row of a schema that this program does not know.
    #[error("{}:{line}: expected rows of schema 1 to {expected}, found schema {found}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The newest schema that this program reads.
        expected: u32,
        /// The schema of the line.
        found: u64,
    },
    /// A line of a file is not UTF-8 text.
    #[error("{}:{line}: expected UTF-8, found another byte at column {byte}", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The byte, counted from 1.
        byte: usize,
    },
    /// A file without rows.
    #[error("{}: expected rows of a bench, found {found}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What the file holds instead.
        found: &'static str,
    },
}

impl RowsError {
    /// Turns a system error of a file into an error that names the file.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
