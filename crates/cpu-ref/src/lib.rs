//! CPU reference and multicore SIMD backend of sparsebatch.
#![deny(unsafe_code)]

mod error;
pub mod lanes;
mod outcome;
pub mod pivoting_lu;
mod residual;
mod simd;
pub mod symbolic;
pub mod verdict;

pub use error::CpuError;
pub use outcome::{Criteria, Outcome, PerSystem, Status};
pub use residual::{norm2, residual, residual_magnitude};
pub use simd::{CpuScalar, Isa};

/// Placeholder until the SpMV branch is merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpmvOptions {}
