//! Solves the coupled system of a stage: flexible CG (Notay 2000, SIAM J. Sci. Comput. 22, 1444),
//! whose preconditioner is one batched solve, every group of every ray a system.
//!
//! Lagging the matter and solving group by group (source iteration) converges slowly for long
//! steps; as the preconditioner of a Krylov method (Warsa, Wareing and Morel 2004, Nucl. Sci. Eng.
//! 147, 218) the same solves converge in a few iterations. Each batched solve is for a correction
//! of the current solution, so its tolerance is relative to the current residual; with one group it
//! is the whole answer. Rays are independent: each has its own scalars and convergence test.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use sparsebatch::{
    Backend, Batch, BatchReport, BatchSolver, BatchValues, Pattern, SolveOptions, UniformBatch,
};

use super::error::Error;
use super::operator::{Operator, at_once};
use super::problem::Problem;

/// Most iterations of a stage.
const MAX_ITERATIONS: usize = 500;
/// A residual of this many rounding errors of the sums that form it is accepted.
const FLOOR: f64 = 4.0;

/// The outcomes of all batched solves.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Number of systems by status.
    pub statuses: BTreeMap<&'static str, u64>,
    /// Number of systems by the rung that solved them.
    pub rungs: BTreeMap<&'static str, u64>,
    /// Number of batched solves.
    pub batches: u64,
    /// Number of systems with a nonzero right-hand side; the others belong to rays that had ended.
    pub systems: u64,
    /// Total iterations of these systems.
    pub iterations: u64,
    /// Most iterations of a system.
    pub most: u32,
    /// Number of coupled systems, one per ray and stage.
    pub coupled: u64,
    /// Total iterations of the coupled systems, with one batched solve each.
    pub coupled_iterations: u64,
    /// Most iterations of a coupled system.
    pub coupled_most: u64,
    /// Solver, preconditioner, device and kernel.
    pub ran: String,
    /// The work that the CPU did for the GPU, with the reason.
    pub cpu_reason: Option<String>,
}

impl Tally {
    fn add(&mut self, report: &BatchReport) {
        self.batches += 1;
        for system in &report.systems {
            let outcome = &system.outcome;
            if outcome.rhs_norm == 0.0 {
                continue;
            }
            self.systems += 1;
            self.iterations += u64::from(outcome.iterations);
            self.most = self.most.max(outcome.iterations);
            *self.statuses.entry(outcome.status.name()).or_default() += 1;
            *self.rungs.entry(system.rung.name()).or_default() += 1;
        }
        if self.ran.is_empty() {
            self.ran = format!(
                "{} with {} on {}, {}",
                report.scheme.name(),
                report.scheme.preconditioner(),
                report.device,
                report.kernel
            );
            self.cpu_reason = report.cpu_reason().map(str::to_owned);
        }
    }

    /// Number of systems that did not converge.
    pub fn failed(&self) -> u64 {
        self.systems - self.statuses.get("Converged").copied().unwrap_or(0)
    }

    /// Mean number of iterations per system.
    pub(crate) fn mean_iterations(&self) -> f64 {
        self.iterations as f64 / self.systems.max(1) as f64
    }
}

/// The solver of coupled systems, with the analysis of their batch.
pub(crate) struct Coupled {
    solver: BatchSolver<f64>,
    batch: Batch<f64>,
    tolerance: f64,
    /// The outcomes of the solves so far.
    pub(crate) tally: Tally,
    /// Time in batched solves, analysis included.
    pub(crate) solve_time: Duration,
}

/// The state of the iteration of a ray's system.
#[derive(Clone, Debug)]
struct Progress {
    /// The residual to reach.
    target: f64,
    /// Whether the true residual has reached the target.
    done: bool,
    /// `<r, z>` of the last iteration; 0 before the first and after a restart.
    rz: f64,
    /// Number of restarts from the true residual.
    restarts: u32,
    /// The last residual.
    residual: f64,
}

/// Most restarts from the true residual.
const MAX_RESTARTS: u32 = 8;

impl Coupled {
    /// Analyses the batch of an operator.
    ///
    /// # Errors
    /// As [`BatchSolver::on`].
    pub(crate) fn new(
        operator: &Operator<'_>,
        backend: &Backend,
        options: &SolveOptions,
        tolerance: f64,
    ) -> Result<Self, Error> {
        let pattern = &operator.problem.topology.pattern;
        let items = operator.problem.items();
        let values = BatchValues::ItemMajor(vec![0.0; items * pattern.nnz()]);
        let mut batch = UniformBatch::try_new(pattern.clone(), items, values)?;
        // The choices of `auto` depend on the values.
        operator.fill(batch.values_mut());
        let start = Instant::now();
        let batch = Batch::Uniform(batch);
        let solver = BatchSolver::on(backend, &batch, options)?;
        let (tally, solve_time) = (Tally::default(), start.elapsed());
        Ok(Self { solver, batch, tolerance, tally, solve_time })
    }

    /// Sets the values of an operator. Factors that can be kept for its solves are made now.
    ///
    /// # Errors
    /// As [`BatchSolver::factor`].
    pub(crate) fn set_values(&mut self, operator: &Operator<'_>) -> Result<(), Error> {
        if let Batch::Uniform(batch) = &mut self.batch {
            operator.fill(batch.values_mut());
        }
        if self.solver.keeps_factors() {
            let start = Instant::now();
            self.solver.factor(&self.batch)?;
            self.solve_time += start.elapsed();
        }
        Ok(())
    }

    /// Solves `K u = rhs`; `u` is the initial guess on entry.
    ///
    /// # Errors
    /// [`Error::NotConverged`] when a ray does not reach its tolerance, or meets non-finite
    /// numbers.
    pub(crate) fn solve(
        &mut self,
        operator: &Operator<'_>,
        rhs: &[f64],
        u: &mut [f64],
    ) -> Result<(), Error> {
        let inner = InnerProduct::new(operator.problem);
        let start = |rhs: &[f64]| Progress {
            target: self.tolerance * norm(rhs),
            done: false,
            rz: 0.0,
            restarts: 0,
            residual: f64::INFINITY,
        };
        let mut rays: Vec<Progress> = rhs.chunks(inner.ray_len()).map(start).collect();
        let mut vectors = Vectors::zeros(u.len());
        recompute(operator, rhs, u, &mut vectors.r, &mut rays);
        let mut iterations = 0;
        while rays.iter().any(|ray| !ray.done) {
            if iterations == MAX_ITERATIONS {
                return Err(not_converged(&rays, iterations));
            }
            iterations += 1;
            self.tally.coupled_iterations += rays.iter().filter(|ray| !ray.done).count() as u64;

            self.precondition(&vectors.r, &mut vectors.z)?;
            vectors.turn(&inner, &mut rays);
            operator.apply(&vectors.p, &mut vectors.q);
            vectors.advance(&inner, &mut rays, u);

            let open = || rays.iter().filter(|ray| !ray.done);
            if open().any(|ray| !ray.residual.is_finite()) {
                return Err(not_converged(&rays, iterations));
            }
            if open().any(|ray| ray.residual <= ray.target) {
                let restarts = recompute(operator, rhs, u, &mut vectors.r, &mut rays);
                if restarts {
                    raise_to_floor(operator, rhs, u, &mut rays);
                }
                if rays.iter().any(|ray| ray.restarts > MAX_RESTARTS) {
                    return Err(not_converged(&rays, iterations));
                }
            }
        }
        self.tally.coupled += rays.len() as u64;
        self.tally.coupled_most = self.tally.coupled_most.max(iterations as u64);
        Ok(())
    }

    /// Applies the preconditioner, one batched solve from the guess 0, to the residual `r`.
    fn precondition(&mut self, r: &[f64], z: &mut [f64]) -> Result<(), Error> {
        z.fill(0.0);
        let start = Instant::now();
        let report = match self.solver.keeps_factors() {
            true => self.solver.solve_again(r, z)?,
            false => self.solver.solve(&self.batch, r, z)?,
        };
        self.solve_time += start.elapsed();
        self.tally.add(&report);
        Ok(())
    }
}

/// The inner product of vectors of a ray: the products of its groups, each divided by the group's
/// weight.
struct InnerProduct {
    cells: usize,
    /// The inverse of each group's weight.
    inverse: Vec<f64>,
}

impl InnerProduct {
    fn new(problem: &Problem) -> Self {
        let inverse = problem.groups.weight.iter().map(|w| 1.0 / w).collect();
        Self { cells: problem.cells(), inverse }
    }

    /// The length of a ray's vectors.
    fn ray_len(&self) -> usize {
        self.cells * self.inverse.len()
    }

    fn dot(&self, a: &[f64], b: &[f64]) -> f64 {
        let groups = a.chunks(self.cells).zip(b.chunks(self.cells));
        let of_group = |(a, b): (&[f64], &[f64])| a.iter().zip(b).map(|(a, b)| a * b).sum();
        groups.map(of_group).zip(&self.inverse).map(|(dot, w): (f64, _)| dot * w).sum()
    }
}

/// The vectors of flexible CG, ray after ray.
struct Vectors {
    /// The residual.
    r: Vec<f64>,
    /// The residual of the iteration before.
    last: Vec<f64>,
    /// The preconditioned residual.
    z: Vec<f64>,
    /// The search direction.
    p: Vec<f64>,
    /// The product of the operator and the search direction.
    q: Vec<f64>,
}

impl Vectors {
    fn zeros(len: usize) -> Self {
        let zeros = || vec![0.0; len];
        Self { r: zeros(), last: zeros(), z: zeros(), p: zeros(), q: zeros() }
    }

    /// Computes the next search direction of every ray from its preconditioned residual.
    fn turn(&mut self, inner: &InnerProduct, rays: &mut [Progress]) {
        let ray_len = inner.ray_len();
        let parts = self.p.par_chunks_mut(ray_len).zip(self.z.par_chunks_mut(ray_len));
        let parts = parts.zip(self.r.par_chunks(ray_len)).zip(self.last.par_chunks(ray_len));
        let parts = parts.zip(rays).with_min_len(at_once(ray_len));
        parts.for_each(|((((p, z), r), last), ray)| {
            if z.iter().all(|&z| z == 0.0) {
                // The batched solve returned 0 for all systems of the ray: uses the residual, a
                // descent direction, instead.
                z.copy_from_slice(r);
            }
            let rz = inner.dot(r, z);
            // This form of beta allows the preconditioner to vary.
            let beta = if ray.rz == 0.0 { 0.0 } else { (rz - inner.dot(last, z)) / ray.rz };
            ray.rz = rz;
            p.iter_mut()
                .zip(z.iter())
                .for_each(|(p, z)| *p = if beta == 0.0 { *z } else { z + beta * *p });
        });
    }

    /// Moves `u` and the residual of every ray that is not done along its search direction.
    fn advance(&mut self, inner: &InnerProduct, rays: &mut [Progress], u: &mut [f64]) {
        let ray_len = inner.ray_len();
        self.last.copy_from_slice(&self.r);
        let parts = u.par_chunks_mut(ray_len).zip(self.r.par_chunks_mut(ray_len));
        let parts = parts.zip(self.p.par_chunks(ray_len)).zip(self.q.par_chunks(ray_len));
        let parts = parts.zip(rays).with_min_len(at_once(ray_len));
        parts.filter(|(_, ray)| !ray.done).for_each(|((((u, r), p), q), ray)| {
            let alpha = ray.rz / inner.dot(p, q);
            u.iter_mut().zip(p).for_each(|(u, p)| *u += alpha * p);
            r.iter_mut().zip(q).for_each(|(r, q)| *r -= alpha * q);
            ray.residual = norm(r);
        });
    }
}

/// Computes the true residual `rhs - K u` of rays whose recurrence residual passed (at first, of
/// all rays). A ray that does not pass by it restarts from it; a ray that does is done and has
/// residual 0 from then on. Returns whether a ray restarted.
fn recompute(
    operator: &Operator<'_>,
    rhs: &[f64],
    u: &[f64],
    r: &mut [f64],
    rays: &mut [Progress],
) -> bool {
    let mut truth = vec![0.0; u.len()];
    operator.apply(u, &mut truth);
    truth.iter_mut().zip(rhs).for_each(|(r, b)| *r = b - *r);
    let ray_len = u.len() / rays.len();
    let mut restarts = false;
    let parts = r.chunks_mut(ray_len).zip(truth.chunks(ray_len)).zip(rays);
    for ((r, truth), ray) in parts.filter(|(_, ray)| !ray.done) {
        let first = ray.residual == f64::INFINITY;
        if !first && ray.residual > ray.target {
            continue;
        }
        ray.residual = norm(truth);
        ray.done = ray.residual <= ray.target;
        ray.rz = 0.0;
        if ray.done {
            r.fill(0.0);
        } else {
            r.copy_from_slice(truth);
            ray.restarts += u32::from(!first);
            restarts |= !first;
        }
    }
    restarts
}

/// Raises the target of restarted rays to the residual that rounding leaves.
fn raise_to_floor(operator: &Operator<'_>, rhs: &[f64], u: &[f64], rays: &mut [Progress]) {
    let mut sizes = operator.magnitudes(u);
    sizes.iter_mut().zip(rhs).for_each(|(size, b)| *size += b.abs());
    let ray_len = u.len() / rays.len();
    for (ray, sizes) in rays.iter_mut().zip(sizes.chunks(ray_len)) {
        if ray.restarts > 0 {
            ray.target = ray.target.max(FLOOR * f64::EPSILON * norm(sizes));
        }
    }
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn not_converged(rays: &[Progress], iterations: usize) -> Error {
    let open = rays.iter().filter(|ray| !ray.done).count();
    let worst = rays.iter().enumerate().filter(|(_, ray)| !ray.done);
    let worst =
        worst.max_by(|(_, a), (_, b)| (a.residual / a.target).total_cmp(&(b.residual / b.target)));
    let (index, target, residual) =
        worst.map_or((0, 0.0, 0.0), |(index, ray)| (index, ray.target, ray.residual));
    if !residual.is_finite() {
        return Error::NotConverged(format!(
            "ray {index} met numbers that are not finite in batched solve {iterations} of a stage"
        ));
    }
    Error::NotConverged(format!(
        "{open} of {} rays did not converge in {iterations} batched solves: ray {index} has a residual \
         of {residual:.2e}, expected at most {target:.2e}",
        rays.len()
    ))
}
