//! The one error type of this crate.

use std::path::PathBuf;

/// Why a matrix, a batch, a conversion or a file was refused. Nothing is built or written then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// An array's length disagrees with the other arguments.
    #[error("{what} has {found} entries, expected {expected}")]
    Length {
        /// The array.
        what: &'static str,
        /// Its length as the other arguments imply it.
        expected: usize,
        /// Its length.
        found: usize,
    },
    /// A pointer array does not start at 0, decreases, or ends elsewhere than at the entry count.
    #[error("{what}[{position}] is {found}, expected {expected}")]
    Pointer {
        /// The array.
        what: &'static str,
        /// The first offending position.
        position: usize,
        /// The value required there.
        expected: String,
        /// What was found there.
        found: i64,
    },
    /// A row or column index lies outside the matrix.
    #[error("{what}[{position}] is {found}, expected an index in 0..{limit}")]
    IndexOutOfRange {
        /// The array.
        what: &'static str,
        /// The first offending position.
        position: usize,
        /// The index found.
        found: i64,
        /// One past the largest index allowed.
        limit: usize,
    },
    /// Indices that must ascend strictly do not: unsorted or duplicate entries.
    #[error("{what}[{position}] is {found} after {previous}, expected strictly ascending indices")]
    NotAscending {
        /// The array.
        what: &'static str,
        /// The first offending position.
        position: usize,
        /// The index before it.
        previous: i64,
        /// The index found.
        found: i64,
    },
    /// A dimension or count exceeds what 32-bit local indices can address.
    #[error("{what} is {found}, the largest supported is {limit}")]
    TooLarge {
        /// The quantity.
        what: &'static str,
        /// Its value.
        found: u128,
        /// The largest value supported.
        limit: u128,
    },
    /// A conversion would store far more slots than there are entries.
    #[error(
        "{format} of this matrix would hold {slots} slots ({bytes} bytes) for {nnz} entries, the limit is {limit} slots"
    )]
    Blowup {
        /// The target format.
        format: &'static str,
        /// Slots the target would hold, padding included.
        slots: u128,
        /// Bytes the target would take.
        bytes: u128,
        /// Entries of the source.
        nnz: usize,
        /// Slots allowed by the options.
        limit: u128,
    },
    /// An array does not fit into the memory that is left.
    #[error("{what} would take {bytes} bytes, more than could be allocated")]
    Memory {
        /// The array.
        what: &'static str,
        /// Its size.
        bytes: u128,
    },
    /// A request takes more memory than is allowed; none was taken for it.
    #[error("{what} would take {bytes} bytes of memory, expected at most {limit}")]
    MemoryLimit {
        /// What the memory is for.
        what: String,
        /// Bytes that the request would take, including those held already.
        bytes: u128,
        /// Bytes allowed: the caller's limit, or the available memory less a margin.
        limit: u64,
    },
    /// A parameter is outside its range.
    #[error("{name} is {found}, expected {expected}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// Its range.
        expected: &'static str,
        /// Its value.
        found: String,
    },
    /// The operating system refused a file operation.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A text file violates its format at one position.
    #[error("{}:{line}:{column}: expected {expected}, found {found}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// Column in bytes, counted from 1.
        column: u64,
        /// What the format requires.
        expected: String,
        /// The text found there, shortened.
        found: String,
    },
    /// A file violates its format in one field or array.
    #[error("{}: {what}: expected {expected}, found {found}", path.display())]
    Binary {
        /// The file.
        path: PathBuf,
        /// The field or array, with a position where there is one.
        what: String,
        /// What the format requires.
        expected: String,
        /// What was found there.
        found: String,
    },
    /// The file is sound but holds a kind of matrix that this library does not handle.
    #[error("{}: {what} is not supported, expected {expected}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The kind, by its name in the file.
        what: String,
        /// What is supported.
        expected: &'static str,
    },
    /// An error of this enum, with the file it came from.
    #[error("{}: {source}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        #[source]
        source: Box<FormatError>,
    },
}

impl FormatError {
    /// The error itself, without the file names wrapped around it.
    pub fn innermost(&self) -> &Self {
        match self {
            Self::InFile { source, .. } => source.innermost(),
            error => error,
        }
    }
}

/// Checks that a dimension or count fits the 32-bit local indices.
pub(crate) fn check_i32(what: &'static str, found: usize) -> Result<i32, FormatError> {
    i32::try_from(found).map_err(|_| FormatError::TooLarge {
        what,
        found: found as u128,
        limit: i32::MAX as u128,
    })
}

/// An empty array with room for `len` elements.
pub(crate) fn reserve<T>(what: &'static str, len: u128) -> Result<Vec<T>, FormatError> {
    let refused = FormatError::Memory { what, bytes: len.saturating_mul(size_of::<T>() as u128) };
    let Ok(len) = usize::try_from(len) else {
        return Err(refused);
    };
    let mut array = Vec::new();
    match array.try_reserve_exact(len) {
        Ok(()) => Ok(array),
        Err(_) => Err(refused),
    }
}

/// An array of `len` zeros.
pub(crate) fn zeros<T: Clone + Default>(
    what: &'static str,
    len: usize,
) -> Result<Vec<T>, FormatError> {
    let mut array = reserve(what, len as u128)?;
    array.resize(len, T::default());
    Ok(array)
}

/// Checks an array's length.
pub(crate) fn check_len(
    what: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), FormatError> {
    if expected == found { Ok(()) } else { Err(FormatError::Length { what, expected, found }) }
}

/// Checks a pointer array: starts at 0, never decreases, ends at `end`.
pub(crate) fn check_pointers(
    what: &'static str,
    pointers: &[i32],
    end: usize,
) -> Result<(), FormatError> {
    let mut previous = 0i32;
    for (position, &found) in pointers.iter().enumerate() {
        if position == 0 && found != 0 {
            return Err(FormatError::Pointer {
                what,
                position,
                expected: "0".to_owned(),
                found: i64::from(found),
            });
        }
        if found < previous || found as usize > end {
            return Err(FormatError::Pointer {
                what,
                position,
                expected: format!("a value in {previous}..={end}"),
                found: i64::from(found),
            });
        }
        previous = found;
    }
    if previous as usize != end {
        return Err(FormatError::Pointer {
            what,
            position: pointers.len() - 1,
            expected: end.to_string(),
            found: i64::from(previous),
        });
    }
    Ok(())
}

/// Checks one index against its limit.
#[inline]
pub(crate) fn check_index(
    what: &'static str,
    position: usize,
    found: i32,
    limit: usize,
) -> Result<(), FormatError> {
    if found >= 0 && (found as usize) < limit {
        Ok(())
    } else {
        Err(FormatError::IndexOutOfRange { what, position, found: i64::from(found), limit })
    }
}
