//! The suite `energy`: joules of a product and of a solve, of a GPU by NVML and of a processor by
//! RAPL. Calls run for at least a second between two readings.

use std::io::Write;
use std::path::PathBuf;

use sparsebatch_formats::generate::{Family, MIX};

use super::families::Systemed;
use super::matrices::{MatrixSource, generated};
use super::one_matrix::OneMatrix;
use super::products::{self, ProductSource};
use super::wanted;
pub use super::{OnMachines, Size};
use crate::energy::{EnergyMeter, Nvml, POWERCAP, Rapl};
use crate::session::{Bench, Target};
use crate::solves::session::{SolveProblem, SolveSession};
use crate::{BenchError, Outcome};

/// Options of the suite.
#[derive(Clone, Debug, Default)]
pub struct Energy {
    /// The batches and devices to measure.
    pub on: OnMachines,
    /// The folder of the processor's counters, instead of the system's own.
    pub powercap: Option<PathBuf>,
}

/// Runs the suite. Prints a line per measurement to `report`. Counters that cannot be read are
/// gaps, and their device is not measured.
///
/// # Errors
/// Unknown names, an output that cannot be written, and the reason why there is no GPU, if one was
/// requested, or why it was lost.
pub fn energy(options: &Energy, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    let OnMachines { cases, items, size, backend, output } = &options.on;
    let sources = sources(*size);
    let families = options.on.wanted_of(families(*size), &sources)?;
    let items = items.unwrap_or(10_000);
    let target = Target::with_host(*backend)?;
    let (effort, output) = (size.effort(), output.as_deref());
    let mut bench = Bench::start("energy", &target, effort, false, output, report)?;
    let ended = (|| {
        if let Some(reason) = &target.no_gpu {
            bench.gap("all", "NVML", "energy of the GPU", reason)?;
        }
        meters(&mut bench, options)?;
        for &(family, nrows) in &families {
            let made = Systemed::family(family, nrows, items)?;
            let oracle = |y: &[f64]| made.wrong(y);
            let problem = made.problem(None, &oracle);
            let product = ProductSource::Batch(made.batch());
            products::measure(&mut bench, &problem, product, made.x(), None)?;
        }
        for source in sources.iter().filter(|source| wanted(cases, &source.name)) {
            let matrix = source.matrix()?;
            let one = OneMatrix::new(&source.name, &matrix);
            let oracle = |y: &[f64]| one.wrong(y);
            let problem = one.problem(&oracle);
            products::measure(&mut bench, &problem, ProductSource::Matrix(&matrix), &one.x, None)?;
        }
        Ok(())
    })();
    if ended.is_err() {
        return bench.finish(ended);
    }
    let mut session = SolveSession::of(bench, false)?;
    let ended = families.iter().try_for_each(|&(family, nrows)| {
        let made = Systemed::family(family, nrows, items)?;
        let problem = SolveProblem::new(&made.name, &made.systems);
        let solve = made.solve();
        session.gpu(&problem, &solve, None)?;
        session.cpu(&problem, &solve)
    });
    session.finish(ended)
}

/// Seconds between two readings.
fn seconds(size: Size) -> f64 {
    match size {
        Size::Small => 1.0,
        Size::Paper | Size::Full => 2.0,
    }
}

/// Opens the counters of the measured devices; a device without counters is not measured.
fn meters(bench: &mut Bench<'_>, options: &Energy) -> Result<(), BenchError> {
    let seconds = seconds(options.on.size);
    if let Some(host) = bench.processor() {
        let folder = options.powercap.clone().unwrap_or_else(|| POWERCAP.into());
        match Rapl::find(&folder) {
            Ok(meter) => host.meter = Some(EnergyMeter::new(meter, seconds)),
            Err(reason) => {
                bench.gap("all", "RAPL", "energy of the processor", &reason)?;
                *bench.processor() = None;
            }
        }
    }
    if let Some(session) = bench.gpu() {
        match Nvml::open(&session.device) {
            Ok(meter) => session.meter = Some(EnergyMeter::new(meter, seconds)),
            Err(reason) => {
                bench.gap("all", "NVML", "energy of the GPU", &reason)?;
                bench.leave_gpu_out();
            }
        }
    }
    Ok(())
}

fn families(size: Size) -> Vec<(Family, usize)> {
    match size {
        Size::Small => vec![(Family::Tri, 128), (Family::Rand9, 144)],
        Size::Paper => {
            vec![
                (Family::Tri, 128),
                (Family::Tri, 1024),
                (Family::Lap2d, 900),
                (Family::Rand9, 144),
                (Family::Rand9, 992),
            ]
        }
        Size::Full => MIX.to_vec(),
    }
}

/// Two stencils, and a matrix with long rows.
fn sources(size: Size) -> Vec<MatrixSource> {
    let kinds: &[&str] = match size {
        Size::Small => &["laplace 7-point"],
        Size::Paper | Size::Full => &["laplace 7-point", "laplace 27-point", "pareto 2"],
    };
    let mut sources = generated(size);
    sources.retain(|source| kinds.iter().any(|kind| source.name.starts_with(kind)));
    sources
}
