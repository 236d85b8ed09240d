//! The peer of products and of banded solves: cuSPARSE, loaded at run time.
//!
//! `banded/` has solvers of tridiagonal and pentadiagonal systems. For products `arrays.rs` converts
//! matrices to its formats, `ffi.rs` has its calls and all the unsafe code, `looped.rs` makes one
//! call per system.

mod arrays;
mod banded;
mod ffi;
mod looped;

use std::rc::Rc;

use sparsebatch_cuda::{Device, DeviceBuffer, Executor, GpuError, Value};

use crate::contender::{Multiply, Operand};
pub(crate) use arrays::HostCsr;
use arrays::SLICE;
pub(crate) use banded::{BandedCall, BandedPeer, Diagonals, half_width};
use ffi::{AnalysedProduct, CusparseHandle, Layout, Scratch};
pub(crate) use looped::Loop;

/// The library, with a handle on the stream of a device.
#[derive(Clone)]
pub(crate) struct CusparseLibrary {
    device: Device,
    handle: Rc<CusparseHandle>,
}

/// How a matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Compressed sparse rows (CSR).
    Csr,
    /// Coordinates (COO).
    Coo,
    /// Slices of [`SLICE`] rows (sliced ELL).
    Sell,
}

/// An algorithm of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// CSR, the default algorithm.
    Csr1,
    /// CSR, bitwise reproducible.
    Csr2,
    /// Coordinates, the default algorithm.
    Coo1,
    /// Coordinates, bitwise reproducible.
    Coo2,
    /// Slices.
    Sell,
}

impl Format {
    /// All formats.
    pub(crate) const ALL: [Self; 3] = [Self::Csr, Self::Coo, Self::Sell];

    /// The algorithms of this format.
    pub(crate) fn algorithms(self) -> &'static [Algorithm] {
        match self {
            Self::Csr => &[Algorithm::Csr1, Algorithm::Csr2],
            Self::Coo => &[Algorithm::Coo1, Algorithm::Coo2],
            Self::Sell => &[Algorithm::Sell],
        }
    }
}

impl Algorithm {
    /// The name in rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Csr1 => "csr alg1",
            Self::Csr2 => "csr alg2",
            Self::Coo1 => "coo alg1",
            Self::Coo2 => "coo alg2",
            Self::Sell => "sell-32",
        }
    }
}

impl CusparseLibrary {
    /// Loads the library.
    ///
    /// # Errors
    /// In words, when it is not found or refuses the device.
    pub(crate) fn load(device: &Device) -> Result<Self, String> {
        if !ffi::is_present() {
            return Err("libcusparse is not found by the loader (LD_LIBRARY_PATH)".to_owned());
        }
        let handle = CusparseHandle::new(device).map_err(|error| error.to_string())?;
        Ok(Self { device: device.clone(), handle: Rc::new(handle) })
    }

    /// The version, such as `12.6.3`.
    pub(crate) fn version(&self) -> String {
        self.handle.version()
    }

    /// Uploads columns and values of a matrix `copies` times, for CSR and coordinates to share.
    /// With one copy, `values` may be on the device already.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub(crate) fn entries<T: Value>(
        &self,
        matrix: &HostCsr<'_, T>,
        values: Option<&DeviceBuffer<T>>,
        copies: usize,
    ) -> Result<Vec<Entries<T>>, GpuError> {
        let device = &self.device;
        let one = |_| {
            let values = match values.filter(|there| copies == 1 && there.len() == matrix.nnz()) {
                Some(there) => there.range(0..there.len())?,
                None => device.upload(matrix.values())?,
            };
            Ok(Entries { cols: matrix.upload_cols(device)?, values })
        };
        (0..copies).map(one).collect()
    }

    /// Makes a matrix in CSR or coordinates for each copy of its entries.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub(crate) fn of_entries<T: Value>(
        &self,
        matrix: &HostCsr<'_, T>,
        format: Format,
        entries: &[Entries<T>],
    ) -> Result<Vec<Uploaded<T>>, GpuError> {
        let one = |Entries { cols, values }: &Entries<T>| {
            let starts = match format {
                Format::Coo => matrix.upload_rows(&self.device)?,
                Format::Csr | Format::Sell => self.device.upload(matrix.row_ptr())?,
            };
            let (cols, values) = (cols.range(0..cols.len())?, values.range(0..values.len())?);
            Ok(Uploaded { layout: Layout { format, starts, cols, values }, sizes: sizes(matrix) })
        };
        entries.iter().map(one).collect()
    }

    /// Uploads a matrix in slices `copies` times.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`]; [`GpuError::InvalidArgument`] when slices would have too much
    /// padding for a useful comparison.
    pub(crate) fn in_slices<T: Value>(
        &self,
        matrix: &HostCsr<'_, T>,
        copies: usize,
    ) -> Result<Vec<Uploaded<T>>, GpuError> {
        let (device, slices) = (&self.device, matrix.slices()?);
        let one = |_| {
            let starts = device.upload(slices.starts())?;
            let (cols, values) = matrix.upload_slices(device, &slices)?;
            let layout = Layout { format: Format::Sell, starts, cols, values };
            Ok(Uploaded { layout, sizes: sizes(matrix) })
        };
        (0..copies).map(one).collect()
    }

    /// Analyses a matrix for an algorithm of its format.
    ///
    /// # Errors
    /// An error of the library or the driver.
    pub(crate) fn matrix<T: Value>(
        &self,
        uploaded: &Uploaded<T>,
        algorithm: Algorithm,
    ) -> Result<Matrix<T>, GpuError> {
        let Uploaded { layout, sizes } = uploaded;
        let [nrows, ncols, _] = *sizes;
        let bytes = layout.bytes() + (size_of::<T>() * (ncols + 2 * nrows)) as u64;
        let mut scratch = Scratch::new(&self.device, nrows, ncols)?;
        let (handle, layout) = (Rc::clone(&self.handle), layout.share()?);
        let product =
            AnalysedProduct::new(&self.device, handle, layout, *sizes, algorithm, &mut scratch)?;
        Ok(Matrix { product, bytes })
    }
}

fn sizes<T: Value>(matrix: &HostCsr<'_, T>) -> [usize; 3] {
    [matrix.nrows(), matrix.ncols(), matrix.nnz()]
}

/// Columns and values of a matrix on the device, row by row.
pub(crate) struct Entries<T: Value> {
    cols: DeviceBuffer<i32>,
    values: DeviceBuffer<T>,
}

/// A matrix on the device, in a format.
pub(crate) struct Uploaded<T: Value> {
    layout: Layout<T>,
    sizes: [usize; 3],
}

/// A matrix on the device, ready to be multiplied.
pub(crate) struct Matrix<T: Value> {
    product: AnalysedProduct<T>,
    bytes: u64,
}

impl<T: Value> Matrix<T> {
    /// Fewest bytes that a product moves, padding included.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.bytes
    }
}

impl<T: Value> Multiply<T> for Matrix<T> {
    fn multiply(&mut self, x: &Operand<T>, beta: T, y: &mut Operand<T>) -> Result<(), GpuError> {
        self.product.apply(x, beta, y)
    }
}
