//! What a solve is, on whatever device it runs.
//!
//! | module | holds |
//! | --- | --- |
//! | [`Status`], [`Outcome`], [`Criteria`] | how the solve of a system ends, and when |
//! | [`verdict`] | the rules by which every solver judges a system, on entry and at the end |
//! | [`residual()`], [`residual_magnitude`], [`norm2`] | the true residual of a system, checked |
//! | [`evaluate`] | the same for solvers: in the working precision and in twofold, with bounds of the error |
//! | [`symbolic`] | orders, patterns of factors, matchings, diagonal blocks |
//! | [`wide`] | functions compiled for the widest instruction set of the machine |
//!
//! The crate knows no devices, no threads and no methods; `sparsebatch-cpu-ref` and the solvers stand on it.
#![deny(unsafe_code)]

mod argument;
mod checked;
pub mod evaluate;
mod outcome;
pub mod symbolic;
pub mod verdict;
pub mod wide;

pub use argument::ArgumentError;
pub use checked::{residual, residual_magnitude};
pub use evaluate::norm2;
pub use outcome::{Criteria, Outcome, PerSystem, Status};
