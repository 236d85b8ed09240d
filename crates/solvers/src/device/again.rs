//! Several solves with the same matrices: [`DeviceSolver::factor`] and [`DeviceSolver::solve_again`].

use sparsebatch_cuda::{GpuError, KernelBuffer, copy_values};
use sparsebatch_solve_core::check_len;

use super::{DeviceReport, DeviceSolver, Factors, Matrices, Started};
use crate::gpu::{GpuSolveError, GpuSolver, Guess, check_apart};
use crate::{GpuExecutor, SolveError, SolveScalar};

/// The matrices that a solver keeps.
pub(super) struct KeptMatrices<E: GpuExecutor, T: SolveScalar> {
    /// Their values in the order of solvers.
    pub(super) values: E::Buffer<T>,
    /// Whether the plan has factors of them.
    pub(super) has_factors: bool,
    /// Whether a graph was recorded that replaces them, and so may do so at any time.
    pub(super) is_recorded: bool,
}

/// Factorises matrices where a plan keeps factors and has the memory for them, and tells whether it
/// did.
pub(super) fn factor<E: GpuExecutor, T: SolveScalar>(
    plan: &mut dyn GpuSolver<E, T>,
    values: &E::Buffer<T>,
) -> Result<Factors, SolveError> {
    if !plan.keeps_factors() {
        return Ok(Factors::None);
    }
    match plan.factor(values) {
        // The factors are too large to keep.
        Err(
            GpuSolveError::Unsupported { .. } | GpuSolveError::Gpu(GpuError::OutOfMemory { .. }),
        ) => {
            plan.forget_factors();
            Ok(Factors::None)
        }
        made => Ok(made.map(|()| Factors::Kept)?),
    }
}

impl<E: GpuExecutor, T: SolveScalar> DeviceSolver<E, T> {
    /// Whether [`DeviceSolver::factor`] keeps factors: with the sparse LU, and with preconditioners
    /// that have some. Without factors it keeps a copy of the matrices alone.
    pub fn keeps_factors(&self) -> bool {
        match &self.matrices {
            Some(kept) => kept.has_factors,
            None => self.plan.keeps_factors(),
        }
    }

    /// Keeps the matrices for [`DeviceSolver::solve_again`], and factorises them where the first method
    /// has factors. `values` as for [`DeviceSolver::enqueue`]; they are not read any more once the
    /// launches are done. The first call allocates memory: as much as the values, and the factors of
    /// each item.
    ///
    /// An item that cannot be factorised is no error: its systems end with a status, or go to later
    /// rungs. Nor are factors that the device has no memory for: solves make them again, as
    /// [`DeviceSolver::keeps_factors`] then tells. The next call tries again, which cannot be
    /// recorded in a graph.
    ///
    /// # Errors
    /// [`SolveError::Argument`] when `values` does not fit; [`SolveError::Gpu`] when there is no
    /// memory for the copy, or the compiler fails. Nothing is kept then.
    pub fn factor(&mut self, values: &E::Buffer<T>) -> Result<(), SolveError> {
        let mut kept = self.take_kept(values.len())?;
        match &self.staged_values {
            Some(staged) => staged.moves.to_item_major("values", values, &mut kept.values)?,
            None => copy_values(&self.executor, values, &mut kept.values)?,
        }
        self.factor_kept(kept)
    }

    /// The array of the matrices that the solver keeps, for a caller who forms them there, which
    /// saves the copy of [`DeviceSolver::factor`]: item-major, the values of all items. The first
    /// call allocates it. [`DeviceSolver::factor_in_place`] has to follow; solves with the matrices
    /// that were kept before have to be finished.
    ///
    /// # Errors
    /// [`SolveError::Unsupported`] with [`DeviceData::transposed`](crate::DeviceData::transposed)
    /// and for interleaved values; [`SolveError::Gpu`] when there is no memory. Nothing is kept
    /// then.
    pub fn kept_values(&mut self) -> Result<&mut E::Buffer<T>, SolveError> {
        if self.staged_values.is_some() {
            return Err(SolveError::Unsupported {
                what: "matrices formed in place in another order than that of solvers",
                instead: "give them to factor",
            });
        }
        let mut kept = self.take_kept(self.extents.total_values())?;
        // They are no longer those of the values.
        kept.has_factors = false;
        Ok(&mut self.matrices.insert(kept).values)
    }

    /// As [`DeviceSolver::factor`], with the matrices in [`DeviceSolver::kept_values`].
    ///
    /// # Errors
    /// [`SolveError::NotFactored`] without kept matrices; those of [`DeviceSolver::factor`].
    pub fn factor_in_place(&mut self) -> Result<(), SolveError> {
        let kept = self.matrices.as_ref().ok_or(SolveError::NotFactored)?;
        let kept = self.take_kept(kept.values.len())?;
        self.factor_kept(kept)
    }

    /// Takes the kept matrices, which are going to change; allocates them where there are none of
    /// `len` values.
    fn take_kept(&mut self, len: usize) -> Result<KeptMatrices<E, T>, SolveError> {
        if let Some(transposed) = &mut self.transposed {
            transposed.is_current = false;
        }
        let before = self.matrices.take();
        let mut kept = match before.filter(|kept| kept.values.len() == len) {
            Some(kept) => kept,
            None => KeptMatrices {
                values: self.executor.alloc(len)?,
                has_factors: false,
                is_recorded: false,
            },
        };
        kept.is_recorded = kept.is_recorded || self.executor.is_recording()?;
        Ok(kept)
    }

    /// Factorises matrices and keeps them.
    fn factor_kept(&mut self, mut kept: KeptMatrices<E, T>) -> Result<(), SolveError> {
        // A recorded solve may go on with the new matrices.
        let started = self.started.take();
        kept.has_factors = factor(&mut *self.plan, &kept.values)? == Factors::Kept;
        if !kept.has_factors {
            self.check_values(kept.values.len())?;
        }
        (self.matrices, self.started) = (Some(kept), started);
        Ok(())
    }

    /// As [`DeviceSolver::enqueue`], with the matrices of the last [`DeviceSolver::factor`].
    ///
    /// # Errors
    /// [`SolveError::NotFactored`] without such a call; those of [`DeviceSolver::enqueue`].
    pub fn enqueue_again(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError> {
        self.started = None;
        check_apart(b, x)?;
        self.with_kept(|solver, kept| {
            let by = if kept.has_factors { Factors::Kept } else { Factors::None };
            let started = Started::new(guess, Matrices::Kept, by);
            solver.with_staged_vectors(b, Some(guess), x, |solver, b, x| {
                solver.start(&kept.values, b, started, x)
            })
        })
    }

    /// As [`DeviceSolver::finish`], for the last [`DeviceSolver::enqueue_again`].
    ///
    /// # Errors
    /// [`SolveError::NotFactored`] without kept matrices; those of [`DeviceSolver::finish`].
    pub fn finish_again(
        &mut self,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
    ) -> Result<DeviceReport, SolveError> {
        check_apart(b, x)?;
        self.with_kept(|solver, kept| {
            solver.with_staged_vectors(b, None, x, |solver, b, x| {
                solver.complete(&kept.values, b, x, Matrices::Kept)
            })
        })
    }

    /// [`DeviceSolver::enqueue_again`] and [`DeviceSolver::finish_again`].
    ///
    /// # Errors
    /// Those of the two.
    pub fn solve_again(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<DeviceReport, SolveError> {
        self.enqueue_again(b, guess, x)?;
        self.finish_again(b, x)
    }

    /// As [`DeviceSolver::enqueue`], for matrices near to those of the last
    /// [`DeviceSolver::factor`]: kept factors that the matrices' own values do not belong to
    /// precondition or refine, where the method has such ([`GpuSolver::solves_near`]); otherwise
    /// the solve makes its own. [`DeviceSolver::finish`] completes it; systems that failed are
    /// first solved with factors of their own. The kept matrices stay as they are.
    ///
    /// # Errors
    /// [`SolveError::NotFactored`] without kept matrices; those of [`DeviceSolver::enqueue`].
    pub fn enqueue_near(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError> {
        self.started = None;
        check_apart(values, x)?;
        check_apart(b, x)?;
        let kept = self.matrices.as_ref().ok_or(SolveError::NotFactored)?;
        let by = match kept.has_factors && self.plan.solves_near() {
            true => Factors::Near,
            false => Factors::None,
        };
        self.with_staged_values(values, true, |solver, values| {
            solver.with_staged_vectors(b, Some(guess), x, |solver, b, x| {
                let started = Started::new(guess, Matrices::Given, by);
                solver.start(values, b, started, x)
            })
        })
    }

    /// [`DeviceSolver::enqueue_near`] and [`DeviceSolver::finish`].
    ///
    /// # Errors
    /// Those of the two.
    pub fn solve_near(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<DeviceReport, SolveError> {
        self.enqueue_near(values, b, guess, x)?;
        self.finish(values, b, x)
    }

    fn with_kept<R>(
        &mut self,
        work: impl FnOnce(&mut Self, &KeptMatrices<E, T>) -> Result<R, SolveError>,
    ) -> Result<R, SolveError> {
        let Some(kept) = self.matrices.take() else { return Err(SolveError::NotFactored) };
        let done = work(self, &kept);
        self.matrices = Some(kept);
        done
    }

    /// Refuses another number of values than of all items or of one.
    fn check_values(&self, len: usize) -> Result<(), SolveError> {
        if !self.patterns.shares(len) {
            check_len("values", self.extents.total_values(), len)?;
        }
        Ok(())
    }
}
