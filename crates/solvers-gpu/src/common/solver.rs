//! What every solver of systems of equal pattern does: [`GpuSolver`].

use sparsebatch_cuda::{Executor, Value};
use sparsebatch_solve_core::{Outcome, ProductCost, SolveOptions};

use super::confirm::Confirmer;
use super::outcomes::{DeviceOutcomes, Limits, Outcomes};
use super::report::PlanReport;
use super::task::Guess;
use crate::GpuSolveError;

/// A right-hand side and a solution for every system.
pub type DeferredSolve<'a, B> = (&'a B, &'a B);

/// The refusal of solves whose verdicts come later.
#[doc(hidden)]
pub const NO_SUBSTITUTION: GpuSolveError = GpuSolveError::Unsupported {
    what: "substitution without verdicts by this solver",
    instead: "take solve_again",
};

/// A solver on a GPU for a batch of systems whose data is on the device:
/// [`FusedSolver`](crate::FusedSolver), [`FactoredSolver`](crate::FactoredSolver),
/// [`GpuLu`](crate::GpuLu), [`FrontalLu`](crate::FrontalLu), [`DenseSolver`](crate::DenseSolver),
/// [`BandedSolver`](crate::BandedSolver) or [`ComposedSolver`](crate::ComposedSolver), whose solves
/// wait; see there for what each supports.
pub trait GpuSolver<E: Executor, T: Value>: Send + Sync {
    /// Starts the solve of every system, from guesses in `x` or from 0, and returns;
    /// [`ComposedSolver`](crate::ComposedSolver) when all have ended. `values`, `b` and `x` have
    /// the layout that the solver was made for.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, [`GpuSolveError::Gpu`] when the launch
    /// is refused. `x` is unchanged then.
    fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError>;

    /// Lets the watch of the options hear of systems as they end, of `systems` systems of the next
    /// solve, where the others have right-hand sides of 0. Returns whether this solver does so.
    #[doc(hidden)]
    fn count_ended(&mut self, systems: usize) -> bool {
        let _ = systems;
        false
    }

    /// Whether [`GpuSolver::factor`] keeps something that saves work.
    fn keeps_factors(&self) -> bool {
        false
    }

    /// Factorises the matrices, or preconditioners made of them, and keeps the factors on the device
    /// for [`GpuSolver::solve_again`]. The first call compiles kernels and allocates memory. Launches
    /// and returns.
    ///
    /// # Errors
    /// [`GpuSolveError::Unsupported`] where the solver keeps no factors, or not of systems of this
    /// size; [`GpuSolveError::Argument`] when `values` does not fit; [`GpuSolveError::Gpu`] when memory
    /// or compiler fail or the launch is refused. Nothing is kept then.
    fn factor(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        let _ = values;
        Err(GpuSolveError::Unsupported {
            what: "kept factors by this solver",
            instead: "solve with factorisation",
        })
    }

    /// Frees the factors of [`GpuSolver::factor`].
    fn forget_factors(&mut self) {}

    /// Solves every system with the factors of the last [`GpuSolver::factor`]. `values` are those that
    /// were factorised; the others as for [`GpuSolver::solve`], which it is for solvers that keep no
    /// factors. Allocates nothing, launches and returns.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when a solver that keeps factors has none; else those of
    /// [`GpuSolver::solve`].
    fn solve_again(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.solve(values, b, guess, x)
    }

    /// Whether [`GpuSolver::solve_again`] takes other values than those that were factorised: it
    /// solves with these, and the factors precondition or refine.
    fn solves_near(&self) -> bool {
        false
    }

    /// Solves every system with the transposed matrices, by the factors of the last
    /// [`GpuSolver::factor`]. The first call allocates memory and compiles a kernel. Launches and
    /// returns.
    ///
    /// # Errors
    /// [`GpuSolveError::Unsupported`] where the factors do not serve the transposed matrices; else
    /// those of [`GpuSolver::solve_again`].
    fn solve_transposed_again(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let _ = (b, guess, x);
        Err(GpuSolveError::Unsupported {
            what: "transposed solves with the factors of this solver",
            instead: "take a solver of the transposed matrices",
        })
    }

    /// From now on only the first `items` items take part in factorisations and solves. The arrays
    /// keep their lengths; their elements for the other items are not touched, outcomes included.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when there are fewer items; [`GpuSolveError::Unsupported`] for
    /// plans of several patterns and of several methods, for [`RaggedLu`](crate::RaggedLu) and
    /// [`ComposedSolver`](crate::ComposedSolver).
    fn set_active(&mut self, items: usize) -> Result<(), GpuSolveError> {
        let _ = items;
        Err(GpuSolveError::Unsupported {
            what: "the first items alone by this solver",
            instead: "make a solver of these items",
        })
    }

    /// Whether the solver has [`GpuSolver::substitute`].
    fn substitutes(&self) -> bool {
        false
    }

    /// Solves every system with the factors of the last [`GpuSolver::factor`] and does not check
    /// the result: [`GpuSolver::verify`] does, for several solves together. See
    /// [`GpuLu::substitute`](crate::GpuLu::substitute).
    ///
    /// # Errors
    /// [`GpuSolveError::Unsupported`] where the solver has no such solves; else those of
    /// [`GpuSolver::solve_again`].
    fn substitute(&mut self, b: &E::Buffer<T>, x: &mut E::Buffer<T>) -> Result<(), GpuSolveError> {
        let _ = (b, x);
        Err(NO_SUBSTITUTION)
    }

    /// Finds how 1 to 8 solves by [`GpuSolver::substitute`] ended. See
    /// [`GpuLu::verify`](crate::GpuLu::verify).
    ///
    /// # Errors
    /// Those of [`GpuSolver::substitute`]; [`GpuSolveError::Argument`] for another number of
    /// solves.
    fn verify(&mut self, solves: &[DeferredSolve<'_, E::Buffer<T>>]) -> Result<(), GpuSolveError> {
        let _ = solves;
        Err(NO_SUBSTITUTION)
    }

    /// The outcomes of the last [`GpuSolver::verify`], solve by solve those of all systems. `None`
    /// before a substitution.
    fn verified_on_device(&self) -> Option<DeviceOutcomes<'_, E>> {
        None
    }

    /// Compiles the kernels for solves from `guess`, so that such a solve can be recorded in a graph.
    ///
    /// # Errors
    /// [`GpuSolveError::Gpu`] when the compiler fails.
    fn prepare(&self, guess: Guess) -> Result<(), GpuSolveError> {
        let _ = guess;
        Ok(())
    }

    /// Confirms which systems of the last solve converged, with the rounding errors of their
    /// residuals bounded: see [`Confirmer`]. `values`, `b` and `x` are those of that solve.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, or the confirmer is for another number
    /// of systems; [`GpuSolveError::Gpu`] when the launch is refused.
    fn confirm(
        &mut self,
        confirmer: &Confirmer<E, T>,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError>;

    /// How each system of the last solve ended, item by item. Waits for the solve.
    ///
    /// # Errors
    /// [`GpuSolveError::Gpu`] with the device's error.
    fn outcomes(&self) -> Result<Vec<Outcome>, GpuSolveError>;

    /// The residual norms of each iteration of the last solve, system by system, from the initial
    /// one on; none where they were not asked for. [`GpuSolver::outcomes`] has them, too.
    fn histories(&self) -> Vec<Vec<f64>> {
        Vec::new()
    }

    /// The number of products of the last solve and their time, against the cost of their plan,
    /// where there is one. Runs some and waits.
    ///
    /// # Errors
    /// [`GpuSolveError::Gpu`] with the device's error.
    fn product_cost(&mut self) -> Result<Option<ProductCost>, GpuSolveError> {
        Ok(None)
    }

    /// The outcomes on the device, to be copied after the solve.
    fn outcome_arrays(&self) -> &Outcomes<E>;

    /// The outcomes on the device, to be overwritten by those of later attempts.
    #[doc(hidden)]
    fn outcome_arrays_mut(&mut self) -> &mut Outcomes<E>;

    /// Tolerances and limits on the device.
    #[doc(hidden)]
    fn limits_mut(&mut self) -> &mut Limits<E>;

    /// Replaces tolerances and iteration limits. Each must be given per system if and only if it
    /// was before. Waits for the last solve.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when there is not one per system, for
    /// negative ones.
    fn replace_limits(
        &mut self,
        executor: &E,
        options: &SolveOptions,
    ) -> Result<(), GpuSolveError> {
        let systems = self.outcome_arrays().systems();
        self.limits_mut().replace(executor, options.criteria::<T>(systems)?)
    }

    /// The plan's choices and its memory.
    fn explain(&self) -> PlanReport;
}
