//! Which items are on the GPU, all at once or in chunks, and which go to the CPU.

use std::collections::BTreeMap;

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_formats::Batch;
use sparsebatch_spmv_gpu::{Executor, GpuError, Value};

use super::composed::composes;
use super::part::{Part, Site};
use crate::SolveError;

/// Where the items of a batch went.
pub(super) struct Divided<E: Executor, T: Value> {
    pub(super) parts: Vec<Part<E, T>>,
    /// What plans do not do, for the composed solver or the CPU.
    pub(super) refused: Refused,
    /// What does not fit in memory, for the CPU.
    pub(super) too_large: Refused,
    /// Whether parts are loaded one after the other.
    pub(super) in_turns: bool,
}

/// Items that plans refused.
#[derive(Default)]
pub(super) struct Refused {
    pub(super) items: Vec<u32>,
    /// Why, with the number of items.
    pub(super) reasons: BTreeMap<String, usize>,
}

impl Refused {
    pub(super) fn push(&mut self, items: &[u32], error: &SolveError) {
        self.items.extend_from_slice(items);
        *self.reasons.entry(error.to_string()).or_default() += items.len();
    }

    pub(super) fn append(&mut self, other: Self) {
        self.items.extend(other.items);
        for (reason, items) in other.reasons {
            *self.reasons.entry(reason).or_default() += items;
        }
    }

    /// The reasons in one line, of so many systems.
    pub(super) fn described(&self, nitems: usize) -> Option<String> {
        let each = self.reasons.iter();
        let each = each.map(|(why, items)| format!("{items} of {nitems} systems: {why}"));
        (!self.items.is_empty()).then(|| each.collect::<Vec<_>>().join("; "))
    }
}

/// Loads everything, but what plans refuse where something else may have it.
///
/// # Errors
/// [`GpuError::OutOfMemory`] when not everything fits; those of
/// [`plan_for`](super::plan::plan_for) otherwise.
pub(super) fn at_once<E, T>(
    site: &Site<E>,
    batch: &Batch<T>,
    classes: &[Vec<u32>],
    budget: u64,
    or_cpu: bool,
) -> Result<Divided<E, T>, SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    let mut needed = 0;
    let load = |part: &mut Part<E, T>| {
        let bytes = part.bytes(batch, site.options.nrhs);
        if needed + bytes > budget {
            // Of all parts, so that it is known what would do.
            let all = classes.iter().map(|items| Part::<E, T>::new(batch, items.clone()));
            let needed = all.map(|part| part.bytes(batch, site.options.nrhs)).sum();
            return Err(GpuError::OutOfMemory { needed, free: budget }.into());
        }
        part.load(site, batch)?;
        needed += bytes;
        Ok(())
    };
    let divided =
        divide_by(batch, classes, load, |error| has_other(site, or_cpu) && is_unsupported(error))?;
    Ok(Divided { in_turns: false, ..divided })
}

/// Divides everything into chunks that fit in memory, but what plans refuse where something else may
/// have it; systems that are too large are the CPU's where that is allowed.
///
/// # Errors
/// As [`at_once`], when one system does not fit.
pub(super) fn in_chunks<E, T>(
    site: &Site<E>,
    batch: &Batch<T>,
    classes: &[Vec<u32>],
    budget: u64,
    or_cpu: bool,
) -> Result<Divided<E, T>, SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    let divide = |part: &mut Part<E, T>| part.divide(site, batch, budget);
    let sends = |error: &SolveError| {
        (has_other(site, or_cpu) && is_unsupported(error)) || (or_cpu && is_full(error))
    };
    divide_by(batch, classes, divide, sends)
}

/// Makes a part of each class, but of those that cannot be loaded where something else may have them.
fn divide_by<E, T>(
    batch: &Batch<T>,
    classes: &[Vec<u32>],
    mut load: impl FnMut(&mut Part<E, T>) -> Result<(), SolveError>,
    has_other: impl Fn(&SolveError) -> bool,
) -> Result<Divided<E, T>, SolveError>
where
    E: Executor + Clone + Send + Sync + 'static,
    T: CpuScalar + Value,
{
    let (mut parts, mut refused, mut too_large) =
        (Vec::new(), Refused::default(), Refused::default());
    for items in classes {
        let mut part = Part::new(batch, items.clone());
        match load(&mut part) {
            Ok(()) => parts.push(part),
            Err(error) if has_other(&error) && is_unsupported(&error) => {
                refused.push(items, &error)
            }
            Err(error) if has_other(&error) => too_large.push(items, &error),
            Err(error) => return Err(error),
        }
    }
    Ok(Divided { parts, refused, too_large, in_turns: true })
}

/// Whether something else has what plans refuse.
fn has_other<E>(site: &Site<E>, or_cpu: bool) -> bool {
    or_cpu || composes(site)
}

pub(super) fn is_unsupported(error: &SolveError) -> bool {
    matches!(error, SolveError::Unsupported { .. })
}

pub(super) fn is_full(error: &SolveError) -> bool {
    matches!(error, SolveError::Gpu(GpuError::OutOfMemory { .. }))
}
