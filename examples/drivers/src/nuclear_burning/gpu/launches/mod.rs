//! The launches of `kernels/`, with all the unsafe code of the driver.
//!
//! | file | holds |
//! | --- | --- |
//! | `evaluate.rs` | rates, right-hand sides, matrices |
//! | `heating.rs` | the additions for a changing temperature |
//! | `control.rs` | first steps, judgement, places |
//! | `dense.rs` | launches for the dense LU |
#![allow(unsafe_code)]

mod control;
mod dense;
mod evaluate;
mod heating;

use sparsebatch::gpu::{Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Module};

pub(super) use control::{Moves, Rules, begin, compact, judge};
pub(super) use dense::{densify, judge_dense};
pub(super) use evaluate::{Stage, matrix, rates, stage};
pub(super) use heating::{heat, heat_matrix, heat_rates};

use super::linear::Ended;
use super::tally::DeviceTally;

/// The source module of the kernels.
pub static BURNING: Module = Module::new(
    "burning",
    include_str!("../kernels/burning.cu"),
    &[
        ("state.cuh", include_str!("../kernels/state.cuh")),
        ("rates.cuh", include_str!("../kernels/rates.cuh")),
        ("heating.cuh", include_str!("../kernels/heating.cuh")),
        ("sums.cuh", include_str!("../kernels/sums.cuh")),
        ("ended.cuh", include_str!("../kernels/ended.cuh")),
        ("stage.cuh", include_str!("../kernels/stage.cuh")),
        ("matrix.cuh", include_str!("../kernels/matrix.cuh")),
        ("control.cuh", include_str!("../kernels/control.cuh")),
        ("places.cuh", include_str!("../kernels/places.cuh")),
        ("dense.cuh", include_str!("../kernels/dense.cuh")),
    ],
);

/// The kernels by name; those that evaluate zones have versions for one and for two zones per
/// thread.
pub const KERNELS: [&str; 15] = [
    "rates",
    STAGE[0],
    STAGE[1],
    MATRIX[0],
    MATRIX[1],
    HEAT_RATES[0],
    HEAT_RATES[1],
    "heat",
    "heat_matrix",
    "begin",
    "judge",
    "densify",
    "judge_dense",
    "vacancies",
    "move",
];
const STAGE: [&str; 2] = ["stage<1>", "stage<2>"];
const MATRIX: [&str; 2] = ["matrix<1>", "matrix<2>"];
/// Without and with the slopes of the rates.
const HEAT_RATES: [&str; 2] = ["heat_rates<false>", "heat_rates<true>"];

/// Most stages before the last.
pub(super) const MOST_BEFORE: usize = 7;

/// Sizes of a tally: see `kernels/ended.cuh`.
pub(super) const STATUSES: usize = 16;
pub(super) const TALLY: usize = STATUSES + 1 + 64;

/// Threads per block.
const THREADS: u32 = 256;
const WARP: u32 = 32;

/// The key of a kernel of this driver.
pub(crate) fn key(name: &'static str) -> KernelKey {
    KernelKey::new(&BURNING, name)
}

/// A launch with a thread for each of `work` items.
fn for_all(work: u64) -> LaunchConfig {
    let blocks = work.div_ceil(u64::from(THREADS)).clamp(1, 1 << 20);
    LaunchConfig::linear(blocks as u32, THREADS)
}

/// A launch with a warp for each place.
fn a_warp_each(places: usize) -> LaunchConfig {
    LaunchConfig::linear((places as u32).div_ceil(THREADS / WARP).max(1), THREADS)
}

/// The point at which a stage is evaluated: its abundances are y plus a combination of the earlier
/// stages.
pub(super) struct At<'a, E: Executor> {
    /// Weights of the stages: this one has 2 (`MOST_BEFORE` + 1) from `first_weight` on.
    pub(super) weights: &'a E::Buffer<f64>,
    pub(super) first_weight: usize,
    /// The solutions of the earlier stages.
    pub(super) u: &'a [E::Buffer<f64>],
}

impl<E: Executor> Clone for At<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Executor> Copy for At<'_, E> {}

impl<'a, E: Executor> At<'a, E> {
    /// The start of a step.
    pub(super) fn start(weights: &'a E::Buffer<f64>) -> Self {
        Self { weights, first_weight: 0, u: &[] }
    }
}

/// Appends the number of earlier stages, the weights, and the addresses of these stages.
fn pass_at<'a, E: Executor>(args: &mut Args<'a>, at: At<'a, E>) -> Result<(), GpuError> {
    args.scalar(at.u.len() as u32).input_from(at.weights, at.first_weight)?;
    pass_stages::<E>(args, at.u);
    Ok(())
}

/// Appends the addresses of stages, null for absent ones.
fn pass_stages<'a, E: Executor>(args: &mut Args<'a>, u: &'a [E::Buffer<f64>]) {
    for stage in 0..MOST_BEFORE {
        args.raw(u.get(stage).map_or(0, KernelBuffer::raw));
    }
}

/// Appends the outcomes of systems (of zero stages if none are known) and the tally.
fn pass_ended<'a, E: Executor>(
    args: &mut Args<'a>,
    ended: Option<Ended<'a, E>>,
    tally: &'a mut DeviceTally<E>,
) {
    let (stages, places) = ended.as_ref().map_or((0, 0), |ended| (ended.stages, ended.places));
    args.scalar(stages as u32).scalar(places as u32);
    match ended {
        Some(Ended { outcomes, .. }) => args
            .input(outcomes.statuses)
            .input(outcomes.iterations)
            .input(outcomes.restarts)
            .input(outcomes.residual_norms)
            .input(outcomes.rhs_norms),
        None => args.raw(0).raw(0).raw(0).raw(0).raw(0),
    };
    args.output(&mut tally.counts).output(&mut tally.worst);
}
