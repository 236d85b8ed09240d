//! Some of the items of a `.batch` file, read at their offsets: [`BatchIndex`].

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::batch_file::{BatchFile, Header, ragged_items, read_f64s, uniform_items};
use super::memory::MemoryLimit;
use super::source::{in_file, io_error, open};
use crate::{FormatError, Pattern};

/// An opened `.batch` file, whose sizes are known and whose items are read when they are asked for.
/// Several processes may each read their items of one file.
///
/// The memory held is that of the sizes (16 bytes for each item of a ragged batch) or of the pattern
/// of a uniform one.
///
/// # Examples
/// ```
/// use sparsebatch_formats::io::{BatchIndex, MemoryLimit, write_batch};
/// use sparsebatch_formats::{Batch, Csr};
///
/// let batch: Batch<f64> = [2.0, 4.0, 8.0]
///     .map(|value| Csr::try_new(1, 1, vec![0, 1], vec![0], vec![value]).unwrap())
///     .into_iter()
///     .collect();
/// let path = std::env::temp_dir().join("sparsebatch_batch_index_example.batch");
/// write_batch(&path, &batch, &[1.0, 2.0, 3.0])?;
///
/// let mut index = BatchIndex::open(&path, MemoryLimit::available())?;
/// assert_eq!((index.nitems(), index.nrows(1), index.nnz(1)), (3, 1, 1));
/// let file = index.read_items(1..3)?;
/// assert_eq!((file.batch.nitems(), file.rhs), (2, vec![2.0, 3.0]));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), sparsebatch_formats::FormatError>(())
/// ```
#[derive(Debug)]
pub struct BatchIndex {
    path: PathBuf,
    reader: BufReader<File>,
    /// Bytes before the first item.
    start: u64,
    header: Header,
    memory: MemoryLimit,
}

impl BatchIndex {
    /// Opens a `.batch` file of either kind and reads what precedes its items. `memory` limits the
    /// items of each later reading.
    ///
    /// # Errors
    /// As [`read_batch`](super::read_batch), but for the items, which are not read yet;
    /// [`FormatError::MemoryLimit`] where the sizes take more than `memory` allows.
    pub fn open(path: impl AsRef<Path>, memory: MemoryLimit) -> Result<Self, FormatError> {
        let path = path.as_ref();
        let (file, len) = open(path)?;
        let mut reader = BufReader::new(file);
        let header = Header::read(&mut reader, len, path, memory)?;
        let start = reader.stream_position().map_err(io_error(path))?;
        Ok(Self { path: path.to_owned(), reader, start, header, memory: memory.with_held(start) })
    }

    /// Number of items.
    pub fn nitems(&self) -> usize {
        match &self.header {
            Header::Uniform { nitems, .. } => *nitems,
            Header::Ragged { nrows, .. } => nrows.len(),
        }
    }

    /// Whether all items have one pattern, stored once.
    pub fn is_uniform(&self) -> bool {
        matches!(self.header, Header::Uniform { .. })
    }

    /// Rows of an item.
    ///
    /// # Panics
    /// In a ragged batch when `item` is out of range.
    pub fn nrows(&self, item: usize) -> usize {
        match &self.header {
            Header::Uniform { pattern, .. } => pattern.nrows(),
            Header::Ragged { nrows, .. } => nrows[item],
        }
    }

    /// Entries of an item.
    ///
    /// # Panics
    /// As [`BatchIndex::nrows`].
    pub fn nnz(&self, item: usize) -> usize {
        match &self.header {
            Header::Uniform { pattern, .. } => pattern.nnz(),
            Header::Ragged { nnz, .. } => nnz[item],
        }
    }

    /// Reads the items of a range, which may be empty, with their right-hand sides. They are checked
    /// as [`read_batch`](super::read_batch) checks those of a whole file.
    ///
    /// # Errors
    /// [`FormatError::Parameter`] for a range that the batch does not have,
    /// [`FormatError::MemoryLimit`] where the items exceed the limit, [`FormatError::Io`] when the
    /// file cannot be read, [`FormatError::Binary`] for a broken item, by its number in the file.
    pub fn read_items(&mut self, items: Range<usize>) -> Result<BatchFile, FormatError> {
        if items.start > items.end || items.end > self.nitems() {
            return Err(FormatError::Parameter {
                name: "items",
                expected: "a range within the batch",
                found: format!("{items:?} of {}", self.nitems()),
            });
        }
        let path = &self.path;
        let count = items.len();
        let what = || format!("items {items:?} of the batch");
        match &self.header {
            Header::Uniform { nitems, pattern } => {
                let (nrows, nnz) = (pattern.nrows(), pattern.nnz());
                let bytes = 8 * count as u128 * (nrows + nnz) as u128;
                self.memory.check(what, bytes).map_err(in_file(path))?;
                let at = |offset: usize| SeekFrom::Start(self.start + 8 * offset as u64);
                self.reader.seek(at(items.start * nnz)).map_err(io_error(path))?;
                let values = read_f64s(&mut self.reader, "values", count * nnz, path)?;
                let first_rhs = nitems * nnz + items.start * nrows;
                self.reader.seek(at(first_rhs)).map_err(io_error(path))?;
                let rhs = read_f64s(&mut self.reader, "rhs", count * nrows, path)?;
                uniform_items(pattern.clone(), count, values, rhs, path)
            }
            Header::Ragged { nrows, nnz } => {
                let bytes = |of: Range<usize>| {
                    let of_item = |(&n, &k): (&usize, &usize)| 12 * (n + k) as u64 + 4;
                    nrows[of.clone()].iter().zip(&nnz[of]).map(of_item).sum::<u64>()
                };
                let taken = u128::from(bytes(items.clone()));
                self.memory.check(what, taken).map_err(in_file(path))?;
                let at = SeekFrom::Start(self.start + bytes(0..items.start));
                self.reader.seek(at).map_err(io_error(path))?;
                let sizes = (&nrows[items.clone()], &nnz[items.clone()]);
                ragged_items(&mut self.reader, sizes, items.start, path)
            }
        }
    }
}
