//! Our solves of data on the host, on the CPU or on a GPU.

use sparsebatch_solvers::{
    Backend, BatchReport, BatchSolver, Method, PrecondPrecision, Rhs, RungRun, SolveError,
    SolveOptions,
};

use super::systems::Systems;
use super::{Answer, Real, Solve};

/// A batch and its analysed solver.
pub(crate) struct HostSolve<'a, T: Real> {
    systems: &'a Systems<T>,
    solver: BatchSolver<T>,
    method: Method,
    precond_precision: PrecondPrecision,
    x: Vec<T>,
    report: Option<BatchReport>,
}

impl<'a, T: Real> HostSolve<'a, T> {
    /// Analyses a batch for the CPU.
    ///
    /// # Errors
    /// A refusal of the solver.
    pub(crate) fn on_cpu(
        systems: &'a Systems<T>,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        Ok(Self::new(BatchSolver::new(&systems.batch, options)?, systems, options))
    }

    /// Analyses a batch for a backend; solves copy the data to its GPUs.
    ///
    /// # Errors
    /// A refusal of the solver.
    pub(crate) fn on(
        backend: &Backend,
        systems: &'a Systems<T>,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        let rhs = Rhs { b: &systems.b, x0: None };
        let solver = BatchSolver::on_with_rhs(backend, &systems.batch, rhs, options)?;
        Ok(Self::new(solver, systems, options))
    }

    fn new(solver: BatchSolver<T>, systems: &'a Systems<T>, options: &SolveOptions) -> Self {
        let x = vec![T::ZERO; systems.b.len()];
        let (method, precond_precision) = (options.method, options.preconditioner.precision());
        Self { systems, solver, method, precond_precision, x, report: None }
    }

    fn run(&self) -> Option<&RungRun> {
        self.report.as_ref()?.runs.first()
    }

    /// The number of chunks in which the last solve went through the GPU, and the kernel.
    pub(crate) fn chunks(&self) -> String {
        self.run().map_or(String::new(), |run| match run.chunks {
            1 => run.kernel.clone(),
            chunks => format!("{chunks} x {}", run.kernel),
        })
    }

    /// Bytes of device memory that the last solve took.
    pub(crate) fn device_bytes(&self) -> Option<u64> {
        self.run().map(|run| run.device_bytes)
    }

    /// Method, threads and instruction set of the last solve, such as `cpu cg, 2 threads, avx2`,
    /// with the preconditioner where the solver chose it.
    pub(crate) fn configuration(&self) -> String {
        let Some(BatchReport { scheme, device, .. }) = &self.report else {
            return "cpu".to_owned();
        };
        let solver = scheme.name();
        let chosen = match (self.method, scheme.preconditioner().name()) {
            (Method::Auto, chosen) if chosen != "none" => format!(" {chosen}"),
            _ => String::new(),
        };
        let factors = match self.precond_precision {
            PrecondPrecision::Working => "",
            PrecondPrecision::Single => ", factors in f32",
        };
        format!("cpu {solver}{chosen}{factors}, {device}")
    }
}

impl<T: Real> Solve<T> for HostSolve<'_, T> {
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
