//! The output files of a command: none may be an input or another output, and if one cannot be
//! written, the error states which were.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sparsebatch::io::{FileKind, check_writable, detect};

use super::error::CliError;

/// Output files that this process has written so far, for the message of an interrupt.
static WRITTEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The part file that holds the rows of a bench until it ends.
static ROWS: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The outputs written so far, in words.
pub(crate) fn written_so_far() -> Option<String> {
    let written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    if !written.is_empty() {
        return Some(listed(&written, "written"));
    }
    let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    let rows = rows.as_deref().filter(|rows| rows.exists())?;
    Some(format!("{} holds the rows so far", rows.display()))
}

/// Registers that rows are kept in `FILE.part` until `FILE` is written.
pub(crate) fn keeps_rows_for(file: &Path) {
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    *ROWS.lock().unwrap_or_else(PoisonError::into_inner) = Some(part.into());
}

/// The paths in words, followed by `what`.
fn listed<P: AsRef<Path>>(paths: &[P], what: &str) -> String {
    let names: Vec<String> = paths.iter().map(|p| p.as_ref().display().to_string()).collect();
    format!("{} {} {what}", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
}

/// An option or argument, and the file that it names.
pub(crate) type Named<'a> = (&'static str, &'a Path);

/// The outputs of a command, in the order in which they are written.
pub(crate) struct Outputs<'a> {
    files: Vec<Named<'a>>,
    written: Vec<&'a Path>,
    failed: Vec<&'a Path>,
    /// The error of the first output that failed.
    error: Option<CliError>,
}

impl<'a> Outputs<'a> {
    /// Takes the requested outputs.
    pub(crate) fn new<const N: usize>(files: [(&'static str, Option<&'a Path>); N]) -> Self {
        let asked = files.into_iter().filter_map(|(option, path)| Some((option, path?)));
        Self { files: asked.collect(), written: Vec::new(), failed: Vec::new(), error: None }
    }

    /// The first option that asks for an output.
    pub(crate) fn asked(&self) -> Option<&'static str> {
        self.files.first().map(|(option, _)| *option)
    }

    /// Refuses outputs that are inputs, equal to each other, or not writable, before any work is
    /// done. An input may be a folder, which stands for the matrices in it.
    ///
    /// # Errors
    /// When an output is refused; nothing has been written then.
    pub(crate) fn check(&self, inputs: &[Named<'_>]) -> Result<(), CliError> {
        for (index, &(option, path)) in self.files.iter().enumerate() {
            let refuse = |other: &str| {
                Err(CliError::input(format!(
                    "{option} {}: is also {other}, expected another file",
                    path.display()
                )))
            };
            if let Some((name, input)) = inputs.iter().find(|(_, input)| is_read(path, input)) {
                return refuse(&format!("{name} {}", input.display()));
            }
            let before = &self.files[..index];
            if let Some((name, other)) = before.iter().find(|(_, other)| is_same(path, other)) {
                return refuse(&format!("{name} {}", other.display()));
            }
            check_writable(path)?;
        }
        Ok(())
    }

    /// Writes the file of an option, if it was requested. An error is kept for [`Self::finish`], so
    /// that the other files are still written.
    pub(crate) fn write(
        &mut self,
        option: &str,
        write: impl FnOnce(&'a Path) -> Result<(), CliError>,
    ) {
        let Some(&(_, path)) = self.files.iter().find(|(name, _)| *name == option) else { return };
        match write(path) {
            Ok(()) => {
                self.written.push(path);
                WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
            }
            Err(error) => {
                self.failed.push(path);
                self.error.get_or_insert(error);
            }
        }
    }

    /// If an output failed, states which outputs were written and which were not.
    ///
    /// # Errors
    /// A fault of the machine, with the error of the first output that failed.
    pub(crate) fn finish(self) -> Result<(), CliError> {
        let Some(error) = self.error else { return Ok(()) };
        let mut line = format!("{error}; {}", listed(&self.failed, "not written"));
        if !self.written.is_empty() {
            line += &format!(", {}", listed(&self.written, "written"));
        }
        Err(CliError::Internal(line))
    }
}

/// Whether a command that reads `input` would read the file `output`.
fn is_read(output: &Path, input: &Path) -> bool {
    if is_same(output, input) {
        return true;
    }
    if input.is_dir() {
        return is_matrix(output) && lies_in(output, input);
    }
    is_companion(output, input) && output.is_file()
}

/// Whether two paths name the same regular file, or would once it exists. Devices and pipes may be
/// named more than once.
fn is_same(a: &Path, b: &Path) -> bool {
    match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(found), Ok(other)) => {
            #[cfg(unix)]
            {
                use std::os::unix::fs::MetadataExt;
                found.is_file() && (found.dev(), found.ino()) == (other.dev(), other.ino())
            }
            #[cfg(not(unix))]
            {
                found.is_file() && other.is_file() && place(a) == place(b)
            }
        }
        (Err(_), Err(_)) => place(a) == place(b),
        _ => false,
    }
}

/// The canonical path of the folder, joined with the file name.
fn place(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = std::fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
    Some(folder.join(path.file_name()?))
}

/// Whether a file is below a folder.
fn lies_in(file: &Path, folder: &Path) -> bool {
    match (place(file), std::fs::canonicalize(folder)) {
        (Some(file), Ok(folder)) => file.starts_with(folder),
        _ => false,
    }
}

/// Whether a file exists and counts as a matrix by its content or its name.
fn is_matrix(path: &Path) -> bool {
    const ENDINGS: [&str; 4] = [".mtx", ".mtx.gz", ".npz", ".batch"];
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let is_known = || -> bool {
        let kind: Option<FileKind> = detect(path).ok();
        kind.is_some()
    };
    path.is_file() && (ENDINGS.iter().any(|ending| name.ends_with(ending)) || is_known())
}

/// Whether a file is next to a matrix and has the name of its right-hand side: `NAME_b.mtx` or
/// `NAME_rhs.mtx`.
fn is_companion(file: &Path, matrix: &Path) -> bool {
    let stem = |path: &Path| -> Option<String> {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_suffix(".gz").unwrap_or(name);
        Some(name.strip_suffix(".mtx")?.to_owned())
    };
    let (Some(name), Some(of)) = (stem(file), stem(matrix)) else { return false };
    let is_named = name.strip_prefix(&of).is_some_and(|rest| matches!(rest, "_b" | "_rhs"));
    let folder = |path: &Path| Some(place(path)?.parent()?.to_owned());
    is_named && folder(file) == folder(matrix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(outputs: &Outputs<'_>, inputs: &[Named<'_>]) -> String {
        match outputs.check(inputs) {
            Err(CliError::Input(line)) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_file_under_two_names_is_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("sub")).unwrap();
        std::fs::write(path("a"), "").unwrap();

        // Neither file exists yet.
        assert!(is_same(&path("new"), &path("sub/../new")));
        assert!(!is_same(&path("new"), &path("sub/new")));
        assert!(is_same(&path("a"), &path("sub/../a")));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
            std::fs::hard_link(path("a"), path("hard")).unwrap();
            assert!(is_same(&path("link"), &path("a")) && is_same(&path("hard"), &path("link")));
            assert!(!is_same(Path::new("/dev/null"), Path::new("/dev/null")));
        }
    }

    #[test]
    fn what_was_written_before_a_failure_is_named() {
        let [a, b, c] = ["a.npz", "b.csv", "c.html"].map(Path::new);
        let mut outputs = Outputs::new([("--a", Some(a)), ("--b", Some(b)), ("--c", Some(c))]);

        outputs.write("--a", |_| Ok(()));
        outputs.write("--b", |_| Err(CliError::input("b.csv: full")));
        outputs.write("--c", |_| Err(CliError::input("c.html: full")));

        match outputs.finish() {
            Err(CliError::Internal(line)) => {
                assert_eq!(line, "b.csv: full; b.csv and c.html are not written, a.npz is written")
            }
            other => panic!("{other:?}"),
        }
        assert!(written_so_far().unwrap().contains("a.npz"));
    }

    #[test]
    fn right_hand_sides_beside_a_matrix_are_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["m.mtx", "m_b.mtx", "m_x.mtx"] {
            std::fs::write(path(name), "").unwrap();
        }
        let (matrix, b, x) = (path("m.mtx"), path("m_b.mtx"), path("m_x.mtx"));

        let line = refused(&Outputs::new([("--output", Some(&b))]), &[("the input", &matrix)]);

        assert!(line.contains("m_b.mtx: is also the input"), "{line}");
        assert!(Outputs::new([("--output", Some(&x))]).check(&[("the input", &matrix)]).is_ok());
        // The file has the name of a right-hand side, but does not exist.
        let absent = path("m_rhs.mtx");
        assert!(Outputs::new([("--output", Some(&absent))]).check(&[("in", &matrix)]).is_ok());
    }
}
