//! The order of elimination, and how many threads solve how many systems side by side.

use rayon::prelude::*;
use sparsebatch_cpu_ref::CpuError;
use sparsebatch_cpu_ref::symbolic::{FactorPattern, SymbolicError};
use sparsebatch_formats::CsrPatternRef;
use sparsebatch_spmv_gpu::DeviceInfo;

use super::order::{LuOrder, TRIED};
use super::streams::{Cost, Streams};
use super::tasks::{NONE, Places, Tasks, elimination, residual, targets};
use crate::SolveError;

/// Choices that a plan makes by itself where they are left open. For experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LuTuning {
    /// Threads per group: 32, 64, 128, 256 or 512.
    pub threads: Option<u32>,
    /// Systems that a group solves side by side: 1 or 2.
    pub systems: Option<u32>,
    /// The order of elimination.
    pub order: Option<LuOrder>,
    /// The most blocks of the launch. Default: what the device can hold at once.
    pub max_blocks: Option<u32>,
}

const THREADS: [u32; 5] = [32, 64, 128, 256, 512];
const SYSTEMS: [u32; 2] = [1, 2];

/// What is taken where the choice is left open: two systems side by side took 1.1 to 1.8 times as long
/// on an NVIDIA H200, on all of eleven patterns.
const USUAL_SYSTEMS: u32 = 1;

/// Shared memory beside the values: sums of the warps, and what the device keeps for itself.
const RESERVED_BYTES: u64 = 2048;

/// Threads of a multiprocessor at the registers that the kernel may use, times systems of a group.
const RESIDENT_THREADS: u32 = 768;

/// Cycles of a solve beside its streams: taking systems, their vectors, norms, outcomes.
const REST_CYCLES: u64 = 5000;

/// A pattern in an order, as tasks.
struct Ordered {
    order: LuOrder,
    pattern: FactorPattern,
    places: Places,
    /// Factorisation and solve, a further solve, the residual.
    programs: [Tasks; 3],
}

impl Ordered {
    fn new(
        a: CsrPatternRef<'_>,
        order: LuOrder,
        permutation: Option<Vec<u32>>,
        value_bytes: usize,
        info: &DeviceInfo,
    ) -> Result<Self, SolveError> {
        let most = fit(value_bytes, info) - Places::count(0, a.nrows());
        let pattern = FactorPattern::lu(a, permutation.as_deref(), most).map_err(|e| match e {
            SymbolicError::TooManyEntries { .. } => TOO_LARGE,
            e => CpuError::from(e).into(),
        })?;
        let places = Places::new(&pattern);
        let programs = [
            elimination(&pattern, &places, true),
            elimination(&pattern, &places, false),
            residual(a, &pattern, &places),
        ];
        Ok(Self { order, pattern, places, programs })
    }

    /// The group with the least time by the estimate; none where the tuning leaves none that fits.
    fn best_group(
        &self,
        value_bytes: usize,
        nsystems: u64,
        info: &DeviceInfo,
        tuning: &LuTuning,
    ) -> Option<Group> {
        let mut best: Option<Group> = None;
        for threads in THREADS.into_iter().filter(|&n| tuning.threads.is_none_or(|m| m == n)) {
            let warps = (threads / 32) as usize;
            // A refinement is rare, a residual always there.
            let costs = [0, 2].map(|p| Streams::new(&self.programs[p], warps).cost);
            let systems = tuning.systems.unwrap_or(USUAL_SYSTEMS);
            let bytes = (self.places.len * value_bytes) as u64 * u64::from(systems);
            let Some(grid) = grid(bytes, threads, systems, nsystems, info, tuning) else {
                continue;
            };
            let time = time(costs, systems, grid.resident);
            if best.is_none_or(|least| time < least.time) {
                best = Some(Group { time, threads, systems, grid });
            }
        }
        best
    }
}

/// The threads that solve some systems side by side, and what a system takes by the estimate.
#[derive(Clone, Copy, Debug)]
struct Group {
    time: u64,
    threads: u32,
    systems: u32,
    grid: Grid,
}

/// The values that a block holds and 16 bits can number.
fn fit(value_bytes: usize, info: &DeviceInfo) -> usize {
    let bytes = u64::from(info.shared_bytes_per_block).saturating_sub(RESERVED_BYTES);
    (bytes / value_bytes as u64).min(u64::from(NONE)) as usize
}

/// Refuses a pattern that is too large even without fill, before any order is looked for.
fn check_size(
    a: CsrPatternRef<'_>,
    value_bytes: usize,
    info: &DeviceInfo,
) -> Result<(), SolveError> {
    if Places::count(a.nnz(), a.nrows()) > fit(value_bytes, info) { Err(TOO_LARGE) } else { Ok(()) }
}

const TOO_LARGE: SolveError = SolveError::Unsupported {
    what: "a system whose factors and vectors have more than 65535 values or exceed the shared \
           memory of a block",
    instead: "solve it on the CPU, or by an iterative method",
};

/// What a plan is made of.
pub(super) struct Schedule {
    pub(super) order: LuOrder,
    pub(super) pattern: FactorPattern,
    pub(super) nplaces: usize,
    /// The place of the right-hand side.
    pub(super) y: u32,
    /// Threads of a group, and the systems that it solves side by side.
    pub(super) threads: u32,
    pub(super) systems: u32,
    pub(super) grid: Grid,
    /// Places of the entries of A, then those of fill.
    pub(super) targets: Vec<u16>,
    pub(super) words: Vec<u32>,
    /// Where the words of each warp begin, program by program.
    pub(super) starts: Vec<u32>,
    /// Of factorisation and solve.
    pub(super) levels: usize,
    pub(super) tasks: usize,
    pub(super) pairs: usize,
    pub(super) padding: usize,
    /// Of a group's systems, by the estimate.
    pub(super) cycles: u64,
}

/// The launch of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) blocks: u32,
    /// Groups that a multiprocessor holds at once, a guess.
    pub(super) resident: u32,
    pub(super) shared_bytes: u32,
}

impl Schedule {
    /// The schedule with the least time by the estimate, among those that the tuning allows.
    pub(super) fn choose(
        a: CsrPatternRef<'_>,
        value_bytes: usize,
        nsystems: u64,
        info: &DeviceInfo,
        tuning: &LuTuning,
    ) -> Result<Self, SolveError> {
        check_tuning(tuning)?;
        let orders = tuning.order.map_or(TRIED.to_vec(), |order| vec![order]);
        let mut permutations: Vec<(LuOrder, Option<Vec<u32>>)> = Vec::new();
        check_size(a, value_bytes, info)?;
        for order in orders {
            let permutation = order.permutation(a).map_err(CpuError::from)?;
            if permutations.iter().all(|(_, other)| *other != permutation) {
                permutations.push((order, permutation));
            }
        }
        let candidates: Vec<_> = permutations
            .into_par_iter()
            .map(|(order, permutation)| {
                let ordered = Ordered::new(a, order, permutation, value_bytes, info)?;
                Ok(ordered
                    .best_group(value_bytes, nsystems, info, tuning)
                    .map(|best| (ordered, best)))
            })
            .collect();
        let mut best: Option<(Ordered, Group)> = None;
        let mut refusal = None;
        for candidate in candidates {
            match candidate {
                Ok(Some((ordered, group))) => {
                    if best.as_ref().is_none_or(|(_, least)| group.time < least.time) {
                        best = Some((ordered, group));
                    }
                }
                Ok(None) => {}
                // Another order may have less fill.
                Err(error @ SolveError::Unsupported { .. }) => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        let (ordered, group) = best.ok_or_else(|| {
            refusal.unwrap_or_else(|| SolveError::Option {
                name: "tuning",
                expected: "groups whose values fit in the shared memory of a block",
                found: format!("{tuning:?}"),
            })
        })?;
        Ok(Self::new(a, ordered, group))
    }

    fn new(a: CsrPatternRef<'_>, ordered: Ordered, group: Group) -> Self {
        let Group { threads, systems, grid, .. } = group;
        let Ordered { order, pattern, places, programs } = ordered;
        let streams = programs.each_ref().map(|tasks| Streams::new(tasks, (threads / 32) as usize));
        let (mut words, mut starts) = (Vec::new(), Vec::new());
        let zero = places.len as u32 - 1;
        for (stream, left) in streams.iter().zip([zero, zero, NONE]) {
            stream.append(left | zero << 16, &mut words, &mut starts);
        }
        Self {
            order,
            nplaces: places.len,
            y: places.y,
            threads,
            systems,
            grid,
            targets: targets(&pattern, &places, a.nnz()),
            words,
            starts,
            levels: streams[0].nlevels(),
            tasks: programs[0].tasks.len(),
            pairs: programs[0].pairs.len(),
            padding: streams[0].padding(),
            cycles: latency([streams[0].cost, streams[2].cost]),
            pattern,
        }
    }
}

/// From taking systems to their outcomes, in cycles.
fn latency(costs: [Cost; 2]) -> u64 {
    REST_CYCLES + costs.iter().map(|cost| cost.latency).sum::<u64>()
}

/// Cycles a system of a large batch: those of a group, shared by all that a multiprocessor holds, or what
/// its shared memory has to do, whichever is more, and some of the other. It does not depend on the number
/// of systems: a system gives the same bits in any batch.
fn time(costs: [Cost; 2], systems: u32, resident: u32) -> u64 {
    let (systems, resident) = (u64::from(systems), u64::from(resident));
    let waiting = latency(costs) / (resident * systems);
    let busy = |cost: &Cost| cost.busy_words / systems + cost.busy_values;
    let busy = costs.iter().map(busy).sum::<u64>();
    waiting.max(busy) + waiting.min(busy) / 4
}

/// As many blocks as the device holds at once, or as there is work for: they take systems from a
/// queue. None where a block does not fit.
fn grid(
    bytes: u64,
    threads: u32,
    systems: u32,
    nsystems: u64,
    info: &DeviceInfo,
    tuning: &LuTuning,
) -> Option<Grid> {
    if bytes + RESERVED_BYTES > u64::from(info.shared_bytes_per_block) {
        return None;
    }
    let by_shared = u64::from(info.shared_bytes_per_multiprocessor) / (bytes + RESERVED_BYTES);
    let by_threads = info.max_threads_per_multiprocessor.min(RESIDENT_THREADS / systems) / threads;
    let resident = by_shared.min(u64::from(by_threads)).clamp(1, 32);
    let most = resident * u64::from(info.multiprocessors.max(1));
    let work = nsystems.div_ceil(u64::from(systems));
    let blocks = most.min(work).min(u64::from(tuning.max_blocks.unwrap_or(u32::MAX))).max(1);
    Some(Grid { blocks: blocks as u32, resident: resident as u32, shared_bytes: bytes as u32 })
}

fn check_tuning(tuning: &LuTuning) -> Result<(), SolveError> {
    let check = |name, expected, value: Option<u32>, fits: &dyn Fn(u32) -> bool| match value {
        Some(value) if !fits(value) => {
            Err(SolveError::Option { name, expected, found: value.to_string() })
        }
        _ => Ok(()),
    };
    check("threads", "32, 64, 128, 256 or 512", tuning.threads, &|n| THREADS.contains(&n))?;
    check("systems", "1 or 2", tuning.systems, &|n| SYSTEMS.contains(&n))?;
    let few = |blocks| (1..=1 << 20).contains(&blocks);
    check("max_blocks", "1 to 1048576", tuning.max_blocks, &few)
}
