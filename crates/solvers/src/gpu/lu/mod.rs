//! [`GpuLu`]: whole solves by sparse LU in one launch.
//!
//! | file | holds |
//! | --- | --- |
//! | `tasks.rs` | elimination as sums of products, and their levels |
//! | `streams.rs` | the sums that each warp and lane makes, level by level |
//! | `order.rs` | orders of elimination |
//! | `shape.rs` | threads and systems of a group, order, launch |
//! | `plan.rs` | the plan and its launch |
//! | `explain.rs` | what was chosen, in words |

mod explain;
mod order;
mod plan;
mod shape;
pub(super) mod streams;
pub(super) mod tasks;

pub use explain::GpuLuExplain;
pub use order::LuOrder;
pub use plan::GpuLu;
pub use shape::LuTuning;
