//! Commands, one file each, and their shared parts: options, exit codes, the panic hook.
//!
//! Results go to stdout, everything else to stderr. Exit codes are those of `Exit`.

mod bench;
mod compare;
mod convert;
mod corpus;
mod distributed;
mod doctor;
mod doctor_gpu;
mod doctor_warm;
mod error;
mod generate;
mod gpu;
mod info;
mod input;
mod interrupt;
mod narrow;
mod options;
mod output;
mod outputs;
mod pages;
mod panics;
mod pin;
mod plot;
mod progress;
mod ranks;
mod replicate;
mod report;
mod save;
mod solve;
mod spmv;
mod vectors;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use self::error::CliError;
use self::options::MOST_THREADS;

/// Solve, multiply and inspect batches of thousands of sparse linear systems.
#[derive(Parser)]
#[command(
    name = "sparsebatch",
    version,
    after_help = "Exit codes: 0 done and converged; 1 internal failure; 2 bad usage or input; \
                  3 some systems did not converge; 4 a comparison found a regression; 130 interrupted."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Args, Clone, Copy)]
struct Global {
    /// Print one JSON object instead of tables
    #[arg(long, global = true)]
    json: bool,
    /// Print only errors (and JSON with --json)
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Print more: one line per system
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Solve A x = b for every system of the inputs
    Solve(Box<solve::SolveArgs>),
    /// Multiply y = A x, check the result and time it
    Spmv(Box<spmv::SpmvArgs>),
    /// Describe matrices: sizes, rows, symmetry, bytes in each format
    Info(info::InfoArgs),
    /// Convert a matrix or batch to another file format
    Convert(convert::ConvertArgs),
    /// Write a test problem to a file
    Generate(generate::GenerateArgs),
    /// Measure products and solves on the GPU and the CPU, and compare with other libraries
    Bench(Box<bench::BenchArgs>),
    /// Write an HTML page of benchmark rows and residual histories: one file, usable offline
    Report(pages::ReportArgs),
    /// Compare two files of benchmark rows: what became faster or slower
    Compare(compare::CompareArgs),
    /// Download the test matrices of the papers that the kernels follow, or list which are present
    Corpus(corpus::CorpusArgs),
    /// Report what this machine and this build offer, and run self-tests; or compile kernels ahead for
    /// a GPU that is not there (--warm)
    Doctor(doctor_warm::DoctorArgs),
}

/// The exit code of the process, unless a signal ends it (`interrupt.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Exit {
    /// Everything requested was done and every system converged.
    Done = 0,
    /// An internal failure: a fault of the program or of the machine.
    Internal = 1,
    /// Bad usage or bad input; nothing was written.
    BadInput = 2,
    /// Some systems did not converge; results and report were written.
    NotConverged = 3,
    /// A comparison found a regression.
    Regression = 4,
}

impl Exit {
    /// The exit of a code; a fault for a code that is none.
    fn of(code: u8) -> Self {
        let all = [Self::Done, Self::BadInput, Self::NotConverged, Self::Regression];
        all.into_iter().find(|exit| *exit as u8 == code).unwrap_or(Self::Internal)
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    ExitCode::from(main_with(std::env::args_os().collect()))
}

/// Runs the command line with these arguments, the first of which names the program, and returns
/// the exit code. For programs that carry the command line, such as the Python package.
pub fn main_with(args: Vec<OsString>) -> u8 {
    interrupt::watch();
    guarded(|| run(args)) as u8
}

/// Parses and runs; the one place that prints errors.
fn run(args: Vec<OsString>) -> Exit {
    let is_on_ranks = args.iter().any(|arg| arg == "--mpi");
    let result = match Cli::try_parse_from(args) {
        Ok(cli) => check_threads().and_then(|()| dispatch(cli)),
        Err(error) if is_on_ranks && error.use_stderr() => {
            let line = joined(&error.render().to_string());
            ranks::refuse(line.strip_prefix("error: ").unwrap_or(&line).to_owned())
        }
        Err(error) => return usage(&error),
    };
    result.unwrap_or_else(|error| tell(&error))
}

/// Prints an error, and returns its exit code.
fn tell(error: &CliError) -> Exit {
    eprintln!("error: {}", output::one_line(&error.to_string()));
    error.exit()
}

/// Refuses a `RAYON_NUM_THREADS` above the limit of `--threads`.
fn check_threads() -> Result<(), CliError> {
    match std::env::var("RAYON_NUM_THREADS").map(|value| value.parse::<usize>()) {
        Ok(Ok(threads)) if threads > MOST_THREADS => Err(CliError::input(format!(
            "RAYON_NUM_THREADS is {threads}, expected at most {MOST_THREADS}"
        ))),
        _ => Ok(()),
    }
}

fn dispatch(cli: Cli) -> Result<Exit, CliError> {
    let global = cli.global;
    match cli.command {
        Command::Solve(args) => solve::run(*args, global),
        Command::Spmv(args) => spmv::run(&args, global),
        Command::Info(args) => info::run(&args, global),
        Command::Convert(args) => convert::run(&args, global),
        Command::Generate(args) => generate::run(&args, global),
        Command::Bench(args) => bench::run(&args, global),
        Command::Report(args) => pages::run(&args, global),
        Command::Compare(args) => compare::run(&args, global),
        Command::Corpus(args) => corpus::run(&args, global),
        Command::Doctor(args) => doctor::run(&args, global),
    }
}

/// Prints help and version as clap does, and every usage error as one line.
fn usage(error: &clap::Error) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            match output::print(&error.render().to_string()) {
                Ok(()) => Exit::Done,
                Err(_) => Exit::Internal,
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let help = error.render().to_string();
            // Without a subcommand the whole help is printed; an incomplete subcommand gets its
            // usage.
            match help.lines().find_map(|line| line.strip_prefix("Usage: ")) {
                Some(usage) if !usage.starts_with("sparsebatch [") => {
                    let usage = output::one_line(usage);
                    eprintln!("error: the command is not complete, expected {usage}");
                }
                _ => eprint!("{help}"),
            }
            Exit::BadInput
        }
        _ => {
            eprintln!("{}", output::printable(&joined(&error.render().to_string())));
            Exit::BadInput
        }
    }
}

/// The paragraphs of a clap error before its usage hint, joined.
fn joined(rendered: &str) -> String {
    let lines = rendered.lines().map(str::trim);
    let wanted = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty());
    wanted.collect::<Vec<_>>().join(" ")
}

/// Turns a panic anywhere, worker threads included, into one line and [`Exit::Internal`].
fn guarded(body: impl FnOnce() -> Exit) -> Exit {
    let reported = AtomicBool::new(false);
    std::panic::set_hook(Box::new(move |info| panics::report(info, &reported)));
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Exit::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_worker_is_an_internal_failure() {
        let exit = guarded(|| {
            rayon::join(|| panic!("on purpose"), || ());
            Exit::Done
        });

        assert_eq!(exit, Exit::Internal);
    }

    #[test]
    fn usage_errors_become_one_line() {
        let parsed = Cli::try_parse_from(["sparsebatch", "solve", "x", "--solver", "gmres"]);
        let error = parsed.err().unwrap().render().to_string();

        let line = joined(&error);

        assert!(line.starts_with("error: invalid value 'gmres' for '--solver"), "{line}");
        assert!(line.contains("auto, cg, bicgstab, lu, pivoting-lu, banded"), "{line}");
        assert!(!line.contains('\n'));
    }

    #[test]
    fn the_command_definition_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
