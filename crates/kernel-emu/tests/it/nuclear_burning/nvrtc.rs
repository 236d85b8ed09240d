//! The kernels compile for every architecture, without a GPU.

use sparsebatch_cuda::device::nvrtc::{Program, compile};
use sparsebatch_cuda::testing::nvrtc_or_skip;
use sparsebatch_drivers::nuclear_burning::gpu::launches::{BURNING, KERNELS};

/// Registers that a thread may have, so that a multiprocessor holds four blocks of 128 threads.
const REGISTERS: u32 = 104;

/// Bytes that a thread may spill: a register, where two blocks of 1,024 threads are asked for.
const SPILLED: u32 = 8;

#[test]
fn every_kernel_compiles_and_hardly_spills() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    for architecture in ["sm_80", "sm_90", "sm_100", "sm_120"] {
        let program = Program {
            name: "burning.cu",
            source: &BURNING.program(),
            expressions: &KERNELS,
            architecture,
            options: &[],
        };

        let compiled = compile(&program).unwrap();

        assert_eq!(compiled.kernels.len(), KERNELS.len());
        for kernel in &compiled.kernels {
            let used = kernel.resources.expect("the log holds every kernel");
            println!("{architecture} {}: {used:?}", kernel.expression);
            assert!(used.spill_store_bytes + used.spill_load_bytes <= SPILLED, "{kernel:?}");
            assert!(used.registers > 0 && used.registers <= REGISTERS, "{kernel:?}");
        }
    }
}

#[test]
fn every_kernel_runs_in_the_emulation() {
    let registered = kernel_emu::registered().unwrap();
    for kernel in KERNELS {
        assert!(registered.contains(&format!("burning:{kernel}")), "{kernel}");
    }
}
