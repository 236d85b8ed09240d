//! What a solve is, on whatever device it runs.
//!
//! | module | holds |
//! | --- | --- |
//! | [`Status`], [`Outcome`], [`Criteria`] | how the solve of a system ends, and when |
//! | [`Scheme`] | what a system is solved by: method and preconditioner with their data |
//! | [`SolveOptions`], [`SpmvOptions`] | what users ask for; how repeated products are made |
//! | [`Watch`] | how far a solve has come, and the request to stop it |
//! | [`verdict`] | the rules by which every solver judges a system, on entry and at the end |
//! | [`residual()`], [`residual_magnitude`], [`norm2`] | the true residual of a system, checked |
//! | [`evaluate`] | the same for solvers, in working or twofold precision, with error bounds |
//! | [`classes()`], [`by_pattern`] | which items of a batch have equal patterns |
//! | [`symbolic`] | orders, patterns of factors, matchings, diagonal blocks |
//! | [`wide`] | functions compiled for the widest instruction set of the machine |
//!
//! The crate knows no devices and implements no method; `sparsebatch-cpu-ref` and the solvers build
//! on it.
#![deny(unsafe_code)]

mod argument;
mod checked;
mod classes;
pub mod evaluate;
mod named;
mod options;
mod outcome;
mod product;
mod scheme;
pub mod symbolic;
pub mod verdict;
mod watch;
pub mod wide;

pub use argument::{ArgumentError, check_len};
pub use checked::{residual, residual_magnitude};
pub use classes::{by_pattern, classes};
pub use evaluate::norm2;
pub use options::{Budget, Engine, Rhs, SolveOptions};
pub use outcome::{Criteria, Outcome, PerSystem, Status};
pub use product::{FormatChoice, KernelChoice, ProductCost, SpmvOptions};
pub use scheme::{
    InnerPrecision, Krylov, LuForm, Method, Order, PrecondPrecision, Preconditioner, Scheme,
};
#[doc(hidden)]
pub use watch::is_stopped;
pub use watch::{Progress, Watch};
