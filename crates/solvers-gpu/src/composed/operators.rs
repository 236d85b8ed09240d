//! Operators of the caller: [`DeviceLinOp`].

use sparsebatch_cuda::{Executor, GpuError, Value};

/// A linear operator on the vectors of all systems of a batch, in device memory: their matrices,
/// where these are not stored, or a preconditioner. Closures of the same signature are operators.
pub trait DeviceLinOp<E: Executor, T: Value>: Send + Sync {
    /// Enqueues `y_s = A_s x_s` for every system s on the stream of the executor
    /// ([`Device::raw_stream`](sparsebatch_cuda::Device::raw_stream)), and need not wait. `x` and
    /// `y` are item-major as right-hand sides are, and apart; `y` holds anything before.
    ///
    /// Vectors of systems that have ended come along. What they hold does not matter, nor what the
    /// operator makes of them.
    ///
    /// # Errors
    /// What it fails with ends the solve as
    /// [`GpuSolveError::Gpu`](crate::GpuSolveError::Gpu).
    fn apply(&self, executor: &E, x: &E::Buffer<T>, y: &mut E::Buffer<T>) -> Result<(), GpuError>;
}

impl<E, T, F> DeviceLinOp<E, T> for F
where
    E: Executor,
    T: Value,
    F: Fn(&E, &E::Buffer<T>, &mut E::Buffer<T>) -> Result<(), GpuError> + Send + Sync,
{
    fn apply(&self, executor: &E, x: &E::Buffer<T>, y: &mut E::Buffer<T>) -> Result<(), GpuError> {
        self(executor, x, y)
    }
}

/// How the solver applies M.
pub(super) enum Precond<E: Executor, T: Value> {
    Identity,
    /// By the inverse of the diagonal, in its kernels.
    Jacobi,
    Given(Box<dyn DeviceLinOp<E, T>>),
}

impl<E: Executor, T: Value> Precond<E, T> {
    /// The number that stands for it in the names of kernels.
    pub(super) fn code(&self) -> u32 {
        match self {
            Self::Identity => 0,
            Self::Jacobi => 1,
            Self::Given(_) => 2,
        }
    }

    pub(super) fn is_jacobi(&self) -> bool {
        matches!(self, Self::Jacobi)
    }

    /// Enqueues `z = M r`, if it is the caller who computes it.
    pub(super) fn apply(
        &self,
        executor: &E,
        r: &E::Buffer<T>,
        z: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        match self {
            Self::Given(operator) => operator.apply(executor, r, z),
            Self::Identity | Self::Jacobi => Ok(()),
        }
    }
}
