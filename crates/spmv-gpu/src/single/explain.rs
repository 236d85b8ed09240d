//! What a plan chose and what it costs.

use std::fmt;
use std::time::Duration;

use super::SingleKernel;
use sparsebatch_cuda::KernelKey;

/// What a [`SinglePlan`](crate::SinglePlan) does and costs.
#[derive(Clone, Debug)]
pub struct SingleExplain {
    /// The kernel that was requested or chosen.
    pub kernel: SingleKernel,
    /// Why the kernel was chosen; `None` when it was requested.
    pub why: Option<String>,
    /// The kernel instances that a product launches, in order. The scaling of `coo` is left out at
    /// run time when beta is 1.
    pub instances: Vec<KernelKey>,
    /// Lanes per row of the CSR kernels; 0 for other formats.
    pub lanes: u32,
    /// Number of parts into which entries are cut, or of blocks of `csr-adaptive`; 0 for other
    /// kernels.
    pub parts: u32,
    /// Rows.
    pub nrows: usize,
    /// Columns.
    pub ncols: usize,
    /// Entries of the matrix.
    pub nnz: usize,
    /// Slots stored, padding and fill included.
    pub stored_len: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of the index arrays.
    pub index_bytes: usize,
    /// Time to choose the kernel, and to compute the start rows of `csr-balanced` or the blocks of
    /// `csr-adaptive`.
    pub preprocessing: Option<Duration>,
    /// Time for conversion, upload and compilation, without preprocessing.
    pub setup: Duration,
}

impl SingleExplain {
    /// Slots that hold no entry: padding, and the fill of diagonals.
    pub fn padding(&self) -> usize {
        self.stored_len - self.nnz
    }

    /// Bytes of the matrix on the device, including the partial sums of the parts.
    pub fn device_bytes(&self) -> usize {
        self.index_bytes + (self.stored_len + 2 * self.parts as usize) * self.value_bytes
    }

    /// Bytes that one product moves if every array is moved once: indices and values with their
    /// padding, x, and y, which is written, and also read unless beta is 0. The COO kernels read
    /// and write y once more.
    pub fn bytes_moved(&self, beta_is_zero: bool) -> usize {
        let y_passes = if beta_is_zero { 1 } else { 2 };
        let again = if self.kernel == SingleKernel::Coo { 2 } else { 0 };
        let vectors = self.ncols + (y_passes + again) * self.nrows;
        self.index_bytes + (self.stored_len + vectors) * self.value_bytes
    }
}

impl fmt::Display for SingleExplain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.instances.iter().map(ToString::to_string).collect();
        writeln!(f, "kernel {}: {}", self.kernel, names.join(", "))?;
        if let Some(why) = &self.why {
            writeln!(f, "chosen: {why}")?;
        }
        if self.lanes > 0 {
            writeln!(f, "lanes per row: {}", self.lanes)?;
        }
        if self.parts > 0 {
            writeln!(f, "parts: {}", self.parts)?;
        }
        writeln!(f, "{} rows, {} columns, {} entries", self.nrows, self.ncols, self.nnz)?;
        writeln!(f, "slots: {}, of them padding: {}", self.stored_len, self.padding())?;
        writeln!(f, "bytes on the device: {}", self.device_bytes())?;
        writeln!(f, "bytes moved by a product with beta 0: {}", self.bytes_moved(true))?;
        if let Some(time) = self.preprocessing {
            writeln!(f, "preprocessing: {:.3} ms", time.as_secs_f64() * 1e3)?;
        }
        write!(f, "setup: {:.3} ms", self.setup.as_secs_f64() * 1e3)
    }
}
