//! The rules by which every solver of the library judges a system: on entry, and when its
//! iterations stop.

use sparsebatch_formats::{CsrPatternRef, Scalar};

use crate::outcome::{Criteria, Outcome, Status};
use crate::residual::{norm2, residual, residual_magnitude};

/// One system as the rules see it: `A` in CSR, `b`, and the criteria that apply to it.
#[derive(Clone, Copy)]
pub struct System<'a, T> {
    /// Number of the system in its batch, for criteria given one by one.
    pub number: usize,
    /// Pattern of A, square.
    pub pattern: CsrPatternRef<'a>,
    /// Values of A, one per entry.
    pub values: &'a [T],
    /// Right-hand side, one value per row.
    pub b: &'a [T],
    /// When the solve ends.
    pub criteria: &'a Criteria,
}

/// What a system starts from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// `||b||_2`.
    pub rhs_norm: f64,
    /// `max(abs_tol, rel_tol * ||b||_2)`.
    pub threshold: f64,
    /// `||b - A x0||_2`; NaN when it is not finite.
    pub residual_norm: f64,
    /// The status of a system that needs no iterations.
    pub status: Option<Status>,
}

/// Why iterations stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The recurrence's residual passed the test.
    Passed,
    /// The status to give unless the true residual passes.
    Failed(Status),
    /// As `Failed`, for a breakdown that a restart from the true residual may get over.
    Broken(Status),
}

impl Stop {
    /// A quantity that must not vanish did: a breakdown, or, when it is not finite, numbers lost.
    pub fn broken<T: Scalar>(value: T, status: Status) -> Self {
        if value.is_finite() { Self::Broken(status) } else { Self::Failed(Status::NonFinite) }
    }

    /// As [`Stop::broken`], where a restart is of no use.
    pub fn failed<T: Scalar>(value: T, status: Status) -> Self {
        Self::Failed(if value.is_finite() { status } else { Status::NonFinite })
    }
}

/// The true residual of an iterate, and what it says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check {
    /// `||b - A x||_2`; NaN when it is not finite.
    pub residual_norm: f64,
    /// It passes the tolerance.
    pub passed: bool,
    /// It passes the rounding floor, where one is given.
    pub floor_passed: bool,
}

impl<T: Scalar> System<'_, T> {
    /// Computes `r = b - A x0` (setting `x` to 0 when `b` is 0) and decides whether the system
    /// needs iterations at all.
    pub fn enter(&self, x: &mut [T], r: &mut [T]) -> Entry {
        let rhs_norm = norm2(self.b);
        let criteria = self.criteria;
        let threshold =
            criteria.abs_tol.get(self.number).max(criteria.rel_tol.get(self.number) * rhs_norm);
        if rhs_norm == 0.0 {
            x.fill(T::ZERO);
        }
        r.copy_from_slice(self.b);
        let mut residual_norm = rhs_norm;
        // From x = 0 the residual is b. It is still computed where it alone decides, since a
        // matrix may hold NaN.
        let from_zero = x.iter().all(|&v| v == T::ZERO);
        if !from_zero || residual_norm <= threshold || !rhs_norm.is_finite() {
            residual_norm = residual(self.pattern, self.values, x, self.b, r);
        }
        let status = if !residual_norm.is_finite() || !rhs_norm.is_finite() {
            residual_norm = f64::NAN;
            Some(Status::NonFinite)
        } else if residual_norm <= threshold {
            Some(Status::Converged)
        } else if criteria.max_iters.get(self.number) == 0 {
            Some(Status::MaxIterations)
        } else {
            None
        };
        Entry { rhs_norm, threshold, residual_norm, status }
    }

    /// Recomputes `r = b - A x` and holds it against the threshold and the floor.
    pub fn check(&self, threshold: f64, x: &[T], r: &mut [T]) -> Check {
        let residual_norm = residual(self.pattern, self.values, x, self.b, r);
        let passed = residual_norm <= threshold;
        let floor_passed = !passed
            && self.criteria.floor.is_some_and(|floor| {
                let magnitude = residual_magnitude(self.pattern, self.values, x, self.b);
                residual_norm <= floor * T::EPSILON.to_f64() * magnitude
            });
        Check { residual_norm, passed, floor_passed }
    }
}

impl Entry {
    /// The outcome of a system that needs no iterations.
    pub fn outcome(&self, status: Status, history: bool) -> Outcome {
        Outcome {
            status,
            iterations: 0,
            restarts: 0,
            residual_norm: self.residual_norm,
            rhs_norm: self.rhs_norm,
            accepted_by_floor: false,
            history: if history { vec![self.residual_norm] } else { Vec::new() },
        }
    }
}

impl Check {
    /// The status of a system that stopped, or `None` when it is to start again from its true
    /// residual: the recurrence passed and the true residual did not, or BiCGStab broke down,
    /// and `restarts` and iterations are left.
    pub fn status(
        &self,
        stop: Stop,
        restarts: u32,
        iterations_left: bool,
        criteria: &Criteria,
    ) -> Option<Status> {
        if self.passed || self.floor_passed {
            return Some(Status::Converged);
        }
        let may_restart =
            self.residual_norm.is_finite() && restarts < criteria.max_restarts && iterations_left;
        match stop {
            Stop::Passed | Stop::Broken(_) if may_restart => None,
            Stop::Failed(status) | Stop::Broken(status) => Some(status),
            Stop::Passed if !self.residual_norm.is_finite() => Some(Status::NonFinite),
            Stop::Passed if !iterations_left => Some(Status::MaxIterations),
            Stop::Passed => Some(Status::Stagnated),
        }
    }
}
