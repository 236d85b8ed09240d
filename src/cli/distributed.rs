//! One matrix over all ranks: `solve --distributed` and `spmv --mpi`.
//!
//! Every rank reads its rows of the file. Ranks go on together or end together, as in `ranks.rs`.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use sparsebatch::io::{Packing, write_arrays, write_vector};
use sparsebatch::{Backend, Batch, CpuScalar, KernelChoice, Scalar, SolveScalar, SpmvOptions};
use sparsebatch_mpi::{
    DistributedMatrix, DistributedOptions, Failure, Gathered, MatrixFile, MatrixOptions, MpiError,
    Parts, Ranks,
};

use super::error::CliError;
use super::input::Listing;
use super::options::{self, Precision, VectorSource, name_of};
use super::outputs::Outputs;
use super::ranks::{LIMIT, alone, ended, joined, own_memory, unbroken};
use super::solve::{OnRanks, SolveArgs, Solved, Summary};
use super::spmv::{SpmvArgs, check};
use super::{Exit, Global, output, save, vectors};

/// Options of MPI of `spmv`.
#[derive(Args)]
pub(crate) struct SpmvMpiArgs {
    /// Multiply one matrix, square or not, with all ranks that mpirun or srun started, each by its
    /// rows of the file
    #[arg(long, conflicts_with_all = ["replicate", "perturb", "skip_bad"])]
    pub(super) mpi: bool,
    /// Longest time to wait for other ranks at the start
    #[arg(long, value_name = "SECONDS", requires = "mpi", default_value_t = LIMIT,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    mpi_timeout: u64,
}

/// The parts of a matrix that the ranks have.
#[derive(Serialize)]
pub(crate) struct AllParts {
    ranks: usize,
    hosts: usize,
    rows: Spread,
    entries: Spread,
    /// Elements of x that a rank receives for a product.
    received: Spread,
    /// Elements that it sends.
    sent: Spread,
    neighbours: Spread,
    /// The GPU of each rank; null where it has none.
    devices: Vec<Option<String>>,
    /// Format and kernel of the local part of each rank.
    local: Vec<String>,
    /// Those of the remote part; null where a rank needs no other.
    remote: Vec<Option<String>>,
}

/// The least and the most of any rank.
#[derive(Serialize)]
struct Spread {
    min: usize,
    max: usize,
}

impl Spread {
    fn text(&self) -> String {
        let Self { min, max } = self;
        if min == max { min.to_string() } else { format!("{min} to {max}") }
    }
}

impl AllParts {
    /// Gathers those of all ranks.
    fn of(ranks: &Ranks, own: &Parts) -> Result<Self, MpiError> {
        let sizes = [own.rows, own.entries, own.received, own.sent, own.neighbours];
        let all: Vec<[usize; 5]> = ranks.all_gather(&sizes)?;
        let spread = |k: usize| {
            let of_ranks = || all.iter().map(|sizes| sizes[k]);
            Spread { min: of_ranks().min().unwrap_or(0), max: of_ranks().max().unwrap_or(0) }
        };
        let local = format!("{} by {}", own.local.format, own.local.kernel);
        let remote = own.remote.as_ref().map(|plan| format!("{} by {}", plan.format, plan.kernel));
        Ok(Self {
            ranks: ranks.size(),
            hosts: ranks.hosts(),
            rows: spread(0),
            entries: spread(1),
            received: spread(2),
            sent: spread(3),
            neighbours: spread(4),
            devices: ranks.all_gather(&own.device)?,
            local: ranks.all_gather(&local)?,
            remote: ranks.all_gather(&remote)?,
        })
    }

    /// In words.
    pub(crate) fn text(&self) -> String {
        let Self { ranks, hosts, rows, entries, received, neighbours, .. } = self;
        format!(
            "{ranks} on {}, {} rows and {} entries each; {} elements of x from {} neighbours for \
             each product",
            output::counted(*hosts, "host"),
            rows.text(),
            entries.text(),
            received.text(),
            neighbours.text()
        )
    }
}

/// `solve --distributed` on this rank, with the backend that all ranks find together.
///
/// # Errors
/// The same on all ranks.
pub(super) fn solve(
    ranks: &Ranks,
    args: &SolveArgs,
    backend: impl FnOnce() -> Result<Backend, MpiError>,
    (global, start): (Global, Instant),
) -> Result<Exit, MpiError> {
    let prepared = ranks.agree(alone(|| {
        args.check_distributed()?;
        let solve = args.options()?;
        args.check_endings()?;
        let (outputs, path) = (args.outputs(), args.input.one_file()?);
        if ranks.rank() == 0 {
            outputs.check(&args.inputs())?;
        }
        let pool = args.machine.pool_here(ranks.threads())?;
        Ok((solve, outputs, path, pool))
    }));
    let (solve, outputs, path, pool) = prepared?;
    let backend = backend()?;
    let memory = args.input.memory.limit();
    let matrix = MatrixOptions::new().spmv(SolveArgs::spmv_options(&solve)).memory(memory);
    let options = DistributedOptions::new()
        .solve(solve)
        .block_lu(args.mpi.block_lu)
        .pipelined(args.mpi.pipelined);
    let file = MatrixFile::open(ranks, path, &matrix)?;
    let asked = (args, &backend, &file, &matrix, &options);
    let done = match args.machine.precision {
        Precision::F64 => solve_in::<f64>(ranks, asked, start)?,
        Precision::F32 => solve_in::<f32>(ranks, asked, start)?,
    };
    let Done { x, report, parts, rhs_source, read_time, gathered, nnz } = done;
    let told = alone(|| {
        let Some(x) = x else { return Ok(Exit::Done) };
        let names = args.input.names(1);
        let nnz = usize::try_from(nnz).unwrap_or(usize::MAX);
        let listing = Listing::of_one(&names, (file.rows().len(), nnz), read_time);
        let backend_reason = "one matrix over ranks".to_owned();
        let threads = pool.current_num_threads();
        let summary = Summary { args, rhs_source, backend_reason, threads, start };
        let on_ranks = OnRanks { gathered: Some(gathered), parts: Some(parts) };
        summary.tell(global, outputs, &backend, listing, &Solved { x, report }, on_ranks)
    });
    let exit = ranks.agree(told)?;
    Ok(Exit::of(ranks.from_first(&(exit as u8))?))
}

/// A solve in either precision, with the solution in f64 on rank 0.
struct Done {
    x: Option<Vec<f64>>,
    report: sparsebatch::BatchReport,
    parts: AllParts,
    rhs_source: String,
    read_time: Duration,
    gathered: Gathered,
    nnz: u64,
}

/// What is asked of one matrix: the command line, the GPU of this rank, the file, and options.
type Asked<'a> =
    (&'a SolveArgs, &'a Backend, &'a MatrixFile, &'a MatrixOptions, &'a DistributedOptions);

fn solve_in<T: SolveScalar>(
    ranks: &Ranks,
    (args, backend, file, matrix, options): Asked<'_>,
    start: Instant,
) -> Result<Done, MpiError> {
    let mut matrix: DistributedMatrix<'_, T> = file.read_on(ranks, backend, matrix)?;
    let (len, range) = (file.rows().len(), file.rows().range(ranks.rank()));
    let vectors = ranks.agree(alone(|| {
        let memory = args.input.memory.limit();
        let part = |source: Option<&VectorSource>, array: &'static str| {
            vectors::part(source, &VectorSource::Ones, (array, len), range.clone(), memory)
        };
        let (b, rhs_source) = part(args.rhs.as_ref(), "b")?;
        let x0 = args.x0.clone().map(VectorSource::Path);
        let x = match &x0 {
            Some(_) => part(x0.as_ref(), "x")?.0,
            None => vectors::repeated(&[0.0], range.len())?,
        };
        Ok((narrowed::<T>(b), narrowed::<T>(x), rhs_source))
    }));
    let (b, mut x, rhs_source) = vectors?;
    let read_time = start.elapsed();
    let solved = matrix.solve(&b, &mut x, options)?;
    let gathered = ranks.gather_times(&solved)?;
    let parts = matrix.parts();
    let products = (parts.local.format, parts.local.kernel);
    let mut report = solved.into_batch(products);
    // As of a batch: the times of the slowest rank.
    let slowest = |of: fn(&sparsebatch_mpi::RankTimes) -> Duration| {
        gathered.ranks.iter().map(of).max().unwrap_or_default()
    };
    report.plan_time = slowest(|rank| rank.plan);
    report.solve_time = slowest(|rank| rank.solve);
    let x: Vec<f64> = x.into_iter().map(T::to_f64).collect();
    Ok(Done {
        x: ranks.gather_values(&x),
        report,
        parts: AllParts::of(ranks, &parts)?,
        rhs_source,
        read_time,
        gathered,
        nnz: matrix.nnz(),
    })
}

fn narrowed<T: Scalar>(values: Vec<f64>) -> Vec<T> {
    values.into_iter().map(T::from_f64).collect()
}

/// The report of `spmv --mpi`.
#[derive(Serialize)]
struct Multiplied<'a> {
    schema: u32,
    command: &'static str,
    version: &'static str,
    input: String,
    rows: usize,
    columns: usize,
    nnz: u64,
    precision: &'static str,
    /// The largest error over its bound of any row.
    worst_error: f64,
    repetitions: usize,
    median_ms: f64,
    min_ms: f64,
    max_ms: f64,
    gflops: f64,
    times_ms: Times,
    distributed: &'a AllParts,
}

#[derive(Serialize)]
struct Times {
    read: f64,
    total: f64,
}

/// `spmv --mpi`.
///
/// # Errors
/// Those of a process that cannot join other ranks.
pub(crate) fn spmv(args: &SpmvArgs, global: Global) -> Result<Exit, CliError> {
    let start = Instant::now();
    let (ranks, global) = joined(args.mpi.mpi_timeout, global)?;
    let multiplied = unbroken(&ranks, || multiply(&ranks, args, global, start));
    Ok(ended(&ranks, multiplied))
}

fn multiply(
    ranks: &Ranks,
    args: &SpmvArgs,
    global: Global,
    start: Instant,
) -> Result<Exit, MpiError> {
    let prepared = ranks.agree(alone(|| {
        let spmv = args.spmv_of_ranks()?;
        save::check_endings(args.output.as_deref())?;
        let path = args.input.one_file()?;
        let outputs = Outputs::new([("--output", args.output.as_deref())]);
        if ranks.rank() == 0 {
            outputs.check(&args.input.named().collect::<Vec<_>>())?;
        }
        Ok((spmv, outputs, path, args.machine.pool_here(ranks.threads())?))
    }));
    // The pool is that of this thread as long as it lives.
    let (spmv, outputs, path, _pool) = prepared?;
    let mut memory = args.input.memory;
    memory.limit_to(own_memory(ranks));
    let options = MatrixOptions::new().spmv(spmv).memory(memory.limit());
    let file = MatrixFile::open(ranks, path, &options)?;
    match args.machine.precision {
        Precision::F64 => {
            multiply_in::<f64>(ranks, (args, &file, &options), outputs, global, start)
        }
        Precision::F32 => {
            multiply_in::<f32>(ranks, (args, &file, &options), outputs, global, start)
        }
    }
}

fn multiply_in<T: CpuScalar>(
    ranks: &Ranks,
    (args, file, options): (&SpmvArgs, &MatrixFile, &MatrixOptions),
    outputs: Outputs<'_>,
    global: Global,
    start: Instant,
) -> Result<Exit, MpiError> {
    let own = file.read_rows(ranks)?.cast::<T>();
    let x = ranks.agree(alone(|| {
        // The reference of the own rows needs all of x.
        let columns = file.columns().len();
        let default = VectorSource::Random(96);
        let part = ("x", columns);
        let memory = options.memory;
        let (x, _) = vectors::part(args.x.as_ref(), &default, part, 0..columns, memory)?;
        Ok(narrowed::<T>(x))
    }))?;
    let (rows, columns) = (file.rows(), file.columns());
    let mut matrix = DistributedMatrix::from_rows(ranks, own.clone(), rows, columns, options)?;
    let read = start.elapsed();
    let own_x = columns.share(ranks.rank(), &x);
    let mut y = vec![T::from_f64(f64::NAN); matrix.own_rows()];
    ranks.agree(matrix.apply(T::ONE, &own_x, T::ZERO, &mut y))?;
    let (worst, wrong) = check::check(&y, &check::reference(&Batch::from(own), &x));
    ranks.agree(wrong.map_or(Ok(()), |wrong| {
        let line = format!("a product differs from the reference: {wrong}");
        Err(Failure::internal(line))
    }))?;
    let products: Vec<f64> = y.iter().map(|y| y.to_f64()).collect();
    let times = timed(ranks, &mut matrix, &own_x, &mut y)?;
    let worst = ranks.all_gather(&worst)?.into_iter().fold(0.0, f64::max);
    let parts = AllParts::of(ranks, &matrix.parts())?;
    let y = ranks.gather_values(&products);
    let told = alone(|| {
        let Some(y) = y else { return Ok(Exit::Done) };
        let median = times[times.len() / 2].as_secs_f64();
        let report = Multiplied {
            schema: output::SCHEMA,
            command: "spmv",
            version: env!("CARGO_PKG_VERSION"),
            input: args.input.described(),
            rows: rows.len(),
            columns: columns.len(),
            nnz: matrix.nnz(),
            precision: name_of(options::PRECISIONS, &args.machine.precision),
            worst_error: worst,
            repetitions: times.len(),
            median_ms: 1e3 * median,
            min_ms: output::ms(times[0]),
            max_ms: output::ms(times[times.len() - 1]),
            gflops: 2e-9 * matrix.nnz() as f64 / median,
            times_ms: Times { read: output::ms(read), total: output::ms(start.elapsed()) },
            distributed: &parts,
        };
        told(report, outputs, &y, global)
    });
    let exit = ranks.agree(told)?;
    Ok(Exit::of(ranks.from_first(&(exit as u8))?))
}

/// The times of products by the slowest rank of each, ascending.
fn timed<T: CpuScalar>(
    ranks: &Ranks,
    matrix: &mut DistributedMatrix<'_, T>,
    x: &[T],
    y: &mut [T],
) -> Result<Vec<Duration>, MpiError> {
    const FEWEST: usize = 5;
    const MOST: f64 = 200.0;
    /// Seconds for which products are repeated.
    const MEASURE_FOR: f64 = 0.3;
    let mut own = Vec::new();
    let mut repetitions = FEWEST;
    while own.len() < repetitions {
        ranks.barrier();
        let start = Instant::now();
        ranks_alone(matrix.apply(T::ONE, x, T::ZERO, y))?;
        own.push(start.elapsed());
        if own.len() == FEWEST {
            // All ranks go by the slowest one.
            let mine = own.iter().sum::<Duration>().as_secs_f64() / FEWEST as f64;
            let slowest = ranks.all_gather(&mine)?.into_iter().fold(0.0, f64::max);
            repetitions = (MEASURE_FOR / slowest.max(1e-9)).clamp(FEWEST as f64, MOST) as usize;
        }
    }
    let all: Vec<Vec<Duration>> = ranks.all_gather(&own)?;
    let slowest = |k: usize| all.iter().map(|times| times[k]).max().unwrap_or_default();
    let mut times: Vec<Duration> = (0..repetitions).map(slowest).collect();
    times.sort_unstable();
    Ok(times)
}

/// A failure that all ranks share, since vectors fit.
fn ranks_alone(result: Result<(), Failure>) -> Result<(), MpiError> {
    result.map_err(MpiError::All)
}

fn told(
    report: Multiplied<'_>,
    mut outputs: Outputs<'_>,
    y: &[f64],
    global: Global,
) -> Result<Exit, CliError> {
    outputs.write("--output", |path| save_product(path, y));
    output::result(global, &report, || {
        let Multiplied { rows, columns, nnz, median_ms, min_ms, max_ms, gflops, .. } = &report;
        let parts = report.distributed;
        let kernels: std::collections::BTreeSet<&String> = parts.local.iter().collect();
        let kernels: Vec<&str> = kernels.into_iter().map(String::as_str).collect();
        output::pairs(&[
            ("matrix", format!("{}, {rows} x {columns}, {nnz} entries", report.input)),
            ("ranks", parts.text()),
            ("local parts", kernels.join(", ")),
            (
                "product",
                format!(
                    "{median_ms:.4} ms ({min_ms:.4} to {max_ms:.4}, {} products), {gflops:.2} \
                     GFLOP/s",
                    report.repetitions
                ),
            ),
            ("error", format!("{:.2} of its bound at the most", report.worst_error)),
        ])
    })?;
    outputs.finish()?;
    Ok(Exit::Done)
}

fn save_product(path: &Path, y: &[f64]) -> Result<(), CliError> {
    if save::Ending::of(path) == Some(save::Ending::MatrixMarket) {
        return Ok(write_vector(path, y)?);
    }
    Ok(write_arrays(path, Packing::Stored, |npz| {
        npz.add_i64("offsets", &[0, y.len() as i64])?;
        npz.add_f64("y", y)
    })?)
}

impl SpmvArgs {
    /// Format and kernel for ranks.
    fn spmv_of_ranks(&self) -> Result<SpmvOptions, CliError> {
        if self.machine.backend == options::Backend::Gpu {
            return Err(CliError::input(
                "spmv --mpi is not supported on GPUs yet, expected --backend cpu or auto",
            ));
        }
        let names = KernelChoice::NAMES;
        let kernel = match &*self.kernel {
            [name] => names.iter().find(|(known, _)| known == name).map(|(_, kernel)| *kernel),
            _ => None,
        };
        let kernel = kernel.ok_or_else(|| {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            CliError::input(format!(
                "--kernel {}: expected one of {} with --mpi",
                self.kernel.join(","),
                names.join(", ")
            ))
        })?;
        Ok(SpmvOptions::default().format(self.format).kernel(kernel))
    }
}
