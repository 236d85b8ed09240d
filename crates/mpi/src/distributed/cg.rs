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
use crate::{Failure, MpiError, Ranks};

/// What CG does with the vectors of a rank, on a CPU or a GPU. Sums are those of this rank; what fails
/// is told to the others with the next sum.
pub(super) trait Steps<T: CpuScalar> {
    /// Starts from the residual in `run.r`: `r'r` and `r'M r`.
    fn start(&mut self, run: &mut Run<'_, '_, '_, T>) -> [f64; 2];

    /// `w = A p`: `p'w`.
    fn product(&mut self, run: &mut Run<'_, '_, '_, T>) -> f64;

    /// `x += alpha p` and `r -= alpha w`: `r'r` and `r'M r`.
    fn advance(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64) -> [f64; 2];

    /// `p = M r + beta p`; p is not read where `beta` is 0.
    fn direct(&mut self, run: &mut Run<'_, '_, '_, T>, beta: f64);

    /// x on the host.
    fn x(&mut self, run: &mut Run<'_, '_, '_, T>) -> &mut [T];
}

/// CG from the residual in `run.r`.
pub(super) fn cg<T: CpuScalar>(
    run: &mut Run<'_, '_, '_, T>,
    steps: &mut dyn Steps<T>,
) -> Result<(), MpiError> {
    let own = steps.start(run);
    let [_, mut rho] = run.sums.sum(own)?;
    if !is_positive(rho) {
        return settle(run, steps, Stop::not_positive(rho)).map(drop);
    }
    steps.direct(run, 0.0);
    loop {
        run.heed_watch();
        let own = steps.product(run);
        let [curvature] = run.sums.sum([own])?;
        let alpha = if curvature > 0.0 { rho / curvature } else { 0.0 };
        let own = steps.advance(run, alpha);
        let [rr, mut rz] = run.sums.sum(own)?;
        run.count(rr);
        let mut restarted = false;
        if let Some(stop) = stop_of(run, curvature, rr) {
            if settle(run, steps, stop)? == Settled::Ended {
                return Ok(());
            }
            restarted = true;
            let own = steps.start(run);
            [_, rz] = run.sums.sum(own)?;
        }
        if !is_positive(rz) {
            return settle(run, steps, Stop::not_positive(rz)).map(drop);
        }
        steps.direct(run, if restarted { 0.0 } else { rz / rho });
        rho = rz;
    }
}

fn settle<T: CpuScalar>(
    run: &mut Run<'_, '_, '_, T>,
    steps: &mut dyn Steps<T>,
    stop: Stop,
) -> Result<Settled, MpiError> {
    let x = steps.x(run);
    run.settle(stop, x)
}

/// Vectors in the memory of a CPU.
pub(super) struct OnCpu<'x, T> {
    x: &'x mut [T],
    p: Vec<T>,
    w: Vec<T>,
    z: Vec<T>,
}

impl<'x, T: CpuScalar> OnCpu<'x, T> {
    /// # Errors
    /// Where there is no memory.
    pub(super) fn new(x: &'x mut [T]) -> Result<Self, Failure> {
        let len = x.len();
        Ok(Self { x, p: zeros(len)?, w: zeros(len)?, z: zeros(len)? })
    }
}

impl<T: CpuScalar> Steps<T> for OnCpu<'_, T> {
    fn start(&mut self, run: &mut Run<'_, '_, '_, T>) -> [f64; 2] {
        run.precondition_residual(&mut self.z);
        let rr = dot(&run.r, &run.r);
        // The same without a preconditioner.
        [rr, if run.is_preconditioned() { dot(&run.r, &self.z) } else { rr }]
    }

    fn product(&mut self, run: &mut Run<'_, '_, '_, T>) -> f64 {
        run.product(&self.p, &mut self.w);
        dot(&self.w, &self.p)
    }

    fn advance(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64) -> [f64; 2] {
        axpby(alpha, &self.p, 1.0, self.x);
        axpby(-alpha, &self.w, 1.0, &mut run.r);
        self.start(run)
    }

    fn direct(&mut self, _: &mut Run<'_, '_, '_, T>, beta: f64) {
        match beta == 0.0 {
            true => self.p.copy_from_slice(&self.z),
            false => axpby(1.0, &self.z, beta, &mut self.p),
        }
    }

    fn x(&mut self, _: &mut Run<'_, '_, '_, T>) -> &mut [T] {
        self.x
    }
}

/// Vectors on the GPU that has the matrix. `x` is on the host before and after the iterations.
pub(super) struct OnGpu<'x, T> {
    x: &'x mut [T],
}

impl<'x, T: CpuScalar> OnGpu<'x, T> {
    /// Copies x and the preconditioner to the GPU.
    ///
    /// # Errors
    /// Where there is no memory, and what the GPU reports.
    pub(super) fn new(run: &mut Run<'_, '_, '_, T>, x: &'x mut [T]) -> Result<Self, Failure> {
        run.begin_on_gpu(x)?;
        Ok(Self { x })
    }
}

impl<T: CpuScalar> Steps<T> for OnGpu<'_, T> {
    fn start(&mut self, run: &mut Run<'_, '_, '_, T>) -> [f64; 2] {
        let sums = run.start_on_gpu();
        run.sums.expect(sums, [f64::NAN; 2])
    }

    fn product(&mut self, run: &mut Run<'_, '_, '_, T>) -> f64 {
        let sum = run.multiply_on_gpu();
        run.sums.expect(sum, f64::NAN)
    }

    fn advance(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64) -> [f64; 2] {
        let alpha = T::from_f64(alpha);
        let sums = run.matrix_on_gpu().and_then(|matrix| matrix.gpu()?.advance_cg(alpha));
        run.sums.expect(sums, [f64::NAN; 2])
    }

    fn direct(&mut self, run: &mut Run<'_, '_, '_, T>, beta: f64) {
        let beta = T::from_f64(beta);
        let directed = run.matrix_on_gpu().and_then(|matrix| matrix.gpu()?.direct_cg(beta));
        run.sums.attend(directed);
    }

    fn x(&mut self, run: &mut Run<'_, '_, '_, T>) -> &mut [T] {
        let copied = run.matrix_on_gpu().and_then(|matrix| matrix.gpu()?.x_of_cg(self.x));
        run.sums.attend(copied);
        self.x
    }
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
    fn new(len: usize) -> Result<Self, Failure> {
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
