//! The suite `flexible-batch`: products of batches of systems of any sizes in which nothing is
//! shared, by all our kernels. The peers are cuSPARSE or, on the processor, other crates, on the
//! block-diagonal matrix and in a loop over the systems.

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use sparsebatch_corpus::List;
use sparsebatch_cuda::{Device, Executor, GpuError, Value};
use sparsebatch_formats::accuracy::SpmvReference;
use sparsebatch_formats::generate::spmv_operands;
use sparsebatch_formats::{Batch, RaggedCsr, Scalar};
use sparsebatch_spmv_gpu::flexible::{BatchSizes, DeviceBatch, Storage};
use sparsebatch_spmv_gpu::{
    CsrArrays, CsrSize, FlexibleKernel, FlexibleOptions, FlexiblePlan, PackedKernel, PackedOptions,
    PackedPlan,
};

pub use super::cases::Experiment;
use super::cases::{ProductCase, cases, default_items};
use super::host_kernels::{self, HostKernel};
use super::stand_ins;
pub use super::{Precision, Size};
use super::{check_names, read_all, wanted};
use crate::contender::{Contender, Operands};
use crate::cusparse::{HostCsr, Loop};
use crate::parallel;
use crate::phases::Phase::{Checking, Making, Planning, Uploading};
use crate::phases::timed;
use crate::session::{Backend, Bench, Costs, Label, Problem, Session, Target};
use crate::solves::Real;
use crate::timing::Pace;
use crate::{BenchError, Outcome};
use sparsebatch_rows::statistics::median;
use sparsebatch_rows::summary::OURS;

/// Number of systems of a batch that are checked.
const CHECKED: usize = 200;

/// Most launches of a recorded loop.
const LOOP_LAUNCHES: usize = 10_000;

/// One of our kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// The default kernel.
    Packed,
    /// The variants of the default kernel.
    PackedVariants,
    /// A kernel of the source.
    Flexible(FlexibleKernel),
    /// A kernel of the processor.
    Host(HostKernel),
}

impl Kernel {
    /// The kernels that the option value `all` stands for.
    pub fn all() -> Vec<Self> {
        let gpu = [Self::Packed]
            .into_iter()
            .chain(FlexibleKernel::ALL.iter().copied().map(Self::Flexible));
        gpu.chain(HostKernel::of_batches().into_iter().map(Self::Host)).collect()
    }
}

impl FromStr for Kernel {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        match text {
            "packed" => Ok(Self::Packed),
            "packed-variants" => Ok(Self::PackedVariants),
            _ => {
                let on_host = || HostKernel::of_batches().into_iter().find(|k| k.name() == text);
                let found = text.parse().ok().map(Self::Flexible);
                found.or_else(|| on_host().map(Self::Host)).ok_or_else(|| BenchError::Option {
                    option: "--kernel",
                    expected: format!(
                        "all, packed, packed-variants or one of {}, {}",
                        FlexibleKernel::ALL
                            .iter()
                            .map(|kernel| kernel.name())
                            .collect::<Vec<_>>()
                            .join(", "),
                        HostKernel::of_batches()
                            .into_iter()
                            .map(HostKernel::name)
                            .collect::<Vec<_>>()
                            .join(", ")
                    ),
                    found: text.to_owned(),
                })
            }
        }
    }
}

/// Options of the suite.
#[derive(Clone, Debug, Default)]
pub struct FlexibleBatch {
    /// Cases by name; all when empty.
    pub cases: Vec<String>,
    /// Our kernels. When empty: `packed` only; in experiments and at full size all.
    pub kernels: Vec<Kernel>,
    /// Extent of the suite.
    pub size: Size,
    /// A published experiment to run instead of the suite's own cases.
    pub experiment: Option<Experiment>,
    /// Systems of a batch; in experiments, of the largest batch.
    pub items: Option<usize>,
    /// The folder with the small matrices; without it generated matrices replace them.
    pub matrices: Option<PathBuf>,
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
/// Unknown names, matrices that cannot be read, an output that cannot be written, and the reason
/// why there is no GPU, if one was requested, or why it was lost.
pub fn flexible_batch(
    options: &FlexibleBatch,
    report: &mut dyn Write,
) -> Result<Outcome, BenchError> {
    let needs_none = options.experiment == Some(Experiment::Fig4);
    let matrices = match &options.matrices {
        Some(folder) => read_all(folder)?,
        None if needs_none => Vec::new(),
        None => stand_ins::small()?,
    };
    let items = options.items.unwrap_or(default_items(options.size, options.experiment));
    let mut cases = cases(&matrices, options.experiment, options.size, items);
    if options.matrices.is_none() {
        // The plain names of the mixes stand for mixes of real matrices.
        cases.iter_mut().for_each(|c| c.name = c.name.replace("hetero_", "hetero_generated_"));
    }
    if let (Some(folder), true) = (&options.matrices, cases.is_empty()) {
        return Err(BenchError::Option {
            option: "--matrices",
            expected: "a folder with .mtx files to build the cases from".to_owned(),
            found: folder.display().to_string(),
        });
    }
    check_names("--case", &options.cases, cases.iter().map(|case| &case.name))?;
    let kernels = Kernels::of(options);
    let target = Target::of(options.backend)?;
    let (effort, peers) = (options.size.effort(), !options.no_peer);
    let output = options.output.as_deref();
    let mut bench = Bench::start("flexible-batch", &target, effort, peers, output, report)?;
    let ended = (|| {
        let instead = match &options.matrices {
            Some(_) => "without them the mixes are of those found",
            None => "generated families stand in",
        };
        let found = |name: &str| {
            options.matrices.is_some() && matrices.iter().any(|(matrix, _)| matrix == name)
        };
        let missing = stand_ins::missing(List::Flexible.members(), found, instead);
        bench.missing(missing.filter(|_| !needs_none))?;
        if let Some(reason) = &target.no_gpu {
            for kernel in kernels.named_on_gpu(options) {
                bench.gap("all", OURS, kernel, reason)?;
            }
        }
        for case in cases.iter().filter(|case| wanted(&options.cases, &case.name)) {
            match timed(Making, || case.batch(&matrices)) {
                Ok(batch) => match options.precision {
                    Precision::F64 => measure(&mut bench, case, batch, &kernels, peers)?,
                    Precision::F32 => {
                        measure(&mut bench, case, batch.cast::<f32>(), &kernels, peers)?;
                    }
                },
                Err(error) => {
                    bench.gap(&case.name, "all", "all", &format!("not made: {error}"))?;
                }
            }
        }
        Ok(())
    })();
    bench.finish(ended)
}

/// Our kernels, by device.
struct Kernels {
    gpu: Vec<Kernel>,
    host: Vec<HostKernel>,
}

impl Kernels {
    /// The requested kernels; by default `packed` and its equivalent on the processor, or all.
    fn of(options: &FlexibleBatch) -> Self {
        let all = options.experiment.is_some() || options.size == Size::Full;
        let usual = match all {
            true => Kernel::all(),
            false => vec![Kernel::Packed, Kernel::Host(HostKernel::Auto)],
        };
        let on_host = |kernel: &Kernel| match kernel {
            Kernel::Host(kernel) => Some(*kernel),
            _ => None,
        };
        let given = &options.kernels;
        let host: Vec<HostKernel> = given.iter().filter_map(on_host).collect();
        let gpu: Vec<Kernel> = given.iter().copied().filter(|k| on_host(k).is_none()).collect();
        let usual_on_host = || usual.iter().filter_map(on_host).collect();
        let usual_on_gpu = || usual.iter().copied().filter(|k| on_host(k).is_none()).collect();
        Self {
            gpu: if given.is_empty() { usual_on_gpu() } else { gpu },
            host: if host.is_empty() { usual_on_host() } else { host },
        }
    }

    /// The names of the requested GPU kernels.
    fn named_on_gpu(&self, options: &FlexibleBatch) -> Vec<&'static str> {
        let name = |kernel: &Kernel| match kernel {
            Kernel::Packed => "packed",
            Kernel::PackedVariants => "packed-variants",
            Kernel::Flexible(kernel) => kernel.name(),
            Kernel::Host(kernel) => kernel.name(),
        };
        if options.kernels.is_empty() { Vec::new() } else { self.gpu.iter().map(name).collect() }
    }
}

/// Measures all contenders on one case.
fn measure<T: Real>(
    bench: &mut Bench<'_>,
    case: &ProductCase,
    batch: RaggedCsr<T>,
    kernels: &Kernels,
    peers: bool,
) -> Result<(), BenchError> {
    let (x, _) = timed(Making, || spmv_operands(&batch));
    let batch = Batch::Ragged(batch);
    let Batch::Ragged(ragged) = &batch else { return Ok(()) };
    let references = timed(Checking, || References::new(ragged, &x));
    let oracle = |y: &[f64]| references.wrong(y);
    let problem = Problem {
        case: &case.name,
        experiment: case.experiment.map(Experiment::name),
        batch: ragged.nitems(),
        nrows: ragged.row_offsets()[ragged.nitems()],
        ncols: ragged.col_offsets()[ragged.nitems()],
        nnz: ragged.total_nnz(),
        oracle: &oracle,
    };
    let has_blocks = case.experiment.is_none_or(Experiment::has_block_diagonal);
    let has_loops = case.experiment.is_none_or(Experiment::has_loops);
    if let Some(session) = bench.gpu() {
        let mut operands = session.operands(&problem, &x)?;
        let uploaded = timed(Uploading, || upload(&session.device, ragged));
        ours(session, &problem, (&batch, &uploaded), &mut operands, &kernels.gpu)?;
        if has_blocks {
            blocks(session, &problem, (ragged, &uploaded), &mut operands)?;
        }
        if has_loops {
            loops(session, &problem, (ragged, &uploaded), &mut operands)?;
        }
    }
    if let Some(mut session) = bench.host() {
        let mut operands = session.operands(&problem, &x);
        host_kernels::ours(&mut session, &problem, ragged, &mut operands, &kernels.host)?;
        if peers && has_blocks {
            host_kernels::blocks(&mut session, &problem, ragged, &mut operands)?;
        }
        if peers && has_loops {
            host_kernels::loops(&mut session, &problem, ragged, &mut operands)?;
        }
    }
    Ok(())
}

/// The products of sampled systems of a batch, computed once.
struct References<'a, T> {
    batch: &'a RaggedCsr<T>,
    of_items: Vec<(usize, SpmvReference<T>)>,
}

impl<'a, T: Scalar> References<'a, T> {
    fn new(batch: &'a RaggedCsr<T>, x: &[T]) -> Self {
        let (nitems, cols) = (batch.nitems(), batch.col_offsets());
        let step = nitems.div_ceil(CHECKED).max(1);
        let items: Vec<usize> = (0..nitems).step_by(step).chain(nitems.checked_sub(1)).collect();
        let reference = |at: usize| {
            let item = items[at];
            (item, SpmvReference::new(batch.item(item), &x[cols[item]..cols[item + 1]]))
        };
        Self { batch, of_items: parallel::map(items.len(), reference) }
    }

    /// Describes the first error in an answer, if any. The answer is of `T`, in f64.
    fn wrong(&self, y: &[f64]) -> Option<String> {
        let rows = self.batch.row_offsets();
        // Converting `T` to f64 and back is exact.
        let in_type = |y: &[f64]| y.iter().map(|&y| T::from_f64(y)).collect::<Vec<T>>();
        let wrong = |at: usize| {
            let (item, reference) = &self.of_items[at];
            let (row, error) = reference.error(&in_type(&y[rows[*item]..rows[*item + 1]]))?;
            Some(format!("item {item}, row {row}: {error}"))
        };
        parallel::map(self.of_items.len(), wrong).into_iter().flatten().next()
    }
}

/// The arrays of a batch on the device, shared by plans and peers.
type Uploaded<T> = Result<CsrArrays<Device, T>, GpuError>;

fn upload<T: Value>(device: &Device, batch: &RaggedCsr<T>) -> Uploaded<T> {
    Ok(CsrArrays {
        row_ptr: device.upload(batch.row_ptr())?,
        col_idx: device.upload(batch.col_idx())?,
        values: device.upload(batch.values())?,
    })
}

fn sizes<T: Scalar>(batch: &RaggedCsr<T>) -> Vec<CsrSize> {
    let patterns = (0..batch.nitems()).map(|item| batch.item(item).pattern());
    let size = |pattern: sparsebatch_formats::CsrPatternRef<'_>| CsrSize {
        nrows: pattern.nrows(),
        ncols: pattern.ncols(),
        nnz: pattern.nnz(),
    };
    patterns.map(size).collect()
}

/// The variants of the packed kernel that are compared, with their names.
fn packed_variants() -> Vec<(String, PackedOptions)> {
    let default = PackedOptions::default();
    let mut variants = Vec::new();
    let mut kernel = |name: String, kernel| {
        variants.push((name, default.kernel(Some(kernel))));
    };
    for warps in [2, 4] {
        for (steps, stages) in [(4, 3), (4, 4), (8, 2), (8, 3), (8, 4)] {
            let stream = PackedKernel::Stream { steps, stages, warps };
            kernel(format!("packed stream {steps}x{stages} w{warps}"), stream);
        }
    }
    for depth in [4, 6] {
        kernel(format!("packed registers {depth}"), PackedKernel::Registers { depth });
    }
    let share = |share| (format!("packed share {share}"), default.share(Some(share)));
    variants.extend([1, 2, 6].map(share));
    let group = |n| (format!("packed group {n}"), default.group_entries(Some(n)));
    variants.extend([0, 512, 1024, 2048, 4096].map(group));
    variants
}

/// Fewest plans whose making is timed.
const PLANS: usize = 5;

fn ours<T: Value>(
    session: &mut Session<'_>,
    problem: &Problem<'_>,
    (batch, uploaded): (&Batch<T>, &Uploaded<T>),
    operands: &mut Operands<T>,
    kernels: &[Kernel],
) -> Result<(), BenchError> {
    let mut packed = Vec::new();
    if kernels.contains(&Kernel::Packed) {
        packed.push(("packed".to_owned(), PackedOptions::default()));
    }
    if kernels.contains(&Kernel::PackedVariants) {
        packed.extend(packed_variants());
    }
    let (pace, useful) = (session.pace(problem), problem.useful_bytes_in::<T>());
    let device = session.device.clone();
    let sizes = match batch {
        Batch::Ragged(ragged) => sizes(ragged),
        Batch::Uniform(_) => Vec::new(),
    };
    for (name, options) in packed {
        let automatic = options == PackedOptions::default();
        let mut packing = Vec::new();
        let mut plan = || {
            let arrays = uploaded.as_ref().map_err(GpuError::clone)?;
            let sizes = BatchSizes::Ragged(&sizes);
            let plan = PackedPlan::from_arrays(device.clone(), sizes, arrays, options)?;
            packing.push(plan.explain().packing.as_secs_f64() * 1e3);
            Ok(plan)
        };
        let contender = timed(Planning, || {
            // Makes further plans, since the first one is slower.
            (operands.copies()..PLANS).try_for_each(|_| plan().map(drop))?;
            Contender::new(operands, |_| plan())
        });
        let costs = |plan: &PackedPlan<_, _>| Costs {
            bytes_moved: plan.explain().product_bytes,
            plan_ms: median(&packing),
        };
        let label = Label::ours(name, automatic).in_precision::<T>(useful);
        session.measure(problem, &label, pace, contender, costs)?;
    }
    // Consecutive kernels with the same storage reuse the batch on the device.
    let mut left: Vec<DeviceBatch<Device, T>> = Vec::new();
    for &kernel in FlexibleKernel::ALL {
        if !kernels.contains(&Kernel::Flexible(kernel)) {
            continue;
        }
        let options = FlexibleOptions::new(kernel);
        let storage: Storage = kernel.storage(options.threads_per_row);
        if left.first().is_some_and(|batch| batch.storage() != storage) {
            left.clear();
        }
        let contender = timed(Planning, || {
            Contender::new(operands, |_| match left.pop() {
                Some(batch) => FlexiblePlan::with_batch(&device, batch, options.clone()),
                None => FlexiblePlan::new(&device, batch, options.clone()),
            })
        });
        let bytes = |plan: &FlexiblePlan<_, _>| {
            let explain = plan.explain();
            explain.bytes_read + 2 * explain.bytes_written
        };
        let label = Label::ours(kernel.name(), false).in_precision::<T>(useful);
        let plans = session.measure(problem, &label, pace, contender, bytes)?;
        left = plans.into_iter().flatten().map(FlexiblePlan::into_batch).collect();
    }
    Ok(())
}

/// Measures cuSPARSE on the batch as one block-diagonal matrix.
fn blocks<T: Value>(
    session: &mut Session<'_>,
    problem: &Problem<'_>,
    (batch, uploaded): (&RaggedCsr<T>, &Uploaded<T>),
    operands: &mut Operands<T>,
) -> Result<(), BenchError> {
    if session.library.is_none() {
        return Ok(());
    }
    let values = uploaded.as_ref().ok().map(|arrays| &arrays.values);
    match timed(Making, || HostCsr::block_diagonal(batch)) {
        Ok(matrix) => {
            session.measure_formats(problem, "block-diagonal ", &matrix, values, operands)
        }
        Err(error) => session.note(&format!("{:<22} no block-diagonal: {error}", problem.case)),
    }
}

/// Measures cuSPARSE with one call per system, issued one by one and recorded. The cost of the
/// calls hides the effect of the cache, so there is one copy only.
fn loops<T: Value>(
    session: &mut Session<'_>,
    problem: &Problem<'_>,
    (batch, uploaded): (&RaggedCsr<T>, &Uploaded<T>),
    operands: &mut Operands<T>,
) -> Result<(), BenchError> {
    let Some(library) = session.library.clone() else { return Ok(()) };
    let products = (LOOP_LAUNCHES / batch.nitems().max(1)).clamp(1, crate::timing::RECORDED);
    let mut plan =
        timed(Planning, || Loop::new(&library, batch, uploaded.as_ref().map_err(GpuError::clone)?));
    for (name, pace) in [("loop csr", Pace::Issued), ("loop csr graph", Pace::Recorded(products))] {
        let contender = plan.map(|plan| Contender::alone(operands, plan));
        let label = Label::peer(name).in_precision::<T>(problem.useful_bytes_in::<T>());
        let plans = session
            .measure(problem, &label, pace, contender, |plan: &Loop<T>| plan.bytes_moved())?;
        match plans.into_iter().flatten().next() {
            Some(again) => plan = Ok(again),
            None => break,
        }
    }
    Ok(())
}
