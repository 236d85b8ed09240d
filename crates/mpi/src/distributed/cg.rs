//! Conjugate gradients over ranks, plain and pipelined.
//!
//! Plain: Hestenes and Stiefel 1952 (doi:10.6028/jres.049.044) with preconditioner. An iteration has
//! one product and two sums over ranks: p'Ap, then r'r and r'z together; the preconditioner is applied
//! before it is known whether the iteration was the last, so that both go in one sum.
//!
//! Pipelined: Ghysels and Vanroose, Hiding global synchronization latency in the preconditioned
//! Conjugate Gradient algorithm, 2014, doi:10.1016/j.parco.2013.06.001, algorithm 4. An iteration has
//! one sum, of three numbers, which travels while the preconditioner and the product of the next
//! iteration are computed; four vectors more are held and updated, and recurrences for `M r` and
//! `A M r` lose accuracy. Where the recurrence's residual passes and the true one does not, the solve
//! restarts from the latter, as everywhere.

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_solve_core::Status;
use sparsebatch_solve_core::verdict::Stop;

use super::run::{Run, Settled};
use super::vectors::{axpby, dot, zeros};
use crate::{MpiError, Ranks};

/// CG from the residual in `run.r`.
pub(super) fn cg<T: CpuScalar>(
    ranks: &Ranks,
    run: &mut Run<'_, '_, '_, T>,
    x: &mut [T],
) -> Result<(), MpiError> {
    if run.has_ended() {
        return Ok(());
    }
    let vectors = || Ok((zeros(x.len())?, zeros(x.len())?, zeros(x.len())?));
    let (mut p, mut ap, mut z) = ranks.agree(vectors())?;
    run.precondition_residual(&mut z);
    let [mut rho] = run.sums.sum([dot(&run.r, &z)])?;
    if !is_positive(rho) {
        return run.settle(Stop::not_positive(rho), x).map(drop);
    }
    p.copy_from_slice(&z);
    loop {
        run.heed_watch();
        run.product(&p, &mut ap);
        let [curvature] = run.sums.sum([dot(&ap, &p)])?;
        let alpha = if curvature > 0.0 { rho / curvature } else { 0.0 };
        axpby(alpha, &p, 1.0, x);
        axpby(-alpha, &ap, 1.0, &mut run.r);
        let (rr, mut rz) = squares(run, &mut z)?;
        run.count(rr);
        let mut restarted = false;
        if let Some(stop) = stop_of(run, curvature, rr) {
            if run.settle(stop, x)? == Settled::Ended {
                return Ok(());
            }
            restarted = true;
            (_, rz) = squares(run, &mut z)?;
        }
        if !is_positive(rz) {
            return run.settle(Stop::not_positive(rz), x).map(drop);
        }
        axpby(1.0, &z, if restarted { 0.0 } else { rz / rho }, &mut p);
        rho = rz;
    }
}

/// `z = M r`, and the sums `r'r` and `r'z`, which are the same without a preconditioner.
fn squares<T: CpuScalar>(
    run: &mut Run<'_, '_, '_, T>,
    z: &mut [T],
) -> Result<(f64, f64), MpiError> {
    run.precondition_residual(z);
    let own = dot(&run.r, &run.r);
    if run.is_preconditioned() {
        let [rr, rz] = run.sums.sum([own, dot(&run.r, z)])?;
        return Ok((rr, rz));
    }
    let [rr] = run.sums.sum([own])?;
    Ok((rr, rr))
}

/// Why an iteration is the last, if it is, by `p'Ap` and `r'r`.
fn stop_of<T: CpuScalar>(run: &Run<'_, '_, '_, T>, curvature: f64, rr: f64) -> Option<Stop> {
    let is_good = is_positive(curvature);
    if rr <= run.square && is_good {
        Some(Stop::Passed)
    } else if !rr.is_finite() {
        Some(Stop::Failed(Status::NonFinite))
    } else if !is_good {
        Some(Stop::failed(curvature, Status::Indefinite))
    } else if !run.iterations_left() {
        Some(Stop::Failed(Status::MaxIterations))
    } else {
        None
    }
}

/// The vectors of pipelined CG beside x and r, named as in its source.
struct Pipeline<T> {
    /// `M r` and `A M r`.
    u: Vec<T>,
    w: Vec<T>,
    /// `M w` and `A M w`.
    m: Vec<T>,
    n: Vec<T>,
    /// The direction, and its products `A p`, `M A p` and `A M A p`.
    p: Vec<T>,
    s: Vec<T>,
    q: Vec<T>,
    z: Vec<T>,
}

/// Pipelined CG from the residual in `run.r`.
pub(super) fn pipelined<T: CpuScalar>(
    ranks: &Ranks,
    run: &mut Run<'_, '_, '_, T>,
    x: &mut [T],
) -> Result<(), MpiError> {
    if run.has_ended() {
        return Ok(());
    }
    let mut v = ranks.agree(Pipeline::new(x.len()))?;
    v.start(run);
    // `r'M r` and the step of the last iteration since the start or the last restart.
    let mut last: Option<(f64, f64)> = None;
    let mut is_counted = true;
    loop {
        run.heed_watch();
        let own = [dot(&run.r, &v.u), dot(&v.w, &v.u), dot(&run.r, &run.r)];
        let [gamma, delta, rr] = v.sum_during_product(run, own)?;
        if !is_counted {
            run.count(rr);
        }
        let (beta, curvature) = match last {
            None => (0.0, delta),
            Some((gamma_before, alpha)) => {
                let beta = gamma / gamma_before;
                (beta, delta - beta * gamma / alpha)
            }
        };
        // The residual of the start was tested on entry.
        let passed = (!is_counted && rr <= run.square).then_some(Stop::Passed);
        let failed = || {
            if !rr.is_finite() {
                Some(Stop::Failed(Status::NonFinite))
            } else if !run.iterations_left() {
                Some(Stop::Failed(Status::MaxIterations))
            } else if !is_positive(gamma) {
                Some(Stop::not_positive(gamma))
            } else if !is_positive(curvature) {
                // By rounding errors of the recurrences too, which a restart removes.
                let is_first = last.is_none();
                let status = Status::Indefinite;
                Some(if is_first { Stop::failed(curvature, status) } else { Stop::Broken(status) })
            } else {
                None
            }
        };
        if let Some(stop) = passed.or_else(failed) {
            if run.settle(stop, x)? == Settled::Ended {
                return Ok(());
            }
            v.start(run);
            (last, is_counted) = (None, true);
            continue;
        }
        let alpha = gamma / curvature;
        v.step(run, x, alpha, beta);
        (last, is_counted) = (Some((gamma, alpha)), false);
    }
}

impl<T: CpuScalar> Pipeline<T> {
    fn new(len: usize) -> Result<Self, crate::Failure> {
        let vector = || zeros(len);
        let (u, w, m, n) = (vector()?, vector()?, vector()?, vector()?);
        let (p, s, q, z) = (vector()?, vector()?, vector()?, vector()?);
        Ok(Self { u, w, m, n, p, s, q, z })
    }

    /// `u = M r`, `w = A u`.
    fn start(&mut self, run: &mut Run<'_, '_, '_, T>) {
        run.precondition_residual(&mut self.u);
        run.product(&self.u, &mut self.w);
    }

    /// Sums over ranks while `m = M w` and `n = A m` are computed.
    fn sum_during_product(
        &mut self,
        run: &mut Run<'_, '_, '_, T>,
        own: [f64; 3],
    ) -> Result<[f64; 3], MpiError> {
        let Self { w, m, n, .. } = self;
        run.sum_during(own, |run| {
            run.precondition(w, m);
            run.product(m, n);
        })
    }

    fn step(&mut self, run: &mut Run<'_, '_, '_, T>, x: &mut [T], alpha: f64, beta: f64) {
        axpby(1.0, &self.n, beta, &mut self.z);
        axpby(1.0, &self.m, beta, &mut self.q);
        axpby(1.0, &self.w, beta, &mut self.s);
        axpby(1.0, &self.u, beta, &mut self.p);
        axpby(alpha, &self.p, 1.0, x);
        axpby(-alpha, &self.s, 1.0, &mut run.r);
        axpby(-alpha, &self.q, 1.0, &mut self.u);
        axpby(-alpha, &self.z, 1.0, &mut self.w);
    }
}

/// False for NaN too.
fn is_positive(value: f64) -> bool {
    value > 0.0
}
