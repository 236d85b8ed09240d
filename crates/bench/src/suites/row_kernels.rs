//! The suite `row-kernels`: the four kernels of Mazzucchi 2025 — a thread and a warp per row, each
//! plain and refined (unrolled with read-only loads, with a tile of x in shared memory) — on
//! matrices of growing density and on those of its Table I, beside cuSPARSE. As there every answer is
//! compared with that of another library: sprs.

use std::io::Write;
use std::path::PathBuf;

use sparsebatch_corpus::List;
use sparsebatch_formats::Csr;
use sparsebatch_formats::generate::rng;
use sparsebatch_spmv_gpu::{SingleKernel, SingleOptions, SinglePlan};
use sprs::CsMatI;
use sprs::prod::mul_acc_mat_vec_csr;

pub use super::Size;
use super::matrices::Source;
use super::{check_names, files, wanted};
use crate::contender::Contender;
use crate::cusparse::HostCsr;
use crate::session::{Label, Problem, Session};
use crate::{BenchError, Outcome};

/// The four kernels, and what is chosen by itself.
pub const KERNELS: [SingleKernel; 5] = [
    SingleKernel::CsrScalar,
    SingleKernel::CsrUnrolled,
    SingleKernel::CsrVector,
    SingleKernel::CsrTile,
    SingleKernel::Auto,
];

/// What the suite shall measure.
#[derive(Clone, Debug, Default)]
pub struct RowKernels {
    /// Cases by name; when empty the generated ones and those of [`List::Mazzucchi`] that are there.
    pub cases: Vec<String>,
    /// How much is generated.
    pub size: Size,
    /// Folders with matrices.
    pub matrices: Vec<PathBuf>,
    /// Whether the generated matrices are left out.
    pub no_generated: bool,
    /// Whether cuSPARSE is left out.
    pub no_peer: bool,
    /// The file for the rows.
    pub output: Option<PathBuf>,
}

/// Runs the suite. Lines of what is measured go to `report`.
///
/// # Errors
/// Names that nothing answers to, folders that cannot be read, an output that cannot be written,
/// and the reason why there is no GPU or it was lost. A file that cannot be read is a gap.
pub fn row_kernels(options: &RowKernels, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    let sources = sources(options)?;
    check_names("--case", &options.cases, sources.iter().map(|source| &source.name))?;
    let is_wanted = |source: &&Source| match options.cases.is_empty() {
        true => source.is_usual(List::Mazzucchi),
        false => wanted(&options.cases, &source.name),
    };
    let output = options.output.as_deref();
    let mut session = Session::start("row-kernels", !options.no_peer, output, report)?;
    let ended = (|| {
        if options.cases.is_empty() {
            session.absent_of(List::Mazzucchi.members(), |name| {
                sources.iter().any(|s| s.name == name)
            })?;
        }
        for source in sources.iter().filter(is_wanted) {
            match source.matrix() {
                Ok(matrix) => measure(&mut session, &source.name, &matrix)?,
                Err(error) => session.absent(&source.name, &error.to_string())?,
            }
        }
        Ok(())
    })();
    session.finish(ended)
}

fn sources(options: &RowKernels) -> Result<Vec<Source>, BenchError> {
    let mut sources = match options.no_generated {
        true => Vec::new(),
        false => generated(options.size),
    };
    for folder in &options.matrices {
        sources.extend(files(folder)?.into_iter().map(|(name, path)| Source::file(name, path)));
    }
    Ok(sources)
}

/// Rows of equal length, anywhere or next to each other, from sparse to less so: entries far apart,
/// and such whose span of x fits into a tile.
fn generated(size: Size) -> Vec<Source> {
    let (rows, lengths): (usize, &[usize]) = match size {
        Size::Small => (16_384, &[1, 8, 64]),
        Size::Paper => (131_072, &[1, 2, 4, 8, 16, 32, 64, 128, 256]),
        Size::Full => (262_144, &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512]),
    };
    let anywhere = lengths.iter().map(|&length| Source::random(rows, length));
    anywhere.chain(lengths.iter().map(|&length| Source::banded(rows, length))).collect()
}

/// Products by sprs: `A x`, and `|A| |x|`, the scale of its rounding errors.
struct Reference {
    product: Vec<f64>,
    scale: Vec<f64>,
    row_lengths: Vec<usize>,
}

impl Reference {
    /// Multiplies.
    ///
    /// # Errors
    /// In words, when sprs refuses the matrix.
    fn new(matrix: &Csr<f64>, x: &[f64]) -> Result<Self, String> {
        let starts: Vec<usize> = matrix.row_ptr().iter().map(|&start| start as usize).collect();
        let times = |values: Vec<f64>, x: &[f64]| {
            let shape = (matrix.nrows(), matrix.ncols());
            let columns: Vec<usize> = matrix.col_idx().iter().map(|&col| col as usize).collect();
            let made = CsMatI::try_new(shape, starts.clone(), columns, values);
            let made = made.map_err(|(_, _, _, error)| format!("sprs: {error}"))?;
            let mut product = vec![0.0; matrix.nrows()];
            mul_acc_mat_vec_csr(made.view(), x, &mut product);
            Ok::<_, String>(product)
        };
        let absolute = |values: &[f64]| values.iter().map(|value| value.abs()).collect::<Vec<_>>();
        Ok(Self {
            product: times(matrix.values().to_vec(), x)?,
            scale: times(absolute(matrix.values()), &absolute(x))?,
            row_lengths: starts.windows(2).map(|ends| ends[1] - ends[0]).collect(),
        })
    }

    /// What is wrong with an answer: both are sums of the same products in another order, so that
    /// they differ by `2 n eps |A||x|` at most (Higham 2002, section 3.1); as much again is allowed.
    fn wrong(&self, y: &[f64]) -> Option<String> {
        let bound =
            |row: usize| 4.0 * self.row_lengths[row] as f64 * f64::EPSILON * self.scale[row];
        let agrees = |row: usize| (y[row] - self.product[row]).abs() <= bound(row);
        if y.len() != self.product.len() {
            return Some(format!("{} rows, expected {}", y.len(), self.product.len()));
        }
        let row = (0..y.len()).find(|&row| !agrees(row))?;
        let (found, expected) = (y[row], self.product[row]);
        Some(format!("row {row}: {found:e}, sprs has {expected:e}, within {:e}", bound(row)))
    }
}

/// Measures all contenders on one matrix.
fn measure(session: &mut Session<'_>, name: &str, matrix: &Csr<f64>) -> Result<(), BenchError> {
    let view = matrix.view();
    let x: Vec<f64> =
        (0..matrix.ncols() as u64).map(|col| 2.0 * rng::uniform(96, 0, col) - 1.0).collect();
    let reference = match Reference::new(matrix, &x) {
        Ok(reference) => reference,
        Err(reason) => return session.absent(name, &reason),
    };
    let oracle = |y: &[f64]| reference.wrong(y);
    let problem = Problem {
        case: name,
        experiment: None,
        batch: 1,
        nrows: matrix.nrows(),
        ncols: matrix.ncols(),
        nnz: matrix.nnz(),
        oracle: &oracle,
    };
    let pace = session.pace(&problem);
    let mut operands = session.operands(&problem, &x)?;
    let device = session.device.clone();
    for kernel in KERNELS {
        let options = SingleOptions::with_kernel(kernel);
        let contender = Contender::new(&mut operands, |_| SinglePlan::new(&device, view, &options));
        let label = Label::ours(kernel.name(), kernel == SingleKernel::Auto);
        let bytes = |plan: &SinglePlan<_, _>| plan.explain().bytes_moved(false) as u64;
        session.measure(&problem, &label, pace, contender, bytes)?;
    }
    let host = HostCsr::single(view.pattern(), view.values());
    session.measure_formats(&problem, "", &host, &mut operands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::generate::random;
    use sparsebatch_formats::testing::spmv_exact;

    #[test]
    fn both_references_agree_and_errors_are_found() {
        let matrix = random(200, 150, 7, 3).unwrap();
        let x: Vec<f64> = (0..150).map(|col| f64::from(col).sin()).collect();
        let reference = Reference::new(&matrix, &x).unwrap();
        let (mut y, _) = spmv_exact(matrix.view(), &x);

        assert_eq!(reference.wrong(&y), None);
        y[17] *= 1.0 + 1e-12;
        assert!(reference.wrong(&y).unwrap().starts_with("row 17: "));
        y[3] = f64::NAN;
        assert!(reference.wrong(&y).unwrap().starts_with("row 3: NaN"));
        assert_eq!(reference.wrong(&y[1..]).unwrap(), "199 rows, expected 200");
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
