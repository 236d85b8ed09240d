//! The results of an integration.

use std::time::Duration;

use crate::nuclear_burning::linear::Tally;

/// The way in which the integration of a zone ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// The zone reached the last of its times.
    Finished,
    /// The step became too small to move the time, or 1e-40 of the time to be covered.
    StepUnderflow {
        /// Time reached, s.
        t: f64,
        /// The step, s.
        step: f64,
    },
    /// The zone needed more steps than allowed.
    TooManySteps {
        /// Time reached, s.
        t: f64,
    },
}

/// The results of one zone.
#[derive(Clone, Debug)]
pub struct Burned {
    pub outcome: Outcome,
    /// Unknowns at each output time that the zone reached, time after time: abundances, mole/g, and
    /// T9.
    pub y: Vec<f64>,
    /// Number of accepted steps.
    pub steps: u32,
    /// Number of steps rejected by the error estimate.
    pub rejected: u32,
    /// Number of steps rejected since a linear system was not solved.
    pub unsolved: u32,
    /// Largest relative change of the sums of A Y and Z Y after any step.
    pub drift: [f64; 2],
    /// The lowest abundance after any step.
    pub lowest: f64,
    /// Whether the temperature left the range of the fits.
    pub clamped: bool,
}

impl Burned {
    /// A zone before its first step; `y` is memory for its unknowns, to be overwritten.
    pub(crate) fn beginning(y: Vec<f64>) -> Self {
        Self {
            outcome: Outcome::Finished,
            y,
            steps: 0,
            rejected: 0,
            unsolved: 0,
            drift: [0.0; 2],
            lowest: 0.0,
            clamped: false,
        }
    }
}

/// The time by part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    /// Time for rates and right-hand sides.
    pub rates: Duration,
    /// Time for Jacobians and `I/(gamma h) - J`.
    pub jacobian: Duration,
    /// Time for linear systems.
    pub solve: Duration,
    /// Time for everything else.
    pub control: Duration,
}

/// The result of an integration.
#[derive(Clone, Debug, Default)]
pub struct Burning {
    /// One entry per zone.
    pub zones: Vec<Burned>,
    pub tally: Tally,
    pub shares: Shares,
    /// Number of rounds: the steps tried in the zone that took the most.
    pub rounds: u64,
}

impl Burning {
    /// Joins the results of zones that burned in groups: zone z was number z / count of group z %
    /// count.
    pub(crate) fn interleaved(groups: Vec<Self>) -> Self {
        let mut all = Self::default();
        let count = groups.len();
        let mut zones = Vec::with_capacity(count);
        for group in groups {
            zones.push(group.zones.into_iter());
            all.tally.absorb(group.tally);
            all.shares.rates += group.shares.rates;
            all.shares.jacobian += group.shares.jacobian;
            all.shares.solve += group.shares.solve;
            all.shares.control += group.shares.control;
            all.rounds = all.rounds.max(group.rounds);
        }
        all.zones = (0..).map_while(|zone: usize| zones[zone % count].next()).collect();
        all
    }
}
