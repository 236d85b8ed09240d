//! The linear systems of the stages on the device: the trait for their solvers, and its
//! implementation by the library's solver.

use std::sync::Arc;

use sparsebatch::gpu::{DeviceInfo, DeviceOutcomes, DeviceSolver, Executor, Guess};
use sparsebatch::{
    Batch, BatchValues, GpuExecutor, Method, Pattern, SolveError, SolveOptions, UniformBatch,
};

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
    ///
    /// # Errors
    /// An error of the solver or the device.
    fn values(&mut self) -> Result<&mut E::Buffer<f64>, BurningError>;

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

/// The library's solver, whose factors stay on the device for the stages of a step.
pub struct SparseStages<E: GpuExecutor> {
    /// From the solver for all zones to that for the fewest: a solver of few systems gives each
    /// more threads.
    levels: Vec<Level<E>>,
    current: usize,
    /// Whether the outcomes of all stages are determined together, after the last solve.
    together: bool,
    device: String,
}

/// A solver with its vectors.
struct Level<E: GpuExecutor> {
    places: usize,
    solver: DeviceSolver<E, f64>,
    /// Right-hand sides: one vector per stage if outcomes are determined together, else one for all
    /// stages in turn.
    b: Vec<E::Buffer<f64>>,
    u: Vec<E::Buffer<f64>>,
}

/// Largest number of solvers, each for fewer places than the previous one; the factor between them;
/// the fewest places of a smaller one.
const LEVELS: usize = 3;
const SMALLER: usize = 4;
const LEAST: usize = 8;

/// Relative residual that substitution alone reaches, except for systems that the rounding floor
/// accepts.
const REACHED: f64 = 1e-10;

impl<E: GpuExecutor> SparseStages<E> {
    /// Makes solvers for `places` zones and a method of `stages` stages.
    ///
    /// # Errors
    /// An error of a solver.
    pub fn new(
        executor: &E,
        equations: &Equations,
        options: &SolveOptions,
        (places, stages): (usize, usize),
    ) -> Result<Self, BurningError> {
        // If T9 is an unknown, some systems need a refinement, which is done stage by stage.
        let asked = options.rel_tol_of::<f64>(0);
        let reached = equations.heated().is_none() && asked >= REACHED && options.floor.is_some();
        let mut together = reached;
        // Iterations of another shape have other bits, and the results of a zone do not depend on
        // when other zones end.
        let most = if options.method == Method::Lu { LEVELS } else { 1 };
        let sizes = std::iter::successors(Some(places), |&size| Some(size / SMALLER));
        let mut levels = Vec::new();
        for places in sizes.take(most).take_while(|&size| size == places || size >= LEAST) {
            let solver = solver(executor, equations, places, options)?;
            together = reached && solver.substitutes();
            let vector = || executor.alloc(places * equations.nvars());
            let vectors = |count| (0..count).map(|_| vector()).collect::<Result<Vec<_>, _>>();
            let b = vectors(if together { stages } else { 1 })?;
            let mut level = Level { places, solver, b, u: vectors(stages)? };
            level.warm_up(executor, together)?;
            levels.push(level);
        }
        let DeviceInfo { name, .. } = executor.info();
        Ok(Self { levels, current: 0, together, device: name.clone() })
    }
}

/// A solver of the systems of `places` places.
fn solver<E: GpuExecutor>(
    executor: &E,
    equations: &Equations,
    places: usize,
    options: &SolveOptions,
) -> Result<DeviceSolver<E, f64>, BurningError> {
    let pattern = equations.pattern();
    let mut identity = vec![0.0; pattern.nnz()];
    equations.identity(&mut identity);
    let values = BatchValues::Shared(identity);
    let batch = UniformBatch::try_new(Arc::clone(pattern), places, values)?;
    Ok(DeviceSolver::new(executor, &Batch::Uniform(batch), options)?)
}

impl<E: GpuExecutor> Level<E> {
    /// Factorises and solves once: the first calls compile and allocate, which a run should not
    /// include.
    fn warm_up(&mut self, executor: &E, together: bool) -> Result<(), BurningError> {
        executor.fill_zero(self.solver.kept_values()?)?;
        self.solver.factor_in_place()?;
        if together {
            self.solver.substitute(&self.b[0], &mut self.u[0])?;
            self.verify()?;
        }
        Ok(())
    }

    fn verify(&mut self) -> Result<(), SolveError> {
        self.solver.verify(&self.b.iter().zip(&self.u).collect::<Vec<_>>())
    }

    /// The outcomes of the last solve, or of all solves that were verified last.
    fn outcomes(&self, together: bool) -> DeviceOutcomes<'_, E> {
        let verified = if together { self.solver.verified_outcomes() } else { None };
        verified.unwrap_or_else(|| self.solver.device_outcomes())
    }
}

impl<E: GpuExecutor> StageSolver<E> for SparseStages<E> {
    fn set_active(&mut self, active: usize) -> Result<(), BurningError> {
        let enough = self.levels.iter().rposition(|level| level.places >= active);
        self.current = enough.unwrap_or(0);
        Ok(self.levels[self.current].solver.set_active(active)?)
    }

    fn values(&mut self) -> Result<&mut E::Buffer<f64>, BurningError> {
        Ok(self.levels[self.current].solver.kept_values()?)
    }

    fn factor(&mut self) -> Result<(), BurningError> {
        Ok(self.levels[self.current].solver.factor_in_place()?)
    }

    fn stage(&mut self, stage: usize) -> (Before<'_, E>, &mut E::Buffer<f64>) {
        let Level { places, solver, b, u } = &mut self.levels[self.current];
        let known = stage > 0 && !self.together;
        let outcomes = || solver.device_outcomes();
        let ended = known.then(|| Ended { outcomes: outcomes(), stages: 1, places: *places });
        let own = stage % b.len();
        ((&u[..stage], ended), &mut b[own])
    }

    fn solve(&mut self, stage: usize) -> Result<(), BurningError> {
        let Level { solver, b, u, .. } = &mut self.levels[self.current];
        let (b, u) = (&b[stage % b.len()], &mut u[stage]);
        match self.together {
            true => solver.substitute(b, u)?,
            false => solver.enqueue_again(b, Guess::Zero, u)?,
        }
        Ok(())
    }

    fn verify(&mut self) -> Result<(), BurningError> {
        match self.together {
            true => Ok(self.levels[self.current].verify()?),
            false => Ok(()),
        }
    }

    fn solutions(&self) -> Before<'_, E> {
        let level = &self.levels[self.current];
        let (outcomes, stages) = (level.outcomes(self.together), level.b.len());
        (&level.u, Some(Ended { outcomes, stages, places: level.places }))
    }

    fn describe(&self) -> String {
        let explain = self.levels[0].solver.explain();
        let lu = explain.launches.first().and_then(|launch| launch.lu());
        let method = match (lu, explain.scheme.preconditioner()) {
            (Some(lu), _) => {
                format!("lu, order {}, {} entries of L + U", lu.order, lu.factor_entries)
            }
            (None, by) if by.has_factors() => {
                format!("{} with {by}, order {}", explain.scheme.name(), by.order())
            }
            (None, by) => format!("{} with {by}", explain.scheme.name()),
        };
        let kept = if explain.kept_bytes > 0 { ", factors kept" } else { "" };
        let residuals = if self.together { "of all stages together" } else { "stage by stage" };
        let kernels = explain.kernels();
        format!("{method}{kept}, residuals {residuals}; {kernels} on {}", self.device)
    }

    fn analyses(&self) -> usize {
        self.levels.len()
    }
}
