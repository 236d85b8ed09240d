//! Kernels for one matrix.

use sparsebatch_cuda::Module;

/// CSR, a thread or some lanes per row.
pub(crate) static CSR: Module = Module::new("csr", include_str!("csr.cu"), &[]);
/// CSR-I.
pub(crate) static CSR_BALANCED: Module =
    Module::new("csr_balanced", include_str!("csr_balanced.cu"), &[]);
/// CSR, a block per run of rows.
pub(crate) static CSR_ADAPTIVE: Module =
    Module::new("csr_adaptive", include_str!("csr_adaptive.cu"), &[]);
/// Coordinates.
pub(crate) static COO: Module = Module::new("coo", include_str!("coo.cu"), &[]);
/// ELLPACK.
pub(crate) static ELL: Module = Module::new("ell", include_str!("ell.cu"), &[]);
/// Diagonals.
pub(crate) static DIA: Module = Module::new("dia", include_str!("dia.cu"), &[]);
/// Slices of 32 rows.
pub(crate) static SELL: Module = Module::new("sell", include_str!("sell.cu"), &[]);
/// Slices of rows, several threads per row.
pub(crate) static SELLP: Module = Module::new("sellp", include_str!("sellp.cu"), &[]);
