//! The equations of one implicit stage, `y = r + delta f(y)`, with the matter eliminated:
//!
//! ```text
//! V = (r_V + delta sum_g kappa_g U_g) / (1 + delta S)            S = sum_g kappa_g w_g
//! vol (eps/delta + kappa_g) U_g + flow out(U_g) - vol kappa_g w_g theta sum_h kappa_h U_h
//!     = vol (eps/delta r_Ug + kappa_g w_g r_V / (1 + delta S)) + inflow_g     theta = delta / (1 + delta S)
//! ```
//!
//! The part of group g alone (`h = g`) is a symmetric positive definite system with three or five
//! points per row; the systems of all groups and rays form the batch. With rows divided by `w_g`
//! the coupled system is symmetric positive definite, too.

use rayon::prelude::*;
use sparsebatch::Pattern;

use super::problem::Problem;

/// Radiation and matter; radiation in the order of the batch: ray by ray, group by group, cell by
/// cell.
#[derive(Clone, Debug)]
pub struct State {
    /// `U`.
    pub u: Vec<f64>,
    /// `V`, ray by ray, cell by cell.
    pub v: Vec<f64>,
}

impl State {
    /// The state without radiation or heat.
    pub(crate) fn cold(problem: &Problem) -> Self {
        let cells = problem.cells();
        Self { u: vec![0.0; problem.items() * cells], v: vec![0.0; problem.domains.len() * cells] }
    }
}

/// Systems per task of a thread, so that a task has a few thousand cells.
pub(crate) fn at_once(cells: usize) -> usize {
    (1 << 13) / cells.max(1)
}

/// The operator of a stage.
#[derive(Debug)]
pub struct Operator<'p> {
    pub(crate) problem: &'p Problem,
    /// Conductances of the faces between cells, system after system, as all arrays below.
    through: Vec<f64>,
    /// Conductances of the left boundary.
    left: Vec<f64>,
    /// Contribution of the system's own group to the diagonal.
    reaction: Vec<f64>,
    /// Coupling to the other groups: `vol kappa_g w_g theta`.
    coupling: Vec<f64>,
    delta: f64,
}

impl<'p> Operator<'p> {
    /// Makes an operator without values: [`Operator::set_conductances`] and [`Operator::set_delta`]
    /// set them.
    pub fn new(problem: &'p Problem) -> Self {
        let items = problem.items();
        Self {
            problem,
            through: vec![0.0; items * problem.topology.faces.len()],
            left: vec![0.0; items * problem.topology.ny],
            reaction: vec![0.0; items * problem.cells()],
            coupling: vec![0.0; items * problem.cells()],
            delta: 0.0,
        }
    }

    /// Sets the conductances, limited by the radiation `u`.
    pub fn set_conductances(&mut self, u: &[f64]) {
        let problem = self.problem;
        let (faces, ny) = (problem.topology.faces.len(), problem.topology.ny);
        // A mesh of one cell has no faces between cells.
        let mut through: Vec<&mut [f64]> = self.through.chunks_mut(faces.max(1)).collect();
        through.resize_with(problem.items(), Default::default);
        let parts = through.into_par_iter().zip(self.left.par_chunks_mut(ny));
        parts
            .zip(u.par_chunks(problem.cells()))
            .enumerate()
            .for_each(|(item, ((through, left), u))| problem.conductances(item, u, through, left));
    }

    /// Sets the step of the stage.
    pub fn set_delta(&mut self, delta: f64) {
        let (problem, cells) = (self.problem, self.problem.cells());
        self.delta = delta;
        let parts = self.reaction.par_chunks_mut(cells).zip(self.coupling.par_chunks_mut(cells));
        parts.with_min_len(at_once(cells)).enumerate().for_each(|(item, (reaction, coupling))| {
            let (domain, group) = problem.of_item(item);
            let groups = &problem.groups;
            let emission: f64 = groups.kappa.iter().zip(&groups.weight).map(|(k, w)| k * w).sum();
            let own = groups.kappa[group] * groups.weight[group];
            for cell in 0..cells {
                let opacity = domain.opacity[cell];
                let kappa = groups.kappa[group] * opacity;
                let volume = domain.mesh.volume(cell);
                let slowed = 1.0 + delta * emission * opacity;
                // The absorption is kappa - kappa^2 w theta, computed without cancellation; the
                // share of the other groups is 0 with one group.
                let others = (emission - own).max(0.0) * opacity;
                let absorption = kappa * (1.0 + delta * others) / slowed;
                reaction[cell] = volume * (domain.epsilon / delta + absorption);
                coupling[cell] = volume * own * opacity * (delta / slowed);
            }
        });
    }

    /// Computes the values of the batch.
    pub fn fill(&self, values: &mut [f64]) {
        let topology = &self.problem.topology;
        let items = values.par_chunks_mut(topology.pattern.nnz());
        items.with_min_len(at_once(topology.cells())).enumerate().for_each(|(item, values)| {
            let (through, left, reaction, _) = self.parts(item);
            topology.fill(through, left, reaction, values);
        });
    }

    fn parts(&self, item: usize) -> (&[f64], &[f64], &[f64], &[f64]) {
        let (faces, ny) = (self.problem.topology.faces.len(), self.problem.topology.ny);
        let rows = item * self.problem.cells()..(item + 1) * self.problem.cells();
        (
            &self.through[item * faces..(item + 1) * faces],
            &self.left[item * ny..(item + 1) * ny],
            &self.reaction[rows.clone()],
            &self.coupling[rows],
        )
    }

    /// `sum_g kappa_g U_g`, ray by ray, cell by cell.
    fn absorbed(&self, u: &[f64]) -> Vec<f64> {
        let (problem, cells) = (self.problem, self.problem.cells());
        let mut sums = vec![0.0; problem.domains.len() * cells];
        let parts = sums.par_chunks_mut(cells).zip(u.par_chunks(cells * problem.groups.len()));
        let parts = parts.zip(&problem.domains).with_min_len(at_once(cells));
        parts.for_each(|((sums, u), domain)| {
            for (u, &kappa) in u.chunks(cells).zip(&problem.groups.kappa) {
                for ((sum, &u), &opacity) in sums.iter_mut().zip(u).zip(&domain.opacity) {
                    *sum += kappa * opacity * u;
                }
            }
        });
        sums
    }

    /// The product with the coupled system.
    pub fn apply(&self, u: &[f64], out: &mut [f64]) {
        let (problem, cells) = (self.problem, self.problem.cells());
        let absorbed = self.absorbed(u);
        let parts = out.par_chunks_mut(cells).zip(u.par_chunks(cells));
        parts.with_min_len(at_once(cells)).enumerate().for_each(|(item, (out, u))| {
            let (through, left, reaction, coupling) = self.parts(item);
            problem.topology.apply(through, left, reaction, u, out);
            let (domain, group) = problem.of_item(item);
            let kappa = problem.groups.kappa[group];
            let ray = item / problem.groups.len() * cells;
            for cell in 0..cells {
                let own = kappa * domain.opacity[cell] * u[cell];
                out[cell] -= coupling[cell] * (absorbed[ray + cell] - own);
            }
        });
    }

    /// An upper bound on the magnitudes of the sums of that product, row by row: `|K| |u|`.
    pub(crate) fn magnitudes(&self, u: &[f64]) -> Vec<f64> {
        let (problem, cells) = (self.problem, self.problem.cells());
        let u: Vec<f64> = u.iter().map(|u| u.abs()).collect();
        let absorbed = self.absorbed(&u);
        let mut out = vec![0.0; u.len()];
        let parts = out.par_chunks_mut(cells).zip(u.par_chunks(cells));
        parts.with_min_len(at_once(cells)).enumerate().for_each(|(item, (out, u))| {
            let (through, left, reaction, coupling) = self.parts(item);
            let ray = item / problem.groups.len() * cells;
            for cell in 0..cells {
                out[cell] = reaction[cell] * u[cell] + coupling[cell] * absorbed[ray + cell];
            }
            for (j, &left) in left.iter().enumerate() {
                out[j * problem.topology.nx] += left * u[j * problem.topology.nx];
            }
            for (face, &c) in problem.topology.faces.iter().zip(through) {
                out[face.a] += c * (u[face.a] + u[face.b]);
                out[face.b] += c * (u[face.a] + u[face.b]);
            }
        });
        out
    }

    /// The right-hand side from the state at the start of the stage.
    pub(crate) fn right_hand_side(&self, start: &State) -> Vec<f64> {
        let (problem, cells) = (self.problem, self.problem.cells());
        let mut rhs = vec![0.0; start.u.len()];
        let parts = rhs.par_chunks_mut(cells).zip(start.u.par_chunks(cells));
        parts.with_min_len(at_once(cells)).enumerate().for_each(|(item, (rhs, u))| {
            let (_, left, _, coupling) = self.parts(item);
            let (domain, group) = problem.of_item(item);
            let ray = item / problem.groups.len() * cells;
            for cell in 0..cells {
                let radiation = domain.mesh.volume(cell) * (domain.epsilon / self.delta) * u[cell];
                // The coupling includes the factor delta / (1 + delta S).
                rhs[cell] = radiation + coupling[cell] / self.delta * start.v[ray + cell];
            }
            for (j, &left) in left.iter().enumerate() {
                rhs[j * problem.topology.nx] += left * problem.groups.weight[group];
            }
        });
        rhs
    }

    /// The matter at the end of the stage, from the radiation at that time.
    pub(crate) fn matter(&self, start: &[f64], u: &[f64]) -> Vec<f64> {
        let (problem, cells) = (self.problem, self.problem.cells());
        let groups = &problem.groups;
        let emission: f64 = groups.kappa.iter().zip(&groups.weight).map(|(k, w)| k * w).sum();
        let mut v = self.absorbed(u);
        let parts = v.par_chunks_mut(cells).zip(start.par_chunks(cells)).zip(&problem.domains);
        parts.with_min_len(at_once(cells)).for_each(|((v, start), domain)| {
            for ((v, &start), &opacity) in v.iter_mut().zip(start).zip(&domain.opacity) {
                *v = (start + self.delta * *v) / (1.0 + self.delta * emission * opacity);
            }
        });
        v
    }

    /// The energy that enters each ray through its left boundary per unit of time, summed over
    /// groups.
    pub(crate) fn inflow(&self, u: &[f64]) -> Vec<f64> {
        let (groups, topology) = (&self.problem.groups, &self.problem.topology);
        let of_item = |item: usize| -> f64 {
            let (_, left, ..) = self.parts(item);
            let (u, weight) = (&u[item * topology.cells()..], groups.weight[item % groups.len()]);
            left.iter().enumerate().map(|(j, left)| left * (weight - u[j * topology.nx])).sum()
        };
        let ray = |ray: usize| (0..groups.len()).map(|g| of_item(ray * groups.len() + g)).sum();
        (0..self.problem.domains.len()).map(ray).collect()
    }
}

/// The energy in each ray: `sum vol (eps sum_g U_g + V)`.
pub(crate) fn energy(problem: &Problem, state: &State) -> Vec<f64> {
    let (cells, groups) = (problem.cells(), problem.groups.len());
    let ray = |(ray, domain): (usize, &super::problem::Domain)| {
        (0..cells)
            .map(|cell| {
                let u = (0..groups).map(|g| state.u[(ray * groups + g) * cells + cell]);
                let radiation = domain.epsilon * u.sum::<f64>();
                domain.mesh.volume(cell) * (radiation + state.v[ray * cells + cell])
            })
            .sum()
    };
    problem.domains.iter().enumerate().map(ray).collect()
}
