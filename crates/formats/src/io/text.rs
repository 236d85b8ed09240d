//! Text files, in large blocks of whole lines.

use std::io::{self, Read};
use std::path::Path;

use super::number::is_blank_or_end;
use super::source::io_error;
use crate::FormatError;

/// Initial size of the buffer.
const BLOCK: usize = 256 * 1024;
/// Longest line accepted, and most bytes of a block.
pub(super) const LINE_LIMIT: usize = 1024 * 1024;
/// Bytes of comments and blanks that a text may hold.
const FREE_BYTES: u64 = 64 << 20;
/// Further bytes allowed for each entry of the text; an entry takes some hundred at most.
const BYTES_PER_ENTRY: u64 = 1024;

/// Escapes control characters, so that text of unknown origin fits into a message of one line.
pub fn in_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

/// A stream cut into blocks of whole lines.
pub(super) struct Lines<'p, R> {
    reader: R,
    pub(super) path: &'p Path,
    buffer: Vec<u8>,
    /// Bytes of the buffer that the caller has taken.
    taken: usize,
    /// Bytes of the buffer that make whole lines; the start of the next line follows them.
    whole: usize,
    /// Bytes of the buffer that hold data.
    filled: usize,
    ended: bool,
    /// Number of the first line not taken, counted from 1.
    pub(super) line: u64,
    /// Bytes read from the stream.
    bytes: u64,
    /// Bytes that may be read, so that no text is endless.
    allowed: u64,
}

impl<'p, R: Read> Lines<'p, R> {
    pub(super) fn new(reader: R, path: &'p Path) -> Self {
        Self {
            reader,
            path,
            buffer: vec![0; BLOCK],
            taken: 0,
            whole: 0,
            filled: 0,
            ended: false,
            line: 1,
            bytes: 0,
            allowed: FREE_BYTES,
        }
    }

    /// Sets the allowed length of the text for the `entries` entries that were read so far.
    pub(super) fn allow_for(&mut self, entries: usize) {
        self.allowed = FREE_BYTES + BYTES_PER_ENTRY * entries as u64;
    }

    /// Makes at least one whole line available in [`Lines::block`]; false at the end of the file.
    /// The last line gets a line end if it has none.
    pub(super) fn fill(&mut self) -> Result<bool, FormatError> {
        if self.taken < self.whole {
            return Ok(true);
        }
        self.buffer.copy_within(self.whole..self.filled, 0);
        self.filled -= self.whole;
        (self.taken, self.whole) = (0, 0);
        while !self.ended {
            if self.filled == self.buffer.len() {
                if self.filled >= LINE_LIMIT {
                    let column = self.filled as u64;
                    let expected = format!("a line of at most {LINE_LIMIT} bytes");
                    return Err(self.error(column, expected, "a longer one".to_owned()));
                }
                self.buffer.resize(2 * self.filled, 0);
            }
            let count = match self.reader.read(&mut self.buffer[self.filled..]) {
                Ok(count) => count,
                Err(again) if again.kind() == io::ErrorKind::Interrupted => continue,
                Err(other) => return Err(io_error(self.path)(other)),
            };
            let read = self.filled..self.filled + count;
            self.filled += count;
            self.bytes += count as u64;
            if self.bytes > self.allowed {
                let expected = format!(
                    "at most {FREE_BYTES} bytes of comments and blanks, and {BYTES_PER_ENTRY} for \
                     each entry"
                );
                return Err(self.error(1, expected, "more".to_owned()));
            }
            if count == 0 {
                self.ended = true;
                if self.filled > 0 {
                    self.buffer.truncate(self.filled);
                    self.buffer.push(b'\n');
                    self.filled += 1;
                    self.whole = self.filled;
                }
            } else if let Some(last) = self.buffer[read.clone()].iter().rposition(|&b| b == b'\n') {
                self.whole = read.start + last + 1;
                return Ok(true);
            }
        }
        Ok(self.whole > 0)
    }

    /// The lines available, the last one ended by a line feed.
    pub(super) fn block(&self) -> &[u8] {
        &self.buffer[self.taken..self.whole]
    }

    /// Takes bytes from the front of the block: whole lines.
    pub(super) fn take(&mut self, bytes: usize, lines: u64) {
        self.taken += bytes;
        self.line += lines;
    }

    /// The next line without its end, and the length to take it with; `None` at the end of the
    /// file.
    pub(super) fn peek(&mut self) -> Result<Option<(&[u8], usize)>, FormatError> {
        if !self.fill()? {
            return Ok(None);
        }
        let block = self.block();
        let length = block.iter().position(|&b| b == b'\n').expect("a block ends with a line feed");
        let line = &block[..length];
        Ok(Some((line.strip_suffix(b"\r").unwrap_or(line), length + 1)))
    }

    /// An error in the first line not taken.
    pub(super) fn error(&self, column: u64, expected: String, found: String) -> FormatError {
        FormatError::Parse { path: self.path.to_owned(), line: self.line, column, expected, found }
    }
}

/// The text up to the next blank, shortened, for an error.
pub(super) fn describe(line: &[u8]) -> String {
    const SHOWN: usize = 40;
    let length = line.iter().position(|&b| is_blank_or_end(b));
    let token = &line[..length.unwrap_or(line.len())];
    if token.is_empty() {
        return "the end of the line".to_owned();
    }
    let shown = String::from_utf8_lossy(&token[..token.len().min(SHOWN)]);
    let dots = if token.len() > SHOWN { "..." } else { "" };
    format!("`{}{dots}`", shown.escape_debug())
}

/// What is wrong with a line.
pub(super) struct Fault {
    pub(super) column: u64,
    pub(super) expected: String,
    pub(super) found: String,
}

impl Fault {
    pub(super) fn new(column: usize, expected: String, found: String) -> Self {
        Self { column: column as u64, expected, found }
    }
}
