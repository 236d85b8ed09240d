//! Systems of several patterns in one launch for each shape: [`RaggedFactored`].

use std::collections::BTreeMap;

use rayon::prelude::*;
use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::RaggedCsr;
use sparsebatch_solve_core::{
    ArgumentError, Outcome, Preconditioner, Scheme, SolveOptions, by_pattern, check_len,
};

use super::explain::FactoredShape;
use super::plan::{FROM_GUESS, KEEP, KEPT, ROOT};
use super::shape::{FactoredPlace, FactoredPlacement, FactoredTuning};
use super::streams::SliceLanes;
use super::tables::{KeptFactors, PatternTables};
use crate::GpuSolveError;
use crate::common::outcomes::{Limits, Outcomes};
use crate::common::task::{
    ArraySizes, Guess, ITEM_WORDS, check_apart, check_common, count_systems, item_words,
    ragged_sizes, ragged_start,
};
use crate::common::{Confirmer, GpuSolver, LaunchReport, LaunchShape, PlanReport};

/// Streams on which launches run side by side, beside that of the batch.
const STREAMS: usize = 7;

/// Upper bound of the memory of the largest system of a launch over that of the smallest.
const SPREAD: f64 = 1.4;

/// CG or BiCGStab with block-Jacobi, ILU(0) or IC(0) for every system of a ragged batch, whatever
/// their patterns. Systems for which [`FactoredSolver`](crate::FactoredSolver) would take the same
/// threads and the same place, and which need about the same memory, are those of one launch; the
/// launches run side by side.
///
/// Each system is solved as by a `FactoredSolver` for its pattern alone, bit for bit: see there for
/// methods, statuses and kept factors. Each pattern is analysed once, on all cores.
pub struct RaggedFactored<E: Executor, T: Value> {
    executor: E,
    /// Executors of the launches but those on the stream of the batch.
    branches: Vec<E>,
    scheme: Scheme,
    sizes: ArraySizes,
    is_mixed: bool,
    patterns: E::Buffer<u64>,
    words: E::Buffer<u32>,
    starts: E::Buffer<u32>,
    index: E::Buffer<u32>,
    /// Columns in 16 bits, and those in 32 bits of systems that are in device memory.
    columns: E::Buffer<u16>,
    wide_columns: E::Buffer<u32>,
    sources: E::Buffer<u32>,
    bins: Vec<Bin<E, T>>,
    /// Values of the kept factors of all items.
    kept_len: usize,
    kept: Option<Kept<E, T>>,
    limits: Limits<E>,
    outcomes: Outcomes<E>,
}

/// The systems of one launch.
struct Bin<E: Executor, T: Value> {
    key: KernelKey,
    /// [`ITEM_WORDS`] for each, the largest first.
    items: E::Buffer<u64>,
    shape: FactoredPlacement,
    workspace: E::Buffer<T>,
    queue: E::Buffer<u32>,
    report: LaunchReport,
}

/// Factors that are kept between solves.
struct Kept<E: Executor, T: Value> {
    factors: KeptFactors<E, T>,
    /// 1 for items that could not be factorised.
    refused: E::Buffer<u8>,
}

/// What a launch does with the values of the matrices.
enum Launch<'a, E: Executor, T: Value> {
    Factor,
    /// Solves from right-hand sides to solutions, by kept factors or not.
    Solve {
        b: &'a E::Buffer<T>,
        guess: Guess,
        x: &'a mut E::Buffer<T>,
        by_kept: bool,
    },
}

impl<E: Executor + Clone, T: Value> RaggedFactored<E, T> {
    /// Analyses the patterns of a batch, allocates all device memory and compiles the kernels.
    /// `options` as for [`FactoredSolver::new`](crate::FactoredSolver::new).
    ///
    /// # Errors
    /// Those of [`FactoredSolver::new`](crate::FactoredSolver::new), for the first item that has one;
    /// [`GpuSolveError::Unsupported`] for the sparse LU.
    pub fn new(
        executor: &E,
        batch: &RaggedCsr<T>,
        options: &SolveOptions,
        tuning: &FactoredTuning,
    ) -> Result<Self, GpuSolveError> {
        check_common(options)?;
        let scheme = options.scheme::<T>();
        if scheme.krylov().is_none() {
            return Err(GpuSolveError::Unsupported {
                what: "complete factors of systems with several patterns by this solver",
                instead: "take RaggedLu, or a solver for each pattern",
            });
        }
        let sizes = ragged_sizes(batch, options.nrhs)?;
        let systems = count_systems(sizes.nitems, sizes.nrhs)?;
        let limits = Limits::new(executor, options.criteria::<T>(systems)?)?;
        let classes = by_pattern(sizes.nitems, |item| batch.item(item).pattern());
        let info = executor.info();
        let tables = classes
            .par_iter()
            .map(|items| {
                let pattern = batch.item(items[0] as usize).pattern();
                let (of, systems) = ((scheme, SliceLanes::Used), items.len() * sizes.nrhs);
                PatternTables::new::<T>(pattern, of, systems, info, tuning)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let each = Outcomes::<E>::BYTES_A_SYSTEM + limits.bytes_a_system();
        let rest = tables.iter().map(PatternTables::bytes).sum::<usize>()
            + systems * each
            + sizes.nitems * ITEM_WORDS * 8;
        let free = executor.free_memory()?;
        let free = tuning.max_bytes.map_or(free, |most| most.min(free));
        let cut = Cut { batch, classes: &classes, tables: &tables, scheme, nrhs: sizes.nrhs };
        let (bins, kept_len) = cut.bins::<E>(executor, tuning, (rest as u64, free))?;
        let keys: Vec<KernelKey> = bins.iter().map(|bin| bin.key.clone()).collect();
        executor.prepare(&keys)?;
        let joined = Joined::new(&tables);
        Ok(Self {
            branches: executor.branches(bins.len().saturating_sub(1).min(STREAMS))?,
            scheme,
            is_mixed: scheme.preconditioner().precision().is_mixed::<T>(),
            sizes,
            patterns: executor.upload(&joined.patterns)?,
            words: executor.upload(&joined.words)?,
            starts: executor.upload(&joined.starts)?,
            index: executor.upload(&joined.index)?,
            columns: executor.upload(&joined.columns)?,
            wide_columns: executor.upload(&joined.wide_columns)?,
            sources: executor.upload(&joined.sources)?,
            bins,
            kept_len,
            kept: None,
            limits,
            outcomes: Outcomes::new(executor, systems)?,
            executor: executor.clone(),
        })
    }

    /// Starts the launches of all bins.
    fn launch_all(
        &mut self,
        values: &E::Buffer<T>,
        mut launch: Launch<'_, E, T>,
    ) -> Result<(), GpuSolveError> {
        check_len("values", self.sizes.values, values.len())?;
        if let Launch::Solve { b, x, .. } = &launch {
            self.sizes.check(values, *b, &**x)?;
            check_apart(values, &**x)?;
            check_apart(*b, &**x)?;
        }
        self.executor.fork(&self.branches)?;
        let launched =
            (0..self.bins.len()).try_for_each(|number| self.launch(number, values, &mut launch));
        let joined = self.executor.join(&self.branches);
        Ok(launched.and(joined)?)
    }

    #[expect(unsafe_code, reason = "the one launch")]
    fn launch(
        &mut self,
        number: usize,
        values: &E::Buffer<T>,
        launch: &mut Launch<'_, E, T>,
    ) -> Result<(), GpuError> {
        let stream = number % (self.branches.len() + 1);
        let executor = if stream == 0 { &self.executor } else { &self.branches[stream - 1] };
        let bin = &mut self.bins[number];
        let root = matches!(self.scheme.preconditioner(), Preconditioner::Ic0 { .. });
        let mut flags = if root { ROOT } else { 0 };
        let (nrhs, b, x) = match launch {
            Launch::Factor => {
                flags |= KEEP;
                (1, 0, 0)
            }
            Launch::Solve { b, guess, x, by_kept } => {
                flags |= if *guess == Guess::InX { FROM_GUESS } else { 0 };
                flags |= if *by_kept { KEPT } else { 0 };
                (self.sizes.nrhs, b.raw(), x.raw())
            }
        };
        let kept = self.kept.as_ref().filter(|_| flags & (KEEP | KEPT) != 0);
        let systems = bin.items.len() / ITEM_WORDS * nrhs;
        let mut args = Args::new();
        args.scalar(systems as u32)
            .scalar(nrhs as u32)
            .input(&bin.items)
            .input(&self.patterns)
            .input(&self.words)
            .input(&self.starts)
            .input(&self.index);
        match bin.shape.place.is_wide() {
            true => args.input(&self.wide_columns),
            false => args.input(&self.columns),
        };
        args.input(&self.sources)
            .output(&mut bin.workspace)
            .scalar(bin.shape.shared)
            .scalar(bin.shape.workspace)
            .raw(kept.map_or(0, |kept| kept.factors.raw()))
            .raw(kept.map_or(0, |kept| kept.refused.raw()))
            .input(values)
            .raw(b)
            .raw(x)
            .scalar(flags);
        self.limits.pass(&mut args);
        args.output(&mut bin.queue);
        self.outcomes.pass(&mut args);
        let shape = &bin.shape;
        let config = LaunchConfig {
            shared_bytes: shape.shared_bytes,
            ..LaunchConfig::linear(shape.blocks, shape.threads * shape.groups)
        };
        // SAFETY: the arguments are those of `factored_ragged`. `launch_all` checked the lengths of
        // values, b and x, and that x overlaps neither of the others; all three are borrowed as long
        // as `launch` is. `new` made the tables of the patterns of the items, each with positions
        // within its own arrays, and the items' offsets of the batch; each item is in one bin, whose
        // shared memory and workspace suffice for the largest of its systems. Kept factors have room
        // for all items; they are there where the flags ask for them, and read only after they were
        // written. The queue of a bin holds zeros before and after each launch.
        unsafe { executor.launch(&bin.key, config, &mut args) }
    }
}

/// A batch that is cut into bins.
struct Cut<'a, T: Value> {
    batch: &'a RaggedCsr<T>,
    classes: &'a [Vec<u32>],
    tables: &'a [PatternTables],
    scheme: Scheme,
    nrhs: usize,
}

/// What the systems of a bin have in common: place, threads, and a measure of their memory.
type BinKind = (FactoredPlace, u32, u32);

impl<T: Value> Cut<'_, T> {
    /// The bins, the one with the largest systems first, whose workspaces fit in the free memory
    /// beside `rest` bytes, and the number of values of all kept factors.
    fn bins<E: Executor>(
        &self,
        executor: &E,
        tuning: &FactoredTuning,
        (rest, free): (u64, u64),
    ) -> Result<(Vec<Bin<E, T>>, usize), GpuSolveError> {
        let mut by_kind: BTreeMap<BinKind, Vec<usize>> = BTreeMap::new();
        for (class, table) in self.tables.iter().enumerate() {
            let shape = &table.shape;
            let size = (shape.shared + shape.workspace).max(1) as f64;
            let kind = (shape.place, shape.threads, size.log(SPREAD) as u32);
            by_kind.entry(kind).or_default().push(class);
        }
        let mut own: Vec<(FactoredPlacement, Vec<usize>)> = Vec::new();
        for mut classes in by_kind.into_values().rev() {
            classes.sort_by_key(|&class| std::cmp::Reverse(self.tables[class].shape.system_bytes));
            let most = |of: fn(&FactoredPlacement) -> u64| {
                classes.iter().map(|&class| of(&self.tables[class].shape)).max().unwrap_or(0)
            };
            let memory = (most(|shape| shape.shared), most(|shape| shape.workspace));
            let items: usize = classes.iter().map(|&class| self.classes[class].len()).sum();
            let first = self.tables[classes[0]].shape;
            let (systems, info) = (items * self.nrhs, executor.info());
            // There is room, since there is for the class with the most memory.
            let shape = first.with_memory(memory, size_of::<T>(), systems, info, tuning);
            own.push((shape.unwrap_or(first), classes));
        }
        // Each bin gets one block, then as many as are left room for.
        let mut others: u64 = own.iter().map(|(shape, _)| shape.block_bytes(size_of::<T>())).sum();
        let mut kept_len = 0;
        let mut bins = Vec::new();
        for (mut shape, classes) in own {
            let each = shape.block_bytes(size_of::<T>());
            others -= each;
            shape.fit(rest + others, size_of::<T>(), free)?;
            others += u64::from(shape.blocks) * each;
            bins.push(self.bin(executor, shape, &classes, &mut kept_len)?);
        }
        Ok((bins, kept_len))
    }

    /// A bin of the items of some classes.
    fn bin<E: Executor>(
        &self,
        executor: &E,
        shape: FactoredPlacement,
        classes: &[usize],
        kept_len: &mut usize,
    ) -> Result<Bin<E, T>, GpuError> {
        let mut items = Vec::new();
        for &class in classes {
            for &item in &self.classes[class] {
                let start = ragged_start(self.batch, self.nrhs, item);
                items.extend(item_words(class, start, item, *kept_len));
                *kept_len += self.tables[class].kept_len();
            }
        }
        let most = |of: fn(&PatternTables) -> usize| {
            classes.iter().map(|&class| of(&self.tables[class])).max().unwrap_or(0)
        };
        let key = shape.key::<T>("factored_ragged", self.scheme);
        let groups = u64::from(shape.blocks * shape.groups);
        let report = LaunchReport {
            scheme: self.scheme,
            kernel: key.expression.clone(),
            systems: items.len() / ITEM_WORDS * self.nrhs,
            patterns: classes.len(),
            nrows: most(|table| table.nrows),
            nnz: most(|table| table.nnz),
            threads_per_system: shape.threads,
            systems_per_block: shape.groups,
            threads_per_block: shape.threads * shape.groups,
            blocks: shape.blocks,
            shared_bytes: shape.shared_bytes,
            shape: LaunchShape::Factored(FactoredShape::new::<T>(
                self.scheme,
                most(|table| table.nfactors),
                &shape,
            )),
        };
        Ok(Bin {
            key,
            items: executor.upload(&items)?,
            workspace: executor.alloc((groups * shape.workspace) as usize)?,
            queue: executor.alloc_zeroed(2)?,
            shape,
            report,
        })
    }
}

/// The tables of all patterns, one after the other.
#[derive(Default)]
struct Joined {
    patterns: Vec<u64>,
    words: Vec<u32>,
    starts: Vec<u32>,
    index: Vec<u32>,
    columns: Vec<u16>,
    wide_columns: Vec<u32>,
    sources: Vec<u32>,
}

impl Joined {
    fn new(tables: &[PatternTables]) -> Self {
        let mut all = Self::default();
        for table in tables {
            // Kernels read words in pairs.
            all.words.resize(all.words.len().next_multiple_of(2), 0);
            let is_wide = table.shape.place.is_wide();
            let columns = if is_wide { all.wide_columns.len() } else { all.columns.len() };
            all.patterns.extend([
                table.nrows as u64 | (table.nnz as u64) << 32,
                table.nfactors as u64 | (table.words.words.len() as u64) << 32,
                all.words.len() as u64,
                all.starts.len() as u64,
                all.index.len() as u64,
                columns as u64,
                all.sources.len() as u64,
            ]);
            all.words.extend(&table.words.words);
            all.starts.extend(&table.words.starts);
            all.index.extend(&table.rows.index);
            match is_wide {
                true => all.wide_columns.extend(&table.rows.columns),
                false => all.columns.extend(table.rows.narrow_columns()),
            }
            all.sources.extend(&table.sources);
        }
        all
    }
}

impl<E, T> GpuSolver<E, T> for RaggedFactored<E, T>
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
        self.launch_all(values, Launch::Solve { b, guess, x, by_kept: false })
    }

    fn keeps_factors(&self) -> bool {
        true
    }

    fn factor(&mut self, values: &E::Buffer<T>) -> Result<(), GpuSolveError> {
        check_len("values", self.sizes.values, values.len())?;
        let before = self.kept.take();
        self.kept = Some(match before {
            Some(kept) => kept,
            None => Kept {
                factors: KeptFactors::alloc(&self.executor, self.kept_len, self.is_mixed)?,
                refused: self.executor.alloc(self.sizes.nitems)?,
            },
        });
        let made = self.launch_all(values, Launch::Factor);
        if made.is_err() {
            self.kept = None;
        }
        made
    }

    fn forget_factors(&mut self) {
        self.kept = None;
    }

    fn solves_near(&self) -> bool {
        true
    }

    fn solve_again(
        &mut self,
        values: &E::Buffer<T>,
        b: &E::Buffer<T>,
        guess: Guess,
        x: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        if self.kept.is_none() {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "factors",
                expected: "a call of factor before",
                found: "none".to_owned(),
            }));
        }
        self.launch_all(values, Launch::Solve { b, guess, x, by_kept: true })
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
        let bytes = |len: usize, each: usize| (len * each) as u64;
        let numbers = self.words.len()
            + self.starts.len()
            + self.index.len()
            + self.wide_columns.len()
            + self.sources.len();
        let items: usize = self.bins.iter().map(|bin| bin.items.len()).sum();
        let workspace: usize = self.bins.iter().map(|bin| bin.workspace.len()).sum();
        let each = Outcomes::<E>::BYTES_A_SYSTEM + self.limits.bytes_a_system();
        PlanReport {
            scheme: self.scheme,
            launches: self.bins.iter().map(|bin| bin.report.clone()).collect(),
            pattern_bytes: bytes(numbers, 4)
                + bytes(self.columns.len(), 2)
                + bytes(self.patterns.len() + items, 8),
            workspace_bytes: bytes(workspace, size_of::<T>())
                + bytes(self.outcomes.systems(), each)
                + bytes(self.bins.len(), 8),
            kept_bytes: self
                .kept
                .as_ref()
                .map_or(0, |kept| kept.factors.bytes() + bytes(kept.refused.len(), 1)),
        }
    }
}
