//! Batched CG, BiCGStab and sparse LU with a status and a true residual for every system.
#![deny(unsafe_code)]

mod error;
mod options;
mod report;
mod solver;

pub use error::SolveError;
pub use options::{Engine, Method, Order, Preconditioner, SolveOptions};
pub use report::{BatchReport, ProductCost, Rung, SystemReport};
pub use solver::{BatchSolver, Solution, solve};
pub use sparsebatch_cpu_ref::{Outcome, Status};
