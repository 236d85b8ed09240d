//! What a plan reports about itself.

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
    /// Pieces that a block multiplies one at a time: systems, groups of small ones, or some rows of
    /// large ones.
    pub pieces: usize,
    /// Pieces in which some row has several segments or none.
    pub pieces_cut: usize,
    /// Bytes of the plan on the device.
    pub device_bytes: u64,
    /// Bytes of the matrix that one product reads: values, indices, and the description of the
    /// work.
    pub matrix_bytes: u64,
    /// Bytes that one product moves at least: the matrix and x once, y read and written.
    pub product_bytes: u64,
    /// Time from arrays on the device to a plan: analysis, packing, and the description of the
    /// work, without compiling kernels.
    pub packing: Duration,
    /// Time to make the plan: compiling, upload and packing.
    pub setup: Duration,
}
