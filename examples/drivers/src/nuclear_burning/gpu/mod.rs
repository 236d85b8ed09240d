//! Zones that burn on a GPU from the first step to the last: rates, right-hand sides, Jacobians,
//! solves and step control are kernels, and only counts and results are copied to the host.
//!
//! | file | holds |
//! | --- | --- |
//! | `kernels/` | the kernels |
//! | `launches/` | their launches, and all unsafe code |
//! | `heating.rs` | what a temperature that changes adds |
//! | `tables.rs` | the equations as flat tables |
//! | `state.rs` | what the zones have on the device |
//! | `linear.rs` | the seam to the solvers, and those of the library |
//! | `dense.rs` | the dense LU that is compared with |
//! | `tally.rs` | how systems were solved |
//! | `integrator.rs` | the rounds of steps |
//! | `groups.rs` | zones in groups that burn side by side, each on a stream |
//! | `timer.rs` | where the time goes |
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
pub use linear::{Iterative, SparseLu};
