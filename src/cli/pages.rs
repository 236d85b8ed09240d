//! `sparsebatch report`, and the page of `solve --report`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use sparsebatch::io::atomic_write;
use sparsebatch::{BatchReport, FormatError};
use sparsebatch_report::{History, HistoryError, Solve, SolvedSystem, bench_page, solve_page};
use sparsebatch_rows::RowFile;

use super::error::CliError;
use super::output::{self, SCHEMA};
use super::outputs::{Named, Outputs};
use super::report::Context;
use super::{Exit, Global};

/// Options of `report`.
#[derive(Args)]
pub(crate) struct ReportArgs {
    /// Files of JSON lines written by `bench`, and residual histories (.csv) written by `solve`
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// HTML page to write
    #[arg(short, long, value_name = "FILE.html")]
    output: PathBuf,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    command: &'static str,
    version: &'static str,
    output: &'a Path,
    bytes: usize,
    rows: usize,
    histories: usize,
    partial: Vec<Partial<'a>>,
}

#[derive(Serialize)]
struct Partial<'a> {
    file: &'a Path,
    rows: usize,
    reason: &'a str,
}

/// Runs the command.
///
/// # Errors
/// Files that are not files of rows, a page that cannot be written.
pub(crate) fn run(args: &ReportArgs, global: Global) -> Result<Exit, CliError> {
    check_ending(&args.output, "--output")?;
    let mut outputs = Outputs::new([("--output", Some(&args.output))]);
    let inputs: Vec<Named<'_>> =
        args.files.iter().map(|path| ("the input", path.as_path())).collect();
    outputs.check(&inputs)?;
    let is_history = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "csv");
    let (histories, files): (Vec<&PathBuf>, Vec<&PathBuf>) =
        args.files.iter().partition(is_history);
    let files: Vec<RowFile> =
        files.into_iter().map(|path| sparsebatch_rows::read(path)).collect::<Result<_, _>>()?;
    let histories: Vec<History> =
        histories.into_iter().map(|path| History::read(path)).collect::<Result<_, _>>()?;
    note_partial(global, &files);
    let html = bench_page(&files, &histories).html();
    let bytes = html.len();
    outputs.write("--output", |path| write(path, &html));
    outputs.finish()?;
    let partial = files
        .iter()
        .filter_map(|RowFile { path, rows, partial, .. }| {
            Some(Partial { file: path, rows: rows.len(), reason: partial.as_deref()? })
        })
        .collect();
    let report = Report {
        schema: SCHEMA,
        command: "report",
        version: env!("CARGO_PKG_VERSION"),
        output: &args.output,
        bytes,
        rows: files.iter().map(|file| file.rows.len()).sum(),
        histories: histories.len(),
        partial,
    };
    output::result(global, &report, || {
        let rows = output::counted(report.rows, "row");
        format!("{}: {rows}, {}\n", args.output.display(), output::bytes(bytes))
    })?;
    Ok(Exit::Done)
}

/// Notes on stderr which files are incomplete.
pub(crate) fn note_partial(global: Global, files: &[RowFile]) {
    for RowFile { path, rows, partial, .. } in files {
        if let Some(reason) = partial {
            let rows = output::counted(rows.len(), "whole row");
            output::note(global, &format!("{} is partial: {reason}; kept {rows}", path.display()));
        }
    }
}

/// Refuses a page whose name does not end in `.html`.
///
/// # Errors
/// When the name does not end in `.html`.
pub(crate) fn check_ending(path: &Path, option: &str) -> Result<(), CliError> {
    if path.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("html")) {
        return Err(CliError::input(format!(
            "{option} {}: unknown ending, expected .html",
            path.display()
        )));
    }
    Ok(())
}

/// Writes a page.
fn write(path: &Path, html: &str) -> Result<(), CliError> {
    let io = |source| FormatError::Io { path: path.to_owned(), source };
    Ok(atomic_write(path, |w| w.write_all(html.as_bytes()).map_err(io))?)
}

/// Writes the page of a solve.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn solve(
    path: &Path,
    context: &Context<'_>,
    report: &BatchReport,
    with_history: bool,
) -> Result<(), CliError> {
    let names = context.systems.names;
    let systems = report.systems.iter().enumerate().map(|(item, system)| {
        let ((rows, nnz), outcome) = (context.systems.size(item), &system.outcome);
        SolvedSystem {
            name: names[item].clone(),
            rows,
            nnz,
            status: outcome.status.name().to_owned(),
            iterations: outcome.iterations,
            restarts: outcome.restarts,
            relative_residual: outcome.relative_residual(),
            rung: system.rung.name().to_owned(),
        }
    });
    let histories = report.systems.iter().enumerate();
    let histories = histories.map(|(item, system)| (item as u64, system.outcome.history.clone()));
    let skipped = context.systems.skipped.iter();
    let page = solve_page(&Solve {
        input: format!("{}, {}", context.input, context.systems.described),
        facts: super::report::facts(context, report),
        notes: skipped.map(|s| format!("left out {}: {}", s.file.display(), s.error)).collect(),
        times_ms: super::report::times_by_name(context, report),
        systems: systems.collect(),
        history: with_history.then(|| History {
            name: "this solve".to_owned(),
            systems: histories.filter(|(_, residuals)| !residuals.is_empty()).collect(),
        }),
    });
    write(path, &page.html())
}

impl From<HistoryError> for CliError {
    fn from(error: HistoryError) -> Self {
        Self::Input(error.to_string())
    }
}
