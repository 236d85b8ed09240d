//! Files of `--pin-plan` and `--export-plan`.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use sparsebatch::io::{atomic_write, read_file};
use sparsebatch::{ArgumentError, Backend, FormatError, PlanPin, SolveError};

use super::error::CliError;

/// The backend with plans as the pin of a file says.
///
/// # Errors
/// When the file cannot be read or holds no pin, and when this machine cannot keep it.
pub(crate) fn pinned(backend: &Backend, path: &Path) -> Result<Backend, CliError> {
    backend.pinned(&read(path)?).map_err(|error: SolveError| refused(path, &error))
}

/// The pin of a file.
///
/// # Errors
/// When the file cannot be read or holds no pin.
pub(crate) fn read(path: &Path) -> Result<PlanPin, CliError> {
    let bytes = read_file(path).map_err(|source| refused(path, &source))?;
    String::from_utf8_lossy(&bytes).parse().map_err(|error: ArgumentError| refused(path, &error))
}

/// The error of a pin that cannot be kept.
pub(crate) fn refused(path: &Path, why: &dyn Display) -> CliError {
    CliError::input(format!("--pin-plan {}: {why}", path.display()))
}

/// Writes the pin of solves on a backend.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn export(path: &Path, backend: &Backend) -> Result<(), CliError> {
    let io = |source| FormatError::Io { path: path.to_owned(), source };
    Ok(atomic_write(path, |w| write!(w, "{}", PlanPin::of(backend)).map_err(io))?)
}
