//! Our solves on the CPU.

use sparsebatch_solvers::{BatchReport, BatchSolver, Method, SolveError, SolveOptions};

use super::systems::Systems;
use super::{Answer, Real, Solve};

/// A batch and its analysis.
pub(crate) struct CpuSolve<'a, T: Real> {
    systems: &'a Systems<T>,
    solver: BatchSolver<T>,
    method: Method,
    x: Vec<T>,
    report: Option<BatchReport>,
}

impl<'a, T: Real> CpuSolve<'a, T> {
    /// Analyses a batch.
    ///
    /// # Errors
    /// What the solver refuses.
    pub(crate) fn new(systems: &'a Systems<T>, options: &SolveOptions) -> Result<Self, SolveError> {
        let solver = BatchSolver::new(&systems.batch, options)?;
        let x = vec![T::ZERO; systems.b.len()];
        Ok(Self { systems, solver, method: options.method, x, report: None })
    }

    /// Method and instruction set of the last solve, such as `cpu cg, 2 threads, avx2`, with the
    /// preconditioner where the solver chose it.
    pub(crate) fn configuration(&self) -> String {
        let Some(BatchReport { solver, preconditioner, device, .. }) = &self.report else {
            return "cpu".to_owned();
        };
        let chosen = match (self.method, *preconditioner) {
            (Method::Auto, chosen) if chosen != "none" => format!(" {chosen}"),
            _ => String::new(),
        };
        format!("cpu {solver}{chosen}, {device}")
    }
}

impl<T: Real> Solve<T> for CpuSolve<'_, T> {
    fn copies(&self) -> usize {
        1
    }

    fn restore(&mut self, _copy: usize) -> Result<(), SolveError> {
        self.x.fill(T::ZERO);
        Ok(())
    }

    fn wants_restoring(&self) -> bool {
        true
    }

    fn solve(&mut self, _copy: usize) -> Result<(), SolveError> {
        let report = self.solver.solve(&self.systems.batch, &self.systems.b, &mut self.x)?;
        self.report = Some(report);
        Ok(())
    }

    fn answer(&mut self, _copy: usize) -> Result<Answer<T>, SolveError> {
        let systems = self.report.iter().flat_map(|report| &report.systems);
        let outcomes = systems.map(|system| system.outcome.clone()).collect();
        Ok(Answer { x: self.x.clone(), outcomes: Some(outcomes) })
    }
}
