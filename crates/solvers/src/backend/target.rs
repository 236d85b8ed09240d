//! Where a batch is solved: [`Backend`].

use sparsebatch_cuda::{Device, DeviceModel, GpuError};
use sparsebatch_solve_core::ArgumentError;

use crate::{GpuExecutor, SolveError};

/// Where a batch is solved. By itself `Backend::Cpu` does not tell its type:
/// `let backend: Backend = Backend::Cpu`.
///
/// # Examples
/// ```no_run
/// use sparsebatch_formats::{Batch, Csr};
/// use sparsebatch_solvers::{Backend, BatchSolver, SolveOptions};
/// let a = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![2.0])?;
/// let batch = Batch::from(a);
/// // The same solve by one argument: on the first GPU, or on the CPU where there is none.
/// let backend = Backend::auto();
/// let mut x = [0.0f64];
/// let report = BatchSolver::on(&backend, &batch, &SolveOptions::default())?
///     .solve(&batch, &[4.0], &mut x)?;
/// assert!(report.all_converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Backend<E = Device> {
    /// All cores of rayon's current pool.
    Cpu,
    /// A GPU.
    Gpu(Gpu<E>),
    /// Several GPUs; see [`Backend::gpus`].
    Gpus(Gpus<E>),
}

impl Backend {
    /// The first GPU, with the CPU for systems that it does not support and chunks for batches that
    /// do not fit; the CPU on all cores if there is no usable GPU. `Device::new(0)` says why there
    /// is none.
    pub fn auto() -> Self {
        match Device::new(0) {
            Ok(device) => Self::Gpu(Gpu::new(device).or_cpu(true).in_chunks(true)),
            Err(_) => Self::Cpu,
        }
    }
}

impl<E: GpuExecutor> Backend<E> {
    /// Several GPUs of this process, each with a thread of its own, for batches in the memory of
    /// the host. One GPU is the same as [`Backend::Gpu`].
    ///
    /// Solutions and outcomes have the bits that they have on one of these GPUs, whatever their
    /// number and whichever solves a system. Where they are of different models all plan as for the
    /// least of each limit, as [`Backend::pinned`] does; [`PlanPin::of`](crate::PlanPin::of) tells
    /// it.
    ///
    /// A batch of one pattern goes to whichever GPU is free, chunk by chunk; a ragged batch is cut
    /// into pieces of equal estimated cost. A GPU that fails, or has no memory left, leaves its
    /// systems to the others, and [`GpuRun::lost`](crate::GpuRun::lost) says why. Products that
    /// were asked for ([`Engine::Composed`](crate::Engine::Composed)) run on one GPU.
    ///
    /// # Errors
    /// [`SolveError::Argument`] for no GPU, and for settings that differ in more than the
    /// [memory](Gpu::memory_limit).
    ///
    /// # Examples
    /// ```no_run
    /// use sparsebatch_cuda::Device;
    /// use sparsebatch_solvers::{Backend, Gpu};
    /// let gpus = [0, 1].map(|ordinal| Device::new(ordinal).map(Gpu::new));
    /// let backend = Backend::gpus(gpus.into_iter().collect::<Result<_, _>>()?)?;
    /// # let _ = backend;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gpus(gpus: Vec<Gpu<E>>) -> Result<Self, SolveError> {
        let refused = |expected, found: String| {
            SolveError::Argument(ArgumentError::OutOfRange { name: "gpus", expected, found })
        };
        let Some(first) = gpus.first() else {
            return Err(refused("at least one GPU", "none".to_owned()));
        };
        let settings = |gpu: &Gpu<E>| (gpu.or_cpu, gpu.in_chunks, gpu.chunks);
        if let Some(other) = gpus.iter().position(|gpu| settings(gpu) != settings(first)) {
            let found = format!("others for GPU {other} of the list than for GPU 0");
            return Err(refused("the same or_cpu, in_chunks and chunks for all GPUs", found));
        }
        if let [gpu] = &gpus[..] {
            return Ok(Self::Gpu(gpu.clone()));
        }
        let models = gpus.iter().map(|gpu| gpu.executor.info().model());
        let least = models.reduce(|one, other| one.least(&other));
        let gpus = Gpus { gpus };
        Ok(Self::Gpus(match least {
            Some(model) => gpus.planned_as(&model)?,
            None => gpus,
        }))
    }
}

/// Several GPUs on which a batch is solved together; made by [`Backend::gpus`].
#[derive(Clone, Debug)]
pub struct Gpus<E = Device> {
    /// At least two, which plan as one model.
    gpus: Vec<Gpu<E>>,
}

impl<E> Gpus<E> {
    /// The GPUs, at least two.
    pub fn each(&self) -> &[Gpu<E>] {
        &self.gpus
    }
}

impl<E: GpuExecutor> Gpus<E> {
    /// The same GPUs with the limits of a model.
    pub(crate) fn planned_as(&self, model: &DeviceModel) -> Result<Self, GpuError> {
        let planned = |gpu: &Gpu<E>| {
            let executor = gpu.executor.planned_as(model)?;
            Ok(Gpu { executor, ..gpu.clone() })
        };
        Ok(Self { gpus: self.gpus.iter().map(planned).collect::<Result<_, GpuError>>()? })
    }
}

/// A GPU, and how solves use it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Gpu<E = Device> {
    /// The executor of the kernels.
    pub executor: E,
    /// Whether the CPU solves systems that the GPU does not support;
    /// [`BatchReport::runs`](crate::BatchReport::runs) says which and why. Otherwise they are
    /// refused with [`SolveError::Unsupported`](crate::SolveError::Unsupported). Later rungs of the
    /// ladder may use the CPU in either case.
    pub or_cpu: bool,
    /// Whether a batch that does not fit in the GPU's memory is solved in chunks, with some of them
    /// on the GPU at a time. Otherwise it is refused before anything is launched, with
    /// [`GpuError::OutOfMemory`](sparsebatch_cuda::GpuError::OutOfMemory).
    pub in_chunks: bool,
    /// The most bytes of device memory that a solve takes. Default: all free memory.
    pub memory_limit: Option<u64>,
    /// How large batches go through the GPU.
    pub chunks: Chunks,
}

/// The chunks in which systems of one pattern go through a GPU: while one is solved, the next one
/// is copied to the GPU and the previous one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunks {
    /// Approximate bytes of values, right-hand sides and solutions of a chunk. Default: an eighth
    /// of the batch, 8 to 64 MiB; batches of up to 8 MiB stay whole. Systems that iterate together
    /// over products go in chunks as large as the memory allows.
    pub bytes: Option<u64>,
    /// Chunks that the GPU holds at a time, at least 1.
    pub at_once: usize,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { bytes: None, at_once: 3 }
    }
}

impl Chunks {
    /// Sets the bytes of a chunk.
    #[must_use]
    pub fn bytes(self, bytes: impl Into<Option<u64>>) -> Self {
        Self { bytes: bytes.into(), ..self }
    }

    /// Sets the chunks that the GPU holds at a time.
    #[must_use]
    pub fn at_once(self, at_once: usize) -> Self {
        Self { at_once, ..self }
    }
}

impl<E> Gpu<E> {
    /// The GPU alone, and a batch at once.
    pub fn new(executor: E) -> Self {
        let chunks = Chunks::default();
        Self { executor, or_cpu: false, in_chunks: false, memory_limit: None, chunks }
    }

    /// Sets whether the CPU solves what the GPU cannot. What later rungs of the ladder and dense
    /// elimination leave goes there in any case, and the report says so.
    #[must_use]
    pub fn or_cpu(self, or_cpu: bool) -> Self {
        Self { or_cpu, ..self }
    }

    /// Sets whether a batch that does not fit goes through the GPU in chunks.
    #[must_use]
    pub fn in_chunks(self, in_chunks: bool) -> Self {
        Self { in_chunks, ..self }
    }

    /// Sets the most bytes of device memory that a solve takes, or takes the limit away.
    #[must_use]
    pub fn memory_limit(self, bytes: impl Into<Option<u64>>) -> Self {
        Self { memory_limit: bytes.into(), ..self }
    }

    /// Sets how large batches go through the GPU.
    #[must_use]
    pub fn chunks(self, chunks: Chunks) -> Self {
        Self { chunks, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_the_gpu_where_there_is_one() {
        match (Backend::auto(), Device::new(0)) {
            (Backend::Gpu(gpu), Ok(_)) => assert!(gpu.or_cpu && gpu.in_chunks),
            (backend, device) => assert!(matches!(backend, Backend::Cpu) && device.is_err()),
        }
    }
}
