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
use crate::backend::KeptFactors;

/// The matrices whose factors are kept, for the ladder and to certify verdicts.
pub(super) struct KeptBatch<T> {
    batch: Batch<T>,
    bounds: Bounds,
    /// Whether their values are those on the device.
    pub(super) is_on_device: bool,
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
        let batch = match before.map(|kept| kept.batch) {
            Some(mut copy) => {
                copy.clone_from(batch);
                copy
            }
            None => batch.clone(),
        };
        self.kept = Some(KeptBatch { batch, bounds, is_on_device: true });
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
        let KeptBatch { batch, bounds, is_on_device } = kept;
        let guesses = guesses(batch, nrhs, x, None);
        let watch = criteria.watch.as_ref();
        let systems = Systems { batch, nrhs, wanted: None, bounds, watch };
        let (site, staging) = (&self.site, &mut self.staging);
        for part in &mut self.parts {
            // Another batch was solved since.
            if !*is_on_device {
                part.send_values(site, systems, staging)?;
            }
            part.send_vectors(site, systems, b, x, staging)?;
        }
        *is_on_device = true;
        for part in &mut self.parts {
            part.start_again()?;
        }
        let mut outcomes: Vec<Option<Outcome>> = vec![None; batch.nitems() * nrhs];
        for part in &mut self.parts {
            let target = PartResults { x, outcomes: &mut outcomes };
            part.receive(site, systems, target, staging)?;
        }
        certify(batch, nrhs, bounds, (b, guesses.as_deref()), x, criteria, &mut outcomes);
        Ok(outcomes.into_iter().flatten().collect())
    }
}
