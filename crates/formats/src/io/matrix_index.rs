//! Some of the rows of a matrix file: [`MatrixIndex`].

use std::io::BufReader;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::detect::FileKind;
use super::input::Input;
use super::memory::MemoryLimit;
use super::source::{Bounds, open};
use super::{matrix_market, npz};
use crate::{Csr, FormatError};

/// Most groups of rows whose entries are counted.
const GROUPS: usize = 1 << 16;

/// A matrix file that was read once for its sizes, and whose rows are read when they are asked for.
/// Several processes may each read their rows of one file: Matrix Market, plain or gzip, or an
/// `.npz` that holds CSR.
///
/// Each reading goes through the whole file. The memory held is that of one count for each group of
/// rows, at most 512 KiB; the memory of rows is in proportion to their entries.
///
/// # Examples
/// ```
/// use sparsebatch_formats::Csr;
/// use sparsebatch_formats::io::{MatrixIndex, MemoryLimit, write_matrix_market};
///
/// let a = Csr::try_new(3, 2, vec![0, 1, 1, 3], vec![1, 0, 1], vec![2.0, 1.0, 4.0])?;
/// let path = std::env::temp_dir().join("sparsebatch_matrix_index_example.mtx");
/// write_matrix_market(&path, &a)?;
///
/// let index = MatrixIndex::open(&path, MemoryLimit::available())?;
/// assert_eq!((index.nrows(), index.ncols(), index.entries()), (3, 2, 3));
/// let last = index.read_rows(1..3)?;
/// assert_eq!((last.nrows(), last.row(1)), (2, (&[0, 1][..], &[1.0, 4.0][..])));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), sparsebatch_formats::FormatError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MatrixIndex {
    path: PathBuf,
    kind: Kind,
    nrows: usize,
    ncols: usize,
    counts: Vec<u64>,
    memory: MemoryLimit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Market,
    Npz,
}

impl MatrixIndex {
    /// Reads a file to count the entries of its rows, and checks what can be checked without holding
    /// them. `memory` limits each later reading.
    ///
    /// # Errors
    /// As [`read_matrix_market`](super::read_matrix_market) or [`read_npz`](super::read_npz);
    /// [`FormatError::Unsupported`] for files of other kinds, `.npz` in other formats than `csr`, and
    /// skew-symmetric arrays.
    pub fn open(path: impl AsRef<Path>, memory: MemoryLimit) -> Result<Self, FormatError> {
        let path = path.as_ref();
        let kind = match Input::open_file(path)?.kind()? {
            FileKind::MatrixMarket | FileKind::MatrixMarketGzip => Kind::Market,
            FileKind::Npz => Kind::Npz,
            FileKind::Npy | FileKind::UniformBatch | FileKind::RaggedBatch => {
                return Err(FormatError::Unsupported {
                    path: path.to_owned(),
                    what: "a batch or an array by rows".to_owned(),
                    expected: "one matrix: Matrix Market, or .npz in the format csr",
                });
            }
        };
        let (file, len) = open(path)?;
        let bounds = Bounds { memory, ..Bounds::default() };
        let (nrows, ncols, counts) = match kind {
            Kind::Market => {
                matrix_market::count_entries(file, path, Some(len), bounds, rows_of_group)?
            }
            Kind::Npz => npz::count_entries(BufReader::new(file), path, bounds, rows_of_group)?,
        };
        Ok(Self { path: path.to_owned(), kind, nrows, ncols, counts, memory })
    }

    /// Number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }

    /// Number of columns.
    pub fn ncols(&self) -> usize {
        self.ncols
    }

    /// Number of entries, those that a symmetry implies among them. Entries with equal indices, which
    /// are summed, count each.
    pub fn entries(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Rows of a group; the last group may have fewer.
    pub fn rows_of_group(&self) -> usize {
        rows_of_group(self.nrows)
    }

    /// Number of entries of each group of consecutive rows, as [`MatrixIndex::entries`] counts them.
    pub fn entries_of_groups(&self) -> &[u64] {
        &self.counts
    }

    /// Reads some rows, which become the rows of a matrix with all columns. A range beyond the last
    /// row is cut.
    ///
    /// # Errors
    /// As [`MatrixIndex::open`]; what is wrong between entries is found by who reads their rows.
    pub fn read_rows(&self, rows: Range<usize>) -> Result<Csr<f64>, FormatError> {
        let (path, rows) = (&self.path, rows.start.min(self.nrows)..rows.end.min(self.nrows));
        let (file, len) = open(path)?;
        let bounds = Bounds { memory: self.memory, ..Bounds::default() };
        match self.kind {
            Kind::Market => matrix_market::read_rows(file, path, Some(len), bounds, rows),
            Kind::Npz => npz::read_rows(BufReader::new(file), path, bounds, rows),
        }
    }
}

/// The rows of a group in a matrix of `nrows` rows.
fn rows_of_group(nrows: usize) -> usize {
    nrows.div_ceil(GROUPS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{read_matrix_market, write_npz};

    fn file(name: &str, content: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("matrix_index_{}_{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Rows read one part after the other are those of the whole.
    fn check_parts(path: &Path, whole: &Csr<f64>) {
        let index = MatrixIndex::open(path, MemoryLimit::available()).unwrap();
        assert_eq!((index.nrows(), index.ncols()), (whole.nrows(), whole.ncols()));
        for cut in 0..=whole.nrows() {
            let parts = [index.read_rows(0..cut).unwrap(), index.read_rows(cut..99).unwrap()];
            let rows = parts.iter().flat_map(|part| part.row_iter());
            assert!(rows.eq(whole.row_iter()), "cut at {cut}");
        }
    }

    #[test]
    fn parts_of_text_are_those_of_the_whole() {
        for (name, text) in [
            ("general", "coordinate real general\n3 4 5\n3 1 1\n1 4 2\n3 1 4\n2 2 1e3\n1 1 -1\n"),
            ("symmetric", "coordinate real symmetric\n3 3 4\n3 1 1\n1 1 2\n3 2 4\n3 1 8\n"),
            ("above", "coordinate real symmetric\n3 3 3\n1 3 1\n1 1 2\n3 2 4\n"),
            ("skew", "coordinate integer skew-symmetric\n3 3 2\n3 1 1\n3 2 4\n"),
            ("pattern", "coordinate pattern symmetric\n2 2 2\n2 1\n2 2\n"),
            ("array", "array real general\n2 2\n1\n2\n3\n4\n"),
            ("triangle", "array real symmetric\n3 3\n1\n2\n3\n4\n5\n6\n"),
            ("empty", "coordinate real general\n0 3 0\n"),
        ] {
            let path = file(name, &format!("%%MatrixMarket matrix {text}"));
            let whole = read_matrix_market(&path).unwrap();
            let index = MatrixIndex::open(&path, MemoryLimit::available()).unwrap();
            assert!(index.entries() >= whole.nnz() as u64 && index.rows_of_group() == 1);
            assert_eq!(index.entries_of_groups().len(), whole.nrows());
            check_parts(&path, &whole);
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn parts_of_archives_are_those_of_the_whole() {
        let whole = Csr::try_new(4, 4, vec![0, 1, 3, 3, 5], vec![1, 0, 2, 1, 3], vec![1.5; 5]);
        let whole = whole.unwrap();
        let path = file("matrix.npz", "");
        write_npz(&path, &whole).unwrap();

        check_parts(&path, &whole);

        let index = MatrixIndex::open(&path, MemoryLimit::available()).unwrap();
        assert_eq!(index.entries_of_groups(), [1, 2, 0, 2]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn rows_of_large_matrices_are_counted_in_groups() {
        assert_eq!((rows_of_group(0), rows_of_group(GROUPS), rows_of_group(GROUPS + 1)), (1, 1, 2));
        assert!(usize::div_ceil(i32::MAX as usize, rows_of_group(i32::MAX as usize)) <= GROUPS);
    }

    fn error(name: &str, text: &str) -> String {
        let path = file(name, text);
        let opened = MatrixIndex::open(&path, MemoryLimit::bytes(4096));
        let error = opened.and_then(|index| index.read_rows(1..2)).unwrap_err().to_string();
        std::fs::remove_file(path).unwrap();
        assert!(!error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn faults_are_those_of_the_whole_file() {
        let market = |rest: &str| format!("%%MatrixMarket matrix {rest}");
        let both = market("coordinate real symmetric\n2 2 2\n2 1 1\n1 2 1\n");
        assert!(error("both", &both).contains("both (2, 1) and (1, 2)"));
        let beyond = market("coordinate real general\n2 2 1\n3 1 1\n");
        assert!(error("beyond", &beyond).contains(":3:1: expected a row index in 1..=2"));
        let missing = market("coordinate real general\n2 2 2\n1 1 1\n");
        assert!(error("missing", &missing).contains("entry 2 of 2"));
        let skew = market("array real skew-symmetric\n2 2\n1\n");
        assert!(error("skew", &skew).contains("a skew-symmetric array by rows is not supported"));
        assert!(error("batch", "BATCH001").contains("a batch or an array by rows"));
        let large = market("coordinate real general\n4000 2 0\n");
        assert!(error("large", &large).contains("expected at most 4096"));
    }
}
