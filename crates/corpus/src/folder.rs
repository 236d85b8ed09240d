//! The folder of the corpus, and its files.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use sparsebatch_formats::io::open_in_place;

use crate::{CorpusError, Matrix};

/// The lock file's name in the folder.
pub const LOCK_FILE: &str = "corpus.lock";

/// File name endings of a matrix.
const ENDINGS: [&str; 2] = [".mtx.gz", ".mtx"];

/// Depth of subfolders that are searched for matrices.
const DEPTH: usize = 4;

/// The folder that the environment names: `SPARSEBATCH_CORPUS`, else
/// `XDG_DATA_HOME/sparsebatch/corpus`, else `~/.local/share/sparsebatch/corpus`.
///
/// # Errors
/// [`CorpusError::NoFolder`] when none of the variables is set.
pub fn default_folder() -> Result<PathBuf, CorpusError> {
    of_variables(|name| std::env::var_os(name))
}

fn of_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, CorpusError> {
    let variable = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = variable("SPARSEBATCH_CORPUS") {
        return Ok(folder);
    }
    // The XDG convention says to ignore a relative path.
    let shared = variable("XDG_DATA_HOME").filter(|path| path.is_absolute());
    shared
        .or_else(|| Some(variable("HOME")?.join(".local/share")))
        .map(|shared| shared.join("sparsebatch/corpus"))
        .ok_or(CorpusError::NoFolder)
}

/// The file that a matrix is written to.
pub(crate) fn target(folder: &Path, matrix: &Matrix, ending: &str) -> PathBuf {
    folder.join(matrix.part()).join(format!("{}{ending}", matrix.name))
}

/// The file of a matrix, if it exists.
pub(crate) fn present(folder: &Path, matrix: &Matrix) -> Option<PathBuf> {
    ENDINGS.iter().map(|ending| target(folder, matrix, ending)).find(|path| path.is_file())
}

/// The files of a folder and its subfolders, sorted by path; hidden files are left out.
///
/// # Errors
/// [`CorpusError::Io`] when a folder cannot be read.
pub(crate) fn files_below(folder: &Path) -> Result<Vec<PathBuf>, CorpusError> {
    let mut files = Vec::new();
    collect(folder, DEPTH, &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), CorpusError> {
    for entry in std::fs::read_dir(folder).map_err(CorpusError::io(folder))? {
        let entry = entry.map_err(CorpusError::io(folder))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if !path.is_dir() {
            files.push(path);
        } else if depth > 0 {
            collect(&path, depth - 1, files)?;
        }
    }
    Ok(())
}

/// The file of a matrix among the files of another folder: Matrix Market, or the collection's
/// archive.
pub(crate) fn source<'a>(files: &'a [PathBuf], matrix: &Matrix) -> Option<&'a Path> {
    let endings = ENDINGS.iter().chain([&".tar.gz"]);
    let mut names = endings.map(|ending| format!("{}{ending}", matrix.name));
    names.find_map(|name| {
        let found = files.iter().find(|path| path.file_name().is_some_and(|n| *n == *name));
        found.map(PathBuf::as_path)
    })
}

/// The prefix of the temporary files that a matrix is written to before it gets its final name.
pub(crate) fn unfinished(matrix: &Matrix) -> String {
    format!(".{}.", matrix.name)
}

/// Removes the temporary files of a matrix that a stopped fetch left, except a download that can be
/// resumed. The caller must hold the [`Claim`] of the folder.
///
/// # Errors
/// [`CorpusError::Io`] when such a file cannot be removed.
pub(crate) fn sweep(folder: &Path, matrix: &Matrix) -> Result<(), CorpusError> {
    let Ok(entries) = std::fs::read_dir(folder.join(matrix.part())) else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&unfinished(matrix)) && ENDINGS.iter().any(|end| name.ends_with(end)) {
            std::fs::remove_file(entry.path()).map_err(CorpusError::io(entry.path()))?;
        }
    }
    Ok(())
}

/// A lock that keeps other processes from fetching into a folder until it is dropped.
pub(crate) struct Claim {
    _file: File,
}

impl Claim {
    /// Creates the folder if necessary, and locks it.
    ///
    /// # Errors
    /// [`CorpusError::Busy`] when another process has it, [`CorpusError::Io`] when it cannot be
    /// written to.
    pub(crate) fn new(folder: &Path) -> Result<Self, CorpusError> {
        std::fs::create_dir_all(folder).map_err(CorpusError::io(folder))?;
        let path = folder.join(".fetching");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = open_in_place(&path, &mut options).map_err(CorpusError::io(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(CorpusError::Busy { folder: folder.to_owned() }),
            Err(TryLockError::Error(error)) => Err(CorpusError::io(&path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(set: &[(&str, &str)]) -> Result<PathBuf, CorpusError> {
        of_variables(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_folder_is_that_of_the_first_variable_which_is_set() {
        let all = [("SPARSEBATCH_CORPUS", "c"), ("XDG_DATA_HOME", "/x"), ("HOME", "/h")];

        assert_eq!(folder(&all).unwrap(), Path::new("c"));
        assert_eq!(folder(&all[1..]).unwrap(), Path::new("/x/sparsebatch/corpus"));
        let relative = [("SPARSEBATCH_CORPUS", ""), ("XDG_DATA_HOME", "x"), ("HOME", "/h")];
        let home = Path::new("/h/.local/share/sparsebatch/corpus");
        assert_eq!(folder(&relative).unwrap(), home);
        assert!(matches!(folder(&[]), Err(CorpusError::NoFolder)));
    }

    #[test]
    fn a_folder_is_claimed_once_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let claim = Claim::new(folder.path()).unwrap();

        assert!(matches!(Claim::new(folder.path()), Err(CorpusError::Busy { .. })));
        drop(claim);
        assert!(Claim::new(folder.path()).is_ok());
    }
}
