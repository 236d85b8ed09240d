//! The suite `sell-p`: SELL-P of Anzt, Tomov and Dongarra 2014 (UT-EECS-14-727), swept over rows
//! per slice and threads per row, with and without sorting (Kreutzer et al. 2014, doi
//! 10.1137/130930352). A table sets padding beside speed. Other formats are measured too: ours, and
//! those of cuSPARSE or, on the processor, of other crates. In f32 only the shapes of the source
//! are measured.

mod shape;

use std::io::Write;
use std::path::PathBuf;

use sparsebatch_corpus::List;
use sparsebatch_cuda::Value;
use sparsebatch_formats::generate::Stencil;
use sparsebatch_formats::{Csr, SellPPattern};
use sparsebatch_spmv_gpu::single::SingleExplain;
use sparsebatch_spmv_gpu::{SingleKernel, SingleOptions};

pub use self::shape::Shape;
pub use super::Size;
use super::host_kernels::{self, HostKernel};
use super::matrices::{MatrixSource, laplacians, made, with_files};
use super::one_matrix::OneMatrix;
use super::{check_names, wanted};
use crate::session::{Backend, Bench, HostSession, Label, Session, Target};
use crate::solves::Real;
use crate::{BenchError, Outcome};

/// Options of the suite.
#[derive(Clone, Debug, Default)]
pub struct SellP {
    /// Cases by name; when empty the generated ones and the matrices of [`List::SellP`] that are
    /// found.
    pub cases: Vec<String>,
    /// Shapes; when empty those of `size`.
    pub shapes: Vec<Shape>,
    /// Extent of the suite.
    pub size: Size,
    /// Folders with matrices.
    pub matrices: Vec<PathBuf>,
    /// Whether the generated matrices are left out.
    pub no_generated: bool,
    /// Whether f32 is left out.
    pub no_f32: bool,
    /// The devices to measure; when absent the GPU if there is one, else the processor.
    pub backend: Option<Backend>,
    /// Whether cuSPARSE and other crates are left out.
    pub no_peer: bool,
    /// The file that the rows are written to.
    pub output: Option<PathBuf>,
}

/// Our formats among those that the source compares with, and the automatic choice.
const OTHERS: [SingleKernel; 5] = [
    SingleKernel::Auto,
    SingleKernel::CsrVector,
    SingleKernel::Ell,
    SingleKernel::Hyb,
    SingleKernel::Sell,
];

/// The equivalents of [`OTHERS`] on the processor.
const OTHERS_ON_HOST: [HostKernel; 5] =
    [HostKernel::Auto, HostKernel::Csr, HostKernel::Ell, HostKernel::Hyb, HostKernel::SellPRuns];

/// Runs the suite. Prints a line per measurement to `report`, and after each case a table of
/// padding beside time.
///
/// # Errors
/// Unknown names, folders that cannot be read, an output that cannot be written, and the reason why
/// there is no GPU, if one was requested, or why it was lost. A file that cannot be read is a gap.
pub fn sell_p(options: &SellP, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    let own = if options.no_generated { Vec::new() } else { generated(options.size) };
    let sources = with_files(own, &options.matrices)?;
    check_names("--case", &options.cases, sources.iter().map(|source| &source.name))?;
    let is_wanted = |source: &MatrixSource| match options.cases.is_empty() {
        true => source.is_usual(List::SellP),
        false => wanted(&options.cases, &source.name),
    };
    let shapes = match options.shapes.as_slice() {
        [] => Shape::all(options.size),
        given => given.to_vec(),
    };
    let target = Target::of(options.backend)?;
    let (effort, peers) = (options.size.effort(), !options.no_peer);
    let output = options.output.as_deref();
    let mut bench = Bench::start("sell-p", &target, effort, peers, output, report)?;
    let ended = (|| {
        let names = shapes.iter().map(Shape::to_string);
        bench.without_gpu(&target, names.chain(OTHERS.map(|kernel| kernel.to_string())))?;
        let kernels = shapes.iter().take(1).map(|shape| shape.options());
        let kernels = kernels.chain(OTHERS.map(SingleOptions::with_kernel));
        bench.compile_both(&kernels.collect::<Vec<_>>(), !options.no_f32)?;
        if options.cases.is_empty() {
            bench
                .absent_of(List::SellP.members(), |name| sources.iter().any(|s| s.name == name))?;
        }
        for (source, matrix) in made(&sources, is_wanted, options.size) {
            match matrix {
                Ok(matrix) => measure(&mut bench, &source.name, &matrix, &shapes, options)?,
                Err(error) => bench.gap(&source.name, "all", "all", &error.to_string())?,
            }
        }
        Ok(())
    })();
    bench.finish(ended)
}

/// The shapes that are measured in f32: all at full size or if shapes were requested, else
/// [`Shape::SOURCE`] and [`Shape::WARP`].
fn in_f32(shapes: &[Shape], options: &SellP) -> Vec<Shape> {
    let all = options.size == Size::Full || !options.shapes.is_empty();
    let is_in = |shape: &Shape| all || [Shape::SOURCE, Shape::WARP].contains(shape);
    shapes.iter().copied().filter(is_in).collect()
}

/// `Trefethen_20000` of Table I, and generated matrices of the kinds of that table: grids, bands,
/// rows of very different length.
fn generated(size: Size) -> Vec<MatrixSource> {
    let (rows, bands) = if size == Size::Small { (3_000, 26_214) } else { (30_000, 262_144) };
    let mut found = vec![MatrixSource::trefethen()];
    let stencils = [Stencil::Point7, Stencil::Point27].map(|stencil| stencil.points());
    found.extend(laplacians(size).into_iter().filter(|source| {
        stencils.iter().any(|points| source.name.starts_with(&format!("laplace {points}-point")))
    }));
    found.extend([1.0, 1.5, 2.0].map(|shape| MatrixSource::pareto(rows, shape)));
    found.push(MatrixSource::banded(bands, 16));
    found
}

/// A line of the table after a case: padding, and bytes that a product moves.
struct Padding {
    configuration: String,
    slots_per_entry: f64,
    bytes_moved: usize,
}

impl Padding {
    fn line(&self, case: &str) -> String {
        let Self { configuration, slots_per_entry, bytes_moved } = self;
        format!(
            "{case:<22} {configuration:<20} {slots_per_entry:.3} slots an entry, {bytes_moved} bytes"
        )
    }
}

/// Measures all contenders on one matrix, in both precisions.
fn measure(
    bench: &mut Bench<'_>,
    name: &str,
    matrix: &Csr<f64>,
    shapes: &[Shape],
    options: &SellP,
) -> Result<(), BenchError> {
    one_precision(bench, name, matrix, shapes, options)?;
    match options.no_f32 {
        true => Ok(()),
        false => {
            one_precision(bench, name, &matrix.cast::<f32>(), &in_f32(shapes, options), options)
        }
    }
}

fn one_precision<T: Real>(
    bench: &mut Bench<'_>,
    name: &str,
    matrix: &Csr<T>,
    shapes: &[Shape],
    options: &SellP,
) -> Result<(), BenchError> {
    let made = OneMatrix::new(name, matrix);
    let oracle = |y: &[f64]| made.wrong(y);
    let problem = made.problem(&oracle);
    if let Some(session) = bench.gpu() {
        on_gpu(session, &made, shapes)?;
        session.measure_peer_of(&problem, matrix.view(), &made.x)?;
    }
    if let Some(mut session) = bench.host() {
        on_host(&mut session, &made, shapes)?;
        if !options.no_peer {
            let mut operands = session.operands(&problem, &made.x);
            host_kernels::crates(&mut session, &problem, "csr", matrix, &mut operands)?;
        }
    }
    Ok(())
}

/// Measures our shapes and formats on the GPU, then prints their padding.
fn on_gpu<T: Value>(
    session: &mut Session<'_>,
    made: &OneMatrix<'_, T>,
    shapes: &[Shape],
) -> Result<(), BenchError> {
    let oracle = |y: &[f64]| made.wrong(y);
    let problem = made.problem(&oracle);
    let mut operands = session.operands(&problem, &made.x)?;
    let ours = shapes.iter().map(|shape| (shape.to_string(), shape.options()));
    let others =
        OTHERS.into_iter().map(|kernel| (kernel.to_string(), SingleOptions::with_kernel(kernel)));
    let contender = |(name, options): (String, SingleOptions)| {
        (Label::ours(name, options.kernel == SingleKernel::Auto), options)
    };
    let contenders: Vec<_> = ours.chain(others).map(contender).collect();
    let view = made.matrix.view();
    let explained = session.measure_singles(&problem, view, &contenders, &mut operands)?;
    let padding = |((label, _), explain): (&(Label, SingleOptions), Option<SingleExplain>)| {
        let explain = explain?;
        Some(Padding {
            configuration: label.configuration.clone(),
            slots_per_entry: explain.stored_len as f64 / (explain.nnz as f64).max(1.0),
            bytes_moved: explain.bytes_moved(false),
        })
    };
    let paddings: Vec<Padding> = contenders.iter().zip(explained).filter_map(padding).collect();
    paddings.iter().try_for_each(|padding| session.note(&padding.line(made.case)))
}

/// Measures our shapes on one thread and on all, the source's shape also sequentially, and other
/// formats; then prints their padding.
fn on_host<T: Real>(
    session: &mut HostSession<'_, '_>,
    made: &OneMatrix<'_, T>,
    shapes: &[Shape],
) -> Result<(), BenchError> {
    let oracle = |y: &[f64]| made.wrong(y);
    let problem = made.problem(&oracle);
    let matrix = made.matrix;
    let mut operands = session.operands(&problem, &made.x);
    let mut paddings = Vec::new();
    for shape in shapes {
        let configuration = format!("cpu-{shape}");
        let turns = session.on_all_and_one(Label::ours(configuration.clone(), false));
        let explain = host_kernels::in_turns(
            session,
            &problem,
            matrix.into(),
            &mut operands,
            turns,
            &shape.on_host(),
        )?;
        paddings.extend(explain.map(|explain| Padding {
            configuration,
            slots_per_entry: explain.stored_len as f64 / (explain.nnz as f64).max(1.0),
            bytes_moved: explain.product_bytes,
        }));
    }
    if shapes.contains(&Shape::SOURCE) {
        let (name, options) = (Shape::SOURCE.to_string(), Shape::SOURCE.slices());
        let plain = (name.as_str(), &options);
        host_kernels::sequential::<SellPPattern, T>(
            session,
            &problem,
            plain,
            matrix,
            &mut operands,
        )?;
    }
    host_kernels::ours(session, &problem, matrix, &mut operands, &OTHERS_ON_HOST)?;
    paddings.iter().try_for_each(|padding| session.note(&padding.line(made.case)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_f32_the_shapes_of_the_source_are_measured_or_those_asked_for() {
        let all = Shape::all(Size::Paper);
        let with =
            |size, shapes: &[Shape]| SellP { size, shapes: shapes.to_vec(), ..SellP::default() };

        assert_eq!(in_f32(&all, &with(Size::Paper, &[])), [Shape::SOURCE, Shape::WARP]);
        assert_eq!(in_f32(&all, &with(Size::Full, &[])), all);
        let asked = [all[3], all[7]];
        assert_eq!(in_f32(&asked, &with(Size::Small, &asked)), asked);
    }

    #[test]
    fn of_files_those_of_the_table_are_measured() {
        let file = |name: &str| MatrixSource::file(name.to_owned(), PathBuf::from("x"));

        assert!(file("cant").is_usual(List::SellP) && !file("G2").is_usual(List::SellP));
        let cases = generated(Size::Small);
        assert!(cases.iter().all(|source| source.is_usual(List::SellP)));
        let names: Vec<&str> = cases.iter().map(|source| source.name.as_str()).collect();
        assert_eq!(names[..2], ["Trefethen_20000", "laplace 7-point 46x46x46"]);
        assert_eq!(names[2], "laplace 27-point 46x46x46");
    }
}
