//! [`Confirmer`]: checks which systems converged, with the rounding errors of their residuals
//! counted.

use sparsebatch_solve_core::{SolveOptions, by_pattern, check_len};
use std::marker::PhantomData;

use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::{Batch, CsrPatternRef, Pattern, RaggedCsr};

use super::items::check_ascending;
use super::kernels::CONFIRM;
use super::outcomes::{Limits, Outcomes};
use super::task::{ArraySizes, Layouts, Strides, UniformPlaces, ragged_sizes};
use crate::GpuSolveError;

/// Threads of a block of the kernel.
const THREADS: u32 = 256;

/// Systems per block where there are few systems; `BLOCKS`: largest number of blocks of a launch
/// per multiprocessor.
const SYSTEMS: usize = 2;
const BLOCKS: u32 = 4;

/// Largest number of blocks per multiprocessor where each takes a system at a time.
const SETTLING_BLOCKS: u32 = 8;

/// Confirms `Converged` for batches that were solved on the device, without copying data to the
/// host.
///
/// The kernels of [`FusedSolver`](crate::FusedSolver), [`FactoredSolver`](crate::FactoredSolver),
/// [`GpuLu`](crate::GpuLu), [`FrontalLu`](crate::FrontalLu) and
/// [`ComposedSolver`](crate::ComposedSolver) report `Converged` when the residual `b - A x` passes
/// as it was computed. In a nearly singular system, whose `x` may be 1e16, that residual can be
/// small by chance. A confirmer checks every converged system by the rule of the CPU's solvers and
/// of `BatchSolver`: the norm of the residual plus a bound of its rounding errors must pass. Where
/// the bound of the plain evaluation, `gamma_(k+3) || |A||x| + |b| ||_2` with rows of at most `k`
/// entries, does not decide, the residual is evaluated in twofold precision. A system that does not
/// pass becomes `Stagnated`. Statuses, residual norms and the rounding-floor flag may change, `x`
/// does not.
///
/// One confirmer serves all plans of the same patterns, layouts and tolerances. A confirmation is
/// one launch: A, b and x of each system that converged are read once, and once more where twofold
/// precision is needed.
///
/// # Source
/// Ogita, Rump, Oishi, Accurate sum and dot product, SIAM J. Sci. Comput. 26, 2005
/// (doi 10.1137/030601818); bounds as in Higham, Accuracy and Stability of Numerical Algorithms,
/// 2nd ed. 2002, section 3.1.
pub struct Confirmer<E: Executor, T: Value> {
    executor: E,
    key: KernelKey,
    settle_key: KernelKey,
    sizes: ArraySizes,
    steps: Strides,
    /// Rows of the pattern if all items share it and are item-major; else 0.
    nrows: u32,
    /// `row_ptr` of all patterns, concatenated.
    row_ptr: E::Buffer<u32>,
    col_idx: ConfirmColumns<E>,
    /// Four words per item; `None` if all items have one pattern and are item-major.
    items: Option<E::Buffer<u64>>,
    limits: Limits<E>,
    values: PhantomData<T>,
}

/// Column indices, in 16 bits if all of them fit.
enum ConfirmColumns<E: Executor> {
    Narrow(E::Buffer<u16>),
    Wide(E::Buffer<u32>),
}

/// Patterns in CSR, concatenated, and the offsets of their items.
#[derive(Default)]
struct Patterns {
    row_ptr: Vec<u32>,
    col_idx: Vec<u32>,
    /// Empty if all items have one pattern and are item-major.
    items: Vec<u64>,
}

impl Patterns {
    /// Appends a pattern; its part of `row_ptr` begins at 0.
    fn push(&mut self, pattern: CsrPatternRef<'_>) {
        self.row_ptr.extend(pattern.row_ptr().iter().map(|&entry| entry as u32));
        self.col_idx.extend(pattern.col_idx().iter().map(|&column| column as u32));
    }

    /// Appends the pattern of these items; `places` gives the offsets of an item's first value and
    /// first row.
    fn push_items(
        &mut self,
        pattern: CsrPatternRef<'_>,
        items: &[u32],
        places: impl Fn(u32) -> [u64; 2],
    ) {
        let sizes = pattern.nrows() as u64 | (self.row_ptr.len() as u64) << 32;
        let first_column = self.col_idx.len() as u64;
        self.push(pattern);
        for &item in items {
            let [value, row] = places(item);
            let words = [sizes, first_column, value, row];
            self.items[4 * item as usize..][..4].copy_from_slice(&words);
        }
    }
}

/// A kernel for column indices of a type.
fn kernel_key<T: Value>(name: &str, index: &str) -> KernelKey {
    KernelKey::new(&CONFIRM, format!("{name}<{}, {index}>", T::CPP))
}

impl<E: Executor + Clone, T: Value> Confirmer<E, T> {
    /// A confirmer for `nitems` items of a pattern with `options.nrhs` right-hand sides each, and
    /// the tolerances and the floor of the options. Arrays are item-major.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a matrix that is not square and for
    /// options out of range; [`GpuSolveError::Gpu`] when memory or compiler fail.
    pub fn new(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        Self::with_layouts(executor, pattern, nitems, Layouts::default(), options)
    }

    /// As [`Confirmer::new`], for the patterns of a batch. Vectors are item-major; values have the
    /// layout of the batch.
    ///
    /// # Errors
    /// Those of [`Confirmer::new`].
    pub fn for_batch(
        executor: &E,
        batch: &Batch<T>,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        match batch {
            Batch::Ragged(ragged) => Self::ragged(executor, ragged, options),
            Batch::Uniform(uniform) => {
                let layouts = Layouts::of(uniform);
                let pattern = uniform.pattern().view();
                Self::with_layouts(executor, pattern, uniform.nitems(), layouts, options)
            }
        }
    }

    /// As [`Confirmer::new`], for arrays of these layouts.
    ///
    /// # Errors
    /// Those of [`Confirmer::new`].
    pub fn with_layouts(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        layouts: Layouts,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let places = UniformPlaces::new(pattern, nitems, options.nrhs, layouts)?;
        let mut patterns = Patterns::default();
        let mut nrows = 0;
        if places.is_item_major() {
            patterns.push(pattern);
            nrows = pattern.nrows() as u32;
        } else {
            patterns.items = vec![0; 4 * nitems];
            let items: Vec<u32> = (0..nitems as u32).collect();
            patterns.push_items(pattern, &items, |item| [places.value(item), places.row(item)]);
        }
        Self::build(executor, patterns, nrows, (places.sizes, places.steps), options)
    }

    /// As [`Confirmer::new`], for the patterns of a ragged batch, whose arrays are concatenated.
    ///
    /// # Errors
    /// Those of [`Confirmer::new`].
    pub fn ragged(
        executor: &E,
        batch: &RaggedCsr<T>,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let (nitems, sizes) = (batch.nitems(), ragged_sizes(batch, options.nrhs)?);
        let mut patterns = Patterns { items: vec![0; 4 * nitems], ..Patterns::default() };
        let place = |item: u32| {
            let item = item as usize;
            [batch.nnz_offsets()[item] as u64, (batch.row_offsets()[item] * options.nrhs) as u64]
        };
        for items in by_pattern(nitems, |item| batch.item(item).pattern()) {
            patterns.push_items(batch.item(items[0] as usize).pattern(), &items, place);
        }
        let steps = Strides { item: 1, value: 1, row: 1 };
        Self::build(executor, patterns, 0, (sizes, steps), options)
    }

    /// Compiles the kernel for patterns of `ncols` columns, which may be done beside other work.
    ///
    /// # Errors
    /// [`GpuSolveError::Gpu`] when the compiler fails.
    pub fn prepare(executor: &E, ncols: usize) -> Result<(), GpuSolveError> {
        let index = if ncols <= 1 << 16 { "u16" } else { "u32" };
        Ok(executor.prepare(&[kernel_key::<T>("confirm", index)])?)
    }

    fn build(
        executor: &E,
        patterns: Patterns,
        nrows: u32,
        (sizes, steps): (ArraySizes, Strides),
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let criteria = options.criteria::<T>(sizes.nitems * sizes.nrhs)?;
        let Patterns { row_ptr, col_idx, items } = patterns;
        let narrow: Result<Vec<u16>, _> = col_idx.iter().map(|&column| column.try_into()).collect();
        let index = if narrow.is_ok() { "u16" } else { "u32" };
        let key = |name: &str| kernel_key::<T>(name, index);
        executor.prepare(std::slice::from_ref(&key("confirm")))?;
        Ok(Self {
            key: key("confirm"),
            settle_key: key("settle"),
            sizes,
            steps,
            nrows,
            row_ptr: executor.upload(&row_ptr)?,
            col_idx: match narrow {
                Ok(narrow) => ConfirmColumns::Narrow(executor.upload(&narrow)?),
                Err(_) => ConfirmColumns::Wide(executor.upload(&col_idx)?),
            },
            items: if items.is_empty() { None } else { Some(executor.upload(&items)?) },
            limits: Limits::new(executor, criteria)?,
            executor: executor.clone(),
            values: PhantomData,
        })
    }

    /// Replaces tolerances and limits. Each must be given per system if and only if it was before.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when there is not one per system, for negative ones.
    pub fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), GpuSolveError> {
        let criteria = options.criteria::<T>(self.sizes.nitems * self.sizes.nrhs)?;
        self.limits.replace(&self.executor, criteria)
    }

    /// Bytes that the confirmer holds on the device.
    pub fn bytes(&self) -> u64 {
        let columns = match &self.col_idx {
            ConfirmColumns::Narrow(columns) => 2 * columns.len(),
            ConfirmColumns::Wide(columns) => 4 * columns.len(),
        };
        let items = self.items.as_ref().map_or(0, |items| 8 * items.len());
        let limits = self.limits.bytes_a_system() * self.sizes.nitems * self.sizes.nrhs;
        (4 * self.row_ptr.len() + columns + items + limits) as u64
    }

    /// Confirms the first `systems` outcomes of a plan, whose `outcomes` must hold one per system
    /// of the confirmer, and packs all of them where the plan [keeps them](Outcomes::keep_packed).
    /// Allocates nothing, returns before it is done.
    #[expect(unsafe_code, reason = "a launch")]
    pub(crate) fn confirm(
        &self,
        (outcomes, systems): (&mut Outcomes<E>, usize),
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let shared = self.sizes.check(values, b, x)?;
        let of_all = self.sizes.nitems * self.sizes.nrhs;
        check_len("outcomes", of_all, outcomes.systems())?;
        let systems = systems.min(of_all);
        let packed = outcomes.packed().map_or(0, KernelBuffer::raw);
        let of_launch = if packed == 0 { systems } else { of_all };
        if of_launch == 0 {
            return Ok(());
        }
        let mut args = Args::new();
        args.scalar(systems as u32);
        self.pass(&mut args, values, shared);
        args.input(b).input(x);
        self.limits.pass(&mut args);
        outcomes.pass(&mut args);
        args.raw(packed).scalar(of_all as u32);
        let most = (BLOCKS * self.executor.info().multiprocessors.max(1)) as usize;
        let blocks = of_launch.div_ceil(SYSTEMS).min(most);
        let config = LaunchConfig::linear(blocks as u32, THREADS);
        // SAFETY: the arguments are those of `confirm`; the lengths of values, vectors and outcomes
        // were checked here, there are not more systems than the confirmer is for, however the plan
        // divides them among items, and items are where their patterns and layouts say; what is
        // written is outcomes alone; the packed ones have room for as many as there are outcomes.
        unsafe { self.executor.launch(&self.key, config, &mut args) }.map_err(GpuError::into)
    }

    /// Appends the arguments that all kernels have: patterns, values and strides.
    fn pass<'a>(&'a self, args: &mut Args<'a>, values: &'a E::Buffer<T>, shared: bool) {
        args.scalar(self.sizes.nrhs as u32).scalar(self.nrows).input(&self.row_ptr);
        match &self.col_idx {
            ConfirmColumns::Narrow(columns) => args.input(columns),
            ConfirmColumns::Wide(columns) => args.input(columns),
        };
        args.raw(self.items.as_ref().map_or(0, KernelBuffer::raw))
            .input(values)
            .scalar(if shared { 0 } else { self.steps.item })
            .scalar(if shared { 1 } else { self.steps.value })
            .scalar(self.steps.row);
    }

    /// Gives systems that did not converge the better of their guess and their x, as
    /// [`System::confirm`] does on the CPU, and evaluates their residuals, which become those of
    /// `outcomes`. `guesses` holds those of all systems; without it they started from 0. The first
    /// call compiles a kernel. Waits.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, for a system that there is not, and
    /// for one that does not follow the one before; [`GpuSolveError::Gpu`] when memory or compiler
    /// fail.
    ///
    /// [`System::confirm`]: sparsebatch_solve_core::verdict::System::confirm
    #[doc(hidden)]
    #[expect(unsafe_code, reason = "a launch")]
    pub fn settle(
        &self,
        outcomes: &mut Outcomes<E>,
        systems: &[FailedSystem],
        (values, b): (&E::Buffer<T>, &E::Buffer<T>),
        guesses: Option<&mut E::Buffer<T>>,
        x: &mut E::Buffer<T>,
    ) -> Result<Vec<Settled>, GpuSolveError> {
        let shared = self.sizes.check(values, b, x)?;
        let of_all = self.sizes.nitems * self.sizes.nrhs;
        check_len("outcomes", of_all, outcomes.systems())?;
        if let Some(guesses) = &guesses {
            check_len("guesses", x.len(), guesses.len())?;
        }
        check_ascending("systems", systems.iter().map(|failed| failed.system), of_all)?;
        if systems.is_empty() {
            return Ok(Vec::new());
        }
        let word =
            |failed: &FailedSystem| failed.system as u64 | u64::from(failed.drops_lost_guess) << 32;
        let numbers: Vec<u64> = systems.iter().map(word).collect();
        let numbers = self.executor.upload(&numbers)?;
        let mut norms: E::Buffer<f64> = self.executor.alloc(SETTLED * systems.len())?;
        let mut args = Args::new();
        args.scalar(systems.len() as u32).input(&numbers);
        self.pass(&mut args, values, shared);
        args.input(b).raw(guesses.map_or(0, |guesses| guesses.raw())).output(x);
        self.limits.pass(&mut args);
        outcomes.pass(&mut args);
        args.output(&mut norms);
        let most = (SETTLING_BLOCKS * self.executor.info().multiprocessors.max(1)) as usize;
        let config = LaunchConfig::linear(systems.len().min(most) as u32, THREADS);
        // SAFETY: the arguments are those of `settle`; the lengths of values, vectors and outcomes
        // were checked here, numbers are those of systems of the confirmer, each there once, and
        // items are where their patterns and layouts say; norms have room for as many.
        unsafe { self.executor.launch(&self.settle_key, config, &mut args) }?;
        let norms = self.executor.download(&norms)?;
        let of = |norms: &[f64]| Settled {
            residual_norm: norms[0],
            magnitude: norms[1],
            matrix_norm: norms[2],
            is_restored: norms[3] != 0.0,
        };
        Ok(norms.chunks_exact(SETTLED).map(of).collect())
    }
}

/// A system that did not converge.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedSystem {
    /// Its number: item by item, within an item by right-hand sides.
    pub system: usize,
    /// Whether elements of its guess that are not finite count as 0.
    pub drops_lost_guess: bool,
}

/// Norms of a system that the kernel writes.
const SETTLED: usize = 4;

/// How far a system is that did not converge.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    /// `||b - A x||_2`, NaN if it is not finite.
    pub residual_norm: f64,
    /// `|| |b| + |A||x| ||_2`.
    pub magnitude: f64,
    /// `||A||_F`.
    pub matrix_norm: f64,
    /// Whether x has become the guess.
    pub is_restored: bool,
}
