//! CPU reference and multicore SIMD backend of sparsebatch.
//!
//! **Processes that fork.** A fork takes one thread along, and rayon's pools stay in the parent:
//! products, plans and solves in the child return [`CpuError::Forked`] where the pool was used by this
//! library before, instead of waiting for ever. A pool that the child builds itself works
//! (`rayon::ThreadPoolBuilder::new().build()?.install(|| ...)`), and so does everything in a new process.
//! What else used rayon's global pool before the fork is not known here.
#![deny(unsafe_code)]

mod error;
pub mod lanes;
pub mod par;
pub mod pivoting_lu;
mod plan;
pub mod seq;
mod simd;
mod threads;

pub use error::CpuError;
pub use plan::{Explain, PlanSource, SpmvPlan};
pub use simd::{CpuScalar, Isa};
pub use threads::check_threads;
