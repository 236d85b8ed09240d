//! One cuSPARSE call per system, as in a program without a batched product.

use std::rc::Rc;

use sparsebatch_cuda::{Device, GpuError, Value};
use sparsebatch_formats::RaggedCsr;
use sparsebatch_spmv_gpu::CsrArrays;

use super::ffi::{AnalysedProduct, Layout, Scratch};
use super::{Algorithm, CusparseLibrary, Format};
use crate::contender::{Multiply, Operand};

/// A batch with each system analysed as a CSR matrix of its own. Its arrays are ranges of those of
/// the whole batch.
pub(crate) struct Loop<T: Value> {
    items: Vec<AnalysedProduct<T>>,
    rows: Vec<usize>,
    cols: Vec<usize>,
    /// Each system's ranges of the last x and y; `bound` holds the addresses of x and y.
    parts: Vec<(Operand<T>, Operand<T>)>,
    bound: (u64, u64),
    bytes: u64,
}

impl<T: Value> Loop<T> {
    /// Analyses every system of a batch whose arrays are on the device.
    ///
    /// # Errors
    /// An error of the library or the driver.
    pub(crate) fn new(
        library: &CusparseLibrary,
        batch: &RaggedCsr<T>,
        arrays: &CsrArrays<Device, T>,
    ) -> Result<Self, GpuError> {
        let device: &Device = &library.device;
        let nitems = batch.nitems();
        let CsrArrays { row_ptr, col_idx: cols, values } = arrays;
        let (row_offsets, nnz_offsets) = (batch.row_offsets(), batch.nnz_offsets());
        let largest = |offsets: &[usize]| offsets.windows(2).map(|w| w[1] - w[0]).max();
        let (nrows, ncols) = (largest(row_offsets), largest(batch.col_offsets()));
        let mut scratch = Scratch::new(device, nrows.unwrap_or(0), ncols.unwrap_or(0))?;
        let mut items = Vec::with_capacity(nitems);
        for item in 0..nitems {
            let view = batch.item(item);
            let pattern = view.pattern();
            let entries = nnz_offsets[item]..nnz_offsets[item + 1];
            // Each earlier item has one row pointer more than it has rows.
            let pointers = row_offsets[item] + item..row_offsets[item + 1] + item + 1;
            let layout = Layout {
                format: Format::Csr,
                starts: row_ptr.range(pointers)?,
                cols: cols.range(entries.clone())?,
                values: values.range(entries)?,
            };
            let sizes = [pattern.nrows(), pattern.ncols(), pattern.nnz()];
            let handle = Rc::clone(&library.handle);
            items.push(AnalysedProduct::new(
                device,
                handle,
                layout,
                sizes,
                Algorithm::Csr1,
                &mut scratch,
            )?);
        }
        let (nrows, ncols) = (row_offsets[nitems], batch.col_offsets()[nitems]);
        let matrix = row_ptr.bytes() + cols.bytes() + values.bytes();
        Ok(Self {
            items,
            rows: row_offsets.to_vec(),
            cols: batch.col_offsets().to_vec(),
            parts: Vec::new(),
            bound: (0, 0),
            bytes: (matrix + size_of::<T>() * (ncols + 2 * nrows)) as u64,
        })
    }

    /// Fewest bytes that one product of the whole batch moves.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.bytes
    }
}

impl<T: Value> Multiply<T> for Loop<T> {
    fn multiply(&mut self, x: &Operand<T>, beta: T, y: &mut Operand<T>) -> Result<(), GpuError> {
        if self.bound != (x.raw(), y.raw()) {
            let part = |item: usize| {
                Ok((
                    x.range(self.cols[item]..self.cols[item + 1])?,
                    y.range(self.rows[item]..self.rows[item + 1])?,
                ))
            };
            self.parts = (0..self.items.len()).map(part).collect::<Result<_, GpuError>>()?;
            self.bound = (x.raw(), y.raw());
        }
        for (item, (x, y)) in self.items.iter_mut().zip(&mut self.parts) {
            item.apply(x, beta, y)?;
        }
        Ok(())
    }
}
