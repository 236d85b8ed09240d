//! Decides which items go to the GPU, all patterns at once or one after the other, and which to the
//! CPU.

use std::collections::BTreeMap;

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::{Batch, RaggedCsr};
use sparsebatch_solve_core::classes;

use super::part::{Part, Site};
use super::plan::tuning;
use crate::SolveError;
use crate::gpu::{TakenTogether, taken_together};

/// What a solve may do if the GPU cannot take the whole batch.
#[derive(Clone, Copy)]
pub(super) struct May {
    /// Whether the CPU may solve what the GPU cannot.
    pub(super) use_cpu: bool,
    /// The CPU may solve what needs more bytes of device memory than this.
    pub(super) full_beyond: Option<u64>,
    /// Whether the batch may go through the GPU in parts.
    pub(super) divide: bool,
}

impl May {
    /// Whether the CPU may solve what was refused for want of memory.
    pub(super) fn leaves_full(&self, error: &SolveError) -> bool {
        match (error, self.full_beyond) {
            (SolveError::Gpu(GpuError::OutOfMemory { needed, .. }), Some(most)) => *needed > most,
            _ => false,
        }
    }
}

/// Where the items of a batch went.
pub(super) struct Divided<E: Executor, T: Value> {
    pub(super) parts: Vec<Part<E, T>>,
    /// Items that no plan supports or that do not fit in memory, for the CPU.
    pub(super) refused: Refused,
}

impl<E: Executor, T: Value> Divided<E, T> {
    fn of(parts: Vec<Part<E, T>>) -> Self {
        Self { parts, refused: Refused::default() }
    }

    fn append(&mut self, mut other: Self) {
        self.parts.append(&mut other.parts);
        self.refused.append(other.refused);
    }
}

/// Items that plans refused.
#[derive(Clone, Default)]
pub(super) struct Refused {
    pub(super) items: Vec<u32>,
    /// The reasons, with the number of items of each.
    pub(super) reasons: BTreeMap<String, usize>,
}

impl Refused {
    fn push(&mut self, items: &[u32], error: &SolveError) {
        self.because(items, error.to_string());
    }

    pub(super) fn because(&mut self, items: &[u32], reason: String) {
        self.items.extend_from_slice(items);
        *self.reasons.entry(reason).or_default() += items.len();
    }

    pub(super) fn append(&mut self, other: Self) {
        self.items.extend(other.items);
        for (reason, items) in other.reasons {
            *self.reasons.entry(reason).or_default() += items;
        }
    }

    /// The reasons in one line; `nitems` is the size of the batch.
    pub(super) fn described(&self, nitems: usize) -> Option<String> {
        let each = self.reasons.iter();
        let each = each.map(|(why, items)| format!("{items} of {nitems} systems: {why}"));
        (!self.items.is_empty()).then(|| each.collect::<Vec<_>>().join("; "))
    }
}

/// Divides the items `only`, or all items, between the GPU and the CPU. A ragged batch is loaded as
/// one part if possible, where `is_pooled`, else the patterns that a plan takes together. Each
/// other pattern is a part. All parts are loaded at once, or in turns if memory is short and the
/// batch `may` be divided: those that iterate over products alone, if that suffices.
///
/// # Errors
/// Those of [`Part::ragged`], [`at_once`], [`in_turns`] and [`together_in_turns`].
pub(super) fn divide<E, T>(
    site: &Site<E>,
    batch: &Batch<T>,
    (only, is_pooled): (Option<&[usize]>, bool),
    budget: u64,
    may: May,
) -> Result<Divided<E, T>, SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    let classes = classes(batch, only);
    if let Batch::Ragged(ragged) = batch
        && is_pooled
        && classes.len() > 1
    {
        match Part::ragged(site, ragged, &classes, budget) {
            Ok(part) => return Ok(Divided::of(vec![part])),
            Err(error) if is_full(&error) => {
                if may.divide && are_over_products(site, batch, &classes) {
                    return together_in_turns(site, ragged, &classes, budget, may);
                }
            }
            Err(error) if is_unsupported(&error) => {
                let some = some_together(site, (batch, ragged), &classes, budget, may)?;
                if let Some(divided) = some {
                    return Ok(divided);
                }
            }
            Err(error) => return Err(error),
        }
    }
    match at_once(site, batch, &classes, budget, may) {
        Err(SolveError::Gpu(GpuError::OutOfMemory { .. })) if may.divide => {
            in_turns(site, batch, &classes, budget, may)
        }
        divided => divided,
    }
}

/// Loads those classes of a ragged batch that plans take together, a part for each plan, and the
/// others as [`at_once`] does. Returns `None` where no plan takes several, or memory is short.
///
/// # Errors
/// Those of [`Part::ragged`] and [`at_once`].
fn some_together<E, T>(
    site: &Site<E>,
    (batch, ragged): (&Batch<T>, &RaggedCsr<T>),
    classes: &[Vec<u32>],
    budget: u64,
    may: May,
) -> Result<Option<Divided<E, T>>, SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    let (info, all) = (site.executor.info(), (ragged, classes.to_vec()));
    let how = (&site.options, &tuning(None));
    let TakenTogether { groups, mut apart } = taken_together::<E, T>(info, site.scheme, all, how);
    let (mut divided, mut left, mut last) = (Divided::of(Vec::new()), budget, None);
    for some in groups {
        if some.len() < 2 {
            apart.extend(some);
        } else if are_over_products(site, batch, &some) {
            last = Some(some);
        } else {
            match Part::ragged(site, ragged, &some, left) {
                Ok(part) => {
                    left = left.saturating_sub(part.bytes());
                    divided.parts.push(part);
                }
                Err(error) if is_unsupported(&error) || is_full(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
    if divided.parts.is_empty() && last.is_none() {
        return Ok(None);
    }
    match at_once(site, batch, &apart, left, may) {
        Err(error) if is_full(&error) => return Ok(None),
        others => divided.append(others?),
    }
    let Some(some) = last else { return Ok(Some(divided)) };
    let left = budget.saturating_sub(divided.parts.iter().map(Part::bytes).sum());
    let made = match Part::ragged(site, ragged, &some, left) {
        Err(error) if is_full(&error) && may.divide => {
            // What does not fit beside the others may fit alone.
            let may = May { full_beyond: None, ..may };
            together_in_turns(site, ragged, &some, left, may)
        }
        part => part.map(|part| Divided::of(vec![part])),
    };
    match made {
        Err(error) if is_unsupported(&error) || is_full(&error) => Ok(None),
        made => {
            divided.append(made?);
            Ok(Some(divided))
        }
    }
}

/// Whether the systems of all classes iterate over products.
fn are_over_products<E, T>(site: &Site<E>, batch: &Batch<T>, classes: &[Vec<u32>]) -> bool
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    let mut patterns = classes.iter().map(|class| batch.pattern(class[0] as usize));
    patterns.all(|pattern| site.iterates_over_products::<T>(pattern))
}

/// Cuts classes that iterate together over products into parts that fit in memory by themselves,
/// and checks that they do. What is too large by itself goes to the CPU if allowed.
///
/// # Errors
/// [`GpuError::OutOfMemory`] when one class does not fit; those of [`Part::ragged`].
fn together_in_turns<E, T>(
    site: &Site<E>,
    batch: &RaggedCsr<T>,
    classes: &[Vec<u32>],
    budget: u64,
    may: May,
) -> Result<Divided<E, T>, SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    let mut divided = Divided::of(Vec::new());
    let mut waiting = vec![classes.to_vec()];
    while let Some(mut some) = waiting.pop() {
        match Part::ragged(site, batch, &some, budget) {
            Ok(mut part) => {
                part.take_turns();
                divided.parts.push(part);
            }
            Err(error) if is_full(&error) && some.len() > 1 => {
                let rest = some.split_off(some.len().div_ceil(2));
                waiting.extend([rest, some]);
            }
            // The items of one pattern may be divided, too.
            Err(error) if is_full(&error) => {
                let mut one = in_turns(site, &Batch::Ragged(batch.clone()), &some, budget, may)?;
                one.parts.iter_mut().for_each(Part::take_turns);
                divided.append(one);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(divided)
}

/// Loads all parts. Items that plans refuse are left out if the CPU may take them.
///
/// # Errors
/// [`GpuError::OutOfMemory`] when not everything fits, all values and vectors unless a batch `may`
/// be larger than that; those of
/// [`solver_for`](crate::gpu::solver_for) otherwise.
fn at_once<E, T>(
    site: &Site<E>,
    batch: &Batch<T>,
    classes: &[Vec<u32>],
    budget: u64,
    may: May,
) -> Result<Divided<E, T>, SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    let bytes = |part: &Part<E, T>| match may.divide {
        true => part.bytes_usual(site, batch),
        false => part.bytes_whole(site, batch),
    };
    let parts = parts_of(site, batch, classes);
    // So that an error can say how much memory would suffice.
    let of_all: u64 = parts.iter().map(bytes).sum();
    let of_products: Vec<u64> = parts.iter().filter(|part| part.over_products).map(bytes).collect();
    let (mut needed, mut take_turns) = (0, None);
    let load = |part: &mut Part<E, T>| {
        // They come last, and stay if all do.
        if part.over_products && may.divide {
            let all = needed + of_products.iter().sum::<u64>();
            if *take_turns.get_or_insert(all > budget) {
                part.load_within(site, batch, budget - needed)?;
                // A single part keeps its memory.
                if of_products.len() > 1 {
                    part.take_turns();
                }
                return Ok(());
            }
        }
        let bytes_of_part = bytes(part);
        if needed + bytes_of_part > budget {
            return Err(GpuError::OutOfMemory { needed: of_all, free: budget }.into());
        }
        part.load(site, batch, budget - needed)?;
        needed += part.bytes().max(bytes_of_part);
        Ok(())
    };
    let sends = |part: &Part<E, T>, error: &SolveError| {
        let is_full = part.over_products && !may.divide && may.leaves_full(error);
        (may.use_cpu && is_unsupported(error)) || is_full
    };
    divide_by(parts, load, sends)
}

/// Divides each part into chunks that fit in memory by themselves, and checks that they do. Items
/// that plans refuse, or that are too large, are left out if the CPU may take them.
///
/// # Errors
/// As [`at_once`], when one system does not fit.
fn in_turns<E, T>(
    site: &Site<E>,
    batch: &Batch<T>,
    classes: &[Vec<u32>],
    budget: u64,
    may: May,
) -> Result<Divided<E, T>, SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    let load = |part: &mut Part<E, T>| {
        part.load_within(site, batch, budget)?;
        // A single part keeps its memory.
        if classes.len() > 1 {
            part.take_turns();
        }
        Ok(())
    };
    let sends = |_: &Part<E, T>, error: &SolveError| {
        (may.use_cpu && is_unsupported(error)) || may.leaves_full(error)
    };
    divide_by(parts_of(site, batch, classes), load, sends)
}

/// A part of each class, last those that iterate over products.
fn parts_of<E, T>(site: &Site<E>, batch: &Batch<T>, classes: &[Vec<u32>]) -> Vec<Part<E, T>>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    let part = |items: &Vec<u32>| Part::new(site, batch, items.clone());
    let mut parts: Vec<Part<E, T>> = classes.iter().map(part).collect();
    parts.sort_by_key(|part| part.over_products);
    parts
}

/// Loads those parts that can be; others are left out if the CPU may solve them.
fn divide_by<E, T>(
    parts: Vec<Part<E, T>>,
    mut load: impl FnMut(&mut Part<E, T>) -> Result<(), SolveError>,
    goes_to_cpu: impl Fn(&Part<E, T>, &SolveError) -> bool,
) -> Result<Divided<E, T>, SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    let mut divided = Divided::of(Vec::new());
    for mut part in parts {
        match load(&mut part) {
            Ok(()) => divided.parts.push(part),
            Err(error) if goes_to_cpu(&part, &error) => divided.refused.push(&part.items, &error),
            Err(error) => return Err(error),
        }
    }
    Ok(divided)
}

pub(super) fn is_unsupported(error: &SolveError) -> bool {
    matches!(error, SolveError::Unsupported { .. })
}

pub(super) fn is_full(error: &SolveError) -> bool {
    matches!(error, SolveError::Gpu(GpuError::OutOfMemory { .. }))
}
