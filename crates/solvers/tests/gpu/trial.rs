//! The solver that statuses are tested of.

use kernel_emu::Order;
use sparsebatch_solvers::SolveOptions;
use sparsebatch_solvers::gpu::GpuTuning;
use sparsebatch_spmv_gpu::Value;

use crate::common::emulator::Emulator;
use crate::common::{Solved, Systems, on_gpu};

/// Whether systems whose numbers vanish end as on the CPU, whose operations are the same.
pub(crate) const LIKE_THE_CPU: bool = true;

pub(crate) fn solve<T: Value>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
    on_gpu(&Emulator::new(Order::Random(5)), systems, options, &GpuTuning::default())
}
