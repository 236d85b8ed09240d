//! The step size control of one zone.
//!
//! # Source
//! Hairer and Wanner 1996, Solving Ordinary Differential Equations II, section IV.8, equation
//! (8.25): the predictive controller of Gustafsson.

use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::tableau::Tableau;
use crate::nuclear_burning::zones::Zones;

/// The settings of the integration.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub method: &'static Tableau,
    /// Relative tolerance of the local error.
    pub rtol: f64,
    /// Absolute tolerance of the local error, mole/g.
    pub atol: f64,
    /// Whether every step ends with a projection onto the conserved nucleons and charge.
    pub project: bool,
    /// Most steps of a zone, rejected ones included.
    pub max_steps: u32,
    /// The fixed step of every zone, s, without error control; for convergence studies.
    pub fixed_step: Option<f64>,
}

impl Settings {
    /// The ratio of the absolute tolerance to the relative one: abundances below 1e-10 are not
    /// resolved.
    pub(crate) const ATOL_OVER_RTOL: f64 = 1e-10;

    pub fn new(rtol: f64) -> Result<Self, BurningError> {
        if !(rtol > 1e-14 && rtol < 1.0) {
            let problem = format!("expected a tolerance between 1e-14 and 1, found {rtol}");
            return Err(BurningError::Setting(problem));
        }
        Ok(Self {
            method: &crate::nuclear_burning::tableau::RODAS5P,
            rtol,
            atol: rtol * Self::ATOL_OVER_RTOL,
            project: true,
            max_steps: 100_000,
            fixed_step: None,
        })
    }
}

/// An active zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traveller {
    pub(crate) zone: usize,
    pub(crate) t: f64,
    /// The step to be taken.
    pub(crate) h: f64,
    /// The step that the error allows; the next output time may shorten it.
    wanted: f64,
    /// Whether the step ends at the next of the zone's times.
    arrives: bool,
    /// The next of the zone's times, s.
    target: f64,
    /// Index of the next of the zone's times.
    pub(crate) next: usize,
    /// Step and error of the last accepted step.
    last: Option<(f64, f64)>,
    /// Whether the last step was rejected.
    was_rejected: bool,
    /// Whether a linear system of this step was not solved.
    pub(crate) lost: bool,
}

/// Safety factor, and the smallest and largest factor by which a step changes.
pub(crate) const SAFETY: f64 = 0.9;
pub(crate) const SHRINK: f64 = 0.2;
pub(crate) const GROW: f64 = 6.0;
/// Smallest step, relative to the time to be covered, below which a zone is given up.
pub(crate) const LEAST_STEP: f64 = 1e-40;
/// Smallest first step, relative to the time to be covered.
pub(crate) const LEAST_FIRST_STEP: f64 = 1e-25;
/// Factor by which a step shrinks when a linear system of it was not solved.
pub(crate) const LOST: f64 = 0.25;

impl Traveller {
    /// A zone at t = 0 with a first step, s, which is clamped to a sensible range.
    pub(crate) fn new(zone: usize, step: f64, end: f64, settings: &Settings) -> Self {
        let h = step.clamp(LEAST_FIRST_STEP * end, end);
        let wanted = settings.fixed_step.unwrap_or(h);
        Self {
            zone,
            t: 0.0,
            h,
            wanted,
            arrives: false,
            target: end,
            next: 0,
            last: None,
            was_rejected: false,
            lost: false,
        }
    }

    /// Shortens the step so that it ends at the next output time; if it would end shortly before
    /// that, takes half of the remaining time.
    pub(crate) fn aim(&mut self, zones: &Zones) {
        self.target = zones.times[self.zone][self.next];
        let left = self.target - self.t;
        self.arrives = self.wanted >= left * (1.0 - 1e-10);
        self.h = if self.arrives {
            left
        } else if self.wanted > 0.5 * left {
            0.5 * left
        } else {
            self.wanted
        };
    }

    /// Whether the step is too small to change the time, or negligible against the time to be
    /// covered.
    pub(crate) fn stands_still(&self, end: f64) -> bool {
        let moves = self.t + self.h > self.t && self.h > LEAST_STEP * end;
        !moves
    }

    /// Tries a shorter step, since the error was too large.
    pub(crate) fn reject(&mut self, error: f64, settings: &Settings) {
        let exponent = -1.0 / f64::from(settings.method.order);
        self.shrink((SAFETY * error.powf(exponent)).clamp(SHRINK, 1.0));
    }

    /// Tries a shorter step, since a linear system was not solved.
    pub(crate) fn lose(&mut self) {
        self.lost = false;
        self.shrink(LOST);
    }

    fn shrink(&mut self, factor: f64) {
        self.wanted = factor * self.h;
        self.was_rejected = true;
    }

    /// Advances by the step, and derives the next step from the error; returns whether the step
    /// ended at the next of the zone's times.
    pub(crate) fn accept(&mut self, error: f64, settings: &Settings) -> bool {
        // The time is exactly the target, whatever the rounding of the sum.
        self.t = if self.arrives { self.target } else { self.t + self.h };
        if settings.fixed_step.is_none() {
            let exponent = 1.0 / f64::from(settings.method.order);
            let error = error.max(1e-6);
            let mut factor = SAFETY * error.powf(-exponent);
            if let Some((h, last_error)) = self.last {
                let predicted = self.h / h * (last_error / (error * error)).powf(exponent);
                factor = factor.min(SAFETY * predicted);
            }
            let most = if self.was_rejected { 1.0 } else { GROW };
            let next = self.h * factor.clamp(SHRINK, most);
            // The error of a step that an output time shortened says little about the largest
            // possible step.
            let was_cut = self.h < 0.99 * self.wanted;
            self.wanted = if was_cut { next.max(self.wanted) } else { next };
            self.last = Some((self.h, error.max(1e-2)));
            self.was_rejected = false;
        }
        self.arrives
    }
}
