//! Solves on an NVIDIA GPU: [`GpuCg`] and [`GpuLu`].
//!
//! | file | holds |
//! | --- | --- |
//! | `cg.rs` | the plan and its launch |
//! | `shape.rs` | threads per system, and where its values are kept |
//! | `pattern.rs` | the pattern in the order of the kernel |
//! | `explain.rs` | what was chosen, in words |
//! | `lu/` | sparse LU: its plan, its schedule |
//!
//! Plans are written over [`Executor`](sparsebatch_spmv_gpu::Executor), like the products: tests run
//! the same kernels on the CPU.
//!
//! Limitations: CG and LU; uniform batches with values of their own, item-major, or shared ones; no
//! preconditioner or Jacobi; at most 4,096 rows (LU: what fits in
//! shared memory); no residual history and no ladder. Everything else
//! is refused with [`SolveError::Unsupported`](crate::SolveError::Unsupported).

mod cg;
mod explain;
mod lu;
mod pattern;
mod shape;

pub use cg::{GpuCg, Guess};
pub use explain::GpuExplain;
pub use lu::{GpuLu, GpuLuExplain, LuOrder, LuTuning};
pub use shape::{GpuTuning, ValuePlace};
