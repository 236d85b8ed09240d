//! [`GpuLu`]: whole solves by sparse LU in one launch.
//!
//! | file | holds |
//! | --- | --- |
//! | `graph.rs` | elimination as sums of products that wait for each other |
//! | `program.rs` | the sums that each warp makes, step by step |
//! | `order.rs` | orders of elimination |
//! | `shape.rs` | threads and systems of a group, order, launch |
//! | `plan.rs` | the plan and its launches |
//! | `kept.rs`, `rows.rs` | factors that stay on the device, and the programs that use them again |
//! | `explain.rs` | what was chosen, in words |

mod explain;
mod graph;
mod kept;
mod order;
mod plan;
mod program;
mod rows;
mod shape;

pub use explain::GpuLuExplain;
pub use order::LuOrder;
pub use plan::GpuLu;
pub use shape::LuTuning;
