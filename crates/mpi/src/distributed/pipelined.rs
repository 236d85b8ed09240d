//! Pipelined conjugate gradients over ranks.
//!
//! Ghysels and Vanroose, Hiding global synchronization latency in the preconditioned Conjugate
//! Gradient algorithm, 2014, doi:10.1016/j.parco.2013.06.001, algorithm 4. An iteration has one sum,
//! of three numbers, which travels while the preconditioner and the product of the next iteration are
//! computed; five vectors more than in plain CG are updated, and recurrences for `M r` and
//! `A M r` lose accuracy. Where the recurrence's residual passes and the true one does not, the solve
//! restarts from the latter, as everywhere.

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_solve_core::Status;
use sparsebatch_solve_core::verdict::Stop;
use sparsebatch_solvers::gpu::{Step, StepVector};

use super::cg::is_positive;
use super::run::{OnGpu, Run, Settled};
use super::vectors::{axpby, dot, zeros};
use crate::{Failure, MpiError};

/// What pipelined CG does with the vectors of a rank, on a CPU or a GPU, named as in its source. Sums
/// are those of this rank; what fails is told to the others with the next sum.
pub(super) trait Steps<T: CpuScalar> {
    /// Starts from the residual in `run.r`: `u = M r`, `w = A u`.
    fn start(&mut self, run: &mut Run<'_, '_, '_, T>);

    /// `r'u`, `w'u` and `r'r`.
    fn sums(&mut self, run: &mut Run<'_, '_, '_, T>) -> [f64; 3];

    /// `m = M w`, `n = A m`.
    fn product(&mut self, run: &mut Run<'_, '_, '_, T>);

    /// The updates of an iteration; the last z, q, s and p count for nothing where `beta` is 0.
    fn advance(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64, beta: f64);

    /// x on the host.
    fn x(&mut self, run: &mut Run<'_, '_, '_, T>) -> &mut [T];
}

/// Pipelined CG from the residual in `run.r`.
pub(super) fn pipelined<T: CpuScalar>(
    run: &mut Run<'_, '_, '_, T>,
    steps: &mut dyn Steps<T>,
) -> Result<(), MpiError> {
    steps.start(run);
    // `r'M r` and the step of the last iteration since the start or the last restart.
    let mut last: Option<(f64, f64)> = None;
    let mut is_counted = true;
    loop {
        run.heed_watch();
        let own = steps.sums(run);
        let [gamma, delta, rr] = run.sum_during(own, |run| steps.product(run))?;
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
            let x = steps.x(run);
            if run.settle(stop, x)? == Settled::Ended {
                return Ok(());
            }
            steps.start(run);
            (last, is_counted) = (None, true);
            continue;
        }
        let alpha = gamma / curvature;
        steps.advance(run, alpha, beta);
        (last, is_counted) = (Some((gamma, alpha)), false);
    }
}

/// Vectors in the memory of a CPU.
pub(super) struct OnCpu<'x, T> {
    x: &'x mut [T],
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

impl<'x, T: CpuScalar> OnCpu<'x, T> {
    /// # Errors
    /// Where there is no memory.
    pub(super) fn new(x: &'x mut [T]) -> Result<Self, Failure> {
        let len = x.len();
        let vector = || zeros(len);
        let (u, w, m, n) = (vector()?, vector()?, vector()?, vector()?);
        let (p, s, q, z) = (vector()?, vector()?, vector()?, vector()?);
        Ok(Self { x, u, w, m, n, p, s, q, z })
    }
}

impl<T: CpuScalar> Steps<T> for OnCpu<'_, T> {
    fn start(&mut self, run: &mut Run<'_, '_, '_, T>) {
        run.precondition_residual(&mut self.u);
        run.product(&self.u, &mut self.w);
    }

    fn sums(&mut self, run: &mut Run<'_, '_, '_, T>) -> [f64; 3] {
        [dot(&run.r, &self.u), dot(&self.w, &self.u), dot(&run.r, &run.r)]
    }

    fn product(&mut self, run: &mut Run<'_, '_, '_, T>) {
        run.precondition(&self.w, &mut self.m);
        run.product(&self.m, &mut self.n);
    }

    fn advance(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64, beta: f64) {
        let Self { u, w, m, n, p, s, q, z, .. } = self;
        for (from, to) in [(&*n, z), (&*m, q), (&*w, s), (&*u, p)] {
            match beta == 0.0 {
                true => to.copy_from_slice(from),
                false => axpby(1.0, from, beta, to),
            }
        }
        axpby(alpha, &self.p, 1.0, self.x);
        axpby(-alpha, &self.s, 1.0, &mut run.r);
        axpby(-alpha, &self.q, 1.0, &mut self.u);
        axpby(-alpha, &self.z, 1.0, &mut self.w);
    }

    fn x(&mut self, _: &mut Run<'_, '_, '_, T>) -> &mut [T] {
        self.x
    }
}

/// `to = M from` and `product = A to` of vectors on the GPU.
fn multiply<T: CpuScalar>(run: &mut Run<'_, '_, '_, T>, [from, to, product]: [StepVector; 3]) {
    run.step_on_gpu(Step::Precondition { from, to });
    run.precondition_on_gpu(from, to);
    run.product_on_gpu(to, product);
}

impl<T: CpuScalar> Steps<T> for OnGpu<'_, T> {
    fn start(&mut self, run: &mut Run<'_, '_, '_, T>) {
        run.load_residual();
        multiply(run, [StepVector::R, StepVector::U, StepVector::W]);
    }

    fn sums(&mut self, run: &mut Run<'_, '_, '_, T>) -> [f64; 3] {
        run.sums_on_gpu(Step::PipelinedSums)
    }

    fn product(&mut self, run: &mut Run<'_, '_, '_, T>) {
        multiply(run, [StepVector::W, StepVector::M, StepVector::N]);
    }

    fn advance(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64, beta: f64) {
        let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
        run.step_on_gpu(Step::PipelinedAdvance { alpha, beta });
    }

    fn x(&mut self, run: &mut Run<'_, '_, '_, T>) -> &mut [T] {
        self.load(run)
    }
}
