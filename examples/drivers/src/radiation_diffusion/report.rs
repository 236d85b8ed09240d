//! The printed report.

use std::collections::BTreeMap;
use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};

use super::args::Args;
use super::convergence::Table;
use super::coupled::Tally;
use super::march::Shares;
use super::reference::Agreement;
use super::run::Run;
use super::units::Units;

/// A progress bar on stderr, if that is a terminal.
pub(crate) fn progress() -> ProgressBar {
    let bar = ProgressBar::new(0);
    // The template is valid; if it were not, the default style would be shown.
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} step {pos} of {len} [{elapsed}]") {
        bar.set_style(style);
    }
    bar
}

/// Prints units and backend.
///
/// # Errors
/// An error of the writer.
pub(crate) fn head(
    out: &mut dyn Write,
    units: &Units,
    args: &Args,
    reason: &str,
) -> io::Result<()> {
    writeln!(
        out,
        "units for opacity {} 1/cm, source {} K, eps {}: x {:.4e} cm, tau {:.4e} s, U {:.4e} erg/cm^3",
        args.opacity,
        args.source_temperature,
        args.epsilon,
        units.length,
        units.time,
        units.energy_density
    )?;
    writeln!(out, "backend {}: {reason}", format!("{:?}", args.backend).to_lowercase())?;
    Ok(())
}

/// Prints one case: size, solves, time, balance, agreement.
///
/// # Errors
/// An error of the writer.
pub(crate) fn run(out: &mut dyn Write, run: &Run) -> io::Result<()> {
    let (problem, march, tally) = (&run.problem, &run.march, &run.march.tally);
    writeln!(
        out,
        "\n{}: {} domains x {} groups of {} cells, a batch of {}; {} steps to tau = {}",
        run.name,
        problem.domains.len(),
        problem.groups.len(),
        problem.cells(),
        problem.items(),
        march.steps,
        run.times.last().copied().unwrap_or(0.0)
    )?;
    solves(out, tally)?;
    time(out, &march.shares)?;
    writeln!(out, "  energy entered less energy there, of what is there: {:.1e}", run.imbalance())?;
    if run.agreements.is_empty() {
        return Ok(());
    }
    agreement(out, &run.agreements)
}

/// Prints where the batched solves ran, and the outcomes of the coupled systems and of their
/// systems.
fn solves(out: &mut dyn Write, tally: &Tally) -> io::Result<()> {
    writeln!(out, "  {}", tally.ran)?;
    if let Some(reason) = &tally.cpu_reason {
        writeln!(out, "  on the CPU: {reason}")?;
    }
    writeln!(
        out,
        "  coupled systems: {}, all solved, by {:.2} batched solves each, {} at most",
        tally.coupled,
        tally.coupled_iterations as f64 / tally.coupled.max(1) as f64,
        tally.coupled_most
    )?;
    let counts = |counts: &BTreeMap<&'static str, u64>| {
        let counts: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        counts.join(", ")
    };
    writeln!(
        out,
        "  systems in {} batched solves: {} ({}), rungs: {}; {:.1} iterations, {} at most",
        tally.batches,
        tally.systems,
        counts(&tally.statuses),
        counts(&tally.rungs),
        tally.mean_iterations(),
        tally.most
    )?;
    let failed = tally.failed();
    if failed > 0 {
        writeln!(out, "  {failed} did not converge; their coupled systems did, in more solves")?;
    }
    Ok(())
}

/// Prints the time of a march, and the share of each of its parts.
fn time(out: &mut dyn Write, shares: &Shares) -> io::Result<()> {
    let parts = [
        ("assembly", shares.assembly),
        ("solve", shares.solve),
        ("coupling", shares.coupling),
        ("control", shares.control),
    ];
    let total: f64 = parts.iter().map(|(_, time)| time.as_secs_f64()).sum();
    let parts = parts.map(|(name, time)| {
        format!("{name} {:.0} %", 100.0 * time.as_secs_f64() / total.max(f64::MIN_POSITIVE))
    });
    writeln!(out, "  {total:.2} s: {}", parts.join(", "))
}

/// Prints how many profiles agree with the reference, and the largest errors at each time.
fn agreement(out: &mut dyn Write, agreements: &[Agreement]) -> io::Result<()> {
    let points: usize = agreements.iter().map(|a| a.points).sum();
    let passed = agreements.iter().filter(|a| a.passes()).count();
    writeln!(
        out,
        "  {passed} of {} profiles ({points} points) within max(1 %, 1e-4) of the reference",
        agreements.len()
    )?;
    writeln!(
        out,
        "    {:>8}  {:>9}  {:>11}  {:>15}  worst",
        "tau", "profiles", "max error", "of the allowed"
    )?;
    let mut times: Vec<f64> = agreements.iter().map(|a| a.tau).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    for tau in times {
        let rows: Vec<&Agreement> = agreements.iter().filter(|a| a.tau == tau).collect();
        let error = rows.iter().map(|a| a.error).fold(0.0, f64::max);
        let Some(worst) = rows.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio)) else { continue };
        writeln!(
            out,
            "    {tau:>8}  {:>9}  {error:>11.2e}  {:>14.1} %  {}  {}",
            rows.len(),
            100.0 * worst.ratio,
            worst.label,
            if worst.passes() { "agrees" } else { "DIFFERS" }
        )?;
    }
    Ok(())
}

/// Prints the errors at growing resolution, and the observed order.
///
/// # Errors
/// An error of the writer.
pub(crate) fn convergence(out: &mut dyn Write, table: &Table) -> io::Result<()> {
    writeln!(out, "\n{}", table.title)?;
    writeln!(out, "    {:>16}  {:>9}  order", table.what, "error")?;
    for (row, (resolution, error)) in table.rows.iter().enumerate() {
        let order = table.order(row).map_or(String::new(), |order| format!("{order:.2}"));
        writeln!(out, "    {resolution:>16}  {error:>9.2e}  {order}")?;
    }
    Ok(())
}
