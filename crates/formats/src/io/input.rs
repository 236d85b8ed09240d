//! Inputs whose first bytes are inspected before they are read: regular files and standard input.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::detect::{FileKind, detect_start, unknown_start};
use super::memory::MemoryLimit;
use super::source::{in_file, io_error, open};
use crate::FormatError;

/// Number of first bytes that are inspected.
const START: u64 = 4096;
/// Bytes of standard input between two checks of the memory.
const LOOK: u64 = 16 << 20;

/// An opened input and its first bytes.
pub(super) struct Input {
    /// Its name in errors.
    pub(super) path: PathBuf,
    /// Its length in bytes, if known.
    pub(super) len: Option<u64>,
    start: Vec<u8>,
    /// The file, positioned at its first byte; `None` for standard input, of which `start` has been
    /// read.
    file: Option<File>,
}

/// A seekable stream.
pub(super) trait ReadSeek: Read + Seek {}

impl<S: Read + Seek> ReadSeek for S {}

/// Whether a path means standard input.
pub(super) fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl Input {
    /// Opens a regular file.
    pub(super) fn open_file(path: &Path) -> Result<Self, FormatError> {
        let (mut file, len) = open(path)?;
        let start = read_start(&mut file).map_err(io_error(path))?;
        file.seek(SeekFrom::Start(0)).map_err(io_error(path))?;
        Ok(Self { path: path.to_owned(), len: Some(len), start, file: Some(file) })
    }

    /// Opens a regular file, or standard input by the name `-`.
    pub(super) fn open(path: &Path) -> Result<Self, FormatError> {
        if !is_standard_input(path) {
            return Self::open_file(path);
        }
        let path = PathBuf::from("standard input");
        let start = read_start(&mut io::stdin()).map_err(io_error(&path))?;
        Ok(Self { path, len: None, start, file: None })
    }

    /// The kind of the input, if known.
    pub(super) fn known_kind(&self) -> Option<FileKind> {
        detect_start(&self.start)
    }

    /// The kind of the input.
    ///
    /// # Errors
    /// [`FormatError::Binary`] for content of no known kind.
    pub(super) fn kind(&self) -> Result<FileKind, FormatError> {
        self.known_kind().ok_or_else(|| unknown_start(&self.path, &self.start))
    }

    /// A reader that starts at the first byte.
    pub(super) fn into_reader(self) -> Box<dyn Read> {
        match self.file {
            Some(file) => Box::new(file),
            None => Box::new(Cursor::new(self.start).chain(io::stdin())),
        }
    }

    /// A seekable reader that starts at the first byte, and its length; standard input is read into
    /// memory first.
    pub(super) fn into_seekable(
        self,
        memory: MemoryLimit,
    ) -> Result<(Box<dyn ReadSeek>, u64), FormatError> {
        match (self.file, self.len) {
            (Some(file), Some(len)) => Ok((Box::new(file), len)),
            _ => {
                let bytes = read_all(self.start, memory).map_err(in_file(&self.path))?;
                let len = bytes.len() as u64;
                Ok((Box::new(Cursor::new(bytes)), len))
            }
        }
    }
}

fn read_start(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    reader.take(START).read_to_end(&mut start)?;
    Ok(start)
}

/// Reads the rest of standard input; `bytes` holds its start.
fn read_all(mut bytes: Vec<u8>, memory: MemoryLimit) -> Result<Vec<u8>, FormatError> {
    let input = Path::new("standard input");
    loop {
        // The reader that parses the content takes as much again.
        let needed = 2 * (bytes.len() as u128 + u128::from(LOOK));
        memory.check(|| format!("{} bytes and more", bytes.len()), needed)?;
        let refused = |_| FormatError::Memory { what: "standard input", bytes: needed };
        bytes.try_reserve(LOOK as usize).map_err(refused)?;
        let read = io::stdin().take(LOOK).read_to_end(&mut bytes).map_err(io_error(input))?;
        if read == 0 {
            return Ok(bytes);
        }
    }
}
