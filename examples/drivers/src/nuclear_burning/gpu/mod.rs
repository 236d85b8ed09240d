//! Zones that burn on a GPU from the first step to the last: rates, right-hand sides, Jacobians,
//! solves and step control are kernels, and only counts and results are copied to the host.
//!
//! | file | holds |
//! | --- | --- |
//! | `kernels/` | the kernels |
//! | `launches/` | their launches, and all unsafe code |
//! | `heating.rs` | the additions for self-heating zones |
//! | `tables.rs` | the equations as flat tables |
//! | `state.rs` | the state of the zones on the device |
//! | `linear.rs` | the trait for solvers, and the library's solver behind it |
//! | `dense.rs` | the dense LU for comparison |
//! | `tally.rs` | the tally of outcomes of systems |
//! | `integrator.rs` | the rounds of steps |
//! | `groups.rs` | zones in groups that burn side by side, each on a stream |
//! | `timer.rs` | the time of each part of a round |
//!
//! All of it is written over `Executor`, so that an emulation runs the same code on the CPU.
//!
//! Limitations: at most 8 stages; networks whose LU and derivatives fit in the shared
//! memory of a block.

pub mod dense;
mod groups;
mod heating;
mod integrator;
pub mod launches;
pub mod linear;
mod state;
mod tables;
mod tally;
pub mod timer;

pub use groups::Groups;
pub use linear::SparseStages;
