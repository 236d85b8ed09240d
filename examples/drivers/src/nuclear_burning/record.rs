//! A run as a line of JSON, for comparison with other runs.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use sparsebatch::{FormatError, Rung};
use sparsebatch_bench::{begin, machine_of, processor};
use sparsebatch_rows::Machine as Computer;

use crate::nuclear_burning::equations::Equations;
use crate::nuclear_burning::error::BurningError;
use crate::nuclear_burning::integrator::{Burned, Burning, Outcome};
use crate::nuclear_burning::machine::{Machine, Times};
use crate::nuclear_burning::options::Options;

/// Version of the schema.
const SCHEMA: u32 = 1;

/// A run of the grid. Times in seconds.
#[derive(Debug, Serialize)]
struct Line {
    schema: u32,
    network: String,
    nuclides: usize,
    rates: usize,
    entries: usize,
    zones: usize,
    /// Whether the temperature follows the energy.
    self_heating: bool,
    t_end: f64,
    tolerance: f64,
    method: &'static str,
    /// `gpu`: everything runs on the GPU; `cpu`: everything runs on the host.
    backend: &'static str,
    /// The solver of the systems in words.
    solver: String,
    /// Seconds from the first rate to the last abundance.
    seconds: f64,
    /// Seconds before the run on a GPU: analysis, memory, compilation.
    setup_seconds: f64,
    finished: usize,
    /// Steps tried in the zone that took the most.
    rounds: u64,
    steps: u64,
    rejected: u64,
    /// Number of steps repeated because a system was not solved.
    unsolved_steps: u64,
    systems: u64,
    converged: u64,
    /// Number of systems solved by each rung, by name.
    rungs: Vec<(&'static str, u64)>,
    by_floor: u64,
    worst_residual: f64,
    /// Largest relative change of nucleons and charge.
    drift: [f64; 2],
    /// Shares of the measured time.
    share_rates: f64,
    share_jacobian: f64,
    share_solve: f64,
    share_control: f64,
    machine: Computer,
    date: String,
    commit: String,
}

/// Appends a run to a file of JSON lines.
///
/// # Errors
/// [`BurningError::Write`] when the file cannot be written.
pub(crate) fn append(
    path: &Path,
    (options, machine): (&Options, &Machine),
    equations: &Equations,
    burning: &Burning,
    times: Times,
) -> Result<(), BurningError> {
    let (network, tally, shares) = (equations.network(), &burning.tally, burning.shares);
    let (backend, computer) = match machine {
        Machine::Host(_) => ("cpu", processor::machine()),
        Machine::Gpu(device, ..) => ("gpu", machine_of(device)),
    };
    let run = begin("nuclear-burning", computer);
    let sum = |of: fn(&Burned) -> u32| burning.zones.iter().map(|zone| u64::from(of(zone))).sum();
    let drift = |k: usize| burning.zones.iter().map(|zone| zone.drift[k]).fold(0.0, f64::max);
    let all = shares.rates + shares.jacobian + shares.solve + shares.control;
    let share = |part: std::time::Duration| part.as_secs_f64() / all.as_secs_f64();
    let rungs = Rung::ALL.iter().zip(tally.rungs);
    let line = Line {
        schema: SCHEMA,
        network: network.name.clone(),
        nuclides: network.nuclides.len(),
        rates: network.rates.len(),
        entries: sparsebatch::Pattern::nnz(&**equations.pattern()),
        zones: burning.zones.len(),
        self_heating: options.self_heating,
        t_end: options.t_end,
        tolerance: options.integrator.tolerance,
        method: options.integrator.method.name,
        backend,
        solver: tally.ran.clone(),
        seconds: times.run.as_secs_f64(),
        setup_seconds: times.setup.as_secs_f64(),
        finished: burning.zones.iter().filter(|zone| zone.outcome == Outcome::Finished).count(),
        rounds: burning.rounds,
        steps: sum(|zone| zone.steps),
        rejected: sum(|zone| zone.rejected),
        unsolved_steps: sum(|zone| zone.unsolved),
        systems: tally.systems,
        converged: tally.systems - tally.unsolved(),
        rungs: rungs.filter(|(_, n)| *n > 0).map(|(rung, n)| (rung.name(), n)).collect(),
        by_floor: tally.by_floor,
        worst_residual: tally.worst_residual,
        drift: [drift(0), drift(1)],
        share_rates: share(shares.rates),
        share_jacobian: share(shares.jacobian),
        share_solve: share(shares.solve),
        share_control: share(shares.control),
        machine: run.machine,
        date: run.date,
        commit: run.commit,
    };
    let io = |source| FormatError::Io { path: path.to_owned(), source };
    let text = serde_json::to_string(&line).map_err(|error| io(error.into()))?;
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(io)?;
    Ok(writeln!(file, "{text}").map_err(io)?)
}
