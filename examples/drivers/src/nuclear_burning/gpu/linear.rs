//! The linear systems of the stages on the device: the trait for their solvers, and its
//! implementation by the library's plans.

use sparsebatch::gpu::{DeviceInfo, Executor};
use sparsebatch::gpu::{DeviceOutcomes, FactoredSolver, FusedSolver, GpuLu, Guess, LuTuning};
use sparsebatch::{Pattern, Preconditioner, SolveError, SolveOptions};

use crate::nuclear_burning::equations::Equations;
use crate::nuclear_burning::error::BurningError;

/// Solves the systems of all places, stage by stage, without ever waiting for the device.
pub trait StageSolver<E: Executor> {
    /// Restricts the solver to the systems of the first `active` places from now on.
    ///
    /// # Errors
    /// An error of the solver or the device.
    fn set_active(&mut self, active: usize) -> Result<(), BurningError>;

    /// The array for the matrices, place after place, in CSR order.
    fn values(&mut self) -> &mut E::Buffer<f64>;

    /// Announces new values; the systems of the stages of a step follow.
    ///
    /// # Errors
    /// An error of the solver or the device.
    fn factor(&mut self) -> Result<(), BurningError>;

    /// The solutions of the earlier stages, and the array for the stage's right-hand sides.
    fn stage(&mut self, stage: usize) -> (Before<'_, E>, &mut E::Buffer<f64>);

    /// Solves for the right-hand sides of a stage.
    ///
    /// # Errors
    /// An error of the solver or the device.
    fn solve(&mut self, stage: usize) -> Result<(), BurningError>;

    /// Determines the outcomes of the systems of all stages of a step, unless they were determined
    /// stage by stage.
    ///
    /// # Errors
    /// An error of the solver or the device.
    fn verify(&mut self) -> Result<(), BurningError> {
        Ok(())
    }

    /// The solutions of all stages, and the outcomes of the last stage's systems or of all stages'.
    fn solutions(&self) -> Before<'_, E>;

    /// The solver in words.
    fn describe(&self) -> String;

    /// Number of analyses.
    fn analyses(&self) -> usize;
}

/// The solutions of some stages, and the outcomes of systems that were not known before.
pub(super) type Before<'a, E> = (&'a [<E as Executor>::Buffer<f64>], Option<Ended<'a, E>>);

/// The outcomes of the systems of some stages.
pub struct Ended<'a, E: Executor> {
    /// The outcomes, stage by stage, and place by place within a stage.
    pub(super) outcomes: DeviceOutcomes<'a, E>,
    pub(super) stages: usize,
    /// Distance from a stage to the next.
    pub(super) places: usize,
}

/// A plan of the library for the systems of a number of places.
pub trait Plan<E: Executor>: Sized {
    /// Number of plans, each for fewer places than the previous one. It is 1 if the shape of a plan
    /// affects the bits of its results, so that the results of a zone do not depend on when other
    /// zones end.
    const LEVELS: usize;

    /// Makes a plan for the systems of `places` places; `first` is the plan for all places, if this
    /// one is smaller.
    fn new(
        executor: &E,
        equations: &Equations,
        places: usize,
        options: &SolveOptions,
        first: Option<&Self>,
    ) -> Result<Self, SolveError>;

    fn set_active(&mut self, active: usize) -> Result<(), SolveError>;

    fn factor(&mut self, values: &E::Buffer<f64>) -> Result<(), SolveError>;

    /// Solves with the factors of `values`.
    fn solve(
        &mut self,
        values: &E::Buffer<f64>,
        b: &E::Buffer<f64>,
        x: &mut E::Buffer<f64>,
    ) -> Result<(), SolveError>;

    /// Whether the outcomes of all stages are determined together, after the last solve.
    fn defers(&self) -> bool;

    /// Determines the outcomes of all stages, if they are deferred.
    fn verify(&mut self, b: &[E::Buffer<f64>], x: &[E::Buffer<f64>]) -> Result<(), SolveError>;

    /// The outcomes of the last solve, or of all solves that were verified last.
    fn outcomes(&self) -> DeviceOutcomes<'_, E>;

    fn describe(&self) -> String;
}

/// The sparse LU of the library, whose factors stay on the device for the stages of a step.
pub type SparseLu<E> = Plans<E, StageLu<E>>;

/// The library's BiCGStab, whose preconditioner stays on the device for the stages of a step.
pub type Iterative<E> = Plans<E, BiCgStab<E>>;

/// The plans of one solver.
pub struct Plans<E: Executor, P> {
    /// From the plan for all zones to that for the fewest: a plan for few systems gives each more
    /// threads.
    levels: Vec<Level<E, P>>,
    current: usize,
    device: String,
}

/// A plan with its matrices and vectors.
struct Level<E: Executor, P> {
    places: usize,
    plan: P,
    values: E::Buffer<f64>,
    /// Right-hand sides: one vector per stage if outcomes are deferred, else one for all stages in
    /// turn.
    b: Vec<E::Buffer<f64>>,
    u: Vec<E::Buffer<f64>>,
}

/// Factor by which each plan is smaller than the previous one, and the fewest places of a smaller
/// plan.
const SMALLER: usize = 4;
const LEAST: usize = 8;

impl<E: Executor, P: Plan<E>> Plans<E, P> {
    /// Makes plans for `places` zones and a method of `stages` stages.
    ///
    /// # Errors
    /// An error of a plan.
    pub fn new(
        executor: &E,
        equations: &Equations,
        options: &SolveOptions,
        (places, stages): (usize, usize),
    ) -> Result<Self, BurningError> {
        let sizes = std::iter::successors(Some(places), |&size| Some(size / SMALLER));
        let mut levels: Vec<Level<E, P>> = Vec::new();
        for size in sizes.take(P::LEVELS).take_while(|&size| size == places || size >= LEAST) {
            let first = levels.first().map(|level| &level.plan);
            let mut plan = P::new(executor, equations, size, options, first)?;
            let values = executor.alloc_zeroed(size * equations.pattern().nnz())?;
            let vector = || executor.alloc(size * equations.nvars());
            let vectors = |count| (0..count).map(|_| vector()).collect::<Result<Vec<_>, _>>();
            let b = vectors(if plan.defers() { stages } else { 1 })?;
            let mut u = vectors(stages)?;
            // The first calls compile and allocate, which a run should not include.
            plan.factor(&values)?;
            if plan.defers() {
                plan.solve(&values, &b[0], &mut u[0])?;
                plan.verify(&b, &u)?;
            }
            levels.push(Level { places: size, plan, values, b, u });
        }
        let DeviceInfo { name, .. } = executor.info();
        Ok(Self { levels, current: 0, device: name.clone() })
    }
}

impl<E: Executor, P: Plan<E>> StageSolver<E> for Plans<E, P> {
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
        let Level { places, plan, b, u, .. } = &mut self.levels[self.current];
        let known = stage > 0 && !plan.defers();
        let ended = known.then(|| Ended { outcomes: plan.outcomes(), stages: 1, places: *places });
        let own = stage % b.len();
        ((&u[..stage], ended), &mut b[own])
    }

    fn solve(&mut self, stage: usize) -> Result<(), BurningError> {
        let level = &mut self.levels[self.current];
        let b = &level.b[stage % level.b.len()];
        Ok(level.plan.solve(&level.values, b, &mut level.u[stage])?)
    }

    fn verify(&mut self) -> Result<(), BurningError> {
        let level = &mut self.levels[self.current];
        Ok(level.plan.verify(&level.b, &level.u)?)
    }

    fn solutions(&self) -> Before<'_, E> {
        let Level { places, plan, b, u, .. } = &self.levels[self.current];
        (u, Some(Ended { outcomes: plan.outcomes(), stages: b.len(), places: *places }))
    }

    fn describe(&self) -> String {
        format!("{} on {}", self.levels[0].plan.describe(), self.device)
    }

    fn analyses(&self) -> usize {
        self.levels.len()
    }
}

/// The sparse LU, with residuals computed stage by stage, or for all stages of a step together.
pub struct StageLu<E: Executor> {
    plan: GpuLu<E, f64>,
    together: bool,
}

/// Relative residual that substitution alone reaches, except for systems that the rounding floor
/// accepts.
const REACHED: f64 = 1e-10;

impl<E: Executor + Clone> Plan<E> for StageLu<E> {
    const LEVELS: usize = 3;

    fn new(
        executor: &E,
        equations: &Equations,
        places: usize,
        options: &SolveOptions,
        first: Option<&Self>,
    ) -> Result<Self, SolveError> {
        // One order for all, so that zones keep their bits.
        let order =
            first.and_then(|own| own.plan.explain().launches[0].lu().map(|shape| shape.order));
        let tuning = LuTuning::default().order(order);
        let pattern = equations.pattern().view();
        // If T9 is an unknown, some systems need a refinement, which is done stage by stage.
        let asked = options.rel_tol_of::<f64>(0);
        let together = equations.heated().is_none() && asked >= REACHED && options.floor.is_some();
        let plan = GpuLu::with_tuning(executor, pattern, places, options, &tuning)?;
        Ok(Self { plan, together })
    }

    fn set_active(&mut self, active: usize) -> Result<(), SolveError> {
        Ok(self.plan.set_active(active)?)
    }

    fn factor(&mut self, values: &E::Buffer<f64>) -> Result<(), SolveError> {
        Ok(self.plan.factor(values)?)
    }

    fn solve(
        &mut self,
        _values: &E::Buffer<f64>,
        b: &E::Buffer<f64>,
        x: &mut E::Buffer<f64>,
    ) -> Result<(), SolveError> {
        if self.together {
            Ok(self.plan.substitute(b, x)?)
        } else {
            Ok(self.plan.solve_again(b, Guess::Zero, x)?)
        }
    }

    fn defers(&self) -> bool {
        self.together
    }

    fn verify(&mut self, b: &[E::Buffer<f64>], x: &[E::Buffer<f64>]) -> Result<(), SolveError> {
        if self.together {
            self.plan.verify(&b.iter().zip(x).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn outcomes(&self) -> DeviceOutcomes<'_, E> {
        // Only solves with residuals of all stages together have outcomes verified on the device.
        self.plan.verified_on_device().unwrap_or(self.plan.device_outcomes())
    }

    fn describe(&self) -> String {
        let explain = self.plan.explain();
        let residuals = if self.together { "of all stages together" } else { "stage by stage" };
        let schedule = explain.launches[0].lu().map_or(String::new(), |shape| {
            format!("order {}, {} entries of L + U, ", shape.order, shape.factor_entries)
        });
        format!("lu, {schedule}factors kept, residuals {residuals}; {}", explain.kernels())
    }
}

/// BiCGStab, with factors as its preconditioner or without.
pub enum BiCgStab<E: Executor> {
    Factored(FactoredSolver<E, f64>),
    Plain(FusedSolver<E, f64>, &'static str),
}

impl<E: Executor + Clone> Plan<E> for BiCgStab<E> {
    const LEVELS: usize = 1;

    fn new(
        executor: &E,
        equations: &Equations,
        places: usize,
        options: &SolveOptions,
        _first: Option<&Self>,
    ) -> Result<Self, SolveError> {
        let pattern = equations.pattern().view();
        let precond = options.preconditioner;
        Ok(match precond {
            Preconditioner::None | Preconditioner::Jacobi | Preconditioner::Auto => {
                Self::Plain(FusedSolver::new(executor, pattern, places, options)?, precond.name())
            }
            _ => Self::Factored(FactoredSolver::new(executor, pattern, places, options)?),
        })
    }

    fn set_active(&mut self, active: usize) -> Result<(), SolveError> {
        match self {
            Self::Factored(plan) => Ok(plan.set_active(active)?),
            Self::Plain(plan, _) => Ok(plan.set_active(active)?),
        }
    }

    fn factor(&mut self, values: &E::Buffer<f64>) -> Result<(), SolveError> {
        match self {
            Self::Factored(plan) => Ok(plan.factorise(values)?),
            Self::Plain(..) => Ok(()),
        }
    }

    fn solve(
        &mut self,
        values: &E::Buffer<f64>,
        b: &E::Buffer<f64>,
        x: &mut E::Buffer<f64>,
    ) -> Result<(), SolveError> {
        match self {
            Self::Factored(plan) => Ok(plan.solve(values, b, Guess::Zero, x)?),
            Self::Plain(plan, _) => Ok(plan.solve(values, b, Guess::Zero, x)?),
        }
    }

    fn defers(&self) -> bool {
        false
    }

    fn verify(&mut self, _: &[E::Buffer<f64>], _: &[E::Buffer<f64>]) -> Result<(), SolveError> {
        Ok(())
    }

    fn outcomes(&self) -> DeviceOutcomes<'_, E> {
        match self {
            Self::Factored(plan) => plan.device_outcomes(),
            Self::Plain(plan, _) => plan.device_outcomes(),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Factored(plan) => {
                let explain = plan.explain();
                let (scheme, preconditioner) = (explain.scheme, explain.scheme.preconditioner());
                format!(
                    "{} with {preconditioner}, order {}, factors kept; {}",
                    scheme.name(),
                    preconditioner.order(),
                    explain.kernels()
                )
            }
            Self::Plain(plan, precond) => {
                let explain = plan.explain();
                format!("{} with {precond}; {}", explain.scheme.name(), explain.kernels())
            }
        }
    }
}
