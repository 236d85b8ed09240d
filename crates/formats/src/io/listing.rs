//! Lists the files to read, named or in folders, and which of them belong together by their names.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::input::{Input, is_standard_input};
use super::source::io_error;
use crate::FormatError;

/// Levels of folders below a named one that are searched for systems.
const DEPTH: usize = 2;

/// Identifies a file by its folder and its name without extensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    folder: PathBuf,
    stem: Vec<u8>,
}

impl Key {
    fn of(path: &Path) -> Self {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Self { folder, stem: stem(path).to_owned() }
    }

    /// The key of another name in the same folder.
    fn beside(&self, stem: &[u8]) -> Self {
        Self { folder: self.folder.clone(), stem: stem.to_owned() }
    }

    /// The key of the matrix whose right-hand side a file of this name would be.
    fn matrix_of_rhs(&self) -> Option<Self> {
        let matrix = match self.stem.as_slice() {
            b"b" | b"B" | b"rhs" => b"A".as_slice(),
            stem => {
                // `_rhs1` is as in NIST's Matrix Market, where further ones may follow.
                let endings = [b"_b".as_slice(), b"_rhs", b"_rhs1"];
                endings.iter().find_map(|ending| stem.strip_suffix(*ending))?
            }
        };
        (!matrix.is_empty()).then(|| self.beside(matrix))
    }

    /// The keys of the matrices for which a file of this name may hold other data: `NAME` for
    /// `NAME_x`, and `A` for every file beside it.
    pub(super) fn matrices_of_data(&self) -> impl Iterator<Item = Self> + '_ {
        let underscores = (1..self.stem.len()).filter(|&at| self.stem[at] == b'_');
        underscores.map(|at| self.beside(&self.stem[..at])).chain([self.beside(b"A")])
    }
}

/// The file name without its extension, and without `.gz` after that.
fn stem(path: &Path) -> &[u8] {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let name = match name.split_last_chunk::<3>() {
        Some((rest, ending)) if ending.eq_ignore_ascii_case(b".gz") => rest,
        _ => name,
    };
    match name.iter().rposition(|&b| b == b'.') {
        None | Some(0) => name,
        Some(dot) => &name[..dot],
    }
}

/// A file to be read.
pub(super) struct Listed {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) key: Key,
    /// The matrix whose right-hand side this file is by its name, if that matrix is read too.
    pub(super) rhs_of: Option<Key>,
    /// Whether the file was found in a named folder instead of being named itself.
    pub(super) in_folder: bool,
}

#[derive(Default)]
pub(super) struct Listing {
    files: Vec<Listed>,
    ignored: Vec<PathBuf>,
}

impl Listing {
    /// Adds a file, standard input, or a folder.
    pub(super) fn add(&mut self, path: &Path) -> Result<(), FormatError> {
        if is_standard_input(path) {
            if self.files.iter().any(|file| is_standard_input(&file.path)) {
                return Err(FormatError::Parameter {
                    name: "input",
                    expected: "standard input (-) at most once",
                    found: "twice".to_owned(),
                });
            }
            self.push(path, 0, false);
            return Ok(());
        }
        let metadata = std::fs::metadata(path).map_err(io_error(path))?;
        if metadata.is_dir() {
            return self.add_folder(path);
        }
        self.push(path, metadata.len(), false);
        Ok(())
    }

    /// The files in their order, each right-hand side with the key of its matrix, and the ignored
    /// paths.
    pub(super) fn into_files(self) -> (Vec<Listed>, Vec<PathBuf>) {
        let Self { mut files, ignored } = self;
        let keys: HashSet<Key> = files.iter().map(|file| file.key.clone()).collect();
        let matrix = |key: &Key| key.matrix_of_rhs().filter(|matrix| keys.contains(matrix));
        for file in &mut files {
            // A file that belongs to a right-hand side is not itself a right-hand side.
            file.rhs_of = matrix(&file.key).filter(|found| matrix(found).is_none());
        }
        (files, ignored)
    }

    fn push(&mut self, path: &Path, bytes: u64, in_folder: bool) {
        let key = Key::of(path);
        self.files.push(Listed { path: path.to_owned(), bytes, key, rhs_of: None, in_folder });
    }

    fn add_folder(&mut self, folder: &Path) -> Result<(), FormatError> {
        let names = names(folder).map_err(io_error(folder))?;
        let before = self.files.len();
        for name in &names {
            let path = folder.join(name);
            if !path.is_dir() {
                self.add_found(&path, |_| true);
            } else if !path.is_symlink() {
                self.add_items(&path, DEPTH);
            }
        }
        if self.files.len() == before {
            return Err(FormatError::Binary {
                path: folder.to_owned(),
                what: "folder".to_owned(),
                expected: "at least one Matrix Market, .npz, .npy or .batch file".to_owned(),
                found: format!("none among its {} entries", names.len()),
            });
        }
        Ok(())
    }

    /// Adds a file found in a folder if its content or extension is known and `wanted` accepts its
    /// key; else it is ignored.
    fn add_found(&mut self, path: &Path, wanted: impl FnOnce(&Key) -> bool) {
        // A file that cannot be opened is bad input only if its extension is known.
        let (known, bytes) = match Input::open_file(path) {
            Ok(input) => (input.known_kind().is_some(), input.len.unwrap_or(0)),
            Err(_) => (false, 0),
        };
        let is_read = known || path.file_name().is_some_and(has_known_ending);
        if is_read && wanted(&Key::of(path)) {
            self.push(path, bytes, true);
        } else {
            self.ignored.push(path.to_owned());
        }
    }

    /// Adds the system in a subfolder, a matrix named `A` or like the folder, and its right-hand
    /// side; then those in the folders inside it. Searches `depth` levels in all.
    fn add_items(&mut self, folder: &Path, depth: usize) {
        let Ok(names) = names(folder) else {
            // The folder is not readable, and nothing says that the caller meant it.
            self.ignored.push(folder.to_owned());
            return;
        };
        let own = folder.file_name().unwrap_or_default().as_encoded_bytes();
        let is_matrix = |key: &Key| key.stem == b"A" || key.stem == own;
        let paths = || names.iter().map(|name| folder.join(name));
        if paths().any(|path| is_matrix(&Key::of(&path)) && path.is_file()) {
            for path in paths().filter(|path| !path.is_dir()) {
                self.add_found(&path, |key| {
                    is_matrix(key) || key.matrix_of_rhs().is_some_and(|matrix| is_matrix(&matrix))
                });
            }
        }
        if depth > 1 {
            for path in paths().filter(|path| path.is_dir() && !path.is_symlink()) {
                self.add_items(&path, depth - 1);
            }
        }
    }
}

/// The names in a folder, sorted, without hidden ones.
fn names(folder: &Path) -> std::io::Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        if !name.as_encoded_bytes().starts_with(b".") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn has_known_ending(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_lowercase();
    [".mtx", ".mtx.gz", ".npz", ".npy", ".batch"].iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_matrix() {
        let matrix = |name: &str| {
            let key = Key::of(Path::new("f").join(name).as_path()).matrix_of_rhs()?;
            assert_eq!(key.folder, Path::new("f"));
            Some(String::from_utf8(key.stem).unwrap())
        };
        let cases = [
            ("sys_b.mtx", Some("sys")),
            ("sys_b.mtx.gz", Some("sys")),
            ("a.b_rhs.npy", Some("a.b")),
            ("sherman1_rhs1.mtx.gz", Some("sherman1")),
            ("sherman1_rhs2.mtx.gz", None),
            ("b.mtx", Some("A")),
            ("rhs", Some("A")),
            ("_b.mtx", None),
            ("sys.mtx", None),
            ("sysb.mtx", None),
        ];
        for (name, expected) in cases {
            assert_eq!(matrix(name).as_deref(), expected, "{name}");
        }
    }
}
