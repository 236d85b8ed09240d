//! [`ComposedSolver`]: CG and BiCGStab over the products of a plan, for systems of any size.
//!
//! | file | holds |
//! | --- | --- |
//! | `explain.rs` | what was chosen, what it costs |
//! | `product.rs` | the plan that multiplies |
//! | `kernels.rs` | the kernels between products |
//! | `work.rs` | which threads have which rows |
//! | `jacobi.rs` | the preconditioner |
//! | `sizes.rs` | what rounding floors compare with |
//! | `history.rs` | residuals iteration by iteration |

mod explain;
mod history;
mod jacobi;
mod kernels;
mod product;
mod sizes;
mod work;

use std::time::{Duration, Instant};

use sparsebatch_cpu_ref::{Outcome, PerSystem};
use sparsebatch_formats::Batch;
use sparsebatch_spmv_gpu::{
    Args, Executor, FlexibleKernel, GpuError, KernelBuffer, LaunchConfig, Value,
};

use super::outcomes::{Limits, Outcomes};
use super::task::{FusedMethod, Guess, check_apart, check_square, check_supported, count_systems};
use crate::options::{Engine, Preconditioner, check_len};
use crate::report::ProductCost;
use crate::{SolveError, SolveOptions};
pub use explain::{Amortisation, ComposedExplain};
use history::Histories;
use jacobi::Jacobi;
use kernels::{Phases, Steps};
use product::Product;
pub use product::ProductKernel;
use sizes::Sizes;
use work::{PART_ROWS, THREADS, Work};

/// Words of a system's state, and numbers of a part's sums, as in `krylov.cuh`.
const STATE_WORDS: usize = 16;
const MOST_SUMS: usize = 4;

/// Iterations between two looks at how many systems are left: few at first, since systems may be
/// well guessed.
const FIRST_ITERATIONS: u32 = 4;
const MOST_ITERATIONS: u32 = 32;

/// Products that are timed together.
const TIMED_PRODUCTS: u32 = 8;

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
/// # Source
/// Hestenes and Stiefel 1952 (doi 10.6028/jres.049.044), van der Vorst 1992 (doi 10.1137/0913035);
/// products of whole batches: Anzt, Collins, Dongarra, Flegar, Quintana-Orti 2017
/// (doi 10.1145/3148226.3148230).
pub struct ComposedSolver<E: Executor, T: Value> {
    executor: E,
    product: Product<E, T>,
    method: FusedMethod,
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
    remaining: E::Buffer<u32>,
    states: E::Buffer<u64>,
    tickets: E::Buffer<u32>,
    partials: E::Buffer<f64>,
    vectors: Vectors<E, T>,
    products: u64,
    last_solve: Duration,
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
    /// own, allocates everything and compiles the kernels. [`Method::Auto`](crate::Method::Auto) is CG.
    ///
    /// # Errors
    /// [`SolveError::NotSquare`]; [`SolveError::Option`] and [`SolveError::Length`] for options out of
    /// range; [`SolveError::Unsupported`] for what is not done yet: preconditioners but none and
    /// Jacobi, the ladder; [`SolveError::Gpu`] when memory or compiler fail.
    pub fn new(
        executor: &E,
        batch: &Batch<T>,
        kernel: &ProductKernel,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        let asked = SolveOptions { engine: Engine::Fused, history: false, ..options.clone() };
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
        let is_cg = method == FusedMethod::Cg;
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
            product,
            method,
            jacobi,
            nrhs,
            systems,
            most_iterations,
            work,
            products: 0,
            last_solve: Duration::ZERO,
        };
        solver.precondition(batch)?;
        Ok(solver)
    }

    /// Replaces the values of all systems, the patterns staying as they are: of these only the sizes
    /// are compared.
    ///
    /// # Errors
    /// [`SolveError::Gpu`] when the batch is not of the same sizes, or shares its values otherwise.
    pub fn update_values(&mut self, batch: &Batch<T>) -> Result<(), SolveError> {
        let rows = batch.row_offset(batch.nitems()) * self.nrhs;
        check_len("rows of the batch", self.vectors.r.len(), rows)?;
        self.product.update_values(batch)?;
        if let Some(sizes) = &mut self.sizes {
            sizes.update_values(&self.executor, batch)?;
        }
        self.precondition(batch)
    }

    fn precondition(&mut self, batch: &Batch<T>) -> Result<(), SolveError> {
        if self.jacobi {
            let jacobi = Jacobi::new(batch, self.nrhs, self.lenient);
            self.executor.copy_from_host(&jacobi.inverse, &mut self.vectors.m)?;
            if !self.lenient {
                self.executor.copy_from_host(&jacobi.flawed, &mut self.vectors.flawed)?;
            }
        }
        Ok(())
    }

    /// Solves every system, with the values last given. Allocates nothing on the device; returns when
    /// all systems have ended.
    ///
    /// `b` and `x` are item-major, right-hand side after right-hand side within an item. Systems that
    /// do not converge are no error: see [`ComposedSolver::outcomes`].
    ///
    /// # Errors
    /// [`SolveError::Length`] when a vector does not fit, [`SolveError::Option`] when they overlap,
    /// [`SolveError::Gpu`] with what the device reports; `x` is untouched in the first two cases.
    pub fn solve(
        &mut self,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError> {
        let rows = self.vectors.r.len();
        check_len("b", rows, b.len())?;
        check_len("x", rows, x.len())?;
        check_apart(b, x)?;
        if self.systems == 0 {
            return Ok(());
        }
        let start = Instant::now();
        self.executor.copy_from_host(&[self.systems as u32], &mut self.remaining)?;
        if guess == Guess::Zero {
            self.executor.fill_zero(x)?;
        }
        self.launch(Step::Enter, b, x, 0)?;
        self.verdict(b, x)?;
        if let Some(histories) = &mut self.histories {
            histories.begin(self.outcomes.residual_norms(&self.executor)?);
        }
        let (mut done, mut iterations) = (0u32, FIRST_ITERATIONS);
        while self.remaining()? > 0 {
            // Systems that started again are behind the others.
            let left = self.most_iterations.saturating_sub(done).max(1);
            let most = self.histories.as_ref().map_or(MOST_ITERATIONS, Histories::most_iterations);
            let count = iterations.min(left).min(most);
            self.iterate(count, b, x)?;
            self.launch(Step::Lift, b, x, 0)?;
            self.verdict(b, x)?;
            if let Some(histories) = &mut self.histories {
                histories.take(&self.executor, count)?;
            }
            done = done.saturating_add(count);
            iterations = (2 * iterations).min(MOST_ITERATIONS);
        }
        self.last_solve = start.elapsed();
        Ok(())
    }

    /// Systems that have not ended. Waits.
    fn remaining(&self) -> Result<u32, GpuError> {
        let mut remaining = [0];
        self.executor.copy_to_host(&self.remaining, &mut remaining)?;
        Ok(remaining[0])
    }

    /// Judges what is new or has stopped, by `A x`.
    fn verdict(&mut self, b: &E::Buffer<T>, x: &mut E::Buffer<T>) -> Result<(), GpuError> {
        self.product.apply(x, &mut self.vectors.w)?;
        self.products += 1;
        self.launch_sizes(b, x)?;
        self.launch(Step::Judge, b, x, 0)
    }

    /// So many iterations of all systems that have not stopped.
    fn iterate(
        &mut self,
        count: u32,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        if let Some(histories) = &mut self.histories {
            histories.clear(&self.executor)?;
        }
        for iteration in 0..count {
            let history = self.histories.as_ref().map_or(0, |h| h.address(iteration));
            let Vectors { p, w, v, hat, .. } = &mut self.vectors;
            if self.method == FusedMethod::Cg {
                self.product.apply(p, w)?;
                self.launch(Step::Iterate(0), b, x, history)?;
            } else {
                self.product.apply(if self.jacobi { hat } else { p }, v)?;
                self.launch(Step::Iterate(0), b, x, history)?;
                let Vectors { r, w, hat, .. } = &mut self.vectors;
                self.product.apply(if self.jacobi { hat } else { r }, w)?;
                self.launch(Step::Iterate(1), b, x, history)?;
            }
            self.products += self.steps.iterate.len() as u64;
        }
        Ok(())
    }

    /// The launches of a step.
    #[expect(unsafe_code, reason = "the launches")]
    fn launch(
        &mut self,
        step: Step,
        b: &E::Buffer<T>,
        x: &mut E::Buffer<T>,
        history: u64,
    ) -> Result<(), GpuError> {
        let Self { executor, steps, work, limits, outcomes, vectors, .. } = self;
        let phases: &Phases = match step {
            Step::Enter => &steps.enter,
            Step::Lift => &steps.lift,
            Step::Judge => &steps.judge,
            Step::Iterate(number) => &steps.iterate[number],
        };
        let whole = std::iter::once((&phases.whole, &work.whole, 1));
        let parts = phases.parts.iter().map(|key| (key, &work.parts, 2));
        for (key, blocks, words) in whole.chain(parts) {
            if blocks.is_empty() {
                continue;
            }
            let mut args = Args::new();
            args.input(blocks)
                .input(&work.order)
                .input(&work.firsts)
                .output(&mut self.states)
                .output(&mut self.tickets)
                .output(&mut self.partials)
                .output(x)
                .input(b)
                .output(&mut vectors.r)
                .output(&mut vectors.p)
                .output(&mut vectors.w)
                .output(&mut vectors.v)
                .output(&mut vectors.shadow)
                .output(&mut vectors.hat)
                .input(&vectors.m)
                .raw(history);
            limits.pass(&mut args);
            outcomes.pass(&mut args);
            args.output(&mut self.remaining);
            if self.jacobi && !self.lenient {
                args.input(&vectors.flawed);
            } else {
                args.raw(0);
            }
            if words == 2 {
                args.scalar(PART_ROWS);
            }
            // SAFETY: (1) these are the parameters of `krylov` and, with part_rows, of `krylov_part`;
            // (2) the plan made blocks, order, firsts, states, tickets and partials for each other and
            // for vectors of the length that `solve` has checked, those that the method does not have
            // aside; the history has a number for each system, or is null; (3) all buffers are of this
            // executor, by the types, the history's is the plan's; (4) x is borrowed exclusively and
            // apart from b, all else is the plan's; (5) the kernels wait before they touch states and
            // vectors; what they read before is written when the plan is made.
            unsafe { executor.launch(key, config(blocks.len() / words), &mut args)? };
        }
        Ok(())
    }

    /// The launches before a judgement that may rest on a rounding floor.
    #[expect(unsafe_code, reason = "the launches")]
    fn launch_sizes(&mut self, b: &E::Buffer<T>, x: &mut E::Buffer<T>) -> Result<(), GpuError> {
        let Self { executor, work, .. } = self;
        let Some(sizes) = &self.sizes else {
            return Ok(());
        };
        for (key, blocks, words) in [(&sizes.whole, &work.whole, 1), (&sizes.part, &work.parts, 2)]
        {
            if blocks.is_empty() {
                continue;
            }
            let mut args = Args::new();
            args.input(blocks)
                .input(&work.order)
                .input(&work.firsts)
                .output(&mut self.states)
                .output(&mut self.tickets)
                .output(&mut self.partials)
                .output(x)
                .input(b);
            sizes.pass(&mut args);
            if words == 2 {
                args.scalar(PART_ROWS);
            }
            // SAFETY: as in `launch`, of `krylov_sizes` and `krylov_sizes_part`; their matrices are
            // those of the batch that the work was made of, validated, with values of its length.
            unsafe { executor.launch(key, config(blocks.len() / words), &mut args)? };
        }
        Ok(())
    }

    /// How each system of the last solve ended, item by item.
    ///
    /// # Errors
    /// [`SolveError::Gpu`] with what the device reports.
    pub fn outcomes(&self) -> Result<Vec<Outcome>, SolveError> {
        let mut outcomes = self.outcomes.download(&self.executor)?;
        if let Some(histories) = &self.histories {
            for (outcome, history) in outcomes.iter_mut().zip(histories.of_systems()) {
                outcome.history.clone_from(history);
            }
        }
        Ok(outcomes)
    }

    /// What was chosen, and what it takes.
    pub fn explain(&self) -> ComposedExplain {
        let each = Outcomes::<E>::BYTES_A_SYSTEM + self.limits.bytes_a_system() + 8 * STATE_WORDS;
        let Vectors { r, p, w, v, shadow, hat, m, flawed } = &self.vectors;
        let values: usize = [r, p, w, v, shadow, hat, m].iter().map(|v| v.len()).sum();
        let parts = self.tickets.len() * (4 + 8 * MOST_SUMS);
        let own = self.systems * each + values * size_of::<T>() + flawed.len() + parts + 4;
        ComposedExplain {
            method: self.method.name(),
            format: self.product.format(),
            product: self.product.kernel(),
            systems: self.work.systems,
            launches: (self.steps.iterate.len(), self.launches_between()),
            product_bytes: self.product.bytes(),
            workspace_bytes: own as u64
                + self.work.bytes()
                + self.sizes.as_ref().map_or(0, Sizes::bytes)
                + self.histories.as_ref().map_or(0, Histories::bytes),
        }
    }

    /// Launches of an iteration that are no products.
    fn launches_between(&self) -> usize {
        let of_parts: usize = self.steps.iterate.iter().map(|phases| phases.parts.len()).sum();
        let there = |blocks: &E::Buffer<u64>| usize::from(!blocks.is_empty());
        there(&self.work.whole) * self.steps.iterate.len() + there(&self.work.parts) * of_parts
    }

    /// The time of a product of all systems. Waits.
    fn time_product(&mut self) -> Result<Duration, SolveError> {
        let Vectors { p, w, .. } = &mut self.vectors;
        time(&self.executor, &self.product, p, w)
    }

    /// Products so far and their time, by the time of some that are done now, against the cost of the
    /// plan. Waits.
    ///
    /// # Errors
    /// [`SolveError::Gpu`] with what the device reports.
    pub fn product_cost(&mut self) -> Result<ProductCost, SolveError> {
        let each = self.time_product()?;
        Ok(ProductCost::new(self.products, each.mul_f64(self.products as f64), self.product.cost()))
    }

    /// Times products of the plan and of one without analysis, `batch-csr-scalar` of the same batch,
    /// which is on the device for that long. Waits.
    ///
    /// # Errors
    /// [`SolveError::Gpu`] with what the device reports, [`GpuError::OutOfMemory`] where there is no
    /// room for both.
    pub fn amortisation(&mut self, batch: &Batch<T>) -> Result<Amortisation, SolveError> {
        let scalar = ProductKernel::flexible(FlexibleKernel::CsrScalar);
        let baseline = Product::new(&self.executor, batch, &scalar, self.nrhs)?;
        let product = self.time_product()?;
        let Vectors { p, w, .. } = &mut self.vectors;
        Ok(Amortisation {
            plan: self.product.cost(),
            product,
            products: self.products,
            solve: self.last_solve,
            baseline_plan: baseline.cost(),
            baseline_product: time(&self.executor, &baseline, p, w)?,
        })
    }
}

/// A launch of so many blocks, which waits by itself for those ahead.
fn config(blocks: usize) -> LaunchConfig {
    let grid = u32::try_from(blocks).unwrap_or(u32::MAX);
    LaunchConfig { overlaps: true, ..LaunchConfig::linear(grid, THREADS) }
}

/// The mean time of some products, after one that is not counted.
fn time<E: Executor + Clone, T: Value>(
    executor: &E,
    product: &Product<E, T>,
    x: &E::Buffer<T>,
    y: &mut E::Buffer<T>,
) -> Result<Duration, SolveError> {
    product.apply(x, y)?;
    executor.synchronize()?;
    let start = Instant::now();
    for _ in 0..TIMED_PRODUCTS {
        product.apply(x, y)?;
    }
    executor.synchronize()?;
    Ok(start.elapsed() / TIMED_PRODUCTS)
}

/// A group of launches between products.
#[derive(Clone, Copy)]
enum Step {
    Enter,
    Lift,
    Judge,
    Iterate(usize),
}
