//! Fetching: from the collection, from a folder, or by definition; each matrix checked and locked.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sparsebatch_formats::generate::dense;
use sparsebatch_formats::io::{
    MemoryLimit, available_memory, open_file, read_matrix_market_from, write_matrix_market,
};
use tempfile::{Builder, NamedTempFile};
use ureq::Agent;

use crate::download::{Limits, agent, download};
use crate::folder::{Claim, files_below, present, source, sweep, target, unfinished};
use crate::lock::{Lock, Locked, matrix_sha256, sha256};
use crate::unpack::{limit, unpack};
use crate::{CorpusError, Matrix, Origin};

/// The address of the SuiteSparse Matrix Collection.
pub const COLLECTION: &str = "https://sparse.tamu.edu";

/// Seed of the values of `dense2`.
const SEED: u64 = 1;

/// Bytes that reading a matrix may take: a fixed part, so that a smaller matrix than the one expected is
/// told by its numbers, and a part for each entry and row of the catalogue.
const MEMORY: u64 = 128 << 20;
const MEMORY_PER_ENTRY: u64 = 64;
const MEMORY_PER_ROW: u64 = 8;

/// Where matrices are taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An address below which `MM/GROUP/NAME.tar.gz` lie.
    Address(String),
    /// A folder with `NAME.mtx`, `NAME.mtx.gz` or `NAME.tar.gz`, also in folders in it.
    Folder(PathBuf),
}

/// How a matrix came to be in the corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was downloaded.
    Fetched,
    /// It was downloaded, but for what was left of an earlier attempt.
    Resumed,
    /// It was copied, or unpacked, from a folder.
    Copied,
    /// It was made by its definition.
    Made,
    /// It was there.
    There,
    /// It is not there.
    Missing,
    /// Its file is not of the bytes that the lock file says.
    Changed,
    /// It was refused, or could not be had.
    Failed,
}

impl Status {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fetched => "fetched",
            Self::Resumed => "resumed",
            Self::Copied => "copied",
            Self::Made => "made",
            Self::There => "there",
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::Failed => "failed",
        }
    }

    /// Whether the matrix is in the corpus.
    pub fn is_there(self) -> bool {
        !matches!(self, Self::Missing | Self::Changed | Self::Failed)
    }
}

/// How a matrix fared.
#[derive(Debug)]
pub struct Outcome {
    /// The matrix.
    pub matrix: &'static Matrix,
    /// How it fared.
    pub status: Status,
    /// Its file, where it is there.
    pub file: Option<PathBuf>,
    /// What is locked of it.
    pub locked: Option<Locked>,
    /// Why it failed.
    pub error: Option<CorpusError>,
}

/// Who is told how a fetch goes on.
pub trait Observer {
    /// A matrix is begun.
    fn begin(&mut self, matrix: &'static Matrix);
    /// Bytes of its download, done and in all; 0 in all where that is not known.
    fn bytes(&mut self, done: u64, total: u64);
    /// It ended.
    fn end(&mut self, outcome: &Outcome);
}

/// Fetches matrices into a folder, one after another. What is there is compared with the lock file;
/// what comes is checked against the catalogue before it gets its name.
///
/// A download has `timeout` for each matrix, and ends earlier where more comes than the archive of the
/// matrix can have, or where connections bring nothing new.
///
/// A matrix that fails does not keep others from coming, unless they would fail alike: then the
/// rest is [`Status::Missing`].
///
/// # Errors
/// What concerns all before any was begun: the folder cannot be written to, another process fetches
/// into it, its lock file is none, the other folder cannot be read or has none of the matrices.
pub fn fetch(
    matrices: &[&'static Matrix],
    folder: &Path,
    place: &Place,
    timeout: Duration,
    observer: &mut dyn Observer,
) -> Result<Vec<Outcome>, CorpusError> {
    let files = match place {
        Place::Address(_) => Vec::new(),
        Place::Folder(other) => {
            let files = files_below(other)?;
            if matrices.iter().all(|matrix| source(&files, matrix).is_none()) {
                let example = format!("{}.mtx", matrices.first().map_or("NAME", |m| m.name));
                return Err(CorpusError::Nothing { folder: other.clone(), example });
            }
            files
        }
    };
    let _claim = Claim::new(folder)?;
    let lock = Lock::read(folder)?;
    let mut fetcher = Fetcher { folder, place, files, lock, timeout, agent: agent() };
    let (mut outcomes, mut is_over) = (Vec::new(), false);
    for &matrix in matrices {
        observer.begin(matrix);
        let ended = match is_over {
            true => Ok((Status::Missing, None)),
            false => fetcher.one(matrix, &mut |done, total| observer.bytes(done, total)),
        };
        let outcome = match ended {
            Ok((status, file)) => {
                let locked = fetcher.lock.get(&matrix.key()).cloned();
                Outcome { matrix, status, file, locked, error: None }
            }
            Err(error) => {
                is_over = error.concerns_all();
                let (status, error) = (Status::Failed, Some(error));
                Outcome { matrix, status, file: None, locked: None, error }
            }
        };
        observer.end(&outcome);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Tells which matrices are there: nothing is fetched, and of files the length alone is compared.
///
/// # Errors
/// A lock file that is none.
pub fn list(matrices: &[&'static Matrix], folder: &Path) -> Result<Vec<Outcome>, CorpusError> {
    let lock = Lock::read(folder)?;
    let look = |&matrix: &&'static Matrix| {
        let (file, locked) = (present(folder, matrix), lock.get(&matrix.key()).cloned());
        let bytes = file.as_ref().and_then(|file| Some(std::fs::metadata(file).ok()?.len()));
        let status = match (bytes, &locked) {
            (None, _) => Status::Missing,
            (Some(bytes), Some(locked)) if bytes != locked.bytes => Status::Changed,
            _ => Status::There,
        };
        Outcome { matrix, status, file, locked, error: None }
    };
    Ok(matrices.iter().map(look).collect())
}

struct Fetcher<'a> {
    folder: &'a Path,
    place: &'a Place,
    files: Vec<PathBuf>,
    lock: Lock,
    timeout: Duration,
    agent: Agent,
}

/// A checked file that has not got its name yet, and what will be locked of it.
struct Checked {
    temporary: NamedTempFile,
    target: PathBuf,
    from: String,
    archive_sha256: Option<String>,
    counts: Counts,
}

impl Fetcher<'_> {
    fn one(
        &mut self,
        matrix: &'static Matrix,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Status, Option<PathBuf>), CorpusError> {
        if let Some(file) = present(self.folder, matrix) {
            self.keep(matrix, &file)?;
            return Ok((Status::There, Some(file)));
        }
        sweep(self.folder, matrix)?;
        let (status, checked) = match (matrix.origin, self.place) {
            (Origin::Dense, _) => (Status::Made, self.define(matrix)?),
            (_, Place::Address(base)) => self.take_archive_of(matrix, base, progress)?,
            (_, Place::Folder(_)) => match source(&self.files, matrix) {
                None => return Ok((Status::Missing, None)),
                Some(file) => (Status::Copied, self.copy(matrix, file)?),
            },
        };
        let target = self.name(matrix, checked)?;
        Ok((status, Some(target)))
    }

    /// Compares a file that is there with what is locked; locks it where nothing is.
    fn keep(&mut self, matrix: &Matrix, file: &Path) -> Result<(), CorpusError> {
        let (hash, bytes) = sha256(file)?;
        if let Some(locked) = self.lock.get(&matrix.key()) {
            return self.lock.compare(file.display().to_string(), Some(&locked.sha256), &hash);
        }
        let counts = check(matrix, open_file(file).map_err(CorpusError::io(file))?.0, file)?;
        let from = file.display().to_string();
        self.lock.set(matrix.key(), counts.locked(None, from, self.relative(file), hash, bytes))
    }

    fn define(&self, matrix: &Matrix) -> Result<Checked, CorpusError> {
        let (temporary, target) = self.temporary(matrix, ".mtx.gz")?;
        write_matrix_market(temporary.path(), &dense(matrix.nrows, matrix.ncols, SEED)?)?;
        let reopened = File::open(temporary.path()).map_err(CorpusError::io(&target))?;
        let counts = check(matrix, reopened, &target)?;
        let from = "definition: every place stored".to_owned();
        Ok(Checked { temporary, target, from, archive_sha256: None, counts })
    }

    /// Downloads the archive of a matrix and unpacks it. An archive that was put together from two
    /// attempts and is broken is downloaded once more.
    fn take_archive_of(
        &self,
        matrix: &Matrix,
        base: &str,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Status, Checked), CorpusError> {
        let url = matrix.address(base);
        let part = self.folder.join(matrix.part());
        std::fs::create_dir_all(&part).map_err(CorpusError::io(&part))?;
        let partial = part.join(format!("{}.tar.gz.partial", matrix.name));
        let begin = Instant::now();
        let limits = Limits { bytes: limit(matrix), timeout: self.timeout, begin };
        loop {
            let before =
                download(&self.agent, &url, &partial, limits, progress).inspect_err(|_| {
                    if std::fs::metadata(&partial).is_ok_and(|found| found.len() == 0) {
                        // An empty file does no harm, should it stay.
                        let _ = std::fs::remove_file(&partial);
                    }
                })?;
            let checked = self.open(matrix, &partial, url.clone());
            // Whether it was taken or refused, nothing is to go on with.
            std::fs::remove_file(&partial).map_err(CorpusError::io(&partial))?;
            match checked {
                Err(CorpusError::Archive { .. } | CorpusError::Changed { .. }) if before > 0 => {}
                Err(error) => return Err(error),
                Ok(checked) => {
                    let status = if before > 0 { Status::Resumed } else { Status::Fetched };
                    return Ok((status, checked));
                }
            }
        }
    }

    /// Refuses a matrix that is another one than the locked one, whatever file or archive it came in. A
    /// lock file of an older version has no hash of the matrix: then archives are compared with archives,
    /// and files with files.
    fn compare(&self, matrix: &Matrix, checked: &Checked) -> Result<(), CorpusError> {
        let Some(locked) = self.lock.get(&matrix.key()) else { return Ok(()) };
        let Checked { temporary, from, archive_sha256, counts, .. } = checked;
        match &locked.matrix_sha256 {
            Some(expected) => {
                self.lock.compare(from.clone(), Some(expected), &counts.matrix_sha256)
            }
            None if archive_sha256.is_some() && *archive_sha256 == locked.archive_sha256 => Ok(()),
            None => {
                let (hash, _) = sha256(temporary.path())?;
                self.lock.compare(from.clone(), Some(&locked.sha256), &hash)
            }
        }
    }

    /// Compares an archive with the locked one and unpacks it.
    fn open(&self, matrix: &Matrix, archive: &Path, from: String) -> Result<Checked, CorpusError> {
        let (hash, _) = sha256(archive)?;
        let locked = self.lock.get(&matrix.key()).and_then(|l| l.archive_sha256.as_deref());
        self.lock.compare(from.clone(), locked, &hash)?;
        let (temporary, target) = self.temporary(matrix, ".mtx.gz")?;
        unpack(archive, &from, matrix, temporary.as_file(), &target)?;
        let reopened = temporary.reopen().map_err(CorpusError::io(&target))?;
        let counts = check(matrix, reopened, &target)?;
        Ok(Checked { temporary, target, from, archive_sha256: Some(hash), counts })
    }

    fn copy(&self, matrix: &Matrix, file: &Path) -> Result<Checked, CorpusError> {
        let from = file.display().to_string();
        if from.ends_with(".tar.gz") {
            return self.open(matrix, file, from);
        }
        // Refuses what is no regular file.
        open_file(file).map_err(CorpusError::io(file))?;
        let ending = if from.ends_with(".gz") { ".mtx.gz" } else { ".mtx" };
        let (temporary, target) = self.temporary(matrix, ending)?;
        std::fs::copy(file, temporary.path()).map_err(CorpusError::io(&target))?;
        let reopened = File::open(temporary.path()).map_err(CorpusError::io(&target))?;
        let counts = check(matrix, reopened, file)?;
        Ok(Checked { temporary, target, from, archive_sha256: None, counts })
    }

    /// A temporary file beside the place of a matrix, and that place.
    fn temporary(
        &self,
        matrix: &Matrix,
        ending: &str,
    ) -> Result<(NamedTempFile, PathBuf), CorpusError> {
        let target = target(self.folder, matrix, ending);
        let part = self.folder.join(matrix.part());
        std::fs::create_dir_all(&part).map_err(CorpusError::io(&part))?;
        let prefix = unfinished(matrix);
        let mut builder = Builder::new();
        builder.prefix(&prefix).suffix(ending);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // Narrowed by the process's mask, as any other file's.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let temporary = builder.tempfile_in(&part).map_err(CorpusError::io(&part))?;
        Ok((temporary, target))
    }

    /// Gives a checked file its name and locks it.
    fn name(&mut self, matrix: &Matrix, checked: Checked) -> Result<PathBuf, CorpusError> {
        self.compare(matrix, &checked)?;
        let Checked { temporary, target, from, archive_sha256, counts } = checked;
        // A matrix that comes from elsewhere keeps the hash of the archive that it is compared with.
        let before = || self.lock.get(&matrix.key())?.archive_sha256.clone();
        let archive_sha256 = archive_sha256.or_else(before);
        let (hash, bytes) = sha256(temporary.path())?;
        temporary.persist(&target).map_err(|error| CorpusError::io(&target)(error.error))?;
        let locked = counts.locked(archive_sha256, from, self.relative(&target), hash, bytes);
        self.lock.set(matrix.key(), locked)?;
        Ok(target)
    }

    fn relative(&self, file: &Path) -> PathBuf {
        file.strip_prefix(self.folder).unwrap_or(file).to_owned()
    }
}

/// What a file holds.
struct Counts {
    rows: u64,
    columns: u64,
    nonzeros: u64,
    explicit_zeros: u64,
    matrix_sha256: String,
}

impl Counts {
    fn locked(
        self,
        archive_sha256: Option<String>,
        from: String,
        file: PathBuf,
        sha256: String,
        bytes: u64,
    ) -> Locked {
        let Self { rows, columns, nonzeros, explicit_zeros, matrix_sha256 } = self;
        Locked {
            archive_sha256,
            from,
            file,
            matrix_sha256: Some(matrix_sha256),
            sha256,
            bytes,
            rows,
            columns,
            nonzeros,
            explicit_zeros,
        }
    }
}

/// The memory that reading a matrix may take, so that no other header takes all that there is.
fn memory(matrix: &Matrix) -> MemoryLimit {
    let entries = MEMORY_PER_ENTRY * matrix.entries() as u64;
    let most = MEMORY + entries + MEMORY_PER_ROW * matrix.nrows as u64;
    match available_memory() {
        Some(available) if available < most => MemoryLimit::available(),
        _ => MemoryLimit::bytes(most),
    }
}

/// Reads a matrix and compares it with the catalogue. Of real parts the stored entries are counted,
/// since some may be 0; explicit zeros may be absent.
fn check(matrix: &Matrix, file: File, path: &Path) -> Result<Counts, CorpusError> {
    let found = read_matrix_market_from(file, path, memory(matrix))?;
    let wrong = |what, expected: String, found| {
        Err(CorpusError::Numbers { matrix: matrix.key(), what, expected, found })
    };
    let stored = found.nnz();
    let nonzeros = found.values().iter().filter(|&&value| value != 0.0).count();
    if found.nrows() != matrix.nrows {
        return wrong("rows", matrix.nrows.to_string(), found.nrows());
    }
    if found.ncols() != matrix.ncols {
        return wrong("columns", matrix.ncols.to_string(), found.ncols());
    }
    match matrix.origin {
        Origin::RealParts if stored != matrix.entries() => {
            return wrong("entries", matrix.entries().to_string(), stored);
        }
        Origin::Collection | Origin::Dense if nonzeros != matrix.nonzeros => {
            return wrong("nonzeros", matrix.nonzeros.to_string(), nonzeros);
        }
        _ => {}
    }
    Ok(Counts {
        rows: found.nrows() as u64,
        columns: found.ncols() as u64,
        nonzeros: nonzeros as u64,
        explicit_zeros: (stored - nonzeros) as u64,
        matrix_sha256: matrix_sha256(&found),
    })
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::FormatError;

    use super::*;
    use crate::MATRICES;

    fn checked(header: &str) -> CorpusError {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.mtx");
        let text = format!("%%MatrixMarket matrix coordinate real general\n{header}\n1 1 1\n");
        std::fs::write(&path, text).unwrap();
        let matrix = MATRICES.iter().find(|matrix| matrix.name == "jgl011").unwrap();
        check(matrix, File::open(&path).unwrap(), &path).err().unwrap()
    }

    #[test]
    fn rows_beyond_those_of_the_catalogue_take_no_memory() {
        match checked("2147483647 1 1") {
            CorpusError::Format(FormatError::InFile { source, .. }) => {
                assert!(matches!(*source, FormatError::MemoryLimit { .. }), "{source}");
            }
            error => panic!("{error}"),
        }
        assert!(matches!(checked("12 1 1"), CorpusError::Numbers { what: "rows", .. }));
    }
}
