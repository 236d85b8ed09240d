//! Products with one matrix: every kernel compared with the oracle, in the emulation and, if
//! present, on a GPU.

use crate::common::matrices::{banded, from_columns, integers, mixed, oracle, with_reals};
use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::accuracy::assert_spmv_close;
use sparsebatch_formats::convert::HybWidth;
use sparsebatch_formats::generate::rng;
use sparsebatch_formats::{Csr, Scalar};
use sparsebatch_spmv_gpu::{BalancedRows, SingleKernel, SingleOptions, SinglePlan};
use sparsebatch_testing::{csr_integers, random_vector};

/// The modules whose kernels support only single matrices.
const MODULES: [&str; 8] =
    ["csr", "csr_balanced", "csr_adaptive", "coo", "ell", "dia", "sell", "sellp"];

/// Every kernel with its defaults and with options far from them.
fn all_options() -> Vec<SingleOptions> {
    let of = |kernel| SingleOptions::with_kernel(kernel).max_fill(1e9);
    let mut all: Vec<SingleOptions> = SingleKernel::ALL.iter().copied().map(of).collect();
    all.push(SingleOptions::default());
    all.extend([2, 4, 8, 16].map(|lanes| of(SingleKernel::CsrVector).lanes(Some(lanes))));
    for kernel in [SingleKernel::CsrBalanced, SingleKernel::Coo] {
        all.extend([1, 2, 7, 40, u32::MAX].map(|parts| of(kernel).parts(Some(parts))));
    }
    all.extend(
        [128, 256, 2048].map(|entries| of(SingleKernel::CsrAdaptive).block_entries(Some(entries))),
    );
    all.push(of(SingleKernel::Sell).sort_window(Some(64)));
    all.extend(
        [0, 1, 6, 13]
            .map(|width| of(SingleKernel::Hyb).hyb_width(HybWidth::Fixed(width)).parts(Some(3))),
    );
    let slices = [(1, 1, None), (4, 3, None), (32, 1, Some(64)), (5, 2, Some(10)), (128, 8, None)];
    all.extend(slices.map(|(slice_size, threads_per_row, sort_window)| {
        of(SingleKernel::SellP)
            .slice_size(slice_size)
            .threads_per_row(threads_per_row)
            .sort_window(sort_window)
    }));
    all
}

/// `y = alpha*A*x + beta*y` by a plan.
fn product<E: Executor, T: Value>(
    executor: &E,
    plan: &mut SinglePlan<E, T>,
    alpha: T,
    x: &[T],
    beta: T,
    y: &[T],
) -> Vec<T> {
    let x = executor.upload(x).unwrap();
    let mut y = executor.upload(y).unwrap();
    plan.apply(alpha, &x, beta, &mut y).unwrap();
    executor.download(&y).unwrap()
}

/// Checks products of integers, which are exact in any order of sums.
fn check_exact<E: Executor + Clone, T: Value>(
    executor: &E,
    a: &Csr<T>,
    options: &SingleOptions,
) -> Result<(), String> {
    let (x, y) = (integers::<T>(a.ncols(), 1), integers::<T>(a.nrows(), 2));
    let nan = vec![T::from_f64(f64::NAN); a.nrows()];
    let number = T::from_f64;
    let mut plan = SinglePlan::new(executor, a.view(), options).unwrap();
    for (alpha, beta, y) in [(2.0, -3.0, &y), (1.0, 0.0, &nan), (-2.0, 1.0, &y), (0.0, 2.0, &y)] {
        let (alpha, beta) = (number(alpha), number(beta));
        let found = product(executor, &mut plan, alpha, &x, beta, y);
        let expected = oracle(alpha, a, &x, beta, y);
        if found != expected {
            let row = (0..a.nrows()).find(|&row| found[row] != expected[row]).unwrap();
            return Err(format!(
                "{options:?}, {} x {}, alpha {alpha}, beta {beta}: row {row} is {}, expected {}",
                a.nrows(),
                a.ncols(),
                found[row],
                expected[row]
            ));
        }
    }
    Ok(())
}

/// Checks products of reals against the rounding bound.
fn check_close<E: Executor + Clone, T: Value>(executor: &E, a: &Csr<T>, options: &SingleOptions) {
    let x = random_vector::<T>(a.ncols(), 3);
    let y = vec![T::from_f64(f64::NAN); a.nrows()];
    let mut plan = SinglePlan::new(executor, a.view(), options).unwrap();
    let first = product(executor, &mut plan, T::ONE, &x, T::ZERO, &y);
    assert_spmv_close(a.view(), &x, &first);
    let second = product(executor, &mut plan, T::ONE, &x, T::ZERO, &y);
    assert!(first == second, "{options:?}: two products differ");
}

fn some_matrices<T: Scalar>() -> Vec<Csr<T>> {
    let mut all = Vec::new();
    for nrows in [1, 2, 7, 8, 9, 31, 33, 130] {
        all.push(mixed(nrows, nrows + 40, Some(nrows / 2)));
        all.push(mixed(nrows, nrows / 2 + 1, None));
        all.push(banded(nrows, nrows + 3));
    }
    // One long row; rows that span many parts; only the last row; gaps of empty rows.
    all.push(from_columns(1, 1500, |_, _| (0..1500).step_by(2).collect()));
    all.push(from_columns(3, 700, |row, _| (row..700).collect()));
    all.push(from_columns(100, 5, |row, _| if row == 99 { vec![4] } else { vec![] }));
    all.push(from_columns(
        300,
        90,
        |row, _| {
            if row % 90 == 45 { (0..90).collect() } else { vec![] }
        },
    ));
    // Rows that several blocks of 128 entries share, a long one beside short ones, and one that
    // fills a block.
    all.push(from_columns(150, 800, |row, _| match row {
        20 => (0..800).collect(),
        21 => (0..200).collect(),
        40 | 41 => (0..100).collect(),
        60 => (0..128).collect(),
        _ => vec![row, row + 1],
    }));
    // Ranges of x that just fit in the shared memory of csr-tile, and ones that do not.
    all.push(from_columns(4, 2000, |row, _| vec![row, row + 3, row + 1021 + row]));
    all
}

/// Numbers of rows for which the two multiprocessors of the emulation multiply a matrix in slices
/// by different kernels if its columns lie anywhere: up to 1,536 rows, up to 3,072, and more.
const SLICED_ROWS: [usize; 3] = [1_501, 2_990, 3_203];

/// Rows of 0 to 69 entries anywhere in 40,000 columns; those of a larger matrix begin with those of
/// a smaller one.
fn scattered<T: Scalar>(nrows: usize) -> Csr<T> {
    from_columns(nrows, 40_000, |row, _| {
        let length = if row % 7 == 3 { row % 20 } else { 40 + row % 30 };
        let key = rng::key(5, row as u64);
        (0..length).map(|k| (40_000.0 * rng::keyed(key, k as u64)) as usize).collect()
    })
}

#[test]
fn all_kernels_agree_with_the_oracle() {
    let executor = Emulator::new(Order::Forward);
    for options in all_options() {
        for a in some_matrices::<f64>() {
            check_exact(&executor, &a, &options).unwrap();
        }
        for a in some_matrices::<f32>() {
            check_exact(&executor, &a, &options).unwrap();
        }
    }
    let sell = SingleOptions::with_kernel(SingleKernel::Sell);
    for options in [sell.clone(), sell.sort_window(Some(64)).max_fill(1e9)] {
        for nrows in SLICED_ROWS {
            check_exact(&executor, &scattered::<f64>(nrows), &options).unwrap();
            check_exact(&executor, &scattered::<f32>(nrows), &options).unwrap();
        }
    }
    // All instances listed for the emulation must have been launched.
    let launched = executor.launched();
    for listed in kernel_emu::registered().unwrap() {
        let (module, expression) = listed.split_once(':').unwrap();
        if MODULES.contains(&module) {
            let expression = expression.replace(',', ", ");
            assert!(launched.contains(&format!("{module}.cu: {expression}")), "{listed}");
        }
    }
}

#[test]
fn kernels_of_slices_sum_a_row_up_in_one_order() {
    let executor = Emulator::new(Order::Forward);
    let [small, middle, large] = SLICED_ROWS;
    let a = with_reals(scattered::<f64>(large));
    let x = random_vector::<f64>(a.ncols(), 3);
    let first_rows = |nrows: usize| {
        let nnz = a.row_ptr()[nrows] as usize;
        let (row_ptr, col_idx) = (a.row_ptr()[..=nrows].to_vec(), a.col_idx()[..nnz].to_vec());
        Csr::try_new(nrows, a.ncols(), row_ptr, col_idx, a.values()[..nnz].to_vec()).unwrap()
    };
    let options = SingleOptions::with_kernel(SingleKernel::Sell);
    let product_of = |nrows: usize| {
        let matrix = first_rows(nrows);
        let mut plan = SinglePlan::new(&executor, matrix.view(), &options).unwrap();
        product(&executor, &mut plan, 1.0, &x, 0.0, &vec![0.0; nrows])
    };

    let all = product_of(large);

    assert_spmv_close(a.view(), &x, &all);
    for nrows in [small, middle] {
        assert!(product_of(nrows) == all[..nrows], "{nrows} rows");
    }
}

#[test]
fn matrices_without_rows_columns_or_entries_are_products_too() {
    let executor = Emulator::new(Order::Forward);
    for (nrows, ncols) in [(0, 0), (0, 5), (5, 0), (40, 40)] {
        for options in all_options() {
            check_exact(&executor, &Csr::<f64>::zeros(nrows, ncols).unwrap(), &options).unwrap();
        }
    }
}

#[test]
fn results_are_close_and_do_not_depend_on_the_order_of_threads() {
    for options in all_options() {
        let a = with_reals(mixed::<f64>(150, 170, Some(70)));
        let x = random_vector::<f64>(a.ncols(), 3);
        let y = random_vector::<f64>(a.nrows(), 4);
        let results = Order::ALL.map(|order| {
            let executor = Emulator::new(order);
            check_close(&executor, &a, &options);
            check_close(&executor, &with_reals(mixed::<f32>(60, 90, Some(3))), &options);
            let mut plan = SinglePlan::new(&executor, a.view(), &options).unwrap();
            product(&executor, &mut plan, 0.7, &x, -1.3, &y)
        });

        for other in &results[1..] {
            assert!(*other == results[0], "{options:?}");
        }
    }
}

#[test]
fn nan_and_infinity_reach_exactly_the_rows_that_store_the_column() {
    let executor = Emulator::new(Order::Forward);
    let a = with_reals(mixed::<f64>(90, 80, Some(33)));
    for options in all_options() {
        for bad in [f64::NAN, f64::INFINITY] {
            let mut x = random_vector::<f64>(a.ncols(), 3);
            x[17] = bad;
            x[40] = -bad;
            let y = vec![0.0; a.nrows()];
            let mut plan = SinglePlan::new(&executor, a.view(), &options).unwrap();

            let found = product(&executor, &mut plan, 1.0, &x, 0.0, &y);

            assert_spmv_close(a.view(), &x, &found);
        }
    }
}

#[test]
fn dia_tells_fill_from_entries_whatever_their_values() {
    let executor = Emulator::new(Order::Forward);
    // [1 0 5; 0 2 0]: the diagonals 0 and 2; that of row 1 and offset 2 lies outside.
    let a = Csr::try_new(2, 3, vec![0, 2, 3], vec![0, 2, 1], vec![1.0, 5.0, 2.0]).unwrap();
    let options = SingleOptions::with_kernel(SingleKernel::Dia);
    let mut plan = SinglePlan::new(&executor, a.view(), &options).unwrap();

    let x = [1.0, f64::INFINITY, 10.0];
    let found = product(&executor, &mut plan, 1.0, &x, 0.0, &[0.0; 2]);
    let b = Csr::try_new(2, 2, vec![0, 1, 1], vec![0], vec![1.0]).unwrap();
    let mut half = SinglePlan::new(&executor, b.view(), &options).unwrap();
    half.update_values(&[0.0]).unwrap();
    let of_zero = product(&executor, &mut half, 1.0, &[f64::INFINITY, f64::NAN], 0.0, &[7.0; 2]);

    assert_eq!(found, [51.0, f64::INFINITY]);
    // A stored zero is multiplied, fill is not.
    assert!(of_zero[0].is_nan() && of_zero[1] == 0.0, "{of_zero:?}");
    assert_eq!(plan.explain().stored_len, 4);
    assert_eq!(plan.explain().padding(), 1);
}

#[test]
fn an_infinite_alpha_reaches_empty_rows_as_in_the_oracle() {
    let executor = Emulator::new(Order::Forward);
    let a = mixed::<f64>(30, 30, None);
    let (x, y) = (integers::<f64>(30, 1), integers::<f64>(30, 2));
    for options in all_options() {
        let mut plan = SinglePlan::new(&executor, a.view(), &options).unwrap();

        let found = product(&executor, &mut plan, f64::NAN, &x, 1.0, &y);

        assert!(found.iter().all(|y| y.is_nan()), "{options:?}");
    }
}

#[test]
fn new_values_take_the_place_of_the_old_ones() {
    let executor = Emulator::new(Order::Forward);
    let mut a = mixed::<f64>(70, 60, Some(9));
    let x = integers::<f64>(60, 1);
    let y = vec![f64::NAN; 70];
    for options in all_options() {
        let mut plan = SinglePlan::new(&executor, a.view(), &options).unwrap();
        let values = integers::<f64>(a.nnz(), 77);
        plan.update_values(&values).unwrap();
        let short = plan.update_values(&values[1..]);

        let found = product(&executor, &mut plan, 1.0, &x, 0.0, &y);

        a.values_mut().copy_from_slice(&values);
        assert_eq!(found, oracle(1.0, &a, &x, 0.0, &y), "{options:?}");
        let (expected, found) = (a.nnz(), a.nnz() - 1);
        assert_eq!(short, Err(GpuError::Length { name: "values", expected, found }));
    }
}

#[test]
fn vectors_of_other_lengths_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let a = mixed::<f64>(7, 5, None);
    for options in all_options() {
        let mut plan = SinglePlan::new(&executor, a.view(), &options).unwrap();
        let (x, long) = (executor.upload(&[1.0; 5]).unwrap(), executor.upload(&[1.0; 6]).unwrap());
        let mut y = executor.upload(&[7.0; 7]).unwrap();
        let mut short = executor.upload(&[7.0; 6]).unwrap();

        let of_x = plan.apply(1.0, &long, 0.0, &mut y);
        let of_y = plan.apply(1.0, &x, 0.0, &mut short);

        assert_eq!(of_x, Err(GpuError::Length { name: "x", expected: 5, found: 6 }));
        assert_eq!(of_y, Err(GpuError::Length { name: "y", expected: 7, found: 6 }));
        assert_eq!(executor.download(&y).unwrap(), [7.0; 7]);
    }
}

#[test]
fn several_plans_of_a_matrix_multiply_alike_and_share_no_values() {
    let executor = Emulator::new(Order::Forward);
    let a = mixed::<f64>(70, 60, Some(9));
    let (x, zeros) = (integers::<f64>(60, 1), vec![0.0; 70]);
    let expected = oracle(1.0, &a, &x, 0.0, &zeros);
    for options in all_options() {
        let mut plans = SinglePlan::several(&executor, a.view(), &options, 3).unwrap();
        plans[1].update_values(&vec![0.0; a.nnz()]).unwrap();

        let mut found = plans.iter_mut().map(|plan| product(&executor, plan, 1.0, &x, 0.0, &zeros));

        let found: [Vec<f64>; 3] = std::array::from_fn(|_| found.next().unwrap());
        assert!(found == [expected.clone(), zeros.clone(), expected.clone()], "{options:?}");
        assert_eq!(plans[0].explain().stored_len, plans[2].explain().stored_len);
    }
    let none = SinglePlan::several(&executor, a.view(), &SingleOptions::default(), 0);
    assert!(none.unwrap().is_empty());
}

#[test]
fn preprocessing_serves_several_plans_of_its_pattern_alone() {
    let executor = Emulator::new(Order::Forward);
    let a = mixed::<f64>(50, 50, Some(20));
    let options = SingleOptions::with_kernel(SingleKernel::CsrBalanced);
    let rows = BalancedRows::new(a.view().pattern(), 9);
    let x = integers::<f64>(50, 1);
    for a in [a.clone(), with_reals(a.clone())] {
        let mut plan =
            SinglePlan::with_balanced_rows(&executor, a.view(), &options, &rows).unwrap();

        let found = product(&executor, &mut plan, 1.0, &x, 0.0, &[0.0; 50]);

        assert_spmv_close(a.view(), &x, &found);
        assert_eq!(plan.explain().parts, 9);
        assert_eq!(plan.explain().preprocessing, Some(rows.time()));
    }
    let other = mixed::<f64>(51, 50, Some(20));
    let refused = SinglePlan::with_balanced_rows(&executor, other.view(), &options, &rows).err();
    assert!(matches!(refused, Some(GpuError::InvalidArgument { name: "balanced rows", .. })));
    let scalar = SingleOptions::with_kernel(SingleKernel::CsrScalar);
    let refused = SinglePlan::with_balanced_rows(&executor, a.view(), &scalar, &rows).err();
    assert!(matches!(refused, Some(GpuError::InvalidArgument { name: "kernel", .. })));
}

#[test]
fn options_outside_their_range_are_refused_by_name() {
    let executor = Emulator::new(Order::Forward);
    let a = mixed::<f64>(7, 5, None);
    let of = SingleOptions::with_kernel;
    let cases = [
        ("lanes", of(SingleKernel::CsrVector).lanes(Some(3))),
        ("lanes", of(SingleKernel::CsrVector).lanes(Some(64))),
        ("parts", of(SingleKernel::CsrBalanced).parts(Some(0))),
        ("parts", of(SingleKernel::Coo).parts(Some(0))),
        ("block_entries", of(SingleKernel::CsrAdaptive).block_entries(Some(100))),
        (
            "slice_size * threads_per_row",
            of(SingleKernel::SellP).slice_size(1025).threads_per_row(1),
        ),
    ];

    for (expected, options) in cases {
        match SinglePlan::new(&executor, a.view(), &options).err() {
            Some(GpuError::InvalidArgument { name, .. }) => assert_eq!(name, expected),
            other => panic!("{options:?} gave {other:?}"),
        }
    }
}

#[test]
fn formats_that_would_blow_up_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let a = from_columns::<f64>(
        2000,
        2000,
        |row, _| {
            if row == 0 { (0..2000).collect() } else { vec![] }
        },
    );

    let error =
        SinglePlan::new(&executor, a.view(), &SingleOptions::with_kernel(SingleKernel::Ell)).err();

    assert!(matches!(error, Some(GpuError::Format { .. })), "{error:?}");
}

#[test]
fn plans_explain_what_they_chose() {
    let executor = Emulator::new(Order::Forward);
    // Rows of 3, 0 and 1 entries.
    let a = Csr::try_new(3, 4, vec![0, 3, 3, 4], vec![0, 1, 2, 3], vec![1.0; 4]).unwrap();
    let explain = |kernel| {
        let plan = SinglePlan::new(&executor, a.view(), &SingleOptions::with_kernel(kernel));
        plan.unwrap().explain().clone()
    };

    let smart = explain(SingleKernel::CsrSmart);
    let ell = explain(SingleKernel::Ell);
    let balanced = explain(SingleKernel::CsrBalanced);

    assert_eq!(smart.instances[0].expression, "csr_vector<double, 2>");
    // 4 row starts, 4 columns; 4 values, x of 4, y of 3.
    assert_eq!(smart.bytes_moved(true), 32 + 8 * (4 + 4 + 3));
    assert_eq!(smart.bytes_moved(false), 32 + 8 * (4 + 4 + 6));
    assert_eq!((ell.stored_len, ell.padding()), (9, 5));
    assert_eq!(ell.device_bytes(), 9 * 12);
    assert!(balanced.preprocessing.is_some() && smart.preprocessing.is_none());
    assert!(balanced.to_string().contains("preprocessing: "), "{balanced}");
    assert!(smart.to_string().contains("lanes per row: 2"), "{smart}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_matrices_agree_with_the_oracle(
        a in csr_integers::<f64>(40, 40),
        b in csr_integers::<f32>(40, 40),
        seed: u64,
    ) {
        let executor = Emulator::new(Order::Random(seed));
        for options in all_options() {
            check_exact(&executor, &a, &options).map_err(TestCaseError::fail)?;
            check_exact(&executor, &b, &options).map_err(TestCaseError::fail)?;
        }
    }
}

#[test]
fn all_kernels_agree_with_the_oracle_on_a_gpu() {
    let Some(device) = device_or_skip() else {
        return;
    };
    let mut matrices = some_matrices::<f64>();
    matrices.push(mixed(20_000, 30_000, Some(11_000)));
    matrices.push(banded(20_000, 20_010));
    for options in all_options() {
        let scattered = matches!(options.kernel, SingleKernel::Dia | SingleKernel::Ell);
        for a in matrices.iter().filter(|a| !scattered || a.nrows() < 1000) {
            check_exact(&device, a, &options).unwrap();
            check_close(&device, &with_reals(a.clone()), &options);
        }
        for a in some_matrices::<f32>() {
            check_exact(&device, &a, &options).unwrap();
        }
    }
}

#[test]
fn vectors_that_share_memory_are_refused_on_a_gpu() {
    let Some(device) = device_or_skip() else {
        return;
    };
    let a = mixed::<f64>(4, 4, None);
    let mut plan = SinglePlan::new(&device, a.view(), &SingleOptions::default()).unwrap();
    let both = device.upload(&[0.0; 8]).unwrap();
    let x = both.range(0..4).unwrap();
    let (mut apart, mut shared) = (both.range(4..8).unwrap(), both.range(3..7).unwrap());

    assert_eq!(plan.apply(1.0, &x, 0.0, &mut apart), Ok(()));
    let refused = plan.apply(1.0, &x, 0.0, &mut shared);

    assert!(matches!(refused, Err(GpuError::InvalidArgument { name: "y", .. })));
}
