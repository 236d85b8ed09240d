//! The rules by which every solver of the library judges a system: on entry, and when its
//! iterations stop.

use sparsebatch_formats::{CsrPatternRef, Scalar};

use crate::evaluate::{Evaluated, finish_residual, residual, residual_magnitude, residual_twofold};
use crate::outcome::{Criteria, Outcome, Status};

mod scale;
#[cfg(test)]
mod tests;

pub use scale::{needs_no_scale, scale_by_norm, scale_for_squares, scale_of_matrix};

pub use crate::evaluate::{Sizes, by_power_of_two, frobenius_norm, norm2};

/// One system as the rules see it: `A` in CSR, `b`, and the criteria that apply to it.
#[derive(Clone, Copy)]
pub struct System<'a, T> {
    /// Index of the system in its batch; selects criteria given per system.
    pub number: usize,
    /// Pattern of A, square.
    pub pattern: CsrPatternRef<'a>,
    /// Values of A, one per entry.
    pub values: &'a [T],
    /// Right-hand side, one value per row.
    pub b: &'a [T],
    /// Stopping criteria of the solve.
    pub criteria: &'a Criteria,
    /// Data that the solver has prepared; it changes the speed only.
    pub prepared: Option<Prepared<'a, T>>,
}

/// Matrix-vector product with a pattern that the solver has prepared.
pub trait PreparedProduct<T> {
    /// `r = A x`, each row's products added in ascending column order in the working precision.
    fn product(&self, values: &[T], x: &[T], r: &mut [T]);

    /// The sizes of the pattern.
    fn sizes(&self) -> Sizes;
}

/// Prepared data of the matrix of a system.
#[derive(Clone, Copy)]
pub struct Prepared<'a, T> {
    /// The pattern, prepared for products.
    pub matrix: &'a dyn PreparedProduct<T>,
    /// `||A||_F`, if known.
    pub norm: Option<f64>,
}

/// Norms of x and of its residual from the plain evaluation, in working precision.
#[derive(Clone, Copy)]
pub struct Plain {
    /// `||b - A x||_2`; NaN when it is not finite.
    pub norm: f64,
    /// `||x||_2`.
    pub of_x: f64,
}

/// Further data on a residual that was evaluated elsewhere, computed on request.
pub trait Elsewhere<T> {
    /// `|| |A||x| + |b| ||_2`, if known.
    fn magnitude(&self) -> Option<f64>;
    /// Writes the residual of [`residual_twofold`] to `r`; `None` if it was not evaluated.
    fn twofold(&self, r: &mut [T]) -> Option<Evaluated>;
}

/// Bounds with which a residual is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// `max(abs_tol, rel_tol * ||b||_2)`.
    pub threshold: f64,
    /// `||b||_2`.
    pub rhs_norm: f64,
    /// The rounding floor of the criteria, if there is one.
    pub floor: Option<f64>,
}

impl Limits {
    /// The largest residual norm that the rounding floor accepts, where `magnitude` is
    /// `|| |A||x| + |b| ||_2`; negative if there is no floor.
    fn floor_of<T: Scalar>(&self, magnitude: f64) -> f64 {
        self.floor.filter(|_| magnitude.is_finite()).map_or(-1.0, |floor| {
            (floor * T::EPSILON.to_f64() * magnitude).min(LARGEST_FLOOR * self.rhs_norm)
        })
    }
}

/// State of a system on entry, before any iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// `||b||_2`.
    pub rhs_norm: f64,
    /// `max(abs_tol, rel_tol * ||b||_2)`.
    pub threshold: f64,
    /// `||b - A x0||_2`; NaN when it is not finite.
    pub residual_norm: f64,
    /// Final status of a system that needs no iterations; otherwise `None`.
    pub status: Option<Status>,
}

/// Upper limit of a rounding floor, relative to `||b||_2`. A floor needs a limit because `|A||x|`
/// grows without bound in singular systems.
pub const LARGEST_FLOOR: f64 = 1e-3;

/// Largest relative error of a residual norm that may decide which of two iterates is better. A
/// residual with a larger error bound is evaluated more accurately first.
const ROUGH: f64 = 1e-3;

/// Why iterations stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The recurrence's residual passed the test.
    Passed,
    /// The system gets this status unless its true residual passes.
    Failed(Status),
    /// As `Failed`, but for a breakdown that a restart from the true residual may overcome.
    Broken(Status),
}

impl Stop {
    /// The stop where `value` must not vanish but did: a breakdown with `status`, or `NonFinite` if
    /// `value` is not finite.
    pub fn broken<T: Scalar>(value: T, status: Status) -> Self {
        if value.is_finite() { Self::Broken(status) } else { Self::Failed(Status::NonFinite) }
    }

    /// The stop of CG where `rho` = r'z is not positive. A negative `rho` shows that the
    /// preconditioner, and so the matrix that it approximates, is not positive definite.
    pub fn not_positive<T: Scalar>(rho: T) -> Self {
        let negative = rho < T::ZERO;
        Self::failed(rho, if negative { Status::Indefinite } else { Status::BreakdownRho })
    }

    /// As [`Stop::broken`], for a stop that no restart can overcome.
    pub fn failed<T: Scalar>(value: T, status: Status) -> Self {
        Self::Failed(if value.is_finite() { status } else { Status::NonFinite })
    }
}

/// The true residual of an iterate and the verdict on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check {
    /// `||b - A x||_2` as evaluated; NaN when it is not finite.
    pub residual_norm: f64,
    /// Whether the residual norm plus the bound of its error passes the tolerance.
    pub passed: bool,
    /// Whether it passes the rounding floor, if there is one.
    pub floor_passed: bool,
    /// Whether the error of `residual_norm` is at most a thousandth of it. A residual that passes
    /// by the plain evaluation counts as accurate.
    pub is_accurate: bool,
}

impl<'a, T: Scalar> System<'a, T> {
    /// A system without prepared data; the arguments are the fields of the same names.
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
            Some(Prepared { matrix, .. }) => {
                matrix.product(self.values, x, r);
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
        let from_zero = x.iter().all(|&v| v == T::ZERO);
        if !from_zero && rhs_norm.is_finite() {
            let norm = self.residual(x, r);
            let limits = Limits { threshold, rhs_norm, floor: None };
            let check = self.judge(norm, limits, x, r);
            return Entry::new(self.number, criteria, rhs_norm, check.residual_norm, check.passed);
        }
        // For x = 0 the residual is exactly b. It is computed nonetheless where it ends the solve
        // at once, since the matrix may hold NaN.
        let mut residual_norm = rhs_norm;
        if residual_norm <= threshold || !rhs_norm.is_finite() {
            residual_norm = self.residual(x, r);
        }
        Entry::new(self.number, criteria, rhs_norm, residual_norm, residual_norm <= threshold)
    }

    /// Recomputes `r = b - A x` and compares it with the threshold and the floor.
    ///
    /// A residual passes when the sum of its computed norm and the bound of the evaluation's error
    /// does. The plain evaluation decides where that bound is small beside the threshold, as it
    /// nearly always is. Otherwise the residual is evaluated with twofold precision.
    pub fn check(&self, entry: &Entry, x: &[T], r: &mut [T]) -> Check {
        self.check_against(self.limits(entry), x, r)
    }

    fn limits(&self, entry: &Entry) -> Limits {
        let floor = self.criteria.floor;
        Limits { threshold: entry.threshold, rhs_norm: entry.rhs_norm, floor }
    }

    fn check_against(&self, limits: Limits, x: &[T], r: &mut [T]) -> Check {
        let norm = self.residual(x, r);
        self.judge(norm, limits, x, r)
    }

    /// Judges x by `r = b - A x` and its `norm`, both from the plain evaluation. Overwrites r where
    /// it evaluates the residual more accurately.
    fn judge(&self, norm: f64, limits: Limits, x: &[T], r: &mut [T]) -> Check {
        let plain = Plain { norm, of_x: norm2(x) };
        self.judge_plain(plain, limits).unwrap_or_else(|| {
            let magnitude = residual_magnitude(self.pattern, self.values, x, self.b);
            self.judge_closely(norm, magnitude, limits, |_| None, x, r)
        })
    }

    /// [`System::check`] of an x whose residual was evaluated elsewhere. `plain` holds the norms,
    /// `residual` the elements, and `elsewhere` further data where known. `r` is overwritten unless
    /// `plain` alone shows that x passes.
    pub fn check_evaluated(
        &self,
        entry: &Entry,
        plain: Plain,
        residual: impl Iterator<Item = T>,
        elsewhere: impl Elsewhere<T>,
        x: &[T],
        r: &mut [T],
    ) -> Check {
        let limits = self.limits(entry);
        let judged = self.judge_plain(plain, limits);
        if let Some(check) = judged.filter(|check| check.passed) {
            return check;
        }
        r.iter_mut().zip(residual).for_each(|(r, value)| *r = value);
        judged.unwrap_or_else(|| {
            let magnitude = elsewhere
                .magnitude()
                .unwrap_or_else(|| residual_magnitude(self.pattern, self.values, x, self.b));
            self.judge_closely(plain.norm, magnitude, limits, |r| elsewhere.twofold(r), x, r)
        })
    }

    /// The verdict of the plain evaluation alone. `None` where its error may be too large, or where
    /// x fails the threshold but a rounding floor may accept it.
    fn judge_plain(&self, plain: Plain, limits: Limits) -> Option<Check> {
        let Plain { norm, of_x } = plain;
        // An infinite element of x does not reach the residual if its column of A is empty.
        if !norm.is_finite() || !of_x.is_finite() {
            return Some(Check::plain(f64::NAN, false));
        }
        let known = self.prepared.and_then(|prepared| prepared.norm);
        let of_values = known.unwrap_or_else(|| frobenius_norm(self.values));
        let norms = [of_values, of_x, limits.rhs_norm];
        plainly::<T>(self.sizes(), norms, norm, limits.threshold)
            .filter(|&passed| passed || limits.floor.is_none())
            .map(|passed| Check::plain(norm, passed))
    }

    fn sizes(&self) -> Sizes {
        self.prepared.map_or_else(|| Sizes::of(self.pattern), |p| p.matrix.sizes())
    }

    /// Judges x by `magnitude`, the size of the numbers that cancel in its residual, and where this
    /// does not decide, by a residual of twofold precision.
    fn judge_closely(
        &self,
        norm: f64,
        magnitude: f64,
        limits: Limits,
        twofold: impl FnOnce(&mut [T]) -> Option<Evaluated>,
        x: &[T],
        r: &mut [T],
    ) -> Check {
        by_magnitude::<T>(self.sizes(), norm, magnitude, limits).unwrap_or_else(|| {
            let evaluated = twofold(r)
                .unwrap_or_else(|| residual_twofold(self.pattern, self.values, x, self.b, r));
            by_twofold::<T>(evaluated, magnitude, limits)
        })
    }

    /// Restores the initial guess (0 if `None`) of a system that did not converge, unless x, whose
    /// residual `check` holds, is clearly better. If the guess is restored, `check` and `r` become
    /// those of the guess.
    pub fn keep_better(
        &self,
        entry: &Entry,
        guess: Option<&[T]>,
        check: &mut Check,
        x: &mut [T],
        r: &mut [T],
    ) {
        if check.is_clearly_better_than(entry) {
            return;
        }
        match guess {
            Some(guess) => x.copy_from_slice(guess),
            None => x.fill(T::ZERO),
        }
        *check = self.check(entry, x, r);
        // The guess was judged on entry.
        (check.passed, check.floor_passed) = (false, false);
    }
}

impl<T: Scalar> System<'_, T> {
    /// Checks the outcome of a solve that ran elsewhere, such as on a GPU, against these rules, and
    /// corrects it. The residual of a system reported as converged is evaluated again; the system
    /// becomes `Stagnated` unless that residual passes with its rounding error counted. A system
    /// that did not converge gets its initial guess back (0 if `None`) unless its x is better.
    /// Cost: one or two products; [`keeps_rules`] tells where nothing has to be done.
    pub fn confirm(&self, guess: Option<&[T]>, x: &mut [T], outcome: &mut Outcome) {
        let limits = Limits {
            threshold: threshold(self.number, self.criteria, outcome.rhs_norm),
            rhs_norm: norm2(self.b),
            floor: self.criteria.floor,
        };
        let converged = outcome.status == Status::Converged;
        let mut r = vec![T::ZERO; x.len()];
        let mut check = self.check_against(limits, x, &mut r);
        if converged && (check.passed || check.floor_passed) {
            outcome.residual_norm = check.residual_norm;
            outcome.accepted_by_floor = check.floor_passed;
            return;
        }
        if converged {
            (outcome.status, outcome.accepted_by_floor) = (Status::Stagnated, false);
        }
        let mut start = guess.map_or_else(|| vec![T::ZERO; x.len()], <[T]>::to_vec);
        let entry = self.enter(&mut start, &mut r);
        self.keep_better(&entry, Some(&start), &mut check, x, &mut r);
        outcome.residual_norm = check.residual_norm;
    }
}

/// Whether the outcome of a solve that ran elsewhere keeps the rules for certain, as nearly every
/// converged system does: its residual norm passes together with the error bound that the norms of
/// the values and of x give. `sizes` are those of the pattern, `number` is the index of the system
/// in its batch.
pub fn keeps_rules<T: Scalar>(
    number: usize,
    criteria: &Criteria,
    sizes: Sizes,
    [norm_of_values, norm_of_x]: [f64; 2],
    outcome: &Outcome,
) -> bool {
    let threshold = threshold(number, criteria, outcome.rhs_norm);
    let norms = [norm_of_values, norm_of_x, outcome.rhs_norm];
    outcome.status == Status::Converged
        && !outcome.accepted_by_floor
        && plainly::<T>(sizes, norms, outcome.residual_norm, threshold) == Some(true)
}

/// The verdict of the plain evaluation alone, from the `norm` of the residual and the norms of the
/// values, of x and of b: `Some(true)` if it passes, `Some(false)` if it clearly fails, `None`
/// where its error may be too large to tell.
pub fn plainly<T: Scalar>(
    sizes: Sizes,
    [values, x, b]: [f64; 3],
    norm: f64,
    threshold: f64,
) -> Option<bool> {
    // || |A||x| || <= ||A||_F ||x||.
    let error = sizes.error_of_plain::<T>(values * x + b, norm);
    if norm + error <= threshold {
        Some(true)
    } else if fails_clearly(norm, error, threshold) {
        Some(false)
    } else {
        None
    }
}

/// The verdict on a residual `norm` of the plain evaluation by `magnitude`, which is
/// `|| |A||x| + |b| ||_2`; `None` where that does not decide, so that the residual has to be
/// evaluated with twofold precision.
pub fn by_magnitude<T: Scalar>(
    sizes: Sizes,
    norm: f64,
    magnitude: f64,
    limits: Limits,
) -> Option<Check> {
    let error = sizes.error_of_plain::<T>(magnitude, norm);
    if norm + error <= limits.threshold {
        return Some(Check::plain(norm, true));
    }
    let largest = limits.threshold.max(limits.floor_of::<T>(magnitude));
    fails_clearly(norm, error, largest).then(|| Check::plain(norm, false))
}

/// The verdict on a residual that was evaluated with twofold precision; `magnitude` as in
/// [`by_magnitude`].
pub fn by_twofold<T: Scalar>(evaluated: Evaluated, magnitude: f64, limits: Limits) -> Check {
    let Evaluated { norm, error } = evaluated;
    if !norm.is_finite() {
        return Check::plain(f64::NAN, false);
    }
    let passed = norm + error <= limits.threshold;
    Check {
        residual_norm: norm,
        passed,
        floor_passed: !passed && norm + error <= limits.floor_of::<T>(magnitude),
        is_accurate: error <= ROUGH * norm,
    }
}

/// Whether a residual exceeds `threshold` by more than its error bound and is accurate enough to
/// compare iterates.
fn fails_clearly(norm: f64, error: f64, threshold: f64) -> bool {
    norm - error > threshold && error <= ROUGH * norm
}

/// `max(abs_tol, rel_tol * ||b||_2)` of a system.
pub fn threshold(number: usize, criteria: &Criteria, rhs_norm: f64) -> f64 {
    criteria.abs_tol.get(number).max(criteria.rel_tol.get(number) * rhs_norm)
}

impl Entry {
    /// Decides whether a system needs iterations at all, from the norms of its right-hand side and
    /// of its residual. `passed` tells whether that residual passes, its evaluation error included.
    pub fn new(
        number: usize,
        criteria: &Criteria,
        rhs_norm: f64,
        mut residual_norm: f64,
        passed: bool,
    ) -> Self {
        let threshold = threshold(number, criteria, rhs_norm);
        let status = if !residual_norm.is_finite() || !rhs_norm.is_finite() {
            residual_norm = f64::NAN;
            Some(Status::NonFinite)
        } else if passed {
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
        scale_for_squares::<T>(self.rhs_norm)
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
    /// The check where the plain evaluation decides: x passes, or clearly fails.
    pub fn plain(residual_norm: f64, passed: bool) -> Self {
        let is_accurate = residual_norm.is_finite();
        Self { residual_norm, passed, floor_passed: false, is_accurate }
    }

    /// Whether the x that was checked is better than the initial guess by more than the errors of both
    /// evaluations. For an x near 1e30, as singular matrices yield it, even twofold precision does
    /// not determine the residual.
    pub fn is_clearly_better_than(&self, entry: &Entry) -> bool {
        self.is_accurate && self.residual_norm <= (1.0 - 4.0 * ROUGH) * entry.residual_norm
    }

    /// The status of a system that stopped, or `None` when it is to restart from its true residual.
    /// It restarts if restarts and iterations are left and either the recurrence passed but the
    /// true residual did not, or BiCGStab broke down.
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
