//! Factors that stay on the GPU for several solves: [`KeptFactors`] of an analysed batch.

use std::ops::Range;

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solve_core::{Criteria, Outcome};

use super::Analysed;
use super::certify::{Bounds, certify, guesses};
use super::part::{Part, PartResults};
use super::staging::Systems;
use crate::SolveError;
use crate::adjoint::TransposedBatch;
use crate::backend::KeptFactors;

/// The matrices whose factors are kept, for the ladder and to certify verdicts.
pub(super) struct KeptBatch<T> {
    batch: Batch<T>,
    bounds: Bounds,
    /// Whether their values are those on the device.
    pub(super) is_on_device: bool,
    /// The transposed matrices, to certify verdicts of their solves; their bounds, once the values
    /// are those of the kept matrices.
    transposed: Option<(TransposedBatch<T>, Option<Bounds>)>,
}

impl<E, T> KeptFactors<T> for Analysed<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn factor(&mut self, batch: &Batch<T>) -> Result<(), SolveError> {
        let before = self.kept.take();
        self.check_patterns(batch)?;
        let bounds = Bounds::new(batch);
        let nrhs = self.site.options.nrhs;
        let systems = Systems { batch, nrhs, wanted: None, bounds: &bounds, watch: None };
        if let Err(error) = self.factor_parts(systems) {
            self.parts.iter_mut().for_each(Part::forget_factors);
            return Err(error);
        }
        if let Some(held) = &mut self.held {
            held.replace(self.parts.iter().map(Part::bytes).sum());
        }
        let (batch, transposed) = match before {
            Some(KeptBatch { transposed, .. }) => {
                (batch.with_own_values(), transposed.map(|(transposed, _)| (transposed, None)))
            }
            None => (batch.with_own_values(), None),
        };
        self.kept = Some(KeptBatch { batch, bounds, is_on_device: true, transposed });
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
        let needed = |part: &Part<E, T>| part.bytes() + part.kept_bytes();
        let solved = match is_first && self.parts.iter().map(needed).sum::<u64>() > self.budget {
            true => Ok(None),
            false => self.solve_transposed_kept(&mut kept, nrhs, b, x, criteria).map(Some),
        };
        self.kept = Some(kept);
        if let (true, Some(held)) = (is_first, &mut self.held) {
            held.replace(self.parts.iter().map(Part::bytes).sum());
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
        if !self.parts.iter().all(Part::solves_near) {
            return Ok(None);
        }
        self.check_patterns(batch)?;
        let Some(kept) = &mut self.kept else { return Err(SolveError::NotFactored) };
        kept.is_on_device = false;
        let (bounds, guesses) = (Bounds::new(batch), guesses(batch, nrhs, x, None));
        let systems =
            Systems { batch, nrhs, wanted: None, bounds: &bounds, watch: criteria.watch.as_ref() };
        let mut outcomes: Vec<Option<Outcome>> = vec![None; batch.nitems() * nrhs];
        let target = PartResults { x, outcomes: &mut outcomes };
        self.run_parts(systems, true, Part::start_again, b, target)?;
        certify(batch, nrhs, &bounds, (b, guesses.as_deref()), x, criteria, &mut outcomes);
        Ok(Some(outcomes.into_iter().flatten().collect()))
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
    /// Sends and factorises the values of all parts, within the memory that they may take.
    fn factor_parts(&mut self, systems: Systems<'_, T>) -> Result<(), SolveError> {
        for part in &mut self.parts {
            part.send_values(&self.site, systems, &mut self.staging)?;
            part.factor()?;
        }
        let needed = self.parts.iter().map(Part::bytes).sum();
        if needed > self.budget {
            return Err(GpuError::OutOfMemory { needed, free: self.budget }.into());
        }
        Ok(())
    }

    fn solve_kept(
        &mut self,
        kept: &mut KeptBatch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Vec<Outcome>, SolveError> {
        let guesses = guesses(&kept.batch, nrhs, x, None);
        let mut outcomes = self.run_kept(kept, Part::start_again, (nrhs, b), x, criteria)?;
        let KeptBatch { batch, bounds, .. } = kept;
        certify(batch, nrhs, bounds, (b, guesses.as_deref()), x, criteria, &mut outcomes);
        Ok(outcomes.into_iter().flatten().collect())
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
        let mut outcomes = self.run_kept(kept, start, (nrhs, b), x, criteria)?;
        let (transposed, bounds) = match &mut kept.transposed {
            Some(transposed) => {
                if transposed.1.is_none() {
                    transposed.0.follow(&kept.batch);
                }
                transposed
            }
            none => none.insert((TransposedBatch::new(&kept.batch), None)),
        };
        let batch = transposed.batch();
        let bounds = bounds.get_or_insert_with(|| Bounds::new(batch));
        certify(batch, nrhs, bounds, (b, guesses.as_deref()), x, criteria, &mut outcomes);
        Ok(outcomes.into_iter().flatten().collect())
    }

    /// Sends the vectors of all parts, starts a solve of each, and receives the results, whose
    /// verdicts are the device's.
    fn run_kept(
        &mut self,
        kept: &mut KeptBatch<T>,
        start: impl Fn(&mut Part<E, T>) -> Result<(), SolveError>,
        (nrhs, b): (usize, &[T]),
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Vec<Option<Outcome>>, SolveError> {
        let KeptBatch { batch, bounds, is_on_device, .. } = kept;
        let watch = criteria.watch.as_ref();
        let systems = Systems { batch, nrhs, wanted: None, bounds, watch };
        let mut outcomes: Vec<Option<Outcome>> = vec![None; batch.nitems() * nrhs];
        let target = PartResults { x, outcomes: &mut outcomes };
        // Another batch was solved since.
        let sends_values = !*is_on_device;
        *is_on_device = true;
        self.run_parts(systems, sends_values, start, b, target)?;
        Ok(outcomes)
    }

    /// Sends vectors, and values where they are not on the device, starts a solve of each part, and
    /// receives the results.
    fn run_parts(
        &mut self,
        systems: Systems<'_, T>,
        sends_values: bool,
        start: impl Fn(&mut Part<E, T>) -> Result<(), SolveError>,
        b: &[T],
        mut target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        let (site, staging) = (&self.site, &mut self.staging);
        for part in &mut self.parts {
            if sends_values {
                part.send_values(site, systems, staging)?;
            }
            part.send_vectors(site, systems, b, target.x, staging)?;
        }
        for part in &mut self.parts {
            start(part)?;
        }
        for part in &mut self.parts {
            part.receive(site, systems, target.reborrow(), staging)?;
        }
        Ok(())
    }
}
