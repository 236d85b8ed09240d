//! Batched solves: the systems, the contenders, the clock and the check of solutions.
//!
//! | file | holds |
//! | --- | --- |
//! | `systems.rs` | batches, and the test of every solution on the host |
//! | `gpu.rs` | our plans on the device: any `GpuSolver` |
//! | `host.rs` | our solver of data on the host, on the CPU or the GPU |
//! | `thomas.rs` | the peer of banded solves on the CPU |
//! | `resident.rs` | our plans on several devices at once |
//! | `clock.rs` | the clock |
//! | `tuning.rs` | kernel shapes by name |
//! | `session.rs` | a run: contenders are checked, timed and become rows |
//! | `rows.rs` | the verdict on a contender's answers, and its row |

pub(crate) mod clock;
pub(crate) mod gpu;
pub(crate) mod host;
pub(crate) mod resident;
mod rows;
pub(crate) mod session;
pub(crate) mod systems;
pub(crate) mod thomas;
pub mod tuning;

use sparsebatch_formats::{CsrPattern, SellPPattern};
use sparsebatch_peers::{PeerProduct, PlainLoops, SequentialProduct, Thomas};
use sparsebatch_solvers::{Outcome, SolveError, SolveScalar};

/// The precisions of solves.
pub(crate) trait Real:
    SolveScalar
    + PlainLoops
    + Thomas
    + PeerProduct
    + SequentialProduct<CsrPattern>
    + SequentialProduct<SellPPattern>
{
}

impl<T> Real for T where
    T: SolveScalar
        + PlainLoops
        + Thomas
        + PeerProduct
        + SequentialProduct<CsrPattern>
        + SequentialProduct<SellPPattern>
{
}

/// The solutions of a batch, item-major, and the outcome of each system if the solver reports it.
#[derive(Clone, Debug)]
pub(crate) struct Answer<T> {
    pub(crate) x: Vec<T>,
    pub(crate) outcomes: Option<Vec<Outcome>>,
}

/// A batch and its analysed solver, with the data in the memory of the solver.
///
/// Solves alternate between copies of the data; copy indices wrap around.
pub(crate) trait Solve<T> {
    /// Number of copies of the data.
    fn copies(&self) -> usize;

    /// Restores the data that the last solve of a copy overwrote. Not timed.
    ///
    /// # Errors
    /// An error of the device.
    fn restore(&mut self, copy: usize) -> Result<(), SolveError>;

    /// Whether [`Solve::restore`] must precede each solve.
    fn wants_restoring(&self) -> bool;

    /// Solves every system of a copy from x = 0. On a device, issues the work and returns without
    /// waiting.
    ///
    /// # Errors
    /// A refusal of the solver or an error of the device.
    fn solve(&mut self, copy: usize) -> Result<(), SolveError>;

    /// Waits for the last solve, which was of `copy`, and returns its solutions and outcomes.
    ///
    /// # Errors
    /// An error of the device.
    fn answer(&mut self, copy: usize) -> Result<Answer<T>, SolveError>;
}
