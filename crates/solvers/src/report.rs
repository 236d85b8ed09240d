//! What came out of a batched solve: [`BatchReport`].

use std::fmt;
use std::time::Duration;

use sparsebatch_solve_core::{Outcome, ProductCost, Scheme, Status};

use crate::backend::{CpuBackend, Placement};

/// A step of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Rung {
    /// The method and preconditioner asked for, or chosen.
    First,
    /// The first scheme again, restarted from the true residual.
    Restart,
    /// BiCGStab with ILU(0) in minimum-degree order.
    StrongerPreconditioner,
    /// Sparse LU without pivoting on a minimum-degree order.
    Lu,
    /// Static pivoting: sparse LU with the rows permuted so that large entries are on the diagonal,
    /// for systems that end [`ZeroPivot`](Status::ZeroPivot) without it. With
    /// [`Method::Lu`](crate::Method::Lu) this rung is taken even without
    /// [fallback](crate::SolveOptions::fallback).
    StaticPivotingLu,
    /// CG, for symmetric matrices without negative diagonal entries for which LU found no solution:
    /// it solves consistent singular systems.
    Cg,
    /// BiCGStab, for the same purpose and any matrix.
    BiCgStab,
    /// Sparse LU with partial pivoting, system by system.
    PivotingLu,
}

impl Rung {
    /// Every rung, from the first to the last.
    pub const ALL: &[Self] = &[
        Self::First,
        Self::Restart,
        Self::StrongerPreconditioner,
        Self::Lu,
        Self::StaticPivotingLu,
        Self::Cg,
        Self::BiCgStab,
        Self::PivotingLu,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Restart => "restart",
            Self::StrongerPreconditioner => "stronger-preconditioner",
            Self::Lu => "lu",
            Self::StaticPivotingLu => "static-pivoting-lu",
            Self::Cg => "cg",
            Self::BiCgStab => "bicgstab",
            Self::PivotingLu => "pivoting-lu",
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is known of one system after a batched solve.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SystemReport {
    /// Status, iterations, true residual; of the rung that produced the returned `x`, with the
    /// iterations of all rungs summed.
    pub outcome: Outcome,
    /// The rung that produced the returned `x`.
    pub rung: Rung,
    /// The ladder found no pivot in any row: the matrix is singular to working precision. If the
    /// system converged all the same, its solution is one of many.
    pub singular: bool,
    /// Rungs whose factorisation exceeds [`SolveOptions::fallback_budget`](crate::SolveOptions)
    /// were skipped.
    pub over_budget: bool,
}

impl SystemReport {
    /// The report of a system after the first rung.
    pub(crate) fn first(outcome: Outcome) -> Self {
        // Partial pivoting alone says so.
        let singular = outcome.status == Status::Singular;
        Self { outcome, rung: Rung::First, singular, over_budget: false }
    }

    /// What may still solve a system that did not converge, in words; `None` for one that did.
    pub fn advice(&self, fallback: bool) -> Option<&'static str> {
        let advice = match self.outcome.status {
            Status::Converged => return None,
            Status::NonFinite => "look for NaN, infinities and overflow in its values",
            _ if self.singular => "the matrix is singular; a solution need not exist",
            _ if self.over_budget => "a larger fallback budget lets its factorisation run",
            _ if !fallback => "let the ladder of stronger methods run (no fallback was allowed)",
            Status::MaxIterations => "more iterations, or a larger tolerance",
            Status::Stagnated => "a rounding floor, or a larger tolerance",
            _ => "another method or preconditioner",
        };
        Some(advice)
    }
}

/// The hardware that solved systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Machine {
    /// The cores of the host.
    Cpu,
    /// A GPU.
    Gpu,
    /// A GPU solved some systems, the cores of the host the others.
    GpuAndCpu,
}

impl Machine {
    /// The name in reports: `cpu`, `gpu` or `gpu+cpu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
            Self::GpuAndCpu => "gpu+cpu",
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Systems that were solved first by one scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SchemeRun {
    /// Method and preconditioner.
    pub scheme: Scheme,
    /// Number of systems.
    pub systems: usize,
    /// Why `auto` took it; `asked for` otherwise.
    pub reason: String,
    /// The kernels.
    pub kernel: String,
}

/// What one of several GPUs did in a rung of a solve.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct GpuRun {
    /// The name of the GPU.
    pub device: String,
    /// Number of systems that it solved. How many is decided while the GPUs solve, so that it may
    /// differ between solves.
    pub systems: usize,
    /// Why it was lost, if it was: the other GPUs then solve its systems.
    pub lost: Option<String>,
}

impl GpuRun {
    /// A GPU that has done nothing yet.
    pub(crate) fn new(device: String) -> Self {
        Self { device, systems: 0, lost: None }
    }

    /// Adds up what the GPUs did in shares of a batch.
    pub(crate) fn together<'a>(shares: impl Iterator<Item = &'a [Self]>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for share in shares {
            for (place, run) in share.iter().enumerate() {
                match all.get_mut(place) {
                    Some(sum) => {
                        sum.systems += run.systems;
                        sum.lost = sum.lost.take().or_else(|| run.lost.clone());
                    }
                    None => all.push(run.clone()),
                }
            }
        }
        all
    }
}

/// What one rung of a solve ran, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct RungRun {
    /// The rung.
    pub rung: Rung,
    /// Systems that it took.
    pub systems: usize,
    /// What solved them.
    pub backend: Machine,
    /// The kernels.
    pub kernel: String,
    /// Chunks in which systems of one pattern went through a GPU, the most of any pattern: several
    /// where copies and solves overlap, or where memory is short; else 1.
    pub chunks: usize,
    /// The peak of its GPU memory in bytes: matrices, vectors, patterns and outcomes.
    pub device_bytes: u64,
    /// Why the CPU solved systems instead of the GPU.
    pub cpu_reason: Option<String>,
    /// Why systems were solved by the composed engine instead of the fused one.
    pub composed_reason: Option<String>,
    /// What each GPU did, in the order of [`Backend::gpus`](crate::Backend::gpus); empty where there
    /// is one.
    pub gpus: Vec<GpuRun>,
}

impl RungRun {
    pub(crate) fn new(rung: Rung, systems: usize, placement: Placement) -> Self {
        let Placement { backend, kernel, chunks, device_bytes, .. } = placement;
        let (cpu_reason, composed_reason) = (placement.cpu_reason, placement.composed_reason);
        let gpus = placement.gpus;
        Self {
            rung,
            systems,
            backend,
            kernel,
            chunks,
            device_bytes,
            cpu_reason,
            composed_reason,
            gpus,
        }
    }
}

/// The name of a format. An alias, so that serde does not take it for a text of the message that is
/// read.
type FormatName = &'static str;

/// What came out of a batched solve, system by system (item by item, and within an item
/// right-hand side by right-hand side).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct BatchReport {
    /// One entry per system.
    pub systems: Vec<SystemReport>,
    /// What ran first: method and preconditioner, of most systems where `auto` took several.
    pub scheme: Scheme,
    /// Why `auto` took it; `asked for` otherwise.
    pub reason: String,
    /// Every scheme that ran first, most systems first.
    pub schemes: Vec<SchemeRun>,
    /// What solved the systems first.
    pub backend: Machine,
    /// Its device, e.g. instruction set and threads, or the name of the GPU, such as `2 x NVIDIA
    /// H200` for two.
    pub device: String,
    /// The matrix format of the products.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::merge::known_format"))]
    pub format: FormatName,
    /// The kernel of the products.
    pub kernel: String,
    /// What ran, rung by rung; at least the first.
    pub runs: Vec<RungRun>,
    /// Analysis, once per pattern: orders, symbolic factors, SpMV plan.
    pub plan_time: Duration,
    /// The solve itself.
    pub solve_time: Duration,
    /// Of the composed engine alone.
    pub product_cost: Option<ProductCost>,
}

impl BatchReport {
    /// The report of one system that was solved by all ranks of a job, each on its CPU; `products`
    /// names the format and the kernel of its products on the first rank.
    pub fn of_ranks(
        outcome: Outcome,
        scheme: Scheme,
        reason: &str,
        (format, kernel): (&'static str, &str),
        [plan_time, solve_time]: [Duration; 2],
    ) -> Self {
        let placement = CpuBackend::placement(kernel.to_owned());
        let (kernel, reason) = (kernel.to_owned(), reason.to_owned());
        Self {
            systems: vec![SystemReport::first(outcome)],
            scheme,
            reason: reason.clone(),
            schemes: vec![SchemeRun { scheme, systems: 1, reason, kernel: kernel.clone() }],
            backend: placement.backend,
            device: placement.device.clone(),
            format,
            kernel,
            runs: vec![RungRun::new(Rung::First, 1, placement)],
            plan_time,
            solve_time,
            product_cost: None,
        }
    }

    /// Why the CPU solved, first, what a GPU was to solve.
    pub fn cpu_reason(&self) -> Option<&str> {
        self.runs.first()?.cpu_reason.as_deref()
    }

    /// What each of several GPUs did, first; empty where there is one.
    pub fn gpus(&self) -> &[GpuRun] {
        self.runs.first().map_or(&[], |run| &run.gpus)
    }

    /// Systems that converged.
    pub fn converged(&self) -> usize {
        self.systems.iter().filter(|s| s.outcome.status == Status::Converged).count()
    }

    /// Whether every system converged; true for an empty batch.
    pub fn all_converged(&self) -> bool {
        self.converged() == self.systems.len()
    }

    /// How many systems ended with each status that occurred, in the order of [`Status::ALL`].
    pub fn status_counts(&self) -> Vec<(Status, usize)> {
        count(Status::ALL, |status| {
            self.systems.iter().filter(|s| s.outcome.status == status).count()
        })
    }

    /// How many systems each rung that occurred is responsible for.
    pub fn rung_counts(&self) -> Vec<(Rung, usize)> {
        count(Rung::ALL, |rung| self.systems.iter().filter(|s| s.rung == rung).count())
    }

    /// The largest true relative residual over the converged systems; `None` when there is none.
    pub fn max_relative_residual(&self) -> Option<f64> {
        let converged = self.systems.iter().filter(|s| s.outcome.status == Status::Converged);
        converged.map(|s| s.outcome.relative_residual()).reduce(f64::max)
    }

    /// The largest true relative residual over all systems in which it is finite.
    pub fn max_relative_residual_all(&self) -> Option<f64> {
        let all = self.systems.iter().map(|s| s.outcome.relative_residual());
        all.filter(|r| r.is_finite()).reduce(f64::max)
    }

    /// Systems whose matrix the ladder found singular.
    pub fn singular(&self) -> usize {
        self.systems.iter().filter(|s| s.singular).count()
    }

    /// Systems accepted by the rounding floor.
    pub fn accepted_by_floor(&self) -> usize {
        self.systems.iter().filter(|s| s.outcome.accepted_by_floor).count()
    }

    /// Least, mean and most iterations; zeros for an empty batch.
    pub fn iterations(&self) -> (u32, f64, u32) {
        let all = || self.systems.iter().map(|s| s.outcome.iterations);
        let sum: u64 = all().map(u64::from).sum();
        let mean = sum as f64 / self.systems.len().max(1) as f64;
        (all().min().unwrap_or(0), mean, all().max().unwrap_or(0))
    }
}

fn count<K: Copy>(keys: &[K], of: impl Fn(K) -> usize) -> Vec<(K, usize)> {
    keys.iter().copied().map(|key| (key, of(key))).filter(|&(_, n)| n > 0).collect()
}
