//! The linear systems of the stages on the device: the seam to what solves them, and the sparse LU.

use sparsebatch::gpu::{GpuLu, Guess, LuTuning};
use sparsebatch::spmv_gpu::Executor;
use sparsebatch::{Outcome, Pattern, SolveOptions};

use super::launches::{self, Ended};
use super::tally::DeviceTally;
use crate::equations::Equations;
use crate::error::BurningError;

/// Solves the systems of all places, stage by stage, and never waits.
pub(crate) trait StageSolver<E: Executor> {
    /// Makes room for `active` zones, at the first places; how many places there are. What was in
    /// matrices and vectors is lost.
    ///
    /// # Errors
    /// What the solver or the device report.
    fn reserve(&mut self, active: usize) -> Result<usize, BurningError>;

    /// Where the matrices go, place after place, in the order of CSR.
    fn values(&mut self) -> &mut E::Buffer<f64>;

    /// Says that the values are new; the systems of the stages of a step follow.
    ///
    /// # Errors
    /// What the solver or the device report.
    fn factor(&mut self) -> Result<(), BurningError>;

    /// The solutions of the stages before this one, and where its right-hand sides go.
    fn stage(&mut self, stage: usize) -> (&[E::Buffer<f64>], &mut E::Buffer<f64>);

    /// Solves for the right-hand sides of a stage, counts how the systems ended, and marks in `course`
    /// the zones whose system was not solved.
    ///
    /// # Errors
    /// What the solver or the device report.
    fn solve(
        &mut self,
        stage: usize,
        course: &mut E::Buffer<u32>,
        tally: &mut DeviceTally<E>,
    ) -> Result<(), BurningError>;

    /// The solutions of all stages.
    fn solutions(&self) -> &[E::Buffer<f64>];

    /// What solves, in words.
    fn describe(&self) -> String;

    /// Solvers made so far.
    fn analyses(&self) -> u64;
}

/// The sparse LU of the library.
pub(crate) struct SparseLu<E: Executor> {
    executor: E,
    equations: Equations,
    options: SolveOptions,
    plan: GpuLu<E, f64>,
    places: usize,
    values: E::Buffer<f64>,
    b: E::Buffer<f64>,
    u: Vec<E::Buffer<f64>>,
    analyses: u64,
}

impl<E: Executor + Clone> SparseLu<E> {
    /// For `places` zones and a method of so many stages.
    ///
    /// # Errors
    /// Those of [`GpuLu::new`].
    pub(crate) fn new(
        executor: &E,
        equations: &Equations,
        options: &SolveOptions,
        (places, stages): (usize, usize),
    ) -> Result<Self, BurningError> {
        let plan = GpuLu::new(executor, equations.pattern().view(), places, options)?;
        let (nnz, nvars) = (equations.pattern().nnz(), equations.nvars());
        let vector = || executor.alloc(places * nvars);
        Ok(Self {
            plan,
            places,
            values: executor.alloc(places * nnz)?,
            b: vector()?,
            u: (0..stages).map(|_| vector()).collect::<Result<_, _>>()?,
            executor: executor.clone(),
            equations: equations.clone(),
            options: options.clone(),
            analyses: 1,
        })
    }
}

impl<E: Executor + Clone> StageSolver<E> for SparseLu<E> {
    fn reserve(&mut self, active: usize) -> Result<usize, BurningError> {
        if 2 * active <= self.places {
            let pattern = self.equations.pattern().view();
            // The order of before, so that zones keep their bits.
            let order = Some(self.plan.explain().order);
            let tuning = LuTuning { order, ..LuTuning::default() };
            self.plan =
                GpuLu::with_tuning(&self.executor, pattern, active, &self.options, &tuning)?;
            let nvars = self.equations.nvars();
            self.values = self.executor.alloc(active * pattern.nnz())?;
            self.b = self.executor.alloc(active * nvars)?;
            for u in &mut self.u {
                *u = self.executor.alloc(active * nvars)?;
            }
            self.places = active;
            self.analyses += 1;
        }
        Ok(self.places)
    }

    fn values(&mut self) -> &mut E::Buffer<f64> {
        &mut self.values
    }

    fn factor(&mut self) -> Result<(), BurningError> {
        Ok(())
    }

    fn stage(&mut self, stage: usize) -> (&[E::Buffer<f64>], &mut E::Buffer<f64>) {
        (&self.u[..stage], &mut self.b)
    }

    fn solve(
        &mut self,
        stage: usize,
        course: &mut E::Buffer<u32>,
        tally: &mut DeviceTally<E>,
    ) -> Result<(), BurningError> {
        self.plan.solve(&self.values, &self.b, Guess::Zero, &mut self.u[stage])?;
        let outcomes = Uploaded::new(&self.executor, &self.plan.outcomes()?)?;
        tally.count(&self.executor, self.places, &outcomes.ended(), course)
    }

    fn solutions(&self) -> &[E::Buffer<f64>] {
        &self.u
    }

    fn describe(&self) -> String {
        let explain = self.plan.explain();
        format!(
            "lu, order {}, {} entries of L + U; {} on {}",
            explain.order,
            explain.factor_entries,
            explain.kernel,
            self.executor.info().name
        )
    }

    fn analyses(&self) -> u64 {
        self.analyses
    }
}

/// Outcomes as kernels write them.
struct Uploaded<E: Executor> {
    statuses: E::Buffer<u8>,
    iterations: E::Buffer<u32>,
    restarts: E::Buffer<u32>,
    residual_norms: E::Buffer<f64>,
    rhs_norms: E::Buffer<f64>,
}

impl<E: Executor> Uploaded<E> {
    fn new(executor: &E, outcomes: &[Outcome]) -> Result<Self, BurningError> {
        let statuses: Vec<u8> = outcomes.iter().map(|o| o.status as u8).collect();
        let iterations: Vec<u32> = outcomes.iter().map(|o| o.iterations).collect();
        let restarts = |o: &Outcome| o.restarts << 1 | u32::from(o.accepted_by_floor);
        let restarts: Vec<u32> = outcomes.iter().map(restarts).collect();
        let residual_norms: Vec<f64> = outcomes.iter().map(|o| o.residual_norm).collect();
        let rhs_norms: Vec<f64> = outcomes.iter().map(|o| o.rhs_norm).collect();
        Ok(Self {
            statuses: executor.upload(&statuses)?,
            iterations: executor.upload(&iterations)?,
            restarts: executor.upload(&restarts)?,
            residual_norms: executor.upload(&residual_norms)?,
            rhs_norms: executor.upload(&rhs_norms)?,
        })
    }

    fn ended(&self) -> launches::Ended<'_, E> {
        Ended {
            statuses: &self.statuses,
            iterations: &self.iterations,
            restarts: &self.restarts,
            residual_norms: &self.residual_norms,
            rhs_norms: &self.rhs_norms,
        }
    }
}
