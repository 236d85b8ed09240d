//! Batches of random matrices compared with the oracle, in every order of threads; NaN and
//! infinities in y; the vector operations.

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_cpu_ref::seq;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{Batch, Csr, CsrPattern};
use sparsebatch_spmv_gpu::SinglePlan;
use sparsebatch_spmv_gpu::flexible::{FlexibleKernel, FlexibleOptions, FlexiblePlan};
use sparsebatch_testing::csr_integers;

use super::{ragged, single_options, systems};
use crate::common::matrices::{integers, mixed, oracle};

/// The paths through each kernel: operand in shared memory, in global memory, or partly in both.
fn variants() -> impl Iterator<Item = FlexibleOptions> {
    FlexibleKernel::ALL.iter().copied().flat_map(|kernel| {
        let base = FlexibleOptions::new(kernel);
        [
            base.clone().nrhs(2),
            base.clone().shared_bytes(Some(0)).threads(Some(64)),
            base.shared_bytes(Some(100)).max_blocks(Some(2)).threads_per_row(8),
        ]
    })
}

fn check_batch<E: Executor + Clone, T: Value>(
    executor: &E,
    matrices: &[Csr<T>],
) -> Result<(), TestCaseError> {
    let batch = ragged(matrices);
    let nitems = batch.nitems();
    for options in variants() {
        let nrhs = options.nrhs;
        let x = integers::<T>(batch.col_offsets()[nitems] * nrhs, 1);
        let y = integers::<T>(batch.row_offsets()[nitems] * nrhs, 2);
        let plan =
            FlexiblePlan::new(executor, &Batch::Ragged(batch.clone()), options.clone()).unwrap();
        let x_device = executor.upload(&x).unwrap();
        for (alpha, beta) in [(2.0, -3.0), (1.0, 0.0)] {
            let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
            let nan = vec![T::from_f64(f64::NAN); y.len()];
            let before = if beta == T::ZERO { &nan } else { &y };
            let mut expected = y.clone();
            seq::batch_spmv::<CsrPattern, T>(alpha, &batch, nrhs, &x, beta, &mut expected).unwrap();
            let mut found = executor.upload(before).unwrap();
            plan.apply(alpha, &x_device, beta, &mut found).unwrap();
            prop_assert_eq!(executor.download(&found).unwrap(), expected, "{:?}", options);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn random_batches_agree_with_the_oracle_in_every_order(
        a in proptest::collection::vec(csr_integers::<f64>(40, 40), 0..5),
        b in proptest::collection::vec(csr_integers::<f32>(40, 40), 0..3),
        seed: u64,
    ) {
        for order in [Order::Forward, Order::Reverse, Order::Random(seed)] {
            check_batch(&Emulator::new(order), &a)?;
            check_batch(&Emulator::new(order), &b)?;
        }
    }

    #[test]
    fn random_matrices_agree_with_the_oracle_in_both_orders(a in csr_integers::<f64>(40, 40)) {
        let (x, y) = (integers::<f64>(a.ncols(), 1), integers::<f64>(a.nrows(), 2));
        for executor in [Order::Forward, Order::Reverse].map(Emulator::new) {
            for options in single_options() {
                let mut plan = SinglePlan::new(&executor, a.view(), &options).unwrap();
                let x_device = executor.upload(&x).unwrap();
                let mut found = executor.upload(&y).unwrap();
                plan.apply(2.0, &x_device, -3.0, &mut found).unwrap();
                let expected = oracle(2.0, &a, &x, -3.0, &y);
                prop_assert_eq!(executor.download(&found).unwrap(), expected, "{:?}", options);
            }
        }
    }
}

/// NaN and infinities of y stay in their rows, and vanish where beta is 0.
fn check_special_y<E: Executor + Clone>(executor: &E) {
    let special = |len: usize| -> Vec<f64> {
        let mut y = integers::<f64>(len, 2);
        for k in (0..len).step_by(5) {
            y[k] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][k % 3];
        }
        y
    };
    let same = |found: &[f64], expected: &[f64]| {
        found.iter().zip(expected).all(|(a, b)| a == b || a.is_nan() && b.is_nan())
    };

    let a = mixed::<f64>(70, 60, Some(9));
    let (x, y) = (integers::<f64>(60, 1), special(70));
    for options in single_options() {
        let mut plan = SinglePlan::new(executor, a.view(), &options).unwrap();
        for beta in [1.0, -2.0, 0.0] {
            let x_device = executor.upload(&x).unwrap();
            let mut found = executor.upload(&y).unwrap();
            plan.apply(2.0, &x_device, beta, &mut found).unwrap();
            let found = executor.download(&found).unwrap();
            assert!(same(&found, &oracle(2.0, &a, &x, beta, &y)), "{options:?}, beta {beta}");
            assert_eq!(beta == 0.0, found.iter().all(|y| y.is_finite()));
        }
    }

    let mut batch = ragged(&systems::<f64>(40));
    let values = integers::<f64>(batch.total_nnz(), 3);
    batch.values_mut().copy_from_slice(&values);
    let nitems = batch.nitems();
    let x = integers::<f64>(batch.col_offsets()[nitems], 1);
    let y = special(batch.row_offsets()[nitems]);
    for options in variants().filter(|options| options.nrhs == 1) {
        let plan =
            FlexiblePlan::new(executor, &Batch::Ragged(batch.clone()), options.clone()).unwrap();
        for beta in [1.0, -2.0, 0.0] {
            let mut expected = y.clone();
            seq::batch_spmv::<CsrPattern, f64>(2.0, &batch, 1, &x, beta, &mut expected).unwrap();
            let x_device = executor.upload(&x).unwrap();
            let mut found = executor.upload(&y).unwrap();
            plan.apply(2.0, &x_device, beta, &mut found).unwrap();
            let found = executor.download(&found).unwrap();
            assert!(same(&found, &expected), "{options:?}, beta {beta}");
        }
    }
}

#[test]
fn nan_and_infinity_of_y_stay_in_their_rows() {
    for order in [Order::Forward, Order::Reverse] {
        check_special_y(&Emulator::new(order));
    }
}

#[test]
fn nan_and_infinity_of_y_stay_in_their_rows_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    check_special_y(&device);
}
