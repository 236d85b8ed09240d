//! Matrix Market files (`.mtx`, also gzip): reading. [`super`] says what is accepted.

use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::assemble::{NoBlock, Triplets};
use super::detect::GZIP_MAGIC;
use super::market_entries::{Cursor, Entries, Stop, Wanted};
use super::market_header::{Banner, MarketLayout, MarketSymmetry, Size, read_banner, read_size};
use super::memory::MemoryLimit;
use super::source::{Bounds, in_file, open};
use super::text::{LINE_LIMIT, Lines};
use crate::error::zeros;
use crate::{Csr, FormatError};

/// Most bytes that a byte of a gzip stream unpacks to: deflate packs 258 bytes to 2 bits.
const MOST_UNPACKED: u64 = 1032;
/// Fewest bytes that an entry takes in a text.
const ENTRY_BYTES: u64 = 2;
/// Entries between two checks of the memory, where the length of the text is not known.
const ENTRIES_PER_LOOK: usize = 1 << 20;

/// A dense matrix or several vectors, as read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// Number of rows.
    pub nrows: usize,
    /// Number of columns, one per vector.
    pub ncols: usize,
    /// The values, column after column: `values[col * nrows + row]`.
    pub values: Vec<f64>,
}

/// Reads a Matrix Market file, plain or gzip (told by its content), as CSR.
///
/// See the [module documentation](crate::io) for what is accepted. An array file gives a matrix
/// that stores every position, zeros included; a vector gives a matrix of one column. The file is
/// read in one pass. Its peak memory is 28 bytes per expanded entry (2.33 times the matrix), less
/// for symmetric matrices, and 4 bytes per row.
///
/// # Errors
/// [`FormatError::Io`] when the file cannot be read, [`FormatError::Parse`] with line and column
/// where it violates the format, [`FormatError::Binary`] where its entries contradict each other or
/// the symmetry, [`FormatError::Unsupported`] for complex matrices, [`FormatError::InFile`] when
/// the expanded entries exceed what `i32` can count or the matrix exceeds the memory available.
pub fn read_matrix_market(path: impl AsRef<Path>) -> Result<Csr<f64>, FormatError> {
    let path = path.as_ref();
    let (file, len) = open(path)?;
    read_matrix(file, path, Some(len), Bounds::default())
}

/// Reads a Matrix Market stream, plain or gzip, as CSR, within a limit of memory; `path` names it
/// in errors.
///
/// # Errors
/// As [`read_matrix_market`].
pub fn read_matrix_market_from(
    reader: impl Read,
    path: &Path,
    memory: MemoryLimit,
) -> Result<Csr<f64>, FormatError> {
    read_matrix(reader, path, None, Bounds { memory, ..Bounds::default() })
}

/// Reads a matrix from a stream of `len` bytes (`None`: unknown).
pub(super) fn read_matrix(
    reader: impl Read,
    path: &Path,
    len: Option<u64>,
    bounds: Bounds,
) -> Result<Csr<f64>, FormatError> {
    let Content { size, symmetry, triplets, .. } = read_any(reader, path, len, bounds)?;
    triplets.into_csr(size.nrows, size.ncols, symmetry).map_err(in_file(path))
}

/// Reads a Matrix Market file of either kind as a dense matrix, for right-hand sides: an array file
/// as it is, a coordinate file with zeros where it has no entry.
///
/// # Errors
/// As [`read_matrix_market`], with the memory of the dense matrix.
pub fn read_dense(path: impl AsRef<Path>) -> Result<Dense, FormatError> {
    let path = path.as_ref();
    let (file, len) = open(path)?;
    let bounds = Bounds::default();
    read_any(file, path, Some(len), bounds)?.into_dense(path, bounds.memory)
}

/// Reads a Matrix Market stream, plain or gzip, as a dense matrix, within a limit of memory;
/// `path` names it in errors.
///
/// # Errors
/// As [`read_dense`].
pub fn read_dense_from(
    reader: impl Read,
    path: &Path,
    memory: MemoryLimit,
) -> Result<Dense, FormatError> {
    read_any(reader, path, None, Bounds { memory, ..Bounds::default() })?.into_dense(path, memory)
}

/// Reads a vector: a Matrix Market file of a vector, or of a matrix with one column or one row.
///
/// # Errors
/// As [`read_dense`], and [`FormatError::Unsupported`] for a matrix of more than one row and one
/// column.
pub fn read_vector(path: impl AsRef<Path>) -> Result<Vec<f64>, FormatError> {
    let path = path.as_ref();
    let (file, len) = open(path)?;
    read_vector_from(file, path, Some(len), MemoryLimit::available())
}

/// Reads a vector from a stream of `len` bytes (`None`: unknown).
pub(super) fn read_vector_from(
    reader: impl Read,
    path: &Path,
    len: Option<u64>,
    memory: MemoryLimit,
) -> Result<Vec<f64>, FormatError> {
    let content = read_any(reader, path, len, Bounds { memory, ..Bounds::default() })?;
    let Size { nrows, ncols, .. } = content.size;
    if nrows != 1 && ncols != 1 {
        return Err(FormatError::Unsupported {
            path: path.to_owned(),
            what: format!("a {nrows} x {ncols} matrix as a vector"),
            expected: "one column or one row",
        });
    }
    Ok(content.into_dense(path, memory)?.values)
}

/// What a file holds.
struct Content {
    layout: MarketLayout,
    size: Size,
    symmetry: MarketSymmetry,
    triplets: Triplets,
}

impl Content {
    fn into_dense(self, path: &Path, memory: MemoryLimit) -> Result<Dense, FormatError> {
        let Self { layout, size: Size { nrows, ncols, entries, .. }, symmetry, triplets } = self;
        let what = || format!("a dense matrix of {nrows} rows and {ncols} columns");
        let places = nrows as u128 * ncols as u128;
        memory.check(what, 8 * places + 16 * entries as u128).map_err(in_file(path))?;
        let mut values: Vec<f64> =
            zeros("values of the dense matrix", nrows * ncols).map_err(in_file(path))?;
        let mut add = |row: i32, col: i32, value: f64| {
            let place = &mut values[col as usize * nrows + row as usize];
            // The values of an array are assigned, not added, so that -0 stays.
            *place = match layout {
                MarketLayout::Array => value,
                MarketLayout::Coordinate => *place + value,
            };
        };
        for (row, col, value) in triplets.iter() {
            add(row, col, value);
            if symmetry != MarketSymmetry::General && row != col {
                let negated = symmetry == MarketSymmetry::SkewSymmetric;
                add(col, row, if negated { -value } else { value });
            }
        }
        Ok(Dense { nrows, ncols, values })
    }
}

fn read_any(
    reader: impl Read,
    path: &Path,
    len: Option<u64>,
    bounds: Bounds,
) -> Result<Content, FormatError> {
    let (banner, size, entries) = read_wanted(reader, path, len, bounds, |_, _| Ok(Wanted::All))?;
    let triplets = entries.finish(path)?;
    Ok(Content { layout: banner.layout, size, symmetry: banner.symmetry, triplets })
}

/// The sizes of a matrix, and the entries of its rows, those that its symmetry implies among them, by
/// groups of `group` rows, which is a function of the number of rows.
pub(super) fn count_entries(
    reader: impl Read,
    path: &Path,
    len: Option<u64>,
    bounds: Bounds,
    group: impl Fn(usize) -> usize,
) -> Result<(usize, usize, Vec<u64>), FormatError> {
    let (_, size, entries) = read_wanted(reader, path, len, bounds, |banner, size| {
        check_divisible(path, banner)?;
        let group = group(size.nrows);
        let counts = zeros("counts of entries", size.nrows.div_ceil(group))?;
        Ok(Wanted::Counts { group: group as i32, counts })
    })?;
    Ok((size.nrows, size.ncols, entries.into_counts()))
}

/// Reads some rows of a matrix. Memory is in proportion to their entries.
pub(super) fn read_rows(
    reader: impl Read,
    path: &Path,
    len: Option<u64>,
    bounds: Bounds,
    rows: Range<usize>,
) -> Result<Csr<f64>, FormatError> {
    let (_, size, entries) = read_wanted(reader, path, len, bounds, |banner, size| {
        check_divisible(path, banner)?;
        let end = rows.end.min(size.nrows);
        let rows = rows.start.min(end) as i32..end as i32;
        Ok(Wanted::Rows { rows, implied: Triplets::default() })
    })?;
    let triplets = entries.finish(path)?;
    triplets.into_csr(rows.len(), size.ncols, MarketSymmetry::General).map_err(in_file(path))
}

/// The positions of a skew-symmetric array are known at its end only.
fn check_divisible(path: &Path, banner: Banner) -> Result<(), FormatError> {
    if banner.layout == MarketLayout::Array && banner.symmetry == MarketSymmetry::SkewSymmetric {
        return Err(FormatError::Unsupported {
            path: path.to_owned(),
            what: "a skew-symmetric array by rows".to_owned(),
            expected: "a coordinate file",
        });
    }
    Ok(())
}

/// Reads a file to its end; `wanted` says, by its header, what becomes of its entries.
fn read_wanted(
    reader: impl Read,
    path: &Path,
    len: Option<u64>,
    bounds: Bounds,
    wanted: impl FnOnce(Banner, Size) -> Result<Wanted, FormatError>,
) -> Result<(Banner, Size, Entries), FormatError> {
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    let start = std::io::BufRead::fill_buf(&mut reader).map_err(super::source::io_error(path))?;
    if start.starts_with(GZIP_MAGIC) {
        let len = len.map(|len| len.saturating_mul(MOST_UNPACKED));
        read_text(MultiGzDecoder::new(reader), path, len, bounds, wanted)
    } else {
        read_text(reader, path, len, bounds, wanted)
    }
}

/// Reads a text of at most `len` bytes (`None`: unknown).
fn read_text(
    reader: impl Read,
    path: &Path,
    len: Option<u64>,
    bounds: Bounds,
    wanted: impl FnOnce(Banner, Size) -> Result<Wanted, FormatError>,
) -> Result<(Banner, Size, Entries), FormatError> {
    let mut lines = Lines::new(reader, path);
    let banner = read_banner(&mut lines)?;
    let size = read_size(&mut lines, banner)?;
    let expanded =
        if banner.symmetry == MarketSymmetry::General { size.entries } else { 2 * size.entries };
    bounds.check_rows(path, size.nrows, expanded)?;
    let wanted = wanted(banner, size)?;
    // Checks the memory for the entries that the header declares and the length of the file allows,
    // before any is taken. How many some rows have is not known before they are read.
    let (nrows, takes_all) = match &wanted {
        Wanted::All => (size.nrows, true),
        Wanted::Rows { rows, .. } => (rows.len(), false),
        Wanted::Counts { counts, .. } => (2 * counts.len(), false),
    };
    let peak = |entries| match takes_all {
        true => Triplets::peak_bytes(entries, nrows, banner.symmetry),
        // Implied entries are copied once more.
        false => {
            Triplets::peak_bytes(entries, nrows, MarketSymmetry::General) + 16 * entries as u128
        }
    };
    let step = (LINE_LIMIT as u64 / ENTRY_BYTES) as usize;
    let most = Triplets::most_held(size.nrows as u128 * size.ncols as u128, step);
    let declared = len.filter(|_| takes_all).map_or(0, |len| {
        most.min(u128::from(len / ENTRY_BYTES)).min(size.entries as u128) as usize
    });
    bounds.check_memory(path, nrows, size.entries, peak(declared))?;
    let mut next_look = declared.max(ENTRIES_PER_LOOK);
    let mut entries = Entries::new(banner, size, wanted);
    while lines.fill()? {
        let mut cursor = Cursor::new(lines.block());
        if let Err(stop) = entries.read(&mut cursor) {
            let (taken, before) = cursor.line_start();
            lines.take(taken, before);
            return Err(match stop {
                Stop::Fault(fault) => lines.error(fault.column, fault.expected, fault.found),
                Stop::Memory => in_file(path)(NoBlock.into()),
            });
        }
        let (taken, count) = cursor.line_start();
        lines.take(taken, count);
        lines.allow_for(entries.count());
        entries.compact().map_err(in_file(path))?;
        if entries.held() > next_look {
            bounds.check_memory(path, nrows, size.entries, peak(entries.held()))?;
            next_look = entries.held() + ENTRIES_PER_LOOK;
        }
    }
    if let Err(expected) = entries.check_complete() {
        return Err(lines.error(1, expected, "the end of the file".to_owned()));
    }
    Ok((banner, size, entries))
}
