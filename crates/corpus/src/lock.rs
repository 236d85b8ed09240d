//! The lock file: the SHA-256 of every fetched matrix, so that a later download is the same or
//! refused.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sparsebatch_formats::io::{atomic_write, open_file};
use sparsebatch_formats::{Csr, FormatError};

use crate::CorpusError;
use crate::folder::LOCK_FILE;

const SCHEMA: u32 = 1;

/// Most bytes of a lock file that are read; the lock file of all matrices has a thousandth of that.
const MOST_BYTES: u64 = 64 << 20;

/// The lock entry of a matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locked {
    /// Hash of the collection's archive; `None` if the matrix did not come from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_sha256: Option<String>,
    /// The address, file or definition that the matrix came from.
    pub from: String,
    /// The file, relative to the folder.
    pub file: PathBuf,
    /// Hash of the matrix itself, whatever its file: of its order, pattern and values as read. Lock
    /// files of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix_sha256: Option<String>,
    /// Hash of the file.
    pub sha256: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
    /// Number of nonzero entries, in both triangles.
    pub nonzeros: u64,
    /// Number of stored entries that are 0.
    pub explicit_zeros: u64,
}

impl Locked {
    /// Whether all hashes of the entry are well-formed SHA-256 digits.
    fn has_hashes(&self) -> bool {
        let Self { archive_sha256, matrix_sha256, sha256, .. } = self;
        let mut hashes = [archive_sha256, matrix_sha256].into_iter().flatten().chain([sha256]);
        hashes.all(|hash| {
            hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Content {
    schema: u32,
    matrices: BTreeMap<String, Locked>,
}

/// The lock file of a folder.
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) path: PathBuf,
    matrices: BTreeMap<String, Locked>,
}

impl Lock {
    /// Reads the lock file of a folder; an absent file counts as empty.
    ///
    /// # Errors
    /// [`CorpusError::Lock`] when it is not a lock file, [`CorpusError::Io`] when it cannot be
    /// read.
    pub(crate) fn read(folder: &Path) -> Result<Self, CorpusError> {
        let path = folder.join(LOCK_FILE);
        let mut text = String::new();
        let read =
            open_file(&path).and_then(|(file, _)| file.take(MOST_BYTES).read_to_string(&mut text));
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self { path, matrices: BTreeMap::new() });
            }
            Err(error) => return Err(CorpusError::io(path)(error)),
        }
        let reason = match serde_json::from_str::<Content>(&text) {
            Ok(content) if content.schema == SCHEMA => {
                match content.matrices.iter().find(|(_, locked)| !locked.has_hashes()) {
                    None => return Ok(Self { path, matrices: content.matrices }),
                    Some((key, _)) => format!("no SHA-256 in the entry {key:?}"),
                }
            }
            Ok(content) => format!("schema {}", content.schema),
            Err(error) => error.to_string(),
        };
        Err(CorpusError::Lock { path, reason })
    }

    /// The lock entry of a matrix.
    pub(crate) fn get(&self, key: &str) -> Option<&Locked> {
        self.matrices.get(key)
    }

    /// Adds the lock entry of a matrix, and writes the lock file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn set(&mut self, key: String, locked: Locked) -> Result<(), CorpusError> {
        if self.matrices.get(&key) == Some(&locked) {
            return Ok(());
        }
        self.matrices.insert(key, locked);
        let io = |source| FormatError::Io { path: self.path.clone(), source };
        let content = Content { schema: SCHEMA, matrices: std::mem::take(&mut self.matrices) };
        let written = atomic_write(&self.path, |writer| {
            serde_json::to_writer_pretty(&mut *writer, &content).map_err(|e| io(e.into()))?;
            writer.write_all(b"\n").map_err(io)
        });
        self.matrices = content.matrices;
        Ok(written?)
    }

    /// Refuses a file whose hash is not the locked one.
    ///
    /// # Errors
    /// [`CorpusError::Changed`].
    pub(crate) fn compare(
        &self,
        file: String,
        expected: Option<&str>,
        found: &str,
    ) -> Result<(), CorpusError> {
        match expected {
            Some(expected) if expected != found => Err(CorpusError::Changed {
                file,
                lock: self.path.clone(),
                expected: expected.to_owned(),
                found: found.to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

/// SHA-256 of a file in hexadecimal digits, and the file's size in bytes.
///
/// # Errors
/// [`CorpusError::Io`] when it cannot be read.
pub(crate) fn sha256(path: &Path) -> Result<(String, u64), CorpusError> {
    let (mut file, _) = open_file(path).map_err(CorpusError::io(path))?;
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 18];
    loop {
        let read = file.read(&mut buffer).map_err(CorpusError::io(path))?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
    }
    Ok((digits(hash), bytes))
}

/// SHA-256 of a matrix in hexadecimal digits: of its order, its pattern by rows and its values, so
/// that every file of the same matrix gives the same hash.
pub(crate) fn matrix_sha256(matrix: &Csr<f64>) -> String {
    let mut hash = Sha256::new();
    for count in [matrix.nrows(), matrix.ncols(), matrix.nnz()] {
        hash.update((count as u64).to_le_bytes());
    }
    let pattern = matrix.pattern();
    for indices in [pattern.row_ptr(), pattern.col_idx()] {
        indices.iter().for_each(|index| hash.update(index.to_le_bytes()));
    }
    matrix.values().iter().for_each(|value| hash.update(value.to_bits().to_le_bytes()));
    digits(hash)
}

fn digits(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_standard() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").unwrap();

        let (digits, bytes) = sha256(&path).unwrap();

        // FIPS 180-4, the example of one block.
        assert_eq!(digits, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(bytes, 3);
    }

    #[test]
    fn a_matrix_has_one_hash_and_others_have_others() {
        let hash = |col: [i32; 2], values: [f64; 2]| {
            let matrix = Csr::try_new(2, 2, vec![0, 1, 2], col.to_vec(), values.to_vec()).unwrap();
            matrix_sha256(&matrix)
        };

        assert_eq!(hash([0, 1], [1.0, 2.0]), hash([0, 1], [1.0, 2.0]));
        assert_ne!(hash([0, 1], [1.0, 2.0]), hash([1, 0], [1.0, 2.0]));
        assert_ne!(hash([0, 1], [1.0, 2.0]), hash([0, 1], [1.0, 2.000_000_000_000_000_4]));
    }

    #[test]
    fn other_files_and_schemas_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let reason = |text: &str| {
            std::fs::write(folder.path().join(LOCK_FILE), text).unwrap();
            Lock::read(folder.path()).unwrap_err().to_string()
        };

        assert!(reason(r#"{"schema": 2, "matrices": {}}"#).ends_with("found schema 2"));
        assert!(reason("x").contains("corpus.lock: expected a lock file of the corpus, schema 1"));
    }

    #[test]
    fn hashes_that_are_none_are_refused_by_the_name_of_their_entry() {
        let folder = tempfile::tempdir().unwrap();
        let read = |hash: &str, archive: &str| {
            let text = format!(
                r#"{{"schema": 1, "matrices": {{"G/m": {{"archive_sha256": {archive}, "from": "a",
                "file": "f", "sha256": "{hash}", "bytes": 1, "rows": 1, "columns": 1,
                "nonzeros": 1, "explicit_zeros": 0}}}}}}"#
            );
            std::fs::write(folder.path().join(LOCK_FILE), text).unwrap();
            Lock::read(folder.path()).map(drop).map_err(|error| error.to_string())
        };
        let right = "0123456789abcdef".repeat(4);

        assert_eq!(read(&right, "null"), Ok(()));
        for (hash, archive) in
            [("", "null"), (&*right.replacen('0', "\\n", 1), "null"), (&*right, "\"00\"")]
        {
            let error = read(hash, archive).unwrap_err();
            assert!(error.ends_with("found no SHA-256 in the entry \"G/m\""), "{error:?}");
        }
    }
}
