//! Bitwise repeatability: over runs, orders of threads, and positions in the batch.

use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::Csr;
use sparsebatch_spmv_gpu::flexible::{FlexibleOptions, FlexiblePlan};
use sparsebatch_spmv_gpu::{SingleOptions, SinglePlan};
use sparsebatch_testing::random_vector;

use super::{batch_of, flexible_options, single_options, systems};
use crate::common::matrices::{Sequence, mixed, with_reals};
use crate::common::systems::{System, bits, shuffled, with_vectors};
use kernel_emu::emulators;

const RUNS: u64 = 20;

/// The products of all systems, in a batch with the given order.
fn products<E: Executor + Clone, T: Value>(
    executor: &E,
    systems: &[System<T>],
    order: &[usize],
    options: &FlexibleOptions,
    runs: u64,
) -> Vec<Vec<u64>> {
    let matrices: Vec<Csr<T>> = order.iter().map(|&k| systems[k].matrix.clone()).collect();
    let x: Vec<T> = order.iter().flat_map(|&k| systems[k].x.clone()).collect();
    let y: Vec<T> = order.iter().flat_map(|&k| systems[k].y.clone()).collect();
    let plan = FlexiblePlan::new(executor, &batch_of(&matrices), options.clone()).unwrap();
    let x = executor.upload(&x).unwrap();
    let mut out = executor.alloc(y.len()).unwrap();
    let mut first = None;
    for _ in 0..runs {
        executor.copy_from_host(&y, &mut out).unwrap();
        plan.apply(T::from_f64(0.7), &x, T::from_f64(-1.3), &mut out).unwrap();
        let found = bits(&executor.download(&out).unwrap());
        assert!(*first.get_or_insert_with(|| found.clone()) == found, "{options:?}: runs differ");
    }
    let all = first.expect("there is a run");
    let mut parts = vec![Vec::new(); order.len()];
    let mut begin = 0;
    for &k in order {
        let end = begin + systems[k].y.len();
        parts[k] = all[begin..end].to_vec();
        begin = end;
    }
    parts
}

fn check_batch<E: Executor + Clone, T: Value>(
    executors: &[E],
    systems: &[System<T>],
    options: &FlexibleOptions,
    runs: u64,
) {
    let natural: Vec<usize> = (0..systems.len()).collect();
    let expected = products(&executors[0], systems, &natural, options, 1);
    for (number, executor) in executors.iter().enumerate() {
        let found = products(executor, systems, &natural, options, runs);
        assert!(found == expected, "{options:?}: executor {number}");
        let order = shuffled(systems.len(), &mut Sequence(number as u64));
        let found = products(executor, systems, &order, options, runs);
        let differs = (0..systems.len()).find(|&k| found[k] != expected[k]);
        assert_eq!(differs, None, "{options:?}: a system differs in the order {order:?}");
    }
}

fn check_single<E: Executor + Clone, T: Value>(
    executors: &[E],
    a: &Csr<T>,
    options: &SingleOptions,
    runs: u64,
) {
    let (x, y) = (random_vector::<T>(a.ncols(), 1), random_vector::<T>(a.nrows(), 2));
    let mut first = None;
    for executor in executors {
        let mut plan = SinglePlan::new(executor, a.view(), options).unwrap();
        let x = executor.upload(&x).unwrap();
        let mut out = executor.alloc(y.len()).unwrap();
        for _ in 0..runs {
            executor.copy_from_host(&y, &mut out).unwrap();
            plan.apply(T::from_f64(0.7), &x, T::from_f64(-1.3), &mut out).unwrap();
            let found = bits(&executor.download(&out).unwrap());
            let first = first.get_or_insert_with(|| found.clone());
            assert!(*first == found, "{options:?}: runs differ");
        }
    }
}

#[test]
fn twenty_orders_of_threads_and_of_systems_give_the_same_bits() {
    let (systems, narrow) = (with_vectors(systems::<f64>(100)), with_vectors(systems::<f32>(40)));
    for options in flexible_options() {
        check_batch(&emulators(), &systems, &options, 1);
        check_batch(&emulators(), &narrow, &options, 1);
    }
}

#[test]
fn twenty_orders_of_threads_give_the_same_bits_for_one_matrix() {
    let a = with_reals(mixed::<f64>(150, 170, Some(70)));
    for options in single_options() {
        check_single(&emulators(), &a, &options, 1);
    }
}

#[test]
fn twenty_runs_and_any_order_of_systems_give_the_same_bits_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let devices = [device.clone(), device.clone(), device];
    let many = || (0..40).flat_map(|_| systems::<f64>(700)).collect();
    let (systems, narrow) = (with_vectors(many()), with_vectors(systems::<f32>(1500)));
    for options in flexible_options() {
        check_batch(&devices, &systems, &options, RUNS);
        check_batch(&devices, &narrow, &options, RUNS);
    }
}

#[test]
fn twenty_runs_give_the_same_bits_for_one_matrix_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let a = with_reals(mixed::<f64>(20_000, 30_000, Some(11_000)));
    for options in single_options() {
        // One long row sets the width of ELL, and every distinct diagonal takes one of DIA.
        let scattered = matches!(options.kernel.name(), "ell" | "dia");
        let small = with_reals(mixed::<f64>(700, 900, Some(300)));
        let a = if scattered { &small } else { &a };
        let defaults = options.clone().parts(None);
        for options in [options, defaults] {
            check_single(std::slice::from_ref(&device), a, &options, RUNS);
        }
    }
}
