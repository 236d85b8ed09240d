//! Measurements of sparsebatch beside other libraries in the same run, on a GPU and on the
//! processor.
//!
//! | start from | for |
//! | --- | --- |
//! | [`flexible_batch()`] | the suite `flexible-batch`: products of batches that share nothing |
//! | [`single()`] | the suite `single`: products with one matrix |
//! | [`throughput()`] | the suite `throughput`: formats and access patterns, f64 and f32 |
//! | [`sell_p()`] | the suite `sell-p`: shapes of SELL-P, their padding and speed |
//! | [`row_kernels()`] | the suite `row-kernels`: a thread or a warp per row |
//! | [`solvers()`] | the suite `solvers`: whole solves of batches |
//! | [`gpu_vs_cpu()`] | the suite `gpu-vs-cpu`: both in the same run, with copies and without |
//! | [`scaling()`] | the suite `scaling`: growth of cost with systems, rows and entries |
//! | [`energy()`] | the suite `energy`: joules of products and solves |
//! | [`distributed()`] | the suite `distributed`: one large matrix over GPUs, and over ranks of the processor |
//! | [`cpu()`] | the suite `cpu`: every kernel of the processor on 1 to all threads |
//!
//! Every answer is checked before it is timed: products against the sequential sums of the host,
//! solves by the residual of every system, recomputed on the host in f64. NVIDIA's libraries are
//! loaded at run time, crates (sprs, faer, nalgebra-sparse) run in process; a missing peer is a
//! [`Gap`] in the outcome, in the file of rows and in the report. Rows, their files and their
//! tables are defined in `sparsebatch-rows`.
//!
//! Limitations: only the first GPU is measured; peers run in f64 only, ours also in f32 in
//! `throughput`, `sell-p` and `row-kernels`; MKL, Eigen and SciPy are measured separately, by
//! `benches/peers`.
#![deny(unsafe_code)]

mod contender;
mod cublas;
mod cusparse;
mod energy;
mod error;
mod host_clock;
mod parallel;
mod part;
mod phases;
pub mod processor;
mod recorder;
mod session;
pub mod solves;
pub mod suites;
mod timing;

pub use cublas::DenseFactors;
pub use error::BenchError;
pub use session::{Backend, machine_of};
pub use suites::cpu::{Cpu, cpu};
pub use suites::distributed::{Distributed, distributed};
pub use suites::energy::{Energy, energy};
pub use suites::flexible_batch::{FlexibleBatch, flexible_batch};
pub use suites::gpu_vs_cpu::{GpuVsCpu, gpu_vs_cpu};
pub use suites::row_kernels::{RowKernels, row_kernels};
pub use suites::scaling::{Scaling, scaling};
pub use suites::sell_p::{SellP, sell_p};
pub use suites::single::{Single, single};
pub use suites::solvers::{Solvers, solvers};
pub use suites::throughput::{Throughput, throughput};

use sparsebatch_rows::{Gap, Machine, Row, Run};

/// The results of a suite.
#[derive(Debug)]
pub struct Outcome {
    /// The run's name.
    pub run: String,
    /// The measurements.
    pub rows: Vec<Row>,
    /// The contenders and cases that could not be measured.
    pub gaps: Vec<Gap>,
}

impl Outcome {
    /// The gaps that are faults: neither formats that do not fit nor peers that refuse.
    pub fn faults(&self) -> impl Iterator<Item = &Gap> {
        self.gaps.iter().filter(|gap| gap.is_fault)
    }
}

/// A run of this program that begins now.
pub fn begin(suite: &'static str, machine: Machine) -> Run {
    Run::new(suite, env!("BENCH_BUILT_COMMIT"), machine)
}
