//! `sparsebatch solve`.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use sparsebatch::gpu::Device;
use sparsebatch::{
    Backend, Batch, BatchReport, BatchSolver, Budget, Engine, FormatChoice, Gpu, InnerPrecision,
    KernelChoice, LuForm, Method, Order, PerSystem, PrecondPrecision, Preconditioner, Rhs,
    SolveError, SolveOptions, SolveScalar, SpmvOptions,
};
use sparsebatch_mpi::Gathered;

use super::error::CliError;
use super::input::{InputArgs, Listing, Purpose, Systems};
use super::narrow::Narrow;
use super::options::{MachineArgs, Precision, VectorSource, name_of, named, not_negative};
use super::outputs::{Named, Outputs};
use super::progress::Progress;
use super::ranks::MpiArgs;
use super::replicate::CopyArgs;
use super::report::{self, Context};
use super::{Exit, Global, distributed, gpu, options, pages, pin, ranks, save, vectors};

/// Options of `solve`.
#[derive(Args)]
pub(crate) struct SolveArgs {
    #[command(flatten)]
    pub(super) input: InputArgs,
    #[command(flatten)]
    pub(super) machine: MachineArgs,
    /// Method to try first; `auto` chooses for each system: lu where fill is small, else cg where
    /// the matrix is symmetric with a positive diagonal, else bicgstab; on a GPU lu where its
    /// estimated time is shorter
    #[arg(long, value_parser = named(Method::NAMES), default_value = "auto")]
    solver: Method,
    /// Preconditioner; `auto` is Jacobi with zero diagonal entries replaced by 1, but IC(0) or ILU(0)
    /// by colours where `--solver auto` finds that quicker on a GPU
    #[arg(long, value_name = "PRECONDITIONER", value_parser = named(Preconditioner::NAMES), default_value = "auto")]
    precond: Preconditioner,
    /// Elimination order of ilu0 and ic0
    #[arg(long, value_parser = named(Order::NAMES), default_value = "natural")]
    order: Order,
    /// Rows per block of block-jacobi, 1 to 128 [default: found from the pattern]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u8).range(1..=128))]
    block_size: Option<u8>,
    /// Precision in which block-jacobi, ilu0 and ic0 store their factors; f32 changes nothing with
    /// --precision f32
    #[arg(long, value_name = "PRECISION", value_parser = named(PrecondPrecision::NAMES), default_value = "working")]
    precond_precision: PrecondPrecision,
    /// Precision of the iterations of cg and bicgstab with jacobi or none on a GPU: auto is f32
    /// where that is faster; solutions and residuals stay in --precision
    #[arg(long, value_name = "PRECISION", value_parser = named(InnerPrecision::NAMES), default_value = "auto")]
    inner_precision: InnerPrecision,
    /// How a GPU makes the sparse LU of systems with several patterns: a plan for each pattern, or
    /// one for all, which is quicker where few systems share a pattern
    #[arg(long, value_name = "FORM", value_parser = named(LuForm::NAMES), default_value = "by-pattern")]
    lu_form: LuForm,
    /// Relative tolerance: ||b - A x|| <= RTOL ||b|| [default: 1e-10, f32: 1e-5]
    #[arg(long, value_parser = not_negative)]
    rtol: Option<f64>,
    /// Absolute tolerance: ||b - A x|| <= ATOL
    #[arg(long, value_parser = not_negative, default_value = "0")]
    atol: f64,
    /// Also accept ||b - A x|| <= C eps || |A||x| + |b| ||, but no more than 1e-3 ||b|| [default: off]
    #[arg(long, value_name = "C", value_parser = not_negative)]
    floor: Option<f64>,
    /// Most iterations per system
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_iters: u32,
    /// Right-hand sides: file, ones, random:SEED, a FILE or - for standard input [default: those in
    /// the inputs and in files beside them, else ones]
    #[arg(long, value_name = "SOURCE")]
    pub(super) rhs: Option<VectorSource>,
    /// Initial guesses: a Matrix Market vector, an .npy or an .npz written by --output [default: 0];
    /// lu replaces NaN and infinities by 0
    #[arg(long, value_name = "FILE")]
    pub(super) x0: Option<PathBuf>,
    #[command(flatten)]
    pub(super) copies: CopyArgs,
    /// Matrix format of the products; any but auto iterates with the products of a plan instead of
    /// a fused kernel
    #[arg(long, value_parser = named(FormatChoice::NAMES), default_value = "auto")]
    format: FormatChoice,
    /// Kernel; any but auto and fused iterates with the products of a plan that uses this kernel
    #[arg(long, value_parser = named(SOLVE_KERNELS), default_value = "auto")]
    kernel: SolveKernel,
    /// Do not retry systems that did not converge. The retries are: restart, stronger
    /// preconditioner, sparse LU, cg and bicgstab where LU found no pivot, LU with pivoting
    #[arg(long)]
    no_fallback: bool,
    /// Retry systems that did not converge: the default
    #[arg(long, hide = true, conflicts_with = "no_fallback")]
    fallback: bool,
    /// Largest number of multiply-adds in the factorisation of a retried system; its factors may
    /// have 16 million entries with the default of 4 billion, and in proportion with a larger value
    #[arg(long, value_name = "PRODUCTS", value_parser = clap::value_parser!(u64).range(1..), default_value_t = Budget::default().products)]
    fallback_budget: u64,
    /// Solve on these GPUs together: numbers as in 0,1, or all. Solutions have the same bits as on one
    /// [default: GPU 0; with --mpi each rank's part of the GPUs of its host]
    #[arg(long, value_name = "LIST")]
    gpus: Option<gpu::Gpus>,
    /// Largest amount of memory to use of each GPU, such as 8GiB; a larger batch is solved in chunks
    /// [default: all free GPU memory]
    #[arg(long, value_name = "SIZE", value_parser = options::size)]
    gpu_memory: Option<u64>,
    /// Make the plans as the pin in this file says, so that solutions have the bits that they have
    /// where --export-plan wrote it; an error where this machine cannot. With --mpi rank 0 reads it
    #[arg(long, value_name = "FILE")]
    pub(super) pin_plan: Option<PathBuf>,
    /// Write what plans depend on beside systems and options, for --pin-plan on other machines
    #[arg(long, value_name = "FILE")]
    export_plan: Option<PathBuf>,
    /// Write the solutions: .npz (offsets, x, status), or .mtx for one system
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Write the residuals of all iterations as CSV
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Write an HTML report of the solve: one file, usable offline
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    pub(super) mpi: MpiArgs,
}

/// The implementation of a solve's products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SolveKernel {
    /// The solver's choice, or the one that `--format` implies.
    Auto,
    /// Fused solves.
    Fused,
    /// Products of a plan.
    Plan(KernelChoice),
}

const SOLVE_KERNELS: &[(&str, SolveKernel)] = &[
    ("auto", SolveKernel::Auto),
    ("fused", SolveKernel::Fused),
    ("rows", SolveKernel::Plan(KernelChoice::Rows)),
    ("csr-i", SolveKernel::Plan(KernelChoice::CsrI)),
    ("entries", SolveKernel::Plan(KernelChoice::Entries)),
    ("blocks", SolveKernel::Plan(KernelChoice::Blocks)),
    ("runs", SolveKernel::Plan(KernelChoice::Runs)),
];

/// Systems to solve.
pub(super) struct Given {
    pub(super) systems: Systems,
    pub(super) b: Vec<f64>,
    /// Initial guesses, unless they are 0.
    pub(super) x0: Option<Vec<f64>>,
    /// Where the right-hand sides come from.
    pub(super) rhs_source: String,
}

/// The result of a solve in either precision, with solutions in f64.
pub(super) struct Solved {
    pub(super) x: Vec<f64>,
    pub(super) report: BatchReport,
}

/// Runs the command.
///
/// # Errors
/// Bad usage and input, before anything is solved or written.
pub(crate) fn run(args: SolveArgs, global: Global) -> Result<Exit, CliError> {
    if args.mpi.mpi {
        return ranks::run(args, global);
    }
    if args.mpi.distributed {
        return ranks::on_gpus(args, global);
    }
    let args = &args;
    let start = Instant::now();
    let solve_options = args.options()?;
    args.check_endings()?;
    let outputs = args.outputs();
    outputs.check(&args.inputs())?;

    let (backend, backend_reason) = args.backend()?;
    let Given { systems, b, x0, rhs_source } = args.read(global)?;
    let pool = args.machine.pool()?;
    let threads = pool.current_num_threads();
    systems.check_plan(threads)?;
    let progress = Progress::start(global, format!("solving {}", systems.described()));
    let precision = args.machine.precision;
    let solved =
        pool.install(|| solve_in(precision, &backend, &systems.batch, (b, x0), &solve_options));
    let solved = solved.map_err(|error| args.refused(error))?;
    drop(progress);

    let summary = Summary { args, rhs_source, backend_reason, threads, start };
    summary.tell(global, outputs, &backend, systems.listing(), &solved, OnRanks::default())
}

/// What ranks of MPI did.
#[derive(Default)]
pub(super) struct OnRanks {
    /// `None` in a process alone.
    pub(super) gathered: Option<Gathered>,
    /// The parts of one matrix.
    pub(super) parts: Option<distributed::AllParts>,
}

/// What a command tells of its solve besides what the solver reports.
pub(super) struct Summary<'a> {
    pub(super) args: &'a SolveArgs,
    pub(super) rhs_source: String,
    pub(super) backend_reason: String,
    pub(super) threads: usize,
    pub(super) start: Instant,
}

impl Summary<'_> {
    /// Writes the outputs and prints the report.
    ///
    /// # Errors
    /// When an output or stdout cannot be written.
    pub(super) fn tell(
        self,
        global: Global,
        mut outputs: Outputs<'_>,
        backend: &Backend,
        systems: Listing<'_>,
        Solved { x, report }: &Solved,
        ranks: OnRanks,
    ) -> Result<Exit, CliError> {
        let args = self.args;
        let offsets = systems.offsets();
        outputs.write("--output", |path| save::solutions(path, &offsets, x, report));
        outputs.write("--export-plan", |path| pin::export(path, backend));
        outputs.write("--history", |path| save::history(path, report));
        let context = Context {
            systems,
            input: args.input.described(),
            rhs_source: self.rhs_source,
            backend_reason: &self.backend_reason,
            threads: self.threads,
            precision: name_of(options::PRECISIONS, &args.machine.precision),
            order: args.order.name(),
            precond_precision: args.precond_precision.name(),
            inner_precision: args.inner_precision.name(),
            lu_form: args.lu_form.name(),
            fallback: !args.no_fallback,
            ranks: ranks.gathered,
            parts: ranks.parts,
            total_time: self.start.elapsed(),
        };
        outputs
            .write("--report", |path| pages::solve(path, &context, report, args.history.is_some()));
        report::print(global, &context, report)?;
        outputs.finish()?;
        Ok(if report.all_converged() { Exit::Done } else { Exit::NotConverged })
    }
}

/// Solves in the precision asked for. For f32 the systems are scaled and narrowed first, and
/// solutions and report are scaled back.
pub(super) fn solve_in(
    precision: Precision,
    backend: &Backend,
    batch: &Batch<f64>,
    (b, x0): (Vec<f64>, Option<Vec<f64>>),
    options: &SolveOptions,
) -> Result<Solved, SolveError> {
    match precision {
        Precision::F64 => solve(backend, batch, b, x0, options),
        Precision::F32 => {
            let (narrow, options) = Narrow::new(batch, &b, x0.as_deref(), options);
            let Narrow { batch, b, x0, .. } = &narrow;
            let mut solved = solve::<f32>(backend, batch, b.clone(), x0.clone(), &options)?;
            narrow.scale_back(&mut solved.x, &mut solved.report);
            Ok(solved)
        }
    }
}

fn solve<T: SolveScalar>(
    backend: &Backend,
    batch: &Batch<T>,
    b: Vec<T>,
    x0: Option<Vec<T>>,
    options: &SolveOptions,
) -> Result<Solved, SolveError> {
    let rhs = Rhs { b: &b, x0: x0.as_deref() };
    let mut solver = BatchSolver::on_with_rhs(backend, batch, rhs, options)?;
    let mut x = x0.unwrap_or_else(|| vec![T::ZERO; b.len()]);
    let report = solver.solve(batch, &b, &mut x)?;
    Ok(Solved { x: x.into_iter().map(T::to_f64).collect(), report })
}

impl SolveArgs {
    /// The backend, pinned where that is asked for, and the reason for it.
    fn backend(&self) -> Result<(Backend, String), CliError> {
        let (backend, reason) = self.unpinned(gpu::ORDINAL..gpu::ORDINAL + 1)?;
        Ok(match &self.pin_plan {
            Some(path) => (pin::pinned(&backend, path)?, reason),
            None => (backend, reason),
        })
    }

    /// The backend as it is without a pin, and the reason for it; `ordinals` are the GPUs where no
    /// list of GPUs is given, of which the first is asked for where there are none. GPUs leave to the
    /// CPU what they cannot do, unless `--backend gpu` is given.
    pub(super) fn unpinned(&self, ordinals: Range<usize>) -> Result<(Backend, String), CliError> {
        let asked = self.machine.backend;
        let gpu = |device| {
            let or_cpu = asked == options::Backend::Auto;
            Gpu::new(device).or_cpu(or_cpu).in_chunks(true).memory_limit(self.gpu_memory)
        };
        if let Some(gpus) = &self.gpus {
            let gpus = gpus.open(asked)?.into_iter().map(gpu).collect();
            return Ok((Backend::gpus(gpus)?, "asked for".to_owned()));
        }
        let ordinals = ordinals.start..ordinals.end.max(ordinals.start + 1);
        let mut gpus = Vec::new();
        let mut why = "";
        for ordinal in ordinals {
            match gpu::open_at(asked, ordinal)? {
                Ok((device, reason)) => {
                    gpus.push(gpu(device));
                    why = reason;
                }
                Err(reason) => return Ok((Backend::Cpu, reason)),
            }
        }
        Ok((Backend::gpus(gpus)?, why.to_owned()))
    }

    /// The GPUs of `--gpus`, for one matrix in this process.
    pub(super) fn listed_gpus(&self) -> Result<Vec<Device>, CliError> {
        match &self.gpus {
            Some(gpus) => gpus.open(self.machine.backend),
            None => Err(CliError::input(
                "--distributed solves with ranks: expected --mpi, or --gpus 0,1 for GPUs of this \
                 process",
            )),
        }
    }

    /// The backend of a rank for one matrix, with `--backend gpu` the GPU with this number.
    pub(super) fn gpu_of_rank(&self, ordinal: usize) -> Result<Backend, CliError> {
        if self.machine.backend != options::Backend::Gpu {
            return Ok(Backend::Cpu);
        }
        match gpu::open_at(options::Backend::Gpu, ordinal)? {
            Ok((device, _)) => Ok(Backend::Gpu(Gpu::new(device))),
            Err(reason) => Err(CliError::input(reason)),
        }
    }

    /// The error of a solve that was refused.
    pub(super) fn refused(&self, error: SolveError) -> CliError {
        match (&error, self.machine.backend) {
            (SolveError::Unsupported { .. } | SolveError::Gpu(_), options::Backend::Gpu) => {
                gpu::refused(error)
            }
            _ => error.into(),
        }
    }

    /// Refuses outputs that could not be written.
    pub(super) fn check_endings(&self) -> Result<(), CliError> {
        save::check_endings(self.output.as_deref())?;
        self.report.as_ref().map_or(Ok(()), |path| pages::check_ending(path, "--report"))
    }

    /// The files to write.
    pub(super) fn outputs(&self) -> Outputs<'_> {
        Outputs::new([
            ("--output", self.output.as_deref()),
            ("--export-plan", self.export_plan.as_deref()),
            ("--history", self.history.as_deref()),
            ("--report", self.report.as_deref()),
        ])
    }

    /// What cannot be asked for where all ranks solve one matrix.
    pub(super) fn check_distributed(&self) -> Result<(), CliError> {
        if !self.copies.are_none() {
            return Err(CliError::input(
                "--distributed solves one system, expected no copies of it",
            ));
        }
        Ok(())
    }

    /// Format and kernel of products.
    pub(super) fn spmv_options(options: &SolveOptions) -> SpmvOptions {
        match &options.engine {
            Engine::Composed(spmv) => spmv.clone(),
            _ => SpmvOptions::default(),
        }
    }

    /// Reads the systems, with their right-hand sides and guesses.
    pub(super) fn read(&self, global: Global) -> Result<Given, CliError> {
        let mut systems = self.input.read(global, Purpose::Solve)?;
        let (mut b, rhs_source) = vectors::rhs(self.rhs.as_ref(), &mut systems)?;
        let mut x0 = self.x0.as_deref().map(|path| vectors::x0(path, &systems)).transpose()?;
        let mut repeated = vec![&mut b];
        repeated.extend(x0.as_mut());
        self.copies.apply(&mut systems, &mut repeated)?;
        save::check_single(self.output.as_deref(), systems.batch.nitems())?;
        Ok(Given { systems, b, x0, rhs_source })
    }

    /// The files to read.
    pub(super) fn inputs(&self) -> Vec<Named<'_>> {
        let rhs = self.rhs.as_ref().and_then(|rhs| Some(("--rhs", rhs.path()?)));
        let x0 = self.x0.as_deref().map(|path| ("--x0", path));
        let pin = self.pin_plan.as_deref().map(|path| ("--pin-plan", path));
        self.input.named().chain(rhs).chain(x0).chain(pin).collect()
    }

    pub(super) fn options(&self) -> Result<SolveOptions, CliError> {
        let plan =
            |kernel| Engine::Composed(SpmvOptions::default().format(self.format).kernel(kernel));
        let engine = match (self.kernel, self.format) {
            (SolveKernel::Auto | SolveKernel::Fused, FormatChoice::Auto) => Engine::Fused,
            (SolveKernel::Fused, format) => {
                return Err(CliError::input(format!(
                    "--kernel fused stores CSR in its own layout, expected --format auto, found {}",
                    format.name()
                )));
            }
            (SolveKernel::Auto, _) => plan(KernelChoice::Auto),
            (SolveKernel::Plan(kernel), _) => plan(kernel),
        };
        let mut options = SolveOptions::new()
            .method(self.solver)
            .preconditioner(self.precond)
            .order(self.order)
            .block_size(self.block_size.map(usize::from))
            .precond_precision(self.precond_precision)
            .inner_precision(self.inner_precision)
            .lu_form(self.lu_form)
            .abs_tol(self.atol)
            .max_iters(self.max_iters)
            .floor(self.floor)
            .fallback(!self.no_fallback)
            .fallback_budget(self.budget())
            .history(self.history.is_some())
            .engine(engine);
        options.rel_tol = self.rtol.map(PerSystem::All);
        Ok(options)
    }
}

impl SolveArgs {
    /// The budget of the ladder: the requested products, with entries in the default proportion,
    /// but at least the default entries.
    fn budget(&self) -> Budget {
        let usual = Budget::default();
        let share = self.fallback_budget as f64 / usual.products as f64;
        Budget {
            products: self.fallback_budget,
            entries: (usual.entries as f64 * share.max(1.0)) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_product_kernel_can_be_asked_for() {
        for (name, kernel) in KernelChoice::NAMES {
            let expected = match kernel {
                KernelChoice::Auto => SolveKernel::Auto,
                kernel => SolveKernel::Plan(*kernel),
            };
            assert!(SOLVE_KERNELS.contains(&(name, expected)), "{name}");
        }
    }
}
