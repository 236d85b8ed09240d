//! Files and folders of any known kind, read into one batch.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::detect::{FileKind, detect_open};
use super::source::{in_file, io_error, open};
use super::{BatchFile, read_batch, read_matrix_market, read_npz};
use crate::{Batch, BatchCsr, BatchOf, BatchValues, FormatError, RaggedCsr};

/// How [`load`] treats what it finds.
#[derive(Default)]
pub struct LoadOptions<'a> {
    /// Leave out files that are bad input and name them in [`Loaded::skipped`], instead of giving
    /// their error.
    pub skip_bad: bool,
    /// Called after each file with the bytes of the files read so far and of all of them.
    pub progress: Option<&'a mut dyn FnMut(u64, u64)>,
}

/// What [`load`] read.
#[derive(Debug)]
pub struct Loaded {
    /// The systems, in the order of the files. Uniform when all come with one pattern (a single
    /// matrix, one uniform `.batch`, or several files of equal pattern), else ragged.
    pub batch: Batch<f64>,
    /// The right-hand sides of the files, item-major, with ones for the items whose file has none;
    /// `None` when no file has any.
    pub rhs: Option<Vec<f64>>,
    /// For each item, whether its right-hand side came from its file.
    pub has_rhs: Vec<bool>,
    /// For each item the file it came from, with its number in brackets for files of many.
    pub names: Vec<String>,
    /// Bad files that were left out, with what is wrong with them.
    pub skipped: Vec<(PathBuf, FormatError)>,
    /// Files of the folders whose content and ending are of no known kind: notes, scripts.
    pub ignored: Vec<PathBuf>,
}

/// Reads files and folders into one batch.
///
/// A file is known by its content ([`super::detect`]), whatever its name. Of a folder all files of
/// known content are read, sorted by name; its subfolders and hidden files are not. Other files are
/// ignored there, unless their name ends in `.mtx`, `.mtx.gz`, `.npz` or `.batch`: then they are
/// bad input. Matrices need not be square. A vector in a Matrix Market file is read as the matrix
/// of one column that it is.
///
/// # Errors
/// The first bad file's error unless `skip_bad` is set; [`FormatError::Io`] for what is missing or
/// may not be read; [`FormatError::Binary`] for content of no known kind and for a folder without
/// any file that can be read; [`FormatError::Parameter`] when `paths` is empty or nothing was left.
pub fn load(paths: &[PathBuf], mut options: LoadOptions<'_>) -> Result<Loaded, FormatError> {
    let mut listing = Listing::default();
    for path in paths {
        listing.add(path)?;
    }
    let Listing { files, mut ignored } = listing;
    ignored.sort();
    let total: u64 = files.iter().map(|file| file.bytes).sum();
    let (mut pieces, mut skipped, mut done) = (Vec::new(), Vec::new(), 0);
    for file in files {
        match read_any(&file.path) {
            Ok((batch, rhs)) => pieces.push(Piece { path: file.path, batch, rhs }),
            Err(bad) if options.skip_bad => skipped.push((file.path, bad)),
            Err(bad) => return Err(bad),
        }
        done += file.bytes;
        if let Some(progress) = &mut options.progress {
            progress(done, total);
        }
    }
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
    let rhs = has_rhs.contains(&true).then(|| {
        let parts = pieces.iter_mut().map(|piece| {
            let rows = piece.batch.row_offset(piece.batch.nitems());
            piece.rhs.take().unwrap_or_else(|| vec![1.0; rows])
        });
        parts.collect::<Vec<_>>().concat()
    });
    Ok(Loaded { batch: join(pieces)?, rhs, has_rhs, names, skipped, ignored })
}

/// Reads one file of any known kind; right-hand sides only from `.batch` files.
///
/// # Errors
/// Those of [`super::detect`] and of the reader of that kind.
fn read_any(path: &Path) -> Result<(Batch<f64>, Option<Vec<f64>>), FormatError> {
    Ok(match super::detect(path)? {
        FileKind::MatrixMarket | FileKind::MatrixMarketGzip => {
            (read_matrix_market(path)?.into(), None)
        }
        FileKind::Npz => (read_npz(path)?.into(), None),
        FileKind::UniformBatch | FileKind::RaggedBatch => {
            let BatchFile { batch, rhs } = read_batch(path)?;
            (batch, Some(rhs))
        }
    })
}

struct Listed {
    path: PathBuf,
    bytes: u64,
}

#[derive(Default)]
struct Listing {
    files: Vec<Listed>,
    ignored: Vec<PathBuf>,
}

impl Listing {
    fn add(&mut self, path: &Path) -> Result<(), FormatError> {
        let metadata = std::fs::metadata(path).map_err(io_error(path))?;
        if metadata.is_dir() {
            return self.add_folder(path);
        }
        self.files.push(Listed { path: path.to_owned(), bytes: metadata.len() });
        Ok(())
    }

    fn add_folder(&mut self, folder: &Path) -> Result<(), FormatError> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(io_error(folder))? {
            names.push(entry.map_err(io_error(folder))?.file_name());
        }
        names.sort();
        let before = self.files.len();
        for name in &names {
            let path = folder.join(name);
            if name.as_encoded_bytes().starts_with(b".") || path.is_dir() {
                continue;
            }
            // What cannot be opened is bad input by a known name only.
            let (known, bytes) = match open(&path) {
                Ok((file, bytes)) => (detect_open(file, &path)?.is_some(), bytes),
                Err(_) => (false, 0),
            };
            if known || has_known_ending(name) {
                self.files.push(Listed { path, bytes });
            } else {
                self.ignored.push(path);
            }
        }
        if self.files.len() == before {
            return Err(FormatError::Binary {
                path: folder.to_owned(),
                what: "folder".to_owned(),
                expected: "at least one Matrix Market, .npz or .batch file".to_owned(),
                found: format!("none among its {} entries", names.len()),
            });
        }
        Ok(())
    }
}

fn has_known_ending(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_lowercase();
    [".mtx", ".mtx.gz", ".npz", ".batch"].iter().any(|ending| name.ends_with(ending))
}

/// The content of one file.
struct Piece {
    path: PathBuf,
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
}

/// Joins the content of the files: uniform if one pattern serves all, else ragged.
fn join(mut pieces: Vec<Piece>) -> Result<Batch<f64>, FormatError> {
    if pieces.len() == 1 {
        return Ok(pieces.remove(0).batch);
    }
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
        let mut values = Vec::new();
        for batch in &batches {
            (0..batch.nitems()).for_each(|item| batch.copy_values(item, &mut values));
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
