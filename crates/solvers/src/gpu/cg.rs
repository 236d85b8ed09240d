//! [`GpuCg`]: whole solves by conjugate gradients in one launch.

use sparsebatch_cpu_ref::{Criteria, Outcome, PerSystem, Status};
use sparsebatch_formats::{Batch, BatchValues, CsrPatternRef, Pattern};
use sparsebatch_spmv_gpu::{
    Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Pod, Value,
};

use super::explain::GpuExplain;
use super::pattern::Slices;
use super::shape::{GpuTuning, Grid, Shape, choose, grid};
use crate::options::{Engine, Method, Preconditioner, check_len};
use crate::{SolveError, SolveOptions};

/// Bits of the kernel's `flags`.
const FROM_GUESS: u32 = 1;
const LENIENT: u32 = 2;

/// The most systems of a launch: the kernel counts those it was asked for, and some more, in 32 bits.
pub(super) const MAX_SYSTEMS: usize = 4_000_000_000;

/// What the solution vector holds before a solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guess {
    /// Nothing: solves start from 0.
    Zero,
    /// Initial guesses.
    InX,
}

/// CG for every system of a uniform batch, each solved whole by a group of threads, all in one
/// launch.
///
/// Statuses, restarts and the true residual are those of the CPU's solvers: `Converged` is only said
/// after `b - A x` was recomputed in the same launch. A system's result is a function of that system
/// and of the plan's kernel, bit for bit: not of its neighbours, its place in the batch, or the order
/// of threads.
///
/// # Source
/// Hestenes and Stiefel 1952 (doi 10.6028/jres.049.044); batched solvers in one kernel: Aggarwal,
/// Kashi, Nayak, Anzt 2021 (doi 10.1109/ScalA54577.2021.00010).
pub struct GpuCg<E: Executor, T: Value> {
    executor: E,
    nrows: usize,
    nnz: usize,
    nitems: usize,
    nrhs: usize,
    shape: Shape,
    grid: Grid,
    key: KernelKey,
    padding: usize,
    starts: E::Buffer<u32>,
    firsts: E::Buffer<u32>,
    columns: E::Buffer<u16>,
    lenient: bool,
    criteria: Criteria,
    rel_tols: Option<E::Buffer<f64>>,
    abs_tols: Option<E::Buffer<f64>>,
    max_iters: Option<E::Buffer<u32>>,
    outcomes: Outcomes<E>,
    values: std::marker::PhantomData<T>,
}

/// One entry per system, written by the kernel, and its queue.
struct Outcomes<E: Executor> {
    queue: E::Buffer<u32>,
    status: E::Buffer<u8>,
    iterations: E::Buffer<u32>,
    /// Twice the restarts, plus 1 where the rounding floor accepted the system.
    restarts: E::Buffer<u32>,
    residual_norm: E::Buffer<f64>,
    rhs_norm: E::Buffer<f64>,
}

impl<E: Executor + Clone, T: Value> GpuCg<E, T> {
    /// Analyses a pattern for `nitems` systems of `options.nrhs` right-hand sides each, allocates
    /// everything and compiles the kernel.
    ///
    /// # Errors
    /// [`SolveError::NotSquare`]; [`SolveError::Option`] and [`SolveError::Length`] for options out of
    /// range; [`SolveError::Unsupported`] for what the GPU does not do yet; [`SolveError::Gpu`] when
    /// memory or compiler fail.
    pub fn new(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        Self::with_tuning(executor, pattern, nitems, options, &GpuTuning::default())
    }

    /// As [`GpuCg::new`], for the patterns of a batch.
    ///
    /// # Errors
    /// Those of [`GpuCg::new`]; [`SolveError::Unsupported`] for ragged batches and interleaved values.
    pub fn for_batch(
        executor: &E,
        batch: &Batch<T>,
        options: &SolveOptions,
    ) -> Result<Self, SolveError> {
        match batch {
            Batch::Ragged(_) => Err(SolveError::Unsupported {
                what: "a ragged batch",
                instead: "give systems of one pattern as a uniform batch",
            }),
            Batch::Uniform(uniform) => {
                if matches!(uniform.values(), BatchValues::Interleaved(_)) {
                    return Err(SolveError::Unsupported {
                        what: "a batch of interleaved values",
                        instead: "give them item-major",
                    });
                }
                Self::new(executor, uniform.pattern().view(), uniform.nitems(), options)
            }
        }
    }

    /// As [`GpuCg::new`], with choices fixed.
    ///
    /// # Errors
    /// Those of [`GpuCg::new`]; [`SolveError::Option`] for choices that do not fit the pattern.
    pub fn with_tuning(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
        tuning: &GpuTuning,
    ) -> Result<Self, SolveError> {
        let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
        if nrows != ncols {
            return Err(SolveError::NotSquare { item: 0, nrows, ncols });
        }
        let jacobi = check_supported(options)?;
        let systems = nitems.saturating_mul(options.nrhs);
        if options.nrhs == 0 || systems > MAX_SYSTEMS {
            return Err(SolveError::Option {
                name: "nrhs",
                expected: "at least 1, and at most 4000000000 systems in all",
                found: options.nrhs.to_string(),
            });
        }
        let criteria = options.criteria::<T>(systems)?;
        let shape = choose(pattern, size_of::<T>(), executor.info(), tuning)?;
        let slices = Slices::new(pattern, &shape);
        let bytes = size_of::<T>();
        let grid = grid(&shape, slices.len(), bytes, systems as u64, executor.info(), tuning);
        let Shape { threads, rows, width, place } = shape;
        let expression = format!(
            "cg<{}, {threads}, {rows}, {width}, {}, {}>",
            T::CPP,
            place.code(),
            u32::from(jacobi)
        );
        let key = KernelKey::new("cg", expression);
        executor.prepare(std::slice::from_ref(&key))?;
        Ok(Self {
            nrows,
            nnz: pattern.nnz(),
            nitems,
            nrhs: options.nrhs,
            shape,
            grid,
            key,
            padding: slices.len() - pattern.nnz(),
            starts: executor.upload(&slices.starts)?,
            firsts: executor.upload(&slices.firsts)?,
            columns: executor.upload(&slices.columns)?,
            lenient: options.preconditioner == Preconditioner::Auto,
            rel_tols: upload_each(executor, &criteria.rel_tol)?,
            abs_tols: upload_each(executor, &criteria.abs_tol)?,
            max_iters: upload_each(executor, &criteria.max_iters)?,
            criteria,
            outcomes: Outcomes {
                queue: executor.alloc_zeroed(2)?,
                status: executor.alloc_zeroed(systems)?,
                iterations: executor.alloc_zeroed(systems)?,
                restarts: executor.alloc_zeroed(systems)?,
                residual_norm: executor.alloc_zeroed(systems)?,
                rhs_norm: executor.alloc_zeroed(systems)?,
            },
            executor: executor.clone(),
            values: std::marker::PhantomData,
        })
    }

    /// Solves every system. Allocates nothing, launches one kernel and returns before it is done.
    ///
    /// `values` holds the entries of item 0 in the order of CSR, of item 1, ...; or those of one
    /// item, for all. `b` and `x` are item-major, right-hand side after right-hand side within an
    /// item. Systems that do not converge are no error: see [`GpuCg::outcomes`].
    ///
    /// # Errors
    /// [`SolveError::Length`] when an array does not fit, [`SolveError::Option`] when `x` overlaps
    /// another one, [`SolveError::Gpu`] when the launch is refused; `x` is untouched then.
    #[expect(unsafe_code, reason = "the one launch")]
    pub fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), SolveError> {
        let rows = self.nrows * self.nitems * self.nrhs;
        let shared = values.len() == self.nnz;
        if !shared {
            check_len("values", self.nnz * self.nitems, values.len())?;
        }
        check_len("b", rows, b.len())?;
        check_len("x", rows, x.len())?;
        check_apart(values, x)?;
        check_apart(b, x)?;
        if self.nitems == 0 {
            return Ok(());
        }
        let flags = if guess == Guess::InX { FROM_GUESS } else { 0 }
            | if self.lenient { LENIENT } else { 0 };
        let all = |limit: &PerSystem<f64>| match limit {
            PerSystem::All(value) => *value,
            PerSystem::Each(_) => 0.0,
        };
        let max_iters = match self.criteria.max_iters {
            PerSystem::All(most) => most,
            PerSystem::Each(_) => 0,
        };
        let Outcomes { queue, status, iterations, restarts, residual_norm, rhs_norm } =
            &mut self.outcomes;
        let mut args = Args::new();
        args.scalar((self.nitems * self.nrhs) as u32)
            .scalar(self.nrows as u32)
            .scalar(self.nrhs as u32)
            .input(&self.starts)
            .input(&self.firsts)
            .input(&self.columns)
            .input(values)
            .scalar(if shared { 0 } else { self.nnz as u64 })
            .input(b)
            .output(x)
            .scalar(flags)
            .scalar(all(&self.criteria.rel_tol))
            .raw(address(&self.rel_tols))
            .scalar(all(&self.criteria.abs_tol))
            .raw(address(&self.abs_tols))
            .scalar(max_iters)
            .raw(address(&self.max_iters))
            .scalar(self.criteria.max_restarts)
            .scalar(self.criteria.floor.unwrap_or(-1.0))
            .output(queue)
            .output(status)
            .output(iterations)
            .output(restarts)
            .output(residual_norm)
            .output(rhs_norm);
        let config = LaunchConfig {
            shared_bytes: self.grid.shared_bytes,
            ..LaunchConfig::linear(self.grid.blocks, self.grid.threads)
        };
        // SAFETY: the arguments are those of `cg`; lengths were checked here, those of the plan's
        // own arrays are what `new` made of the same numbers, and so are columns below the rows;
        // x overlaps neither values nor b, and everything else belongs to the plan; the queue holds
        // zeros before and after each launch.
        unsafe { self.executor.launch(&self.key, config, &mut args) }?;
        Ok(())
    }

    /// How each system of the last solve ended, item by item. Waits for the solve.
    ///
    /// # Errors
    /// [`SolveError::Gpu`] with what the device reports.
    pub fn outcomes(&self) -> Result<Vec<Outcome>, SolveError> {
        let status = self.executor.download(&self.outcomes.status)?;
        let iterations = self.executor.download(&self.outcomes.iterations)?;
        let restarts = self.executor.download(&self.outcomes.restarts)?;
        let residual_norm = self.executor.download(&self.outcomes.residual_norm)?;
        let rhs_norm = self.executor.download(&self.outcomes.rhs_norm)?;
        let outcome = |s: usize| Outcome {
            status: Status::ALL[usize::from(status[s])],
            iterations: iterations[s],
            restarts: restarts[s] >> 1,
            residual_norm: residual_norm[s],
            rhs_norm: rhs_norm[s],
            accepted_by_floor: restarts[s] & 1 != 0,
            history: Vec::new(),
        };
        Ok((0..status.len()).map(outcome).collect())
    }

    /// What was chosen, and what it takes.
    pub fn explain(&self) -> GpuExplain {
        let bytes = |len: usize, each: usize| (len * each) as u64;
        let each = |there: bool, size: usize| if there { size } else { 0 };
        let limits = each(self.rel_tols.is_some(), 8)
            + each(self.abs_tols.is_some(), 8)
            + each(self.max_iters.is_some(), 4);
        GpuExplain {
            kernel: self.key.expression.clone(),
            nrows: self.nrows,
            nnz: self.nnz,
            threads_per_system: self.shape.threads,
            rows_per_thread: self.shape.rows,
            values: self.shape.place,
            padding: self.padding,
            systems_per_block: self.grid.threads / self.shape.threads,
            threads_per_block: self.grid.threads,
            blocks: self.grid.blocks,
            shared_bytes: self.grid.shared_bytes,
            pattern_bytes: bytes(self.starts.len() + self.firsts.len(), 4)
                + bytes(self.columns.len(), 2),
            workspace_bytes: bytes(self.nitems * self.nrhs, 25 + limits) + 8,
        }
    }
}

/// Whether the preconditioner is Jacobi.
fn check_supported(options: &SolveOptions) -> Result<bool, SolveError> {
    let refuse = |what, instead| Err(SolveError::Unsupported { what, instead });
    match options.method {
        Method::Auto | Method::Cg => {}
        Method::BiCgStab | Method::Lu => return refuse("a solver other than cg", "take cg"),
    }
    if options.engine != Engine::Fused {
        return refuse("a composed engine", "take the fused one");
    }
    if options.history {
        return refuse("the residual history", "solve on the CPU");
    }
    if options.fallback {
        return refuse("the ladder of --fallback", "solve what did not converge on the CPU");
    }
    match options.preconditioner {
        Preconditioner::None => Ok(false),
        Preconditioner::Auto | Preconditioner::Jacobi => Ok(true),
        Preconditioner::BlockJacobi | Preconditioner::Ilu0 | Preconditioner::Ic0 => {
            refuse("a preconditioner other than none and jacobi", "take jacobi")
        }
    }
}

pub(super) fn upload_each<E: Executor, V: Pod>(
    executor: &E,
    limits: &PerSystem<V>,
) -> Result<Option<E::Buffer<V>>, GpuError> {
    match limits {
        PerSystem::All(_) => Ok(None),
        PerSystem::Each(each) => executor.upload(each).map(Some),
    }
}

/// The address of an array, or null.
pub(super) fn address<V: Pod>(buffer: &Option<impl KernelBuffer<V>>) -> u64 {
    buffer.as_ref().map_or(0, KernelBuffer::raw)
}

pub(super) fn check_apart<T: Pod>(
    input: &impl KernelBuffer<T>,
    x: &impl KernelBuffer<T>,
) -> Result<(), SolveError> {
    if input.shares_memory_with(x) {
        return Err(SolveError::Option {
            name: "x",
            expected: "memory apart from values and b",
            found: "memory shared with them".to_owned(),
        });
    }
    Ok(())
}
