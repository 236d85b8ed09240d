//! Options of a solve, from the keyword arguments of Python.

use std::str::FromStr;

use pyo3::prelude::*;
use sparsebatch::{
    Engine, FormatChoice, InnerPrecision, KernelChoice, LuForm, Method, Order, PerSystem,
    PrecondPrecision, Preconditioner, SolveOptions, SpmvOptions,
};

use crate::errors::{OptionError, OrRaise};
use crate::ffi::Input;

/// The keyword arguments; the Python part fills in all of them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options<'py> {
    method: String,
    precond: String,
    order: String,
    block_size: Option<usize>,
    precond_precision: String,
    inner_precision: String,
    lu_form: String,
    rtol: Option<Bound<'py, PyAny>>,
    atol: Bound<'py, PyAny>,
    maxiter: Bound<'py, PyAny>,
    max_restarts: u32,
    floor: Option<f64>,
    fallback: bool,
    history: bool,
    format: Option<String>,
    kernel: Option<String>,
    nrhs: usize,
}

fn named<V: FromStr<Err = sparsebatch::ArgumentError>>(name: &str) -> PyResult<V> {
    name.parse().or_raise()
}

/// One number, or an array of them with one for each system.
pub(crate) fn tolerance(name: &str, value: &Bound<'_, PyAny>) -> PyResult<PerSystem<f64>> {
    match value.extract::<f64>() {
        Ok(value) => Ok(PerSystem::All(value)),
        Err(_) => Ok(PerSystem::Each(Input::<f64>::of(name, value)?.as_ref().to_vec())),
    }
}

pub(crate) fn limit(value: &Bound<'_, PyAny>) -> PyResult<PerSystem<u32>> {
    let limit = |value: i64| {
        u32::try_from(value).map_err(|_| {
            OptionError::new_err(format!("maxiter is {value}, expected 0 to {}", u32::MAX))
        })
    };
    match value.extract::<i64>() {
        Ok(value) => Ok(PerSystem::All(limit(value)?)),
        Err(_) => {
            let values = Input::<i64>::of("maxiter", value)?;
            let values = values.as_ref().iter().map(|&value| limit(value));
            Ok(PerSystem::Each(values.collect::<PyResult<_>>()?))
        }
    }
}

impl Options<'_> {
    pub(crate) fn solve_options(&self) -> PyResult<SolveOptions> {
        let mut options = SolveOptions::new()
            .method(named::<Method>(&self.method)?)
            .preconditioner(named::<Preconditioner>(&self.precond)?)
            .order(named::<Order>(&self.order)?)
            .block_size(self.block_size)
            .precond_precision(named::<PrecondPrecision>(&self.precond_precision)?)
            .inner_precision(named::<InnerPrecision>(&self.inner_precision)?)
            .lu_form(named::<LuForm>(&self.lu_form)?)
            .abs_tol(tolerance("atol", &self.atol)?)
            .max_iters(limit(&self.maxiter)?)
            .max_restarts(self.max_restarts)
            .floor(self.floor)
            .fallback(self.fallback)
            .history(self.history)
            .nrhs(self.nrhs);
        if let Some(rtol) = &self.rtol {
            options = options.rel_tol(tolerance("rtol", rtol)?);
        }
        if self.format.is_some() || self.kernel.is_some() {
            let format = self.format.as_deref().unwrap_or("auto");
            let kernel = self.kernel.as_deref().unwrap_or("auto");
            options = options.engine(Engine::Composed(product_options(format, kernel)?));
        }
        Ok(options)
    }
}

pub(crate) fn product_options(format: &str, kernel: &str) -> PyResult<SpmvOptions> {
    let (format, kernel) = (named::<FormatChoice>(format)?, named::<KernelChoice>(kernel)?);
    Ok(SpmvOptions::default().format(format).kernel(kernel))
}
