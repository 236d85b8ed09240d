//! Items of equal pattern, and what the GPU holds of them: [`Part`].

use rayon::prelude::*;
use sparsebatch_cpu_ref::Outcome;
use sparsebatch_formats::{Batch, BatchValues, CsrPattern, CsrPatternRef, Pattern};
use sparsebatch_spmv_gpu::{Executor, GpuError, KernelBuffer, Value};

use super::plan::{ClassPlan, has_own_limits, options_of, plan_for};
use super::staging::{Staging, Systems};
use crate::choose::Step;
use crate::gpu::Guess;
use crate::{SolveError, SolveOptions};

/// What the plans of one step share.
pub(super) struct Site<E> {
    pub(super) executor: E,
    pub(super) step: Step,
    pub(super) options: SolveOptions,
}

/// Items of equal pattern.
pub(super) struct Part<E: Executor, T: Value> {
    pub(super) items: Vec<u32>,
    pattern: CsrPattern,
    /// Items that the GPU holds at a time.
    chunk: usize,
    kernel: String,
    loaded: Option<Loaded<E, T>>,
}

/// What `expect` says: parts are loaded, or solved in chunks.
const LOADED: &str = "the part was loaded";

/// The plan of some of the items, and memory for what it reads and writes.
struct Loaded<E: Executor, T: Value> {
    nitems: usize,
    plan: Box<dyn ClassPlan<E, T>>,
    values: E::Buffer<T>,
    b: E::Buffer<T>,
    x: E::Buffer<T>,
    guess: Guess,
}

impl<E, T> Part<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    /// Ascending items of equal pattern, at least one.
    pub(super) fn new(batch: &Batch<T>, items: Vec<u32>) -> Self {
        let pattern = batch.pattern(items[0] as usize).to_pattern();
        let chunk = items.len();
        Self { items, pattern, chunk, kernel: String::new(), loaded: None }
    }

    /// Whether a batch has the pattern at all of the items.
    pub(super) fn matches(&self, batch: &Batch<T>) -> bool {
        let items = match batch {
            Batch::Uniform(_) => &self.items[..1],
            Batch::Ragged(_) => &self.items,
        };
        items.par_iter().all(|&item| batch.pattern(item as usize) == self.pattern.view())
    }

    /// The kernel, for reports; of parts that were loaded once.
    pub(super) fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Chunks that the items are solved in.
    pub(super) fn chunks(&self) -> usize {
        self.items.len().div_ceil(self.chunk)
    }

    /// About as many bytes as all items take on the GPU.
    pub(super) fn bytes(&self, batch: &Batch<T>, nrhs: usize) -> u64 {
        let size = Size::of(self.pattern.view(), batch, nrhs);
        size.fixed + size.each * self.items.len() as u64
    }

    /// Makes the plan of all items, and memory for them.
    ///
    /// # Errors
    /// Those of [`plan_for`].
    pub(super) fn load(&mut self, site: &Site<E>, batch: &Batch<T>) -> Result<(), SolveError> {
        self.hold(Loaded::new(site, batch, self.pattern.view(), &self.items)?);
        Ok(())
    }

    /// Divides the items into chunks that fit in so many bytes, and tries the first one.
    ///
    /// # Errors
    /// Those of [`plan_for`]; [`GpuError::OutOfMemory`] when one item does not fit.
    pub(super) fn divide(
        &mut self,
        site: &Site<E>,
        batch: &Batch<T>,
        budget: u64,
    ) -> Result<(), SolveError> {
        let size = Size::of(self.pattern.view(), batch, site.options.nrhs);
        let most = budget.saturating_sub(size.fixed) / size.each;
        if most == 0 {
            let needed = size.fixed + size.each;
            return Err(GpuError::OutOfMemory { needed, free: budget }.into());
        }
        let chunks = self.items.len().div_ceil(most.min(1 << 32) as usize);
        self.chunk = self.items.len().div_ceil(chunks);
        self.chunk = self.load_at_most(site, batch, 0, self.chunk)?;
        self.loaded = None;
        Ok(())
    }

    /// Loads so many items from number `first` on, or fewer where memory is short; says how many.
    fn load_at_most(
        &mut self,
        site: &Site<E>,
        batch: &Batch<T>,
        first: usize,
        most: usize,
    ) -> Result<usize, SolveError> {
        self.loaded = None;
        let mut nitems = most.min(self.items.len() - first);
        let loaded = loop {
            let items = &self.items[first..first + nitems];
            match Loaded::new(site, batch, self.pattern.view(), items) {
                Err(SolveError::Gpu(GpuError::OutOfMemory { .. })) if nitems > 1 => {
                    nitems = nitems.div_ceil(2);
                }
                loaded => break loaded?,
            }
        };
        self.hold(loaded);
        Ok(nitems)
    }

    fn hold(&mut self, loaded: Loaded<E, T>) {
        self.kernel = loaded.plan.kernel();
        self.loaded = Some(loaded);
    }

    /// Copies all items to the GPU, which has memory for them.
    pub(super) fn send(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        b: &[T],
        x: &[T],
        staging: &mut Staging<T>,
    ) -> Result<(), SolveError> {
        let loaded = self.loaded.as_mut().expect(LOADED);
        loaded.send(&site.executor, systems, &self.items, (b, x), staging)
    }

    /// Starts the solve of what was sent.
    pub(super) fn start(&mut self) -> Result<(), SolveError> {
        self.loaded.as_mut().expect(LOADED).start()
    }

    /// Waits for the solve, and takes over what came out of wanted systems.
    pub(super) fn receive(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        x: &mut [T],
        outcomes: &mut [Option<Outcome>],
        staging: &mut Staging<T>,
    ) -> Result<(), SolveError> {
        let loaded = self.loaded.as_ref().expect(LOADED);
        loaded.receive(&site.executor, systems, &self.items, (x, outcomes), staging)
    }

    /// Solves chunk by chunk, in memory that is given back.
    pub(super) fn solve_in_chunks(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        (b, x, outcomes): (&[T], &mut [T], &mut [Option<Outcome>]),
        staging: &mut Staging<T>,
    ) -> Result<(), SolveError> {
        let mut first = 0;
        while first < self.items.len() {
            let wanted = self.chunk.min(self.items.len() - first);
            let fits =
                |loaded: &Loaded<E, T>| loaded.nitems == wanted && !has_own_limits(&site.options);
            if !self.loaded.as_ref().is_some_and(fits) {
                let nitems = self.load_at_most(site, systems.batch, first, wanted)?;
                if nitems < wanted {
                    self.chunk = nitems;
                }
            }
            let loaded = self.loaded.as_mut().expect(LOADED);
            let items = &self.items[first..first + loaded.nitems];
            loaded.send(&site.executor, systems, items, (b, x), staging)?;
            loaded.start()?;
            loaded.receive(&site.executor, systems, items, (x, outcomes), staging)?;
            first += items.len();
        }
        self.loaded = None;
        Ok(())
    }
}

impl<E, T> Loaded<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    fn new(
        site: &Site<E>,
        batch: &Batch<T>,
        pattern: CsrPatternRef<'_>,
        items: &[u32],
    ) -> Result<Self, SolveError> {
        let Site { executor, step, options } = site;
        let nitems = items.len();
        let plan = plan_for(executor, *step, pattern, nitems, options_of(options, items))?;
        let sets = if shares_values(batch) { 1 } else { nitems };
        let rows = pattern.nrows() * nitems * options.nrhs;
        Ok(Self {
            nitems,
            plan,
            values: executor.alloc(pattern.nnz() * sets)?,
            b: executor.alloc(rows)?,
            x: executor.alloc_zeroed(rows)?,
            guess: Guess::Zero,
        })
    }

    fn send(
        &mut self,
        executor: &E,
        systems: Systems<'_, T>,
        items: &[u32],
        (b, x): (&[T], &[T]),
        staging: &mut Staging<T>,
    ) -> Result<(), SolveError> {
        let values = systems.values(items, staging);
        if values.len() != self.values.len() {
            // Shared values where there were own ones, or the reverse.
            self.values = executor.alloc(values.len())?;
        }
        executor.copy_from_host(values, &mut self.values)?;
        executor.copy_from_host(systems.gather(items, b, staging), &mut self.b)?;
        let x = systems.gather(items, x, staging);
        self.guess = if x.iter().all(|&x| x == T::ZERO) { Guess::Zero } else { Guess::InX };
        if self.guess == Guess::InX {
            executor.copy_from_host(x, &mut self.x)?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), SolveError> {
        self.plan.solve(&self.values, &self.b, self.guess, &mut self.x)
    }

    fn receive(
        &self,
        executor: &E,
        systems: Systems<'_, T>,
        items: &[u32],
        (x, outcomes): (&mut [T], &mut [Option<Outcome>]),
        staging: &mut Staging<T>,
    ) -> Result<(), SolveError> {
        systems.scatter(items, x, staging, |host| executor.copy_to_host(&self.x, host))?;
        let nrhs = systems.nrhs;
        for (place, outcome) in self.plan.outcomes()?.into_iter().enumerate() {
            let system = items[place / nrhs] as usize * nrhs + place % nrhs;
            if systems.wants(system) {
                outcomes[system] = Some(outcome);
            }
        }
        Ok(())
    }
}

/// Bytes on the GPU, about.
struct Size {
    /// Of the plan, whatever the number of items.
    fixed: u64,
    /// Of an item, above 0.
    each: u64,
}

/// What a plan holds of each system: outcome, limits, and what allocations are rounded up to.
const SYSTEM_BYTES: u64 = 64;

impl Size {
    fn of<T: Value>(pattern: CsrPatternRef<'_>, batch: &Batch<T>, nrhs: usize) -> Self {
        let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
        let value = size_of::<T>() as u64;
        let shared = shares_values(batch);
        let vectors = nrhs as u64 * (2 * nrows * value + SYSTEM_BYTES);
        // Columns of 16 bits, half of them padding, and what a row needs.
        let pattern = 4 * nnz + 16 * nrows;
        Self {
            fixed: pattern + if shared { nnz * value } else { 0 },
            each: vectors + if shared { 0 } else { nnz * value },
        }
    }
}

pub(super) fn shares_values<T: Value>(batch: &Batch<T>) -> bool {
    matches!(batch, Batch::Uniform(batch) if matches!(batch.values(), BatchValues::Shared(_)))
}
