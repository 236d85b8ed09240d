//! Factors that stay on the GPU for several solves: [`KeptFactors`] of an analysed batch.

use std::ops::Range;

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solve_core::{Criteria, Outcome};

use super::certify::{Unconfirmed, certify, guesses};
use super::part::{Part, PartResults};
use super::piece::Piece;
use super::staging::Systems;
use super::{Analysed, told};
use crate::SolveError;
use crate::adjoint::TransposedBatch;
use crate::backend::KeptFactors;

/// The matrices whose factors are kept, for the ladder and to certify verdicts.
pub(super) struct KeptBatch<T> {
    batch: Batch<T>,
    /// Whether their values are those on the device.
    pub(super) is_on_device: bool,
    /// The transposed matrices, to certify verdicts of their solves, and what bounds the rounding
    /// errors of their residuals, once their values are those of the kept matrices.
    transposed: Option<(TransposedBatch<T>, Option<Unconfirmed>)>,
}

impl<E, T> KeptFactors<T> for Analysed<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn factor(&mut self, batch: &Batch<T>) -> Result<(), SolveError> {
        let before = self.kept.take();
        self.check_patterns(batch)?;
        let systems = Systems::new(batch);
        let none = PartResults { x: &mut [], outcomes: &mut [] };
        let factored =
            self.pieces.on_each(systems, (&[], None), none, is_fault, &|piece, systems, _, _| {
                check_keeps(piece)?;
                piece.factor(systems)
            });
        if let Err(error) = factored {
            self.pieces.all_mut().iter_mut().for_each(Piece::forget_factors);
            return Err(error);
        }
        let (batch, transposed) = match before {
            Some(KeptBatch { transposed, .. }) => {
                (batch.with_own_values(), transposed.map(|(transposed, _)| (transposed, None)))
            }
            None => (batch.with_own_values(), None),
        };
        self.kept = Some(KeptBatch { batch, is_on_device: true, transposed });
        Ok(())
    }

    fn solve_again(
        &mut self,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Vec<Outcome>, SolveError> {
        let Some(mut kept) = self.kept.take() else { return Err(SolveError::NotFactored) };
        let solved = self.solve_kept(&mut kept, nrhs, b, x, criteria);
        self.kept = Some(kept);
        solved
    }

    fn solve_transposed_again(
        &mut self,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Option<Vec<Outcome>>, SolveError> {
        let Some(mut kept) = self.kept.take() else { return Err(SolveError::NotFactored) };
        // The first call takes as much memory again as the factors.
        let is_first = kept.transposed.is_none();
        let solved = match is_first && !self.pieces.all().iter().all(Piece::fits_twice) {
            true => Ok(None),
            false => self.solve_transposed_kept(&mut kept, nrhs, b, x, criteria).map(Some),
        };
        self.kept = Some(kept);
        if is_first {
            self.pieces.all_mut().iter_mut().for_each(Piece::count_bytes);
        }
        match solved {
            // The factors of these plans do not serve the transposed matrices, or do not fit twice.
            Err(SolveError::Unsupported { .. } | SolveError::Gpu(GpuError::OutOfMemory { .. })) => {
                Ok(None)
            }
            solved => solved,
        }
    }

    fn solve_near(
        &mut self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Option<Vec<Outcome>>, SolveError> {
        if !self.pieces.all().iter().all(Piece::solves_near) {
            return Ok(None);
        }
        self.check_patterns(batch)?;
        let Some(kept) = &mut self.kept else { return Err(SolveError::NotFactored) };
        kept.is_on_device = false;
        let guesses = guesses(batch, nrhs, x, None);
        let watch = criteria.watch.as_ref();
        let starts_at_zero = guesses.is_none();
        let systems = Systems { nrhs, starts_at_zero, watch, ..Systems::new(batch) };
        let mut outcomes: Vec<Option<Outcome>> = vec![None; batch.nitems() * nrhs];
        let target = PartResults { x, outcomes: &mut outcomes };
        let (kept, vectors) = (kept.matrices(), (b, guesses.as_deref()));
        self.pieces.on_each(systems, vectors, target, is_fault, &|piece, systems, b, target| {
            factor_again(piece, kept)?;
            piece.run_again(systems, true, Part::start_again, b, target)
        })?;
        let target = PartResults { x, outcomes: &mut outcomes };
        certify((batch, nrhs), vectors, target, criteria, None);
        Ok(Some(told(outcomes, batch.nitems() * nrhs)))
    }

    fn batch(&self) -> Option<&Batch<T>> {
        Some(&self.kept.as_ref()?.batch)
    }

    fn item(&self, item: usize) -> Option<(Csr<T>, Range<usize>)> {
        let batch = &self.kept.as_ref()?.batch;
        let rows = batch.row_offset(item)..batch.row_offset(item + 1);
        (item < batch.nitems()).then(|| (batch.to_csr(item), rows))
    }
}

impl<E, T> Analysed<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn solve_kept(
        &mut self,
        kept: &mut KeptBatch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Vec<Outcome>, SolveError> {
        let guesses = guesses(&kept.batch, nrhs, x, None);
        let mut outcomes =
            self.run_kept(kept, Part::start_again, (nrhs, b, guesses.as_deref()), x, criteria)?;
        let target = PartResults { x, outcomes: &mut outcomes };
        certify((&kept.batch, nrhs), (b, guesses.as_deref()), target, criteria, None);
        Ok(told(outcomes, self.nitems * nrhs))
    }

    fn solve_transposed_kept(
        &mut self,
        kept: &mut KeptBatch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Vec<Outcome>, SolveError> {
        let guesses = guesses(&kept.batch, nrhs, x, None);
        let start = Part::start_transposed_again;
        let mut outcomes =
            self.run_kept(kept, start, (nrhs, b, guesses.as_deref()), x, criteria)?;
        let (transposed, unconfirmed) = match &mut kept.transposed {
            Some(transposed) => {
                if transposed.1.is_none() {
                    transposed.0.follow(&kept.batch);
                }
                transposed
            }
            none => none.insert((TransposedBatch::new(&kept.batch), None)),
        };
        let batch = transposed.batch();
        let unconfirmed = unconfirmed.get_or_insert_with(|| Unconfirmed::all(batch));
        let (target, vectors) =
            (PartResults { x, outcomes: &mut outcomes }, (b, guesses.as_deref()));
        certify((batch, nrhs), vectors, target, criteria, Some(unconfirmed));
        Ok(told(outcomes, self.nitems * nrhs))
    }

    /// Sends the vectors of all parts, starts a solve of each, and receives the results.
    fn run_kept(
        &mut self,
        kept: &mut KeptBatch<T>,
        start: impl Fn(&mut Part<E, T>) -> Result<(), SolveError> + Sync,
        (nrhs, b, guesses): (usize, &[T], Option<&[T]>),
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Vec<Option<Outcome>>, SolveError> {
        // Another batch was solved since.
        let sends_values = !kept.is_on_device;
        let matrices = kept.matrices();
        let watch = criteria.watch.as_ref();
        let starts_at_zero = guesses.is_none();
        let systems = Systems { nrhs, starts_at_zero, watch, ..matrices };
        let mut outcomes: Vec<Option<Outcome>> = vec![None; matrices.batch.nitems() * nrhs];
        let target = PartResults { x, outcomes: &mut outcomes };
        self.pieces.on_each(
            systems,
            (b, guesses),
            target,
            is_fault,
            &|piece, systems, b, target| {
                factor_again(piece, matrices)?;
                piece.run_again(systems, sends_values, &start, b, target)
            },
        )?;
        kept.is_on_device = true;
        Ok(outcomes)
    }
}

impl<T: CpuScalar> KeptBatch<T> {
    /// The matrices, without vectors.
    fn matrices(&self) -> Systems<'_, T> {
        Systems::new(&self.batch)
    }
}

/// Factorises the kept matrices of a piece that was made since they were kept.
fn factor_again<E, T>(piece: &mut Piece<E, T>, kept: Systems<'_, T>) -> Result<(), SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    if piece.has_factors() {
        return Ok(());
    }
    check_keeps(piece)?;
    piece.factor(kept)
}

/// Whether an error means that a GPU can no longer be used. Factors that do not fit are none: the
/// matrices are kept in another way then.
fn is_fault(error: &GpuError) -> bool {
    !matches!(error, GpuError::OutOfMemory { .. })
}

/// Refuses to factorise the items of a lost GPU where they do not fit beside those of another one.
fn check_keeps<E, T>(piece: &Piece<E, T>) -> Result<(), SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    if !piece.keeps_factors() {
        return Err(SolveError::Unsupported {
            what: "the kept factors of a GPU that was lost: the others lack the memory for them",
            instead: "solve with the matrices, or factorise fewer at a time",
        });
    }
    Ok(())
}
