//! Files that `solve` writes: solutions and residual histories.

use std::io::Write;
use std::path::Path;

use sparsebatch::io::{Packing, atomic_write, write_arrays, write_vector};
use sparsebatch::{BatchReport, FormatError};

use super::error::CliError;

/// The format of an output file, from its ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// `.mtx` or `.mtx.gz`.
    MatrixMarket,
    /// `.npz`.
    Npz,
    /// `.batch`.
    Batch,
}

impl Ending {
    /// The format that a file name's ending stands for.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        [
            (".mtx", Self::MatrixMarket),
            (".mtx.gz", Self::MatrixMarket),
            (".npz", Self::Npz),
            (".batch", Self::Batch),
        ]
        .into_iter()
        .find(|(ending, _)| name.ends_with(ending))
        .map(|(_, format)| format)
    }
}

/// Refuses endings that solutions cannot be written to.
///
/// # Errors
/// When the ending is neither `.npz` nor that of a Matrix Market file.
pub(crate) fn check_endings(output: Option<&Path>) -> Result<(), CliError> {
    match output.map(|path| (path, Ending::of(path))) {
        None | Some((_, Some(Ending::Npz | Ending::MatrixMarket))) => Ok(()),
        Some((path, _)) => Err(CliError::input(format!(
            "--output {}: unknown ending, expected .npz, or .mtx or .mtx.gz for one system",
            path.display()
        ))),
    }
}

/// Refuses a Matrix Market file for more than one solution.
///
/// # Errors
/// When the file cannot hold the solutions.
pub(crate) fn check_single(output: Option<&Path>, systems: usize) -> Result<(), CliError> {
    match output {
        Some(path) if Ending::of(path) == Some(Ending::MatrixMarket) && systems != 1 => {
            Err(CliError::input(format!(
                "--output {}: {systems} systems, expected one, or a name ending in .npz",
                path.display()
            )))
        }
        _ => Ok(()),
    }
}

/// Writes the solutions: as `.npz` with `offsets` (int64, one more than systems), `x` (float64,
/// item after item) and `status` (names), or as a Matrix Market vector.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn solutions(
    path: &Path,
    offsets: &[usize],
    x: &[f64],
    report: &BatchReport,
) -> Result<(), CliError> {
    if Ending::of(path) == Some(Ending::MatrixMarket) {
        return Ok(write_vector(path, x)?);
    }
    let offsets: Vec<i64> = offsets.iter().map(|&offset| offset as i64).collect();
    let status: Vec<&str> = report.systems.iter().map(|s| s.outcome.status.name()).collect();
    Ok(write_arrays(path, Packing::Stored, |npz| {
        npz.add_i64("offsets", &offsets)?;
        npz.add_f64("x", x)?;
        npz.add_strings("status", &status)
    })?)
}

/// Writes the residual histories as CSV: item, iteration, residual.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn history(path: &Path, report: &BatchReport) -> Result<(), CliError> {
    let io = |source| FormatError::Io { path: path.to_owned(), source };
    Ok(atomic_write(path, |w| {
        writeln!(w, "item,iteration,residual").map_err(io)?;
        for (item, system) in report.systems.iter().enumerate() {
            for (iteration, residual) in system.outcome.history.iter().enumerate() {
                writeln!(w, "{item},{iteration},{residual:e}").map_err(io)?;
            }
        }
        Ok(())
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_decide_the_format() {
        let of = |name: &str| Ending::of(Path::new(name));

        assert_eq!(of("a/b.MTX"), Some(Ending::MatrixMarket));
        assert_eq!(of("b.mtx.gz"), Some(Ending::MatrixMarket));
        assert_eq!(of("b.npz"), Some(Ending::Npz));
        assert_eq!(of("b.batch"), Some(Ending::Batch));
        assert_eq!(of("b.txt"), None);
        assert_eq!(of(".."), None);
    }
}
