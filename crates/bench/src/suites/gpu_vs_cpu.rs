//! The suite `gpu-vs-cpu`: products and solves on the GPU against those of this library on all
//! cores in the same run, with data on the GPU and with copies from the host and back.

use std::io::Write;
use std::path::PathBuf;

use sparsebatch_formats::generate::{Family, MIX};
use sparsebatch_solvers::{Backend, Gpu};

use super::cpu::PEERS_SCRIPT;
use super::families::Systemed;
use super::matrices::{MatrixSource, generated, with_files};
use super::one_matrix::OneMatrix;
use super::products::{self, ProductSource};
use super::wanted;
pub use super::{OnMachines, Size};
use crate::phases::Phase::Making;
use crate::phases::timed;
use crate::session::{Bench, Effort, Target};
use crate::solves::session::{SolveProblem, SolveSession};
use crate::{BenchError, Outcome};
use sparsebatch_rows::versus;

/// Options of the suite.
#[derive(Clone, Debug, Default)]
pub struct GpuVsCpu {
    /// The batches and devices to measure.
    pub on: OnMachines,
    /// Folders of further matrices to multiply.
    pub matrices: Vec<PathBuf>,
}

/// Runs the suite. Prints a line per measurement to `report`.
///
/// # Errors
/// Unknown names, folders that cannot be read, an output that cannot be written, and the reason why
/// there is no GPU, if one was requested, or why it was lost.
pub fn gpu_vs_cpu(options: &GpuVsCpu, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    let OnMachines { cases, items, size, backend, output } = &options.on;
    let sources = sources(options)?;
    let families = options.on.wanted_of(families(*size), &sources)?;
    let items = items.unwrap_or(match size {
        Size::Small => 1_000,
        Size::Paper => 10_000,
        Size::Full => 40_000,
    });
    let like = families.iter().map(|&(family, nrows)| Systemed::like(family, nrows, items));
    let like = like.collect::<Result<Vec<_>, _>>()?;
    let target = Target::with_host(*backend)?;
    let (effort, output) = (size.effort(), output.as_deref());
    let mut bench = Bench::start("gpu-vs-cpu", &target, effort, false, output, &mut *report)?;
    let ended = (|| {
        bench.gap("all", "MKL", "csr", PEERS_SCRIPT)?;
        if !target.host {
            bench.gap(
                "all",
                "sparsebatch",
                "all kernels of the CPU",
                "left out by --backend gpu",
            )?;
        }
        bench.compile_batches(like.iter().map(Systemed::batch))?;
        for &(family, nrows) in &families {
            multiply_batch(&mut bench, family, (nrows, items), effort)?;
        }
        for source in sources.iter().filter(|source| wanted(cases, &source.name)) {
            multiply_matrix(&mut bench, source, effort)?;
        }
        Ok(())
    })();
    if ended.is_err() {
        return bench.finish(ended);
    }
    let mut session = SolveSession::of(bench, false)?;
    let jobs: Vec<_> = like.iter().map(|like| (&like.systems, like.solve())).collect();
    let ended = (|| {
        session.compile(&jobs)?;
        for &(family, nrows) in &families {
            solve_batch(&mut session, family, (nrows, items))?;
        }
        Ok(())
    })();
    let outcome = session.finish(ended)?;
    writeln!(report, "{}", versus::text(&outcome.rows)).map_err(BenchError::Print)?;
    Ok(outcome)
}

/// Measures the product with a batch of `items` matrices of a family.
fn multiply_batch(
    bench: &mut Bench<'_>,
    family: Family,
    (nrows, items): (usize, usize),
    effort: Effort,
) -> Result<(), BenchError> {
    let made = timed(Making, || Systemed::family(family, nrows, items))?;
    let oracle = |y: &[f64]| made.wrong(y);
    let problem = made.problem(None, &oracle);
    let product = ProductSource::Batch(made.batch());
    products::measure(bench, &problem, product, made.x(), Some(effort))
}

/// Measures the product with one matrix. A matrix that cannot be read is a gap.
fn multiply_matrix(
    bench: &mut Bench<'_>,
    source: &MatrixSource,
    effort: Effort,
) -> Result<(), BenchError> {
    let matrix = match timed(Making, || source.matrix()) {
        Ok(matrix) => matrix,
        Err(error) => {
            return bench.gap(&source.name, "all", "all", &format!("not read: {error}"));
        }
    };
    let one = OneMatrix::new(&source.name, &matrix);
    let oracle = |y: &[f64]| one.wrong(y);
    let problem = one.problem(&oracle);
    let product = ProductSource::Matrix(&matrix);
    products::measure(bench, &problem, product, &one.x, Some(effort))
}

/// Measures the solves of a batch of `items` systems of a family: on the GPU with data there, with
/// data on the host, and on the CPU.
fn solve_batch(
    session: &mut SolveSession<'_>,
    family: Family,
    (nrows, items): (usize, usize),
) -> Result<(), BenchError> {
    let made = timed(Making, || Systemed::family(family, nrows, items))?;
    let problem = SolveProblem::new(&made.name, &made.systems);
    let solve = made.solve();
    session.gpu(&problem, &solve, None)?;
    let on = |device| Ok(Backend::Gpu(Gpu::new(device)));
    session.end_to_end(&problem, &solve, ("all from the host", None), on, None)?;
    session.cpu(&problem, &solve)
}

/// The families of a size.
fn families(size: Size) -> Vec<(Family, usize)> {
    match size {
        Size::Small => {
            vec![(Family::Tri, 32), (Family::Tri, 128), (Family::Lap2d, 256), (Family::Rand9, 144)]
        }
        Size::Paper | Size::Full => MIX.to_vec(),
    }
}

/// Two stencils, a band and a matrix with long rows; then the files of the folders.
fn sources(options: &GpuVsCpu) -> Result<Vec<MatrixSource>, BenchError> {
    let kinds = ["laplace 7-point", "laplace 27-point", "banded 16", "pareto 2"];
    let mut sources = generated(options.on.size);
    sources.retain(|source| kinds.iter().any(|kind| source.name.starts_with(kind)));
    with_files(sources, &options.matrices)
}
