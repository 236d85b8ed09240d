//! Arrays of the caller in another order than solvers take them: [`DeviceData`].

use sparsebatch_cuda::KernelBuffer;
use sparsebatch_formats::{Batch, Layout, Pattern};
use sparsebatch_solve_core::check_len;

use super::DeviceSolver;
use crate::gpu::{ArrayMove, Guess, ItemExtents};
use crate::{GpuExecutor, SolveError, SolveScalar};

/// How the arrays of a [`DeviceSolver`] lie on the device, and which systems they stand for. By default
/// they are item-major, and the systems are `A x = b`.
///
/// # Examples
/// ```
/// use sparsebatch_formats::Layout;
/// use sparsebatch_solvers::DeviceData;
/// // Species by zones: `values[k * nitems + item]`, and vectors likewise.
/// let data = DeviceData::new().values(Layout::Interleaved).vectors(Layout::Interleaved);
/// // The adjoint systems of the same arrays.
/// let adjoint = data.transposed(true);
/// assert!(adjoint.transposed && adjoint.vectors == Layout::Interleaved);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceData {
    /// The values of the matrices, unless all items share them.
    pub values: Layout,
    /// Right-hand sides and solutions.
    pub vectors: Layout,
    /// Whether the systems are `A^T x = b`. The values are those of A all the same; they are moved to
    /// their transposed places in an array of the solver.
    pub transposed: bool,
}

sparsebatch_formats::option_setters! {
    DeviceData {
        values: Layout,
        vectors: Layout,
        transposed: bool,
    }
}

impl DeviceData {
    /// Item-major arrays of `A x = b`.
    pub fn new() -> Self {
        Self::default()
    }
}

/// An array in the order of solvers, and how it comes there.
pub(super) struct Staged<E: GpuExecutor, T: SolveScalar> {
    pub(super) moves: ArrayMove<E, T>,
    array: E::Buffer<T>,
}

impl<E: GpuExecutor, T: SolveScalar> Staged<E, T> {
    /// For the values of a batch; `None` where solvers take them as they are. `sources`: for each
    /// entry its place among the caller's, in its item, or in the array of a ragged batch.
    pub(super) fn values(
        executor: &E,
        batch: &Batch<T>,
        data: DeviceData,
        sources: Option<&[u32]>,
    ) -> Result<Option<Self>, SolveError> {
        let sizes = match batch {
            Batch::Uniform(uniform) => {
                let items = if uniform.is_shared() { 1 } else { uniform.nitems() };
                (items, uniform.pattern().nnz())
            }
            // All items as one.
            Batch::Ragged(ragged) => (1, ragged.total_nnz()),
        };
        // One item is item-major in any layout.
        let layout = if sizes.0 == 1 { Layout::ItemMajor } else { data.values };
        if layout == Layout::ItemMajor && sources.is_none() {
            return Ok(None);
        }
        let moves = ArrayMove::new(executor, sizes, layout, sources)?;
        Ok(Some(Self { array: executor.alloc(moves.total())?, moves }))
    }
}

/// Right-hand sides and solutions in the order of solvers.
pub(super) struct StagedVectors<E: GpuExecutor, T: SolveScalar> {
    moves: ArrayMove<E, T>,
    b: E::Buffer<T>,
    x: E::Buffer<T>,
}

impl<E: GpuExecutor, T: SolveScalar> StagedVectors<E, T> {
    /// `None` where solvers take them as they are.
    pub(super) fn new(
        executor: &E,
        extents: &ItemExtents,
        nrhs: usize,
        data: DeviceData,
    ) -> Result<Option<Self>, SolveError> {
        let &ItemExtents::Equal { nitems, nrows, .. } = extents else { return Ok(None) };
        if data.vectors == Layout::ItemMajor || nitems == 1 {
            return Ok(None);
        }
        let sizes = (nitems, nrows * nrhs);
        let moves = ArrayMove::new(executor, sizes, data.vectors, None)?;
        let total = moves.total();
        Ok(Some(Self { b: executor.alloc(total)?, x: executor.alloc(total)?, moves }))
    }
}

impl<E: GpuExecutor, T: SolveScalar> DeviceSolver<E, T> {
    /// Bytes of arrays in the order of solvers.
    pub(super) fn staged_bytes(&self) -> u64 {
        let values = self.staged_values.as_ref().map_or(0, |staged| staged.array.len());
        let vectors = self.staged_vectors.as_ref().map_or(0, |staged| 2 * staged.x.len());
        ((values + vectors) * size_of::<T>()) as u64
    }

    /// Calls `work` with the values in the order of solvers. `fresh`: those given are moved there;
    /// otherwise they are there from the call before.
    pub(super) fn with_staged_values<R>(
        &mut self,
        values: &E::Buffer<T>,
        fresh: bool,
        work: impl FnOnce(&mut Self, &E::Buffer<T>) -> Result<R, SolveError>,
    ) -> Result<R, SolveError> {
        let Some(mut staged) = self.staged_values.take() else { return work(self, values) };
        let moved = match fresh {
            true => {
                let moved = staged.moves.to_item_major("values", values, &mut staged.array);
                moved.map_err(SolveError::from)
            }
            false => check_len("values", staged.moves.total(), values.len()).map_err(Into::into),
        };
        let done = moved.and_then(|()| work(self, &staged.array));
        self.staged_values = Some(staged);
        done
    }

    /// Calls `work` with b and x in the order of solvers, and copies x back. `start`: the guess of a
    /// solve that begins, for which b, and x where it holds guesses, are moved there; otherwise they
    /// are there from the call before.
    pub(super) fn with_staged_vectors<R>(
        &mut self,
        b: &E::Buffer<T>,
        start: Option<Guess>,
        x: &mut E::Buffer<T>,
        work: impl FnOnce(&mut Self, &E::Buffer<T>, &mut E::Buffer<T>) -> Result<R, SolveError>,
    ) -> Result<R, SolveError> {
        let Some(mut staged) = self.staged_vectors.take() else { return work(self, b, x) };
        let done = self.in_staged_vectors(&mut staged, (b, start, x), work);
        self.staged_vectors = Some(staged);
        done
    }

    fn in_staged_vectors<R>(
        &mut self,
        staged: &mut StagedVectors<E, T>,
        (b, start, x): (&E::Buffer<T>, Option<Guess>, &mut E::Buffer<T>),
        work: impl FnOnce(&mut Self, &E::Buffer<T>, &mut E::Buffer<T>) -> Result<R, SolveError>,
    ) -> Result<R, SolveError> {
        check_len("b", staged.moves.total(), b.len())?;
        check_len("x", staged.moves.total(), x.len())?;
        if let Some(guess) = start {
            staged.moves.to_item_major("b", b, &mut staged.b)?;
            // All of it is moved back.
            if guess == Guess::InX || self.active < self.extents.nitems() {
                staged.moves.to_item_major("x", x, &mut staged.x)?;
            }
        }
        let done = work(self, &staged.b, &mut staged.x)?;
        staged.moves.from_item_major("x", &staged.x, x)?;
        Ok(done)
    }
}
