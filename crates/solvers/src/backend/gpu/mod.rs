//! A GPU: the items of a batch are grouped by pattern, and each group is solved by a plan of its
//! own ([`solver_for`](crate::gpu::solver_for)).
//!
//! | file | holds |
//! | --- | --- |
//! | `plan.rs` | options and tuning of the plans |
//! | `again.rs` | factors that stay on the GPU for several solves |
//! | `certify.rs` | checks of the GPU's verdicts by the rules of the CPU |
//! | `composed.rs` | items that plans refuse, or that are to be solved over products |
//! | `divide.rs` | what is on the GPU, and what goes to the CPU |
//! | `left.rs` | systems that the GPU leaves to the CPU once it has tried them |
//! | `size.rs` | how much memory items take, and the chunks that they are cut into |
//! | `part.rs` | items of one pattern on the GPU, whole or in chunks |
//! | `pipe.rs` | the pipeline of chunks: copy to the GPU, solve, copy back |
//! | `staging.rs` | values and vectors on the host |
//!
//! What a plan refuses goes to the CPU where that is allowed, and reports say so. Large copies go
//! through page-locked memory.

mod again;
mod certify;
mod composed;
mod divide;
mod left;
mod part;
mod pipe;
mod plan;
mod size;
mod staging;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use sparsebatch_cpu_ref::{CpuError, CpuScalar};
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::Batch;
use sparsebatch_solve_core::{Criteria, Outcome, ProductCost, Scheme, SpmvOptions};

use super::cpu::wanted;
use super::{AnalysedSolve, CpuBackend, Gpu, KeptFactors, Placement, SolveBackend};
use crate::choose::OnChip;
use crate::choose::Target;
use crate::error::go_on;
use crate::gpu::ProductKernel;
use crate::gpu::kernels_in_words;
use crate::products::ComposedEngine;
use crate::report::{Machine, Rung};
use crate::{SolveError, SolveOptions};
use certify::{Bounds, certify, guesses};
use composed::{ComposedItems, Room, composes};
use divide::{Divided, May, Refused, divide, is_full, is_unsupported};
use part::{Part, PartResults, Site};
use staging::{Staging, Systems};

pub(crate) use left::OutOfRange;
pub(crate) use plan::tuning;

/// A GPU, with the options of the solves that run there.
pub(crate) struct GpuBackend<E> {
    gpu: Gpu<E>,
    options: SolveOptions,
    /// Bytes that analysed solves keep on the device.
    held: Arc<AtomicU64>,
}

impl<E> GpuBackend<E> {
    /// `options` are those of the whole batch.
    pub(crate) fn new(gpu: Gpu<E>, options: SolveOptions) -> Self {
        Self { gpu, options, held: Arc::default() }
    }

    /// Bytes of device memory that may be allocated now.
    fn budget(&self) -> Result<u64, GpuError>
    where
        E: Executor,
    {
        let free = self.gpu.executor.free_memory()?;
        let held = self.held.load(Ordering::Relaxed);
        Ok(self.gpu.memory_limit.map_or(free, |limit| limit.saturating_sub(held).min(free)))
    }

    fn site(&self, scheme: Scheme) -> Site<E>
    where
        E: Clone,
    {
        let (executor, chunks) = (self.gpu.executor.clone(), self.gpu.chunks);
        Site { executor, scheme, options: self.options.clone(), chunks }
    }
}

impl<E, T> SolveBackend<T> for GpuBackend<E>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn target(&self) -> Target {
        Target::Gpu(OnChip::new(self.gpu.executor.info(), size_of::<T>()))
    }

    fn with_options(&self, options: &SolveOptions) -> Box<dyn SolveBackend<T>> {
        let (gpu, options, held) = (self.gpu.clone(), options.clone(), Arc::clone(&self.held));
        Box::new(Self { gpu, options, held })
    }

    fn analyse_composed(
        &self,
        batch: &Batch<T>,
        scheme: Scheme,
        spmv: &SpmvOptions,
        nrhs: usize,
    ) -> Result<Box<dyn AnalysedSolve<T>>, SolveError> {
        let site = self.site(scheme);
        let items = (0..batch.nitems() as u32).collect();
        let budget = self.budget()?;
        let room = Room { budget, may_divide: self.gpu.in_chunks, in_turns: false };
        let composed = ProductKernel::of(spmv)
            .map_err(SolveError::from)
            .and_then(|products| ComposedItems::new(&site, batch, items, products, room));
        match composed {
            Ok(composed) => {
                let mut analysed = Analysed::new(site, batch.nitems(), budget);
                analysed.held = Some(CountedBytes::new(&self.held, composed.held()));
                (analysed.composed, analysed.tells_cost) = (Some(composed), true);
                Ok(Box::new(analysed))
            }
            Err(error) if self.gpu.or_cpu && is_unsupported(&error) => {
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
        let site = self.site(scheme);
        // Later rungs use the memory that the first one left, and may always fall back to the CPU.
        let may = May {
            use_cpu: self.gpu.or_cpu || rung != Rung::First,
            divide: self.gpu.in_chunks || rung != Rung::First,
        };
        let budget = self.budget()?;
        let divided = divide(&site, batch, only, budget, may)?;
        let Divided { parts, refused, too_large: mut on_cpu, in_turns } = divided;
        let loaded = parts.iter().filter(|part| part.is_loaded());
        let bytes: u64 = loaded.map(Part::bytes).sum();
        let mut analysed =
            Analysed { parts, in_turns, ..Analysed::new(site, batch.nitems(), budget) };
        if !refused.items.is_empty() {
            let site = &analysed.site;
            let left = budget.saturating_sub(bytes);
            let room = Room { budget: left, may_divide: may.divide, in_turns };
            let mut items = refused.items.clone();
            items.sort_unstable();
            let composed = composes(site)
                .then(|| ComposedItems::new(site, batch, items, ProductKernel::default(), room));
            match composed {
                Some(Ok(composed)) => {
                    analysed.composed = Some(composed);
                    analysed.refused = refused;
                }
                Some(Err(error))
                    if !may.use_cpu || !(is_unsupported(&error) || is_full(&error)) =>
                {
                    return Err(error);
                }
                // They do not fit in memory.
                Some(Err(error)) if is_full(&error) => on_cpu.push(&refused.items, &error),
                _ => on_cpu.append(refused),
            }
        }
        let held = bytes + analysed.composed.as_ref().map_or(0, ComposedItems::held);
        analysed.held = Some(CountedBytes::new(&self.held, held));
        if !on_cpu.items.is_empty() {
            let mut items: Vec<usize> = on_cpu.items.iter().map(|&item| item as usize).collect();
            items.sort_unstable();
            analysed.cpu = Some(CpuBackend.analyse(batch, (rung, scheme), Some(&items))?);
            analysed.is_on_cpu = vec![false; batch.nitems()];
            items.iter().for_each(|&item| analysed.is_on_cpu[item] = true);
            analysed.on_cpu = on_cpu;
        }
        Ok(Box::new(analysed))
    }
}

/// Bytes on the device, counted until this is dropped.
struct CountedBytes {
    bytes: u64,
    all: Arc<AtomicU64>,
}

impl CountedBytes {
    fn new(all: &Arc<AtomicU64>, bytes: u64) -> Self {
        all.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, all: Arc::clone(all) }
    }

    fn replace(&mut self, bytes: u64) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An analysed batch.
struct Analysed<E: Executor, T: Value> {
    site: Site<E>,
    /// The bytes that it keeps on the device.
    held: Option<CountedBytes>,
    /// Approximate bytes that the parts may take.
    budget: u64,
    nitems: usize,
    parts: Vec<Part<E, T>>,
    in_turns: bool,
    /// Items that no plan of whole solves supports.
    composed: Option<ComposedItems<E, T>>,
    /// Whether a plan of products was asked for.
    tells_cost: bool,
    cpu: Option<Box<dyn AnalysedSolve<T>>>,
    /// One flag per item: whether the CPU solves it; empty if it solves none.
    is_on_cpu: Vec<bool>,
    /// The items of the composed solver, with the reasons.
    refused: Refused,
    /// The items of the CPU, with the reasons.
    on_cpu: Refused,
    staging: Staging<T>,
    /// The matrices of the last factorisation.
    kept: Option<again::KeptBatch<T>>,
    /// Systems of the last solve that the GPU left to the CPU.
    left_to_cpu: usize,
}

impl<E: Executor, T: Value> Analysed<E, T> {
    /// Nothing yet.
    fn new(site: Site<E>, nitems: usize, budget: u64) -> Self {
        Self {
            site,
            held: None,
            budget,
            nitems,
            parts: Vec::new(),
            in_turns: false,
            composed: None,
            tells_cost: false,
            cpu: None,
            is_on_cpu: Vec::new(),
            refused: Refused::default(),
            on_cpu: Refused::default(),
            staging: Staging::default(),
            kept: None,
            left_to_cpu: 0,
        }
    }
}

impl<E, T> Analysed<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn solve_on_cpu(
        &mut self,
        systems: Systems<'_, T>,
        b: &[T],
        target: PartResults<'_, T>,
        criteria: &Criteria,
    ) -> Result<(), SolveError> {
        let Some(cpu) = &mut self.cpu else {
            return Ok(());
        };
        let nrhs = systems.nrhs;
        let theirs = |&system: &usize| self.is_on_cpu[system / nrhs] && systems.wants(system);
        let only: Vec<usize> = (0..self.nitems * nrhs).filter(theirs).collect();
        let solved = cpu.solve(systems.batch, nrhs, b, target.x, criteria, Some(&only))?;
        for (system, outcome) in only.into_iter().zip(solved) {
            target.outcomes[system] = Some(outcome);
        }
        Ok(())
    }

    /// Refuses other patterns than those analysed.
    fn check_patterns(&self, batch: &Batch<T>) -> Result<(), SolveError> {
        sparsebatch_solve_core::check_len("items of the batch", self.nitems, batch.nitems())?;
        let composed = self.composed.iter().filter_map(|items| items.first_difference(batch));
        let parts = self.parts.iter().filter_map(|part| part.first_difference(batch));
        match composed.chain(parts).min() {
            Some(item) => Err(SolveError::Cpu(CpuError::OtherPattern { item: item as usize })),
            None => Ok(()),
        }
    }

    /// Solves all systems that are wanted.
    fn run(
        &mut self,
        systems: Systems<'_, T>,
        b: &[T],
        mut target: PartResults<'_, T>,
        criteria: &Criteria,
    ) -> Result<(), SolveError> {
        let batch = systems.batch;
        let (site, staging) = (&self.site, &mut self.staging);
        let several = self.parts.len() > 1;
        if self.in_turns {
            for part in &mut self.parts {
                go_on(&criteria.watch)?;
                if !part.is_loaded() {
                    part.load_within(site, batch, self.budget)?;
                }
                part.send_values(site, systems, staging)?;
                part.send_vectors(site, systems, b, target.x, staging)?;
                part.start()?;
                part.run(site, systems, b, target.reborrow())?;
                part.receive(site, systems, target.reborrow(), staging)?;
                // A single part keeps its memory.
                if several {
                    part.unload();
                }
            }
            self.solve_composed(systems, b, target.reborrow())?;
            self.solve_on_cpu(systems, b, target, criteria)?;
        } else {
            for part in &mut self.parts {
                part.send_values(site, systems, staging)?;
                part.send_vectors(site, systems, b, target.x, staging)?;
            }
            for part in &mut self.parts {
                part.start()?;
            }
            for part in &mut self.parts {
                part.run(site, systems, b, target.reborrow())?;
            }
            // The CPU solves its items while the GPU works.
            self.solve_on_cpu(systems, b, target.reborrow(), criteria)?;
            self.solve_composed(systems, b, target.reborrow())?;
            for part in &mut self.parts {
                part.receive(&self.site, systems, target.reborrow(), &mut self.staging)?;
            }
        }
        Ok(())
    }

    fn solve_composed(
        &mut self,
        systems: Systems<'_, T>,
        b: &[T],
        target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        let vectors = (b, target.x, target.outcomes);
        match &mut self.composed {
            Some(items) => items.solve(&self.site, systems, vectors, self.tells_cost),
            None => Ok(()),
        }
    }

    /// The kernels of the parts, most systems first.
    fn kernels(&self) -> String {
        let composed = self.composed.iter().map(|items| (items.kernel(), items.nitems()));
        let parts = self.parts.iter().map(|part| (part.kernel(), part.items.len()));
        let kernels = composed.chain(parts);
        kernels_in_words(kernels.map(|(kernel, systems)| (kernel.to_owned(), systems)))
    }
}

impl<E, T> AnalysedSolve<T> for Analysed<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn placement(&self) -> Placement {
        let device = self.site.executor.info().name.clone();
        let composed_reason = self.refused.described(self.nitems);
        match (&self.cpu, self.parts.is_empty() && self.composed.is_none()) {
            (None, _) => self.with_left(Placement {
                backend: Machine::Gpu,
                device,
                kernel: self.kernels(),
                chunks: self.chunks(),
                device_bytes: self.device_bytes(),
                cpu_reason: None,
                composed_reason,
            }),
            (Some(cpu), true) => {
                let whys: Vec<&str> = self.on_cpu.reasons.keys().map(String::as_str).collect();
                Placement { cpu_reason: Some(whys.join("; ")), ..cpu.placement() }
            }
            (Some(cpu), false) => {
                let cpu = cpu.placement();
                self.with_left(Placement {
                    backend: Machine::GpuAndCpu,
                    device: format!("{device}; {}", cpu.device),
                    kernel: format!("{}; {}", self.kernels(), cpu.kernel),
                    chunks: self.chunks(),
                    device_bytes: self.device_bytes(),
                    cpu_reason: self.on_cpu.described(self.nitems),
                    composed_reason,
                })
            }
        }
    }

    fn format(&self) -> &'static str {
        match &self.composed {
            Some(items) if self.parts.is_empty() => items.format(),
            _ => "csr",
        }
    }

    fn product_cost(&mut self) -> Result<Option<ProductCost>, SolveError> {
        match &mut self.composed {
            Some(items) if self.tells_cost => items.product_cost(),
            _ => Ok(None),
        }
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
        let bounds = Bounds::new(batch);
        let systems = Systems {
            batch,
            nrhs,
            wanted: flags.as_deref(),
            bounds: &bounds,
            watch: criteria.watch.as_ref(),
        };
        let none = rayon::iter::repeat_n(None, self.nitems * nrhs).with_min_len(1 << 14);
        let mut outcomes: Vec<Option<Outcome>> = none.collect();
        self.run(systems, b, PartResults { x, outcomes: &mut outcomes }, criteria)?;
        certify(batch, nrhs, &bounds, (b, guesses.as_deref()), x, criteria, &mut outcomes);
        let vectors = (b, guesses.as_deref());
        self.solve_left(batch, nrhs, vectors, x, criteria, &mut outcomes)?;
        Ok(outcomes.into_iter().flatten().collect())
    }

    fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), SolveError> {
        if self.composed.is_some() {
            return Err(SolveError::Unsupported {
                what: "other tolerances and limits for a composed solve",
                instead: "give them when the batch is analysed, or solve on the CPU",
            });
        }
        self.site.options = self.site.options.with_limits_of(options);
        let site = &self.site;
        self.parts.iter_mut().try_for_each(|part| part.replace_limits(site))
    }

    fn kept_factors(&mut self) -> Option<&mut dyn KeptFactors<T>> {
        // The plans of parts have all items, all at once.
        let is_whole = !self.in_turns && self.composed.is_none() && self.cpu.is_none();
        let keeps =
            is_whole && !self.parts.is_empty() && self.parts.iter().all(Part::keeps_factors);
        if keeps { Some(self) } else { None }
    }
}

impl<E, T> Analysed<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    /// The largest number of chunks of any part.
    fn chunks(&self) -> usize {
        let composed = self.composed.iter().map(ComposedItems::chunks);
        self.parts.iter().map(Part::chunks).chain(composed).max().unwrap_or(1)
    }

    /// Bytes on the device: of all parts, or of the largest if they are loaded one after the other.
    fn device_bytes(&self) -> u64 {
        let composed = self.composed.iter().map(ComposedItems::device_bytes);
        let bytes = self.parts.iter().map(Part::bytes).chain(composed);
        if self.in_turns { bytes.max().unwrap_or(0) } else { bytes.sum() }
    }
}
