//! CPU reference and multicore SIMD backend of sparsebatch.
#![deny(unsafe_code)]

mod error;
pub mod lanes;
mod outcome;
pub mod par;
pub mod pivoting_lu;
mod plan;
mod residual;
pub mod seq;
mod simd;
pub mod symbolic;
pub mod verdict;

pub use error::CpuError;
pub use outcome::{Criteria, Outcome, PerSystem, Status};
pub use plan::{Explain, FormatChoice, KernelChoice, PlanSource, SpmvOptions, SpmvPlan};
pub use residual::{norm2, residual, residual_magnitude};
pub use simd::{CpuScalar, Isa};
