//! Products on a GPU of data on the host: copies there and back are part of the time.

use sparsebatch_cuda::{Device, GpuError};

use super::{Costs, Effort, Label, Measured, Problem, Session};
use crate::BenchError;
use crate::host_clock::wall;
use crate::phases::Phase::{Checking, Measuring};
use crate::phases::timed;
use sparsebatch_rows::Gap;

impl Session<'_> {
    /// Checks a call that computes `y += A x` of arrays on the host, times it by the host's clock
    /// and records the row; a refusal or a wrong answer becomes a gap. `state` persists between
    /// calls.
    ///
    /// # Errors
    /// When the device is lost, and when the row cannot be printed or written.
    pub(crate) fn with_transfers<S>(
        &mut self,
        (problem, label): (&Problem<'_>, &Label),
        x: &[f64],
        effort: Effort,
        state: Result<S, GpuError>,
        mut call: impl FnMut(&mut S, &Device, &[f64], &mut [f64]) -> Result<(), GpuError>,
        costs: impl FnOnce(&S) -> Costs,
    ) -> Result<(), BenchError> {
        let device = self.device.clone();
        let measured = state.and_then(|mut state| {
            let mut y = vec![0.0; problem.nrows];
            let wrong = timed(Checking, || {
                call(&mut state, &device, x, &mut y)?;
                Ok::<_, GpuError>((problem.oracle)(&y))
            })?;
            if let Some(wrong) = wrong {
                return Ok(Err(format!("wrong answer: {wrong}")));
            }
            let timing =
                timed(Measuring, || wall(effort, 1, |_| call(&mut state, &device, x, &mut y)))?;
            Ok(Ok((timing, costs(&state))))
        });
        let (reason, is_fault) = match measured {
            Ok(Ok((timing, costs))) => {
                let backend = Some("gpu");
                let measured = Measured { timing: &timing, copies: 1, costs, backend };
                let run = self.recorder.run();
                let row = problem.row(run, &run.machine, label, &measured);
                return self.recorder.row(row);
            }
            Ok(Err(wrong)) => (wrong, true),
            Err(error @ GpuError::ContextLost { .. }) => return Err(error.into()),
            Err(error) => (error.to_string(), !super::is_refusal(&error)),
        };
        let gap = Gap::new(problem.case, label.library, &label.configuration, reason);
        self.recorder.gap(Gap { is_fault, ..gap })
    }
}
