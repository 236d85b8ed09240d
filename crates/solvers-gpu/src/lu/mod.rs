//! [`GpuLu`]: whole solves by sparse LU in one launch.
//!
//! | file | holds |
//! | --- | --- |
//! | `graph.rs` | elimination as sums of products that depend on each other |
//! | `program.rs` | the sums that each warp computes, step by step |
//! | `banks.rs` | renumbering of places, so that slots read different banks |
//! | `order.rs` | orders of elimination |
//! | `grid.rs` | launches, and what fits in shared memory |
//! | `shape.rs` | estimated time of an order and a launch |
//! | `schedule.rs` | the order and the launch that are chosen, and what the kernel reads |
//! | `plan.rs` | the plan and its launches |
//! | `kept.rs`, `tables.rs` | factors that stay on the device, and the tables of their solves |
//! | `transposed.rs` | solves with the transposed matrices by the same factors |
//! | `deferred.rs` | substitution for successive right-hand sides, verified together |
//! | `backward.rs` | backward substitution in chunks |
//! | `chunks.rs` | sums of products that wait for each other, in chunks of a warp |
//! | `sums.rs` | sums of products whose sources are at hand, lane by lane |
//! | `explain.rs` | the shape of the launch, in words |

mod backward;
mod banks;
mod chunks;
mod deferred;
mod explain;
mod graph;
mod grid;
mod kept;
pub(crate) mod kernels;
mod order;
mod plan;
mod program;
mod schedule;
mod shape;
mod sums;
mod tables;
mod transposed;

pub use explain::LuShape;
pub use grid::LuTuning;
pub use grid::{MOST_LU_VALUES, values_beside_factors};
pub use order::LuOrder;
pub use plan::GpuLu;
