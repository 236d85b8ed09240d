//! Where a batch is solved: [`Backend`].

use sparsebatch_cuda::Device;

/// Where a batch is solved. By itself `Backend::Cpu` does not tell its type:
/// `let backend: Backend = Backend::Cpu`.
///
/// # Examples
/// ```no_run
/// use sparsebatch_formats::{Batch, Csr};
/// use sparsebatch_solvers::{Backend, BatchSolver, Gpu, SolveOptions};
/// use sparsebatch_cuda::Device;
/// let a = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![2.0])?;
/// let batch = Batch::from(a);
/// // The same solve by one argument: on the first GPU, or on the CPU where there is none.
/// let backend = match Device::new(0) {
///     Ok(device) => Backend::Gpu(Gpu { or_cpu: true, ..Gpu::new(device) }),
///     Err(_) => Backend::Cpu,
/// };
/// let mut x = [0.0f64];
/// let report = BatchSolver::on(&backend, &batch, &SolveOptions::default())?
///     .solve(&batch, &[4.0], &mut x)?;
/// assert!(report.all_converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub enum Backend<E = Device> {
    /// All cores of rayon's current pool.
    Cpu,
    /// A GPU.
    Gpu(Gpu<E>),
}

/// A GPU, and how solves use it.
#[derive(Clone, Debug)]
pub struct Gpu<E = Device> {
    /// What runs the kernels.
    pub executor: E,
    /// Whether the CPU solves what the GPU cannot; [`BatchReport::runs`](crate::BatchReport::runs)
    /// says what and why. Otherwise that is refused with
    /// [`SolveError::Unsupported`](crate::SolveError::Unsupported), but for later rungs of the ladder,
    /// which the CPU takes in any case.
    pub or_cpu: bool,
    /// Whether a batch that does not fit in the GPU's memory is solved nevertheless, with some of its
    /// pieces there at a time. Otherwise it is refused before anything is launched, with
    /// [`GpuError::OutOfMemory`](sparsebatch_cuda::GpuError::OutOfMemory).
    pub in_chunks: bool,
    /// The most bytes of device memory that a solve takes; all that is free when absent.
    pub memory_limit: Option<u64>,
    /// How large batches go through the GPU.
    pub pieces: Pieces,
}

/// The pieces in which systems of one pattern go through a GPU: while one is solved, the next is copied
/// there and the last one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Bytes of values, right-hand sides and solutions of a piece, about. Default: an eighth of the
    /// batch, 8 to 64 MiB; batches of up to 8 MiB stay whole.
    pub bytes: Option<u64>,
    /// Pieces that the GPU holds at a time, at least 1.
    pub at_once: usize,
}

impl Default for Pieces {
    fn default() -> Self {
        Self { bytes: None, at_once: 3 }
    }
}

impl<E> Gpu<E> {
    /// The GPU alone, and a batch at once.
    pub fn new(executor: E) -> Self {
        let pieces = Pieces::default();
        Self { executor, or_cpu: false, in_chunks: false, memory_limit: None, pieces }
    }
}
