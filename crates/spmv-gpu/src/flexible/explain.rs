//! What a plan reports.

use std::fmt;
use std::time::Duration;

use super::kernel::FlexibleKernel;

/// What a plan runs, what one product moves, and what the plan has cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The kernel.
    pub kernel: FlexibleKernel,
    /// The compiled instance of the kernel.
    pub expression: String,
    /// Systems in the batch.
    pub systems: usize,
    /// Right-hand sides per system.
    pub nrhs: usize,
    /// Threads per problem, that is, per block.
    pub threads: u32,
    /// Blocks; 0 when no system has rows.
    pub blocks: u32,
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Systems whose x is read into shared memory. For the other systems with rows, x is read from
    /// global memory.
    pub operands_in_shared: usize,
    /// Entries that a product multiplies, for one right-hand side.
    pub nnz: u64,
    /// Padding slots, which `nnz` does not count.
    pub padding: u64,
    /// Bytes of the matrices on the device, padding included; shared arrays count once.
    pub matrix_bytes: u64,
    /// Bytes that a product reads at least: matrices (padding included), descriptors and x, each
    /// once for any number of right-hand sides. Excludes y, which is read when beta is not 0.
    pub bytes_read: u64,
    /// Bytes that a product writes: y. The same number is read when beta is not 0.
    pub bytes_written: u64,
    /// Time for conversion, upload, start rows and descriptors.
    pub preprocessing: Duration,
    /// Time to compile and load the kernel, which a second plan of the kind does not need.
    pub compilation: Duration,
}

impl Explanation {
    /// Floating point operations of a product: two for each entry and right-hand side.
    pub fn flops(&self) -> u64 {
        2 * self.nnz * self.nrhs as u64
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}): {} systems, {} right-hand sides each, {} blocks of {} threads, {} bytes of \
             shared memory, x of {} systems there; {} entries and {} of padding; reads {} bytes \
             (and y unless beta is 0), writes {}; preprocessing {:.3} ms, compilation {:.3} ms",
            self.kernel,
            self.expression,
            self.systems,
            self.nrhs,
            self.blocks,
            self.threads,
            self.shared_bytes,
            self.operands_in_shared,
            self.nnz,
            self.padding,
            self.bytes_read,
            self.bytes_written,
            self.preprocessing.as_secs_f64() * 1e3,
            self.compilation.as_secs_f64() * 1e3,
        )
    }
}
