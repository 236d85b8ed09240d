//! The solver that statuses are tested of.

use kernel_emu::Order;
use sparsebatch_solvers::SolveOptions;
use sparsebatch_solvers::gpu::ValuePlace;
use sparsebatch_spmv_gpu::Value;

use crate::common::emulator::Emulator;
use crate::common::{Solved, Systems, on_gpu};
use crate::{SMALL, forced};

/// Whether systems whose numbers vanish end as on the CPU, whose operations are the same.
pub(crate) const LIKE_THE_CPU: bool = false;

/// By four blocks a system, values in shared and in device memory, which are the same.
pub(crate) fn solve<T: Value>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
    let by =
        |values, order| on_gpu(&Emulator::new(order), systems, options, &forced(SMALL[1], values));
    let shared = by(ValuePlace::Shared, Order::Random(5));
    let global = by(ValuePlace::Global, Order::Reverse);
    assert!(shared.kernel.ends_with(", 4>"), "{}", shared.kernel);
    assert_eq!(global.statuses(), shared.statuses());
    shared
}
