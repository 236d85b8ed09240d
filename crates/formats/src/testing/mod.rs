//! Helpers for the tests of this and other crates.

mod data;

pub use data::{Reference, read_xref, shared_dir};
