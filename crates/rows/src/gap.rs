//! What could not be measured: [`Gap`].

use serde::{Deserialize, Serialize};

use crate::row::{Run, SCHEMA};

/// What could not be measured, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// The case.
    pub case: String,
    /// `sparsebatch`, or the peer.
    pub library: String,
    /// Kernel and format.
    pub configuration: String,
    /// The reason, one sentence.
    pub reason: String,
    /// Whether an answer was wrong or the device failed, rather than a format not fitting.
    pub is_fault: bool,
}

impl Gap {
    /// A gap that is not a fault.
    pub fn new(case: &str, library: &str, configuration: &str, reason: impl Into<String>) -> Self {
        Self {
            case: case.to_owned(),
            library: library.to_owned(),
            configuration: configuration.to_owned(),
            reason: reason.into(),
            is_fault: false,
        }
    }
}

/// A line of a file of rows that says what could not be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GapLine {
    schema: u32,
    suite: String,
    run: String,
    date: String,
    /// What was not measured.
    pub gap: Gap,
}

impl GapLine {
    /// The line for a gap of `run`.
    pub fn new(run: &Run, gap: Gap) -> Self {
        let (suite, id, date) = (run.suite.to_owned(), run.id.clone(), run.date.clone());
        Self { schema: SCHEMA, suite, run: id, date, gap }
    }
}
