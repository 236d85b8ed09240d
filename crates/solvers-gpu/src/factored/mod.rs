//! [`FactoredSolver`]: whole solves by CG or BiCGStab with a factorised preconditioner, or by complete
//! factors, in one launch.
//!
//! | file | holds |
//! | --- | --- |
//! | `tasks.rs` | elimination as sums of products, and their levels |
//! | `streams.rs` | the sums that each warp and lane makes, level by level |
//! | `programs.rs` | factorisation and application as sums of products in levels |
//! | `lists.rs` | the lanes that share a sum, where programs are lists |
//! | `layout.rs` | programs and pattern as the kernels read them |
//! | `shape.rs` | threads per system, and what is in shared memory |
//! | `plan.rs` | the plan and its launches |
//! | `explain.rs` | the shape of the launch, in words |

mod explain;
pub(crate) mod kernels;
mod layout;
mod lists;
mod plan;
mod programs;
mod shape;
mod streams;
mod tasks;

pub use explain::FactoredShape;
pub use plan::FactoredSolver;
pub use shape::{FactoredPlace, FactoredTuning};
