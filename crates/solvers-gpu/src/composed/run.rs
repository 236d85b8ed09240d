//! The solve: launches between products, until every system has ended.

use std::time::Instant;

use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, LaunchConfig, Value};

use super::history::Histories;
use super::operators::Precond;
use super::phases::Phases;
use super::work::{PART_ROWS, THREADS};
use super::{ComposedSolver, Vectors};
use crate::GpuSolveError;
use crate::common::task::{Guess, check_apart};
use sparsebatch_solve_core::{Krylov, check_len};

/// Iterations between two checks of the number of systems left: few at first, since initial guesses
/// may be good.
const FIRST_ITERATIONS: u32 = 4;
pub(super) const MOST_ITERATIONS: u32 = 32;

/// A group of launches between products.
#[derive(Clone, Copy)]
enum SolveStep {
    Enter,
    Lift,
    Judge,
    Start,
    Iterate(usize),
}

impl<E: Executor + Clone, T: Value> ComposedSolver<E, T> {
    /// Solves every system with the current values. Allocates nothing on the device; returns when
    /// all systems have ended.
    ///
    /// `b` and `x` are item-major, one right-hand side after the other within an item. A system
    /// that does not converge is no error: see [`ComposedSolver::outcomes`].
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when a vector does not fit, when they
    /// overlap, [`GpuSolveError::Gpu`] with the device's error; `x` is untouched in the first two
    /// cases.
    pub fn solve(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.solve_counted(b, guess, x, self.systems)
    }

    /// As [`ComposedSolver::solve`]. The watch hears of the end of `counted` systems; the others
    /// have right-hand sides of 0 and are the first to end.
    pub(super) fn solve_counted(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
        counted: usize,
    ) -> Result<(), GpuSolveError> {
        self.check_vectors(b, x)?;
        if self.systems == 0 {
            return Ok(());
        }
        let (start, before) = (Instant::now(), self.products);
        self.executor.copy_from_host(&[self.systems as u32], &mut self.remaining)?;
        if guess == Guess::Zero {
            self.executor.fill_zero(x)?;
        }
        self.launch(SolveStep::Enter, b, x, 0)?;
        self.verdict(b, x)?;
        if let Some(histories) = &mut self.histories {
            histories.begin(self.outcomes.residual_norms(&self.executor)?);
        }
        let (mut done, mut iterations) = (0u32, FIRST_ITERATIONS);
        let mut ended = 0;
        loop {
            let remaining = self.remaining()?;
            let all_ended = self.systems - remaining as usize;
            let now = (all_ended + counted).saturating_sub(self.systems);
            self.limits.count((now - ended) as u32);
            ended = now;
            if remaining == 0 {
                break;
            }
            if self.limits.is_stopped() {
                return Err(GpuSolveError::Stopped);
            }
            // Restarted systems lag behind the others: at least one more iteration.
            let left = self.most_iterations.saturating_sub(done).max(1);
            let most = self.histories.as_ref().map_or(MOST_ITERATIONS, Histories::most_iterations);
            let count = iterations.min(left).min(most);
            self.iterate(count, b, x)?;
            self.launch(SolveStep::Lift, b, x, 0)?;
            self.verdict(b, x)?;
            if let Some(histories) = &mut self.histories {
                histories.take(&self.executor, count)?;
            }
            done = done.saturating_add(count);
            iterations = (2 * iterations).min(MOST_ITERATIONS);
        }
        self.last_solve = start.elapsed();
        self.last_products = self.products - before;
        Ok(())
    }

    /// Refuses vectors of other lengths, and such that overlap.
    pub(super) fn check_vectors(
        &self,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let rows = self.vectors.r.len();
        check_len("b", rows, b.len())?;
        check_len("x", rows, x.len())?;
        check_apart(b, x)
    }

    /// Number of systems that have not ended. Waits.
    fn remaining(&self) -> Result<u32, GpuError> {
        let mut remaining = [0];
        self.executor.copy_to_host(&self.remaining, &mut remaining)?;
        Ok(remaining[0])
    }

    /// Judges systems that are new or have stopped, by `A x`.
    fn verdict(&mut self, b: &E::Buffer<T>, x: &mut E::Buffer<T>) -> Result<(), GpuError> {
        self.product.apply(x, &mut self.vectors.w)?;
        self.products += 1;
        self.launch_sizes(b, x)?;
        self.launch(SolveStep::Judge, b, x, 0)?;
        if self.steps.start.is_none() {
            return Ok(());
        }
        let Vectors { r, m, .. } = &mut self.vectors;
        self.preconditioner.apply(&self.executor, r, m)?;
        self.launch(SolveStep::Start, b, x, 0)
    }

    /// The number of products of an iteration.
    pub(super) fn products_an_iteration(&self) -> usize {
        match self.method {
            Krylov::Cg => 1,
            Krylov::BiCgStab => 2,
        }
    }

    /// Runs `count` iterations of all systems that have not stopped.
    fn iterate(
        &mut self,
        count: u32,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        if let Some(histories) = &mut self.histories {
            histories.clear(&self.executor)?;
        }
        for iteration in 0..count {
            let history = self.histories.as_ref().map_or(0, |h| h.address(iteration));
            match self.method {
                Krylov::Cg => self.iterate_cg(b, x, history)?,
                Krylov::BiCgStab => self.iterate_bicgstab(b, x, history)?,
            }
            self.products += self.products_an_iteration() as u64;
        }
        Ok(())
    }

    /// One iteration of CG.
    fn iterate_cg(
        &mut self,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
        history: u64,
    ) -> Result<(), GpuError> {
        let Vectors { p, w, .. } = &mut self.vectors;
        self.product.apply(p, w)?;
        self.launch(SolveStep::Iterate(0), b, x, history)?;
        if self.steps.iterate.len() == 1 {
            return Ok(());
        }
        let Vectors { r, m, .. } = &mut self.vectors;
        self.preconditioner.apply(&self.executor, r, m)?;
        self.launch(SolveStep::Iterate(1), b, x, history)
    }

    /// One iteration of BiCGStab.
    fn iterate_bicgstab(
        &mut self,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
        history: u64,
    ) -> Result<(), GpuError> {
        let Self { executor, preconditioner, product, vectors, .. } = self;
        let Vectors { p, v, hat, .. } = vectors;
        preconditioner.apply(executor, p, hat)?;
        let p_hat = if matches!(preconditioner, Precond::Identity) { &*p } else { &*hat };
        product.apply(p_hat, v)?;
        self.launch(SolveStep::Iterate(0), b, x, history)?;
        let Self { executor, preconditioner, product, vectors, .. } = self;
        let Vectors { r, w, hat, m, .. } = vectors;
        preconditioner.apply(executor, r, m)?;
        let s_hat = match preconditioner {
            Precond::Identity => &*r,
            Precond::Jacobi => &*hat,
            Precond::Given(_) => &*m,
        };
        product.apply(s_hat, w)?;
        self.launch(SolveStep::Iterate(1), b, x, history)
    }

    /// Launches the kernels of a step.
    #[expect(unsafe_code, reason = "the launches")]
    fn launch(
        &mut self,
        step: SolveStep,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
        history: u64,
    ) -> Result<(), GpuError> {
        let Self { executor, steps, work, limits, outcomes, vectors, .. } = self;
        let phases: &Phases = match step {
            SolveStep::Enter => &steps.enter,
            SolveStep::Lift => &steps.lift,
            SolveStep::Judge => &steps.judge,
            SolveStep::Start => match &steps.start {
                Some(start) => start,
                None => return Ok(()),
            },
            SolveStep::Iterate(number) => &steps.iterate[number],
        };
        let whole = std::iter::once((&phases.whole, &work.whole, 1));
        let parts = phases.parts.iter().map(|key| (key, &work.parts, 2));
        for (key, blocks, words) in whole.chain(parts) {
            if blocks.is_empty() {
                continue;
            }
            let mut args = Args::new();
            args.input(blocks)
                .input(&work.order)
                .input(&work.firsts)
                .output(&mut self.states)
                .output(&mut self.tickets)
                .output(&mut self.partials)
                .output(x)
                .input(b)
                .output(&mut vectors.r)
                .output(&mut vectors.p)
                .output(&mut vectors.w)
                .output(&mut vectors.v)
                .output(&mut vectors.shadow)
                .output(&mut vectors.hat)
                .input(&vectors.m)
                .raw(history);
            limits.pass(&mut args);
            outcomes.pass(&mut args);
            args.output(&mut self.remaining);
            if self.preconditioner.is_jacobi() && !self.lenient {
                args.input(&vectors.flawed);
            } else {
                args.raw(0);
            }
            if words == 2 {
                args.scalar(PART_ROWS);
            }
            // SAFETY: (1) these are the parameters of `krylov` and, with part_rows, of
            // `krylov_part`; (2) the plan made blocks, order, firsts, states, tickets and partials
            // for each other and for vectors of the length that `solve` has checked (vectors that
            // the method does not use are empty); the history has a number for each system, or is
            // null; (3) all buffers are of this executor, by the types, and the history's is the
            // plan's; (4) x is borrowed exclusively and apart from b, all else is the plan's; (5)
            // the kernels wait for the launches ahead before they touch states and vectors; what
            // they read before is written when the plan is made.
            unsafe { executor.launch(key, config(blocks.len() / words), &mut args)? };
        }
        Ok(())
    }

    /// Launches the kernels that compute `SystemSizes` before a judgement with a floor.
    #[expect(unsafe_code, reason = "the launches")]
    fn launch_sizes(&mut self, b: &E::Buffer<T>, x: &mut E::Buffer<T>) -> Result<(), GpuError> {
        let Self { executor, work, .. } = self;
        let Some(sizes) = &self.sizes else {
            return Ok(());
        };
        for (key, blocks, words) in [(&sizes.whole, &work.whole, 1), (&sizes.part, &work.parts, 2)]
        {
            if blocks.is_empty() {
                continue;
            }
            let mut args = Args::new();
            args.input(blocks)
                .input(&work.order)
                .input(&work.firsts)
                .output(&mut self.states)
                .output(&mut self.tickets)
                .output(&mut self.partials)
                .output(x)
                .input(b);
            sizes.pass(&mut args);
            if words == 2 {
                args.scalar(PART_ROWS);
            }
            // SAFETY: as in `launch`, for `krylov_sizes` and `krylov_sizes_part`; their matrices
            // are those of the batch that the work was made of, validated, with values of its
            // length.
            unsafe { executor.launch(key, config(blocks.len() / words), &mut args)? };
        }
        Ok(())
    }
}

/// A launch of `blocks` blocks, whose kernel itself waits for the launches ahead.
fn config(blocks: usize) -> LaunchConfig {
    let grid = u32::try_from(blocks).unwrap_or(u32::MAX);
    LaunchConfig { overlaps: true, ..LaunchConfig::linear(grid, THREADS) }
}
