//! Where the tests find real matrices, and the reader of reference solutions.

use std::path::{Path, PathBuf};

use crate::FormatError;
use crate::io::source::{io_error, open, read_array};

/// The folder with the real matrices (`matrices/`) and astrophysical batches (`astro/`) that some
/// tests read: the environment variable `SPARSEBATCH_DATA` if it is set, else the folder `shared`
/// beside the repository. `None`, with the reason on stderr, when there is no such folder: the
/// test is then skipped.
pub fn shared_dir() -> Option<PathBuf> {
    let folder = match std::env::var_os("SPARSEBATCH_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    if folder.join("matrices").is_dir() {
        return Some(folder);
    }
    eprintln!(
        "skipped: {} holds no matrices (SPARSEBATCH_DATA names another folder)",
        folder.display()
    );
    None
}

/// Reference solutions of a uniform batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Systems.
    pub nitems: usize,
    /// Rows of each.
    pub nrows: usize,
    /// The solutions, item after item: `x[item * nrows + row]`.
    pub x: Vec<f64>,
}

/// Reads an `XREF0001` file: 8 bytes `XREF0001`, u64 nbatch, u64 nrows, f64 `x[nbatch * nrows]`,
/// little-endian.
///
/// # Errors
/// [`FormatError::Io`] when the file cannot be read, [`FormatError::Binary`] when it is no such
/// file or its sizes do not give its length.
pub fn read_xref(path: impl AsRef<Path>) -> Result<Reference, FormatError> {
    let path = path.as_ref();
    let (file, len) = open(path)?;
    let mut reader = std::io::BufReader::new(file);
    let binary = |what: &str, expected: String, found: String| FormatError::Binary {
        path: path.to_owned(),
        what: what.to_owned(),
        expected,
        found,
    };
    if len < 24 {
        let expected = "at least 24 bytes".to_owned();
        return Err(binary("header", expected, len.to_string()));
    }
    let mut magic = Vec::new();
    read_array(&mut reader, 1, &mut magic, |bytes: [u8; 8]| bytes).map_err(io_error(path))?;
    if &magic[0] != b"XREF0001" {
        let found = magic[0].escape_ascii().to_string();
        return Err(binary("first 8 bytes", "XREF0001".to_owned(), found));
    }
    let mut sizes = Vec::new();
    read_array(&mut reader, 2, &mut sizes, u64::from_le_bytes).map_err(io_error(path))?;
    let count = u128::from(sizes[0]) * u128::from(sizes[1]);
    if 24 + 8 * count.min(u128::from(u64::MAX)) != u128::from(len) {
        let expected = format!("24 bytes and {} x {} values", sizes[0], sizes[1]);
        return Err(binary("file length", expected, len.to_string()));
    }
    let mut x = Vec::with_capacity(count as usize);
    read_array(&mut reader, count as usize, &mut x, f64::from_le_bytes).map_err(io_error(path))?;
    Ok(Reference { nitems: sizes[0] as usize, nrows: sizes[1] as usize, x })
}
