//! The solver whose statuses are tested.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Value;
use sparsebatch_solvers::SolveOptions;
use sparsebatch_solvers::gpu::GpuTuning;

use crate::common::{Solved, Systems, Trial, on_gpu};

/// The fused solver.
pub(crate) struct Fused;

impl Trial for Fused {
    const LIKE_THE_CPU: bool = true;

    fn solve<T: Value>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
        on_gpu(&Emulator::new(Order::Random(5)), systems, options, &GpuTuning::default())
    }
}
