//! The CUDA sources of the products. Each source lies in the folder of the plan that launches it.

use sparsebatch_cuda::Module;

use crate::{flexible, halo, packed, single};

/// Checks CSR arrays that lie on the device.
pub(crate) static CHECK: Module = Module::new("check", include_str!("check.cu"), &[]);

/// Every module of this crate.
#[doc(hidden)]
pub static MODULES: &[&Module] = &[
    &packed::kernels::PACK,
    &packed::kernels::PACKED,
    &CHECK,
    &single::kernels::CSR,
    &single::kernels::CSR_BALANCED,
    &single::kernels::CSR_ADAPTIVE,
    &single::kernels::COO,
    &single::kernels::ELL,
    &single::kernels::DIA,
    &single::kernels::SELL,
    &single::kernels::SELLP,
    &flexible::kernels::BATCH_CSR,
    &flexible::kernels::BATCH_COO,
    &flexible::kernels::BATCH_ELL,
    &flexible::kernels::BATCH_SELLP,
    &halo::kernels::HALO,
];

/// The module of this name, if there is one.
#[doc(hidden)]
pub fn module(name: &str) -> Option<&'static Module> {
    MODULES.iter().copied().find(|module| module.name() == name)
}
