//! Batches of more systems than 16 bits can count, and of numbers of systems that groups do not
//! divide.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Executor;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_formats::{Batch, Csr, UniformBatch};
use sparsebatch_spmv_gpu::{PackedOptions, PackedPlan};
use sparsebatch_testing::random_vector;

use super::{columns, multiply, options, oracle, ragged, rows, some, uniform};
use crate::common::matrices::{banded, from_columns, integers, mixed};
use crate::common::systems::bits;

const COUNT: usize = 66_000;

/// A system with at most one entry per row, so that rows need not be cut.
fn tiny(item: usize) -> Csr<f64> {
    match item % 5 {
        0 => Csr::zeros(0, 1).unwrap(),
        1 => Csr::zeros(1, 2).unwrap(),
        2 => banded(2, 1),
        3 => from_columns(3, 2, |row, _| vec![row % 2]),
        _ => banded(1, 1),
    }
}

fn check_integers<E: Executor + Clone>(executor: &E, batch: &Batch<f64>, options: PackedOptions) {
    let x = integers::<f64>(columns(batch), 1);
    let y = integers::<f64>(rows(batch), 2);
    let plan = PackedPlan::new(executor.clone(), batch, options).unwrap();
    let found = multiply(executor, &plan, (2.0, &x), (-1.0, &y));
    assert!(found == oracle(batch, 1, (2.0, &x), (-1.0, &y)), "{:?}", plan.explain());
}

#[test]
fn more_systems_than_16_bits_count_are_grouped() {
    let executor = Emulator::new(Order::Reverse);
    let all: Vec<Csr<f64>> = (0..COUNT).map(tiny).collect();

    check_integers(&executor, &ragged(&all), options(1));
    check_integers(&executor, &Batch::Uniform(uniform(&banded(2, 2), COUNT)), options(1));
    let shared = Batch::Uniform(UniformBatch::shared(banded(2, 2), COUNT + 1));
    check_integers(&executor, &shared, options(1));
}

/// Only some blocks of the product are executed.
#[test]
fn more_pieces_than_16_bits_count_are_one_launch() {
    let executor = Emulator::new(Order::Forward).with_blocks(some);
    let a: Csr<f64> = banded(2, 2);
    let batch = Batch::Uniform(UniformBatch::shared(a.clone(), COUNT));
    let x = integers::<f64>(2 * COUNT, 1);
    let unset = vec![f64::from_bits(u64::MAX); 2 * COUNT];
    let options = options(1).group_entries(Some(0)).share(Some(usize::MAX));
    let plan = PackedPlan::new(executor.clone(), &batch, options).unwrap();
    let explain = plan.explain();
    assert_eq!((explain.pieces, explain.blocks, explain.launches), (COUNT, COUNT, 1));

    let found = multiply(&executor, &plan, (1.0, &x), (0.0, &unset));

    let mut expected = unset;
    for item in some(COUNT as u64).into_iter().map(|item| 2 * item as usize) {
        let one = ragged(std::slice::from_ref(&a));
        let y = oracle(&one, 1, (1.0, &x[item..item + 2]), (0.0, &[0.0; 2]));
        expected[item..item + 2].copy_from_slice(&y);
    }
    assert!(bits(&found) == bits(&expected));
}

#[test]
fn more_pieces_than_16_bits_count_are_packed_and_multiplied_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let all: Vec<Csr<f64>> = (0..2 * COUNT).map(tiny).collect();
    for share in [1, usize::MAX] {
        let options = options(1).group_entries(Some(0)).share(Some(share));
        check_integers(&device, &ragged(&all), options);
        let own = uniform(&banded(3, 2), 2 * COUNT);
        check_integers(&device, &Batch::Uniform(own), options);
    }
}

#[test]
fn last_groups_of_a_uniform_batch_may_be_smaller() {
    let executor = Emulator::new(Order::Forward);
    let a: Csr<f64> = mixed(30, 25, Some(4));
    let grouped = |nitems: usize, each: usize| {
        options(1).group_entries(Some(each * a.nnz() + usize::from(nitems > 1)))
    };
    for nitems in [1, 2, 5, 6, 7, 11, 12, 13] {
        let mut own = uniform(&a, nitems);
        let values = integers(a.nnz() * nitems, 5);
        own.values_mut().copy_from_slice(&values);
        let interleaved = Batch::Uniform(own.to_interleaved());
        let shared = Batch::Uniform(UniformBatch::shared(a.clone(), nitems));
        for batch in [Batch::Uniform(own), interleaved, shared] {
            for each in [1, 5, 6, 100] {
                let options = grouped(nitems, each);
                let plan = PackedPlan::new(executor.clone(), &batch, options).unwrap();
                let per_group = each.min(nitems).min(1024 / 30);
                assert_eq!(plan.explain().pieces, nitems.div_ceil(per_group));
                check_integers(&executor, &batch, options);
            }
        }
    }
}

/// A system has the same bits in every group, also in an incomplete one, and alone.
#[test]
fn items_of_a_uniform_batch_do_not_depend_on_their_group() {
    let executor = Emulator::new(Order::Reverse);
    let a: Csr<f64> = mixed(30, 25, Some(4));
    let x: Vec<f64> = random_vector(25, 3);
    let mut expected = None;
    for nitems in [1, 6, 7] {
        for group_entries in [Some(0), Some(3 * a.nnz()), Some(usize::MAX)] {
            let options = options(1).group_entries(group_entries);
            let batch = Batch::Uniform(UniformBatch::shared(a.clone(), nitems));
            let found = super::product(&executor, &batch, options, &x.repeat(nitems));
            for y in found.chunks(30) {
                assert_eq!(*expected.get_or_insert_with(|| bits(y)), bits(y), "{options:?}");
            }
        }
    }
}
