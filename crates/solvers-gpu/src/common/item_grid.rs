//! Launches in which a warp goes through the entries of an item: [`item_grid`].

use sparsebatch_cuda::{DeviceInfo, LaunchConfig};

/// Items per block and threads per block, as in `shift.cu`, `gradient.cu` and `squares.cu`.
const ITEMS: u64 = 8;
pub(super) const THREADS: u32 = 256;

/// Largest number of blocks in y; these share the entries of an item.
const MAX_PARTS: u64 = 64;

/// Blocks of [`THREADS`] threads that a device has at once.
pub(super) fn resident_blocks(info: &DeviceInfo) -> u64 {
    let per_multiprocessor = (info.max_threads_per_multiprocessor / THREADS).max(1);
    u64::from(info.multiprocessors.max(1) * per_multiprocessor)
}

/// Blocks of [`THREADS`] threads for `nitems` items of `nnz` entries: as many as fill the device; with
/// few items, several in y share an item.
pub(crate) fn item_grid(info: &DeviceInfo, nitems: usize, nnz: usize) -> LaunchConfig {
    let resident = resident_blocks(info);
    let blocks = (nitems as u64).div_ceil(ITEMS).clamp(1, 4 * resident);
    let parts = (nnz as u64).div_ceil(32).min(resident.div_ceil(blocks)).clamp(1, MAX_PARTS);
    let linear = LaunchConfig::linear(blocks as u32, THREADS);
    LaunchConfig { grid: [blocks as u32, parts as u32, 1], ..linear }
}
