//! A tally of how systems were solved, kept on the device.

use sparsebatch::gpu::DeviceOutcomes;
use sparsebatch::spmv_gpu::Executor;
use sparsebatch::{Rung, Status};

use super::launches::{self, STATUSES, TALLY};
use crate::error::BurningError;
use crate::linear::Tally;

/// Counts on the device.
pub(crate) struct DeviceTally<E: Executor> {
    /// By status, by the rounding floor, by iterations: see `tally` of `burning.cu`.
    counts: E::Buffer<u64>,
    /// Bits of the largest relative residual of a system that converged.
    worst: E::Buffer<u64>,
    solves: u64,
}

impl<E: Executor> DeviceTally<E> {
    /// Nothing counted.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn new(executor: &E) -> Result<Self, BurningError> {
        Ok(Self {
            counts: executor.alloc_zeroed(TALLY)?,
            worst: executor.alloc_zeroed(1)?,
            solves: 0,
        })
    }

    /// Counts the systems of the first `places` places that have a zone on its way.
    ///
    /// # Errors
    /// What the device reports.
    pub(super) fn count(
        &mut self,
        executor: &E,
        places: usize,
        ended: &DeviceOutcomes<'_, E>,
        course: &mut E::Buffer<u32>,
    ) -> Result<(), BurningError> {
        self.solves += 1;
        let Self { counts, worst, .. } = self;
        Ok(launches::tally(executor, places, ended, course, counts, worst)?)
    }

    /// What was counted. Waits for all work.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn read(&self, executor: &E) -> Result<Tally, BurningError> {
        let counts = executor.download(&self.counts)?;
        let worst = executor.download(&self.worst)?[0];
        let (statuses, rest) = counts.split_at(STATUSES);
        let (by_floor, iterations) = rest.split_at(1);
        let used = iterations.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        let mut tally = Tally {
            solves: self.solves,
            systems: statuses.iter().sum(),
            by_floor: by_floor[0],
            iterations: iterations[..used].to_vec(),
            worst_residual: f64::from_bits(worst),
            ..Tally::default()
        };
        for (status, &count) in Status::ALL.iter().zip(statuses) {
            if *status == Status::Converged {
                // The one rung that there is on the device.
                let first = Rung::ALL.iter().position(|rung| *rung == Rung::First);
                tally.rungs[first.expect("ALL holds every rung")] = count;
            } else if count > 0 {
                tally.failures.push((*status, count));
            }
        }
        Ok(tally)
    }
}
