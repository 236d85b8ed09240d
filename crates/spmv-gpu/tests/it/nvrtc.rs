//! Every kernel compiles for every architecture, every instance for one, without a GPU.

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
    // The instances of the packed products differ in how much is under way at once, of which some are enough.
    let rest = |module: &&&Module| module.name() != "packed";
    check_emulated(&MODULES.iter().filter(rest).copied().collect::<Vec<_>>());
}
