//! `sparsebatch bench`.

mod machines;
mod products;
mod solves;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use sparsebatch_bench::suites::flexible_batch::{Experiment, Kernel};
use sparsebatch_bench::suites::single::Configuration;
use sparsebatch_bench::{
    Backend, BenchError, FlexibleBatch, Outcome, Single, cpu, distributed, energy, flexible_batch,
    gpu_vs_cpu, row_kernels, scaling, sell_p, single, solvers, suites, throughput,
};
use sparsebatch_rows::{Gap, Row, RowsError, table};

use self::machines::{CpuArgs, DistributedArgs, EnergyArgs, GpuVsCpuArgs, ScalingArgs};
use self::products::{RowKernelArgs, SellPArgs, ThroughputArgs};
use self::solves::SolverArgs;
use super::error::CliError;
use super::output::{self, Printable, SCHEMA};
use super::outputs::{self, Outputs};
use super::{Exit, Global, pages, ranks};

/// Options of `bench`.
#[derive(Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    suite: Suite,
    /// Measure on the ranks of a job: not supported
    #[arg(long, global = true, hide = true)]
    mpi: bool,
}

#[derive(Subcommand)]
enum Suite {
    /// Products of batches whose systems share neither patterns nor values, compared with cuSPARSE
    /// or, on the CPU, other crates
    FlexibleBatch(FlexibleArgs),
    /// Products with one matrix, compared with cuSPARSE or, on the CPU, other crates
    Single(SingleArgs),
    /// Products by the formats and access patterns of Bell and Garland 2009, in f64 and f32
    Throughput(ThroughputArgs),
    /// Products in SELL-P of several shapes: padding and speed of each
    SellP(SellPArgs),
    /// Kernels with a thread or a warp per row, plain and refined, compared with cuSPARSE; on the
    /// CPU products by rows of CSR
    RowKernels(RowKernelArgs),
    /// Whole solves of batches, compared with the dense LU of cuBLAS and with recorded figures
    Solvers(Box<SolverArgs>),
    /// Products with one matrix by every CPU kernel on 1 to all threads, compared with other crates
    Cpu(CpuArgs),
    /// Products and solves on the GPU and on the CPU, with and without copies from the host
    GpuVsCpu(GpuVsCpuArgs),
    /// Growth of the cost with the systems of a batch, the rows of a system and the entries of a
    /// matrix
    Scaling(ScalingArgs),
    /// Products and CG with one large matrix over several GPUs, compared with one, and over ranks of
    /// the processor
    Distributed(DistributedArgs),
    /// Energy of products and solves in joules, measured by NVML and RAPL
    Energy(EnergyArgs),
    /// Print Markdown tables of rows that earlier runs have written
    Table {
        /// Files of JSON lines written by earlier runs
        #[arg(required = true, value_name = "FILE.jsonl")]
        files: Vec<PathBuf>,
    },
}

/// Options of every suite.
#[derive(Args)]
struct Common {
    /// Extent of the suite: small is a short run of a few cases, paper has the cases of the papers,
    /// full has more
    #[arg(long, value_enum, default_value_t = Size::Paper)]
    size: Size,
    /// Name of a case to measure; may be given several times [default: all cases]
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Do not measure the peers: cuSPARSE, cuBLAS, other crates
    #[arg(long)]
    no_peer: bool,
    /// Device to measure [default: the GPU if there is one, else the CPU]
    #[arg(long, value_enum)]
    backend: Option<Measured>,
    /// Write the measured rows to this file of JSON lines
    #[arg(long, value_name = "FILE.jsonl")]
    output: Option<PathBuf>,
}

#[derive(Args)]
struct FlexibleArgs {
    #[command(flatten)]
    common: Common,
    /// Measure this published experiment instead of the suite's own cases
    #[arg(long, value_name = "fig3|fig4|fig5|fig6|fig7", value_parser = experiment)]
    experiment: Option<Experiment>,
    /// Kernels of this library, separated by commas, or `all` [default: packed; all in experiments
    /// and at full size]
    #[arg(long = "kernel", value_name = "LIST", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Systems per batch [default: 10000; fewer at small size]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    items: Option<u32>,
    /// Folder with the small matrices [default: generated matrices replace them]
    #[arg(long, value_name = "FOLDER")]
    matrices: Option<PathBuf>,
    /// Precision of values and vectors
    #[arg(long, value_enum, default_value_t = ValuePrecision::F64)]
    precision: ValuePrecision,
}

#[derive(Args)]
struct SingleArgs {
    #[command(flatten)]
    common: Common,
    /// Kernels of this library, separated by commas [default: all]
    #[arg(long = "kernel", value_name = "LIST", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Folder of further matrices to measure; may be given several times
    #[arg(long, value_name = "FOLDER")]
    matrices: Vec<PathBuf>,
    /// Do not measure the generated matrices
    #[arg(long)]
    no_generated: bool,
    /// Precision of values and vectors
    #[arg(long, value_enum, default_value_t = ValuePrecision::F64)]
    precision: ValuePrecision,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Measured {
    Gpu,
    Cpu,
    Both,
}

impl Measured {
    fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Cpu => "cpu",
            Self::Both => "both",
        }
    }
}

impl Common {
    /// Checks the options of a suite that measures only the backend `only`.
    fn on(&self, only: Measured) -> Result<&Self, BenchError> {
        match self.backend {
            Some(found) if found != only => Err(BenchError::Option {
                option: "--backend",
                expected: format!("{}, the only one that this suite measures", only.name()),
                found: found.name().to_owned(),
            }),
            _ => Ok(self),
        }
    }
}

impl From<Measured> for Backend {
    fn from(measured: Measured) -> Self {
        match measured {
            Measured::Gpu => Self::Gpu,
            Measured::Cpu => Self::Cpu,
            Measured::Both => Self::Both,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum ValuePrecision {
    F64,
    F32,
}

impl From<ValuePrecision> for suites::Precision {
    fn from(precision: ValuePrecision) -> Self {
        match precision {
            ValuePrecision::F64 => Self::F64,
            ValuePrecision::F32 => Self::F32,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Size {
    Small,
    Paper,
    Full,
}

impl From<Size> for suites::Size {
    fn from(size: Size) -> Self {
        match size {
            Size::Small => Self::Small,
            Size::Paper => Self::Paper,
            Size::Full => Self::Full,
        }
    }
}

fn experiment(text: &str) -> Result<Experiment, String> {
    let names = Experiment::ALL.map(Experiment::name).join(", ");
    let found = Experiment::ALL.into_iter().find(|experiment| experiment.name() == text);
    found.ok_or_else(|| format!("expected one of {names}"))
}

/// Parses a list of kernel names; `all` stands for all kernels.
fn kernels<K: std::str::FromStr<Err = BenchError>>(
    names: &[String],
    all: impl Fn() -> Vec<K>,
) -> Result<Vec<K>, BenchError> {
    let mut kernels = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => kernels.extend(all()),
            name => kernels.push(name.parse()?),
        }
    }
    Ok(kernels)
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    command: &'static str,
    version: &'static str,
    run: &'a str,
    rows: &'a [Row],
    gaps: &'a [Gap],
}

/// Runs the command.
///
/// # Errors
/// Bad options and files, the reason why there is no GPU. Wrong answers and failures of the device
/// are internal failures, reported after the rows are written.
pub(crate) fn run(args: &BenchArgs, global: Global) -> Result<Exit, CliError> {
    if args.mpi {
        return ranks::refuse(
            "bench --mpi: suites measure one process; solve --mpi --json measures ranks, by its \
             fields times_ms and ranks (solve_ms, gather_ms)"
                .to_owned(),
        );
    }
    match &args.suite {
        Suite::FlexibleBatch(args) => {
            measured(global, &args.common, |report| flexible_batch(&args.options()?, report))
        }
        Suite::Single(args) => {
            measured(global, &args.common, |report| single(&args.options()?, report))
        }
        Suite::Throughput(args) => {
            measured(global, &args.common, |report| throughput(&args.options()?, report))
        }
        Suite::SellP(args) => {
            measured(global, &args.common, |report| sell_p(&args.options()?, report))
        }
        Suite::RowKernels(args) => {
            measured(global, &args.common, |report| row_kernels(&args.options()?, report))
        }
        Suite::Cpu(args) => measured(global, &args.common, |report| cpu(&args.options()?, report)),
        Suite::GpuVsCpu(args) => {
            measured(global, &args.on.common, |report| gpu_vs_cpu(&args.options(), report))
        }
        Suite::Scaling(args) => {
            measured(global, &args.common, |report| scaling(&args.options()?, report))
        }
        Suite::Distributed(args) => {
            measured(global, &args.common, |report| distributed(&args.options()?, report))
        }
        Suite::Energy(args) => {
            measured(global, &args.on.common, |report| energy(&args.options(), report))
        }
        Suite::Solvers(args) => {
            measured(global, &args.common, |report| solvers(&args.options()?, report))
        }
        Suite::Table { files } => {
            let files = sparsebatch_rows::read_all(files)?;
            pages::note_partial(global, &files);
            output::print(&table(&files))?;
            Ok(Exit::Done)
        }
    }
}

/// Runs a suite and prints its results.
fn measured(
    global: Global,
    common: &Common,
    suite: impl FnOnce(&mut dyn Write) -> Result<Outcome, BenchError>,
) -> Result<Exit, CliError> {
    Outputs::new([("--output", common.output.as_deref())]).check(&[])?;
    if let Some(output) = &common.output {
        outputs::keeps_rows_for(output);
    }
    // With --json, stdout has the JSON object only.
    let mut report: Box<dyn Write> = match global {
        Global { quiet: true, .. } => Box::new(std::io::sink()),
        Global { json: true, .. } => Box::new(Printable::new(std::io::stderr())),
        _ => Box::new(Printable::new(std::io::stdout())),
    };
    let outcome = suite(&mut report)?;
    if global.json {
        let Outcome { run, rows, gaps } = &outcome;
        let version = env!("CARGO_PKG_VERSION");
        let object = Report { schema: SCHEMA, command: "bench", version, run, rows, gaps };
        output::result(global, &object, String::new)?;
    }
    match outcome.faults().next() {
        None => Ok(Exit::Done),
        Some(Gap { case, library, configuration, reason, .. }) => Err(CliError::Internal(format!(
            "{} faults, the first: {case}, {library} {configuration}: {reason}",
            outcome.faults().count()
        ))),
    }
}

impl FlexibleArgs {
    fn options(&self) -> Result<FlexibleBatch, BenchError> {
        let Common { size, cases, no_peer, backend, output } = &self.common;
        Ok(FlexibleBatch {
            cases: cases.clone(),
            kernels: kernels(&self.kernels, Kernel::all)?,
            size: (*size).into(),
            experiment: self.experiment,
            items: self.items.map(|items| items as usize),
            matrices: self.matrices.clone(),
            precision: self.precision.into(),
            backend: backend.map(Backend::from),
            no_peer: *no_peer,
            output: output.clone(),
        })
    }
}

impl SingleArgs {
    fn options(&self) -> Result<Single, BenchError> {
        let Common { size, cases, no_peer, backend, output } = &self.common;
        Ok(Single {
            cases: cases.clone(),
            kernels: kernels(&self.kernels, Configuration::all)?,
            size: (*size).into(),
            matrices: self.matrices.clone(),
            no_generated: self.no_generated,
            precision: self.precision.into(),
            backend: backend.map(Backend::from),
            no_peer: *no_peer,
            output: output.clone(),
        })
    }
}

impl From<RowsError> for CliError {
    fn from(error: RowsError) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<BenchError> for CliError {
    fn from(error: BenchError) -> Self {
        use sparsebatch_cuda::GpuError;
        match error {
            // A missing GPU is a fault of the request, not of the program.
            BenchError::Gpu(
                GpuError::NoDriver
                | GpuError::NoDevice { .. }
                | GpuError::DriverTooOld { .. }
                | GpuError::NvrtcMissing { .. },
            ) => Self::Input(format!("bench needs a GPU: {error}")),
            BenchError::Gpu(_) | BenchError::Print(_) | BenchError::Unfinished { .. } => {
                Self::Internal(error.to_string())
            }
            _ => Self::Input(error.to_string()),
        }
    }
}
