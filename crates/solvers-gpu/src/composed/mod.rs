//! [`ComposedSolver`]: CG and BiCGStab over the products of a plan, for systems of any size.
//!
//! | file | holds |
//! | --- | --- |
//! | `plan.rs` | the solver among the others: [`GpuSolver`](crate::GpuSolver) |
//! | `run.rs` | the solve |
//! | `matrices.rs` | matrices with their values, or patterns whose values come later |
//! | `account.rs`, `explain.rs` | reports of choices, memory and times |
//! | `product.rs` | the plan of the products `A x` |
//! | `operators.rs` | products and preconditioners of the caller |
//! | `kernels/` | the kernels between products |
//! | `phases.rs` | the launches of each step of a method |
//! | `work.rs` | the assignment of rows to threads |
//! | `jacobi.rs`, `diagonal.rs` | the preconditioner, from values on the host and on the device |
//! | `sizes.rs` | the norms that rounding floors compare residuals with |
//! | `history.rs` | residual norms of every iteration |
//! | `steps.rs` | CG of one system that is divided among GPUs, between sums that the host forms |

mod account;
mod diagonal;
mod explain;
mod history;
mod jacobi;
pub(crate) mod kernels;
mod matrices;
mod operators;
mod phases;
mod plan;
mod product;
mod run;
mod sizes;
mod steps;
mod work;

use sparsebatch_solve_core::{
    Criteria, Engine, Krylov, Outcome, PerSystem, Preconditioner, Scheme, SolveOptions, by_pattern,
    check_len,
};
use std::time::Duration;

use sparsebatch_cuda::{Executor, GpuError, KernelBuffer, Value};
use sparsebatch_formats::Batch;
use sparsebatch_formats::batch::PatternFingerprint;

use crate::GpuSolveError;
use crate::common::Confirmer;
use crate::common::outcomes::{Limits, Outcomes};
use crate::common::task::{check_square, check_supported, count_systems};
use diagonal::Diagonal;
pub use explain::{Amortisation, ComposedExplain};
use history::Histories;
use jacobi::Jacobi;
use matrices::Matrices;
pub use operators::DeviceLinOp;
use operators::Precond;
use phases::SolveSteps;
use product::PlannedProduct;
pub use product::ProductKernel;
use sizes::SystemSizes;
pub use steps::{KrylovSteps, Step, StepMethod, StepPrecond, StepVector};
use work::SystemBlocks;

/// Words of a system's state, and sums of a part, as in `krylov.cuh`.
const STATE_WORDS: usize = 16;
const MOST_SUMS: usize = 4;

/// CG or BiCGStab for every system of a batch, in lockstep: an SpMV plan multiplies all systems at
/// once, and between products one launch updates the vectors of all systems. (Systems of more than
/// 8,192 rows take one launch per pass, with several blocks per system.)
///
/// Scalars, tests and statuses of systems stay on the device; from time to time the host reads how
/// many systems have not ended. Systems that stopped are then judged by their true residual, from a
/// product of the plan, and restart where needed. A system that has ended keeps its result,
/// although the products go on multiplying it. A system's result is a function of that system and
/// of the plan's kernel, bit for bit, as long as its products are: not of its neighbours or its
/// position in the batch.
///
/// `Converged` rests on the residual as the kernels compute it, without a bound of its rounding
/// errors; [`ComposedSolver::confirm`] includes that bound.
///
/// # Source
/// Hestenes and Stiefel 1952 (doi 10.6028/jres.049.044), van der Vorst 1992 (doi 10.1137/0913035);
/// products of whole batches: Anzt, Collins, Dongarra, Flegar, Quintana-Orti 2017
/// (doi 10.1145/3148226.3148230).
pub struct ComposedSolver<E: Executor, T: Value> {
    executor: E,
    product: PlannedProduct<E, T>,
    /// Hashes of the patterns, where the product does not compare patterns itself.
    patterns: Option<PatternFingerprint>,
    method: Krylov,
    preconditioner: Precond<E, T>,
    lenient: bool,
    nrhs: usize,
    systems: usize,
    /// The largest iteration limit of any system.
    most_iterations: u32,
    steps: SolveSteps,
    work: SystemBlocks<E>,
    limits: Limits<E>,
    outcomes: Outcomes<E>,
    histories: Option<Histories<E>>,
    /// `Some` with a rounding floor.
    sizes: Option<SystemSizes<E, T>>,
    /// `Some` with Jacobi, where the matrices are known.
    diagonal: Option<Diagonal<E>>,
    planned: Planned,
    /// Systems of the next solve whose ends the watch hears of.
    counted: usize,
    remaining: E::Buffer<u32>,
    states: E::Buffer<u64>,
    tickets: E::Buffer<u32>,
    partials: E::Buffer<f64>,
    vectors: Vectors<E, T>,
    products: u64,
    last_solve: Duration,
    last_products: u64,
}

/// What the solver was made for.
struct Planned {
    scheme: Scheme,
    /// The number of different patterns.
    patterns: usize,
    /// Rows and entries of the largest system.
    nrows: usize,
    nnz: usize,
    /// Where the values of a pattern's items come with each solve.
    of_pattern: Option<plan::OfPattern>,
    /// Why no other solver takes the systems.
    reason: Option<String>,
}

/// The vectors of a method; those that it does not use are empty.
struct Vectors<E: Executor, T: Value> {
    r: E::Buffer<T>,
    p: E::Buffer<T>,
    /// `A p` of CG, `A s^` of BiCGStab.
    w: E::Buffer<T>,
    /// `A p^`.
    v: E::Buffer<T>,
    shadow: E::Buffer<T>,
    /// `p^` and `s^` in turn.
    hat: E::Buffer<T>,
    /// The inverse of the diagonal, row by row; with a preconditioner of the caller what it makes
    /// of the residual.
    m: E::Buffer<T>,
    flawed: E::Buffer<u8>,
}

impl<E: Executor, T: Value> Vectors<E, T> {
    /// The vectors of a method, of `rows` rows in all, and `flags` flags of preconditioners.
    fn new(
        executor: &E,
        rows: usize,
        method: Krylov,
        preconditioner: &Precond<E, T>,
        flags: usize,
    ) -> Result<Self, GpuError> {
        let is_cg = method == Krylov::Cg;
        let is_preconditioned = !matches!(preconditioner, Precond::Identity);
        let vector = |there: bool| executor.alloc_zeroed(if there { rows } else { 0 });
        Ok(Self {
            r: vector(true)?,
            p: vector(true)?,
            w: vector(true)?,
            v: vector(!is_cg)?,
            shadow: vector(!is_cg)?,
            hat: vector(!is_cg && is_preconditioned)?,
            m: vector(is_preconditioned)?,
            flawed: executor.alloc_zeroed(flags)?,
        })
    }
}

/// The rows of all systems, if a vector of that many values fits in the memory of the device.
fn total_rows<E: Executor>(
    executor: &E,
    rows: &[usize],
    nrhs: usize,
    value_bytes: usize,
) -> Result<usize, GpuSolveError> {
    let total = rows.iter().fold(0usize, |sum, &rows| sum.saturating_add(rows));
    let total = total.saturating_mul(nrhs);
    let needed = total.saturating_mul(value_bytes) as u64;
    if needed > executor.info().memory_bytes {
        return Err(GpuError::OutOfMemory { needed, free: executor.free_memory()? }.into());
    }
    Ok(total)
}

/// The iterations that the options ask for, and whether Jacobi preconditions them.
fn asked_for(options: &SolveOptions) -> Result<(Krylov, bool), GpuSolveError> {
    check_supported(&options.clone().engine(Engine::Fused).history(false))
}

/// The largest iteration limit of any system.
fn most_iterations(criteria: &Criteria) -> u32 {
    match &criteria.max_iters {
        PerSystem::All(all) => *all,
        PerSystem::Each(each) => each.iter().copied().max().unwrap_or(0),
    }
}

/// The iterations that the options ask for, which must leave preconditioning to the caller.
fn asked_beside_given(options: &SolveOptions) -> Result<Krylov, GpuSolveError> {
    if !matches!(options.preconditioner, Preconditioner::Auto | Preconditioner::None) {
        return Err(GpuSolveError::Unsupported {
            what: "a preconditioner in the options beside one of the caller",
            instead: "take one of the two",
        });
    }
    Ok(asked_for(options)?.0)
}

impl<E: Executor + Clone, T: Value> ComposedSolver<E, T> {
    /// Makes the plan of the products of a batch, with its values, uploads the tolerances and
    /// limits of the systems, allocates all device memory and compiles the kernels.
    /// [`Method::Auto`](sparsebatch_solve_core::Method::Auto) is CG.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a matrix that is not square and for
    /// options out of range; [`GpuSolveError::Unsupported`] for the ladder and for preconditioners
    /// other than none and Jacobi; [`GpuSolveError::Gpu`] when an allocation or the compiler fails.
    pub fn new(
        executor: &E,
        batch: &Batch<T>,
        kernel: &ProductKernel,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let (method, jacobi) = asked_for(options)?;
        let preconditioner = if jacobi { Precond::Jacobi } else { Precond::Identity };
        Self::of_batch(executor, (batch, kernel), (method, preconditioner), options)
    }

    /// As [`ComposedSolver::new`], with a preconditioner of the caller, which computes `z = M r`. M
    /// approximates the inverse of A, is the same for the whole solve, and is symmetric positive
    /// definite for CG.
    ///
    /// # Errors
    /// Those of [`ComposedSolver::new`]; [`GpuSolveError::Unsupported`] for a preconditioner in the
    /// options.
    pub fn preconditioned(
        executor: &E,
        (batch, kernel): (&Batch<T>, &ProductKernel),
        preconditioner: Box<dyn DeviceLinOp<E, T>>,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let method = asked_beside_given(options)?;
        let preconditioner = Precond::Given(preconditioner);
        Self::of_batch(executor, (batch, kernel), (method, preconditioner), options)
    }

    /// The solver of systems whose matrices are known by their products alone: `operator` computes
    /// `A x`, and `rows` has the number of rows of each item. `preconditioner` is as in
    /// [`ComposedSolver::preconditioned`]. Errors of the operator's products are not bounded.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for options out of range; [`GpuSolveError::Unsupported`] for
    /// what [`ComposedSolver::preconditioned`] refuses, and for a rounding floor, which needs the
    /// entries of A; [`GpuSolveError::Gpu`] when an allocation or the compiler fails.
    pub fn of_operator(
        executor: &E,
        rows: &[usize],
        operator: Box<dyn DeviceLinOp<E, T>>,
        preconditioner: Option<Box<dyn DeviceLinOp<E, T>>>,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let method = asked_beside_given(options)?;
        if options.floor.is_some() {
            return Err(GpuSolveError::Unsupported {
                what: "a rounding floor for an operator of the caller",
                instead: "give the matrices",
            });
        }
        count_systems(rows.len(), options.nrhs)?;
        let product = PlannedProduct::Given { executor: executor.clone(), operator };
        let preconditioner = preconditioner.map_or(Precond::Identity, Precond::Given);
        Self::build(executor, product, rows, (method, preconditioner), options)
    }

    fn of_batch(
        executor: &E,
        (batch, kernel): (&Batch<T>, &ProductKernel),
        (method, preconditioner): (Krylov, Precond<E, T>),
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let matrices = (&Matrices::Batch(batch), kernel);
        let mut solver = Self::of(executor, matrices, (method, preconditioner), options)?;
        if matches!(solver.product, PlannedProduct::Flexible(_)) {
            solver.patterns = Some(PatternFingerprint::of(batch));
        }
        solver.precondition(batch)?;
        Ok(solver)
    }

    /// The solver of matrices, without what it takes from their values.
    fn of(
        executor: &E,
        (matrices, kernel): (&Matrices<'_, T>, &ProductKernel),
        (method, preconditioner): (Krylov, Precond<E, T>),
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let (nitems, nrhs) = (matrices.nitems(), options.nrhs);
        count_systems(nitems, nrhs)?;
        for item in matrices.stored() {
            check_square(item, matrices.pattern(item))?;
        }
        options.criteria::<T>(nitems * nrhs)?;
        let product = PlannedProduct::new(executor, matrices, kernel, nrhs)?;
        let rows: Vec<usize> = (0..nitems).map(|item| matrices.pattern(item).nrows()).collect();
        let mut solver = Self::build(executor, product, &rows, (method, preconditioner), options)?;
        if options.floor.is_some() {
            solver.sizes = Some(SystemSizes::new(executor, matrices, nrhs)?);
        }
        if solver.preconditioner.is_jacobi() {
            solver.diagonal = Some(Diagonal::new(executor, matrices)?);
        }
        solver.planned.patterns = match matrices.is_uniform() {
            true => matrices.stored().len(),
            false => by_pattern(nitems, |item| matrices.pattern(item)).len(),
        };
        let entries = matrices.stored().map(|item| matrices.pattern(item).nnz());
        solver.planned.nnz = entries.max().unwrap_or(0);
        Ok(solver)
    }

    /// The solver over a product, without what it takes from matrices.
    fn build(
        executor: &E,
        product: PlannedProduct<E, T>,
        rows: &[usize],
        (method, preconditioner): (Krylov, Precond<E, T>),
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let nrhs = options.nrhs;
        let systems = count_systems(rows.len(), nrhs)?;
        let criteria = options.criteria::<T>(systems)?;
        let most_iterations = most_iterations(&criteria);
        let total = total_rows(executor, rows, nrhs, size_of::<T>())?;
        let work = SystemBlocks::new(executor, rows, nrhs)?;
        let blocks = (!work.whole.is_empty(), !work.parts.is_empty());
        let flags = if preconditioner.is_jacobi() { systems } else { 0 };
        Ok(Self {
            steps: SolveSteps::new::<E, T>(executor, method, &preconditioner, blocks)?,
            limits: Limits::new(executor, criteria)?,
            outcomes: Outcomes::new(executor, systems)?,
            histories: match options.history {
                true => Some(Histories::new(executor, systems)?),
                false => None,
            },
            sizes: None,
            diagonal: None,
            planned: Planned {
                scheme: options.scheme::<T>(),
                patterns: 0,
                nrows: rows.iter().copied().max().unwrap_or(0),
                nnz: 0,
                of_pattern: None,
                reason: None,
            },
            counted: 0,
            remaining: executor.alloc_zeroed(1)?,
            states: executor.alloc_zeroed(systems * STATE_WORDS)?,
            tickets: executor.alloc_zeroed(work.parts())?,
            partials: executor.alloc_zeroed(work.parts() * MOST_SUMS)?,
            vectors: Vectors::new(executor, total, method, &preconditioner, flags)?,
            executor: executor.clone(),
            lenient: options.preconditioner == Preconditioner::Auto,
            patterns: None,
            product,
            method,
            preconditioner,
            nrhs,
            systems,
            most_iterations,
            work,
            products: 0,
            last_solve: Duration::ZERO,
            last_products: 0,
        })
    }

    /// Replaces the values of all systems. The patterns must stay the same;
    /// [hashes](PatternFingerprint) are compared.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] and [`GpuSolveError::Gpu`] when the batch has other sizes or other
    /// patterns, or differs in whether items share values.
    pub fn update_values(&mut self, batch: &Batch<T>) -> Result<(), GpuSolveError> {
        let rows = batch.row_offset(batch.nitems()).saturating_mul(self.nrhs);
        check_len("rows of the batch", self.vectors.r.len(), rows)?;
        if let Some(patterns) = &self.patterns {
            check_len("items of the batch", patterns.nitems(), batch.nitems())?;
            if let Some(item) = patterns.first_difference(batch) {
                return Err(GpuError::OtherPattern { item }.into());
            }
        }
        self.product.update_values(batch)?;
        if let Some(sizes) = &mut self.sizes {
            sizes.update_values(&self.executor, batch)?;
        }
        self.precondition(batch)
    }

    /// As [`ComposedSolver::update_values`], for values on the device: item after item in CSR
    /// order, one set where they are shared. Enqueues and returns; over a flexible kernel of a
    /// padded format the values go through the host, and the call waits.
    ///
    /// # Errors
    /// [`GpuSolveError::Unsupported`] over an operator of the caller; [`GpuSolveError::Gpu`] for a
    /// wrong number of values, and with the device's error.
    pub fn update_from(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        self.product.update_from(values)?;
        if let Some(sizes) = &mut self.sizes {
            sizes.update_from(&self.executor, values)?;
        }
        if let Some(diagonal) = &self.diagonal {
            let Vectors { m, flawed, .. } = &mut self.vectors;
            diagonal.invert(&self.executor, (&self.work, self.nrhs), values, m, flawed)?;
        }
        Ok(())
    }

    fn precondition(&mut self, batch: &Batch<T>) -> Result<(), GpuSolveError> {
        if self.preconditioner.is_jacobi() {
            let jacobi = Jacobi::new(batch, self.nrhs, self.lenient);
            self.executor.copy_from_host(&jacobi.inverse, &mut self.vectors.m)?;
            if !self.lenient {
                self.executor.copy_from_host(&jacobi.flawed, &mut self.vectors.flawed)?;
            }
        }
        Ok(())
    }

    /// Confirms which systems of the last solve converged, with the rounding errors of their
    /// residuals bounded: see [`Confirmer`]. `values`, `b` and `x` are those of that solve.
    /// Allocates nothing, launches one kernel behind the solve and returns before it is done.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, or the confirmer is for another number
    /// of systems; [`GpuSolveError::Gpu`] when the launch is refused. Nothing has changed then.
    pub fn confirm(
        &mut self,
        confirmer: &Confirmer<E, T>,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let systems = self.outcomes.systems();
        confirmer.confirm((&mut self.outcomes, systems), values, b, x)
    }

    /// How each system of the last solve ended, item by item.
    ///
    /// # Errors
    /// [`GpuSolveError::Gpu`] with the device's error.
    pub fn outcomes(&self) -> Result<Vec<Outcome>, GpuSolveError> {
        let mut outcomes = self.outcomes.download(&self.executor)?;
        if let Some(histories) = &self.histories {
            for (outcome, history) in outcomes.iter_mut().zip(histories.of_systems()) {
                outcome.history.clone_from(history);
            }
        }
        Ok(outcomes)
    }
}
