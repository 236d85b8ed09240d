//! The experiment `chunks` of the suite `solvers`: a batch on the host, solved on the GPU, end to
//! end.
//!
//! The solve is measured three times: with the whole batch in the memory of the GPU, in the
//! library's default chunks, and in chunks with the library's memory capped.

use sparsebatch_solvers::{Backend, Chunks, Gpu, Method, Preconditioner, SolveOptions};

use super::solver_cases::{SolverCase, SystemSource};
use super::solvers::Solvers;
use crate::BenchError;
use crate::solves::Real;
use crate::solves::session::{SolveProblem, SolveSession};
use crate::solves::systems::Systems;

/// Number of different systems; a larger batch repeats them in order.
const DIFFERENT: usize = 4096;

/// The default case.
pub(crate) const USUAL_CASE: &str = "tri 128";

/// Name of the experiment in rows.
const NAME: &str = "chunks";

/// Size of the batch and of the device memory for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunksExperiment {
    /// Approximate bytes of values, right-hand sides and solutions.
    pub data_bytes: u64,
    /// Bytes of device memory that the library may take; half of the data when absent.
    pub limit_bytes: Option<u64>,
    /// The chunks in both.
    pub chunks: Chunks,
}

impl Default for ChunksExperiment {
    fn default() -> Self {
        Self { data_bytes: 512 << 20, limit_bytes: None, chunks: Chunks::default() }
    }
}

impl ChunksExperiment {
    fn limit(&self) -> u64 {
        self.limit_bytes.unwrap_or(self.data_bytes / 2)
    }

    /// Number of items that make up `data_bytes`, when `items` items take `bytes`.
    fn items(&self, bytes: u64, items: usize) -> usize {
        let items = u128::from(self.data_bytes) * items as u128 / u128::from(bytes.max(1));
        usize::try_from(items).unwrap_or(usize::MAX).max(1)
    }
}

/// Measures one case.
///
/// # Errors
/// For batches of several patterns; as [`SolveSession::gpu`].
pub(crate) fn measure<T: Real>(
    session: &mut SolveSession<'_>,
    case: &SolverCase,
    options: &Solvers,
    experiment: &ChunksExperiment,
) -> Result<(), BenchError> {
    let some: Systems<T> =
        SolverCase { batches: vec![DIFFERENT], ..case.clone() }.systems()?.cast();
    let systems = some.repeated(experiment.items(some.bytes(), some.batch.nitems()))?;
    drop(some);
    let is_symmetric = case.is_symmetric().unwrap_or(false);
    let usual = if is_symmetric { Method::Cg } else { Method::BiCgStab };
    let solve = SolveOptions::new()
        .method(options.methods.first().copied().unwrap_or(usual))
        .preconditioner(options.preconditioners.first().copied().unwrap_or(Preconditioner::Jacobi))
        .floor(matches!(case.source, SystemSource::Set(_)).then_some(super::solvers::FLOOR));
    let problem = SolveProblem::new(&case.name, &systems);
    let whole = Chunks::default().bytes(u64::MAX).at_once(1);
    let chunks = experiment.chunks;
    let gibibytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let (all, limit) = (gibibytes(systems.bytes()), gibibytes(experiment.limit()));
    session.note(&format!("{}: {all:.2} GiB on the host, {limit:.2} GiB at most", case.name))?;
    let name = ("whole", Some(NAME));
    let on = |gpu: Gpu| Ok(Backend::Gpu(gpu));
    let whole = |d| on(Gpu::new(d).chunks(whole));
    let whole = session.end_to_end(&problem, &solve, name, whole, None)?;
    // The name of the configuration in recorded rows.
    let name = ("pieces", Some(NAME));
    let fits = |d| on(Gpu::new(d).chunks(chunks));
    let fits = session.end_to_end(&problem, &solve, name, fits, None)?;
    let fitting = [whole, fits].into_iter().flatten().reduce(f64::min);
    let memory_limit = Some(experiment.limit());
    let capped =
        |device| on(Gpu::new(device).memory_limit(memory_limit).in_chunks(true).chunks(chunks));
    session.end_to_end(&problem, &solve, ("capped", Some(NAME)), capped, fitting)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_the_bytes_that_are_asked_for() {
        let chunks = ChunksExperiment { data_bytes: 16 << 30, ..ChunksExperiment::default() };

        assert_eq!(chunks.limit(), 8 << 30);
        assert_eq!(chunks.items(4096 * 1264, 4096), (16 << 30) / 1264);
        assert_eq!(ChunksExperiment { data_bytes: 1, ..chunks }.items(1 << 20, 4096), 1);
    }
}
