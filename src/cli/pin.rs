//! Files of `--pin-plan` and `--export-plan`.

use std::io::Write;
use std::path::Path;

use sparsebatch::io::{atomic_write, read_file};
use sparsebatch::{Backend, FormatError, PlanPin, SolveError};

use super::error::CliError;

/// The backend with plans as the pin of a file says.
///
/// # Errors
/// When the file cannot be read or holds no pin, and when this machine cannot keep it.
pub(crate) fn pinned(backend: &Backend, path: &Path) -> Result<Backend, CliError> {
    let refused = |why: String| CliError::input(format!("--pin-plan {}: {why}", path.display()));
    let bytes = read_file(path).map_err(|source| refused(source.to_string()))?;
    let text = String::from_utf8_lossy(&bytes);
    let pin: PlanPin = text.parse().map_err(|error| refused(format!("{error}")))?;
    backend.pinned(&pin).map_err(|error: SolveError| refused(error.to_string()))
}

/// Writes the pin of solves on a backend.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn export(path: &Path, backend: &Backend) -> Result<(), CliError> {
    let io = |source| FormatError::Io { path: path.to_owned(), source };
    Ok(atomic_write(path, |w| write!(w, "{}", PlanPin::of(backend)).map_err(io))?)
}
