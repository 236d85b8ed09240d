//! Residual norms of every iteration: [`Histories`].

use sparsebatch_cuda::{Executor, GpuError, KernelBuffer};

use super::run::MOST_ITERATIONS;

/// The most bytes of norms on the device, except that one iteration's norms always fit.
const MOST_BYTES: usize = 64 << 20;

/// The norms of the recurrences' residuals. The device holds those of the iterations between two
/// checks by the host, which collects them.
pub(super) struct Histories<E: Executor> {
    systems: usize,
    /// Iteration by iteration; each norm has its sign bit set, 0 where a system did not iterate.
    recent: E::Buffer<f64>,
    collected: Vec<Vec<f64>>,
}

impl<E: Executor> Histories<E> {
    pub(super) fn new(executor: &E, systems: usize) -> Result<Self, GpuError> {
        let rows = (MOST_BYTES / (8 * systems.max(1))).clamp(1, MOST_ITERATIONS as usize);
        let recent = executor.alloc_zeroed(rows * systems)?;
        Ok(Self { systems, recent, collected: Vec::new() })
    }

    /// Number of iterations whose norms the buffer holds.
    pub(super) fn most_iterations(&self) -> u32 {
        (self.recent.len() / self.systems.max(1)) as u32
    }

    /// Starts with the norms before the first iteration.
    pub(super) fn begin(&mut self, norms: Vec<f64>) {
        self.collected = norms.into_iter().map(|norm| vec![norm]).collect();
    }

    /// Clears the norms on the device.
    pub(super) fn clear(&mut self, executor: &E) -> Result<(), GpuError> {
        executor.fill_zero(&mut self.recent)
    }

    /// Address where iteration `iteration` since the last `clear` writes its norms.
    pub(super) fn address(&self, iteration: u32) -> u64 {
        self.recent.raw() + (iteration as usize * self.systems * size_of::<f64>()) as u64
    }

    /// Collects the norms of `iterations` iterations. Waits for them.
    pub(super) fn take(&mut self, executor: &E, iterations: u32) -> Result<(), GpuError> {
        let recent = executor.download(&self.recent)?;
        for norms in recent.chunks_exact(self.systems).take(iterations as usize) {
            for (norm, history) in norms.iter().zip(&mut self.collected) {
                if norm.is_sign_negative() {
                    history.push(norm.abs());
                }
            }
        }
        Ok(())
    }

    /// The norms of each system.
    pub(super) fn of_systems(&self) -> &[Vec<f64>] {
        &self.collected
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        (self.recent.len() * size_of::<f64>()) as u64
    }
}
