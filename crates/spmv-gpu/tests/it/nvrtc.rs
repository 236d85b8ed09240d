//! Without a GPU, every kernel is compiled for every architecture, and every instance for one.

use kernel_emu::nvrtc::{Extent, check, check_emulated};
use sparsebatch_cuda::Module;
use sparsebatch_spmv_gpu::kernels::MODULES;

#[test]
fn every_instance_compiles_for_one_architecture_and_every_kernel_for_all() {
    check(MODULES, Extent::Usual);
}

#[test]
#[ignore = "minutes of a processor"]
fn every_instance_compiles_for_every_architecture() {
    check(MODULES, Extent::Every);
}

#[test]
fn every_instance_runs_in_the_emulation() {
    // The instances of the packed product differ in the number of loads in flight; some of them
    // suffice.
    let rest = |module: &&&Module| module.name() != "packed";
    check_emulated(&MODULES.iter().filter(rest).copied().collect::<Vec<_>>());
}
