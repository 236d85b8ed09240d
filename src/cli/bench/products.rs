//! The options of the `bench` suites over single matrices, except `single`.

use std::path::PathBuf;

use clap::Args;
use sparsebatch_bench::suites::sell_p::Shape;
use sparsebatch_bench::suites::single::Configuration;
use sparsebatch_bench::{Backend, BenchError, RowKernels, SellP, Throughput};

use super::{Common, kernels};

/// Options of `throughput`.
#[derive(Args)]
pub(super) struct ThroughputArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Measure one experiment, named by the first figure of the paper that it reproduces
    /// [default: all]
    #[arg(long, value_name = "fig1|fig8|fig9|fig10|fig11|fig13")]
    experiment: Option<String>,
    /// Kernels of this library, separated by commas [default: auto and the kernels of the paper, on
    /// the CPU their equivalents]
    #[arg(long = "kernel", value_name = "LIST", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Folder of unstructured matrices for fig13; may be given several times
    #[arg(long, value_name = "FOLDER")]
    matrices: Vec<PathBuf>,
    /// Do not measure in f32
    #[arg(long)]
    no_f32: bool,
}

/// Options of `sell-p`.
#[derive(Args)]
pub(super) struct SellPArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Shapes, separated by commas, such as 8x8,32x1x512: rows per slice x threads per row x rows
    /// per sorting window [default: a grid of shapes]
    #[arg(long = "shape", value_name = "LIST", value_delimiter = ',')]
    shapes: Vec<String>,
    /// Folder to search for the matrices of the paper's Table I, or for those that --case names;
    /// may be given several times
    #[arg(long, value_name = "FOLDER")]
    matrices: Vec<PathBuf>,
    /// Do not measure the generated matrices
    #[arg(long)]
    no_generated: bool,
    /// Do not measure in f32
    #[arg(long)]
    no_f32: bool,
}

/// Options of `row-kernels`.
#[derive(Args)]
pub(super) struct RowKernelArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Folder to search for the matrices of the paper's Table I, or for those that --case names;
    /// may be given several times
    #[arg(long, value_name = "FOLDER")]
    matrices: Vec<PathBuf>,
    /// Do not measure the generated matrices
    #[arg(long)]
    no_generated: bool,
    /// Do not measure in f32
    #[arg(long)]
    no_f32: bool,
}

impl ThroughputArgs {
    /// The options of the suite.
    pub(super) fn options(&self) -> Result<Throughput, BenchError> {
        let Common { size, cases, no_peer, backend, output } = &self.common;
        Ok(Throughput {
            cases: cases.clone(),
            kernels: kernels(&self.kernels, Configuration::all)?,
            size: (*size).into(),
            experiment: self.experiment.as_deref().map(str::parse).transpose()?,
            matrices: self.matrices.clone(),
            no_f32: self.no_f32,
            backend: backend.map(Backend::from),
            no_peer: *no_peer,
            output: output.clone(),
        })
    }
}

impl SellPArgs {
    /// The options of the suite.
    pub(super) fn options(&self) -> Result<SellP, BenchError> {
        let Common { size, cases, no_peer, backend, output } = &self.common;
        let shapes: Result<Vec<Shape>, BenchError> =
            self.shapes.iter().map(|shape| shape.parse()).collect();
        Ok(SellP {
            cases: cases.clone(),
            shapes: shapes?,
            size: (*size).into(),
            matrices: self.matrices.clone(),
            no_generated: self.no_generated,
            no_f32: self.no_f32,
            backend: backend.map(Backend::from),
            no_peer: *no_peer,
            output: output.clone(),
        })
    }
}

impl RowKernelArgs {
    /// The options of the suite.
    pub(super) fn options(&self) -> Result<RowKernels, BenchError> {
        let Common { size, cases, no_peer, backend, output } = &self.common;
        Ok(RowKernels {
            cases: cases.clone(),
            size: (*size).into(),
            matrices: self.matrices.clone(),
            no_generated: self.no_generated,
            no_f32: self.no_f32,
            backend: backend.map(Backend::from),
            no_peer: *no_peer,
            output: output.clone(),
        })
    }
}
