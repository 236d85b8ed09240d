//! Items of one pattern, or all items of a ragged batch, on the GPU: [`Part`].

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use sparsebatch_cuda::{Executor, GpuError, KernelBuffer, Value};
use sparsebatch_formats::{Batch, CsrPattern, CsrPatternRef, Pattern, RaggedCsr};
use sparsebatch_solve_core::{Engine, Outcome, ProductCost, Scheme};

use super::pipe::{Lens, Pipe};
use super::plan::{ConfirmedPlan, options_of, tuning};
use super::several::Queue;
use super::size::{
    LIMIT_BYTES, SYSTEM_BYTES, Size, Split, confirming_bytes, pattern_bytes, product_bytes,
};
use super::staging::{Staging, Systems};
use crate::backend::Chunks;
use crate::gpu::{Guess, LaunchReport, iterates_over_products};
use crate::share::shares_values;
use crate::{SolveError, SolveOptions};

/// What the plans of one scheme share.
pub(super) struct Site<E> {
    pub(super) executor: E,
    pub(super) scheme: Scheme,
    pub(super) options: SolveOptions,
    pub(super) chunks: Chunks,
}

/// Solutions and outcomes of a batch, to be written.
pub(super) struct PartResults<'a, T> {
    /// Initial guesses on entry.
    pub(super) x: &'a mut [T],
    pub(super) outcomes: &'a mut [Option<Outcome>],
}

impl<T> PartResults<'_, T> {
    pub(super) fn reborrow(&mut self) -> PartResults<'_, T> {
        PartResults { x: self.x, outcomes: self.outcomes }
    }
}

/// Items of equal pattern, or all of a ragged batch.
pub(super) struct Part<E: Executor, T: Value> {
    pub(super) items: Vec<u32>,
    patterns: Vec<(CsrPattern, Vec<u32>)>,
    chunks: usize,
    kernel: String,
    /// Whether the systems iterate together over products, and why where nobody asked for that.
    pub(super) over_products: bool,
    pub(super) reason: Option<String>,
    /// The matrix format of the products.
    format: &'static str,
    /// Whether its memory is released between solves.
    pub(super) in_turn: bool,
    /// Bytes on the device when the part was last loaded.
    bytes: u64,
    held: Option<PartMemory<E, T>>,
}

/// The device memory of a part.
enum PartMemory<E: Executor, T: Value> {
    Whole(Whole<E, T>),
    /// The mutex is never contended: it only makes pinned memory shareable between threads.
    Chunks(Mutex<Pipe<E, T>>),
}

impl<E: Executor + Clone + Send + Sync + 'static> Site<E> {
    /// Whether products were asked for.
    pub(super) fn asks_for_products(&self) -> bool {
        matches!(self.options.engine, Engine::Composed(_))
    }

    /// Whether plans of these systems are those that iterate over products, all systems together.
    pub(super) fn iterates_over_products<T: Value>(&self, pattern: CsrPatternRef<'_>) -> bool {
        let Self { executor, scheme, options, .. } = self;
        let tuning = tuning(None);
        iterates_over_products::<E, T>(executor.info(), *scheme, pattern, options, &tuning)
    }
}

/// One chunk at a time, as large as the memory allows: for systems that iterate together.
const TOGETHER: Chunks = Chunks { bytes: Some(u64::MAX), at_once: 1 };

/// Cuts items into runs of at most `most` bytes, or of one item. `before` has the bytes ahead of
/// each item, then those of all.
fn cut(before: &[u64], most: u64) -> Vec<Range<usize>> {
    let mut cuts: Vec<Range<usize>> = Vec::new();
    for item in 0..before.len() - 1 {
        match cuts.last_mut() {
            Some(cut) if before[item + 1] - before[cut.start] <= most => cut.end = item + 1,
            _ => cuts.push(item..item + 1),
        }
    }
    cuts
}

/// Bytes per item of a plan of several patterns, and of its confirmer, for the addresses of the
/// item.
const RAGGED_BYTES: usize = 24 + 32;

/// The invariant that `expect` names: parts are loaded before they are solved.
const LOADED: &str = "the part was loaded";

impl<E, T> Part<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    /// A part of items with equal patterns (ascending, at least one).
    pub(super) fn new(site: &Site<E>, batch: &Batch<T>, items: Vec<u32>) -> Self {
        let pattern = batch.pattern(items[0] as usize);
        let over_products = site.iterates_over_products::<T>(pattern);
        let patterns = vec![(pattern.to_pattern(), items.clone())];
        Self::unloaded(items, patterns, over_products)
    }

    fn unloaded(
        items: Vec<u32>,
        patterns: Vec<(CsrPattern, Vec<u32>)>,
        over_products: bool,
    ) -> Self {
        Self {
            items,
            patterns,
            chunks: 1,
            kernel: String::new(),
            over_products,
            reason: None,
            format: "csr",
            in_turn: false,
            bytes: 0,
            held: None,
        }
    }

    /// Loads items of a ragged batch (ascending); each chunk has one plan for all of its patterns.
    /// Systems that iterate together do so in one chunk.
    ///
    /// # Errors
    /// Those of [`solver_for_ragged`](crate::gpu::solver_for_ragged); [`GpuError::OutOfMemory`]
    /// when the batch does not fit.
    pub(super) fn ragged(
        site: &Site<E>,
        batch: &RaggedCsr<T>,
        classes: &[Vec<u32>],
        budget: u64,
    ) -> Result<Self, SolveError> {
        let mut items = classes.concat();
        items.sort_unstable();
        let pattern = |items: &[u32]| batch.item(items[0] as usize).pattern();
        let over_products =
            classes.iter().any(|items| site.iterates_over_products::<T>(pattern(items)));
        let patterns: Vec<_> =
            classes.iter().map(|items| (pattern(items).to_pattern(), items.clone())).collect();
        let mut part = Self::unloaded(items, patterns, over_products);
        part.load_ragged(site, batch, budget)?;
        Ok(part)
    }

    /// Makes the plans of the chunks of a ragged batch, and allocates their memory.
    fn load_ragged(
        &mut self,
        site: &Site<E>,
        batch: &RaggedCsr<T>,
        budget: u64,
    ) -> Result<(), SolveError> {
        let Site { executor, scheme, options, chunks } = site;
        let (items, nrhs) = (&self.items, options.nrhs);
        // The bytes of values and vectors ahead of each item.
        let mut before = vec![0];
        for &item in items {
            let pattern = batch.item(item as usize).pattern();
            let values = pattern.nnz() + 2 * nrhs * pattern.nrows();
            before.push(before[before.len() - 1] + (values * size_of::<T>()) as u64);
        }
        let data = before[items.len()];
        let fixed = |(pattern, _): &(CsrPattern, _)| pattern_bytes(Pattern::view(pattern));
        let of_products = |&item: &u32| match self.over_products {
            true => product_bytes::<T>(batch.item(item as usize).pattern(), nrhs),
            false => 0,
        };
        let needed = data
            + self.patterns.iter().map(fixed).sum::<u64>()
            + items.iter().map(of_products).sum::<u64>()
            + (items.len() * (RAGGED_BYTES + nrhs * SYSTEM_BYTES as usize)) as u64;
        if needed > budget {
            return Err(GpuError::OutOfMemory { needed, free: budget }.into());
        }
        let most = if self.over_products { data } else { chunks.usual_bytes(data) };
        let cuts = cut(&before, most);
        let (mut plans, mut lens) = (Vec::new(), Vec::new());
        // What plans with factors have room in.
        let mut room = budget - needed;
        for cut in &cuts {
            let mut some = RaggedCsr::new();
            let of_chunk = if cut.len() == batch.nitems() {
                batch
            } else {
                items[cut.clone()].iter().for_each(|&item| some.push(batch.item(item as usize)));
                &some
            };
            let options = options_of(options, &items[cut.clone()]);
            let tuning = tuning(Some(room));
            let plan = ConfirmedPlan::ragged(executor, *scheme, of_chunk, &options, &tuning)?;
            room = room.saturating_sub(plan.bytes());
            plans.push(plan);
            lens.push(Lens {
                values: of_chunk.total_nnz(),
                rows: of_chunk.row_offsets()[cut.len()] * nrhs,
                systems: cut.len() * nrhs,
            });
        }
        self.hold(executor, cuts, plans, &lens, chunks.at_once)
    }

    /// The first of the items that has another pattern in a batch.
    pub(super) fn first_difference(&self, batch: &Batch<T>) -> Option<u32> {
        let other = |(pattern, items): &(CsrPattern, Vec<u32>)| {
            let items = match batch {
                Batch::Uniform(_) => &items[..1],
                Batch::Ragged(_) => items,
            };
            let pattern = Pattern::view(pattern);
            let is_other = |&&item: &&u32| batch.pattern(item as usize) != pattern;
            items.par_iter().with_min_len(64).find_first(is_other).copied()
        };
        self.patterns.iter().filter_map(other).min()
    }

    /// The kernel, for reports; empty until the part was loaded.
    pub(super) fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Number of chunks in which the items go through the GPU.
    pub(super) fn chunks(&self) -> usize {
        self.chunks
    }

    /// Bytes on the device while the part is loaded, kept factors among them; 0 before it was.
    pub(super) fn bytes(&self) -> u64 {
        match &self.held {
            Some(PartMemory::Whole(whole)) => whole.bytes(),
            _ => self.bytes,
        }
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.held.is_some()
    }

    /// Approximate bytes of all items on the GPU at once.
    pub(super) fn bytes_whole(&self, site: &Site<E>, batch: &Batch<T>) -> u64 {
        self.size(site, batch).bytes(Split::whole(self.items.len()))
    }

    /// Approximate bytes of the items on the GPU in [usual](Split::usual) chunks.
    pub(super) fn bytes_usual(&self, site: &Site<E>, batch: &Batch<T>) -> u64 {
        let size = self.size(site, batch);
        size.bytes(self.usual(site, &size))
    }

    /// The one pattern of a part that is not ragged.
    fn pattern(&self) -> CsrPatternRef<'_> {
        Pattern::view(&self.patterns[0].0)
    }

    fn size(&self, site: &Site<E>, batch: &Batch<T>) -> Size {
        let size = Size::of(self.pattern(), batch, site.options.nrhs);
        match self.over_products {
            true => size.over_products::<T>(self.pattern(), batch, site.options.nrhs),
            false => size,
        }
    }

    /// The usual chunks; one where systems iterate together.
    fn usual(&self, site: &Site<E>, size: &Size) -> Split {
        match self.over_products {
            true => Split::whole(self.items.len()),
            false => Split::usual(self.items.len(), size, &site.chunks),
        }
    }

    /// The matrix format of the products.
    pub(super) fn format(&self) -> &'static str {
        self.format
    }

    /// The cost of the products of the last solve, where they were asked for.
    pub(super) fn product_cost(&mut self) -> Result<Option<ProductCost>, SolveError> {
        match &mut self.held {
            Some(PartMemory::Whole(whole)) => Ok(whole.plan.plan.product_cost()?),
            Some(PartMemory::Chunks(pipe)) => Ok(reach(pipe).product_cost()),
            None => Ok(None),
        }
    }

    /// Makes the plan and allocates chunks of the usual size within `room` bytes.
    ///
    /// # Errors
    /// Those of [`solver_for`].
    pub(super) fn load(
        &mut self,
        site: &Site<E>,
        batch: &Batch<T>,
        budget: u64,
    ) -> Result<(), SolveError> {
        let size = self.size(site, batch);
        self.load_in(site, batch, self.usual(site, &size), budget)
    }

    /// Makes the plan and allocates chunks that fit in the given bytes.
    ///
    /// # Errors
    /// Those of [`solver_for`]; [`GpuError::OutOfMemory`] when one item does not fit.
    pub(super) fn load_within(
        &mut self,
        site: &Site<E>,
        batch: &Batch<T>,
        budget: u64,
    ) -> Result<(), SolveError> {
        self.unload();
        if let (Batch::Ragged(ragged), true) = (batch, self.patterns.len() > 1) {
            return self.load_ragged(site, ragged, budget);
        }
        let size = self.size(site, batch);
        let split = match self.over_products {
            true => Split::within(budget, self.items.len(), &size, &TOGETHER),
            false => Split::within(budget, self.items.len(), &size, &site.chunks),
        };
        let Some(mut split) = split else {
            let needed = size.bytes(Split::whole(1));
            return Err(GpuError::OutOfMemory { needed, free: budget }.into());
        };
        loop {
            match self.load_in(site, batch, split, budget) {
                // The estimate was too low, or another process has taken memory.
                Err(SolveError::Gpu(GpuError::OutOfMemory { .. })) if split.chunk > 1 => {
                    split = split.halved();
                }
                Err(SolveError::Gpu(GpuError::OutOfMemory { .. })) if split.at_once > 1 => {
                    split.at_once = 1;
                }
                loaded => return loaded,
            }
        }
    }

    fn load_in(
        &mut self,
        site: &Site<E>,
        batch: &Batch<T>,
        split: Split,
        budget: u64,
    ) -> Result<(), SolveError> {
        self.held = None;
        let (executor, nrhs) = (&site.executor, site.options.nrhs);
        let pattern = self.pattern();
        let options = options_of(&site.options, &self.items[..split.chunk]);
        // The memory beside values and vectors.
        let size = self.size(site, batch);
        let limits = if options.has_own_limits() { LIMIT_BYTES } else { 0 };
        let beside = confirming_bytes(pattern) + limits * (split.chunk * nrhs) as u64;
        let room = budget.saturating_sub((split.chunk * split.at_once) as u64 * size.data + beside);
        let systems = (pattern, split.chunk);
        let tuning = tuning(Some(room)).shares_values(shares_values(batch));
        let plan = ConfirmedPlan::new(executor, site.scheme, systems, &options, &tuning)?;
        let sets = if shares_values(batch) { 1 } else { split.chunk };
        let lens = Lens {
            values: pattern.nnz() * sets,
            rows: pattern.nrows() * split.chunk * nrhs,
            systems: split.chunk * nrhs,
        };
        let nitems = self.items.len();
        let cuts = (0..nitems).step_by(split.chunk);
        let cuts: Vec<_> = cuts.map(|first| first..nitems.min(first + split.chunk)).collect();
        self.hold(executor, cuts, vec![plan], &[lens], split.at_once)
    }

    /// Allocates the memory of the chunks.
    fn hold(
        &mut self,
        executor: &E,
        cuts: Vec<Range<usize>>,
        mut plans: Vec<ConfirmedPlan<E, T>>,
        lens: &[Lens],
        at_once: usize,
    ) -> Result<(), SolveError> {
        self.chunks = cuts.len();
        if let Some(plan) = plans.first() {
            let explained = plan.plan.explain();
            self.kernel = explained.kernels();
            if let Some(composed) = explained.launches.first().and_then(LaunchReport::composed) {
                (self.format, self.reason) = (composed.format, composed.reason.clone());
            }
        }
        if cuts.len() == 1
            && let Some(plan) = plans.pop()
        {
            let whole = Whole::new(executor, plan, lens[0])?;
            self.bytes = whole.bytes();
            self.held = Some(PartMemory::Whole(whole));
        } else {
            let pipe = Pipe::new(executor, cuts, plans, lens, at_once)?;
            self.bytes = pipe.bytes();
            self.held = Some(PartMemory::Chunks(Mutex::new(pipe)));
        }
        Ok(())
    }

    /// Gives the plans the limits of the site's options.
    pub(super) fn replace_limits(&mut self, site: &Site<E>) -> Result<(), SolveError> {
        match &mut self.held {
            Some(PartMemory::Whole(whole)) => whole.replace_limits(site, &self.items),
            Some(PartMemory::Chunks(pipe)) => {
                let pipe = pipe.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
                pipe.replace_limits(site, &self.items)
            }
            None => Ok(()),
        }
    }

    /// Releases the memory.
    pub(super) fn unload(&mut self) {
        self.held = None;
    }

    /// Releases the memory, now and after each solve.
    pub(super) fn take_turns(&mut self) {
        self.unload();
        self.in_turn = true;
    }

    /// Cuts off half of the patterns, where there are several.
    pub(super) fn halve(&mut self) -> Option<Self> {
        if self.patterns.len() < 2 {
            return None;
        }
        let patterns = self.patterns.split_off(self.patterns.len().div_ceil(2));
        let items = |patterns: &[(CsrPattern, Vec<u32>)]| {
            let mut items: Vec<u32> =
                patterns.iter().flat_map(|(_, items)| items).copied().collect();
            items.sort_unstable();
            items
        };
        self.items = items(&self.patterns);
        let mut other = Self::unloaded(items(&patterns), patterns, self.over_products);
        other.in_turn = self.in_turn;
        Some(other)
    }

    /// Copies the values of an undivided part to the GPU.
    pub(super) fn send_values(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        staging: &mut Staging<T>,
    ) -> Result<(), SolveError> {
        match self.held.as_mut().expect(LOADED) {
            PartMemory::Whole(whole) => {
                whole.send_values(&site.executor, systems, &self.items, staging)
            }
            PartMemory::Chunks(_) => Ok(()),
        }
    }

    /// Copies the vectors of an undivided part to the GPU.
    pub(super) fn send_vectors(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        b: &[T],
        x: &[T],
        staging: &mut Staging<T>,
    ) -> Result<(), SolveError> {
        match self.held.as_mut().expect(LOADED) {
            PartMemory::Whole(whole) => {
                whole.send_vectors(&site.executor, systems, &self.items, (b, x), staging)
            }
            PartMemory::Chunks(_) => Ok(()),
        }
    }

    /// Starts the solve of an undivided part after values and vectors were sent.
    pub(super) fn start(&mut self) -> Result<(), SolveError> {
        match self.held.as_mut().expect(LOADED) {
            PartMemory::Whole(whole) => whole.start(false),
            PartMemory::Chunks(_) => Ok(()),
        }
    }

    /// Whether all items are on the GPU at once, and their plan keeps factors.
    pub(super) fn keeps_factors(&self) -> bool {
        matches!(&self.held, Some(PartMemory::Whole(whole)) if whole.plan.plan.keeps_factors())
    }

    /// Factorises the values that were sent; a part that [keeps](Part::keeps_factors) factors.
    pub(super) fn factor(&mut self) -> Result<(), SolveError> {
        match self.held.as_mut().expect(LOADED) {
            PartMemory::Whole(whole) => Ok(whole.plan.plan.factor(&whole.values)?),
            PartMemory::Chunks(_) => Err(SolveError::NotFactored),
        }
    }

    /// Frees the factors.
    pub(super) fn forget_factors(&mut self) {
        if let Some(PartMemory::Whole(whole)) = &mut self.held {
            whole.plan.plan.forget_factors();
        }
    }

    /// Bytes of the kept factors.
    pub(super) fn kept_bytes(&self) -> u64 {
        match &self.held {
            Some(PartMemory::Whole(whole)) => whole.plan.plan.explain().kept_bytes,
            Some(PartMemory::Chunks(_)) | None => 0,
        }
    }

    /// Whether kept factors serve other values.
    pub(super) fn solves_near(&self) -> bool {
        match &self.held {
            Some(PartMemory::Whole(whole)) => whole.plan.plan.solves_near(),
            Some(PartMemory::Chunks(_)) | None => false,
        }
    }

    /// Starts a solve with kept factors after vectors were sent.
    pub(super) fn start_again(&mut self) -> Result<(), SolveError> {
        match self.held.as_mut().expect(LOADED) {
            PartMemory::Whole(whole) => whole.start(true),
            PartMemory::Chunks(_) => Err(SolveError::NotFactored),
        }
    }

    /// As [`Part::start_again`] with the transposed matrices; verdicts are not confirmed.
    pub(super) fn start_transposed_again(&mut self) -> Result<(), SolveError> {
        match self.held.as_mut().expect(LOADED) {
            PartMemory::Whole(whole) => whole.start_transposed_again(),
            PartMemory::Chunks(_) => Err(SolveError::NotFactored),
        }
    }

    /// Whether the items go through a pipeline whose one plan serves any chunk of them.
    pub(super) fn can_draw(&self) -> bool {
        matches!(&self.held, Some(PartMemory::Chunks(_))) && self.patterns.len() == 1
    }

    /// Solves what it draws from a queue of its items; a part that [can](Part::can_draw). See
    /// [`Pipe::draw`].
    pub(super) fn draw(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        queue: &Queue<'_, T>,
    ) -> (usize, Result<(), SolveError>) {
        let systems = self.counted(systems);
        match self.held.as_mut().expect(LOADED) {
            PartMemory::Whole(_) => (0, Ok(())),
            PartMemory::Chunks(pipe) => reach(pipe).draw(site, systems, &self.items, queue),
        }
    }

    /// Sends the items of a divided part through the pipeline.
    pub(super) fn run(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        b: &[T],
        target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        let systems = self.counted(systems);
        match self.held.as_mut().expect(LOADED) {
            PartMemory::Whole(_) => Ok(()),
            PartMemory::Chunks(pipe) => reach(pipe).run(site, systems, &self.items, b, target),
        }
    }

    /// The systems, whose ends are not counted again where a plan that waits counts them.
    fn counted<'a>(&self, systems: Systems<'a, T>) -> Systems<'a, T> {
        let watch = systems.watch.filter(|_| !self.over_products);
        Systems { watch, ..systems }
    }

    /// Waits for the solve and stores the results of wanted systems.
    pub(super) fn receive(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        target: PartResults<'_, T>,
        staging: &mut Staging<T>,
    ) -> Result<(), SolveError> {
        let systems = self.counted(systems);
        match self.held.as_mut().expect(LOADED) {
            PartMemory::Whole(whole) => {
                whole.receive(&site.executor, systems, &self.items, target, staging)
            }
            PartMemory::Chunks(pipe) => reach(pipe).finish(systems, &self.items, target),
        }
    }
}

fn reach<V>(mutex: &mut Mutex<V>) -> &mut V {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// The plan of all items, and memory for what it reads and writes.
struct Whole<E: Executor, T: Value> {
    plan: ConfirmedPlan<E, T>,
    values: E::Buffer<T>,
    b: E::Buffer<T>,
    x: E::Buffer<T>,
    guess: Guess,
}

impl<E, T> Whole<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    fn new(executor: &E, plan: ConfirmedPlan<E, T>, lens: Lens) -> Result<Self, SolveError> {
        Ok(Self {
            plan,
            values: executor.alloc(lens.values)?,
            b: executor.alloc(lens.rows)?,
            x: executor.alloc(lens.rows)?,
            guess: Guess::Zero,
        })
    }

    fn replace_limits(&mut self, site: &Site<E>, items: &[u32]) -> Result<(), SolveError> {
        self.plan.replace_limits(&site.executor, &options_of(&site.options, items))
    }

    fn bytes(&self) -> u64 {
        let values = self.values.len() + self.b.len() + self.x.len();
        (values * size_of::<T>()) as u64 + self.plan.bytes()
    }

    fn send_values(
        &mut self,
        executor: &E,
        systems: Systems<'_, T>,
        items: &[u32],
        staging: &mut Staging<T>,
    ) -> Result<(), SolveError> {
        let values = systems.values(items, staging);
        if values.len() != self.values.len() {
            // The batch now shares its values, or no longer does.
            self.values = executor.alloc(values.len())?;
        }
        Ok(executor.copy_from_host(values, &mut self.values)?)
    }

    fn send_vectors(
        &mut self,
        executor: &E,
        systems: Systems<'_, T>,
        items: &[u32],
        (b, x): (&[T], &[T]),
        staging: &mut Staging<T>,
    ) -> Result<(), SolveError> {
        executor.copy_from_host(systems.gather(items, b, staging), &mut self.b)?;
        self.plan.plan.count_ended(systems.wanted_of(items));
        self.guess = if systems.is_zero(items, x) { Guess::Zero } else { Guess::InX };
        if self.guess == Guess::InX {
            executor.copy_from_host(systems.gather(items, x, staging), &mut self.x)?;
        }
        Ok(())
    }

    fn start(&mut self, again: bool) -> Result<(), SolveError> {
        self.plan.solve(again, (&self.values, &self.b), self.guess, &mut self.x)
    }

    fn start_transposed_again(&mut self) -> Result<(), SolveError> {
        Ok(self.plan.plan.solve_transposed_again(&self.b, self.guess, &mut self.x)?)
    }

    fn receive(
        &self,
        executor: &E,
        systems: Systems<'_, T>,
        items: &[u32],
        target: PartResults<'_, T>,
        staging: &mut Staging<T>,
    ) -> Result<(), SolveError> {
        systems.scatter(items, target.x, staging, |host| executor.copy_to_host(&self.x, host))?;
        let solved = self.plan.plan.outcomes()?;
        systems.take_outcomes(items, |place| solved[place].clone(), target.outcomes);
        Ok(())
    }
}
