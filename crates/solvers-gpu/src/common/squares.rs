//! [`ValueSquares`]: sums of squares of the values of items, for norms of matrices.

use std::marker::PhantomData;

use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_solve_core::check_len;

use super::item_grid::item_grid;
use super::kernels::SQUARES;
use crate::GpuSolveError;

/// Adds up the squares of each item's values, which lie item-major on the device. The sums have the
/// bits of [`sum_of_squares`](sparsebatch_solve_core::verdict::sum_of_squares).
#[doc(hidden)]
pub struct ValueSquares<E: Executor, T: Value> {
    executor: E,
    nitems: usize,
    nnz: usize,
    key: KernelKey,
    config: LaunchConfig,
    values: PhantomData<T>,
}

impl<E: Executor + Clone, T: Value> ValueSquares<E, T> {
    /// Prepares for `nitems` items of `nnz` values each.
    ///
    /// # Errors
    /// When memory or compiler fail.
    pub fn new(executor: &E, nitems: usize, nnz: usize) -> Result<Self, GpuError> {
        let key = KernelKey::new(&SQUARES, format!("squares<{}>", T::CPP));
        executor.prepare(std::slice::from_ref(&key))?;
        let config = item_grid(executor.info(), nitems, 0);
        let executor = executor.clone();
        Ok(Self { executor, nitems, nnz, key, config, values: PhantomData })
    }

    /// The number of items.
    pub fn nitems(&self) -> usize {
        self.nitems
    }

    /// Starts to overwrite `sums`, one per item, with those of `values`.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit; [`GpuSolveError::Gpu`] when the
    /// launch is refused.
    #[expect(unsafe_code, reason = "the one launch")]
    pub fn apply(
        &self,
        values: &E::Buffer<T>,
        sums: &mut E::Buffer<f64>,
    ) -> Result<(), GpuSolveError> {
        check_len("values", self.nnz * self.nitems, values.len())?;
        check_len("sums", self.nitems, sums.len())?;
        if values.is_empty() {
            return Ok(self.executor.fill_zero(sums)?);
        }
        let mut args = Args::new();
        args.scalar(self.nitems as u64).scalar(self.nnz as u64).input(values).output(sums);
        // SAFETY: the arguments are those of `squares`; lengths were checked here; buffers of other
        // types are not the same.
        unsafe { self.executor.launch(&self.key, self.config, &mut args) }?;
        Ok(())
    }
}
