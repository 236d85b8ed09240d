//! What is wrong with an argument.

/// An argument that does not fit the others. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// An array has another length than the matrix and the options ask for.
    #[error("{what} has {found} entries, expected {expected}")]
    Length {
        /// The array, by its name in the call.
        what: &'static str,
        /// The length asked for.
        expected: usize,
        /// The length given.
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
