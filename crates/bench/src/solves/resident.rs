//! Our solves of data that lies on several devices at once.

use sparsebatch_cuda::{Device, Executor};
use sparsebatch_solvers::{SolveError, SolveOptions};

use super::gpu::{DeviceSystems, GpuSolve, plan};
use super::systems::Systems;
use super::{Answer, Real, Solve};

/// The same batch in the memory of each of several devices, solved by all at once.
pub(crate) struct ResidentSolves<T: Real> {
    each: Vec<(Device, GpuSolve<T>)>,
    configuration: String,
}

impl<T: Real> ResidentSolves<T> {
    /// Uploads the systems to each device and makes the plans.
    ///
    /// # Errors
    /// A refusal of the plan or an error of a device.
    pub(crate) fn new(
        devices: &[Device],
        systems: &Systems<T>,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        let mut configuration = String::new();
        let each = devices.iter().map(|device| {
            let plan = plan(device, systems, options, None)?;
            configuration = plan.configuration();
            let solve = GpuSolve::new(device, plan, &DeviceSystems::new(device, systems, 1)?)?;
            Ok((device.clone(), solve))
        });
        Ok(Self { each: each.collect::<Result<_, SolveError>>()?, configuration })
    }

    /// Kernel and shape.
    pub(crate) fn configuration(&self) -> &str {
        &self.configuration
    }
}

/// A copy is the batch of a device: each solve is of all, and the answers are checked in turn.
impl<T: Real> Solve<T> for ResidentSolves<T> {
    fn copies(&self) -> usize {
        self.each.len()
    }

    fn restore(&mut self, _copy: usize) -> Result<(), SolveError> {
        Ok(())
    }

    fn wants_restoring(&self) -> bool {
        false
    }

    fn solve(&mut self, _copy: usize) -> Result<(), SolveError> {
        self.each.iter_mut().try_for_each(|(_, solve)| solve.solve(0))?;
        Ok(self.each.iter().try_for_each(|(device, _)| device.synchronize())?)
    }

    fn answer(&mut self, copy: usize) -> Result<Answer<T>, SolveError> {
        let place = copy % self.each.len();
        self.each[place].1.answer(0)
    }
}
