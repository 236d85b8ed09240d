//! The solver whose statuses are tested.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Value;
use sparsebatch_solvers::SolveOptions;
use sparsebatch_solvers::gpu::ValuePlace;

use crate::common::{Solved, Systems, Trial, on_gpu};
use crate::gpu_clusters::{SMALL, forced};

/// The fused solver, with clusters of blocks.
pub(crate) struct Clusters;

impl Trial for Clusters {
    const LIKE_THE_CPU: bool = false;

    /// Solves with four blocks per system, values in shared and in device memory; both must agree.
    fn solve<T: Value>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
        let by = |values, order| {
            on_gpu(&Emulator::new(order), systems, options, &forced(SMALL[1], values))
        };
        let shared = by(ValuePlace::Shared, Order::Random(5));
        let global = by(ValuePlace::Global, Order::Reverse);
        assert!(shared.kernel.ends_with(", 4>"), "{}", shared.kernel);
        assert_eq!(global.statuses(), shared.statuses());
        shared
    }
}
