//! Sparse matrix formats, batches, conversions and files for sparsebatch.
//!
//! | format | pattern | matrix | stores |
//! | --- | --- | --- | --- |
//! | CSR | [`CsrPattern`] | [`Csr`] | row starts, one column per entry |
//! | COO | [`CooPattern`] | [`Coo`] | one row and one column per entry, row-major |
//! | ELL | [`EllPattern`] | [`Ell`] | equally many slots per row, slot column by slot column |
//! | DIA | [`DiaPattern`] | [`Dia`] | whole diagonals |
//! | HYB | [`HybPattern`] | [`Hyb`] | ELL for the regular part, COO for the rest |
//! | SELL-P | [`SellPPattern`] | [`SellP`] | slices of rows, each as wide as its longest row |
//!
//! A matrix is a shared, validated pattern plus values ([`Matrix`]); a batch is either
//! [`UniformBatch`] (one pattern) or [`RaggedCsr`] / [`RaggedBatch`] (every item its own); kernels
//! take a borrowed [`View`] of either. Every format converts into every other ([`convert`]), into
//! and from the matrices of other crates ([`interop`]); [`stats`] tells what a matrix looks like,
//! [`generate`] makes test problems. This crate has no threads, no unsafe code and knows nothing
//! of GPUs.
#![forbid(unsafe_code)]

pub mod accuracy;
pub mod batch;
pub mod convert;
mod coo;
mod csr;
mod dia;
mod ell;
mod error;
pub mod generate;
mod hyb;
pub mod interop;
pub mod io;
mod matrix;
mod scalar;
mod sellp;
mod setters;
pub mod stats;

pub use batch::{
    Batch, BatchCsr, BatchOf, BatchValues, Layout, RaggedBatch, RaggedCsr, UniformBatch,
};
pub use coo::{Coo, CooPattern};
pub use csr::{Csr, CsrPattern, CsrPatternRef};
pub use dia::{Dia, DiaPattern};
pub use ell::{Ell, EllPattern, PADDING};
pub use error::FormatError;
pub use hyb::{Hyb, HybPattern};
pub use matrix::{Matrix, Pattern, View};
pub use scalar::Scalar;
pub use sellp::{SellP, SellPPattern};
