//! The suite `cpu`: products with one matrix by every format and kernel of the processor on 1 to
//! all threads, beside the crates sprs, faer and nalgebra-sparse, which run on one thread.

use std::io::Write;
use std::path::PathBuf;

use rayon::ThreadPoolBuilder;
use sparsebatch_formats::Csr;

pub use super::Size;
use super::host_kernels::{self, HostKernel, in_turns};
use super::matrices::{MatrixSource, generated, made, with_files};
use super::one_matrix::OneMatrix;
use super::{check_names, wanted};
use crate::session::{Bench, HostSession, Label, Turn};
use crate::{BenchError, Outcome};

/// The reason in gaps of the libraries that are not Rust's: another program measures them.
pub(super) const PEERS_SCRIPT: &str = "not in process: benches/peers/run.sh measures it";

/// Options of the suite.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    /// Cases by name; all when empty.
    pub cases: Vec<String>,
    /// Kernels; all when empty.
    pub kernels: Vec<HostKernel>,
    /// Numbers of threads. When empty: all threads and the powers of two below that; at small size
    /// 1 and all.
    pub threads: Vec<usize>,
    /// Size of the generated matrices.
    pub size: Size,
    /// Folders of further matrices to measure.
    pub matrices: Vec<PathBuf>,
    /// Whether the generated matrices are left out.
    pub no_generated: bool,
    /// Whether other crates are left out.
    pub no_peer: bool,
    /// The file that the rows are written to.
    pub output: Option<PathBuf>,
}

/// Runs the suite. Prints a line per measurement to `report`.
///
/// # Errors
/// Unknown names, no case at all, more threads than can be started, folders that cannot be read, an
/// output that cannot be written. A file that cannot be read is a gap.
pub fn cpu(options: &Cpu, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    let sources = sources(options)?;
    check_names("--case", &options.cases, sources.iter().map(|source| &source.name))?;
    let pools = pools(options)?;
    let kernels = match options.kernels.as_slice() {
        [] => HostKernel::ALL.to_vec(),
        given => given.to_vec(),
    };
    let (effort, peers) = (options.size.effort(), !options.no_peer);
    let mut bench = Bench::on_host("cpu", effort, options.output.as_deref(), report)?;
    let ended = (|| {
        if peers {
            for library in ["MKL", "Eigen", "SciPy"] {
                bench.gap("all", library, "csr", PEERS_SCRIPT)?;
            }
        }
        let is_wanted = |source: &MatrixSource| wanted(&options.cases, &source.name);
        for (source, matrix) in made(&sources, is_wanted, options.size) {
            match matrix {
                Ok(matrix) => {
                    let Some(mut session) = bench.host() else { continue };
                    measure(&mut session, &source.name, &matrix, &kernels, &pools, peers)?;
                }
                Err(error) => {
                    bench.gap(&source.name, "all", "all", &format!("not read: {error}"))?;
                }
            }
        }
        Ok(())
    })();
    bench.finish(ended)
}

/// The Laplacians, the banded and the Pareto families, and the files of the folders.
fn sources(options: &Cpu) -> Result<Vec<MatrixSource>, BenchError> {
    let mut sources = if options.no_generated { Vec::new() } else { generated(options.size) };
    let families = ["laplace ", "banded ", "pareto "];
    sources.retain(|source| families.iter().any(|family| source.name.starts_with(family)));
    let sources = with_files(sources, &options.matrices)?;
    if sources.is_empty() {
        return Err(BenchError::Option {
            option: "--matrices",
            expected: "a folder with .mtx files if --no-generated is given".to_owned(),
            found: "none".to_owned(),
        });
    }
    Ok(sources)
}

/// The numbers of threads to measure, ascending.
fn thread_counts(size: Size, all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = match size {
        Size::Small => vec![1, all],
        Size::Paper | Size::Full => {
            let powers = (0..).map(|power| 1 << power);
            powers.take_while(|&count| count < all).chain([all]).collect()
        }
    };
    counts.dedup();
    counts
}

/// Thread pools, each with its number of threads.
fn pools(options: &Cpu) -> Result<Vec<(usize, rayon::ThreadPool)>, BenchError> {
    let counts = match options.threads.as_slice() {
        [] => thread_counts(options.size, rayon::current_num_threads()),
        given => given.to_vec(),
    };
    let pool = |count: usize| {
        let pool = ThreadPoolBuilder::new().num_threads(count).build();
        let refused = |error: rayon::ThreadPoolBuildError| BenchError::Option {
            option: "--threads",
            expected: format!("a number of threads that can be started ({error})"),
            found: count.to_string(),
        };
        Ok((count, pool.map_err(refused)?))
    };
    counts.into_iter().map(pool).collect()
}

/// Measures all kernels on all numbers of threads, and the crates.
fn measure(
    session: &mut HostSession<'_, '_>,
    name: &str,
    matrix: &Csr<f64>,
    kernels: &[HostKernel],
    pools: &[(usize, rayon::ThreadPool)],
    peers: bool,
) -> Result<(), BenchError> {
    let made = OneMatrix::new(name, matrix);
    let oracle = |y: &[f64]| made.wrong(y);
    let problem = made.problem(&oracle);
    let mut operands = session.operands(&problem, &made.x);
    let most = pools.iter().map(|(count, _)| *count).max();
    for &kernel in kernels {
        let label = |(count, _): &(usize, rayon::ThreadPool)| {
            let threads = if *count == 1 { "thread" } else { "threads" };
            // The default of a user runs on all threads.
            let automatic = kernel == HostKernel::Auto && Some(*count) == most;
            Label::ours(format!("{kernel}, {count} {threads}"), automatic)
        };
        // The largest pool runs first: it touches all copies soonest.
        let turn = |one| Turn { label: label(one), pool: Some(&one.1) };
        let turns = pools.iter().rev().map(turn).collect();
        let options = kernel.options();
        in_turns(session, &problem, matrix.into(), &mut operands, turns, &options)?;
    }
    if peers {
        host_kernels::crates(session, &problem, "csr", matrix, &mut operands)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_go_up_by_powers_of_two_to_all_of_them() {
        assert_eq!(thread_counts(Size::Paper, 12), [1, 2, 4, 8, 12]);
        assert_eq!(thread_counts(Size::Paper, 8), [1, 2, 4, 8]);
        assert_eq!(thread_counts(Size::Small, 8), [1, 8]);
        assert_eq!(thread_counts(Size::Full, 1), [1]);
        assert_eq!(thread_counts(Size::Small, 1), [1]);
    }

    #[test]
    fn families_are_those_of_stencils_bands_and_long_rows() {
        let found = sources(&Cpu { size: Size::Small, ..Cpu::default() }).unwrap();

        assert_eq!(found.len(), 5 + 4 + 5);
        assert!(sources(&Cpu { no_generated: true, ..Cpu::default() }).is_err());
    }
}
