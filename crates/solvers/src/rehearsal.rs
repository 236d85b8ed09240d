//! The kernels that a solve needs of a GPU that is not there: [`kernels_of`].

use sparsebatch_cuda::{DeviceInfo, KernelKey, MemoryMeter};
use sparsebatch_formats::Batch;

use crate::{Backend, BatchSolver, Engine, Gpu, Rhs, SolveError, SolveOptions, SolveScalar};

/// The kernels that a solve of a batch compiles on a GPU with these limits, each once, such as to
/// compile them ahead by
/// [`DiskCache::compile_kernel`](sparsebatch_cuda::device::cache::DiskCache::compile_kernel). Needs
/// neither a GPU nor a compiler, and takes no device memory.
///
/// The analysis is that of the batch. The solve is rehearsed: its launches do nothing. So these are
/// the kernels of the first schemes; those of later rungs depend on which systems fail.
/// `or_cpu` is [`Gpu::or_cpu`].
///
/// # Errors
/// Those of [`BatchSolver::on_with_rhs`] and [`BatchSolver::solve`] on such a GPU;
/// [`SolveError::Unsupported`] for solves by [`Engine::Composed`], whose products are chosen by
/// what the GPU measures of the matrices.
///
/// # Examples
/// ```
/// use sparsebatch_cuda::DeviceInfo;
/// use sparsebatch_formats::{Batch, Csr};
/// use sparsebatch_solvers::{Method, Rhs, SolveOptions, kernels_of};
///
/// let a = Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![4.0, 1.0, 1.0, 4.0])?;
/// let h200 = DeviceInfo::known("sm_90").ok_or("no such GPU")?;
/// let rhs = Rhs { b: &[1.0, 2.0], x0: None };
/// let options = SolveOptions::new().method(Method::Cg);
/// let kernels = kernels_of(&h200, &Batch::from(a), rhs, &options, false)?;
/// assert!(kernels.iter().any(|kernel| kernel.to_string().starts_with("cg")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn kernels_of<T: SolveScalar>(
    info: &DeviceInfo,
    batch: &Batch<T>,
    rhs: Rhs<'_, T>,
    options: &SolveOptions,
    or_cpu: bool,
) -> Result<Vec<KernelKey>, SolveError> {
    T::rehearse(info, batch, rhs, options, or_cpu)
}

/// Analyses and solves on a rehearsal.
pub(crate) fn rehearse<T: SolveScalar>(
    info: &DeviceInfo,
    batch: &Batch<T>,
    rhs: Rhs<'_, T>,
    options: &SolveOptions,
    or_cpu: bool,
) -> Result<Vec<KernelKey>, SolveError> {
    let unsupported = SolveError::Unsupported {
        what: "the kernels of a composed solve before it runs: its products are chosen on the GPU",
        instead: "solve a small batch once on such a GPU",
    };
    if matches!(options.engine, Engine::Composed(_)) {
        return Err(unsupported);
    }
    let rehearsal = MemoryMeter::rehearsal(info.clone());
    let gpu = Gpu::new(rehearsal.clone()).or_cpu(or_cpu).in_chunks(true);
    let options = options.clone().fallback(false);
    let backend = Backend::Gpu(gpu);
    let mut solver = BatchSolver::on_executor(&backend, batch, Some(rhs), &options)?;
    let mut x = rhs.x0.map_or_else(|| vec![T::ZERO; rhs.b.len()], <[T]>::to_vec);
    let report = solver.solve(batch, rhs.b, &mut x)?;
    // Systems that no other solver holds.
    match report.runs.iter().any(|run| run.composed_reason.is_some()) {
        true => Err(unsupported),
        false => Ok(rehearsal.kernels()),
    }
}
