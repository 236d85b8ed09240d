//! Printing: tables, JSON, and the check that an output file can be written.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use sparsebatch::FormatError;

use super::Global;
use super::error::CliError;

/// The number of the JSON schema, the field `schema` of every object; see `docs/json.md`.
pub(crate) const SCHEMA: u32 = 2;

/// Writes to stdout. A reader that has gone is not an error: it has seen what it wanted.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::Internal(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints the JSON object or the text, as the options ask.
pub(crate) fn result(
    global: Global,
    json: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), CliError> {
    if global.json {
        let line = serde_json::to_string(json)
            .map_err(|error| CliError::Internal(format!("JSON: {error}")))?;
        print(&format!("{line}\n"))
    } else if global.quiet {
        Ok(())
    } else {
        print(&text())
    }
}

/// Says something on stderr that is no error, unless quiet.
pub(crate) fn note(global: Global, text: &str) {
    if !global.quiet {
        eprintln!("note: {text}");
    }
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A file skipped by `--skip-bad`, as JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Skipped {
    /// The file.
    pub(crate) file: PathBuf,
    /// What is wrong with it.
    pub(crate) error: String,
}

/// Columns of text, as wide as their longest cell; numbers to the right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|&h| h.to_owned()).collect()] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Lays the table out: the first column to the left, the others to the right, the last to the
    /// left when `last_left`.
    pub(crate) fn render(&self, last_left: bool) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                if column > 0 {
                    line.push_str("  ");
                }
                let width = widths[column];
                if column == 0 || (last_left && column + 1 == columns) {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("{cell:>width$}"));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Refuses an output file that could not be written, before any work is done; leaves nothing.
pub(crate) fn check_writable(path: &Path) -> Result<(), CliError> {
    let refuse =
        |source: std::io::Error| CliError::from(FormatError::Io { path: path.to_owned(), source });
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            return Err(refuse(std::io::Error::new(
                ErrorKind::IsADirectory,
                "is a folder, expected a file to write",
            )));
        }
        Ok(found) if found.permissions().readonly() => {
            return Err(refuse(std::io::Error::new(
                ErrorKind::PermissionDenied,
                "the file is read-only",
            )));
        }
        // Devices and pipes are written directly.
        Ok(found) if !found.is_file() => return Ok(()),
        _ => {}
    }
    if path.file_name().is_none() {
        return Err(refuse(std::io::Error::new(
            ErrorKind::InvalidInput,
            "the path does not name a file",
        )));
    }
    let probe = path.with_file_name(format!(".sparsebatch-probe-{}", std::process::id()));
    std::fs::OpenOptions::new().write(true).create_new(true).open(&probe).map_err(refuse)?;
    std::fs::remove_file(&probe).map_err(refuse)
}

/// A number of things, with the plural's s.
pub(crate) fn counted(count: usize, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ => format!("{count} {thing}s"),
    }
}

/// Bytes in a readable unit.
pub(crate) fn bytes(count: usize) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_aligns_its_columns() {
        let mut table = Table::new(&["status", "systems"]);
        table.row(vec!["Converged".to_owned(), "12".to_owned()]);

        assert_eq!(table.render(false), "status     systems\nConverged       12\n");
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
    }

    #[test]
    fn a_writable_place_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npz");

        check_writable(&path).unwrap();

        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(check_writable(folder.path()).is_err());
        assert!(check_writable(&folder.path().join("no/x.npz")).is_err());
    }
}
