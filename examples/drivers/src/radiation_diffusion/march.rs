//! The time loop: singly diagonally implicit Runge-Kutta of order 2, geometric steps.
//!
//! The scheme of Alexander 1977 (SIAM J. Numer. Anal. 14, 1006), `gamma = 1 - 1/sqrt 2`, is
//! L-stable; with a scheme that is not, the light switched on at `tau = 0` would cause
//! oscillations. Both stages have the same matrix:
//!
//! ```text
//! y_1     = y_n + gamma dtau f(y_1)
//! y_(n+1) = y_n + (1/gamma - 1)(y_1 - y_n) + gamma dtau f(y_(n+1))
//! ```
//!
//! The limiter is evaluated for the radiation extrapolated to the middle of the step, so that it is
//! of order 2, too, and every stage stays linear.

use std::time::{Duration, Instant};

use sparsebatch::{Backend, SolveOptions};

use super::coupled::{Coupled, Tally};
use super::error::{Error, positive};
use super::operator::{Operator, State, energy};
use super::problem::{Limiter, Problem};

/// The first step as a fraction of the first output time.
const FIRST_STEP: f64 = 1e-3;

/// The settings of a march.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Times to stop at, ascending.
    pub(crate) times: Vec<f64>,
    /// Number of steps while time grows tenfold.
    pub(crate) steps_per_decade: f64,
    /// Relative residual of the coupled systems.
    pub(crate) tolerance: f64,
    /// Options of the batched solves.
    pub(crate) solve: SolveOptions,
}

/// The results of a march.
#[derive(Clone, Debug)]
pub struct March {
    /// The state at each output time.
    pub states: Vec<State>,
    /// Relative energy imbalance of each ray: the energy that entered less the energy present, over
    /// the energy present; the worst over output times.
    pub imbalance: Vec<f64>,
    /// Number of steps, of two stages each.
    pub steps: usize,
    /// The outcomes of the solves.
    pub tally: Tally,
    /// The time by part.
    pub shares: Shares,
}

/// The time by part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    /// Time for conductances, matrices, right-hand sides.
    pub assembly: Duration,
    /// Time for batched solves.
    pub solve: Duration,
    /// Time for the rest of the coupled solver: products, tests.
    pub coupling: Duration,
    /// Time for everything else.
    pub control: Duration,
}

/// The length of each step, and the output that the step reaches, if any.
///
/// # Errors
/// [`Error::Input`] without times, when they do not ascend, or when steps are too short or too
/// many.
pub fn schedule(times: &[f64], per_decade: f64) -> Result<Vec<(f64, Option<usize>)>, Error> {
    positive("the number of steps per decade", per_decade)?;
    let first =
        *times.first().ok_or_else(|| Error::input("there are 0 times, expected at least 1"))?;
    for (index, &time) in times.iter().enumerate() {
        positive(&format!("time {index}"), time)?;
        if index > 0 && time <= times[index - 1] {
            return Err(Error::input(format!(
                "time {index} is {time}, expected more than the one before, {}",
                times[index - 1]
            )));
        }
    }
    let mut start = first * FIRST_STEP;
    let mut steps = vec![(start, None)];
    for (output, &end) in times.iter().enumerate() {
        let decades = (end / start).log10();
        let count = (decades * per_decade).ceil();
        if count > 1e7 || start < f64::MIN_POSITIVE {
            return Err(Error::input(format!(
                "{count} steps from {start:e} to {end:e}, expected at most 10000000 and times \
                 above 1e-300"
            )));
        }
        let count = (count as usize).max(1);
        let time = |k: usize| {
            if k == count { end } else { start * (end / start).powf(k as f64 / count as f64) }
        };
        for k in 0..count {
            steps.push((time(k + 1) - time(k), (k + 1 == count).then_some(output)));
        }
        start = end;
    }
    Ok(steps)
}

/// Marches a problem from the cold state. `progress` is called with the steps done and the total.
///
/// # Errors
/// [`Error::Input`] for settings out of range, [`Error::NotConverged`] for an unsolved stage.
pub(crate) fn march(
    problem: &Problem,
    settings: &Settings,
    backend: &Backend,
    progress: &mut (dyn FnMut(usize, usize) + Send),
) -> Result<March, Error> {
    // Runs on a thread of the pool, so that its many short loops need not be handed over one by
    // one.
    rayon::scope(|_| march_in_pool(problem, settings, backend, progress))
}

fn march_in_pool(
    problem: &Problem,
    settings: &Settings,
    backend: &Backend,
    progress: &mut (dyn FnMut(usize, usize) + Send),
) -> Result<March, Error> {
    let begin = Instant::now();
    let steps = schedule(&settings.times, settings.steps_per_decade)?;
    if !(settings.tolerance > 0.0 && settings.tolerance < 1.0) {
        return Err(Error::input(format!(
            "the tolerance of coupled systems is {}, expected more than 0 and less than 1",
            settings.tolerance
        )));
    }
    let mut state = State::cold(problem);
    let mut slope = vec![0.0; state.u.len()];
    let mut imbalance = vec![0.0f64; problem.domains.len()];
    let mut states = Vec::with_capacity(settings.times.len());
    let mut stepper = Stepper::new(problem, &state, steps[0].0, settings, backend)?;

    for (done, &(step, output)) in steps.iter().enumerate() {
        progress(done, steps.len());
        stepper.prepare(&state, &slope, step)?;
        let last = stepper.step(&state, &slope, step)?;
        if last.u.iter().chain(&last.v).any(|x| !x.is_finite()) {
            return Err(Error::NotConverged(format!("step {done} ended with what is not finite")));
        }
        slope = last.u.iter().zip(&state.u).map(|(new, old)| (new - old) / step).collect();
        state = last;
        if output.is_some() {
            let there = energy(problem, &state);
            for ((worst, &entered), there) in imbalance.iter_mut().zip(&stepper.entered).zip(there)
            {
                *worst = worst.max((entered - there).abs() / there.abs());
            }
            states.push(state.clone());
        }
    }
    progress(steps.len(), steps.len());
    let Stepper { solver, assembly, coupling, .. } = stepper;
    let solve = solver.solve_time;
    let control = begin.elapsed().saturating_sub(assembly + solve + coupling);
    let shares = Shares { assembly, solve, coupling, control };
    Ok(March { states, imbalance, steps: steps.len(), tally: solver.tally, shares })
}

/// The steps of a march, with what they have in common.
struct Stepper<'p> {
    gamma: f64,
    operator: Operator<'p>,
    solver: Coupled,
    /// The energy that has entered each ray.
    entered: Vec<f64>,
    /// Time for conductances, matrices and right-hand sides.
    assembly: Duration,
    /// Time in the coupled solver without its batched solves.
    coupling: Duration,
}

impl<'p> Stepper<'p> {
    /// Makes the operator of the first step, and analyses its systems.
    fn new(
        problem: &'p Problem,
        state: &State,
        first_step: f64,
        settings: &Settings,
        backend: &Backend,
    ) -> Result<Self, Error> {
        let gamma = 1.0 - 0.5f64.sqrt();
        let mut operator = Operator::new(problem);
        operator.set_conductances(&state.u);
        operator.set_delta(gamma * first_step);
        let solver = Coupled::new(&operator, backend, &settings.solve, settings.tolerance)?;
        let entered = vec![0.0; problem.domains.len()];
        let (assembly, coupling) = (Duration::ZERO, Duration::ZERO);
        Ok(Self { gamma, operator, solver, entered, assembly, coupling })
    }

    /// Sets the matrix of both stages of a step.
    fn prepare(&mut self, state: &State, slope: &[f64], step: f64) -> Result<(), Error> {
        let start = Instant::now();
        if self.operator.problem.limiter != Limiter::None {
            self.operator.set_conductances(&extrapolate(&state.u, slope, step / 2.0));
        }
        self.operator.set_delta(self.gamma * step);
        let solved = self.solver.solve_time;
        self.solver.set_values(&self.operator)?;
        self.assembly += start.elapsed().saturating_sub(self.solver.solve_time - solved);
        Ok(())
    }

    /// The state one step after `state`, by both stages.
    fn step(&mut self, state: &State, slope: &[f64], step: f64) -> Result<State, Error> {
        let gamma = self.gamma;
        let guess = axpy(&state.u, gamma * step, slope);
        let first = self.stage(state, guess, (1.0 - gamma) * step)?;
        let onward = |old: &[f64], new: &[f64], far: f64| -> Vec<f64> {
            old.iter().zip(new).map(|(old, new)| old + far * (new - old)).collect()
        };
        let far = 1.0 / gamma - 1.0;
        let start =
            State { u: onward(&state.u, &first.u, far), v: onward(&state.v, &first.v, far) };
        self.stage(&start, onward(&state.u, &first.u, 1.0 / gamma), gamma * step)
    }

    /// Solves a stage that starts from `r`. Its inflow counts for the time `weight`.
    fn stage(&mut self, r: &State, guess: Vec<f64>, weight: f64) -> Result<State, Error> {
        let start = Instant::now();
        let rhs = self.operator.right_hand_side(r);
        self.assembly += start.elapsed();
        let (start, solved) = (Instant::now(), self.solver.solve_time);
        let mut u = guess;
        self.solver.solve(&self.operator, &rhs, &mut u)?;
        self.coupling += start.elapsed().saturating_sub(self.solver.solve_time - solved);
        let inflow = self.operator.inflow(&u);
        self.entered.iter_mut().zip(inflow).for_each(|(sum, rate)| *sum += weight * rate);
        Ok(State { v: self.operator.matter(&r.v, &u), u })
    }
}

fn axpy(x: &[f64], factor: f64, y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| x + factor * y).collect()
}

/// Extrapolates the radiation by `time`; a change is limited to a factor of 2, so that the
/// radiation stays positive.
fn extrapolate(u: &[f64], slope: &[f64], time: f64) -> Vec<f64> {
    let onward = |(&u, &slope): (&f64, &f64)| {
        let [low, high] = if u >= 0.0 { [u / 2.0, 2.0 * u] } else { [2.0 * u, u / 2.0] };
        (u + time * slope).clamp(low, high)
    };
    u.iter().zip(slope).map(onward).collect()
}
