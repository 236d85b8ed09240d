//! The estimated time of a shape: a pattern in an order, solved by a number of threads with some
//! systems side by side.

use rayon::prelude::*;
use sparsebatch_cuda::DeviceInfo;
use sparsebatch_formats::CsrPatternRef;
use sparsebatch_solve_core::symbolic::{FactorPattern, SymbolicError};

use super::backward::{Backward, Sharing};
use super::graph::{Graph, Places, Sum, residual};
use super::grid::{LANES, LuGrid, LuTuning, THREADS, TOO_LARGE, fit, grids, values_beside_factors};
use super::order::LuOrder;
use super::program::{BlockProgram, Workers};
use crate::GpuSolveError;

/// Threads per block with which orders are compared.
const USUAL_THREADS: [u32; 2] = [128, 256];

/// Cycles of a block besides its programs: taking systems, norms, outcomes.
const REST_CYCLES: u64 = 6000;

/// Cycles of a thread for its two loads of an entry of A.
const ENTRY_CYCLES: u64 = 40;

/// Bytes per cycle that a multiprocessor gets from device memory, and from its cache.
const MEMORY_BYTES_A_CYCLE: u64 = 16;
const CACHE_BYTES_A_CYCLE: u64 = 32;

/// A pattern in an order, as sums of products.
pub(super) struct Ordered {
    pub(super) order: LuOrder,
    pub(super) pattern: FactorPattern,
    pub(super) places: Places,
    pub(super) graph: Graph,
    pub(super) backward: Backward,
    pub(super) residual: [Vec<Sum>; 2],
}

/// The programs of a block, and their estimated time.
pub(super) struct LuPrograms {
    pub(super) grid: LuGrid,
    pub(super) programs: [BlockProgram; 2],
    pub(super) sharing: Sharing,
    /// Cycles from taking a system to its end; `busy`: cycles for which all systems of a
    /// multiprocessor keep it busy.
    pub(super) latency: u64,
    pub(super) busy: u64,
}

impl LuPrograms {
    /// Cycles of a multiprocessor for the systems that it has at once.
    pub(super) fn cycles(&self) -> u64 {
        self.cycles_of(1, 1)
    }

    /// The same for the fraction `part / of` of them. The weights come from the times of some 400
    /// shapes of eight sets on the H200: the more blocks a multiprocessor has, the fewer of a
    /// block's waits remain.
    fn cycles_of(&self, part: u64, of: u64) -> u64 {
        let resident = u64::from(self.grid.resident);
        self.latency / 3 + self.latency / (2 * resident) + self.busy * part * 3 / (4 * of)
    }

    /// Cycles for `nsystems` systems. Blocks take the next systems when they are ready, so that the
    /// last ones share a multiprocessor with few.
    pub(super) fn cycles_of_all(&self, nsystems: u64, multiprocessors: u64) -> u64 {
        let at_once = multiprocessors * u64::from(self.grid.resident * self.grid.systems);
        let last = match nsystems % at_once {
            0 => 0,
            some => self.cycles_of(some, at_once),
        };
        nsystems / at_once * self.cycles() + last
    }
}

impl Ordered {
    pub(super) fn new(
        a: CsrPatternRef<'_>,
        order: LuOrder,
        permutation: Option<Vec<u32>>,
        value_bytes: usize,
        info: &DeviceInfo,
    ) -> Result<Self, GpuSolveError> {
        let most = fit(value_bytes, info) - values_beside_factors(a);
        let pattern = FactorPattern::lu(a, permutation.as_deref(), most).map_err(|e| match e {
            SymbolicError::TooManyEntries { .. } => TOO_LARGE,
            e => e.into(),
        })?;
        let places = Places::new(pattern.nnz(), a);
        let graph = Graph::with_forward(&pattern);
        let residual = residual(a, &pattern, places);
        Ok(Self { order, places, graph, backward: Backward::new(&pattern), residual, pattern })
    }

    fn shape(&self, grid: LuGrid, nnz: usize, value_bytes: usize) -> LuPrograms {
        let slots = (LANES / grid.systems) as usize;
        let workers = Workers { warps: (grid.threads / LANES) as usize, slots };
        let programs = [
            BlockProgram::elimination(&self.graph, workers),
            BlockProgram::product(&self.residual, workers),
        ];
        let resident = u64::from(grid.resident);
        let bytes = (nnz * value_bytes) as u64 * u64::from(grid.systems) * resident;
        let moved = bytes / MEMORY_BYTES_A_CYCLE + bytes / CACHE_BYTES_A_CYCLE;
        let (backward, sharing) = self.backward.latency(grid.systems, workers.warps);
        let entries = nnz as u64 * u64::from(grid.systems);
        // Several slots with an odd number of systems each straddle the banks of shared memory.
        let straddles = grid.systems % 2 == 1 && (3..LANES as usize).contains(&slots);
        let of_programs = |cycles: fn(&BlockProgram) -> u64| {
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
        LuPrograms { grid, programs, sharing, latency, busy }
    }

    /// The least time of a large batch, in cycles of a multiprocessor for 1024 systems. It does not
    /// depend on the number of systems: the order is chosen by it, so results have the same bits in
    /// any batch.
    pub(super) fn time(
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
        let time = |grid: LuGrid| {
            let cycles = self.shape(grid, nnz, value_bytes).cycles();
            cycles * 1024 / u64::from(grid.resident * grid.systems)
        };
        grids.map(time).min()
    }

    /// The shape with the least estimated time for all systems.
    pub(super) fn best_shape(
        &self,
        nnz: usize,
        value_bytes: usize,
        nsystems: u64,
        info: &DeviceInfo,
        tuning: &LuTuning,
    ) -> Option<LuPrograms> {
        let threads = THREADS.into_iter().filter(|&n| tuning.threads.is_none_or(|m| m == n));
        let grids: Vec<LuGrid> = threads
            .flat_map(|n| grids(self.places, value_bytes, nsystems, info, tuning, n))
            .collect();
        let shapes = grids.into_par_iter().map(|grid| {
            let shape = self.shape(grid, nnz, value_bytes);
            (shape.cycles_of_all(nsystems, info.multiprocessors.max(1).into()), shape)
        });
        let key =
            |(time, shape): &(u64, LuPrograms)| (*time, shape.grid.threads, shape.grid.systems);
        shapes.min_by_key(key).map(|(_, shape)| shape)
    }
}
