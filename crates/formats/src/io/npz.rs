//! SciPy's `.npz` matrices: a ZIP archive of NumPy arrays.

use std::io::{self, BufReader, Read, Seek};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use zip::ZipArchive;
use zip::read::ZipFile;
use zip::result::ZipError;

use super::assemble::{Triplets, sort_and_sum};
use super::market_header::MarketSymmetry;
use super::memory::MemoryLimit;
use super::npy::{Array, Indices, NpyError};
use super::npz_writer::{Packing, write_arrays};
use super::source::{Bounds, in_file, io_error, open};
use crate::error::{check_i32, check_len};
use crate::{Csr, CsrPattern, FormatError, Matrix, Scalar};

/// Reads a matrix that SciPy's `save_npz` wrote: format `csr`, `csc` or `coo`.
///
/// Values of any float, integer or boolean type become `f64`; indices may be integers of any size.
/// As in SciPy, the columns of a row may be in any order, duplicates are summed (in their order),
/// and entries beyond `indptr[-1]` are ignored. The lengths of all arrays are compared before any
/// is unpacked; memory is in proportion to them.
///
/// # Errors
/// [`FormatError::Io`] when the file cannot be read, [`FormatError::Binary`] for a broken archive
/// or array, which it names, [`FormatError::Unsupported`] for other matrix formats by name, and
/// [`FormatError::InFile`] for arrays that make no matrix or exceed the memory available.
pub fn read_npz(path: impl AsRef<Path>) -> Result<Csr<f64>, FormatError> {
    let path = path.as_ref();
    let (file, _) = open(path)?;
    read_npz_within(BufReader::new(file), path, Bounds::default())
}

/// Reads a SciPy `.npz` matrix from a stream, within a memory limit; `path` names it in errors.
///
/// # Errors
/// As [`read_npz`].
pub fn read_npz_from(
    reader: impl Read + Seek,
    path: &Path,
    memory: MemoryLimit,
) -> Result<Csr<f64>, FormatError> {
    read_npz_within(reader, path, Bounds { memory, ..Bounds::default() })
}

/// Reads a SciPy `.npz` matrix from a stream.
pub(super) fn read_npz_within(
    reader: impl Read + Seek,
    path: &Path,
    bounds: Bounds,
) -> Result<Csr<f64>, FormatError> {
    let mut archive = Archive::new(reader, path)?;
    let format = archive.array("format", Array::into_string)?;
    let Some(kind) = ScipyFormat::named(&format) else {
        return Err(FormatError::Unsupported {
            path: path.to_owned(),
            what: format!("sparse format `{}`", format.escape_debug()),
            expected: "csr, csc or coo",
        });
    };
    let (nrows, ncols) = read_shape(&mut archive)?;
    // The array lengths in the headers have to agree before anything is unpacked.
    let count = archive.count("data")?;
    let (first, second) = kind.index_arrays();
    let lengths = [archive.count(first)?, archive.count(second)?];
    check_i32("nnz", count).map_err(in_file(path))?;
    kind.check_lengths((nrows, ncols), count, lengths).map_err(in_file(path))?;
    bounds.check_rows(path, nrows, count)?;
    bounds.check_memory(path, nrows, count, kind.peak_bytes((nrows, ncols), count))?;

    let values = archive.array("data", Array::into_f64)?;
    let matrix = match kind {
        ScipyFormat::Coo => {
            let rows = archive.array(first, |array| array.into_indices(nrows))?;
            let cols = archive.array(second, |array| array.into_indices(ncols))?;
            from_coordinates(nrows, ncols, rows, cols, &values)
        }
        ScipyFormat::Csr => {
            let indices = archive.array(first, |array| array.into_indices(ncols))?;
            let pointers = archive.array(second, Array::into_i64)?;
            from_rows(nrows, ncols, &pointers, indices, values)
        }
        ScipyFormat::Csc => {
            let indices = archive.array(first, |array| array.into_indices(nrows))?;
            let pointers = archive.array(second, Array::into_i64)?;
            from_columns(nrows, ncols, &pointers, indices, &values)
        }
    };
    matrix.map_err(in_file(path))
}

/// The sizes of a matrix in the format `csr`, and the entries of its rows by groups of `group` rows,
/// which is a function of the number of rows.
pub(super) fn count_entries(
    reader: impl Read + Seek,
    path: &Path,
    bounds: Bounds,
    group: impl Fn(usize) -> usize,
) -> Result<(usize, usize, Vec<u64>), FormatError> {
    let mut archive = Archive::new(reader, path)?;
    let (nrows, ncols, count) = read_csr_sizes(&mut archive)?;
    bounds.check_memory(path, nrows, count, 12 * (nrows as u128 + 1))?;
    let pointers = archive.array("indptr", Array::into_i64)?;
    let pointers = local_pointers(&pointers, count).map_err(in_file(path))?;
    let entries = |ends: &[i32]| (ends[ends.len() - 1] - ends[0]) as u64;
    let group = group(nrows);
    let starts = (0..nrows).step_by(group);
    let counts = starts.map(|row| entries(&pointers[row..=(row + group).min(nrows)])).collect();
    Ok((nrows, ncols, counts))
}

/// Reads some rows of a matrix in the format `csr` whose pointers [`count_entries`] has checked.
pub(super) fn read_rows(
    reader: impl Read + Seek,
    path: &Path,
    bounds: Bounds,
    rows: Range<usize>,
) -> Result<Csr<f64>, FormatError> {
    let mut archive = Archive::new(reader, path)?;
    let (nrows, ncols, count) = read_csr_sizes(&mut archive)?;
    let rows = rows.start.min(nrows)..rows.end.min(nrows);
    let pointers =
        archive.array("indptr", |array| array.part(rows.start..rows.end + 1).into_i64())?;
    let whole = 0..=count as i64;
    let is_sound = pointers.is_sorted() && pointers.iter().all(|at| whole.contains(at));
    if !is_sound {
        let expected = "pointers that do not decrease".to_owned();
        return Err(binary(path, "indptr", expected, "others than before"));
    }
    let entries = pointers[0] as usize..pointers[rows.len()] as usize;
    let peak = 12 * entries.len() as u128 + 12 * (rows.len() as u128 + 1);
    bounds.check_memory(path, rows.len(), entries.len(), peak)?;
    let values = archive.array("data", |array| array.part(entries.clone()).into_f64())?;
    let indices =
        archive.array("indices", |array| array.part(entries.clone()).into_indices(ncols))?;
    if let Some((position, found)) = indices.out_of_range {
        let what = "indices";
        return Err(in_file(path)(FormatError::IndexOutOfRange {
            what,
            position,
            found,
            limit: ncols,
        }));
    }
    let pointers: Vec<i64> = pointers.iter().map(|at| at - pointers[0]).collect();
    from_rows(rows.len(), ncols, &pointers, indices, values).map_err(in_file(path))
}

/// The numbers of rows, columns and values of a matrix in the format `csr`.
fn read_csr_sizes(
    archive: &mut Archive<'_, impl Read + Seek>,
) -> Result<(usize, usize, usize), FormatError> {
    let path = archive.path;
    let format = archive.array("format", Array::into_string)?;
    if format != "csr" {
        return Err(FormatError::Unsupported {
            path: path.to_owned(),
            what: format!("sparse format `{}` by rows", format.escape_debug()),
            expected: "csr",
        });
    }
    let (nrows, ncols) = read_shape(archive)?;
    let count = archive.count("data")?;
    let lengths = [archive.count("indices")?, archive.count("indptr")?];
    check_i32("nnz", count).map_err(in_file(path))?;
    ScipyFormat::Csr.check_lengths((nrows, ncols), count, lengths).map_err(in_file(path))?;
    Ok((nrows, ncols, count))
}

/// Reads the numbers of rows and columns.
fn read_shape(archive: &mut Archive<'_, impl Read + Seek>) -> Result<(usize, usize), FormatError> {
    let path = archive.path;
    let dimensions = archive.count("shape")?;
    if dimensions != 2 {
        let found = dimensions.to_string();
        return Err(binary(path, "shape", "two dimensions".to_owned(), &found));
    }
    let shape = archive.array("shape", Array::into_i64)?;
    let dimension = |at: usize| match i32::try_from(shape[at]) {
        Ok(size @ 0..) => Ok(size as usize),
        _ => {
            let expected = format!("two dimensions up to {}", i32::MAX);
            Err(binary(path, "shape", expected, &format!("{shape:?}")))
        }
    };
    Ok((dimension(0)?, dimension(1)?))
}

/// The sparse formats of SciPy that are read.
#[derive(Clone, Copy)]
enum ScipyFormat {
    Csr,
    Csc,
    Coo,
}

impl ScipyFormat {
    /// The format that SciPy calls `name`.
    fn named(name: &str) -> Option<Self> {
        match name {
            "csr" => Some(Self::Csr),
            "csc" => Some(Self::Csc),
            "coo" => Some(Self::Coo),
            _ => None,
        }
    }

    /// The names of the two arrays of indices.
    fn index_arrays(self) -> (&'static str, &'static str) {
        match self {
            Self::Csr | Self::Csc => ("indices", "indptr"),
            Self::Coo => ("row", "col"),
        }
    }

    /// Checks the lengths of the two arrays of indices, given the size of the matrix and the number
    /// of its values.
    fn check_lengths(
        self,
        (nrows, ncols): (usize, usize),
        nvalues: usize,
        [first, second]: [usize; 2],
    ) -> Result<(), FormatError> {
        match self {
            Self::Csr => {
                check_len("data", first, nvalues)?;
                check_len("indptr", nrows + 1, second)
            }
            Self::Csc => {
                check_len("data", first, nvalues)?;
                check_len("indptr", ncols + 1, second)
            }
            Self::Coo => {
                check_len("row", nvalues, first)?;
                check_len("col", nvalues, second)
            }
        }
    }

    /// The most memory that reading takes, in bytes.
    fn peak_bytes(self, (nrows, ncols): (usize, usize), nvalues: usize) -> u128 {
        let triplets = Triplets::peak_bytes(nvalues, nrows, MarketSymmetry::General);
        match self {
            Self::Csr => 12 * nvalues as u128 + 12 * (nrows as u128 + 1),
            Self::Csc => 12 * nvalues as u128 + 12 * (ncols as u128 + 1) + triplets,
            Self::Coo => 16 * nvalues as u128 + triplets,
        }
    }
}

/// Reads one array of numbers from an `.npz` archive as f64, flattened in C order: solutions that
/// the command line wrote, for instance.
///
/// # Errors
/// As [`read_npz`]; a missing array is [`FormatError::Binary`].
pub fn read_npz_array(path: impl AsRef<Path>, name: &str) -> Result<Vec<f64>, FormatError> {
    let path = path.as_ref();
    let (file, _) = open(path)?;
    let memory = MemoryLimit::available();
    Ok(read_npz_array_within(BufReader::new(file), path, name, memory)?.1)
}

/// Reads one array of an `.npz` archive from a stream: its shape and its elements in C order.
pub(super) fn read_npz_array_within(
    reader: impl Read + Seek,
    path: &Path,
    name: &str,
    memory: MemoryLimit,
) -> Result<(Vec<u64>, Vec<f64>), FormatError> {
    let mut archive = Archive::new(reader, path)?;
    let count = archive.count(name)?;
    memory.check(|| format!("the array `{name}`"), 8 * count as u128).map_err(in_file(path))?;
    archive.array(name, |array| {
        let shape = array.shape().to_vec();
        Ok((shape, array.into_f64()?))
    })
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

/// An open archive.
struct Archive<'p, R> {
    zip: ZipArchive<R>,
    path: &'p Path,
}

impl<'p, R: Read + Seek> Archive<'p, R> {
    fn new(reader: R, path: &'p Path) -> Result<Self, FormatError> {
        match ZipArchive::new(reader) {
            Ok(zip) => Ok(Self { zip, path }),
            Err(error) => Err(zip_error(path, "archive", error)),
        }
    }

    /// The number of elements of the array `name`, from its header; its data is not unpacked.
    fn count(&mut self, name: &str) -> Result<usize, FormatError> {
        self.array(name, |array| Ok(array.count()))
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
        let unpacked = file.size();
        let array = Array::new(file).and_then(|array| {
            array.check_length(unpacked)?;
            read(array)
        });
        array.map_err(|error| npy_error(path, name, error))
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

/// Turns the error of the array `what` into a [`FormatError`].
pub(super) fn npy_error(path: &Path, what: &str, error: NpyError) -> FormatError {
    match error {
        NpyError::Io(source) if source.kind() == io::ErrorKind::OutOfMemory => {
            io_error(path)(source)
        }
        NpyError::Io(source) => binary(path, what, "whole data".to_owned(), &source.to_string()),
        NpyError::Header { expected, found } => binary(path, what, expected, &found),
    }
}

/// The first `count` indices, which have to be in range; the others are ignored.
fn checked(
    what: &'static str,
    indices: Indices,
    count: usize,
    limit: usize,
) -> Result<Vec<i32>, FormatError> {
    match indices.out_of_range {
        Some((position, found)) if position < count => {
            Err(FormatError::IndexOutOfRange { what, position, found, limit })
        }
        _ => {
            let mut values = indices.values;
            values.truncate(count);
            Ok(values)
        }
    }
}

/// Checks `indptr`: starts at 0, never decreases, ends at most at the number of entries.
fn local_pointers(pointers: &[i64], nnz: usize) -> Result<Vec<i32>, FormatError> {
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
    indices: Indices,
    mut values: Vec<f64>,
) -> Result<Csr<f64>, FormatError> {
    let mut row_ptr = local_pointers(pointers, values.len())?;
    let nnz = row_ptr[nrows] as usize;
    let mut col_idx = checked("indices", indices, nnz, ncols)?;
    values.truncate(nnz);
    sort_and_sum(&mut row_ptr, &mut col_idx, &mut values);
    let pattern = CsrPattern::new_unvalidated(ncols, row_ptr, col_idx);
    Matrix::from_parts(Arc::new(pattern), values)
}

fn from_columns(
    nrows: usize,
    ncols: usize,
    pointers: &[i64],
    indices: Indices,
    values: &[f64],
) -> Result<Csr<f64>, FormatError> {
    let col_ptr = local_pointers(pointers, values.len())?;
    let rows = checked("indices", indices, col_ptr[ncols] as usize, nrows)?;
    let mut triplets = Triplets::default();
    for (col, ends) in (0..).zip(col_ptr.windows(2)) {
        for k in ends[0] as usize..ends[1] as usize {
            triplets.push(rows[k], col, values[k])?;
        }
    }
    triplets.into_csr(nrows, ncols, MarketSymmetry::General)
}

fn from_coordinates(
    nrows: usize,
    ncols: usize,
    rows: Indices,
    cols: Indices,
    values: &[f64],
) -> Result<Csr<f64>, FormatError> {
    let rows = checked("row", rows, values.len(), nrows)?;
    let cols = checked("col", cols, values.len(), ncols)?;
    let mut triplets = Triplets::default();
    for ((row, col), &value) in rows.into_iter().zip(cols).zip(values) {
        triplets.push(row, col, value)?;
    }
    triplets.into_csr(nrows, ncols, MarketSymmetry::General)
}
