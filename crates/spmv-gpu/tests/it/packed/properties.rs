//! Batches of random matrices compared with the oracle, in every order of threads and with every
//! division of the work; NaN and infinities.

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_spmv_gpu::{PackedKernel, PackedOptions, PackedPlan};
use sparsebatch_testing::{csr_integers, random_vector};

use super::{REGISTERS, check, columns, multiply, options, oracle, product, ragged, rows, spread};
use crate::common::matrices::{banded, integers, mixed};

/// Options: blocks that take all pieces or one each; systems alone, in groups, in groups as large
/// as possible, or in small pieces; all kernels.
fn variants(nrhs: usize) -> impl Iterator<Item = PackedOptions> {
    let stream = |warps| Some(PackedKernel::Stream { steps: 8, stages: 2, warps });
    [
        (None, 1, Some(300), None),
        (None, usize::MAX, None, Some(1)),
        (None, 1 << 63, Some(0), None),
        (stream(4), 1, Some(usize::MAX), Some(40)),
        (stream(2), 3, Some(1), None),
        (stream(1), 1, None, None),
        (REGISTERS, 1, Some(300), Some(usize::MAX)),
        (REGISTERS, 1000, Some(0), Some(40)),
    ]
    .into_iter()
    .map(move |(kernel, share, group_entries, piece_entries)| {
        options(nrhs)
            .kernel(kernel)
            .share(Some(share))
            .group_entries(group_entries)
            .piece_entries(piece_entries)
    })
}

fn numbers<T: Value>(of: [f64; 2]) -> (T, T) {
    (T::from_f64(of[0]), T::from_f64(of[1]))
}

/// Compares products of integers, which are exact in any order.
fn check_all<E: Executor + Clone, T: Value>(
    executor: &E,
    batch: &Batch<T>,
    nrhs: usize,
) -> Result<(), TestCaseError> {
    let x = integers::<T>(columns(batch) * nrhs, 1);
    let y = integers::<T>(rows(batch) * nrhs, 2);
    let nan = vec![T::from_f64(f64::NAN); y.len()];
    for options in variants(nrhs) {
        let plan = PackedPlan::new(executor.clone(), batch, options).unwrap();
        for alpha in [0.0, 1.0, -2.5] {
            for beta in [0.0, 1.0, -2.5] {
                let (alpha, beta) = numbers([alpha, beta]);
                let before = if beta == T::ZERO { &nan } else { &y };
                let found = multiply(executor, &plan, (alpha, &x), (beta, before));
                let expected = oracle(batch, nrhs, (alpha, &x), (beta, &y));
                prop_assert_eq!(found, expected, "{} {} {:?}", alpha, beta, options);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn random_batches_agree_with_the_oracle_in_every_order(
        matrices in proptest::collection::vec(csr_integers::<f64>(60, 50), 0..6),
        narrow in proptest::collection::vec(csr_integers::<f32>(40, 30), 0..4),
        nrhs in 1_usize..=3,
        seed: u64,
    ) {
        for order in [Order::Forward, Order::Reverse, Order::Random(seed)] {
            check_all(&Emulator::new(order), &ragged(&matrices), nrhs)?;
            check_all(&Emulator::new(order), &ragged(&narrow), nrhs)?;
        }
    }

    /// Systems without entries are frequent: they must not shift the systems behind them.
    #[test]
    fn batches_with_many_empty_systems_agree_with_the_oracle(
        sizes in proptest::collection::vec((0_usize..4, 0_usize..4, any::<bool>()), 0..12),
        nrhs in 1_usize..=3,
    ) {
        let matrices: Vec<Csr<f64>> = sizes
            .into_iter()
            .map(|(nrows, ncols, empty)| match empty {
                true => Csr::zeros(nrows, ncols).unwrap(),
                false => banded(nrows, ncols),
            })
            .collect();
        check_all(&Emulator::new(Order::Forward), &ragged(&matrices), nrhs)?;
    }

    #[test]
    fn real_values_agree_with_exact_sums(
        matrices in proptest::collection::vec(csr_integers::<f64>(60, 50), 0..6),
        nrhs in 1_usize..=3,
        seed: u64,
    ) {
        let batch = ragged(&matrices);
        let x: Vec<f64> = random_vector(columns(&batch) * nrhs, seed);
        for options in variants(nrhs) {
            check(&Emulator::new(Order::Random(seed)), &batch, options, &x);
        }
    }

    #[test]
    fn values_may_be_anything(
        matrices in proptest::collection::vec(csr_integers::<f32>(40, 30), 1..3),
        at in any::<prop::sample::Index>(),
        odd in prop_oneof![Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY)],
    ) {
        let batch = ragged(&matrices);
        let mut x: Vec<f32> = random_vector(columns(&batch), 5);
        if !x.is_empty() {
            let at = at.index(x.len());
            x[at] = odd;
        }
        for options in variants(1) {
            check(&Emulator::new(Order::Forward), &batch, options, &x);
        }
    }
}

/// Systems that are grouped or divided by rows, and whose x is copied or gathered.
fn all_kinds() -> Batch<f64> {
    let all = ragged(&[
        mixed(30, 25, Some(3)),
        banded(20, 20),
        mixed(40, 300, Some(7)),
        spread(300, 30_000, true),
        spread(2100, 70_000, true),
        Csr::zeros(2, 3).unwrap(),
        mixed(7, 5, None),
    ]);
    let Batch::Ragged(mut all) = all else { panic!("made ragged") };
    // No value is 0.
    let values = integers::<f64>(all.total_nnz(), 9);
    all.values_mut().iter_mut().zip(values).for_each(|(to, value)| *to = value + 0.5);
    Batch::Ragged(all)
}

/// For each row, whether it stores the column `column` of `x`.
fn rows_that_store(batch: &Batch<f64>, column: usize) -> Vec<bool> {
    let mut found = vec![false; rows(batch)];
    for item in 0..batch.nitems() {
        let pattern = batch.pattern(item);
        let first = batch.col_offset(item);
        for row in 0..pattern.nrows() {
            let mut columns = pattern.row(row).map(|k| pattern.col_idx()[k] as usize);
            found[batch.row_offset(item) + row] = columns.any(|c| first + c == column);
        }
    }
    found
}

fn check_special_x<E: Executor + Clone>(executor: &E) {
    let batch = all_kinds();
    let x = integers::<f64>(columns(&batch), 3).iter().map(|x| x + 0.5).collect::<Vec<_>>();
    for kernel in [None, REGISTERS] {
        for group_entries in [Some(0), Some(2000)] {
            let options = options(1).kernel(kernel).group_entries(group_entries);
            let plain = product(executor, &batch, options, &x);
            for item in 0..batch.nitems() {
                let (begin, end) = (batch.col_offset(item), batch.col_offset(item + 1));
                // The first and the last column, and one that is stored.
                let stored = batch.pattern(item).col_idx().get(5).map(|&c| begin + c as usize);
                for column in [Some(begin), Some(end - 1), stored].into_iter().flatten() {
                    let stores = rows_that_store(&batch, column);
                    let mut x = x.clone();
                    x[column] = [f64::NAN, f64::INFINITY][column % 2];
                    let found = product(executor, &batch, options, &x);
                    for (row, stores) in stores.iter().enumerate() {
                        let (found, plain) = (found[row], plain[row]);
                        let right = if *stores { !found.is_finite() } else { found == plain };
                        assert!(right, "column {column}, row {row}: {found}, else {plain}");
                    }
                }
            }
        }
    }
}

#[test]
fn nan_and_infinity_of_x_reach_the_rows_that_store_their_column_and_no_others() {
    for order in [Order::Forward, Order::Random(7)] {
        check_special_x(&Emulator::new(order));
    }
}

#[test]
fn nan_and_infinity_of_x_reach_the_rows_that_store_their_column_and_no_others_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    check_special_x(&device);
}

/// NaN and infinities of y stay in their rows, and vanish where beta is 0.
fn check_special_y<E: Executor + Clone>(executor: &E) {
    let batch = all_kinds();
    for nrhs in [1, 2] {
        let x = integers::<f64>(columns(&batch) * nrhs, 1);
        let mut y = integers::<f64>(rows(&batch) * nrhs, 2);
        for k in (0..y.len()).step_by(5) {
            y[k] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][k % 3];
        }
        for options in variants(nrhs) {
            let plan = PackedPlan::new(executor.clone(), &batch, options).unwrap();
            for beta in [1.0, -2.5, 0.0] {
                let found = multiply(executor, &plan, (1.0, &x), (beta, &y));
                let plain: Vec<f64> = y.iter().map(|_| 0.0).collect();
                let plain = oracle(&batch, nrhs, (1.0, &x), (0.0, &plain));
                for (row, (found, (plain, y))) in found.iter().zip(plain.iter().zip(&y)).enumerate()
                {
                    let expected = if beta == 0.0 { *plain } else { plain + beta * y };
                    let same = *found == expected || found.is_nan() && expected.is_nan();
                    assert!(same, "row {row}, beta {beta}: {found}, not {expected}; {options:?}");
                }
            }
        }
    }
}

#[test]
fn nan_and_infinity_of_y_stay_in_their_rows_and_are_not_read_without_beta() {
    for order in [Order::Forward, Order::Reverse] {
        check_special_y(&Emulator::new(order));
    }
}

#[test]
fn nan_and_infinity_of_y_stay_in_their_rows_and_are_not_read_without_beta_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    check_special_y(&device);
}
