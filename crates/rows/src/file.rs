//! Files of rows: JSON lines as the suites write them.
//!
//! A file may end in the middle of a line, where a suite was stopped or a disk was full: the whole
//! lines are kept, and [`RowFile::partial`] says so. Every other line that is not a row is an error
//! that names file and line. Lines with a `gap` say what was not measured. The JSON object that
//! `bench --json` prints is read too.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use sparsebatch_formats::io::read_file;

use crate::RowsError;
use crate::gap::{Gap, GapLine};
use crate::names::current;
use crate::row::{OLDEST_SCHEMA, Row, SCHEMA};
use crate::summary::OURS;

/// The rows of a file.
#[derive(Clone, Debug)]
pub struct RowFile {
    /// The file.
    pub path: PathBuf,
    /// Its rows; if there is none, there is a gap.
    pub rows: Vec<Row>,
    /// What was not measured, as far as the file tells.
    pub gaps: Vec<Gap>,
    /// Why the file is incomplete, in one sentence.
    pub partial: Option<String>,
}

/// The fields that decide how a line is read.
#[derive(Deserialize)]
struct Header {
    schema: u64,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    gap: Option<serde::de::IgnoredAny>,
}

/// What a line holds: a row, a gap, or all rows and gaps of the object of `bench --json`.
#[derive(Default, Deserialize)]
struct Found {
    rows: Vec<Row>,
    #[serde(default)]
    gaps: Vec<Gap>,
}

/// Reads several files of rows.
///
/// # Errors
/// As [`read`].
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<RowFile>, RowsError> {
    paths.iter().map(|path| read(path)).collect()
}

/// Reads a file of rows. Empty lines are skipped.
///
/// # Errors
/// [`RowsError::Io`], also for pipes and devices; [`RowsError::Empty`] for a file without rows and
/// gaps; [`RowsError::NotText`]; [`RowsError::Row`] for a line that is no row;
/// [`RowsError::Schema`] for a row of an unknown schema.
pub fn read(path: &Path) -> Result<RowFile, RowsError> {
    let bytes = read_file(path).map_err(RowsError::io(path))?;
    let mut file =
        RowFile { path: path.to_owned(), rows: Vec::new(), gaps: Vec::new(), partial: None };
    let mut lines = 0;
    for (index, bytes) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        lines = index + 1;
        // Only the last line can lack its line end.
        let is_whole = bytes.ends_with(b"\n");
        match line(bytes).map_err(|fault| fault.into_error(path, lines)) {
            Ok(found) => {
                file.rows.extend(found.rows);
                file.gaps.extend(found.gaps);
            }
            Err((error, is_cut)) if is_whole || !is_cut => return Err(error),
            Err(_) => file.partial = Some(format!("it ends in the middle of line {lines}")),
        }
    }
    if file.rows.is_empty() && file.gaps.is_empty() {
        let found = match (&file.partial, lines) {
            (Some(_), _) => "the beginning of one",
            (None, 0) => "an empty file",
            (None, _) => "none",
        };
        return Err(RowsError::Empty { path: path.to_owned(), found });
    }
    if file.partial.is_none() && path.extension().is_some_and(|ending| ending == "part") {
        file.partial = Some("it was left by a run that did not get to its end".to_owned());
    }
    Ok(file)
}

/// What is wrong with a line.
enum Fault {
    /// Invalid UTF-8 at this byte, counted from 1; whether it may be the beginning of a character.
    Bytes(usize, bool),
    /// Not a row.
    Json(serde_json::Error),
    /// A row of another schema.
    Schema(u64),
}

impl Fault {
    /// The error, and whether the line may be the beginning of a valid one.
    fn into_error(self, path: &Path, line: usize) -> (RowsError, bool) {
        let path = path.to_owned();
        match self {
            Self::Bytes(byte, is_cut) => (RowsError::NotText { path, line, byte }, is_cut),
            Self::Json(error) => {
                let is_cut = error.is_eof();
                (RowsError::Row { path, line, reason: error.to_string() }, is_cut)
            }
            Self::Schema(found) => {
                (RowsError::Schema { path, line, expected: SCHEMA, found }, false)
            }
        }
    }
}

/// Reads a line: its rows and gaps, none for an empty line.
fn line(bytes: &[u8]) -> Result<Found, Fault> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Fault::Bytes(error.valid_up_to() + 1, error.error_len().is_none()))?;
    if text.trim().is_empty() {
        return Ok(Found::default());
    }
    let header: Header = serde_json::from_str(text).map_err(Fault::Json)?;
    check_schema(header.schema)?;
    if header.command.as_deref() == Some("bench") {
        let found: Found = serde_json::from_str(text).map_err(Fault::Json)?;
        return found.into_current();
    }
    if header.gap.is_some() {
        let line: GapLine = serde_json::from_str(text).map_err(Fault::Json)?;
        return Found { rows: Vec::new(), gaps: vec![line.gap] }.into_current();
    }
    let row = serde_json::from_str(text).map_err(Fault::Json)?;
    Found { rows: vec![row], gaps: Vec::new() }.into_current()
}

fn check_schema(schema: u64) -> Result<(), Fault> {
    match (u64::from(OLDEST_SCHEMA)..=u64::from(SCHEMA)).contains(&schema) {
        true => Ok(()),
        false => Err(Fault::Schema(schema)),
    }
}

impl Found {
    /// Converts to the current schema: rows, each of which has a schema, and the names in this
    /// library's gaps.
    fn into_current(mut self) -> Result<Self, Fault> {
        for row in &mut self.rows {
            check_schema(u64::from(row.schema))?;
            row.schema = SCHEMA;
        }
        let rows = self.rows.iter_mut().map(|row| (&row.library, &mut row.configuration));
        let gaps = self.gaps.iter_mut().map(|gap| (&gap.library, &mut gap.configuration));
        for (_, configuration) in rows.chain(gaps).filter(|(library, _)| *library == OURS) {
            *configuration = current(configuration);
        }
        Ok(self)
    }
}
