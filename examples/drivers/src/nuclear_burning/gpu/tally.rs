//! A tally of the outcomes of systems, kept on the device.

use sparsebatch::gpu::{Executor, GpuError};
use sparsebatch::{Rung, Status};

use super::launches::{STATUSES, TALLY};
use crate::nuclear_burning::linear::Tally;

/// Counts on the device.
pub(crate) struct DeviceTally<E: Executor> {
    /// Counts by status, by the rounding floor, by iterations: see `kernels/ended.cuh`.
    pub(super) counts: E::Buffer<u64>,
    /// The largest relative residual of a converged system, as its bits.
    pub(super) worst: E::Buffer<u64>,
    /// Number of batched solves.
    pub(super) solves: u64,
}

impl<E: Executor> DeviceTally<E> {
    /// An empty tally.
    ///
    /// # Errors
    /// An error of the device.
    pub(crate) fn new(executor: &E) -> Result<Self, GpuError> {
        Ok(Self {
            counts: executor.alloc_zeroed(TALLY)?,
            worst: executor.alloc_zeroed(1)?,
            solves: 0,
        })
    }

    /// The counts. Waits for all work.
    ///
    /// # Errors
    /// An error of the device.
    pub(crate) fn read(&self, executor: &E) -> Result<Tally, GpuError> {
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
            last_is_more: used == iterations.len(),
            worst_residual: f64::from_bits(worst),
            ..Tally::default()
        };
        for (status, &count) in Status::ALL.iter().zip(statuses) {
            if *status == Status::Converged {
                // The device has only the first rung.
                let first = Rung::ALL.iter().position(|rung| *rung == Rung::First);
                tally.rungs[first.expect("ALL holds every rung")] = count;
            } else if count > 0 {
                tally.failures.push((*status, count));
            }
        }
        Ok(tally)
    }
}
