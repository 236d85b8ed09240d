//! What a rank has of a matrix on its GPU: [`GpuPart`].

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use sparsebatch_cpu_ref::Explain;
use sparsebatch_cuda::{GpuError, KernelBuffer, Value};
use sparsebatch_formats::Csr;
use sparsebatch_solvers::GpuExecutor;
use sparsebatch_solvers::gpu::CgSteps;
use sparsebatch_spmv_gpu::{
    HaloParts, HaloPlan, Incoming, Mailbox, SingleExplain, SingleKernel, SingleOptions,
};

use super::halo::Halo;
use super::matrix::Divided;
use crate::transport::Shared;
use crate::{Failure, Ranks};

/// The ranks, and what this one exchanges with them.
pub(super) type Exchange<'e> = (&'e Ranks, &'e mut Halo);

/// The parts of a matrix on the GPU of a rank, and vectors there. Whatever fails, a product exchanges
/// elements with the other ranks.
pub(super) trait GpuPart<T>: fmt::Debug {
    /// The name of the GPU.
    fn device(&self) -> String;

    /// The plans of the local and the remote part.
    fn explain(&self) -> (Explain, Option<Explain>);

    /// Whether elements are copied from GPU to GPU.
    fn is_connected(&self) -> bool;

    /// What other ranks of the process need, to copy elements from this GPU.
    fn mailbox(&self) -> Option<Shared>;

    /// Whether elements can be copied from the GPUs of all partners: what each rank has shared, and
    /// which of its bytes are for this one. If so, products do so from now on once `connect` was
    /// called.
    fn reaches(&self, halo: &Halo, shared: &[Shared]) -> bool;

    /// Copies elements from the GPUs of all partners from now on; all ranks do.
    fn connect(
        &mut self,
        halo: &Halo,
        rank: usize,
        shared: &[Shared],
        offsets: &[Option<Range<usize>>],
    );

    /// Copies x to the GPU, for [`GpuPart::multiply`].
    fn load(&mut self, x: &[T]) -> Result<(), Failure>;

    /// Copies y to the GPU.
    fn load_y(&mut self, y: &[T]) -> Result<(), Failure>;

    /// `y = alpha A x + beta y` of the vectors there, which may not be done yet on return.
    fn multiply(&mut self, exchange: Exchange<'_>, alpha: T, beta: T) -> Result<(), Failure>;

    /// Waits for the work of the GPU.
    fn wait(&self) -> Result<(), Failure>;

    /// Copies y to the host.
    fn store(&self, y: &mut [T]) -> Result<(), Failure>;

    /// Makes the vectors of CG, with x and, of a preconditioner, its diagonal.
    fn begin_cg(&mut self, x: &[T], diagonal: Option<&[T]>) -> Result<(), Failure>;

    /// Takes the residual of CG; returns `r'r` and `r'M r` of this rank.
    fn start_cg(&mut self, r: &[T]) -> Result<[f64; 2], Failure>;

    /// `w = scale A p` of CG; returns `p'w` of this rank.
    fn multiply_cg(&mut self, exchange: Exchange<'_>, scale: T) -> Result<f64, Failure>;

    /// `x += alpha p`, `r -= alpha w` of CG; returns `r'r` and `r'M r` of this rank.
    fn advance_cg(&mut self, alpha: T) -> Result<[f64; 2], Failure>;

    /// `p = M r + beta p` of CG.
    fn direct_cg(&mut self, beta: T) -> Result<(), Failure>;

    /// Copies x of CG to the host.
    fn x_of_cg(&self, x: &mut [T]) -> Result<(), Failure>;
}

/// x and y of products alone.
struct Operands<E: GpuExecutor, T: Value> {
    x: E::Buffer<T>,
    y: E::Buffer<T>,
}

/// A part on the GPU `E`.
struct OnGpu<E: GpuExecutor, T: Value> {
    executor: E,
    plan: HaloPlan<E, T>,
    size: (usize, usize),
    vectors: Option<Operands<E, T>>,
    cg: Option<CgSteps<E, T>>,
}

/// Makes the plans of a rank on its GPU.
pub(super) fn on_gpu<E: GpuExecutor, T: Value>(
    executor: &E,
    divided: &Divided<T>,
    halo: &Halo,
    options: &SingleOptions,
) -> Result<Box<dyn GpuPart<T>>, Failure> {
    let Divided { local, remote } = divided;
    let remote = remote.as_ref().map(|(remote, rows)| (Csr::view(remote), &rows[..]));
    let parts = HaloParts { local: local.view(), remote, sent: halo.places() };
    let plan = HaloPlan::new(executor, parts, options).map_err(failed)?;
    let size = (local.nrows(), local.ncols());
    Ok(Box::new(OnGpu { executor: executor.clone(), plan, size, vectors: None, cg: None }))
}

impl<E: GpuExecutor, T: Value> fmt::Debug for OnGpu<E, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnGpu").field("device", &self.executor.info().name).finish_non_exhaustive()
    }
}

impl<E: GpuExecutor, T: Value> OnGpu<E, T> {
    /// x and y of products alone.
    fn vectors(&mut self) -> Result<&mut Operands<E, T>, GpuError> {
        if self.vectors.is_none() {
            let (nrows, ncols) = self.size;
            let executor = &self.executor;
            let (x, y) = (executor.alloc_zeroed(ncols)?, executor.alloc_zeroed(nrows)?);
            self.vectors = Some(Operands { x, y });
        }
        self.vectors.as_mut().ok_or_else(no_vectors)
    }

    fn cg(&mut self) -> Result<&mut CgSteps<E, T>, Failure> {
        self.cg.as_mut().ok_or_else(|| failed(no_vectors()))
    }
}

impl<E: GpuExecutor, T: Value> GpuPart<T> for OnGpu<E, T> {
    fn device(&self) -> String {
        self.executor.info().name.clone()
    }

    fn explain(&self) -> (Explain, Option<Explain>) {
        (explained(self.plan.local()), self.plan.remote().map(explained))
    }

    fn is_connected(&self) -> bool {
        self.plan.has_peers()
    }

    fn mailbox(&self) -> Option<Shared> {
        self.plan.mailbox().ok().map(|mailbox| mailbox as Shared)
    }

    fn reaches(&self, halo: &Halo, shared: &[Shared]) -> bool {
        halo.partners().iter().all(|&rank| {
            let mailbox = mailbox_of::<E>(shared, rank);
            mailbox.is_some_and(|mailbox| mailbox.is_reached_by(&self.executor).unwrap_or(false))
        })
    }

    fn connect(
        &mut self,
        halo: &Halo,
        rank: usize,
        shared: &[Shared],
        offsets: &[Option<Range<usize>>],
    ) {
        let Some(own) = mailbox_of::<E>(shared, rank) else { return };
        let neighbours = halo.partners().iter().filter_map(|&rank| mailbox_of(shared, rank));
        let incoming = halo.sources().iter().filter_map(|(rank, part)| {
            let (from, bytes) = (mailbox_of(shared, *rank)?, offsets[*rank].clone()?);
            Some(Incoming { from, bytes, at: part.start })
        });
        self.plan.connect(own, neighbours.collect(), incoming.collect());
    }

    fn load(&mut self, x: &[T]) -> Result<(), Failure> {
        let executor = self.executor.clone();
        let Operands { x: to, .. } = self.vectors().map_err(failed)?;
        executor.copy_from_host(x, to).map_err(failed)
    }

    fn load_y(&mut self, y: &[T]) -> Result<(), Failure> {
        let executor = self.executor.clone();
        let Operands { y: to, .. } = self.vectors().map_err(failed)?;
        executor.copy_from_host(y, to).map_err(failed)
    }

    fn multiply(&mut self, exchange: Exchange<'_>, alpha: T, beta: T) -> Result<(), Failure> {
        if let Err(error) = self.vectors() {
            nothing(&mut self.plan, exchange);
            return Err(failed(error));
        }
        let Some(Operands { x, y }) = &mut self.vectors else { return Err(failed(no_vectors())) };
        product(&mut self.plan, exchange, (alpha, x, beta, y))
    }

    fn wait(&self) -> Result<(), Failure> {
        self.executor.synchronize().map_err(failed)
    }

    fn store(&self, y: &mut [T]) -> Result<(), Failure> {
        match &self.vectors {
            Some(Operands { y: from, .. }) => self.executor.copy_to_host(from, y).map_err(failed),
            None => Err(failed(no_vectors())),
        }
    }

    fn begin_cg(&mut self, x: &[T], diagonal: Option<&[T]>) -> Result<(), Failure> {
        let is_kept = |cg: &CgSteps<E, T>| cg.is_jacobi() == diagonal.is_some();
        if !self.cg.as_ref().is_some_and(is_kept) {
            self.cg = None;
            let made = CgSteps::new(&self.executor, x.len(), diagonal.is_some());
            self.cg = Some(made.map_err(failed)?);
        }
        let cg = self.cg()?;
        cg.set_x(x).map_err(failed)?;
        diagonal.map_or(Ok(()), |diagonal| cg.set_m(diagonal).map_err(failed))
    }

    fn start_cg(&mut self, r: &[T]) -> Result<[f64; 2], Failure> {
        let cg = self.cg()?;
        cg.set_r(r).map_err(failed)?;
        cg.squares().map_err(failed)
    }

    fn multiply_cg(&mut self, exchange: Exchange<'_>, scale: T) -> Result<f64, Failure> {
        let Some(cg) = &mut self.cg else {
            nothing(&mut self.plan, exchange);
            return Err(failed(no_vectors()));
        };
        let (p, w) = cg.product_vectors();
        product(&mut self.plan, exchange, (scale, p, T::ZERO, w))?;
        cg.curvature().map_err(failed)
    }

    fn advance_cg(&mut self, alpha: T) -> Result<[f64; 2], Failure> {
        self.cg()?.advance(alpha).map_err(failed)
    }

    fn direct_cg(&mut self, beta: T) -> Result<(), Failure> {
        self.cg()?.direct(beta).map_err(failed)
    }

    fn x_of_cg(&self, x: &mut [T]) -> Result<(), Failure> {
        match &self.cg {
            Some(cg) => cg.x(x).map_err(failed),
            None => Err(failed(no_vectors())),
        }
    }
}

/// Takes part in a product that this rank cannot start.
fn nothing<E: GpuExecutor, T: Value>(plan: &mut HaloPlan<E, T>, (ranks, halo): Exchange<'_>) {
    if plan.has_peers() {
        plan.skip();
        halo.exchange_words(ranks, false);
    } else {
        halo.exchange_nothing(ranks);
    }
}

/// `y = alpha A x + beta y`: elements that others need are packed beside the product of the local
/// part, and the remote part is added. They go from GPU to GPU where the plan is connected, and ranks
/// tell each other only that they have started; else they go to the host, and the transport carries
/// them.
fn product<E: GpuExecutor, T: Value>(
    plan: &mut HaloPlan<E, T>,
    (ranks, halo): Exchange<'_>,
    (alpha, x, beta, y): (T, &E::Buffer<T>, T, &mut E::Buffer<T>),
) -> Result<(), Failure> {
    debug_assert!(!y.shares_memory_with(x), "vectors apart");
    let started = plan.start(alpha, x, beta, y);
    if plan.has_peers() {
        let lost = halo.exchange_words(ranks, started.is_ok());
        let finished = started.and_then(|()| plan.finish_without(&lost, alpha, y));
        return finished.map_err(failed);
    }
    match started.and_then(|()| plan.staged()) {
        Ok((sent, received)) => halo.exchange_bytes(ranks, sent, received),
        Err(error) => {
            // The other ranks wait for elements.
            halo.exchange_nothing(ranks);
            return Err(failed(error));
        }
    }
    plan.finish(alpha, y).map_err(failed)
}

/// The mailbox that a rank has shared, if its GPU is of this kind.
fn mailbox_of<E: GpuExecutor>(shared: &[Shared], rank: usize) -> Option<Arc<Mailbox<E>>> {
    Arc::clone(&shared[rank]).downcast().ok()
}

/// A failure by what was asked for, or of the GPU.
fn failed(error: GpuError) -> Failure {
    let code = match error {
        GpuError::InvalidArgument { .. } | GpuError::Format { .. } | GpuError::Length { .. } => 2,
        _ => 1,
    };
    Failure { code, message: error.to_string() }
}

fn no_vectors() -> GpuError {
    GpuError::InvalidArgument {
        name: "x",
        expected: "vectors that were copied to the GPU before".to_owned(),
        found: "none".to_owned(),
    }
}

/// As the plan of a CPU is explained.
fn explained(plan: &SingleExplain) -> Explain {
    let vectors = (plan.nrows + plan.ncols) * plan.value_bytes;
    let product_bytes = plan.bytes_moved(true);
    Explain {
        format: format_of(plan.kernel),
        kernel: plan.kernel.name(),
        why: plan.why.clone().unwrap_or_else(|| "asked for".to_owned()),
        nitems: 1,
        nrows: plan.nrows,
        ncols: plan.ncols,
        nnz: plan.nnz,
        stored_len: plan.stored_len,
        padding: plan.padding(),
        plan_bytes: plan.device_bytes(),
        matrix_bytes: product_bytes.saturating_sub(vectors),
        product_bytes,
        cost: plan.setup + plan.preprocessing.unwrap_or_default(),
    }
}

/// The format that a kernel reads.
fn format_of(kernel: SingleKernel) -> &'static str {
    match kernel {
        SingleKernel::Coo => "coo",
        SingleKernel::Ell => "ell",
        SingleKernel::Dia => "dia",
        SingleKernel::Hyb => "hyb",
        SingleKernel::Sell => "sell",
        SingleKernel::SellP => "sellp",
        SingleKernel::Packed => "packed",
        _ => "csr",
    }
}
