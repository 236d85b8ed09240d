//! The file that rows are appended to while a run lasts: `FILE.part` beside `FILE`.
//!
//! A run holds a lock on `FILE.part`, so that a second run to the same `FILE` is refused. The part
//! file of a run that was stopped is kept as `FILE.1.part`, or with the next free number.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use sparsebatch_formats::FormatError;
use sparsebatch_formats::io::{atomic_write, open_in_place, still_named};

use crate::BenchError;

/// How often `claim` retries while the file at the path changes.
const ATTEMPTS: usize = 100;

/// The part file of a run, locked against other runs.
pub(crate) struct PartFile {
    output: PathBuf,
    path: PathBuf,
    file: File,
    /// The renamed part file of an earlier run, if there was one.
    pub(crate) kept: Option<PathBuf>,
}

/// `FILE.part`, or `FILE.NUMBER.part`.
fn part_of(output: &Path, number: Option<usize>) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    if let Some(number) = number {
        name.push(format!(".{number}"));
    }
    name.push(".part");
    name.into()
}

/// The first free name for a kept file.
fn free_name(output: &Path) -> PathBuf {
    let mut number = 1;
    while std::fs::symlink_metadata(part_of(output, Some(number))).is_ok() {
        number += 1;
    }
    part_of(output, Some(number))
}

impl PartFile {
    /// Creates `FILE.part` for a run that writes `output`, and renames one that is already there.
    ///
    /// # Errors
    /// [`BenchError::Busy`] when another run has locked it; [`BenchError::Io`] when it cannot be
    /// created, or when the path is not a regular file.
    pub(crate) fn claim(output: &Path) -> Result<Self, BenchError> {
        let path = part_of(output, None);
        let mut kept = None;
        for _ in 0..ATTEMPTS {
            let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    match open_in_place(&path, OpenOptions::new().write(true)) {
                        Ok(file) => file,
                        Err(gone) if gone.kind() == ErrorKind::NotFound => continue,
                        Err(error) => return Err(BenchError::io(&path)(error)),
                    }
                }
                Err(error) => return Err(BenchError::io(&path)(error)),
            };
            let is_locked = match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::Error(_)) => false,
                Err(TryLockError::WouldBlock) => break,
            };
            if !still_named(&file, &path) {
                continue;
            }
            if file.metadata().map_err(BenchError::io(&path))?.len() == 0 {
                return Ok(Self { output: output.to_owned(), path, file, kept });
            }
            if !is_locked {
                // Without locks in the file system, a run that still lasts cannot be told from one
                // that was stopped.
                break;
            }
            let aside = free_name(output);
            std::fs::rename(&path, &aside).map_err(BenchError::io(&path))?;
            kept = Some(aside);
        }
        Err(BenchError::Busy { path })
    }

    /// Appends a line.
    ///
    /// # Errors
    /// [`BenchError::Unfinished`].
    pub(crate) fn append(&mut self, line: &str) -> Result<(), BenchError> {
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(|source| {
            let source = FormatError::Io { path: self.path.clone(), source };
            BenchError::Unfinished { part: self.path.clone(), source: Box::new(source) }
        })
    }

    /// Writes the output whole and removes this file.
    ///
    /// # Errors
    /// [`BenchError::Unfinished`]; the part file is kept then.
    pub(crate) fn finish(self, lines: &str) -> Result<(), BenchError> {
        let io = |source| FormatError::Io { path: self.output.clone(), source };
        atomic_write(&self.output, |writer| writer.write_all(lines.as_bytes()).map_err(io))
            .map_err(|source| BenchError::Unfinished {
                part: self.path.clone(),
                source: Box::new(source),
            })?;
        std::fs::remove_file(&self.path).map_err(BenchError::io(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_earlier_runs_left_is_kept_aside() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("r.jsonl");
        for run in ["first\n", "second\n"] {
            let mut part = PartFile::claim(&output).unwrap();
            part.append(run.trim_end()).unwrap();
            // Drops the file as a stopped run does: neither finished nor removed.
        }

        let part = PartFile::claim(&output).unwrap();

        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(names(folder.path()), ["r.jsonl.1.part", "r.jsonl.2.part", "r.jsonl.part"]);
        assert_eq!(
            (read("r.jsonl.1.part"), read("r.jsonl.2.part")),
            ("first\n".into(), "second\n".into())
        );
        assert_eq!(part.kept.as_deref(), Some(folder.path().join("r.jsonl.2.part").as_path()));
        part.finish("whole\n").unwrap();
        assert_eq!((read("r.jsonl"), names(folder.path()).len()), ("whole\n".into(), 3));
    }

    #[test]
    fn a_second_run_is_refused_while_the_first_lasts() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("r.jsonl");
        let mut first = PartFile::claim(&output).unwrap();
        first.append("line").unwrap();

        let second = PartFile::claim(&output);

        assert!(matches!(second, Err(BenchError::Busy { .. })));
        drop(first);
        assert!(PartFile::claim(&output).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (output, other) = (folder.path().join("r.jsonl"), folder.path().join("other"));
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, part_of(&output, None)).unwrap();

        let refused = PartFile::claim(&output).map(drop).unwrap_err().to_string();

        assert!(
            refused.ends_with("r.jsonl.part: is a symbolic link, expected a file"),
            "{refused}"
        );
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
    }

    #[test]
    fn lines_stay_where_the_output_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("r.jsonl");
        let mut part = PartFile::claim(&output).unwrap();
        part.append("row").unwrap();
        std::fs::create_dir(&output).unwrap();

        let failed = part.finish("row\n").unwrap_err().to_string();

        assert!(failed.contains("r.jsonl: is a folder"), "{failed}");
        assert!(failed.ends_with("r.jsonl.part holds the rows of this run"), "{failed}");
        assert_eq!(std::fs::read_to_string(part_of(&output, None)).unwrap(), "row\n");
    }
}
