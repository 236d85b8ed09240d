//! `.npy` arrays, in files of their own and inside `.npz` archives (NumPy Enhancement Proposal 1),
//! limited to the types that files of numbers need: booleans, integers, floats and fixed-width
//! strings.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::ops::Range;

use super::source::read_array;

/// First bytes of an array.
pub(super) const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Longest header accepted; those of plain arrays take 128 bytes.
const HEADER_LIMIT: usize = 64 * 1024;
/// Longest string accepted in an array of strings.
const STRING_LIMIT: usize = 4096;

/// What is wrong with an array: what was expected, what was found.
#[derive(Debug)]
pub(super) enum NpyError {
    Io(io::Error),
    Header { expected: String, found: String },
}

impl From<io::Error> for NpyError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn wrong<T>(expected: impl Into<String>, found: impl Into<String>) -> Result<T, NpyError> {
    Err(NpyError::Header { expected: expected.into(), found: found.into() })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NpyKind {
    Bool,
    Signed,
    Unsigned,
    Float,
    Bytes,
    Unicode,
}

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DType {
    kind: NpyKind,
    big_endian: bool,
    /// Bytes of an element.
    size: usize,
}

/// An array whose header has been read and whose data comes next.
pub(super) struct Array<R> {
    reader: R,
    dtype: DType,
    descr: String,
    shape: Vec<u64>,
    fortran_order: bool,
    count: usize,
    /// The elements that are read, in the order of the file.
    part: Range<usize>,
    /// Bytes of the header.
    header_bytes: u64,
}

/// Indices of an array, checked against their limit.
pub(super) struct Indices {
    /// The indices; 0 replaces each one out of range.
    pub(super) values: Vec<i32>,
    /// The first index out of range: its position and its value.
    pub(super) out_of_range: Option<(usize, i64)>,
}

impl<R: Read> Array<R> {
    /// Reads the header.
    pub(super) fn new(mut reader: R) -> Result<Self, NpyError> {
        let mut start = [0; 8];
        reader.read_exact(&mut start)?;
        if &start[..6] != MAGIC {
            let found = format!("`{}`", start[..6].escape_ascii());
            return wrong("an array in npy format", found);
        }
        let mut length = [0; 4];
        match start[6] {
            1 => reader.read_exact(&mut length[..2])?,
            2 | 3 => reader.read_exact(&mut length)?,
            other => return wrong("npy version 1, 2 or 3", other.to_string()),
        }
        let lead = if start[6] == 1 { 10 } else { 12 };
        let length = u32::from_le_bytes(length) as usize;
        if length > HEADER_LIMIT {
            let expected = format!("a header of at most {HEADER_LIMIT} bytes");
            return wrong(expected, length.to_string());
        }
        let mut header = vec![0; length];
        reader.read_exact(&mut header)?;
        let Header { descr, fortran_order, shape } = Header::parse(&header)?;
        let dtype = DType::parse(&descr)?;
        let bytes = shape
            .iter()
            .try_fold(dtype.size as u64, |bytes, &length| bytes.checked_mul(length))
            .filter(|&bytes| bytes <= i64::MAX as u64);
        let Some(bytes) = bytes else {
            return wrong("a size that can be addressed", format!("shape {shape:?}"));
        };
        let count = (bytes / dtype.size as u64) as usize;
        let header_bytes = (lead + length) as u64;
        let part = 0..count;
        Ok(Self { reader, dtype, descr, shape, fortran_order, count, part, header_bytes })
    }

    /// The length of each dimension; empty for a scalar.
    pub(super) fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Number of elements.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The same array, of which some elements are read and the others are skipped. A range beyond its
    /// end is cut.
    pub(super) fn part(mut self, part: Range<usize>) -> Self {
        let end = part.end.min(self.count);
        self.part = part.start.min(end)..end;
        self
    }

    /// Whether the first index changes fastest. False where at most one dimension has a length
    /// other than 1, since the order makes no difference there.
    pub(super) fn is_fortran_ordered(&self) -> bool {
        self.fortran_order && self.shape.iter().filter(|&&length| length != 1).count() > 1
    }

    /// Refuses an array whose file or archive member is not as long as its header declares.
    pub(super) fn check_length(&self, found: u64) -> Result<(), NpyError> {
        let data = self.count as u64 * self.dtype.size as u64;
        match found.checked_sub(self.header_bytes) {
            Some(found) if found == data => Ok(()),
            found => wrong(
                format!("whole data, {data} bytes of {} elements", self.count),
                format!("{} bytes", found.unwrap_or(0)),
            ),
        }
    }

    fn check_order(&self) -> Result<(), NpyError> {
        match self.is_fortran_ordered() {
            true => wrong("a C-ordered array", "Fortran order"),
            false => Ok(()),
        }
    }

    /// The data as f64, in C order: floats, integers and booleans, each rounded to nearest.
    pub(super) fn into_f64(self) -> Result<Vec<f64>, NpyError> {
        self.check_order()?;
        self.into_f64_as_stored()
    }

    /// As [`Array::into_f64`], in the order of the file.
    pub(super) fn into_f64_as_stored(self) -> Result<Vec<f64>, NpyError> {
        macro_rules! decode {
            ($($kind:pat, $size:literal => $t:ty, $convert:expr;)*) => {
                match (self.dtype.kind, self.dtype.size) {
                    $(($kind, $size) => self.read(<$t>::from_le_bytes, $convert),)*
                    _ => self.wrong_type("numbers"),
                }
            };
        }
        decode! {
            NpyKind::Float, 8 => f64, |x| x;
            NpyKind::Float, 4 => f32, f64::from;
            NpyKind::Signed, 8 => i64, |x| x as f64;
            NpyKind::Signed, 4 => i32, f64::from;
            NpyKind::Signed, 2 => i16, f64::from;
            NpyKind::Signed, 1 => i8, f64::from;
            NpyKind::Unsigned, 8 => u64, |x| x as f64;
            NpyKind::Unsigned, 4 => u32, f64::from;
            NpyKind::Unsigned, 2 => u16, f64::from;
            NpyKind::Unsigned, 1 => u8, f64::from;
            NpyKind::Bool, 1 => u8, |x| f64::from(u8::from(x != 0));
        }
    }

    /// The data as i64, from integers of any size; unsigned ones beyond `i64::MAX` become
    /// `i64::MAX`.
    pub(super) fn into_i64(self) -> Result<Vec<i64>, NpyError> {
        self.into_integers(|found| found)
    }

    /// The data as indices below `limit`, which is at most 2^31.
    pub(super) fn into_indices(self, limit: usize) -> Result<Indices, NpyError> {
        let (position, out_of_range) = (Cell::new(self.part.start), Cell::new(None));
        let values = self.into_integers(|found| {
            let at = position.replace(position.get() + 1);
            if (0..limit as i64).contains(&found) {
                return found as i32;
            }
            if out_of_range.get().is_none() {
                out_of_range.set(Some((at, found)));
            }
            0
        })?;
        Ok(Indices { values, out_of_range: out_of_range.into_inner() })
    }

    fn into_integers<T>(self, convert: impl Fn(i64) -> T) -> Result<Vec<T>, NpyError> {
        self.check_order()?;
        match (self.dtype.kind, self.dtype.size) {
            (NpyKind::Signed, 8) => self.read(i64::from_le_bytes, convert),
            (NpyKind::Signed, 4) => self.read(i32::from_le_bytes, |x| convert(x.into())),
            (NpyKind::Signed, 2) => self.read(i16::from_le_bytes, |x| convert(x.into())),
            (NpyKind::Signed, 1) => self.read(i8::from_le_bytes, |x| convert(x.into())),
            (NpyKind::Unsigned, 8) => {
                self.read(u64::from_le_bytes, |x| convert(i64::try_from(x).unwrap_or(i64::MAX)))
            }
            (NpyKind::Unsigned, 4) => self.read(u32::from_le_bytes, |x| convert(x.into())),
            (NpyKind::Unsigned, 2) => self.read(u16::from_le_bytes, |x| convert(x.into())),
            (NpyKind::Unsigned, 1) => self.read(u8::from_le_bytes, |x| convert(x.into())),
            _ => self.wrong_type("integers"),
        }
    }

    /// The string of an array of one string.
    pub(super) fn into_string(mut self) -> Result<String, NpyError> {
        if self.count != 1 {
            return wrong("one string", format!("{} elements", self.count));
        }
        let size = self.dtype.size;
        if !matches!(self.dtype.kind, NpyKind::Bytes | NpyKind::Unicode) {
            return self.wrong_type("a string");
        }
        let mut bytes = vec![0; size];
        self.reader.read_exact(&mut bytes)?;
        self.finish()?;
        let text: String = if self.dtype.kind == NpyKind::Bytes {
            bytes.iter().map(|&byte| char::from(byte)).collect()
        } else {
            let (points, _) = bytes.as_chunks::<4>();
            points
                .iter()
                .map(|&point| {
                    let point = if self.dtype.big_endian {
                        u32::from_be_bytes(point)
                    } else {
                        u32::from_le_bytes(point)
                    };
                    char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER)
                })
                .collect()
        };
        Ok(text.trim_end_matches('\0').to_owned())
    }

    fn wrong_type<T>(&self, expected: &str) -> Result<T, NpyError> {
        wrong(expected, described_type(&self.descr))
    }

    fn read<const N: usize, S, T>(
        mut self,
        decode: impl Fn([u8; N]) -> S,
        convert: impl Fn(S) -> T,
    ) -> Result<Vec<T>, NpyError> {
        let mut out = Vec::new();
        let swap = self.dtype.big_endian;
        let Range { start, end } = self.part;
        self.skip(start)?;
        read_array(&mut self.reader, end - start, &mut out, |mut bytes| {
            if swap {
                bytes.reverse();
            }
            convert(decode(bytes))
        })?;
        self.skip(self.count - end)?;
        self.finish()?;
        Ok(out)
    }

    /// Passes over elements.
    fn skip(&mut self, elements: usize) -> Result<(), NpyError> {
        let bytes = elements as u64 * self.dtype.size as u64;
        let skipped = io::copy(&mut (&mut self.reader).take(bytes), &mut io::sink())?;
        match skipped == bytes {
            true => Ok(()),
            false => Err(NpyError::Io(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Checks that the data ends here; the archive compares its checksum at this point.
    fn finish(&mut self) -> Result<(), NpyError> {
        match self.reader.read(&mut [0])? {
            0 => Ok(()),
            _ => wrong(format!("{} elements", self.count), "more bytes"),
        }
    }
}

impl DType {
    fn parse(descr: &str) -> Result<Self, NpyError> {
        let known = || -> Option<Self> {
            let (order, rest) = descr.split_at_checked(1)?;
            let (kind, size) = rest.split_at_checked(1)?;
            let size: usize = size.parse().ok()?;
            let (kind, unit) = match kind {
                "b" => (NpyKind::Bool, 1),
                "i" => (NpyKind::Signed, 1),
                "u" => (NpyKind::Unsigned, 1),
                "f" => (NpyKind::Float, 1),
                "S" => (NpyKind::Bytes, 1),
                "U" => (NpyKind::Unicode, 4),
                _ => return None,
            };
            let big_endian = match order {
                "<" | "|" | "=" => false,
                ">" => true,
                _ => return None,
            };
            (1..=STRING_LIMIT).contains(&size).then_some(Self {
                kind,
                big_endian,
                size: size * unit,
            })
        };
        match known() {
            Some(dtype) => Ok(dtype),
            None => wrong("booleans, integers, floats or strings", described_type(descr)),
        }
    }
}

/// Names an element type for an error.
fn described_type(descr: &str) -> String {
    let name = match descr.get(1..2) {
        Some("c") => " (complex numbers)",
        Some("O") => " (Python objects)",
        _ => "",
    };
    format!("type `{}`{name}", descr.escape_debug())
}

/// The Python dictionary that precedes the data.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<u64>,
}

impl Header {
    fn parse(bytes: &[u8]) -> Result<Self, NpyError> {
        let found = || match std::str::from_utf8(bytes) {
            Ok(text) => {
                let shown: String = text.trim_end().chars().take(80).collect();
                format!("`{}`", shown.escape_debug())
            }
            Err(_) => "other bytes".to_owned(),
        };
        let text = std::str::from_utf8(bytes).ok();
        match text.and_then(|text| Self::parse_text(text.trim())) {
            Some(header) => Ok(header),
            None => wrong("a header with descr, fortran_order and shape", found()),
        }
    }

    fn parse_text(text: &str) -> Option<Self> {
        let mut rest = text.strip_prefix('{')?.strip_suffix('}')?.trim();
        let (mut descr, mut order, mut shape) = (None, None, None);
        while !rest.is_empty() {
            let (key, after) = quoted(rest)?;
            rest = after.trim_start().strip_prefix(':')?.trim_start();
            match key {
                "descr" => {
                    let (value, after) = quoted(rest)?;
                    descr = Some(value.to_owned());
                    rest = after;
                }
                "fortran_order" => {
                    let (value, after) = match rest.strip_prefix("True") {
                        Some(after) => (true, after),
                        None => (false, rest.strip_prefix("False")?),
                    };
                    order = Some(value);
                    rest = after;
                }
                "shape" => {
                    let (tuple, after) = rest.strip_prefix('(')?.split_once(')')?;
                    let lengths = tuple.split(',').map(str::trim).filter(|l| !l.is_empty());
                    // Python 2 wrote long integers with a trailing `L`.
                    let lengths = lengths.map(|length| length.trim_end_matches('L').parse().ok());
                    shape = Some(lengths.collect::<Option<Vec<u64>>>()?);
                    rest = after;
                }
                _ => return None,
            }
            rest = rest.trim_start();
            match rest.strip_prefix(',') {
                Some(after) => rest = after.trim_start(),
                None if rest.is_empty() => {}
                None => return None,
            }
        }
        Some(Self { descr: descr?, fortran_order: order?, shape: shape? })
    }
}

/// Splits a Python string without escapes off the front.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|&c| c == '\'' || c == '"')?;
    text[1..].split_once(quote)
}

/// Writes the header of a C-ordered array, padded so that the data begins at a multiple of 64.
pub(super) fn write_header(
    writer: &mut impl Write,
    descr: &str,
    shape: &[usize],
) -> io::Result<()> {
    let lengths: Vec<String> = shape.iter().map(|length| format!("{length}, ")).collect();
    let tuple = match lengths.as_slice() {
        [single] => single.trim_end().to_owned(),
        several => several.concat().trim_end_matches(", ").to_owned(),
    };
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({tuple}), }}");
    // Magic, version and length take 10 bytes, the final line feed one.
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    header.extend(std::iter::repeat_n(' ', length - 1 - header.len()));
    header.push('\n');
    writer.write_all(MAGIC)?;
    writer.write_all(&[1, 0])?;
    writer.write_all(&(length as u16).to_le_bytes())?;
    writer.write_all(header.as_bytes())
}
