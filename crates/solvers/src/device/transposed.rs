//! Solves with the transposed matrices by kept factors: [`DeviceSolver::solve_transposed_again`].

use sparsebatch_cuda::KernelBuffer;
use sparsebatch_formats::{Batch, Layout, Pattern};

use super::patterns::Patterns;
use super::{DeviceSolver, Matrices, Started, confirmer_of};
use crate::adjoint::TransposedBatch;
use crate::gpu::{ArrayMove, Confirmer, Guess, check_apart};
use crate::ladder::Kept;
use crate::report::BatchReport;
use crate::{GpuExecutor, SolveError, SolveScalar};

/// What belongs to the patterns of the matrices that are solved with.
pub(super) struct Side<E: GpuExecutor, T: SolveScalar> {
    pub(super) patterns: Patterns<T>,
    pub(super) confirmer: Confirmer<E, T>,
    /// Analyses of later rungs.
    pub(super) kept: Vec<Kept<T>>,
}

/// The transposed matrices of those that are kept.
pub(super) struct TransposedSide<E: GpuExecutor, T: SolveScalar> {
    pub(super) side: Side<E, T>,
    moves: ArrayMove<E, T>,
    values: E::Buffer<T>,
    /// Whether the values are those of the kept matrices.
    pub(super) is_current: bool,
}

impl<E: GpuExecutor, T: SolveScalar> TransposedSide<E, T> {
    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        self.side.confirmer.bytes() + (self.values.len() * size_of::<T>()) as u64
    }
}

impl<E: GpuExecutor, T: SolveScalar> DeviceSolver<E, T> {
    /// Starts the solve of `A^T x = b` for every system, by the factors of the last
    /// [`DeviceSolver::factor`], and returns. The systems are those of the solver with each matrix
    /// transposed: with [`DeviceData::transposed`](crate::DeviceData::transposed), those with the matrices
    /// of the caller themselves. The first call analyses the transposed patterns and allocates as much
    /// memory as the matrices and factors take; later calls may be recorded in a graph.
    ///
    /// # Errors
    /// [`SolveError::NotFactored`] without kept factors; [`SolveError::Unsupported`] where these do not serve
    /// the transposed matrices: by other methods than the sparse LU, where it is not on chip, and where
    /// items go through the host; those of [`DeviceSolver::enqueue_again`].
    pub fn enqueue_transposed_again(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError> {
        self.started = None;
        check_apart(b, x)?;
        if !self.matrices.as_ref().ok_or(SolveError::NotFactored)?.has_factors {
            return Err(unsupported());
        }
        self.with_transposed(|solver, values| {
            let started = Started { guess, of: Matrices::Transposed };
            solver.with_staged_vectors(b, Some(guess), x, |solver, b, x| {
                solver.start(values, true, b, started, x)
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
    ) -> Result<BatchReport, SolveError> {
        check_apart(b, x)?;
        self.with_transposed(|solver, values| {
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
    ) -> Result<BatchReport, SolveError> {
        self.enqueue_transposed_again(b, guess, x)?;
        self.finish_transposed_again(b, x)
    }

    /// Calls `work` with the transposed patterns in place of the solver's own, and with the values of the
    /// transposed matrices.
    fn with_transposed<R>(
        &mut self,
        work: impl FnOnce(&mut Self, &E::Buffer<T>) -> Result<R, SolveError>,
    ) -> Result<R, SolveError> {
        let mut transposed = match self.transposed.take() {
            Some(transposed) => transposed,
            None => self.transpose()?,
        };
        let current = self.bring_up_to_date(&mut transposed);
        let done = current.and_then(|()| {
            self.swap_side(&mut transposed.side);
            let done = work(self, &transposed.values);
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
    }

    /// Moves the values of the kept matrices to their transposed places, if they changed.
    fn bring_up_to_date(&self, transposed: &mut TransposedSide<E, T>) -> Result<(), SolveError> {
        let kept = self.matrices.as_ref().ok_or(SolveError::NotFactored)?;
        if !transposed.is_current || kept.is_recorded || self.executor.is_recording()? {
            let TransposedSide { moves, values, .. } = transposed;
            moves.to_item_major("values", &kept.values, values)?;
            transposed.is_current = true;
        }
        Ok(())
    }

    /// Analyses the transposed patterns.
    fn transpose(&self) -> Result<Box<TransposedSide<E, T>>, SolveError> {
        let kept = self.matrices.as_ref().ok_or(SolveError::NotFactored)?;
        if !self.others.is_empty() {
            return Err(unsupported());
        }
        let items: Vec<usize> = (0..self.extents.nitems()).collect();
        let is_shared = self.patterns.shares(kept.values.len());
        let zeros = vec![T::ZERO; kept.values.len()];
        let transposed = TransposedBatch::new(&self.patterns.some(&items, zeros, is_shared)?);
        let sizes = match transposed.batch() {
            Batch::Uniform(uniform) => {
                (if is_shared { 1 } else { items.len() }, uniform.pattern().nnz())
            }
            // All items as one.
            Batch::Ragged(ragged) => (1, ragged.total_nnz()),
        };
        let sources = transposed.sources()?;
        let moves =
            ArrayMove::new(&self.executor, sizes, Layout::ItemMajor, Some(sources.as_slice()))?;
        Ok(Box::new(TransposedSide {
            values: self.executor.alloc(moves.total())?,
            moves,
            side: Side {
                patterns: Patterns::of(transposed.batch()),
                confirmer: confirmer_of(&self.executor, transposed.batch(), &self.options)?,
                kept: Vec::new(),
            },
            is_current: false,
        }))
    }
}

fn unsupported() -> SolveError {
    SolveError::Unsupported {
        what: "transposed solves with the factors of this solver",
        instead: "take a solver with DeviceData::transposed",
    }
}
