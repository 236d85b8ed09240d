//! [`BandedSolver`]: whole solves of systems with a narrow band.
//!
//! | file | holds |
//! | --- | --- |
//! | `shape.rs` | threads per system, rows per thread, and the launch |
//! | `plan.rs` | the plan and its launches |

pub(crate) mod kernels;
mod plan;
mod shape;

pub use plan::{BandedSolver, banded_shape};
pub use shape::{BandedShape, BandedTuning};
