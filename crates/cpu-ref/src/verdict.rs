//! The rules by which every solver of the library judges a system: on entry, and when its
//! iterations stop.

use sparsebatch_formats::{CsrPatternRef, Scalar};

use crate::lanes::LaneMatrix;
use crate::outcome::{Criteria, Outcome, Status};
use crate::residual::{
    Evaluated, exponent, finish_residual, pow2, residual, residual_magnitude, residual_twofold,
};
use crate::simd::{plain, plain_mut};

pub use crate::residual::{Sizes, by_power_of_two, frobenius_norm, norm2};

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
    /// What its solver has prepared; it changes the speed alone.
    pub(crate) prepared: Option<Prepared<'a>>,
}

/// What is known of the matrix of a system beforehand.
#[derive(Clone, Copy)]
pub(crate) struct Prepared<'a> {
    /// The pattern, prepared for products.
    pub(crate) matrix: &'a LaneMatrix,
    /// `||A||_F`, where it is known.
    pub(crate) norm: Option<f64>,
}

/// The norms of a residual as the plain evaluation has it, and of x.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    pub(crate) norm: f64,
    pub(crate) of_x: f64,
}

/// What is known of a residual beside the plain evaluation, made when it is asked for.
pub(crate) trait Elsewhere<T> {
    /// `|| |A||x| + |b| ||_2`, where it is known.
    fn magnitude(&self) -> Option<f64>;
    /// The residual as [`residual_twofold`] has it, in `r`; `None` where it was not evaluated.
    fn twofold(&self, r: &mut [T]) -> Option<Evaluated>;
}

/// What a residual is held against.
#[derive(Clone, Copy)]
struct Limits {
    threshold: f64,
    rhs_norm: f64,
    floor: Option<f64>,
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

/// The largest residual, relative to `||b||_2`, that a rounding floor accepts: in singular systems
/// `|A||x|` grows without bound.
pub const LARGEST_FLOOR: f64 = 1e-3;

/// A residual whose error may be larger than this, relative to its norm, is evaluated more accurately before
/// it says which of two iterates is better.
const ROUGH: f64 = 1e-3;

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

    /// That of CG, where `r'z` is not positive: a negative one says that the preconditioner, and so the matrix that it
    /// approximates, is not positive definite.
    pub fn not_positive<T: Scalar>(rho: T) -> Self {
        let negative = rho < T::ZERO;
        Self::failed(rho, if negative { Status::Indefinite } else { Status::BreakdownRho })
    }

    /// As [`Stop::broken`], where a restart is of no use.
    pub fn failed<T: Scalar>(value: T, status: Status) -> Self {
        Self::Failed(if value.is_finite() { status } else { Status::NonFinite })
    }
}

/// The true residual of an iterate, and what it says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check {
    /// `||b - A x||_2` as evaluated; NaN when it is not finite.
    pub residual_norm: f64,
    /// Together with a bound of its own error it passes the tolerance.
    pub passed: bool,
    /// It passes the rounding floor, where one is given.
    pub floor_passed: bool,
    /// The error of `residual_norm` is small beside it: at most a thousandth, unless it passed.
    pub is_accurate: bool,
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
            Some(Prepared { matrix, .. }) => {
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
        let from_zero = x.iter().all(|&v| v == T::ZERO);
        if !from_zero && rhs_norm.is_finite() {
            let norm = self.residual(x, r);
            let limits = Limits { threshold, rhs_norm, floor: None };
            let check = self.judge(norm, limits, x, r);
            return Entry::new(self.number, criteria, rhs_norm, check.residual_norm, check.passed);
        }
        // From x = 0 the residual is b, exactly. It is still computed where it alone decides, since a
        // matrix may hold NaN.
        let mut residual_norm = rhs_norm;
        if residual_norm <= threshold || !rhs_norm.is_finite() {
            residual_norm = self.residual(x, r);
        }
        Entry::new(self.number, criteria, rhs_norm, residual_norm, residual_norm <= threshold)
    }

    /// Recomputes `r = b - A x` and holds it against the threshold and the floor.
    ///
    /// A residual passes when its computed norm and a bound of the evaluation's own error do together.
    /// The plain evaluation decides where its bound is small beside the threshold, as it nearly always is;
    /// else the residual is evaluated with twofold precision.
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

    /// Judges x by the norm of `r = b - A x`, both as the plain evaluation has them. Where it evaluates the
    /// residual more accurately, r takes that.
    fn judge(&self, norm: f64, limits: Limits, x: &[T], r: &mut [T]) -> Check {
        let plain = Plain { norm, of_x: norm2(x) };
        self.judge_plain(plain, limits).unwrap_or_else(|| {
            let magnitude = residual_magnitude(self.pattern, self.values, x, self.b);
            self.judge_closely(norm, magnitude, limits, |_| None, x, r)
        })
    }

    /// [`System::check`] of an x whose residual was evaluated elsewhere: its norms, the residual, and its magnitude
    /// where that is known.
    pub(crate) fn check_evaluated(
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

    /// What the plain evaluation of a residual says by itself; `None` where its error may be too large.
    fn judge_plain(&self, plain: Plain, limits: Limits) -> Option<Check> {
        let Plain { norm, of_x } = plain;
        // An infinite x may be seen by no entry, where a column is empty.
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

    /// Judges x by the sizes of the numbers that cancel in its residual, and by twofold precision where these do
    /// not tell.
    fn judge_closely(
        &self,
        norm: f64,
        magnitude: f64,
        limits: Limits,
        twofold: impl FnOnce(&mut [T]) -> Option<Evaluated>,
        x: &[T],
        r: &mut [T],
    ) -> Check {
        let Limits { threshold, rhs_norm, floor } = limits;
        let sizes = self.sizes();
        let error = sizes.error_of_plain::<T>(magnitude, norm);
        if norm + error <= threshold {
            return Check::plain(norm, true);
        }
        // Negative where there is none.
        let floor = floor.filter(|_| magnitude.is_finite()).map_or(-1.0, |floor| {
            (floor * T::EPSILON.to_f64() * magnitude).min(LARGEST_FLOOR * rhs_norm)
        });
        if fails_clearly(norm, error, threshold.max(floor)) {
            return Check::plain(norm, false);
        }
        let Evaluated { norm, error } =
            twofold(r).unwrap_or_else(|| residual_twofold(self.pattern, self.values, x, self.b, r));
        if !norm.is_finite() {
            return Check::plain(f64::NAN, false);
        }
        let passed = norm + error <= threshold;
        Check {
            residual_norm: norm,
            passed,
            floor_passed: !passed && norm + error <= floor,
            is_accurate: error <= ROUGH * norm,
        }
    }

    /// Gives a system that did not converge its guess back (0 where there is none), unless x, whose residual
    /// `check` holds, is clearly better. r takes the residual of what x is then.
    pub fn keep_better(
        &self,
        entry: &Entry,
        guess: Option<&[T]>,
        check: &mut Check,
        x: &mut [T],
        r: &mut [T],
    ) {
        // By more than what both evaluations may be wrong by. Of an x of 1e30, as singular matrices leave it, even
        // twice the precision does not tell the residual.
        if check.is_accurate && check.residual_norm <= (1.0 - 4.0 * ROUGH) * entry.residual_norm {
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
    /// Holds the outcome of a solve that ran elsewhere, such as on a GPU, against these rules, and changes what does
    /// not keep them: a system that converged by a residual which its rounding error may exceed is evaluated again and
    /// is `Stagnated` unless it passes; one that did not converge gets its guess back (0 where there is none) unless
    /// its x is better. Cost: a product or two; [`keeps_rules`] tells where there is nothing to do.
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

/// Whether the outcome of a solve that ran elsewhere keeps the rules for sure, as that of nearly every system that
/// converged does: its residual passes together with the bound of its error that the norms of the values and of x
/// give. `sizes` are those of the pattern, `number` is that of the system in its batch.
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

/// What the plain evaluation of a residual, whose norm this is, says by itself, given the norms of the values,
/// of x and of b: that it passes, that it does not, or neither, where its error may be too large.
pub(crate) fn plainly<T: Scalar>(
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

/// Whether a residual exceeds a threshold whatever its error is, and is accurate enough to be compared.
fn fails_clearly(norm: f64, error: f64, threshold: f64) -> bool {
    norm - error > threshold && error <= ROUGH * norm
}

/// `max(abs_tol, rel_tol * ||b||_2)` of a system.
pub(crate) fn threshold(number: usize, criteria: &Criteria, rhs_norm: f64) -> f64 {
    criteria.abs_tol.get(number).max(criteria.rel_tol.get(number) * rhs_norm)
}

impl Entry {
    /// Decides whether a system needs iterations at all, by the norms of its right-hand side and of its
    /// residual, and whether that passes, the error of its evaluation counted.
    pub(crate) fn new(
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

/// Exponents of up to this size leave squares in the range of `T`.
fn safe_exponent<T: Scalar>() -> i32 {
    if T::NAME == "f64" { 200 } else { 20 }
}

/// The exponent e such that `norm * 2^-e` is about 1: 0 unless squares of such numbers might leave the range
/// of `T`.
pub fn scale_for_squares<T: Scalar>(norm: f64) -> i32 {
    // Within the second bound `2^e` and `2^-e` are values of T.
    let (safe, largest) = (safe_exponent::<T>(), if T::NAME == "f64" { 1000 } else { 120 });
    if !(norm > 0.0 && norm.is_finite()) {
        return 0;
    }
    let exponent = exponent(norm);
    if exponent.abs() <= safe { 0 } else { exponent.clamp(-largest, largest) }
}

/// [`scale_of_matrix`], given the norm of the values, which nearly always tells.
pub(crate) fn scale_by_norm<T: Scalar>(norm: f64, values: &[T]) -> i32 {
    let safe = pow2(safe_exponent::<T>());
    // The largest entry is at most the norm, and at least the norm over the root of their number.
    let least = norm / (values.len() as f64).sqrt();
    if norm < safe && least > 1.0 / safe { 0 } else { scale_of_matrix(values) }
}

/// The exponent e such that solvers work on `A * 2^-e`: 0 unless squares of products with the largest entry might
/// leave the range of `T`, or where the smallest one would leave it by that.
pub fn scale_of_matrix<T: Scalar>(values: &[T]) -> i32 {
    let (mut largest, mut smallest) = (0.0f64, f64::INFINITY);
    for value in values {
        let size = value.to_f64().abs();
        largest = largest.max(size);
        smallest = if size > 0.0 { smallest.min(size) } else { smallest };
    }
    let scale = scale_for_squares::<T>(largest);
    let reach = if T::NAME == "f64" { 900 } else { 100 };
    if exponent(smallest) - scale < -reach { 0 } else { scale }
}

impl Check {
    /// What the plain evaluation decides: x passes, or fails clearly.
    fn plain(residual_norm: f64, passed: bool) -> Self {
        let is_accurate = residual_norm.is_finite();
        Self { residual_norm, passed, floor_passed: false, is_accurate }
    }

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
        let check = |residual_norm: f64, passed| Check {
            residual_norm,
            passed,
            floor_passed: false,
            is_accurate: true,
        };
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
            let entry = Entry { rhs_norm: 1.0, threshold: 0.0, residual_norm: 1.0, status: None };
            system.check(&entry, &[x], &mut [0.0])
        };
        let near = 1.0 / 3.0 + f64::EPSILON;

        assert!(!check(None, near).floor_passed);
        assert!(check(Some(4.0), near).floor_passed);
        assert!(!check(Some(4.0), near).passed);
        assert!(!check(Some(4.0), 0.3333).floor_passed);
        assert!(!check(Some(4.0), f64::NAN).floor_passed);
    }
}
