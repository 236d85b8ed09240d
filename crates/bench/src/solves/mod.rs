//! Batched solves: what is solved, by what, how it is timed and judged.
//!
//! | file | holds |
//! | --- | --- |
//! | `systems.rs` | batches, and the test of every solution on the host |
//! | `gpu.rs` | our plans on the device; a new one is a `Plan` and a line in `plan` |
//! | `host.rs` | our solver of data on the host, on the CPU or the GPU |
//! | `clock.rs` | the clock |
//! | `tuning.rs` | kernel shapes by name |
//! | `session.rs` | a run: contenders are checked, timed and become rows |
//! | `rows.rs` | what is said of a contender: whether its answers are right, and its row |

pub(crate) mod clock;
pub(crate) mod gpu;
pub(crate) mod host;
mod rows;
pub(crate) mod session;
pub(crate) mod systems;
pub mod tuning;

use sparsebatch_formats::{CsrPattern, SellPPattern};
use sparsebatch_peers::{PlainLoops, SequentialProduct};
use sparsebatch_solvers::{Outcome, SolveError, SolveScalar};

/// The precisions of solves.
pub(crate) trait Real:
    SolveScalar + PlainLoops + SequentialProduct<CsrPattern> + SequentialProduct<SellPPattern>
{
}

impl<T> Real for T where
    T: SolveScalar + PlainLoops + SequentialProduct<CsrPattern> + SequentialProduct<SellPPattern>
{
}

/// The solutions of a batch, item-major, and how each system ended where the solver says so.
#[derive(Clone, Debug)]
pub(crate) struct Answer<T> {
    pub(crate) x: Vec<T>,
    pub(crate) outcomes: Option<Vec<Outcome>>,
}

/// A batch and what solves it, analysed, its data where the solver wants it.
///
/// The data lies there in copies that solves take turns in; copies are counted from 0 and around.
pub(crate) trait Solve<T> {
    /// Copies of the data.
    fn copies(&self) -> usize;

    /// Brings back what the last solve of a copy left changed. Not timed.
    ///
    /// # Errors
    /// What the device reports.
    fn restore(&mut self, copy: usize) -> Result<(), SolveError>;

    /// Whether solves ask for [`Solve::restore`] before them.
    fn wants_restoring(&self) -> bool;

    /// Solves every system of a copy from x = 0. On a device, issues the work and returns.
    ///
    /// # Errors
    /// What the solver refuses or the device reports.
    fn solve(&mut self, copy: usize) -> Result<(), SolveError>;

    /// What the last solve, which was of `copy`, found. Waits for it.
    ///
    /// # Errors
    /// What the device reports.
    fn answer(&mut self, copy: usize) -> Result<Answer<T>, SolveError>;
}
