//! A solve in progress: what CG and BiCGStab have in common.
//!
//! Order of steps, tests and statuses are those of the composed solver
//! (`sparsebatch_solvers`, `composed/`), for one system whose vectors are divided among ranks.

use std::time::{Duration, Instant};

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_solve_core::verdict::{Entry, Stop, by_power_of_two};
use sparsebatch_solve_core::{Outcome, Status, is_stopped};
use sparsebatch_solvers::LinOp;
use sparsebatch_solvers::gpu::{Step, StepMethod, StepVector};

use super::DistributedMatrix;
use super::gpu::OnGpuPrecond;
use super::system::System;
use super::vectors::{Sums, copy, fill_by_chunks, joined, zeros};
use crate::{Failure, MpiError, Ranks};

/// What preconditions, if anything does.
pub(super) enum Precond<'s, T> {
    Nothing,
    /// `M r` has the elements of r times these.
    Diagonal(&'s [T]),
    Operator(&'s mut dyn LinOp<T>),
}

impl<T> Precond<'_, T> {
    /// The same for a shorter time.
    pub(super) fn shorter(&mut self) -> Precond<'_, T> {
        match self {
            Self::Nothing => Precond::Nothing,
            Self::Diagonal(diagonal) => Precond::Diagonal(diagonal),
            Self::Operator(operator) => Precond::Operator(&mut **operator),
        }
    }
}

/// The state of a solve.
pub(super) struct Run<'s, 'a, 'r, T> {
    ranks: &'s Ranks,
    pub(super) sums: Sums<'s>,
    system: System<'a, 'r, T>,
    preconditioner: Precond<'s, T>,
    entry: Entry,
    /// The initial guess; `None` when it is 0.
    guess: Option<Vec<T>>,
    /// `x` and `r` of the iterations are scaled by `2^-scale`; see [`Entry::scale`].
    scale: i32,
    /// The squared threshold, scaled.
    pub(super) square: f64,
    iterations: u32,
    restarts: u32,
    history: Vec<f64>,
    outcome: Option<Outcome>,
    /// Products of the iterations.
    pub(super) products: u64,
    /// Time of the tests after iterations have stopped.
    pub(super) settling: Duration,
    pub(super) r: Vec<T>,
    /// Vectors of a GPU whose preconditioner is on the host.
    staged: [Vec<T>; 2],
}

/// What follows when iterations have stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// The solve has ended.
    Ended,
    /// It goes on from the true residual in `r`.
    Restarts,
}

impl<'s, 'a, 'r, T: CpuScalar> Run<'s, 'a, 'r, T> {
    /// Tests the system on entry. `failed` is the status of a preconditioner that failed.
    pub(super) fn new(
        ranks: &'s Ranks,
        mut system: System<'a, 'r, T>,
        mut sums: Sums<'s>,
        preconditioner: Precond<'s, T>,
        failed: Option<Status>,
        x: &mut [T],
    ) -> Result<Self, MpiError> {
        let mut r = ranks.agree(zeros(x.len()))?;
        let (entry, from_zero) = system.enter(x, &mut r, &mut sums)?;
        // Whether it is 0 all ranks know alike.
        let mut guess = (!from_zero).then(|| ranks.agree(zeros(x.len()))).transpose()?;
        if let Some(guess) = &mut guess {
            copy(x, guess);
        }
        let scale = entry.scale::<T>();
        let threshold = entry.threshold * 2f64.powi(-scale);
        let mut this = Self {
            ranks,
            sums,
            system,
            preconditioner,
            entry,
            guess,
            scale,
            square: threshold * threshold,
            iterations: 0,
            restarts: 0,
            history: Vec::new(),
            outcome: None,
            products: 0,
            settling: Duration::ZERO,
            r,
            staged: [Vec::new(), Vec::new()],
        };
        let keeps_history = this.system.criteria.history;
        if let Some(status) = entry.status {
            this.outcome = Some(entry.outcome(status, keeps_history));
            return Ok(this);
        }
        if keeps_history {
            this.history.push(entry.residual_norm);
        }
        rescale(this.system.matrix_scale() - scale, x);
        rescale(-scale, &mut this.r);
        if let Some(status) = failed {
            this.settle(Stop::Failed(status), x)?;
        }
        Ok(this)
    }

    /// Whether the matrix is on a GPU.
    pub(super) fn is_on_gpu(&mut self) -> bool {
        self.system.on_gpu().is_some()
    }

    /// Whether the solve has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }

    /// How it ended, and the number of products of the iterations.
    pub(super) fn finish(self) -> (Outcome, u64) {
        (self.outcome.unwrap_or_else(Outcome::not_begun), self.products)
    }

    pub(super) fn is_preconditioned(&self) -> bool {
        !matches!(self.preconditioner, Precond::Nothing)
    }

    /// Whether an operator on the host preconditions.
    pub(super) fn is_preconditioned_by_host(&self) -> bool {
        matches!(self.preconditioner, Precond::Operator(_))
    }

    pub(super) fn iterations_left(&self) -> bool {
        self.iterations < self.system.criteria.max_iters.get(0)
    }

    /// Counts an iteration and records its residual, given its square.
    pub(super) fn count(&mut self, square: f64) {
        self.iterations += 1;
        if self.system.criteria.history {
            self.history.push(square.sqrt() * 2f64.powi(self.scale));
        }
    }

    /// Asks all ranks, with the next sum, to end where this one was asked to stop.
    pub(super) fn heed_watch(&mut self) {
        if is_stopped(&self.system.criteria.watch) {
            let line = "the solve was stopped: 0 of 1 systems had ended";
            self.sums.fail(Failure::internal(line));
        }
    }

    /// `y = A v` with A scaled as in the iterations.
    pub(super) fn product(&mut self, v: &[T], y: &mut [T]) {
        let applied = self.system.apply(v, y);
        self.sums.attend(applied);
        self.products += 1;
        rescale(-self.system.matrix_scale(), y);
    }

    /// `z = M r`, with M scaled as the inverse of the scaled A.
    pub(super) fn precondition(&mut self, r: &[T], z: &mut [T]) {
        match &mut self.preconditioner {
            Precond::Nothing => {
                z.copy_from_slice(r);
                return;
            }
            Precond::Diagonal(diagonal) => {
                for ((z, &r), &inverse) in z.iter_mut().zip(r).zip(*diagonal) {
                    *z = inverse * r;
                }
            }
            Precond::Operator(preconditioner) => {
                let applied = preconditioner.apply(r, z).map_err(|error| {
                    Failure::internal(format!("an operator of the caller failed: {error}"))
                });
                self.sums.attend(applied);
            }
        }
        rescale(self.system.matrix_scale(), z);
    }

    /// As [`Run::precondition`], of the residual.
    pub(super) fn precondition_residual(&mut self, z: &mut [T]) {
        let r = std::mem::take(&mut self.r);
        self.precondition(&r, z);
        self.r = r;
    }

    /// Makes the vectors of a method on the GPU that has the matrix, and copies x there, and the
    /// diagonal that preconditions, scaled as the inverse of the scaled A.
    ///
    /// # Errors
    /// Where there is no memory, and what the GPU reports.
    fn begin_on_gpu(&mut self, method: StepMethod, x: &[T]) -> Result<(), Failure> {
        let scale = self.system.matrix_scale();
        let mut scaled = Vec::new();
        let precond = match self.preconditioner {
            Precond::Nothing => OnGpuPrecond::Nothing,
            Precond::Diagonal(diagonal) => {
                scaled.extend_from_slice(diagonal);
                rescale(scale, &mut scaled);
                OnGpuPrecond::Diagonal(&scaled)
            }
            Precond::Operator(_) => {
                self.staged = [zeros(x.len())?, zeros(x.len())?];
                OnGpuPrecond::Host
            }
        };
        let matrix = self.system.on_gpu().ok_or_else(on_no_gpu)?;
        matrix.gpu()?.begin(method, precond, x)
    }

    /// Copies the residual to the GPU.
    pub(super) fn load_residual(&mut self) {
        let r = std::mem::take(&mut self.r);
        let loaded = self.matrix_on_gpu().and_then(|matrix| matrix.gpu()?.set(StepVector::R, &r));
        self.sums.attend(loaded);
        self.r = r;
    }

    /// Starts a step on the GPU; what fails is told to the others with the next sum, here as in the
    /// functions below.
    pub(super) fn step_on_gpu(&mut self, step: Step<T>) {
        let started = self.matrix_on_gpu().and_then(|matrix| matrix.gpu()?.run(step));
        self.sums.attend(started);
    }

    /// A step on the GPU, and its sums of this rank; NaN where it fails.
    pub(super) fn sums_on_gpu<const K: usize>(&mut self, step: Step<T>) -> [f64; K] {
        let summed = self.matrix_on_gpu().and_then(|matrix| {
            let gpu = matrix.gpu()?;
            gpu.run(step)?;
            gpu.sums()
        });
        let sums = self.sums.expect(summed, [f64::NAN; 3]);
        std::array::from_fn(|k| sums[k])
    }

    /// `to = A from` of vectors there, with A scaled as in the iterations.
    pub(super) fn product_on_gpu(&mut self, from: StepVector, to: StepVector) {
        self.products += 1;
        let scale = T::from_f64(2f64.powi(-self.system.matrix_scale()));
        let matrix = self.matrix_on_gpu();
        let multiplied = matrix.and_then(|matrix| matrix.multiply_vectors(scale, (from, to)));
        self.sums.attend(multiplied);
    }

    /// `to = M from` of vectors there, where the host preconditions; the steps of a method do so with
    /// a diagonal.
    pub(super) fn precondition_on_gpu(&mut self, from: StepVector, to: StepVector) {
        if !self.is_preconditioned_by_host() {
            return;
        }
        let [mut r, mut z] = std::mem::take(&mut self.staged);
        let copied = self.matrix_on_gpu().and_then(|matrix| matrix.gpu()?.get(from, &mut r));
        self.sums.attend(copied);
        self.precondition(&r, &mut z);
        let copied = self.matrix_on_gpu().and_then(|matrix| matrix.gpu()?.set(to, &z));
        self.sums.attend(copied);
        self.staged = [r, z];
    }

    /// The matrix, which is on a GPU.
    fn matrix_on_gpu(&mut self) -> Result<&mut DistributedMatrix<'r, T>, Failure> {
        self.system.on_gpu().ok_or_else(on_no_gpu)
    }

    /// Judges the system, which has stopped. Where it ends `x` holds the solution.
    pub(super) fn settle(&mut self, stop: Stop, x: &mut [T]) -> Result<Settled, MpiError> {
        let start = Instant::now();
        let settled = self.judged(stop, x);
        self.settling += start.elapsed();
        settled
    }

    fn judged(&mut self, stop: Stop, x: &mut [T]) -> Result<Settled, MpiError> {
        let mut solution = joined(x, &[]);
        rescale(self.scale - self.system.matrix_scale(), &mut solution);
        let mut r = std::mem::take(&mut self.r);
        let mut check = self.system.check(&self.entry, &solution, &mut r, &mut self.sums)?;
        let left = self.iterations_left();
        let criteria = self.system.criteria;
        let Some(status) = check.status(stop, self.restarts, left, criteria) else {
            rescale(-self.scale, &mut r);
            self.r = r;
            self.restarts += 1;
            return Ok(Settled::Restarts);
        };
        if status != Status::Converged {
            let (entry, guess) = (&self.entry, self.guess.as_deref());
            let (check, sums) = (&mut check, &mut self.sums);
            self.system.keep_better(entry, guess, check, &mut solution, &mut r, sums)?;
        }
        self.r = r;
        copy(&solution, x);
        self.outcome = Some(Outcome {
            status,
            iterations: self.iterations,
            restarts: self.restarts,
            residual_norm: check.residual_norm,
            rhs_norm: self.entry.rhs_norm,
            accepted_by_floor: check.floor_passed,
            history: std::mem::take(&mut self.history),
        });
        Ok(Settled::Ended)
    }
}

/// The vectors of a method on the GPU that has the matrix. `x` is on the host before and after the
/// iterations.
pub(super) struct OnGpu<'x, T> {
    x: &'x mut [T],
}

impl<'x, T: CpuScalar> OnGpu<'x, T> {
    /// Makes the vectors, and copies x and the preconditioner to the GPU.
    ///
    /// # Errors
    /// Where there is no memory, and what the GPU reports.
    pub(super) fn new(
        run: &mut Run<'_, '_, '_, T>,
        method: StepMethod,
        x: &'x mut [T],
    ) -> Result<Self, Failure> {
        run.begin_on_gpu(method, x)?;
        Ok(Self { x })
    }

    /// Copies x of the iterations to the host.
    pub(super) fn load(&mut self, run: &mut Run<'_, '_, '_, T>) -> &mut [T] {
        let matrix = run.matrix_on_gpu();
        let copied = matrix.and_then(|matrix| matrix.gpu()?.get(StepVector::X, self.x));
        run.sums.attend(copied);
        self.x
    }
}

fn on_no_gpu() -> Failure {
    Failure::internal("the matrix is on no GPU")
}

/// `v *= 2^exponent`, where it is not 0.
fn rescale<T: CpuScalar>(exponent: i32, v: &mut [T]) {
    if exponent != 0 {
        let scaled = by_power_of_two(exponent);
        fill_by_chunks(v, |_, v| v.iter_mut().for_each(|v| *v = scaled(*v)));
    }
}

impl<T: CpuScalar> Run<'_, '_, '_, T> {
    /// As [`Sums::sum_during`], with work of the solve.
    pub(super) fn sum_during<const K: usize>(
        &mut self,
        own: [f64; K],
        meanwhile: impl FnOnce(&mut Self),
    ) -> Result<[f64; K], MpiError> {
        let mut sums = std::mem::replace(&mut self.sums, Sums::new(self.ranks));
        let summed = sums.sum_during(own, |sums| {
            meanwhile(self);
            // What failed meanwhile is told with the next sum.
            sums.attend(self.sums.take_failure().map_or(Ok(()), Err));
        });
        self.sums = sums;
        summed
    }
}
