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
use sparsebatch_solvers::gpu::{Step, StepVector};

use super::run::{OnGpu, Run, Settled};
use super::vectors::{axpby, dot, zeros};
use crate::{Failure, MpiError};

/// What BiCGStab does with the vectors of a rank, on a CPU or a GPU. Sums are those of this rank; what
/// fails is told to the others with the next sum.
pub(super) trait Steps<T: CpuScalar> {
    /// Starts from the residual in `run.r`, which is the shadow residual as well; `p = v = 0`: `r'r`.
    fn start(&mut self, run: &mut Run<'_, '_, '_, T>) -> f64;

    /// `p = r + beta (p - omega v)`, `p_hat = M p`, `v = A p_hat`: the product of v and the shadow
    /// residual.
    fn direct(&mut self, run: &mut Run<'_, '_, '_, T>, beta: f64, omega: f64) -> f64;

    /// `s = r - alpha v`, `s_hat = M s`, `t = A s_hat`: `t's`, `t't` and `s's`.
    fn half(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64) -> [f64; 3];

    /// `x += alpha p_hat + omega s_hat`, `r = s - omega t`: `r'r`, and the product of r and the shadow
    /// residual.
    fn advance(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64, omega: f64) -> [f64; 2];

    /// x on the host.
    fn x(&mut self, run: &mut Run<'_, '_, '_, T>) -> &mut [T];
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
    run: &mut Run<'_, '_, '_, T>,
    steps: &mut dyn Steps<T>,
) -> Result<(), MpiError> {
    let mut c = start(run, steps)?;
    loop {
        run.heed_watch();
        let stop = half(run, steps, &mut c)?;
        let own = steps.advance(run, c.alpha, c.omega);
        let [rr, next_rho] = run.sums.sum(own)?;
        run.count(rr);
        let stop = stop.or_else(|| stop_at_end::<T>(run, rr, next_rho, c.shadow_square));
        c.beta = (next_rho / c.rho) * (c.alpha / c.omega);
        c.rho = next_rho;
        if let Some(stop) = stop {
            let x = steps.x(run);
            if run.settle(stop, x)? == Settled::Ended {
                return Ok(());
            }
            c = start(run, steps)?;
        }
    }
}

fn start<T: CpuScalar>(
    run: &mut Run<'_, '_, '_, T>,
    steps: &mut dyn Steps<T>,
) -> Result<Scalars, MpiError> {
    let own = steps.start(run);
    let [rho] = run.sums.sum([own])?;
    Ok(Scalars { rho, shadow_square: rho, ..Scalars::default() })
}

/// The first half of an iteration, up to `omega`; returns why the solve stops in the middle of it,
/// if it does, where `omega` is 0.
fn half<T: CpuScalar>(
    run: &mut Run<'_, '_, '_, T>,
    steps: &mut dyn Steps<T>,
    c: &mut Scalars,
) -> Result<Option<Stop>, MpiError> {
    let own = steps.direct(run, c.beta, c.omega);
    let [shadow_v] = run.sums.sum([own])?;
    c.alpha = if vanishes(shadow_v) { 0.0 } else { c.rho / shadow_v };
    let own = steps.half(run, c.alpha);
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

/// Vectors in the memory of a CPU.
pub(super) struct OnCpu<'x, T> {
    x: &'x mut [T],
    p: Vec<T>,
    v: Vec<T>,
    t: Vec<T>,
    p_hat: Vec<T>,
    s_hat: Vec<T>,
    shadow: Vec<T>,
}

impl<'x, T: CpuScalar> OnCpu<'x, T> {
    /// # Errors
    /// Where there is no memory.
    pub(super) fn new(x: &'x mut [T]) -> Result<Self, Failure> {
        let len = x.len();
        let vector = || zeros(len);
        let (p, v, t) = (vector()?, vector()?, vector()?);
        Ok(Self { x, p, v, t, p_hat: vector()?, s_hat: vector()?, shadow: vector()? })
    }
}

impl<T: CpuScalar> Steps<T> for OnCpu<'_, T> {
    fn start(&mut self, run: &mut Run<'_, '_, '_, T>) -> f64 {
        self.shadow.copy_from_slice(&run.r);
        self.p.fill(T::ZERO);
        self.v.fill(T::ZERO);
        dot(&run.r, &run.r)
    }

    fn direct(&mut self, run: &mut Run<'_, '_, '_, T>, beta: f64, omega: f64) -> f64 {
        axpby(-omega, &self.v, 1.0, &mut self.p);
        axpby(1.0, &run.r, beta, &mut self.p);
        run.precondition(&self.p, &mut self.p_hat);
        run.product(&self.p_hat, &mut self.v);
        dot(&self.v, &self.shadow)
    }

    fn half(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64) -> [f64; 3] {
        axpby(-alpha, &self.v, 1.0, &mut run.r);
        run.precondition_residual(&mut self.s_hat);
        run.product(&self.s_hat, &mut self.t);
        [dot(&self.t, &run.r), dot(&self.t, &self.t), dot(&run.r, &run.r)]
    }

    fn advance(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64, omega: f64) -> [f64; 2] {
        axpby(alpha, &self.p_hat, 1.0, self.x);
        axpby(omega, &self.s_hat, 1.0, self.x);
        axpby(-omega, &self.t, 1.0, &mut run.r);
        [dot(&run.r, &run.r), dot(&run.r, &self.shadow)]
    }

    fn x(&mut self, _: &mut Run<'_, '_, '_, T>) -> &mut [T] {
        self.x
    }
}

impl<T: CpuScalar> Steps<T> for OnGpu<'_, T> {
    fn start(&mut self, run: &mut Run<'_, '_, '_, T>) -> f64 {
        run.load_residual();
        let [square] = run.sums_on_gpu(Step::BiCgStabStart);
        square
    }

    fn direct(&mut self, run: &mut Run<'_, '_, '_, T>, beta: f64, omega: f64) -> f64 {
        let (beta, omega) = (T::from_f64(beta), T::from_f64(omega));
        run.step_on_gpu(Step::BiCgStabDirect { beta, omega });
        run.precondition_on_gpu(StepVector::P, StepVector::PHat);
        run.product_on_gpu(StepVector::PHat, StepVector::V);
        let [shadow_v] = run.sums_on_gpu(Step::BiCgStabShadow);
        shadow_v
    }

    fn half(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64) -> [f64; 3] {
        run.step_on_gpu(Step::BiCgStabHalf { alpha: T::from_f64(alpha) });
        run.precondition_on_gpu(StepVector::R, StepVector::SHat);
        run.product_on_gpu(StepVector::SHat, StepVector::T);
        run.sums_on_gpu(Step::BiCgStabMiddle)
    }

    fn advance(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64, omega: f64) -> [f64; 2] {
        let (alpha, omega) = (T::from_f64(alpha), T::from_f64(omega));
        run.sums_on_gpu(Step::BiCgStabAdvance { alpha, omega })
    }

    fn x(&mut self, run: &mut Run<'_, '_, '_, T>) -> &mut [T] {
        self.load(run)
    }
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
