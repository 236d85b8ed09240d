//! One large matrix over ranks: products, CG and BiCGStab. The crate's documentation has an example,
//! `docs/design/distributed.md` the architecture.

mod bicgstab;
mod cg;
mod divide;
mod gpu;
mod halo;
mod matrix;
mod partition;
mod pipelined;
mod precond;
mod read;
mod run;
mod solve;
mod system;
mod vectors;

pub use matrix::{DistributedMatrix, MatrixOptions, Parts};
pub use partition::Partition;
pub use read::MatrixFile;
pub use solve::{DistributedOptions, DistributedReport, solve_distributed_operator};
