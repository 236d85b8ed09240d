//! CPU reference and multicore SIMD backend of sparsebatch.
//!
//! **Processes that fork.** A forked child has only the thread that forked; rayon's pool threads
//! stay in the parent. Products, plans and solves in the child return [`CpuError::Forked`] if this
//! library used the pool before the fork, instead of waiting for ever. A pool that the child builds
//! itself works (`rayon::ThreadPoolBuilder::new().build()?.install(|| ...)`), and so does
//! everything in a new process. Use of rayon's global pool by other code before the fork is not
//! detected.
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
