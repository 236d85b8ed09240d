//! The experiment `gpus` of the suite `solvers`: one GPU against several of the same process.
//!
//! *Host to host*: a batch in host memory, solved on one GPU and on all, copies being part of the
//! time: twice the GPUs are to take half the time. *Page-locked*: the same, with values and right-hand
//! sides in page-locked memory. *Resident*: every GPU has as many systems in its
//! memory and all solve at once: the time is to stay that of one. Both are measured in turns, one,
//! all, all, one.

use sparsebatch_cuda::device::availability;
use sparsebatch_cuda::{Device, GpuError, PageLocked};
use sparsebatch_formats::batch::Values;
use sparsebatch_formats::{Batch, BatchValues, UniformBatch};
use sparsebatch_solvers::{Backend, Gpu, Method, Preconditioner, SolveError, SolveOptions};

use super::solver_cases::SolverCase;
use super::solvers::Solvers;
use crate::BenchError;
use crate::solves::Real;
use crate::solves::resident::ResidentSolves;
use crate::solves::session::{SolveProblem, SolveSession};
use crate::solves::systems::Systems;

/// Number of different systems; a larger batch repeats them in order.
const DIFFERENT: usize = 4096;

/// The default cases.
pub(crate) const USUAL_CASES: [&str; 3] = ["tri 128", "lap2d 900", "rand9 512"];

/// Systems of a GPU where the options do not say how many.
const USUAL_SYSTEMS: usize = 100_000;

/// Name of the experiment in rows.
const NAME: &str = "gpus";

/// The GPUs that are measured together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpusExperiment {
    /// Their numbers; all GPUs when empty.
    pub ordinals: Vec<usize>,
}

impl GpusExperiment {
    /// Opens the GPUs.
    fn devices(&self) -> Result<Vec<Device>, GpuError> {
        match &self.ordinals[..] {
            [] => (0..availability()?.device_count).map(Device::new).collect(),
            ordinals => ordinals.iter().copied().map(Device::new).collect(),
        }
    }
}

/// Measures one case.
///
/// # Errors
/// For batches of several patterns; for GPUs that are not there; as [`SolveSession::gpu`].
pub(crate) fn measure<T: Real>(
    session: &mut SolveSession<'_>,
    case: &SolverCase,
    options: &Solvers,
    experiment: &GpusExperiment,
) -> Result<(), BenchError> {
    let devices = experiment.devices()?;
    let each = options.batches.first().copied().unwrap_or(USUAL_SYSTEMS);
    let some: Systems<T> =
        SolverCase { batches: vec![DIFFERENT], ..case.clone() }.systems()?.cast();
    let is_symmetric = case.is_symmetric().unwrap_or(false);
    let usual = if is_symmetric { Method::Cg } else { Method::BiCgStab };
    let solve = SolveOptions::new()
        .method(options.methods.first().copied().unwrap_or(usual))
        .preconditioner(options.preconditioners.first().copied().unwrap_or(Preconditioner::Jacobi));
    let turns = [&devices[..1], &devices[..], &devices[..], &devices[..1]];
    let systems = some.repeated(each * devices.len())?;
    let problem = SolveProblem::new(&case.name, &systems);
    host_to_host(session, &problem, &solve, turns, "host to host")?;
    let locked = lock(&devices[0], &systems)?;
    host_to_host(session, &SolveProblem::new(&case.name, &locked), &solve, turns, "page-locked")?;
    drop(locked);
    resident(session, (&case.name, &some.repeated(each)?), &solve, turns)
}

/// One batch in host memory.
fn host_to_host<T: Real>(
    session: &mut SolveSession<'_>,
    problem: &SolveProblem<'_, T>,
    options: &SolveOptions,
    turns: [&[Device]; 4],
    from: &str,
) -> Result<(), BenchError> {
    let mut times = Vec::new();
    for gpus in turns {
        let name = format!("{from}, {}", counted(gpus.len()));
        let label = (&*name, Some(NAME));
        times.push(session.end_to_end(problem, options, label, |_| on(gpus), None)?);
    }
    let line = of(turns[1], ratio(&times));
    session.note(&format!("{}: {from} {line} times as fast as 1", problem.case()))
}

/// A copy of systems of one pattern whose values and right-hand sides lie in page-locked memory.
fn lock<T: Real>(device: &Device, systems: &Systems<T>) -> Result<Systems<T>, BenchError> {
    let lock = |values: &[T]| PageLocked::new(device, values.to_vec()).map(Values::of_owner);
    let Batch::Uniform(batch) = &systems.batch else {
        return Ok(systems.clone());
    };
    let values = BatchValues::ItemMajor(lock(systems.values())?);
    let locked = UniformBatch::from_values(batch.pattern().clone(), batch.nitems(), values)?;
    Ok(Systems { batch: Batch::Uniform(locked), b: lock(&systems.b)? })
}

/// A batch in the memory of each GPU.
fn resident<T: Real>(
    session: &mut SolveSession<'_>,
    (case, systems): (&str, &Systems<T>),
    options: &SolveOptions,
    turns: [&[Device]; 4],
) -> Result<(), BenchError> {
    let problem = SolveProblem::new(case, systems);
    let mut times = Vec::new();
    for gpus in turns {
        let name = format!("resident on each, {}", counted(gpus.len()));
        let contender = || ResidentSolves::new(gpus, systems, options);
        times.push(session.resident(&problem, options, (&name, NAME), contender)?);
    }
    let line = of(turns[1], ratio(&times).map(|ratio| ratio * turns[1].len() as f64));
    session.note(&format!("{case}: resident {line} times as fast as 1"))
}

/// The backend of some GPUs.
fn on(gpus: &[Device]) -> Result<Backend, SolveError> {
    Backend::gpus(gpus.iter().cloned().map(Gpu::new).collect())
}

fn counted(gpus: usize) -> String {
    if gpus == 1 { "1 GPU".to_owned() } else { format!("{gpus} GPUs") }
}

fn of(gpus: &[Device], ratio: Option<f64>) -> String {
    let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
    format!("{} are {ratio}", counted(gpus.len()))
}

/// The mean time of the outer turns, of one GPU, over that of the inner ones; `None` where a turn
/// was not measured.
fn ratio(turns: &[Option<f64>]) -> Option<f64> {
    match *turns {
        [Some(first), Some(second), Some(third), Some(fourth)] => {
            Some((first + fourth) / (second + third))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_compared_by_their_means() {
        assert_eq!(ratio(&[Some(2.0), Some(1.0), Some(1.5), Some(3.0)]), Some(2.0));
        assert_eq!(ratio(&[Some(2.0), None, Some(1.5), Some(3.0)]), None);
        assert_eq!(of(&[], Some(1.0)), "0 GPUs are 1.000");
        assert_eq!(counted(1), "1 GPU");
    }
}
