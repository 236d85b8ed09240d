//! Updates of values.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::{Batch, Csr, UniformBatch};
use sparsebatch_spmv_gpu::PackedPlan;
use sparsebatch_testing::random_vector;

use super::{
    REGISTERS, columns, divided, multiply, options, oracle, ragged, rows, shapes, spread, uneven,
    uniform, with_arrays,
};
use crate::common::matrices::{banded, integers, mixed};
use crate::common::systems::bits;

/// The same patterns with new random values.
fn with_values<T: Value>(batch: &Batch<T>, seed: u64) -> Batch<T> {
    let mut batch = batch.clone();
    let values = match &mut batch {
        Batch::Uniform(batch) => batch.values_mut(),
        Batch::Ragged(batch) => batch.values_mut(),
    };
    values.copy_from_slice(&random_vector(values.len(), seed));
    batch
}

fn kinds<T: Value>() -> Vec<Batch<T>> {
    let own = uniform(&mixed(50, 60, Some(9)), 20);
    let split = uniform(&spread(2100, 70_000, true), 2);
    let uniform_ones = [
        Batch::Uniform(UniformBatch::shared(own.to_matrix(0), 20)),
        Batch::Uniform(own.to_interleaved()),
        Batch::Uniform(own),
        Batch::Uniform(UniformBatch::shared(split.to_matrix(0), 2)),
        Batch::Uniform(split),
    ];
    let all = [shapes(), divided()].into_iter().chain(uniform_ones);
    all.map(|batch: Batch<f64>| batch.cast::<T>()).collect()
}

/// An update gives the results of a new plan, also when repeated and when undone.
fn check_updates<E: Executor + Clone, T: Value>(executor: &E) {
    for first in kinds::<T>() {
        for kernel in [None, REGISTERS] {
            let options = options(1).kernel(kernel);
            let x: Vec<T> = random_vector(columns(&first), 2);
            let zeros = vec![T::ZERO; rows(&first)];
            let apply = |plan: &PackedPlan<E, T>| {
                bits(&multiply(executor, plan, (T::ONE, &x), (T::ZERO, &zeros)))
            };
            let mut plan = PackedPlan::new(executor.clone(), &first, options).unwrap();
            let original = apply(&plan);
            let before = plan.explain().clone();
            for seed in [31, 32] {
                let next = with_values(&first, seed);
                let fresh = PackedPlan::new(executor.clone(), &next, options).unwrap();
                let expected = apply(&fresh);
                assert_ne!(expected, original);

                plan.update_values(&next).unwrap();
                assert_eq!(apply(&plan), expected);
                plan.update_values(&first).unwrap();
                assert_eq!(apply(&plan), original);
                with_arrays(executor, &next, |_, arrays| plan.update_from(&arrays.values)).unwrap();
                assert_eq!(apply(&plan), expected);
                assert!(plan.arrays().unwrap().0 == fresh.arrays().unwrap().0);
            }
            assert_eq!(*plan.explain(), before);
        }
    }
}

#[test]
fn updated_plans_have_the_bits_of_new_ones() {
    check_updates::<_, f64>(&Emulator::new(Order::Forward));
    check_updates::<_, f32>(&Emulator::new(Order::Random(6)));
}

#[test]
fn updated_plans_have_the_bits_of_new_ones_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    check_updates::<_, f64>(&device);
    check_updates::<_, f32>(&device);
}

#[test]
fn values_of_either_layout_replace_those_of_the_other() {
    let executor = Emulator::new(Order::Forward);
    let own = uniform(&mixed(50, 60, Some(9)), 7);
    let item_major = Batch::Uniform(own.clone());
    let interleaved = with_values(&Batch::Uniform(own.to_interleaved()), 9);
    let x = integers::<f64>(columns(&item_major), 1);
    let zeros = vec![0.0; rows(&item_major)];
    let mut plan = PackedPlan::new(executor.clone(), &item_major, options(1)).unwrap();
    let other = PackedPlan::new(executor.clone(), &interleaved, options(1)).unwrap();

    plan.update_values(&interleaved).unwrap();

    let found = multiply(&executor, &plan, (1.0, &x), (0.0, &zeros));
    assert_eq!(found, multiply(&executor, &other, (1.0, &x), (0.0, &zeros)));
}

#[test]
fn new_values_are_scaled_by_alpha_and_added_to_y() {
    let batch = shapes();
    let executor = Emulator::new(Order::Forward);
    let (x, y) = (integers::<f64>(columns(&batch), 1), integers::<f64>(rows(&batch), 2));
    let Batch::Ragged(mut signs) = batch.clone() else { panic!("made ragged") };
    signs.values_mut().iter_mut().for_each(|v| *v = v.signum());
    let signs = Batch::Ragged(signs);
    let mut plan = PackedPlan::new(executor.clone(), &batch, options(1)).unwrap();

    plan.update_values(&signs).unwrap();

    let found = multiply(&executor, &plan, (2.0, &x), (-3.0, &y));
    assert_eq!(found, oracle(&signs, 1, (2.0, &x), (-3.0, &y)));
}

/// The error of `update_values` for a batch; checks that the plan is unchanged.
fn refused(first: &Batch<f64>, second: &Batch<f64>) -> GpuError {
    let executor = Emulator::new(Order::Forward);
    let x: Vec<f64> = random_vector(columns(first), 2);
    let zeros = vec![0.0; rows(first)];
    let mut plan = PackedPlan::new(executor.clone(), first, options(1)).unwrap();
    let before = multiply(&executor, &plan, (1.0, &x), (0.0, &zeros));
    let error = plan.update_values(second).unwrap_err();
    assert_eq!(multiply(&executor, &plan, (1.0, &x), (0.0, &zeros)), before);
    error
}

/// A matrix with `nnz` entries in one row.
fn one_row(nnz: usize) -> Csr<f64> {
    Csr::try_new(1, nnz, vec![0, nnz as i32], (0..nnz as i32).collect(), vec![1.0; nnz]).unwrap()
}

#[test]
fn batches_of_other_sizes_are_refused_though_they_have_as_many_entries() {
    let (a, b) = (uneven(20, 30), banded(9, 9));
    let others = [
        ragged(&[one_row(a.nnz()), b.clone()]),
        ragged(&[b.clone(), a.clone()]),
        ragged(&[Csr::zeros(20, 30).unwrap(), one_row(a.nnz() + b.nnz())]),
    ];
    for other in others {
        let error = refused(&ragged(&[a.clone(), b.clone()]), &other);
        assert!(matches!(error, GpuError::InvalidArgument { name: "batch", .. }), "{error}");
    }
    let fewer = refused(&ragged(&[a.clone(), b.clone()]), &ragged(&[one_row(a.nnz() + b.nnz())]));
    assert_eq!(fewer, GpuError::Length { name: "batch", expected: 2, found: 1 });
    let other = refused(&ragged(&[a.clone(), b.clone()]), &ragged(&[a.clone(), a.clone()]));
    let (expected, found) = (a.nnz() + b.nnz(), 2 * a.nnz());
    assert_eq!(other, GpuError::Length { name: "values", expected, found });
}

#[test]
fn other_patterns_of_the_same_sizes_are_refused() {
    // Rows of 2, 1 and 2 entries, and of 1, 2 and 2; then one column moved.
    let of = |row_ptr: &[i32], col_idx: &[i32]| {
        Csr::try_new(3, 3, row_ptr.to_vec(), col_idx.to_vec(), vec![1.0; 5]).unwrap()
    };
    let a = of(&[0, 2, 3, 5], &[0, 2, 1, 0, 2]);
    let other = of(&[0, 1, 3, 5], &[0, 0, 1, 1, 2]);
    let moved = of(&[0, 2, 3, 5], &[0, 1, 1, 0, 2]);
    for other in [other, moved] {
        let error = refused(&ragged(&[a.clone(), a.clone()]), &ragged(&[a.clone(), other.clone()]));
        assert_eq!(error, GpuError::OtherPattern { item: 1 });
        let error = refused(&Batch::Uniform(uniform(&a, 3)), &Batch::Uniform(uniform(&other, 3)));
        assert_eq!(error, GpuError::OtherPattern { item: 0 });
    }
}

#[test]
fn uniform_and_ragged_shared_and_own_values_do_not_replace_each_other() {
    let a = mixed::<f64>(30, 40, Some(4));
    let own = uniform(&a, 3);
    let matrices: Vec<Csr<f64>> = (0..3).map(|item| own.to_matrix(item)).collect();
    let (own, of_ragged) = (Batch::Uniform(own), ragged(&matrices));
    let shared = Batch::Uniform(UniformBatch::shared(a.clone(), 3));
    for (first, second) in [(&own, &of_ragged), (&of_ragged, &own)] {
        let error = refused(first, second);
        assert!(matches!(error, GpuError::InvalidArgument { name: "batch", .. }), "{error}");
    }
    let own_for_shared = refused(&shared, &own);
    let expected = GpuError::Length { name: "values", expected: a.nnz(), found: 3 * a.nnz() };
    assert_eq!(own_for_shared, expected);
    assert!(matches!(refused(&own, &shared), GpuError::Length { name: "values", .. }));
    // As many values: one set that is shared, or the only system's own.
    let (one, one_shared) = (uniform(&a, 1), UniformBatch::shared(a, 1));
    let error = refused(&Batch::Uniform(one), &Batch::Uniform(one_shared));
    assert!(matches!(error, GpuError::InvalidArgument { name: "batch", .. }), "{error}");
}

#[test]
fn values_on_the_device_are_as_many_as_there_are() {
    let executor = Emulator::new(Order::Forward);
    let batch = shapes();
    let nnz = batch.total_nnz();
    let mut plan = PackedPlan::new(executor.clone(), &batch, options(1)).unwrap();
    for len in [0, nnz - 1, nnz + 1] {
        let values = executor.upload(&vec![0.0; len]).unwrap();
        let error = plan.update_from(&values).unwrap_err();
        assert_eq!(error, GpuError::Length { name: "values", expected: nnz, found: len });
    }
}
