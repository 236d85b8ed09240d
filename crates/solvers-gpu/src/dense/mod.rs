//! [`DenseSolver`]: whole solves of small systems by elimination with partial pivoting.
//!
//! | file | holds |
//! | --- | --- |
//! | `shape.rs` | threads per system, the launch, and what fits in shared memory |
//! | `plan.rs` | the plan and its launches |

pub(crate) mod kernels;
mod plan;
mod shape;

pub use plan::DenseSolver;
pub use shape::{DenseForm, DenseShape, DenseTuning, MOST_DENSE_ROWS};
