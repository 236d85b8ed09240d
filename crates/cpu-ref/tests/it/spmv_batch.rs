//! Products of batches: every format and layout compared with the oracle, item by item.

use std::sync::Arc;

use crate::spmv_common::{
    all_options, banded, batch_options, bits, integers, mixed, pool, reals, small_matrix,
};
use proptest::prelude::*;
use sparsebatch_cpu_ref::{CpuError, CpuScalar, SpmvPlan, par, seq};
use sparsebatch_formats::convert::HybWidth;
use sparsebatch_formats::{
    Batch, BatchCsr, BatchValues, Csr, EllPattern, FormatError, Layout, Pattern, RaggedBatch,
    RaggedCsr, UniformBatch,
};
use sparsebatch_solve_core::{ArgumentError, FormatChoice, SpmvOptions};

/// A batch of `nitems` matrices with the pattern of `a` and the given values, item-major.
fn uniform<T: CpuScalar>(a: &Csr<T>, nitems: usize, values: Vec<T>) -> BatchCsr<T> {
    let values = BatchValues::ItemMajor(values);
    UniformBatch::try_new(Arc::clone(a.pattern()), nitems, values).unwrap()
}

fn integer_batch<T: CpuScalar>(a: &Csr<T>, nitems: usize) -> BatchCsr<T> {
    uniform(a, nitems, integers(a.nnz() * nitems, 31))
}

fn real_batch<T: CpuScalar>(a: &Csr<T>, nitems: usize) -> BatchCsr<T> {
    uniform(a, nitems, reals(a.nnz() * nitems, 32))
}

/// `v[(rhs * len + i) * nitems + item]` from `v[(item * nrhs + rhs) * len + i]`.
fn interleave<T: Copy>(v: &[T], nitems: usize) -> Vec<T> {
    let per_item = v.len() / nitems.max(1);
    (0..per_item).flat_map(|i| (0..nitems).map(move |item| v[item * per_item + i])).collect()
}

/// The batch with item-major and with interleaved values.
fn storages<T: CpuScalar>(batch: &BatchCsr<T>) -> [BatchCsr<T>; 2] {
    [batch.clone(), batch.to_interleaved()]
}

/// Plans of every format for both vector layouts give the oracle's product, bit for bit.
fn check_uniform<T: CpuScalar>(batch: &BatchCsr<T>, nrhs: usize) {
    let (nitems, pattern) = (batch.nitems(), batch.pattern());
    let x = integers::<T>(nitems * nrhs * pattern.ncols(), 33);
    let y = integers::<T>(nitems * nrhs * pattern.nrows(), 34);
    let (two, three) = (T::from_f64(2.0), T::from_f64(3.0));
    let mut expected = y.clone();
    let items = batch.to_item_major();
    seq::batch_spmv(two, &items, nrhs, &x, three, &mut expected).unwrap();
    for options in batch_options() {
        for layout in [Layout::ItemMajor, Layout::Interleaved] {
            let options = options.clone().nrhs(nrhs).layout(layout);
            for source in storages(batch) {
                let plan = SpmvPlan::new(&source, &options).unwrap();
                if layout == Layout::ItemMajor {
                    let mut found = y.clone();
                    plan.apply(two, &x, three, &mut found).unwrap();
                    assert_eq!(found, expected, "{options:?}");
                } else {
                    let mut found = interleave(&y, nitems);
                    plan.apply(two, &interleave(&x, nitems), three, &mut found).unwrap();
                    assert_eq!(found, interleave(&expected, nitems), "{options:?}");
                }
            }
        }
    }
}

#[test]
fn uniform_batches_multiply_item_by_item_in_both_layouts() {
    for n in [0, 1, 7, 8, 9, 31, 33, 70] {
        for nitems in [0, 1, 2, 15, 16, 17, 67] {
            check_uniform(&integer_batch(&mixed::<f64>(n, n + 3, Some(n / 2), 35), nitems), 1);
        }
        check_uniform(&integer_batch(&banded::<f32>(n, n), 17), 3);
    }
}

#[test]
fn several_right_hand_sides_of_a_batch() {
    for nrhs in [1, 2, 3, 5] {
        check_uniform(&integer_batch(&mixed::<f64>(40, 30, None, 36), 19), nrhs);
    }
}

#[test]
fn large_items_and_many_items_are_shared_between_threads() {
    check_uniform(&integer_batch(&banded::<f64>(12_000, 12_000), 3), 2);
    check_uniform(&integer_batch(&banded::<f64>(50, 50), 1_000), 1);
}

/// Columns have 16 bits in a plan where all items have at most 65,536 of them.
#[test]
fn the_last_columns_on_both_sides_of_16_bits_are_read() {
    for ncols in [65_536, 65_537, 70_000] {
        let last = ncols as i32 - 1;
        let wide =
            Csr::try_new(3, ncols, vec![0, 2, 2, 3], vec![0, last, last], vec![1.0, 2.0, 3.0]);
        let mut batch = RaggedCsr::new();
        for item in [mixed::<f64>(40, 50, Some(3), 5), wide.unwrap(), banded(20, 20)] {
            batch.push(item.view());
        }
        let x = integers::<f64>(batch.col_offsets()[3], 6);
        let mut expected = integers::<f64>(batch.row_offsets()[3], 7);
        let mut y = expected.clone();
        let plan = SpmvPlan::new(&batch, &SpmvOptions::default()).unwrap();
        let narrow = ncols <= 65_536;

        seq::batch_spmv(2.0, &batch, 1, &x, 3.0, &mut expected).unwrap();
        plan.apply(2.0, &x, 3.0, &mut y).unwrap();

        assert_eq!(y, expected, "{ncols} columns");
        let index_bytes = if narrow { 2 } else { 4 } * batch.total_nnz();
        let others = 8 * batch.total_nnz() + 4 * batch.row_ptr().len();
        assert_eq!(plan.explain().matrix_bytes, index_bytes + others);
    }
}

#[test]
fn shared_values_serve_every_item() {
    let a = mixed::<f64>(40, 35, Some(3), 37);
    let repeated = uniform(&a, 21, a.values().repeat(21));
    let shared = UniformBatch::shared(a.clone(), 21);
    let x = integers::<f64>(21 * 35, 38);
    let mut expected = vec![0.0; 21 * 40];
    seq::batch_spmv(1.0, &repeated, 1, &x, 0.0, &mut expected).unwrap();
    for options in batch_options() {
        let mut found = vec![f64::NAN; 21 * 40];
        let plan = SpmvPlan::new(&shared, &options).unwrap();
        plan.apply(1.0, &x, 0.0, &mut found).unwrap();
        assert_eq!(found, expected, "{options:?}");

        let options = options.layout(Layout::Interleaved);
        let plan = SpmvPlan::new(&shared, &options).unwrap();
        plan.apply(1.0, &interleave(&x, 21), 0.0, &mut found).unwrap();
        assert_eq!(found, interleave(&expected, 21), "{options:?}");
        if options.format == FormatChoice::Csr {
            assert_eq!(plan.explain().stored_len, a.nnz());
        }
    }
}

#[test]
fn fill_of_diagonals_multiplies_nothing_in_batches() {
    // [2 1; . .]: the main diagonal has no entry in row 1.
    let a = Csr::try_new(2, 2, vec![0, 2, 2], vec![0, 1], vec![2.0, 1.0]).unwrap();
    let batch = uniform(&a, 3, a.values().repeat(3));
    let mut ragged = RaggedCsr::new();
    (0..3).for_each(|_| ragged.push(a.view()));
    let x = [1.0, f64::NAN].repeat(3);
    for layout in [Layout::ItemMajor, Layout::Interleaved] {
        let options = SpmvOptions::default().format(FormatChoice::Dia).layout(layout);
        let mut y = vec![7.0; 6];
        let plan = SpmvPlan::new(&batch, &options).unwrap();
        if layout == Layout::ItemMajor {
            plan.apply(1.0, &x, 0.0, &mut y).unwrap();
            let mut of_ragged = vec![7.0; 6];
            let plan = SpmvPlan::new(&ragged, &options).unwrap();
            plan.apply(1.0, &x, 0.0, &mut of_ragged).unwrap();
            assert!(y.iter().zip(&of_ragged).all(|(a, b)| a.to_bits() == b.to_bits()));
        } else {
            plan.apply(1.0, &interleave(&x, 3), 0.0, &mut y).unwrap();
            y = [0, 3, 1, 4, 2, 5].map(|k| y[k]).to_vec();
        }
        for item in y.chunks(2) {
            assert!(item[0].is_nan() && item[1] == 0.0, "{layout:?}: {y:?}");
        }
    }
}

/// A matrix whose rows have the given numbers of entries, in turn.
fn with_lengths(nrows: usize, ncols: usize, lengths: &[usize]) -> Csr<f64> {
    let mut ptr = vec![0];
    let mut cols = Vec::new();
    for row in 0..nrows {
        let len = lengths[row % lengths.len()];
        cols.extend((0..len).map(|k| (k * (ncols / len)) as i32));
        ptr.push(cols.len() as i32);
    }
    let values = vec![1.0; cols.len()];
    Csr::try_new(nrows, ncols, ptr, cols, values).unwrap()
}

/// Items of very different sizes, real values: rows of every way of adding, items of several chunks
/// of work between small ones, more columns than 16 bits count.
fn ragged_items() -> Vec<Csr<f64>> {
    let shapes = [(3, 4), (0, 5), (700, 650), (1, 1), (60, 40_000), (33, 32), (5, 0), (64, 64)];
    let mut items: Vec<Csr<f64>> = (0..)
        .zip(shapes)
        .map(|(seed, (nrows, ncols))| mixed(nrows, ncols, Some(nrows / 3), seed))
        .collect();
    for lengths in [&[9][..], &[27], &[10, 28, 33, 9, 27, 0, 1]] {
        items.push(with_lengths(90, 70, lengths));
    }
    items.insert(3, with_lengths(8_000, 500, &[12, 5, 33]));
    items.insert(6, with_lengths(2_500, 300, &[27]));
    for (seed, item) in (40..).zip(&mut items) {
        let values = reals(item.nnz(), seed);
        item.values_mut().copy_from_slice(&values);
    }
    items
}

fn ragged(items: &[Csr<f64>]) -> RaggedCsr<f64> {
    let mut batch = RaggedCsr::new();
    items.iter().for_each(|item| batch.push(item.view()));
    batch
}

#[test]
fn an_item_gives_what_it_gives_alone_wherever_it_stands() {
    let items = ragged_items();
    let mut reversed = items.clone();
    reversed.reverse();
    for mut options in batch_options() {
        // `auto` looks at the whole batch and chooses one of the other formats: replaced by CSR.
        if options.format == FormatChoice::Auto {
            options.format = FormatChoice::Csr;
        }
        options.hyb.width = HybWidth::Fixed(3);
        for (order, nrhs) in [(&items, 1), (&reversed, 2), (&items[..5].to_vec(), 3)] {
            options.nrhs = nrhs;
            let batch = ragged(order);
            let plan = SpmvPlan::new(&batch, &options).unwrap();
            // Each item has the same x at every position.
            let x: Vec<f64> = order
                .iter()
                .flat_map(|item| reals::<f64>(nrhs * item.ncols(), item.nrows() as u64))
                .collect();
            let mut y = vec![f64::NAN; nrhs * plan.nrows()];
            plan.apply(0.7, &x, 0.0, &mut y).unwrap();

            let mut start = 0;
            for item in order {
                let x = reals::<f64>(nrhs * item.ncols(), item.nrows() as u64);
                let mut alone = vec![0.0; nrhs * item.nrows()];
                let single = SpmvPlan::new(item, &options).unwrap();
                single.apply(0.7, &x, 0.0, &mut alone).unwrap();
                let rows = start..start + nrhs * item.nrows();
                assert_eq!(bits(&y[rows.clone()]), bits(&alone), "{options:?}");
                start = rows.end;
            }
        }
    }
}

#[test]
fn an_item_of_a_uniform_batch_gives_what_it_gives_alone() {
    for a in [banded::<f64>(90, 95), with_lengths(90, 95, &[9, 10, 27, 27, 28, 33])] {
        let batch = real_batch(&a, 37);
        let x = reals::<f64>(37 * 95, 41);
        for options in batch_options() {
            let mut y = vec![0.0; 37 * 90];
            let plan = SpmvPlan::new(&batch, &options).unwrap();
            plan.apply(0.7, &x, 0.0, &mut y).unwrap();
            for item in [0, 1, 20, 36] {
                let single = SpmvPlan::new(&batch.to_matrix(item), &options).unwrap();
                let mut alone = vec![0.0; 90];
                single.apply(0.7, &x[item * 95..(item + 1) * 95], 0.0, &mut alone).unwrap();
                assert_eq!(bits(&y[item * 90..(item + 1) * 90]), bits(&alone), "{options:?}");
            }
        }
    }
}

#[test]
fn an_interleaved_item_does_not_depend_on_its_place() {
    // The same item at every position, in a tile of 16 items and in the remainder.
    let a = banded::<f64>(60, 60);
    let values = reals::<f64>(a.nnz(), 42);
    let batch = uniform(&a, 21, values.repeat(21));
    let x = reals::<f64>(60, 43).repeat(21);
    for options in batch_options() {
        let options = options.layout(Layout::Interleaved);
        let mut y = vec![0.0; 60 * 21];
        let plan = SpmvPlan::new(&batch, &options).unwrap();
        plan.apply(0.7, &interleave(&x, 21), 0.0, &mut y).unwrap();
        for row in y.chunks(21) {
            assert!(row.iter().all(|v| v.to_bits() == row[0].to_bits()), "{options:?}");
        }
    }
}

#[test]
fn nan_in_one_item_stays_in_it() {
    let a = banded::<f64>(80, 80);
    let mut batch = real_batch(&a, 20);
    batch.values_mut()[5 * a.nnz()..6 * a.nnz()].fill(f64::NAN);
    let x = reals::<f64>(20 * 80, 44);
    for layout in [Layout::ItemMajor, Layout::Interleaved] {
        for options in batch_options() {
            let options = options.layout(layout);
            let mut y = vec![0.0; 20 * 80];
            let plan = SpmvPlan::new(&batch, &options).unwrap();
            plan.apply(1.0, &x, 0.0, &mut y).unwrap();
            for (i, value) in y.iter().enumerate() {
                let item = if layout == Layout::ItemMajor { i / 80 } else { i % 20 };
                assert_eq!(value.is_nan(), item == 5, "{options:?}");
            }
        }
    }
}

#[test]
fn batched_results_do_not_depend_on_the_number_of_threads() {
    let ragged = Batch::Ragged(ragged(&ragged_items()));
    let uniform = Batch::Uniform(real_batch(&banded::<f64>(500, 500), 200));
    for (batch, layouts) in
        [(&ragged, &[Layout::ItemMajor][..]), (&uniform, &[Layout::ItemMajor, Layout::Interleaved])]
    {
        for &layout in layouts {
            for options in batch_options() {
                let options = options.layout(layout).nrhs(3);
                let plan = SpmvPlan::new(batch, &options).unwrap();
                let x = reals::<f64>(3 * plan.ncols(), 45);
                let product = |threads| {
                    let mut y = reals::<f64>(3 * plan.nrows(), 46);
                    pool(threads).install(|| plan.apply(0.3, &x, 0.7, &mut y).unwrap());
                    bits(&y)
                };
                let one = product(1);
                for threads in [2, 3, 7] {
                    assert!(product(threads) == one, "{options:?}, {threads} threads");
                }
            }
        }
    }
}

#[test]
fn new_values_are_taken_in_the_layout_of_the_source() {
    let a = banded::<f64>(50, 55);
    let batch = integer_batch(&a, 13);
    let new = real_batch(&a, 13);
    let x = reals::<f64>(13 * 55, 47);
    for layout in [Layout::ItemMajor, Layout::Interleaved] {
        for options in batch_options() {
            let options = options.layout(layout);
            for (mut old, mut new) in storages(&batch).into_iter().zip(storages(&new)) {
                let mut plan = SpmvPlan::new(&old, &options).unwrap();
                let (mut updated, mut fresh) = (vec![0.0; 13 * 50], vec![0.0; 13 * 50]);

                plan.update_values(new.values_mut()).unwrap();

                plan.apply(1.0, &x, 0.0, &mut updated).unwrap();
                let plan = SpmvPlan::new(&new, &options).unwrap();
                plan.apply(1.0, &x, 0.0, &mut fresh).unwrap();
                assert_eq!(bits(&updated), bits(&fresh), "{options:?}");
                assert_ne!(old.values_mut(), new.values_mut());
            }
        }
    }
    let items = ragged_items();
    let old = ragged(&items);
    let mut new = old.clone();
    new.values_mut().iter_mut().for_each(|v| *v *= 3.0);
    for options in batch_options() {
        let mut plan = SpmvPlan::new(&old, &options).unwrap();
        let x = reals::<f64>(plan.ncols(), 48);
        let (mut updated, mut fresh) = (vec![0.0; plan.nrows()], vec![0.0; plan.nrows()]);

        plan.update_values(new.values()).unwrap();

        plan.apply(1.0, &x, 0.0, &mut updated).unwrap();
        let plan = SpmvPlan::new(&new, &options).unwrap();
        plan.apply(1.0, &x, 0.0, &mut fresh).unwrap();
        assert_eq!(bits(&updated), bits(&fresh), "{options:?}");
    }
}

#[test]
fn empty_batches_are_products_too() {
    let uniform = integer_batch(&banded::<f64>(5, 5), 0);
    for options in batch_options() {
        for layout in [Layout::ItemMajor, Layout::Interleaved] {
            let options = options.clone().layout(layout);
            let mut plan = SpmvPlan::new(&uniform, &options).unwrap();
            plan.update_values(&[]).unwrap();
            plan.apply(1.0, &[], 0.0, &mut []).unwrap();
        }
        let plan = SpmvPlan::new(&RaggedCsr::<f64>::new(), &options).unwrap();
        plan.apply(1.0, &[], 0.0, &mut []).unwrap();
        assert_eq!(plan.explain().nitems, 0);
    }
}

#[test]
fn wrong_batch_arguments_are_refused() {
    let items = ragged(&ragged_items());
    let options = SpmvOptions::default().layout(Layout::Interleaved);
    let error = SpmvPlan::new(&items, &options).unwrap_err();
    assert_eq!(error.to_string(), "layout is Interleaved, expected ItemMajor, or a uniform batch");

    let batch = integer_batch(&banded::<f64>(5, 6), 3);
    let plan = SpmvPlan::new(&batch, &SpmvOptions::default()).unwrap();
    let error = plan.apply(1.0, &[0.0; 17], 0.0, &mut [0.0; 15]).unwrap_err();
    assert_eq!(error.to_string(), "x has 17 entries, expected 18");
    for product in [seq_product, par_product] {
        let error = product(&batch, &[0.0; 18], &mut [0.0; 14]).unwrap_err();
        assert_eq!(error.to_string(), "y has 14 entries, expected 15");
    }

    let single_only = all_options().into_iter().filter(|o| !batch_options().contains(o));
    for options in single_only {
        let error = SpmvPlan::new(&batch, &options).unwrap_err();
        assert!(matches!(
            error,
            CpuError::Argument(ArgumentError::OutOfRange { name: "kernel", .. })
        ));
    }
}

fn seq_product(batch: &BatchCsr<f64>, x: &[f64], y: &mut [f64]) -> Result<(), CpuError> {
    seq::batch_spmv(1.0, batch, 1, x, 0.0, y)
}

fn par_product(batch: &BatchCsr<f64>, x: &[f64], y: &mut [f64]) -> Result<(), CpuError> {
    par::batch_spmv(1.0, batch, 1, x, 0.0, y)
}

proptest! {
    #[test]
    fn ragged_batches_in_a_padded_format_multiply_as_the_oracle_does(
        items in prop::collection::vec(small_matrix(), 0..6),
        nrhs in 1usize..4,
    ) {
        let batch = ragged(&items);
        let ell: RaggedBatch<EllPattern, f64> =
            RaggedBatch::from_csr(&batch, &Default::default()).unwrap();
        let cols: usize = items.iter().map(Csr::ncols).sum();
        let rows: usize = items.iter().map(Csr::nrows).sum();
        let x = integers::<f64>(nrhs * cols, 49);
        let (mut expected, mut found) = (vec![1.0; nrhs * rows], vec![1.0; nrhs * rows]);

        seq::batch_spmv(2.0, &batch, nrhs, &x, -1.0, &mut expected).unwrap();
        par::batch_spmv(2.0, &ell, nrhs, &x, -1.0, &mut found).unwrap();

        prop_assert_eq!(found, expected);
    }
}

#[test]
fn lengths_that_64_bits_do_not_count_are_refused() {
    let a = mixed::<f64>(2, 2, None, 1);
    let too_large = |error: CpuError| {
        let is_too_large = matches!(error, CpuError::Format(FormatError::TooLarge { .. }));
        assert!(is_too_large, "{error}");
    };
    for nrhs in [usize::MAX, 1 << 63, 1 << 62] {
        for options in all_options() {
            let options = options.nrhs(nrhs);
            too_large(SpmvPlan::new(&a, &options).unwrap_err());
        }
    }
    // 2 * 2^63 and 3 * 0xAAAA...AB wrap to 0 and 1.
    for nitems in [1 << 63, usize::MAX, 0xAAAA_AAAA_AAAA_AAAB] {
        let batch = UniformBatch::shared(a.clone(), nitems);
        for layout in [Layout::ItemMajor, Layout::Interleaved] {
            let options = SpmvOptions::default().layout(layout);
            too_large(SpmvPlan::new(&batch, &options).unwrap_err());
        }
        too_large(seq::batch_spmv(1.0, &batch, 1, &[], 0.0, &mut []).unwrap_err());
        too_large(par::batch_spmv(1.0, &batch, 1, &[], 0.0, &mut []).unwrap_err());
    }
    let three = UniformBatch::shared(a, 3);
    let (x, mut y) = ([1.0; 2], [7.0; 2]);
    let nrhs = 0xAAAA_AAAA_AAAA_AAAB;
    too_large(seq::batch_spmv(1.0, &three, nrhs, &x, 0.0, &mut y).unwrap_err());
    too_large(par::batch_spmv(1.0, &three, nrhs, &x, 0.0, &mut y).unwrap_err());
    assert_eq!(y, [7.0; 2]);
    // No rows and no columns: returns at once, however many items there are.
    let none = UniformBatch::shared(Csr::<f64>::zeros(0, 0).unwrap(), usize::MAX);
    seq::batch_spmv(1.0, &none, 1, &[], 0.0, &mut []).unwrap();
    par::batch_spmv(1.0, &none, 1, &[], 0.0, &mut []).unwrap();
}

#[test]
fn interleaved_values_are_refused_where_items_are_borrowed() {
    let batch = integer_batch(&mixed::<f64>(2, 2, None, 1), 3).to_interleaved();
    let (x, mut y) = ([1.0; 6], [7.0; 6]);
    for error in [
        seq::batch_spmv(1.0, &batch, 1, &x, 0.0, &mut y).unwrap_err(),
        par::batch_spmv(1.0, &batch, 1, &x, 0.0, &mut y).unwrap_err(),
    ] {
        let text = "layout of the values is interleaved, \
                    expected item-major or shared (UniformBatch::to_item_major)";
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(y, [7.0; 6]);
}
