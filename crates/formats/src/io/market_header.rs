//! Matrix Market files: the banner and the size line.

use std::io::Read;
use std::path::Path;

use super::number::is_blank_or_end;
use super::text::{Fault, Lines, describe};
use crate::FormatError;

/// The first word of the banner, after one or two per cent signs.
const BANNER: &[u8] = b"MatrixMarket";
/// The byte-order mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whether a text begins as a Matrix Market file does, after a byte-order mark, blanks and blank
/// lines.
pub(super) fn is_banner(text: &[u8]) -> bool {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    words(text).next().is_some_and(|(_, word)| is_banner_word(word))
}

/// Whether a word is `%%MatrixMarket`, or `%MatrixMarket` as some collections write it.
fn is_banner_word(word: &[u8]) -> bool {
    let rest = word.strip_prefix(b"%").unwrap_or(b"");
    rest.strip_prefix(b"%").unwrap_or(rest).eq_ignore_ascii_case(BANNER)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarketLayout {
    Coordinate,
    Array,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Real,
    Integer,
    Pattern,
}

/// Which further entries the entries of a file imply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarketSymmetry {
    General,
    Symmetric,
    SkewSymmetric,
}

/// The first line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Banner {
    pub(super) layout: MarketLayout,
    pub(super) field: Field,
    pub(super) symmetry: MarketSymmetry,
    /// Whether the file holds a vector, whose entries have a row index only.
    pub(super) is_vector: bool,
}

/// The size line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) nrows: usize,
    pub(super) ncols: usize,
    /// Most entries that the file may hold.
    pub(super) entries: usize,
    /// Fewest entries that it must hold: fewer than `entries` for a skew-symmetric array file,
    /// whose diagonal of zeros MATLAB writes and others leave out.
    pub(super) fewest: usize,
}

/// The words of a line with their columns, counted from 1.
fn words(line: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    line.split(|&b| is_blank_or_end(b))
        .filter(|word| !word.is_empty())
        .map(|word| (word.as_ptr().addr() - line.as_ptr().addr() + 1, word))
}

/// Reads the first line that is not blank.
pub(super) fn read_banner(lines: &mut Lines<'_, impl Read>) -> Result<Banner, FormatError> {
    let path = lines.path;
    loop {
        let number = lines.line;
        let Some((line, length)) = lines.peek()? else {
            return Err(lines.error(1, "%%MatrixMarket".to_owned(), "an empty file".to_owned()));
        };
        let line = match number {
            1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
            _ => line,
        };
        let is_blank = words(line).next().is_none();
        let banner = if is_blank { None } else { Some(parse_banner(line, number, path)?) };
        lines.take(length, 1);
        if let Some(banner) = banner {
            return Ok(banner);
        }
    }
}

fn parse_banner(line: &[u8], number: u64, path: &Path) -> Result<Banner, FormatError> {
    let mut words = BannerWords { words: words(line), end: line.len() + 1, number, path };
    let found = words.next("%%MatrixMarket")?;
    if !is_banner_word(found.text) {
        return Err(words.unexpected(found, "%%MatrixMarket"));
    }
    let is_vector = words.is_vector()?;
    let layout = words.layout()?;
    let field = words.field(layout)?;
    let symmetry = words.symmetry(is_vector, field)?;
    words.finish()?;
    Ok(Banner { layout, field, symmetry, is_vector })
}

/// A word of the banner, and the column where it begins.
#[derive(Clone, Copy)]
struct BannerWord<'a> {
    column: usize,
    text: &'a [u8],
}

impl BannerWord<'_> {
    fn lowercase(self) -> Vec<u8> {
        self.text.to_ascii_lowercase()
    }
}

/// The words of the banner that are still unread.
struct BannerWords<'a, I> {
    words: I,
    /// The column behind the last character of the line.
    end: usize,
    /// The number of the line in the file.
    number: u64,
    path: &'a Path,
}

impl<'a, I: Iterator<Item = (usize, &'a [u8])>> BannerWords<'a, I> {
    /// Reads one word. Its absence is an error that says what was `expected`.
    fn next(&mut self, expected: &str) -> Result<BannerWord<'a>, FormatError> {
        match self.words.next() {
            Some((column, text)) => Ok(BannerWord { column, text }),
            None => {
                let end_of_line = BannerWord { column: self.end, text: b"" };
                Err(self.unexpected(end_of_line, expected))
            }
        }
    }

    /// The error about a word that is not what was `expected`.
    fn unexpected(&self, found: BannerWord<'_>, expected: &str) -> FormatError {
        FormatError::Parse {
            path: self.path.to_owned(),
            line: self.number,
            column: found.column as u64,
            expected: expected.to_owned(),
            found: describe(found.text),
        }
    }

    /// Reads whether the file holds a vector or a matrix.
    fn is_vector(&mut self) -> Result<bool, FormatError> {
        const EXPECTED: &str = "matrix or vector";
        let word = self.next(EXPECTED)?;
        match word.lowercase().as_slice() {
            b"matrix" => Ok(false),
            b"vector" => Ok(true),
            _ => Err(self.unexpected(word, EXPECTED)),
        }
    }

    /// Reads whether the entries have indices or are a dense array.
    fn layout(&mut self) -> Result<MarketLayout, FormatError> {
        const EXPECTED: &str = "coordinate or array";
        let word = self.next(EXPECTED)?;
        match word.lowercase().as_slice() {
            b"coordinate" => Ok(MarketLayout::Coordinate),
            b"array" => Ok(MarketLayout::Array),
            _ => Err(self.unexpected(word, EXPECTED)),
        }
    }

    /// Reads the kind of the values. An array cannot be a pattern.
    fn field(&mut self, layout: MarketLayout) -> Result<Field, FormatError> {
        const EXPECTED: &str = "real, integer or pattern";
        let word = self.next(EXPECTED)?;
        match word.lowercase().as_slice() {
            b"real" | b"double" => Ok(Field::Real),
            b"integer" | b"unsigned-integer" => Ok(Field::Integer),
            b"pattern" if layout == MarketLayout::Coordinate => Ok(Field::Pattern),
            b"pattern" => Err(self.unexpected(word, "real or integer (array)")),
            b"complex" => Err(FormatError::Unsupported {
                path: self.path.to_owned(),
                what: "`complex`".to_owned(),
                expected: EXPECTED,
            }),
            _ => Err(self.unexpected(word, EXPECTED)),
        }
    }

    /// Reads the symmetry. A vector has none, and a pattern has no signs to be skew-symmetric in.
    fn symmetry(&mut self, is_vector: bool, field: Field) -> Result<MarketSymmetry, FormatError> {
        let expected = match (is_vector, field) {
            (true, _) => "general (vector)",
            (_, Field::Pattern) => "general or symmetric (pattern)",
            _ => "general, symmetric or skew-symmetric",
        };
        let word = self.next(expected)?;
        match word.lowercase().as_slice() {
            b"general" => Ok(MarketSymmetry::General),
            // A real number is its own conjugate: hermitian means symmetric.
            b"symmetric" | b"hermitian" if !is_vector => Ok(MarketSymmetry::Symmetric),
            b"skew-symmetric" if !is_vector && field != Field::Pattern => {
                Ok(MarketSymmetry::SkewSymmetric)
            }
            _ => Err(self.unexpected(word, expected)),
        }
    }

    /// Refuses further words.
    fn finish(mut self) -> Result<(), FormatError> {
        match self.words.next() {
            Some((column, text)) => {
                Err(self.unexpected(BannerWord { column, text }, "the end of the line"))
            }
            None => Ok(()),
        }
    }
}

/// Reads the line with the sizes, and the comments before it.
pub(super) fn read_size(
    lines: &mut Lines<'_, impl Read>,
    banner: Banner,
) -> Result<Size, FormatError> {
    let names: &[&str] = match (banner.layout, banner.is_vector) {
        (MarketLayout::Coordinate, false) => &["rows", "columns", "entries"],
        (MarketLayout::Coordinate, true) => &["rows", "entries"],
        (MarketLayout::Array, false) => &["rows", "columns"],
        (MarketLayout::Array, true) => &["rows"],
    };
    loop {
        let found = match lines.peek()? {
            None => {
                let expected = format!("a line with the numbers of {}", names.join(", "));
                return Err(lines.error(1, expected, "the end of the file".to_owned()));
            }
            Some((line, length)) => match words(line).next() {
                None => Err(length),
                Some((_, word)) if word.starts_with(b"%") => Err(length),
                Some(_) => Ok((parse_size(line, names), length)),
            },
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
        let nrows = numbers[0];
        let ncols = if banner.is_vector { 1 } else { numbers[1] };
        if banner.symmetry != MarketSymmetry::General && nrows != ncols {
            let expected = "as many rows as columns in a symmetric matrix".to_owned();
            return Err(lines.error(1, expected, format!("{nrows} and {ncols}")));
        }
        let (entries, fewest) = match (banner.layout, banner.symmetry) {
            (MarketLayout::Coordinate, _) => {
                let declared = numbers[names.len() - 1];
                (declared, declared)
            }
            (MarketLayout::Array, MarketSymmetry::General) => (nrows * ncols, nrows * ncols),
            (MarketLayout::Array, symmetry) => {
                let triangle = nrows * (nrows + 1) / 2;
                let is_skew = symmetry == MarketSymmetry::SkewSymmetric;
                (triangle, if is_skew { triangle - nrows } else { triangle })
            }
        };
        if entries > i32::MAX as u64 {
            let expected = format!("at most {} entries", i32::MAX);
            return Err(lines.error(1, expected, entries.to_string()));
        }
        let size = Size {
            nrows: nrows as usize,
            ncols: ncols as usize,
            entries: entries as usize,
            fewest: fewest as usize,
        };
        lines.take(length, 1);
        return Ok(size);
    }
}

/// The numbers of a size line, in the order of their names.
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
        // The size line of an array vector may also give its one column.
        Some((_, b"1")) if names == ["rows"] && words.next().is_none() => Ok(numbers),
        Some((column, more)) => {
            let expected = "the end of the line".to_owned();
            Err(Fault::new(column, expected, describe(more)))
        }
        None => Ok(numbers),
    }
}
