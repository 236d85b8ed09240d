//! Factors that stay on the device: the arrays that `lu_kept` reads, and its launches.

use sparsebatch_cuda::{Args, DeviceInfo, Executor, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_solve_core::symbolic::FactorPattern;

use super::chunks::{MINUS_ONE, NOTHING};
use super::graph::{Graph, targets};
use super::grid::{CHAINS, LANES, RESERVED_BYTES};
use super::kernels;
use super::program::{BlockProgram, Workers};
use super::schedule::{Listed, Schedule, list};
use super::tables::{FAR_AHEAD, KeptSizes, KeptTables};
use super::transposed::TransposedKept;
use crate::GpuSolveError;

/// Warps per multiprocessor at the register limit of the kernel; `RESIDENT_FAR_AHEAD`: with
/// [`FAR_AHEAD`] chunks prefetched.
const RESIDENT_WARPS: u32 = 32;
const RESIDENT_FAR_AHEAD: u32 = 16;

/// Warps per block. Fewer than `LEAST_WARPS` take long to copy the tables.
const LEAST_WARPS: u32 = 4;
const MOST_WARPS: u32 = 16;

/// The kept values of every item, and the solves with them.
pub(super) struct KeptSolve<E: Executor, T: Value> {
    pub(super) key: KernelKey,
    /// The tables of the solve.
    tables: E::Buffer<u32>,
    launch: Launch,
    pub(super) sizes: KeptSizes,
    pub(super) values: E::Buffer<T>,
    /// Number of values from one item to the next.
    pub(super) stride: usize,
}

impl<E: Executor, T: Value> KeptSolve<E, T> {
    /// Compiles the kernel and allocates the values of `nitems` items. `None` where a system does
    /// not fit in the shared memory of a block.
    pub(super) fn new(
        executor: &E,
        tables: &KeptTables,
        nitems: usize,
    ) -> Result<Option<Self>, GpuSolveError> {
        let launch = launch::<T>(&tables.sizes);
        if !launch.fits(executor.info()) {
            return Ok(None);
        }
        let key = KernelKey::new(
            &kernels::LU_KEPT,
            format!("lu_kept<{}, {}>", T::CPP, tables.sizes.ahead),
        );
        executor.prepare(std::slice::from_ref(&key))?;
        let stride = stride::<T>(tables.order.len());
        Ok(Some(Self {
            key,
            tables: executor.upload(&tables.words)?,
            launch,
            sizes: tables.sizes,
            values: executor.alloc_zeroed(nitems * stride)?,
            stride,
        }))
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        (self.tables.len() * 4 + self.values.len() * size_of::<T>()) as u64
    }

    /// Appends the first arguments of all kernels that read the kept values, up to the tables.
    /// `is_shared`: all items have the values of the first.
    pub(super) fn pass<'a>(
        &'a self,
        args: &mut Args<'a>,
        (nitems, nrhs): (usize, usize),
        is_shared: bool,
    ) {
        args.scalar(nitems as u32)
            .scalar(self.sizes.nrows as u32)
            .scalar(nrhs as u32)
            .input(&self.values)
            .scalar(if is_shared { 0 } else { self.stride as u64 })
            .scalar(self.sizes.first_value)
            .input(&self.tables);
    }

    /// Appends the first arguments of `lu_kept`, up to those of the system.
    pub(super) fn pass_to_solve<'a>(
        &'a self,
        args: &mut Args<'a>,
        counts: (usize, usize),
        is_shared: bool,
    ) {
        self.pass(args, counts, is_shared);
        let sizes = &self.sizes;
        args.scalar(sizes.words as u32);
        for count in [sizes.end_of_l, sizes.end_of_u, sizes.end_of_a, sizes.slots, sizes.parts] {
            args.scalar(count);
        }
    }

    /// The launch for `systems` systems.
    pub(super) fn config(&self, systems: usize, info: &DeviceInfo) -> LaunchConfig {
        self.launch.config(systems, info)
    }
}

/// The data that stays on the device between a factorisation and the solves with it.
pub(super) struct LuKept<E: Executor, T: Value> {
    pub(super) factor: KernelKey,
    pub(super) solve: KeptSolve<E, T>,
    /// Solves with the transposed matrices, once they were asked for.
    transposed: Option<TransposedKept<E, T>>,
    /// The program of the factorisation; `starts`: where the words of each warp begin.
    words: E::Buffer<u32>,
    starts: E::Buffer<u32>,
    /// Places of the entries of A, then those of fill.
    targets: E::Buffer<u16>,
    /// Places of the values that are kept, in the order of their use.
    order: E::Buffer<u16>,
    first_of_a: u32,
    factored: Factored,
    /// Whether a launch since the factorisation waited for the factors before it let the next
    /// launch begin.
    settled: bool,
    /// Whether a graph was recorded that factorises, and so may change the factors at any time.
    is_recorded: bool,
}

/// Which factors are on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Factored {
    /// No factors.
    None,
    /// The factors of one matrix that all items share.
    Shared,
    /// The factors of the first items, this many.
    Items(usize),
}

impl<E: Executor, T: Value> LuKept<E, T> {
    /// Builds the tables and allocates memory for the factors and matrices of `nitems` items, with
    /// solves for `nrhs` right-hand sides each.
    pub(super) fn new(
        executor: &E,
        schedule: &Schedule,
        nitems: usize,
        nrhs: usize,
    ) -> Result<Self, GpuSolveError> {
        let (pattern, places, grid) = (&schedule.pattern, schedule.places, schedule.grid);
        let refusal = GpuSolveError::Unsupported {
            what: "kept factors of a system whose vectors exceed the shared memory of a block",
            instead: "solve with factorisation",
        };
        let info = executor.info();
        let is_few = nitems * nrhs <= (info.multiprocessors * RESIDENT_FAR_AHEAD) as usize;
        // The tables for few systems may be larger and not fit.
        let found = [is_few, false].into_iter().find_map(|is_few| {
            let tables = KeptTables::new(pattern, is_few)?;
            launch::<T>(&tables.sizes).fits(info).then_some(tables)
        });
        let Some(tables) = found else { return Err(refusal) };
        let workers = Workers {
            warps: (grid.threads / LANES) as usize,
            slots: (LANES / grid.systems) as usize,
        };
        let program = BlockProgram::elimination(&Graph::factorisation(pattern), workers);
        let Listed { words, starts, names } =
            list(&[program], places, grid.systems, size_of::<T>());
        let name = |place: u32| names.of(place) as u16;
        let targets: Vec<u16> = targets(pattern).into_iter().map(name).collect();
        let order: Vec<u16> = tables
            .order
            .iter()
            .map(|&place| match place {
                NOTHING | MINUS_ONE => place,
                place => name(place.into()),
            })
            .collect();
        let factor =
            KernelKey::new(&kernels::LU, format!("lu_factor<{}, {}>", T::CPP, grid.threads));
        executor.prepare(std::slice::from_ref(&factor))?;
        let Some(solve) = KeptSolve::new(executor, &tables, nitems)? else { return Err(refusal) };
        Ok(Self {
            factor,
            solve,
            transposed: None,
            words: executor.upload(&words)?,
            starts: executor.upload(&starts)?,
            targets: executor.upload(&targets)?,
            order: executor.upload(&order)?,
            first_of_a: tables.first_of_a,
            factored: Factored::None,
            settled: false,
            is_recorded: false,
        })
    }

    /// Number of items that have factors, at most `nitems`.
    pub(super) fn items(&self, nitems: usize) -> usize {
        match self.factored {
            Factored::None => 0,
            Factored::Shared => nitems,
            Factored::Items(items) => items,
        }
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        let words = self.words.len() + self.starts.len();
        (words * 4 + (self.order.len() + self.targets.len()) * 2) as u64
            + self.solve.bytes()
            + self.transposed.as_ref().map_or(0, TransposedKept::bytes)
    }

    /// Appends the arguments of `lu_factor` after its queue.
    pub(super) fn pass_to_factor<'a>(&'a mut self, args: &mut Args<'a>) {
        args.input(&self.words)
            .input(&self.starts)
            .input(&self.targets)
            .scalar(self.targets.len() as u32)
            .output(&mut self.solve.values)
            .scalar(self.solve.stride as u64)
            .scalar(self.first_of_a)
            .input(&self.order)
            .scalar(self.order.len() as u32);
    }

    /// Whether a launch may read the factors before the preceding launch has ended.
    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Records that a launch waited for the factors before it let others begin. A launch that a
    /// graph records does not count: it has not run.
    pub(super) fn settle(&mut self, executor: &E) -> Result<(), GpuSolveError> {
        self.settled = self.settled || !self.is_recorded && !executor.is_recording()?;
        Ok(())
    }

    /// Records that a factorisation begins; there are no factors yet.
    pub(super) fn begin(&mut self, executor: &E) -> Result<(), GpuSolveError> {
        self.note(Factored::None);
        self.is_recorded = self.is_recorded || executor.is_recording()?;
        Ok(())
    }

    /// Records which factors are on the device.
    pub(super) fn note(&mut self, factored: Factored) {
        self.factored = factored;
        self.settled = false;
        if let Some(transposed) = &mut self.transposed {
            transposed.is_current = false;
        }
    }

    /// Whether all items have the factors of one matrix.
    pub(super) fn is_shared(&self) -> bool {
        self.factored == Factored::Shared
    }

    /// The solves with the transposed matrices, whose values are brought up to date. The first call
    /// analyses the transposed pattern and allocates memory.
    pub(super) fn transposed(
        &mut self,
        executor: &E,
        pattern: &FactorPattern,
        nitems: usize,
    ) -> Result<&KeptSolve<E, T>, GpuSolveError> {
        let transposed = match &mut self.transposed {
            Some(transposed) => transposed,
            none => none.insert(TransposedKept::new(executor, pattern, &self.solve, nitems)?),
        };
        // A recorded factorisation may have run since, and a recorded solve runs after others.
        let is_recording = executor.is_recording()?;
        if !transposed.is_current || self.is_recorded || is_recording {
            let items = match self.factored {
                Factored::None => 0,
                Factored::Shared => 1,
                Factored::Items(items) => items,
            };
            if items > 0 {
                transposed.update(executor, &self.solve, items)?;
            }
            // What is recorded has not run.
            transposed.is_current |= !is_recording;
        }
        Ok(&transposed.solve)
    }
}

/// Number of values from one item to the next: whole cache lines.
fn stride<T>(values: usize) -> usize {
    values.next_multiple_of(128 / size_of::<T>())
}

/// The launch of the solve.
fn launch<T>(sizes: &KeptSizes) -> Launch {
    let values = 2 * sizes.nrows + (sizes.slots + sizes.parts) as usize;
    Launch {
        table_bytes: sizes.words * 4,
        warp_bytes: (CHAINS as usize + 1) * 8 + (values * size_of::<T>()).next_multiple_of(8),
        resident: resident_warps(sizes.ahead),
    }
}

/// Warps that a multiprocessor has registers for, with `ahead` chunks prefetched.
pub(super) fn resident_warps(ahead: usize) -> u32 {
    if ahead == FAR_AHEAD { RESIDENT_FAR_AHEAD } else { RESIDENT_WARPS }
}

/// The resources of a launch of warps that share tables and have a system each.
pub(super) struct Launch {
    pub(super) table_bytes: usize,
    pub(super) warp_bytes: usize,
    /// Warps that a multiprocessor has registers for.
    pub(super) resident: u32,
}

impl Launch {
    /// Whether a block has room for one warp.
    pub(super) fn fits(&self, info: &DeviceInfo) -> bool {
        self.bytes(1) <= info.shared_bytes_per_block as usize
    }

    fn bytes(&self, warps: u32) -> usize {
        self.table_bytes + self.warp_bytes * warps as usize
    }

    /// As many warps at once as possible, or as there is work for: first spread over all
    /// multiprocessors, then in blocks that share tables.
    pub(super) fn config(&self, systems: usize, info: &DeviceInfo) -> LaunchConfig {
        let multiprocessors = info.multiprocessors.max(1);
        let needed =
            systems.div_ceil(multiprocessors as usize).clamp(1, self.resident as usize) as u32;
        let resident = |warps: u32| {
            let bytes = self.bytes(warps) as u64 + RESERVED_BYTES;
            let blocks = (u64::from(info.shared_bytes_per_multiprocessor) / bytes) as u32;
            let threads = info.max_threads_per_multiprocessor / LANES;
            blocks.min(self.resident.min(threads) / warps).max(1)
        };
        let fits = |&warps: &u32| self.bytes(warps) <= info.shared_bytes_per_block as usize;
        let best = (1..=MOST_WARPS.min(needed)).filter(fits);
        let busy = best.max_by_key(|&warps| (resident(warps) * warps).min(needed)).unwrap_or(1);
        let warps = (busy..=LEAST_WARPS).rev().find(fits).unwrap_or(busy);
        let most = u64::from(multiprocessors) * u64::from(resident(warps));
        let blocks = (systems.div_ceil(busy as usize) as u64).clamp(1, most) as u32;
        LaunchConfig {
            shared_bytes: self.bytes(warps) as u32,
            overlaps: true,
            ..LaunchConfig::linear(blocks, warps * LANES)
        }
    }
}
