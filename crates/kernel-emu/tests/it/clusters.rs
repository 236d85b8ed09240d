//! Clusters of blocks: correct kernels give the oracle's results in every order of threads, and
//! each faulty kernel is detected.

use std::ptr::null_mut;

use kernel_emu::{Args, Order, Shape, launch, launch_shape};

fn orders() -> impl Iterator<Item = Order> {
    // ThreadSanitizer needs a minute for more.
    let more = if sanitizer_is("thread") { 0 } else { 10 };
    Order::ALL.into_iter().chain((2..2 + more).map(Order::Random))
}

/// Whether the kernels were compiled with this sanitizer, which ends the process at some faults.
fn sanitizer_is(name: &str) -> bool {
    kernel_emu::sanitizer().unwrap() == Some(name)
}

#[test]
fn clusters_sum_in_distributed_shared_memory() {
    const BLOCK: usize = 64;
    for cluster in [1, 2, 4] {
        for clusters in [1, 3] {
            let x: Vec<f64> = (0..clusters * cluster * BLOCK).map(|k| (k % 37) as f64).collect();
            let rounds = 3u32;
            let last = f64::from(rounds - 1);
            let expected: Vec<f64> = x
                .chunks(cluster * BLOCK)
                .flat_map(|x| {
                    let sum = x.iter().map(|v| v + last).sum::<f64>();
                    let next = x.iter().cycle().skip(BLOCK).take(x.len());
                    next.map(move |next| sum + next + last).collect::<Vec<f64>>()
                })
                .collect();
            for order in orders() {
                let mut sums = vec![f64::NAN; x.len()];
                let (x_at, sums_at) = (x.as_ptr(), sums.as_mut_ptr());
                let args = Args::new().arg(&rounds).arg(&x_at).arg(&sums_at);
                let kernel = format!("demo_cluster_sum<{cluster}, 64>");
                let grid = [(clusters * cluster) as u32, 1, 1];
                // SAFETY: types as in cluster.cu; the arrays have a value for each thread.
                unsafe {
                    args.cluster(cluster as u32).launch(&kernel, grid, [64, 1, 1], 64 * 8, order)
                }
                .unwrap();
                assert_eq!(sums, expected, "{cluster} {clusters} {order:?}");
            }
        }
    }
}

#[test]
fn clusters_write_to_each_other() {
    for cluster in [2u32, 3, 8] {
        let blocks = 2 * cluster;
        for order in orders() {
            let (mut received, mut counted) = (vec![0u32; blocks as usize * 32], [0u32; 2]);
            let (received_at, counted_at) = (received.as_mut_ptr(), counted.as_mut_ptr());
            let args = Args::new().arg(&cluster).arg(&received_at).arg(&counted_at);
            // SAFETY: types as in cluster.cu; a number for each thread and each cluster.
            unsafe {
                args.cluster(cluster).launch(
                    "demo_cluster_writes",
                    [blocks, 1, 1],
                    [32, 1, 1],
                    0,
                    order,
                )
            }
            .unwrap();
            for (block, received) in received.chunks(32).enumerate() {
                let before = (block as u32 + cluster - 1) % cluster;
                let expected: Vec<u32> = (0..32).map(|t| 100 * before + t).collect();
                assert_eq!(received, expected, "{order:?}");
            }
            assert_eq!(counted, [cluster * 32; 2], "{order:?}");
        }
    }
}

#[test]
fn some_clusters_of_a_grid_run() {
    let x = [1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0];
    for order in Order::ALL {
        let mut y = [0.0f64; 6];
        let (fault, cluster, x_at, y_at) = (0u32, 2u32, x.as_ptr(), y.as_mut_ptr());
        let mut args = [
            (&raw const fault).cast_mut().cast(),
            (&raw const cluster).cast_mut().cast(),
            (&raw const x_at).cast_mut().cast(),
            (&raw const y_at).cast_mut().cast(),
        ];
        let shape = Shape { grid: [6, 1, 1], block: [32, 1, 1], shared_bytes: 0, cluster };
        let (kernel, only) = ("faulty_cluster_sync", Some(&[5, 0, 4][..]));
        // SAFETY: types as in cluster.cu; a value for each block.
        unsafe { launch_shape(kernel, shape, args.as_mut_ptr(), order, only) }.unwrap();
        // Two rounds, the second with 1 more a block.
        assert_eq!(y, [8.0, 8.0, 0.0, 0.0, 24.0, 24.0], "{order:?}");
    }
}

/// Whether `faulty_cluster_sync` gives the right answer.
fn is_right(fault: u32, cluster: u32, order: Order) -> bool {
    let x: Vec<f64> = (0..cluster).map(f64::from).collect();
    let mut y = vec![f64::NAN; cluster as usize];
    let (x_at, y_at) = (x.as_ptr(), y.as_mut_ptr());
    let args = Args::new().arg(&fault).arg(&cluster).arg(&x_at).arg(&y_at);
    // SAFETY: types as in cluster.cu; a value for each block.
    unsafe {
        args.cluster(cluster).launch("faulty_cluster_sync", [cluster, 1, 1], [64, 1, 1], 0, order)
    }
    .unwrap();
    let sum: f64 = x.iter().sum();
    y.iter().all(|&y| y == 2.0 * sum + f64::from(cluster))
}

#[test]
fn a_missing_cluster_barrier_gives_a_wrong_answer() {
    for cluster in [2, 4] {
        assert!(orders().all(|order| is_right(0, cluster, order)));
        if kernel_emu::sanitizer().unwrap().is_some() {
            continue;
        }
        for fault in [1, 2, 3] {
            assert!(!is_right(fault, cluster, Order::Forward), "{fault}");
            assert!(!is_right(fault, cluster, Order::Reverse), "{fault}");
            // At random, blocks seldom end much before others.
            let wrong = (0..20).filter(|&seed| !is_right(fault, cluster, Order::Random(seed)));
            assert!(wrong.count() > 5 || fault == 3, "{fault}");
        }
    }
}

#[test]
fn what_is_written_before_a_block_begins_is_lost() {
    if sanitizer_is("thread") {
        return;
    }
    for order in [Order::Forward, Order::Reverse] {
        let mut y = [0.0f64; 2];
        let y_at = y.as_mut_ptr();
        // SAFETY: one pointer to a value for each block.
        unsafe {
            Args::new().arg(&y_at).cluster(2).launch(
                "faulty_early_write",
                [2, 1, 1],
                [32, 1, 1],
                0,
                order,
            )
        }
        .unwrap();
        assert!(y.iter().any(|y| y.is_nan()), "{order:?}: {y:?}");
    }
}

/// The error of one cluster of two blocks of 64 threads.
fn error_of(kernel: &str, args: &Args<'_>, order: Order) -> String {
    // SAFETY: the kernels that are called here stop before they touch what they are given.
    unsafe { args.clone().cluster(2).launch(kernel, [2, 1, 1], [64, 1, 1], 32, order) }.unwrap_err()
}

#[test]
fn part_of_a_cluster_at_a_barrier_is_an_error() {
    for order in orders() {
        let error = error_of("faulty_partial_cluster", &Args::new(), order);
        let part = "the cluster barrier is reached by only part of the cluster";
        assert!(error.contains(part) && error.contains("cluster.cu:"), "{error}");
        let error = error_of("faulty_partial_block_of_cluster", &Args::new(), order);
        let part = "reached by only part of the block: others wait at the cluster barrier of";
        assert!(error.contains(part) && error.contains("cluster.cu:"), "{error}");
        let error = error_of("faulty_two_cluster_barriers", &Args::new(), order);
        assert!(error.contains("wait at different barriers"), "{error}");
    }
}

#[test]
fn places_that_a_cluster_does_not_have_are_errors() {
    let mut y = 0.0f64;
    let y_at = &raw mut y;
    for order in orders() {
        let error = error_of("faulty_rank", &Args::new(), order);
        assert!(error.contains("the cluster has no block 2, but 2"), "{error}");
        let error = error_of("faulty_not_shared", &Args::new().arg(&y_at), order);
        assert!(error.contains("not in the block's own shared memory"), "{error}");
    }
}

#[test]
fn writes_past_shared_memory_and_after_its_end_are_errors() {
    if kernel_emu::sanitizer().unwrap().is_some() {
        return;
    }
    for order in orders() {
        let error = error_of("faulty_bounds_in_cluster", &Args::new().arg(&5u32), order);
        assert!(error.contains("block (1,0,0)"), "{error}");
        assert!(error.contains("written 8 bytes past the end of the dynamic"), "{error}");
    }
    let error = error_of("faulty_late_write", &Args::new(), Order::Forward);
    assert!(error.contains("block (0,0,0)") && error.contains("after it had ended"), "{error}");
}

#[test]
fn grids_that_are_no_multiple_of_the_cluster_are_errors() {
    // SAFETY: nothing is launched.
    let call = |blocks, cluster| unsafe {
        Args::new().cluster(cluster).launch(
            "faulty_partial_cluster",
            [blocks, 1, 1],
            [32, 1, 1],
            0,
            Order::Forward,
        )
    };

    assert!(call(3, 2).unwrap_err().contains("3 blocks in x, not a multiple of a cluster of 2"));
    assert!(call(16, 16).unwrap_err().contains("1 to 8"));
    assert!(call(1, 0).unwrap_err().contains("a cluster of 0 blocks"));
}

#[test]
fn without_clusters_a_block_is_one_of_its_own() {
    // SAFETY: the kernel has no parameters, and one block is a cluster.
    let alone = unsafe {
        launch("faulty_partial_cluster", [3, 1, 1], [64, 1, 1], 0, null_mut(), Order::Forward)
    };
    assert_eq!(alone, Ok(()));
}
