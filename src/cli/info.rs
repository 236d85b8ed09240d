//! `sparsebatch info`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use sparsebatch::cpu::SpmvPlan;
use sparsebatch::{Batch, BatchOf, Csr, SpmvOptions, stats::MatrixStats};

use super::error::CliError;
use super::input::{InputArgs, Purpose, Systems, only_matrix};
use super::output::{self, SCHEMA, Skipped, Table, bytes, ms};
use super::outputs::Outputs;
use super::{Exit, Global, plot};

/// Most systems listed without `--verbose`.
const LISTED: usize = 20;

/// Options of `info`.
#[derive(Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Draw the pattern as SVG; all systems must have the same pattern
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    command: &'static str,
    version: &'static str,
    input: String,
    kind: &'static str,
    systems: usize,
    rows: usize,
    columns: usize,
    nnz: usize,
    right_hand_sides: bool,
    symmetric_systems: usize,
    systems_with_non_finite_values: usize,
    choice: Choice,
    read_ms: f64,
    items: Vec<Item>,
    skipped: Vec<Skipped>,
}

/// The format and kernel that the library would choose for products.
#[derive(Serialize)]
struct Choice {
    format: &'static str,
    kernel: &'static str,
    why: String,
    bytes: usize,
    plan_ms: f64,
}

#[derive(Serialize)]
struct Item {
    item: usize,
    name: String,
    rows: usize,
    columns: usize,
    nnz: usize,
    row_length: Lengths,
    empty_rows: usize,
    lower_bandwidth: usize,
    upper_bandwidth: usize,
    diagonals: usize,
    nonzero_diagonal: usize,
    explicit_zeros: usize,
    non_finite: usize,
    structural_symmetry: f64,
    symmetric: bool,
    bytes: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct Lengths {
    min: usize,
    mean: f64,
    max: usize,
    deviation: f64,
}

/// Runs the command.
///
/// # Errors
/// Bad usage and input.
pub(crate) fn run(args: &InfoArgs, global: Global) -> Result<Exit, CliError> {
    let mut outputs = Outputs::new([("--plot", args.plot.as_deref())]);
    outputs.check(&args.input.named().collect::<Vec<_>>())?;
    let systems = args.input.read(global, Purpose::Look)?;
    let stats = statistics(&systems);
    if args.plot.is_some() {
        let pattern = match &systems.batch {
            Batch::Ragged(batch) if batch.nitems() > 1 => {
                return Err(CliError::input(format!(
                    "--plot: {} systems of different patterns, expected one pattern",
                    batch.nitems()
                )));
            }
            batch => batch.pattern(0),
        };
        outputs.write("--plot", |path| plot::spy(path, pattern, &systems.names[0]));
    }
    let report = Report {
        schema: SCHEMA,
        command: "info",
        version: env!("CARGO_PKG_VERSION"),
        input: args.input.described(),
        kind: match &systems.batch {
            Batch::Uniform(batch) if batch.nitems() == 1 => "matrix",
            Batch::Uniform(_) => "uniform",
            Batch::Ragged(_) => "ragged",
        },
        systems: systems.batch.nitems(),
        rows: systems.nrows(),
        columns: systems.batch.col_offset(systems.batch.nitems()),
        nnz: systems.batch.total_nnz(),
        right_hand_sides: systems.rhs.is_some(),
        symmetric_systems: stats.iter().filter(|s| s.is_symmetric).count(),
        systems_with_non_finite_values: stats.iter().filter(|s| s.non_finite > 0).count(),
        choice: choice(&systems.batch)?,
        read_ms: ms(systems.read_time),
        items: stats.iter().enumerate().map(|(i, s)| Item::new(i, &systems.names[i], s)).collect(),
        skipped: systems.skipped.clone(),
    };
    output::result(global, &report, || report.text(global, &systems, &stats))?;
    outputs.finish()?;
    Ok(Exit::Done)
}

fn statistics(systems: &Systems) -> Vec<MatrixStats> {
    let one = |item| match &systems.batch {
        Batch::Uniform(batch) => MatrixStats::new(batch.item(item)),
        Batch::Ragged(batch) => MatrixStats::new(batch.item(item)),
    };
    (0..systems.batch.nitems()).map(one).collect()
}

fn choice(batch: &Batch<f64>) -> Result<Choice, CliError> {
    let options = SpmvOptions::default();
    let plan = if batch.nitems() == 1 {
        let matrix: Csr<f64> = only_matrix(batch);
        SpmvPlan::new(&matrix, &options)?
    } else {
        SpmvPlan::new(batch, &options)?
    };
    let explain = plan.explain();
    Ok(Choice {
        format: explain.format,
        kernel: explain.kernel,
        why: explain.why.clone(),
        bytes: explain.plan_bytes,
        plan_ms: ms(explain.cost),
    })
}

impl Item {
    fn new(item: usize, name: &str, stats: &MatrixStats) -> Self {
        let lengths = stats.row_length;
        Self {
            item,
            name: name.to_owned(),
            rows: stats.nrows,
            columns: stats.ncols,
            nnz: stats.nnz,
            row_length: Lengths {
                min: lengths.min,
                mean: lengths.mean,
                max: lengths.max,
                deviation: lengths.deviation,
            },
            empty_rows: stats.empty_rows,
            lower_bandwidth: stats.lower_bandwidth,
            upper_bandwidth: stats.upper_bandwidth,
            diagonals: stats.ndiags,
            nonzero_diagonal: stats.nonzero_diagonal,
            explicit_zeros: stats.explicit_zeros,
            non_finite: stats.non_finite,
            structural_symmetry: stats.structural_symmetry,
            symmetric: stats.is_symmetric,
            bytes: stats
                .bytes
                .by_name()
                .into_iter()
                .map(|(name, size)| (name.to_owned(), size.into()))
                .collect(),
        }
    }
}

impl Report {
    fn text(&self, global: Global, systems: &Systems, stats: &[MatrixStats]) -> String {
        let mut lines = vec![
            ("input", format!("{}: {}", self.input, systems.described())),
            ("kind", self.kind.to_owned()),
            (
                "right-hand sides",
                if self.right_hand_sides { "in the file" } else { "none" }.to_owned(),
            ),
        ];
        if let [only] = stats {
            lines.extend(details(only));
        } else {
            lines.push((
                "symmetric",
                format!("{} of {} systems", self.symmetric_systems, self.systems),
            ));
            lines.push((
                "NaN or Inf in",
                format!("{} systems", self.systems_with_non_finite_values),
            ));
            if self.kind == "uniform" {
                lines.extend(
                    details(&stats[0]).into_iter().filter(|(key, _)| !OF_VALUES.contains(key)),
                );
            }
        }
        lines.push((
            "product chosen",
            format!(
                "{} by {}, since {}; plan of {}",
                self.choice.format,
                self.choice.kernel,
                self.choice.why,
                bytes(self.choice.bytes)
            ),
        ));
        let mut text = output::pairs(&lines);
        if self.kind == "ragged" || (global.verbose && stats.len() > 1) {
            text.push('\n');
            let shown = if global.verbose { stats.len() } else { LISTED.min(stats.len()) };
            text.push_str(&table(&systems.names[..shown], stats).render(false));
            if shown < stats.len() {
                writeln!(text, "and {} more (--verbose lists all)", stats.len() - shown)
                    .expect("writing to a string cannot fail");
            }
        }
        text
    }
}

/// Names of the details that depend on the values, not only on the pattern.
const OF_VALUES: &[&str] = &["symmetry", "explicit zeros", "NaN or Inf", "diagonal"];

fn details(stats: &MatrixStats) -> Vec<(&'static str, String)> {
    let lengths = stats.row_length;
    let sizes = stats.bytes.by_name().map(|(name, size)| match size {
        Some(size) => format!("{name} {}", bytes(size)),
        None => format!("{name} refused"),
    });
    vec![
        ("rows x columns", format!("{} x {}", stats.nrows, stats.ncols)),
        ("entries", stats.nnz.to_string()),
        (
            "entries per row",
            format!(
                "min {}, mean {:.2}, max {}, deviation {:.2}; {} rows empty",
                lengths.min, lengths.mean, lengths.max, lengths.deviation, stats.empty_rows
            ),
        ),
        ("bandwidth", format!("{} below, {} above", stats.lower_bandwidth, stats.upper_bandwidth)),
        ("diagonals", format!("{} occupied", stats.ndiags)),
        (
            "diagonal",
            format!("{} of {} nonzero", stats.nonzero_diagonal, stats.nrows.min(stats.ncols)),
        ),
        ("pattern symmetry", format!("{:.1} %", 100.0 * stats.structural_symmetry)),
        ("symmetry", if stats.is_symmetric { "symmetric" } else { "not symmetric" }.to_owned()),
        ("explicit zeros", stats.explicit_zeros.to_string()),
        ("NaN or Inf", stats.non_finite.to_string()),
        ("bytes", sizes.join(", ")),
    ]
}

fn table(names: &[String], stats: &[MatrixStats]) -> Table {
    let mut table = Table::new(&[
        "system",
        "rows",
        "columns",
        "entries",
        "per row",
        "longest",
        "band below",
        "band above",
        "diagonals",
        "symmetric",
    ]);
    for (name, stats) in names.iter().zip(stats) {
        table.row(vec![
            name.clone(),
            stats.nrows.to_string(),
            stats.ncols.to_string(),
            stats.nnz.to_string(),
            format!("{:.2}", stats.row_length.mean),
            stats.row_length.max.to_string(),
            stats.lower_bandwidth.to_string(),
            stats.upper_bandwidth.to_string(),
            stats.ndiags.to_string(),
            if stats.is_symmetric { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}
