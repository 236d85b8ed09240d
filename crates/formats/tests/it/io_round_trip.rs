//! What is written reads back as it was, through every kind of file.

use std::sync::Arc;

use proptest::prelude::*;
use sparsebatch_formats::io::{
    MemoryLimit, Packing, load, read_batch, read_dense_from, read_matrix_market, read_npz,
    read_npz_array, read_vector, write_arrays, write_batch, write_matrix_market, write_npz,
    write_vector,
};
use sparsebatch_formats::{Batch, BatchCsr, BatchValues, Csr, Pattern, RaggedCsr};

/// Any f64, the special ones often.
fn value() -> impl Strategy<Value = f64> {
    let special = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, f64::MAX];
    prop_oneof![
        2 => any::<u64>().prop_map(f64::from_bits),
        2 => (-1000i32..1000).prop_map(f64::from),
        1 => prop::sample::select(special.to_vec()),
    ]
}

/// A matrix of at most 8 x 8 with entries at random places.
fn matrix(square: bool) -> impl Strategy<Value = Csr<f64>> {
    (0..=8usize, 0..=8usize).prop_flat_map(move |(nrows, ncols)| {
        let ncols = if square { nrows } else { ncols };
        let places = prop::collection::vec(prop::option::weighted(0.3, value()), nrows * ncols);
        places.prop_map(move |places| {
            let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
            for row in 0..nrows {
                for col in 0..ncols {
                    if let Some(value) = places[row * ncols + col] {
                        col_idx.push(col as i32);
                        values.push(value);
                    }
                }
                row_ptr.push(col_idx.len() as i32);
            }
            Csr::try_new(nrows, ncols, row_ptr, col_idx, values).unwrap()
        })
    })
}

/// Equal in every bit; NaN equals NaN, whose bits text does not keep.
fn same(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan())
}

fn check_same(a: &Csr<f64>, b: &Csr<f64>) -> Result<(), TestCaseError> {
    prop_assert_eq!(a.pattern(), b.pattern());
    prop_assert!(same(a.values(), b.values()), "{a:?} {b:?}");
    Ok(())
}

fn values_of(batch: &Batch<f64>) -> Vec<f64> {
    let (mut all, mut one) = (Vec::new(), Vec::new());
    for item in 0..batch.nitems() {
        batch.copy_values(item, &mut one);
        all.extend_from_slice(&one);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn matrices(a in matrix(false)) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.mtx", "a.mtx.gz"] {
            let path = folder.path().join(name);
            write_matrix_market(&path, &a).unwrap();
            check_same(&a, &read_matrix_market(&path).unwrap())?;
        }
        let path = folder.path().join("a.npz");
        write_npz(&path, &a).unwrap();
        check_same(&a, &read_npz(&path).unwrap())?;
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        prop_assert_eq!(names, 3, "temporary files are left");
    }

    #[test]
    fn single_precision(a in matrix(false)) {
        let folder = tempfile::tempdir().unwrap();
        let narrow: Csr<f32> = a.cast();
        let (text, binary) = (folder.path().join("a.mtx"), folder.path().join("a.npz"));
        write_matrix_market(&text, &narrow).unwrap();
        write_npz(&binary, &narrow).unwrap();
        for read in [read_matrix_market(&text).unwrap(), read_npz(&binary).unwrap()] {
            let read: Csr<f32> = read.cast();
            prop_assert_eq!(read.pattern(), narrow.pattern());
            for (x, y) in read.values().iter().zip(narrow.values()) {
                prop_assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan());
            }
        }
    }

    #[test]
    fn vectors(x in prop::collection::vec(value(), 0..50)) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["x.mtx", "x.mtx.gz"] {
            let path = folder.path().join(name);
            write_vector(&path, &x).unwrap();
            prop_assert!(same(&x, &read_vector(&path).unwrap()));
        }
    }

    #[test]
    fn uniform_batches(a in matrix(true), nitems in 0..4usize, interleaved: bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("u.batch");
        let repeated: Vec<f64> = (0..nitems).flat_map(|item| {
            a.values().iter().map(move |value| value * (item + 1) as f64)
        }).collect();
        let batch = BatchCsr::try_new(
            Arc::clone(a.pattern()), nitems, BatchValues::ItemMajor(repeated)).unwrap();
        let rhs: Vec<f64> = (0..nitems * a.nrows()).map(|k| k as f64 - 3.5).collect();
        let stored = if interleaved { batch.to_interleaved() } else { batch.clone() };
        write_batch(&path, &stored.into(), &rhs).unwrap();
        let read = read_batch(&path).unwrap();
        let Batch::Uniform(uniform) = &read.batch else { panic!("{read:?}") };
        prop_assert_eq!(uniform.pattern(), batch.pattern());
        prop_assert_eq!(uniform.nitems(), nitems);
        prop_assert!(same(&values_of(&read.batch), &values_of(&batch.into())));
        prop_assert!(same(&read.rhs, &rhs));
    }

    #[test]
    fn ragged_batches(items in prop::collection::vec(matrix(true), 0..4)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.batch");
        let mut ragged = RaggedCsr::new();
        items.iter().for_each(|item| ragged.push(item.view()));
        let batch = Batch::Ragged(ragged);
        let rhs: Vec<f64> = (0..batch.row_offset(items.len())).map(|k| k as f64).collect();
        write_batch(&path, &batch, &rhs).unwrap();
        let loaded = load(&[path], Default::default()).unwrap();
        prop_assert_eq!(loaded.batch.nitems(), items.len());
        for item in 0..items.len() {
            prop_assert_eq!(loaded.batch.pattern(item), batch.pattern(item));
        }
        prop_assert!(same(&values_of(&loaded.batch), &values_of(&batch)));
        prop_assert_eq!(loaded.rhs.unwrap_or_default(), rhs);
    }

    #[test]
    fn triangles_of_symmetric_files(a in matrix(true), skew: bool, dense: bool) {
        // The lower triangle of `a`, written by hand in both layouts, column by column.
        let kind = if skew { "skew-symmetric" } else { "symmetric" };
        let layout = if dense { "array" } else { "coordinate" };
        let n = a.nrows();
        let (mut lines, mut count) = (String::new(), 0);
        let mut expected = vec![0.0; n * n];
        for col in 0..n {
            for row in col + usize::from(skew)..n {
                let entry = a.pattern().view().position(row, col).map(|k| a.values()[k]);
                let entry = entry.filter(|value| value.is_finite());
                if let Some(value) = entry.or(dense.then_some(0.0)) {
                    count += 1;
                    lines += &if dense { format!("{value:e}\n") }
                        else { format!("{} {} {value:e}\n", row + 1, col + 1) };
                    expected[col * n + row] = value;
                    expected[row * n + col] = if skew { -value } else { value };
                }
            }
        }
        let size = if dense { format!("{n} {n}") } else { format!("{n} {n} {count}") };
        let text = format!("%%MatrixMarket matrix {layout} real {kind}\n{size}\n{lines}");
        let read = read_dense_from(text.as_bytes(), std::path::Path::new("f"), MemoryLimit::available()).unwrap();
        prop_assert_eq!(read.values, expected);
    }
}

#[test]
fn named_arrays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npz");
    for packing in [Packing::Stored, Packing::Deflated] {
        write_arrays(&path, packing, |npz| {
            npz.add_i64("offsets", &[0, 2, 3])?;
            npz.add_f64("x", &[1.5, -2.0, f64::INFINITY])?;
            npz.add_f32("narrow", &[0.1])?;
            npz.add_i32("empty", &[])
        })
        .unwrap();

        assert_eq!(read_npz_array(&path, "offsets").unwrap(), [0.0, 2.0, 3.0]);
        assert_eq!(read_npz_array(&path, "x").unwrap(), [1.5, -2.0, f64::INFINITY]);
        assert_eq!(read_npz_array(&path, "narrow").unwrap(), [f64::from(0.1f32)]);
        assert_eq!(read_npz_array(&path, "empty").unwrap(), [0.0; 0]);
    }
}

#[test]
fn equal_content_gives_equal_bytes_and_a_failure_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npz");
    let write = || write_arrays(&path, Packing::Deflated, |npz| npz.add_f64("x", &[1.0; 100]));
    write().unwrap();
    let first = std::fs::read(&path).unwrap();
    write().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);

    let twice = folder.path().join("y.npz");
    let failed = write_arrays(&twice, Packing::Stored, |npz| {
        npz.add_f64("x", &[1.0])?;
        npz.add_f64("x", &[2.0])
    });
    assert!(failed.is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
