//! The options of the `bench` suites over machines: threads, a GPU against the CPU, growth, energy.

use std::path::PathBuf;

use clap::Args;
use sparsebatch_bench::suites::{HostKernel, OnMachines};
use sparsebatch_bench::{Backend, BenchError, Cpu, Distributed, Energy, GpuVsCpu, Scaling};

use super::super::gpu::Gpus;
use super::{Common, Measured, kernels};

/// Options of `cpu`.
#[derive(Args)]
pub(super) struct CpuArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Kernels, separated by commas [default: all]
    #[arg(long = "kernel", value_name = "LIST", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Numbers of threads, separated by commas [default: powers of two, and all threads]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Vec<u16>,
    /// Folder of further matrices to measure; may be given several times
    #[arg(long, value_name = "FOLDER")]
    matrices: Vec<PathBuf>,
    /// Do not measure the generated matrices
    #[arg(long)]
    no_generated: bool,
}

/// Options that `gpu-vs-cpu` and `energy` have alike.
#[derive(Args)]
pub(super) struct OnMachinesArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Systems per batch [default: 10000; gpu-vs-cpu: 1000 at small size, 40000 at full size]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    items: Option<u32>,
}

/// Options of `gpu-vs-cpu`.
#[derive(Args)]
pub(super) struct GpuVsCpuArgs {
    #[command(flatten)]
    pub(super) on: OnMachinesArgs,
    /// Folder of further matrices to multiply; may be given several times
    #[arg(long, value_name = "FOLDER")]
    matrices: Vec<PathBuf>,
}

/// Options of `scaling`.
#[derive(Args)]
pub(super) struct ScalingArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Quantity that grows: batch, rows or entries [default: each in turn]
    #[arg(long)]
    experiment: Option<String>,
    /// Largest size to measure: systems of a batch, rows of a system, or entries of a matrix
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    most: Option<u32>,
}

/// Options of `distributed`.
#[derive(Args)]
pub(super) struct DistributedArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Points along an edge of the cube, separated by commas [default: 200; 40 at small size, 300 and
    /// 400 at full size]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    edge: Vec<usize>,
    /// GPUs: numbers as in 0,1, or all [default: all]
    #[arg(long, value_name = "LIST")]
    gpus: Option<Gpus>,
    /// Iterations of the solves of a fixed number [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
}

/// Options of `energy`.
#[derive(Args)]
pub(super) struct EnergyArgs {
    #[command(flatten)]
    pub(super) on: OnMachinesArgs,
    /// Folder of the CPU's energy counters [default: /sys/class/powercap]
    #[arg(long, value_name = "FOLDER")]
    powercap: Option<PathBuf>,
}

impl CpuArgs {
    /// The options of the suite.
    pub(super) fn options(&self) -> Result<Cpu, BenchError> {
        let Common { size, cases, no_peer, output, .. } = self.common.on(Measured::Cpu)?;
        Ok(Cpu {
            cases: cases.clone(),
            kernels: kernels(&self.kernels, || HostKernel::ALL.to_vec())?,
            threads: self.threads.iter().map(|&count| usize::from(count)).collect(),
            size: (*size).into(),
            matrices: self.matrices.clone(),
            no_generated: self.no_generated,
            no_peer: *no_peer,
            output: output.clone(),
        })
    }
}

impl OnMachinesArgs {
    fn options(&self) -> OnMachines {
        let Common { size, cases, backend, output, .. } = &self.common;
        OnMachines {
            cases: cases.clone(),
            items: self.items.map(|items| items as usize),
            size: (*size).into(),
            backend: backend.map(Backend::from),
            output: output.clone(),
        }
    }
}

impl GpuVsCpuArgs {
    /// The options of the suite.
    pub(super) fn options(&self) -> GpuVsCpu {
        GpuVsCpu { on: self.on.options(), matrices: self.matrices.clone() }
    }
}

impl ScalingArgs {
    /// The options of the suite.
    pub(super) fn options(&self) -> Result<Scaling, BenchError> {
        let Common { size, cases, backend, output, .. } = &self.common;
        Ok(Scaling {
            cases: cases.clone(),
            axis: self.experiment.as_deref().map(str::parse).transpose()?,
            size: (*size).into(),
            most: self.most.map(|most| most as usize),
            backend: backend.map(Backend::from),
            output: output.clone(),
        })
    }
}

impl DistributedArgs {
    /// The options of the suite.
    pub(super) fn options(&self) -> Result<Distributed, BenchError> {
        let Common { size, cases, backend, output, .. } = &self.common;
        if let Some(case) = cases.first() {
            return Err(BenchError::Option {
                option: "--case",
                expected: "--edge, which names the cases of this suite".to_owned(),
                found: case.clone(),
            });
        }
        Ok(Distributed {
            edges: self.edge.clone(),
            ordinals: match &self.gpus {
                Some(Gpus::Numbers(numbers)) => numbers.clone(),
                _ => Vec::new(),
            },
            iterations: self.iterations,
            size: (*size).into(),
            backend: backend.map(Backend::from),
            output: output.clone(),
        })
    }
}

impl EnergyArgs {
    /// The options of the suite.
    pub(super) fn options(&self) -> Energy {
        Energy { on: self.on.options(), powercap: self.powercap.clone() }
    }
}
