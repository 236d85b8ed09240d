//! Solvers of batches whose arrays lie on a GPU: [`DeviceSolver`].

use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;
use sparsebatch::gpu::{
    self, Device, DeviceBuffer, Executor, Guess, Pod, ShiftedValues, ValueGradient,
};
use sparsebatch::{CsrPatternRef, Pattern, SolveError, SolveOptions, SolveScalar};

use crate::allocator::Allocator;
use crate::backend::device_of;
use crate::errors::{OptionError, OrRaise, Unsupported};
use crate::ffi::{device_on, view};
use crate::interrupt::Control;
use crate::limits::CallLimits;
use crate::options::Options;
use crate::patterns::{Patterns, Place};
use crate::precision::{each, locked};
use crate::report::Report;

/// Values of a batch from which a solve looks for Ctrl-C.
const LONG: usize = 1 << 22;

/// Address and number of values of an array on the device.
pub(crate) type Array = (u64, usize);

/// A batch on a GPU, analysed.
#[pyclass(frozen, module = "sparsebatch._native")]
pub(crate) struct DeviceSolver {
    control: Control,
    allocator: Option<Py<Allocator>>,
    systems: usize,
    engine: Mutex<Engine>,
}

enum Engine {
    F64(OnDevice<f64>),
    F32(OnDevice<f32>),
}

struct OnDevice<T: SolveScalar> {
    device: Device,
    solver: gpu::DeviceSolver<Device, T>,
    gradient: Option<ValueGradient<Device, T>>,
    shift: Option<ShiftedValues<Device, T>>,
    options: SolveOptions,
}

/// A call of a solver.
#[derive(Clone, Copy)]
struct Call<'a> {
    by: &'a str,
    values: Array,
    b: Array,
    x: Array,
    guess: Guess,
}

/// An array of the caller as a buffer.
pub(crate) fn buffer<T: Pod>(array: Array) -> DeviceBuffer<T> {
    view(array.0, array.1)
}

impl<T: SolveScalar> OnDevice<T> {
    fn new(
        patterns: &Patterns,
        values: Array,
        device: Device,
        options: &SolveOptions,
        data: gpu::DeviceData,
    ) -> PyResult<Self> {
        let values = buffer(values);
        let solver = patterns.with_items(|items| {
            gpu::DeviceSolver::with_values(&device, items, &values, options, data)
        })?;
        let solver = solver.or_raise()?;
        Ok(Self { device, solver, gradient: None, shift: None, options: options.clone() })
    }

    fn enqueue(&mut self, call: Call<'_>) -> Result<(), SolveError> {
        let (values, b, mut x) = (buffer(call.values), buffer(call.b), buffer(call.x));
        let (solver, guess) = (&mut self.solver, call.guess);
        match call.by {
            "kept" => solver.enqueue_again(&b, guess, &mut x),
            "near" => solver.enqueue_near(&values, &b, guess, &mut x),
            "kept-transposed" => solver.enqueue_transposed_again(&b, guess, &mut x),
            _ => solver.enqueue(&values, &b, guess, &mut x),
        }
    }

    fn finish(&mut self, call: Call<'_>) -> Result<gpu::DeviceReport, SolveError> {
        let (values, b, mut x) = (buffer(call.values), buffer(call.b), buffer(call.x));
        match call.by {
            "kept" => self.solver.finish_again(&b, &mut x),
            "kept-transposed" => self.solver.finish_transposed_again(&b, &mut x),
            _ => self.solver.finish(&values, &b, &mut x),
        }
    }

    fn solve(&mut self, call: Call<'_>) -> Result<gpu::DeviceReport, SolveError> {
        self.enqueue(call)?;
        self.finish(call)
    }

    /// Solves with the limits of one call; those of the solver hold again afterwards.
    fn solve_limited(
        &mut self,
        call: Call<'_>,
        limited: &SolveOptions,
    ) -> Result<gpu::DeviceReport, SolveError> {
        let solved = self.solver.replace_limits(limited).and_then(|()| self.solve(call));
        let restored = self.solver.replace_limits(&self.options);
        let report = solved?;
        restored.map(|()| report)
    }
}

impl DeviceSolver {
    fn engine(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Engine>> {
        self.control.refuse_own_callback()?;
        locked(py, &self.engine)
    }

    /// The result of a call that may have allocated: what the allocator raised is told.
    fn told<R>(&self, py: Python<'_>, result: PyResult<R>) -> PyResult<R> {
        match &self.allocator {
            Some(allocator) => allocator.get().told(py, result),
            None => result,
        }
    }
}

/// The pattern of a uniform batch and its number of items; what is not supported for others.
fn one_pattern<'a>(
    patterns: &'a Patterns,
    otherwise: &'static str,
) -> PyResult<(CsrPatternRef<'a>, usize)> {
    let one = patterns.one().map(|(pattern, nitems)| (pattern.view(), nitems));
    one.ok_or_else(|| Unsupported::new_err(otherwise))
}

fn guess_of(from_x: bool) -> Guess {
    if from_x { Guess::InX } else { Guess::Zero }
}

#[pymethods]
impl DeviceSolver {
    /// Analyses a batch whose values lie on GPU `ordinal`, for solves on `stream`.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        patterns: &Bound<'_, Patterns>,
        values: Array,
        dtype: &str,
        layout: &str,
        vectors: &str,
        transposed: bool,
        options: Options<'_>,
        ordinal: usize,
        stream: u64,
        allocator: Option<Py<Allocator>>,
    ) -> PyResult<Self> {
        let control = Control::new(None)?;
        let options = options.solve_options()?.watch(control.watch.clone());
        let data = gpu::DeviceData::new()
            .values(Place::named(layout)?.layout())
            .vectors(Place::named(vectors)?.layout())
            .transposed(transposed);
        let patterns = patterns.get();
        let systems = patterns.nitems() * options.nrhs;
        let memory = allocator.as_ref().map(Py::get);
        let make = || {
            let device = device_on(&device_of(ordinal)?, stream);
            let device = memory.map_or_else(|| device.clone(), |memory| memory.on(&device));
            match dtype {
                "float64" => {
                    OnDevice::new(patterns, values, device, &options, data).map(Engine::F64)
                }
                "float32" => {
                    OnDevice::new(patterns, values, device, &options, data).map(Engine::F32)
                }
                _ => Err(OptionError::new_err(format!("values are {dtype}"))),
            }
        };
        let made = control.run(py, true, None, make)?;
        let engine = match memory {
            Some(memory) => memory.told(py, made)?,
            None => made?,
        };
        Ok(Self { control, allocator, systems, engine: Mutex::new(engine) })
    }

    /// Solves and waits; guesses are in `x` if `from_x`. `by` names the matrices, as for `Solver`;
    /// `limits` are those of this call.
    #[pyo3(signature = (by, values, b, x, from_x, progress=None, limits=None))]
    #[allow(clippy::too_many_arguments)]
    fn solve(
        &self,
        py: Python<'_>,
        by: &str,
        values: Array,
        b: Array,
        x: Array,
        from_x: bool,
        progress: Option<&Bound<'_, PyAny>>,
        limits: Option<CallLimits<'_>>,
    ) -> PyResult<Report> {
        let call = Call { by, values, b, x, guess: guess_of(from_x) };
        let mut engine = self.engine(py)?;
        let long = values.1 >= LONG;
        let solved = each!(Engine, &mut *engine, own => {
            let limited = limits.map(|limits| limits.limited(&own.options, self.systems));
            let limited = limited.transpose()?;
            self.control.run(py, long, progress, || match &limited {
                None => own.solve(call),
                Some(limited) => own.solve_limited(call, &limited.options),
            })?
        });
        self.told(py, solved.or_raise()).map(Report::from)
    }

    /// Starts the first method and returns; may be recorded in a graph.
    #[allow(clippy::too_many_arguments)]
    fn enqueue(
        &self,
        py: Python<'_>,
        by: &str,
        values: Array,
        b: Array,
        x: Array,
        from_x: bool,
    ) -> PyResult<()> {
        let call = Call { by, values, b, x, guess: guess_of(from_x) };
        let begun = each!(Engine, &mut *self.engine(py)?, own => own.enqueue(call).or_raise());
        self.told(py, begun)
    }

    /// Waits for the last `enqueue`, and solves what failed.
    fn finish(
        &self,
        py: Python<'_>,
        by: &str,
        values: Array,
        b: Array,
        x: Array,
    ) -> PyResult<Report> {
        let call = Call { by, values, b, x, guess: Guess::Zero };
        let mut engine = self.engine(py)?;
        let long = values.1 >= LONG;
        let solved = each!(Engine, &mut *engine, own => {
            self.control.run(py, long, None, || own.finish(call))?
        });
        self.told(py, solved.or_raise()).map(Report::from)
    }

    /// Compiles the kernels of solves from guesses, and allocates their memory.
    fn prepare_guesses(&self, py: Python<'_>) -> PyResult<()> {
        let mut engine = self.engine(py)?;
        let prepared = each!(Engine, &mut *engine, own => own.solver.prepare_guesses());
        self.told(py, prepared.or_raise())
    }

    /// Keeps the matrices, and their factors where the method has some.
    fn factor(&self, py: Python<'_>, values: Array) -> PyResult<()> {
        let mut engine = self.engine(py)?;
        let factored = each!(Engine, &mut *engine, own => {
            self.control.run(py, false, None, || own.solver.factor(&buffer(values)))?
        });
        self.told(py, factored.or_raise())
    }

    fn keeps_factors(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(each!(Engine, &*self.engine(py)?, own => own.solver.keeps_factors()))
    }

    /// Addresses and lengths of the outcomes on the device: statuses (uint8), iterations (uint32),
    /// residual norms and norms of b (float64).
    fn outcomes(&self, py: Python<'_>) -> PyResult<Vec<Array>> {
        fn place<T: Pod>(buffer: &DeviceBuffer<T>) -> Array {
            (buffer.raw(), buffer.len())
        }
        Ok(each!(Engine, &*self.engine(py)?, own => {
            let on = own.solver.device_outcomes();
            vec![
                place(on.statuses),
                place(on.iterations),
                place(on.residual_norms),
                place(on.rhs_norms),
            ]
        }))
    }

    /// Writes the gradient by the values, on the stream.
    fn value_gradient(
        &self,
        py: Python<'_>,
        adjoint: Array,
        x: Array,
        gradient: Array,
    ) -> PyResult<()> {
        each!(Engine, &mut *self.engine(py)?, own => {
            if own.gradient.is_none() {
                own.gradient = Some(own.solver.value_gradient().or_raise()?);
            }
            let Some(writer) = &mut own.gradient else { return Ok(()) };
            let (adjoint, x) = (buffer(adjoint), buffer(x));
            writer.apply(&adjoint, &x, &mut buffer(gradient)).map_err(SolveError::from).or_raise()
        })
    }

    /// Writes `I/dt - J` for every item of a uniform batch, on the stream.
    fn shift(
        &self,
        py: Python<'_>,
        patterns: &Bound<'_, Patterns>,
        jacobian: Array,
        dt: Array,
        values: Array,
    ) -> PyResult<()> {
        let (pattern, nitems) = one_pattern(
            patterns.get(),
            "a shift of a ragged batch on the GPU is not supported yet: add it to the values",
        )?;
        each!(Engine, &mut *self.engine(py)?, own => {
            if own.shift.is_none() {
                let made = ShiftedValues::new(&own.device, pattern, nitems);
                own.shift = Some(made.map_err(SolveError::from).or_raise()?);
            }
            let Some(shift) = &own.shift else { return Ok(()) };
            let (jacobian, dt) = (buffer(jacobian), buffer(dt));
            shift.apply(&jacobian, &dt, &mut buffer(values)).map_err(SolveError::from).or_raise()
        })
    }

    /// Waits for the stream.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let device = each!(Engine, &*self.engine(py)?, own => own.device.clone());
        py.detach(|| device.synchronize()).or_raise()
    }
}
