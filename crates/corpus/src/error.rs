//! The one error type of this crate.

use std::path::PathBuf;

use sparsebatch_formats::FormatError;

use crate::List;

/// Why a matrix, or all of them, could not be had. Each message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// A name of no list and no matrix.
    #[error(
        "{found} is neither a list nor a matrix of the corpus, expected {}, or a name that `corpus \
         list` shows",
        List::ALL.map(List::name).join(", ")
    )]
    Name {
        /// The name.
        found: String,
    },
    /// Nothing says where the corpus shall be.
    #[error(
        "no folder for the corpus: expected --into FOLDER, or SPARSEBATCH_CORPUS, XDG_DATA_HOME or \
         HOME to be set"
    )]
    NoFolder,
    /// Another process is fetching into the folder.
    #[error("{}: another process is fetching into this folder", folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// An address that is none.
    #[error("{url} is no address, expected one like https://host/path: {reason}")]
    Address {
        /// The address.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server cannot be reached, or does not answer.
    #[error("{url} cannot be reached ({reason}); --from FOLDER takes matrices that are there")]
    Unreachable {
        /// The address.
        url: String,
        /// What the system reports.
        reason: String,
    },
    /// The server answers with something else than the archive.
    #[error("{url}: expected status 200 or 206, found {status}")]
    Status {
        /// The address.
        url: String,
        /// The status of HTTP.
        status: u16,
    },
    /// The connection ended again and again before the archive was whole. What came is kept.
    #[error("{url}: the connection ended after {found} of {expected} bytes; run again to go on")]
    Cut {
        /// The address.
        url: String,
        /// Bytes that are there.
        found: u64,
        /// Bytes of the whole.
        expected: String,
    },
    /// The archive did not come in time. What came is kept.
    #[error(
        "{url}: expected it within {seconds} s (--timeout), found {found} bytes; run again to go on"
    )]
    Slow {
        /// The address.
        url: String,
        /// The time that it had.
        seconds: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The server sends more than the archive of the matrix can have. Nothing is kept.
    #[error("{url}: expected at most {limit} bytes, found {found}")]
    TooLarge {
        /// The address.
        url: String,
        /// Bytes that it may have.
        limit: u64,
        /// What the server says that it has, or that more came.
        found: String,
    },
    /// An archive that cannot be unpacked.
    #[error("{archive}: expected a whole archive with {member}, found {reason}")]
    Archive {
        /// The address or file.
        archive: String,
        /// The file in it.
        member: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A matrix that is another one than the catalogue says.
    #[error("{matrix}: expected {expected} {what}, found {found}")]
    Numbers {
        /// Group and name.
        matrix: String,
        /// Rows, columns or nonzeros.
        what: &'static str,
        /// Those of the collection's index.
        expected: String,
        /// Those of the file.
        found: usize,
    },
    /// A file that is not the one that was locked.
    #[error(
        "{file}: expected SHA-256 {expected} as in {}, found {found}; without its entry there it \
         would be accepted",
        lock.display()
    )]
    Changed {
        /// The address or file.
        file: String,
        /// The lock file.
        lock: PathBuf,
        /// The locked hash.
        expected: String,
        /// That of the file.
        found: String,
    },
    /// A lock file that cannot be understood.
    #[error("{}: expected a lock file of the corpus, schema 1, found {reason}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A folder in which no matrix of those asked for was found.
    #[error("{}: expected files like {example}, found none of the matrices asked for", folder.display())]
    Nothing {
        /// The folder.
        folder: PathBuf,
        /// A name that would be taken.
        example: String,
    },
    /// A file that is no matrix, or cannot be written as one.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system reports.
        source: std::io::Error,
    },
}

impl CorpusError {
    /// Turns what the system reports of a file into an error with its name.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// Whether other matrices would meet the same.
    pub(crate) fn concerns_all(&self) -> bool {
        matches!(
            self,
            Self::Address { .. }
                | Self::Unreachable { .. }
                | Self::Slow { .. }
                | Self::Lock { .. }
                | Self::Io { .. }
        )
    }
}
