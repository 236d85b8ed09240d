//! The launches of `burning.cu`. All the unsafe code of the example is here.
#![allow(unsafe_code)]

use sparsebatch::gpu::DeviceOutcomes;
use sparsebatch::spmv_gpu::{
    Args, DeviceInfo, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Source,
};

use super::state::{Places, Results};
use super::tables::Tables;
use super::tally::DeviceTally;
use crate::rates::{T9_MAX, T9_MIN};

/// The kernels.
pub(crate) static SOURCE: Source = Source::new(include_str!("burning.cu"));

/// The kernels by name, those that evaluate zones for one zone a thread and for two.
pub(crate) const KERNELS: [&str; 11] = [
    "rates",
    STAGE[0],
    STAGE[1],
    MATRIX[0],
    MATRIX[1],
    "begin",
    "judge",
    "densify",
    "judge_dense",
    "survivors",
    "move",
];
const STAGE: [&str; 2] = ["stage<1>", "stage<2>"];
const MATRIX: [&str; 2] = ["matrix<1>", "matrix<2>"];

/// The most stages before the last.
pub(super) const MOST_BEFORE: usize = 7;

/// Numbers of a tally: see `burning.cu`.
pub(super) const STATUSES: usize = 16;
pub(super) const TALLY: usize = STATUSES + 1 + 64;

/// Threads of a block.
const THREADS: u32 = 256;
/// The most of a block that evaluates one zone: what it reads from memory and from the tables takes its time.
const MOST_THREADS: u32 = 1024;
/// Numbers in shared memory for each thread of such a block, at least.
const NUMBERS_A_THREAD: u32 = 4;
/// The most threads of a block that evaluates several zones, two a thread, and of those that have the same two zones:
/// several blocks are to have room.
const STAGE_THREADS: u32 = 640;
const STAGE_WORKERS: u32 = 176;
const MATRIX_THREADS: u32 = 512;
const MATRIX_WORKERS: u32 = 256;
/// What each of them has to do at most where there are as many, and the least of them.
const ITEMS_A_THREAD: u32 = 8;
const LEAST_WORKERS: u32 = 32;
const WARP: u32 = 32;
/// Warps of a block of `judge`, each with a zone.
const JUDGES: u32 = 4;
/// Zones that the threads of a block evaluate side by side, as a power of two.
const MOST_SHIFT: u32 = 3;
/// A sector of memory holds the numbers of four zones: with fewer, some of what is read is wasted.
const SECTOR_SHIFT: u32 = 2;

/// A kernel of this example.
pub(crate) fn key(name: &'static str) -> KernelKey {
    KernelKey::of_source("burning", &SOURCE, name)
}

/// Zones side by side.
struct SideBySide {
    /// How many, as a power of two.
    shift: u32,
    /// Which kernel: for one zone a thread, or for two.
    kernel: usize,
    config: LaunchConfig,
}

/// What a block that evaluates zones takes.
struct Need {
    /// Numbers of a zone in shared memory.
    values: u32,
    /// What there is to do for two zones, the most threads for them, and the most of a block.
    items: u32,
    most_workers: u32,
    most_threads: u32,
}

/// As many zones side by side as leave room for two blocks on a multiprocessor, and fewer where there are few zones, so
/// that all multiprocessors have work.
///
/// # Errors
/// [`GpuError::InvalidArgument`] when not even one zone has room.
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

/// Blocks enough for a thread each of `work` items.
fn for_all(work: u64) -> LaunchConfig {
    let blocks = work.div_ceil(u64::from(THREADS)).clamp(1, 1 << 20);
    LaunchConfig::linear(blocks as u32, THREADS)
}

/// The rates of all zones, `t9` in GK and `rho` in g/cm^3, into the places of their numbers.
pub(super) fn rates<E: Executor>(
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
    // SAFETY: the arguments are those of `rates`; t9 and rho have a number a zone, the tables are those
    // of one network, and a place has been made for each zone and rate.
    unsafe { executor.launch(&key("rates"), config, &mut args) }
}

/// What a stage goes by.
pub(super) struct Stage<'a, E: Executor> {
    /// Of which it has 2 (`MOST_BEFORE` + 1) from `first_weight` on.
    pub(super) weights: &'a E::Buffer<f64>,
    pub(super) first_weight: usize,
    /// The stages before it, `count` places each, and how the systems of the last of them ended.
    pub(super) u: &'a [E::Buffer<f64>],
    pub(super) ended: Option<DeviceOutcomes<'a, E>>,
}

/// The right-hand side of a stage into `b`. Counts how the systems of the stage before ended, and marks zones
/// whose system was not solved.
pub(super) fn stage<E: Executor>(
    executor: &E,
    tables: &Tables<E>,
    (count, places): (usize, &mut Places<E>),
    stage: Stage<'_, E>,
    tally: &mut DeviceTally<E>,
    b: &mut E::Buffer<f64>,
) -> Result<(), GpuError> {
    let Stage { weights, first_weight, u, ended } = stage;
    let SideBySide { shift, kernel, config } = side_by_side(
        executor.info(),
        count as u32,
        &Need {
            values: tables.stage_values(),
            // An abundance is made of all stages, and waited for by all.
            items: tables.nrates.max(ITEMS_A_THREAD * (tables.nnuclides + 1)),
            most_workers: STAGE_WORKERS,
            most_threads: STAGE_THREADS,
        },
    )?;
    let mut args = Args::new();
    args.scalar(count as u32)
        .scalar(places.stride)
        .scalar(tables.nnuclides)
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
        .input(&places.lambda)
        .input(&places.pace)
        .output(&mut places.course);
    pass_ended(&mut args, ended, tally);
    args.scalar(u.len() as u32).input_from(weights, first_weight)?;
    pass_stages::<E>(&mut args, u);
    args.output(b);
    let config = LaunchConfig { overlaps: true, ..config };
    // SAFETY: the arguments are those of `stage`; the tables are those of one network and number its
    // reactions and nuclides; places, vectors and outcomes have room for `count` zones; b is none of u;
    // the launch ahead writes none of y, lambda and `u` but its last, and ends no zone.
    unsafe { executor.launch(&key(STAGE[kernel]), config, &mut args) }
}

/// Appends the addresses of stages, null for those that are not there.
fn pass_stages<'a, E: Executor>(args: &mut Args<'a>, u: &'a [E::Buffer<f64>]) {
    for stage in 0..MOST_BEFORE {
        args.raw(u.get(stage).map_or(0, KernelBuffer::raw));
    }
}

/// Appends how systems ended, null where nothing was solved, and the tally of all.
fn pass_ended<'a, E: Executor>(
    args: &mut Args<'a>,
    ended: Option<DeviceOutcomes<'a, E>>,
    tally: &'a mut DeviceTally<E>,
) {
    match ended {
        Some(ended) => args
            .input(ended.statuses)
            .input(ended.iterations)
            .input(ended.restarts)
            .input(ended.residual_norms)
            .input(ended.rhs_norms),
        None => args.raw(0).raw(0).raw(0).raw(0).raw(0),
    };
    args.output(&mut tally.counts).output(&mut tally.worst);
}

/// `I/(gamma h) - J` of `count` places into `values`.
pub(super) fn matrix<E: Executor>(
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
    // SAFETY: the arguments are those of `matrix`; the tables are those of one network and number its
    // derivatives and entries; places and values have room for `count` zones.
    unsafe { executor.launch(&key(MATRIX[kernel]), config, &mut args) }
}

/// First steps, from the derivatives in `slopes`.
pub(super) fn begin<E: Executor>(
    executor: &E,
    tables: &Tables<E>,
    settings: &E::Buffer<f64>,
    slopes: &E::Buffer<f64>,
    places: &mut Places<E>,
    results: &mut Results<E>,
) -> Result<(), GpuError> {
    let zones = results.zones as u32;
    let config = for_all(u64::from(zones) * u64::from(WARP));
    let mut args = Args::new();
    args.scalar(zones)
        .scalar(tables.nnuclides)
        .input(settings)
        .input(&places.y)
        .input(slopes)
        .input(&results.time_ptr)
        .input(&results.times)
        .output(&mut places.pace)
        .output(&mut places.course)
        .output(&mut results.counts)
        .output(&mut results.figures);
    // SAFETY: the arguments are those of `begin`; places, slopes and results have room for all zones,
    // each of which has an output time.
    unsafe { executor.launch(&key("begin"), config, &mut args) }
}

/// What `judge` goes by.
pub(super) struct Rules<'a, E: Executor> {
    pub(super) settings: &'a E::Buffer<f64>,
    /// Of the last stage.
    pub(super) weights: &'a E::Buffer<f64>,
    pub(super) first_weight: usize,
    pub(super) max_steps: u32,
    pub(super) project: bool,
}

/// Accepts or rejects the steps of `count` places. `u` are all stages, `ended` says how the systems of the last one
/// did.
pub(super) fn judge<E: Executor>(
    executor: &E,
    tables: &Tables<E>,
    rules: &Rules<'_, E>,
    (u, ended): (&[E::Buffer<f64>], DeviceOutcomes<'_, E>),
    (count, places): (usize, &mut Places<E>),
    results: &mut Results<E>,
    tally: &mut DeviceTally<E>,
) -> Result<(), GpuError> {
    let config = LaunchConfig {
        shared_bytes: JUDGES * tables.nnuclides * 8,
        overlaps: true,
        ..LaunchConfig::linear((count as u32).div_ceil(JUDGES).max(1), JUDGES * WARP)
    };
    let (before, last) = u.split_at(u.len() - 1);
    let mut args = Args::new();
    args.scalar(count as u32)
        .scalar(tables.nnuclides)
        .scalar(before.len() as u32)
        .scalar(rules.max_steps)
        .scalar(u32::from(rules.project))
        .input(rules.settings)
        .input_from(rules.weights, rules.first_weight)?
        .input(&tables.a)
        .input(&tables.z)
        .input(&results.start)
        .input(&results.time_ptr)
        .input(&results.times);
    pass_stages::<E>(&mut args, before);
    args.input(&last[0]).output(&mut places.y).output(&mut places.pace).output(&mut places.course);
    pass_ended(&mut args, Some(ended), tally);
    args.output(&mut results.counts)
        .output(&mut results.figures)
        .output(&mut results.y)
        .output(&mut results.left)
        .output(&mut results.tried);
    // SAFETY: the arguments are those of `judge`; places, stages and outcomes have room for `count` zones, the
    // results for all, and for abundances at all of their times; the launch ahead writes of these only `last` and
    // outcomes.
    unsafe { executor.launch(&key("judge"), config, &mut args) }
}

/// Matrices of `count` places on the pattern that `entry_of` numbers, as dense ones.
pub(super) fn densify<E: Executor>(
    executor: &E,
    (count, n, nnz): (usize, usize, usize),
    entry_of: &E::Buffer<i32>,
    values: &E::Buffer<f64>,
    dense: &mut E::Buffer<f64>,
) -> Result<(), GpuError> {
    let mut args = Args::new();
    args.scalar(count as u32).scalar(n as u32).scalar(nnz as u32);
    args.input(entry_of).input(values).output(dense);
    let config = for_all(count as u64 * (n * n) as u64);
    // SAFETY: the arguments are those of `densify`; `entry_of` has a number below nnz, or -1, for each of
    // n * n entries; values and dense matrices have room for `count` places.
    unsafe { executor.launch(&key("densify"), config, &mut args) }
}

/// How the dense systems of `count` places ended.
pub(super) fn judge_dense<E: Executor>(
    executor: &E,
    (count, n): (usize, usize),
    info: &E::Buffer<i32>,
    x: &E::Buffer<f64>,
    statuses: &mut E::Buffer<u8>,
) -> Result<(), GpuError> {
    let mut args = Args::new();
    args.scalar(count as u32).scalar(n as u32).input(info).input(x).output(statuses);
    let config = for_all(count as u64 * u64::from(WARP));
    // SAFETY: the arguments are those of `judge_dense`; x has n values for each of at least `count`
    // places, of which there are as many codes and statuses.
    unsafe { executor.launch(&key("judge_dense"), config, &mut args) }
}

/// Moves the zones of `count` places that are on their way to the first `new_count` places of other
/// arrays; there are no more such zones.
pub(super) fn compact<E: Executor>(
    executor: &E,
    tables: &Tables<E>,
    (count, places): (usize, &Places<E>),
    (new_count, new_places): (usize, &mut Places<E>),
    moves: &mut E::Buffer<u32>,
    stay: &mut E::Buffer<u32>,
) -> Result<(), GpuError> {
    let mut args = Args::new();
    args.scalar(count as u32).input(&places.course).output(moves).output(stay);
    let config = LaunchConfig::linear(1, 1024);
    // SAFETY: the arguments are those of `survivors`; there are `count` places and as many moves.
    unsafe { executor.launch(&key("survivors"), config, &mut args) }?;
    let per_zone = u64::from(tables.nrates) + u64::from(tables.nnuclides) + 1;
    let mut args = Args::new();
    args.scalar(new_count as u32)
        .scalar(tables.nnuclides)
        .scalar(tables.nrates)
        .scalar(places.stride)
        .scalar(new_places.stride)
        .input(&*stay)
        .input(&*moves)
        .input(&places.y)
        .input(&places.lambda)
        .input(&places.pace)
        .input(&places.course)
        .output(&mut new_places.y)
        .output(&mut new_places.lambda)
        .output(&mut new_places.pace)
        .output(&mut new_places.course);
    // SAFETY: the arguments are those of `move`; the moves are places of the old arrays, `stay` at most
    // `new_count` of them; the new arrays are others, with room for as many.
    unsafe { executor.launch(&key("move"), for_all(new_count as u64 * per_zone), &mut args) }
}
