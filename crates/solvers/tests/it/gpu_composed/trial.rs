//! The solver whose statuses are tested.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Value;
use sparsebatch_formats::Batch;
use sparsebatch_solvers::SolveOptions;
use sparsebatch_solvers::gpu::ProductKernel;
use sparsebatch_spmv_gpu::FlexibleKernel;

use crate::common::{Solved, Systems, Trial};
use crate::gpu_composed::support::on_gpu;

/// The composed solver.
pub(crate) struct Composed;

impl Trial for Composed {
    const LIKE_THE_CPU: bool = false;

    /// Solves over products that sum in the CPU's order and over packed ones; both must end alike.
    fn solve<T: Value>(systems: &Systems<T>, options: &SolveOptions) -> Solved<T> {
        let batch = Batch::Uniform(systems.batch.clone());
        let vectors = (systems.b.as_slice(), Some(systems.x0.as_slice()));
        let by = |kernel: ProductKernel, order| {
            let solved = on_gpu(&Emulator::new(order), &batch, vectors, &kernel, options);
            Solved { x: solved.x, outcomes: solved.outcomes, kernel: format!("{kernel:?}") }
        };
        let scalar = by(ProductKernel::flexible(FlexibleKernel::CsrScalar), Order::Random(5));
        let packed = by(ProductKernel::default(), Order::Reverse);
        assert_eq!(packed.statuses(), scalar.statuses());
        scalar
    }
}
