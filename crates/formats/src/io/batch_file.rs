//! `.batch` files: many systems with their right-hand sides, binary, little-endian, no padding.
//!
//! ```text
//! uniform   "BATCH001"  u64 nbatch  u64 nrows  u64 nnz
//!           i32 rowptr[nrows+1]  i32 colidx[nnz]  f64 values[nbatch*nnz]  f64 rhs[nbatch*nrows]
//! ragged    "RAGGED01"  u64 nbatch  u64 nrows[nbatch]  u64 nnz[nbatch]
//!           item by item: i32 rowptr[nrows+1]  i32 colidx[nnz]  f64 values[nnz]  f64 rhs[nrows]
//! ```
//!
//! Systems are square; columns ascend strictly in each row; an empty batch is allowed.

use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

use super::atomic_write;
use super::memory::MemoryLimit;
use super::source::{check_items, in_file, io_error, open, read_array};
use crate::csr::check_csr;
use crate::error::{check_len, reserve};
use crate::{Batch, BatchCsr, BatchValues, CsrPattern, FormatError, Pattern, RaggedCsr};

/// First bytes of a uniform batch file.
pub(crate) const UNIFORM_MAGIC: &[u8; 8] = b"BATCH001";
/// First bytes of a ragged batch file.
pub(crate) const RAGGED_MAGIC: &[u8; 8] = b"RAGGED01";

/// What a `.batch` file holds: systems and one right-hand side for each.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchFile {
    /// The matrices: uniform (item-major values) or ragged, like the file.
    pub batch: Batch<f64>,
    /// The right-hand sides, item after item: item `i` has
    /// `batch.rows(i)`.
    pub rhs: Vec<f64>,
}

/// Reads a `.batch` file of either kind, told apart by its first bytes.
///
/// The sizes of the header are compared with the length of the file before anything is allocated.
///
/// # Errors
/// [`FormatError::Io`] when the file cannot be read, [`FormatError::Binary`] for wrong first bytes,
/// sizes that do not give the file's length, or a broken item of a ragged batch, and
/// [`FormatError::InFile`] for a broken pattern of a uniform one.
pub fn read_batch(path: impl AsRef<Path>) -> Result<BatchFile, FormatError> {
    let path = path.as_ref();
    let (file, len) = open(path)?;
    read_batch_from(file, len, path)
}

/// Reads a `.batch` file of `len` bytes from a stream; `path` names it in errors.
///
/// # Errors
/// As [`read_batch`].
pub fn read_batch_from(reader: impl Read, len: u64, path: &Path) -> Result<BatchFile, FormatError> {
    read_batch_within(reader, len, path, MemoryLimit::available())
}

/// Reads a `.batch` file of `len` bytes from a stream. It takes little more than `len` bytes of
/// memory.
pub(super) fn read_batch_within(
    reader: impl Read,
    len: u64,
    path: &Path,
    memory: MemoryLimit,
) -> Result<BatchFile, FormatError> {
    memory.check(|| "the batch".to_owned(), u128::from(len)).map_err(in_file(path))?;
    let mut reader = BufReader::new(reader);
    let header = Header::read(&mut reader, len, path, memory)?;
    header.read_all(&mut reader, path)
}

/// What precedes the items of a file: their sizes, and the pattern of a uniform batch.
#[derive(Debug)]
pub(super) enum Header {
    /// Of a uniform batch.
    Uniform {
        /// Number of items.
        nitems: usize,
        /// The pattern of all items.
        pattern: Arc<CsrPattern>,
    },
    /// Of a ragged batch, with one number for each item.
    Ragged {
        /// Rows of each item.
        nrows: Vec<usize>,
        /// Entries of each item.
        nnz: Vec<usize>,
    },
}

impl Header {
    /// Reads up to the first item. The declared sizes are compared with `len`, the length of the
    /// file, and with the limit of memory, before anything is allocated for them.
    pub(super) fn read(
        reader: &mut impl Read,
        len: u64,
        path: &Path,
        memory: MemoryLimit,
    ) -> Result<Self, FormatError> {
        if len < 16 {
            return Err(binary(path, "header", "at least 16 bytes", &format!("{len}")));
        }
        let mut magic = [0; 8];
        reader.read_exact(&mut magic).map_err(io_error(path))?;
        match &magic {
            UNIFORM_MAGIC => Self::uniform(reader, len, path, memory),
            RAGGED_MAGIC => Self::ragged(reader, len, path, memory),
            other => Err(binary(
                path,
                "first 8 bytes",
                "BATCH001 or RAGGED01",
                &other.escape_ascii().to_string(),
            )),
        }
    }

    fn uniform(
        reader: &mut impl Read,
        len: u64,
        path: &Path,
        memory: MemoryLimit,
    ) -> Result<Self, FormatError> {
        if len < 32 {
            let found = len.to_string();
            return Err(binary(path, "header", "at least 32 bytes", &found));
        }
        let nbatch = read_u64(reader, path)?;
        let nrows = local(path, "nrows", read_u64(reader, path)?)?;
        let nnz = local(path, "nnz", read_u64(reader, path)?)?;
        let (n, k) = (nrows as u128, nnz as u128);
        check_file_len(
            path,
            32 + 4 * (n + 1) + 4 * k + 8 * u128::from(nbatch) * (n + k),
            &format!("nbatch {nbatch}, nrows {nrows}, nnz {nnz}"),
            len,
        )?;
        // Systems without rows take no bytes of the file.
        check_items(path, nbatch, len)?;
        let what = || "the pattern of the batch".to_owned();
        memory.check(what, 4 * (n + 1 + k)).map_err(in_file(path))?;
        let mut row_ptr = reserved("row_ptr", nrows + 1, path)?;
        read_array(reader, nrows + 1, &mut row_ptr, i32::from_le_bytes).map_err(io_error(path))?;
        let mut col_idx = reserved("col_idx", nnz, path)?;
        read_array(reader, nnz, &mut col_idx, i32::from_le_bytes).map_err(io_error(path))?;
        let pattern = CsrPattern::try_new(nrows, nrows, row_ptr, col_idx).map_err(in_file(path))?;
        Ok(Self::Uniform { nitems: nbatch as usize, pattern: Arc::new(pattern) })
    }

    fn ragged(
        reader: &mut impl Read,
        len: u64,
        path: &Path,
        memory: MemoryLimit,
    ) -> Result<Self, FormatError> {
        let nbatch = read_u64(reader, path)?;
        let sizes_end = 16 + 16 * u128::from(nbatch);
        if sizes_end > u128::from(len) {
            let expected = format!("at least {sizes_end} bytes for nbatch {nbatch}");
            return Err(binary(path, "file length", &expected, &len.to_string()));
        }
        let what = || "the sizes of the batch".to_owned();
        memory.check(what, sizes_end).map_err(in_file(path))?;
        let nitems = nbatch as usize;
        let sizes = |reader: &mut _, what: &str| -> Result<Vec<usize>, FormatError> {
            let mut sizes = reserved("sizes", nitems, path)?;
            read_array(reader, nitems, &mut sizes, u64::from_le_bytes).map_err(io_error(path))?;
            let sizes = sizes.into_iter().enumerate();
            sizes.map(|(item, size)| local(path, &format!("{what}[{item}]"), size)).collect()
        };
        let nrows = sizes(reader, "nrows")?;
        let nnz = sizes(reader, "nnz")?;
        let rows: u128 = nrows.iter().map(|&n| n as u128).sum();
        let entries: u128 = nnz.iter().map(|&k| k as u128).sum();
        check_file_len(
            path,
            sizes_end + 4 * (rows + u128::from(nbatch)) + 8 * rows + 12 * entries,
            &format!("nbatch {nbatch} with {rows} rows and {entries} entries in all"),
            len,
        )?;
        Ok(Self::Ragged { nrows, nnz })
    }

    /// Reads all items, which follow the header.
    fn read_all(self, reader: &mut impl Read, path: &Path) -> Result<BatchFile, FormatError> {
        match self {
            Self::Uniform { nitems, pattern } => {
                let values = read_f64s(reader, "values", nitems * pattern.nnz(), path)?;
                let rhs = read_f64s(reader, "rhs", nitems * pattern.nrows(), path)?;
                uniform_items(pattern, nitems, values, rhs, path)
            }
            Self::Ragged { nrows, nnz } => ragged_items(reader, (&nrows, &nnz), 0, path),
        }
    }
}

/// Reads `len` values of the file.
pub(super) fn read_f64s(
    reader: &mut impl Read,
    what: &'static str,
    len: usize,
    path: &Path,
) -> Result<Vec<f64>, FormatError> {
    let mut numbers = reserved(what, len, path)?;
    read_array(reader, len, &mut numbers, f64::from_le_bytes).map_err(io_error(path))?;
    Ok(numbers)
}

/// Items of a uniform batch, of values and right-hand sides that were read.
pub(super) fn uniform_items(
    pattern: Arc<CsrPattern>,
    nitems: usize,
    values: Vec<f64>,
    rhs: Vec<f64>,
    path: &Path,
) -> Result<BatchFile, FormatError> {
    let batch = BatchCsr::try_new(pattern, nitems, BatchValues::ItemMajor(values))
        .map_err(in_file(path))?;
    Ok(BatchFile { batch: Batch::Uniform(batch), rhs })
}

/// Reads consecutive items of a ragged batch, which have these numbers of rows and entries. `first`
/// is the number of the first one, for errors.
pub(super) fn ragged_items(
    reader: &mut impl Read,
    (nrows, nnz): (&[usize], &[usize]),
    first: usize,
    path: &Path,
) -> Result<BatchFile, FormatError> {
    let (rows, entries): (usize, usize) = (nrows.iter().sum(), nnz.iter().sum());
    let mut row_ptr = reserved("row_ptr", rows + nrows.len(), path)?;
    let mut col_idx = reserved("col_idx", entries, path)?;
    let mut values = reserved("values", entries, path)?;
    let mut rhs = reserved("rhs", rows, path)?;
    for (item, (&n, &k)) in (first..).zip(nrows.iter().zip(nnz)) {
        let (rows_start, start) = (row_ptr.len(), col_idx.len());
        read_array(reader, n + 1, &mut row_ptr, i32::from_le_bytes).map_err(io_error(path))?;
        read_array(reader, k, &mut col_idx, i32::from_le_bytes).map_err(io_error(path))?;
        read_array(reader, k, &mut values, f64::from_le_bytes).map_err(io_error(path))?;
        read_array(reader, n, &mut rhs, f64::from_le_bytes).map_err(io_error(path))?;
        check_csr(n, n, &row_ptr[rows_start..], &col_idx[start..]).map_err(|broken| {
            let what = format!("item {item}");
            binary(path, &what, "a valid CSR pattern", &broken.to_string())
        })?;
    }
    let batch =
        RaggedCsr::try_new(nrows, nrows, nnz, row_ptr, col_idx, values).map_err(in_file(path))?;
    Ok(BatchFile { batch: Batch::Ragged(batch), rhs })
}

fn binary(path: &Path, what: &str, expected: &str, found: &str) -> FormatError {
    FormatError::Binary {
        path: path.to_owned(),
        what: what.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}

fn read_u64(reader: &mut impl Read, path: &Path) -> Result<u64, FormatError> {
    let mut bytes = [0; 8];
    reader.read_exact(&mut bytes).map_err(io_error(path))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Checks that local 32-bit indices can count a size of the file.
fn local(path: &Path, what: &str, found: u64) -> Result<usize, FormatError> {
    match i32::try_from(found) {
        Ok(size) => Ok(size as usize),
        Err(_) => Err(binary(path, what, "at most 2147483647", &found.to_string())),
    }
}

/// An empty array with room for `len` numbers of the file.
fn reserved<T>(what: &'static str, len: usize, path: &Path) -> Result<Vec<T>, FormatError> {
    reserve(what, len as u128).map_err(in_file(path))
}

fn check_file_len(path: &Path, expected: u128, sizes: &str, len: u64) -> Result<(), FormatError> {
    if expected == u128::from(len) {
        return Ok(());
    }
    let expected = format!("{expected} bytes for {sizes}");
    Err(binary(path, "file length", &expected, &len.to_string()))
}

/// Writes a `.batch` file: `BATCH001` for a uniform batch (interleaved or shared values are
/// written item by item), `RAGGED01` for a ragged one. `rhs` is item-major. The file appears whole
/// or not at all, see [`atomic_write`].
///
/// # Errors
/// [`FormatError::Length`] when `rhs` does not hold one value per row of the batch,
/// [`FormatError::Parameter`] for an item that is not square, [`FormatError::Io`] when the system
/// refuses.
pub fn write_batch(
    path: impl AsRef<Path>,
    batch: &Batch<f64>,
    rhs: &[f64],
) -> Result<(), FormatError> {
    let path = path.as_ref();
    check_len("rhs", batch.row_offset(batch.nitems()), rhs.len())?;
    let square = match batch {
        Batch::Uniform(batch) => batch.pattern().nrows() == batch.pattern().ncols(),
        Batch::Ragged(batch) => batch.row_offsets() == batch.col_offsets(),
    };
    if !square {
        return Err(FormatError::Parameter {
            name: "ncols of an item",
            expected: "its nrows, since a .batch file holds square systems",
            found: "another number".to_owned(),
        });
    }
    atomic_write(path, |writer| {
        let written = match batch {
            Batch::Uniform(batch) => write_uniform(writer, batch, rhs),
            Batch::Ragged(batch) => write_ragged(writer, batch, rhs),
        };
        written.map_err(io_error(path))
    })
}

fn write_u64(writer: &mut dyn Write, number: usize) -> std::io::Result<()> {
    writer.write_all(&(number as u64).to_le_bytes())
}

fn write_i32s(writer: &mut dyn Write, numbers: &[i32]) -> std::io::Result<()> {
    numbers.iter().try_for_each(|number| writer.write_all(&number.to_le_bytes()))
}

fn write_f64s(writer: &mut dyn Write, numbers: &[f64]) -> std::io::Result<()> {
    numbers.iter().try_for_each(|number| writer.write_all(&number.to_le_bytes()))
}

fn write_uniform(
    writer: &mut dyn Write,
    batch: &BatchCsr<f64>,
    rhs: &[f64],
) -> std::io::Result<()> {
    let pattern = batch.pattern();
    writer.write_all(UNIFORM_MAGIC)?;
    write_u64(writer, batch.nitems())?;
    write_u64(writer, pattern.nrows())?;
    write_u64(writer, pattern.nnz())?;
    write_i32s(writer, pattern.row_ptr())?;
    write_i32s(writer, pattern.col_idx())?;
    let mut values = Vec::with_capacity(pattern.nnz());
    for item in 0..batch.nitems() {
        values.clear();
        batch.append_values(item, &mut values);
        write_f64s(writer, &values)?;
    }
    write_f64s(writer, rhs)
}

fn write_ragged(
    writer: &mut dyn Write,
    batch: &RaggedCsr<f64>,
    rhs: &[f64],
) -> std::io::Result<()> {
    let rows = batch.row_offsets();
    writer.write_all(RAGGED_MAGIC)?;
    write_u64(writer, batch.nitems())?;
    for offsets in [rows, batch.nnz_offsets()] {
        for ends in offsets.windows(2) {
            write_u64(writer, ends[1] - ends[0])?;
        }
    }
    for item in 0..batch.nitems() {
        let matrix = batch.item(item);
        write_i32s(writer, matrix.pattern().row_ptr())?;
        write_i32s(writer, matrix.pattern().col_idx())?;
        write_f64s(writer, matrix.values())?;
        write_f64s(writer, &rhs[rows[item]..rows[item + 1]])?;
    }
    Ok(())
}
