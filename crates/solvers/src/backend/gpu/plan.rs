//! How the plans of a batch are made: [`ConfirmedPlan`].

use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{CsrPatternRef, RaggedCsr};
use sparsebatch_solve_core::{Scheme, SolveOptions};

use crate::SolveError;
use crate::gpu::{
    Confirmer, FactoredTuning, FrontalTuning, GpuSolveError, GpuSolver, GpuTuning, Guess,
    SolverTuning, solver_for, solver_for_ragged,
};
use crate::share::most_cols;

/// The tuning of every plan: a system is solved alike however many have its pattern, and whatever
/// the chunks. `max_bytes` is the device memory that a plan may take, where that is known.
pub(crate) fn tuning(max_bytes: Option<u64>) -> SolverTuning {
    SolverTuning::default()
        .fused(GpuTuning::default().few(Some(false)))
        .factored(FactoredTuning::default().max_bytes(max_bytes))
        .frontal(FrontalTuning::default().max_bytes(max_bytes))
}

/// The options of some items.
pub(super) fn options_of(options: &SolveOptions, items: &[u32]) -> SolveOptions {
    if !options.has_own_limits() {
        return options.clone();
    }
    let nrhs = options.nrhs;
    let systems = |&item: &u32| item as usize * nrhs..(item as usize + 1) * nrhs;
    options.for_systems(&items.iter().flat_map(systems).collect::<Vec<_>>())
}

/// Makes a plan while the kernel of its confirmer, for patterns of `ncols` columns, is compiled.
fn beside_confirmer<E: Executor + Clone + Send + Sync + 'static, T: Value>(
    executor: &E,
    ncols: usize,
    plan: impl FnOnce() -> Result<Box<dyn GpuSolver<E, T>>, GpuSolveError> + Send,
) -> Result<Box<dyn GpuSolver<E, T>>, SolveError> {
    let (plan, compiled) = rayon::join(plan, || Confirmer::<E, T>::prepare(executor, ncols));
    let plan = plan?;
    compiled?;
    Ok(plan)
}

/// A plan whose verdicts are confirmed on the device, behind each solve.
pub(super) struct ConfirmedPlan<E: Executor, T: Value> {
    pub(super) plan: Box<dyn GpuSolver<E, T>>,
    confirmer: Confirmer<E, T>,
}

impl<E: Executor + Clone + Send + Sync + 'static, T: Value> ConfirmedPlan<E, T> {
    /// The plan of `nitems` systems of a pattern.
    ///
    /// # Errors
    /// Those of [`solver_for`] and [`Confirmer::new`].
    pub(super) fn new(
        executor: &E,
        scheme: Scheme,
        (pattern, nitems): (CsrPatternRef<'_>, usize),
        options: &SolveOptions,
        tuning: &SolverTuning,
    ) -> Result<Self, SolveError> {
        let plan = || solver_for::<E, T>(executor, scheme, (pattern, nitems), options, tuning);
        let plan = beside_confirmer(executor, pattern.ncols(), plan)?;
        Ok(Self { plan, confirmer: Confirmer::new(executor, pattern, nitems, options)? })
    }

    /// The plan of the systems of a ragged batch.
    ///
    /// # Errors
    /// Those of [`solver_for_ragged`] and [`Confirmer::ragged`].
    pub(super) fn ragged(
        executor: &E,
        scheme: Scheme,
        batch: &RaggedCsr<T>,
        options: &SolveOptions,
        tuning: &SolverTuning,
    ) -> Result<Self, SolveError> {
        let plan = || solver_for_ragged::<E, T>(executor, scheme, batch, options, tuning);
        let plan = beside_confirmer(executor, most_cols(batch), plan)?;
        Ok(Self { plan, confirmer: Confirmer::ragged(executor, batch, options)? })
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        self.plan.explain().bytes() + self.confirmer.bytes()
    }

    pub(super) fn replace_limits(
        &mut self,
        executor: &E,
        options: &SolveOptions,
    ) -> Result<(), SolveError> {
        self.plan.replace_limits(executor, options)?;
        Ok(self.confirmer.replace_limits(options)?)
    }

    /// Starts a solve, by the factors that the plan keeps if `again`.
    pub(super) fn solve(
        &mut self,
        again: bool,
        (values, b): (&E::Buffer<T>, &E::Buffer<T>),
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError> {
        match again {
            true => self.plan.solve_again(values, b, guess, x)?,
            false => self.plan.solve(values, b, guess, x)?,
        }
        Ok(self.plan.confirm(&self.confirmer, values, b, x)?)
    }
}
