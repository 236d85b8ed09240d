//! What all solvers of the GPU share.

mod confirm;
pub(crate) mod kernels;
pub(crate) mod outcomes;
mod shift;
pub(crate) mod task;

pub use confirm::Confirmer;
pub use outcomes::DeviceOutcomes;
pub(crate) use outcomes::{Outcomes, PinnedOutcomes};
pub use shift::ShiftedValues;
pub use task::{FusedMethod, Guess, Layouts};

/// Bytes that all banks of shared memory hand out at a time.
pub(crate) const ALL_BANKS: usize = 128;
