//! The peer of solves: the dense batched LU of cuBLAS, loaded at run time.
//!
//! The matrices are made dense and uploaded before the timing, and restored before every solve,
//! since the factors overwrite them: neither is timed, in the peer's favour. `ffi.rs` has the calls
//! and all the unsafe code. `factors.rs` keeps the factors for programs that solve with them again.

mod factors;
mod ffi;

use std::rc::Rc;

use rayon::prelude::*;
use sparsebatch_cuda::{Device, DeviceBuffer, Executor, GpuError};
use sparsebatch_formats::{Batch, Pattern};
use sparsebatch_solvers::SolveError;

use crate::solves::systems::Systems;
use crate::solves::{Answer, Real, Solve};
pub use factors::DenseFactors;
pub(crate) use ffi::Element;
use ffi::{CublasHandle, Work};

/// Configuration name of the peer in rows.
pub(crate) const CONFIGURATION: &str = "dense LU getrfBatched + getrsBatched";

/// Most rows of a system: beyond this, a dense factorisation is no useful comparison.
pub(crate) const MAX_ROWS: usize = 256;

/// Most bytes of the dense matrices, of which the device holds two copies.
const MAX_BYTES: usize = 8 << 30;

/// Bytes of dense matrices that are made and uploaded at a time.
const CHUNK_BYTES: usize = 64 << 20;

/// The library, with a handle on the stream of a device.
#[derive(Clone)]
pub(crate) struct CublasLibrary {
    handle: Rc<CublasHandle>,
}

impl CublasLibrary {
    /// Loads the library.
    ///
    /// # Errors
    /// In words, when it is not found or refuses the device.
    pub(crate) fn load(device: &Device) -> Result<Self, String> {
        if !ffi::is_present() {
            return Err("libcublas is not found by the loader (LD_LIBRARY_PATH)".to_owned());
        }
        let handle = CublasHandle::new(device).map_err(|error| error.to_string())?;
        Ok(Self { handle: Rc::new(handle) })
    }

    /// The version, such as `13.0.2`.
    pub(crate) fn version(&self) -> String {
        self.handle.version()
    }
}

/// A batch of dense matrices on the device, with the arrays of its solve.
pub(crate) struct DenseLu<T: Element> {
    device: Device,
    matrices: DeviceBuffer<T>,
    b: DeviceBuffer<T>,
    work: Work<T>,
}

fn refuse(name: &'static str, expected: String, found: impl ToString) -> GpuError {
    GpuError::InvalidArgument { name, expected, found: found.to_string() }
}

impl<T: Element + Real> DenseLu<T> {
    /// Makes the matrices dense and uploads them.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for ragged batches and for systems or batches too large for a
    /// comparison; [`GpuError::OutOfMemory`].
    pub(crate) fn new(
        device: &Device,
        library: &CublasLibrary,
        systems: &Systems<T>,
    ) -> Result<Self, GpuError> {
        let Batch::Uniform(batch) = &systems.batch else {
            return Err(refuse("batch", "systems of one size".to_owned(), "a ragged one"));
        };
        let (n, nitems) = (batch.pattern().nrows(), batch.nitems());
        if n > MAX_ROWS {
            return Err(refuse("rows", format!("at most {MAX_ROWS}"), n));
        }
        let bytes = n * n * nitems * size_of::<T>();
        if bytes > MAX_BYTES {
            return Err(refuse("bytes of dense matrices", format!("at most {MAX_BYTES}"), bytes));
        }
        let matrices = device.alloc(n * n * nitems)?;
        let chunk = (CHUNK_BYTES / (n * n * size_of::<T>()).max(1)).max(1);
        let mut room = vec![T::ZERO; n * n * chunk.min(nitems)];
        for first in (0..nitems).step_by(chunk) {
            let items = first..(first + chunk).min(nitems);
            let dense = &mut room[..n * n * items.len()];
            make_dense(systems, n, items.clone(), dense);
            device.copy_from_host(dense, &mut matrices.range(n * n * first..n * n * items.end)?)?;
        }
        let work = Work::new(device, Rc::clone(&library.handle), n, nitems, 1)?;
        Ok(Self { device: device.clone(), matrices, b: device.upload(&systems.b)?, work })
    }
}

/// The matrices of `items` as dense ones, each column by column.
fn make_dense<T: Real>(
    systems: &Systems<T>,
    n: usize,
    items: std::ops::Range<usize>,
    dense: &mut [T],
) {
    dense.par_chunks_mut((n * n).max(1)).zip(items).for_each(|(dense, item)| {
        dense.fill(T::ZERO);
        let (pattern, mut copy) = (systems.batch.pattern(item), Vec::new());
        let values = systems.batch.values_in(item, &mut copy);
        for row in 0..n {
            for k in pattern.row(row) {
                dense[pattern.col_idx()[k] as usize * n + row] = values[k];
            }
        }
    });
}

impl<T: Element + Real> Solve<T> for DenseLu<T> {
    fn copies(&self) -> usize {
        1
    }

    fn restore(&mut self, _copy: usize) -> Result<(), SolveError> {
        Ok(self.work.load(&self.matrices, &self.b)?)
    }

    fn wants_restoring(&self) -> bool {
        true
    }

    fn solve(&mut self, _copy: usize) -> Result<(), SolveError> {
        Ok(self.work.solve()?)
    }

    fn answer(&mut self, _copy: usize) -> Result<Answer<T>, SolveError> {
        Ok(Answer { x: self.device.download(self.work.solutions())?, outcomes: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::Csr;

    #[test]
    fn matrices_become_dense_column_by_column() {
        // [1 2; 0 3] and [4 5; 0 6]
        let pattern = Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![1.0; 3]).unwrap();
        let (pattern, _) = pattern.into_parts();
        let values = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let systems = Systems::uniform(pattern, 2, values, vec![0.0; 4]).unwrap();

        let mut dense = [7.0; 8];
        make_dense(&systems, 2, 0..2, &mut dense);
        assert_eq!(dense, [1.0, 0.0, 2.0, 3.0, 4.0, 0.0, 5.0, 6.0]);
        make_dense(&systems, 2, 1..2, &mut dense[4..]);
        assert_eq!(dense[4..], [4.0, 0.0, 5.0, 6.0]);
    }
}
