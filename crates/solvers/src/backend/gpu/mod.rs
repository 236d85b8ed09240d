//! A GPU: the items of a batch are grouped by pattern, and each group is solved by a plan of its own
//! ([`plan_for`](plan::plan_for)).
//!
//! | file | holds |
//! | --- | --- |
//! | `plan.rs` | which plan a step gets |
//! | `composed.rs` | items of any patterns that plans refuse, or that are to be solved over products |
//! | `divide.rs` | what is on the GPU, and what goes to the CPU |
//! | `part.rs` | items of one pattern on the GPU, all at once or in chunks |
//! | `staging.rs` | their values and vectors on the host |
//!
//! What a plan refuses goes to the CPU where that is allowed, and reports say so. Large copies go
//! through page-locked memory of the device.

mod composed;
mod divide;
mod part;
mod plan;
mod staging;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use sparsebatch_cpu_ref::lanes::{LaneMethod, classes};
use sparsebatch_cpu_ref::{CpuError, CpuScalar, Criteria, Outcome, SpmvOptions};
use sparsebatch_formats::Batch;
use sparsebatch_spmv_gpu::{Executor, GpuError, Value};

use super::cpu::wanted;
use super::{AnalysedSolve, CpuBackend, Gpu, Placement, SolveBackend};
use crate::choose::Step;
use crate::gpu::ProductKernel;
use crate::products::ComposedEngine;
use crate::report::{ProductCost, Rung};
use crate::{SolveError, SolveOptions};
use composed::{ComposedItems, Room, composes};
use divide::{Divided, Refused, at_once, in_chunks, is_full, is_unsupported};
use part::{Part, Site};
use staging::{Staging, Systems};

/// Kernels that a report names.
const NAMED_KERNELS: usize = 3;

/// A GPU, with the options of the solves that run there.
pub(crate) struct GpuBackend<E> {
    gpu: Gpu<E>,
    options: SolveOptions,
    /// Bytes that the first rung keeps on the device, about.
    held: AtomicU64,
}

impl<E> GpuBackend<E> {
    /// `options` are those of the whole batch; limits of analysed solves are theirs.
    pub(crate) fn new(gpu: Gpu<E>, options: SolveOptions) -> Self {
        Self { gpu, options, held: AtomicU64::new(0) }
    }

    /// Bytes that may be taken now.
    fn budget(&self) -> Result<u64, GpuError>
    where
        E: Executor,
    {
        let free = self.gpu.executor.free_memory()?;
        let held = self.held.load(Ordering::Relaxed);
        Ok(self.gpu.memory_limit.map_or(free, |limit| limit.saturating_sub(held).min(free)))
    }

    fn site(&self, step: Step) -> Site<E>
    where
        E: Clone,
    {
        Site { executor: self.gpu.executor.clone(), step, options: self.options.clone() }
    }
}

impl<E, T> SolveBackend<T> for GpuBackend<E>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn analyse_composed(
        &self,
        batch: &Batch<T>,
        method: LaneMethod,
        spmv: &SpmvOptions,
        nrhs: usize,
    ) -> Result<Box<dyn AnalysedSolve<T>>, SolveError> {
        let site = self.site(Step::Lanes(method));
        let items = (0..batch.nitems() as u32).collect();
        let room = Room { budget: self.budget()?, may_divide: self.gpu.in_chunks, in_turns: false };
        let composed = ProductKernel::of(spmv)
            .and_then(|products| ComposedItems::new(&site, batch, items, products, room));
        match composed {
            Ok(composed) => {
                self.held.store(composed.held(), Ordering::Relaxed);
                Ok(Box::new(Analysed {
                    composed: Some(composed),
                    tells_cost: true,
                    ..Analysed::new(site, batch.nitems())
                }))
            }
            Err(error) if self.gpu.or_cpu && is_unsupported(&error) => {
                let reason = Some(error.to_string());
                Ok(Box::new(ComposedEngine::new(batch, method, spmv, nrhs, reason)?))
            }
            Err(error) => Err(error),
        }
    }

    fn analyse(
        &self,
        batch: &Batch<T>,
        (rung, step): (Rung, Step),
        only: Option<&[usize]>,
    ) -> Result<Box<dyn AnalysedSolve<T>>, SolveError> {
        let site = self.site(step);
        // Later rungs take what the first one left: memory and systems.
        let or_cpu = self.gpu.or_cpu || rung != Rung::First;
        let may_divide = self.gpu.in_chunks || rung != Rung::First;
        let budget = self.budget()?;
        let classes = classes(batch, only);
        let divided = match at_once(&site, batch, &classes, budget, or_cpu) {
            Err(SolveError::Gpu(GpuError::OutOfMemory { .. })) if may_divide => {
                in_chunks(&site, batch, &classes, budget, or_cpu)?
            }
            divided => divided?,
        };
        let Divided { parts, refused, too_large: mut on_cpu, in_turns } = divided;
        let bytes = match in_turns {
            false => parts.iter().map(|part| part.bytes(batch, self.options.nrhs)).sum(),
            true => 0,
        };
        let mut analysed = Analysed { parts, in_turns, ..Analysed::new(site, batch.nitems()) };
        if !refused.items.is_empty() {
            let site = &analysed.site;
            let room = Room { budget: budget.saturating_sub(bytes), may_divide, in_turns };
            let mut items = refused.items.clone();
            items.sort_unstable();
            let composed = composes(site)
                .then(|| ComposedItems::new(site, batch, items, ProductKernel::default(), room));
            match composed {
                Some(Ok(composed)) => {
                    analysed.composed = Some(composed);
                    analysed.refused = refused;
                }
                Some(Err(error)) if !or_cpu || !(is_unsupported(&error) || is_full(&error)) => {
                    return Err(error);
                }
                _ => on_cpu.append(refused),
            }
        }
        if rung == Rung::First {
            let held = analysed.composed.as_ref().map_or(0, ComposedItems::held);
            self.held.store(bytes + held, Ordering::Relaxed);
        }
        if !on_cpu.items.is_empty() {
            let mut items: Vec<usize> = on_cpu.items.iter().map(|&item| item as usize).collect();
            items.sort_unstable();
            analysed.cpu = Some(CpuBackend.analyse(batch, (rung, step), Some(&items))?);
            analysed.is_on_cpu = vec![false; batch.nitems()];
            items.iter().for_each(|&item| analysed.is_on_cpu[item] = true);
            analysed.on_cpu = on_cpu;
        }
        Ok(Box::new(analysed))
    }
}

/// An analysed batch.
struct Analysed<E: Executor, T: Value> {
    site: Site<E>,
    nitems: usize,
    parts: Vec<Part<E, T>>,
    in_turns: bool,
    /// What no plan takes whole.
    composed: Option<ComposedItems<E, T>>,
    /// Whether a plan of products was asked for.
    tells_cost: bool,
    cpu: Option<Box<dyn AnalysedSolve<T>>>,
    /// Which items the CPU has; empty where it has none.
    is_on_cpu: Vec<bool>,
    /// What the composed solver has, and why.
    refused: Refused,
    /// What the CPU has, and why.
    on_cpu: Refused,
    staging: Staging<T>,
}

impl<E: Executor, T: Value> Analysed<E, T> {
    /// Nothing yet.
    fn new(site: Site<E>, nitems: usize) -> Self {
        Self {
            site,
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
        (b, x, outcomes): (&[T], &mut [T], &mut [Option<Outcome>]),
        criteria: &Criteria,
    ) -> Result<(), SolveError> {
        let Some(cpu) = &mut self.cpu else {
            return Ok(());
        };
        let nrhs = systems.nrhs;
        let theirs = |&system: &usize| self.is_on_cpu[system / nrhs] && systems.wants(system);
        let only: Vec<usize> = (0..self.nitems * nrhs).filter(theirs).collect();
        let solved = cpu.solve(systems.batch, nrhs, b, x, criteria, Some(&only))?;
        for (system, outcome) in only.into_iter().zip(solved) {
            outcomes[system] = Some(outcome);
        }
        Ok(())
    }

    fn solve_composed(
        &mut self,
        systems: Systems<'_, T>,
        vectors: (&[T], &mut [T], &mut [Option<Outcome>]),
    ) -> Result<(), SolveError> {
        match &mut self.composed {
            Some(items) => items.solve(&self.site, systems, vectors, self.tells_cost),
            None => Ok(()),
        }
    }

    /// The kernels of the parts, most systems first.
    fn kernels(&self) -> String {
        let mut systems: BTreeMap<&str, usize> = BTreeMap::new();
        if let Some(composed) = &self.composed {
            systems.insert(composed.kernel(), composed.nitems());
        }
        for part in &self.parts {
            *systems.entry(part.kernel()).or_default() += part.items.len();
        }
        let mut kernels: Vec<(&str, usize)> = systems.into_iter().collect();
        kernels.sort_by_key(|&(_, systems)| std::cmp::Reverse(systems));
        match kernels.as_slice() {
            [] => "none".to_owned(),
            [(kernel, _)] => (*kernel).to_owned(),
            kernels => {
                let named = kernels.iter().take(NAMED_KERNELS);
                let mut text: Vec<String> = named
                    .map(|(kernel, systems)| format!("{kernel} ({systems} systems)"))
                    .collect();
                if kernels.len() > NAMED_KERNELS {
                    text.push(format!("{} more", kernels.len() - NAMED_KERNELS));
                }
                text.join(", ")
            }
        }
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
            (None, _) => Placement {
                backend: "gpu",
                device,
                kernel: self.kernels(),
                chunks: self.chunks(),
                cpu_reason: None,
                composed_reason,
            },
            (Some(cpu), true) => {
                let whys: Vec<&str> = self.on_cpu.reasons.keys().map(String::as_str).collect();
                Placement { cpu_reason: Some(whys.join("; ")), ..cpu.placement() }
            }
            (Some(cpu), false) => {
                let cpu = cpu.placement();
                Placement {
                    backend: "gpu+cpu",
                    device: format!("{device}; {}", cpu.device),
                    kernel: format!("{}; {}", self.kernels(), cpu.kernel),
                    chunks: self.chunks(),
                    cpu_reason: self.on_cpu.described(self.nitems),
                    composed_reason,
                }
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
        crate::options::check_len("items of the batch", self.nitems, batch.nitems())?;
        let composed_matches = self.composed.as_ref().is_none_or(|items| items.matches(batch));
        if !composed_matches || !self.parts.iter().all(|part| part.matches(batch)) {
            return Err(SolveError::Cpu(CpuError::Parameter {
                name: "batch",
                expected: "the patterns that the plan was made for",
                found: "others".to_owned(),
            }));
        }
        let flags = only.map(|only| wanted(self.nitems * nrhs, Some(only)));
        let systems = Systems { batch, nrhs, wanted: flags.as_deref() };
        let mut outcomes: Vec<Option<Outcome>> = vec![None; self.nitems * nrhs];
        if self.in_turns {
            for part in &mut self.parts {
                let vectors = (b, &mut *x, outcomes.as_mut_slice());
                part.solve_in_chunks(&self.site, systems, vectors, &mut self.staging)?;
            }
            self.solve_composed(systems, (b, x, &mut outcomes))?;
            self.solve_on_cpu(systems, (b, x, &mut outcomes), criteria)?;
        } else {
            for part in &mut self.parts {
                part.send(&self.site, systems, b, x, &mut self.staging)?;
            }
            for part in &mut self.parts {
                part.start()?;
            }
            self.solve_composed(systems, (b, x, &mut outcomes))?;
            // Meanwhile.
            self.solve_on_cpu(systems, (b, x, &mut outcomes), criteria)?;
            for part in &mut self.parts {
                part.receive(&self.site, systems, x, &mut outcomes, &mut self.staging)?;
            }
        }
        Ok(outcomes.into_iter().flatten().collect())
    }
}

impl<E, T> Analysed<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    /// Chunks of the part that has the most.
    fn chunks(&self) -> usize {
        let composed = self.composed.iter().map(ComposedItems::chunks);
        self.parts.iter().map(Part::chunks).chain(composed).max().unwrap_or(1)
    }
}
