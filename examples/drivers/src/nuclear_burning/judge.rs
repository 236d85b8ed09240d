//! The end of a step on the host: acceptance of the step, and the size of the next one.

use crate::nuclear_burning::conservation::Invariants;
use crate::nuclear_burning::integrator::{Burned, Outcome, Settings, add};
use crate::nuclear_burning::rates::{T9_MAX, T9_MIN};
use crate::nuclear_burning::stepping::Traveller;
use crate::nuclear_burning::zones::Zones;

/// The data for accepting or rejecting the step of each zone.
pub(crate) struct Judge<'a> {
    pub(crate) zones: &'a Zones,
    pub(crate) settings: &'a Settings,
    pub(crate) invariants: &'a Invariants,
    pub(crate) nnuclides: usize,
    /// The stages before the last, and the last stage, which is the error estimate: place after
    /// place.
    pub(crate) stages: (&'a [Vec<f64>], &'a [f64]),
}

impl Judge<'_> {
    /// Computes the unknowns of a place after the step, and the error of the step, at most 1 if it
    /// is acceptable.
    pub(crate) fn error(&self, place: usize, y: &[f64], y_new: &mut [f64]) -> f64 {
        let part = place * y.len()..(place + 1) * y.len();
        let (before, last) = self.stages;
        let weights = self.settings.method.a[before.len()];
        y_new.copy_from_slice(y);
        add(y_new, weights.iter().copied(), before, part.clone());
        let mut worst = 0.0f64;
        for ((y_new, y), error) in y_new.iter_mut().zip(y).zip(&last[part]) {
            *y_new += error;
            let weight = self.settings.atol + self.settings.rtol * y.abs().max(y_new.abs());
            let error = error.abs() / weight;
            // A step with NaN or infinities is rejected.
            worst = if error.is_finite() && y_new.is_finite() {
                worst.max(error)
            } else {
                f64::INFINITY
            };
        }
        worst
    }

    /// Accepts or rejects the step of a zone; returns whether the zone goes on.
    pub(crate) fn step(
        &self,
        error: f64,
        traveller: &mut Traveller,
        burned: &mut Burned,
        y: &mut [f64],
        y_new: &mut [f64],
    ) -> bool {
        let (settings, nnuclides) = (self.settings, self.nnuclides);
        if traveller.lost {
            burned.unsolved += 1;
            traveller.lose();
        } else if settings.fixed_step.is_some() || error <= 1.0 {
            burned.steps += 1;
            let start = &self.zones.y[traveller.zone * nnuclides..][..nnuclides];
            if settings.project {
                self.invariants.project(start, &mut y_new[..nnuclides]);
            }
            let drift = self.invariants.drift(start, &y_new[..nnuclides]);
            for (most, drift) in burned.drift.iter_mut().zip(drift) {
                *most = most.max(drift);
            }
            burned.lowest = y_new[..nnuclides].iter().copied().fold(burned.lowest, f64::min);
            burned.clamped |= y_new[nnuclides..].iter().any(|t9| !(T9_MIN..=T9_MAX).contains(t9));
            y.copy_from_slice(y_new);
            if traveller.accept(error, settings) {
                burned.y.extend_from_slice(y);
                traveller.next += 1;
            }
        } else {
            burned.rejected += 1;
            traveller.reject(error, settings);
        }
        let times = &self.zones.times[traveller.zone];
        if traveller.next == times.len() {
            return false;
        }
        if burned.steps + burned.rejected + burned.unsolved >= settings.max_steps {
            burned.outcome = Outcome::TooManySteps { t: traveller.t };
            return false;
        }
        traveller.aim(self.zones);
        let stands_still = traveller.stands_still(times.last().copied().unwrap_or(0.0));
        if stands_still {
            burned.outcome = Outcome::StepUnderflow { t: traveller.t, step: traveller.h };
        }
        !stands_still
    }
}
