//! GPUs: the items of a batch are grouped by pattern, and each group is solved by a plan of its
//! own ([`solver_for`](crate::gpu::solver_for)).
//!
//! | file | holds |
//! | --- | --- |
//! | `plan.rs` | plans with confirmed verdicts, their options and tuning |
//! | `ahead.rs` | the kernels of a first solve, to be compiled side by side |
//! | `again.rs` | factors that stay on the GPU for several solves |
//! | `certify.rs` | systems that did not converge, and verdicts that no plan has confirmed |
//! | `divide.rs` | what is on the GPU, and what goes to the CPU |
//! | `left.rs` | systems that the GPU leaves to the CPU once it has tried them |
//! | `size.rs` | how much memory items take, and the chunks that they are cut into |
//! | `part.rs` | items of one pattern on the GPU, whole or in chunks |
//! | `piece.rs` | the parts of the items that one GPU solves |
//! | `pieces.rs` | the pieces of a batch, on one GPU or several |
//! | `several/` | how several GPUs share a batch: threads, the queue, the cut into pieces |
//! | `pipe.rs` | the pipeline of chunks: copy to the GPU, solve, copy back |
//! | `staging.rs` | values and vectors on the host |
//!
//! What a plan refuses goes to the CPU where that is allowed, and reports say so. Large copies go
//! through page-locked memory.

mod again;
mod ahead;
mod certify;
mod divide;
mod left;
mod part;
mod piece;
mod pieces;
mod pipe;
mod plan;
mod several;
mod size;
mod staging;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use sparsebatch_cpu_ref::{CpuError, CpuScalar};
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::Batch;
use sparsebatch_solve_core::{Criteria, Engine, Outcome, ProductCost, Scheme, SpmvOptions};

use super::cpu::wanted;
use super::{AnalysedSolve, CpuBackend, Gpu, KeptFactors, Placement, SolveBackend};
use crate::choose::{Chosen, OnChip, Target};
use crate::gpu::kernels_in_words;
use crate::products::ComposedEngine;
use crate::report::{Machine, Rung};
use crate::{SolveError, SolveOptions};
use ahead::kernels_ahead;
use certify::{certify, guesses};
use divide::{May, Refused, is_unsupported};
use part::{PartResults, Site};
use piece::{Piece, Wanted};
use pieces::Pieces;
pub(crate) use several::Teams;
use staging::Systems;

pub(crate) use left::OutOfRange;
pub(crate) use plan::tuning;

/// One of the GPUs of a backend.
#[derive(Clone)]
struct OneGpu<E> {
    gpu: Gpu<E>,
    /// Bytes that analysed solves keep on the device.
    held: Arc<AtomicU64>,
}

impl<E: Executor> OneGpu<E> {
    /// Bytes of device memory that may be allocated now.
    fn budget(&self) -> Result<u64, GpuError> {
        let free = self.gpu.executor.free_memory()?;
        let held = self.held.load(Ordering::Relaxed);
        Ok(self.gpu.memory_limit.map_or(free, |limit| limit.saturating_sub(held).min(free)))
    }

    fn site(&self, wanted: &Wanted<'_>) -> Site<E>
    where
        E: Clone,
    {
        let executor = self.gpu.executor.clone();
        let Wanted { scheme, options, chunks, .. } = *wanted;
        Site { executor, scheme, options: options.clone(), chunks }
    }
}

/// One GPU or several, with the options of the solves that run there.
#[derive(Clone)]
pub(crate) struct GpuBackend<E> {
    /// At least one.
    gpus: Arc<[OneGpu<E>]>,
    options: SolveOptions,
    teams: Arc<Teams>,
}

impl<E> GpuBackend<E> {
    /// A backend of at least one GPU, all of one model and with equal settings but for the memory.
    /// `options` are those of the whole batch.
    pub(crate) fn new(gpus: Vec<Gpu<E>>, options: SolveOptions) -> Self {
        let teams = Teams::new(if gpus.len() > 1 { gpus.len() } else { 0 });
        let gpus = gpus.into_iter().map(|gpu| OneGpu { gpu, held: Arc::default() }).collect();
        Self { gpus, options, teams: Arc::new(teams) }
    }

    /// The first GPU, whose model and settings are those of all.
    fn first(&self) -> &Gpu<E> {
        &self.gpus[0].gpu
    }
}

impl<E, T> SolveBackend<T> for GpuBackend<E>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn target(&self) -> Target {
        Target::Gpu(OnChip::new(self.first().executor.info(), size_of::<T>()))
    }

    fn prepare(&self, batch: &Batch<T>, choices: &[Chosen]) {
        let executor = &self.first().executor;
        if executor.is_unused() && self.options.engine == Engine::Fused {
            let kernels = kernels_ahead(executor.info(), batch, choices, &self.options);
            executor.prepare(&kernels).ok();
        }
    }

    fn with_options(&self, options: &SolveOptions) -> Box<dyn SolveBackend<T>> {
        Box::new(Self { options: options.clone(), ..self.clone() })
    }

    fn analyse_composed(
        &self,
        batch: &Batch<T>,
        scheme: Scheme,
        spmv: &SpmvOptions,
        nrhs: usize,
    ) -> Result<Box<dyn AnalysedSolve<T>>, SolveError> {
        let may = May { use_cpu: false, full_beyond: None, divide: self.first().in_chunks };
        match Pieces::of_products(self, batch, scheme, may) {
            Ok(pieces) => Ok(Box::new(Analysed::new(scheme, batch.nitems(), pieces))),
            Err(error) if self.first().or_cpu && is_unsupported(&error) => {
                let reason = Some(error.to_string());
                Ok(Box::new(ComposedEngine::new(batch, scheme, spmv, nrhs, reason)?))
            }
            Err(error) => Err(error),
        }
    }

    fn analyse(
        &self,
        batch: &Batch<T>,
        (rung, scheme): (Rung, Scheme),
        only: Option<&[usize]>,
    ) -> Result<Box<dyn AnalysedSolve<T>>, SolveError> {
        // Later rungs use the memory that the first one left, and may always fall back to the CPU.
        let use_cpu = self.first().or_cpu || rung != Rung::First;
        let divide = self.first().in_chunks || rung != Rung::First;
        let may = May { use_cpu, full_beyond: use_cpu.then_some(0), divide };
        // Products were asked for where the first rung iterates over some.
        let options = self.options.clone().engine(Engine::Fused);
        let backend = Self { options, ..self.clone() };
        let pieces = Pieces::new(&backend, batch, scheme, only, may)?;
        let mut analysed = Analysed::new(scheme, batch.nitems(), pieces);
        let mut on_cpu = Refused::default();
        for piece in analysed.pieces.all_mut() {
            on_cpu.append(std::mem::take(&mut piece.on_cpu));
        }
        if !on_cpu.items.is_empty() {
            let mut items: Vec<usize> = on_cpu.items.iter().map(|&item| item as usize).collect();
            items.sort_unstable();
            let engine = CpuBackend.analyse(batch, (rung, scheme), Some(&items))?;
            let mut is_here = vec![false; batch.nitems()];
            items.iter().for_each(|&item| is_here[item] = true);
            analysed.pieces.on_cpu = items.iter().map(|&item| item as u32).collect();
            analysed.cpu = Some(OnCpu { engine, is_here, items: on_cpu });
        }
        Ok(Box::new(analysed))
    }
}

/// The outcomes of the `asked` systems that were to be solved.
///
/// # Panics
/// If one of them has none, as after a solve that panicked.
fn told(outcomes: Vec<Option<Outcome>>, asked: usize) -> Vec<Outcome> {
    const MISSING: &str = "a system has no outcome: a solve before has panicked";
    if outcomes.len() == asked {
        // The list keeps its memory.
        return outcomes.into_iter().map(|outcome| outcome.expect(MISSING)).collect();
    }
    let told: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    assert_eq!(told.len(), asked, "{MISSING}");
    told
}

/// The items that the CPU solves, since no GPU can.
struct OnCpu<T> {
    engine: Box<dyn AnalysedSolve<T>>,
    /// One flag per item of the batch.
    is_here: Vec<bool>,
    /// The items, with the reasons.
    items: Refused,
}

impl<T: CpuScalar + Value> OnCpu<T> {
    fn solve(
        &mut self,
        systems: Systems<'_, T>,
        b: &[T],
        target: PartResults<'_, T>,
        criteria: &Criteria,
    ) -> Result<(), SolveError> {
        let nrhs = systems.nrhs;
        let theirs = |&system: &usize| self.is_here[system / nrhs] && systems.wants(system);
        let only: Vec<usize> = (0..self.is_here.len() * nrhs).filter(theirs).collect();
        let solved = self.engine.solve(systems.batch, nrhs, b, target.x, criteria, Some(&only))?;
        for (system, outcome) in only.into_iter().zip(solved) {
            target.outcomes[system] = Some(outcome);
        }
        Ok(())
    }
}

/// An analysed batch.
struct Analysed<E: Executor, T: Value> {
    scheme: Scheme,
    nitems: usize,
    pieces: Pieces<E, T>,
    cpu: Option<OnCpu<T>>,
    /// The matrices of the last factorisation.
    kept: Option<again::KeptBatch<T>>,
    /// Systems of the last solve that the GPU left to the CPU.
    left_to_cpu: usize,
}

impl<E, T> Analysed<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn new(scheme: Scheme, nitems: usize, pieces: Pieces<E, T>) -> Self {
        Self { scheme, nitems, pieces, cpu: None, kept: None, left_to_cpu: 0 }
    }

    /// Refuses other patterns than those analysed.
    fn check_patterns(&self, batch: &Batch<T>) -> Result<(), SolveError> {
        sparsebatch_solve_core::check_len("items of the batch", self.nitems, batch.nitems())?;
        let pieces = self.pieces.distinct().iter();
        match pieces.filter_map(|piece| piece.first_difference(batch)).min() {
            Some(item) => Err(SolveError::Cpu(CpuError::OtherPattern { item: item as usize })),
            None => Ok(()),
        }
    }

    /// Solves all systems that are wanted, and completes their verdicts.
    fn run(
        &mut self,
        systems: Systems<'_, T>,
        (b, guesses): (&[T], Option<&[T]>),
        mut target: PartResults<'_, T>,
        criteria: &Criteria,
    ) -> Result<(), SolveError> {
        let Self { pieces, cpu, .. } = self;
        let mut cpu = |target: PartResults<'_, T>| match cpu {
            Some(cpu) => cpu.solve(systems, b, target, criteria),
            None => Ok(()),
        };
        match pieces.alone() {
            Some(piece) => {
                piece.begin(systems, b, target.reborrow())?;
                // The CPU solves its items while the GPU works.
                cpu(target.reborrow())?;
                piece.finish(systems, b, target.reborrow())?;
            }
            None => {
                pieces.run(systems, (b, guesses), target.reborrow())?;
                cpu(target.reborrow())?;
            }
        }
        let Systems { batch, nrhs, .. } = systems;
        certify((batch, nrhs), (b, guesses), target, criteria, None);
        Ok(())
    }

    /// The devices: their number and name.
    fn device(&self) -> String {
        self.pieces.device()
    }

    /// The kernels of the parts, most systems first.
    fn kernels(&self) -> String {
        kernels_in_words(self.pieces.distinct().iter().flat_map(Piece::kernels))
    }

    /// The placement, but for what the CPU solves.
    fn on_gpu(&self) -> Placement {
        let all = || self.pieces.all().iter();
        let mut refused = Refused::default();
        all().for_each(|piece| refused.append(piece.composed()));
        Placement {
            backend: Machine::Gpu,
            device: self.device(),
            kernel: self.kernels(),
            chunks: all().map(Piece::chunks).max().unwrap_or(1),
            device_bytes: all().map(Piece::device_bytes).sum(),
            cpu_reason: None,
            composed_reason: refused.described(self.nitems),
            gpus: self.pieces.runs().to_vec(),
        }
    }
}

impl<E, T> AnalysedSolve<T> for Analysed<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn placement(&self) -> Placement {
        match (&self.cpu, self.pieces.all().iter().all(Piece::is_empty)) {
            (None, _) => self.with_left(self.on_gpu()),
            (Some(cpu), true) => {
                let whys: Vec<&str> = cpu.items.reasons.keys().map(String::as_str).collect();
                let gpus = self.pieces.runs().to_vec();
                Placement { cpu_reason: Some(whys.join("; ")), gpus, ..cpu.engine.placement() }
            }
            (Some(cpu), false) => {
                let (gpu, on_cpu) = (self.on_gpu(), cpu.engine.placement());
                self.with_left(Placement {
                    backend: Machine::GpuAndCpu,
                    device: format!("{}; {}", gpu.device, on_cpu.device),
                    kernel: format!("{}; {}", gpu.kernel, on_cpu.kernel),
                    cpu_reason: cpu.items.described(self.nitems),
                    ..gpu
                })
            }
        }
    }

    fn format(&self) -> &'static str {
        self.pieces.all().first().and_then(Piece::format).unwrap_or("csr")
    }

    fn product_cost(&mut self) -> Result<Option<ProductCost>, SolveError> {
        // A plan of products lies on one GPU.
        self.pieces.all_mut().first_mut().map_or(Ok(None), Piece::product_cost)
    }

    fn solve(
        &mut self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
        only: Option<&[usize]>,
    ) -> Result<Vec<Outcome>, SolveError> {
        self.check_patterns(batch)?;
        if let Some(kept) = &mut self.kept {
            kept.is_on_device = false;
        }
        let flags = only.map(|only| wanted(self.nitems * nrhs, Some(only)));
        let guesses = guesses(batch, nrhs, x, only);
        let watch = criteria.watch.as_ref();
        let wanted = flags.as_deref();
        let starts_at_zero = guesses.is_none();
        let systems = Systems { nrhs, wanted, starts_at_zero, watch, ..Systems::new(batch) };
        let none = rayon::iter::repeat_n(None, self.nitems * nrhs).with_min_len(1 << 14);
        let mut outcomes: Vec<Option<Outcome>> = none.collect();
        let vectors = (b, guesses.as_deref());
        self.run(systems, vectors, PartResults { x, outcomes: &mut outcomes }, criteria)?;
        self.solve_left(batch, nrhs, vectors, x, criteria, &mut outcomes)?;
        Ok(told(outcomes, only.map_or(self.nitems * nrhs, <[usize]>::len)))
    }

    fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), SolveError> {
        self.pieces.replace_limits(options)
    }

    fn kept_factors(&mut self) -> Option<&mut dyn KeptFactors<T>> {
        let mut pieces = self.pieces.all().iter();
        let keeps = self.cpu.is_none() && pieces.all(Piece::keeps_factors);
        if keeps { Some(self) } else { None }
    }
}
