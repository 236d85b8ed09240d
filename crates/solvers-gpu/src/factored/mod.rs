//! [`FactoredSolver`]: whole solves by CG or BiCGStab with a factorised preconditioner, or by
//! complete factors, in one launch.
//!
//! | file | holds |
//! | --- | --- |
//! | `programs.rs` | factorisation and application as sums of products in levels |
//! | `tasks.rs` | the same with 16-bit positions |
//! | `streams.rs` | the sums of each warp and lane, level by level |
//! | `lists.rs` | the lanes that share a sum, for programs that are lists |
//! | `layout.rs` | programs and pattern as the kernels read them |
//! | `shape.rs` | threads per system, and what is in shared memory |
//! | `tables.rs` | all that kernels read of a pattern |
//! | `plan.rs` | the plan for one pattern and its launches |
//! | `ragged.rs` | the plan for several patterns |
//! | `explain.rs` | the shape of the launch, as text |

mod explain;
pub(crate) mod kernels;
mod layout;
mod lists;
mod plan;
mod programs;
mod ragged;
mod shape;
mod streams;
mod tables;
mod tasks;

pub use explain::FactoredShape;
pub use plan::FactoredSolver;
pub use ragged::RaggedFactored;
pub use shape::{FactoredPlace, FactoredTuning};
