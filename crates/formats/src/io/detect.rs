//! What a file is, by its content.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::batch_file::{RAGGED_MAGIC, UNIFORM_MAGIC};
use super::market_header::BANNER;
use super::source::{io_error, open};
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
    /// A uniform batch, `BATCH001`.
    UniformBatch,
    /// A ragged batch, `RAGGED01`.
    RaggedBatch,
}

/// Tells what a file is by its first bytes; its ending does not matter.
///
/// # Errors
/// [`FormatError::Io`] when it cannot be read, [`FormatError::Binary`] when it is none of
/// [`FileKind`].
pub fn detect(path: impl AsRef<Path>) -> Result<FileKind, FormatError> {
    let path = path.as_ref();
    let (file, _) = open(path)?;
    detect_open(file, path)?.ok_or_else(|| unknown(path))
}

/// As [`detect`], with `None` for other content.
pub(super) fn detect_open(file: File, path: &Path) -> Result<Option<FileKind>, FormatError> {
    let mut reader = BufReader::with_capacity(4096, file);
    let start = std::io::BufRead::fill_buf(&mut reader).map_err(io_error(path))?;
    if start.starts_with(GZIP_MAGIC) {
        let mut unpacked = Vec::new();
        let mut banner = MultiGzDecoder::new(reader).take(BANNER.len() as u64);
        // What cannot be unpacked is not Matrix Market; reading it as such would tell more, but
        // any other gzip file may be broken too.
        let _ = banner.read_to_end(&mut unpacked);
        return Ok(is_banner(&unpacked).then_some(FileKind::MatrixMarketGzip));
    }
    Ok(if is_banner(start) {
        Some(FileKind::MatrixMarket)
    } else if start.starts_with(ZIP_MAGIC) {
        Some(FileKind::Npz)
    } else if start.starts_with(UNIFORM_MAGIC) {
        Some(FileKind::UniformBatch)
    } else if start.starts_with(RAGGED_MAGIC) {
        Some(FileKind::RaggedBatch)
    } else {
        None
    })
}

fn is_banner(start: &[u8]) -> bool {
    start.get(..BANNER.len()).is_some_and(|word| word.eq_ignore_ascii_case(BANNER))
}

/// The error for content of no known kind.
pub(super) fn unknown(path: &Path) -> FormatError {
    let mut start = Vec::new();
    if let Ok((file, _)) = open(path) {
        // The error tells what could be read.
        let _ = file.take(16).read_to_end(&mut start);
    }
    FormatError::Binary {
        path: path.to_owned(),
        what: "content".to_owned(),
        expected: "Matrix Market text (plain or gzip), a NumPy .npz, BATCH001 or RAGGED01"
            .to_owned(),
        found: if start.is_empty() {
            "an empty file".to_owned()
        } else {
            format!("`{}`", start.escape_ascii())
        },
    }
}
