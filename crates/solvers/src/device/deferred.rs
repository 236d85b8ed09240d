//! Substitutions with kept factors, whose verdicts are found for several of them together:
//! [`DeviceSolver::substitute`] and [`DeviceSolver::verify`].

use super::DeviceSolver;
use crate::gpu::{DeferredSolve, DeviceOutcomes, NO_SUBSTITUTION, check_apart};
use crate::{GpuExecutor, SolveError, SolveScalar};

impl<E: GpuExecutor, T: SolveScalar> DeviceSolver<E, T> {
    /// Whether the first method has [`DeviceSolver::substitute`]: the sparse LU of one pattern, for
    /// item-major vectors.
    pub fn substitutes(&self) -> bool {
        self.plan.substitutes() && self.others.is_empty() && self.staged_vectors.is_none()
    }

    /// Solves every system by substitution alone with the factors of the last
    /// [`DeviceSolver::factor`], and does not check the result: [`DeviceSolver::verify`] does, for
    /// several solves together, and then reads the matrices once for all of them. Meant for
    /// right-hand sides that depend on earlier solutions, as in the stages of a Rosenbrock method.
    /// Returns at once, but for the first call, which compiles kernels and allocates memory; see
    /// [`GpuLu::substitute`](crate::gpu::GpuLu::substitute).
    ///
    /// # Errors
    /// [`SolveError::NotFactored`] without kept factors; [`SolveError::Unsupported`] where the
    /// solver does not [substitute](DeviceSolver::substitutes), or the vectors of a system exceed
    /// the shared memory of a block; else those of [`DeviceSolver::enqueue_again`].
    pub fn substitute(&mut self, b: &E::Buffer<T>, x: &mut E::Buffer<T>) -> Result<(), SolveError> {
        self.check_substitutes()?;
        check_apart(b, x)?;
        Ok(self.plan.substitute(b, x)?)
    }

    /// Finds how 1 to 8 solves by [`DeviceSolver::substitute`] with the same factors ended. Each is
    /// a right-hand side and a solution for every system. Returns at once;
    /// [`DeviceSolver::verified_outcomes`] has the result. Solutions are neither refined nor
    /// confirmed, and no later rung is tried: what did not converge may be solved by
    /// [`DeviceSolver::solve_again`].
    ///
    /// # Errors
    /// Those of [`DeviceSolver::substitute`]; [`SolveError::Argument`] for another number of
    /// solves, and before the first substitution.
    pub fn verify(&mut self, solves: &[DeferredSolve<'_, E::Buffer<T>>]) -> Result<(), SolveError> {
        self.check_substitutes()?;
        Ok(self.plan.verify(solves)?)
    }

    /// The outcomes of the last [`DeviceSolver::verify`] on the device: solve by solve those of all
    /// systems, with room for 8 solves. `None` before a substitution.
    pub fn verified_outcomes(&self) -> Option<DeviceOutcomes<'_, E>> {
        self.plan.verified_on_device()
    }

    fn check_substitutes(&self) -> Result<(), SolveError> {
        if !self.substitutes() {
            return Err(NO_SUBSTITUTION.into());
        }
        match &self.matrices {
            Some(kept) if kept.has_factors => Ok(()),
            _ => Err(SolveError::NotFactored),
        }
    }
}
