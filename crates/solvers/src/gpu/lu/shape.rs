//! The order of elimination, and how many threads solve how many systems side by side.

use rayon::prelude::*;
use sparsebatch_cpu_ref::CpuError;
use sparsebatch_cpu_ref::symbolic::{FactorPattern, SymbolicError};
use sparsebatch_formats::CsrPatternRef;
use sparsebatch_spmv_gpu::DeviceInfo;

use super::backward::{Backward, Sharing};
use super::banks::Names;
use super::graph::{Graph, Places, Sum, residual, targets};
use super::order::{LuOrder, TRIED};
use super::program::{Program, Workers};
use crate::SolveError;

/// Choices that a plan makes by itself where they are left open. For experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LuTuning {
    /// Threads per block: 32, 64, 128, 256 or 512.
    pub threads: Option<u32>,
    /// Systems that a block solves side by side: 1 to 32.
    pub systems: Option<u32>,
    /// Blocks that a multiprocessor has at once: 1 to 6.
    pub resident: Option<u32>,
    /// The order of elimination.
    pub order: Option<LuOrder>,
    /// The most blocks of the launch. Default: what the device can hold at once.
    pub max_blocks: Option<u32>,
}

const THREADS: [u32; 5] = [32, 64, 128, 256, 512];
pub(super) const LANES: u32 = 32;

/// With which orders are compared.
const USUAL_THREADS: [u32; 2] = [128, 256];

/// Norms are made of so many sums: see `lu.cu`.
pub(super) const CHAINS: u64 = 16;

/// Shared memory that the device keeps for itself, a block.
pub(super) const RESERVED_BYTES: u64 = 1024;

/// Threads of a multiprocessor at the registers that the kernels may use: see `lu.cu`.
const fn resident_threads(info: &DeviceInfo) -> u32 {
    if info.compute_capability.0 < 9 { 512 } else { 768 }
}

/// The most blocks of a multiprocessor that are looked at.
const MOST_RESIDENT: u32 = 6;

/// Cycles of a block beside its programs: taking systems, norms, outcomes.
const REST_CYCLES: u64 = 6000;

/// Cycles in which a thread asks for an entry of A, twice.
const ENTRY_CYCLES: u64 = 40;

/// Bytes a cycle that a multiprocessor gets from the device's memory, and from its cache.
const MEMORY_BYTES_A_CYCLE: u64 = 16;
const CACHE_BYTES_A_CYCLE: u64 = 32;

/// A pattern in an order, as sums of products.
struct Ordered {
    order: LuOrder,
    pattern: FactorPattern,
    places: Places,
    graph: Graph,
    backward: Backward,
    residual: [Vec<Sum>; 2],
}

/// The programs of a block, and what it takes by the estimate.
struct Shape {
    grid: Grid,
    programs: [Program; 2],
    sharing: Sharing,
    /// Cycles from taking a system to its end, and those that all systems of a multiprocessor keep it busy.
    latency: u64,
    busy: u64,
}

impl Shape {
    /// Cycles of a multiprocessor for the systems that it has at once.
    fn cycles(&self) -> u64 {
        self.cycles_of(1, 1)
    }

    /// The same for a part of them. Weighed by what some 400 shapes of eight sets take on the H200: the more blocks a
    /// multiprocessor has, the less of a block's waits are left.
    fn cycles_of(&self, part: u64, of: u64) -> u64 {
        let resident = u64::from(self.grid.resident);
        self.latency / 3 + self.latency / (2 * resident) + self.busy * part * 3 / (4 * of)
    }

    /// Cycles for so many systems: blocks take the next ones when they are ready, so that the last ones share a
    /// multiprocessor with few.
    fn cycles_of_all(&self, nsystems: u64, multiprocessors: u64) -> u64 {
        let at_once = multiprocessors * u64::from(self.grid.resident * self.grid.systems);
        let last = match nsystems % at_once {
            0 => 0,
            some => self.cycles_of(some, at_once),
        };
        nsystems / at_once * self.cycles() + last
    }
}

impl Ordered {
    fn new(
        a: CsrPatternRef<'_>,
        order: LuOrder,
        permutation: Option<Vec<u32>>,
        value_bytes: usize,
        info: &DeviceInfo,
    ) -> Result<Self, SolveError> {
        let most = fit(value_bytes, info) - values_beside_factors(a);
        let pattern = FactorPattern::lu(a, permutation.as_deref(), most).map_err(|e| match e {
            SymbolicError::TooManyEntries { .. } => TOO_LARGE,
            e => CpuError::from(e).into(),
        })?;
        let places = Places::new(pattern.nnz(), a);
        let graph = Graph::with_forward(&pattern);
        let residual = residual(a, &pattern, places);
        Ok(Self { order, places, graph, backward: Backward::new(&pattern), residual, pattern })
    }

    fn shape(&self, grid: Grid, nnz: usize, value_bytes: usize) -> Shape {
        let slots = (LANES / grid.systems) as usize;
        let workers = Workers { warps: (grid.threads / LANES) as usize, slots };
        let programs =
            [Program::elimination(&self.graph, workers), Program::product(&self.residual, workers)];
        let resident = u64::from(grid.resident);
        let bytes = (nnz * value_bytes) as u64 * u64::from(grid.systems) * resident;
        let moved = bytes / MEMORY_BYTES_A_CYCLE + bytes / CACHE_BYTES_A_CYCLE;
        let (backward, sharing) = self.backward.latency(grid.systems, workers.warps);
        let entries = nnz as u64 * u64::from(grid.systems);
        // Several slots with an odd number of systems each straddle the banks of shared memory.
        let straddles = grid.systems % 2 == 1 && (3..LANES as usize).contains(&slots);
        let of_programs = |cycles: fn(&Program) -> u64| {
            let all = programs.iter().map(cycles).sum::<u64>();
            if straddles { all * 9 / 8 } else { all }
        };
        let latency = of_programs(|program| program.latency)
            + backward
            + REST_CYCLES
            + entries * ENTRY_CYCLES / u64::from(grid.threads)
            + moved / resident;
        let of_block =
            of_programs(|program| program.busy) + self.backward.busy(grid.systems, sharing);
        let busy = resident * of_block + moved;
        Shape { grid, programs, sharing, latency, busy }
    }

    /// The least time of a large batch, in cycles of a multiprocessor for 1024 systems. It does not
    /// depend on the number of systems: one that decides on orders gives the same bits in any batch.
    fn time(
        &self,
        nnz: usize,
        value_bytes: usize,
        info: &DeviceInfo,
        tuning: &LuTuning,
    ) -> Option<u64> {
        let threads = tuning.threads.map_or(USUAL_THREADS.to_vec(), |threads| vec![threads]);
        let grids = threads
            .into_iter()
            .flat_map(|n| grids(self.places, value_bytes, u64::MAX, info, tuning, n));
        let time = |grid: Grid| {
            let cycles = self.shape(grid, nnz, value_bytes).cycles();
            cycles * 1024 / u64::from(grid.resident * grid.systems)
        };
        grids.map(time).min()
    }

    /// The shape that has solved all systems first.
    fn best_shape(
        &self,
        nnz: usize,
        value_bytes: usize,
        nsystems: u64,
        info: &DeviceInfo,
        tuning: &LuTuning,
    ) -> Option<Shape> {
        let threads = THREADS.into_iter().filter(|&n| tuning.threads.is_none_or(|m| m == n));
        let grids: Vec<Grid> = threads
            .flat_map(|n| grids(self.places, value_bytes, nsystems, info, tuning, n))
            .collect();
        let shapes = grids.into_par_iter().map(|grid| {
            let shape = self.shape(grid, nnz, value_bytes);
            (shape.cycles_of_all(nsystems, info.multiprocessors.max(1).into()), shape)
        });
        let key = |(time, shape): &(u64, Shape)| (*time, shape.grid.threads, shape.grid.systems);
        shapes.min_by_key(key).map(|(_, shape)| shape)
    }
}

/// The values of a system beside those of L + U.
pub(in crate::gpu) fn values_beside_factors(a: CsrPatternRef<'_>) -> usize {
    Places::new(0, a).len
}

/// The values that a block holds and 16 bits can number.
fn fit(value_bytes: usize, info: &DeviceInfo) -> usize {
    let bytes = u64::from(info.shared_bytes_per_block).saturating_sub(beside(1));
    (bytes / value_bytes as u64).min(65_534) as usize
}

/// Shared memory beside the values, for so many systems side by side.
fn beside(systems: u32) -> u64 {
    RESERVED_BYTES + (CHAINS + 1) * 8 * u64::from(systems) + 8
}

/// Refuses a pattern that is too large even without fill, before any order is looked for.
fn check_size(
    a: CsrPatternRef<'_>,
    value_bytes: usize,
    info: &DeviceInfo,
) -> Result<(), SolveError> {
    if Places::new(a.nnz(), a).len > fit(value_bytes, info) { Err(TOO_LARGE) } else { Ok(()) }
}

const TOO_LARGE: SolveError = SolveError::Unsupported {
    what: "a system whose factors and vectors have more than 65534 values or exceed the shared \
           memory of a block",
    instead: "solve it on the CPU, or by an iterative method",
};

/// What a plan is made of.
pub(super) struct Schedule {
    pub(super) order: LuOrder,
    pub(super) pattern: FactorPattern,
    pub(super) places: Places,
    pub(super) grid: Grid,
    /// Places of the entries of A, then those of fill, then those of the pivots.
    pub(super) targets: Vec<u16>,
    pub(super) words: Vec<u32>,
    /// Where the words of each warp begin, program by program.
    pub(super) starts: Vec<u32>,
    /// Where those of backward substitution begin, groups of chunks, and who has them.
    pub(super) first_chunk: usize,
    pub(super) groups: usize,
    pub(super) sharing: Sharing,
    /// Of factorisation and forward substitution.
    pub(super) steps: usize,
    pub(super) depth: usize,
    pub(super) pairs: usize,
    pub(super) padding: usize,
    /// Of a multiprocessor for the systems that it has at once, by the estimate.
    pub(super) cycles: u64,
}

/// Programs, as a kernel reads them.
pub(super) struct Listed {
    pub(super) words: Vec<u32>,
    /// Where the words of each warp begin, program by program.
    pub(super) starts: Vec<u32>,
    /// The numbers of the places in them.
    pub(super) names: Names,
}

/// Programs that work on the same values, for so many systems side by side.
pub(super) fn list(
    programs: &[Program],
    places: Places,
    systems: u32,
    value_bytes: usize,
) -> Listed {
    let reads: Vec<Vec<u32>> = programs.iter().flat_map(Program::reads).collect();
    let names = Names::spread(places, value_bytes, systems, &reads);
    let (mut words, mut starts) = (Vec::new(), Vec::new());
    for program in programs {
        program.append(systems, &names, &mut words, &mut starts);
    }
    Listed { words, starts, names }
}

/// The launch of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) threads: u32,
    /// Systems that a block solves side by side.
    pub(super) systems: u32,
    pub(super) blocks: u32,
    /// Blocks that a multiprocessor holds at once, a guess.
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
                let time = ordered.time(a.nnz(), value_bytes, info, tuning);
                Ok(time.map(|time| (ordered, time)))
            })
            .collect();
        let mut best: Option<(Ordered, u64)> = None;
        let mut refusal = None;
        for candidate in candidates {
            match candidate {
                Ok(Some((ordered, time))) => {
                    if best.as_ref().is_none_or(|(_, least)| time < *least) {
                        best = Some((ordered, time));
                    }
                }
                Ok(None) => {}
                // Another order may have less fill.
                Err(error @ SolveError::Unsupported { .. }) => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        let best = best.and_then(|(ordered, _)| {
            let shape = ordered.best_shape(a.nnz(), value_bytes, nsystems, info, tuning)?;
            Some(Self::new(ordered, &shape, value_bytes))
        });
        best.ok_or_else(|| {
            refusal.unwrap_or_else(|| SolveError::Option {
                name: "tuning",
                expected: "blocks whose values fit in their shared memory",
                found: format!("{tuning:?}"),
            })
        })
    }

    fn new(ordered: Ordered, shape: &Shape, value_bytes: usize) -> Self {
        let Ordered { order, pattern, places, graph, backward, .. } = ordered;
        let grid = shape.grid;
        let Listed { mut words, starts, names } =
            list(&shape.programs, places, grid.systems, value_bytes);
        let first_chunk = words.len();
        let (chunks, groups) =
            backward.words(&pattern, places, grid.systems, &names, shape.sharing);
        words.extend(chunks);
        let pivots = pattern.diag().iter().map(|&place| place as u32);
        let (pairs, padding) = shape.programs[0].pairs_and_padding();
        Self {
            order,
            places,
            grid,
            targets: targets(&pattern)
                .into_iter()
                .chain(pivots)
                .map(|place| names.of(place) as u16)
                .collect(),
            words,
            starts,
            first_chunk,
            groups,
            sharing: shape.sharing,
            steps: shape.programs[0].steps,
            depth: graph.depth(),
            pairs: pairs + backward.products(),
            padding,
            cycles: shape.cycles(),
            pattern,
        }
    }
}

/// The launches that are looked at: with more blocks a multiprocessor, or more systems side by side.
/// As many blocks as the device holds at once, or as there is work for: they take systems from a queue.
fn grids(
    places: Places,
    value_bytes: usize,
    nsystems: u64,
    info: &DeviceInfo,
    tuning: &LuTuning,
    threads: u32,
) -> impl Iterator<Item = Grid> {
    let multiprocessors = u64::from(info.multiprocessors.max(1));
    let (of_block, of_all) =
        (u64::from(info.shared_bytes_per_block), u64::from(info.shared_bytes_per_multiprocessor));
    let each = (places.len * value_bytes) as u64;
    let (systems, max_blocks) = (tuning.systems, tuning.max_blocks);
    let most_resident =
        (resident_threads(info).min(info.max_threads_per_multiprocessor) / threads).max(1);
    let resident = (1..=most_resident.min(MOST_RESIDENT))
        .filter(|&n| tuning.resident.is_none_or(|wanted| wanted == n));
    resident.filter_map(move |resident| {
        let fits = |systems: u32| {
            let bytes = each * u64::from(systems) + beside(systems);
            bytes <= of_block && bytes * u64::from(resident) <= of_all
        };
        let most = match systems {
            Some(systems) => Some(systems).filter(|&systems| fits(systems)),
            None => (1..=LANES).rev().find(|&systems| fits(systems)),
        }?;
        // As many rounds as there must be, of as few systems.
        let rounds = nsystems.div_ceil(multiprocessors * u64::from(resident * most)).max(1);
        let few = nsystems.div_ceil(rounds.saturating_mul(multiprocessors * u64::from(resident)));
        let systems = systems.unwrap_or(most.min(few.clamp(1, u64::from(LANES)) as u32));
        let blocks =
            nsystems.div_ceil(u64::from(systems)).min(multiprocessors * u64::from(resident));
        let blocks = blocks.min(u64::from(max_blocks.unwrap_or(u32::MAX))).max(1) as u32;
        let shared_bytes = (each * u64::from(systems) + beside(systems) - RESERVED_BYTES) as u32;
        Some(Grid { threads, systems, blocks, resident, shared_bytes })
    })
}

fn check_tuning(tuning: &LuTuning) -> Result<(), SolveError> {
    let check = |name, expected, value: Option<u32>, fits: &dyn Fn(u32) -> bool| match value {
        Some(value) if !fits(value) => {
            Err(SolveError::Option { name, expected, found: value.to_string() })
        }
        _ => Ok(()),
    };
    check("threads", "32, 64, 128, 256 or 512", tuning.threads, &|n| THREADS.contains(&n))?;
    check("systems", "1 to 32", tuning.systems, &|n| (1..=LANES).contains(&n))?;
    let most = |n| (1..=MOST_RESIDENT).contains(&n);
    check("resident", "1 to 6", tuning.resident, &most)?;
    let few = |blocks| (1..=1 << 20).contains(&blocks);
    check("max_blocks", "1 to 1048576", tuning.max_blocks, &few)
}
