//! Helpers shared by the tests of all crates: proptest strategies, random vectors, bands, the
//! table of invalid inputs, fuzzing, and the folder of real matrices. The program does not depend on
//! this crate.

mod data;
pub mod fuzz;
mod invalid;
mod patterns;
mod strategies;

pub use data::{Reference, read_xref, shared_dir};
pub use invalid::{InvalidInput, invalid_inputs};
pub use patterns::band_pattern;
pub use strategies::{
    CsrParts, csr, csr_integers, csr_parts, csr_reals, integer_vector, random_integers,
    random_vector, square_csr_integers,
};
