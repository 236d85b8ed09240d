//! What all solvers of the GPU share.

mod confirm;
mod gradient;
pub(crate) mod item_grid;
mod items;
pub(crate) mod kernels;
mod moves;
pub(crate) mod outcomes;
mod report;
mod shift;
mod solver;
pub(crate) mod task;

pub use confirm::{Confirmer, FailedSystem, Settled};
pub use gradient::ValueGradient;
pub use items::{ItemArray, ItemExtents, ItemList, Span, SpanList};
pub use moves::ArrayMove;
pub use outcomes::DeviceOutcomes;
pub use outcomes::{HostOutcomes, Limits, OutcomeMemory, OutcomeSlices, Outcomes, PinnedOutcomes};
pub use report::{LaunchReport, LaunchShape, PlanReport, kernels_in_words};
pub use shift::ShiftedValues;
pub use solver::{DeferredSolve, GpuSolver, NO_SUBSTITUTION};
pub use task::{Guess, Layouts, check_apart};

/// Bytes that all banks of shared memory hand out at a time.
pub(crate) const ALL_BANKS: usize = 128;
