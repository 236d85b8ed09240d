//! The kind of a file, told by its content.

use std::io::Read;
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::batch_file::{RAGGED_MAGIC, UNIFORM_MAGIC};
use super::input::Input;
use super::market_header::is_banner;
use super::npy;
use crate::FormatError;

/// First bytes of a gzip stream.
pub(super) const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// First bytes of a ZIP archive with a file in it.
const ZIP_MAGIC: &[u8] = b"PK\x03\x04";

/// The kinds of files that are read, see [`detect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileKind {
    /// Matrix Market text.
    MatrixMarket,
    /// Matrix Market text packed with gzip.
    MatrixMarketGzip,
    /// An archive of NumPy arrays, as SciPy's `save_npz` writes it.
    Npz,
    /// An array as NumPy's `save` writes it.
    Npy,
    /// A uniform batch, `BATCH001`.
    UniformBatch,
    /// A ragged batch, `RAGGED01`.
    RaggedBatch,
}

/// Tells the kind of a file by its first bytes; its extension does not matter.
///
/// # Errors
/// [`FormatError::Io`] when the file cannot be read, [`FormatError::Binary`] when it is of no
/// [`FileKind`].
pub fn detect(path: impl AsRef<Path>) -> Result<FileKind, FormatError> {
    Input::open_file(path.as_ref())?.kind()
}

/// Tells the kind of a file by its first bytes; `None` for other content.
pub(super) fn detect_start(start: &[u8]) -> Option<FileKind> {
    if start.starts_with(GZIP_MAGIC) {
        let mut unpacked = Vec::new();
        // `start` may end in mid-stream, which is no fault of the file. A stream that cannot be
        // unpacked is not taken for Matrix Market: reading it as such would give a better error,
        // but any other gzip file may be broken too.
        let _ = MultiGzDecoder::new(start).take(start.len() as u64).read_to_end(&mut unpacked);
        return is_banner(&unpacked).then_some(FileKind::MatrixMarketGzip);
    }
    if is_banner(start) {
        Some(FileKind::MatrixMarket)
    } else if start.starts_with(ZIP_MAGIC) {
        Some(FileKind::Npz)
    } else if start.starts_with(npy::MAGIC) {
        Some(FileKind::Npy)
    } else if start.starts_with(UNIFORM_MAGIC) {
        Some(FileKind::UniformBatch)
    } else if start.starts_with(RAGGED_MAGIC) {
        Some(FileKind::RaggedBatch)
    } else {
        None
    }
}

/// The error for content of no known kind.
pub(super) fn unknown_start(path: &Path, start: &[u8]) -> FormatError {
    FormatError::Binary {
        path: path.to_owned(),
        what: "content".to_owned(),
        expected: "Matrix Market text (plain or gzip), a NumPy .npz or .npy, BATCH001 or RAGGED01"
            .to_owned(),
        found: match start {
            [] => "an empty file".to_owned(),
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "text in UTF-16".to_owned(),
            _ => format!("`{}`", start[..start.len().min(16)].escape_ascii()),
        },
    }
}
