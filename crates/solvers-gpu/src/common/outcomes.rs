//! Inputs and results of the kernels for each system: [`Limits`] and [`Outcomes`].

use std::fmt;
use std::sync::Arc;

use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, PinnedValues, Pod};
use sparsebatch_solve_core::{
    ArgumentError, Criteria, Outcome, PerSystem, Status, check_len, is_stopped,
};

use super::items::{ItemArray, ItemList, Span, SpanList, check_ascending};
use crate::GpuSolveError;

/// Tolerances and limits on the device.
pub struct Limits<E: Executor> {
    criteria: Criteria,
    rel_tols: Option<E::Buffer<f64>>,
    abs_tols: Option<E::Buffer<f64>>,
    max_iters: Option<E::Buffer<u32>>,
}

impl<E: Executor> Limits<E> {
    /// Uploads the limits that are given per system.
    pub(crate) fn new(executor: &E, criteria: Criteria) -> Result<Self, GpuError> {
        Ok(Self {
            rel_tols: upload_each(executor, &criteria.rel_tol)?,
            abs_tols: upload_each(executor, &criteria.abs_tol)?,
            max_iters: upload_each(executor, &criteria.max_iters)?,
            criteria,
        })
    }

    /// Takes other limits, for as many systems. Allocates only for a limit that is given per system
    /// for the first time; memory that a recorded graph reads stays and holds the new limits.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when a limit has another length; what the device reports.
    pub(crate) fn replace(
        &mut self,
        executor: &E,
        criteria: Criteria,
    ) -> Result<(), GpuSolveError> {
        // All fit before any is overwritten.
        check_each("rel_tol", &criteria.rel_tol, &self.rel_tols)?;
        check_each("abs_tol", &criteria.abs_tol, &self.abs_tols)?;
        check_each("max_iters", &criteria.max_iters, &self.max_iters)?;
        overwrite(executor, &criteria.rel_tol, &mut self.rel_tols)?;
        overwrite(executor, &criteria.abs_tol, &mut self.abs_tols)?;
        overwrite(executor, &criteria.max_iters, &mut self.max_iters)?;
        self.criteria = criteria;
        Ok(())
    }

    /// Appends the kernels' struct `SystemLimits` (solver.cuh).
    pub(crate) fn pass(&self, args: &mut Args<'_>) {
        let criteria = &self.criteria;
        let counts = [of_all(&criteria.max_iters), criteria.max_restarts];
        args.structure([
            of_all(&criteria.rel_tol).to_bits(),
            address(&self.rel_tols),
            of_all(&criteria.abs_tol).to_bits(),
            address(&self.abs_tols),
            address(&self.max_iters),
            criteria.floor.unwrap_or(-1.0).to_bits(),
            u64::from(counts[0]) | u64::from(counts[1]) << 32,
        ]);
    }

    /// Counts systems that have ended.
    pub(crate) fn count(&self, ended: u32) {
        if let Some(watch) = self.criteria.watch.as_ref().filter(|_| ended > 0) {
            watch.add(ended as usize);
        }
    }

    /// Whether the solve was asked to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        is_stopped(&self.criteria.watch)
    }

    /// Whether the rounding floor may accept systems.
    pub(crate) fn has_floor(&self) -> bool {
        self.criteria.floor.is_some()
    }

    /// Bytes on the device, for each system.
    pub(crate) fn bytes_a_system(&self) -> usize {
        let each = |there: bool, size: usize| if there { size } else { 0 };
        each(self.rel_tols.is_some(), 8)
            + each(self.abs_tols.is_some(), 8)
            + each(self.max_iters.is_some(), 4)
    }
}

/// The value that all systems share, or 0 if it is given per system.
fn of_all<V: Copy + Default>(limit: &PerSystem<V>) -> V {
    match limit {
        PerSystem::All(value) => *value,
        PerSystem::Each(_) => V::default(),
    }
}

fn upload_each<E: Executor, V: Pod>(
    executor: &E,
    limits: &PerSystem<V>,
) -> Result<Option<E::Buffer<V>>, GpuError> {
    match limits {
        PerSystem::All(_) => Ok(None),
        PerSystem::Each(each) => executor.upload(each).map(Some),
    }
}

/// Refuses limits of another number of systems than before.
fn check_each<V: Pod>(
    what: &'static str,
    limits: &PerSystem<V>,
    before: &Option<impl KernelBuffer<V>>,
) -> Result<(), ArgumentError> {
    match (limits, before) {
        (PerSystem::Each(each), Some(before)) => check_len(what, before.len(), each.len()),
        _ => Ok(()),
    }
}

/// Overwrites limits on the device; those given per system for the first time are uploaded.
fn overwrite<E: Executor, V: Pod>(
    executor: &E,
    limits: &PerSystem<V>,
    buffer: &mut Option<E::Buffer<V>>,
) -> Result<(), GpuError> {
    match (limits, &mut *buffer) {
        (PerSystem::Each(each), Some(buffer)) => executor.copy_from_host(each, buffer),
        (PerSystem::All(limit), Some(buffer)) => {
            let each = vec![*limit; buffer.len()];
            executor.copy_from_host(&each, buffer)
        }
        (limits, None) => {
            *buffer = upload_each(executor, limits)?;
            Ok(())
        }
    }
}

/// The address of an array, or null.
fn address<V: Pod>(buffer: &Option<impl KernelBuffer<V>>) -> u64 {
    buffer.as_ref().map_or(0, KernelBuffer::raw)
}

/// One entry per system, written by kernels.
pub struct Outcomes<E: Executor> {
    status: E::Buffer<u8>,
    iterations: E::Buffer<u32>,
    /// Twice the restarts, plus 1 where the rounding floor accepted the system.
    restarts: E::Buffer<u32>,
    residual_norm: E::Buffer<f64>,
    rhs_norm: E::Buffer<f64>,
    /// All of them in one array, which a [`Confirmer`](super::Confirmer) writes.
    packed: Option<E::Buffer<u64>>,
}

/// How each system of the last solve ended, on the device: item by item, within an item by
/// right-hand sides. Written by the solve, in the order of launches.
pub struct DeviceOutcomes<'a, E: Executor> {
    /// Indices into [`Status::ALL`].
    pub statuses: &'a E::Buffer<u8>,
    /// Iterations.
    pub iterations: &'a E::Buffer<u32>,
    /// Twice the restarts, plus 1 where the rounding floor accepted the system.
    pub restarts: &'a E::Buffer<u32>,
    /// Norms of the true residuals.
    pub residual_norms: &'a E::Buffer<f64>,
    /// Norms of the right-hand sides.
    pub rhs_norms: &'a E::Buffer<f64>,
}

impl<E: Executor> Outcomes<E> {
    /// The arrays on the device.
    pub fn on_device(&self) -> DeviceOutcomes<'_, E> {
        DeviceOutcomes {
            statuses: &self.status,
            iterations: &self.iterations,
            restarts: &self.restarts,
            residual_norms: &self.residual_norm,
            rhs_norms: &self.rhs_norm,
        }
    }

    /// Bytes on the device, for each system.
    pub const BYTES_A_SYSTEM: usize = 25;

    /// Allocates the outcomes of `systems` systems.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub fn new(executor: &E, systems: usize) -> Result<Self, GpuError> {
        Ok(Self {
            status: executor.alloc_zeroed(systems)?,
            iterations: executor.alloc_zeroed(systems)?,
            restarts: executor.alloc_zeroed(systems)?,
            residual_norm: executor.alloc_zeroed(systems)?,
            rhs_norm: executor.alloc_zeroed(systems)?,
            packed: None,
        })
    }

    /// Lets confirmations write all outcomes to one array too, which is copied to the host at once.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub fn keep_packed(&mut self, executor: &E) -> Result<(), GpuError> {
        if self.packed.is_none() {
            self.packed = Some(executor.alloc_zeroed(packed_words(self.systems()))?);
        }
        Ok(())
    }

    /// The packed outcomes, if they are kept.
    pub(super) fn packed(&self) -> Option<&E::Buffer<u64>> {
        self.packed.as_ref()
    }

    /// Bytes of the packed outcomes on the device.
    pub fn packed_bytes(&self) -> u64 {
        self.packed.as_ref().map_or(0, |packed| 8 * packed.len() as u64)
    }

    /// Overwrites the outcomes of some systems, in ascending order. Waits.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a system that there is not or that does not follow the one
    /// before; [`GpuSolveError::Gpu`] when memory or compiler fail.
    pub fn overwrite(
        &mut self,
        executor: &E,
        systems: &[usize],
        outcomes: &[Outcome],
    ) -> Result<(), GpuSolveError>
    where
        E: Clone,
    {
        check_ascending("systems", systems.iter().copied(), self.systems())?;
        check_len("outcomes", systems.len(), outcomes.len())?;
        let span = |(place, &system)| Span { from: place..place + 1, to: system };
        let spans: Vec<Span> = systems.iter().enumerate().map(span).collect();
        let spans = SpanList::new(executor, &spans)?;
        let each = |outcome: &Outcome| outcome.restarts << 1 | u32::from(outcome.accepted_by_floor);
        let statuses: Vec<u8> = outcomes.iter().map(|outcome| outcome.status as u8).collect();
        let iterations: Vec<u32> = outcomes.iter().map(|outcome| outcome.iterations).collect();
        let restarts: Vec<u32> = outcomes.iter().map(each).collect();
        let norms = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).collect::<Vec<f64>>();
        let status = executor.upload(&statuses)?;
        let (iterations, restarts) = (executor.upload(&iterations)?, executor.upload(&restarts)?);
        let residual_norm = executor.upload(&norms(|outcome| outcome.residual_norm))?;
        let rhs_norm = executor.upload(&norms(|outcome| outcome.rhs_norm))?;
        spans.copy(&status, &mut self.status)?;
        spans.copy(&iterations, &mut self.iterations)?;
        spans.copy(&restarts, &mut self.restarts)?;
        spans.copy(&residual_norm, &mut self.residual_norm)?;
        spans.copy(&rhs_norm, &mut self.rhs_norm)?;
        // What was uploaded must outlive the launches.
        Ok(executor.synchronize()?)
    }

    /// Overwrites the outcomes of some items by those of `part`, which has only these. Returns before
    /// the launches are done.
    ///
    /// # Errors
    /// As [`ItemList::unpack`].
    pub(crate) fn take_part(&mut self, list: &ItemList<E>, part: &Self) -> Result<(), GpuSolveError>
    where
        E: Clone,
    {
        list.unpack(ItemArray::Systems, &part.status, &mut self.status)?;
        list.unpack(ItemArray::Systems, &part.iterations, &mut self.iterations)?;
        list.unpack(ItemArray::Systems, &part.restarts, &mut self.restarts)?;
        list.unpack(ItemArray::Systems, &part.residual_norm, &mut self.residual_norm)?;
        list.unpack(ItemArray::Systems, &part.rhs_norm, &mut self.rhs_norm)
    }

    /// The number of systems.
    pub fn systems(&self) -> usize {
        self.status.len()
    }

    /// Appends the kernels' struct `SystemOutcomes` (solver.cuh).
    pub(crate) fn pass<'a>(&'a mut self, args: &mut Args<'a>) {
        args.structure([
            self.status.raw(),
            self.iterations.raw(),
            self.restarts.raw(),
            self.residual_norm.raw(),
            self.rhs_norm.raw(),
        ]);
    }

    /// The norms of residuals, as far as they are written. Waits for the solve.
    pub fn residual_norms(&self, executor: &E) -> Result<Vec<f64>, GpuError> {
        executor.download(&self.residual_norm)
    }

    /// How each system ended. Waits for the solve.
    pub fn download(&self, executor: &E) -> Result<Vec<Outcome>, GpuError> {
        let (status, iterations) =
            (executor.download(&self.status)?, executor.download(&self.iterations)?);
        let (restarts, residual_norm) =
            (executor.download(&self.restarts)?, executor.download(&self.residual_norm)?);
        let rhs_norm = executor.download(&self.rhs_norm)?;
        let ended = OutcomeSlices {
            status: &status,
            iterations: &iterations,
            restarts: &restarts,
            residual_norm: &residual_norm,
            rhs_norm: &rhs_norm,
        };
        Ok(ended.outcomes().collect())
    }

    /// Starts to copy all outcomes to `host`, in order after the solve, and returns.
    pub fn start_download(
        &self,
        executor: &E,
        host: &mut PinnedOutcomes<E>,
    ) -> Result<(), GpuError> {
        executor.copy_to_pinned(&self.status, &mut host.status)?;
        executor.copy_to_pinned(&self.iterations, &mut host.iterations)?;
        executor.copy_to_pinned(&self.restarts, &mut host.restarts)?;
        executor.copy_to_pinned(&self.residual_norm, &mut host.residual_norm)?;
        executor.copy_to_pinned(&self.rhs_norm, &mut host.rhs_norm)
    }
}

/// Words that hold the outcomes of `systems` systems: two norms, two counts and a byte each.
fn packed_words(systems: usize) -> usize {
    3 * systems + systems.div_ceil(8)
}

/// [`Outcomes`] in pinned host memory, for asynchronous copies.
pub struct PinnedOutcomes<E: Executor> {
    status: E::Pinned<u8>,
    iterations: E::Pinned<u32>,
    restarts: E::Pinned<u32>,
    residual_norm: E::Pinned<f64>,
    rhs_norm: E::Pinned<f64>,
}

impl<E: Executor> PinnedOutcomes<E> {
    /// Allocates host memory for `systems` systems.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub fn new(executor: &E, systems: usize) -> Result<Self, GpuError> {
        Ok(Self {
            status: executor.alloc_pinned(systems)?,
            iterations: executor.alloc_pinned(systems)?,
            restarts: executor.alloc_pinned(systems)?,
            residual_norm: executor.alloc_pinned(systems)?,
            rhs_norm: executor.alloc_pinned(systems)?,
        })
    }

    /// Waits for the copies and returns their data.
    pub fn read(&self) -> Result<OutcomeSlices<'_>, GpuError> {
        Ok(OutcomeSlices {
            status: self.status.as_slice()?,
            iterations: self.iterations.as_slice()?,
            restarts: self.restarts.as_slice()?,
            residual_norm: self.residual_norm.as_slice()?,
            rhs_norm: self.rhs_norm.as_slice()?,
        })
    }
}

/// Host memory for the packed outcomes of the solves of a plan.
pub struct OutcomeMemory<E: Executor> {
    /// What reports read where it is: those of two solves, so that one may be in use while the next
    /// solve ends.
    lent: [Option<Arc<E::Pinned<u64>>>; 2],
    /// Copied from for a further report.
    own: Option<E::Pinned<u64>>,
}

impl<E: Executor> Default for OutcomeMemory<E> {
    fn default() -> Self {
        Self { lent: [None, None], own: None }
    }
}

impl<E: Executor> OutcomeMemory<E> {
    /// Copies `packed` to the host, and waits for it.
    fn read(&mut self, executor: &E, packed: &E::Buffer<u64>) -> Result<Arc<Words>, GpuError> {
        for lent in &mut self.lent {
            let pinned = match lent {
                Some(pinned) => pinned,
                none => none.insert(Arc::new(executor.alloc_pinned(packed.len())?)),
            };
            if let Some(to) = Arc::get_mut(pinned) {
                executor.copy_to_pinned(packed, to)?;
                to.as_slice()?;
                let words: Arc<E::Pinned<u64>> = Arc::clone(pinned);
                return Ok(words);
            }
        }
        let own = match &mut self.own {
            Some(own) => own,
            none => none.insert(executor.alloc_pinned(packed.len())?),
        };
        executor.copy_to_pinned(packed, own)?;
        Ok(Arc::new(Copied(own.as_slice()?.to_vec())))
    }
}

/// Packed outcomes that have arrived.
type Words = dyn PinnedValues<u64> + Send + Sync;

/// Packed outcomes in memory of their own.
struct Copied(Vec<u64>);

impl PinnedValues<u64> for Copied {
    fn as_slice(&self) -> Result<&[u64], GpuError> {
        Ok(&self.0)
    }

    fn as_mut_slice(&mut self) -> Result<&mut [u64], GpuError> {
        Ok(&mut self.0)
    }
}

/// The packed outcomes of a solve on the host: norms of residuals and of right-hand sides,
/// iterations, restarts and statuses, array by array (`Packed` of confirm.cu).
#[derive(Clone)]
pub struct HostOutcomes {
    words: Arc<Words>,
    /// The systems of the arrays, and how many of the first ones count.
    systems: usize,
    len: usize,
}

impl fmt::Debug for HostOutcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.outcomes()).finish()
    }
}

// Words of statuses are 0 where all systems converged.
const _: () = assert!(Status::Converged as u8 == 0);

impl HostOutcomes {
    /// The packed outcomes of the last confirmation, copied to `memory`, where they stay until the
    /// last of their clones is dropped. Waits for the solve.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], what the device reports, and [`GpuError::InvalidArgument`] where
    /// the plan does not keep them.
    pub fn download<E: Executor>(
        executor: &E,
        outcomes: &Outcomes<E>,
        memory: &mut OutcomeMemory<E>,
    ) -> Result<Self, GpuError> {
        let packed = outcomes.packed().ok_or_else(|| GpuError::InvalidArgument {
            name: "outcomes",
            expected: "packed outcomes".to_owned(),
            found: "none".to_owned(),
        })?;
        let systems = outcomes.systems();
        Ok(Self { words: memory.read(executor, packed)?, systems, len: systems })
    }

    /// Those of the first `len` systems alone.
    #[must_use]
    pub fn of_first(self, len: usize) -> Self {
        Self { len: len.min(self.systems), ..self }
    }

    /// All words. A copy that has arrived is not waited for again.
    fn words(&self) -> &[u64] {
        self.words.as_slice().expect("the outcomes have arrived")
    }

    /// The number of systems.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// One of the counts, of which two are in a word.
    fn count(&self, number: usize) -> u32 {
        (self.words()[2 * self.systems + number / 2] >> (32 * (number % 2))) as u32
    }

    /// Whether every system converged.
    pub fn all_converged(&self) -> bool {
        let statuses = &self.words()[3 * self.systems..];
        let (whole, rest) = (self.len / 8, self.len % 8);
        statuses[..whole].iter().all(|&of_eight| of_eight == 0)
            && (rest == 0 || statuses[whole] << (64 - 8 * rest) == 0)
    }

    /// The status of a system.
    ///
    /// # Panics
    /// If there is no such system.
    pub fn status(&self, s: usize) -> Status {
        assert!(s < self.len, "there are {} systems", self.len);
        let of_eight = self.words()[3 * self.systems + s / 8];
        Status::ALL[usize::from((of_eight >> (8 * (s % 8))) as u8)]
    }

    /// How a system ended.
    pub fn outcome(&self, s: usize) -> Outcome {
        let restarts = self.count(self.systems + s);
        Outcome {
            status: self.status(s),
            iterations: self.count(s),
            restarts: restarts >> 1,
            residual_norm: f64::from_bits(self.words()[s]),
            rhs_norm: f64::from_bits(self.words()[self.systems + s]),
            accepted_by_floor: restarts & 1 != 0,
            history: Vec::new(),
        }
    }

    /// How all systems ended.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome> + '_ {
        (0..self.len).map(|system| self.outcome(system))
    }
}

/// Outcomes on the host, as the kernels wrote them.
#[derive(Clone, Copy)]
pub struct OutcomeSlices<'a> {
    status: &'a [u8],
    iterations: &'a [u32],
    restarts: &'a [u32],
    residual_norm: &'a [f64],
    rhs_norm: &'a [f64],
}

impl OutcomeSlices<'_> {
    /// The number of systems.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.status.len()
    }

    /// How all systems ended.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome> + '_ {
        (0..self.len()).map(|system| self.outcome(system))
    }

    /// The status of a system.
    pub fn status(&self, s: usize) -> Status {
        Status::ALL[usize::from(self.status[s])]
    }

    /// How a system ended.
    pub fn outcome(&self, s: usize) -> Outcome {
        Outcome {
            status: self.status(s),
            iterations: self.iterations[s],
            restarts: self.restarts[s] >> 1,
            residual_norm: self.residual_norm[s],
            rhs_norm: self.rhs_norm[s],
            accepted_by_floor: self.restarts[s] & 1 != 0,
            history: Vec::new(),
        }
    }
}
