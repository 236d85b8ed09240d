//! The plan: tables of patterns, bins of systems of about one size, launches.

use std::collections::BTreeMap;
use std::fmt;

use rayon::prelude::*;
use sparsebatch_cuda::{
    Args, DeviceInfo, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value,
};
use sparsebatch_formats::{CsrPatternRef, RaggedCsr};
use sparsebatch_solve_core::{
    ArgumentError, Method, Outcome, Scheme, SolveOptions, by_pattern, check_len,
};

use super::kernels;
use super::table::ColumnTable;
use crate::GpuSolveError;
use crate::common::outcomes::{DeviceOutcomes, Limits, Outcomes};
use crate::common::task::{
    ArraySizes, Guess, ITEM_WORDS, Layouts, UniformPlaces, check_apart, check_common,
    count_systems, item_words, ragged_sizes, ragged_start,
};
use crate::common::{Confirmer, GpuSolver, LaunchReport, LaunchShape, PlanReport};

/// Bits of the kernel's `flags`.
const FROM_GUESS: u32 = 1;
const FACTOR: u32 = 2;
const FROM_KEPT: u32 = 4;
const SHARED_VALUES: u32 = 8;

const LANES: u32 = 32;

/// Shared memory that the device reserves per block.
const RESERVED_BYTES: u32 = 1024;

/// Most teams of a block, if each is a warp.
const MOST_TEAMS: u32 = 4;

/// Most warps of a multiprocessor, those that registers suffice for: of teams of one warp, and of
/// larger ones.
const MOST_ALONE: u32 = 20;
const MOST_IN_TEAMS: u32 = 16;

/// Warps of a team that there are kernels for.
const TEAMS: [u32; 4] = [8, 4, 2, 1];

/// Systems of a launch need at most so many times the shared memory of its smallest.
const SPREAD: f64 = 1.4;

/// Sparse LU for every system of a batch, whatever their patterns: a team of one to eight warps
/// factorises, solves and refines each system. Systems of about one size are those of one launch;
/// the launches run side by side. It is the solver of
/// [`LuForm::BySystem`](sparsebatch_solve_core::LuForm::BySystem).
///
/// Each pattern is ordered and its fill found once, on the CPU, in minimum-degree order. There is
/// no pivoting. While the true residual does not pass, the solution is refined, up to
/// [`SolveOptions::max_restarts`] times, by the same factors, which serve all right-hand sides of
/// an item. An iteration is one solve with the factors. Statuses are those of the CPU's LU:
/// `ZeroPivot` where a pivot is zero and `NonFinite` where values became NaN or infinite;
/// `Converged` only after `b - A x` was recomputed in the same launch. A system's result is a
/// function of that system and the model of the device alone, bit for bit.
///
/// L + U, vectors (three and one for each warp) and the rows of the entries are in shared memory,
/// which limits the size: about 23,000 entries in f64 on the H200, for a team of one warp.
///
/// This solver is for batches in which few systems share their pattern: the analysis of a pattern is
/// short and no launch is for it alone. Where many systems share one, [`GpuLu`](crate::GpuLu) takes less
/// time.
///
/// `Converged` rests on the residual as the kernel computes it, without a bound of its rounding
/// errors; [`GpuSolver::confirm`] includes that bound.
///
/// # Source
/// Left-looking factorisation: J. R. Gilbert and T. Peierls, Sparse partial pivoting in time
/// proportional to arithmetic operations, 1988, doi 10.1137/0909058. Refinement: Higham, Accuracy and
/// Stability of Numerical Algorithms, 2nd ed. 2002, chapter 12.
pub struct RaggedLu<E: Executor, T: Value> {
    executor: E,
    /// Executors of all launches but the first.
    branches: Vec<E>,
    sizes: ArraySizes,
    classes: E::Buffer<u64>,
    tables: E::Buffer<u16>,
    bins: Vec<Bin<E>>,
    /// The factors of all items, and whether they are those of a call of `factor`.
    kept: Option<E::Buffer<T>>,
    is_factored: bool,
    kept_len: usize,
    limits: Limits<E>,
    outcomes: Outcomes<E>,
    value: std::marker::PhantomData<T>,
}

/// The systems of one launch.
struct Bin<E: Executor> {
    /// [`ITEM_WORDS`] for each, the one with the most work first.
    items: E::Buffer<u64>,
    key: KernelKey,
    team_bytes: u32,
    config: LaunchConfig,
    report: LaunchReport,
}

/// The items of a batch: those of each pattern, the patterns, and where the values and the rows of
/// an item begin.
struct Items<'a> {
    classes: Vec<Vec<u32>>,
    patterns: Vec<CsrPatternRef<'a>>,
    start: &'a dyn Fn(u32) -> [usize; 2],
}

/// The shape of a launch of [`RaggedLu`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ColumnsShape {
    /// Entries of L + U of the largest system.
    pub factor_entries: usize,
}

impl fmt::Display for ColumnsShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by columns, up to {} entries of L + U", self.factor_entries)
    }
}

impl<E: Executor + Clone, T: Value> RaggedLu<E, T> {
    /// Analyses the patterns of a batch, on all cores, allocates all device memory and compiles the
    /// kernel. Preconditioner and order of the options are ignored.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a matrix that is not square and for options out of range;
    /// [`GpuSolveError::Unsupported`] for options that the GPU does not support and for systems beyond
    /// the shared memory of a block; [`GpuSolveError::Gpu`] when an allocation or the compiler fails.
    pub fn new(
        executor: &E,
        batch: &RaggedCsr<T>,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        check_supported(options)?;
        let sizes = ragged_sizes(batch, options.nrhs)?;
        let classes = by_pattern(sizes.nitems, |item| batch.item(item).pattern());
        let patterns: Vec<_> =
            classes.iter().map(|items| batch.item(items[0] as usize).pattern()).collect();
        let start = |item| ragged_start(batch, sizes.nrhs, item);
        Self::of_patterns(executor, sizes, &Items { classes, patterns, start: &start }, options)
    }

    /// As [`RaggedLu::new`], for `nitems` items of one pattern. The values of a solve may be those
    /// of one item, for all; each item has factors of its own all the same.
    ///
    /// # Errors
    /// Those of [`RaggedLu::new`].
    pub fn uniform(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        check_supported(options)?;
        let places = UniformPlaces::new(pattern, nitems, options.nrhs, Layouts::default())?;
        let classes = if nitems == 0 { Vec::new() } else { vec![(0..nitems as u32).collect()] };
        let patterns = classes.iter().map(|_| pattern).collect();
        let start = |item| [places.value(item) as usize, places.row(item) as usize];
        let items = Items { classes, patterns, start: &start };
        Self::of_patterns(executor, places.sizes, &items, options)
    }

    /// Whether the shared memory of a block of a device has room for systems of a pattern, which is
    /// analysed.
    pub fn takes(info: &DeviceInfo, pattern: CsrPatternRef<'_>) -> bool {
        let table = ColumnTable::new(pattern, size_of::<T>(), most_bytes(info));
        !matches!(table, Err(GpuSolveError::Unsupported { .. }))
    }

    fn of_patterns(
        executor: &E,
        sizes: ArraySizes,
        items: &Items<'_>,
        options: &SolveOptions,
    ) -> Result<Self, GpuSolveError> {
        let systems = count_systems(sizes.nitems, sizes.nrhs)?;
        let criteria = options.criteria::<T>(systems)?;
        let most = most_bytes(executor.info());
        let tables = items
            .patterns
            .par_iter()
            .map(|&pattern| ColumnTable::new(pattern, size_of::<T>(), most))
            .collect::<Result<Vec<_>, _>>()?;
        let (bins, kept_len) = bins::<E, T>(executor, items, &tables, sizes.nrhs)?;
        let mut offset = 0u64;
        let of_class = |table: &ColumnTable| {
            let words = [
                table.nrows as u64 | (table.nnz as u64) << 32,
                table.nfactors as u64 | offset << 24,
            ];
            offset += table.words.len() as u64;
            words
        };
        let words: Vec<u64> = tables.iter().flat_map(of_class).collect();
        let all: Vec<u16> = tables.iter().flat_map(|table| &table.words).copied().collect();
        Ok(Self {
            branches: executor.branches(bins.len().saturating_sub(1))?,
            classes: executor.upload(&words)?,
            tables: executor.upload(&all)?,
            limits: Limits::new(executor, criteria)?,
            outcomes: Outcomes::new(executor, systems)?,
            executor: executor.clone(),
            sizes,
            bins,
            kept: None,
            is_factored: false,
            kept_len,
            value: std::marker::PhantomData,
        })
    }

    /// Solves every system. Allocates nothing, launches one kernel for each bin and returns before
    /// the solves are done. `values` holds the entries of item 0 in CSR order, of item 1, ..., or
    /// those of one item of a [`RaggedLu::uniform`] batch for all; `b` and `x` the rows of the
    /// items, one right-hand side after the other within an item.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, when `x` overlaps another array; `x` is
    /// untouched then. [`GpuSolveError::Gpu`] when a launch is refused.
    pub fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.start(values, b, if guess == Guess::InX { FROM_GUESS } else { 0 }, x)
    }

    /// Factorises the matrices and keeps the factors on the device, for any number of solves by
    /// [`RaggedLu::solve_again`]. The first call allocates memory for L + U of each item. Launches one
    /// kernel for each bin and returns before they are done.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when `values` does not fit, [`GpuSolveError::Gpu`] when the
    /// allocation fails or a launch is refused. Nothing is kept then.
    pub fn factor(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        let shared = self.shares(values)?;
        self.is_factored = false;
        if self.kept.is_none() {
            self.kept = Some(self.executor.alloc(self.kept_len)?);
        }
        let (b, mut x) = (self.executor.alloc(0)?, self.executor.alloc(0)?);
        self.launch_all(values, &b, FACTOR | shared, &mut x)?;
        self.is_factored = true;
        Ok(())
    }

    /// Solves every system with the factors of the last [`RaggedLu::factor`], bit for bit as
    /// [`RaggedLu::solve`]. Arguments as there; `values` are those that were factorised, for the
    /// residuals.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when there are no factors; else those of [`RaggedLu::solve`].
    pub fn solve_again(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        if !self.is_factored {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "factors",
                expected: "a call of factor before",
                found: "none".to_owned(),
            }));
        }
        let from = if guess == Guess::InX { FROM_GUESS } else { 0 };
        self.start(values, b, FROM_KEPT | from, x)
    }

    fn start(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        flags: u32,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let shared = self.shares(values)?;
        self.sizes.check(values, b, x)?;
        check_apart(values, x)?;
        check_apart(b, x)?;
        self.launch_all(values, b, flags | shared, x)
    }

    /// The flag of values that are those of one item, for all. Refuses another number of values.
    fn shares(&self, values: &E::Buffer<T>) -> Result<u32, GpuSolveError> {
        if self.sizes.shared == Some(values.len()) {
            return Ok(SHARED_VALUES);
        }
        check_len("values", self.sizes.values, values.len())?;
        Ok(0)
    }

    fn launch_all(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        flags: u32,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        self.executor.fork(&self.branches)?;
        let launched =
            (0..self.bins.len()).try_for_each(|bin| self.launch(bin, values, b, flags, x));
        let joined = self.executor.join(&self.branches);
        Ok(launched.and(joined)?)
    }

    #[expect(unsafe_code, reason = "the one launch")]
    fn launch(
        &mut self,
        number: usize,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        flags: u32,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        let executor = if number == 0 { &self.executor } else { &self.branches[number - 1] };
        let bin = &self.bins[number];
        let mut args = Args::new();
        args.scalar((bin.items.len() / ITEM_WORDS) as u32)
            .scalar(self.sizes.nrhs as u32)
            .scalar(bin.team_bytes)
            .input(&bin.items)
            .input(&self.classes)
            .input(&self.tables)
            .input(values)
            .input(b)
            .output(x);
        match &mut self.kept {
            Some(kept) if flags & (FACTOR | FROM_KEPT) != 0 => args.output(kept),
            _ => args.raw(0),
        };
        args.scalar(flags);
        self.limits.pass(&mut args);
        self.outcomes.pass(&mut args);
        // SAFETY: the arguments are those of `lu_columns`; `solve` checked the lengths of arrays;
        // `new` made the tables of the patterns of the items, whose offsets are those of the batch
        // or, of values, 0, each item in one bin, and each team's shared memory for the largest of
        // them; `kept` has room for the factors of all items, is there where the flags ask for it,
        // and is read only after it was written; a factorisation touches neither b nor x; x
        // overlaps neither values nor b, and everything else belongs to the plan.
        unsafe { executor.launch(&bin.key, bin.config, &mut args) }
    }

    /// The outcomes of the last solve in device memory, for kernels of the caller.
    pub fn device_outcomes(&self) -> DeviceOutcomes<'_, E> {
        self.outcomes.on_device()
    }
}

/// Bytes that the largest system may have.
fn most_bytes(info: &DeviceInfo) -> usize {
    info.shared_bytes_per_block as usize
}

/// Puts the items of a batch into bins of about equal size. Returns them, and the number of values that
/// the factors of all items are. Compiles their kernels.
fn bins<E: Executor, T: Value>(
    executor: &E,
    all: &Items<'_>,
    tables: &[ColumnTable],
    nrhs: usize,
) -> Result<(Vec<Bin<E>>, usize), GpuError> {
    let (info, value_bytes) = (executor.info(), size_of::<T>());
    // The bin of a pattern depends on that pattern alone.
    let mut by_size: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
    for (class, table) in tables.iter().enumerate() {
        let size = (table.bytes(value_bytes, 1).max(1) as f64).log(SPREAD) as u32;
        let most = SPREAD.powi(size as i32 + 1) as u32;
        let fits = |&&warps: &&u32| {
            table.bytes(value_bytes, warps) <= info.shared_bytes_per_block as usize
        };
        let warps = TEAMS.iter().filter(fits).find(|&&warps| warps <= warps_of(info, most));
        by_size.entry((size, warps.copied().unwrap_or(1))).or_default().push(class);
    }
    let mut kept_len = 0;
    // The bin with the largest systems begins first.
    let made = by_size.into_iter().rev().map(|((_, warps), mut own)| {
        own.sort_by_key(|&class| std::cmp::Reverse(tables[class].products));
        let mut items = Vec::new();
        for &class in &own {
            for &item in &all.classes[class] {
                items.extend(item_words(class, (all.start)(item), item, kept_len));
                kept_len += tables[class].nfactors + tables[class].nrows + 1;
            }
        }
        let most = |of: fn(&ColumnTable) -> usize| {
            own.iter().map(|&class| of(&tables[class])).max().unwrap_or(0)
        };
        let team_bytes =
            own.iter().map(|&class| tables[class].bytes(value_bytes, warps)).max().unwrap_or(0);
        let nitems = items.len() / ITEM_WORDS;
        let config = launch_config(info, nitems, team_bytes as u32, warps);
        let expression = format!("lu_columns<{}, {warps}>", T::CPP);
        let report = LaunchReport {
            scheme: Scheme::Lu,
            kernel: expression.clone(),
            systems: nitems * nrhs,
            patterns: own.len(),
            nrows: most(|table| table.nrows),
            nnz: most(|table| table.nnz),
            threads_per_system: warps * LANES,
            systems_per_block: config.block[0] / (warps * LANES),
            threads_per_block: config.block[0],
            blocks: config.grid[0],
            shared_bytes: config.shared_bytes,
            shape: LaunchShape::Columns(ColumnsShape {
                factor_entries: most(|table| table.nfactors),
            }),
        };
        let key = KernelKey::new(&kernels::LU_COLUMNS, expression);
        let items = executor.upload(&items)?;
        Ok(Bin { items, key, team_bytes: team_bytes as u32, config, report })
    });
    let made = made.collect::<Result<Vec<_>, GpuError>>()?;
    let keys: Vec<KernelKey> = made.iter().map(|bin| bin.key.clone()).collect();
    executor.prepare(&keys)?;
    Ok((made, kept_len))
}

/// Warps of a team for systems of `bytes` bytes of shared memory: where a multiprocessor has room
/// for few systems, as many warps as its registers suffice for.
fn warps_of(info: &DeviceInfo, bytes: u32) -> u32 {
    let systems = info.shared_bytes_per_multiprocessor / (bytes + RESERVED_BYTES);
    MOST_IN_TEAMS / systems.max(1)
}

/// As many teams at once as the device has room for, or as there are items.
fn launch_config(info: &DeviceInfo, nitems: usize, team_bytes: u32, warps: u32) -> LaunchConfig {
    let (most, most_warps) = if warps > 1 { (1, MOST_IN_TEAMS) } else { (MOST_TEAMS, MOST_ALONE) };
    let resident = |teams: u32| {
        let bytes = (teams * team_bytes + RESERVED_BYTES).max(1);
        let threads = info.max_threads_per_multiprocessor / LANES;
        let most = most_warps.min(threads) / (teams * warps);
        (info.shared_bytes_per_multiprocessor / bytes).min(most) * teams
    };
    let fits = |&teams: &u32| teams * team_bytes <= info.shared_bytes_per_block;
    let teams = (1..=most).rev().filter(fits).max_by_key(|&teams| resident(teams)).unwrap_or(1);
    let blocks = u64::from(resident(teams).max(teams) / teams * info.multiprocessors.max(1));
    let blocks = blocks.min((nitems as u64).div_ceil(teams.into())).max(1);
    LaunchConfig {
        shared_bytes: teams * team_bytes,
        ..LaunchConfig::linear(blocks as u32, teams * warps * LANES)
    }
}

fn check_supported(options: &SolveOptions) -> Result<(), GpuSolveError> {
    match options.method {
        Method::Auto | Method::Lu => check_common(options),
        Method::Cg | Method::BiCgStab | Method::PivotingLu | Method::Banded => {
            Err(GpuSolveError::Unsupported { what: "a solver other than lu", instead: "take lu" })
        }
    }
}

impl<E, T> GpuSolver<E, T> for RaggedLu<E, T>
where
    E: Executor + Clone + Send + Sync,
    T: Value,
{
    fn solve(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        Self::solve(self, values, b, guess, x)
    }

    fn keeps_factors(&self) -> bool {
        true
    }

    fn factor(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        Self::factor(self, values)
    }

    fn forget_factors(&mut self) {
        (self.kept, self.is_factored) = (None, false);
    }

    fn solve_again(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        Self::solve_again(self, values, b, guess, x)
    }

    fn confirm(
        &mut self,
        confirmer: &Confirmer<E, T>,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        x: &E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let systems = self.outcomes.systems();
        confirmer.confirm((&mut self.outcomes, systems), values, b, x)
    }

    fn outcomes(&self) -> Result<Vec<Outcome>, GpuSolveError> {
        Ok(self.outcomes.download(&self.executor)?)
    }

    fn outcome_arrays(&self) -> &Outcomes<E> {
        &self.outcomes
    }

    fn outcome_arrays_mut(&mut self) -> &mut Outcomes<E> {
        &mut self.outcomes
    }

    fn limits_mut(&mut self) -> &mut Limits<E> {
        &mut self.limits
    }

    fn explain(&self) -> PlanReport {
        let items: usize = self.bins.iter().map(|bin| bin.items.len()).sum();
        let each = Outcomes::<E>::BYTES_A_SYSTEM + self.limits.bytes_a_system();
        PlanReport {
            scheme: Scheme::Lu,
            launches: self.bins.iter().map(|bin| bin.report.clone()).collect(),
            pattern_bytes: (2 * self.tables.len() + 8 * (self.classes.len() + items)) as u64,
            workspace_bytes: (self.outcomes.systems() * each) as u64,
            kept_bytes: self.kept.as_ref().map_or(0, |kept| (kept.len() * size_of::<T>()) as u64),
        }
    }
}
