//! Solvers of batches in host memory: [`Solver`].

use std::sync::{Mutex, MutexGuard};

use pyo3::buffer::Element;
use pyo3::prelude::*;
use sparsebatch::batch::Values;
use sparsebatch::{
    AdjointSolver, Backend, Batch, BatchReport, BatchSolver, Method, PlanPin, SolveError,
    SolveOptions, SolveScalar, value_gradient,
};

use crate::backend::backend;
use crate::errors::{OptionError, OrRaise};
use crate::ffi::{Input, Output};
use crate::interrupt::Control;
use crate::limits::{CallLimits, Limited, keeping};
use crate::options::Options;
use crate::patterns::{Patterns, Place};
use crate::precision::{each, locked};
use crate::report::Report;

/// Entries times right-hand sides from which a solve looks for Ctrl-C, and times iterations for
/// iterative methods: shorter ones have ended before anybody pressed it.
const LONG: usize = 1 << 18;
const LONG_WITH_ITERATIONS: u128 = 1 << 26;

/// Rows of a matrix, on average, from which a solve looks for Ctrl-C.
const LARGE_ROWS: usize = 1024;

/// A batch in host memory, analysed.
#[pyclass(frozen, module = "sparsebatch._native")]
pub(crate) struct Solver {
    control: Control,
    engine: Mutex<Engine>,
}

enum Engine {
    F64(Host<f64>),
    F32(Host<f32>),
}

/// A solver and the batch with its current values.
struct Host<T: Element> {
    backend: Backend,
    options: SolveOptions,
    solver: BatchSolver<T>,
    batch: Batch<T>,
    place: Place,
    adjoint: Option<AdjointSolver<T>>,
}

/// By which matrices a system is solved.
#[derive(Clone, Copy)]
enum By {
    /// The current values.
    Values,
    /// The matrices of the last `factor`.
    Kept,
    /// The current values, by the factors of the last `factor`.
    Near,
    /// The transposed ones of the current values.
    Transposed,
    /// The transposed ones of the last `factor`.
    KeptTransposed,
}

impl By {
    fn named(name: &str) -> PyResult<Self> {
        match name {
            "values" => Ok(Self::Values),
            "kept" => Ok(Self::Kept),
            "near" => Ok(Self::Near),
            "transposed" => Ok(Self::Transposed),
            "kept-transposed" => Ok(Self::KeptTransposed),
            _ => Err(OptionError::new_err(format!("no solve is called {name}"))),
        }
    }
}

impl<T: SolveScalar + Element> Host<T> {
    fn new(
        patterns: &Patterns,
        values: Input<T>,
        place: Place,
        backend: Backend,
        options: SolveOptions,
    ) -> Result<Self, SolveError> {
        let batch = patterns.batch(Values::of_owner(values), place);
        let batch = batch.map_err(sparsebatch::cpu::CpuError::from)?;
        let solver = BatchSolver::on(&backend, &batch, &options)?;
        Ok(Self { backend, options, solver, batch, place, adjoint: None })
    }

    /// Whether a solve may take so long that somebody wants to end it.
    fn is_long(&self) -> bool {
        let entries = self.batch.total_nnz().saturating_mul(self.options.nrhs);
        // Factors of a large matrix may have many more entries than it has.
        let nitems = self.batch.nitems();
        if self.batch.row_offset(nitems) >= LARGE_ROWS * nitems.max(1) {
            return true;
        }
        let iterations = match self.options.method {
            Method::Lu | Method::PivotingLu | Method::Banded => 0,
            Method::Auto | Method::Cg | Method::BiCgStab => {
                self.options.max_iters.values().iter().copied().max().unwrap_or(0)
            }
        };
        let work = entries as u128 * u128::from(iterations);
        entries >= LONG || work >= LONG_WITH_ITERATIONS
    }

    /// Analyses the transposed matrices, unless that was done.
    fn prepare_adjoint(&mut self) -> Result<(), SolveError> {
        if self.adjoint.is_none() {
            let made = AdjointSolver::on(&self.backend, &self.batch, &self.options)?;
            self.adjoint = Some(made);
        }
        Ok(())
    }

    fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), SolveError> {
        self.solver.replace_limits(options)?;
        self.adjoint.as_mut().map_or(Ok(()), |adjoint| adjoint.replace_limits(options))
    }

    /// Solves with the limits of one call; those of the solver hold again afterwards.
    fn solve_limited(
        &mut self,
        by: By,
        b: &[T],
        x: &mut [T],
        limited: &Limited,
    ) -> Result<BatchReport, SolveError> {
        if matches!(by, By::Transposed) {
            self.prepare_adjoint()?;
        }
        let kept = limited.rows(&self.batch);
        let solved = self
            .replace_limits(&limited.options)
            .and_then(|()| keeping(kept, x, |x| self.solve(by, b, x)));
        let own = self.options.clone();
        let restored = self.replace_limits(&own);
        let report = solved?;
        restored.map(|()| report)
    }

    fn solve(&mut self, by: By, b: &[T], x: &mut [T]) -> Result<BatchReport, SolveError> {
        match by {
            By::Values => self.solver.solve(&self.batch, b, x),
            By::Kept => self.solver.solve_again(b, x),
            By::Near => self.solver.solve_near(&self.batch, b, x),
            By::KeptTransposed => self.solver.solve_transposed_again(b, x),
            By::Transposed => {
                self.prepare_adjoint()?;
                let adjoint = self.adjoint.as_mut().ok_or(SolveError::NotFactored)?;
                adjoint.solve(&self.batch, b, x)
            }
        }
    }
}

impl Solver {
    /// Makes the engine in one precision.
    fn host<T: SolveScalar + Element>(
        py: Python<'_>,
        control: &Control,
        patterns: &Patterns,
        values: &Bound<'_, PyAny>,
        place: Place,
        backend: Backend,
        options: SolveOptions,
    ) -> PyResult<Host<T>> {
        let values = Input::of("values", values)?;
        let long = values.as_ref().len() >= LONG;
        control
            .run(py, long, None, || Host::new(patterns, values, place, backend, options))?
            .or_raise()
    }

    fn engine(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Engine>> {
        self.control.refuse_own_callback()?;
        locked(py, &self.engine)
    }
}

#[pymethods]
impl Solver {
    /// Analyses a batch. `backend` is a tuple: `("cpu", 0)`, `("gpu", ordinal)`, `("auto", 0)`.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        patterns: &Bound<'_, Patterns>,
        values: &Bound<'_, PyAny>,
        dtype: &str,
        layout: &str,
        options: Options<'_>,
        place: (String, Vec<usize>),
        threads: Option<usize>,
        pin: Option<String>,
    ) -> PyResult<Self> {
        let control = Control::new(threads)?;
        let options = options.solve_options()?.watch(control.watch.clone());
        let pin = pin.map(|text| text.parse::<PlanPin>()).transpose().or_raise()?;
        let backend = backend(&place, pin.as_ref())?;
        let (patterns, layout) = (patterns.get(), Place::named(layout)?);
        let engine = match dtype {
            "float64" => {
                Engine::F64(Self::host(py, &control, patterns, values, layout, backend, options)?)
            }
            "float32" => {
                Engine::F32(Self::host(py, &control, patterns, values, layout, backend, options)?)
            }
            _ => return Err(OptionError::new_err(format!("values are {dtype}"))),
        };
        Ok(Self { control, engine: Mutex::new(engine) })
    }

    /// Takes other values for the solves that follow; `values` is read where it lies.
    fn update_values(
        &self,
        py: Python<'_>,
        patterns: &Bound<'_, Patterns>,
        values: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let patterns = patterns.get();
        each!(Engine, &mut *self.engine(py)?, host => {
            let values = Values::of_owner(Input::of("values", values)?);
            host.batch = patterns.batch(values, host.place).or_raise()?;
        });
        Ok(())
    }

    /// Keeps the current matrices, and their factors where the method has some.
    fn factor(&self, py: Python<'_>) -> PyResult<()> {
        let mut engine = self.engine(py)?;
        each!(Engine, &mut *engine, host => {
            let long = host.batch.total_nnz() >= LONG;
            self.control.run(py, long, None, || host.solver.factor(&host.batch))?.or_raise()
        })
    }

    /// Whether the last `factor`, or the next one, keeps factors.
    fn keeps_factors(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(each!(Engine, &*self.engine(py)?, host => host.solver.keeps_factors()))
    }

    /// Solves; `x` holds guesses and becomes solutions. `by` names the matrices; `progress` is
    /// called with the numbers of systems that have ended and of all systems; `limits` are those of
    /// this call.
    #[pyo3(signature = (by, b, x, progress=None, limits=None))]
    fn solve(
        &self,
        py: Python<'_>,
        by: &str,
        b: &Bound<'_, PyAny>,
        x: &Bound<'_, PyAny>,
        progress: Option<&Bound<'_, PyAny>>,
        limits: Option<CallLimits<'_>>,
    ) -> PyResult<Report> {
        let by = By::named(by)?;
        let mut engine = self.engine(py)?;
        let report = each!(Engine, &mut *engine, host => {
            let (b, mut x) = (Input::of("b", b)?, Output::of("x", x)?);
            let systems = host.batch.nitems() * host.options.nrhs;
            let limited = limits.map(|limits| limits.limited(&host.options, systems)).transpose()?;
            let long = host.is_long();
            self.control.run(py, long, progress, || match &limited {
                None => host.solve(by, b.as_ref(), x.as_mut()),
                Some(limited) => host.solve_limited(by, b.as_ref(), x.as_mut(), limited),
            })?
        });
        Ok(Report::from(report.or_raise()?))
    }

    /// Writes the gradient by the values: `-lambda[row] x[col]` for each entry.
    fn value_gradient(
        &self,
        py: Python<'_>,
        adjoint: &Bound<'_, PyAny>,
        x: &Bound<'_, PyAny>,
        gradient: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let mut engine = self.engine(py)?;
        each!(Engine, &mut *engine, host => {
            let (adjoint, x) = (Input::of("lambda", adjoint)?, Input::of("x", x)?);
            let mut gradient = Output::of("gradient", gradient)?;
            let (batch, nrhs) = (&host.batch, host.options.nrhs);
            let written = self.control.run(py, false, None, || {
                value_gradient(batch, nrhs, adjoint.as_ref(), x.as_ref(), gradient.as_mut())
            })?;
            written.or_raise()
        })
    }
}
