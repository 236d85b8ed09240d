//! Multicore CPU backend.
#![deny(unsafe_code)]

mod error;
pub mod par;
mod plan;
pub mod seq;
mod simd;

pub use error::CpuError;
pub use plan::{Explain, FormatChoice, KernelChoice, PlanOptions, PlanSource, SpmvPlan};
