//! Solvers of batches whose arrays lie on a GPU: [`OnDevice`].

use std::sync::Arc;

use sparsebatch::batch::Values;
use sparsebatch::gpu::{
    Device, DeviceBuffer, DeviceData, DeviceSolver, Executor, Guess, Pod, ShiftedValues,
    SolverMemory, solver_memory,
};
use sparsebatch::{CsrPattern, Layout, Pattern, SolveOptions, SolveScalar, Status};

use crate::batch::{Batch, Patterns, Place, with_values};
use crate::context::Context;
use crate::ffi::{DeviceOutcomes, DevicePlace, Input, SolverSettings};
use crate::limits::Inactive;
use crate::report::AnyReport;
use crate::solver::{By, Call, Engine};
use crate::status::{Failure, SB_ERROR_NOT_FACTORED, check_len};

/// The memory of the GPU that a solver of these matrices takes, whose values are in host memory.
pub(crate) fn solver_memory_of<T: SolveScalar + Pod>(
    batch: &Batch,
    values: Input,
    settings: &SolverSettings,
) -> Result<SolverMemory, Failure> {
    let context = &batch.context;
    let info = context.device()?.info();
    let own = with_values(&batch.patterns, batch.place, Values::of_owner(values.borrowed::<T>()?))?;
    let (options, data) = (&settings.options, data_of(batch, settings));
    Ok(context.run(|| solver_memory(info, &own, options, data))??)
}

/// How the arrays of a solver lie on the device.
fn data_of(batch: &Batch, settings: &SolverSettings) -> DeviceData {
    let vectors = match settings.interleaved_vectors {
        true => Layout::Interleaved,
        false => Layout::ItemMajor,
    };
    DeviceData::new().values(batch.place.layout()).vectors(vectors)
}

/// A solver, and the values of the caller.
pub(crate) struct OnDevice<T: SolveScalar> {
    device: Device,
    solver: DeviceSolver<Device, T>,
    /// The current values: those of the caller, or those of `shift`.
    values: DeviceBuffer<T>,
    place: Place,
    /// The pattern of a uniform batch and its number of items.
    uniform: Option<(Arc<CsrPattern>, usize)>,
    /// Forms shifted matrices, and holds their values.
    shift: Option<(ShiftedValues<Device, T>, DeviceBuffer<T>)>,
    started: Option<Started<T>>,
}

/// A solve that was started.
struct Started<T: Pod> {
    by: By,
    values: DeviceBuffer<T>,
    b: DeviceBuffer<T>,
    x: DeviceBuffer<T>,
    /// A graph that has recorded the solve may be finished again.
    finished: bool,
}

impl<T: SolveScalar + Pod> OnDevice<T> {
    pub(crate) fn new(
        batch: &Batch,
        values: Input,
        place: &DevicePlace,
        settings: &SolverSettings,
    ) -> Result<Self, Failure> {
        let context = &batch.context;
        let device = place.of(context.device()?);
        check_len("values", batch.nvalues(), values.len())?;
        let data = data_of(batch, settings);
        let values = values.buffer::<T>()?;
        let (patterns, options) = (batch.patterns.items(), &settings.options);
        let made = || DeviceSolver::with_values(&device, patterns, &values, options, data);
        let solver = context.run(made)??;
        let uniform = match &batch.patterns {
            Patterns::Uniform { pattern, nitems } => Some((Arc::clone(pattern), *nitems)),
            Patterns::Ragged(_) => None,
        };
        let (shift, started) = (None, None);
        Ok(Self { device, solver, values, place: batch.place, uniform, shift, started })
    }

    /// Whether a solve was enqueued and not finished.
    fn is_unfinished(&self) -> bool {
        self.started.as_ref().is_some_and(|started| !started.finished)
    }

    /// A copy of the guesses of a solve; `None` where they are 0.
    fn guesses_of(&self, call: Call) -> Result<Option<Vec<T>>, Failure> {
        if call.guess == Guess::Zero {
            return Ok(None);
        }
        let x = call.x.buffer::<T>()?;
        Ok(Some(self.device.download(&x)?))
    }

    /// What forms shifted matrices; made by the first call.
    fn shifted(&mut self) -> Result<&mut (ShiftedValues<Device, T>, DeviceBuffer<T>), Failure> {
        let Some((pattern, nitems)) = &self.uniform else {
            return Err(Failure::unsupported(
                "a shift of a ragged batch on the GPU is not supported yet: add it to the values",
            ));
        };
        let layout = match self.place {
            Place::ItemMajor => None,
            Place::Interleaved => Some("interleaved"),
            Place::Shared => Some("shared"),
        };
        if let Some(layout) = layout {
            return Err(Failure::unsupported(format!(
                "a shift of {layout} values on the GPU is not supported yet: add it to the values"
            )));
        }
        match &mut self.shift {
            Some(shift) => Ok(shift),
            shift => {
                let forms = ShiftedValues::new(&self.device, pattern.view(), *nitems)?;
                let values = self.device.alloc(self.values.len())?;
                Ok(shift.insert((forms, values)))
            }
        }
    }
}

impl<T: SolveScalar + Pod> Engine for OnDevice<T> {
    fn set_values(&mut self, values: Input) -> Result<(), Failure> {
        // Shared values stay shared.
        check_len("values", self.values.len(), values.len())?;
        self.values = values.buffer()?;
        Ok(())
    }

    fn shift(&mut self, jacobian: Input, dt: Input) -> Result<(), Failure> {
        if self.is_unfinished() {
            return Err(Failure::argument(
                "a shift would change the matrices of the solve that was enqueued: \
                 expected a call of sb_solver_finish before",
            ));
        }
        check_len("jacobian", self.values.len(), jacobian.len())?;
        let (jacobian, dt) = (jacobian.buffer::<T>()?, dt.buffer::<T>()?);
        let (forms, values) = self.shifted()?;
        forms.apply(&jacobian, &dt, values)?;
        self.values = values.range(0..values.len())?;
        Ok(())
    }

    fn factor(&mut self, context: &Context) -> Result<(), Failure> {
        let (solver, values) = (&mut self.solver, &self.values);
        Ok(context.run(|| solver.factor(values))??)
    }

    fn keeps_factors(&self) -> bool {
        self.solver.keeps_factors()
    }

    fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), Failure> {
        if self.is_unfinished() {
            return Err(Failure::argument(
                "other limits would change the solve that was enqueued: \
                 expected a call of sb_solver_finish before",
            ));
        }
        Ok(self.solver.replace_limits(options)?)
    }

    fn solve(
        &mut self,
        context: &Context,
        call: Call,
        inactive: Option<&Inactive>,
    ) -> Result<AnyReport, Failure> {
        let Some(inactive) = inactive else {
            self.enqueue(call)?;
            return self.finish(context);
        };
        let guesses = self.guesses_of(call)?;
        self.enqueue(call)?;
        let report = self.finish(context)?;
        let has_lost_x = |&system: &usize| {
            let outcome = &report.systems[system].outcome;
            outcome.rhs_norm == 0.0 || outcome.status != Status::Converged
        };
        if inactive.systems().iter().any(has_lost_x) {
            // Rare: a right-hand side of zeros, or a guess that is not finite.
            let mut on_device = call.x.buffer::<T>()?;
            let mut x = self.device.download(&on_device)?;
            match guesses {
                Some(guesses) => inactive.take_from(&guesses, &mut x),
                None => inactive.take_from(&vec![T::ZERO; x.len()], &mut x),
            }
            self.device.copy_from_host(&x, &mut on_device)?;
        }
        Ok(report)
    }

    fn enqueue(&mut self, call: Call) -> Result<(), Failure> {
        self.started = None;
        let (b, mut x) = (call.b.buffer::<T>()?, call.x.buffer::<T>()?);
        let (solver, values, guess) = (&mut self.solver, &self.values, call.guess);
        match call.by {
            By::Values => solver.enqueue(values, &b, guess, &mut x)?,
            By::Kept => solver.enqueue_again(&b, guess, &mut x)?,
            By::Near => solver.enqueue_near(values, &b, guess, &mut x)?,
            By::KeptTransposed => solver.enqueue_transposed_again(&b, guess, &mut x)?,
            By::Transposed => {
                return Err(Failure::unsupported(
                    "SB_TRANSPOSED with data on a GPU is not supported yet: \
                     call sb_solver_factor, then solve with SB_KEPT_TRANSPOSED",
                ));
            }
        }
        let values = values.range(0..values.len())?;
        self.started = Some(Started { by: call.by, values, b, x, finished: false });
        Ok(())
    }

    fn finish(&mut self, context: &Context) -> Result<AnyReport, Failure> {
        let Some(Started { by, values, b, x, finished }) = &mut self.started else {
            return Err(Failure::new(
                SB_ERROR_NOT_FACTORED,
                "there is nothing to finish: expected a call of sb_solver_enqueue before",
            ));
        };
        *finished = true;
        let solver = &mut self.solver;
        let report = context.run(|| match by {
            By::Kept => solver.finish_again(b, x),
            By::KeptTransposed => solver.finish_transposed_again(b, x),
            By::Values | By::Near | By::Transposed => solver.finish(values, b, x),
        })??;
        Ok(Arc::new(report))
    }

    fn prepare_guesses(&mut self) -> Result<(), Failure> {
        Ok(self.solver.prepare_guesses()?)
    }

    fn device_outcomes(&self) -> Result<DeviceOutcomes, Failure> {
        let on = self.solver.device_outcomes();
        Ok(DeviceOutcomes {
            statuses: on.statuses.raw(),
            iterations: on.iterations.raw(),
            residual_norms: on.residual_norms.raw(),
            rhs_norms: on.rhs_norms.raw(),
            len: on.statuses.len(),
        })
    }
}
