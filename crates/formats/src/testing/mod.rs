//! Helpers for the tests of this and other crates: generators, proptest strategies, a comparison
//! of products, the table of invalid inputs.

mod compare;
mod data;
mod invalid;
mod strategies;

pub use compare::{PRODUCT_ERROR_FACTOR, SpmvReference, assert_spmv_close, spmv_error, spmv_exact};
pub use data::{Reference, read_xref, shared_dir};
pub use invalid::{InvalidInput, invalid_inputs};
pub use strategies::{
    CsrParts, csr, csr_integers, csr_parts, csr_reals, integer_vector, random_vector,
    square_csr_integers,
};
