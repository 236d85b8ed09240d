//! Rows of measurements: what they hold, files of rows, and summaries of many rows.
//!
//! | start from | for |
//! | --- | --- |
//! | [`Row`], [`Gap`] | what a measurement holds; what could not be measured |
//! | [`read()`], [`read_all()`] | the rows of files of JSON lines |
//! | [`summary`], [`solves`] | products and solves of a case beside each other |
//! | [`table()`] | Markdown tables |
//! | [`growth`], [`versus`] | exponents of growth; GPU and processor side by side |
//! | [`statistics`] | medians, geometric means, a rank test |
//!
//! The crate measures nothing: `sparsebatch-bench` writes rows, `sparsebatch-report` draws them.
#![forbid(unsafe_code)]

mod error;
mod file;
mod gap;
pub mod growth;
mod names;
mod row;
pub mod solves;
pub mod statistics;
pub mod summary;
pub mod table;
pub mod versus;

pub use error::RowsError;
pub use file::{RowFile, read, read_all};
pub use gap::{Gap, GapLine};
pub use row::{Machine, Row, Run, SCHEMA, short};
pub use table::table;
