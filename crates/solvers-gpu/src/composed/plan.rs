//! The composed solver among the others: [`GpuSolver`].

use sparsebatch_cuda::{Executor, KernelBuffer, Value};
use sparsebatch_formats::{Batch, CsrPattern, CsrPatternRef, Pattern, RaggedCsr};
use sparsebatch_solve_core::{Outcome, ProductCost, SolveOptions};

use super::diagonal::Diagonal;
use super::matrices::Matrices;
use super::operators::Precond;
use super::product::{PlannedProduct, ProductKernel};
use super::sizes::SystemSizes;
use super::work::{OF_LANES, THREADS};
use super::{ComposedSolver, asked_for, most_iterations};
use crate::GpuSolveError;
use crate::common::outcomes::{Limits, Outcomes};
use crate::common::task::check_apart;
use crate::common::{Confirmer, GpuSolver, Guess, LaunchReport, LaunchShape, PlanReport};

/// A pattern whose values come with each solve.
pub(super) struct OfPattern {
    pattern: CsrPattern,
    nitems: usize,
    /// Whether the plan of the products is for values that all items share.
    shares_values: bool,
    kernel: ProductKernel,
}

impl OfPattern {
    fn matrices<T>(&self) -> Matrices<'_, T> {
        let &Self { ref pattern, nitems, shares_values, .. } = self;
        Matrices::Pattern { pattern: Pattern::view(pattern), nitems, shares_values }
    }
}

impl<E: Executor + Clone, T: Value> ComposedSolver<E, T> {
    /// As [`ComposedSolver::new`], for `nitems` items of one pattern, whose values come with each
    /// solve by [`GpuSolver::solve`]. With `shares_values` all items are expected to have those of
    /// one; where a solve has it otherwise, it plans the products once more.
    ///
    /// # Errors
    /// Those of [`ComposedSolver::new`].
    pub fn of_pattern(
        executor: &E,
        (pattern, nitems, shares_values): (CsrPatternRef<'_>, usize, bool),
        kernel: &ProductKernel,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let (method, jacobi) = asked_for(options)?;
        let preconditioner = if jacobi { Precond::Jacobi } else { Precond::Identity };
        let (pattern, kernel) = (pattern.to_pattern(), kernel.clone());
        let of = OfPattern { pattern, nitems, shares_values, kernel };
        let matrices = (&of.matrices(), &of.kernel);
        let mut solver = Self::of(executor, matrices, (method, preconditioner), options)?;
        solver.planned.of_pattern = Some(of);
        Ok(solver)
    }

    /// As [`ComposedSolver::new`], for the patterns of a ragged batch.
    pub(crate) fn ragged(
        executor: &E,
        batch: &RaggedCsr<T>,
        kernel: &ProductKernel,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        Self::new(executor, &Batch::Ragged(batch.clone()), kernel, options)
    }

    /// Says why no other solver takes the systems.
    pub(crate) fn because(mut self, reason: Option<String>) -> Self {
        self.planned.reason = reason;
        self
    }

    /// Takes the values of a solve.
    fn take_values(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        let of = self.planned.of_pattern.as_ref();
        let shares_values = of.map(|of| of.nitems > 1 && values.len() == of.pattern.nnz());
        if let Some((of, shares_values)) = of.zip(shares_values)
            && (of.nitems > 1 && of.shares_values != shares_values)
        {
            self.share_values(shares_values)?;
        }
        self.update_from(values)
    }

    /// Plans the products once more, for values that are now shared, or no longer are.
    fn share_values(&mut self, shares_values: bool) -> Result<(), GpuSolveError> {
        let Some(mut of) = self.planned.of_pattern.take() else { return Ok(()) };
        let before = std::mem::replace(&mut of.shares_values, shares_values);
        let made = self.plan_values(&of);
        if made.is_err() {
            of.shares_values = before;
        }
        self.planned.of_pattern = Some(of);
        made
    }

    fn plan_values(&mut self, of: &OfPattern) -> Result<(), GpuSolveError> {
        let matrices = of.matrices();
        let product = PlannedProduct::new(&self.executor, &matrices, &of.kernel, self.nrhs)?;
        let sizes = match &self.sizes {
            Some(_) => Some(SystemSizes::new(&self.executor, &matrices, self.nrhs)?),
            None => None,
        };
        let diagonal = match &self.diagonal {
            Some(_) => Some(Diagonal::new(&self.executor, &matrices)?),
            None => None,
        };
        (self.product, self.sizes, self.diagonal) = (product, sizes, diagonal);
        Ok(())
    }

    /// The launch between products that has the most work.
    fn launch_report(&self) -> LaunchReport {
        let largest = self.work.systems.iter().rposition(|&systems| systems > 0).unwrap_or(0);
        let threads = OF_LANES.get(largest).map_or(THREADS, |&(lanes, _)| lanes);
        let phases = &self.steps.iterate[0];
        let key = match (self.work.whole.is_empty(), phases.parts.first()) {
            (true, Some(part)) => part,
            _ => &phases.whole,
        };
        LaunchReport {
            scheme: self.planned.scheme,
            kernel: key.expression.clone(),
            systems: self.systems,
            patterns: self.planned.patterns,
            nrows: self.planned.nrows,
            nnz: self.planned.nnz,
            threads_per_system: threads,
            systems_per_block: THREADS / threads,
            threads_per_block: THREADS,
            blocks: (self.work.whole.len() + self.work.parts()) as u32,
            shared_bytes: 0,
            shape: LaunchShape::Composed(Box::new(ComposedSolver::explain(self))),
        }
    }
}

/// Solves wait for the host, and values are packed anew for each: where they stay,
/// [`ComposedSolver::solve`] saves that.
impl<E, T> GpuSolver<E, T> for ComposedSolver<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    /// Returns when all systems have ended, which cannot be recorded in a graph.
    fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        if self.executor.is_recording()? {
            return Err(GpuSolveError::Unsupported {
                what: "a graph of iterations over products, which the host steers",
                instead: "solve without a graph",
            });
        }
        check_apart(values, x)?;
        self.check_vectors(b, x)?;
        self.take_values(values)?;
        let counted = std::mem::take(&mut self.counted);
        self.solve_counted(b, guess, x, counted)
    }

    fn count_ended(&mut self, systems: usize) -> bool {
        self.counted = systems.min(self.systems);
        true
    }

    fn confirm(
        &mut self,
        confirmer: &Confirmer<E, T>,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        ComposedSolver::confirm(self, confirmer, values, b, x)
    }

    fn outcomes(&self) -> Result<Vec<Outcome>, GpuSolveError> {
        ComposedSolver::outcomes(self)
    }

    fn histories(&self) -> Vec<Vec<f64>> {
        self.histories.as_ref().map_or(Vec::new(), |histories| histories.of_systems().to_vec())
    }

    fn product_cost(&mut self) -> Result<Option<ProductCost>, GpuSolveError> {
        ComposedSolver::product_cost(self).map(Some)
    }

    fn outcome_arrays(&self) -> &Outcomes<E> {
        &self.outcomes
    }

    fn outcome_arrays_mut(&mut self) -> &mut Outcomes<E> {
        &mut self.outcomes
    }

    fn limits_mut(&mut self) -> &mut Limits<E> {
        &mut self.limits
    }

    fn replace_limits(
        &mut self,
        executor: &E,
        options: &SolveOptions,
    ) -> Result<(), GpuSolveError> {
        let criteria = options.criteria::<T>(self.systems)?;
        if criteria.floor.is_some() && self.sizes.is_none() {
            return Err(GpuSolveError::Unsupported {
                what: "a rounding floor for iterations over products that were planned without one",
                instead: "give a floor when the solver is made",
            });
        }
        self.most_iterations = most_iterations(&criteria);
        self.limits.replace(executor, criteria)
    }

    fn explain(&self) -> PlanReport {
        let explain = ComposedSolver::explain(self);
        PlanReport {
            scheme: self.planned.scheme,
            launches: vec![self.launch_report()],
            pattern_bytes: explain.product_bytes,
            workspace_bytes: explain.workspace_bytes,
            kept_bytes: 0,
        }
    }
}
