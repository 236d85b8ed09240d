//! What a rank of mpi4py asks of `sparsebatch-mpi`, which is used without MPI itself: shares,
//! threads, the GPU, and what ranks must have in common.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sparsebatch::PlanPin;
use sparsebatch::gpu::device::availability;
use sparsebatch_mpi::{GPU_MODEL, Place, cost, gpus_seen, machine, shares, threads_among, timed};

use crate::backend::backend;
use crate::errors::{OptionError, OrRaise};
use crate::ffi::Input;

/// The consecutive items of each rank, first and end, by their costs, an array of uint64.
#[pyfunction]
#[pyo3(name = "shares")]
pub(crate) fn shares_of(costs: &Bound<'_, PyAny>, ranks: usize) -> PyResult<Vec<(usize, usize)>> {
    if ranks == 0 {
        return Err(OptionError::new_err("shares of no ranks, expected at least 1"));
    }
    let costs = Input::<u64>::of("costs", costs)?;
    Ok(shares(costs.as_ref(), ranks).into_iter().map(|share| (share.start, share.end)).collect())
}

/// The costs of items as bytes of uint64, by the entries of each, and by the iterations of the last
/// solve and the seconds that it took this rank, if there was one. Arrays are of int64.
#[pyfunction]
#[pyo3(name = "costs", signature = (entries, iterations=None, seconds=None))]
pub(crate) fn costs_of<'py>(
    py: Python<'py>,
    entries: &Bound<'_, PyAny>,
    iterations: Option<&Bound<'_, PyAny>>,
    seconds: Option<f64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let entries = Input::<i64>::of("entries", entries)?;
    let iterations =
        iterations.map(|iterations| Input::<i64>::of("iterations", iterations)).transpose()?;
    let entries = entries.as_ref();
    let iterations = iterations.as_ref().map(AsRef::as_ref);
    if iterations.is_some_and(|iterations| iterations.len() != entries.len()) {
        return Err(OptionError::new_err("iterations are of other items than entries"));
    }
    let cost_of = |(item, &entries): (usize, &i64)| {
        let iterations = iterations.map_or(0, |iterations| iterations[item]);
        cost(entries.max(0) as usize, u32::try_from(iterations.max(0)).unwrap_or(u32::MAX))
    };
    let mut costs: Vec<u64> = entries.iter().enumerate().map(cost_of).collect();
    if let Some(seconds) = seconds {
        let time = Duration::try_from_secs_f64(seconds);
        costs = timed(&costs, time.map_err(|error| OptionError::new_err(error.to_string()))?);
    }
    let bytes: Vec<u8> = costs.into_iter().flat_map(u64::to_ne_bytes).collect();
    Ok(PyBytes::new(py, &bytes))
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

/// A name for each GPU that this process sees, which no other GPU has; none where there is no driver.
#[pyfunction]
pub(crate) fn seen_gpus() -> Vec<String> {
    availability::uuids().unwrap_or_default()
}

/// The numbers of the GPUs of rank `rank`, among those that it sees, by the host of each rank and the
/// GPUs that it sees.
#[pyfunction]
pub(crate) fn rank_gpus(
    rank: usize,
    hosts: Vec<String>,
    seen: Vec<Vec<String>>,
) -> PyResult<Vec<usize>> {
    if rank >= hosts.len() || hosts.len() != seen.len() {
        let (hosts, seen) = (hosts.len(), seen.len());
        return Err(OptionError::new_err(format!("rank {rank} of {hosts} hosts and {seen} lists")));
    }
    Ok(gpus_seen(rank, &hosts, &seen).collect())
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
