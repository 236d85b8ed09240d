//! The error type of the driver.

use std::fmt;

use sparsebatch::{FormatError, SolveError};

/// The error that ended a run.
#[derive(Debug)]
pub enum Error {
    /// Bad usage or bad input, as one sentence.
    Input(String),
    /// The coupled system of a stage was not solved.
    NotConverged(String),
    /// A fault of the program or of the machine.
    Internal(String),
}

impl Error {
    /// Bad input: the subject, what was expected, what was found.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::Input(message.into())
    }

    /// The exit code of the program.
    pub fn code(&self) -> u8 {
        match self {
            Self::Internal(_) => 1,
            Self::Input(_) => 2,
            Self::NotConverged(_) => 3,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Input(message) | Self::NotConverged(message) | Self::Internal(message)) = self;
        f.write_str(&message.replace(['\n', '\r'], " "))
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    /// Converts an error of standard output.
    fn from(error: std::io::Error) -> Self {
        Self::Internal(error.to_string())
    }
}

impl From<SolveError> for Error {
    fn from(error: SolveError) -> Self {
        match error {
            SolveError::Gpu(error) => Self::Internal(error.to_string()),
            error => Self::Input(error.to_string()),
        }
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        Self::Input(error.to_string())
    }
}

/// Refuses a number that is not positive and finite.
///
/// # Errors
/// [`Error::Input`], which names the number.
pub(crate) fn positive(what: &str, value: f64) -> Result<(), Error> {
    if value > 0.0 && value.is_finite() {
        Ok(())
    } else {
        Err(Error::input(format!("{what} is {value}, expected a positive finite number")))
    }
}
