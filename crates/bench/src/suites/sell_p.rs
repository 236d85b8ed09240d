//! The suite `sell-p`: SELL-P of Anzt, Tomov and Dongarra 2014 (UT-EECS-14-727), rows of a slice and
//! threads a row swept, with and without sorting (Kreutzer et al. 2014, doi 10.1137/130930352), its
//! padding beside its speed, and other formats, ours and those of cuSPARSE.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use sparsebatch_corpus::List;
use sparsebatch_formats::Csr;
use sparsebatch_formats::generate::{Stencil, rng};
use sparsebatch_formats::testing::spmv_error;
use sparsebatch_spmv_gpu::{SingleKernel, SingleOptions, SinglePlan};

pub use super::Size;
use super::matrices::{Source, laplacians};
use super::{check_names, files, wanted};
use crate::contender::Contender;
use crate::cusparse::HostCsr;
use crate::session::{Label, Problem, Session};
use crate::{BenchError, Outcome};

/// A shape of SELL-P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows of a slice, b.
    pub slice_size: usize,
    /// Threads a row, t.
    pub threads_per_row: usize,
    /// Rows of a window in which rows are sorted by length, sigma.
    pub sort_window: Option<usize>,
}

impl Shape {
    /// The choice of the source: b = t = 8, not sorted.
    pub const SOURCE: Self = Self { slice_size: 8, threads_per_row: 8, sort_window: None };

    /// Slices and threads, not sorted: blocks of one to sixteen warps.
    fn grid(size: Size) -> Vec<Self> {
        let (slices, threads): (&[usize], &[usize]) = match size {
            Size::Small => (&[8, 32], &[1, 8]),
            Size::Paper => (&[8, 16, 32, 64, 128], &[1, 2, 4, 8, 16, 32]),
            Size::Full => (&[4, 8, 16, 32, 64, 128, 256], &[1, 2, 4, 8, 16, 32, 64]),
        };
        let mut shapes = vec![Self::SOURCE];
        for &slice_size in slices {
            for &threads_per_row in threads {
                let shape = Self { slice_size, threads_per_row, sort_window: None };
                if (32..=512).contains(&(slice_size * threads_per_row)) && shape != Self::SOURCE {
                    shapes.push(shape);
                }
            }
        }
        shapes
    }

    /// Windows of growing size for a shape, in rows.
    fn windows(self, size: Size) -> Vec<Self> {
        let factors: &[usize] = match size {
            Size::Small => &[16],
            Size::Paper => &[2, 16, 128, 1_024],
            Size::Full => &[2, 4, 16, 64, 128, 1_024, 16_384],
        };
        let sorted = |factor| Self { sort_window: Some(factor * self.slice_size), ..self };
        factors.iter().map(|&factor| sorted(factor)).collect()
    }

    /// What is measured of a size: the grid, then windows for the source's shape and for a thread a
    /// row in slices of a warp.
    pub fn all(size: Size) -> Vec<Self> {
        let warp = Self { slice_size: 32, threads_per_row: 1, sort_window: None };
        let mut shapes = Self::grid(size);
        shapes.extend([Self::SOURCE, warp].into_iter().flat_map(|shape| shape.windows(size)));
        shapes
    }

    fn options(self) -> SingleOptions {
        let Self { slice_size, threads_per_row, sort_window } = self;
        let base = SingleOptions::with_kernel(SingleKernel::SellP);
        SingleOptions { slice_size, threads_per_row, sort_window, ..base }
    }
}

/// `sell-p(b,t)` or `sell-p(b,t,sigma)`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slice_size: b, threads_per_row: t, sort_window } = self;
        match sort_window {
            None => f.pad(&format!("sell-p({b},{t})")),
            Some(sigma) => f.pad(&format!("sell-p({b},{t},{sigma})")),
        }
    }
}

impl FromStr for Shape {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let numbers = |text: &str| {
            let numbers: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
            match numbers.ok()?[..] {
                [b, t] if b > 0 && t > 0 => Some((b, t, None)),
                [b, t, sigma] if b > 0 && t > 0 && sigma > 0 => Some((b, t, Some(sigma))),
                _ => None,
            }
        };
        let found = numbers(text).map(|(slice_size, threads_per_row, sort_window)| Self {
            slice_size,
            threads_per_row,
            sort_window,
        });
        found.ok_or_else(|| BenchError::Option {
            option: "--shape",
            expected:
                "BxT or BxTxSIGMA like 8x8 or 32x1x512: rows of a slice, threads a row, rows \
                       of a window"
                    .to_owned(),
            found: text.to_owned(),
        })
    }
}

/// What the suite shall measure.
#[derive(Clone, Debug, Default)]
pub struct SellP {
    /// Cases by name; when empty the generated ones and those of [`List::SellP`] that are there.
    pub cases: Vec<String>,
    /// Shapes; those of the size when empty.
    pub shapes: Vec<Shape>,
    /// How much.
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

/// Other formats of ours that the source compares with, and what is chosen by itself.
const OTHERS: [SingleKernel; 5] = [
    SingleKernel::Auto,
    SingleKernel::CsrVector,
    SingleKernel::Ell,
    SingleKernel::Hyb,
    SingleKernel::Sell,
];

/// Runs the suite. Lines of what is measured go to `report`, and after each case a table of padding
/// beside time.
///
/// # Errors
/// Names that nothing answers to, folders that cannot be read, an output that cannot be written,
/// and the reason why there is no GPU or it was lost. A file that cannot be read is a gap.
pub fn sell_p(options: &SellP, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    let sources = sources(options)?;
    check_names("--case", &options.cases, sources.iter().map(|source| &source.name))?;
    let is_wanted = |source: &&Source| match options.cases.is_empty() {
        true => source.is_usual(List::SellP),
        false => wanted(&options.cases, &source.name),
    };
    let shapes = match options.shapes.as_slice() {
        [] => Shape::all(options.size),
        given => given.to_vec(),
    };
    let output = options.output.as_deref();
    let mut session = Session::start("sell-p", !options.no_peer, output, report)?;
    let ended = (|| {
        if options.cases.is_empty() {
            session
                .absent_of(List::SellP.members(), |name| sources.iter().any(|s| s.name == name))?;
        }
        for source in sources.iter().filter(is_wanted) {
            match source.matrix() {
                Ok(matrix) => measure(&mut session, &source.name, &matrix, &shapes)?,
                Err(error) => session.absent(&source.name, &error.to_string())?,
            }
        }
        Ok(())
    })();
    session.finish(ended)
}

fn sources(options: &SellP) -> Result<Vec<Source>, BenchError> {
    let mut sources = match options.no_generated {
        true => Vec::new(),
        false => generated(options.size),
    };
    for folder in &options.matrices {
        for (name, path) in files(folder)? {
            // A file comes before what stands for it.
            sources.retain(|source| source.name != name);
            sources.push(Source::file(name, path));
        }
    }
    Ok(sources)
}

/// `Trefethen_20000` of Table I, and what stands for its kinds: grids, bands, rows of very different
/// length.
fn generated(size: Size) -> Vec<Source> {
    let (rows, bands) = if size == Size::Small { (3_000, 26_214) } else { (30_000, 262_144) };
    let mut found = vec![Source::trefethen()];
    let stencils = [Stencil::Point7, Stencil::Point27].map(|stencil| stencil.points());
    found.extend(laplacians(size).into_iter().filter(|source| {
        stencils.iter().any(|points| source.name.starts_with(&format!("laplace {points}-point")))
    }));
    found.extend([1.0, 1.5, 2.0].map(|shape| Source::pareto(rows, shape)));
    found.push(Source::banded(bands, 16));
    found
}

/// A line of the table behind a case: padding, and bytes that a product moves.
struct Padding {
    configuration: String,
    slots_per_entry: f64,
    bytes_moved: usize,
}

/// Measures all contenders on one matrix.
fn measure(
    session: &mut Session<'_>,
    name: &str,
    matrix: &Csr<f64>,
    shapes: &[Shape],
) -> Result<(), BenchError> {
    let view = matrix.view();
    let x: Vec<f64> =
        (0..matrix.ncols() as u64).map(|col| 2.0 * rng::uniform(96, 0, col) - 1.0).collect();
    let oracle =
        |y: &[f64]| spmv_error(view, &x, y).map(|(row, error)| format!("row {row}: {error}"));
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
    let mut paddings = Vec::new();
    let ours = shapes.iter().map(|shape| (shape.to_string(), shape.options()));
    let others =
        OTHERS.into_iter().map(|kernel| (kernel.to_string(), SingleOptions::with_kernel(kernel)));
    for (configuration, options) in ours.chain(others) {
        let contender = Contender::new(&mut operands, |_| SinglePlan::new(&device, view, &options));
        let label = Label::ours(configuration.clone(), options.kernel == SingleKernel::Auto);
        let bytes = |plan: &SinglePlan<_, _>| plan.explain().bytes_moved(false) as u64;
        let plans = session.measure(&problem, &label, pace, contender, bytes)?;
        if let Some(plan) = plans.as_ref().and_then(|plans| plans.first()) {
            let explain = plan.explain();
            paddings.push(Padding {
                configuration,
                slots_per_entry: explain.stored_len as f64 / (explain.nnz as f64).max(1.0),
                bytes_moved: explain.bytes_moved(false),
            });
        }
    }
    let host = HostCsr::single(view.pattern(), view.values());
    session.measure_formats(&problem, "", &host, &mut operands)?;
    for Padding { configuration, slots_per_entry, bytes_moved } in paddings {
        session.note(&format!(
            "{name:<22} {configuration:<20} {slots_per_entry:.3} slots an entry, {bytes_moved} bytes"
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_and_shown() {
        let shape = |text: &str| text.parse::<Shape>();

        assert_eq!(shape("8x8").unwrap(), Shape::SOURCE);
        assert_eq!(shape("32x1x512").unwrap().to_string(), "sell-p(32,1,512)");
        for bad in ["8", "8x", "0x8", "8x8x0", "8x8x8x8", "x", "8,8"] {
            let error = shape(bad).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--shape is {bad}, expected BxT")), "{error}");
        }
    }

    #[test]
    fn shapes_differ_and_fit_into_a_block() {
        for size in [Size::Small, Size::Paper, Size::Full] {
            let all = Shape::all(size);

            assert_eq!(all[0], Shape::SOURCE);
            for (place, shape) in all.iter().enumerate() {
                assert!(!all[..place].contains(shape), "{shape} twice");
                assert!((32..=1_024).contains(&(shape.slice_size * shape.threads_per_row)));
                assert!(shape.sort_window.is_none_or(|sigma| sigma % shape.slice_size == 0));
            }
        }
    }

    #[test]
    fn of_files_those_of_the_table_are_measured() {
        let file = |name: &str| Source::file(name.to_owned(), PathBuf::from("x"));

        assert!(file("cant").is_usual(List::SellP) && !file("G2").is_usual(List::SellP));
        let cases = generated(Size::Small);
        assert!(cases.iter().all(|source| source.is_usual(List::SellP)));
        let names: Vec<&str> = cases.iter().map(|source| source.name.as_str()).collect();
        assert_eq!(names[..2], ["Trefethen_20000", "laplace 7-point 46x46x46"]);
        assert_eq!(names[2], "laplace 27-point 46x46x46");
    }
}
