//! The pipeline in which items go through the GPU in chunks: [`Pipe`].

use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_cuda::{Executor, GpuError, KernelBuffer, Lender, PinnedValues, Value, lending};
use sparsebatch_solve_core::{Outcome, ProductCost};

use super::part::{PartResults, Site};
use super::plan::{ConfirmedPlan, options_of};
use super::several::{Queue, Window};
use super::staging::Systems;
use crate::SolveError;
use crate::error::go_on;
use crate::gpu::{Guess, PinnedOutcomes};

/// Plans for chunks, and memory for several of them.
///
/// Copies to the GPU, solves, and copies back have a stream each. A chunk waits only for its own
/// previous stage and for the chunks ahead of it in the same stream; meanwhile the host fills the
/// memory of the next chunk. Plans, device memory and host memory are used in rotation: chunk `k`
/// uses the slots of chunk `k - n`, where `n` is their number.
pub(super) struct Pipe<E: Executor, T: Value> {
    /// Which items of the part are in each chunk.
    chunks: Vec<Range<usize>>,
    plans: Vec<ConfirmedPlan<E, T>>,
    uploads: E,
    downloads: E,
    device: Vec<OnDevice<E, T>>,
    host: Vec<OnHost<E, T>>,
    /// The cost of the products of all chunks of the last solve, where they were asked for.
    cost: Option<ProductCost>,
}

/// Memory of the GPU for a chunk.
struct OnDevice<E: Executor, T: Value> {
    values: E::Buffer<T>,
    b: E::Buffer<T>,
    x: E::Buffer<T>,
}

/// Memory of the host for a chunk.
struct OnHost<E: Executor, T: Value> {
    values: E::Pinned<T>,
    b: E::Pinned<T>,
    x: E::Pinned<T>,
    outcomes: PinnedOutcomes<E>,
    /// The residual histories, where they were asked for.
    histories: Vec<Vec<f64>>,
    /// Which items of the part are in the chunk in progress.
    running: Option<Range<usize>>,
}

/// The sizes of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lens {
    pub(super) values: usize,
    pub(super) rows: usize,
    pub(super) systems: usize,
}

impl<E, T> Pipe<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    /// Takes plans for `chunks`, one for all or one per chunk, of the sizes `lens`; `at_once`
    /// chunks are in progress at a time.
    pub(super) fn new(
        executor: &E,
        chunks: Vec<Range<usize>>,
        plans: Vec<ConfirmedPlan<E, T>>,
        lens: &[Lens],
        at_once: usize,
    ) -> Result<Self, SolveError> {
        let at_once = at_once.clamp(1, chunks.len());
        let count = if plans.len() == 1 { at_once } else { plans.len() };
        let device = lens.iter().cycle().take(count).map(|lens| OnDevice::new(executor, *lens));
        let device = device.collect::<Result<_, _>>()?;
        let most = |of: fn(&Lens) -> usize| lens.iter().map(of).max().unwrap_or(0);
        let most = Lens {
            values: most(|lens| lens.values),
            rows: most(|lens| lens.rows),
            systems: most(|lens| lens.systems),
        };
        let host = (0..at_once).map(|_| OnHost::new(executor, most));
        let host = host.collect::<Result<_, _>>()?;
        let mut branches = executor.branches(2)?.into_iter();
        let mut branch = || branches.next().unwrap_or_else(|| executor.clone());
        let (uploads, downloads) = (branch(), branch());
        Ok(Self { chunks, plans, uploads, downloads, device, host, cost: None })
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        let values = |of: &OnDevice<E, T>| of.values.len() + of.b.len() + of.x.len();
        let values: usize = self.device.iter().map(values).sum();
        let plans: u64 = self.plans.iter().map(ConfirmedPlan::bytes).sum();
        (values * size_of::<T>()) as u64 + plans
    }

    /// The cost of the products of the last solve, where they were asked for.
    pub(super) fn product_cost(&self) -> Option<ProductCost> {
        self.cost.clone()
    }

    /// Gives the plans the limits of the site's options. Those of the systems of each chunk come
    /// with the chunk where chunks share a plan.
    pub(super) fn replace_limits(
        &mut self,
        site: &Site<E>,
        items: &[u32],
    ) -> Result<(), SolveError> {
        self.abandon(site);
        if self.plans.len() < self.chunks.len() && site.options.has_own_limits() {
            return Ok(());
        }
        for (plan, chunk) in self.plans.iter_mut().zip(&self.chunks) {
            let options = options_of(&site.options, &items[chunk.clone()]);
            plan.replace_limits(&site.executor, &options)?;
        }
        Ok(())
    }

    /// Starts all chunks in turn, and stores the results of those that have finished.
    pub(super) fn run(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        items: &[u32],
        b: &[T],
        mut target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        self.begin(site, systems, items)?;
        let uploads = self.uploads.clone();
        lending(&uploads, |lender| {
            for turn in 0..self.chunks.len() {
                go_on(&site.options.watch)?;
                self.receive(turn, systems, items, target.reborrow())?;
                let (chunk, vectors) = (self.chunks[turn].clone(), (b, &*target.x));
                self.send(turn, chunk, (site, lender), systems, items, vectors)?;
            }
            Ok(())
        })
    }

    /// Solves the chunks that it draws from a queue, until that is empty and the last one has
    /// ended. Chunks that did not end, because of an error, go back to the queue. Returns the
    /// number of systems solved; after an error too.
    pub(super) fn draw(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        items: &[u32],
        queue: &Queue<'_, T>,
    ) -> (usize, Result<(), SolveError>) {
        let mut running: Vec<Option<Window<'_, T>>> = Vec::new();
        running.resize_with(self.host.len(), || None);
        let mut ended = 0;
        let uploads = self.uploads.clone();
        let drawn = lending(&uploads, |lender| {
            self.begin(site, systems, items)?;
            let mut turn = 0;
            loop {
                go_on(&site.options.watch)?;
                let slot = turn % running.len();
                ended += self.receive_window(turn, systems, items, &mut running[slot])?;
                let Some(window) = queue.take(self.chunks[0].len()) else { break };
                let window = running[slot].insert(window);
                let systems = Systems { first: window.first, ..systems };
                let (chunk, vectors) = (window.places.clone(), (window.b, &*window.x));
                self.send(turn, chunk, (site, lender), systems, items, vectors)?;
                turn += 1;
            }
            for later in turn..turn + running.len() {
                let slot = later % running.len();
                ended += self.receive_window(later, systems, items, &mut running[slot])?;
            }
            Ok(())
        });
        running.into_iter().flatten().for_each(|window| queue.give_back(window));
        (ended, drawn)
    }

    /// [`Pipe::receive`] into the window of a chunk. Returns the number of its systems.
    fn receive_window(
        &mut self,
        later: usize,
        systems: Systems<'_, T>,
        items: &[u32],
        running: &mut Option<Window<'_, T>>,
    ) -> Result<usize, SolveError> {
        let Some(window) = running else { return Ok(0) };
        let systems = Systems { first: window.first, ..systems };
        let target = PartResults { x: &mut *window.x, outcomes: &mut *window.outcomes };
        self.receive(later, systems, items, target)?;
        let ended = running.take().map(|window| window.outcomes.iter().flatten().count());
        Ok(ended.unwrap_or(0))
    }

    /// Makes ready for a solve of a batch.
    fn begin(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        items: &[u32],
    ) -> Result<(), SolveError> {
        self.abandon(site);
        self.cost = None;
        let values = systems.values_len(&items[self.chunks[0].clone()]);
        if self.device[0].values.len() != values {
            // The batch now shares its values, or no longer does. All or nothing: after an error
            // the next solve finds memory of one size.
            let executor = &site.executor;
            let device = self.device.iter().map(|_| executor.alloc(values));
            let device = device.collect::<Result<Vec<_>, GpuError>>()?;
            let host = self.host.iter().map(|_| executor.alloc_pinned(values));
            let host = host.collect::<Result<Vec<_>, GpuError>>()?;
            self.device.iter_mut().zip(device).for_each(|(own, new)| own.values = new);
            self.host.iter_mut().zip(host).for_each(|(own, new)| own.values = new);
        }
        Ok(())
    }

    /// Waits for the last chunks.
    pub(super) fn finish(
        &mut self,
        systems: Systems<'_, T>,
        items: &[u32],
        mut target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        let next = self.chunks.len();
        (next..next + self.host.len())
            .try_for_each(|chunk| self.receive(chunk, systems, items, target.reborrow()))
    }

    /// Discards chunks that a failed solve left in progress.
    fn abandon(&mut self, site: &Site<E>) {
        if self.host.iter().all(|host| host.running.is_none()) {
            return;
        }
        for executor in [&self.uploads, &site.executor, &self.downloads] {
            // Its error was reported, or will be by the next call.
            executor.synchronize().ok();
        }
        self.host.iter_mut().for_each(|host| host.running = None);
    }

    /// Starts a chunk: the copies to the GPU, the solve, the copies back. Chunks take plans and
    /// memory by turns. What lies in page-locked memory is copied from there.
    fn send<'a>(
        &mut self,
        turn: usize,
        chunk: Range<usize>,
        (site, lender): (&Site<E>, &Lender<'a, E>),
        systems: Systems<'a, T>,
        items: &[u32],
        (b, x): (&'a [T], &[T]),
    ) -> Result<(), SolveError> {
        let Self { chunks, plans, uploads, downloads, device, host, cost } = self;
        let items = &items[chunk.clone()];
        let (plan_count, device_count, host_count) = (plans.len(), device.len(), host.len());
        let plan = &mut plans[turn % plan_count];
        let device = &mut device[turn % device_count];
        let host = &mut host[turn % host_count];
        // Recorded before the launches, so that they are waited for even after an error.
        host.running = Some(chunk);
        let (used, rows) = (systems.rows_len(items), device.b.len());
        match lent(lender, systems.whole_values(items), &device.values) {
            Some(values) => lender.copy(values, &mut device.values)?,
            None => {
                systems.values_into(items, host.values.as_mut_slice()?);
                uploads.copy_from_pinned(&host.values, &mut device.values)?;
            }
        }
        match lent(lender, systems.whole_rows(items).map(|rows| &b[rows]), &device.b) {
            Some(b) => lender.copy(b, &mut device.b)?,
            None => {
                let pinned = &mut host.b.as_mut_slice()?[..rows];
                fill(pinned, used, |to| systems.gather_into(items, b, to));
                uploads.copy_from_pinned(&host.b, &mut device.b)?;
            }
        }
        let guess = if systems.is_zero(items, x) { Guess::Zero } else { Guess::InX };
        if guess == Guess::InX {
            fill(&mut host.x.as_mut_slice()?[..rows], used, |to| systems.gather_into(items, x, to));
            uploads.copy_from_pinned(&host.x, &mut device.x)?;
        }
        if plan_count < chunks.len() && site.options.has_own_limits() {
            let mut of = items.to_vec();
            of.resize(chunks[0].len(), items[items.len() - 1]);
            plan.replace_limits(&site.executor, &options_of(&site.options, &of))?;
        }
        site.executor.join(std::slice::from_ref(uploads))?;
        plan.plan.count_ended(systems.wanted_of(items));
        plan.solve(false, (&device.values, &device.b), guess, &mut device.x)?;
        host.histories = plan.plan.histories();
        if site.asks_for_products() {
            *cost = ProductCost::together([cost.take(), plan.plan.product_cost()?]);
        }
        // Before the next solve, which may write to the same memory.
        plan.plan.outcome_arrays().start_download(&site.executor, &mut host.outcomes)?;
        site.executor.fork(std::slice::from_ref(downloads))?;
        downloads.copy_to_pinned(&device.x, &mut host.x)?;
        Ok(())
    }

    /// Waits for the chunk that occupies the host memory of a later one, if any, and stores the
    /// results of its wanted systems.
    fn receive(
        &mut self,
        later: usize,
        systems: Systems<'_, T>,
        items: &[u32],
        target: PartResults<'_, T>,
    ) -> Result<(), SolveError> {
        let number = later % self.host.len();
        let host = &mut self.host[number];
        let Some(chunk) = host.running.clone() else {
            return Ok(());
        };
        let items = &items[chunk];
        // All are read before anything is stored: x stays a guess where one of them fails.
        let solved = host.outcomes.read()?;
        systems.scatter_from(items, host.x.as_slice()?, target.x);
        host.running = None;
        let histories = &host.histories;
        let outcome = |place: usize| Outcome {
            history: histories.get(place).cloned().unwrap_or_default(),
            ..solved.outcome(place)
        };
        systems.take_outcomes(items, outcome, target.outcomes);
        Ok(())
    }
}

impl<E: Executor, T: Value> OnDevice<E, T> {
    fn new(executor: &E, lens: Lens) -> Result<Self, SolveError> {
        let (values, b) = (executor.alloc(lens.values)?, executor.alloc(lens.rows)?);
        Ok(Self { values, b, x: executor.alloc(lens.rows)? })
    }
}

impl<E: Executor, T: Value> OnHost<E, T> {
    fn new(executor: &E, lens: Lens) -> Result<Self, SolveError> {
        Ok(Self {
            values: executor.alloc_pinned(lens.values)?,
            b: executor.alloc_pinned(lens.rows)?,
            x: executor.alloc_pinned(lens.rows)?,
            outcomes: PinnedOutcomes::new(executor, lens.systems)?,
            histories: Vec::new(),
            running: None,
        })
    }
}

/// Values that the lender takes and that fill a buffer.
fn lent<'a, E: Executor, T: Value>(
    lender: &Lender<'a, E>,
    values: Option<&'a [T]>,
    buffer: &E::Buffer<T>,
) -> Option<&'a [T]> {
    values.filter(|values| values.len() == buffer.len() && lender.takes(values))
}

/// Fills the first `used` values by `first` and the rest with 0, so that the remaining systems end
/// at once.
fn fill<T: Value>(values: &mut [T], used: usize, first: impl FnOnce(&mut [T])) {
    let (rows, rest) = values.split_at_mut(used);
    first(rows);
    rest.fill(T::ZERO);
}

impl<T: Value> Systems<'_, T> {
    /// Stores the outcomes of wanted systems; `outcome` maps the place of a system to its outcome.
    pub(super) fn take_outcomes(
        &self,
        items: &[u32],
        outcome: impl Fn(usize) -> Outcome + Sync,
        outcomes: &mut [Option<Outcome>],
    ) {
        let nrhs = self.nrhs;
        if let (None, Some(run)) = (self.wanted, super::staging::run(items)) {
            let range = self.place(run.start * nrhs)..self.place(run.end * nrhs);
            let count = range.len();
            let taken = outcomes[range].par_iter_mut().enumerate().with_min_len(1 << 12);
            taken.for_each(|(place, taken)| *taken = Some(outcome(place)));
            return self.count(count);
        }
        let mut count = 0;
        for place in 0..items.len() * nrhs {
            let system = items[place / nrhs] as usize * nrhs + place % nrhs;
            if self.wants(system) {
                outcomes[self.place(system)] = Some(outcome(place));
                count += 1;
            }
        }
        self.count(count);
    }
}
