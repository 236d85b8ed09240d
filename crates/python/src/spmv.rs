//! Repeated products: [`Spmv`] of arrays in host memory, [`DeviceSpmv`] of arrays on a GPU.

use std::sync::Mutex;

use pyo3::buffer::Element;
use pyo3::prelude::*;
use sparsebatch::batch::Values;
use sparsebatch::cpu::{CpuScalar, SpmvPlan};
use sparsebatch::gpu::{Device, Executor, PackedOptions, PackedPlan};

use crate::backend::device_of;
use crate::device::{Array, buffer};
use crate::errors::{OptionError, OrRaise};
use crate::ffi::{Input, Output, device_on};
use crate::options::product_options;
use crate::patterns::{Patterns, Place};
use crate::precision::{each, locked};

/// A plan of products `y = alpha A x + beta y` of a batch in host memory.
#[pyclass(frozen, module = "sparsebatch._native")]
pub(crate) struct Spmv(Mutex<Plan>);

enum Plan {
    F64(SpmvPlan<f64>),
    F32(SpmvPlan<f32>),
}

fn plan_of<T: CpuScalar + Element>(
    py: Python<'_>,
    patterns: &Patterns,
    values: &Bound<'_, PyAny>,
    place: Place,
    options: &sparsebatch::SpmvOptions,
) -> PyResult<SpmvPlan<T>> {
    let values = Values::of_owner(Input::<T>::of("values", values)?);
    let batch = patterns.batch(values, place).or_raise()?;
    py.detach(|| SpmvPlan::new(&batch, options)).or_raise()
}

#[pymethods]
impl Spmv {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        patterns: &Bound<'_, Patterns>,
        values: &Bound<'_, PyAny>,
        dtype: &str,
        layout: &str,
        format: &str,
        kernel: &str,
        nrhs: usize,
    ) -> PyResult<Self> {
        let (patterns, place) = (patterns.get(), Place::named(layout)?);
        let options = product_options(format, kernel)?.nrhs(nrhs);
        let plan = match dtype {
            "float64" => Plan::F64(plan_of(py, patterns, values, place, &options)?),
            "float32" => Plan::F32(plan_of(py, patterns, values, place, &options)?),
            _ => return Err(OptionError::new_err(format!("values are {dtype}"))),
        };
        Ok(Self(Mutex::new(plan)))
    }

    /// Multiplies; where `beta` is 0, `y` is not read.
    fn apply(
        &self,
        py: Python<'_>,
        alpha: f64,
        x: &Bound<'_, PyAny>,
        beta: f64,
        y: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        fn apply<T: CpuScalar + Element>(
            py: Python<'_>,
            plan: &SpmvPlan<T>,
            (alpha, x, beta, y): (T, &Bound<'_, PyAny>, T, &Bound<'_, PyAny>),
        ) -> PyResult<()> {
            let (x, mut y) = (Input::<T>::of("x", x)?, Output::<T>::of("y", y)?);
            py.detach(|| plan.apply(alpha, x.as_ref(), beta, y.as_mut())).or_raise()
        }
        match &*locked(py, &self.0)? {
            Plan::F64(plan) => apply(py, plan, (alpha, x, beta, y)),
            Plan::F32(plan) => apply(py, plan, (alpha as f32, x, beta as f32, y)),
        }
    }

    fn update_values(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        each!(Plan, &mut *locked(py, &self.0)?, plan => {
            let values = Input::of("values", values)?;
            py.detach(|| plan.update_values(values.as_ref())).or_raise()
        })
    }

    /// Format, kernel, why, bytes that a product moves, seconds of the plan.
    fn explain(&self, py: Python<'_>) -> PyResult<(String, String, String, usize, f64)> {
        let plan = locked(py, &self.0)?;
        let explain = each!(Plan, &*plan, plan => plan.explain());
        let (format, kernel) = (explain.format.to_owned(), explain.kernel.to_owned());
        let seconds = explain.cost.as_secs_f64();
        Ok((format, kernel, explain.why.clone(), explain.product_bytes, seconds))
    }
}

/// A plan of products of a batch whose arrays lie on a GPU.
#[pyclass(frozen, module = "sparsebatch._native")]
pub(crate) struct DeviceSpmv {
    plan: Mutex<DevicePlan>,
    device: Device,
}

enum DevicePlan {
    F64(PackedPlan<Device, f64>),
    F32(PackedPlan<Device, f32>),
}

fn device_plan<T: CpuScalar + sparsebatch::gpu::Value>(
    patterns: &Patterns,
    values: Array,
    place: Place,
    device: Device,
    nrhs: usize,
) -> PyResult<PackedPlan<Device, T>> {
    let values = device.download(&buffer::<T>(values)).or_raise()?;
    let batch = patterns.batch(Values::from(values), place).or_raise()?;
    PackedPlan::new(device, &batch, PackedOptions::default().nrhs(nrhs)).or_raise()
}

#[pymethods]
impl DeviceSpmv {
    /// For products on GPU `ordinal` and `stream`.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        patterns: &Bound<'_, Patterns>,
        values: Array,
        dtype: &str,
        layout: &str,
        nrhs: usize,
        ordinal: usize,
        stream: u64,
    ) -> PyResult<Self> {
        let (patterns, place) = (patterns.get(), Place::named(layout)?);
        let device = device_on(&py.detach(|| device_of(ordinal))?, stream);
        let plan = py.detach(|| {
            let device = device.clone();
            match dtype {
                "float64" => {
                    device_plan(patterns, values, place, device, nrhs).map(DevicePlan::F64)
                }
                "float32" => {
                    device_plan(patterns, values, place, device, nrhs).map(DevicePlan::F32)
                }
                _ => Err(OptionError::new_err(format!("values are {dtype}"))),
            }
        })?;
        Ok(Self { plan: Mutex::new(plan), device })
    }

    /// Enqueues a product on the stream of the plan.
    fn apply(&self, py: Python<'_>, alpha: f64, x: Array, beta: f64, y: Array) -> PyResult<()> {
        match &*locked(py, &self.plan)? {
            DevicePlan::F64(plan) => plan.apply(alpha, &buffer(x), beta, &mut buffer(y)).or_raise(),
            DevicePlan::F32(plan) => {
                plan.apply(alpha as f32, &buffer(x), beta as f32, &mut buffer(y)).or_raise()
            }
        }
    }

    /// Waits for the stream of the plan.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let plan = locked(py, &self.plan)?;
        py.detach(|| self.device.synchronize()).or_raise()?;
        drop(plan);
        Ok(())
    }

    /// Enqueues the packing of other values.
    fn update_values(&self, py: Python<'_>, values: Array) -> PyResult<()> {
        let mut plan = locked(py, &self.plan)?;
        each!(DevicePlan, &mut *plan, plan => plan.update_from(&buffer(values)).or_raise())
    }
}
