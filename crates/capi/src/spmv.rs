//! Repeated products `y = alpha A x + beta y`: [`Spmv`], over data in host memory or on a GPU.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use sparsebatch::SpmvOptions;
use sparsebatch::batch::Values;
use sparsebatch::cpu::{CpuScalar, SpmvPlan};
use sparsebatch::gpu::{Device, Executor, PackedOptions, PackedPlan, Pod, Value};

use crate::batch::{Batch, DType, Place, with_values};
use crate::context::Context;
use crate::ffi::{DevicePlace, Input, Output, SpmvSettings};
use crate::solver::told;
use crate::status::{Failure, SB_ERROR_BUSY, SB_ERROR_INTERNAL};

/// A plan of products in one precision, for data in one place.
trait Plan: Send {
    fn set_values(&mut self, context: &Context, values: Input) -> Result<(), Failure>;

    fn apply(&mut self, context: &Context, call: Product) -> Result<(), Failure>;

    /// What was chosen, and why.
    fn text(&self) -> String;
}

/// `y = alpha A x + beta y`.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    pub(crate) alpha: f64,
    pub(crate) x: Input,
    pub(crate) beta: f64,
    pub(crate) y: Output,
}

/// A plan of products.
pub(crate) struct Spmv {
    pub(crate) context: Arc<Context>,
    on_device: bool,
    plan: Mutex<Box<dyn Plan>>,
}

impl Spmv {
    pub(crate) fn new(
        batch: &Batch,
        values: Input,
        settings: &SpmvSettings,
    ) -> Result<Self, Failure> {
        let on_device = settings.place.is_some();
        batch.context.check_arrays(on_device, &[values])?;
        let plan = match batch.dtype {
            DType::F64 => plan_of::<f64>(batch, values, settings)?,
            DType::F32 => plan_of::<f32>(batch, values, settings)?,
        };
        Ok(Self { context: Arc::clone(&batch.context), on_device, plan: Mutex::new(plan) })
    }

    fn plan(&self) -> Result<MutexGuard<'_, Box<dyn Plan>>, Failure> {
        self.plan.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                Failure::new(SB_ERROR_BUSY, "the plan is in use by another call at this moment")
            }
            TryLockError::Poisoned(_) => Failure::new(
                SB_ERROR_INTERNAL,
                "the plan was lost in an earlier fault: destroy it and create another",
            ),
        })
    }

    pub(crate) fn set_values(&self, values: Input) -> Result<(), Failure> {
        self.context.check_arrays(self.on_device, &[values])?;
        self.plan()?.set_values(&self.context, values)
    }

    pub(crate) fn apply(&self, product: Product) -> Result<(), Failure> {
        self.context.check_arrays(self.on_device, &[product.x, product.y.as_input()])?;
        self.plan()?.apply(&self.context, product)
    }

    pub(crate) fn text(&self) -> Result<String, Failure> {
        Ok(self.plan()?.text())
    }
}

fn plan_of<T: CpuScalar + Value + Pod>(
    batch: &Batch,
    values: Input,
    settings: &SpmvSettings,
) -> Result<Box<dyn Plan>, Failure> {
    Ok(match &settings.place {
        None => Box::new(host_plan::<T>(batch, values, &settings.options)?),
        Some(place) => {
            let plan = device_plan::<T>(batch, values, place, settings.nrhs);
            Box::new(told(place.memory(), plan)?)
        }
    })
}

/// The plan copies the values.
fn host_plan<T: CpuScalar + Pod>(
    batch: &Batch,
    values: Input,
    options: &SpmvOptions,
) -> Result<SpmvPlan<T>, Failure> {
    let values = Values::of_owner(values.borrowed::<T>()?);
    let own = with_values(&batch.patterns, batch.place, values)?;
    Ok(batch.context.run(|| SpmvPlan::new(&own, options))??)
}

impl<T: CpuScalar + Pod> Plan for SpmvPlan<T> {
    fn set_values(&mut self, context: &Context, values: Input) -> Result<(), Failure> {
        let values = values.slice::<T>()?;
        Ok(context.run(|| self.update_values(values))??)
    }

    fn apply(&mut self, context: &Context, product: Product) -> Result<(), Failure> {
        let Product { alpha, x, beta, mut y } = product;
        y.check_apart::<T>(x)?;
        let (x, y) = (x.slice::<T>()?, y.slice_mut::<T>()?);
        let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
        Ok(context.run(|| SpmvPlan::apply(self, alpha, x, beta, y))??)
    }

    fn text(&self) -> String {
        let explain = self.explain();
        format!(
            "format: {}\nkernel: {}\nwhy: {}\nbytes of a product: {}\nplan: {:.3} ms\n",
            explain.format,
            explain.kernel,
            explain.why,
            explain.product_bytes,
            1e3 * explain.cost.as_secs_f64()
        )
    }
}

fn device_plan<T: CpuScalar + Value + Pod>(
    batch: &Batch,
    values: Input,
    place: &DevicePlace,
    nrhs: usize,
) -> Result<PackedPlan<Device, T>, Failure> {
    if batch.place == Place::Interleaved {
        return Err(Failure::unsupported(
            "products of interleaved values on the GPU are not supported yet: \
             give them item-major",
        ));
    }
    let device = place.of(batch.context.device()?);
    let values = Values::from(device.download(&values.buffer::<T>()?)?);
    let own = with_values(&batch.patterns, batch.place, values)?;
    Ok(PackedPlan::new(device, &own, PackedOptions::default().nrhs(nrhs))?)
}

impl<T: CpuScalar + Value + Pod> Plan for PackedPlan<Device, T> {
    fn set_values(&mut self, _: &Context, values: Input) -> Result<(), Failure> {
        Ok(self.update_from(&values.buffer()?)?)
    }

    fn apply(&mut self, _: &Context, product: Product) -> Result<(), Failure> {
        let Product { alpha, x, beta, y } = product;
        let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
        Ok(PackedPlan::apply(self, alpha, &x.buffer()?, beta, &mut y.buffer()?)?)
    }

    fn text(&self) -> String {
        let keys = self.keys();
        let kernels: Vec<&str> = keys.iter().map(|key| key.expression.as_ref()).collect();
        format!("format: packed csr\nkernel: {}\n", kernels.join(", "))
    }
}
