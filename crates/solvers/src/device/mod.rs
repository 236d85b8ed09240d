//! Solves of batches whose data lies on a GPU: [`DeviceSolver`].
//!
//! | file | holds |
//! | --- | --- |
//! | `arrange.rs` | arrays of the caller in another order than solvers take them |
//! | `finish.rs` | verdicts, items of other schemes, the report |
//! | `climb.rs` | the ladder over systems whose data lies on the device |
//! | `again.rs` | matrices and factors that are kept for several solves |
//! | `deferred.rs` | substitutions whose verdicts are found together |
//! | `transposed.rs` | solves with the transposed matrices by kept factors |
//! | `patterns.rs` | the patterns of the items |
//! | `indices.rs` | patterns from index arrays on a GPU |
//! | `report.rs` | the report, whose list of systems is made when it is asked for |
//! | `several.rs` | a solver for each of several GPUs, and one report |
//! | `memory.rs` | how much device memory a solver takes |

mod again;
mod arrange;
mod climb;
mod deferred;
mod finish;
mod indices;
mod memory;
mod patterns;
mod report;
mod several;
mod transposed;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use sparsebatch_cpu_ref::check_threads;
use sparsebatch_cuda::{KernelBuffer, copy_values, prepare_copy};
use sparsebatch_formats::{Batch, Pattern};
use sparsebatch_solve_core::{Criteria, Scheme, check_len};

use crate::adjoint::TransposedBatch;
use crate::backend::{AnalysedSolve, GpuBackend, SolveBackend, tuning};
use crate::choose::{Chosen, choose};
use crate::error::stopped;
use crate::gpu::{
    Confirmer, DeviceOutcomes, GpuSolver, Guess, ItemExtents, ItemList, OutcomeMemory, PlanReport,
    RefusedItems, SchemeItems, ValueGradient, check_apart, solver_for_batch,
};
use crate::share::most_cols;
use crate::solver::{check_engine, check_nrhs, check_square, check_square_pattern};
use crate::{Gpu, GpuExecutor, SolveError, SolveOptions, SolveScalar};

use again::KeptMatrices;
pub use arrange::DeviceData;
use arrange::{Staged, StagedVectors};
use climb::KeptRungs;
pub(crate) use memory::memory_of;
pub use memory::{SolverMemory, solver_memory};
pub use patterns::BatchPatterns;
use patterns::Patterns;
pub use report::DeviceReport;
pub use several::{DeviceArrays, DeviceSolvers};
use transposed::TransposedSide;

/// Solves batches of systems, uniform or ragged, whose values, right-hand sides and solutions lie on a
/// GPU, with `auto`, the ladder and the report of [`BatchSolver`](crate::BatchSolver).
///
/// It takes what [`solver_for`](crate::gpu::solver_for) takes: systems of any size without factors,
/// smaller ones with. Items that are too large go through the host, if some of the batch are not;
/// `BatchSolver` takes the rest. Systems beyond 4,096 rows (32,768 from compute capability 9.0 on),
/// composed engines and residual histories are solved over the products of a
/// [`ComposedSolver`](crate::gpu::ComposedSolver), for which [`DeviceSolver::enqueue`] waits and
/// which no graph records.
///
/// The arrays are item-major: the values of item 0 in CSR order, of item 1, and so on, or those of
/// one item for all of a uniform batch; `nrows * nrhs` elements of `b` and of `x` per item, one
/// right-hand side after the other. [`DeviceData`] says otherwise: interleaved arrays, and systems with
/// the transposed matrices, cost a pass over them on the device. So do items of several patterns that
/// are factorised completely, and items for which `auto` takes several methods: each part of them is
/// copied to arrays of its own, which are as large as those of the batch.
///
/// [`DeviceSolver::enqueue`] starts the first method on the executor's stream, allocates nothing
/// and returns at once. [`DeviceSolver::finish`] waits, confirms every verdict as the host's solver
/// does, and climbs the ladder on the device with the systems that failed, for which it compiles
/// kernels and allocates memory when some fail first. The data of some of these goes through the
/// host: for static pivoting, where no plan on the device takes an item, for what dense elimination
/// leaves unsolved, and to see whether a matrix looks semidefinite or is singular.
/// [`DeviceSolver::solve`] is both; [`DeviceSolver::factor`] and [`DeviceSolver::solve_again`]
/// serve several solves with the same matrices, [`DeviceSolver::substitute`] and
/// [`DeviceSolver::verify`] those of an integrator's stages, and [`DeviceSolver::set_active`]
/// restricts solves to the first items. Verdicts, and solutions of systems that converge by
/// the first method, are those of `BatchSolver` on the same GPU.
///
/// # Examples
/// ```no_run
/// use sparsebatch_cuda::{Device, Executor};
/// use sparsebatch_formats::generate::{Family, Problem};
/// use sparsebatch_solvers::gpu::Guess;
/// use sparsebatch_solvers::{DeviceSolver, SolveOptions};
///
/// let device = Device::new(0)?;
/// let systems = Problem::new(Family::Tri, 32)?.batch(1000)?;
/// let mut solver = DeviceSolver::new(&device, &systems.batch, &SolveOptions::new())?;
/// // What a simulation has on the GPU already.
/// let items = (0..1000).map(|item| systems.batch.item_values(item).unwrap());
/// let values = device.upload(&items.flatten().copied().collect::<Vec<f64>>())?;
/// let b = device.upload(&systems.rhs)?;
/// let mut x = device.alloc(systems.rhs.len())?;
/// let report = solver.solve(&values, &b, Guess::Zero, &mut x)?;
/// assert!(report.all_converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceSolver<E: GpuExecutor, T: SolveScalar> {
    executor: E,
    options: SolveOptions,
    criteria: Criteria,
    patterns: Patterns<T>,
    extents: ItemExtents,
    /// Number of participating items (`active <= nitems`).
    active: usize,
    backend: Box<dyn SolveBackend<T>>,
    /// The scheme of most items, and why.
    scheme: Scheme,
    reason: String,
    /// The items that the plan solves, scheme by scheme.
    chosen: Vec<Chosen>,
    plan: Box<dyn GpuSolver<E, T>>,
    confirmer: Confirmer<E, T>,
    /// Items that the plan does not take.
    others: Vec<Other<T>>,
    /// The initial guesses of the last solve, if it had some.
    guesses: Option<E::Buffer<T>>,
    /// The solve that was started last.
    started: Option<Started>,
    /// Arrays in the order of solvers, where the caller has another.
    staged_values: Option<Staged<E, T>>,
    staged_vectors: Option<StagedVectors<E, T>>,
    /// The matrices of [`DeviceSolver::factor`].
    matrices: Option<KeptMatrices<E, T>>,
    /// Their transposed ones, once they were solved with.
    transposed: Option<Box<TransposedSide<E, T>>>,
    /// Analyses of later rungs.
    kept: KeptRungs<E, T>,
    /// Host memory for the outcomes of a solve, from the first one on. Threads do not share it.
    on_host: Mutex<OutcomeMemory<E>>,
    plan_time: Duration,
}

/// Compiles the kernels that the solver has beside those of its plan.
fn prepare<E: GpuExecutor, T: SolveScalar>(
    executor: &E,
    batch: &Batch<T>,
) -> Result<(), SolveError> {
    let ncols = match batch {
        Batch::Uniform(uniform) => uniform.pattern().ncols(),
        Batch::Ragged(ragged) => most_cols(ragged),
    };
    Confirmer::<E, T>::prepare(executor, ncols)?;
    Ok(ItemList::prepare::<T>(executor)?)
}

/// The confirmer of a batch's patterns.
fn confirmer_of<E: GpuExecutor, T: SolveScalar>(
    executor: &E,
    batch: &Batch<T>,
    options: &SolveOptions,
) -> Result<Confirmer<E, T>, SolveError> {
    Ok(match batch {
        Batch::Uniform(uniform) => {
            Confirmer::new(executor, uniform.pattern().view(), uniform.nitems(), options)?
        }
        Batch::Ragged(ragged) => Confirmer::ragged(executor, ragged, options)?,
    })
}

/// Items that are solved from the host when the solve is finished.
struct Other<T> {
    chosen: Chosen,
    analysed: Option<Box<dyn AnalysedSolve<T>>>,
}

/// How a solve was started.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Started {
    guess: Guess,
    of: Matrices,
    by: Factors,
    /// How long the launches took; plans over products solve meanwhile.
    launching: Duration,
}

impl Started {
    fn new(guess: Guess, of: Matrices, by: Factors) -> Self {
        Self { guess, of, by, launching: Duration::ZERO }
    }
}

/// The factors by which a plan solves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Factors {
    /// Those that it makes for the solve, if any.
    None,
    /// Those that it keeps of the matrices.
    Kept,
    /// Those that it keeps of matrices that are near.
    Near,
    /// Those that it keeps of the transposed matrices of the solve.
    Transposed,
}

/// The matrices of a solve.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Matrices {
    /// Those that were given with it.
    Given,
    /// Those of [`DeviceSolver::factor`].
    Kept,
    /// The transposed ones of these.
    Transposed,
}

impl<E: GpuExecutor, T: SolveScalar> DeviceSolver<E, T> {
    /// Analyses a batch, whose values decide what `auto` takes for each item. Later solves may have
    /// other values. Allocates the memory of the solver and compiles its kernels.
    ///
    /// # Errors
    /// [`SolveError::Argument`] for a matrix that is not square and options out of range;
    /// [`SolveError::Unsupported`] for batches of which no item can be solved on the device;
    /// [`SolveError::Gpu`] when memory or compiler fail.
    pub fn new(executor: &E, batch: &Batch<T>, options: &SolveOptions) -> Result<Self, SolveError> {
        Self::with_data(executor, batch, options, DeviceData::new())
    }

    /// As [`DeviceSolver::new`], for arrays on the device as `data` says. The layout of `batch` itself
    /// does not matter; whether its items share their values does, where values are rearranged.
    ///
    /// # Errors
    /// Those of [`DeviceSolver::new`]; [`SolveError::Unsupported`] for interleaved arrays of a ragged
    /// batch.
    pub fn with_data(
        executor: &E,
        batch: &Batch<T>,
        options: &SolveOptions,
        data: DeviceData,
    ) -> Result<Self, SolveError> {
        let start = Instant::now();
        check_threads()?;
        check_supported(batch, options, data)?;
        let nitems = batch.nitems();
        let criteria = options.criteria::<T>(nitems.saturating_mul(options.nrhs))?;
        let transposed = data.transposed.then(|| TransposedBatch::new(batch));
        let batch = transposed.as_ref().map_or(batch, TransposedBatch::batch);
        let gpu = Gpu::new(executor.clone()).or_cpu(true).in_chunks(true);
        let backend: Box<dyn SolveBackend<T>> =
            Box::new(GpuBackend::new(vec![gpu], options.clone()));
        let choices = choose(batch, options, backend.target());
        backend.prepare(batch, &choices);
        let (scheme, reason) = (choices[0].scheme, choices[0].reason.clone());
        // All compile kernels.
        let (planned, prepared) = rayon::join(
            || plan_for(executor, batch, choices, options),
            || prepare::<E, T>(executor, batch),
        );
        let (chosen, others, plan) = planned?;
        prepared?;
        let extents = ItemExtents::of(batch);
        let sources = transposed.as_ref().map(TransposedBatch::sources).transpose()?;
        let confirmer = confirmer_of(executor, batch, options)?;
        Ok(Self {
            staged_values: Staged::values(executor, batch, data, sources.as_deref())?,
            staged_vectors: StagedVectors::new(executor, &extents, options.nrhs, data)?,
            matrices: None,
            transposed: None,
            confirmer,
            executor: executor.clone(),
            options: options.clone(),
            criteria,
            patterns: Patterns::of(batch),
            active: extents.nitems(),
            extents,
            backend,
            scheme,
            reason,
            chosen,
            plan,
            others,
            guesses: None,
            started: None,
            kept: KeptRungs::new(),
            on_host: Mutex::default(),
            plan_time: start.elapsed(),
        })
    }

    /// As [`DeviceSolver::with_data`], from patterns and from values on the device. The values are
    /// copied to the host once: those of all items one after the other, or those of one item for
    /// all of one pattern. `patterns` is one pattern with the number of items, or a slice with one
    /// for each; [`BatchPatterns::from_device`] and [`BatchPatterns::ragged_from_device`] make them
    /// of index arrays on the device.
    ///
    /// # Errors
    /// Those of [`DeviceSolver::with_data`]; [`SolveError::Argument`] for another number of values.
    pub fn with_values<'a>(
        executor: &E,
        patterns: impl Into<BatchPatterns<'a>>,
        values: &E::Buffer<T>,
        options: &SolveOptions,
        data: DeviceData,
    ) -> Result<Self, SolveError> {
        let patterns = patterns.into();
        if !patterns.shares(values.len()) {
            check_len("values", patterns.nvalues(), values.len())?;
        }
        let batch = patterns.batch(executor.download(values)?, data.values)?;
        Self::with_data(executor, &batch, options, data)
    }

    /// Makes solves from guesses ready: compiles their kernels and allocates memory for a copy of the
    /// guesses. Without this call the first such solve does so, which cannot be recorded in a graph.
    ///
    /// # Errors
    /// [`SolveError::Gpu`] when memory or compiler fail.
    pub fn prepare_guesses(&mut self) -> Result<(), SolveError> {
        self.plan.prepare(Guess::InX)?;
        prepare_copy::<T>(&self.executor)?;
        if self.guesses.is_none() {
            self.guesses = Some(self.executor.alloc(self.rows())?);
        }
        Ok(())
    }

    /// Prepares gradients, by the values of the matrices, of a loss of the solutions, for the
    /// right-hand sides of this solver. Its arrays are item-major, those of the values in the order
    /// of the caller's matrices.
    ///
    /// # Errors
    /// [`SolveError::Unsupported`] with [`DeviceData::transposed`] and for interleaved arrays;
    /// [`SolveError::Gpu`] when memory or compiler fail.
    pub fn value_gradient(&self) -> Result<ValueGradient<E, T>, SolveError> {
        if self.staged_values.is_some() || self.staged_vectors.is_some() {
            return Err(SolveError::Unsupported {
                what: "gradients of transposed systems and of interleaved arrays",
                instead: "make a solver of the matrices in item-major order",
            });
        }
        Ok(self.patterns.value_gradient(&self.executor, self.options.nrhs)?)
    }

    /// The number of systems: items times right-hand sides.
    fn systems(&self) -> usize {
        self.extents.nitems() * self.options.nrhs
    }

    /// The number of systems that take part.
    fn active_systems(&self) -> usize {
        self.active * self.options.nrhs
    }

    /// From now on only the first `items` items take part in factorisations and solves, and in
    /// reports. Arrays keep their lengths; the elements of other items in `x` and in the outcomes
    /// on the device are not touched. A solve that was started has to be finished before. Graphs
    /// that were recorded before keep their number of items, and have to be recorded again.
    /// Where the number grows, kept factors are those of too few items: solves make their own until
    /// [`DeviceSolver::factor`] is called.
    ///
    /// # Errors
    /// [`SolveError::Argument`] when there are fewer items; [`SolveError::Unsupported`] for
    /// fewer items than all where they have several patterns or several methods, where some go
    /// through the host, over products, and with [`LuForm::BySystem`](crate::LuForm::BySystem).
    pub fn set_active(&mut self, items: usize) -> Result<(), SolveError> {
        if items == self.active {
            return Ok(());
        }
        if !self.others.is_empty() {
            return Err(SolveError::Unsupported {
                what: "the first items alone where some items go through the host",
                instead: "make a solver of these items",
            });
        }
        self.plan.set_active(items)?;
        if items > self.active {
            // The factors are those of fewer items.
            self.transposed = self.transposed.take().filter(|transposed| transposed.has_plan());
            self.matrices.iter_mut().for_each(|kept| kept.has_factors = false);
        }
        if let Some(transposed) = &mut self.transposed {
            transposed.set_active(items)?;
        }
        self.started = None;
        self.active = items;
        Ok(())
    }

    /// The choices of the plan that solves first, and its memory.
    pub fn explain(&self) -> PlanReport {
        self.plan.explain()
    }

    /// The number of elements of right-hand sides and of solutions.
    fn rows(&self) -> usize {
        self.extents.total_rows() * self.options.nrhs
    }

    /// Takes tolerances and iteration limits of other options for the solves that follow. Waits for
    /// the last solve; allocates for a limit that is given per system for the first time. A graph
    /// that was recorded before keeps the limits that were common to all systems then.
    ///
    /// # Errors
    /// [`SolveError::Argument`] when there is not one per system, for negative ones.
    pub fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), SolveError> {
        let own = self.options.with_limits_of(options);
        let criteria = own.criteria::<T>(self.systems())?;
        self.plan.replace_limits(&self.executor, &own)?;
        self.confirmer.replace_limits(&own)?;
        if let Some(transposed) = &mut self.transposed {
            transposed.side.replace_limits(&self.executor, &own)?;
        }
        // Plans of other schemes and of later rungs hold limits.
        self.backend = self.backend.with_options(&own);
        self.kept.clear();
        self.others.iter_mut().for_each(|other| other.analysed = None);
        (self.options, self.criteria) = (own, criteria);
        Ok(())
    }

    /// Starts the first method for every item, from the guesses in `x` or from 0, and returns.
    /// Allocates nothing (from guesses: after [`DeviceSolver::prepare_guesses`]) and may be
    /// recorded in a graph; each launch of the graph is a solve that [`DeviceSolver::finish`]
    /// completes. Over products it returns when the first method has ended, cannot be recorded, and
    /// allocates where values of each item become those of all or the reverse.
    ///
    /// Items that are too large for the device are solved by [`DeviceSolver::finish`], and so are
    /// systems that fail.
    ///
    /// # Errors
    /// [`SolveError::Argument`] when an array does not fit, or `x` overlaps another one;
    /// [`SolveError::Unsupported`] for iterations over products in a graph; [`SolveError::Gpu`]
    /// when a launch is refused.
    pub fn enqueue(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError> {
        self.started = None;
        check_apart(values, x)?;
        check_apart(b, x)?;
        self.with_staged_values(values, true, |solver, values| {
            solver.with_staged_vectors(b, Some(guess), x, |solver, b, x| {
                let started = Started::new(guess, Matrices::Given, Factors::None);
                solver.start(values, b, started, x)
            })
        })
    }

    /// Starts a solve of arrays in the order of solvers.
    fn start(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        started: Started,
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError> {
        if let Some(watch) = &self.criteria.watch {
            watch.begin(self.active_systems());
        }
        if started.guess == Guess::InX {
            check_len("x", self.rows(), x.len())?;
            self.prepare_guesses()?;
            if let Some(guesses) = &mut self.guesses {
                copy_values(&self.executor, &*x, guesses)?;
            }
        }
        let clock = Instant::now();
        let launched = match started.by {
            Factors::None => self.plan.solve(values, b, started.guess, x),
            Factors::Kept | Factors::Near => self.plan.solve_again(values, b, started.guess, x),
            Factors::Transposed => self.plan.solve_transposed_again(b, started.guess, x),
        };
        // Plans that wait may be stopped.
        stopped(&self.criteria.watch, launched.map_err(SolveError::from))?;
        self.started = Some(Started { launching: clock.elapsed(), ..started });
        Ok(())
    }

    /// The outcomes of the last solve on the device, for kernels of the caller. After
    /// [`DeviceSolver::enqueue`] they are those of the first method, not confirmed; after
    /// [`DeviceSolver::finish`] those of the report.
    pub fn device_outcomes(&self) -> DeviceOutcomes<'_, E> {
        let of_transposed = self.started.is_some_and(|started| started.of == Matrices::Transposed);
        let own = self.transposed.as_ref().and_then(|transposed| transposed.side.plan.as_ref());
        own.filter(|_| of_transposed).unwrap_or(&self.plan).outcome_arrays().on_device()
    }

    /// [`DeviceSolver::enqueue`] and [`DeviceSolver::finish`].
    ///
    /// # Errors
    /// Those of the two.
    pub fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<DeviceReport, SolveError> {
        self.enqueue(values, b, guess, x)?;
        self.finish(values, b, x)
    }
}

/// Refuses options, batches and layouts of arrays that solves on the device do not support.
pub(super) fn check_supported<T: SolveScalar>(
    batch: &Batch<T>,
    options: &SolveOptions,
    data: DeviceData,
) -> Result<(), SolveError> {
    check_engine(options)?;
    let is_ragged = matches!(batch, Batch::Ragged(_));
    if is_ragged && (data.values, data.vectors) != Default::default() {
        return Err(SolveError::Unsupported {
            what: "interleaved arrays of a ragged batch",
            instead: "give them item-major",
        });
    }
    match batch {
        // Without items, too.
        Batch::Uniform(uniform) => check_square_pattern(0, uniform.pattern().view())?,
        Batch::Ragged(_) => check_square(batch)?,
    }
    check_nrhs(options)?;
    Ok(())
}

/// The items of each scheme that a plan takes, those that it does not take, and the plan.
type Planned<E, T> = (Vec<Chosen>, Vec<Other<T>>, Box<dyn GpuSolver<E, T>>);

fn plan_for<E: GpuExecutor, T: SolveScalar>(
    executor: &E,
    batch: &Batch<T>,
    choices: Vec<Chosen>,
    options: &SolveOptions,
) -> Result<Planned<E, T>, SolveError> {
    let of_scheme =
        |chosen: &Chosen| SchemeItems { scheme: chosen.scheme, items: chosen.items.clone() };
    let schemes: Vec<SchemeItems> = choices.iter().map(of_scheme).collect();
    let (mut plan, refused) =
        solver_for_batch::<E, T>(executor, batch, &schemes, options, &tuning(None))?;
    plan.outcome_arrays_mut().keep_packed(executor)?;
    let (chosen, others) = without_refused(choices, &refused);
    Ok((chosen, others, plan))
}

/// Takes items that the plan refused out of those of their schemes.
fn without_refused<T>(
    mut chosen: Vec<Chosen>,
    refused: &[RefusedItems],
) -> (Vec<Chosen>, Vec<Other<T>>) {
    let mut others = Vec::new();
    for RefusedItems { scheme, items, .. } in refused {
        for chosen in chosen.iter_mut().filter(|chosen| chosen.scheme == *scheme) {
            chosen.items.retain(|item| items.binary_search(item).is_err());
            let refused =
                Chosen { scheme: *scheme, reason: chosen.reason.clone(), items: items.clone() };
            others.push(Other { chosen: refused, analysed: None });
        }
    }
    (chosen, others)
}
