//! A GPU: the items of a batch are grouped by pattern, and each group is solved by a plan of its own
//! ([`plan_for`](plan::plan_for)).
//!
//! | file | holds |
//! | --- | --- |
//! | `plan.rs` | which plan a step gets |
//! | `divide.rs` | what is on the GPU, and what goes to the CPU |
//! | `size.rs` | how much memory items take, and the pieces that they are cut into |
//! | `part.rs` | items of one pattern on the GPU, whole or in pieces |
//! | `pipe.rs` | pieces on their way: copied there, solved, copied back |
//! | `staging.rs` | values and vectors on the host |
//!
//! What a plan refuses goes to the CPU where that is allowed, and reports say so. Large copies go
//! through page-locked memory.

mod divide;
mod part;
mod pipe;
mod plan;
mod size;
mod staging;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use sparsebatch_cpu_ref::lanes::classes;
use sparsebatch_cpu_ref::{CpuError, CpuScalar, Criteria, Outcome};
use sparsebatch_formats::Batch;
use sparsebatch_spmv_gpu::{Executor, GpuError, Value};

use super::cpu::wanted;
use super::{AnalysedSolve, CpuBackend, Gpu, Placement, SolveBackend};
use crate::choose::{Choice, Step};
use crate::gpu::{GpuChoice, choose_method};
use crate::report::Rung;
use crate::{SolveError, SolveOptions};
use divide::{Divided, May, all_together, at_once, in_turns};
use part::{Part, Site, Target};
use plan::named;
use staging::{Staging, Systems};

/// A GPU, with the options of the solves that run there.
pub(crate) struct GpuBackend<E> {
    gpu: Gpu<E>,
    options: SolveOptions,
    /// Bytes that analysed solves keep on the device.
    held: Arc<AtomicU64>,
}

impl<E> GpuBackend<E> {
    /// `options` are those of the whole batch; limits of analysed solves are theirs.
    pub(crate) fn new(gpu: Gpu<E>, options: SolveOptions) -> Self {
        Self { gpu, options, held: Arc::default() }
    }
}

impl<E, T> SolveBackend<T> for GpuBackend<E>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn choose(&self, batch: &Batch<T>, options: &SolveOptions) -> Choice {
        let GpuChoice { method, reason } = choose_method(batch, options, self.gpu.executor.info());
        Choice { method, preconditioner: options.preconditioner, reason }
    }

    fn composed(&self) -> Result<Option<String>, SolveError> {
        let refused =
            SolveError::Unsupported { what: "a composed engine", instead: "take the fused one" };
        if self.gpu.or_cpu { Ok(Some(refused.to_string())) } else { Err(refused) }
    }

    fn analyse(
        &self,
        batch: &Batch<T>,
        (rung, step): (Rung, Step),
        only: Option<&[usize]>,
    ) -> Result<Box<dyn AnalysedSolve<T>>, SolveError> {
        let executor = self.gpu.executor.clone();
        let pieces = self.gpu.pieces;
        let site = Site { executor, step, options: self.options.clone(), pieces };
        // Later rungs take what the first one left: memory and systems.
        let may = May {
            use_cpu: self.gpu.or_cpu || rung != Rung::First,
            divide: self.gpu.in_chunks || rung != Rung::First,
        };
        let free = site.executor.free_memory()?;
        let held = self.held.load(Ordering::Relaxed);
        let budget =
            self.gpu.memory_limit.map_or(free, |limit| limit.saturating_sub(held).min(free));
        let classes = classes(batch, only);
        let together = match batch {
            Batch::Ragged(ragged) if only.is_none() && classes.len() > 1 => {
                all_together(&site, ragged, &classes, budget)?
            }
            _ => None,
        };
        let divided = match together {
            Some(divided) => Ok(divided),
            None => at_once(&site, batch, &classes, budget, may),
        };
        let divided = match divided {
            Err(SolveError::Gpu(GpuError::OutOfMemory { .. })) if may.divide => {
                in_turns(&site, batch, &classes, budget, may)?
            }
            divided => divided?,
        };
        let Divided { parts, on_cpu, refusals, in_turns } = divided;
        let loaded = parts.iter().filter(|part| part.is_loaded());
        let held = Held::new(&self.held, loaded.map(Part::bytes).sum());
        let cpu = match on_cpu.is_empty() {
            true => None,
            false => Some(CpuBackend.analyse(batch, (rung, step), Some(&on_cpu))?),
        };
        let mut on_this_cpu = vec![false; if cpu.is_some() { batch.nitems() } else { 0 }];
        on_cpu.iter().for_each(|&item| on_this_cpu[item] = true);
        Ok(Box::new(Analysed {
            site,
            _held: held,
            budget,
            nitems: batch.nitems(),
            parts,
            in_turns,
            cpu,
            on_cpu: on_this_cpu,
            refusals,
            staging: Staging::default(),
        }))
    }
}

/// Bytes on the device, counted while this lives.
struct Held {
    bytes: u64,
    all: Arc<AtomicU64>,
}

impl Held {
    fn new(all: &Arc<AtomicU64>, bytes: u64) -> Self {
        all.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, all: Arc::clone(all) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An analysed batch.
struct Analysed<E: Executor, T: Value> {
    site: Site<E>,
    _held: Held,
    /// Bytes that parts may take, about.
    budget: u64,
    nitems: usize,
    parts: Vec<Part<E, T>>,
    in_turns: bool,
    cpu: Option<Box<dyn AnalysedSolve<T>>>,
    /// Which items the CPU has; empty where it has none.
    on_cpu: Vec<bool>,
    refusals: BTreeMap<String, usize>,
    staging: Staging<T>,
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
        target: Target<'_, T>,
        criteria: &Criteria,
    ) -> Result<(), SolveError> {
        let Some(cpu) = &mut self.cpu else {
            return Ok(());
        };
        let nrhs = systems.nrhs;
        let theirs = |&system: &usize| self.on_cpu[system / nrhs] && systems.wants(system);
        let only: Vec<usize> = (0..self.nitems * nrhs).filter(theirs).collect();
        let solved = cpu.solve(systems.batch, nrhs, b, target.x, criteria, Some(&only))?;
        for (system, outcome) in only.into_iter().zip(solved) {
            target.outcomes[system] = Some(outcome);
        }
        Ok(())
    }

    /// The kernels of the parts, most systems first.
    fn kernels(&self) -> String {
        let mut systems: BTreeMap<&str, usize> = BTreeMap::new();
        for part in &self.parts {
            *systems.entry(part.kernel()).or_default() += part.items.len();
        }
        let mut kernels: Vec<(&str, usize)> = systems.into_iter().collect();
        kernels.sort_by_key(|&(_, systems)| std::cmp::Reverse(systems));
        named(&kernels)
    }
}

impl<E, T> AnalysedSolve<T> for Analysed<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn placement(&self) -> Placement {
        let refusals = || {
            let nitems = self.nitems;
            let each = self.refusals.iter();
            let each = each.map(|(why, items)| format!("{items} of {nitems} systems: {why}"));
            each.collect::<Vec<_>>().join("; ")
        };
        let device = self.site.executor.info().name.clone();
        match (&self.cpu, self.parts.is_empty()) {
            (None, _) => Placement {
                backend: "gpu",
                device,
                kernel: self.kernels(),
                chunks: self.chunks(),
                device_bytes: self.device_bytes(),
                cpu_reason: None,
            },
            (Some(cpu), true) => {
                let whys: Vec<&str> = self.refusals.keys().map(String::as_str).collect();
                Placement { cpu_reason: Some(whys.join("; ")), ..cpu.placement() }
            }
            (Some(cpu), false) => {
                let cpu = cpu.placement();
                Placement {
                    backend: "gpu+cpu",
                    device: format!("{device}; {}", cpu.device),
                    kernel: format!("{}; {}", self.kernels(), cpu.kernel),
                    chunks: self.chunks(),
                    device_bytes: self.device_bytes(),
                    cpu_reason: Some(refusals()),
                }
            }
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
        if !self.parts.iter().all(|part| part.matches(batch)) {
            return Err(SolveError::Cpu(CpuError::Parameter {
                name: "batch",
                expected: "the patterns that the plan was made for",
                found: "others".to_owned(),
            }));
        }
        let flags = only.map(|only| wanted(self.nitems * nrhs, Some(only)));
        let systems = Systems { batch, nrhs, wanted: flags.as_deref() };
        let none = rayon::iter::repeat_n(None, self.nitems * nrhs).with_min_len(1 << 14);
        let mut outcomes: Vec<Option<Outcome>> = none.collect();
        let mut target = Target { x, outcomes: &mut outcomes };
        let (site, staging) = (&self.site, &mut self.staging);
        let several = self.parts.len() > 1;
        if self.in_turns {
            for part in &mut self.parts {
                if !part.is_loaded() {
                    part.load_within(site, batch, self.budget)?;
                }
                part.send(site, systems, b, target.x, staging)?;
                part.start()?;
                part.run(site, systems, b, target.reborrow())?;
                part.receive(site, systems, target.reborrow(), staging)?;
                // A part without others keeps its memory.
                if several {
                    part.unload();
                }
            }
            self.solve_on_cpu(systems, b, target, criteria)?;
        } else {
            for part in &mut self.parts {
                part.send(site, systems, b, target.x, staging)?;
            }
            for part in &mut self.parts {
                part.start()?;
            }
            for part in &mut self.parts {
                part.run(site, systems, b, target.reborrow())?;
            }
            // Meanwhile.
            self.solve_on_cpu(systems, b, target.reborrow(), criteria)?;
            for part in &mut self.parts {
                part.receive(&self.site, systems, target.reborrow(), &mut self.staging)?;
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
    /// Pieces of the part that has the most.
    fn chunks(&self) -> usize {
        self.parts.iter().map(Part::pieces).max().unwrap_or(1)
    }

    /// Bytes on the device, of all parts or of the largest where they take turns.
    fn device_bytes(&self) -> u64 {
        let bytes = self.parts.iter().map(Part::bytes);
        if self.in_turns { bytes.max().unwrap_or(0) } else { bytes.sum() }
    }
}
