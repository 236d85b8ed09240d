//! Kernels of batched products, one module per format.

use sparsebatch_cuda::Module;

/// CSR.
pub(crate) static BATCH_CSR: Module = Module::new("batch_csr", include_str!("batch_csr.cu"), &[]);
/// Coordinates.
pub(crate) static BATCH_COO: Module = Module::new("batch_coo", include_str!("batch_coo.cu"), &[]);
/// ELLPACK.
pub(crate) static BATCH_ELL: Module = Module::new("batch_ell", include_str!("batch_ell.cu"), &[]);
/// SELL-P.
pub(crate) static BATCH_SELLP: Module =
    Module::new("batch_sellp", include_str!("batch_sellp.cu"), &[]);
