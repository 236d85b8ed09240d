//! Right-preconditioned BiCGStab over ranks.
//!
//! H. A. van der Vorst 1992, doi:10.1137/0913035. An iteration has two products and three sums over
//! ranks: one of `r^'v`, one of `t's`, `t't` and `s's`, one of `r'r` and `r^'r`, where `s` is the
//! residual in the middle of the iteration, `t` its product with the preconditioned matrix, and `r^`
//! the shadow residual.

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_formats::Scalar;
use sparsebatch_solve_core::Status;
use sparsebatch_solve_core::verdict::Stop;

use super::run::{Run, Settled};
use super::vectors::{axpby, dot, zeros};
use crate::{Failure, MpiError, Ranks};

struct Vectors<T> {
    p: Vec<T>,
    v: Vec<T>,
    t: Vec<T>,
    p_hat: Vec<T>,
    s_hat: Vec<T>,
    shadow: Vec<T>,
}

impl<T: CpuScalar> Vectors<T> {
    fn new(len: usize) -> Result<Self, Failure> {
        let vector = || zeros(len);
        let (p, v, t) = (vector()?, vector()?, vector()?);
        Ok(Self { p, v, t, p_hat: vector()?, s_hat: vector()?, shadow: vector()? })
    }
}

#[derive(Clone, Copy, Default)]
struct Scalars {
    rho: f64,
    alpha: f64,
    beta: f64,
    omega: f64,
    /// The square of the shadow residual.
    shadow_square: f64,
}

/// BiCGStab from the residual in `run.r`.
pub(super) fn bicgstab<T: CpuScalar>(
    ranks: &Ranks,
    run: &mut Run<'_, '_, '_, T>,
    x: &mut [T],
) -> Result<(), MpiError> {
    if run.has_ended() {
        return Ok(());
    }
    let mut v = ranks.agree(Vectors::new(x.len()))?;
    let mut c = start(run, &mut v)?;
    loop {
        run.heed_watch();
        let stop = half(run, &mut v, &mut c)?;
        axpby(c.alpha, &v.p_hat, 1.0, x);
        axpby(c.omega, &v.s_hat, 1.0, x);
        axpby(-c.omega, &v.t, 1.0, &mut run.r);
        let own = [dot(&run.r, &run.r), dot(&run.r, &v.shadow)];
        let [rr, next_rho] = run.sums.sum(own)?;
        run.count(rr);
        let stop = stop.or_else(|| stop_at_end::<T>(run, rr, next_rho, c.shadow_square));
        c.beta = (next_rho / c.rho) * (c.alpha / c.omega);
        c.rho = next_rho;
        if let Some(stop) = stop {
            if run.settle(stop, x)? == Settled::Ended {
                return Ok(());
            }
            c = start(run, &mut v)?;
        }
    }
}

/// Starts from the residual, which is the shadow residual as well.
fn start<T: CpuScalar>(
    run: &mut Run<'_, '_, '_, T>,
    v: &mut Vectors<T>,
) -> Result<Scalars, MpiError> {
    v.shadow.copy_from_slice(&run.r);
    v.p.fill(T::ZERO);
    v.v.fill(T::ZERO);
    let [rho] = run.sums.sum([dot(&run.r, &run.r)])?;
    Ok(Scalars { rho, shadow_square: rho, ..Scalars::default() })
}

/// The first half of an iteration, up to `omega`; returns why the solve stops in the middle of it,
/// if it does, where `omega` is 0.
fn half<T: CpuScalar>(
    run: &mut Run<'_, '_, '_, T>,
    v: &mut Vectors<T>,
    c: &mut Scalars,
) -> Result<Option<Stop>, MpiError> {
    axpby(-c.omega, &v.v, 1.0, &mut v.p);
    axpby(1.0, &run.r, c.beta, &mut v.p);
    run.precondition(&v.p, &mut v.p_hat);
    run.product(&v.p_hat, &mut v.v);
    let [shadow_v] = run.sums.sum([dot(&v.v, &v.shadow)])?;
    c.alpha = if vanishes(shadow_v) { 0.0 } else { c.rho / shadow_v };
    axpby(-c.alpha, &v.v, 1.0, &mut run.r);
    run.precondition_residual(&mut v.s_hat);
    run.product(&v.s_hat, &mut v.t);
    let own = [dot(&v.t, &run.r), dot(&v.t, &v.t), dot(&run.r, &run.r)];
    let [ts, tt, ss] = run.sums.sum(own)?;
    c.omega = 0.0;
    if vanishes(shadow_v) {
        return Ok(Some(Stop::broken(shadow_v, Status::BreakdownAlpha)));
    }
    if ss <= run.square {
        return Ok(Some(Stop::Passed));
    }
    let is_positive = tt > 0.0;
    if vanishes(ts) || !is_positive {
        return Ok(Some(Stop::broken(ts + tt, Status::BreakdownOmega)));
    }
    c.omega = ts / tt;
    Ok(None)
}

/// Why the solve stops at the end of an iteration, if it does.
fn stop_at_end<T: Scalar + CpuScalar>(
    run: &Run<'_, '_, '_, T>,
    rr: f64,
    next_rho: f64,
    shadow_square: f64,
) -> Option<Stop> {
    let epsilon = T::EPSILON.to_f64();
    if rr <= run.square {
        Some(Stop::Passed)
    } else if !rr.is_finite() {
        Some(Stop::Failed(Status::NonFinite))
    } else if next_rho * next_rho <= epsilon * epsilon * (shadow_square * rr) {
        Some(Stop::Broken(Status::BreakdownRho))
    } else if !run.iterations_left() {
        Some(Stop::Failed(Status::MaxIterations))
    } else {
        None
    }
}

/// Zero or NaN.
fn vanishes(value: f64) -> bool {
    value.partial_cmp(&0.0).is_none_or(std::cmp::Ordering::is_eq)
}
