//! Launches for rates, right-hand sides and matrices of zones side by side.

use sparsebatch::gpu::{Args, DeviceInfo, Executor, GpuError, KernelBuffer, LaunchConfig};

use super::{At, MATRIX, STAGE, THREADS, WARP, for_all, key, pass_at, pass_ended};
use crate::nuclear_burning::gpu::linear::Ended;
use crate::nuclear_burning::gpu::state::Places;
use crate::nuclear_burning::gpu::tables::Tables;
use crate::nuclear_burning::gpu::tally::DeviceTally;
use crate::nuclear_burning::rates::{T9_MAX, T9_MIN};

/// Most threads of a block that evaluates one zone: reads from memory and from the tables dominate
/// its time.
const MOST_THREADS: u32 = 1024;
/// Fewest numbers in shared memory per thread of such a block.
const NUMBERS_A_THREAD: u32 = 4;
/// Most threads of a block that evaluates several zones, two per thread, and most threads that
/// share the same two zones; several blocks must fit on a multiprocessor.
const STAGE_THREADS: u32 = 640;
const STAGE_WORKERS: u32 = 176;
const MATRIX_THREADS: u32 = 512;
const MATRIX_WORKERS: u32 = 256;
/// Items per thread from which the number of threads per pair of zones is chosen, and the fewest
/// such threads.
const ITEMS_A_THREAD: u32 = 8;
const LEAST_WORKERS: u32 = 32;
/// Base-2 logarithm of the most zones that a block evaluates side by side.
const MOST_SHIFT: u32 = 3;
/// Base-2 logarithm of the zones whose numbers fill a memory sector: with fewer zones, part of each
/// sector read is wasted.
const SECTOR_SHIFT: u32 = 2;

/// A launch that evaluates zones side by side.
struct SideBySide {
    /// Base-2 logarithm of the number of zones per block.
    shift: u32,
    /// Index of the kernel: 0 with one zone per thread, 1 with two.
    kernel: usize,
    config: LaunchConfig,
}

/// The resources that a block needs to evaluate zones.
struct Need {
    /// Numbers per zone in shared memory.
    values: u32,
    /// Work items for two zones, the most threads for them, and the most threads of a block.
    items: u32,
    most_workers: u32,
    most_threads: u32,
}

/// Chooses as many zones side by side as leave room for two blocks on a multiprocessor, and fewer
/// if there are few zones, so that all multiprocessors have work.
///
/// # Errors
/// [`GpuError::InvalidArgument`] when not even one zone fits.
fn side_by_side(info: &DeviceInfo, places: u32, need: &Need) -> Result<SideBySide, GpuError> {
    let bytes = |shift: u32| u64::from(need.values) << (shift + 3);
    let room = u64::from(info.shared_bytes_per_block);
    let half = u64::from(info.shared_bytes_per_multiprocessor / 2).saturating_sub(1024).min(room);
    let fits = |shift: &u32| bytes(*shift) <= if *shift > SECTOR_SHIFT { half } else { room };
    let busy = |shift: &u32| places.div_ceil(1 << shift) >= 2 * info.multiprocessors;
    let shift = (1..=MOST_SHIFT).rev().find(|shift| fits(shift) && busy(shift)).unwrap_or(0);
    if bytes(shift) > room {
        return Err(GpuError::InvalidArgument {
            name: "network",
            expected: format!("at most {} numbers of a zone in shared memory", room / 8),
            found: need.values.to_string(),
        });
    }
    let kernel = shift.min(1);
    let threads = if shift == 0 {
        (need.values / NUMBERS_A_THREAD).next_power_of_two().clamp(THREADS, MOST_THREADS)
    } else {
        let workers = need.items.div_ceil(ITEMS_A_THREAD).clamp(LEAST_WORKERS, need.most_workers);
        (workers << (shift - 1)).min(need.most_threads).next_multiple_of(WARP)
    };
    let blocks = places.div_ceil(1 << shift);
    let config = LaunchConfig::linear(blocks, threads.min(info.max_threads_per_block));
    let config = LaunchConfig { shared_bytes: bytes(shift) as u32, ..config };
    Ok(SideBySide { shift, kernel: kernel as usize, config })
}

/// Computes the rates of all zones, `t9` in GK and `rho` in g/cm^3; each zone's rates go to the
/// place of its number.
pub(in crate::nuclear_burning::gpu) fn rates<E: Executor>(
    executor: &E,
    tables: &Tables<E>,
    (t9, rho): (&E::Buffer<f64>, &E::Buffer<f64>),
    places: &mut Places<E>,
    bad: &mut E::Buffer<u32>,
) -> Result<(), GpuError> {
    let fits = &tables.fits;
    let config = for_all(t9.len() as u64 * u64::from(tables.nrates));
    let mut args = Args::new();
    args.scalar(t9.len() as u32)
        .scalar(tables.nrates)
        .scalar(places.stride)
        .scalar(T9_MIN)
        .scalar(T9_MAX)
        .input(t9)
        .input(rho)
        .input(&fits.set_ptr)
        .input(&fits.sets)
        .input(&fits.prefactors)
        .input(&fits.exponents)
        .output(&mut places.lambda)
        .output(bad);
    // SAFETY: the arguments are those of `rates`; t9 and rho have a number a zone, the tables are
    // those of one network, and a place has been made for each zone and rate.
    unsafe { executor.launch(&key("rates"), config, &mut args) }
}

/// The operands of a stage.
pub(in crate::nuclear_burning::gpu) struct Stage<'a, E: Executor> {
    pub(in crate::nuclear_burning::gpu) at: At<'a, E>,
    /// Outcomes of the systems solved before the stage, if they are known.
    pub(in crate::nuclear_burning::gpu) ended: Option<Ended<'a, E>>,
    /// Rates to use instead of those of the places, in the same layout.
    pub(in crate::nuclear_burning::gpu) rates: Option<&'a E::Buffer<f64>>,
    /// Output array for dY/dt alone, if requested.
    pub(in crate::nuclear_burning::gpu) ydot: Option<&'a mut E::Buffer<f64>>,
}

impl<'a, E: Executor> Stage<'a, E> {
    /// A stage with the rates of the places.
    pub(in crate::nuclear_burning::gpu) fn new(at: At<'a, E>) -> Self {
        Self { at, ended: None, rates: None, ydot: None }
    }
}

/// Computes the right-hand side of a stage into `b`. Counts the outcomes of the previous stage's
/// systems, and marks zones whose system was not solved.
pub(in crate::nuclear_burning::gpu) fn stage<E: Executor>(
    executor: &E,
    tables: &Tables<E>,
    (count, places): (usize, &mut Places<E>),
    stage: Stage<'_, E>,
    tally: &mut DeviceTally<E>,
    b: &mut E::Buffer<f64>,
) -> Result<(), GpuError> {
    let Stage { at, ended, rates, ydot } = stage;
    let SideBySide { shift, kernel, config } = side_by_side(
        executor.info(),
        count as u32,
        &Need {
            values: tables.stage_values(),
            // Each abundance is a combination of all stages, and all threads wait for it.
            items: tables.nrates.max(ITEMS_A_THREAD * (tables.nnuclides + 1)),
            most_workers: STAGE_WORKERS,
            most_threads: STAGE_THREADS,
        },
    )?;
    let mut args = Args::new();
    args.scalar(count as u32)
        .scalar(places.stride)
        .scalar(tables.nnuclides)
        .scalar(tables.nvars)
        .scalar(tables.nrates)
        .scalar(tables.nreactions)
        .scalar(tables.changes.npieces)
        .scalar(shift)
        .input(&tables.flow_rates)
        .input(&tables.flow_factors)
        .input(&tables.changes.piece_ptr)
        .input(&tables.changes.spans)
        .input(&tables.changes.terms)
        .input(&places.y)
        .input(rates.unwrap_or(&places.lambda))
        .input(&places.pace)
        .output(&mut places.course);
    pass_ended(&mut args, ended, tally);
    pass_at(&mut args, at)?;
    args.output(b);
    match ydot {
        Some(ydot) => args.output(ydot),
        None => args.raw(0),
    };
    // The preceding launch makes the rates of self-heating zones, so this one cannot overlap with
    // it.
    let config = LaunchConfig { overlaps: !tables.heats(), ..config };
    // SAFETY: the arguments are those of `stage`; the tables are those of one network and number
    // its reactions and nuclides; places, vectors and outcomes have room for `count` zones; b is
    // none of u; where it overlaps, the launch ahead writes none of y, lambda and `u` but its last,
    // and ends no zone.
    unsafe { executor.launch(&key(STAGE[kernel]), config, &mut args) }
}

/// Computes `I/(gamma h) - J` of `count` places into `values`.
pub(in crate::nuclear_burning::gpu) fn matrix<E: Executor>(
    executor: &E,
    tables: &Tables<E>,
    places: &Places<E>,
    count: usize,
    gamma: f64,
    values: &mut E::Buffer<f64>,
) -> Result<(), GpuError> {
    let SideBySide { shift, kernel, config } = side_by_side(
        executor.info(),
        count as u32,
        &Need {
            values: tables.matrix_values(),
            items: tables.npartials.max(tables.nnz),
            most_workers: MATRIX_WORKERS,
            most_threads: MATRIX_THREADS,
        },
    )?;
    let mut args = Args::new();
    args.scalar(count as u32)
        .scalar(places.stride)
        .scalar(tables.nnuclides)
        .scalar(tables.nvars)
        .scalar(tables.nnz)
        .scalar(tables.npartials)
        .scalar(tables.entries.npieces)
        .scalar(shift)
        .scalar(gamma)
        .input(&tables.partial_rates)
        .input(&tables.partial_factors)
        .input(&tables.entries.piece_ptr)
        .input(&tables.entries.spans)
        .input(&tables.entries.terms)
        .input(&places.y)
        .input(&places.lambda)
        .input(&places.pace)
        .input(&places.course)
        .output(values);
    let config = LaunchConfig { overlaps: true, ..config };
    // SAFETY: the arguments are those of `matrix`, which waits before it reads anything that a
    // launch writes; the tables are those of one network and number its derivatives and entries;
    // places and values have room for `count` zones.
    unsafe { executor.launch(&key(MATRIX[kernel]), config, &mut args) }
}
