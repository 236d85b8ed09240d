//! The rules that a verdict must not break.

use std::fmt;

use sparsebatch::{Scalar, SolveOptions, Status, SystemReport};

use super::exact::{magnitude, norm, passes, residual_norm};
use super::families::{Family, System};

/// Tolerance for the rounding of norms and thresholds, which verdicts do not promise to resolve.
const ROUNDING: f64 = 1.0 + 1e-12;

/// A wrong verdict.
#[derive(Clone, Debug)]
pub struct Misreport {
    /// The number of the batch, from which the batch can be generated again.
    pub batch: u64,
    /// The index of the system in the batch.
    pub place: u64,
    /// `"f64"` or `"f32"`.
    pub precision: &'static str,
    /// A description of the fault.
    pub what: String,
}

impl fmt::Display for Misreport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch, place, precision, what } = self;
        write!(f, "batch {batch}, system {place}, {precision}: {what}")
    }
}

/// Checks the verdict on a system against its residual in twice the precision, and with `is_exact`
/// against the exact residual.
///
/// # Errors
/// A description of the fault: `Converged` with a residual that does not pass; an x that is not
/// finite, or worse than the guess; a reported residual that is not that of x; a well-posed system
/// that the default options do not solve.
pub fn judge<T: Scalar>(
    system: &System<T>,
    options: &SolveOptions,
    x: &[T],
    ended: &SystemReport,
    is_exact: bool,
) -> Result<(), String> {
    let System { family, matrix, b, x0 } = system;
    let outcome = &ended.outcome;
    let wrong = |what: String| {
        let method = options.method;
        Err(format!("{} by {method}, {} at {}: {what}", family.name(), outcome.status, ended.rung))
    };
    let wide = |v: &[T]| v.iter().map(|v| v.to_f64()).collect::<Vec<f64>>();
    let rhs_norm = norm(wide(b));
    let residual = residual_norm(matrix, x, b);
    let threshold = options.abs_tol.get(0).max(options.rel_tol_of::<T>(0) * rhs_norm);
    if outcome.status == Status::Converged {
        let limit = match (outcome.accepted_by_floor, options.floor) {
            (false, _) => threshold,
            (true, None) => return wrong("accepted by a floor that nobody asked for".to_owned()),
            (true, Some(floor)) => {
                let size = magnitude(matrix, x, b);
                (floor * T::EPSILON.to_f64() * size).min(1e-3 * rhs_norm)
            }
        };
        // Subnormal numbers are spaced by 5e-324, so the limit may be off by that.
        let passed = residual <= limit * ROUNDING || residual <= limit + 5e-324;
        if !passed {
            return wrong(format!("residual {residual:e}, expected {limit:e} at most"));
        }
        if is_exact && !outcome.accepted_by_floor && !passes(matrix, x, b, limit * ROUNDING) {
            return wrong(format!("the exact residual is above {limit:e}"));
        }
    } else {
        let is_finite = |v: &[T]| v.iter().all(|v| v.is_finite());
        if is_finite(x0) && !is_finite(x) {
            return wrong("x is not finite, though the guess is".to_owned());
        }
        let start = if rhs_norm == 0.0 { vec![T::ZERO; b.len()] } else { x0.clone() };
        let before = residual_norm(matrix, &start, b);
        if before.is_finite() && (residual.is_nan() || residual > before * ROUNDING) {
            return wrong(format!("residual {residual:e}, of the guess {before:e}"));
        }
    }
    // The solver reports a residual in the working precision where that does not affect the
    // verdict: it may be off by a thousandth, or by a few rounding errors.
    let reported = outcome.residual_norm;
    // Double-double residuals have errors of their own.
    let errors = 1e-30 * magnitude(matrix, x, b);
    let room = 2e-3 * residual + threshold + f64::MIN_POSITIVE + errors;
    if residual.is_finite() && reported.is_finite() && (reported - residual).abs() > room {
        return wrong(format!("residual {residual:e}, reported {reported:e}"));
    }
    let well_posed = matches!(family, Family::Dominant | Family::Positive | Family::Permuted);
    let usual = options.fallback && options.rel_tol.is_none();
    if well_posed && usual && outcome.status != Status::Converged {
        let guess = norm(wide(x0));
        // With a guess of 1e8, the rounding of the guess itself may limit the reachable residual.
        if guess < 1e3 {
            return wrong(format!("not solved, residual {residual:e} of {rhs_norm:e}"));
        }
    }
    Ok(())
}
