//! `sparsebatch spmv`.
//!
//! `choice.rs` chooses the backend and the kernels, `run.rs` checks and times them through a trait
//! that `cpu.rs` and `gpu.rs` implement, `report.rs` prints.

pub(super) mod check;
mod choice;
mod copy;
mod cpu;
mod gpu;
mod report;
mod run;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use sparsebatch::gpu::{Device, Executor, Value};
use sparsebatch::{Batch, CpuScalar, FormatChoice};

use self::choice::{Target, Wanted};
use self::report::{Context, Report};
use self::run::Outcome;
use super::distributed::{self, SpmvMpiArgs};
use super::error::CliError;
use super::input::{InputArgs, Purpose, Systems};
use super::options::{Backend, MachineArgs, PRECISIONS, Precision, VectorSource, name_of, named};
use super::outputs::Outputs;
use super::progress::Progress;
use super::replicate::CopyArgs;
use super::{Exit, Global, doctor, output, save, vectors};

/// Options of `spmv`.
#[derive(Args)]
pub(crate) struct SpmvArgs {
    #[command(flatten)]
    pub(super) input: InputArgs,
    #[command(flatten)]
    pub(super) machine: MachineArgs,
    #[command(flatten)]
    copies: CopyArgs,
    /// Operands x: ones, random:SEED or a FILE with one number per column of every system
    /// [default: random:96]
    #[arg(long, value_name = "SOURCE")]
    pub(super) x: Option<VectorSource>,
    /// Format of the matrix
    #[arg(long, value_parser = named(FormatChoice::NAMES), default_value = "auto")]
    pub(super) format: FormatChoice,
    /// Kernels, separated by commas; `all` runs every kernel of the backend in turn
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(choice::names()),
        default_value = "auto"
    )]
    pub(super) kernel: Vec<String>,
    /// Print what each plan does and what it stores
    #[arg(long)]
    explain: bool,
    /// Write the products: .npz (offsets, y), or .mtx for one system
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) mpi: SpmvMpiArgs,
}

/// Runs the command.
///
/// # Errors
/// Bad usage and input, a kernel requested by name that does not suit the matrix, and, as an
/// internal failure, a product that differs from the reference.
pub(crate) fn run(args: &SpmvArgs, global: Global) -> Result<Exit, CliError> {
    if args.mpi.mpi {
        return distributed::spmv(args, global);
    }
    args.check()?;
    save::check_endings(args.output.as_deref())?;
    let mut outputs = Outputs::new([("--output", args.output.as_deref())]);
    let x = args.x.as_ref().and_then(|x| Some(("--x", x.path()?)));
    outputs.check(&args.input.named().chain(x).collect::<Vec<_>>())?;
    let gpu = super::gpu::open(args.machine.backend)?;
    let mut systems = args.input.read(global, Purpose::Multiply)?;
    let mut x = vectors::operands(args.x.as_ref(), &systems)?;
    args.copies.apply(&mut systems, &mut [&mut x])?;
    save::check_single(args.output.as_deref(), systems.batch.nitems())?;
    let wanted = args.wanted(&systems);
    let target = choice::target(&wanted, gpu, args.machine.backend == Backend::Gpu)
        .map_err(CliError::input)?;
    let pool = args.machine.pool()?;
    systems.check_plan(pool.current_num_threads())?;
    let context = args.context(&systems, &target, pool.current_num_threads());

    let progress = Progress::start(global, format!("multiplying {}", systems.described()));
    let strict = !wanted.is_all();
    let (outcome, baseline) = pool.install(|| match args.machine.precision {
        Precision::F64 => measure(&systems.batch, &x, target, strict),
        Precision::F32 => {
            let x: Vec<f32> = x.iter().map(|&value| value as f32).collect();
            measure::<f32>(&systems.batch.cast(), &x, target, strict)
        }
    })?;
    drop(progress);

    let wrong = outcome.wrong();
    if wrong.is_none() {
        outputs.write("--output", |path| save_products(path, &systems, &outcome.y));
    }
    let report = Report::new(context, outcome, baseline);
    output::result(global, &report, || report.text(&systems, args.explain))?;
    outputs.finish()?;
    match wrong {
        None => Ok(Exit::Done),
        Some(wrong) => {
            Err(CliError::Internal(format!("a product differs from the reference: {wrong}")))
        }
    }
}

/// Measures all kernels, and the time of the product that the cost of plans is compared with.
fn measure<T: CpuScalar + Value>(
    batch: &Batch<T>,
    x: &[T],
    target: Target<Device>,
    strict: bool,
) -> Result<(Outcome, Duration), CliError> {
    let mut on_cpu = cpu::Cpu::new(batch, x);
    let baseline = on_cpu.baseline()?;
    let outcome = match target {
        Target::Cpu(choices, _) => run::measure(&mut on_cpu, batch, x, &choices, strict),
        Target::Gpu(device, choices, _) => {
            drop(on_cpu);
            let mut on_gpu = gpu::Gpu::new(device, batch, x)?;
            run::measure::<T, gpu::Gpu<'_, T>>(&mut on_gpu, batch, x, &choices, strict)
        }
    }?;
    Ok((outcome, baseline))
}

fn save_products(path: &Path, systems: &Systems, y: &[f64]) -> Result<(), CliError> {
    use sparsebatch::io::{Packing, write_arrays, write_vector};
    if save::Ending::of(path) == Some(save::Ending::MatrixMarket) {
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
    fn check(&self) -> Result<(), CliError> {
        let list = self.kernel.join(",");
        let all = self.kernel.iter().any(|kernel| kernel == "all");
        if all && self.kernel.len() > 1 {
            return Err(CliError::input(format!("--kernel {list}: expected all by itself")));
        }
        if self.output.is_some() && (all || self.kernel.len() > 1) {
            return Err(CliError::input(format!(
                "--output takes the products of one kernel, expected no --kernel {list}"
            )));
        }
        Ok(())
    }

    fn wanted(&self, systems: &Systems) -> Wanted<'_> {
        Wanted { kernels: &self.kernel, format: self.format, nitems: systems.batch.nitems() }
    }

    fn context(&self, systems: &Systems, target: &Target<Device>, threads: usize) -> Context {
        let (backend, reason, device) = match target {
            Target::Cpu(_, reason) => ("cpu", reason, doctor::cpu_model()),
            Target::Gpu(device, _, reason) => ("gpu", reason, device.info().name.clone()),
        };
        let batch = &systems.batch;
        Context {
            input: self.input.described(),
            systems: batch.nitems(),
            rows: systems.nrows(),
            columns: batch.col_offset(batch.nitems()),
            nnz: batch.total_nnz(),
            precision: name_of(PRECISIONS, &self.machine.precision),
            backend,
            backend_reason: reason.clone(),
            device,
            threads,
            read_ms: output::ms(systems.read_time),
            skipped: systems.skipped.clone(),
        }
    }
}
