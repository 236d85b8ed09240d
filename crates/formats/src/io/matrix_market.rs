//! Matrix Market files (`.mtx`, also gzip): reading. What is accepted is told in [`super`].

use std::io::{BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::assemble::Triplets;
use super::detect::GZIP_MAGIC;
use super::market_entries::{Cursor, Entries};
use super::market_header::{Layout, Size, Symmetry, read_banner, read_size};
use super::source::{COUNT_PER_BYTE, FREE_COUNT, count_limit, open};
use super::text::Lines;
use crate::{Csr, FormatError};

/// A dense matrix or several vectors, as read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// Rows.
    pub nrows: usize,
    /// Columns: vectors.
    pub ncols: usize,
    /// The values, column after column: `values[col * nrows + row]`.
    pub values: Vec<f64>,
}

/// Reads a Matrix Market file, plain or gzip (told by its content), as CSR.
///
/// See the [module documentation](crate::io) for what is accepted. An array file gives a matrix
/// that stores every place, zeros included. The file is read in one pass; at the peak 28 bytes for
/// each expanded entry are held (2.33 times the matrix), less for symmetric ones. A matrix may have
/// at most 65,536 rows or columns and 64 more for each byte of (unpacked) text, so that a header
/// cannot make the library take memory.
///
/// # Errors
/// [`FormatError::Io`] when the file cannot be read, [`FormatError::Parse`] with line and column
/// where it is not what the format asks for, [`FormatError::Unsupported`] for complex and hermitian
/// matrices, [`FormatError::InFile`] when the expanded entries exceed what `i32` can count.
pub fn read_matrix_market(path: impl AsRef<Path>) -> Result<Csr<f64>, FormatError> {
    let path = path.as_ref();
    let (file, _) = open(path)?;
    read_matrix_market_from(file, path)
}

/// Reads a Matrix Market stream, plain or gzip, as CSR; `path` names it in errors.
///
/// # Errors
/// As [`read_matrix_market`].
pub fn read_matrix_market_from(reader: impl Read, path: &Path) -> Result<Csr<f64>, FormatError> {
    let (size, symmetry, triplets) = read_any(reader, path)?;
    triplets.into_csr(size.nrows, size.ncols, symmetry).map_err(super::source::in_file(path))
}

/// Reads a Matrix Market file of either kind as a dense matrix, for right-hand sides: an array
/// file as it stands, a coordinate file with zeros where it has no entry.
///
/// # Errors
/// As [`read_matrix_market`], and [`FormatError::InFile`] with [`FormatError::TooLarge`] when a
/// coordinate file has more than 64 places per entry and 65,536.
pub fn read_dense(path: impl AsRef<Path>) -> Result<Dense, FormatError> {
    let path = path.as_ref();
    let (file, _) = open(path)?;
    read_dense_from(file, path)
}

/// Reads a Matrix Market stream, plain or gzip, as a dense matrix; `path` names it in errors.
///
/// # Errors
/// As [`read_dense`].
pub fn read_dense_from(reader: impl Read, path: &Path) -> Result<Dense, FormatError> {
    let (size, symmetry, triplets) = read_any(reader, path)?;
    let (nrows, ncols) = (size.nrows, size.ncols);
    let places = nrows as u128 * ncols as u128;
    let limit = FREE_COUNT + COUNT_PER_BYTE * size.entries as u128;
    if places > limit {
        return Err(super::source::in_file(path)(FormatError::TooLarge {
            what: "places of the dense matrix",
            found: places,
            limit,
        }));
    }
    let mut values = vec![0.0; nrows * ncols];
    let mut add = |row: i32, col: i32, value: f64| {
        let place = &mut values[col as usize * nrows + row as usize];
        // Not added in an array, so that -0 stays.
        *place = match size.layout {
            Layout::Array => value,
            Layout::Coordinate => *place + value,
        };
    };
    for (row, col, value) in triplets.iter() {
        add(row, col, value);
        if symmetry != Symmetry::General && row != col {
            let negated = symmetry == Symmetry::SkewSymmetric;
            add(col, row, if negated { -value } else { value });
        }
    }
    Ok(Dense { nrows, ncols, values })
}

/// Reads a vector: a Matrix Market file with one column.
///
/// # Errors
/// As [`read_dense`], and [`FormatError::Unsupported`] when there is not exactly one column.
pub fn read_vector(path: impl AsRef<Path>) -> Result<Vec<f64>, FormatError> {
    let path = path.as_ref();
    let dense = read_dense(path)?;
    if dense.ncols != 1 {
        return Err(FormatError::Unsupported {
            path: path.to_owned(),
            what: format!("a {} x {} matrix as a vector", dense.nrows, dense.ncols),
            expected: "one column",
        });
    }
    Ok(dense.values)
}

fn read_any(reader: impl Read, path: &Path) -> Result<(Size, Symmetry, Triplets), FormatError> {
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    let start = std::io::BufRead::fill_buf(&mut reader).map_err(super::source::io_error(path))?;
    if start.starts_with(GZIP_MAGIC) {
        read_text(MultiGzDecoder::new(reader), path)
    } else {
        read_text(reader, path)
    }
}

fn read_text(reader: impl Read, path: &Path) -> Result<(Size, Symmetry, Triplets), FormatError> {
    let mut lines = Lines::new(reader, path);
    let (layout, field, symmetry) = read_banner(&mut lines)?;
    let size = read_size(&mut lines, layout, symmetry)?;
    let mut entries = Entries::new(field, symmetry, size);
    while lines.fill()? {
        let mut cursor = Cursor::new(lines.block());
        if let Err(fault) = entries.read(&mut cursor) {
            let (taken, before) = cursor.line_start();
            lines.take(taken, before);
            return Err(lines.error(fault.column, fault.expected, fault.found));
        }
        let (taken, count) = cursor.line_start();
        lines.take(taken, count);
    }
    if let Err(expected) = entries.check_complete() {
        return Err(lines.error(1, expected, "the end of the file".to_owned()));
    }
    let limit = count_limit(lines.bytes);
    for (what, declared) in [("rows", size.nrows), ("columns", size.ncols)] {
        if declared as u128 > limit {
            return Err(FormatError::Parse {
                path: path.to_owned(),
                line: size.line,
                column: 1,
                expected: format!(
                    "at most {limit} {what} ({FREE_COUNT} and {COUNT_PER_BYTE} per byte of text)"
                ),
                found: declared.to_string(),
            });
        }
    }
    Ok((size, symmetry, entries.into_triplets()))
}
