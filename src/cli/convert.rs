//! `sparsebatch convert`, and the writing of systems shared with `generate`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use sparsebatch::io::{write_batch, write_matrix_market, write_npz};
use sparsebatch::{Batch, BatchValues, Csr, Pattern, RaggedCsr, UniformBatch};

use super::error::CliError;
use super::input::{self, InputArgs, MemoryArgs, Purpose};
use super::options::Items;
use super::output::{self, SCHEMA, note};
use super::outputs::{Named, Outputs};
use super::progress::Progress;
use super::save::Ending;
use super::{Exit, Global};

/// The name of the output file in messages.
const OUT: &str = "the output";

/// Options of `convert`.
#[derive(Args)]
pub(crate) struct ConvertArgs {
    /// File or folder to read; the content decides the format; - is standard input
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Output file; its ending decides the format: .mtx, .mtx.gz, .npz (one matrix) or .batch
    /// (square systems)
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Convert only these systems: START..END, START..END:STEP or one number, from 0
    #[arg(long, value_name = "RANGE")]
    items: Option<Items>,
    #[command(flatten)]
    memory: MemoryArgs,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    command: &'static str,
    version: &'static str,
    output: PathBuf,
    systems: usize,
    rows: usize,
    nnz: usize,
    bytes: u64,
}

/// Runs the command.
///
/// # Errors
/// Bad usage and input, and an output format that cannot hold the systems.
pub(crate) fn run(args: &ConvertArgs, global: Global) -> Result<Exit, CliError> {
    let input = InputArgs::of(args.input.clone(), args.memory);
    check_output(&args.output, &input.named().collect::<Vec<_>>())?;
    let systems = input.read(global, Purpose::Look)?;
    let (mut batch, mut rhs) = (systems.batch, systems.rhs);
    if let Some(items) = args.items {
        let items = items.of(batch.nitems())?;
        rhs = rhs.map(|rhs| select_rows(&batch, &rhs, &items));
        batch = select(&batch, &items)?;
    }
    write(&args.output, &batch, rhs.as_deref(), global)?;
    report("convert", &args.output, &batch, global)
}

/// Refuses an unknown ending, an output that is one of the inputs, and a path that cannot be
/// written.
///
/// # Errors
/// When the ending is unknown, the output is an input, or its folder cannot be written.
pub(crate) fn check_output(path: &Path, inputs: &[Named<'_>]) -> Result<(), CliError> {
    if Ending::of(path).is_none() {
        return Err(CliError::input(format!(
            "{}: unknown ending, expected .mtx, .mtx.gz, .npz or .batch",
            path.display()
        )));
    }
    Outputs::new([(OUT, Some(path))]).check(inputs)
}

/// Writes systems in the format of the name's ending.
///
/// # Errors
/// When the format cannot hold the systems.
pub(crate) fn write(
    path: &Path,
    batch: &Batch<f64>,
    rhs: Option<&[f64]>,
    global: Global,
) -> Result<(), CliError> {
    let _progress = Progress::start(global, format!("writing {}", path.display()));
    let ending = Ending::of(path);
    if ending == Some(Ending::Batch) {
        let square = |item: &usize| batch.pattern(*item).nrows() == batch.pattern(*item).ncols();
        if let Some(item) = (0..batch.nitems()).find(|item| !square(item)) {
            let pattern = batch.pattern(item);
            return Err(CliError::input(format!(
                "{}: system {item} is {} x {}, expected square systems in a .batch file",
                path.display(),
                pattern.nrows(),
                pattern.ncols()
            )));
        }
        let ones;
        let rhs = match rhs {
            Some(rhs) => rhs,
            None => {
                note(global, "no right-hand sides in the input: ones are written");
                ones = vec![1.0; batch.row_offset(batch.nitems())];
                &ones
            }
        };
        return whole(path, |path| Ok(write_batch(path, batch, rhs)?));
    }
    if batch.nitems() != 1 {
        return Err(CliError::input(format!(
            "{}: {} systems, expected one, or a name ending in .batch",
            path.display(),
            batch.nitems()
        )));
    }
    if rhs.is_some() {
        note(global, "the right-hand side is not written: this format holds the matrix alone");
    }
    let matrix: Csr<f64> = input::only_matrix(batch);
    whole(path, |path| {
        match ending {
            Some(Ending::Npz) => write_npz(path, &matrix)?,
            _ => write_matrix_market(path, &matrix)?,
        }
        Ok(())
    })
}

/// Writes the file, or reports that it is not written.
fn whole(path: &Path, write: impl FnOnce(&Path) -> Result<(), CliError>) -> Result<(), CliError> {
    let mut outputs = Outputs::new([(OUT, Some(path))]);
    outputs.write(OUT, write);
    outputs.finish()
}

/// Prints a report of the written file.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn report(
    command: &'static str,
    path: &Path,
    batch: &Batch<f64>,
    global: Global,
) -> Result<Exit, CliError> {
    let report = Report {
        schema: SCHEMA,
        command,
        version: env!("CARGO_PKG_VERSION"),
        output: path.to_owned(),
        systems: batch.nitems(),
        rows: batch.row_offset(batch.nitems()),
        nnz: batch.total_nnz(),
        bytes: std::fs::metadata(path).map_or(0, |m| m.len()),
    };
    output::result(global, &report, || {
        format!(
            "{}: {}, {} rows, {} entries, {}\n",
            path.display(),
            output::counted(report.systems, "system"),
            report.rows,
            report.nnz,
            output::bytes(report.bytes as usize)
        )
    })?;
    Ok(Exit::Done)
}

fn select_rows(batch: &Batch<f64>, rhs: &[f64], items: &[usize]) -> Vec<f64> {
    let rows = |&item: &usize| &rhs[batch.rows(item)];
    items.iter().flat_map(rows).copied().collect()
}

fn select(batch: &Batch<f64>, items: &[usize]) -> Result<Batch<f64>, CliError> {
    Ok(match batch {
        Batch::Uniform(batch) => {
            let mut values = Vec::with_capacity(items.len() * batch.pattern().nnz());
            for &item in items {
                batch.append_values(item, &mut values);
            }
            let values = BatchValues::ItemMajor(values);
            Batch::Uniform(UniformBatch::try_new(batch.pattern().clone(), items.len(), values)?)
        }
        Batch::Ragged(batch) => {
            let mut selected = RaggedCsr::new();
            for &item in items {
                selected.push(batch.item(item));
            }
            Batch::Ragged(selected)
        }
    })
}
