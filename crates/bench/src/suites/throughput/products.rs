//! Figures 8 to 15: products with matrices.

use sparsebatch_cuda::{KernelKey, Value};
use sparsebatch_formats::{Csr, CsrPattern, Scalar};

use super::super::host_kernels::{self, HostKernel};
use super::super::one_matrix::OneMatrix;
use super::super::single::Configuration;
use super::Throughput;
use super::cases::{ThroughputCase, ThroughputExperiment};
use super::ffi::{Gather, gather_key};
use crate::BenchError;
use crate::contender::Contender;
use crate::phases::Phase::{Making, Planning};
use crate::phases::timed;
use crate::session::{Bench, HostSession, Label, Session};
use crate::solves::Real;

/// A plain CSR product by rows that reads x through the cache of a multiprocessor or bypasses it.
#[derive(Clone, Copy)]
pub(super) struct PlainRows {
    /// Threads per row.
    lanes: u32,
    is_cached: bool,
}

/// All plain products.
pub(super) const GATHERS: [PlainRows; 4] = [
    PlainRows { lanes: 1, is_cached: true },
    PlainRows { lanes: 1, is_cached: false },
    PlainRows { lanes: 32, is_cached: true },
    PlainRows { lanes: 32, is_cached: false },
];

impl PlainRows {
    /// The key of the kernel.
    pub(super) fn key<T: Value>(self) -> KernelKey {
        gather_key::<T>(self.lanes, self.is_cached)
    }

    pub(super) fn name(self) -> String {
        let rows = if self.lanes == 1 { "scalar" } else { "vector" };
        let place = if self.is_cached { "cached" } else { "not cached" };
        format!("plain csr-{rows}, x {place}")
    }
}

/// Our kernels on the GPU for an experiment.
pub(super) fn on_gpu_by(
    experiment: ThroughputExperiment,
    options: &Throughput,
) -> Vec<Configuration> {
    match options.kernels.as_slice() {
        [] => experiment.kernels().into_iter().map(Configuration::Kernel).collect(),
        given => given.iter().copied().filter(|kernel| kernel.on_host().is_none()).collect(),
    }
}

/// Our kernels on the processor for an experiment: those named, else the equivalents of the
/// source's.
fn on_host_by(experiment: ThroughputExperiment, options: &Throughput) -> Vec<HostKernel> {
    let named: Vec<HostKernel> =
        options.kernels.iter().filter_map(|kernel| kernel.on_host()).collect();
    if named.is_empty() { experiment.host_kernels() } else { named }
}

/// Measures all contenders on one matrix, in both precisions.
pub(super) fn measure(
    bench: &mut Bench<'_>,
    case: &ThroughputCase,
    matrix: &Csr<f64>,
    options: &Throughput,
) -> Result<(), BenchError> {
    one_precision(bench, case, matrix, options)?;
    if options.no_f32 {
        return Ok(());
    }
    let matrix = timed(Making, || matrix.cast::<f32>());
    one_precision(bench, case, &matrix, options)
}

fn made<'m, T: Scalar>(case: &'m ThroughputCase, matrix: &'m Csr<T>) -> OneMatrix<'m, T> {
    OneMatrix::new(&case.name, matrix).of(case.experiment.name())
}

/// Measures our kernels and, unless they are left out, the peers on one matrix.
fn one_precision<T: Real>(
    bench: &mut Bench<'_>,
    case: &ThroughputCase,
    matrix: &Csr<T>,
    options: &Throughput,
) -> Result<(), BenchError> {
    let made = made(case, matrix);
    let oracle = |y: &[f64]| made.wrong(y);
    let problem = made.problem(&oracle);
    if let Some(session) = bench.gpu() {
        on_gpu(session, case.experiment, &made, options)?;
        session.measure_peer_of(&problem, matrix.view(), &made.x)?;
    }
    if let Some(mut session) = bench.host() {
        on_host(&mut session, case.experiment, &made, options)?;
        if !options.no_peer {
            let mut operands = session.operands(&problem, &made.x);
            host_kernels::crates(&mut session, &problem, "csr", matrix, &mut operands)?;
        }
    }
    Ok(())
}

fn on_gpu<T: Value>(
    session: &mut Session<'_>,
    experiment: ThroughputExperiment,
    made: &OneMatrix<'_, T>,
    options: &Throughput,
) -> Result<(), BenchError> {
    let oracle = |y: &[f64]| made.wrong(y);
    let problem = made.problem(&oracle);
    let view = made.matrix.view();
    let mut operands = session.operands(&problem, &made.x)?;
    let kernels = on_gpu_by(experiment, options);
    let contenders: Vec<_> = kernels.into_iter().filter_map(Configuration::contender).collect();
    session.measure_singles(&problem, view, &contenders, &mut operands)?;
    if !experiment.has_gathers() {
        return Ok(());
    }
    let (device, pace) = (session.device.clone(), session.pace(&problem));
    for gather in GATHERS {
        let PlainRows { lanes, is_cached } = gather;
        let contender = timed(Planning, || {
            Contender::new(&mut operands, |_| Gather::new(&device, view, lanes, is_cached))
        });
        let label = Label::ours(gather.name(), false);
        let label = label.in_precision::<T>(problem.useful_bytes_in::<T>());
        session.measure(&problem, &label, pace, contender, Gather::bytes_moved)?;
    }
    Ok(())
}

/// Measures the sequential product, and our kernels on all threads.
fn on_host<T: Real>(
    session: &mut HostSession<'_, '_>,
    experiment: ThroughputExperiment,
    made: &OneMatrix<'_, T>,
    options: &Throughput,
) -> Result<(), BenchError> {
    let oracle = |y: &[f64]| made.wrong(y);
    let (problem, matrix) = (made.problem(&oracle), made.matrix);
    let mut operands = session.operands(&problem, &made.x);
    if options.kernels.is_empty() {
        let plain = ("csr", &());
        host_kernels::sequential::<CsrPattern, T>(session, &problem, plain, matrix, &mut operands)?;
    }
    let kernels = on_host_by(experiment, options);
    host_kernels::ours(session, &problem, matrix, &mut operands, &kernels)
}
