//! Without a GPU, every kernel is compiled for every architecture, and every listed instance for
//! one.

use kernel_emu::nvrtc::{Extent, check, check_emulated};
use sparsebatch_cuda::device::nvrtc::{Program, compile};
use sparsebatch_cuda::testing::nvrtc_or_skip;
use sparsebatch_solvers::gpu::{MODULES, module};

#[test]
fn every_instance_compiles_for_one_architecture_and_every_kernel_for_all() {
    check(MODULES, Extent::Usual);
}

#[test]
#[ignore = "20 minutes of a processor"]
fn every_instance_compiles_for_every_architecture() {
    check(MODULES, Extent::Every);
}

#[test]
fn every_instance_runs_in_the_emulation() {
    check_emulated(MODULES);
}

/// Kernels of whole solves without the code for guesses and a rounding floor, which most solves do
/// not use.
#[test]
fn what_launches_do_not_ask_for_is_left_out() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let compiled = |options: &[&str]| {
        let program = Program {
            name: "bicgstab.cu",
            source: &module("bicgstab").unwrap().program(),
            expressions: &["bicgstab<double, 32, 4, 3, 0, 0, 1, 1, 0, 0, 1, float>"],
            architecture: "sm_90",
            options,
        };
        let compiled = compile(&program).unwrap();
        let used = compiled.kernels[0].resources.unwrap();
        (compiled.image.len(), used.spill_store_bytes)
    };

    let whole = compiled(&["-DFUSED_MAY=3"]);
    let [plain, guesses, floor] =
        ["-DFUSED_MAY=0", "-DFUSED_MAY=1", "-DFUSED_MAY=2"].map(|option| compiled(&[option]));

    assert_eq!(whole, compiled(&[]));
    assert!(guesses.0 < whole.0 && floor.0 < whole.0, "{guesses:?}, {floor:?}, {whole:?}");
    assert!(plain.0 < guesses.0.min(floor.0), "{plain:?}, {guesses:?}, {floor:?}");
    assert_eq!(plain.1, 0, "bytes that are spilled");
}
