//! [`FrontalLu`]: sparse LU for systems whose factors do not fit on chip, front by front.
//!
//! | file | holds |
//! | --- | --- |
//! | `lists.rs` | which warp takes which fronts, and where what they leave lies |
//! | `shape.rs` | threads and memory of a block |
//! | `table.rs` | what the kernel reads of a pattern |
//! | `plan.rs` | the plan and its launches |

pub(crate) mod kernels;
mod lists;
mod plan;
mod shape;
mod table;

pub use plan::FrontalLu;
pub use shape::{FrontalShape, FrontalTuning};
