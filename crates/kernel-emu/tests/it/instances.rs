//! Nothing is compiled for the emulation in vain.

use std::collections::HashSet;

/// The file to which [`kernel_emu`] adds the kernels that tests launch.
const LAUNCHED: &str = "KERNEL_EMU_LAUNCHED";

/// Instances that random systems choose, not in every run.
const DRAWN: &str = include_str!("../../../solvers-gpu/src/fused/kernels/drawn.txt");

/// Finds instances that are compiled for the emulation in vain: no test launches them, and no list
/// of instances for GPUs names them. `.ci/run` runs this after all tests, with the names of
/// launched kernels in the file `KERNEL_EMU_LAUNCHED`.
#[test]
#[ignore = "needs the launches of all tests: see .ci/run"]
fn every_instance_of_the_emulation_is_launched_or_compiled_for_a_gpu() {
    let file = std::env::var_os(LAUNCHED).expect("KERNEL_EMU_LAUNCHED names a file");
    let launched = std::fs::read_to_string(file).unwrap();
    let known: HashSet<&str> = launched.lines().chain(DRAWN.lines()).collect();
    let listed = kernel_emu::nvrtc::all_listed();

    let mut idle = kernel_emu::registered().unwrap();
    // The emulator's own kernels also serve its example; those of the drivers are listed in the
    // test that compiles them.
    let elsewhere = |name: &str| name.starts_with("test_") || name.starts_with("burning:");
    idle.retain(|name| {
        !elsewhere(name) && !known.contains(name.as_str()) && !listed.contains(name)
    });

    assert!(idle.is_empty(), "{} instances that nothing needs: {idle:#?}", idle.len());
}

/// A module in none of these lists would be compiled for GPUs by no test.
#[test]
fn every_module_with_instances_for_gpus_is_tested_by_its_crate() {
    let modules = [
        sparsebatch_cuda::kernels::MODULES,
        sparsebatch_spmv_gpu::kernels::MODULES,
        sparsebatch_solvers_gpu::MODULES,
    ];
    let tested: HashSet<&str> = modules.into_iter().flatten().map(|module| module.name()).collect();

    let listed = kernel_emu::nvrtc::listed_modules();

    let forgotten: Vec<_> = listed.iter().filter(|name| !tested.contains(*name)).collect();
    assert!(forgotten.is_empty(), "modules in no `MODULES` of their crate: {forgotten:?}");
    assert_eq!(listed.len(), tested.len());
}
