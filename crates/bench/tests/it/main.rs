//! Rows measured on the CPU, and their tables, from outside of the crate.

mod solves;
