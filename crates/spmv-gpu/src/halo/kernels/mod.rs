//! Kernels that move the elements which GPUs exchange.

use sparsebatch_cuda::Module;

/// Elements of x that other GPUs need, and sums that belong to some rows.
pub(crate) static HALO: Module = Module::new("halo", include_str!("halo.cu"), &[]);
