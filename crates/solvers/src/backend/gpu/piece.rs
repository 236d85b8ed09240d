//! Items of a batch that one GPU solves: [`Piece`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::Batch;
use sparsebatch_solve_core::{ProductCost, Scheme};

use super::OneGpu;
use super::divide::{Divided, May, Refused, divide, is_full};
use super::part::{Part, PartResults, Site};
use super::several::{Queue, span};
use super::staging::{Staging, Systems};
use crate::backend::Chunks;
use crate::error::go_on;
use crate::{SolveError, SolveOptions};

/// Bytes on the device, counted until this is dropped.
struct CountedBytes {
    bytes: u64,
    all: Arc<AtomicU64>,
}

impl CountedBytes {
    fn new(all: &Arc<AtomicU64>, bytes: u64) -> Self {
        all.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, all: Arc::clone(all) }
    }

    fn replace(&mut self, bytes: u64) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// How the items of a piece are analysed.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) scheme: Scheme,
    pub(super) options: &'a SolveOptions,
    pub(super) chunks: Chunks,
    /// Whether all patterns of a ragged batch may have one plan.
    pub(super) is_pooled: bool,
    pub(super) may: May,
}

/// Items that one GPU solves, the parts in which it does, and the items that it cannot solve.
pub(super) struct Piece<E: Executor, T: Value> {
    /// The number of the GPU, among those of the backend.
    pub(super) gpu: usize,
    /// Ascending.
    pub(super) items: Vec<u32>,
    site: Site<E>,
    /// The bytes that it keeps on the device.
    held: CountedBytes,
    /// Approximate bytes that the parts may take.
    budget: u64,
    pub(super) parts: Vec<Part<E, T>>,
    has_factors: bool,
    /// What the products of the last solve in turns have cost, where they were asked for.
    cost: Option<ProductCost>,
    /// The items that are left to the CPU, with the reasons.
    pub(super) on_cpu: Refused,
    staging: Staging<T>,
}

impl<E, T> Piece<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    /// Takes the tolerances and iteration limits of other options.
    pub(super) fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), SolveError> {
        self.site.options = self.site.options.with_limits_of(options);
        let site = &self.site;
        self.parts.iter_mut().try_for_each(|part| part.replace_limits(site))
    }

    /// Analyses items (ascending) for a GPU and loads them there.
    ///
    /// # Errors
    /// Those of [`divide`], where the CPU may not take the items.
    pub(super) fn new(
        (gpu, one): (usize, &OneGpu<E>),
        batch: &Batch<T>,
        items: Vec<u32>,
        wanted: Wanted<'_>,
    ) -> Result<Self, SolveError> {
        let Wanted { may, is_pooled, .. } = wanted;
        let (site, budget) = (one.site(&wanted), one.budget()?);
        let some: Vec<usize> = match items.len() == batch.nitems() {
            true => Vec::new(),
            false => items.iter().map(|&item| item as usize).collect(),
        };
        let only = (items.len() < batch.nitems()).then_some(&some[..]);
        let divided = divide(&site, batch, (only, is_pooled), budget, may)?;
        let Divided { parts, refused } = divided;
        let loaded = parts.iter().filter(|part| part.is_loaded());
        let held = CountedBytes::new(&one.held, loaded.map(Part::bytes).sum());
        Ok(Self {
            gpu,
            items,
            site,
            held,
            budget,
            parts,
            has_factors: false,
            cost: None,
            on_cpu: refused,
            staging: Staging::default(),
        })
    }

    /// The first of the items that has another pattern in a batch.
    pub(super) fn first_difference(&self, batch: &Batch<T>) -> Option<u32> {
        self.parts.iter().filter_map(|part| part.first_difference(batch)).min()
    }

    /// The items from the first to the last.
    pub(super) fn span(&self) -> Range<usize> {
        span(&self.items)
    }

    /// Sends the systems to the GPU and starts to solve them.
    pub(super) fn begin(
        &mut self,
        systems: Systems<'_, T>,
        b: &[T],
        mut target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        let (site, staging) = (&self.site, &mut self.staging);
        self.cost = None;
        for part in self.parts.iter_mut().filter(|part| !part.in_turn) {
            part.send_values(site, systems, staging)?;
            part.send_vectors(site, systems, b, target.x, staging)?;
        }
        for part in self.parts.iter_mut().filter(|part| !part.in_turn && !part.over_products) {
            part.start()?;
        }
        for part in self.parts.iter_mut().filter(|part| !part.in_turn) {
            part.run(site, systems, b, target.reborrow())?;
        }
        Ok(())
    }

    /// Solves the items that iterate over products, for which the host waits; waits for what was
    /// begun, and stores the results. Then solves the items of parts that take turns.
    pub(super) fn finish(
        &mut self,
        systems: Systems<'_, T>,
        b: &[T],
        mut target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        for part in self.parts.iter_mut().filter(|part| !part.in_turn && part.over_products) {
            part.start()?;
        }
        for part in self.parts.iter_mut().filter(|part| !part.in_turn) {
            part.receive(&self.site, systems, target.reborrow(), &mut self.staging)?;
        }
        let mut place = 0;
        while place < self.parts.len() {
            if self.parts[place].in_turn {
                self.solve_in_turn(place, systems, b, target.reborrow())?;
            }
            place += 1;
        }
        Ok(())
    }

    /// Loads a part within the memory that is left, solves its items, and releases the memory.
    /// Where this has become short, the part is halved.
    fn solve_in_turn(
        &mut self,
        place: usize,
        systems: Systems<'_, T>,
        b: &[T],
        mut target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        let room = self.budget.saturating_sub(self.bytes());
        let (site, staging) = (&self.site, &mut self.staging);
        go_on(&site.options.watch)?;
        while let Err(error) = self.parts[place].load_within(site, systems.batch, room) {
            match self.parts[place].halve() {
                Some(other) if is_full(&error) => self.parts.insert(place + 1, other),
                _ => return Err(error),
            }
        }
        let part = &mut self.parts[place];
        let mut solve = || {
            part.send_values(site, systems, staging)?;
            part.send_vectors(site, systems, b, target.x, staging)?;
            part.start()?;
            part.run(site, systems, b, target.reborrow())?;
            part.receive(site, systems, target.reborrow(), staging)?;
            if site.asks_for_products() {
                self.cost = ProductCost::together([self.cost.take(), part.product_cost()?]);
            }
            Ok(())
        };
        let solved = solve();
        // After an error, too.
        part.unload();
        solved
    }

    /// Whether it can [draw](Piece::draw).
    pub(super) fn can_draw(&self) -> bool {
        self.on_cpu.items.is_empty() && matches!(&self.parts[..], [part] if part.can_draw())
    }

    /// Solves what it draws from a queue of its items; see [`Part::draw`].
    pub(super) fn draw(
        &mut self,
        systems: Systems<'_, T>,
        queue: &Queue<'_, T>,
    ) -> (usize, Result<(), SolveError>) {
        match &mut self.parts[..] {
            [part] => part.draw(&self.site, systems, queue),
            _ => (0, Ok(())),
        }
    }

    /// Whether its plans keep factors of all items, all at once.
    pub(super) fn keeps_factors(&self) -> bool {
        let is_whole = self.on_cpu.items.is_empty() && !self.parts.iter().any(|part| part.in_turn);
        is_whole && !self.parts.is_empty() && self.parts.iter().all(Part::keeps_factors)
    }

    /// Whether kept factors serve other values.
    pub(super) fn solves_near(&self) -> bool {
        self.parts.iter().all(Part::solves_near)
    }

    /// Sends and factorises the values of all parts, within the memory that they may take.
    pub(super) fn factor(&mut self, systems: Systems<'_, T>) -> Result<(), SolveError> {
        for part in &mut self.parts {
            part.send_values(&self.site, systems, &mut self.staging)?;
            part.factor()?;
        }
        let needed = self.bytes();
        if needed > self.budget {
            return Err(GpuError::OutOfMemory { needed, free: self.budget }.into());
        }
        self.count_bytes();
        self.has_factors = true;
        Ok(())
    }

    /// Whether it keeps the factors of the last [`Piece::factor`].
    pub(super) fn has_factors(&self) -> bool {
        self.has_factors
    }

    /// Frees the factors.
    pub(super) fn forget_factors(&mut self) {
        self.has_factors = false;
        self.parts.iter_mut().for_each(Part::forget_factors);
    }

    /// Whether factors for the transposed matrices fit beside the kept ones: as much memory again.
    pub(super) fn fits_twice(&self) -> bool {
        let needed = |part: &Part<E, T>| part.bytes() + part.kept_bytes();
        self.parts.iter().map(needed).sum::<u64>() <= self.budget
    }

    /// Counts the memory that plans have taken since the last count.
    pub(super) fn count_bytes(&mut self) {
        self.held.replace(self.bytes());
    }

    /// Bytes of the parts that stay on the device.
    fn bytes(&self) -> u64 {
        self.parts.iter().filter(|part| part.is_loaded()).map(Part::bytes).sum()
    }

    /// Sends vectors, and values where they are not on the device, starts a solve of each part by
    /// its kept factors, and receives the results.
    pub(super) fn run_again(
        &mut self,
        systems: Systems<'_, T>,
        sends_values: bool,
        start: impl Fn(&mut Part<E, T>) -> Result<(), SolveError>,
        b: &[T],
        mut target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        let (site, staging) = (&self.site, &mut self.staging);
        for part in &mut self.parts {
            if sends_values {
                part.send_values(site, systems, staging)?;
            }
            part.send_vectors(site, systems, b, target.x, staging)?;
        }
        for part in &mut self.parts {
            start(part)?;
        }
        for part in &mut self.parts {
            part.receive(site, systems, target.reborrow(), staging)?;
        }
        Ok(())
    }

    /// Whether the GPU solves none of its items.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The kernels, each with the number of its items.
    pub(super) fn kernels(&self) -> impl Iterator<Item = (String, usize)> + '_ {
        self.parts.iter().map(|part| (part.kernel().to_owned(), part.items.len()))
    }

    /// The items that iterate over products although nobody asked for it, with the reasons.
    pub(super) fn composed(&self) -> Refused {
        let mut composed = Refused::default();
        for part in &self.parts {
            part.reason.iter().for_each(|why| composed.because(&part.items, why.clone()));
        }
        composed
    }

    /// The largest number of chunks of any part; parts that iterate over products in turns are
    /// chunks, too.
    pub(super) fn chunks(&self) -> usize {
        let of_products = self.parts.iter().filter(|part| part.in_turn && part.over_products);
        let in_turns: usize = of_products.map(Part::chunks).sum();
        self.parts.iter().map(Part::chunks).max().unwrap_or(1).max(in_turns)
    }

    /// Bytes on the device: of all parts that stay there, and of the largest of those that take
    /// turns.
    pub(super) fn device_bytes(&self) -> u64 {
        let in_turns = self.parts.iter().filter(|part| part.in_turn).map(Part::bytes).max();
        let stay = self.parts.iter().filter(|part| !part.in_turn).map(Part::bytes);
        stay.sum::<u64>() + in_turns.unwrap_or(0)
    }

    /// The format of the products, where all items iterate over some.
    pub(super) fn format(&self) -> Option<&'static str> {
        let part = self.parts.first()?;
        self.parts.iter().all(|part| part.over_products).then(|| part.format())
    }

    /// What the products of the last solve have cost, where they were asked for.
    pub(super) fn product_cost(&mut self) -> Result<Option<ProductCost>, SolveError> {
        if !self.site.asks_for_products() {
            return Ok(None);
        }
        let costs = self.parts.iter_mut().map(Part::product_cost);
        let costs = costs.collect::<Result<Vec<_>, _>>()?;
        Ok(ProductCost::together(costs.into_iter().chain([self.cost.clone()])))
    }
}
