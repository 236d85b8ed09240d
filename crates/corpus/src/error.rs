//! The error type of this crate.

use std::path::PathBuf;

use sparsebatch_formats::FormatError;

use crate::List;

/// The reason why one matrix or all of them could not be fetched. Each message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// A name that is neither a list nor a matrix.
    #[error(
        "{found} is neither a list nor a matrix of the corpus, expected {}, or a name that `corpus \
         list` shows",
        List::ALL.map(List::name).join(", ")
    )]
    Name {
        /// The name.
        found: String,
    },
    /// No option or variable names the folder of the corpus.
    #[error(
        "no folder is given for the corpus: expected --into FOLDER, or SPARSEBATCH_CORPUS, \
         XDG_DATA_HOME or HOME to be set"
    )]
    NoFolder,
    /// Another process is fetching into the folder.
    #[error("{}: another process is fetching into this folder", folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// An invalid address.
    #[error("{url} is no address, expected one like https://host/path: {reason}")]
    Address {
        /// The address.
        url: String,
        /// The reason in words.
        reason: String,
    },
    /// The server cannot be reached, or does not answer.
    #[error("{url} cannot be reached ({reason}); --from FOLDER takes matrices from a folder")]
    Unreachable {
        /// The address.
        url: String,
        /// The error of the operating system.
        reason: String,
    },
    /// The server answers with something other than the archive.
    #[error("{url}: expected status 200 or 206, found {status}")]
    Status {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The connection ended again and again before the archive was complete. The partial file is
    /// kept.
    #[error("{url}: the connection ended after {found} of {expected} bytes; run again to resume")]
    Cut {
        /// The address.
        url: String,
        /// Bytes of the partial file.
        found: u64,
        /// Bytes of the complete archive.
        expected: String,
    },
    /// The archive did not arrive in time. The partial file is kept.
    #[error(
        "{url}: expected the archive within {seconds} s (--timeout), found {found} bytes; run again \
         to resume"
    )]
    Slow {
        /// The address.
        url: String,
        /// The time allowed.
        seconds: u64,
        /// Bytes of the partial file.
        found: u64,
    },
    /// The server sends more than the archive of the matrix can have. Nothing is kept.
    #[error("{url}: expected at most {limit} bytes, found {found}")]
    TooLarge {
        /// The address.
        url: String,
        /// Most bytes that the archive may have.
        limit: u64,
        /// The size that the server states, or that more bytes arrived.
        found: String,
    },
    /// An archive that cannot be unpacked.
    #[error("{archive}: expected a whole archive with {member}, found {reason}")]
    Archive {
        /// The address or file.
        archive: String,
        /// The file inside the archive.
        member: String,
        /// The reason in words.
        reason: String,
    },
    /// A matrix whose counts differ from the catalogue's.
    #[error("{matrix}: expected {expected} {what}, found {found}")]
    Numbers {
        /// Group and name.
        matrix: String,
        /// Rows, columns or nonzeros.
        what: &'static str,
        /// The count of the collection's index.
        expected: String,
        /// The count of the file.
        found: usize,
    },
    /// A file that differs from the locked one.
    #[error(
        "{file}: expected SHA-256 {expected} as in {}, found {found}; it is accepted \
         once its entry in the lock file is removed",
        lock.display()
    )]
    Changed {
        /// The address or file.
        file: String,
        /// The lock file.
        lock: PathBuf,
        /// The locked hash.
        expected: String,
        /// The hash of the file.
        found: String,
    },
    /// A lock file that cannot be parsed.
    #[error("{}: expected a lock file of the corpus, schema 1, found {reason}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// The reason in words.
        reason: String,
    },
    /// A folder that contains none of the requested matrices.
    #[error("{}: expected files like {example}, found none of the requested matrices", folder.display())]
    Nothing {
        /// The folder.
        folder: PathBuf,
        /// A file name that would be accepted.
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
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl CorpusError {
    /// Returns a function that adds the path to an error of the operating system.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// Whether all other matrices would fail with the same error.
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
