//! The peer: cuSPARSE, loaded at run time.
//!
//! `arrays.rs` brings matrices into its formats, `ffi.rs` has its calls and all the unsafe code,
//! `looped.rs` is one call per system.

mod arrays;
mod ffi;
mod looped;

use std::rc::Rc;

use sparsebatch_spmv_gpu::{Device, Executor, GpuError};

use crate::contender::{Multiply, Operand};
pub(crate) use arrays::HostCsr;
use arrays::SLICE;
use ffi::{Handle, Layout, Product, Scratch};
pub(crate) use looped::Loop;

/// The library, with a handle on the stream of a device.
#[derive(Clone)]
pub(crate) struct Library {
    device: Device,
    handle: Rc<Handle>,
}

/// How a matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Compressed rows.
    Csr,
    /// Coordinates.
    Coo,
    /// Slices of [`SLICE`] rows.
    Sell,
}

/// An algorithm of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// CSR, the default algorithm.
    Csr1,
    /// CSR, repeatable.
    Csr2,
    /// Coordinates, the default algorithm.
    Coo1,
    /// Coordinates, repeatable.
    Coo2,
    /// Slices.
    Sell,
}

impl Format {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Csr, Self::Coo, Self::Sell];

    /// The algorithms that read it.
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

impl Library {
    /// Loads the library.
    ///
    /// # Errors
    /// In words, when it is not found or refuses the device.
    pub(crate) fn load(device: &Device) -> Result<Self, String> {
        if !ffi::is_present() {
            return Err("libcusparse is not found by the loader (LD_LIBRARY_PATH)".to_owned());
        }
        let handle = Handle::new(device).map_err(|error| error.to_string())?;
        Ok(Self { device: device.clone(), handle: Rc::new(handle) })
    }

    /// The version, such as `12.6.3`.
    pub(crate) fn version(&self) -> String {
        self.handle.version()
    }

    /// Brings a matrix into a format, once, and uploads it, as often as there are `copies`.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`]; [`GpuError::InvalidArgument`] when slices would have more padding
    /// than is worth a comparison.
    pub(crate) fn upload(
        &self,
        matrix: &HostCsr<'_>,
        format: Format,
        copies: usize,
    ) -> Result<Vec<Uploaded>, GpuError> {
        let sizes = [matrix.nrows(), matrix.ncols, matrix.nnz()];
        let all = |starts: &[i32], cols: &[i32], values: &[f64]| {
            let one = |_| {
                let layout = Layout {
                    format,
                    starts: self.device.upload(starts)?,
                    cols: self.device.upload(cols)?,
                    values: self.device.upload(values)?,
                };
                Ok(Uploaded { layout, sizes })
            };
            (0..copies).map(one).collect()
        };
        match format {
            Format::Csr => all(&matrix.row_ptr, &matrix.cols, matrix.values),
            Format::Coo => all(&matrix.row_idx(), &matrix.cols, matrix.values),
            Format::Sell => {
                let sell = matrix.sell()?;
                all(&sell.slice_ptr, &sell.cols, &sell.values)
            }
        }
    }

    /// A matrix with an algorithm of its format, analysed.
    ///
    /// # Errors
    /// What the library or the driver refuses.
    pub(crate) fn matrix(
        &self,
        uploaded: &Uploaded,
        algorithm: Algorithm,
    ) -> Result<Matrix, GpuError> {
        let Uploaded { layout, sizes } = uploaded;
        let [nrows, ncols, _] = *sizes;
        let bytes = layout.bytes() + 8 * (ncols + 2 * nrows) as u64;
        let scratch = Scratch::new(&self.device, nrows, ncols)?;
        let (handle, layout) = (Rc::clone(&self.handle), layout.share()?);
        let product = Product::new(&self.device, handle, layout, *sizes, algorithm, &scratch)?;
        Ok(Matrix { product, bytes })
    }
}

/// A matrix on the device, in a format.
pub(crate) struct Uploaded {
    layout: Layout,
    sizes: [usize; 3],
}

/// A matrix on the device, ready to be multiplied.
pub(crate) struct Matrix {
    product: Product,
    bytes: u64,
}

impl Matrix {
    /// Bytes that a product moves at least, padding included.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.bytes
    }
}

impl Multiply for Matrix {
    fn multiply(&mut self, x: &Operand, beta: f64, y: &mut Operand) -> Result<(), GpuError> {
        self.product.apply(x, beta, y)
    }
}
