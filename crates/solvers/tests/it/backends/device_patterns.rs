//! Patterns from index arrays on the device: the solvers of patterns on the host, and refusals.

use kernel_emu::{Emulator, Order};
use sparsebatch_cpu_ref::CpuError;
use sparsebatch_cuda::{Executor, GpuError, KernelBuffer};
use sparsebatch_formats::{
    Batch, BatchValues, FormatError, Layout, Pattern, RaggedCsr, UniformBatch,
};
use sparsebatch_solvers::gpu::Guess;
use sparsebatch_solvers::{BatchPatterns, DeviceData, DeviceSolver, SolveError, SolveOptions};

use crate::backends::common::{chain, dense, patterns, ragged, rhs};
use crate::backends::device::{assert_same, from_host, methods, uniform, values_of};

/// Solves by a solver of these patterns; x and report are those of the host's batch.
fn agree(
    executor: &Emulator,
    patterns: &BatchPatterns<'_>,
    batch: &Batch<f64>,
    (values, data): (&[f64], DeviceData),
    options: &SolveOptions,
) {
    let b = rhs(batch, options.nrhs);
    let values = executor.upload(values).unwrap();
    let on_b = executor.upload(&b).unwrap();
    let mut x = executor.alloc(b.len()).unwrap();
    let mut solver =
        DeviceSolver::with_values(executor, patterns.clone(), &values, options, data).unwrap();

    let report = solver.solve(&values, &on_b, Guess::Zero, &mut x).unwrap();

    let (expected, host) = from_host(batch, &b, None, options);
    assert_same(&report.systems, &host.systems);
    assert_eq!(report.scheme, host.scheme);
    assert_eq!(executor.download(&x).unwrap(), expected);
}

/// The pattern of one item on the device.
fn of_arrays(
    row_ptr: &[i32],
    col_idx: &[i32],
    nitems: usize,
) -> Result<BatchPatterns<'static>, SolveError> {
    let executor = Emulator::new(Order::Forward);
    let (row_ptr, col_idx) = (executor.upload(row_ptr)?, executor.upload(col_idx)?);
    BatchPatterns::from_device(&executor, &row_ptr, &col_idx, nitems)
}

/// The patterns of several items on the device.
fn of_ragged(
    row_offsets: &[u64],
    row_ptr: &[i32],
    col_idx: &[i32],
) -> Result<BatchPatterns<'static>, SolveError> {
    let executor = Emulator::new(Order::Forward);
    let row_offsets = executor.upload(row_offsets)?;
    let (row_ptr, col_idx) = (executor.upload(row_ptr)?, executor.upload(col_idx)?);
    BatchPatterns::ragged_from_device(&executor, &row_offsets, &row_ptr, &col_idx)
}

fn refusal(refused: Result<BatchPatterns<'static>, SolveError>) -> FormatError {
    match refused.unwrap_err() {
        SolveError::Cpu(CpuError::Format(error)) => error,
        error => panic!("{error}"),
    }
}

#[test]
fn one_pattern_on_the_device_is_that_of_the_host() {
    let executor = Emulator::new(Order::Forward);
    let matrices: Vec<_> = (0..7).map(|item| dense::<f64>(5, 6.0 + item as f64)).collect();
    let pattern = matrices[0].pattern();
    let row_ptr = executor.upload(pattern.row_ptr()).unwrap();
    let col_idx = executor.upload(pattern.col_idx()).unwrap();

    let patterns = BatchPatterns::from_device(&executor, &row_ptr, &col_idx, 7).unwrap();

    let BatchPatterns::Uniform(found, 7) = &patterns else { panic!("{patterns:?}") };
    assert_eq!(**found, **pattern);
    let batch = uniform(&matrices);
    let values = values_of(&batch);
    let interleaved: Vec<f64> =
        (0..values.len()).map(|place| values[place % 7 * pattern.nnz() + place / 7]).collect();
    for options in methods() {
        agree(&executor, &patterns, &batch, (&values, DeviceData::new()), &options.clone().nrhs(2));
        let data = DeviceData::new().values(Layout::Interleaved);
        agree(&executor, &patterns, &batch, (&interleaved, data), &options);
    }
    // The values of one item for all.
    let shared = BatchValues::Shared(matrices[2].values().to_vec());
    let shared = Batch::Uniform(UniformBatch::try_new(pattern.clone(), 7, shared).unwrap());
    let of_one = (matrices[2].values(), DeviceData::new());
    agree(&executor, &patterns, &shared, of_one, &SolveOptions::new());
}

#[test]
fn several_patterns_on_the_device_are_those_of_the_host() {
    let executor = Emulator::new(Order::Forward);
    let batch = ragged(patterns::<f64>(17));
    let Batch::Ragged(host) = &batch else { unreachable!() };
    let offsets: Vec<u64> = host.row_offsets().iter().map(|&offset| offset as u64).collect();
    let row_offsets = executor.upload(&offsets).unwrap();
    let row_ptr = executor.upload(host.row_ptr()).unwrap();
    let col_idx = executor.upload(host.col_idx()).unwrap();

    let patterns =
        BatchPatterns::ragged_from_device(&executor, &row_offsets, &row_ptr, &col_idx).unwrap();

    let BatchPatterns::Ragged(found) = &patterns else { panic!("{patterns:?}") };
    assert_eq!(found.len(), 17);
    for (item, found) in found.iter().enumerate() {
        assert_eq!(found.view(), host.item(item).pattern(), "{item}");
    }
    for options in methods() {
        agree(&executor, &patterns, &batch, (host.values(), DeviceData::new()), &options);
    }
    // Another number of values is refused as ever.
    let values = executor.upload(&host.values()[1..]).unwrap();
    let (options, data) = (SolveOptions::new(), DeviceData::new());
    let refused = DeviceSolver::with_values(&executor, patterns, &values, &options, data);
    let error = refused.err().unwrap().to_string();
    assert!(error.starts_with("values has"), "{error}");
}

#[test]
fn batches_without_rows_or_without_items_have_patterns() {
    let patterns = of_arrays(&[0], &[], 3).unwrap();
    assert!(matches!(&patterns, BatchPatterns::Uniform(pattern, 3) if pattern.nrows() == 0));
    let patterns = of_ragged(&[0, 0, 1, 1], &[0, 0, 1, 0], &[0]).unwrap();
    let BatchPatterns::Ragged(found) = &patterns else { panic!("{patterns:?}") };
    let rows: Vec<usize> = found.iter().map(Pattern::nrows).collect();
    assert_eq!(rows, [0, 1, 0]);

    let executor = Emulator::new(Order::Forward);
    let none = of_ragged(&[0], &[], &[]).unwrap();
    let nothing = Batch::Ragged(RaggedCsr::new());
    agree(&executor, &none, &nothing, (&[], DeviceData::new()), &SolveOptions::new());
    let none = of_arrays(&[0, 1], &[0], 0).unwrap();
    let nothing = Batch::Uniform(UniformBatch::shared(chain::<f64>(1, 3.0), 0));
    agree(&executor, &none, &nothing, (&[], DeviceData::new()), &SolveOptions::new());
}

#[test]
fn arrays_that_are_no_pattern_are_refused() {
    let said = |row_ptr: &[i32], col_idx: &[i32]| refusal(of_arrays(row_ptr, col_idx, 2));
    // [a b; 0 c] is [0, 2, 3] and [0, 1, 1].
    assert!(of_arrays(&[0, 2, 3], &[0, 1, 1], 2).is_ok());
    let error = said(&[], &[]);
    assert!(matches!(error, FormatError::Length { what: "row_ptr", expected: 1, found: 0 }));
    // Counted from 1, as in Fortran.
    let error = said(&[1, 3, 4], &[1, 2, 2]);
    assert!(matches!(error, FormatError::Pointer { what: "row_ptr", position: 0, found: 1, .. }));
    let error = said(&[0, 2, 1], &[0]);
    assert!(matches!(error, FormatError::Pointer { what: "row_ptr", position: 1, found: 2, .. }));
    let error = said(&[0, 2, -3], &[0, 1, 1]);
    assert!(matches!(error, FormatError::Pointer { what: "row_ptr", position: 2, found: -3, .. }));
    // Columns are missing, or left over.
    let error = said(&[0, 2, 3], &[0, 1]);
    assert!(matches!(error, FormatError::Pointer { what: "row_ptr", position: 2, found: 3, .. }));
    let error = said(&[0, 2, 3], &[0, 1, 1, 0]);
    assert!(matches!(error, FormatError::Pointer { what: "row_ptr", position: 2, found: 3, .. }));
    for column in [-1, 2] {
        let error = said(&[0, 2, 3], &[0, 1, column]);
        assert!(
            matches!(error, FormatError::IndexOutOfRange { position: 2, limit: 2, .. }),
            "{error}"
        );
    }
    for columns in [[1, 0, 1], [1, 1, 1]] {
        let error = said(&[0, 2, 3], &columns);
        assert!(matches!(error, FormatError::NotAscending { position: 1, .. }), "{error}");
    }
}

#[test]
fn arrays_that_are_no_ragged_batch_are_refused() {
    let said = |row_offsets: &[u64], row_ptr: &[i32], col_idx: &[i32]| {
        refusal(of_ragged(row_offsets, row_ptr, col_idx))
    };
    // [a b; 0 c] and [d].
    let (offsets, rows, columns) = ([0, 2, 3], [0, 2, 3, 0, 1], [0, 1, 1, 0]);
    assert!(of_ragged(&offsets, &rows, &columns).is_ok());
    let error = said(&[], &rows, &columns);
    assert!(matches!(error, FormatError::Length { what: "row_offsets", expected: 1, found: 0 }));
    let is_offset = |error: FormatError, position: usize, found: i64| {
        let same = matches!(
            &error,
            FormatError::Pointer { what: "row_offsets", position: p, found: f, .. }
                if (*p, *f) == (position, found)
        );
        assert!(same, "{error}");
    };
    is_offset(said(&[1, 2, 3], &rows, &columns), 0, 1);
    is_offset(said(&[0, 3, 2], &rows, &columns), 2, 2);
    is_offset(said(&[0, 2, -1i64 as u64], &rows, &columns), 2, -1);
    for short_or_long in [&rows[..4], &[0, 2, 3, 0, 1, 0]] {
        let error = said(&offsets, short_or_long, &columns);
        let is_length = matches!(error, FormatError::Length { what: "row_ptr", expected: 5, .. });
        assert!(is_length, "{error}");
    }
    let error = said(&[0, 2, 1 << 40], &rows, &columns);
    let is_length = matches!(error, FormatError::Length { what: "row_ptr", found: 5, .. });
    assert!(is_length, "{error}");
    // Row starts of the whole batch, not of each item.
    let error = said(&offsets, &[0, 2, 3, 3, 4], &columns);
    assert!(matches!(error, FormatError::Pointer { what: "row_ptr", position: 0, found: 3, .. }));
    let error = said(&offsets, &[0, 2, -1, 0, 1], &columns);
    assert!(matches!(error, FormatError::Pointer { what: "row_ptr", .. }), "{error}");
    // Columns are missing, or left over.
    let error = said(&offsets, &rows, &columns[..3]);
    assert!(matches!(error, FormatError::Pointer { what: "row_ptr", position: 1, found: 1, .. }));
    let error = said(&offsets, &rows, &[0, 1, 1, 0, 0]);
    assert!(matches!(error, FormatError::Length { what: "col_idx", expected: 4, found: 5 }));
    let error = said(&offsets, &rows, &[0, 1, 1, 1]);
    assert!(matches!(error, FormatError::IndexOutOfRange { position: 0, found: 1, limit: 1, .. }));
    let error = said(&offsets, &rows, &[1, 0, 1, 0]);
    assert!(matches!(error, FormatError::NotAscending { position: 1, .. }));
}

/// The copies are on the host alone, so that a device without free memory serves.
#[test]
fn patterns_take_no_memory_of_the_device() {
    let executor = Emulator::with_memory(4096);
    let row_ptr = executor.upload(&(0..=300).collect::<Vec<i32>>()).unwrap();
    let col_idx = executor.upload(&(0..300).collect::<Vec<i32>>()).unwrap();
    assert_eq!((row_ptr.len(), col_idx.len()), (301, 300));
    assert!(matches!(executor.alloc::<f64>(300), Err(GpuError::OutOfMemory { .. })));

    let patterns = BatchPatterns::from_device(&executor, &row_ptr, &col_idx, 5).unwrap();

    assert!(matches!(&patterns, BatchPatterns::Uniform(pattern, 5) if pattern.nnz() == 300));
}
