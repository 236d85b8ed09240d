//! `sparsebatch compare`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use sparsebatch_report::{Change, CompareError, Comparison, DEFAULT_THRESHOLD, compare};

use super::error::CliError;
use super::output::{self, SCHEMA, Table};
use super::pages::note_partial;
use super::{Exit, Global};

/// Most changes listed per kind, without `--verbose`.
const LISTED: usize = 20;

/// Options of `compare`.
#[derive(Args)]
pub(crate) struct CompareArgs {
    /// Baseline rows, written by bench
    #[arg(value_name = "A.jsonl")]
    a: PathBuf,
    /// Rows to compare with the baseline
    #[arg(value_name = "B.jsonl")]
    b: PathBuf,
    /// Smallest change of a median that counts, in per cent of the shorter time. The rounds must
    /// confirm it: by the Wilcoxon rank-sum test (p <= 0.01), or by a median beyond all rounds of
    /// the other file
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value_t = 100.0 * DEFAULT_THRESHOLD)]
    threshold: f64,
}

/// Parses a change in per cent.
fn percent(text: &str) -> Result<f64, String> {
    let value = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    match value {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("expected a value in per cent, 0 or more".to_owned()),
    }
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    command: &'static str,
    version: &'static str,
    threshold_percent: f64,
    regressions: usize,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

/// Runs the command.
///
/// # Errors
/// Files that are not files of rows, or that have no comparable rows in common.
pub(crate) fn run(args: &CompareArgs, global: Global) -> Result<Exit, CliError> {
    let files = [sparsebatch_rows::read(&args.a)?, sparsebatch_rows::read(&args.b)?];
    note_partial(global, &files);
    let comparison = compare(&files[0], &files[1], args.threshold / 100.0)?;
    let regressions = comparison.regressions().count();
    let report = Report {
        schema: SCHEMA,
        command: "compare",
        version: env!("CARGO_PKG_VERSION"),
        threshold_percent: args.threshold,
        regressions,
        comparison: &comparison,
    };
    output::result(global, &report, || text(global, args.threshold, &comparison))?;
    Ok(if regressions > 0 { Exit::Regression } else { Exit::Done })
}

fn text(global: Global, threshold: f64, comparison: &Comparison) -> String {
    let Comparison { a, b, matched, unchanged, faster, slower, .. } = comparison;
    let mut text = format!(
        "a  {}: {}\nb  {}: {}\n",
        a.file.display(),
        output::counted(a.rows, "row"),
        b.file.display(),
        output::counted(b.rows, "row")
    );
    if !comparison.same_machine {
        text += &format!(
            "the machines differ: {} in a, {} in b; the times depend on both program and machine\n",
            a.machines.join("; "),
            b.machines.join("; ")
        );
    }
    let older = a.older + b.older;
    if older > 0 {
        text += &format!("only the newest of repeated rows counts: {older} older rows left out\n");
    }
    text += &format!(
        "{matched} rows in both: {} faster, {} slower, {unchanged} within {threshold} % or not \
         significant\n",
        faster.len(),
        slower.len()
    );
    for (title, changes) in [("slower", slower), ("faster", faster)] {
        text += &changed(global, title, changes);
    }
    text += &suites(comparison);
    for (name, only) in [("a", &comparison.only_a), ("b", &comparison.only_b)] {
        text += &listed(global, &format!("only in {name}"), only);
    }
    text += &listed(global, "not judged as a whole", &comparison.unjudged);
    let regressions = comparison.regressions().count();
    text + &match regressions {
        0 => "no regression\n".to_owned(),
        count => format!("{}\n", output::counted(count, "regression")),
    }
}

/// Number of entries shown of a list with `count` entries.
fn shown(global: Global, count: usize) -> usize {
    if global.verbose { count } else { count.min(LISTED) }
}

fn changed(global: Global, title: &str, changes: &[Change]) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[title, "a ms", "b ms", "speed of b", "more unsolved"]);
    let shown = shown(global, changes.len());
    for change in &changes[..shown] {
        table.row(vec![
            change.name(),
            format!("{:.5}", change.a_ms[0]),
            format!("{:.5}", change.b_ms[0]),
            format!("{:.3} x", change.speed),
            change.unsolved.map_or_else(String::new, |[a, b]| format!("{}", a - b)),
        ]);
    }
    format!("\n{}{}", table.render(false), more(changes.len() - shown))
}

fn more(count: usize) -> String {
    if count == 0 { String::new() } else { format!("and {count} more (--verbose lists all)\n") }
}

fn suites(comparison: &Comparison) -> String {
    if comparison.suites.is_empty() {
        return "\n".to_owned();
    }
    let mut table = Table::new(&["suite", "library", "rows", "speed of b, geomean"]);
    for suite in &comparison.suites {
        let name = match &suite.experiment {
            Some(experiment) => format!("{}, {experiment}", suite.suite),
            None => suite.suite.clone(),
        };
        table.row(vec![
            name,
            suite.library.clone(),
            suite.rows.to_string(),
            format!("{:.3} x", suite.speed),
        ]);
    }
    format!("\n{}\n", table.render(false))
}

fn listed(global: Global, title: &str, rows: &[String]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let shown = shown(global, rows.len());
    let lines: String = rows[..shown].iter().map(|row| format!("  {row}\n")).collect();
    let count = output::counted(rows.len(), "row");
    format!("{title}, {count}:\n{lines}{}", more(rows.len() - shown))
}

impl From<CompareError> for CliError {
    fn from(error: CompareError) -> Self {
        Self::Input(error.to_string())
    }
}
