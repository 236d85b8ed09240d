//! [`ComposedSolver`]: CG and BiCGStab over the products of a plan, for systems of any size.
//!
//! | file | holds |
//! | --- | --- |
//! | `run.rs` | the solve |
//! | `account.rs`, `explain.rs` | what was chosen, what it costs |
//! | `product.rs` | the plan that multiplies |
//! | `kernels.rs` | the kernels between products |
//! | `work.rs` | which threads have which rows |
//! | `jacobi.rs`, `diagonal.rs` | the preconditioner, of values on the host and on the device |
//! | `sizes.rs` | what rounding floors compare with |
//! | `history.rs` | residuals iteration by iteration |

mod account;
mod diagonal;
mod explain;
mod history;
mod jacobi;
pub(crate) mod kernels;
mod phases;
mod product;
mod run;
mod sizes;
mod work;

use sparsebatch_solve_core::{
    Engine, Krylov, Outcome, PerSystem, Preconditioner, SolveOptions, check_len,
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
use phases::Steps;
use product::Product;
pub use product::ProductKernel;
use sizes::Sizes;
use work::Work;

/// Words of a system's state, and numbers of a part's sums, as in `krylov.cuh`.
const STATE_WORDS: usize = 16;
const MOST_SUMS: usize = 4;

/// CG or BiCGStab for every system of a batch, in step: products of all systems at once by an SpMV
/// plan, and between them one launch for the vectors of all systems (of more than 8,192 rows: one for
/// each pass, several blocks a system).
///
/// Scalars, tests and statuses of systems are on the device; the host only looks from time to time how
/// many have not ended. Systems that stopped are judged then, by their true residual from a product of
/// the plan, and start again where that asks for it. What has ended stays as it is, whatever the
/// products multiply on. A system's result is a function of that system and of the plan's kernel, bit
/// for bit, as long as that of its products is: not of its neighbours or its place.
///
/// `Converged` rests on the residual as the kernels compute it, without a bound of its rounding errors;
/// [`ComposedSolver::confirm`] counts them.
///
/// # Source
/// Hestenes and Stiefel 1952 (doi 10.6028/jres.049.044), van der Vorst 1992 (doi 10.1137/0913035);
/// products of whole batches: Anzt, Collins, Dongarra, Flegar, Quintana-Orti 2017
/// (doi 10.1145/3148226.3148230).
pub struct ComposedSolver<E: Executor, T: Value> {
    executor: E,
    product: Product<E, T>,
    /// Where the product does not compare them itself.
    patterns: Option<PatternFingerprint>,
    method: Krylov,
    jacobi: bool,
    lenient: bool,
    nrhs: usize,
    systems: usize,
    /// Most iterations of any system.
    most_iterations: u32,
    steps: Steps,
    work: Work<E>,
    limits: Limits<E>,
    outcomes: Outcomes<E>,
    histories: Option<Histories<E>>,
    /// Where there is a rounding floor.
    sizes: Option<Sizes<E, T>>,
    /// Where values may come from the device, for Jacobi.
    diagonal: Option<Diagonal<E>>,
    remaining: E::Buffer<u32>,
    states: E::Buffer<u64>,
    tickets: E::Buffer<u32>,
    partials: E::Buffer<f64>,
    vectors: Vectors<E, T>,
    products: u64,
    last_solve: Duration,
    last_products: u64,
}

/// The vectors of a method; empty where it does not have them.
struct Vectors<E: Executor, T: Value> {
    r: E::Buffer<T>,
    p: E::Buffer<T>,
    /// `A p`; of BiCGStab `A s^`.
    w: E::Buffer<T>,
    /// `A p^`.
    v: E::Buffer<T>,
    shadow: E::Buffer<T>,
    /// `p^` and `s^` in turn.
    hat: E::Buffer<T>,
    /// The inverse of the diagonal.
    m: E::Buffer<T>,
    flawed: E::Buffer<u8>,
}

impl<E: Executor + Clone, T: Value> ComposedSolver<E, T> {
    /// Makes the plan of the products of a batch, with its values, uploads what each system has of its
    /// own, allocates everything and compiles the kernels. [`Method::Auto`](sparsebatch_solve_core::Method::Auto) is CG.
    ///
    /// # Errors
    /// [`GpuSolveError::NotSquare`]; [`GpuSolveError::Option`] and [`GpuSolveError::Length`] for options out of
    /// range; [`GpuSolveError::Unsupported`] for what is not done yet: preconditioners but none and
    /// Jacobi, the ladder; [`GpuSolveError::Gpu`] when memory or compiler fail.
    pub fn new(
        executor: &E,
        batch: &Batch<T>,
        kernel: &ProductKernel,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let asked = options.clone().engine(Engine::Fused).history(false);
        let (method, jacobi) = check_supported(&asked)?;
        let nrhs = options.nrhs;
        let systems = count_systems(batch.nitems(), nrhs)?;
        for item in 0..batch.nitems() {
            check_square(item, batch.pattern(item))?;
        }
        let criteria = options.criteria::<T>(systems)?;
        let most_iterations = match &criteria.max_iters {
            PerSystem::All(all) => *all,
            PerSystem::Each(each) => each.iter().copied().max().unwrap_or(0),
        };
        let product = Product::new(executor, batch, kernel, nrhs)?;
        let work = Work::new(executor, batch, nrhs)?;
        let blocks = (!work.whole.is_empty(), !work.parts.is_empty());
        let rows = batch.row_offset(batch.nitems()) * nrhs;
        let is_cg = method == Krylov::Cg;
        let vector = |there: bool| executor.alloc_zeroed(if there { rows } else { 0 });
        let mut solver = Self {
            steps: Steps::new::<E, T>(executor, method, jacobi, blocks)?,
            limits: Limits::new(executor, criteria)?,
            outcomes: Outcomes::new(executor, systems)?,
            histories: match options.history {
                true => Some(Histories::new(executor, systems)?),
                false => None,
            },
            sizes: match options.floor {
                Some(_) => Some(Sizes::new(executor, batch, nrhs)?),
                None => None,
            },
            diagonal: match jacobi && product.takes_values_there() {
                true => Some(Diagonal::new(executor, batch)?),
                false => None,
            },
            remaining: executor.alloc_zeroed(1)?,
            states: executor.alloc_zeroed(systems * STATE_WORDS)?,
            tickets: executor.alloc_zeroed(work.parts())?,
            partials: executor.alloc_zeroed(work.parts() * MOST_SUMS)?,
            vectors: Vectors {
                r: vector(true)?,
                p: vector(true)?,
                w: vector(true)?,
                v: vector(!is_cg)?,
                shadow: vector(!is_cg)?,
                hat: vector(!is_cg && jacobi)?,
                m: vector(jacobi)?,
                flawed: executor.alloc_zeroed(if jacobi { systems } else { 0 })?,
            },
            executor: executor.clone(),
            lenient: options.preconditioner == Preconditioner::Auto,
            patterns: match &product {
                Product::Packed(_) => None,
                Product::Flexible(_) => Some(PatternFingerprint::of(batch)),
            },
            product,
            method,
            jacobi,
            nrhs,
            systems,
            most_iterations,
            work,
            products: 0,
            last_solve: Duration::ZERO,
            last_products: 0,
        };
        solver.precondition(batch)?;
        Ok(solver)
    }

    /// Replaces the values of all systems, the patterns staying as they are: these are compared by
    /// [hashes](PatternFingerprint).
    ///
    /// # Errors
    /// [`GpuSolveError::Length`] and [`GpuSolveError::Gpu`] when the batch is not of the same sizes, has other
    /// patterns, or shares its values otherwise.
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

    /// As [`ComposedSolver::update_values`], for values on the device: item after item in the order of CSR,
    /// one set where they are shared. Enqueues and returns.
    ///
    /// # Errors
    /// [`GpuSolveError::Unsupported`] over a flexible kernel; [`GpuSolveError::Gpu`] when there are more or fewer
    /// values, and with what the device reports.
    pub fn update_from(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        let Product::Packed(plan) = &mut self.product else {
            return Err(GpuSolveError::Unsupported {
                what: "values on the device for the products of a flexible kernel",
                instead: "take the packed product, or values on the host",
            });
        };
        plan.update_from(values)?;
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
        if self.jacobi {
            let jacobi = Jacobi::new(batch, self.nrhs, self.lenient);
            self.executor.copy_from_host(&jacobi.inverse, &mut self.vectors.m)?;
            if !self.lenient {
                self.executor.copy_from_host(&jacobi.flawed, &mut self.vectors.flawed)?;
            }
        }
        Ok(())
    }

    /// Confirms which systems of the last solve converged, the rounding errors of their residuals counted: see
    /// [`Confirmer`]. `values`, `b` and `x` are those of that solve. Allocates nothing, launches one kernel behind the
    /// solve and returns before it is done.
    ///
    /// # Errors
    /// [`GpuSolveError::Length`] when an array does not fit, or the confirmer is for another number of systems;
    /// [`GpuSolveError::Gpu`] when the launch is refused. Nothing has changed then.
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
    /// [`GpuSolveError::Gpu`] with what the device reports.
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
