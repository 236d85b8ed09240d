//! [`GpuLu`]: whole solves by sparse LU in one launch.
//!
//! | file | holds |
//! | --- | --- |
//! | `graph.rs` | elimination as sums of products that wait for each other |
//! | `program.rs` | the sums that each warp makes, step by step |
//! | `banks.rs` | numbers of places, by which slots read different banks |
//! | `order.rs` | orders of elimination |
//! | `grid.rs` | launches, and what fits in shared memory |
//! | `shape.rs` | what an order and a launch take, by the estimate |
//! | `schedule.rs` | the order and the launch that are taken, and what the kernel reads |
//! | `plan.rs` | the plan and its launches |
//! | `kept.rs`, `tables.rs` | factors that stay on the device, and the tables by which they are used again |
//! | `deferred.rs` | substitution for right-hand sides that come one after the other, judged together |
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

pub use deferred::LuSolve;
pub use explain::LuShape;
pub use grid::LuTuning;
pub use grid::values_beside_factors;
pub use order::LuOrder;
pub use plan::GpuLu;
