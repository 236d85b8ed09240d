//! What a solver needs of a machine: whole batched solves ([`SolveBackend`]), and the vector
//! operations from which the composed solvers are built ([`Primitives`]).

mod cpu;
mod gpu;
mod target;

pub(crate) use cpu::{CpuBackend, CpuPrimitives};
pub(crate) use gpu::{GpuBackend, OutOfRange, Teams, tuning};
pub use target::{Backend, Chunks, Gpu, Gpus};

use std::ops::Range;

use sparsebatch_formats::{Batch, Csr, Scalar};
use sparsebatch_solve_core::{Criteria, Outcome, ProductCost, Scheme, SpmvOptions};

use crate::choose::{Chosen, Target};
use crate::report::{GpuRun, Machine, Rung};
use crate::{SolveError, SolveOptions};

/// A machine that runs whole batched solves.
pub(crate) trait SolveBackend<T: Scalar>: Send + Sync {
    /// The properties of this machine on which the choice of a method depends.
    fn target(&self) -> Target {
        Target::Cpu
    }

    /// Makes ready, once in a process, what the analyses of several schemes need. These say what
    /// fails.
    fn prepare(&self, batch: &Batch<T>, choices: &[Chosen]) {
        let _ = (batch, choices);
    }

    /// The same machine with the options of a part of the batch.
    fn with_options(&self, options: &SolveOptions) -> Box<dyn SolveBackend<T>>;

    /// Analyses a batch for CG or BiCGStab over the products that `spmv` specifies. Systems that
    /// this backend does not support go to the CPU where that is allowed.
    fn analyse_composed(
        &self,
        batch: &Batch<T>,
        scheme: Scheme,
        spmv: &SpmvOptions,
        nrhs: usize,
    ) -> Result<Box<dyn AnalysedSolve<T>>, SolveError>;

    /// Analyses the patterns of a batch (or of the items in `only`, ascending) for the scheme of a
    /// rung. What this machine cannot do goes to the CPU where that is allowed.
    fn analyse(
        &self,
        batch: &Batch<T>,
        scheme: (Rung, Scheme),
        only: Option<&[usize]>,
    ) -> Result<Box<dyn AnalysedSolve<T>>, SolveError>;
}

/// An analysed batch; its solves differ only in values and right-hand sides.
pub(crate) trait AnalysedSolve<T>: Send + Sync {
    /// What runs where.
    fn placement(&self) -> Placement;

    /// The matrix format of the products.
    fn format(&self) -> &'static str {
        "csr"
    }

    /// The cost of the products of the last solve, if a plan of products was asked for.
    fn product_cost(&mut self) -> Result<Option<ProductCost>, SolveError> {
        Ok(None)
    }

    /// Solves all systems, or those in `only` (ascending, of items that were analysed); see
    /// [`BatchSolver::solve`](crate::BatchSolver::solve) for the layout. Outcomes come in the
    /// order of the systems solved.
    fn solve(
        &mut self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
        only: Option<&[usize]>,
    ) -> Result<Vec<Outcome>, SolveError>;

    /// Takes tolerances and iteration limits of other options, for the systems that were analysed,
    /// where the engine holds some beside the criteria of each solve.
    ///
    /// # Errors
    /// [`SolveError::Unsupported`] where it cannot; what a device reports.
    fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), SolveError> {
        let _ = options;
        Ok(())
    }

    /// The interface for kept factors, if this engine supports it.
    fn kept_factors(&mut self) -> Option<&mut dyn KeptFactors<T>> {
        None
    }
}

/// Factors of a batch that are kept for later solves.
pub(crate) trait KeptFactors<T> {
    /// Factorises a batch of the analysed patterns; replaces the kept factors.
    fn factor(&mut self, batch: &Batch<T>) -> Result<(), SolveError>;

    /// As [`AnalysedSolve::solve`] with the matrices of the last factorisation, all systems.
    fn solve_again(
        &mut self,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Vec<Outcome>, SolveError>;

    /// As [`KeptFactors::solve_again`] with the transposed matrices, by the same factors; `None`
    /// where these do not serve both.
    fn solve_transposed_again(
        &mut self,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Option<Vec<Outcome>>, SolveError> {
        let _ = (nrhs, b, x, criteria);
        Ok(None)
    }

    /// As [`AnalysedSolve::solve`] for all systems of a batch, by the kept factors, which
    /// precondition or refine; `None` where they can do neither.
    fn solve_near(
        &mut self,
        batch: &Batch<T>,
        nrhs: usize,
        b: &[T],
        x: &mut [T],
        criteria: &Criteria,
    ) -> Result<Option<Vec<Outcome>>, SolveError> {
        let _ = (batch, nrhs, b, x, criteria);
        Ok(None)
    }

    /// The kept matrices, where they are held as a batch.
    fn batch(&self) -> Option<&Batch<T>> {
        None
    }

    /// The kept matrix of an item, and the range of its rows in the batch.
    fn item(&self, item: usize) -> Option<(Csr<T>, Range<usize>)>;
}

/// What runs where, for reports.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placement {
    pub(crate) backend: Machine,
    /// The devices.
    pub(crate) device: String,
    /// The kernels.
    pub(crate) kernel: String,
    /// Number of chunks in which the systems went through a GPU; 1 if all were there at once.
    pub(crate) chunks: usize,
    /// Bytes of GPU memory.
    pub(crate) device_bytes: u64,
    /// Why the CPU solves instead of the GPU.
    pub(crate) cpu_reason: Option<String>,
    /// Why systems are solved by the composed engine instead of the fused one.
    pub(crate) composed_reason: Option<String>,
    /// What each of several GPUs did.
    pub(crate) gpus: Vec<GpuRun>,
}

impl Placement {
    /// Systems that one GPU has all at once.
    pub(crate) fn on_gpu(device: &str, kernel: String, device_bytes: u64) -> Self {
        Self {
            backend: Machine::Gpu,
            device: device.to_owned(),
            kernel,
            chunks: 1,
            device_bytes,
            cpu_reason: None,
            composed_reason: None,
            gpus: Vec::new(),
        }
    }

    /// Joins the placements of the shares of a batch, at least one.
    pub(crate) fn together(placements: Vec<Self>) -> Self {
        fn join(words: impl Iterator<Item = String>) -> Option<String> {
            let mut all: Vec<String> = Vec::new();
            words.for_each(|word| {
                if !all.contains(&word) {
                    all.push(word);
                }
            });
            (!all.is_empty()).then(|| all.join("; "))
        }
        let all = || placements.iter();
        let first = &placements[0];
        let backend = match all().all(|placement| placement.backend == first.backend) {
            true => first.backend,
            false => Machine::GpuAndCpu,
        };
        Self {
            backend,
            device: join(all().map(|p| p.device.clone())).unwrap_or_default(),
            kernel: join(all().map(|p| p.kernel.clone())).unwrap_or_default(),
            chunks: all().map(|p| p.chunks).max().unwrap_or(1),
            device_bytes: all().map(|p| p.device_bytes).sum(),
            cpu_reason: join(all().filter_map(|p| p.cpu_reason.clone())),
            composed_reason: join(all().filter_map(|p| p.composed_reason.clone())),
            gpus: GpuRun::together(all().map(|p| &p.gpus[..])),
        }
    }
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

    /// Whether M approximates the inverse of A, so that it scales inversely with A.
    fn is_preconditioned(&self) -> bool;

    /// `z_s = M_s r_s`.
    fn precondition(&mut self, mask: &[bool], r: &[T], z: &mut [T]) -> Result<(), SolveError>;
}
