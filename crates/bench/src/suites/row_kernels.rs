//! The suite `row-kernels`: the four kernels of Mazzucchi 2025 on matrices of growing density and
//! on those of its Table I, beside cuSPARSE. The kernels use a thread or a warp per row, each plain
//! and refined (unrolled with read-only loads; with a tile of x in shared memory). On the processor
//! the suite measures products by rows of CSR on one thread and on all, beside other crates.
//! Everything runs in f64 and f32. As in the source, every answer is compared with that of another
//! library, here sprs.

use std::io::Write;
use std::path::PathBuf;

use sparsebatch_corpus::List;
use sparsebatch_cuda::Value;
use sparsebatch_formats::{Csr, CsrPattern, Scalar};
use sparsebatch_spmv_gpu::{SingleKernel, SingleOptions};
use sprs::CsMatI;
use sprs::prod::mul_acc_mat_vec_csr;

pub use super::Size;
use super::host_kernels::{self, HostKernel};
use super::matrices::{MatrixSource, made, with_files};
use super::one_matrix::operand;
use super::{check_names, wanted};
use crate::phases::Phase::Checking;
use crate::phases::timed;
use crate::session::{Backend, Bench, HostSession, Label, Problem, Session, Target};
use crate::solves::Real;
use crate::{BenchError, Outcome};

/// The four kernels, and the automatic choice.
pub const KERNELS: [SingleKernel; 5] = [
    SingleKernel::CsrScalar,
    SingleKernel::CsrUnrolled,
    SingleKernel::CsrVector,
    SingleKernel::CsrTile,
    SingleKernel::Auto,
];

/// Products by rows on the processor, and the automatic choice.
pub const HOST_KERNELS: [HostKernel; 3] = [HostKernel::Auto, HostKernel::Csr, HostKernel::CsrI];

/// Options of the suite.
#[derive(Clone, Debug, Default)]
pub struct RowKernels {
    /// Cases by name; when empty the generated ones and the matrices of [`List::Mazzucchi`] that
    /// are found.
    pub cases: Vec<String>,
    /// Size of the generated matrices.
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

/// Runs the suite. Prints a line per measurement to `report`.
///
/// # Errors
/// Unknown names, folders that cannot be read, an output that cannot be written, and the reason why
/// there is no GPU, if one was requested, or why it was lost. A file that cannot be read is a gap.
pub fn row_kernels(options: &RowKernels, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    let own = if options.no_generated { Vec::new() } else { generated(options.size) };
    let sources = with_files(own, &options.matrices)?;
    check_names("--case", &options.cases, sources.iter().map(|source| &source.name))?;
    let is_wanted = |source: &MatrixSource| match options.cases.is_empty() {
        true => source.is_usual(List::Mazzucchi),
        false => wanted(&options.cases, &source.name),
    };
    let target = Target::of(options.backend)?;
    let (effort, peers) = (options.size.effort(), !options.no_peer);
    let output = options.output.as_deref();
    let mut bench = Bench::start("row-kernels", &target, effort, peers, output, report)?;
    let ended = (|| {
        bench.without_gpu(&target, KERNELS.map(SingleKernel::name))?;
        bench.compile_both(&KERNELS.map(SingleOptions::with_kernel), !options.no_f32)?;
        if options.cases.is_empty() {
            bench.absent_of(List::Mazzucchi.members(), |name| {
                sources.iter().any(|s| s.name == name)
            })?;
        }
        for (source, matrix) in made(&sources, is_wanted, options.size) {
            match matrix {
                Ok(matrix) => measure(&mut bench, &source.name, &matrix, options)?,
                Err(error) => bench.gap(&source.name, "all", "all", &error.to_string())?,
            }
        }
        Ok(())
    })();
    bench.finish(ended)
}

/// Matrices with rows of equal length and growing density: random matrices, whose entries are far
/// apart, and banded ones, whose span of x fits into a tile.
fn generated(size: Size) -> Vec<MatrixSource> {
    let (rows, lengths): (usize, &[usize]) = match size {
        Size::Small => (16_384, &[1, 8, 64]),
        Size::Paper => (131_072, &[1, 4, 16, 64, 256]),
        Size::Full => (262_144, &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512]),
    };
    let anywhere = lengths.iter().map(|&length| MatrixSource::random(rows, length));
    anywhere.chain(lengths.iter().map(|&length| MatrixSource::banded(rows, length))).collect()
}

/// The product `A x` by sprs, and the largest allowed difference of each row of an answer.
struct RowReference {
    product: Vec<f64>,
    bounds: Vec<f64>,
}

impl RowReference {
    /// Multiplies by sprs in f64.
    ///
    /// Another product sums the same terms in another order and rounds to `T`, so that both differ
    /// by `2 n eps |A||x|` at most (Higham 2002, section 3.1); twice that is allowed.
    ///
    /// # Errors
    /// In words, when sprs refuses the matrix.
    fn new<T: Scalar>(matrix: &Csr<T>, x: &[T]) -> Result<Self, String> {
        let starts: Vec<usize> = matrix.row_ptr().iter().map(|&start| start as usize).collect();
        let columns: Vec<usize> = matrix.col_idx().iter().map(|&col| col as usize).collect();
        let double = |values: &[T]| values.iter().map(|value| value.to_f64()).collect::<Vec<_>>();
        let absolute = |values: &[f64]| values.iter().map(|value| value.abs()).collect::<Vec<_>>();
        let (values, x) = (double(matrix.values()), double(x));
        let times = |values: Vec<f64>, x: &[f64]| {
            let shape = (matrix.nrows(), matrix.ncols());
            let made = CsMatI::try_new(shape, starts.clone(), columns.clone(), values);
            let made = made.map_err(|(_, _, _, error)| format!("sprs: {error}"))?;
            let mut product = vec![0.0; matrix.nrows()];
            mul_acc_mat_vec_csr(made.view(), x, &mut product);
            Ok::<_, String>(product)
        };
        let magnitudes = (absolute(&values), absolute(&x));
        let (bounds, product) =
            rayon::join(|| times(magnitudes.0, &magnitudes.1), || times(values, &x));
        let (mut bounds, product) = (bounds?, product?);
        for (bound, ends) in bounds.iter_mut().zip(starts.windows(2)) {
            *bound *= 4.0 * (ends[1] - ends[0]) as f64 * T::EPSILON.to_f64();
        }
        Ok(Self { product, bounds })
    }

    /// Describes what is wrong with an answer, if anything.
    fn wrong(&self, y: &[f64]) -> Option<String> {
        let agrees = |row: usize| (y[row] - self.product[row]).abs() <= self.bounds[row];
        if y.len() != self.product.len() {
            return Some(format!("{} rows, expected {}", y.len(), self.product.len()));
        }
        let row = (0..y.len()).find(|&row| !agrees(row))?;
        let (found, expected, bound) = (y[row], self.product[row], self.bounds[row]);
        Some(format!("row {row}: {found:e}, sprs has {expected:e}, within {bound:e}"))
    }
}

/// Measures all contenders on one matrix, in both precisions.
fn measure(
    bench: &mut Bench<'_>,
    name: &str,
    matrix: &Csr<f64>,
    options: &RowKernels,
) -> Result<(), BenchError> {
    one_precision(bench, name, "all", matrix, options)?;
    match options.no_f32 {
        true => Ok(()),
        false => one_precision(bench, name, "all, f32", &matrix.cast::<f32>(), options),
    }
}

/// Measures all contenders on one matrix; `all` names them where there is no reference.
fn one_precision<T: Real>(
    bench: &mut Bench<'_>,
    name: &str,
    all: &str,
    matrix: &Csr<T>,
    options: &RowKernels,
) -> Result<(), BenchError> {
    let x: Vec<T> = operand(matrix.ncols());
    let reference = match timed(Checking, || RowReference::new(matrix, &x)) {
        Ok(reference) => reference,
        Err(reason) => return bench.gap(name, "all", all, &reason),
    };
    let oracle = |y: &[f64]| reference.wrong(y);
    let problem = problem(name, matrix, &oracle);
    if let Some(session) = bench.gpu() {
        on_gpu(session, &problem, matrix, &x)?;
        session.measure_peer_of(&problem, matrix.view(), &x)?;
    }
    if let Some(mut session) = bench.host() {
        on_host(&mut session, &problem, matrix, &x)?;
        if !options.no_peer {
            let mut operands = session.operands(&problem, &x);
            host_kernels::crates(&mut session, &problem, "csr", matrix, &mut operands)?;
        }
    }
    Ok(())
}

fn problem<'a, T: Scalar>(
    case: &'a str,
    matrix: &Csr<T>,
    oracle: &'a dyn Fn(&[f64]) -> Option<String>,
) -> Problem<'a> {
    let (nrows, ncols, nnz) = (matrix.nrows(), matrix.ncols(), matrix.nnz());
    Problem { case, experiment: None, batch: 1, nrows, ncols, nnz, oracle }
}

/// Measures our kernels on the GPU.
fn on_gpu<T: Value>(
    session: &mut Session<'_>,
    problem: &Problem<'_>,
    matrix: &Csr<T>,
    x: &[T],
) -> Result<(), BenchError> {
    let mut operands = session.operands(problem, x)?;
    let contenders = KERNELS.map(|kernel| {
        let label = Label::ours(kernel.name(), kernel == SingleKernel::Auto);
        (label, SingleOptions::with_kernel(kernel))
    });
    session.measure_singles(problem, matrix.view(), &contenders, &mut operands)?;
    Ok(())
}

/// Measures our products by rows on the processor: sequential, on one thread and on all.
fn on_host<T: Real>(
    session: &mut HostSession<'_, '_>,
    problem: &Problem<'_>,
    matrix: &Csr<T>,
    x: &[T],
) -> Result<(), BenchError> {
    let mut operands = session.operands(problem, x);
    let plain = ("csr", &());
    host_kernels::sequential::<CsrPattern, T>(session, problem, plain, matrix, &mut operands)?;
    host_kernels::ours_on_one_too(session, problem, matrix, &mut operands, &HOST_KERNELS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::accuracy::spmv_exact;
    use sparsebatch_formats::generate::random;

    #[test]
    fn both_references_agree_and_errors_are_found() {
        let matrix = random(200, 150, 7, 3).unwrap();
        let x: Vec<f64> = (0..150).map(|col| f64::from(col).sin()).collect();
        let reference = RowReference::new(&matrix, &x).unwrap();
        let (mut y, _) = spmv_exact(matrix.view(), &x);

        assert_eq!(reference.wrong(&y), None);
        y[17] *= 1.0 + 1e-12;
        assert!(reference.wrong(&y).unwrap().starts_with("row 17: "));
        y[3] = f64::NAN;
        assert!(reference.wrong(&y).unwrap().starts_with("row 3: NaN"));
        assert_eq!(reference.wrong(&y[1..]).unwrap(), "199 rows, expected 200");
    }

    #[test]
    fn in_f32_the_bound_is_that_of_its_rounding() {
        let matrix = random(200, 150, 7, 3).unwrap().cast::<f32>();
        let x: Vec<f32> = (0..150).map(|col| f64::from(col).sin() as f32).collect();
        let reference = RowReference::new(&matrix, &x).unwrap();
        let (mut y, _) = spmv_exact(matrix.view(), &x);

        y[5] *= 1.0 + 1e-7;
        assert_eq!(reference.wrong(&y), None);
        y[5] *= 1.0 + 1e-3;
        assert!(reference.wrong(&y).unwrap().starts_with("row 5: "));
    }

    #[test]
    fn matrices_grow_denser_and_keep_their_rows() {
        let found = generated(Size::Small);

        let made: Vec<Csr<f64>> = found.iter().map(|source| source.matrix().unwrap()).collect();
        assert_eq!(made.len(), 6);
        assert!(made.iter().all(|matrix| matrix.nrows() == 16_384));
        let counts: Vec<usize> = made[..3].iter().map(Csr::nnz).collect();
        assert_eq!(counts, [16_384, 8 * 16_384, 64 * 16_384]);
        assert!(found.iter().all(|source| source.is_usual(List::Mazzucchi)));
    }

    #[test]
    fn the_four_kernels_are_measured_with_the_automatic_one() {
        let names = KERNELS.map(SingleKernel::name);

        assert_eq!(names, ["csr-scalar", "csr-unrolled", "csr-vector", "csr-tile", "auto"]);
    }
}
