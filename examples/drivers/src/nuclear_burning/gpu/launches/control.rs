//! Launches for first steps, for accepting or rejecting steps, and for compacting zones.

use sparsebatch::gpu::{Args, Executor, GpuError, LaunchConfig};

use super::{WARP, a_warp_each, for_all, key, pass_ended, pass_stages};
use crate::nuclear_burning::gpu::linear::Ended;
use crate::nuclear_burning::gpu::state::{Places, Results};
use crate::nuclear_burning::gpu::tables::Tables;
use crate::nuclear_burning::gpu::tally::DeviceTally;

/// Warps per block of `judge`, each with one zone.
const JUDGES: u32 = 4;

/// Computes first steps from the derivatives in `slopes`.
pub(in crate::nuclear_burning::gpu) fn begin<E: Executor>(
    executor: &E,
    tables: &Tables<E>,
    settings: &E::Buffer<f64>,
    slopes: &E::Buffer<f64>,
    places: &mut Places<E>,
    results: &mut Results<E>,
) -> Result<(), GpuError> {
    let zones = results.zones as u32;
    let config = a_warp_each(results.zones);
    let mut args = Args::new();
    args.scalar(zones)
        .scalar(tables.nvars)
        .input(settings)
        .input(&places.y)
        .input(slopes)
        .input(&results.time_ptr)
        .input(&results.times)
        .output(&mut places.pace)
        .output(&mut places.course)
        .output(&mut results.counts)
        .output(&mut results.figures);
    // SAFETY: the arguments are those of `begin`; places, slopes and results have room for all
    // zones, each of which has an output time.
    unsafe { executor.launch(&key("begin"), config, &mut args) }
}

/// The parameters of `judge`.
pub(in crate::nuclear_burning::gpu) struct Rules<'a, E: Executor> {
    pub(in crate::nuclear_burning::gpu) settings: &'a E::Buffer<f64>,
    /// Weights of the last stage.
    pub(in crate::nuclear_burning::gpu) weights: &'a E::Buffer<f64>,
    pub(in crate::nuclear_burning::gpu) first_weight: usize,
    pub(in crate::nuclear_burning::gpu) max_steps: u32,
    pub(in crate::nuclear_burning::gpu) project: bool,
}

/// Accepts or rejects the steps of `count` places. `u` are the solutions of all stages; `ended` has
/// the outcomes of systems that were not known before.
pub(in crate::nuclear_burning::gpu) fn judge<E: Executor>(
    executor: &E,
    tables: &Tables<E>,
    rules: &Rules<'_, E>,
    (u, ended): (&[E::Buffer<f64>], Option<Ended<'_, E>>),
    (count, places): (usize, &mut Places<E>),
    results: &mut Results<E>,
    tally: &mut DeviceTally<E>,
) -> Result<(), GpuError> {
    let config = LaunchConfig {
        shared_bytes: JUDGES * tables.nvars * 8,
        overlaps: true,
        ..LaunchConfig::linear((count as u32).div_ceil(JUDGES).max(1), JUDGES * WARP)
    };
    let (before, last) = u.split_at(u.len() - 1);
    let mut args = Args::new();
    args.scalar(count as u32)
        .scalar(tables.nnuclides)
        .scalar(tables.nvars)
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
    pass_ended(&mut args, ended, tally);
    args.output(&mut results.counts)
        .output(&mut results.figures)
        .output(&mut results.y)
        .output(&mut results.left)
        .output(&mut results.tried);
    // SAFETY: the arguments are those of `judge`; places, stages and outcomes have room for `count`
    // zones, the results for all, and for abundances at all of their times; the launch ahead writes
    // of these only `last` and outcomes.
    unsafe { executor.launch(&key("judge"), config, &mut args) }
}

/// The source and target places of zones that move.
pub(in crate::nuclear_burning::gpu) struct Moves<E: Executor> {
    from: E::Buffer<u32>,
    to: E::Buffer<u32>,
    count: E::Buffer<u32>,
}

impl<E: Executor> Moves<E> {
    /// Allocates for `places` places.
    pub(in crate::nuclear_burning::gpu) fn new(
        executor: &E,
        places: usize,
    ) -> Result<Self, GpuError> {
        Ok(Self {
            from: executor.alloc_zeroed(places)?,
            to: executor.alloc_zeroed(places)?,
            count: executor.alloc_zeroed(1)?,
        })
    }
}

/// Moves the active zones among `count` places to the first `stay` places; there are at most `stay`
/// active zones.
pub(in crate::nuclear_burning::gpu) fn compact<E: Executor>(
    executor: &E,
    tables: &Tables<E>,
    (count, stay): (usize, usize),
    places: &mut Places<E>,
    moves: &mut Moves<E>,
) -> Result<(), GpuError> {
    let Moves { from, to, count: moving } = moves;
    let mut args = Args::new();
    args.scalar(count as u32)
        .scalar(stay as u32)
        .input(&places.course)
        .output(from)
        .output(to)
        .output(moving);
    let config = LaunchConfig::linear(1, 1024);
    // SAFETY: the arguments are those of `vacancies`; there are `count` places, and of both lists
    // as many.
    unsafe { executor.launch(&key("vacancies"), config, &mut args) }?;
    // Rates of self-heating zones are computed anew in any case.
    let nrates = if tables.heats() { 0 } else { tables.nrates };
    let per_zone = u64::from(nrates) + u64::from(tables.nvars) + 1;
    let most = count - stay;
    let mut args = Args::new();
    args.scalar(most as u32)
        .scalar(tables.nvars)
        .scalar(nrates)
        .scalar(places.stride)
        .input(&*moving)
        .input(&*from)
        .input(&*to)
        .output(&mut places.y)
        .output(&mut places.lambda)
        .output(&mut places.pace)
        .output(&mut places.course);
    // SAFETY: the arguments are those of `move`; no more than `most` zones are at places from
    // `stay` on, and they move to places before it, each to another.
    unsafe { executor.launch(&key("move"), for_all(most as u64 * per_zone), &mut args) }
}
