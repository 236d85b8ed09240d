//! Matrix Market files: the banner and the size line.

use std::io::Read;

use super::number::is_blank_or_end;
use super::text::{Fault, Lines, describe};
use crate::FormatError;

/// The first word of the banner.
pub(super) const BANNER: &[u8] = b"%%MatrixMarket";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Coordinate,
    Array,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Real,
    Integer,
    Pattern,
}

/// What the entries of a file imply about others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symmetry {
    General,
    Symmetric,
    SkewSymmetric,
}

/// The size line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) layout: Layout,
    pub(super) nrows: usize,
    pub(super) ncols: usize,
    /// Entries the file must hold.
    pub(super) entries: usize,
    /// The line it stands in.
    pub(super) line: u64,
}

/// The words of a line with their columns, counted from 1.
fn words(line: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    line.split(|&b| is_blank_or_end(b))
        .filter(|word| !word.is_empty())
        .map(|word| (word.as_ptr().addr() - line.as_ptr().addr() + 1, word))
}

/// Reads the first line.
pub(super) fn read_banner(
    lines: &mut Lines<'_, impl Read>,
) -> Result<(Layout, Field, Symmetry), FormatError> {
    let path = lines.path;
    let error = |column: usize, expected: &str, found: String| FormatError::Parse {
        path: path.to_owned(),
        line: 1,
        column: column as u64,
        expected: expected.to_owned(),
        found,
    };
    let unsupported = |word: &[u8], expected: &'static str| FormatError::Unsupported {
        path: path.to_owned(),
        what: format!("`{}`", String::from_utf8_lossy(word)),
        expected,
    };
    let Some((line, length)) = lines.peek()? else {
        return Err(error(1, "%%MatrixMarket", "an empty file".to_owned()));
    };
    let end = line.len() + 1;
    let mut words = words(line);
    let mut word = |expected: &str| {
        let (column, word) = words.next().unwrap_or((end, b""));
        if word.is_empty() {
            return Err(error(column, expected, describe(word)));
        }
        Ok((column, word, word.to_ascii_lowercase()))
    };
    let (column, banner, lower) = word("%%MatrixMarket")?;
    if lower != BANNER.to_ascii_lowercase() || column != 1 {
        return Err(error(column, "%%MatrixMarket", describe(banner)));
    }
    let (column, object, lower) = word("matrix")?;
    if lower != b"matrix" {
        return Err(error(column, "matrix", describe(object)));
    }
    let (column, name, lower) = word("coordinate or array")?;
    let layout = match lower.as_slice() {
        b"coordinate" => Layout::Coordinate,
        b"array" => Layout::Array,
        _ => return Err(error(column, "coordinate or array", describe(name))),
    };
    let (column, name, lower) = word("real, integer or pattern")?;
    let field = match lower.as_slice() {
        b"real" | b"double" => Field::Real,
        b"integer" | b"unsigned-integer" => Field::Integer,
        b"pattern" if layout == Layout::Coordinate => Field::Pattern,
        b"pattern" => return Err(error(column, "real or integer (array)", describe(name))),
        b"complex" => return Err(unsupported(&lower, "real, integer or pattern")),
        _ => return Err(error(column, "real, integer or pattern", describe(name))),
    };
    let expected = "general, symmetric or skew-symmetric";
    let (column, name, lower) = word(expected)?;
    let symmetry = match lower.as_slice() {
        b"general" => Symmetry::General,
        b"symmetric" => Symmetry::Symmetric,
        b"skew-symmetric" if field != Field::Pattern => Symmetry::SkewSymmetric,
        b"skew-symmetric" => {
            let expected = "general or symmetric (pattern)";
            return Err(error(column, expected, describe(name)));
        }
        b"hermitian" => return Err(unsupported(&lower, expected)),
        _ => return Err(error(column, expected, describe(name))),
    };
    if let Some((column, more)) = words.next() {
        return Err(error(column, "the end of the line", describe(more)));
    }
    drop(words);
    lines.take(length, 1);
    Ok((layout, field, symmetry))
}

/// Reads the line with the sizes, and the comments before it.
pub(super) fn read_size(
    lines: &mut Lines<'_, impl Read>,
    layout: Layout,
    symmetry: Symmetry,
) -> Result<Size, FormatError> {
    let names: &[&str] = match layout {
        Layout::Coordinate => &["rows", "columns", "entries"],
        Layout::Array => &["rows", "columns"],
    };
    loop {
        let found = match lines.peek()? {
            None => {
                let expected = format!("a line with the numbers of {}", names.join(", "));
                return Err(lines.error(1, expected, "the end of the file".to_owned()));
            }
            Some((line, length)) => {
                if line.first() == Some(&b'%') || words(line).next().is_none() {
                    Err(length)
                } else {
                    Ok((parse_size(line, names), length))
                }
            }
        };
        let (numbers, length) = match found {
            Ok((Ok(numbers), length)) => (numbers, length),
            Ok((Err(fault), _)) => {
                return Err(lines.error(fault.column, fault.expected, fault.found));
            }
            Err(comment) => {
                lines.take(comment, 1);
                continue;
            }
        };
        let [nrows, ncols, declared] = numbers;
        if symmetry != Symmetry::General && nrows != ncols {
            let expected = "as many rows as columns in a symmetric matrix".to_owned();
            return Err(lines.error(1, expected, format!("{nrows} and {ncols}")));
        }
        let entries = match (layout, symmetry) {
            (Layout::Coordinate, _) => declared,
            (Layout::Array, Symmetry::General) => nrows * ncols,
            (Layout::Array, Symmetry::Symmetric) => nrows * (nrows + 1) / 2,
            (Layout::Array, Symmetry::SkewSymmetric) => nrows * nrows.saturating_sub(1) / 2,
        };
        if entries > i32::MAX as u64 {
            let expected = format!("at most {} entries", i32::MAX);
            return Err(lines.error(1, expected, entries.to_string()));
        }
        let size = Size {
            layout,
            nrows: nrows as usize,
            ncols: ncols as usize,
            entries: entries as usize,
            line: lines.line,
        };
        lines.take(length, 1);
        return Ok(size);
    }
}

fn parse_size(line: &[u8], names: &[&str]) -> Result<[u64; 3], Fault> {
    let mut numbers = [0u64; 3];
    let mut words = words(line);
    for (number, name) in numbers.iter_mut().zip(names) {
        let (column, word) = words.next().unwrap_or((line.len() + 1, b""));
        let digits = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
        let parsed = std::str::from_utf8(word).ok().and_then(|w| w.parse().ok());
        *number = match parsed {
            Some(found) if digits && found <= i32::MAX as u64 => found,
            _ if digits => {
                let expected = format!("at most {} {name}", i32::MAX);
                return Err(Fault::new(column, expected, describe(word)));
            }
            _ => {
                let expected = format!("the number of {name}");
                return Err(Fault::new(column, expected, describe(word)));
            }
        };
    }
    match words.next() {
        Some((column, more)) => {
            let expected = "the end of the line".to_owned();
            Err(Fault::new(column, expected, describe(more)))
        }
        None => Ok(numbers),
    }
}
