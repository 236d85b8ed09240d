//! How batches are packed: every entry once, little padding, rows cut where that costs least,
//! reproducibly.
#![expect(unsafe_code, reason = "launches a kernel")]

use kernel_emu::{Emulator, Order, emulators};
use proptest::prelude::*;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Args, Executor, KernelKey, LaunchConfig};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::io::read_matrix_market;
use sparsebatch_formats::{Batch, Csr, UniformBatch};
use sparsebatch_spmv_gpu::kernels::module;
use sparsebatch_spmv_gpu::{PackedOptions, PackedPlan};
use sparsebatch_testing::{csr_integers, random_vector, shared_dir};

use super::{
    columns, large, matrix, multiply, options, ragged, rows, shapes, spread, uneven, uniform,
    with_lengths,
};
use crate::common::matrices::{banded, integers, mixed, with_reals};

/// Multiplies every system by each unit vector. The results are the matrix itself: any lost,
/// doubled or moved entry shows.
fn check_entries<E: Executor + Clone>(executor: &E, batch: &Batch<f64>, options: PackedOptions) {
    let plan = PackedPlan::new(executor.clone(), batch, options).unwrap();
    let matrices: Vec<Csr<f64>> = (0..batch.nitems()).map(|item| matrix(batch, item)).collect();
    let most = matrices.iter().map(Csr::ncols).max().unwrap_or(0);
    for column in 0..most {
        let unit = |a: &Csr<f64>| {
            let mut x = vec![0.0; a.ncols()];
            x.get_mut(column).into_iter().for_each(|x| *x = 1.0);
            x
        };
        let x: Vec<f64> = matrices.iter().flat_map(unit).collect();
        let y = multiply(executor, &plan, (1.0, &x), (0.0, &vec![f64::NAN; rows(batch)]));
        for (item, a) in matrices.iter().enumerate() {
            for row in 0..a.nrows() {
                let mut entries = a.view().pattern().row(row);
                let stored = entries.find(|&k| a.pattern().col_idx()[k] as usize == column);
                let found = y[batch.row_offset(item) + row];
                let expected = stored.map_or(0.0, |k| a.values()[k]);
                assert_eq!(found, expected, "item {item}, row {row}, column {column}");
            }
        }
    }
}

/// Values that all differ and are not 0.
fn numbered(mut a: Csr<f64>, first: usize) -> Csr<f64> {
    for (k, value) in a.values_mut().iter_mut().enumerate() {
        *value = (first + k) as f64 + 0.5;
    }
    a
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn every_entry_is_stored_once(
        matrices in proptest::collection::vec(csr_integers::<f64>(50, 20), 0..8),
        seed: u64,
    ) {
        let numbered = (0..).map(|k| 10_000 * k).zip(matrices).map(|(k, a)| numbered(a, k));
        let batch = ragged(&numbered.collect::<Vec<_>>());
        for group_entries in [Some(0), Some(200), None, Some(1 << 20)] {
            let options = options(1).group_entries(group_entries);
            check_entries(&Emulator::new(Order::Random(seed)), &batch, options);
        }
    }
}

#[test]
fn every_entry_of_a_uniform_batch_is_stored_once() {
    for (nitems, group_entries) in [(1, None), (11, Some(0)), (11, Some(500)), (64, Some(9999))] {
        for batch in [
            uniform(&mixed(40, 30, Some(3)), nitems),
            uniform(&banded(17, 17), nitems),
            UniformBatch::shared(with_reals(banded(33, 20)), nitems),
        ] {
            let options = options(1).group_entries(group_entries);
            check_entries(&Emulator::new(Order::Forward), &Batch::Uniform(batch), options);
        }
    }
}

/// A single system of a ragged batch: a step holds 32 values and 32 columns of 16 bits.
#[test]
fn slots_hold_the_entries_and_zeros_in_the_column_of_padding() {
    const STEP_WORDS: usize = 32 + 8;
    for a in [mixed(200, 150, Some(60)), banded(70, 70), with_lengths(&[3; 100], 40)] {
        let executor = Emulator::new(Order::Forward);
        let a = numbered(a, 0);
        let plan =
            PackedPlan::new(executor, &ragged(std::slice::from_ref(&a)), options(1)).unwrap();

        let (words, columns, _) = plan.arrays().unwrap();

        assert_eq!(columns, []);
        assert_eq!(words.len() / STEP_WORDS * 32, plan.explain().slots as usize);
        let mut slots: Vec<(usize, f64)> = Vec::new();
        for step in words.chunks(STEP_WORDS) {
            let column = |lane: usize| step[32 + lane / 4] >> (16 * (lane % 4)) & 0xffff;
            slots.extend((0..32).map(|lane| (column(lane) as usize, f64::from_bits(step[lane]))));
        }
        let mut expected: Vec<(usize, f64)> =
            a.pattern().col_idx().iter().map(|&c| c as usize).zip(a.values().to_vec()).collect();
        expected.resize(slots.len(), (a.ncols(), 0.0));
        let order = |a: &(usize, f64), b: &(usize, f64)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1));
        slots.sort_by(order);
        expected.sort_by(order);
        assert_eq!(slots, expected);
    }
}

/// Number of slots per entry.
fn slots_per_entry(batch: &Batch<f64>) -> f64 {
    let executor = Emulator::new(Order::Forward);
    let plan = PackedPlan::new(executor, batch, options(1)).unwrap();
    plan.explain().slots as f64 / plan.explain().nnz as f64
}

#[test]
fn equal_rows_have_no_padding() {
    for (nrows, len) in [(32, 1), (64, 5), (1024, 9), (96, 100), (2048, 31), (32, 256)] {
        let a = with_lengths(&vec![len; nrows], 600);
        assert_eq!(slots_per_entry(&ragged(std::slice::from_ref(&a))), 1.0, "{nrows} of {len}");
        let shared = Batch::Uniform(UniformBatch::shared(a, 3));
        assert_eq!(slots_per_entry(&shared), 1.0, "{nrows} of {len}, three times");
    }
    // Large systems have no padding in any piece.
    assert_eq!(slots_per_entry(&ragged(&[with_lengths(&[8; 65_536], 70_000)])), 1.0);
    // If rows do not fill the last slice, padding is less than a slice.
    let nine = slots_per_entry(&ragged(&[with_lengths(&[9; 1000], 600)]));
    assert!(nine <= (9000.0 + 31.0 * 9.0) / 9000.0, "{nine}");
}

#[test]
fn a_long_row_among_short_ones_costs_less_than_the_entries() {
    for (short, nrows, long) in [(3, 500, 500), (1, 100, 1000), (5, 64, 3000), (2, 1000, 20_000)] {
        for at in [0, nrows / 2, nrows - 1] {
            let mut lengths = vec![short; nrows];
            lengths[at] = long;
            let ratio = slots_per_entry(&ragged(&[with_lengths(&lengths, long.max(600))]));
            assert!(ratio < 2.0, "{nrows} rows of {short}, row {at} of {long}: {ratio}");
        }
    }
}

#[test]
fn small_real_matrices_have_little_padding() {
    let Some(data) = shared_dir() else { return };
    let files = std::fs::read_dir(data.join("matrices/small")).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "mtx"));
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let a = read_matrix_market(&path).unwrap();
        let alone = slots_per_entry(&ragged(std::slice::from_ref(&a)));
        println!("{}: {} entries, {alone:.4}", path.display(), a.nnz());
        all.push(a);
    }
    let together = slots_per_entry(&ragged(&all));
    assert!(together < 1.06, "{together}");
}

#[test]
fn generated_problems_have_little_padding() {
    for (family, nrows) in [(Family::Lap2d, 256), (Family::Lap2d, 1024), (Family::Tri, 128)] {
        let batch = Problem::new(family, nrows).unwrap().batch(8).unwrap().batch;
        let ratio = slots_per_entry(&batch);
        assert!(ratio < 1.06, "{} {nrows}: {ratio}", family.name());
    }
}

/// Bytes that a product reads for rows of these lengths when they are cut, plus the cost of their
/// sums.
fn cost_of(lengths: &[usize], cut: usize, value_bytes: usize) -> usize {
    let segment = |len: &usize| {
        let (full, rest) = (len / cut, len % cut);
        std::iter::repeat_n(cut, full).chain((rest > 0).then_some(rest))
    };
    let mut segments: Vec<usize> = lengths.iter().flat_map(segment).collect();
    segments.sort_unstable_by(|a, b| b.cmp(a));
    let steps: usize = segments.chunks(32).map(|slice| slice[0]).sum();
    let is_cut = lengths.iter().any(|&len| len > cut || len == 0);
    steps * 32 * (value_bytes + 2)
        + (2 + 4) * segments.len()
        + if is_cut { 2 * lengths.len() } else { 0 }
}

/// Lengths at which such rows may be cut.
fn cuts_to_try(lengths: &[usize]) -> Vec<usize> {
    let nnz: usize = lengths.iter().sum();
    let longest = lengths.iter().copied().max().unwrap_or(1).max(1);
    let most = longest.min((nnz / 4096).clamp(32, 256));
    let mean = nnz.div_ceil(lengths.len().max(1)).max(1);
    let quarters = (1..=8).chain([12, 16, 32]).map(|quarters| mean * quarters / 4);
    let all = (1..=8).chain(quarters).chain([most]);
    all.filter(|cut| (1..=most).contains(cut)).collect()
}

/// The cuts that the kernel chooses for each part. The later half of a part must have the cut of
/// the whole.
fn found_cuts(executor: &Emulator, parts: &[Vec<usize>], value_bytes: usize) -> Vec<u32> {
    let (mut words, mut row_ptr) = (Vec::new(), Vec::new());
    for lengths in parts {
        let (first, nrows) = (row_ptr.len(), lengths.len());
        for ahead in [0, nrows / 2] {
            let size = (nrows - ahead) | 1000 << 32;
            let part = [first + ahead, 0, 0, 0, size, ahead | nrows << 32];
            words.extend(part.map(|word| word as u64));
        }
        let mut at = 0;
        row_ptr.push(at);
        row_ptr.extend(lengths.iter().map(|&len| {
            at += len as i32;
            at
        }));
    }
    let (words, row_ptr) = (executor.upload(&words).unwrap(), executor.upload(&row_ptr).unwrap());
    let count = 2 * parts.len();
    let mut cuts = executor.alloc::<u32>(count).unwrap();
    let mut args = Args::new();
    args.scalar(count as u64).input(&words).input(&row_ptr).scalar(value_bytes as u32);
    args.output(&mut cuts);
    let config = LaunchConfig::linear(count.div_ceil(8).max(1) as u32, 128);
    // SAFETY: the parameters of pack_cut; every part has its row pointers and its cut.
    unsafe {
        executor.launch(&KernelKey::new(module("pack").unwrap(), "pack_cut<4>"), config, &mut args)
    }
    .unwrap();
    let cuts = executor.download(&cuts).unwrap();
    cuts.chunks(2).for_each(|both| assert_eq!(both[0], both[1]));
    cuts.into_iter().step_by(2).collect()
}

fn check_cuts(executor: &Emulator, parts: &[Vec<usize>]) -> Result<(), TestCaseError> {
    for value_bytes in [4, 8] {
        let found = found_cuts(executor, parts, value_bytes);
        for (lengths, &cut) in parts.iter().zip(&found) {
            let candidates = cuts_to_try(lengths);
            let least = candidates.iter().map(|&cut| cost_of(lengths, cut, value_bytes)).min();
            prop_assert!(candidates.contains(&(cut as usize)), "{} for {:?}", cut, lengths);
            prop_assert_eq!(Some(cost_of(lengths, cut as usize, value_bytes)), least);
        }
    }
    Ok(())
}

/// Lengths of rows: equal, arbitrary, or a few long ones.
fn row_lengths() -> impl Strategy<Value = Vec<usize>> {
    let alike = (0_usize..300, 0_usize..100).prop_map(|(len, nrows)| vec![len; nrows]);
    let any = proptest::collection::vec(0_usize..40, 0..200);
    let long = (any.clone(), proptest::collection::vec(0_usize..3000, 0..5))
        .prop_map(|(any, long)| [any, long].concat());
    prop_oneof![alike, any, long]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn rows_are_cut_where_that_costs_least(
        parts in proptest::collection::vec(row_lengths(), 1..12),
        seed: u64,
    ) {
        check_cuts(&Emulator::new(Order::Random(seed)), &parts)?;
    }
}

#[test]
fn rows_of_known_lengths_are_cut_where_that_costs_least() {
    let parts: Vec<Vec<usize>> = vec![
        vec![],
        vec![0],
        vec![0; 40],
        vec![1],
        vec![256; 32],
        vec![257; 32],
        vec![100; 6000],
        vec![256; 6000],
        vec![100_000],
        [vec![3; 500], vec![500]].concat(),
        (0..1000).map(|row| row % 61).collect(),
        (0..2048).map(|row| row * row % 97).collect(),
    ];
    check_cuts(&Emulator::new(Order::Forward), &parts).unwrap();
    let found = found_cuts(&Emulator::new(Order::Forward), &parts[4..8], 8);
    assert_eq!(found, [32, 32, 100, 256]);
}

/// The arrays of a plan, and the result of one product.
fn packed<E: Executor + Clone>(
    executor: &E,
    batch: &Batch<f64>,
) -> (Vec<u64>, Vec<u64>, Vec<u16>, Vec<f64>) {
    let plan = PackedPlan::new(executor.clone(), batch, options(1)).unwrap();
    let (values, columns_of_plan, index) = plan.arrays().unwrap();
    let x: Vec<f64> = random_vector(columns(batch), 6);
    let y = multiply(executor, &plan, (1.0, &x), (0.0, &vec![f64::NAN; rows(batch)]));
    (values, columns_of_plan, index, y)
}

fn check_packings<E: Executor + Clone>(executors: &[E], batch: &Batch<f64>) {
    let first = packed(&executors[0], batch);
    for (number, executor) in executors.iter().enumerate() {
        assert!(packed(executor, batch) == first, "executor {number}");
    }
}

#[test]
fn twenty_orders_of_threads_pack_the_same_bits() {
    let systems = [mixed(300, 200, Some(9)), uneven(900, 700), banded(50, 50), mixed(20, 20, None)];
    check_packings(&emulators(), &ragged(&systems));
    check_packings(&emulators(), &Batch::Uniform(uniform(&mixed(60, 50, Some(8)), 7)));
    check_packings(&emulators(), &ragged(&[spread(3000, 70_000, true), uneven(40, 40)]));
}

/// The index is not compared: its padding to a multiple of 16 bytes is uninitialised.
#[test]
fn twenty_packings_are_the_same_bits_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    for batch in [shapes(), large(), Batch::Uniform(uniform(&mixed(60, 50, Some(8)), 1000))] {
        let first = packed(&device, &batch);
        for _ in 0..20 {
            let again = packed(&device, &batch);
            assert!((&again.0, &again.1, &again.3) == (&first.0, &first.1, &first.3));
        }
    }
}

/// Integers that f32 represents are packed alike in both precisions.
#[test]
fn both_precisions_find_the_same_integers() {
    let executor = Emulator::new(Order::Reverse);
    let batch = ragged(&[mixed::<f64>(300, 200, Some(9)), banded(50, 50)]);
    let x = integers::<f64>(columns(&batch), 2);
    let narrow: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    let (zeros, narrow_zeros) = (vec![0.0; rows(&batch)], vec![0.0; rows(&batch)]);
    let plan = PackedPlan::new(executor.clone(), &batch, options(1)).unwrap();
    let single = PackedPlan::new(executor.clone(), &batch.cast::<f32>(), options(1)).unwrap();

    let y = multiply(&executor, &plan, (1.0, &x), (0.0, &zeros));
    let of_single = multiply(&executor, &single, (1.0_f32, &narrow), (0.0, &narrow_zeros));

    assert_eq!(y, of_single.iter().map(|&y| f64::from(y)).collect::<Vec<_>>());
    assert!(single.explain().device_bytes < plan.explain().device_bytes);
}
