//! Files and folders of any known kind, read into one batch.

use std::collections::HashMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arrays::read_npy_matrix;
use super::batch_file::{BatchFile, read_batch_within};
use super::detect::FileKind;
use super::input::Input;
use super::listing::{Key, Listed, Listing};
use super::matrix_market::read_matrix;
use super::memory::MemoryLimit;
use super::npz::read_npz_within;
use super::source::{Bounds, in_file};
use crate::error::{reserve, zeros};
use crate::{Batch, BatchCsr, BatchOf, BatchValues, FormatError, Pattern, RaggedCsr};

/// How [`load`] treats what it finds.
#[derive(Default)]
pub struct LoadOptions<'a> {
    /// Leave out files that are bad input and name them in [`Loaded::skipped`], instead of
    /// returning their error.
    pub skip_bad: bool,
    /// The matrices are those of systems to be solved: one that is not square, or has more than
    /// 65,536 rows without entries, is bad input.
    pub systems: bool,
    /// The memory limit for the batch and for what is held while it is read.
    pub memory: MemoryLimit,
    /// Bytes that the caller will take for each row, for vectors or a solver; they count towards
    /// `memory`.
    pub bytes_per_row: u64,
    /// Called after each file with the bytes of the files read so far and the bytes of all files.
    pub progress: Option<&'a mut dyn FnMut(u64, u64)>,
}

/// What [`load`] read.
#[derive(Debug)]
pub struct Loaded {
    /// The systems, in the order of the files. Uniform when all have one pattern (a single matrix,
    /// one uniform `.batch`, or several files of equal pattern), else ragged.
    pub batch: Batch<f64>,
    /// The right-hand sides of the files, item-major, with ones for the items that have none;
    /// `None` when no item has any.
    pub rhs: Option<Vec<f64>>,
    /// For each item, whether its right-hand side came from its file or from one beside it.
    pub has_rhs: Vec<bool>,
    /// For each item, the file it came from, followed by its index in brackets for a file of
    /// several items.
    pub names: Vec<String>,
    /// Bad files that were left out, with what is wrong with them. A matrix whose right-hand side
    /// is bad is left out, too.
    pub skipped: Vec<(PathBuf, FormatError)>,
    /// Files of the folders that were not read: of no known kind and ending (notes, scripts), and,
    /// where systems are read, other data beside a matrix (`NAME_x.mtx` beside `NAME.mtx`).
    pub ignored: Vec<PathBuf>,
}

/// Reads files and folders into one batch.
///
/// A file's kind is told by its content ([`super::detect`]), whatever its name; the path `-` is
/// standard input. In a folder, all files of known content are read, sorted by name, except hidden
/// ones. Other files there are ignored, unless their name ends in `.mtx`, `.mtx.gz`, `.npz`, `.npy`
/// or `.batch`: then they are bad input. Matrices need not be square. A vector is read as a matrix
/// of one column.
///
/// Right-hand sides may lie beside their matrices: a vector (one column or one row) named `NAME_b`
/// or `NAME_rhs` (or `NAME_rhs1`), or `b` or `rhs` beside a matrix named `A`, with any ending,
/// belongs to the matrix of that name in its folder, if both are read. Folders inside a named
/// folder, up to two levels down, are read if they hold one system in this way: `A.mtx`, or
/// `NAME.mtx` in a folder `NAME`, and its right-hand side.
///
/// # Errors
/// The first bad file's error unless `skip_bad` is set; [`FormatError::Io`] for a file that is
/// missing or may not be read; [`FormatError::Binary`] for content of no known kind, for a
/// right-hand side that does not fit its matrix, and for a folder without any file that can be
/// read; [`FormatError::MemoryLimit`] for more than `memory` allows and [`FormatError::Memory`] for
/// more than the system gives, both even with `skip_bad`; [`FormatError::Parameter`] when `paths`
/// is empty or no file is left.
pub fn load(paths: &[PathBuf], mut options: LoadOptions<'_>) -> Result<Loaded, FormatError> {
    let mut listing = Listing::default();
    for path in paths {
        listing.add(path)?;
    }
    let (files, mut ignored) = listing.into_files();
    let total: u64 = files.iter().map(|file| file.bytes).sum();
    let mut reading = Reading {
        skip_bad: options.skip_bad,
        systems: options.systems,
        bytes_per_row: options.bytes_per_row,
        memory: options.memory,
        pieces: Vec::new(),
        bad_rhs: Vec::new(),
        skipped: Vec::new(),
    };
    let mut done = 0;
    for file in files {
        done += file.bytes;
        reading.read(file)?;
        if let Some(progress) = &mut options.progress {
            progress(done, total);
        }
    }
    reading.pair()?;
    if options.systems {
        ignored.extend(reading.leave_out_other_data());
        reading.check_systems()?;
    }
    ignored.sort();
    let Reading { mut pieces, skipped, memory, .. } = reading;
    if pieces.is_empty() {
        return Err(FormatError::Parameter {
            name: "input",
            expected: "at least one file that can be read",
            found: match skipped.first() {
                None => "none".to_owned(),
                Some((_, first)) => format!("{} bad files, the first: {first}", skipped.len()),
            },
        });
    }
    let names = pieces.iter().flat_map(Piece::names).collect();
    let has_rhs: Vec<bool> = pieces
        .iter()
        .flat_map(|piece| std::iter::repeat_n(piece.rhs.is_some(), piece.batch.nitems()))
        .collect();
    let rhs = if has_rhs.contains(&true) { Some(join_rhs(&mut pieces)?) } else { None };
    Ok(Loaded { batch: join(pieces, memory)?, rhs, has_rhs, names, skipped, ignored })
}

/// What was read so far.
struct Reading {
    skip_bad: bool,
    systems: bool,
    bytes_per_row: u64,
    /// The limit, less what the pieces hold.
    memory: MemoryLimit,
    pieces: Vec<Piece>,
    /// Matrices whose right-hand side is bad, with the path of the right-hand side.
    bad_rhs: Vec<(Key, PathBuf)>,
    skipped: Vec<(PathBuf, FormatError)>,
}

impl Reading {
    /// Reads a file.
    fn read(&mut self, file: Listed) -> Result<(), FormatError> {
        let bounds = Bounds {
            memory: self.memory,
            bytes_per_row: self.bytes_per_row,
            // A right-hand side is not a system.
            is_system: self.systems && file.rhs_of.is_none(),
        };
        match read_any(&file.path, bounds) {
            Ok((path, batch, rhs)) => {
                let piece = Piece { path, file, batch, rhs };
                self.memory = self.memory.with_held(piece.bytes(self.bytes_per_row));
                self.pieces.push(piece);
                Ok(())
            }
            Err(bad) => {
                self.skip(&file.path, bad)?;
                self.bad_rhs.extend(file.rhs_of.map(|matrix| (matrix, file.path)));
                Ok(())
            }
        }
    }

    /// Records a bad file as skipped. Returns its error where bad files are not skipped, and where
    /// memory is short, which is no fault of the file.
    fn skip(&mut self, path: &Path, bad: FormatError) -> Result<(), FormatError> {
        let is_memory =
            matches!(bad.innermost(), FormatError::Memory { .. } | FormatError::MemoryLimit { .. });
        if !self.skip_bad || is_memory {
            return Err(bad);
        }
        self.skipped.push((path.to_owned(), bad));
        Ok(())
    }

    /// The indices into `pieces` of the matrices that may have a right-hand side beside them; of
    /// several matrices with one key, the first.
    fn matrices(&self) -> HashMap<Key, usize> {
        let pieces = self.pieces.iter().enumerate().rev();
        let alone = pieces.filter(|(_, piece)| {
            piece.file.rhs_of.is_none() && piece.rhs.is_none() && piece.batch.nitems() == 1
        });
        alone.map(|(at, piece)| (piece.file.key.clone(), at)).collect()
    }

    /// Assigns to the matrices the right-hand sides beside them. A matrix whose right-hand side is
    /// bad is left out too, so that no system other than the one meant is solved.
    fn pair(&mut self) -> Result<(), FormatError> {
        let matrices = self.matrices();
        let mut is_left = vec![true; self.pieces.len()];
        let mut rhs_of: HashMap<usize, usize> = HashMap::new();
        let mut bad: Vec<(usize, PathBuf)> = Vec::new();
        for (key, path) in std::mem::take(&mut self.bad_rhs) {
            bad.extend(matrices.get(&key).map(|&matrix| (matrix, path)));
        }
        for (at, is_left) in is_left.iter_mut().enumerate() {
            let piece = &self.pieces[at];
            let Some(&matrix) = piece.file.rhs_of.as_ref().and_then(|key| matrices.get(key)) else {
                continue;
            };
            let fault = match piece.shape() {
                Some((nrows, ncols)) if nrows == 1 || ncols == 1 => {
                    self.fault_of_rhs(at, matrix, rhs_of.get(&matrix).copied())
                }
                // Named like a right-hand side, but a matrix.
                Some((nrows, ncols)) if nrows == ncols || !self.systems => continue,
                Some((nrows, ncols)) => Some(binary(
                    &piece.path,
                    "right-hand side",
                    "one column or one row".to_owned(),
                    format!("{nrows} x {ncols}"),
                )),
                None => continue,
            };
            *is_left = false;
            match fault {
                None => {
                    rhs_of.insert(matrix, at);
                }
                Some(fault) => {
                    let path = piece.path.clone();
                    self.skip(&path, fault)?;
                    bad.push((matrix, path));
                }
            }
        }
        for (matrix, at) in rhs_of {
            let rhs = self.pieces[at].to_vector()?;
            self.pieces[matrix].rhs = Some(rhs);
        }
        for (matrix, rhs) in bad {
            if std::mem::replace(&mut is_left[matrix], false) {
                let path = self.pieces[matrix].path.clone();
                let expected = "one that can be used".to_owned();
                let found = format!("{}, which was left out", rhs.display());
                self.skip(&path, binary(&path, "right-hand side", expected, found))?;
            }
        }
        let mut is_left = is_left.into_iter();
        self.pieces.retain(|_| is_left.next() == Some(true));
        Ok(())
    }

    /// What is wrong with the vector `at` as the right-hand side of `matrix`, which may already
    /// have the right-hand side `other`.
    fn fault_of_rhs(&self, at: usize, matrix: usize, other: Option<usize>) -> Option<FormatError> {
        let (piece, matrix) = (&self.pieces[at], &self.pieces[matrix]);
        if let Some(other) = other {
            let found =
                format!("{} beside {}", piece.path.display(), self.pieces[other].path.display());
            return Some(binary(&matrix.path, "right-hand sides", "one".to_owned(), found));
        }
        let (nrows, _) = matrix.shape()?;
        let (length, width) = piece.shape()?;
        let found = length * width;
        (found != nrows).then(|| {
            let expected = format!("{nrows} values, one for each row of {}", matrix.path.display());
            binary(&piece.path, "right-hand side", expected, found.to_string())
        })
    }

    /// Leaves out data beside the matrices in folders that is not part of a system (solutions,
    /// coordinates), and returns its paths.
    fn leave_out_other_data(&mut self) -> Vec<PathBuf> {
        let square =
            self.pieces.iter().filter(|piece| piece.batch.nitems() == 1).filter_map(|piece| {
                let pattern = piece.batch.pattern(0);
                let nrows = pattern.nrows();
                (nrows == pattern.ncols()).then(|| (piece.file.key.clone(), nrows))
            });
        let sizes: HashMap<Key, usize> = square.collect();
        let is_other = |piece: &Piece| {
            piece.file.in_folder
                && piece.shape().is_some_and(|(nrows, ncols)| {
                    nrows != ncols
                        && piece
                            .file
                            .key
                            .matrices_of_data()
                            .any(|key| sizes.get(&key) == Some(&nrows))
                })
        };
        let (others, pieces): (Vec<Piece>, Vec<Piece>) =
            std::mem::take(&mut self.pieces).into_iter().partition(is_other);
        self.pieces = pieces;
        others.into_iter().map(|piece| piece.path).collect()
    }

    /// Refuses or leaves out the pieces that cannot be systems to be solved.
    fn check_systems(&mut self) -> Result<(), FormatError> {
        for piece in std::mem::take(&mut self.pieces) {
            match piece.fault_as_system() {
                Some(fault) => self.skip(&piece.path, fault)?,
                None => self.pieces.push(piece),
            }
        }
        Ok(())
    }
}

fn binary(path: &Path, what: &str, expected: String, found: String) -> FormatError {
    FormatError::Binary { path: path.to_owned(), what: what.to_owned(), expected, found }
}

/// What a file holds: its name in errors, its matrices, its right-hand sides if it has any.
type Content = (PathBuf, Batch<f64>, Option<Vec<f64>>);

/// Reads one file of any known kind; right-hand sides come only from `.batch` files.
fn read_any(path: &Path, bounds: Bounds) -> Result<Content, FormatError> {
    let input = Input::open(path)?;
    let (path, len) = (input.path.clone(), input.len);
    let (batch, rhs) = match input.kind()? {
        FileKind::MatrixMarket | FileKind::MatrixMarketGzip => {
            (read_matrix(input.into_reader(), &path, len, bounds)?.into(), None)
        }
        FileKind::Npz => {
            let (reader, _) = input.into_seekable(bounds.memory)?;
            (read_npz_within(BufReader::new(reader), &path, bounds)?.into(), None)
        }
        FileKind::Npy => (read_npy_matrix(input.into_reader(), &path, len, bounds)?.into(), None),
        FileKind::UniformBatch | FileKind::RaggedBatch => {
            let (reader, len) = input.into_seekable(bounds.memory)?;
            let BatchFile { batch, rhs } = read_batch_within(reader, len, &path, bounds.memory)?;
            (batch, Some(rhs))
        }
    };
    Ok((path, batch, rhs))
}

/// The content of one file.
struct Piece {
    /// Its name in errors.
    path: PathBuf,
    file: Listed,
    batch: Batch<f64>,
    rhs: Option<Vec<f64>>,
}

impl Piece {
    fn names(&self) -> impl Iterator<Item = String> + '_ {
        let nitems = self.batch.nitems();
        (0..nitems).map(move |item| match nitems {
            1 => self.path.display().to_string(),
            _ => format!("{}[{item}]", self.path.display()),
        })
    }

    /// Bytes that the piece holds, and `bytes_per_row` for each of its rows.
    fn bytes(&self, bytes_per_row: u64) -> u64 {
        let (rows, entries) = (self.batch.row_offset(self.batch.nitems()), self.batch.total_nnz());
        let rhs = self.rhs.as_ref().map_or(0, Vec::len);
        (12 * entries + 4 * rows + 8 * rhs) as u64 + bytes_per_row * rows as u64
    }

    /// Rows and columns of the matrix, if the piece is one matrix without a right-hand side.
    fn shape(&self) -> Option<(usize, usize)> {
        (self.batch.nitems() == 1 && self.rhs.is_none()).then(|| {
            let pattern = self.batch.pattern(0);
            (pattern.nrows(), pattern.ncols())
        })
    }

    /// The values of a matrix of one column or one row, with zeros where it has no entry.
    fn to_vector(&self) -> Result<Vec<f64>, FormatError> {
        let pattern = self.batch.pattern(0);
        let mut values = zeros("right-hand side", pattern.nrows() * pattern.ncols())
            .map_err(in_file(&self.path))?;
        let mut copy = Vec::new();
        let found = self.batch.values_in(0, &mut copy);
        for (row, ends) in pattern.row_ptr().windows(2).enumerate() {
            for k in ends[0] as usize..ends[1] as usize {
                // Either the row or the column is 0.
                values[row + pattern.col_idx()[k] as usize] = found[k];
            }
        }
        Ok(values)
    }

    /// Why the matrices cannot be those of systems to be solved; `None` if all are square.
    fn fault_as_system(&self) -> Option<FormatError> {
        let shapes = match &self.batch {
            Batch::Uniform(batch) => {
                let pattern = batch.pattern();
                (pattern.nrows() != pattern.ncols()).then(|| (pattern.nrows(), pattern.ncols()))
            }
            Batch::Ragged(batch) if batch.row_offsets() == batch.col_offsets() => None,
            Batch::Ragged(batch) => (0..batch.nitems())
                .map(|item| {
                    (batch.item(item).pattern().nrows(), batch.item(item).pattern().ncols())
                })
                .find(|(nrows, ncols)| nrows != ncols),
        };
        shapes.map(|(nrows, ncols)| {
            let expected = "a square one in a system to be solved".to_owned();
            binary(&self.path, "matrix", expected, format!("{nrows} x {ncols}"))
        })
    }
}

/// Joins the right-hand sides of the files, with ones where there are none.
fn join_rhs(pieces: &mut [Piece]) -> Result<Vec<f64>, FormatError> {
    if let [Piece { rhs, .. }] = pieces {
        return Ok(rhs.take().unwrap_or_default());
    }
    let rows = |piece: &Piece| piece.batch.row_offset(piece.batch.nitems());
    let mut all = reserve("right-hand sides", pieces.iter().map(rows).sum::<usize>() as u128)?;
    for piece in pieces {
        match piece.rhs.take() {
            Some(rhs) => all.extend(rhs),
            None => all.extend(std::iter::repeat_n(1.0, rows(piece))),
        }
    }
    Ok(all)
}

/// Joins the content of the files: uniform if one pattern serves all, else ragged.
fn join(mut pieces: Vec<Piece>, memory: MemoryLimit) -> Result<Batch<f64>, FormatError> {
    if pieces.len() == 1 {
        return Ok(pieces.remove(0).batch);
    }
    let bytes: u64 = pieces.iter().map(|piece| piece.bytes(0)).sum();
    memory.check(|| format!("the batch of {} files", pieces.len()), u128::from(bytes))?;
    let uniform: Option<Vec<&BatchCsr<f64>>> = pieces
        .iter()
        .map(|piece| match &piece.batch {
            Batch::Uniform(batch) => Some(batch),
            Batch::Ragged(_) => None,
        })
        .collect();
    if let Some(batches) = uniform
        && batches.windows(2).all(|w| w[0].pattern() == w[1].pattern())
    {
        let nitems = batches.iter().map(|batch| batch.nitems()).sum();
        let entries = batches.iter().map(|batch| batch.pattern().nnz() * batch.nitems());
        let mut values = reserve("values of the batch", entries.sum::<usize>() as u128)?;
        for batch in &batches {
            (0..batch.nitems()).for_each(|item| batch.append_values(item, &mut values));
        }
        let pattern = Arc::clone(batches[0].pattern());
        return BatchCsr::try_new(pattern, nitems, BatchValues::ItemMajor(values))
            .map(Batch::Uniform)
            .map_err(in_file(&pieces[0].path));
    }
    let mut ragged = RaggedCsr::new();
    for piece in pieces {
        match piece.batch {
            Batch::Uniform(batch) => {
                (0..batch.nitems()).for_each(|item| ragged.push(batch.item(item)));
            }
            Batch::Ragged(batch) => {
                (0..batch.nitems()).for_each(|item| ragged.push(batch.item(item)));
            }
        }
    }
    Ok(Batch::Ragged(ragged))
}
