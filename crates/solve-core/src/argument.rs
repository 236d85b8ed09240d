//! What is wrong with an argument.

/// A call refused because of its arguments: a matrix, an array or an option. Nothing was changed.
///
/// The error types of all crates hold it as their variant `Argument`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// A matrix of a linear system is not square.
    #[error("system {item} is {nrows} x {ncols}, expected a square matrix")]
    NotSquare {
        /// Index of the first such item.
        item: usize,
        /// Its number of rows.
        nrows: usize,
        /// Its number of columns.
        ncols: usize,
    },
    /// The length of an array does not match the matrix, the batch, the plan or the options.
    #[error("{what} has {found} entries, expected {expected}")]
    Length {
        /// The array, by its name in the call.
        what: &'static str,
        /// The required length.
        expected: usize,
        /// The actual length.
        found: usize,
    },
    /// An option has a value outside its range, or two options exclude each other.
    #[error("{name} is {found}, expected {expected}")]
    OutOfRange {
        /// The option.
        name: &'static str,
        /// Its range.
        expected: &'static str,
        /// Its value.
        found: String,
    },
}

/// Checks the length of an array.
///
/// # Errors
/// [`ArgumentError::Length`] where `found` is not `expected`.
pub fn check_len(what: &'static str, expected: usize, found: usize) -> Result<(), ArgumentError> {
    if expected == found { Ok(()) } else { Err(ArgumentError::Length { what, expected, found }) }
}
