//! Launches that a changing temperature adds to rates, right-hand sides and matrices.

use sparsebatch::gpu::{Args, Executor, GpuError, LaunchConfig};

use super::{At, HEAT_RATES, THREADS, WARP, a_warp_each, key, pass_at};
use crate::nuclear_burning::eos::RADIATION;
use crate::nuclear_burning::gpu::heating::Gas;
use crate::nuclear_burning::gpu::state::Places;
use crate::nuclear_burning::gpu::tables::Tables;
use crate::nuclear_burning::rates::{T9_MAX, T9_MIN};

/// Warps per block of `heat_rates`.
const HEAT_WARPS: u32 = 8;
/// Most and fewest rates per thread of `heat_rates`; each thread first computes the powers of its
/// temperature.
const MOST_RATES: u32 = 16;
const FEWEST_RATES: u32 = 2;

/// Computes the rates of `count` places at the temperatures of a stage, and their slopes if an
/// output is given.
pub(in crate::nuclear_burning::gpu) fn heat_rates<E: Executor>(
    executor: &E,
    (tables, gas): (&Tables<E>, &Gas<E>),
    (count, places): (usize, &mut Places<E>),
    at: At<'_, E>,
    slopes: Option<&mut E::Buffer<f64>>,
) -> Result<(), GpuError> {
    let kernel = HEAT_RATES[usize::from(slopes.is_some())];
    let columns = (count as u32).div_ceil(WARP);
    let shares = |rates: u32| tables.nrates.div_ceil(HEAT_WARPS * rates).max(1);
    let enough = (4 * executor.info().multiprocessors).div_ceil(columns);
    let rows = enough.clamp(shares(MOST_RATES), shares(FEWEST_RATES));
    let config =
        LaunchConfig { grid: [columns, rows, 1], ..LaunchConfig::linear(1, HEAT_WARPS * WARP) };
    let fits = &tables.fits;
    let mut args = Args::new();
    args.scalar(count as u32)
        .scalar(tables.nnuclides)
        .scalar(tables.nrates)
        .scalar(places.stride)
        .scalar(T9_MIN)
        .scalar(T9_MAX)
        .input(&gas.rho)
        .input(&fits.set_ptr)
        .input(&fits.sets)
        .input(&fits.prefactors)
        .input(&fits.exponents)
        .input(&places.y)
        .input(&places.course);
    pass_at(&mut args, at)?;
    args.output(&mut places.lambda);
    match slopes {
        Some(slopes) => args.output(slopes),
        None => args.raw(0),
    };
    // SAFETY: the arguments are those of `heat_rates`; the tables are those of one network, the gas
    // has a density for each zone that a place names, and places, stages and slopes have room for
    // `count` zones.
    unsafe { executor.launch(&key(kernel), config, &mut args) }
}

/// Appends the gas data, and the states and dY/dt of the places, to the arguments.
fn pass_gas<'a, E: Executor>(
    args: &mut Args<'a>,
    gas: &'a Gas<E>,
    places: &'a Places<E>,
    ydot: &'a E::Buffer<f64>,
) {
    args.scalar(4.0 * RADIATION)
        .input(&gas.rho)
        .input(&gas.heats)
        .input(&gas.bindings)
        .input(&places.y)
        .input(&places.pace)
        .input(&places.course)
        .input(ydot);
}

/// Computes the last row of the right-hand side of a stage into `b`, from the dY/dt in `ydot`.
pub(in crate::nuclear_burning::gpu) fn heat<E: Executor>(
    executor: &E,
    (tables, gas): (&Tables<E>, &Gas<E>),
    (count, places): (usize, &Places<E>),
    at: At<'_, E>,
    ydot: &E::Buffer<f64>,
    b: &mut E::Buffer<f64>,
) -> Result<(), GpuError> {
    let mut args = Args::new();
    args.scalar(count as u32).scalar(tables.nnuclides);
    pass_gas(&mut args, gas, places, ydot);
    pass_at(&mut args, at)?;
    args.output(b);
    let config = a_warp_each(count);
    // SAFETY: the arguments are those of `heat`; the gas is that of the network, with a density for
    // each zone; places, stages, `ydot` and `b`, which are different, have room for `count` zones.
    unsafe { executor.launch(&key("heat"), config, &mut args) }
}

/// Completes `I/(gamma h) - J` in `values`, which hold the entries of -J between nuclides; `ydot`
/// and `slopes` are dY/dt and its derivative with respect to T9.
pub(in crate::nuclear_burning::gpu) fn heat_matrix<E: Executor>(
    executor: &E,
    (tables, gas): (&Tables<E>, &Gas<E>),
    (count, places): (usize, &Places<E>),
    gamma: f64,
    (ydot, slopes): (&E::Buffer<f64>, &E::Buffer<f64>),
    values: &mut E::Buffer<f64>,
) -> Result<(), GpuError> {
    let mut args = Args::new();
    args.scalar(tables.nnuclides).scalar(tables.nnz).scalar(gamma);
    pass_gas(&mut args, gas, places, ydot);
    args.input(slopes)
        .input(&gas.column_ptr)
        .input(&gas.column_rows)
        .input(&gas.column_entries)
        .input(&gas.last_row)
        .input(&gas.last_column)
        .output(values);
    let config = LaunchConfig::linear(count as u32, THREADS);
    // SAFETY: the arguments are those of `heat_matrix`; the gas is that of the network and numbers
    // entries of its pattern; places, `ydot`, `slopes` and `values` have room for `count` zones.
    unsafe { executor.launch(&key("heat_matrix"), config, &mut args) }
}
