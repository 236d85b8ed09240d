//! Nuclear burning in many zones, checked against reference runs: the library's main use case.
//!
//! `cargo run --release --example nuclear_burning -- --help`; equations and measurements are in
//! `docs/nuclear-burning.md`.

pub mod conservation;
mod dense;
mod eos;
pub mod equations;
pub mod error;
pub mod gpu;
pub mod integrator;
mod judge;
pub mod linear;
mod machine;
pub mod network;
mod options;
mod outcome;
pub mod output;
pub mod plots;
pub mod rates;
mod record;
pub mod reference;
mod report;
mod stepping;
pub mod tableau;
pub mod zones;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use crate::nuclear_burning::equations::Equations;
use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::integrator::Outcome;
use crate::nuclear_burning::network::Network;
use crate::nuclear_burning::options::Options;
use crate::nuclear_burning::output::GridRun;
use crate::nuclear_burning::reference::Reference;
use crate::nuclear_burning::zones::{Grid, log_times};

/// Number of output times of the grid, and the decades before the end that they span.
const TIMES: usize = 61;
const DECADES: f64 = 12.0;

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the program with these arguments, without the program's name; returns whether everything
/// ended as it should.
///
/// # Errors
/// [`BurningError`] for arguments and files that are refused.
pub fn run_with(arguments: &[&str]) -> Result<bool, BurningError> {
    let options = Options::try_parse_from(std::iter::once(&"nuclear_burning").chain(arguments))
        .map_err(|error| BurningError::Setting(error.to_string().trim_end().to_owned()))?;
    run(&options)
}

/// Burns the grid, then the reference runs; returns whether everything ended as it should.
fn run(options: &Options) -> Result<bool, BurningError> {
    let data = crate::repository().join("examples/data");
    let path = options.network.clone().unwrap_or_else(|| data.join("reaclib_alpha13.json"));
    let network = Arc::new(Network::read(&path)?);
    let settings = options.integrator.settings()?;
    if !(options.t_end > 0.0 && options.t_end.is_finite()) {
        let problem = format!("--t-end: expected a positive time, found {}", options.t_end);
        return Err(BurningError::Setting(problem));
    }
    if let Some(threads) = options.threads {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
        pool.map_err(|error| BurningError::Setting(format!("--threads: {error}")))?;
    }
    let (machine, backend) = options.linear.machine()?;

    let fuels = options.fuels();
    let grid = Grid { nzones: options.zones, t9: options.t9, rho: options.rho, fuels };
    let times = log_times(options.t_end, DECADES, TIMES);
    let zones = grid.zones(&network, &times)?;
    let equations = Equations::new(Arc::clone(&network), options.self_heating)?;
    report::problem(&equations, &grid, options, &backend);
    let bar = report::progress(zones.len(), options.quiet);
    let (burning, times) = machine.integrate(&equations, &zones, &settings, |left| {
        bar.set_position((zones.len() - left) as u64);
    })?;
    bar.finish_and_clear();
    report::burning(&equations, &zones, &burning, times);
    let grid_run = GridRun { equations: &equations, grid: &grid, zones: &zones, burning: &burning };
    if let Some(path) = &options.output {
        grid_run.write(path)?;
        println!("wrote     {}", path.display());
    }
    if let Some(path) = &options.json {
        record::append(path, (options, &machine), &equations, &burning, times)?;
    }
    if !options.no_plots {
        for path in plots::draw(&grid_run, &options.plot_zone, &options.plots)? {
            println!("drew      {}", path.display());
        }
    }
    let mut good = burning.zones.iter().all(|zone| zone.outcome == Outcome::Finished)
        && burning.tally.unsolved() == 0;

    if let (false, Some(path)) = (options.no_reference, reference_of(options, &path)) {
        let reference = Reference::read(&path, &network)?;
        let equations = Equations::new(Arc::clone(&network), false)?;
        let derivatives = reference.compare_derivatives(&equations);
        report::derivatives(derivatives);
        good &= derivatives.hold();
        let zones = reference.zones(&network)?;
        if !zones.is_empty() {
            let (burning, times) = machine.integrate(&equations, &zones, &settings, |_| ())?;
            let agreements = reference.compare(&network, &burning);
            report::agreement(&agreements, &burning, times.run);
            good &= agreements.iter().all(reference::Agreement::holds);
        }
    }
    Ok(good)
}

/// The file of references: the requested one, else the one next to the network if it exists.
fn reference_of(options: &Options, network: &Path) -> Option<PathBuf> {
    options.reference.clone().or_else(|| {
        let name = network.file_name()?.to_str()?.strip_prefix("reaclib_")?;
        Some(network.with_file_name(format!("reference_{name}"))).filter(|path| path.is_file())
    })
}
