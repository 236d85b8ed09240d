//! CPU reference and multicore SIMD backend of sparsebatch.
#![deny(unsafe_code)]

mod error;
mod outcome;
pub mod par;
mod plan;
pub mod seq;
mod simd;

pub use error::CpuError;
pub use outcome::{Criteria, Outcome, PerSystem, Status};
/// The former name of [`PlanOptions`].
pub use plan::PlanOptions as SpmvOptions;
pub use plan::{Explain, FormatChoice, KernelChoice, PlanOptions, PlanSource, SpmvPlan};
