//! The integration of many zones by a Rosenbrock method, each with its own step.
//!
//! A round takes one step in every active zone:
//!
//! 1. the Jacobian at the start of the step, turned into `I/(gamma h) - J` where it stands;
//! 2. for every stage the right-hand side, then one batched solve of all zones;
//! 3. the error estimate, weighted by `atol + rtol |y|` in the largest component, accepts or
//!    rejects the step and gives the next one; zones that have reached their end, or cannot go on,
//!    leave the batch.
//!
//! A zone's numbers depend on no other zone.
//!
//! # Source
//! Hairer and Wanner 1996, Solving Ordinary Differential Equations II, section IV.7 (method) and
//! IV.8, equation (8.25) (step control of Gustafsson).

use std::time::Instant;

use rayon::prelude::*;
use sparsebatch::Pattern;

use crate::nuclear_burning::conservation::Invariants;
use crate::nuclear_burning::equations::{Equations, Group, LANES, Scratch};
use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::judge::Judge;
use crate::nuclear_burning::linear::{LinearSolver, Means};
pub use crate::nuclear_burning::outcome::{Burned, Burning, Outcome, Shares};
use crate::nuclear_burning::rates;
pub use crate::nuclear_burning::stepping::Settings;
use crate::nuclear_burning::stepping::Traveller;
use crate::nuclear_burning::zones::Zones;

/// Integrates all zones to their ends. `progress` is called after each round with the number of
/// zones left.
///
/// # Errors
/// [`BurningError::Setting`] for no zones, [`BurningError::Zone`] for a rate that is not finite,
/// and errors of the linear solver. A zone that ends early is no error.
pub fn integrate(
    equations: &Equations,
    zones: &Zones,
    means: Means,
    settings: &Settings,
    progress: impl FnMut(usize),
) -> Result<Burning, BurningError> {
    if zones.is_empty() {
        return Err(BurningError::Setting("expected at least one zone, found 0".to_owned()));
    }
    let linear = LinearSolver::new(equations, means)?;
    Integrator::new(equations, zones, settings, linear).run(progress)
}

struct Integrator<'a> {
    equations: &'a Equations,
    zones: &'a Zones,
    settings: &'a Settings,
    invariants: Invariants,
    linear: LinearSolver,
    /// Active zones, in the order of their places.
    travellers: Vec<Traveller>,
    /// Unknowns, place after place.
    y: Vec<f64>,
    /// Unknowns after the step.
    y_new: Vec<f64>,
    /// Densities, place after place.
    rho: Vec<f64>,
    /// Rates at constant temperature, by groups of places; within a group rate after rate.
    lambda: Vec<[f64; LANES]>,
    /// Right-hand sides of a stage.
    b: Vec<f64>,
    /// Solutions, stage by stage.
    u: Vec<Vec<f64>>,
    /// Results so far of the active zones, place after place.
    burning: Vec<Burned>,
    /// Zones that have ended, in any order.
    ended: Vec<(usize, Burned)>,
    shares: Shares,
    rounds: u64,
}

impl<'a> Integrator<'a> {
    fn new(
        equations: &'a Equations,
        zones: &'a Zones,
        settings: &'a Settings,
        linear: LinearSolver,
    ) -> Self {
        let y = if equations.heated().is_some() { zones.unknowns() } else { zones.y.clone() };
        Self {
            equations,
            zones,
            settings,
            invariants: Invariants::new(equations.network()),
            linear,
            travellers: Vec::new(),
            y_new: y.clone(),
            y,
            rho: zones.rho.clone(),
            lambda: vec![[0.0; LANES]; zones.len().div_ceil(LANES) * equations.fixed_rates()],
            b: Vec::new(),
            u: vec![Vec::new(); settings.method.stages()],
            burning: vec![Burned::beginning(Vec::new()); zones.len()],
            ended: Vec::with_capacity(zones.len()),
            shares: Shares::default(),
            rounds: 0,
        }
    }

    fn run(mut self, mut progress: impl FnMut(usize)) -> Result<Burning, BurningError> {
        self.start()?;
        while !self.travellers.is_empty() {
            let clock = Instant::now();
            self.linear.reserve(self.travellers.len())?;
            let room = self.linear.places() * self.equations.nvars();
            self.b.resize(room, 0.0);
            self.b[self.travellers.len() * self.equations.nvars()..].fill(0.0);
            for u in &mut self.u {
                u.resize(room, 0.0);
            }
            self.shares.control += clock.elapsed();
            self.form_matrices()?;
            for stage in 0..self.settings.method.stages() {
                self.stage(stage)?;
            }
            let clock = Instant::now();
            self.judge();
            self.rounds += 1;
            progress(self.travellers.len());
            self.shares.control += clock.elapsed();
        }
        self.ended.sort_unstable_by_key(|(zone, _)| *zone);
        Ok(Burning {
            zones: self.ended.into_iter().map(|(_, burned)| burned).collect(),
            tally: self.linear.tally,
            shares: self.shares,
            rounds: self.rounds,
        })
    }

    /// Computes rates and first steps: the step of explicit Euler at ten times the tolerance.
    ///
    /// # Errors
    /// [`BurningError::Zone`] for a rate that is not finite.
    fn start(&mut self) -> Result<(), BurningError> {
        let clock = Instant::now();
        let (equations, zones, settings) = (self.equations, self.zones, self.settings);
        let nrates = equations.fixed_rates();
        let rates = |rates: &mut Vec<f64>, (group, lambda): (usize, &mut [[f64; LANES]])| {
            rates.resize(nrates, 0.0);
            for (l, zone) in (group * LANES..zones.len()).take(LANES).enumerate() {
                rates::evaluate(equations.network(), zones.t9[zone], zones.rho[zone], rates);
                lambda.iter_mut().zip(&*rates).for_each(|(lambda, rate)| lambda[l] = *rate);
            }
        };
        if nrates > 0 {
            let groups = self.lambda.par_chunks_exact_mut(nrates).enumerate();
            groups.for_each_init(Vec::new, rates);
            let place = self.lambda.iter().flatten().position(|lambda| !lambda.is_finite());
            if let Some(place) = place {
                let (group, rate) = (place / LANES / nrates, place / LANES % nrates);
                let zone = group * LANES + place % LANES;
                let id = &equations.network().rates[rate].id;
                let problem = format!("the rate {id:?} is not finite at T9 = {}", zones.t9[zone]);
                return Err(BurningError::Zone { zone, problem });
            }
        }
        let nvars = equations.nvars();
        let mut slopes = vec![0.0; self.y.len()];
        let places = Places { nrates, rho: &self.rho, lambda: &self.lambda };
        slopes.par_chunks_mut(LANES * nvars).enumerate().for_each_init(
            Scratch::default,
            |scratch, (group, slopes)| {
                let y = &self.y[group * LANES * nvars..][..slopes.len()];
                equations.rhs(places.group(group), y, scratch, slopes);
            },
        );
        let begin = |zone: usize| {
            let part = zone * nvars..(zone + 1) * nvars;
            let allowed = self.y[part.clone()].iter().zip(&slopes[part]).map(|(y, slope)| {
                let weight = settings.atol + settings.rtol * y.abs();
                // The abundance does not change: any step is allowed.
                if *slope == 0.0 { f64::INFINITY } else { weight / slope.abs() }
            });
            let end = *zones.times[zone].last().expect("a zone has times");
            Traveller::new(zone, 10.0 * allowed.fold(f64::INFINITY, f64::min), end, settings)
        };
        self.travellers = (0..zones.len()).map(begin).collect();
        self.travellers.iter_mut().for_each(|traveller| traveller.aim(zones));
        self.shares.rates += clock.elapsed();
        Ok(())
    }

    /// Computes `I/(gamma h) - J` of every active zone.
    ///
    /// # Errors
    /// An error of the linear solver.
    fn form_matrices(&mut self) -> Result<(), BurningError> {
        let clock = Instant::now();
        let (equations, gamma) = (self.equations, self.settings.method.gamma);
        let (nvars, nrates) = (equations.nvars(), equations.fixed_rates());
        let nnz = equations.pattern().nnz();
        let places = Places { nrates, rho: &self.rho, lambda: &self.lambda };
        let (y, travellers) = (&self.y, &self.travellers);
        let form = |scratch: &mut Scratch, (group, values): (usize, &mut [f64])| {
            let first = group * LANES;
            let count = values.len() / nnz;
            let mut shifts = [0.0; LANES];
            for (shift, traveller) in shifts.iter_mut().zip(&travellers[first..first + count]) {
                *shift = 1.0 / (gamma * traveller.h);
            }
            let y = &y[first * nvars..][..count * nvars];
            equations.shifted_jacobian(places.group(group), y, &shifts, scratch, values);
        };
        self.linear.values_mut()[..travellers.len() * nnz]
            .par_chunks_mut(LANES * nnz)
            .enumerate()
            .for_each_init(Scratch::default, form);
        self.shares.jacobian += clock.elapsed();
        let clock = Instant::now();
        self.linear.factor()?;
        self.shares.solve += clock.elapsed();
        Ok(())
    }

    /// Computes the right-hand sides of a stage, and solves.
    fn stage(&mut self, stage: usize) -> Result<(), BurningError> {
        let clock = Instant::now();
        let (equations, method) = (self.equations, self.settings.method);
        let (nvars, nrates) = (equations.nvars(), equations.fixed_rates());
        let places = Places { nrates, rho: &self.rho, lambda: &self.lambda };
        let (y, travellers) = (&self.y, &self.travellers);
        let (before, this) = self.u.split_at_mut(stage);
        let fill = |memory: &mut (Scratch, Vec<f64>), (group, b): (usize, &mut [f64])| {
            let (scratch, y_stage) = memory;
            let first = group * LANES * nvars;
            let part = first..first + b.len();
            y_stage.clear();
            y_stage.extend_from_slice(&y[part.clone()]);
            add(y_stage, method.a[stage].iter().copied(), before, part);
            equations.rhs(places.group(group), y_stage, scratch, b);
            for (l, b) in b.chunks_exact_mut(nvars).enumerate() {
                let traveller = &travellers[group * LANES + l];
                if traveller.lost {
                    b.fill(0.0);
                } else {
                    let part = first + l * nvars..first + (l + 1) * nvars;
                    add(b, method.c[stage].iter().map(|c| c / traveller.h), before, part);
                }
            }
        };
        self.b[..travellers.len() * nvars]
            .par_chunks_mut(LANES * nvars)
            .enumerate()
            .for_each_init(Default::default, fill);
        self.shares.rates += clock.elapsed();
        let clock = Instant::now();
        let mut lost = Vec::new();
        self.linear.solve(&self.b, &mut this[0], &mut lost)?;
        lost.iter().for_each(|&place| self.travellers[place].lost = true);
        self.shares.solve += clock.elapsed();
        Ok(())
    }

    /// Accepts or rejects the steps, and removes zones that have ended.
    fn judge(&mut self) {
        let nvars = self.equations.nvars();
        let (before, last) = self.u.split_at(self.settings.method.stages() - 1);
        let judge = Judge {
            zones: self.zones,
            settings: self.settings,
            invariants: &self.invariants,
            nnuclides: self.equations.nnuclides(),
            stages: (before, &last[0]),
        };
        let places = (
            &mut self.travellers,
            &mut self.burning,
            self.y.par_chunks_exact_mut(nvars),
            self.y_new.par_chunks_exact_mut(nvars),
        );
        let stays: Vec<bool> = places
            .into_par_iter()
            .enumerate()
            .map(|(place, (traveller, burned, y, y_new))| {
                let error = judge.error(place, y, y_new);
                judge.step(error, traveller, burned, y, y_new)
            })
            .collect();
        self.compact(&stays);
    }

    /// Moves zones from the last places to those of zones that do not stay.
    fn compact(&mut self, stays: &[bool]) {
        let (nvars, nrates) = (self.equations.nvars(), self.equations.fixed_rates());
        // All later places have been examined, or moved from.
        for place in (0..stays.len()).rev().filter(|&place| !stays[place]) {
            let last = self.travellers.len() - 1;
            let traveller = self.travellers.swap_remove(place);
            self.ended.push((traveller.zone, self.burning.swap_remove(place)));
            self.y.copy_within(last * nvars..(last + 1) * nvars, place * nvars);
            self.rho[place] = self.rho[last];
            let (from, to) = (last / LANES * nrates, place / LANES * nrates);
            for rate in 0..nrates {
                self.lambda[to + rate][place % LANES] = self.lambda[from + rate][last % LANES];
            }
        }
    }
}

/// The constants of the active zones.
#[derive(Clone, Copy)]
struct Places<'a> {
    nrates: usize,
    rho: &'a [f64],
    lambda: &'a [[f64; LANES]],
}

impl<'a> Places<'a> {
    /// The places of a group.
    fn group(&self, group: usize) -> Group<'a> {
        let first = group * LANES;
        let rho = &self.rho[first..self.rho.len().min(first + LANES)];
        Group { rho, lambda: &self.lambda[group * self.nrates..][..self.nrates] }
    }
}

/// `y += sum_j weights_j u_j`.
pub(crate) fn add(
    y: &mut [f64],
    weights: impl Iterator<Item = f64>,
    u: &[Vec<f64>],
    part: std::ops::Range<usize>,
) {
    for (weight, u) in weights.zip(u) {
        for (y, u) in y.iter_mut().zip(&u[part.clone()]) {
            *y += weight * u;
        }
    }
}
