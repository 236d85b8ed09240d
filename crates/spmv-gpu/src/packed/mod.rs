//! The packed product: the default for batches.
//!
//! Once per pattern, rows are cut into segments and these sorted into slices, so that threads read
//! consecutive memory with next to no padding, with 16-bit columns (`layout.rs`); systems are given
//! to blocks, or, small ones, to warps, largest first (`work.rs`). A product reads x of a system into
//! shared memory, sums segments there and adds each row's sums in a fixed order.

mod layout;
mod work;

use std::time::{Duration, Instant};

use rayon::prelude::*;
use sparsebatch_formats::Batch;

use crate::error::check_len;
use crate::value::Value;
use crate::{Args, DeviceInfo, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig};
use layout::{PADDING, PackedPattern};
use work::{Launch, Places, Room, SYSTEM_WORDS, Work, block_threads};

/// What experiments may change; the default is right for everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedOptions {
    /// Right-hand sides per system.
    pub nrhs: usize,
    /// Warps per block: 4 or 8.
    pub warps: usize,
    /// How the matrix gets to the threads; by the device when absent.
    pub loads: Option<Loads>,
}

/// Mean entries of a system from which bulk copies pay.
const BULK_ENTRIES: usize = 20_000;

/// How values and columns get to the threads that use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loads {
    /// Into registers, `depth` (4, 6 or 8) under way at once.
    Registers {
        /// Loads of a thread under way at once.
        depth: usize,
    },
    /// Into shared memory, by bulk copies of `steps` (4 or 8) times 32 slots, `stages` (3 or 4)
    /// of them under way per warp. Needs compute capability 9.0.
    Bulk {
        /// Slots of each thread per copy.
        steps: usize,
        /// Copies of a warp under way at once.
        stages: usize,
    },
}

impl Loads {
    /// The default, for systems of so many entries. Measured on an H200: bulk copies are 3 to 7 %
    /// faster from about 20,000 entries a system on, and up to 15 % slower below, where the shared
    /// memory they take costs resident blocks.
    fn of(info: &DeviceInfo, mean_nnz: usize) -> Self {
        match info.compute_capability {
            old if old < (9, 0) => Self::Registers { depth: 4 },
            _ if mean_nnz >= BULK_ENTRIES => Self::Bulk { steps: 4, stages: 4 },
            _ => Self::Registers { depth: 6 },
        }
    }

    fn check(self, info: &DeviceInfo) -> Result<(), GpuError> {
        let (expected, fine) = match self {
            Self::Registers { depth } => {
                ("4, 6 or 8 loads in registers", [4, 6, 8].contains(&depth))
            }
            Self::Bulk { steps, stages } => (
                "bulk copies of 4 steps in 3 or 4 stages or 8 in 3, on compute capability 9.0",
                [(4, 3), (4, 4), (8, 3)].contains(&(steps, stages))
                    && info.compute_capability >= (9, 0),
            ),
        };
        if fine {
            return Ok(());
        }
        Err(GpuError::InvalidArgument {
            name: "loads",
            expected: expected.to_owned(),
            found: format!("{self:?}"),
        })
    }

    fn key<T: Value>(self, warps: usize) -> KernelKey {
        let value = T::CPP;
        let expression = match self {
            Self::Registers { depth } => {
                let resident = resident_threads(depth);
                format!("packed_spmv<{value}, {depth}, {}, {resident}>", block_threads(warps))
            }
            Self::Bulk { steps, stages } => {
                format!("packed_spmv_staged<{value}, {steps}, {stages}, {warps}>")
            }
        };
        KernelKey::new("packed", expression)
    }

    /// Shared memory of a warp for what is under way, in bytes.
    fn staging_bytes<T: Value>(self) -> usize {
        match self {
            Self::Registers { .. } => 0,
            Self::Bulk { steps, stages } => {
                steps * stages * layout::SLICE * (size_of::<T>() + size_of::<u16>())
            }
        }
    }
}

impl Default for PackedOptions {
    fn default() -> Self {
        Self { nrhs: 1, warps: 4, loads: None }
    }
}

/// What a plan chose and what it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedExplain {
    /// Launches of one product.
    pub launches: usize,
    /// Blocks of all launches.
    pub blocks: usize,
    /// Stored entries of all systems.
    pub nnz: u64,
    /// Slots of all systems, padding included.
    pub slots: u64,
    /// Systems some of whose rows are cut.
    pub systems_cut: usize,
    /// Bytes on the device.
    pub device_bytes: u64,
    /// Bytes that one product moves at least: matrix, indices, x and y once each.
    pub product_bytes: u64,
    /// Analysis, packing and upload.
    pub setup: Duration,
}

/// A batch prepared for products `y = alpha A x + beta y`, all systems in one call.
pub struct PackedPlan<E: Executor, T: Value> {
    executor: E,
    key: KernelKey,
    options: PackedOptions,
    /// One for all items of a uniform batch, else one per item.
    patterns: Vec<PackedPattern>,
    nitems: usize,
    shared_values: bool,
    launches: Vec<Launch>,
    staging_bytes: usize,
    x_len: usize,
    y_len: usize,
    blocks: E::Buffer<u32>,
    systems: E::Buffer<u64>,
    values: E::Buffer<T>,
    columns: E::Buffer<u16>,
    index: E::Buffer<u16>,
    slices: E::Buffer<u32>,
    explain: PackedExplain,
}

impl<E: Executor, T: Value> PackedPlan<E, T> {
    /// Analyses, packs and uploads a batch. Index arrays of a uniform batch, and values that are
    /// shared, are stored once.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for options out of range, and for a system too large for the
    /// shared memory of a block; [`GpuError::OutOfMemory`].
    pub fn new(executor: E, batch: &Batch<T>, options: PackedOptions) -> Result<Self, GpuError> {
        let start = Instant::now();
        check_options(options)?;
        let mean_nnz = batch.total_nnz() / batch.nitems().max(1);
        let loads = options.loads.unwrap_or_else(|| Loads::of(executor.info(), mean_nnz));
        loads.check(executor.info())?;
        let key = loads.key::<T>(options.warps);
        let room = Room {
            info: executor.info(),
            value_bytes: size_of::<T>(),
            staging_bytes: options.warps * loads.staging_bytes::<T>(),
        };
        executor.prepare(std::slice::from_ref(&key))?;
        let nitems = batch.nitems();
        let patterns = patterns(&room, batch)?;
        let uniform = patterns.len() == 1 && matches!(batch, Batch::Uniform(_));
        let shared_values = matches!(batch, Batch::Uniform(batch) if batch.is_shared());
        let pattern_of = |item: usize| &patterns[if uniform { 0 } else { item }];

        let (columns, index, slices) = gathered(&patterns);
        let work = Work::new(nitems, pattern_of, options.warps, &room);
        let mut systems = Vec::with_capacity(work.order.len() * SYSTEM_WORDS);
        let places = places(batch, &patterns, uniform, shared_values, options.nrhs);
        for &item in &work.order {
            systems.extend(places[item as usize].words(pattern_of(item as usize)));
        }
        let packed = packed_values(batch, &patterns, uniform, shared_values);

        let mut explain = PackedExplain {
            launches: work.launches.len(),
            blocks: work.blocks.len() / 2,
            nnz: batch.total_nnz() as u64,
            slots: (0..nitems).map(|item| pattern_of(item).nslots() as u64).sum(),
            systems_cut: (0..nitems)
                .filter(|&item| pattern_of(item).flags & layout::ROWS_ARE_CUT != 0)
                .count(),
            device_bytes: (size_of_val(packed.as_slice())
                + size_of_val(columns.as_slice())
                + size_of_val(index.as_slice())
                + size_of_val(slices.as_slice())
                + size_of_val(systems.as_slice())
                + size_of_val(work.blocks.as_slice())) as u64,
            product_bytes: 0,
            setup: Duration::ZERO,
        };
        let x_len = batch.col_offset(nitems) * options.nrhs;
        let y_len = batch.row_offset(nitems) * options.nrhs;
        explain.product_bytes =
            explain.device_bytes + ((x_len + 2 * y_len) * size_of::<T>()) as u64;
        let staging_bytes = room.staging_bytes;
        let mut plan = Self {
            key,
            staging_bytes,
            options,
            nitems,
            shared_values,
            launches: work.launches,
            x_len,
            y_len,
            blocks: executor.upload(&work.blocks)?,
            systems: executor.upload(&systems)?,
            values: executor.upload(&packed)?,
            columns: executor.upload(&columns)?,
            index: executor.upload(&index)?,
            slices: executor.upload(&slices)?,
            patterns,
            executor,
            explain,
        };
        plan.explain.setup = start.elapsed();
        Ok(plan)
    }

    /// `y = alpha A x + beta y` for all systems. `x` and `y` are item-major, the right-hand sides
    /// of an item one after the other. beta == 0 does not read `y`.
    ///
    /// Enqueues and returns: allocates nothing and does not wait.
    ///
    /// # Errors
    /// [`GpuError::Length`]; what launching reports.
    pub fn apply(
        &self,
        alpha: T,
        x: &E::Buffer<T>,
        beta: T,
        y: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        check_len("x", self.x_len, x.len())?;
        check_len("y", self.y_len, y.len())?;
        let threads = block_threads(self.options.warps);
        for launch in &self.launches {
            let config = LaunchConfig {
                grid: [launch.blocks as u32, 1, 1],
                block: [threads, 1, 1],
                shared_bytes: (self.staging_bytes + launch.shared_values * size_of::<T>()) as u32,
            };
            let mut args = Args::new();
            args.input_from(&self.blocks, 2 * launch.first_block)?;
            args.input(&self.systems)
                .input(&self.values)
                .input(&self.columns)
                .input(&self.index)
                .input(&self.slices)
                .scalar(self.options.nrhs as u32)
                .scalar(launch.warp_share as u32)
                .scalar(alpha)
                .input(x)
                .scalar(beta)
                .output(y);
            #[expect(unsafe_code, reason = "a launch; see its SAFETY comment")]
            // SAFETY: (1) these are the parameters of `packed_spmv`; (2) the plan wrote work,
            // descriptions and arrays for each other: every block of the launch has its entry in
            // `blocks`, every description lies in the arrays, columns are at most `ncols`, and
            // `shared_values` covers each system; x and y have the lengths that the descriptions
            // were made for, checked above; (3) all buffers are of this executor, by the types;
            // (4) y is borrowed exclusively.
            unsafe {
                self.executor.launch(&self.key, config, &mut args)?;
            }
        }
        Ok(())
    }

    /// Replaces the values of all systems, the patterns staying as they are.
    ///
    /// # Errors
    /// [`GpuError::Length`] when the batch is not of the same sizes.
    pub fn update_values(&mut self, batch: &Batch<T>) -> Result<(), GpuError> {
        check_len("batch", self.nitems, batch.nitems())?;
        let shared = matches!(batch, Batch::Uniform(batch) if batch.is_shared());
        let uniform = self.patterns.len() == 1 && matches!(batch, Batch::Uniform(_));
        let nnz = self.explain.nnz as usize;
        check_len("values", nnz, batch.total_nnz())?;
        if shared != self.shared_values {
            return Err(GpuError::InvalidArgument {
                name: "batch",
                expected: "values shared as in the batch that the plan was made for".to_owned(),
                found: "values shared otherwise".to_owned(),
            });
        }
        let packed = packed_values(batch, &self.patterns, uniform, shared);
        self.executor.copy_from_host(&packed, &mut self.values)
    }

    /// What was chosen and what it costs.
    pub fn explain(&self) -> &PackedExplain {
        &self.explain
    }
}

/// The threads that a multiprocessor has registers for, at the most depth without spills.
fn resident_threads(depth: usize) -> u32 {
    match depth {
        ..=4 => 1024,
        5..=6 => 896,
        _ => 768,
    }
}

fn check_options(options: PackedOptions) -> Result<(), GpuError> {
    let refuse = |name, expected: &str, found: usize| {
        Err(GpuError::InvalidArgument {
            name,
            expected: expected.to_owned(),
            found: found.to_string(),
        })
    };
    if options.nrhs == 0 || options.nrhs > u32::MAX as usize {
        return refuse("nrhs", "1 to 4294967295", options.nrhs);
    }
    if ![4, 8].contains(&options.warps) {
        return refuse("warps", "4 or 8", options.warps);
    }
    Ok(())
}

/// Packs every pattern: one for a uniform batch.
fn patterns<T: Value>(room: &Room<'_>, batch: &Batch<T>) -> Result<Vec<PackedPattern>, GpuError> {
    let count = match batch {
        Batch::Uniform(_) => batch.nitems().min(1),
        Batch::Ragged(_) => batch.nitems(),
    };
    let packed = (0..count).into_par_iter().map(|item| {
        let pattern = batch.pattern(item);
        let packed = layout::fits(pattern).then(|| PackedPattern::new(pattern, size_of::<T>()));
        packed.filter(|packed| room.holds(packed)).ok_or_else(|| GpuError::InvalidArgument {
            name: "batch",
            expected: "systems whose x and row sums fit the shared memory of a block".to_owned(),
            found: format!(
                "item {item} with {} rows and {} columns",
                pattern.nrows(),
                pattern.ncols()
            ),
        })
    });
    packed.collect()
}

/// The index arrays of all patterns, one after the other.
fn gathered(patterns: &[PackedPattern]) -> (Vec<u16>, Vec<u16>, Vec<u32>) {
    let columns = patterns.par_iter().flat_map_iter(|p| p.columns.iter().copied()).collect();
    let index = patterns.par_iter().flat_map_iter(|p| p.index.iter().copied()).collect();
    let slices = patterns.par_iter().flat_map_iter(|p| p.slices.iter().copied()).collect();
    (columns, index, slices)
}

/// Where the parts of each item lie.
fn places<T: Value>(
    batch: &Batch<T>,
    patterns: &[PackedPattern],
    uniform: bool,
    shared_values: bool,
    nrhs: usize,
) -> Vec<Places> {
    let mut next = Places::default();
    (0..batch.nitems())
        .map(|item| {
            let pattern = &patterns[if uniform { 0 } else { item }];
            next.x = (batch.col_offset(item) * nrhs) as u64;
            next.y = (batch.row_offset(item) * nrhs) as u64;
            let this = next;
            if !shared_values {
                next.values += pattern.nslots() as u64;
            }
            if !uniform {
                next.columns += pattern.columns.len() as u64;
                next.index += pattern.index.len() as u64;
                next.slices += pattern.slices.len() as u64;
            }
            this
        })
        .collect()
}

/// The values of all items in packed order, padding 0.
fn packed_values<T: Value>(
    batch: &Batch<T>,
    patterns: &[PackedPattern],
    uniform: bool,
    shared_values: bool,
) -> Vec<T> {
    let items = if shared_values { batch.nitems().min(1) } else { batch.nitems() };
    let pattern_of = |item: usize| &patterns[if uniform { 0 } else { item }];
    let mut packed = Vec::new();
    let total: usize = (0..items).map(|item| pattern_of(item).nslots()).sum();
    packed.resize(total, T::ZERO);
    let mut rest = packed.as_mut_slice();
    let mut parts = Vec::with_capacity(items);
    for item in 0..items {
        let (part, after) = rest.split_at_mut(pattern_of(item).nslots());
        parts.push(part);
        rest = after;
    }
    parts.into_par_iter().enumerate().for_each_init(Vec::new, |copy, (item, part)| {
        let values = batch.values_in(item, copy);
        for (slot, &source) in part.iter_mut().zip(&pattern_of(item).source) {
            if source != PADDING {
                *slot = values[source as usize];
            }
        }
    });
    packed
}
