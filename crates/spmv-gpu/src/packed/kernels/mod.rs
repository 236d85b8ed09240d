//! Kernels of packed products.

use sparsebatch_cuda::Module;

/// Cuts, measures and packs a batch on the device.
pub(crate) static PACK: Module = Module::new("pack", include_str!("pack.cu"), &[]);
/// The product.
pub(crate) static PACKED: Module = Module::new("packed", include_str!("packed.cu"), &[]);
