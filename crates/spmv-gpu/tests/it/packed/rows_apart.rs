//! Large systems, whose rows are divided into pieces, and the range of columns that a piece reads.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Executor, Value};
use sparsebatch_formats::{Batch, Csr, UniformBatch};
use sparsebatch_spmv_gpu::{PackedOptions, PackedPlan};
use sparsebatch_testing::random_vector;

use super::{
    REGISTERS, check, columns, matrix, multiply, options, oracle, ragged, rows, uniform,
    with_lengths,
};
use crate::common::matrices::{banded, from_columns, integers, mixed};

fn pieces(a: &Csr<f64>, options: PackedOptions) -> usize {
    let batch = ragged(std::slice::from_ref(a));
    PackedPlan::new(Emulator::new(Order::Forward), &batch, options).unwrap().explain().pieces
}

/// Options with no more pieces than needed.
fn undivided() -> PackedOptions {
    options(1).piece_entries(Some(usize::MAX))
}

/// x with NaN in all elements that no entry multiplies.
fn x_where_it_is_read<T: Value>(batch: &Batch<T>, nrhs: usize) -> Vec<T> {
    let mut x = vec![T::from_f64(f64::NAN); columns(batch) * nrhs];
    for item in 0..batch.nitems() {
        let pattern = batch.pattern(item);
        let values = integers::<T>(pattern.ncols() * nrhs, item as u64);
        for rhs in 0..nrhs {
            let first = batch.col_offset(item) * nrhs + rhs * pattern.ncols();
            for &column in pattern.col_idx() {
                x[first + column as usize] = values[rhs * pattern.ncols() + column as usize];
            }
        }
    }
    x
}

/// Compares integer products exactly, by all kernels. Elements of x that no entry multiplies are
/// not read, or not used.
fn check_exactly<E: Executor + Clone, T: Value>(executor: &E, batch: &Batch<T>) {
    let all = Some(usize::MAX);
    for (nrhs, kernel, piece_entries) in
        [(1, None, None), (1, REGISTERS, all), (2, None, all), (2, REGISTERS, None)]
    {
        let options = options(nrhs).kernel(kernel).piece_entries(piece_entries);
        let plan = PackedPlan::new(executor.clone(), batch, options).unwrap();
        let x = x_where_it_is_read(batch, nrhs);
        let y = integers::<T>(rows(batch) * nrhs, 2);
        let (two, minus) = (T::from_f64(2.0), T::from_f64(-1.0));
        let found = multiply(executor, &plan, (two, &x), (minus, &y));
        let expected = oracle(batch, nrhs, (two, &x), (minus, &y));
        let differs = (0..y.len()).find(|&row| found[row] != expected[row]);
        assert_eq!(differs, None, "{options:?}, {:?}", plan.explain());
    }
}

fn with_integers(mut a: Csr<f64>) -> Csr<f64> {
    let values = integers(a.nnz(), 8);
    a.values_mut().copy_from_slice(&values);
    a
}

/// Systems with these numbers of rows, and the expected number of pieces.
fn around_the_limit_of_rows() -> [(Csr<f64>, usize); 6] {
    let of = |nrows: usize| banded(nrows, 50);
    [(of(2047), 1), (of(2048), 1), (of(2049), 2), (of(4096), 2), (of(4097), 3), (of(2080), 2)]
}

/// 256 rows of 256 entries, and the same with one entry fewer and one more.
fn around_the_limit_of_entries() -> [(Csr<f64>, usize); 3] {
    [(255, 1), (256, 1), (257, 8)].map(|(last, pieces)| {
        let mut lengths = vec![256; 256];
        lengths[255] = last;
        (with_integers(with_lengths(&lengths, 1000)), pieces)
    })
}

/// Up to 16 pieces of 2048 entries and more for the two multiprocessors of the emulation, or two of
/// at least 512. A piece has rows for whole slices of segments of 32 entries.
#[test]
fn systems_are_divided_where_they_are_few() {
    let of = |nrows: usize, len: usize| {
        pieces(&with_integers(with_lengths(&vec![len; nrows], 200)), options(1))
    };

    assert_eq!([of(512, 32), of(512, 64), of(512, 4), of(64, 4), of(40, 100)], [8, 16, 2, 1, 2]);
    assert_eq!([of(64, 32), of(64, 200)], [2, 4]);
}

/// Four copies in flight where few pieces keep a warp busy for longer than two, else two.
#[test]
fn few_pieces_of_long_segments_have_more_copies_in_flight() {
    let kernels = |matrices: &[Csr<f64>]| -> Vec<String> {
        let emulator = Emulator::new(Order::Forward);
        let plan = PackedPlan::new(emulator, &ragged(matrices), options(1)).unwrap();
        plan.keys().into_iter().map(|key| key.expression).collect()
    };
    let long = with_integers(with_lengths(&[30; 64], 200));
    let tiny = with_integers(with_lengths(&[3; 20], 20));

    assert_eq!(kernels(&[long.clone(), long.clone()]), ["packed_stream<double, 8, 4, 4, 1>"]);
    assert_eq!(kernels(&vec![tiny; 9]), ["packed_stream<double, 8, 2, 4, 1>"]);
    assert_eq!(kernels(&vec![long; 20]), ["packed_stream<double, 8, 2, 4, 1>"]);
}

#[test]
fn rows_are_divided_above_2048_rows_and_65536_entries() {
    let executor = Emulator::new(Order::Forward);
    let (of_rows, of_entries) = (around_the_limit_of_rows(), around_the_limit_of_entries());
    for (a, expected) in of_rows.into_iter().chain(of_entries) {
        let size = (a.nrows(), a.nnz());
        assert_eq!(pieces(&a, undivided()), expected, "{size:?}");
        check_exactly(&executor, &ragged(&[banded(5, 5), a, banded(3, 4)]));
    }
}

/// A matrix with columns between `first` and `last` only, and with some empty rows.
fn window(nrows: usize, ncols: usize, [first, last]: [usize; 2]) -> Csr<f64> {
    from_columns(nrows, ncols, |row, random| match row % 3 {
        0 => vec![first, last],
        1 => (0..5).map(|_| first + random.below(last - first + 1)).collect(),
        _ => vec![],
    })
}

fn windows() -> Vec<Csr<f64>> {
    let mut all = Vec::new();
    for ncols in [2047, 2048, 2049, 5000] {
        for columns in [[0, 0], [0, ncols - 1], [ncols - 1, ncols - 1], [1, 40], [40, ncols - 2]] {
            all.push(window(50, ncols, columns));
        }
    }
    // A piece whose rows are all empty, beside pieces with entries.
    all.push(from_columns(7000, 9000, |row, _| match row {
        2048..4096 => vec![],
        _ => vec![row, row + 2000],
    }));
    // A single column in each piece, another one in each.
    all.push(from_columns(7000, 9000, |row, _| vec![row / 2048 * 2500]));
    all
}

#[test]
fn pieces_read_the_columns_between_their_first_and_last() {
    check_exactly(&Emulator::new(Order::Forward), &ragged(&windows()));
    check_exactly(&Emulator::new(Order::Random(4)), &ragged(&windows()).cast::<f32>());
}

/// 16 bits can index columns up to 65533 and the padding column.
fn around_16_bits() -> Vec<Csr<f64>> {
    let widths = [65_533, 65_534, 65_535, 65_536, 65_537, 100_000];
    let mut all: Vec<Csr<f64>> = Vec::new();
    for width in widths {
        // As wide as the matrix, and inside a wider one.
        all.push(window(60, width, [0, width - 1]));
        all.push(banded(6, 5));
        all.push(window(60, 300_000, [77_777, 77_777 + width - 1]));
        // Enough entries that x is copied to shared memory.
        let every_other = |row: usize| (row % 2..width).step_by(2).collect();
        all.push(from_columns(3, width, |row, _| every_other(row)));
    }
    all
}

#[test]
fn columns_that_16_bits_do_not_count_beside_small_systems() {
    let executor = Emulator::new(Order::Forward);
    // With few pieces, all would read x in the same way.
    let all = [around_16_bits(), vec![banded(6, 500); 24]].concat();
    check_exactly(&executor, &ragged(&all));
    let launches = PackedPlan::new(executor.clone(), &ragged(&all), options(1)).unwrap();
    assert!(launches.explain().launches > 2, "{:?}", launches.explain());
    // x copied, gathered, and gathered with 32-bit columns.
    for mode in [1, 3, 7] {
        for kernel in ["packed_stream", "packed_spmv"] {
            let of_mode =
                |name: &String| name.contains(kernel) && name.ends_with(&format!(", {mode}>"));
            assert!(executor.launched().iter().any(of_mode), "{kernel}, {mode}");
        }
    }
}

/// In f32, twice as many columns fit in shared memory.
#[test]
fn columns_that_16_bits_do_not_count_in_single_precision() {
    check_exactly(&Emulator::new(Order::Reverse), &ragged(&around_16_bits()).cast::<f32>());
}

/// The sums of many segments, and x beside them, leave room for few blocks: x is gathered, by
/// larger blocks.
fn many_segments() -> Csr<f64> {
    let row = |row: usize| (0..3000).map(|k| (k * 10 + row) % 30_000).collect();
    from_columns(20, 30_000, |number, _| row(number))
}

#[test]
fn sums_that_fill_shared_memory_leave_x_where_it_is() {
    check_exactly(&Emulator::new(Order::Forward), &ragged(&[banded(40, 40), many_segments()]));
    let shared = UniformBatch::shared(many_segments(), 3);
    check_exactly(&Emulator::new(Order::Reverse), &Batch::Uniform(shared));
}

#[test]
fn uniform_batches_of_large_systems_are_divided_alike() {
    for a in [
        window(2500, 5000, [3, 4000]),
        window(2100, 200_000, [60_000, 190_000]),
        banded(4200, 30),
        with_integers(with_lengths(&[300; 300], 1000)),
    ] {
        let nitems = 2;
        let own = uniform(&a, nitems);
        let mut exact = own.clone();
        let values = integers(a.nnz() * nitems, 5);
        exact.values_mut().copy_from_slice(&values);
        let interleaved = Batch::Uniform(exact.to_interleaved());
        let shared = Batch::Uniform(UniformBatch::shared(a.clone(), nitems));
        for batch in [Batch::Uniform(exact), interleaved, shared] {
            let executor = Emulator::new(Order::Forward);
            check_exactly(&executor, &batch);
            let plan = PackedPlan::new(executor, &batch, undivided()).unwrap();
            assert_eq!(plan.explain().pieces, nitems * pieces(&a, undivided()));
            // The bits are those of each item alone.
            let x: Vec<f64> = random_vector(columns(&batch), 3);
            let executor = Emulator::new(Order::Reverse);
            let together = super::product(&executor, &batch, options(1), &x);
            for item in 0..nitems {
                let alone = ragged(&[matrix(&batch, item)]);
                let x = &x[item * a.ncols()..][..a.ncols()];
                let alone = super::product(&executor, &alone, options(1), x);
                assert_eq!(together[item * a.nrows()..][..a.nrows()], alone);
            }
        }
        let x: Vec<f64> = random_vector(a.ncols() * nitems, 6);
        check(&Emulator::new(Order::Random(1)), &Batch::Uniform(own), options(1), &x);
    }
}

#[test]
fn large_systems_are_divided_and_multiplied_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let limits = around_the_limit_of_rows().into_iter().chain(around_the_limit_of_entries());
    let mut all: Vec<Csr<f64>> = limits.map(|(a, _)| a).collect();
    all.extend(windows());
    all.extend(around_16_bits());
    all.extend([many_segments(), mixed(40, 40, None)]);
    check_exactly(&device, &ragged(&all));
    check_exactly(&device, &ragged(&all).cast::<f32>());
    for a in all.into_iter().step_by(4) {
        check_exactly(&device, &Batch::Uniform(UniformBatch::shared(a, 5)));
    }
}
