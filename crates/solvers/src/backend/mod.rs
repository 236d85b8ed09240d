//! What a solver needs of a machine: whole batched solves ([`SolveBackend`]), and the vector
//! operations from which the composed solvers are built ([`Primitives`]).

mod cpu;

pub(crate) use cpu::{CpuBackend, CpuPrimitives};

use sparsebatch_cpu_ref::{Criteria, Outcome};
use sparsebatch_formats::{Batch, Scalar};

use crate::SolveError;
use crate::choose::Step;

/// A machine that runs whole batched solves.
pub(crate) trait SolveBackend<T: Scalar> {
    /// `"cpu"` or `"gpu"`.
    fn name(&self) -> &'static str;

    /// The device, for reports.
    fn device(&self) -> String;

    /// Analyses the patterns of a batch (or of the items in `only`, ascending) for one step.
    fn analyse(
        &self,
        batch: &Batch<T>,
        step: Step,
        only: Option<&[usize]>,
    ) -> Result<Box<dyn AnalysedSolve<T> + '_>, SolveError>;
}

/// An analysed batch: solves of it differ in values and right-hand sides alone.
pub(crate) trait AnalysedSolve<T>: Send + Sync {
    /// The kernel, for reports.
    fn kernel(&self) -> String;

    /// Solves all systems, or those in `only` (ascending); see
    /// [`BatchSolver::solve`](crate::BatchSolver::solve) for the layout. Outcomes come in the
    /// order of the systems solved.
    fn solve(
        &self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
        only: Option<&[usize]>,
    ) -> Result<Vec<Outcome>, SolveError>;
}

/// Vector operations on all systems of a batch at once. Vectors are item-major; scalars come one
/// per system; a system whose mask is false is left alone.
pub(crate) trait Primitives<T> {
    /// `y = A x` for every system, masked or not.
    fn spmv(&mut self, x: &[T], y: &mut [T]) -> Result<(), SolveError>;

    /// `out[s] = a_s' b_s`.
    fn dot(&self, mask: &[bool], a: &[T], b: &[T], out: &mut [T]);

    /// `y_s = alpha[s] x_s + beta[s] y_s`.
    fn axpby(&self, mask: &[bool], alpha: &[T], x: &[T], beta: &[T], y: &mut [T]);

    /// `y_s = x_s`.
    fn copy(&self, mask: &[bool], x: &[T], y: &mut [T]);

    /// `z_s = M_s r_s`.
    fn precondition(&mut self, mask: &[bool], r: &[T], z: &mut [T]);
}
