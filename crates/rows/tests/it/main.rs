//! Rows read from files, and their tables, from outside of the crate.

mod rows;
mod table;
