//! [`GpuLu`]: whole solves by sparse LU in one launch.
//!
//! | file | holds |
//! | --- | --- |
//! | `graph.rs` | elimination as sums of products that wait for each other |
//! | `program.rs` | the sums that each warp makes, step by step |
//! | `banks.rs` | numbers of places, by which slots read different banks |
//! | `order.rs` | orders of elimination |
//! | `shape.rs` | threads and systems of a group, order, launch |
//! | `plan.rs` | the plan and its launches |
//! | `kept.rs`, `tables.rs` | factors that stay on the device, and the tables by which they are used again |
//! | `backward.rs` | backward substitution in chunks |
//! | `chunks.rs` | sums of products that wait for each other, in chunks of a warp |
//! | `explain.rs` | what was chosen, in words |

mod backward;
mod banks;
mod chunks;
mod explain;
mod graph;
mod kept;
mod order;
mod plan;
mod program;
mod shape;
mod tables;

pub use explain::GpuLuExplain;
pub use order::LuOrder;
pub use plan::GpuLu;
pub use shape::LuTuning;
pub(in crate::gpu) use shape::values_beside_factors;
