//! Solvers: [`Solver`], over data in host memory or on a GPU.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use sparsebatch::gpu::Guess;
use sparsebatch::{SolveScalar, Watch};

use crate::batch::{Batch, DType};
use crate::context::Context;
use crate::device::OnDevice;
use crate::ffi::{DeviceOutcomes, Input, Output, SolverSettings, sb_solver};
use crate::handle::unknown;
use crate::host::Host;
use crate::report::{AnyReport, Report};
use crate::status::{Failure, SB_ERROR_BUSY, SB_ERROR_INTERNAL, SB_ERROR_NOT_FACTORED};

/// By which matrices a system is solved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
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

/// A solve.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) by: By,
    pub(crate) guess: Guess,
    pub(crate) b: Input,
    pub(crate) x: Output,
}

/// A solver in one precision, for data in one place.
pub(crate) trait Engine: Send {
    /// Takes other values, which stay where they are.
    fn set_values(&mut self, values: Input) -> Result<(), Failure>;

    /// Takes the values of `I/dt - J`.
    fn shift(&mut self, jacobian: Input, dt: Input) -> Result<(), Failure>;

    fn factor(&mut self, context: &Context) -> Result<(), Failure>;

    fn keeps_factors(&self) -> bool;

    fn solve(&mut self, context: &Context, call: Call) -> Result<AnyReport, Failure>;

    /// Starts a solve.
    fn enqueue(&mut self, call: Call) -> Result<(), Failure>;

    /// Completes the solve that was started.
    fn finish(&mut self, context: &Context) -> Result<AnyReport, Failure>;

    fn prepare_guesses(&mut self) -> Result<(), Failure>;

    fn device_outcomes(&self) -> Result<DeviceOutcomes, Failure>;
}

/// A solver.
pub(crate) struct Solver {
    pub(crate) context: Arc<Context>,
    watch: Watch,
    fallback: bool,
    on_device: bool,
    state: Mutex<State>,
}

struct State {
    engine: Box<dyn Engine>,
    last: Option<AnyReport>,
    /// Whether the handle is gone.
    ended: bool,
}

impl Solver {
    pub(crate) fn new(
        batch: &Batch,
        values: Input,
        mut settings: SolverSettings,
    ) -> Result<Self, Failure> {
        let watch = Watch::new();
        settings.options = settings.options.watch(watch.clone());
        let (fallback, on_device) = (settings.options.fallback, settings.stream.is_some());
        batch.context.check_arrays(on_device, &[values])?;
        let engine = match batch.dtype {
            DType::F64 => engine_of::<f64>(batch, values, settings)?,
            DType::F32 => engine_of::<f32>(batch, values, settings)?,
        };
        let context = Arc::clone(&batch.context);
        let state = Mutex::new(State { engine, last: None, ended: false });
        Ok(Self { context, watch, fallback, on_device, state })
    }

    /// The engine, unless another call has it.
    fn state(&self) -> Result<MutexGuard<'_, State>, Failure> {
        let state = self.state.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                Failure::new(SB_ERROR_BUSY, "the solver is in use by another call at this moment")
            }
            TryLockError::Poisoned(_) => Failure::new(
                SB_ERROR_INTERNAL,
                "the solver was lost in an earlier fault: destroy it and create another",
            ),
        })?;
        // A call that had found the solver before another thread destroyed it.
        if state.ended { Err(unknown::<sb_solver>()) } else { Ok(state) }
    }

    /// Waits for the call that runs, and refuses others from then on.
    pub(crate) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
    }

    pub(crate) fn set_values(&self, values: Input) -> Result<(), Failure> {
        self.context.check_arrays(self.on_device, &[values])?;
        self.state()?.engine.set_values(values)
    }

    pub(crate) fn shift(&self, jacobian: Input, dt: Input) -> Result<(), Failure> {
        self.context.check_arrays(self.on_device, &[jacobian, dt])?;
        self.state()?.engine.shift(jacobian, dt)
    }

    pub(crate) fn factor(&self) -> Result<(), Failure> {
        self.state()?.engine.factor(&self.context)
    }

    pub(crate) fn keeps_factors(&self) -> Result<bool, Failure> {
        Ok(self.state()?.engine.keeps_factors())
    }

    /// Solves, and tells how many systems did not converge.
    pub(crate) fn solve(&self, call: Call) -> Result<usize, Failure> {
        self.context.check_arrays(self.on_device, &[call.b, call.x.as_input()])?;
        let mut state = self.state()?;
        state.last = None;
        let report = state.engine.solve(&self.context, call)?;
        Ok(state.keep(report))
    }

    pub(crate) fn enqueue(&self, call: Call) -> Result<(), Failure> {
        self.context.check_arrays(self.on_device, &[call.b, call.x.as_input()])?;
        let mut state = self.state()?;
        state.last = None;
        state.engine.enqueue(call)
    }

    pub(crate) fn finish(&self) -> Result<usize, Failure> {
        let mut state = self.state()?;
        let report = state.engine.finish(&self.context)?;
        Ok(state.keep(report))
    }

    pub(crate) fn prepare_guesses(&self) -> Result<(), Failure> {
        self.state()?.engine.prepare_guesses()
    }

    pub(crate) fn device_outcomes(&self) -> Result<DeviceOutcomes, Failure> {
        self.state()?.engine.device_outcomes()
    }

    /// Stops the solve that runs, or else the next one.
    pub(crate) fn stop(&self) {
        self.watch.stop();
    }

    /// The report of the last solve.
    pub(crate) fn report(&self) -> Result<Report, Failure> {
        let last = self.state()?.last.clone();
        let none =
            || Failure::new(SB_ERROR_NOT_FACTORED, "there is no report: expected a solve before");
        Ok(Report::new(Arc::clone(&self.context), last.ok_or_else(none)?, self.fallback))
    }
}

impl State {
    /// Keeps the report of a solve; the number of systems that did not converge.
    fn keep(&mut self, report: AnyReport) -> usize {
        let failed = report.nsystems() - report.converged();
        self.last = Some(report);
        failed
    }
}

/// The engine of a batch in one precision.
fn engine_of<T: SolveScalar>(
    batch: &Batch,
    values: Input,
    settings: SolverSettings,
) -> Result<Box<dyn Engine>, Failure> {
    Ok(match settings.stream {
        None => Box::new(Host::<T>::new(batch, values, settings.options)?),
        Some(stream) => Box::new(OnDevice::<T>::new(batch, values, stream, settings)?),
    })
}
