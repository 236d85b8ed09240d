//! Rows read from files, rows measured on the CPU, and the tables of both, from outside of the crate. One
//! program, because each takes seconds to build.

mod rows;
mod solves;
mod table;
