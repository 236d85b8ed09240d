//! Which systems are solved by clusters, and the reports of plans.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{DeviceInfo, Executor};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{CsrPattern, Pattern};
use sparsebatch_solve_core::ArgumentError;
use sparsebatch_solvers::gpu::{FusedSolver, GpuSolveError, GpuTuning, LaunchReport, ValuePlace};
use sparsebatch_solvers::{Method, Preconditioner, SolveOptions};
use std::sync::Arc;

use crate::common::options;
use crate::gpu_clusters::{SMALL, forced};

fn pattern(family: Family, n: usize) -> Arc<CsrPattern> {
    Arc::clone(Problem::new(family, n).unwrap().pattern())
}

fn plan(
    executor: &Emulator,
    pattern: &CsrPattern,
    options: &SolveOptions,
    tuning: &GpuTuning,
) -> Result<FusedSolver<Emulator, f64>, GpuSolveError> {
    FusedSolver::with_tuning(executor, pattern.view(), 100, options, tuning)
}

#[test]
fn clusters_are_as_small_as_their_shared_memory_allows() {
    let executor = Emulator::new(Order::Forward);
    let cg = options(Method::Cg, Preconditioner::Jacobi);
    let bin = |family, n| {
        let plan = plan(&executor, &pattern(family, n), &cg, &GpuTuning::default());
        plan.unwrap().explain().launches[0].clone()
    };

    let blocks = |launch: &LaunchReport| launch.fused().unwrap().blocks_per_system;
    let place = |launch: &LaunchReport| launch.fused().unwrap().values;

    let small = bin(Family::Tri, 4096);
    assert_eq!((blocks(&small), small.threads_per_system), (1, 512));
    let large = bin(Family::Tri, 4097);
    assert_eq!((blocks(&large), large.threads_per_system), (2, 1024));
    assert_eq!((large.fused().unwrap().rows_per_thread, large.systems_per_block), (8, 1));
    assert_eq!((place(&large), large.blocks % 2), (ValuePlace::Shared, 0));
    // Per block: half of the vector and a 0, and half of the places of five slices.
    assert_eq!(large.shared_bytes, (4097 + 5 * 3 * 512) * 8);
    assert!(large.to_string().contains("distributed shared memory of a cluster of 2 blocks"));
    let four = bin(Family::Lap2d, 10_000);
    assert_eq!((blocks(&four), place(&four)), (4, ValuePlace::Shared));
    let global = bin(Family::Rand9, 30_000);
    assert_eq!((blocks(&global), place(&global)), (8, ValuePlace::Global));
}

#[test]
fn what_no_cluster_has_is_refused() {
    let executor = Emulator::new(Order::Forward);
    let cg = options(Method::Cg, Preconditioner::Jacobi);
    let older = DeviceInfo { compute_capability: (8, 9), ..executor.info().clone() };
    let older = Emulator::with_info(older, Order::Forward);
    let none = GpuTuning::default();
    for (executor, n, most) in [(&older, 4097, "4096"), (&executor, 32_769, "32768")] {
        let refused = plan(executor, &pattern(Family::Tri, n), &cg, &none);
        match refused.map(drop) {
            Err(error @ GpuSolveError::Unsupported { .. }) => {
                assert!(error.to_string().contains(&format!("more than {most} rows")), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    let small = pattern(Family::Tri, 100);
    let shape = forced(SMALL[0], ValuePlace::Shared);
    for cluster in [0, 3, 16] {
        let tuning = shape.cluster(Some(cluster));
        let refused = plan(&executor, &small, &cg, &tuning);
        assert!(
            matches!(
                refused,
                Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "cluster", .. }))
            ),
            "{cluster}"
        );
    }
    let refused = plan(&older, &small, &cg, &shape);
    assert!(matches!(
        refused,
        Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "cluster", .. }))
    ));
    let one = none.cluster(Some(1));
    let refused = plan(&executor, &pattern(Family::Tri, 4097), &cg, &one);
    assert!(matches!(
        refused,
        Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "cluster", .. }))
    ));
    // Less than a warp per block, and too few rows.
    for group in [(32, 4), (64, 1)] {
        let tuning = shape.group(Some(group));
        let refused = plan(&executor, &small, &cg, &tuning);
        assert!(
            matches!(
                refused,
                Err(GpuSolveError::Argument(ArgumentError::OutOfRange { name: "group", .. }))
            ),
            "{group:?}"
        );
    }
}
