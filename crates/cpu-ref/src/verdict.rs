//! The rules by which every solver of the library judges a system: on entry, and when its
//! iterations stop.

use sparsebatch_formats::{CsrPatternRef, Scalar};

use crate::lanes::LaneMatrix;
use crate::outcome::{Criteria, Outcome, Status};
use crate::residual::{exponent, finish_residual, norm2, residual, residual_magnitude};
use crate::simd::{plain, plain_mut};

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
    /// The pattern prepared for products, where there is one; it changes the speed alone.
    pub(crate) prepared: Option<&'a LaneMatrix>,
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

impl<'a, T: Scalar> System<'a, T> {
    /// A system of the fields' meanings.
    pub fn new(
        number: usize,
        pattern: CsrPatternRef<'a>,
        values: &'a [T],
        b: &'a [T],
        criteria: &'a Criteria,
    ) -> Self {
        Self { number, pattern, values, b, criteria, prepared: None }
    }

    /// `r = b - A x`, and its norm as [`residual`] gives it.
    fn residual(&self, x: &[T], r: &mut [T]) -> f64 {
        match self.prepared {
            None => residual(self.pattern, self.values, x, self.b, r),
            Some(matrix) => {
                matrix.product(plain(self.values), plain(x), plain_mut(r));
                finish_residual(self.b, r)
            }
        }
    }

    /// Computes `r = b - A x0` (setting `x` to 0 when `b` is 0) and decides whether the system
    /// needs iterations at all.
    pub fn enter(&self, x: &mut [T], r: &mut [T]) -> Entry {
        let rhs_norm = norm2(self.b);
        let criteria = self.criteria;
        let threshold = threshold(self.number, criteria, rhs_norm);
        if rhs_norm == 0.0 {
            x.fill(T::ZERO);
        }
        r.copy_from_slice(self.b);
        let mut residual_norm = rhs_norm;
        // From x = 0 the residual is b. It is still computed where it alone decides, since a
        // matrix may hold NaN.
        let from_zero = x.iter().all(|&v| v == T::ZERO);
        if !from_zero || residual_norm <= threshold || !rhs_norm.is_finite() {
            residual_norm = self.residual(x, r);
        }
        Entry::new(self.number, criteria, rhs_norm, residual_norm)
    }

    /// Recomputes `r = b - A x` and holds it against the threshold and the floor.
    pub fn check(&self, threshold: f64, x: &[T], r: &mut [T]) -> Check {
        let residual_norm = self.residual(x, r);
        let passed = residual_norm <= threshold;
        let floor_passed = !passed
            && self.criteria.floor.is_some_and(|floor| {
                let magnitude = residual_magnitude(self.pattern, self.values, x, self.b);
                residual_norm <= floor * T::EPSILON.to_f64() * magnitude
            });
        Check { residual_norm, passed, floor_passed }
    }
}

/// `max(abs_tol, rel_tol * ||b||_2)` of a system.
pub(crate) fn threshold(number: usize, criteria: &Criteria, rhs_norm: f64) -> f64 {
    criteria.abs_tol.get(number).max(criteria.rel_tol.get(number) * rhs_norm)
}

impl Entry {
    /// Decides whether a system needs iterations at all, by the norms of its right-hand side and of its
    /// residual.
    pub(crate) fn new(
        number: usize,
        criteria: &Criteria,
        rhs_norm: f64,
        mut residual_norm: f64,
    ) -> Self {
        let threshold = threshold(number, criteria, rhs_norm);
        let status = if !residual_norm.is_finite() || !rhs_norm.is_finite() {
            residual_norm = f64::NAN;
            Some(Status::NonFinite)
        } else if residual_norm <= threshold {
            Some(Status::Converged)
        } else if criteria.max_iters.get(number) == 0 {
            Some(Status::MaxIterations)
        } else {
            None
        };
        Self { rhs_norm, threshold, residual_norm, status }
    }

    /// The exponent e such that a solver works on `b * 2^-e`, and scales its solution back: 0
    /// unless squares of the right-hand side might leave the range of `T`.
    pub fn scale<T: Scalar>(&self) -> i32 {
        // Within the second bound `2^e` and `2^-e` are values of T.
        let (safe, largest) = if T::NAME == "f64" { (200, 1000) } else { (20, 120) };
        let exponent = exponent(self.rhs_norm);
        if exponent.abs() <= safe { 0 } else { exponent.clamp(-largest, largest) }
    }

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
        if !self.residual_norm.is_finite() {
            // Also where a factorisation met NaN and took it for a missing pivot.
            return Some(Status::NonFinite);
        }
        let may_restart = restarts < criteria.max_restarts && iterations_left;
        match stop {
            Stop::Passed | Stop::Broken(_) if may_restart => None,
            Stop::Failed(status) | Stop::Broken(status) => Some(status),
            Stop::Passed if !iterations_left => Some(Status::MaxIterations),
            Stop::Passed => Some(Status::Stagnated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::PerSystem;
    use sparsebatch_formats::Csr;

    fn criteria() -> Criteria {
        Criteria {
            rel_tol: PerSystem::All(1e-2),
            abs_tol: PerSystem::Each(vec![0.0, 3.0]),
            max_iters: PerSystem::All(9),
            max_restarts: 2,
            floor: None,
            history: false,
        }
    }

    /// [2 0; 1 4]
    fn matrix() -> Csr<f64> {
        Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 4.0]).unwrap()
    }

    fn enter(criteria: &Criteria, number: usize, b: &[f64], x: &mut [f64]) -> (Entry, Vec<f64>) {
        let matrix = matrix();
        let (pattern, values) = (matrix.view().pattern(), matrix.values());
        let system = System::new(number, pattern, values, b, criteria);
        let mut r = vec![0.0; 2];
        let entry = system.enter(x, &mut r);
        (entry, r)
    }

    #[test]
    fn the_threshold_is_the_larger_of_both() {
        let (relative, r) = enter(&criteria(), 0, &[30.0, 40.0], &mut [0.0; 2]);
        let (absolute, _) = enter(&criteria(), 1, &[30.0, 40.0], &mut [0.0; 2]);

        assert_eq!((relative.rhs_norm, relative.threshold), (50.0, 0.5));
        assert_eq!(absolute.threshold, 3.0);
        assert_eq!((relative.status, r), (None, vec![30.0, 40.0]));
    }

    #[test]
    fn a_good_guess_needs_no_iterations() {
        let (entry, r) = enter(&criteria(), 1, &[3.0, 4.0], &mut [1.5, 0.0]);

        assert_eq!(entry.status, Some(Status::Converged));
        assert_eq!((entry.residual_norm, r), (2.5, vec![0.0, 2.5]));
    }

    #[test]
    fn a_zero_right_hand_side_overwrites_the_guess() {
        let mut x = [5.0, f64::NAN];

        let (entry, _) = enter(&criteria(), 0, &[0.0, -0.0], &mut x);

        assert_eq!((entry.status, x), (Some(Status::Converged), [0.0; 2]));
    }

    #[test]
    fn nothing_finite_is_never_entered() {
        let nan = enter(&criteria(), 0, &[1.0, f64::NAN], &mut [0.0; 2]).0;
        let infinite = enter(&criteria(), 0, &[1.0, f64::INFINITY], &mut [0.0; 2]).0;
        let guess = enter(&criteria(), 0, &[1.0, 1.0], &mut [f64::NAN, 0.0]).0;
        let product = enter(&criteria(), 0, &[1.0, 1.0], &mut [1e308, 0.0]).0;

        for entry in [nan, infinite, guess, product] {
            assert_eq!(entry.status, Some(Status::NonFinite));
            assert!(entry.residual_norm.is_nan());
        }
    }

    #[test]
    fn scales_keep_squares_in_range_and_are_values_themselves() {
        let scale = |rhs_norm| {
            let entry = Entry { rhs_norm, threshold: 0.0, residual_norm: rhs_norm, status: None };
            (entry.scale::<f64>(), entry.scale::<f32>())
        };

        assert_eq!(scale(1.0), (0, 0));
        assert_eq!(scale(2f64.powi(-20)), (0, 0));
        assert_eq!(scale(2f64.powi(21)), (0, 21));
        assert_eq!(scale(2f64.powi(201)), (201, 120));
        assert_eq!(scale(2f64.powi(-149)), (0, -120));
        assert_eq!(scale(5e-324), (-1000, -120));
        assert_eq!(scale(f64::MAX), (1000, 120));
    }

    #[test]
    fn every_stop_has_its_verdict() {
        let check =
            |residual_norm: f64, passed| Check { residual_norm, passed, floor_passed: false };
        let (good, bad, lost) = (check(0.1, true), check(9.0, false), check(f64::NAN, false));
        let floor = Check { floor_passed: true, ..bad };
        let limit = Stop::Failed(Status::MaxIterations);
        let broken = Stop::Broken(Status::BreakdownRho);
        let singular = Stop::Failed(Status::Singular);
        let table = [
            // The true residual decides, whatever stopped the iterations.
            (good, Stop::Passed, 0, true, Some(Status::Converged)),
            (good, limit, 2, false, Some(Status::Converged)),
            (good, broken, 2, false, Some(Status::Converged)),
            (floor, Stop::Passed, 0, true, Some(Status::Converged)),
            // Restarts, as long as there are any.
            (bad, Stop::Passed, 0, true, None),
            (bad, Stop::Passed, 1, true, None),
            (bad, Stop::Passed, 2, true, Some(Status::Stagnated)),
            (bad, Stop::Passed, 0, false, Some(Status::MaxIterations)),
            (bad, broken, 1, true, None),
            (bad, broken, 2, true, Some(Status::BreakdownRho)),
            (bad, broken, 0, false, Some(Status::BreakdownRho)),
            (bad, limit, 0, true, Some(Status::MaxIterations)),
            (bad, singular, 0, true, Some(Status::Singular)),
            // NaN is neither a breakdown nor a missing pivot.
            (lost, Stop::Passed, 0, true, Some(Status::NonFinite)),
            (lost, broken, 0, true, Some(Status::NonFinite)),
            (lost, limit, 0, true, Some(Status::NonFinite)),
            (lost, singular, 0, true, Some(Status::NonFinite)),
        ];

        for (i, (check, stop, restarts, left, expected)) in table.into_iter().enumerate() {
            let status = check.status(stop, restarts, left, &criteria());
            assert_eq!(status, expected, "row {i}");
        }
    }

    #[test]
    fn the_floor_is_relative_to_what_cancels() {
        // x = 0.1: 2 x and b cancel to some rounding error that no tolerance of 0 accepts.
        let matrix = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![3.0f64]).unwrap();
        let with_floor = |floor| Criteria {
            rel_tol: PerSystem::All(0.0),
            abs_tol: PerSystem::All(0.0),
            floor,
            ..criteria()
        };
        let check = |floor, x: f64| {
            let criteria = with_floor(floor);
            let (pattern, values) = (matrix.view().pattern(), matrix.values());
            let system = System::new(0, pattern, values, &[1.0], &criteria);
            system.check(0.0, &[x], &mut [0.0])
        };
        let near = 1.0 / 3.0 + f64::EPSILON;

        assert!(!check(None, near).floor_passed);
        assert!(check(Some(4.0), near).floor_passed);
        assert!(!check(Some(4.0), near).passed);
        assert!(!check(Some(4.0), 0.3333).floor_passed);
        assert!(!check(Some(4.0), f64::NAN).floor_passed);
    }
}
