//! Opening files, and the limits on what their headers may declare.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::FormatError;

/// Rows, columns and items that a header may declare whatever the length of its file.
pub(crate) const FREE_COUNT: u128 = 65_536;
/// Further rows, columns and items for every byte of the file.
pub(crate) const COUNT_PER_BYTE: u128 = 64;

/// Attaches a path to an error of the operating system.
pub(crate) fn io_error(path: &Path) -> impl Fn(io::Error) -> FormatError + '_ {
    move |source| FormatError::Io { path: path.to_owned(), source }
}

/// Attaches a path to an error of this crate.
pub(crate) fn in_file(path: &Path) -> impl Fn(FormatError) -> FormatError + '_ {
    move |source| FormatError::InFile { path: path.to_owned(), source: Box::new(source) }
}

/// Opens a regular file and tells its length. Folders, pipes and devices are refused: their
/// content cannot be looked at twice, and some never end.
pub(crate) fn open(path: &Path) -> Result<(File, u64), FormatError> {
    let metadata = std::fs::metadata(path).map_err(io_error(path))?;
    if !metadata.is_file() {
        let what =
            if metadata.is_dir() { "is a folder, expected a file" } else { "is no regular file" };
        return Err(io_error(path)(io::Error::new(io::ErrorKind::InvalidInput, what)));
    }
    let file = File::open(path).map_err(io_error(path))?;
    Ok((file, metadata.len()))
}

/// The largest count that a header of a file with `bytes` bytes may declare without data behind
/// each unit.
pub(crate) fn count_limit(bytes: u64) -> u128 {
    FREE_COUNT + COUNT_PER_BYTE * u128::from(bytes)
}

/// Refuses a declared count that the file is too short to justify, so that a header alone cannot
/// make the library take memory.
pub(crate) fn check_declared(
    path: &Path,
    what: &str,
    declared: u128,
    bytes: u64,
) -> Result<(), FormatError> {
    let limit = count_limit(bytes);
    if declared <= limit {
        return Ok(());
    }
    Err(FormatError::Binary {
        path: path.to_owned(),
        what: what.to_owned(),
        expected: format!(
            "at most {limit} ({FREE_COUNT} and {COUNT_PER_BYTE} per byte) in a file of {bytes} bytes"
        ),
        found: declared.to_string(),
    })
}

/// Reads `count` little-endian numbers of `N` bytes, in pieces, so that memory grows with the data
/// that is there and not with `count`.
pub(crate) fn read_array<const N: usize, T>(
    reader: &mut impl Read,
    count: usize,
    out: &mut Vec<T>,
    decode: impl Fn([u8; N]) -> T,
) -> io::Result<()> {
    const PIECE: usize = 64 * 1024;
    let mut buffer = vec![0u8; PIECE.min(count.saturating_mul(N))];
    let mut left = count;
    while left > 0 {
        let now = left.min(PIECE / N);
        let bytes = &mut buffer[..now * N];
        reader.read_exact(bytes)?;
        let (numbers, _) = bytes.as_chunks::<N>();
        out.extend(numbers.iter().map(|&number| decode(number)));
        left -= now;
    }
    Ok(())
}
