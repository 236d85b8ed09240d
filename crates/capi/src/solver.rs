//! Solvers: [`Solver`], over data in host memory or on a GPU.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use sparsebatch::gpu::{Guess, SolverMemory};
use sparsebatch::{SolveOptions, SolveScalar, Status, Watch};

use crate::batch::{Batch, DType};
use crate::context::Context;
use crate::device::{OnDevice, solver_memory_of};
use crate::ffi::{CallerMemory, DeviceOutcomes, Input, Output, SolverSettings, sb_solver};
use crate::handle::unknown;
use crate::host::Host;
use crate::limits::{Inactive, Limits, VectorOrder};
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

/// The limits of one solve, and the systems that take part, one element for each; `None` for all.
pub(crate) struct CallLimits {
    pub(crate) limits: Limits,
    pub(crate) active: Option<Vec<u8>>,
}

/// A solver in one precision, for data in one place.
pub(crate) trait Engine: Send {
    /// Takes other values, which stay where they are.
    fn set_values(&mut self, values: Input) -> Result<(), Failure>;

    /// Takes the values of `I/dt - J`.
    fn shift(&mut self, jacobian: Input, dt: Input) -> Result<(), Failure>;

    fn factor(&mut self, context: &Context) -> Result<(), Failure>;

    fn keeps_factors(&self) -> bool;

    /// Takes the tolerances and iteration limits of other options.
    fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), Failure>;

    /// Solves; the options have the limits of systems that take no part.
    fn solve(
        &mut self,
        context: &Context,
        call: Call,
        inactive: Option<&Inactive>,
    ) -> Result<AnyReport, Failure>;

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
    pub(crate) dtype: DType,
    watch: Watch,
    fallback: bool,
    on_device: bool,
    /// Functions that allocate memory of the GPU.
    memory: Option<Arc<CallerMemory>>,
    vectors: Arc<VectorOrder>,
    state: Mutex<State>,
}

struct State {
    /// `None` once the handle is gone.
    engine: Option<Box<dyn Engine>>,
    /// The current options.
    options: SolveOptions,
    /// The report of the last solve, and the systems that it left out.
    last: Option<(AnyReport, Option<Inactive>)>,
    /// Whether the engine has other limits than `options`, which it refused.
    is_stale: bool,
}

impl Solver {
    pub(crate) fn new(
        batch: &Batch,
        values: Input,
        mut settings: SolverSettings,
    ) -> Result<Self, Failure> {
        let watch = Watch::new();
        settings.options = settings.options.watch(watch.clone());
        let (fallback, on_device) = (settings.options.fallback, settings.place.is_some());
        batch.context.check_arrays(on_device, &[values])?;
        let options = settings.options.clone();
        let vectors = VectorOrder::new(batch, options.nrhs, settings.interleaved_vectors);
        let vectors = Arc::new(vectors);
        let memory = settings.place.as_ref().and_then(|place| place.memory().cloned());
        let engine = match batch.dtype {
            DType::F64 => engine_of::<f64>(batch, values, settings),
            DType::F32 => engine_of::<f32>(batch, values, settings),
        };
        let engine = Some(told(memory.as_ref(), engine)?);
        let context = Arc::clone(&batch.context);
        let state = Mutex::new(State { engine, options, last: None, is_stale: false });
        let dtype = batch.dtype;
        Ok(Self { context, dtype, watch, fallback, on_device, memory, vectors, state })
    }

    /// The memory of the GPU that a solver takes.
    pub(crate) fn memory(
        batch: &Batch,
        values: Input,
        settings: &SolverSettings,
    ) -> Result<SolverMemory, Failure> {
        batch.context.check_arrays(false, &[values])?;
        match batch.dtype {
            DType::F64 => solver_memory_of::<f64>(batch, values, settings),
            DType::F32 => solver_memory_of::<f32>(batch, values, settings),
        }
    }

    /// The result of a call that may have allocated memory of the GPU.
    fn told<R>(&self, result: Result<R, Failure>) -> Result<R, Failure> {
        told(self.memory.as_ref(), result)
    }

    /// The state, unless another call has it.
    fn state(&self) -> Result<MutexGuard<'_, State>, Failure> {
        self.state.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                Failure::new(SB_ERROR_BUSY, "the solver is in use by another call at this moment")
            }
            TryLockError::Poisoned(_) => Failure::new(
                SB_ERROR_INTERNAL,
                "the solver was lost in an earlier fault: destroy it and create another",
            ),
        })
    }

    /// Waits for the call that runs, and refuses others from then on.
    pub(crate) fn end(&self) {
        // Within the lock: memory and streams of the caller are not used after this.
        self.state.lock().unwrap_or_else(PoisonError::into_inner).engine = None;
    }

    pub(crate) fn set_values(&self, values: Input) -> Result<(), Failure> {
        self.context.check_arrays(self.on_device, &[values])?;
        self.told(self.state()?.engine()?.set_values(values))
    }

    pub(crate) fn shift(&self, jacobian: Input, dt: Input) -> Result<(), Failure> {
        self.context.check_arrays(self.on_device, &[jacobian, dt])?;
        self.told(self.state()?.engine()?.shift(jacobian, dt))
    }

    pub(crate) fn factor(&self) -> Result<(), Failure> {
        self.told(self.state()?.engine()?.factor(&self.context))
    }

    pub(crate) fn keeps_factors(&self) -> Result<bool, Failure> {
        Ok(self.state()?.engine()?.keeps_factors())
    }

    /// Solves, and tells how many systems did not converge.
    pub(crate) fn solve(&self, call: Call) -> Result<usize, Failure> {
        self.context.check_arrays(self.on_device, &[call.b, call.x.as_input()])?;
        let mut state = self.state()?;
        state.last = None;
        let report = self.told(state.engine()?.solve(&self.context, call, None))?;
        Ok(state.keep(report, None))
    }

    /// The current options.
    pub(crate) fn options(&self) -> Result<SolveOptions, Failure> {
        Ok(self.state()?.options.clone())
    }

    /// The number of systems.
    pub(crate) fn nsystems(&self) -> usize {
        self.vectors.nsystems()
    }

    /// Takes other limits for the solves that follow.
    pub(crate) fn set_limits(&self, limits: Limits) -> Result<(), Failure> {
        let mut state = self.state()?;
        let options = limits.of(state.options.clone());
        self.told(state.replace_limits(&options))?;
        state.options = options;
        Ok(())
    }

    /// As [`Solver::solve`], with limits of this call.
    pub(crate) fn solve_with(&self, call: Call, own: CallLimits) -> Result<usize, Failure> {
        self.context.check_arrays(self.on_device, &[call.b, call.x.as_input()])?;
        let mut state = self.state()?;
        state.last = None;
        let active = own.active.map(|active| Inactive::new(&self.vectors, &active));
        let inactive = active.transpose()?.flatten();
        let mut options = own.limits.of(state.options.clone());
        if let Some(inactive) = &inactive {
            options = inactive.of(options);
        }
        self.told(state.replace_limits(&options))?;
        let solved = state.engine()?.solve(&self.context, call, inactive.as_ref());
        let solved = self.told(solved);
        let before = state.options.clone();
        let restored = state.replace_limits(&before);
        let report = solved?;
        restored?;
        Ok(state.keep(report, inactive))
    }

    pub(crate) fn enqueue(&self, call: Call) -> Result<(), Failure> {
        self.context.check_arrays(self.on_device, &[call.b, call.x.as_input()])?;
        let mut state = self.state()?;
        state.last = None;
        self.told(state.engine()?.enqueue(call))
    }

    pub(crate) fn finish(&self) -> Result<usize, Failure> {
        let mut state = self.state()?;
        let report = self.told(state.engine()?.finish(&self.context))?;
        Ok(state.keep(report, None))
    }

    pub(crate) fn prepare_guesses(&self) -> Result<(), Failure> {
        self.told(self.state()?.engine()?.prepare_guesses())
    }

    pub(crate) fn device_outcomes(&self) -> Result<DeviceOutcomes, Failure> {
        self.state()?.engine()?.device_outcomes()
    }

    /// Stops the solve that runs, or else the next one.
    pub(crate) fn stop(&self) {
        self.watch.stop();
    }

    /// The report of the last solve.
    pub(crate) fn report(&self) -> Result<Report, Failure> {
        let mut state = self.state()?;
        state.engine()?;
        let last = state.last.clone();
        let none =
            || Failure::new(SB_ERROR_NOT_FACTORED, "there is no report: expected a solve before");
        let (report, inactive) = last.ok_or_else(none)?;
        let inactive = inactive.map_or_else(|| Arc::from([]), |inactive| inactive.list());
        Ok(Report::new(Arc::clone(&self.context), report, inactive, self.fallback))
    }
}

impl State {
    /// The engine; an error for a call that had found the solver before another thread destroyed
    /// it.
    fn engine(&mut self) -> Result<&mut (dyn Engine + 'static), Failure> {
        let engine = self.engine.as_deref_mut().ok_or_else(unknown::<sb_solver>)?;
        if self.is_stale {
            engine.replace_limits(&self.options)?;
            self.is_stale = false;
        }
        Ok(engine)
    }

    /// Gives the engine limits; those that it has stay where it refuses them.
    fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), Failure> {
        let engine = self.engine.as_deref_mut().ok_or_else(unknown::<sb_solver>)?;
        let replaced = engine.replace_limits(options);
        if replaced.is_err() {
            // The first error is the one to tell.
            self.is_stale = engine.replace_limits(&self.options).is_err();
        }
        replaced
    }

    /// Keeps the report of a solve; the number of active systems that did not converge.
    fn keep(&mut self, report: AnyReport, inactive: Option<Inactive>) -> usize {
        let mut failed = report.nsystems() - report.converged();
        if let Some(inactive) = inactive.as_ref().filter(|_| failed > 0) {
            let has_failed =
                |&&system: &&usize| report.systems[system].outcome.status != Status::Converged;
            failed -= inactive.systems().iter().filter(has_failed).count();
        }
        self.last = Some((report, inactive));
        failed
    }
}

/// The result of a call, with the cause of memory that functions of the caller refused.
pub(crate) fn told<R>(
    memory: Option<&Arc<CallerMemory>>,
    result: Result<R, Failure>,
) -> Result<R, Failure> {
    match memory {
        Some(memory) => memory.told(result),
        None => result,
    }
}

/// The engine of a batch in one precision.
fn engine_of<T: SolveScalar>(
    batch: &Batch,
    values: Input,
    settings: SolverSettings,
) -> Result<Box<dyn Engine>, Failure> {
    Ok(match &settings.place {
        None => Box::new(Host::<T>::new(batch, values, settings.options)?),
        Some(place) => Box::new(OnDevice::<T>::new(batch, values, place, &settings)?),
    })
}
