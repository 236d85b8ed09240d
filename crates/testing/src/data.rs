//! The folder of real matrices for tests, and the reader of reference solutions.

use std::path::{Path, PathBuf};

use sparsebatch_formats::FormatError;

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
    /// Number of systems.
    pub nitems: usize,
    /// Number of rows per system.
    pub nrows: usize,
    /// The solutions, item after item: `x[item * nrows + row]`.
    pub x: Vec<f64>,
}

/// Reads an `XREF0001` file: 8 bytes `XREF0001`, u64 nbatch, u64 nrows, f64 `x[nbatch * nrows]`,
/// little-endian.
///
/// # Errors
/// [`FormatError::Io`] when the file cannot be read; [`FormatError::Binary`] when it is not an
/// `XREF0001` file or its length does not match its sizes.
pub fn read_xref(path: impl AsRef<Path>) -> Result<Reference, FormatError> {
    let path = path.as_ref();
    let bytes =
        std::fs::read(path).map_err(|source| FormatError::Io { path: path.to_owned(), source })?;
    let binary = |what: &str, expected: String, found: String| FormatError::Binary {
        path: path.to_owned(),
        what: what.to_owned(),
        expected,
        found,
    };
    let Some((header, values)) = bytes.split_at_checked(24) else {
        let expected = "at least 24 bytes".to_owned();
        return Err(binary("header", expected, bytes.len().to_string()));
    };
    let (words, _) = header.as_chunks::<8>();
    if &words[0] != b"XREF0001" {
        let found = words[0].escape_ascii().to_string();
        return Err(binary("first 8 bytes", "XREF0001".to_owned(), found));
    }
    let [nitems, nrows] = [words[1], words[2]].map(u64::from_le_bytes);
    let count = u128::from(nitems) * u128::from(nrows);
    if count.saturating_mul(8) != values.len() as u128 {
        let expected = format!("24 bytes and {nitems} x {nrows} values");
        return Err(binary("file length", expected, bytes.len().to_string()));
    }
    let (values, _) = values.as_chunks::<8>();
    let x = values.iter().map(|&value| f64::from_le_bytes(value)).collect();
    Ok(Reference { nitems: nitems as usize, nrows: nrows as usize, x })
}
