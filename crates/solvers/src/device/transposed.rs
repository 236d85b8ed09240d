//! Solves with the transposed matrices of those that are kept:
//! [`DeviceSolver::solve_transposed_again`].

use sparsebatch_cuda::KernelBuffer;
use sparsebatch_formats::{Batch, Layout, Pattern};

use super::again::factor;
use super::climb::KeptRungs;
use super::finish::not_enqueued;
use super::patterns::Patterns;
use super::{
    DeviceReport, DeviceSolver, Factors, Matrices, Other, Started, confirmer_of, plan_for,
};
use crate::adjoint::TransposedBatch;
use crate::choose::Chosen;
use crate::gpu::{ArrayMove, Confirmer, GpuSolver, Guess, check_apart};
use crate::{GpuExecutor, SolveError, SolveOptions, SolveScalar};

/// What belongs to the patterns of the matrices that are solved with.
pub(super) struct Side<E: GpuExecutor, T: SolveScalar> {
    patterns: Patterns<T>,
    confirmer: Confirmer<E, T>,
    /// Analyses of later rungs.
    kept: KeptRungs<E, T>,
    /// The items of each scheme of the plan, and those that it does not take.
    chosen: Vec<Chosen>,
    others: Vec<Other<T>>,
    /// The plan, unless it is that of the other side, whose factors serve both.
    pub(super) plan: Option<Box<dyn GpuSolver<E, T>>>,
}

impl<E: GpuExecutor, T: SolveScalar> Side<E, T> {
    /// Takes the limits of other options.
    pub(super) fn replace_limits(
        &mut self,
        executor: &E,
        options: &SolveOptions,
    ) -> Result<(), SolveError> {
        self.confirmer.replace_limits(options)?;
        if let Some(plan) = &mut self.plan {
            plan.replace_limits(executor, options)?;
        }
        self.kept.clear();
        self.others.iter_mut().for_each(|other| other.analysed = None);
        Ok(())
    }
}

/// The transposed matrices of those that are kept.
pub(super) struct TransposedSide<E: GpuExecutor, T: SolveScalar> {
    pub(super) side: Side<E, T>,
    moves: ArrayMove<E, T>,
    values: E::Buffer<T>,
    /// Whether the values, and the factors of a plan of this side, are those of the kept matrices.
    pub(super) is_current: bool,
    by: Factors,
}

impl<E: GpuExecutor, T: SolveScalar> TransposedSide<E, T> {
    /// Whether it is not solved by the factors of the matrices.
    pub(super) fn has_plan(&self) -> bool {
        self.side.plan.is_some()
    }

    /// Restricts its plan, if it has one, to the first items.
    pub(super) fn set_active(&mut self, items: usize) -> Result<(), SolveError> {
        if let Some(plan) = &mut self.side.plan {
            plan.set_active(items)?;
        }
        // There may be factors of fewer items.
        self.is_current = false;
        Ok(())
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        let of_plan = self
            .side
            .plan
            .as_ref()
            .map_or(0, |plan| plan.explain().bytes() + plan.outcome_arrays().packed_bytes());
        self.side.confirmer.bytes() + of_plan + (self.values.len() * size_of::<T>()) as u64
    }
}

impl<E: GpuExecutor, T: SolveScalar> DeviceSolver<E, T> {
    /// Starts the solve of `A^T x = b` for every system, with the matrices of the last
    /// [`DeviceSolver::factor`], and returns. The systems are those of the solver with each matrix
    /// transposed: with [`DeviceData::transposed`](crate::DeviceData::transposed), those with the
    /// matrices of the caller themselves.
    ///
    /// The factors of a sparse LU on chip serve both sides. Otherwise the first call makes a plan
    /// for the transposed patterns, with the schemes of the solver, and the first call after each
    /// [`DeviceSolver::factor`] factorises the transposed matrices. The first call allocates
    /// memory, about as much as the solver and its kept matrices take; later ones may be recorded
    /// in a graph, but for solves over products.
    ///
    /// # Errors
    /// [`SolveError::NotFactored`] without kept matrices; those of [`DeviceSolver::with_data`]
    /// where a plan is made, and of [`DeviceSolver::enqueue_again`].
    pub fn enqueue_transposed_again(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError> {
        self.started = None;
        check_apart(b, x)?;
        let kept = self.matrices.as_ref().ok_or(SolveError::NotFactored)?;
        // Values of one item for all may have become those of each item.
        if self.transposed.as_ref().is_some_and(|side| side.values.len() != kept.values.len()) {
            self.transposed = None;
        }
        if self.transposed.is_none() {
            let by = if kept.has_factors { Factors::Transposed } else { Factors::None };
            self.transposed = Some(self.transpose(by)?);
        }
        match self.start_transposed(b, guess, x) {
            // The factors do not serve both sides.
            Err(SolveError::Unsupported { .. }) if self.shares_factors() => {
                self.transposed = Some(self.transpose(Factors::None)?);
                self.start_transposed(b, guess, x)
            }
            started => started,
        }
    }

    /// Whether the transposed systems are solved by the factors of the matrices.
    fn shares_factors(&self) -> bool {
        self.transposed.as_ref().is_some_and(|transposed| transposed.by == Factors::Transposed)
    }

    fn start_transposed(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError> {
        self.with_transposed(|solver, values, by| {
            let started = Started::new(guess, Matrices::Transposed, by);
            solver.with_staged_vectors(b, Some(guess), x, |solver, b, x| {
                solver.start(values, b, started, x)
            })
        })
    }

    /// As [`DeviceSolver::finish`], for the last [`DeviceSolver::enqueue_transposed_again`].
    ///
    /// # Errors
    /// Those of [`DeviceSolver::finish_again`].
    pub fn finish_transposed_again(
        &mut self,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
    ) -> Result<DeviceReport, SolveError> {
        check_apart(b, x)?;
        self.with_transposed(|solver, values, _| {
            solver.with_staged_vectors(b, None, x, |solver, b, x| {
                solver.complete(values, b, x, Matrices::Transposed)
            })
        })
    }

    /// [`DeviceSolver::enqueue_transposed_again`] and [`DeviceSolver::finish_transposed_again`].
    ///
    /// # Errors
    /// Those of the two.
    pub fn solve_transposed_again(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<DeviceReport, SolveError> {
        self.enqueue_transposed_again(b, guess, x)?;
        self.finish_transposed_again(b, x)
    }

    /// Calls `work` with the transposed side in place of the solver's own, and with the values of
    /// the transposed matrices.
    fn with_transposed<R>(
        &mut self,
        work: impl FnOnce(&mut Self, &E::Buffer<T>, Factors) -> Result<R, SolveError>,
    ) -> Result<R, SolveError> {
        let Some(mut transposed) = self.transposed.take() else {
            return Err(match &self.matrices {
                None => SolveError::NotFactored,
                Some(_) => not_enqueued(),
            });
        };
        let current = self.bring_up_to_date(&mut transposed);
        let done = current.and_then(|()| {
            self.swap_side(&mut transposed.side);
            let done = work(self, &transposed.values, transposed.by);
            self.swap_side(&mut transposed.side);
            done
        });
        self.transposed = Some(transposed);
        done
    }

    fn swap_side(&mut self, side: &mut Side<E, T>) {
        std::mem::swap(&mut self.patterns, &mut side.patterns);
        std::mem::swap(&mut self.confirmer, &mut side.confirmer);
        std::mem::swap(&mut self.kept, &mut side.kept);
        std::mem::swap(&mut self.chosen, &mut side.chosen);
        std::mem::swap(&mut self.others, &mut side.others);
        if let Some(plan) = &mut side.plan {
            std::mem::swap(&mut self.plan, plan);
        }
    }

    /// Moves the values of the kept matrices to their transposed places, if they changed, and
    /// factorises them where this side has a plan with factors.
    fn bring_up_to_date(&self, transposed: &mut TransposedSide<E, T>) -> Result<(), SolveError> {
        let kept = self.matrices.as_ref().ok_or(SolveError::NotFactored)?;
        let is_recording = self.executor.is_recording()?;
        if !transposed.is_current || kept.is_recorded || is_recording {
            let TransposedSide { moves, values, side, by, .. } = transposed;
            moves.to_item_major("values", &kept.values, values)?;
            if let Some(plan) = &mut side.plan {
                *by = factor(&mut **plan, values)?;
            }
            // What is recorded has not run.
            transposed.is_current |= !is_recording;
        }
        Ok(())
    }

    /// Analyses the transposed patterns. `by`: whether the factors of the matrices are to serve.
    fn transpose(&self, by: Factors) -> Result<Box<TransposedSide<E, T>>, SolveError> {
        let kept = self.matrices.as_ref().ok_or(SolveError::NotFactored)?;
        let items: Vec<usize> = (0..self.extents.nitems()).collect();
        let is_shared = self.patterns.shares(kept.values.len());
        let zeros = vec![T::ZERO; kept.values.len()];
        let transposed = TransposedBatch::new(&self.patterns.some(&items, zeros, is_shared)?);
        let batch = transposed.batch();
        let sizes = match batch {
            Batch::Uniform(uniform) => {
                (if is_shared { 1 } else { items.len() }, uniform.pattern().nnz())
            }
            // All items as one.
            Batch::Ragged(ragged) => (1, ragged.total_nnz()),
        };
        let sources = transposed.sources()?;
        let moves =
            ArrayMove::new(&self.executor, sizes, Layout::ItemMajor, Some(sources.as_slice()))?;
        let of_others = self.others.iter().map(|other| other.chosen.clone());
        let (chosen, others, plan) = match by {
            Factors::Transposed => {
                let others = of_others.map(|chosen| Other { chosen, analysed: None }).collect();
                (self.chosen.clone(), others, None)
            }
            Factors::None | Factors::Kept | Factors::Near => {
                let choices = self.chosen.iter().cloned().chain(of_others).collect();
                let (chosen, others, mut plan) =
                    plan_for(&self.executor, batch, together(choices), &self.options)?;
                if self.active < items.len() {
                    plan.set_active(self.active)?;
                }
                (chosen, others, Some(plan))
            }
        };
        let side = Side {
            patterns: Patterns::of(batch),
            confirmer: confirmer_of(&self.executor, batch, &self.options)?,
            kept: KeptRungs::new(),
            chosen,
            others,
            plan,
        };
        let values = self.executor.alloc(moves.total())?;
        Ok(Box::new(TransposedSide { side, moves, values, is_current: false, by }))
    }
}

/// Joins the items of each scheme.
fn together(choices: Vec<Chosen>) -> Vec<Chosen> {
    let mut all: Vec<Chosen> = Vec::new();
    for chosen in choices {
        match all.iter_mut().find(|other| other.scheme == chosen.scheme) {
            Some(other) => {
                other.items.extend(chosen.items);
                other.items.sort_unstable();
            }
            None => all.push(chosen),
        }
    }
    all
}
