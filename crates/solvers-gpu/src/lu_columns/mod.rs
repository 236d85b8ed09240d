//! [`RaggedLu`]: sparse LU for systems of any patterns, a team of warps for each.
//!
//! | file | holds |
//! | --- | --- |
//! | `table.rs` | what the kernel reads of a pattern |
//! | `plan.rs` | the plan and its launches |

pub(crate) mod kernels;
mod plan;
mod table;

pub use plan::{ColumnsShape, RaggedLu};
