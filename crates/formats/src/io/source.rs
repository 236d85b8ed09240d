//! Opening files, and the limits on what their headers may declare.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use super::memory::MemoryLimit;
use crate::FormatError;

/// Items without rows that a header may declare whatever the length of its file.
const FREE_ITEMS: u128 = 65_536;
/// Further such items for every byte of the file.
const ITEMS_PER_BYTE: u128 = 64;
/// Empty rows that a system to be solved may have.
const EMPTY_ROWS: usize = 65_536;

/// The limits of a reader.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    /// The memory limit.
    pub(super) memory: MemoryLimit,
    /// Bytes that the caller will take for each row, in addition to the matrix.
    pub(super) bytes_per_row: u64,
    /// Whether the matrix is one of a system to be solved, so that many empty rows are a fault.
    pub(super) is_system: bool,
}

impl Bounds {
    /// Refuses a system with so many rows that more than 65,536 of them are empty. `entries` is the
    /// most entries that it can have.
    pub(super) fn check_rows(
        &self,
        path: &Path,
        nrows: usize,
        entries: usize,
    ) -> Result<(), FormatError> {
        let limit = entries.saturating_add(EMPTY_ROWS);
        if !self.is_system || nrows <= limit {
            return Ok(());
        }
        Err(FormatError::Binary {
            path: path.to_owned(),
            what: "rows".to_owned(),
            expected: format!(
                "at most {limit} in a system of {entries} entries, since others are empty"
            ),
            found: nrows.to_string(),
        })
    }

    /// Refuses a matrix that takes too much memory: `peak` bytes while it is read, and
    /// `bytes_per_row` for each row.
    pub(super) fn check_memory(
        &self,
        path: &Path,
        nrows: usize,
        entries: usize,
        peak: u128,
    ) -> Result<(), FormatError> {
        let what = || format!("a matrix of {nrows} rows and {entries} entries");
        let needed = peak + u128::from(self.bytes_per_row) * nrows as u128;
        self.memory.check(what, needed).map_err(in_file(path))
    }
}

/// Attaches a path to an error of the operating system.
pub(crate) fn io_error(path: &Path) -> impl Fn(io::Error) -> FormatError + '_ {
    move |source| FormatError::Io { path: path.to_owned(), source }
}

/// Attaches a path to an error of this crate.
pub(crate) fn in_file(path: &Path) -> impl Fn(FormatError) -> FormatError + '_ {
    move |source| FormatError::InFile { path: path.to_owned(), source: Box::new(source) }
}

/// Opens a regular file to be read, and tells its length. Folders, pipes and devices are refused,
/// without waiting for them: their content cannot be looked at twice, and some never end.
///
/// All inputs that are named by their paths are opened by this function.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::InvalidInput`] for what is no regular file.
pub fn open_file(path: impl AsRef<Path>) -> io::Result<(File, u64)> {
    let path = path.as_ref();
    // Opening a pipe would wait for a writer.
    check_regular(&std::fs::metadata(path)?)?;
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    check_regular(&metadata)?;
    Ok((file, metadata.len()))
}

/// Refuses what is no regular file.
pub(super) fn check_regular(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "is a folder, expected a file",
        () if kind.is_symlink() => "is a symbolic link, expected a file",
        () => "is a pipe or a device, expected a regular file",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Reads a whole regular file, opened by [`open_file`], if the available memory holds it.
///
/// # Errors
/// Those of [`open_file`]; [`io::ErrorKind::FileTooLarge`] for a file that takes more memory than
/// is available, [`io::ErrorKind::OutOfMemory`] where the system refuses it.
pub fn read_file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let (file, len) = open_file(path)?;
    let what = || "the file".to_owned();
    MemoryLimit::available()
        .check(what, u128::from(len))
        .map_err(|error| io::Error::new(io::ErrorKind::FileTooLarge, error.to_string()))?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len as usize).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // Bytes that are appended meanwhile are not read.
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file, with its path in errors.
pub(crate) fn open(path: &Path) -> Result<(File, u64), FormatError> {
    open_file(path).map_err(io_error(path))
}

/// Refuses a declared number of items that the file is too short to justify, so that a header
/// alone cannot make the library take memory: items without rows take no bytes of the file.
pub(crate) fn check_items(path: &Path, declared: u64, bytes: u64) -> Result<(), FormatError> {
    let limit = FREE_ITEMS + ITEMS_PER_BYTE * u128::from(bytes);
    if u128::from(declared) <= limit {
        return Ok(());
    }
    Err(FormatError::Binary {
        path: path.to_owned(),
        what: "nbatch".to_owned(),
        expected: format!(
            "at most {limit} ({FREE_ITEMS} and {ITEMS_PER_BYTE} per byte) in a file of {bytes} bytes"
        ),
        found: declared.to_string(),
    })
}

/// Reads `count` little-endian numbers of `N` bytes, in chunks, so that memory grows with the data
/// present and not with `count`. A failed allocation is [`io::ErrorKind::OutOfMemory`].
pub(crate) fn read_array<const N: usize, T>(
    reader: &mut impl Read,
    count: usize,
    out: &mut Vec<T>,
    mut decode: impl FnMut([u8; N]) -> T,
) -> io::Result<()> {
    const PIECE: usize = 64 * 1024;
    let mut buffer = vec![0u8; PIECE.min(count.saturating_mul(N))];
    let mut left = count;
    while left > 0 {
        let now = left.min(PIECE / N);
        let bytes = &mut buffer[..now * N];
        reader.read_exact(bytes)?;
        let (numbers, _) = bytes.as_chunks::<N>();
        out.try_reserve(now).map_err(|_| io::ErrorKind::OutOfMemory)?;
        out.extend(numbers.iter().map(|&number| decode(number)));
        left -= now;
    }
    Ok(())
}
