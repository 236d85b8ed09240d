//! The linear systems of the stages on the device: the seam to what solves them, and the sparse LU.

use sparsebatch::gpu::{DeviceOutcomes, GpuLu, Guess, LuTuning};
use sparsebatch::spmv_gpu::Executor;
use sparsebatch::{Pattern, SolveOptions};

use crate::equations::Equations;
use crate::error::BurningError;

/// Solves the systems of all places, stage by stage, and never waits.
pub(crate) trait StageSolver<E: Executor> {
    /// From now on only the zones at the first places have systems.
    ///
    /// # Errors
    /// What the solver or the device report.
    fn set_active(&mut self, active: usize) -> Result<(), BurningError>;

    /// Where the matrices go, place after place, in the order of CSR.
    fn values(&mut self) -> &mut E::Buffer<f64>;

    /// Says that the values are new; the systems of the stages of a step follow.
    ///
    /// # Errors
    /// What the solver or the device report.
    fn factor(&mut self) -> Result<(), BurningError>;

    /// What a stage is made of, and where its right-hand sides go.
    fn stage(&mut self, stage: usize) -> (Before<'_, E>, &mut E::Buffer<f64>);

    /// Solves for the right-hand sides of a stage.
    ///
    /// # Errors
    /// What the solver or the device report.
    fn solve(&mut self, stage: usize) -> Result<(), BurningError>;

    /// The solutions of all stages, and how the systems of the last one ended.
    fn solutions(&self) -> Before<'_, E>;

    /// What solves, in words.
    fn describe(&self) -> String;

    /// Analyses that were made.
    fn analyses(&self) -> usize;
}

/// The solutions of some stages, and how the systems of the last solve ended.
pub(super) type Before<'a, E> = (&'a [<E as Executor>::Buffer<f64>], DeviceOutcomes<'a, E>);

/// The sparse LU of the library, whose factors stay on the device for the stages of a step.
pub(crate) struct SparseLu<E: Executor> {
    executor: E,
    /// From that of all zones to that of the fewest: a plan for few systems gives each more threads.
    levels: Vec<Level<E>>,
    current: usize,
}

/// A plan with its matrices and vectors.
struct Level<E: Executor> {
    places: usize,
    plan: GpuLu<E, f64>,
    values: E::Buffer<f64>,
    b: E::Buffer<f64>,
    u: Vec<E::Buffer<f64>>,
}

/// How many plans there are, by what factor each is smaller than the one before, and the least.
const LEVELS: usize = 3;
const SMALLER: usize = 4;
const LEAST: usize = 8;

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
        let sizes = std::iter::successors(Some(places), |&size| Some(size / SMALLER));
        let mut levels: Vec<Level<E>> = Vec::new();
        for size in sizes.take(LEVELS).take_while(|&size| size == places || size >= LEAST) {
            // One order for all, so that zones keep their bits.
            let order = levels.first().map(|level| level.plan.explain().order);
            let tuning = LuTuning { order, ..LuTuning::default() };
            levels.push(Level::new(executor, equations, options, &tuning, (size, stages))?);
        }
        Ok(Self { executor: executor.clone(), levels, current: 0 })
    }
}

impl<E: Executor + Clone> Level<E> {
    fn new(
        executor: &E,
        equations: &Equations,
        options: &SolveOptions,
        tuning: &LuTuning,
        (places, stages): (usize, usize),
    ) -> Result<Self, BurningError> {
        let pattern = equations.pattern().view();
        let mut plan = GpuLu::with_tuning(executor, pattern, places, options, tuning)?;
        let values = executor.alloc_zeroed(places * pattern.nnz())?;
        let vector = || executor.alloc(places * equations.nvars());
        // The first call compiles and allocates, which is no part of a run.
        plan.factor(&values)?;
        let u = (0..stages).map(|_| vector()).collect::<Result<_, _>>()?;
        Ok(Self { places, plan, values, b: vector()?, u })
    }
}

impl<E: Executor + Clone> StageSolver<E> for SparseLu<E> {
    fn set_active(&mut self, active: usize) -> Result<(), BurningError> {
        let enough = self.levels.iter().rposition(|level| level.places >= active);
        self.current = enough.unwrap_or(0);
        Ok(self.levels[self.current].plan.set_active(active)?)
    }

    fn values(&mut self) -> &mut E::Buffer<f64> {
        &mut self.levels[self.current].values
    }

    fn factor(&mut self) -> Result<(), BurningError> {
        let level = &mut self.levels[self.current];
        Ok(level.plan.factor(&level.values)?)
    }

    fn stage(&mut self, stage: usize) -> (Before<'_, E>, &mut E::Buffer<f64>) {
        let level = &mut self.levels[self.current];
        ((&level.u[..stage], level.plan.device_outcomes()), &mut level.b)
    }

    fn solve(&mut self, stage: usize) -> Result<(), BurningError> {
        let level = &mut self.levels[self.current];
        Ok(level.plan.solve_again(&level.b, Guess::Zero, &mut level.u[stage])?)
    }

    fn solutions(&self) -> Before<'_, E> {
        let level = &self.levels[self.current];
        (&level.u, level.plan.device_outcomes())
    }

    fn describe(&self) -> String {
        let explain = self.levels[0].plan.explain();
        format!(
            "lu, order {}, {} entries of L + U, factors kept; {} on {}",
            explain.order,
            explain.factor_entries,
            explain.kernel,
            self.executor.info().name
        )
    }

    fn analyses(&self) -> usize {
        self.levels.len()
    }
}
