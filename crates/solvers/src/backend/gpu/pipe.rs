//! Items on their way through the GPU in pieces: [`Pipe`].

use std::ops::Range;

use rayon::prelude::*;
use sparsebatch_cpu_ref::Outcome;
use sparsebatch_spmv_gpu::{Executor, KernelBuffer, PinnedValues, Value};

use super::part::{Site, Target};
use super::plan::{ClassPlan, has_own_limits, options_of};
use super::size::Split;
use super::staging::Systems;
use crate::SolveError;
use crate::gpu::{Guess, PinnedOutcomes};

/// A plan for the items of a piece, and memory for several pieces.
///
/// Copies to the GPU, solves, and copies back have a queue each. Pieces go through them one after the
/// other, and a piece waits for nothing but itself and what is ahead of it in a queue; the host fills
/// the memory of the next one meanwhile.
pub(super) struct Pipe<E: Executor, T: Value> {
    split: Split,
    plan: Box<dyn ClassPlan<E, T>>,
    uploads: E,
    downloads: E,
    sets: Vec<Set<E, T>>,
    /// Where the next piece goes.
    next: usize,
}

/// Memory for a piece, on the GPU and on the host.
struct Set<E: Executor, T: Value> {
    values: E::Buffer<T>,
    b: E::Buffer<T>,
    x: E::Buffer<T>,
    host: Pinned<E, T>,
    /// Which items of the part are in it.
    running: Option<Range<usize>>,
}

struct Pinned<E: Executor, T: Value> {
    values: E::Pinned<T>,
    b: E::Pinned<T>,
    x: E::Pinned<T>,
    outcomes: PinnedOutcomes<E>,
}

impl<E: Executor, T: Value> Set<E, T> {
    fn new(
        executor: &E,
        (values, rows, systems): (usize, usize, usize),
    ) -> Result<Self, SolveError> {
        Ok(Self {
            values: executor.alloc(values)?,
            b: executor.alloc(rows)?,
            x: executor.alloc(rows)?,
            host: Pinned {
                values: executor.alloc_pinned(values)?,
                b: executor.alloc_pinned(rows)?,
                x: executor.alloc_pinned(rows)?,
                outcomes: PinnedOutcomes::new(executor, systems)?,
            },
            running: None,
        })
    }
}

impl<E, T> Pipe<E, T>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: Value,
{
    /// Memory for pieces of `split`, each of so many values and rows; `plan` is for one of them.
    pub(super) fn new(
        site: &Site<E>,
        plan: Box<dyn ClassPlan<E, T>>,
        split: Split,
        (values, rows): (usize, usize),
    ) -> Result<Self, SolveError> {
        let executor = &site.executor;
        let lens = (values, rows, split.piece * site.options.nrhs);
        let sets = (0..split.at_once).map(|_| Set::new(executor, lens));
        let sets = sets.collect::<Result<_, _>>()?;
        let mut branches = executor.branches(2)?.into_iter();
        let mut branch = || branches.next().unwrap_or_else(|| executor.clone());
        Ok(Self { split, plan, uploads: branch(), downloads: branch(), sets, next: 0 })
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        let values = |set: &Set<E, T>| set.values.len() + set.b.len() + set.x.len();
        let values: usize = self.sets.iter().map(values).sum();
        (values * size_of::<T>()) as u64 + self.plan.bytes()
    }

    /// Sends all items on their way, and takes over what came out of those that are through.
    pub(super) fn run(
        &mut self,
        site: &Site<E>,
        systems: Systems<'_, T>,
        items: &[u32],
        b: &[T],
        mut target: Target<'_, T>,
    ) -> Result<(), SolveError> {
        self.abandon(site);
        let values = systems.values_len(&items[..self.split.piece]);
        if self.sets.iter().any(|set| set.values.len() != values) {
            // Shared values where there were own ones, or the reverse.
            for set in &mut self.sets {
                set.values = site.executor.alloc(values)?;
                set.host.values = site.executor.alloc_pinned(values)?;
            }
        }
        for first in (0..items.len()).step_by(self.split.piece) {
            let places = first..items.len().min(first + self.split.piece);
            let number = self.next;
            self.next = (number + 1) % self.sets.len();
            self.receive(number, systems, items, target.reborrow())?;
            self.send(number, site, systems, items, places, (b, target.x))?;
        }
        Ok(())
    }

    /// Waits for the last pieces.
    pub(super) fn finish(
        &mut self,
        systems: Systems<'_, T>,
        items: &[u32],
        mut target: Target<'_, T>,
    ) -> Result<(), SolveError> {
        for ahead in 0..self.sets.len() {
            let number = (self.next + ahead) % self.sets.len();
            self.receive(number, systems, items, target.reborrow())?;
        }
        Ok(())
    }

    /// Forgets pieces that a failed solve left behind.
    fn abandon(&mut self, site: &Site<E>) {
        if self.sets.iter().all(|set| set.running.is_none()) {
            return;
        }
        for executor in [&self.uploads, &site.executor, &self.downloads] {
            // What it met was reported, or will be by the next call.
            executor.synchronize().ok();
        }
        self.sets.iter_mut().for_each(|set| set.running = None);
    }

    /// Starts a piece: its copies, its solve, the copies of what comes out.
    fn send(
        &mut self,
        number: usize,
        site: &Site<E>,
        systems: Systems<'_, T>,
        items: &[u32],
        places: Range<usize>,
        (b, x): (&[T], &[T]),
    ) -> Result<(), SolveError> {
        let Self { plan, uploads, downloads, sets, split, .. } = self;
        let set = &mut sets[number];
        let items = &items[places.clone()];
        // From here on, so that what is started is waited for.
        set.running = Some(places);
        let host = &mut set.host;
        let used = systems.rows_len(items);
        systems.values_into(items, host.values.as_mut_slice()?);
        uploads.copy_from_pinned(&host.values, &mut set.values)?;
        fill(host.b.as_mut_slice()?, used, |rows| systems.gather_into(items, b, rows));
        uploads.copy_from_pinned(&host.b, &mut set.b)?;
        let guess = if systems.is_zero(items, x) { Guess::Zero } else { Guess::InX };
        if guess == Guess::InX {
            fill(host.x.as_mut_slice()?, used, |rows| systems.gather_into(items, x, rows));
            uploads.copy_from_pinned(&host.x, &mut set.x)?;
        }
        if has_own_limits(&site.options) {
            let mut of = items.to_vec();
            of.resize(split.piece, items[items.len() - 1]);
            plan.replace_limits(&site.executor, &options_of(&site.options, &of))?;
        }
        site.executor.join(std::slice::from_ref(uploads))?;
        plan.solve(&set.values, &set.b, guess, &mut set.x)?;
        // Ahead of the next solve, which writes to the same place.
        plan.outcome_arrays().start_download(&site.executor, &mut host.outcomes)?;
        site.executor.fork(std::slice::from_ref(downloads))?;
        downloads.copy_to_pinned(&set.x, &mut host.x)?;
        Ok(())
    }

    /// Waits for the piece of a set, if there is one, and takes over what came out of wanted systems.
    fn receive(
        &mut self,
        number: usize,
        systems: Systems<'_, T>,
        items: &[u32],
        target: Target<'_, T>,
    ) -> Result<(), SolveError> {
        let set = &mut self.sets[number];
        let Some(places) = set.running.clone() else {
            return Ok(());
        };
        let items = &items[places];
        systems.scatter_from(items, set.host.x.as_slice()?, target.x);
        let solved = set.host.outcomes.read()?;
        set.running = None;
        systems.take_outcomes(items, |place| solved.outcome(place), target.outcomes);
        Ok(())
    }
}

/// Fills the first `used` values by `first`, and the others with 0: systems that end at once.
fn fill<T: Value>(values: &mut [T], used: usize, first: impl FnOnce(&mut [T])) {
    let (rows, rest) = values.split_at_mut(used);
    first(rows);
    rest.fill(T::ZERO);
}

impl<T: Value> Systems<'_, T> {
    /// Takes over how wanted systems ended, given each one's outcome by its place.
    pub(super) fn take_outcomes(
        &self,
        items: &[u32],
        outcome: impl Fn(usize) -> Outcome + Sync,
        outcomes: &mut [Option<Outcome>],
    ) {
        let nrhs = self.nrhs;
        if let (None, Some(run)) = (self.wanted, super::staging::run(items)) {
            let range = run.start * nrhs..run.end * nrhs;
            let taken = outcomes[range].par_iter_mut().enumerate().with_min_len(1 << 12);
            return taken.for_each(|(place, taken)| *taken = Some(outcome(place)));
        }
        for place in 0..items.len() * nrhs {
            let system = items[place / nrhs] as usize * nrhs + place % nrhs;
            if self.wants(system) {
                outcomes[system] = Some(outcome(place));
            }
        }
    }
}
