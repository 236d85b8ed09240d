//! `sparsebatch spmv`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use sparsebatch::cpu::{FormatChoice, KernelChoice};

use super::error::CliError;
use super::input::{InputArgs, Systems};
use super::options::{
    FORMATS, KERNELS, MachineArgs, PRECISIONS, Precision, VectorSource, name_of, named,
};
use super::output::{self, SCHEMA, Skipped, Table, ms};
use super::progress::Progress;
use super::spmv_run::{self, Measured, Outcome};
use super::{Exit, Global, vectors};

/// Options of `spmv`.
#[derive(Args)]
pub(crate) struct SpmvArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    machine: MachineArgs,
    /// Operands: ones, random:SEED or a FILE with one number per column of every system [default: random:96]
    #[arg(long, value_name = "SOURCE")]
    x: Option<VectorSource>,
    /// Format of the matrix
    #[arg(long, value_parser = named(FORMATS), default_value = "auto")]
    format: FormatChoice,
    /// Kernel; `all` runs every format and kernel in turn
    #[arg(long, value_parser = named(SPMV_KERNELS), default_value = "auto")]
    kernel: SpmvKernel,
    /// Write the products: .npz (offsets, y), or .mtx for one system
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// One kernel or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpmvKernel {
    One(KernelChoice),
    All,
}

const SPMV_KERNELS: &[(&str, SpmvKernel)] = &[
    ("auto", SpmvKernel::One(KernelChoice::Auto)),
    ("all", SpmvKernel::All),
    ("rows", SpmvKernel::One(KernelChoice::Rows)),
    ("csr-i", SpmvKernel::One(KernelChoice::CsrI)),
    ("entries", SpmvKernel::One(KernelChoice::Entries)),
    ("blocks", SpmvKernel::One(KernelChoice::Blocks)),
    ("runs", SpmvKernel::One(KernelChoice::Runs)),
];

/// What `--kernel all` runs; kernels of single matrices are left out of batches.
const ALL: &[(FormatChoice, KernelChoice)] = &[
    (FormatChoice::Csr, KernelChoice::Rows),
    (FormatChoice::Csr, KernelChoice::CsrI),
    (FormatChoice::Coo, KernelChoice::Entries),
    (FormatChoice::Ell, KernelChoice::Rows),
    (FormatChoice::Dia, KernelChoice::Rows),
    (FormatChoice::Dia, KernelChoice::Blocks),
    (FormatChoice::Hyb, KernelChoice::Rows),
    (FormatChoice::SellP, KernelChoice::Rows),
    (FormatChoice::SellP, KernelChoice::Runs),
];

#[derive(Serialize)]
struct Report {
    schema: u32,
    command: &'static str,
    version: &'static str,
    input: String,
    systems: usize,
    rows: usize,
    columns: usize,
    nnz: usize,
    precision: &'static str,
    backend: &'static str,
    backend_reason: &'static str,
    threads: usize,
    copy_gb_s: f64,
    copy_bytes: usize,
    read_ms: f64,
    kernels: Vec<Row>,
    skipped: Vec<Skipped>,
}

/// One format and kernel, as JSON.
#[derive(Serialize)]
struct Row {
    format: &'static str,
    kernel: &'static str,
    why: String,
    correct: bool,
    worst_error: Option<f64>,
    repetitions: usize,
    median_ms: Option<f64>,
    min_ms: Option<f64>,
    max_ms: Option<f64>,
    gflops: Option<f64>,
    gb_s: Option<f64>,
    share_of_copy: Option<f64>,
    bytes_moved: Option<usize>,
    useful_bytes: Option<usize>,
    plan_ms: Option<f64>,
    plan_products: Option<f64>,
    refused: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// Bad usage and input, a format that the matrix does not fit when asked for by name, and, as an
/// internal failure, a product that differs from the reference.
pub(crate) fn run(args: &SpmvArgs, global: Global) -> Result<Exit, CliError> {
    let backend_reason = args.machine.backend_reason()?;
    if args.kernel == SpmvKernel::All && args.output.is_some() {
        return Err(CliError::input(
            "--output takes the products of one kernel, expected no --kernel all",
        ));
    }
    super::save::check_endings(args.output.as_deref())?;
    if let Some(path) = &args.output {
        output::check_writable(path)?;
    }
    let systems = args.input.read(global)?;
    super::save::check_single(args.output.as_deref(), systems.batch.nitems())?;
    let x = vectors::operands(args.x.as_ref(), &systems)?;
    let choices = args.choices(systems.batch.nitems());
    let pool = args.machine.pool()?;
    let progress = Progress::start(global, format!("multiplying {}", systems.described()));
    let Outcome { copy, rows, y } = pool.install(|| match args.machine.precision {
        Precision::F64 => spmv_run::measure(&systems.batch, &x, &choices),
        Precision::F32 => {
            let x: Vec<f32> = x.iter().map(|&value| value as f32).collect();
            spmv_run::measure::<f32>(&systems.batch.cast(), &x, &choices)
        }
    })?;
    drop(progress);
    let wrong = rows.iter().find_map(|row| row.measured.as_ref().ok()?.wrong.clone());
    if let [only] = rows.as_slice()
        && let Err(refused) = &only.measured
    {
        return Err(CliError::input(refused.clone()));
    }
    if let (Some(path), None) = (&args.output, &wrong) {
        save_products(path, &systems, &y)?;
    }
    let report = Report {
        schema: SCHEMA,
        command: "spmv",
        version: env!("CARGO_PKG_VERSION"),
        input: args.input.described(),
        systems: systems.batch.nitems(),
        rows: systems.nrows(),
        columns: systems.batch.col_offset(systems.batch.nitems()),
        nnz: systems.batch.total_nnz(),
        precision: name_of(PRECISIONS, &args.machine.precision),
        backend: "cpu",
        backend_reason,
        threads: pool.current_num_threads(),
        copy_gb_s: copy.gb_s,
        copy_bytes: copy.bytes,
        read_ms: ms(systems.read_time),
        kernels: rows.into_iter().map(|row| Row::new(row, copy.gb_s)).collect(),
        skipped: systems.skipped.clone(),
    };
    output::result(global, &report, || report.text(&systems))?;
    match wrong {
        None => Ok(Exit::Done),
        Some(wrong) => {
            Err(CliError::Internal(format!("a product differs from the reference: {wrong}")))
        }
    }
}

fn save_products(path: &std::path::Path, systems: &Systems, y: &[f64]) -> Result<(), CliError> {
    use super::save::Ending;
    use sparsebatch::io::{Packing, write_arrays, write_vector};
    if Ending::of(path) == Some(Ending::MatrixMarket) {
        return Ok(write_vector(path, y)?);
    }
    let batch = &systems.batch;
    let offsets: Vec<i64> = (0..=batch.nitems()).map(|i| batch.row_offset(i) as i64).collect();
    Ok(write_arrays(path, Packing::Stored, |npz| {
        npz.add_i64("offsets", &offsets)?;
        npz.add_f64("y", y)
    })?)
}

impl SpmvArgs {
    fn choices(&self, nitems: usize) -> Vec<(FormatChoice, KernelChoice)> {
        let single = |kernel| matches!(kernel, KernelChoice::Blocks | KernelChoice::Runs);
        match self.kernel {
            SpmvKernel::One(kernel) => vec![(self.format, kernel)],
            SpmvKernel::All => ALL
                .iter()
                .copied()
                .filter(|&(format, kernel)| {
                    (self.format == FormatChoice::Auto || self.format == format)
                        && (nitems == 1 || !single(kernel))
                })
                .collect(),
        }
    }
}

impl Row {
    fn new(row: spmv_run::Row, copy_gb_s: f64) -> Self {
        let asked = |names: (&'static str, &'static str), why: String| (names.0, names.1, why);
        let (measured, refused) = match row.measured {
            Ok(measured) => (Some(measured), None),
            Err(refused) => (None, Some(refused)),
        };
        let (format, kernel, why) = match &measured {
            Some(m) => asked((m.explain.format, m.explain.kernel), m.explain.why.clone()),
            None => {
                asked((name_of(FORMATS, &row.format), name_of(KERNELS, &row.kernel)), String::new())
            }
        };
        let m = measured.as_ref();
        let rate = |units: f64, m: &Measured| units / m.median.as_secs_f64() * 1e-9;
        Self {
            format,
            kernel,
            why,
            correct: m.is_some_and(|m| m.wrong.is_none()),
            worst_error: m.map(|m| m.worst_error),
            repetitions: m.map_or(0, |m| m.repetitions),
            median_ms: m.map(|m| ms(m.median)),
            min_ms: m.map(|m| ms(m.min)),
            max_ms: m.map(|m| ms(m.max)),
            gflops: m.map(|m| rate(2.0 * m.explain.nnz as f64, m)),
            gb_s: m.map(|m| rate(m.explain.product_bytes as f64, m)),
            share_of_copy: m.map(|m| rate(m.useful_bytes as f64, m) / copy_gb_s),
            bytes_moved: m.map(|m| m.explain.product_bytes),
            useful_bytes: m.map(|m| m.useful_bytes),
            plan_ms: m.map(|m| ms(m.explain.cost)),
            plan_products: m.map(|m| m.explain.cost_in_products(m.median)),
            refused,
        }
    }
}

impl Report {
    fn text(&self, systems: &Systems) -> String {
        let mut text = String::new();
        let lines = [
            ("input", format!("{}: {}", self.input, systems.described())),
            (
                "device",
                format!(
                    "{} ({}), {} threads, {}",
                    self.backend, self.backend_reason, self.threads, self.precision
                ),
            ),
            (
                "copy",
                format!(
                    "{:.1} GB/s, read and written, arrays of {}",
                    self.copy_gb_s,
                    output::bytes(self.copy_bytes)
                ),
            ),
        ];
        for (key, value) in lines {
            writeln!(text, "{key:<7} {value}").expect("writing to a string cannot fail");
        }
        let mut table = Table::new(&[
            "format", "kernel", "time ms", "min ms", "GFLOP/s", "GB/s", "of copy", "plan ms",
            "products", "checked",
        ]);
        for row in &self.kernels {
            let number = |value: Option<f64>, digits: usize| {
                value.map_or("-".to_owned(), |v| format!("{v:.digits$}"))
            };
            let checked = match &row.refused {
                Some(refused) => format!("refused: {refused}"),
                None if row.correct => "correct".to_owned(),
                None => "WRONG".to_owned(),
            };
            table.row(vec![
                row.format.to_owned(),
                row.kernel.to_owned(),
                number(row.median_ms, 4),
                number(row.min_ms, 4),
                number(row.gflops, 2),
                number(row.gb_s, 1),
                row.share_of_copy.map_or("-".to_owned(), |s| format!("{:.0} %", 100.0 * s)),
                number(row.plan_ms, 2),
                number(row.plan_products, 1),
                checked,
            ]);
        }
        text.push('\n');
        text.push_str(&table.render(true));
        if let [only] = self.kernels.as_slice() {
            writeln!(text, "\nchosen because {}", only.why)
                .expect("writing to a string cannot fail");
        }
        text
    }
}
