//! Solves in host memory.

use std::sync::Arc;

use sparsebatch::{AdjointSolver, Backend, Batch, BatchReport, BatchSolver, SolveError};

use super::plans::{self, Plans};
use super::specs::{Call, Precision, Size, Spec};
use super::xla::{Failure, Frame, Lent};

/// The analyses of one batch size, and the factors of its last values.
struct Plan<T> {
    spec: Arc<Spec>,
    size: Size,
    solver: Option<BatchSolver<T>>,
    adjoint: Option<AdjointSolver<T>>,
    /// The values of the factors that `solver` keeps.
    kept: Option<Vec<T>>,
}

/// Precisions of solves in host memory.
trait HostPrecision: Precision {
    fn plans() -> &'static Plans<Plan<Self>>;
}

static PLANS_F64: Plans<Plan<f64>> = Plans::new();
static PLANS_F32: Plans<Plan<f32>> = Plans::new();

impl HostPrecision for f64 {
    fn plans() -> &'static Plans<Plan<Self>> {
        &PLANS_F64
    }
}

impl HostPrecision for f32 {
    fn plans() -> &'static Plans<Plan<Self>> {
        &PLANS_F32
    }
}

pub(super) fn plans_len() -> usize {
    PLANS_F64.len() + PLANS_F32.len()
}

pub(super) fn clear() {
    PLANS_F64.clear();
    PLANS_F32.clear();
}

/// Solves a call.
pub(super) fn run(frame: &mut Frame<'_>) -> Result<(), Failure> {
    match frame.argument(0)?.is_of::<f32>() {
        true => run_as::<f32>(frame),
        false => run_as::<f64>(frame),
    }
}

fn run_as<T: HostPrecision>(frame: &mut Frame<'_>) -> Result<(), Failure> {
    let call = Call::of(frame)?;
    let (values, b) = (frame.argument(0)?, frame.argument(1)?);
    let size = call.spec.size(&values, &b)?;
    let (x, status) = frame.results()?;
    size.check("x", x.array())?;
    size.check("status", status.array())?;
    let place = x.array().address::<T>()?;
    let (x, status) = (x.into_values::<T>()?, status.into_values::<i32>()?);
    if frame.narguments() > 2 {
        let guess = frame.argument(2)?;
        size.check("x0", &guess)?;
        // The program says that they are one array: XLA copies where it needs both.
        if guess.address::<T>()? != place {
            x.copy_from_slice(guess.values()?);
        }
    } else {
        x.fill(T::ZERO);
    }
    let (values, b) = (values.values::<T>()?, b.values::<T>()?);
    let lent = Lent::new(values);
    let batch = call.spec.batch(lent.values(), size)?;
    let fits = |plan: &Plan<T>| plan.size == size && plan.spec.key == call.spec.key;
    // The plan whose factors are wanted, if calls at the same time have left several.
    let near = T::plans().take(|plan| fits(plan) && plan.kept.as_deref() == Some(values));
    let mut plan = near.or_else(|| T::plans().take(fits)).unwrap_or_else(|| {
        let spec = Arc::clone(&call.spec);
        Plan { spec, size, solver: None, adjoint: None, kept: None }
    });
    let report = plan.solve(&call, &batch, values, b, x)?;
    T::plans().put(plan);
    for (status, system) in status.iter_mut().zip(&report.systems) {
        *status = system.outcome.status as i32;
    }
    Ok(())
}

impl<T: HostPrecision> Plan<T> {
    /// Solves, by kept factors where they are those of the values.
    fn solve(
        &mut self,
        call: &Call,
        batch: &Batch<T>,
        values: &[T],
        b: &[T],
        x: &mut [T],
    ) -> Result<BatchReport, SolveError> {
        let mut is_kept = self.kept.as_deref() == Some(values);
        if call.keeps && !is_kept {
            is_kept = self.factor(batch, values)?;
        } else if is_kept {
            plans::solved_by_kept();
        }
        if is_kept {
            let solver = self.solver(batch)?;
            return match call.is_transposed {
                true => solver.solve_transposed_again(b, x),
                false => solver.solve_again(b, x),
            };
        }
        match call.is_transposed {
            true => self.adjoint(batch)?.solve(batch, b, x),
            false => self.solver(batch)?.solve(batch, b, x),
        }
    }

    /// Keeps factors of the values where the method has some, and says whether it does.
    fn factor(&mut self, batch: &Batch<T>, values: &[T]) -> Result<bool, SolveError> {
        if !self.solver(batch)?.keeps_factors() {
            return Ok(false);
        }
        self.kept = None;
        let solver = self.solver(batch)?;
        solver.factor(batch)?;
        if solver.keeps_factors() {
            self.kept = Some(values.to_vec());
        }
        Ok(self.kept.is_some())
    }

    fn solver(&mut self, batch: &Batch<T>) -> Result<&mut BatchSolver<T>, SolveError> {
        if self.solver.is_none() {
            plans::analysed();
            let options = self.spec.options(self.size);
            self.solver = Some(BatchSolver::on(&Backend::Cpu, batch, &options)?);
        }
        self.solver.as_mut().ok_or(SolveError::NotFactored)
    }

    fn adjoint(&mut self, batch: &Batch<T>) -> Result<&mut AdjointSolver<T>, SolveError> {
        if self.adjoint.is_none() {
            plans::analysed();
            let options = self.spec.options(self.size);
            self.adjoint = Some(AdjointSolver::on(&Backend::Cpu, batch, &options)?);
        }
        self.adjoint.as_mut().ok_or(SolveError::NotFactored)
    }
}
