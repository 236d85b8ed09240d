//! Solves on an NVIDIA GPU of data that lies there: [`GpuCg`]. For data on the host see
//! [`BatchSolver::on`](crate::BatchSolver::on), which uses these plans.
//!
//! | file | holds |
//! | --- | --- |
//! | `cg.rs` | the plan and its launch |
//! | `shape.rs` | threads per system, and where its values are kept |
//! | `pattern.rs` | the pattern in the order of the kernel |
//! | `explain.rs` | what was chosen, in words |
//! | `shift.rs` | [`ShiftedValues`]: matrices `I/dt - J` formed on the device |
//!
//! Plans are written over [`Executor`](sparsebatch_spmv_gpu::Executor), like the products: tests run
//! the same kernels on the CPU.
//!
//! Limitations: CG; uniform batches with values of their own, item-major, or shared ones; no
//! preconditioner or Jacobi; at most 4,096 rows; no residual history and no ladder. Everything else
//! is refused with [`SolveError::Unsupported`](crate::SolveError::Unsupported).

mod cg;
mod explain;
mod pattern;
mod shape;
mod shift;

pub use cg::{GpuCg, Guess};
pub use explain::GpuExplain;
pub use shape::{GpuTuning, ValuePlace};
pub use shift::ShiftedValues;
