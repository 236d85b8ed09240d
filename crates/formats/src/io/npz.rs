//! SciPy's `.npz` matrices: a ZIP archive of NumPy arrays.

use std::io::{BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use zip::ZipArchive;
use zip::read::ZipFile;
use zip::result::ZipError;

use super::assemble::{Triplets, sort_and_sum};
use super::market_header::Symmetry;
use super::npy::{Array, NpyError};
use super::npz_writer::{Packing, write_arrays};
use super::source::{check_declared, in_file, io_error, open};
use crate::error::{check_i32, check_len};
use crate::{Csr, CsrPattern, FormatError, Matrix, Scalar};

/// Reads a matrix that SciPy's `save_npz` wrote: format `csr`, `csc` or `coo`.
///
/// Values of any float, integer or boolean type become f64; indices may have 32 or 64 bits. As in
/// SciPy the columns of a row may stand in any order, duplicates are summed (in their order), and
/// entries beyond `indptr[-1]` do not count. Memory grows with the data unpacked; a dimension that
/// no array backs is limited to 65,536 and 64 for each byte unpacked.
///
/// # Errors
/// [`FormatError::Io`] when the file cannot be read, [`FormatError::Binary`] for a broken archive or
/// array, naming it, [`FormatError::Unsupported`] for other matrix formats by name, and
/// [`FormatError::InFile`] for arrays that make no matrix.
pub fn read_npz(path: impl AsRef<Path>) -> Result<Csr<f64>, FormatError> {
    let path = path.as_ref();
    let (file, _) = open(path)?;
    read_npz_from(BufReader::new(file), path)
}

/// Reads a SciPy `.npz` matrix from a stream; `path` names it in errors.
///
/// # Errors
/// As [`read_npz`].
pub fn read_npz_from(reader: impl Read + Seek, path: &Path) -> Result<Csr<f64>, FormatError> {
    let mut archive = Archive::new(reader, path)?;
    let format = archive.array("format", Array::into_string)?;
    if !matches!(format.as_str(), "csr" | "csc" | "coo") {
        return Err(FormatError::Unsupported {
            path: path.to_owned(),
            what: format!("sparse format `{}`", format.escape_debug()),
            expected: "csr, csc or coo",
        });
    }
    let shape = archive.array("shape", Array::into_i64)?;
    let dimension = |what, at: usize| match shape.get(at).map(|&found| i32::try_from(found)) {
        Some(Ok(size @ 0..)) if shape.len() == 2 => Ok(size as usize),
        _ => Err(archive.error(
            "shape",
            format!("two dimensions up to {}, here the {what}", i32::MAX),
            format!("{shape:?}").chars().take(80).collect(),
        )),
    };
    let (nrows, ncols) = (dimension("rows", 0)?, dimension("columns", 1)?);
    let values = archive.array("data", Array::into_f64)?;
    let matrix = match format.as_str() {
        "coo" => {
            let rows = archive.array("row", Array::into_i64)?;
            let cols = archive.array("col", Array::into_i64)?;
            archive.check_dimension("columns", ncols)?;
            archive.check_dimension("rows", nrows)?;
            from_coordinates(nrows, ncols, &rows, &cols, &values)
        }
        compressed => {
            let indices = archive.array("indices", Array::into_i64)?;
            let pointers = archive.array("indptr", Array::into_i64)?;
            if compressed == "csr" {
                archive.check_dimension("columns", ncols)?;
                from_rows(nrows, ncols, &pointers, &indices, values)
            } else {
                archive.check_dimension("rows", nrows)?;
                from_columns(nrows, ncols, &pointers, &indices, &values)
            }
        }
    };
    matrix.map_err(in_file(path))
}

/// Reads one array of numbers from an `.npz` archive as f64, flattened in C order: solutions that
/// the command line wrote, for instance.
///
/// # Errors
/// As [`read_npz`]; an array that is not there is [`FormatError::Binary`].
pub fn read_npz_array(path: impl AsRef<Path>, name: &str) -> Result<Vec<f64>, FormatError> {
    let path = path.as_ref();
    let (file, _) = open(path)?;
    Archive::new(BufReader::new(file), path)?.array(name, Array::into_f64)
}

/// Writes a matrix as SciPy's `save_npz` does: format `csr`, 32-bit indices, deflated. SciPy's
/// `load_npz` reads it. The file appears whole or not at all, see [`super::atomic_write`].
///
/// # Errors
/// [`FormatError::Io`] when the system refuses.
pub fn write_npz<T: Scalar>(path: impl AsRef<Path>, matrix: &Csr<T>) -> Result<(), FormatError> {
    write_arrays(path, Packing::Deflated, |npz| {
        npz.add_i32("indices", matrix.col_idx())?;
        npz.add_i32("indptr", matrix.row_ptr())?;
        npz.add_bytes("format", b"csr")?;
        npz.add_i64("shape", &[matrix.nrows() as i64, matrix.ncols() as i64])?;
        npz.add_values("data", matrix.values())
    })
}

/// An open archive and what was unpacked from it.
struct Archive<'p, R> {
    zip: ZipArchive<R>,
    path: &'p Path,
    bytes: u64,
}

impl<'p, R: Read + Seek> Archive<'p, R> {
    fn new(reader: R, path: &'p Path) -> Result<Self, FormatError> {
        match ZipArchive::new(reader) {
            Ok(zip) => Ok(Self { zip, path, bytes: 0 }),
            Err(error) => Err(zip_error(path, "archive", error)),
        }
    }

    /// Reads the array `name`.
    fn array<'a, T>(
        &'a mut self,
        name: &str,
        read: impl FnOnce(Array<ZipFile<'a, R>>) -> Result<T, NpyError>,
    ) -> Result<T, FormatError> {
        let path = self.path;
        let file = match self.zip.by_name(&format!("{name}.npy")) {
            Ok(file) => file,
            Err(ZipError::FileNotFound) => {
                return Err(binary(path, "archive", format!("an array `{name}`"), "none"));
            }
            Err(other) => return Err(zip_error(path, name, other)),
        };
        let bytes = &mut self.bytes;
        let array = Array::new(file).and_then(|array| {
            let size = array.bytes();
            let read = read(array)?;
            *bytes += size;
            Ok(read)
        });
        array.map_err(|error| match error {
            NpyError::Io(source) => {
                binary(path, name, "whole data".to_owned(), &source.to_string())
            }
            NpyError::Header { expected, found } => binary(path, name, expected, &found),
        })
    }

    fn error(&self, name: &str, expected: String, found: String) -> FormatError {
        binary(self.path, name, expected, &found)
    }

    fn check_dimension(&self, what: &str, declared: usize) -> Result<(), FormatError> {
        check_declared(self.path, what, declared as u128, self.bytes)
    }
}

fn binary(path: &Path, what: &str, expected: String, found: &str) -> FormatError {
    FormatError::Binary {
        path: path.to_owned(),
        what: what.to_owned(),
        expected,
        found: found.escape_debug().to_string(),
    }
}

fn zip_error(path: &Path, what: &str, error: ZipError) -> FormatError {
    match error {
        ZipError::Io(source) => io_error(path)(source),
        other => binary(path, what, "a ZIP archive".to_owned(), &other.to_string()),
    }
}

/// Checks 64-bit indices and makes them local.
fn local(what: &'static str, indices: &[i64], limit: usize) -> Result<Vec<i32>, FormatError> {
    let checked = indices.iter().enumerate().map(|(position, &found)| {
        if (0..limit as i64).contains(&found) {
            Ok(found as i32)
        } else {
            Err(FormatError::IndexOutOfRange { what, position, found, limit })
        }
    });
    checked.collect()
}

/// Checks `indptr`: starts at 0, never decreases, ends at most at the number of entries.
fn local_pointers(pointers: &[i64], lines: usize, nnz: usize) -> Result<Vec<i32>, FormatError> {
    check_len("indptr", lines + 1, pointers.len())?;
    check_i32("nnz", nnz)?;
    let mut previous = 0;
    let checked = pointers.iter().enumerate().map(|(position, &found)| {
        let last = if position == 0 { 0 } else { nnz as i64 };
        if found < previous || found > last {
            return Err(FormatError::Pointer {
                what: "indptr",
                position,
                expected: format!("a value in {previous}..={last}"),
                found,
            });
        }
        previous = found;
        Ok(found as i32)
    });
    checked.collect()
}

fn from_rows(
    nrows: usize,
    ncols: usize,
    pointers: &[i64],
    indices: &[i64],
    mut values: Vec<f64>,
) -> Result<Csr<f64>, FormatError> {
    check_len("data", indices.len(), values.len())?;
    let mut row_ptr = local_pointers(pointers, nrows, values.len())?;
    let nnz = row_ptr[nrows] as usize;
    let mut col_idx = local("indices", &indices[..nnz], ncols)?;
    values.truncate(nnz);
    sort_and_sum(&mut row_ptr, &mut col_idx, &mut values);
    let pattern = CsrPattern::new_unvalidated(ncols, row_ptr, col_idx);
    Matrix::from_parts(Arc::new(pattern), values)
}

fn from_columns(
    nrows: usize,
    ncols: usize,
    pointers: &[i64],
    indices: &[i64],
    values: &[f64],
) -> Result<Csr<f64>, FormatError> {
    check_len("data", indices.len(), values.len())?;
    let col_ptr = local_pointers(pointers, ncols, values.len())?;
    let rows = local("indices", &indices[..col_ptr[ncols] as usize], nrows)?;
    let mut triplets = Triplets::default();
    for (col, ends) in (0..).zip(col_ptr.windows(2)) {
        for k in ends[0] as usize..ends[1] as usize {
            triplets.push(rows[k], col, values[k]);
        }
    }
    triplets.into_csr(nrows, ncols, Symmetry::General)
}

fn from_coordinates(
    nrows: usize,
    ncols: usize,
    rows: &[i64],
    cols: &[i64],
    values: &[f64],
) -> Result<Csr<f64>, FormatError> {
    check_len("row", values.len(), rows.len())?;
    check_len("col", values.len(), cols.len())?;
    let (rows, cols) = (local("row", rows, nrows)?, local("col", cols, ncols)?);
    let mut triplets = Triplets::default();
    for ((row, col), &value) in rows.into_iter().zip(cols).zip(values) {
        triplets.push(row, col, value);
    }
    triplets.into_csr(nrows, ncols, Symmetry::General)
}
