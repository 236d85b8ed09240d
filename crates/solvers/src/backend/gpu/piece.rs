//! Items of a batch that one GPU solves: [`Piece`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::Batch;
use sparsebatch_solve_core::{ProductCost, Scheme};

use super::OneGpu;
use super::composed::{ComposedItems, Room, composes};
use super::divide::{Divided, May, Refused, divide, is_unsupported};
use super::part::{Part, PartResults, Site};
use super::several::{Queue, span};
use super::staging::{Staging, Systems};
use crate::backend::Chunks;
use crate::error::go_on;
use crate::gpu::ProductKernel;
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
    pub(super) in_turns: bool,
    /// Items that no plan of whole solves supports.
    pub(super) composed: Option<ComposedItems<E, T>>,
    /// Whether a plan of products was asked for.
    tells_cost: bool,
    has_factors: bool,
    /// The items of the composed solver, with the reasons.
    pub(super) refused: Refused,
    /// The items that are left to the CPU, with the reasons.
    pub(super) on_cpu: Refused,
    staging: Staging<T>,
}

impl<E, T> Piece<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    fn empty(place: (usize, &OneGpu<E>), items: Vec<u32>, site: Site<E>, budget: u64) -> Self {
        let (gpu, one) = place;
        Self {
            gpu,
            items,
            site,
            held: CountedBytes::new(&one.held, 0),
            budget,
            parts: Vec::new(),
            in_turns: false,
            composed: None,
            tells_cost: false,
            has_factors: false,
            refused: Refused::default(),
            on_cpu: Refused::default(),
            staging: Staging::default(),
        }
    }

    /// Refuses other limits for what keeps those of its analysis.
    pub(super) fn check_takes_limits(&self) -> Result<(), SolveError> {
        match self.composed {
            None => Ok(()),
            Some(_) => Err(SolveError::Unsupported {
                what: "other tolerances and limits for a composed solve",
                instead: "give them when the batch is analysed, or solve on the CPU",
            }),
        }
    }

    /// Takes the tolerances and iteration limits of other options.
    pub(super) fn replace_limits(&mut self, options: &SolveOptions) -> Result<(), SolveError> {
        self.site.options = self.site.options.with_limits_of(options);
        let site = &self.site;
        self.parts.iter_mut().try_for_each(|part| part.replace_limits(site))
    }

    /// Analyses items (ascending) for a GPU and loads them there.
    ///
    /// # Errors
    /// Those of [`divide`] and [`ComposedItems::new`], where the CPU may not take the items.
    pub(super) fn new(
        place: (usize, &OneGpu<E>),
        batch: &Batch<T>,
        items: Vec<u32>,
        wanted: Wanted<'_>,
    ) -> Result<Self, SolveError> {
        let Wanted { may, is_pooled, .. } = wanted;
        let (site, budget) = (place.1.site(&wanted), place.1.budget()?);
        let some: Vec<usize> = match items.len() == batch.nitems() {
            true => Vec::new(),
            false => items.iter().map(|&item| item as usize).collect(),
        };
        let only = (items.len() < batch.nitems()).then_some(&some[..]);
        let divided = divide(&site, batch, (only, is_pooled), budget, may)?;
        let Divided { parts, refused, too_large, in_turns } = divided;
        let loaded = parts.iter().filter(|part| part.is_loaded());
        let bytes: u64 = loaded.map(Part::bytes).sum();
        let mut piece =
            Self { parts, in_turns, on_cpu: too_large, ..Self::empty(place, items, site, budget) };
        if !refused.items.is_empty() {
            let room = Room {
                budget: budget.saturating_sub(bytes),
                may_divide: may.divide,
                in_turns: piece.in_turns,
            };
            piece.compose(batch, refused, room, may)?;
        }
        let composed = piece.composed.as_ref().map_or(0, ComposedItems::held);
        piece.held.replace(bytes + composed);
        Ok(piece)
    }

    /// Analyses items for products that were asked for.
    ///
    /// # Errors
    /// Those of [`ComposedItems::new`].
    pub(super) fn of_products(
        place: (usize, &OneGpu<E>),
        batch: &Batch<T>,
        products: ProductKernel,
        wanted: Wanted<'_>,
    ) -> Result<Self, SolveError> {
        let (site, budget) = (place.1.site(&wanted), place.1.budget()?);
        let items: Vec<u32> = (0..batch.nitems() as u32).collect();
        let room = Room { budget, may_divide: wanted.may.divide, in_turns: false };
        let composed = ComposedItems::new(&site, batch, items.clone(), products, room)?;
        let mut piece = Self::empty(place, items, site, budget);
        piece.held.replace(composed.held());
        (piece.composed, piece.tells_cost) = (Some(composed), true);
        Ok(piece)
    }

    /// Takes what plans of whole solves refused to the composed solver, or else to the CPU.
    fn compose(
        &mut self,
        batch: &Batch<T>,
        refused: Refused,
        room: Room,
        may: May,
    ) -> Result<(), SolveError> {
        let mut items = refused.items.clone();
        items.sort_unstable();
        let site = &self.site;
        let composed = composes(site)
            .then(|| ComposedItems::new(site, batch, items, ProductKernel::default(), room));
        match composed {
            Some(Ok(composed)) => {
                self.composed = Some(composed);
                self.refused = refused;
            }
            // They do not fit in memory.
            Some(Err(error)) if may.leaves_full(&error) => {
                self.on_cpu.push(&refused.items, &error);
            }
            Some(Err(error)) if !may.use_cpu || !is_unsupported(&error) => return Err(error),
            _ => self.on_cpu.append(refused),
        }
        Ok(())
    }

    /// The first of the items that has another pattern in a batch.
    pub(super) fn first_difference(&self, batch: &Batch<T>) -> Option<u32> {
        let composed = self.composed.iter().filter_map(|items| items.first_difference(batch));
        let parts = self.parts.iter().filter_map(|part| part.first_difference(batch));
        composed.chain(parts).min()
    }

    /// The items from the first to the last.
    pub(super) fn span(&self) -> Range<usize> {
        span(&self.items)
    }

    /// Sends the systems to the GPU and starts to solve them; in turns it solves them.
    pub(super) fn begin(
        &mut self,
        systems: Systems<'_, T>,
        b: &[T],
        mut target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        let (site, staging) = (&self.site, &mut self.staging);
        let several = self.parts.len() > 1;
        if self.in_turns {
            for part in &mut self.parts {
                go_on(&site.options.watch)?;
                if !part.is_loaded() {
                    part.load_within(site, systems.batch, self.budget)?;
                }
                part.send_values(site, systems, staging)?;
                part.send_vectors(site, systems, b, target.x, staging)?;
                part.start()?;
                part.run(site, systems, b, target.reborrow())?;
                part.receive(site, systems, target.reborrow(), staging)?;
                // A single part keeps its memory.
                if several {
                    part.unload();
                }
            }
            return Ok(());
        }
        for part in &mut self.parts {
            part.send_values(site, systems, staging)?;
            part.send_vectors(site, systems, b, target.x, staging)?;
        }
        for part in &mut self.parts {
            part.start()?;
        }
        for part in &mut self.parts {
            part.run(site, systems, b, target.reborrow())?;
        }
        Ok(())
    }

    /// Solves the items of the composed solver, waits for what was begun, and stores the results.
    pub(super) fn finish(
        &mut self,
        systems: Systems<'_, T>,
        b: &[T],
        mut target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        if let Some(items) = &mut self.composed {
            let PartResults { x, outcomes } = target.reborrow();
            items.solve(&self.site, systems, (b, x, outcomes), self.tells_cost)?;
        }
        if !self.in_turns {
            for part in &mut self.parts {
                part.receive(&self.site, systems, target.reborrow(), &mut self.staging)?;
            }
        }
        Ok(())
    }

    /// Whether it can [draw](Piece::draw).
    pub(super) fn can_draw(&self) -> bool {
        let is_all = self.composed.is_none() && self.on_cpu.items.is_empty();
        is_all && matches!(&self.parts[..], [part] if part.can_draw())
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
        let is_whole = !self.in_turns && self.composed.is_none() && self.on_cpu.items.is_empty();
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

    fn bytes(&self) -> u64 {
        self.parts.iter().map(Part::bytes).sum()
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
        self.parts.is_empty() && self.composed.is_none()
    }

    /// The kernels, each with the number of its items.
    pub(super) fn kernels(&self) -> impl Iterator<Item = (String, usize)> + '_ {
        let composed = self.composed.iter().map(|items| (items.kernel(), items.nitems()));
        let parts = self.parts.iter().map(|part| (part.kernel(), part.items.len()));
        composed.chain(parts).map(|(kernel, systems)| (kernel.to_owned(), systems))
    }

    /// The largest number of chunks of any part.
    pub(super) fn chunks(&self) -> usize {
        let composed = self.composed.iter().map(ComposedItems::chunks);
        self.parts.iter().map(Part::chunks).chain(composed).max().unwrap_or(1)
    }

    /// Bytes on the device: of all parts, or of the largest if they are loaded one after the other.
    pub(super) fn device_bytes(&self) -> u64 {
        let composed = self.composed.iter().map(ComposedItems::device_bytes);
        let bytes = self.parts.iter().map(Part::bytes).chain(composed);
        if self.in_turns { bytes.max().unwrap_or(0) } else { bytes.sum() }
    }

    /// The format of the composed solver's products, where it solves all items.
    pub(super) fn format(&self) -> Option<&'static str> {
        self.composed.as_ref().filter(|_| self.parts.is_empty()).map(ComposedItems::format)
    }

    /// What the products of the last solve have cost, where a plan was asked for.
    pub(super) fn product_cost(&mut self) -> Result<Option<ProductCost>, SolveError> {
        match &mut self.composed {
            Some(items) if self.tells_cost => items.product_cost(),
            _ => Ok(None),
        }
    }
}
