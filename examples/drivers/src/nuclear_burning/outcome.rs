//! What comes out of an integration.

use std::time::Duration;

use crate::nuclear_burning::linear::Tally;

/// How the integration of a zone ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// At the last of its times.
    Finished,
    /// The step became too small to move the time, or 1e-40 of the time to be covered.
    StepUnderflow {
        /// Where it stood, s.
        t: f64,
        /// The step, s.
        step: f64,
    },
    /// More steps than allowed.
    TooManySteps {
        /// Where it stood, s.
        t: f64,
    },
}

/// What is known of one zone.
#[derive(Clone, Debug)]
pub struct Burned {
    pub outcome: Outcome,
    /// Unknowns at each of the zone's times reached, time after time: abundances, mole/g, and T9.
    pub y: Vec<f64>,
    /// Steps accepted.
    pub steps: u32,
    /// Steps rejected by the error estimate.
    pub rejected: u32,
    /// Steps rejected since a linear system was not solved.
    pub unsolved: u32,
    /// Largest relative change of the sums of A Y and Z Y after any step.
    pub drift: [f64; 2],
    /// The lowest abundance after any step.
    pub lowest: f64,
    /// Whether the temperature left the range of the fits.
    pub clamped: bool,
}

impl Burned {
    /// A zone at its beginning, with memory for its unknowns, or what will be written over.
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

/// Where the time went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    /// Rates and right-hand sides.
    pub rates: Duration,
    /// Jacobians and `I/(gamma h) - J`.
    pub jacobian: Duration,
    /// Linear systems.
    pub solve: Duration,
    /// Everything else.
    pub control: Duration,
}

/// The result of an integration.
#[derive(Clone, Debug, Default)]
pub struct Burning {
    /// One entry per zone.
    pub zones: Vec<Burned>,
    pub tally: Tally,
    pub shares: Shares,
    /// Rounds: steps tried in the zone that took the most.
    pub rounds: u64,
}

impl Burning {
    /// Of zones that burned in groups: zone z was number z / count of group z % count.
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
