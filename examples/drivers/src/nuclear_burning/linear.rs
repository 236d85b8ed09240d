//! The linear systems of a stage, `(shift I - J) u = b` in every active zone, and a tally of their
//! outcomes.

use std::sync::Arc;

use rayon::prelude::*;
use sparsebatch::{
    Batch, BatchReport, BatchSolver, BatchValues, CsrPattern, Pattern, Rung, SolveOptions, Status,
    UniformBatch,
};

use crate::nuclear_burning::dense::DenseLu;
use crate::nuclear_burning::equations::Equations;
use crate::nuclear_burning::error::BurningError;

/// The solver of the systems.
#[derive(Clone, Debug)]
pub enum Means {
    /// The batched solvers of the library, on all cores.
    Sparse(Box<SolveOptions>),
    /// A dense LU with partial pivoting, zone by zone, factored once per step, for comparison.
    DenseLu,
}

/// Up to this many zones share a solver made for this many: making a smaller one would cost more
/// than the empty places.
const LEAST_PLACES: usize = 16;

/// Numbers that one thread fills at a time.
const FILLED_AT_ONCE: usize = 1 << 14;

/// Solves the systems of all active zones, which take the first places; later places are empty.
pub(crate) struct LinearSolver {
    means: Means,
    /// The batch of all zones; its values are formed in place.
    batch: Batch<f64>,
    pattern: Arc<CsrPattern>,
    identity: Vec<f64>,
    solver: Option<BatchSolver<f64>>,
    dense: Vec<DenseLu>,
    active: usize,
    /// The outcomes of systems.
    pub(crate) tally: Tally,
}

impl LinearSolver {
    /// Makes a solver for the equations of a network.
    ///
    /// # Errors
    /// [`BurningError::Setting`] when the batch cannot be made.
    pub(crate) fn new(equations: &Equations, means: Means) -> Result<Self, BurningError> {
        let mut identity = vec![0.0; equations.pattern().nnz()];
        equations.identity(&mut identity);
        let batch = batch(equations.pattern(), 0, &identity)?;
        let tally = Tally::default();
        let pattern = Arc::clone(equations.pattern());
        Ok(Self {
            means,
            batch,
            pattern,
            identity,
            solver: None,
            dense: Vec::new(),
            active: 0,
            tally,
        })
    }

    /// Makes room for the systems of `active` zones, which take the first places.
    ///
    /// # Errors
    /// As [`BatchSolver::new`].
    pub(crate) fn reserve(&mut self, active: usize) -> Result<(), BurningError> {
        let places = self.batch.nitems();
        let fits = active <= places && (4 * active >= 3 * places || places <= LEAST_PLACES);
        if !fits {
            let places =
                if active > places { active } else { active.max(LEAST_PLACES.min(places)) };
            self.batch = batch(&self.pattern, places, &self.identity)?;
            match &self.means {
                Means::Sparse(options) => {
                    self.solver = Some(BatchSolver::new(&self.batch, options)?);
                    self.tally.analyses += 1;
                }
                Means::DenseLu => {
                    let nrows = self.pattern.nrows();
                    self.dense.resize_with(places, || DenseLu::new(nrows));
                }
            }
        } else if active < self.active {
            // Places that have become empty get the identity as a harmless system.
            let identity = std::mem::take(&mut self.identity);
            let empty = &mut self.values_mut()[active * identity.len()..];
            for values in empty.chunks_exact_mut(identity.len()) {
                values.copy_from_slice(&identity);
            }
            self.identity = identity;
        }
        self.active = active;
        Ok(())
    }

    /// Number of places of the batch, the empty ones included: the items of right-hand sides and
    /// solutions.
    pub(crate) fn places(&self) -> usize {
        self.batch.nitems()
    }

    /// The values of the matrices, place after place, to be formed in place.
    pub(crate) fn values_mut(&mut self) -> &mut [f64] {
        match &mut self.batch {
            Batch::Uniform(batch) => batch.values_mut(),
            Batch::Ragged(_) => unreachable!("the batch is uniform"),
        }
    }

    /// Announces new values; the systems of the stages of a step follow. Factors that can be kept
    /// for them are made now.
    ///
    /// # Errors
    /// As [`BatchSolver::factor`].
    pub(crate) fn factor(&mut self) -> Result<(), BurningError> {
        if let Some(solver) = self.solver.as_mut().filter(|solver| solver.keeps_factors()) {
            solver.factor(&self.batch)?;
        }
        if let (Means::DenseLu, Batch::Uniform(batch)) = (&self.means, &self.batch) {
            let BatchValues::ItemMajor(values) = batch.values() else {
                unreachable!("the values are item-major")
            };
            let pattern = batch.pattern().view();
            self.dense[..self.active]
                .par_iter_mut()
                .zip(values.par_chunks_exact(pattern.nnz()))
                .for_each(|(dense, values)| dense.factor(pattern, values));
        }
        Ok(())
    }

    /// Solves all systems: `b` and `u` hold [`LinearSolver::places`] items. The active places whose
    /// system no rung solved are written to `lost`; systems with `b = 0` have the solution 0.
    ///
    /// # Errors
    /// As [`BatchSolver::solve`] and [`BatchSolver::solve_again`].
    pub(crate) fn solve(
        &mut self,
        b: &[f64],
        u: &mut [f64],
        lost: &mut Vec<usize>,
    ) -> Result<(), BurningError> {
        lost.clear();
        if let Some(solver) = &mut self.solver {
            u.par_chunks_mut(FILLED_AT_ONCE).for_each(|part| part.fill(0.0));
            let report = match solver.keeps_factors() {
                true => solver.solve_again(b, u)?,
                false => solver.solve(&self.batch, b, u)?,
            };
            let systems = report.systems[..self.active].iter().enumerate();
            let failed = systems.filter(|(_, s)| s.outcome.status != Status::Converged);
            lost.extend(failed.map(|(place, _)| place));
            self.tally.add(&report, self.active);
        } else {
            let nrows = b.len() / self.places().max(1);
            let solved: Vec<bool> = self.dense[..self.active]
                .par_iter()
                .zip(b.par_chunks_exact(nrows).zip(u.par_chunks_exact_mut(nrows)))
                .map(|(dense, (b, u))| dense.solve(b, u))
                .collect();
            lost.extend((0..self.active).filter(|&place| !solved[place]));
            self.tally.add_dense(self.active, lost.len());
        }
        Ok(())
    }
}

fn batch(
    pattern: &Arc<CsrPattern>,
    places: usize,
    identity: &[f64],
) -> Result<Batch<f64>, BurningError> {
    let values = BatchValues::ItemMajor(identity.repeat(places));
    Ok(Batch::Uniform(UniformBatch::try_new(Arc::clone(pattern), places, values)?))
}

/// The outcomes of the systems of a run. Empty places do not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Number of batched solves.
    pub solves: u64,
    /// Number of systems in these solves.
    pub systems: u64,
    /// Number of solvers made: one for all zones, and others as zones end.
    pub analyses: u64,
    /// Number of systems solved by each rung, in the order of [`Rung::ALL`].
    pub rungs: [u64; Rung::ALL.len()],
    /// Number of systems that no rung solved, by the status of the last rung tried.
    pub failures: Vec<(Status, u64)>,
    /// Number of systems accepted by the rounding floor.
    pub by_floor: u64,
    /// `iterations[k]`: number of systems that took k iterations.
    pub iterations: Vec<u64>,
    /// Whether the last element of `iterations` also counts systems that took more.
    pub last_is_more: bool,
    /// The largest true relative residual of a converged system.
    pub worst_residual: f64,
    /// The first rung: method and preconditioner, kernel, device.
    pub ran: String,
    /// Number of dense systems without a solution.
    pub dense_failures: u64,
}

impl Tally {
    fn add(&mut self, report: &BatchReport, active: usize) {
        self.solves += 1;
        self.systems += active as u64;
        if self.ran.is_empty() {
            let preconditioner = match report.scheme.preconditioner().name() {
                "none" => String::new(),
                name => format!(" with {name}"),
            };
            self.ran = format!(
                "{}{preconditioner}, {}; {} on {}",
                report.scheme.name(),
                report.reason,
                report.runs[0].kernel,
                report.device
            );
        }
        for system in &report.systems[..active] {
            let outcome = &system.outcome;
            if outcome.status == Status::Converged {
                let rung = Rung::ALL.iter().position(|&rung| rung == system.rung);
                self.rungs[rung.expect("ALL holds every rung")] += 1;
                self.worst_residual = self.worst_residual.max(outcome.relative_residual());
                self.by_floor += u64::from(outcome.accepted_by_floor);
            } else {
                self.add_failures(outcome.status, 1);
            }
            let iterations = outcome.iterations as usize;
            if self.iterations.len() <= iterations {
                self.iterations.resize(iterations + 1, 0);
            }
            self.iterations[iterations] += 1;
        }
    }

    /// Adds the tally of other zones, solved by the same means.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.solves += other.solves;
        self.systems += other.systems;
        self.analyses += other.analyses;
        for (count, more) in self.rungs.iter_mut().zip(other.rungs) {
            *count += more;
        }
        for (status, count) in other.failures {
            self.add_failures(status, count);
        }
        self.by_floor += other.by_floor;
        self.iterations.resize(self.iterations.len().max(other.iterations.len()), 0);
        self.last_is_more |= other.last_is_more;
        for (count, more) in self.iterations.iter_mut().zip(other.iterations) {
            *count += more;
        }
        self.worst_residual = self.worst_residual.max(other.worst_residual);
        if self.ran.is_empty() {
            self.ran = other.ran;
        }
        self.dense_failures += other.dense_failures;
    }

    fn add_failures(&mut self, status: Status, more: u64) {
        match self.failures.iter_mut().find(|(other, _)| *other == status) {
            Some((_, count)) => *count += more,
            None => self.failures.push((status, more)),
        }
    }

    fn add_dense(&mut self, active: usize, lost: usize) {
        self.solves += 1;
        self.systems += active as u64;
        self.dense_failures += lost as u64;
        "dense LU with partial pivoting, zone by zone".clone_into(&mut self.ran);
    }

    /// Number of systems that no rung solved.
    pub fn unsolved(&self) -> u64 {
        self.dense_failures + self.failures.iter().map(|(_, count)| count).sum::<u64>()
    }

    /// The number of iterations that a share `share` of the systems did not exceed.
    pub(crate) fn quantile(&self, share: f64) -> usize {
        let wanted = (share * self.iterations.iter().sum::<u64>() as f64).ceil() as u64;
        let mut seen = 0;
        let reached = |&count: &u64| {
            seen += count;
            seen >= wanted
        };
        self.iterations.iter().position(reached).unwrap_or(0)
    }
}
