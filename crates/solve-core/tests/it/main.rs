//! Symbolic analyses, from outside of the crate.

mod symbolic_fill;
mod symbolic_properties;
