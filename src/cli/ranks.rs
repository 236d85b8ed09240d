//! `sparsebatch solve --mpi`: every rank of a job solves its share of the systems.
//!
//! Ranks go on together or end together: after each step in which one may fail alone they agree
//! whether any has ([`Ranks::agree`]). Rank 0 prints, and writes the outputs.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args;
use sparsebatch::gpu::device::availability::uuids;
use sparsebatch::io::BatchIndex;
use sparsebatch::{Backend, Gpu, SolveOptions};
use sparsebatch_bench::processor::available_memory;
use sparsebatch_mpi::{Failure, MpiError, Ranks, cost, described, shares};

use super::error::CliError;
use super::input::Listing;
use super::options::{Precision, VectorSource};
use super::solve::{Given, OnRanks, SolveArgs, Solved, Summary, solve_in};
use super::{Exit, Global, distributed, interrupt, panics, pin, save, tell, vectors};

/// Seconds that ranks wait for each other at the start.
pub(super) const LIMIT: u64 = 300;

/// How much later than rank 0 the other processes tell that a job has not started, and leave a
/// launcher whose MPI is another: so that one line is printed, not one a process.
const LATER: Duration = Duration::from_secs(2);

/// Options of MPI.
#[derive(Args)]
pub(crate) struct MpiArgs {
    /// Solve with all ranks that mpirun or srun started, each a share of the systems: see the guide,
    /// clusters
    #[arg(long, conflicts_with = "gpus")]
    pub(super) mpi: bool,
    /// Longest time to wait for other ranks at the start
    #[arg(long, value_name = "SECONDS", requires = "mpi", default_value_t = LIMIT,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    mpi_timeout: u64,
    /// Make the plans on all ranks as for the GPU of rank 0, where models differ: solutions have the
    /// bits of that model; an error on ranks whose GPU falls short of it
    #[arg(long, requires = "mpi", conflicts_with = "pin_plan")]
    mpi_pin: bool,
    /// Solve one large matrix with all ranks together, by cg or bicgstab: each has its rows of the
    /// file, and the blocks of block-jacobi, ilu0 and ic0 are those of the ranks. With --backend gpu
    /// each rank has a GPU, beside which blocks precondition on the CPU; without --mpi the GPUs of
    /// --gpus are the ranks
    #[arg(long, conflicts_with_all = ["pin_plan", "mpi_pin", "export_plan", "skip_bad"])]
    pub(super) distributed: bool,
    /// Precondition by sparse LU of the block of each rank
    #[arg(long, requires = "distributed", conflicts_with_all = ["block_size", "order"])]
    pub(super) block_lu: bool,
    /// CG with one sum over ranks for each iteration, which travels while the next product is made
    #[arg(long, requires = "distributed")]
    pub(super) pipelined: bool,
}

/// Runs the command on this rank.
///
/// # Errors
/// Those of a process that cannot join other ranks. All other errors are printed by rank 0, and
/// their exit code is that of every rank.
pub(crate) fn run(mut args: SolveArgs, global: Global) -> Result<Exit, CliError> {
    let start = Instant::now();
    let ranks = join(Duration::from_secs(args.mpi.mpi_timeout))?;
    args.input.memory.limit_to(own_memory(&ranks));
    let global = match ranks.rank() {
        0 => global,
        _ => {
            interrupt::hush();
            Global { json: false, quiet: true, verbose: false }
        }
    };
    let solved = match args.mpi.distributed {
        true => unbroken(&ranks, || {
            distributed::solve(&ranks, &args, || gpu_of(&ranks, &args), (global, start))
        }),
        false => solve(&ranks, &args, global, start),
    };
    Ok(ended(&ranks, solved))
}

/// Solves one matrix with the GPUs of `--gpus`, each of which is a rank on a thread of this process.
///
/// # Errors
/// As [`run`]; where there is no such list.
pub(crate) fn on_gpus(mut args: SolveArgs, global: Global) -> Result<Exit, CliError> {
    let start = Instant::now();
    let devices = args.listed_gpus()?;
    let own = available_memory().map(|bytes| memory_of_rank(bytes as u64, devices.len()));
    args.input.memory.limit_to(own);
    let quiet = Global { json: false, quiet: true, verbose: false };
    let exits = Ranks::on_threads(devices.len(), |ranks| {
        let global = if ranks.rank() == 0 { global } else { quiet };
        let gpu = || Ok(Backend::Gpu(Gpu::new(devices[ranks.rank()].clone())));
        let solved = unbroken(ranks, || distributed::solve(ranks, &args, gpu, (global, start)));
        ended(ranks, solved)
    });
    Ok(exits.into_iter().next().unwrap_or(Exit::Internal))
}

/// The backend of this rank for one matrix: with `--backend gpu` a GPU of its host.
fn gpu_of(ranks: &Ranks, args: &SolveArgs) -> Result<Backend, MpiError> {
    let seen = ranks.gpus(&uuids().unwrap_or_default())?;
    ranks.agree(alone(|| args.gpu_of_rank(seen.start)))
}

/// Joins the other ranks for another command than `solve`, and says what this rank may print.
///
/// # Errors
/// Where this process cannot join.
pub(super) fn joined(timeout: u64, global: Global) -> Result<(Ranks, Global), CliError> {
    let ranks = join(Duration::from_secs(timeout))?;
    if ranks.rank() == 0 {
        return Ok((ranks, global));
    }
    interrupt::hush();
    Ok((ranks, Global { json: false, quiet: true, verbose: false }))
}

/// The memory that this rank may take.
pub(super) fn own_memory(ranks: &Ranks) -> Option<u64> {
    let (_, of_host) = ranks.local();
    available_memory().map(|bytes| memory_of_rank(bytes as u64, of_host))
}

/// Runs work in which ranks wait for each other anywhere: a panic, which has printed its line, ends
/// the processes of all.
pub(super) fn unbroken<R>(ranks: &Ranks, work: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| ranks.abort(Exit::Internal as u8))
}

/// The memory that each of the ranks of a host may take, of what is available there: an equal part,
/// less a margin of a sixteenth.
fn memory_of_rank(available: u64, ranks: usize) -> u64 {
    (available - available / 16) / ranks as u64
}

/// Ends a command line with `--mpi` that is wrong on this rank, and perhaps on this rank alone.
///
/// # Errors
/// The same line where this process cannot join the others.
pub(crate) fn refuse(line: String) -> Result<Exit, CliError> {
    // What is wrong with the command comes before what is wrong with MPI.
    let Ok(ranks) = join(Duration::from_secs(LIMIT)) else { return Err(CliError::Input(line)) };
    let refused = ranks.agree(Err(Failure { code: Exit::BadInput as u8, message: line }));
    Ok(ended(&ranks, refused))
}

/// The exit code of all ranks; rank 0 prints the error.
pub(super) fn ended(ranks: &Ranks, result: Result<Exit, MpiError>) -> Exit {
    let exit = result.unwrap_or_else(|error| {
        let line = error.to_string();
        let error = match error.exit_code() {
            2 => CliError::Input(line),
            _ => CliError::Internal(line),
        };
        if ranks.rank() == 0 { tell(&error) } else { error.exit() }
    });
    interrupt::done(exit);
    exit
}

/// Starts MPI and waits for the other ranks.
fn join(limit: Duration) -> Result<Ranks, CliError> {
    if !is_first() {
        interrupt::hush();
    }
    let (joined, watched) = channel::<()>();
    // While MPI starts this thread waits in it, where no limit of time can be given.
    std::thread::Builder::new()
        .name("join".to_owned())
        .spawn(move || {
            let own = limit + LATER + if is_first() { Duration::ZERO } else { LATER };
            if watched.recv_timeout(own) == Err(RecvTimeoutError::Timeout) {
                tell(&CliError::Internal(format!(
                    "MPI did not start within {} s: not every process of the job has started it \
                     (--mpi-timeout)",
                    limit.as_secs()
                )));
                std::process::exit(i32::from(Exit::Internal as u8));
            }
        })
        .map_err(|error| CliError::Internal(format!("threads: {error}")))?;
    let ranks = Ranks::world_or_abort(limit, |error| {
        tell(&CliError::Internal(format!("{error} (--mpi-timeout)")));
    });
    drop(joined);
    ranks.map_err(|error| {
        // Every process believes to be rank 0. A launcher may end the others when one has ended.
        if matches!(error, MpiError::OtherMpi { .. }) && !is_first() {
            std::thread::sleep(LATER);
            std::process::exit(i32::from(error.exit_code()));
        }
        match error.exit_code() {
            2 => CliError::Input(format!("--mpi: {error}")),
            _ => CliError::Internal(format!("--mpi: {error}")),
        }
    })
}

/// Whether the launcher calls this process the first one, as far as is known.
fn is_first() -> bool {
    let launchers = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
    let rank = launchers.iter().find_map(|variable| std::env::var(variable).ok());
    rank.is_none_or(|rank| rank == "0")
}

/// Runs work of this rank alone. Its error or panic becomes a failure for the other ranks to know.
pub(super) fn alone<T>(work: impl FnOnce() -> Result<T, CliError>) -> Result<T, Failure> {
    let _kept = panics::kept();
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => {
            result.map_err(|error| Failure { code: error.exit() as u8, message: error.to_string() })
        }
        Err(_) => Err(Failure::internal(panics::take())),
    }
}

/// The systems of all ranks, of which this rank reads its own.
enum Source {
    /// A `.batch` file, of which each rank reads its share, and the names of its systems on rank 0.
    Index(BatchIndex, Vec<String>),
    /// All systems with right-hand sides and guesses, which every rank has read.
    Whole(Given),
}

fn solve(
    ranks: &Ranks,
    args: &SolveArgs,
    global: Global,
    start: Instant,
) -> Result<Exit, MpiError> {
    // The first message, as in `refuse`.
    let prepared = ranks.agree(alone(|| {
        let options = args.options()?;
        args.check_endings()?;
        let outputs = args.outputs();
        if ranks.rank() == 0 {
            outputs.check(&args.inputs())?;
        }
        Ok((options, outputs, source(args, global, ranks.rank() == 0)?))
    }));
    let (options, outputs, mut source) = prepared?;
    let gpus = ranks.gpus(&uuids().unwrap_or_default())?;
    let (mut backend, backend_reason) = ranks.agree(alone(|| {
        let (backend, reason) = args.unpinned(gpus)?;
        // Rank 0 alone reads the pin, and sends it along.
        Ok(match (&args.pin_plan, ranks.rank()) {
            (Some(path), 0) => (pin::pinned(&backend, path)?, reason),
            _ => (backend, reason),
        })
    }))?;
    // Rank 0 decides, so that ranks with other options go the same way until these are compared.
    if ranks.from_first(&(args.mpi.mpi_pin || args.pin_plan.is_some()))? {
        backend = ranks.planned_as_first(&backend)?;
    }
    ranks.same(&asked(args, &options, &backend, &source))?;
    let own = shares(&source.costs(), ranks.size()).swap_remove(ranks.rank());
    let share = ranks.agree(alone(|| source.share(args, own)))?;
    let rhs_source = share.rhs_source;
    let solved = alone(|| {
        let pool = args.machine.pool_or(ranks.threads())?;
        let threads = pool.current_num_threads();
        share.systems.check_plan(threads)?;
        let (batch, vectors) = (&share.systems.batch, (share.b, share.x0));
        let solved =
            pool.install(|| solve_in(args.machine.precision, &backend, batch, vectors, &options));
        Ok((solved.map_err(|error| args.refused(error))?, threads))
    });
    let (Solved { x, report }, threads) = ranks.agree(solved)?;
    let mut gathered = ranks.gather_report(&report)?;
    let x = ranks.gather_values(&x);
    let told = alone(|| {
        // On rank 0.
        let (Some(x), Some(report)) = (x, gathered.report.take()) else { return Ok(Exit::Done) };
        let summary = Summary { args, rhs_source, backend_reason, threads, start };
        let listing = source.listing(share.systems.read_time);
        let solved = Solved { x, report };
        let ranks = OnRanks { gathered: Some(gathered), parts: None };
        summary.tell(global, outputs, &backend, listing, &solved, ranks)
    });
    let exit = ranks.agree(told)?;
    Ok(Exit::of(ranks.from_first(&(exit as u8))?))
}

/// Opens or reads the inputs.
fn source(args: &SolveArgs, global: Global, is_root: bool) -> Result<Source, CliError> {
    let reads_standard_input = |path: &std::path::Path| path == std::path::Path::new("-");
    if args.input.reads_standard_input()
        || args.rhs.as_ref().and_then(VectorSource::path).is_some_and(reads_standard_input)
        || args.x0.as_deref().is_some_and(reads_standard_input)
    {
        return Err(CliError::input(
            "--mpi: standard input reaches one rank only, expected files that all ranks can read",
        ));
    }
    let vectors_fit = args.x0.is_none() && !matches!(args.rhs, Some(VectorSource::Path(_)));
    if vectors_fit
        && args.copies.are_none()
        && let Some(index) = args.input.index()?
    {
        save::check_single(args.output.as_deref(), index.nitems())?;
        // A thousand ranks need not hold the names of all systems.
        let names = if is_root { args.input.names(index.nitems()) } else { Vec::new() };
        return Ok(Source::Index(index, names));
    }
    args.read(global).map(Source::Whole)
}

/// What all ranks must have in common: options, machine, and the sizes of the systems.
fn asked(
    args: &SolveArgs,
    options: &SolveOptions,
    backend: &Backend,
    source: &Source,
) -> sparsebatch_mpi::Described {
    let mut all = match args.machine.precision {
        Precision::F64 => described::<f64>(options, backend),
        Precision::F32 => described::<f32>(options, backend),
    };
    let mut add = |name: &str, value: String| all.push((name.to_owned(), value));
    let listing = source.listing(Duration::ZERO);
    add("the number of systems", source.nitems().to_string());
    add("the number of rows", listing.nrows.to_string());
    add("the number of entries", listing.nnz.to_string());
    add("--mpi-pin", args.mpi.mpi_pin.to_string());
    add("a file of --pin-plan", args.pin_plan.is_some().to_string());
    add("the source of right-hand sides", format!("{:?}", args.rhs));
    add("the choice of copies", format!("{:?}", args.copies));
    all
}

impl Source {
    /// The number of all systems.
    fn nitems(&self) -> usize {
        match self {
            Self::Index(index, _) => index.nitems(),
            Self::Whole(Given { systems, .. }) => systems.batch.nitems(),
        }
    }

    /// The estimated cost of each system.
    fn costs(&self) -> Vec<u64> {
        let of = |nitems, entries: &dyn Fn(usize) -> usize| {
            (0..nitems).map(|item| cost(entries(item), 0)).collect()
        };
        match self {
            Self::Index(index, _) => of(index.nitems(), &|item| index.nnz(item)),
            Self::Whole(Given { systems, .. }) => {
                let batch = &systems.batch;
                of(batch.nitems(), &|item| batch.pattern(item).nnz())
            }
        }
    }

    /// Reads or copies the systems of a range.
    fn share(&mut self, args: &SolveArgs, items: Range<usize>) -> Result<Given, CliError> {
        match self {
            Self::Index(index, _) => {
                let mut systems = args.input.read_items(index, items)?;
                let (b, rhs_source) = vectors::rhs(args.rhs.as_ref(), &mut systems)?;
                Ok(Given { systems, b, x0: None, rhs_source })
            }
            Self::Whole(Given { systems, b, x0, rhs_source }) => {
                let rows =
                    systems.batch.row_offset(items.start)..systems.batch.row_offset(items.end);
                Ok(Given {
                    systems: systems.share(items)?,
                    b: b[rows.clone()].to_vec(),
                    x0: x0.as_ref().map(|x0| x0[rows].to_vec()),
                    rhs_source: rhs_source.clone(),
                })
            }
        }
    }

    /// What reports tell of all systems.
    fn listing(&self, read_time: Duration) -> Listing<'_> {
        match self {
            Self::Index(index, names) => Listing::of(index, names, read_time),
            Self::Whole(given) => given.systems.listing(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::guarded;
    use super::*;

    #[test]
    fn the_ranks_of_a_host_take_less_than_its_memory() {
        assert_eq!(memory_of_rank(16 << 30, 1), 15 << 30);
        assert_eq!(memory_of_rank(16 << 30, 3), 5 << 30);
        assert_eq!(memory_of_rank(0, 3), 0);
    }

    #[test]
    fn what_fails_on_this_rank_is_told_to_the_others() {
        let refused = alone::<()>(|| Err(CliError::input("a.mtx: bad")));
        let code = guarded(|| {
            let failure = alone::<()>(|| {
                rayon::join(|| panic!("on purpose"), || ());
                Ok(())
            });
            let failure = failure.expect_err("a panic");
            assert!(failure.message.contains("on purpose"), "{failure:?}");
            if failure.code == 1 { Exit::Done } else { Exit::Internal }
        });

        assert_eq!(refused, Err(Failure { code: 2, message: "a.mtx: bad".to_owned() }));
        assert_eq!(code, Exit::Done);
    }
}
