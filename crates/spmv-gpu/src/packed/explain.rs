//! What plans tell of themselves.

use std::time::Duration;

/// What a plan chose and what it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedExplain {
    /// Launches of one product.
    pub launches: usize,
    /// Blocks of all launches.
    pub blocks: usize,
    /// Stored entries of all systems.
    pub nnz: u64,
    /// Slots of all systems, padding included.
    pub slots: u64,
    /// Pieces: systems, or groups of small ones, that a block multiplies at a time.
    pub pieces: usize,
    /// Pieces some of whose rows are cut.
    pub pieces_cut: usize,
    /// Bytes on the device.
    pub device_bytes: u64,
    /// Bytes that one product reads of the matrix: values, indices, and the description of the work.
    pub matrix_bytes: u64,
    /// Bytes that one product moves at least: the matrix and x once, y read and written.
    pub product_bytes: u64,
    /// From arrays on the device to a plan: analysis, packing, and the description of the work.
    /// Without compiling kernels.
    pub packing: Duration,
    /// All of making the plan: compiling, upload and packing.
    pub setup: Duration,
}
