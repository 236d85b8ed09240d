//! Results do not depend on a system's position, its neighbours, the division of work, or where its
//! arrays come from: the bits are the same.

use kernel_emu::{Emulator, Order, emulators};
use proptest::prelude::*;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::{Batch, BatchValues, Csr, UniformBatch};
use sparsebatch_spmv_gpu::{PackedKernel, PackedOptions, PackedPlan};
use sparsebatch_testing::{csr_integers, random_vector};
use std::sync::Arc;

use super::{
    REGISTERS, columns, divided, large, matrix, multiply, options, pattern_of, product, ragged,
    rows, shapes, spread, uneven, uniform, with_arrays,
};
use crate::common::matrices::{Sequence, banded, mixed, with_reals};
use crate::common::systems::{System, bits, shuffled, with_vectors};

/// Computes the products of a batch of the systems `order`, `runs` times; `None` for the other
/// systems.
fn products<E: Executor + Clone, T: Value>(
    executor: &E,
    systems: &[System<T>],
    order: &[usize],
    options: PackedOptions,
    runs: usize,
) -> Vec<Option<Vec<u64>>> {
    let matrices: Vec<Csr<T>> = order.iter().map(|&k| systems[k].matrix.clone()).collect();
    let x: Vec<T> = order.iter().flat_map(|&k| systems[k].x.clone()).collect();
    let y: Vec<T> = order.iter().flat_map(|&k| systems[k].y.clone()).collect();
    let plan = PackedPlan::new(executor.clone(), &ragged(&matrices), options).unwrap();
    let scales = (T::from_f64(0.7), T::from_f64(-1.3));
    let all = bits(&multiply(executor, &plan, (scales.0, &x), (scales.1, &y)));
    for _ in 1..runs {
        let again = multiply(executor, &plan, (scales.0, &x), (scales.1, &y));
        assert!(bits(&again) == all, "{options:?}: runs differ");
    }
    let mut parts = vec![None; systems.len()];
    let mut begin = 0;
    for &k in order {
        let end = begin + systems[k].y.len();
        parts[k] = Some(all[begin..end].to_vec());
        begin = end;
    }
    parts
}

fn all_options() -> Vec<PackedOptions> {
    let of = |(kernel, group_entries, piece_entries, share)| {
        options(1)
            .kernel(kernel)
            .group_entries(group_entries)
            .piece_entries(piece_entries)
            .share(Some(share))
    };
    let stream = |warps| Some(PackedKernel::Stream { steps: 8, stages: 2, warps });
    [
        (None, None, None, 3),
        (None, Some(0), Some(usize::MAX), usize::MAX),
        (None, Some(usize::MAX), Some(1), 1),
        (stream(1), Some(700), Some(200), 1),
        (stream(2), None, Some(1500), 1),
        (REGISTERS, None, Some(90), 1000),
    ]
    .map(of)
    .to_vec()
}

/// Compares every system of permuted and of smaller batches with the same system alone.
fn check_places<E: Executor + Clone, T: Value>(
    executors: &[E],
    systems: &[System<T>],
    options: &[PackedOptions],
    runs: usize,
) {
    let mut random = Sequence(3);
    let alone: Vec<Vec<u64>> = (0..systems.len())
        .map(|k| products(&executors[0], systems, &[k], options[0], 1)[k].clone().unwrap())
        .collect();
    for options in options {
        for (number, executor) in executors.iter().enumerate() {
            let mut order = shuffled(systems.len(), &mut random);
            if number % 2 == 1 {
                order.truncate(systems.len() / 2);
            }
            let found = products(executor, systems, &order, *options, runs);
            let differs = order.iter().find(|&&k| found[k].as_ref() != Some(&alone[k]));
            assert_eq!(differs, None, "executor {number}, {options:?}, order {order:?}");
        }
    }
}

fn small<T: Value>() -> Vec<Csr<T>> {
    let mut all: Vec<Csr<T>> = Vec::new();
    for rows in [0, 1, 2, 31, 33, 64, 100] {
        all.push(mixed(rows, rows + 20, Some(rows / 2)));
        all.push(mixed(rows, rows / 3 + 1, None));
        all.push(banded(rows, rows));
        all.push(Csr::zeros(rows, 3).unwrap());
    }
    all.into_iter().map(with_reals).collect()
}

#[test]
fn twenty_orders_of_threads_and_of_systems_give_the_same_bits() {
    check_places(&emulators(), &with_vectors(small::<f64>()), &all_options(), 1);
    check_places(&emulators(), &with_vectors(small::<f32>()), &all_options(), 1);
}

#[test]
fn large_systems_have_the_same_bits_in_any_order() {
    let mut all = small::<f64>();
    all.extend([
        uneven(900, 700),
        uneven(10, 40_000),
        uneven(300, 310),
        spread(3000, 200_000, true),
        spread(2500, 30_000, true),
        spread(7000, 7000, false),
    ]);
    let executors = [Order::Forward, Order::Reverse, Order::Random(5)].map(Emulator::new);
    check_places(&executors, &with_vectors(all), &all_options(), 1);
}

#[test]
fn twenty_runs_and_any_order_of_systems_give_the_same_bits_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let devices = [device.clone(), device.clone(), device];
    let mut all = (0..40).flat_map(|_| small::<f64>()).collect::<Vec<_>>();
    let Batch::Ragged(large) = large() else { panic!("made ragged") };
    all.extend((0..large.nitems()).map(|item| matrix(&Batch::Ragged(large.clone()), item)));
    let narrow = (0..20).flat_map(|_| small::<f32>()).collect();
    // Kernels differ in their use of fused multiply-add: each is compared with itself only.
    let (all_options, all) = (all_options(), with_vectors(all));
    let (stream, registers) = all_options.split_at(5);
    for options in [stream, registers] {
        check_places(&devices, &all, options, 20);
        check_places(&devices, &with_vectors(Vec::clone(&narrow)), options, 20);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn random_systems_have_the_same_bits_in_any_batch(
        matrices in proptest::collection::vec(csr_integers::<f64>(60, 50), 1..8),
        seed: u64,
    ) {
        let systems = with_vectors(matrices.into_iter().map(with_reals).collect());
        let executors = [Order::Forward, Order::Random(seed), Order::Reverse].map(Emulator::new);
        check_places(&executors, &systems, &all_options(), 1);
    }
}

#[test]
fn systems_of_a_uniform_batch_have_the_bits_of_a_ragged_one() {
    let executor = Emulator::new(Order::Forward);
    for (a, nitems) in [(mixed(50, 60, Some(9)), 9), (uneven(900, 700), 3), (banded(2100, 9), 2)] {
        let pattern = Arc::new(pattern_of(&a));
        let values = BatchValues::ItemMajor(random_vector(a.nnz() * nitems, 5));
        let batch = UniformBatch::try_new(pattern, nitems, values).unwrap();
        let matrices: Vec<Csr<f64>> = (0..nitems).map(|item| batch.to_matrix(item)).collect();
        let x: Vec<f64> = random_vector(a.ncols() * nitems, 7);

        let interleaved = Batch::Uniform(batch.to_interleaved());
        let of_uniform = product(&executor, &Batch::Uniform(batch), options(1), &x);
        let of_ragged = product(&executor, &ragged(&matrices), options(1), &x);

        assert_eq!(bits(&of_uniform), bits(&of_ragged));
        let of_interleaved = product(&executor, &interleaved, options(1), &x);
        assert_eq!(bits(&of_interleaved), bits(&of_ragged));
    }
}

fn check_arrays<E: Executor + Clone>(executor: &E, batch: &Batch<f64>) {
    for options in all_options() {
        let x: Vec<f64> = random_vector(columns(batch), 9);
        let expected = product(executor, batch, options, &x);
        with_arrays(executor, batch, |sizes, arrays| {
            let plan = PackedPlan::from_arrays(executor.clone(), sizes, &arrays, options).unwrap();
            drop(arrays);
            let found = multiply(executor, &plan, (1.0, &x), (0.0, &vec![1.0; rows(batch)]));
            assert_eq!(bits(&found), bits(&expected), "{options:?}");
            let of_host = PackedPlan::new(executor.clone(), batch, options).unwrap();
            assert_eq!(plan.explain().device_bytes, of_host.explain().device_bytes);
        });
    }
}

fn batches_for_arrays() -> [Batch<f64>; 5] {
    let own = uniform(&mixed(50, 60, Some(9)), 20);
    [
        divided(),
        shapes(),
        Batch::Uniform(UniformBatch::shared(own.to_matrix(0), 20)),
        Batch::Uniform(own.to_interleaved()),
        Batch::Uniform(uniform(&spread(2100, 70_000, true), 2)),
    ]
}

#[test]
fn arrays_on_the_device_give_the_bits_of_those_from_the_host() {
    batches_for_arrays()
        .iter()
        .for_each(|batch| check_arrays(&Emulator::new(Order::Forward), batch));
}

#[test]
fn arrays_on_the_device_give_the_bits_of_those_from_the_host_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    batches_for_arrays().iter().for_each(|batch| check_arrays(&device, batch));
}

#[test]
fn a_plan_has_its_own_copy_of_arrays() {
    let batch = divided();
    let executor = Emulator::new(Order::Forward);
    let x: Vec<f64> = random_vector(columns(&batch), 9);
    let operand = executor.upload(&x).unwrap();
    let expected = product(&executor, &batch, options(1), &x);
    with_arrays(&executor, &batch, |sizes, mut arrays| {
        let executor = executor.clone();
        let mut plan =
            PackedPlan::from_arrays(executor.clone(), sizes, &arrays, options(1)).unwrap();
        let mut y = executor.alloc(expected.len()).unwrap();
        let values = executor.download(&arrays.values).unwrap();
        let doubled: Vec<f64> = values.iter().map(|v| 2.0 * v).collect();
        executor.copy_from_host(&doubled, &mut arrays.values).unwrap();
        executor.fill_zero(&mut arrays.row_ptr).unwrap();
        executor.fill_zero(&mut arrays.col_idx).unwrap();

        plan.apply(1.0, &operand, 0.0, &mut y).unwrap();
        assert_eq!(executor.download(&y).unwrap(), expected);
        plan.update_from(&arrays.values).unwrap();
        plan.apply(0.5, &operand, 0.0, &mut y).unwrap();
        assert_eq!(executor.download(&y).unwrap(), expected);

        let broken = PackedPlan::from_arrays(executor, sizes, &arrays, options(1));
        let error = broken.err().unwrap();
        assert!(matches!(error, GpuError::InvalidArgument { name: "row_ptr", .. }), "{error}");
    });
}
