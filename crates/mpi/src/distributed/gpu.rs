//! What a rank has of a matrix on its GPU: [`GpuPart`].

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use sparsebatch_cpu_ref::Explain;
use sparsebatch_cuda::{GpuError, KernelBuffer, Value};
use sparsebatch_formats::Csr;
use sparsebatch_solvers::GpuExecutor;
use sparsebatch_solvers::gpu::{KrylovSteps, Step, StepMethod, StepPrecond, StepVector};
use sparsebatch_spmv_gpu::{
    HaloParts, HaloPlan, Incoming, Mailbox, SingleExplain, SingleKernel, SingleOptions,
};

use super::divide::Divided;
use super::halo::Halo;
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

    /// Takes part in a product that this rank does not start.
    fn skip(&mut self, exchange: Exchange<'_>);

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

    /// Makes the vectors of a Krylov method, and takes x and the diagonal of a preconditioner.
    fn begin(
        &mut self,
        method: StepMethod,
        precond: OnGpuPrecond<'_, T>,
        x: &[T],
    ) -> Result<(), Failure>;

    /// Copies a vector of the method to the GPU.
    fn set(&mut self, vector: StepVector, from: &[T]) -> Result<(), Failure>;

    /// Copies a vector of the method to the host.
    fn get(&self, vector: StepVector, to: &mut [T]) -> Result<(), Failure>;

    /// `to = scale A from` of vectors of the method, which may not be done yet on return.
    fn multiply_vectors(
        &mut self,
        exchange: Exchange<'_>,
        scale: T,
        vectors: (StepVector, StepVector),
    ) -> Result<(), Failure>;

    /// Starts a step of the method.
    fn run(&mut self, step: Step<T>) -> Result<(), Failure>;

    /// The sums of the last step that has some, of this rank.
    fn sums(&mut self) -> Result<[f64; 3], Failure>;
}

/// What preconditions the vectors of a GPU.
#[derive(Clone, Copy)]
pub(super) enum OnGpuPrecond<'d, T> {
    Nothing,
    Diagonal(&'d [T]),
    /// The host.
    Host,
}

impl<T> OnGpuPrecond<'_, T> {
    fn kind(self) -> StepPrecond {
        match self {
            Self::Nothing => StepPrecond::None,
            Self::Diagonal(_) => StepPrecond::Diagonal,
            Self::Host => StepPrecond::Given,
        }
    }
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
    steps: Option<KrylovSteps<E, T>>,
}

/// Makes the plans of a rank on its GPU.
pub(super) fn on_gpu<E: GpuExecutor, T: Value>(
    executor: &E,
    divided: &Divided<'_, T>,
    halo: &Halo,
    options: &SingleOptions,
) -> Result<Box<dyn GpuPart<T>>, Failure> {
    let Divided { local, remote } = divided;
    let remote = remote.as_ref().map(|(remote, rows)| (Csr::view(remote), &rows[..]));
    let parts = HaloParts { local: local.view(), remote, sent: halo.places() };
    let plan = HaloPlan::new(executor, parts, options).map_err(failed)?;
    let size = (local.nrows(), local.ncols());
    Ok(Box::new(OnGpu { executor: executor.clone(), plan, size, vectors: None, steps: None }))
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

    fn steps(&mut self) -> Result<&mut KrylovSteps<E, T>, Failure> {
        self.steps.as_mut().ok_or_else(|| failed(no_vectors()))
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

    fn skip(&mut self, exchange: Exchange<'_>) {
        nothing(&mut self.plan, exchange);
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

    fn begin(
        &mut self,
        method: StepMethod,
        precond: OnGpuPrecond<'_, T>,
        x: &[T],
    ) -> Result<(), Failure> {
        let kind = precond.kind();
        let is_kept =
            |steps: &KrylovSteps<E, T>| (steps.method(), steps.precond()) == (method, kind);
        if !self.steps.as_ref().is_some_and(is_kept) {
            self.steps = None;
            let made = KrylovSteps::new(&self.executor, x.len(), method, kind);
            self.steps = Some(made.map_err(failed)?);
        }
        let steps = self.steps()?;
        steps.set(StepVector::X, x).map_err(failed)?;
        match precond {
            OnGpuPrecond::Diagonal(diagonal) => {
                steps.set(StepVector::Diagonal, diagonal).map_err(failed)
            }
            OnGpuPrecond::Nothing | OnGpuPrecond::Host => Ok(()),
        }
    }

    fn set(&mut self, vector: StepVector, from: &[T]) -> Result<(), Failure> {
        self.steps()?.set(vector, from).map_err(failed)
    }

    fn get(&self, vector: StepVector, to: &mut [T]) -> Result<(), Failure> {
        match &self.steps {
            Some(steps) => steps.get(vector, to).map_err(failed),
            None => Err(failed(no_vectors())),
        }
    }

    fn multiply_vectors(
        &mut self,
        exchange: Exchange<'_>,
        scale: T,
        (from, to): (StepVector, StepVector),
    ) -> Result<(), Failure> {
        let vectors = match &mut self.steps {
            Some(steps) => steps.product_vectors(from, to),
            None => Err(no_vectors()),
        };
        match vectors {
            Ok((from, to)) => product(&mut self.plan, exchange, (scale, from, T::ZERO, to)),
            Err(error) => {
                nothing(&mut self.plan, exchange);
                Err(failed(error))
            }
        }
    }

    fn run(&mut self, step: Step<T>) -> Result<(), Failure> {
        self.steps()?.run(step).map_err(failed)
    }

    fn sums(&mut self) -> Result<[f64; 3], Failure> {
        self.steps()?.sums().map_err(failed)
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
