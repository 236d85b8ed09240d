//! The default products of a batch or a matrix, on the GPU and on the processor.

use sparsebatch_cpu_ref::PlanSource;
use sparsebatch_cuda::{Device, Executor, GpuError};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_spmv_gpu::{PackedOptions, PackedPlan, SingleOptions, SinglePlan};

use super::host_kernels::{self, HostKernel};
use crate::BenchError;
use crate::contender::{Contender, Multiply};
use crate::phases::Phase::Planning;
use crate::phases::timed;
use crate::session::{Bench, Costs, Effort, Label, Problem, Session};

/// The batch or matrix to multiply.
#[derive(Clone, Copy)]
pub(super) enum ProductSource<'a> {
    Batch(&'a Batch<f64>),
    Matrix(&'a Csr<f64>),
}

impl<'a> From<ProductSource<'a>> for PlanSource<'a, f64> {
    fn from(product: ProductSource<'a>) -> Self {
        match product {
            ProductSource::Batch(batch) => batch.into(),
            ProductSource::Matrix(matrix) => matrix.into(),
        }
    }
}

/// Measures the automatic choice on the devices of a run; with `transfers` also with arrays on the
/// host.
///
/// # Errors
/// When the device is lost, and when a row cannot be printed or written.
pub(super) fn measure(
    bench: &mut Bench<'_>,
    problem: &Problem<'_>,
    product: ProductSource<'_>,
    x: &[f64],
    transfers: Option<Effort>,
) -> Result<(), BenchError> {
    if let Some(session) = bench.gpu() {
        match product {
            ProductSource::Batch(batch) => {
                let plan = |device: &Device| {
                    PackedPlan::new(device.clone(), batch, PackedOptions::default())
                };
                let costs = |plan: &PackedPlan<_, f64>| Costs {
                    bytes_moved: plan.explain().product_bytes,
                    plan_ms: Some(plan.explain().packing.as_secs_f64() * 1e3),
                };
                on_gpu(session, problem, "packed", x, plan, costs, transfers)?;
            }
            ProductSource::Matrix(matrix) => {
                let options = SingleOptions::default();
                let plan = |device: &Device| SinglePlan::new(device, matrix.view(), &options);
                let costs = |plan: &SinglePlan<_, f64>| {
                    Costs::from(plan.explain().bytes_moved(false) as u64)
                };
                on_gpu(session, problem, "auto", x, plan, costs, transfers)?;
            }
        }
    }
    if let Some(mut session) = bench.host() {
        let mut operands = session.operands(problem, x);
        let kernels = [HostKernel::Auto];
        host_kernels::ours(&mut session, problem, product, &mut operands, &kernels)?;
    }
    Ok(())
}

/// Measures a plan on the device in three ways: with all data there; with the vectors on the host;
/// with all data on the host, so that each product makes the plan anew.
fn on_gpu<P: Multiply>(
    session: &mut Session<'_>,
    problem: &Problem<'_>,
    name: &str,
    x: &[f64],
    plan: impl Fn(&Device) -> Result<P, GpuError>,
    costs: impl Fn(&P) -> Costs,
    transfers: Option<Effort>,
) -> Result<(), BenchError> {
    let pace = session.pace(problem);
    let device = session.device.clone();
    let mut operands = session.operands(problem, x)?;
    let contender = timed(Planning, || Contender::new(&mut operands, |_| plan(&device)));
    session.measure(problem, &Label::ours(name, true), pace, contender, &costs)?;
    drop(operands);
    let Some(effort) = transfers else { return Ok(()) };
    let state = timed(Planning, || {
        let (on_device, y) = (device.upload(x)?, device.alloc_zeroed::<f64>(problem.nrows)?);
        Ok((plan(&device)?, on_device, y))
    });
    let label = Label::ours(format!("{name}, vectors from the host"), false);
    session.with_transfers(
        (problem, &label),
        x,
        effort,
        state,
        |(plan, on_device, result), device, x, y| {
            device.copy_from_host(x, on_device)?;
            device.copy_from_host(y, result)?;
            plan.multiply(on_device, 1.0, result)?;
            device.copy_to_host(result, y)
        },
        |(plan, ..)| costs(plan),
    )?;
    let label = Label::ours(format!("{name}, all from the host"), false);
    let made = timed(Planning, || plan(&device));
    let bytes_moved = made.map_or(0, |plan| costs(&plan).bytes_moved);
    session.with_transfers(
        (problem, &label),
        x,
        effort,
        Ok(()),
        |(), device, x, y| {
            let mut plan = plan(device)?;
            let (x, mut result) = (device.upload(x)?, device.upload(y)?);
            plan.multiply(&x, 1.0, &mut result)?;
            device.copy_to_host(&result, y)
        },
        |()| bytes_moved.into(),
    )
}
