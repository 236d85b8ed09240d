//! Dense arrays: vectors and operands from files of any kind, and NumPy's `.npy` files.

use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use super::detect::FileKind;
use super::input::Input;
use super::matrix_market::read_vector_from;
use super::memory::MemoryLimit;
use super::npy::{Array, NpyError};
use super::npz::{npy_error, read_npz_array_within};
use super::source::{Bounds, in_file};
use crate::error::{check_i32, reserve};
use crate::{Csr, CsrPattern, FormatError, Matrix};

/// An array of numbers, as read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseArray {
    /// The length of each dimension; empty for a scalar.
    pub shape: Vec<usize>,
    /// The numbers, the last index changing fastest (C order).
    pub values: Vec<f64>,
}

/// Reads an array of numbers: a Matrix Market vector (or matrix of one column or row), an `.npy`
/// file, or the array `npz_name` of an `.npz` file, told apart by content. The path `-` is standard
/// input.
///
/// # Errors
/// [`FormatError::Io`] when the file cannot be read, [`FormatError::Binary`] for other content and
/// for arrays that are broken or not of real numbers, the errors of
/// [`read_vector`](super::read_vector) for text, and [`FormatError::InFile`] with
/// [`FormatError::MemoryLimit`] for more than `memory` allows.
pub fn load_array(
    path: impl AsRef<Path>,
    npz_name: &str,
    memory: MemoryLimit,
) -> Result<DenseArray, FormatError> {
    let input = Input::open(path.as_ref())?;
    let (path, len) = (input.path.clone(), input.len);
    let (shape, values) = match input.kind()? {
        FileKind::MatrixMarket | FileKind::MatrixMarketGzip => {
            let values = read_vector_from(input.into_reader(), &path, len, memory)?;
            (vec![values.len() as u64], values)
        }
        FileKind::Npz => {
            let (reader, _) = input.into_seekable(memory)?;
            read_npz_array_within(BufReader::new(reader), &path, npz_name, memory)?
        }
        FileKind::Npy => read_npy_array(input.into_reader(), &path, len, memory)?,
        FileKind::UniformBatch | FileKind::RaggedBatch => {
            return Err(FormatError::Binary {
                path,
                what: "content".to_owned(),
                expected: format!(
                    "a Matrix Market vector, an .npy or an .npz with the array {npz_name}"
                ),
                found: "a batch of matrices".to_owned(),
            });
        }
    };
    // A length exceeds the number of elements only where another length is 0.
    let shape = shape.into_iter().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    Ok(DenseArray { shape: shape.collect(), values })
}

/// Opens the array of an `.npy` stream of `len` bytes (`None`: unknown).
fn open_npy<R: Read>(
    reader: R,
    path: &Path,
    len: Option<u64>,
) -> Result<Array<BufReader<R>>, FormatError> {
    let array = Array::new(BufReader::new(reader)).and_then(|array| {
        len.map_or(Ok(()), |len| array.check_length(len))?;
        Ok(array)
    });
    array.map_err(|error| npy_error(path, "array", error))
}

/// The shape of the array of an `.npy` stream, and its elements in C order.
fn read_npy_array(
    reader: impl Read,
    path: &Path,
    len: Option<u64>,
    memory: MemoryLimit,
) -> Result<(Vec<u64>, Vec<f64>), FormatError> {
    let array = open_npy(reader, path, len)?;
    let what = || format!("an array of {} elements", array.count());
    memory.check(what, 8 * array.count() as u128).map_err(in_file(path))?;
    let shape = array.shape().to_vec();
    let values = array.into_f64().map_err(|error| npy_error(path, "array", error))?;
    Ok((shape, values))
}

/// Reads a matrix from an `.npy` stream of `len` bytes (`None`: unknown). Every position is stored,
/// zeros included, as for Matrix Market array files. A one-dimensional array is one column.
pub(super) fn read_npy_matrix(
    reader: impl Read,
    path: &Path,
    len: Option<u64>,
    bounds: Bounds,
) -> Result<Csr<f64>, FormatError> {
    let array = open_npy(reader, path, len)?;
    let error = |error| npy_error(path, "array", error);
    let (nrows, ncols) = match *array.shape() {
        [nrows] => (nrows, 1),
        [nrows, ncols] => (nrows, ncols),
        ref shape => {
            return Err(error(NpyError::Header {
                expected: "one or two dimensions".to_owned(),
                found: format!("shape {shape:?}"),
            }));
        }
    };
    let size = |what, length| {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        check_i32(what, length).map(|_| length).map_err(in_file(path))
    };
    let (nrows, ncols) = (size("nrows", nrows)?, size("ncols", ncols)?);
    let count = array.count();
    check_i32("nnz", count).map_err(in_file(path))?;
    bounds.check_rows(path, nrows, count)?;
    bounds.check_memory(path, nrows, count, 20 * count as u128 + 4 * (nrows as u128 + 1))?;
    let by_columns = array.is_fortran_ordered();
    let stored = array.into_f64_as_stored().map_err(error)?;
    let values = if by_columns { by_rows(&stored, nrows, ncols) } else { Ok(stored) };
    let matrix = values.and_then(|values| every_place(nrows, ncols, values));
    matrix.map_err(in_file(path))
}

/// Reorders column-major values to row-major.
fn by_rows(stored: &[f64], nrows: usize, ncols: usize) -> Result<Vec<f64>, FormatError> {
    let mut values = reserve("values", stored.len() as u128)?;
    for row in 0..nrows {
        values.extend((0..ncols).map(|col| stored[col * nrows + row]));
    }
    Ok(values)
}

/// The matrix that stores every position; `values` is row-major.
fn every_place(nrows: usize, ncols: usize, values: Vec<f64>) -> Result<Csr<f64>, FormatError> {
    let mut row_ptr = reserve("row_ptr", nrows as u128 + 1)?;
    row_ptr.extend((0..=nrows).map(|row| (row * ncols) as i32));
    let mut col_idx = reserve("col_idx", values.len() as u128)?;
    for _ in 0..nrows {
        col_idx.extend(0..ncols as i32);
    }
    let pattern = CsrPattern::new_unvalidated(ncols, row_ptr, col_idx);
    Matrix::from_parts(Arc::new(pattern), values)
}

#[cfg(test)]
mod tests {
    use super::super::npy::write_header;
    use super::*;

    fn npy(shape: &[usize], fortran_order: bool, values: &[f64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_header(&mut bytes, "<f8", shape).unwrap();
        if fortran_order {
            let text = String::from_utf8_lossy(&bytes[10..]).replacen("False", "True ", 1);
            bytes.splice(10.., text.into_bytes());
        }
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    fn matrix(bytes: &[u8]) -> Result<Csr<f64>, FormatError> {
        read_npy_matrix(bytes, Path::new("f"), Some(bytes.len() as u64), Bounds::default())
    }

    #[test]
    fn either_order_of_a_matrix_is_read() {
        let by_rows = matrix(&npy(&[2, 3], false, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
        let by_columns = matrix(&npy(&[2, 3], true, &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0])).unwrap();

        assert_eq!(by_rows.row_ptr(), [0, 3, 6]);
        assert_eq!(by_rows.col_idx(), [0, 1, 2, 0, 1, 2]);
        assert_eq!(by_rows.values(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(by_columns, by_rows);
    }

    #[test]
    fn other_shapes_are_refused_and_no_rows_are_not() {
        let refused = |shape: &[usize], values: &[f64]| {
            matrix(&npy(shape, false, values)).unwrap_err().to_string()
        };

        assert_eq!(
            refused(&[], &[1.0]),
            "f: array: expected one or two dimensions, found shape []"
        );
        assert!(refused(&[1, 1, 1], &[1.0]).contains("found shape [1, 1, 1]"));
        assert!(refused(&[1 << 31, 0], &[]).contains("nrows is 2147483648"));
        assert!(refused(&[2], &[1.0]).contains("expected whole data, 16 bytes of 2 elements"));
        assert_eq!(matrix(&npy(&[0, 3], false, &[])).unwrap().ncols(), 3);
    }
}
