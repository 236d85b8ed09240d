//! CPU reference and multicore SIMD backend of sparsebatch.
#![deny(unsafe_code)]

mod outcome;

pub use outcome::{Criteria, Outcome, PerSystem, Status};

/// Placeholder until the SpMV branch is merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpmvOptions {}

/// Placeholder until the SpMV branch is merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {}
