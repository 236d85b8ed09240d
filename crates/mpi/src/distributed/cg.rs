//! Preconditioned conjugate gradients over ranks.
//!
//! Hestenes and Stiefel 1952 (doi:10.6028/jres.049.044). An iteration has one product and two sums
//! over ranks: p'Ap, then r'r and r'z together; the preconditioner is applied before it is known
//! whether the iteration was the last, so that both go in one sum.

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_solve_core::Status;
use sparsebatch_solve_core::verdict::Stop;
use sparsebatch_solvers::gpu::{Step, StepVector};

use super::run::{OnGpu, Run, Settled};
use super::vectors::{axpby, dot, zeros};
use crate::{Failure, MpiError};

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

impl<T: CpuScalar> Steps<T> for OnGpu<'_, T> {
    fn start(&mut self, run: &mut Run<'_, '_, '_, T>) -> [f64; 2] {
        run.load_residual();
        run.precondition_on_gpu(StepVector::R, StepVector::U);
        run.sums_on_gpu(Step::CgSquares)
    }

    fn product(&mut self, run: &mut Run<'_, '_, '_, T>) -> f64 {
        run.product_on_gpu(StepVector::P, StepVector::W);
        let [curvature] = run.sums_on_gpu(Step::CgCurvature);
        curvature
    }

    fn advance(&mut self, run: &mut Run<'_, '_, '_, T>, alpha: f64) -> [f64; 2] {
        let step = Step::CgAdvance { alpha: T::from_f64(alpha) };
        if !run.is_preconditioned_by_host() {
            return run.sums_on_gpu(step);
        }
        run.step_on_gpu(step);
        run.precondition_on_gpu(StepVector::R, StepVector::U);
        run.sums_on_gpu(Step::CgSquares)
    }

    fn direct(&mut self, run: &mut Run<'_, '_, '_, T>, beta: f64) {
        run.step_on_gpu(Step::CgDirect { beta: T::from_f64(beta) });
    }

    fn x(&mut self, run: &mut Run<'_, '_, '_, T>) -> &mut [T] {
        self.load(run)
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

/// False for NaN too.
pub(super) fn is_positive(value: f64) -> bool {
    value > 0.0
}
