//! Matrix Market files: the entries.

use super::assemble::Triplets;
use super::market_header::{Field, Layout, Size, Symmetry};
use super::number::{self, NoValue, is_blank_or_end};
use super::text::{Fault, describe};

/// A place in a block of whole lines. The block ends with a line feed, at which every scan stops.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    line_start: usize,
    /// Lines before the current one.
    lines: u64,
}

impl<'a> Cursor<'a> {
    /// At the begin of a block.
    pub(super) fn new(block: &'a [u8]) -> Self {
        Self { bytes: block, at: 0, line_start: 0, lines: 0 }
    }

    /// Where the line begins that the cursor is in, and how many lines are before it.
    pub(super) fn line_start(&self) -> (usize, u64) {
        (self.line_start, self.lines)
    }

    #[inline(always)]
    fn skip_blanks(&mut self) {
        while matches!(self.bytes[self.at], b' ' | b'\t' | b'\r') {
            self.at += 1;
        }
    }

    fn fault(&self, expected: String) -> Fault {
        let found = describe(&self.bytes[self.at..]);
        Fault::new(self.at - self.line_start + 1, expected, found)
    }

    /// An index in 1..=limit, made zero-based.
    #[inline(always)]
    fn index(&mut self, what: &str, limit: usize) -> Result<i32, Fault> {
        match number::unsigned(self.bytes, self.at) {
            Some((index, end)) if index.wrapping_sub(1) < limit as u64 => {
                self.at = end;
                Ok((index - 1) as i32)
            }
            _ => Err(self.fault(format!("a {what} index in 1..={limit}"))),
        }
    }

    #[inline(always)]
    fn value(&mut self, field: Field) -> Result<f64, Fault> {
        let fast = match field {
            Field::Integer => number::fast_integer(self.bytes, self.at),
            Field::Real | Field::Pattern => number::fast(self.bytes, self.at),
        };
        if let Some((value, end)) = fast {
            self.at = end;
            return Ok(value);
        }
        self.slow_value(field)
    }

    fn slow_value(&mut self, field: Field) -> Result<f64, Fault> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&b| is_blank_or_end(b));
        let token = &rest[..length.unwrap_or(0)];
        let (value, kind) = match field {
            Field::Integer => (number::slow_integer(token), "an integer"),
            Field::Real | Field::Pattern => (number::slow(token), "a number"),
        };
        match value {
            Ok(value) => {
                self.at += token.len();
                Ok(value)
            }
            Err(NoValue::Overflow) => Err(self.fault(format!("{kind} in the range of f64"))),
            Err(NoValue::NotANumber) => Err(self.fault(kind.to_owned())),
        }
    }
}

/// Collects the entries of a file.
pub(super) struct Entries {
    layout: Layout,
    field: Field,
    symmetry: Symmetry,
    size: Size,
    triplets: Triplets,
    /// Entries read.
    count: usize,
    /// Array files: the place of the next value.
    next: (i32, i32),
}

impl Entries {
    /// No entry yet.
    pub(super) fn new(field: Field, symmetry: Symmetry, size: Size) -> Self {
        Self {
            layout: size.layout,
            field,
            symmetry,
            size,
            triplets: Triplets::default(),
            count: 0,
            next: (i32::from(symmetry == Symmetry::SkewSymmetric), 0),
        }
    }

    /// Whether all entries declared were read; else what is missing.
    pub(super) fn check_complete(&self) -> Result<(), String> {
        if self.count < self.size.entries {
            return Err(format!("entry {} of {}", self.count + 1, self.size.entries));
        }
        Ok(())
    }

    /// The entries.
    pub(super) fn into_triplets(self) -> Triplets {
        self.triplets
    }

    /// Reads a block of whole lines.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        while cursor.at < cursor.bytes.len() {
            cursor.line_start = cursor.at;
            if cursor.bytes[cursor.at] == b'%' {
                let comment = &cursor.bytes[cursor.at..];
                let length = comment.iter().position(|&b| b == b'\n');
                cursor.at += length.unwrap_or(comment.len() - 1);
            } else {
                cursor.skip_blanks();
                if cursor.bytes[cursor.at] != b'\n' {
                    self.read_entry(cursor)?;
                    cursor.skip_blanks();
                    if cursor.bytes[cursor.at] != b'\n' {
                        return Err(cursor.fault("the end of the line".to_owned()));
                    }
                }
            }
            cursor.at += 1;
            cursor.lines += 1;
        }
        cursor.line_start = cursor.at;
        Ok(())
    }

    #[inline(always)]
    fn read_entry(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        if self.count == self.size.entries {
            let expected = format!("the end of the file after {} entries", self.count);
            return Err(cursor.fault(expected));
        }
        let (row, col, value) = match self.layout {
            Layout::Coordinate => self.coordinate(cursor)?,
            Layout::Array => {
                let (row, col) = self.next;
                let value = cursor.value(self.field)?;
                self.advance();
                (row, col, value)
            }
        };
        self.triplets.push(row, col, value);
        self.count += 1;
        Ok(())
    }

    #[inline(always)]
    fn coordinate(&self, cursor: &mut Cursor<'_>) -> Result<(i32, i32, f64), Fault> {
        let row = cursor.index("row", self.size.nrows)?;
        cursor.skip_blanks();
        let start = cursor.at;
        let col = cursor.index("column", self.size.ncols)?;
        if self.symmetry != Symmetry::General && col >= row {
            let strict = self.symmetry == Symmetry::SkewSymmetric;
            if col > row || strict {
                cursor.at = start;
                let below = if strict { "below" } else { "on or below" };
                return Err(
                    cursor.fault(format!("an entry {below} the diagonal (row {})", row + 1))
                );
            }
        }
        if self.field == Field::Pattern {
            return Ok((row, col, 1.0));
        }
        cursor.skip_blanks();
        Ok((row, col, cursor.value(self.field)?))
    }

    /// Moves on to the next place of an array file: down the column, then to the next one.
    fn advance(&mut self) {
        let (row, col) = &mut self.next;
        *row += 1;
        if *row as usize == self.size.nrows {
            *col += 1;
            *row = match self.symmetry {
                Symmetry::General => 0,
                Symmetry::Symmetric => *col,
                Symmetry::SkewSymmetric => *col + 1,
            };
        }
    }
}
