//! Dense LU factors kept on the device for several right-hand sides.

use std::rc::Rc;

use sparsebatch_cuda::{Device, DeviceBuffer, GpuError};

use super::CublasLibrary;
use super::ffi::Work;

/// Dense LU with partial pivoting of a batch on the device, by cuBLAS: `getrfBatched` once for a
/// set of matrices, `getrsBatched` for each set of right-hand sides. Programs that solve several
/// times with one matrix compare their sparse solves with it.
///
/// No call waits for the device: all are issued on its stream.
pub struct DenseFactors {
    work: Work<f64>,
    version: String,
}

impl DenseFactors {
    /// Allocates for `nitems` systems of `n` rows and `sets` sets of right-hand sides.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] where cuBLAS is not found, or where a size exceeds its
    /// integers; [`GpuError::OutOfMemory`].
    pub fn new(device: &Device, n: usize, nitems: usize, sets: usize) -> Result<Self, GpuError> {
        let library = CublasLibrary::load(device).map_err(|found| GpuError::InvalidArgument {
            name: "cuBLAS",
            expected: "the library, for the dense LU as a comparison".to_owned(),
            found,
        })?;
        let work = Work::new(device, Rc::clone(&library.handle), n, nitems, sets)?;
        Ok(Self { work, version: library.version() })
    }

    /// The version of cuBLAS, such as `13.0.2`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The matrices, item after item, each column by column. Factorisation overwrites them with the
    /// factors.
    pub fn matrices_mut(&mut self) -> &mut DeviceBuffer<f64> {
        self.work.matrices_mut()
    }

    /// Factors the first `nitems` matrices.
    ///
    /// # Errors
    /// An error of cuBLAS.
    pub fn factor(&mut self, nitems: usize) -> Result<(), GpuError> {
        self.work.factor(nitems)
    }

    /// The sets of right-hand sides or solutions, item after item.
    pub fn vectors(&self) -> &[DeviceBuffer<f64>] {
        self.work.vectors()
    }

    /// The sets of right-hand sides or solutions, item after item.
    pub fn vectors_mut(&mut self) -> &mut [DeviceBuffer<f64>] {
        self.work.vectors_mut()
    }

    /// Overwrites set `set` of right-hand sides of the first `nitems` systems with the solutions.
    ///
    /// # Errors
    /// An error of cuBLAS.
    ///
    /// # Panics
    /// When `set` is not less than the number of sets.
    pub fn solve(&mut self, set: usize, nitems: usize) -> Result<(), GpuError> {
        self.work.substitute(set, nitems)
    }

    /// Status of each system: 0, or the column without a pivot, counted from 1.
    pub fn info(&self) -> &DeviceBuffer<i32> {
        self.work.info()
    }
}
