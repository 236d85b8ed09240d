//! The options of the `bench` suite over whole solves.

use std::path::PathBuf;

use clap::Args;
use sparsebatch_bench::suites::solvers::{ChunksExperiment, GpusExperiment};
use sparsebatch_bench::{Backend, BenchError, Solvers};
use sparsebatch_solvers::{
    Chunks, InnerPrecision, LuForm, Method, Order, PrecondPrecision, Preconditioner,
};

use super::{Common, ValuePrecision};
use crate::cli::gpu::Gpus;
use crate::cli::options::size;

/// Options of `solvers`.
#[derive(Args)]
pub(super) struct SolverArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Systems per batch, separated by commas [default: the suite's sizes]
    #[arg(long = "batch", value_name = "LIST", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..))]
    batches: Vec<u32>,
    /// Methods, separated by commas: auto, cg, bicgstab, lu, pivoting-lu, banded [default: bicgstab, and cg where the
    /// matrices are symmetric; all for the batches of --sets and at full size]
    #[arg(long = "method", value_name = "LIST", value_delimiter = ',')]
    methods: Vec<String>,
    /// Preconditioners of cg and bicgstab, separated by commas [default: none,jacobi]
    #[arg(long = "precond", value_name = "LIST", value_delimiter = ',')]
    preconditioners: Vec<String>,
    /// Elimination orders of ilu0 and ic0, separated by commas: natural, min-degree, multicolor
    /// [default: natural]
    #[arg(long = "order", value_name = "LIST", value_delimiter = ',')]
    orders: Vec<String>,
    /// Precisions in which block-jacobi, ilu0 and ic0 store the factors of f64 solves, separated by
    /// commas: working, f32 [default: working]
    #[arg(long = "precond-precision", value_name = "LIST", value_delimiter = ',')]
    precond_precisions: Vec<String>,
    /// Precisions of the iterations of cg and bicgstab in f64 solves on a GPU with jacobi or none,
    /// separated by commas: auto (f32 where that is faster; measured only where it differs from
    /// working), working [default: both]
    #[arg(long = "inner-precision", value_name = "LIST", value_delimiter = ',')]
    inner_precisions: Vec<String>,
    /// Forms of the sparse LU on a GPU, separated by commas: by-pattern, by-system [default:
    /// by-pattern]
    #[arg(long = "lu-form", value_name = "LIST", value_delimiter = ',')]
    lu_forms: Vec<String>,
    /// Precision of values and vectors
    #[arg(long, value_enum, default_value_t = ValuePrecision::F64)]
    precision: ValuePrecision,
    /// Folders of further batches to measure, files NAME.batch or batch_NAME.bin, whose systems are
    /// repeated in turn
    #[arg(long, value_name = "FOLDER", num_args = 1..)]
    sets: Vec<PathBuf>,
    /// Do not measure the generated batches
    #[arg(long)]
    no_generated: bool,
    /// Further shapes of the GPU kernel to measure, separated by commas, such as
    /// 32x4,16x8:registers: threads per system x rows per thread, memory of the values (registers,
    /// shared, global), number of vectors in shared memory (v1, v3), resident blocks per
    /// multiprocessor (r4)
    #[arg(long = "tuning", value_name = "LIST", value_delimiter = ',')]
    tunings: Vec<String>,
    /// Measure an experiment instead of the suite's cases. chunks: end-to-end solves of one batch in
    /// host memory, on the GPU as a whole, in chunks, and in chunks within --gpu-memory. gpus: solves
    /// on one GPU and on those of --gpus, of --batch systems each, end to end and in their memory
    #[arg(long, value_enum)]
    experiment: Option<SolveExperiment>,
    /// Bytes of the experiment's batch: values, right-hand sides and solutions [default: 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "experiment")]
    data: Option<u64>,
    /// Largest amount of GPU memory that the experiment may use [default: half of --data]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "experiment")]
    gpu_memory: Option<u64>,
    /// Bytes of each chunk in the experiment [default: an eighth of the batch, 8 to 64 MiB]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "experiment",
        alias = "piece")]
    chunk: Option<u64>,
    /// Number of chunks on the GPU at a time in the experiment [default: 3]
    #[arg(long, value_name = "CHUNKS", value_parser = clap::value_parser!(u8).range(1..=16),
        requires = "experiment")]
    at_once: Option<u8>,
    /// GPUs of the experiment gpus: numbers as in 0,1, or all [default: all]
    #[arg(long, value_name = "LIST", requires = "experiment")]
    gpus: Option<Gpus>,
    /// CSV file of recorded figures of other libraries, shown beside the measured ones
    #[arg(long, value_name = "FILE.csv")]
    reference: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SolveExperiment {
    Chunks,
    Gpus,
}

/// Parses a list of names into choices.
fn choices<C: std::str::FromStr<Err = sparsebatch::ArgumentError>>(
    names: &[String],
) -> Result<Vec<C>, BenchError> {
    let parsed: Result<_, sparsebatch::ArgumentError> =
        names.iter().map(|name| name.parse()).collect();
    Ok(parsed.map_err(sparsebatch::SolveError::from)?)
}

impl SolverArgs {
    fn chunks_experiment(&self) -> ChunksExperiment {
        let usual = ChunksExperiment::default();
        let chunks = Chunks::default()
            .bytes(self.chunk)
            .at_once(self.at_once.map_or(usual.chunks.at_once, usize::from));
        let data_bytes = self.data.unwrap_or(usual.data_bytes);
        ChunksExperiment { data_bytes, limit_bytes: self.gpu_memory, chunks }
    }

    /// The options of the suite.
    pub(super) fn options(&self) -> Result<Solvers, BenchError> {
        let Common { size, cases, no_peer, backend, output } = &self.common;
        Ok(Solvers {
            cases: cases.clone(),
            batches: self.batches.iter().map(|&batch| batch as usize).collect(),
            methods: choices::<Method>(&self.methods)?,
            preconditioners: choices::<Preconditioner>(&self.preconditioners)?,
            orders: choices::<Order>(&self.orders)?,
            precond_precisions: choices::<PrecondPrecision>(&self.precond_precisions)?,
            inner_precisions: choices::<InnerPrecision>(&self.inner_precisions)?,
            lu_forms: choices::<LuForm>(&self.lu_forms)?,
            precision: self.precision.into(),
            sets: self.sets.clone(),
            no_generated: self.no_generated,
            backend: backend.map(Backend::from),
            tunings: self.tunings.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
            chunks: matches!(self.experiment, Some(SolveExperiment::Chunks))
                .then(|| self.chunks_experiment()),
            gpus: matches!(self.experiment, Some(SolveExperiment::Gpus)).then(|| {
                let ordinals = match &self.gpus {
                    Some(Gpus::Numbers(ordinals)) => ordinals.clone(),
                    Some(Gpus::All) | None => Vec::new(),
                };
                GpusExperiment { ordinals }
            }),
            reference: self.reference.clone(),
            size: (*size).into(),
            no_peer: *no_peer,
            output: output.clone(),
        })
    }
}
