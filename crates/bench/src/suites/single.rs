//! The suite `single`: products with one matrix, by every format and kernel that accepts it, beside
//! every format of cuSPARSE or, on the processor, other crates.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use sparsebatch_cuda::Value;
use sparsebatch_formats::Csr;
use sparsebatch_spmv_gpu::{SingleKernel, SingleOptions};

use super::host_kernels::{self, HostKernel};
use super::matrices::{MatrixSource, generated, made, with_files};
use super::one_matrix::OneMatrix;
use super::stand_ins;
pub use super::{Precision, Size};
use super::{check_names, wanted};
use crate::cusparse::HostCsr;
use crate::session::{Backend, Bench, Label, Problem, Session, Target};
use crate::solves::Real;
use crate::{BenchError, Outcome};
use sparsebatch_rows::summary::OURS;

/// A configuration of our products with one matrix.
///
/// An automatic choice of the plan belongs here, as another variant whose row is the automatic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Configuration {
    /// A kernel, with the other options at their defaults.
    Kernel(SingleKernel),
    /// `sell-p` with this many rows per slice and threads per row.
    SellP(usize, usize),
    /// `csr-vector` with this many lanes per row.
    Vector(u32),
    /// `csr-adaptive` with this many entries per block.
    Adaptive(u32),
    /// `sell` with rows sorted by length in windows of this many rows.
    Sell(usize),
    /// A kernel of the processor.
    Host(HostKernel),
}

impl Configuration {
    /// All configurations.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::Kernel(SingleKernel::Auto)];
        all.extend(SingleKernel::ALL.iter().copied().map(Self::Kernel));
        all.extend([(128, 1), (64, 2), (32, 4), (32, 8), (8, 32)].map(|(b, t)| Self::SellP(b, t)));
        all.extend([2, 4, 8, 16].map(Self::Vector));
        all.extend([128, 256, 512, 1024, 2048].map(Self::Adaptive));
        all.extend([128, 1024].map(Self::Sell));
        all.extend(HostKernel::ALL.map(Self::Host));
        all
    }

    /// The options of a plan on the GPU; `None` for a kernel of the processor.
    pub(super) fn options(self) -> Option<SingleOptions> {
        Some(match self {
            Self::Host(_) => return None,
            Self::Kernel(kernel) => SingleOptions::with_kernel(kernel),
            Self::SellP(slice_size, threads_per_row) => {
                SingleOptions::with_kernel(SingleKernel::SellP)
                    .slice_size(slice_size)
                    .threads_per_row(threads_per_row)
            }
            Self::Vector(lanes) => {
                SingleOptions::with_kernel(SingleKernel::CsrVector).lanes(Some(lanes))
            }
            Self::Adaptive(entries) => {
                SingleOptions::with_kernel(SingleKernel::CsrAdaptive).block_entries(Some(entries))
            }
            Self::Sell(window) => {
                SingleOptions::with_kernel(SingleKernel::Sell).sort_window(Some(window))
            }
        })
    }

    /// The label and options of a plan on the GPU; `None` for a kernel of the processor.
    pub(super) fn contender(self) -> Option<(Label, SingleOptions)> {
        Some((Label::ours(self.to_string(), self.is_automatic()), self.options()?))
    }

    /// The kernel of the processor; `None` for one of the GPU.
    pub(super) fn on_host(self) -> Option<HostKernel> {
        match self {
            Self::Host(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// Whether this is the default of a plan.
    pub(super) fn is_automatic(self) -> bool {
        self == Self::Kernel(SingleOptions::default().kernel)
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(kernel) => kernel.fmt(f),
            Self::SellP(b, t) => f.pad(&format!("sell-p({b},{t})")),
            Self::Vector(lanes) => f.pad(&format!("csr-vector({lanes})")),
            Self::Adaptive(entries) => f.pad(&format!("csr-adaptive({entries})")),
            Self::Sell(window) => f.pad(&format!("sell({window})")),
            Self::Host(kernel) => kernel.fmt(f),
        }
    }
}

impl FromStr for Configuration {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let named = |configuration: &Self| configuration.to_string() == text;
        let found = text.parse().ok().map(Self::Kernel);
        found.or_else(|| Self::all().into_iter().find(named)).ok_or_else(|| BenchError::Option {
            option: "--kernel",
            expected: format!(
                "all or one of {}, {}",
                SingleKernel::ALL.iter().map(|kernel| kernel.name()).collect::<Vec<_>>().join(", "),
                HostKernel::ALL.map(HostKernel::name).join(", ")
            ),
            found: text.to_owned(),
        })
    }
}

/// Options of the suite.
#[derive(Clone, Debug, Default)]
pub struct Single {
    /// Cases by name; all when empty.
    pub cases: Vec<String>,
    /// Our kernels; all when empty.
    pub kernels: Vec<Configuration>,
    /// Size of the generated matrices.
    pub size: Size,
    /// Folders of further matrices to measure.
    pub matrices: Vec<PathBuf>,
    /// Whether the generated matrices are left out.
    pub no_generated: bool,
    /// The precision of values and vectors.
    pub precision: Precision,
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
pub fn single(options: &Single, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    let sources = sources(options)?;
    check_names("--case", &options.cases, sources.iter().map(|source| &source.name))?;
    let kernels = match options.kernels.as_slice() {
        [] => Configuration::all(),
        given => given.to_vec(),
    };
    let target = Target::of(options.backend)?;
    let (effort, peers) = (options.size.effort(), !options.no_peer);
    let output = options.output.as_deref();
    let mut bench = Bench::start("single", &target, effort, peers, output, report)?;
    let ended = (|| {
        let found = |name: &str| sources.iter().any(|source| source.name == name);
        let instead = "what is measured is generated or was found";
        bench.missing(stand_ins::missing(&stand_ins::single(), found, instead))?;
        if let Some(reason) = &target.no_gpu {
            for kernel in options.kernels.iter().filter(|kernel| kernel.on_host().is_none()) {
                bench.gap("all", OURS, &kernel.to_string(), reason)?;
            }
        }
        let plans = kernels.iter().filter_map(|kernel| kernel.options());
        let plans: Vec<_> = plans.collect();
        match options.precision {
            Precision::F64 => bench.compile::<f64>(&plans)?,
            Precision::F32 => bench.compile::<f32>(&plans)?,
        }
        let is_wanted = |source: &MatrixSource| wanted(&options.cases, &source.name);
        for (source, matrix) in made(&sources, is_wanted, options.size) {
            match matrix {
                Ok(matrix) => match options.precision {
                    Precision::F64 => measure(&mut bench, &source.name, &matrix, &kernels, peers)?,
                    Precision::F32 => {
                        let matrix = matrix.cast::<f32>();
                        measure(&mut bench, &source.name, &matrix, &kernels, peers)?;
                    }
                },
                Err(error) => {
                    bench.gap(&source.name, "all", "all", &format!("not read: {error}"))?;
                }
            }
        }
        Ok(())
    })();
    bench.finish(ended)
}

fn sources(options: &Single) -> Result<Vec<MatrixSource>, BenchError> {
    let made = if options.no_generated { Vec::new() } else { generated(options.size) };
    with_files(made, &options.matrices)
}

/// Calls `visit` with the name and the matrix of each case of the suite that `is_wanted`, without a
/// GPU. A file that cannot be read is skipped.
///
/// # Errors
/// Folders that cannot be read.
pub fn for_each_matrix(
    options: &Single,
    is_wanted: impl Fn(&str) -> bool,
    mut visit: impl FnMut(&str, &Csr<f64>),
) -> Result<(), BenchError> {
    for source in sources(options)?.iter().filter(|source| is_wanted(&source.name)) {
        if let Ok(matrix) = source.matrix() {
            visit(&source.name, &matrix);
        }
    }
    Ok(())
}

/// Measures all contenders on one matrix.
fn measure<T: Real>(
    bench: &mut Bench<'_>,
    name: &str,
    matrix: &Csr<T>,
    kernels: &[Configuration],
    peers: bool,
) -> Result<(), BenchError> {
    let made = OneMatrix::new(name, matrix);
    let oracle = |y: &[f64]| made.wrong(y);
    let problem = made.problem(&oracle);
    if let Some(session) = bench.gpu() {
        on_gpu(session, &problem, &made, kernels)?;
    }
    if let Some(mut session) = bench.host() {
        let named: Vec<HostKernel> = kernels.iter().filter_map(|k| k.on_host()).collect();
        let kernels = if named.is_empty() { HostKernel::ALL.to_vec() } else { named };
        let mut operands = session.operands(&problem, &made.x);
        host_kernels::ours(&mut session, &problem, matrix, &mut operands, &kernels)?;
        if peers {
            host_kernels::crates(&mut session, &problem, "csr", matrix, &mut operands)?;
        }
    }
    Ok(())
}

/// Measures our kernels and cuSPARSE.
fn on_gpu<T: Value>(
    session: &mut Session<'_>,
    problem: &Problem<'_>,
    made: &OneMatrix<'_, T>,
    kernels: &[Configuration],
) -> Result<(), BenchError> {
    let view = made.matrix.view();
    let mut operands = session.operands(problem, &made.x)?;
    let contenders: Vec<_> = kernels.iter().filter_map(|kernel| kernel.contender()).collect();
    session.measure_singles(problem, view, &contenders, &mut operands)?;
    let host = HostCsr::single(view.pattern(), view.values());
    session.measure_formats(problem, "", &host, None, &mut operands)
}
