//! The printed report of the driver.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sparsebatch::{Pattern, Rung};

use crate::nuclear_burning::eos::Gas;
use crate::nuclear_burning::equations::Equations;
use crate::nuclear_burning::integrator::{Burned, Burning, Outcome, Shares};
use crate::nuclear_burning::linear::Tally;
use crate::nuclear_burning::machine::Times;
use crate::nuclear_burning::options::Options;
use crate::nuclear_burning::reference::{Agreement, Derivatives, verdict};
use crate::nuclear_burning::zones::{Grid, Zones};

/// Prints the problem before it is solved.
pub(crate) fn problem(equations: &Equations, grid: &Grid, options: &Options, backend: &str) {
    let network = equations.network();
    println!(
        "network   {}: {} nuclides, {} rates; Jacobian {} x {}, {} entries",
        network.name,
        network.nuclides.len(),
        network.rates.len(),
        equations.nvars(),
        equations.nvars(),
        equations.pattern().nnz()
    );
    println!(
        "grid      {} zones: {}; T9 {} to {}, rho {:.0e} to {:.0e} g/cm^3{}",
        grid.nzones,
        grid.fuels.iter().map(|fuel| fuel.name.as_str()).collect::<Vec<_>>().join(", "),
        grid.t9.0,
        grid.t9.1,
        grid.rho.0,
        grid.rho.1,
        if options.self_heating { ", self-heating at constant density" } else { "" }
    );
    println!(
        "method    {}, tolerance {:e}, to {} s",
        options.integrator.method.name, options.integrator.tolerance, options.t_end
    );
    println!("backend   {backend}");
}

/// A progress bar of the zones that have ended, on stderr if that is a terminal.
pub(crate) fn progress(nzones: usize, quiet: bool) -> ProgressBar {
    let bar = ProgressBar::new(nzones as u64);
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    // The template is valid; if it were not, the default style would be shown.
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos} of {len} zones [{elapsed}]") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Prints the results of the zones of a grid.
pub(crate) fn burning(equations: &Equations, zones: &Zones, burning: &Burning, times: Times) {
    ends(zones, burning, times);
    steps(burning);
    tally(&burning.tally);
    shares(&burning.shares);
    conservation(burning);
    energies(equations, zones, burning);
    if let Some(gas) = equations.gas() {
        heated(gas, zones, burning, equations.nnuclides());
    }
    let clamped = burning.zones.iter().filter(|zone| zone.clamped).count();
    if clamped > 0 {
        println!(
            "warning   {clamped} zones left 0.01 to 10 GK, where the rates are fitted; rates were held there"
        );
    }
}

/// Prints how many zones finished, the time of the run, and why the other zones did not finish.
fn ends(zones: &Zones, burning: &Burning, times: Times) {
    let is_finished = |zone: &&Burned| zone.outcome == Outcome::Finished;
    println!(
        "zones     {} of {} finished in {:.2} s, {} rounds",
        burning.zones.iter().filter(is_finished).count(),
        zones.len(),
        times.run.as_secs_f64(),
        burning.rounds
    );
    if !times.setup.is_zero() {
        let seconds = times.setup.as_secs_f64();
        println!("          after {seconds:.2} s for analysis, memory and compiled kernels");
    }
    for (zone, burned) in burning.zones.iter().enumerate() {
        let place = format!("zone {zone} (T9 {:.3}, rho {:.3e})", zones.t9[zone], zones.rho[zone]);
        match burned.outcome {
            Outcome::Finished => {}
            Outcome::StepUnderflow { t, step } => {
                println!("          {place}: the step fell to {step:.3e} s at t = {t:.6e} s");
            }
            Outcome::TooManySteps { t } => {
                println!("          {place}: out of steps at t = {t:.6e} s");
            }
        }
    }
}

/// Prints the numbers of accepted and rejected steps.
fn steps(burning: &Burning) {
    let sum = |of: fn(&Burned) -> u32| -> u64 {
        burning.zones.iter().map(|zone| u64::from(of(zone))).sum()
    };
    let (steps, rejected) = (sum(|zone| zone.steps), sum(|zone| zone.rejected));
    let most = burning.zones.iter().map(|zone| zone.steps).max().unwrap_or(0);
    println!(
        "steps     {:.1} a zone, {most} at most; rejected {:.1} % by error, {} for want of a solution",
        steps as f64 / burning.zones.len() as f64,
        100.0 * rejected as f64 / (steps + rejected).max(1) as f64,
        sum(|zone| zone.unsolved)
    );
}

/// Prints the share of each part of the computation in the time.
fn shares(shares: &Shares) {
    let total = shares.rates + shares.jacobian + shares.solve + shares.control;
    let percent = |part: Duration| 100.0 * part.as_secs_f64() / total.as_secs_f64();
    println!(
        "time      rates {:.1} %, Jacobian {:.1} %, solve {:.1} %, control {:.1} %",
        percent(shares.rates),
        percent(shares.jacobian),
        percent(shares.solve),
        percent(shares.control)
    );
}

/// Prints how well nucleons and charge were conserved, and the lowest abundance.
fn conservation(burning: &Burning) {
    let worst = |of: &dyn Fn(&Burned) -> f64| {
        burning.zones.iter().map(of).fold(0.0f64, |a, b| if b.is_nan() { b } else { a.max(b) })
    };
    println!(
        "conserved nucleons to {:.1e}, charge to {:.1e} (relative, after any step); lowest abundance {:.1e}",
        worst(&|zone| zone.drift[0]),
        worst(&|zone| zone.drift[1]),
        burning.zones.iter().map(|zone| zone.lowest).fold(0.0, f64::min)
    );
}

/// Prints the lowest and the highest energy that a zone released.
fn energies(equations: &Equations, zones: &Zones, burning: &Burning) {
    let (nvars, nnuclides) = (equations.nvars(), equations.nnuclides());
    let energies: Vec<f64> = burning
        .zones
        .iter()
        .enumerate()
        .filter_map(|(zone, burned)| {
            let y = burned.y.chunks_exact(nvars).last()?;
            Some(equations.network().energy(|i| y[i] - zones.y[zone * nnuclides + i]))
        })
        .collect();
    println!(
        "energy    {:.3e} to {:.3e} erg/g released",
        energies.iter().copied().fold(f64::INFINITY, f64::min),
        energies.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    );
}

/// Prints the temperatures of a self-heating run, and its energy conservation.
fn heated(gas: &Gas, zones: &Zones, burning: &Burning, nnuclides: usize) {
    let (mut low, mut high, mut lost) = (f64::INFINITY, f64::NEG_INFINITY, 0.0f64);
    for (zone, burned) in burning.zones.iter().enumerate() {
        let Some(state) = burned.y.chunks_exact(nnuclides + 1).last() else { continue };
        let (y, t9, rho) = (&state[..nnuclides], state[nnuclides], zones.rho[zone]);
        (low, high) = (low.min(t9), high.max(t9));
        let start = &zones.y[zone * nnuclides..][..nnuclides];
        let change = gas.total_energy(y, t9, rho) - gas.total_energy(start, zones.t9[zone], rho);
        lost = lost.max((change / (gas.heat_capacity(y, t9, rho) * 1e9 * t9)).abs());
    }
    println!(
        "heated    T9 {low:.3} to {high:.3} in the end; energy of gas and nuclei kept to {lost:.1e} of c_v T"
    );
}

/// Prints the outcomes of the linear systems.
fn tally(tally: &Tally) {
    println!("solver    {}", tally.ran);
    let mut rungs: Vec<String> = Rung::ALL
        .iter()
        .zip(tally.rungs)
        .filter(|(_, count)| *count > 0)
        .map(|(rung, count)| format!("{} {count}", rung.name()))
        .collect();
    rungs.extend(tally.failures.iter().map(|(status, count)| format!("{status} {count}")));
    if rungs.is_empty() {
        rungs.push(format!("without a solution {}", tally.dense_failures));
    }
    println!(
        "systems   {} in {} batched solves, {} solvers made: {}",
        tally.systems,
        tally.solves,
        tally.analyses,
        rungs.join(", ")
    );
    if !tally.iterations.is_empty() {
        let last = tally.iterations.len() - 1;
        let show = |count: usize| {
            let more = if tally.last_is_more && count == last { " or more" } else { "" };
            format!("{count}{more}")
        };
        println!(
            "          iterations {} median, {} in 99 %, {} at most; largest relative residual {:.1e}, {} accepted by the rounding floor",
            show(tally.quantile(0.5)),
            show(tally.quantile(0.99)),
            show(last),
            tally.worst_residual,
            tally.by_floor
        );
    }
}

/// Prints the comparison with derivatives at reference states.
pub(crate) fn derivatives(derivatives: Derivatives) {
    println!("\nreference {derivatives}");
}

/// Prints the comparison with reference runs.
pub(crate) fn agreement(agreements: &[Agreement], burning: &Burning, elapsed: Duration) {
    println!(
        "          {:<20} {:>6} {:>6} {:>10} {:>10} {:>10} {:>10}",
        "run", "times", "steps", "absolute", "relative", "energy", "nucleons"
    );
    for (agreement, burned) in agreements.iter().zip(&burning.zones) {
        println!(
            "          {:<20} {:>6} {:>6} {:>10.1e} {:>10.1e} {:>10.1e} {:>10.1e}  {}",
            agreement.label,
            agreement.times.0,
            burned.steps,
            agreement.absolute,
            agreement.relative,
            agreement.energy,
            burned.drift[0],
            verdict(agreement.holds())
        );
    }
    println!(
        "          to agree: dY/dt and J to 1e-11; 1e-6 absolute, 1e-5 relative where Y > 1e-10, energy to 1e-6, at all times ({:.2} s)",
        elapsed.as_secs_f64()
    );
}
