//! What a rank of mpi4py asks of `sparsebatch-mpi`, which is used without MPI itself: shares, threads,
//! the GPU, and what ranks must have in common.

use pyo3::prelude::*;
use sparsebatch::PlanPin;
use sparsebatch::gpu::device::availability;
use sparsebatch_mpi::{GPU_MODEL, Place, cost, gpus_of, machine, shares, threads_among};

use crate::backend::backend;
use crate::errors::{OptionError, OrRaise};
use crate::ffi::Input;

/// The consecutive items of each rank, first and end, by the entries of each item and the iterations
/// of the last solve, if there was one. Both are arrays of int64.
#[pyfunction]
#[pyo3(name = "shares", signature = (entries, iterations, ranks))]
pub(crate) fn shares_of(
    entries: &Bound<'_, PyAny>,
    iterations: Option<&Bound<'_, PyAny>>,
    ranks: usize,
) -> PyResult<Vec<(usize, usize)>> {
    let entries = Input::<i64>::of("entries", entries)?;
    let iterations =
        iterations.map(|iterations| Input::<i64>::of("iterations", iterations)).transpose()?;
    let entries = entries.as_ref();
    let iterations = iterations.as_ref().map(AsRef::as_ref);
    if ranks == 0 || iterations.is_some_and(|iterations| iterations.len() != entries.len()) {
        return Err(OptionError::new_err("shares of no ranks, or iterations of other items"));
    }
    let cost_of = |(item, &entries): (usize, &i64)| {
        let iterations = iterations.map_or(0, |iterations| iterations[item]);
        cost(entries.max(0) as usize, u32::try_from(iterations.max(0)).unwrap_or(u32::MAX))
    };
    let costs: Vec<u64> = entries.iter().enumerate().map(cost_of).collect();
    Ok(shares(&costs, ranks).into_iter().map(|share| (share.start, share.end)).collect())
}

/// The cores that this process may run on, as the system writes them.
#[pyfunction]
pub(crate) fn own_cores() -> String {
    Place::here("").cores
}

/// The threads of this rank among all ranks, by the host and the cores of each. `None` where no
/// other rank runs on the same cores: all threads of the pool then.
#[pyfunction]
pub(crate) fn rank_threads(rank: usize, places: Vec<(String, String)>) -> PyResult<Option<usize>> {
    let all: Vec<Place> = places.into_iter().map(|(host, cores)| Place { host, cores }).collect();
    let Some(own) = all.get(rank) else {
        return Err(OptionError::new_err(format!("rank {rank} of {} ranks", all.len())));
    };
    let is_alone = all.iter().filter(|&place| place == own).count() == 1;
    Ok((!is_alone).then(|| threads_among(rank, &all)))
}

/// The first GPU of rank `local` among the `ranks` ranks of its host; `None` where there is no GPU.
#[pyfunction]
pub(crate) fn rank_gpu(local: usize, ranks: usize) -> PyResult<Option<usize>> {
    if local >= ranks {
        return Err(OptionError::new_err(format!("rank {local} of {ranks} ranks of a host")));
    }
    let gpus = availability().map_or(0, |driver| driver.device_count);
    let own = gpus_of(local, ranks, gpus);
    Ok((!own.is_empty()).then_some(own.start))
}

/// What the bits of a solve depend on beside its options: names and values.
#[pyfunction]
#[pyo3(name = "machine", signature = (place, pin=None))]
pub(crate) fn machine_of(
    place: (String, Vec<usize>),
    pin: Option<&str>,
) -> PyResult<Vec<(String, String)>> {
    let pin = pin.map(str::parse::<PlanPin>).transpose().or_raise()?;
    let described = machine(&backend(&place, pin.as_ref())?).into_iter();
    let in_python = |(name, value)| match name == GPU_MODEL {
        true => ("the model of the GPU (pin= makes plans alike)".to_owned(), value),
        false => (name, value),
    };
    Ok(described.map(in_python).collect())
}
