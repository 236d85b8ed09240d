//! Files and folders through `io::load`.

use std::path::{Path, PathBuf};

use sparsebatch_formats::io::{
    FileKind, LoadOptions, detect, load, write_batch, write_matrix_market, write_npz,
};
use sparsebatch_formats::{Batch, BatchCsr, Csr, FormatError};

fn small(value: f64) -> Csr<f64> {
    Csr::try_new(2, 2, vec![0, 1, 2], vec![0, 1], vec![value, 1.0]).unwrap()
}

fn other() -> Csr<f64> {
    Csr::try_new(1, 1, vec![0, 1], vec![0], vec![9.0]).unwrap()
}

/// A folder with `a.mtx`, `b.mtx.gz`, `c.npz` of one pattern.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_matrix_market(folder.path().join("a.mtx"), &small(1.0)).unwrap();
    write_matrix_market(folder.path().join("b.mtx.gz"), &small(2.0)).unwrap();
    write_npz(folder.path().join("c.npz"), &small(3.0)).unwrap();
    folder
}

fn load_one(path: &Path) -> Result<sparsebatch_formats::io::Loaded, FormatError> {
    load(&[path.to_owned()], LoadOptions::default())
}

#[test]
fn content_is_known_whatever_the_name() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    write_batch(path("u"), &small(1.0).into(), &[1.0, 2.0]).unwrap();
    let ragged: Batch<f64> = [small(1.0), other()].into_iter().collect();
    write_batch(path("r"), &ragged, &[1.0; 3]).unwrap();
    std::fs::rename(path("a.mtx"), path("a.npz")).unwrap();

    assert_eq!(detect(path("a.npz")).unwrap(), FileKind::MatrixMarket);
    assert_eq!(detect(path("b.mtx.gz")).unwrap(), FileKind::MatrixMarketGzip);
    assert_eq!(detect(path("c.npz")).unwrap(), FileKind::Npz);
    assert_eq!(detect(path("u")).unwrap(), FileKind::UniformBatch);
    assert_eq!(detect(path("r")).unwrap(), FileKind::RaggedBatch);
}

#[test]
fn a_folder_of_one_pattern_is_a_uniform_batch_in_the_order_of_names() {
    let folder = folder();
    std::fs::write(folder.path().join("README"), "notes").unwrap();
    std::fs::create_dir(folder.path().join("deeper")).unwrap();
    std::fs::write(folder.path().join("deeper/x.mtx"), "bad").unwrap();

    let loaded = load_one(folder.path()).unwrap();

    let Batch::Uniform(batch) = &loaded.batch else {
        panic!("{:?}", loaded.batch);
    };
    assert_eq!(batch.values(), BatchCsr::values(&uniform(&[1.0, 2.0, 3.0])));
    assert_eq!(loaded.rhs, None);
    assert_eq!(loaded.has_rhs, [false; 3]);
    let names: Vec<_> = ["a.mtx", "b.mtx.gz", "c.npz"]
        .map(|name| folder.path().join(name).display().to_string())
        .into();
    assert_eq!(loaded.names, names);
    assert_eq!(loaded.ignored, [folder.path().join("README")]);
}

fn uniform(firsts: &[f64]) -> BatchCsr<f64> {
    let values = firsts.iter().flat_map(|&first| [first, 1.0]).collect();
    let pattern = small(0.0).pattern().clone();
    let values = sparsebatch_formats::BatchValues::ItemMajor(values);
    BatchCsr::try_new(pattern, firsts.len(), values).unwrap()
}

#[test]
fn mixed_sizes_are_a_ragged_batch_with_ones_where_no_rhs_is() {
    let folder = folder();
    let batch = folder.path().join("z.batch");
    let items: Batch<f64> = [other(), small(4.0)].into_iter().collect();
    write_batch(&batch, &items, &[5.0, 6.0, 7.0]).unwrap();

    let loaded = load_one(folder.path()).unwrap();

    let Batch::Ragged(ragged) = &loaded.batch else {
        panic!("{:?}", loaded.batch);
    };
    assert_eq!(ragged.row_offsets(), [0, 2, 4, 6, 7, 9]);
    let rhs = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 6.0, 7.0];
    assert_eq!(loaded.rhs.as_deref(), Some(&rhs[..]));
    assert_eq!(loaded.has_rhs, [false, false, false, true, true]);
    assert!(loaded.names[3].ends_with("z.batch[0]"));
}

#[test]
fn one_bad_file_is_the_error_unless_it_is_skipped() {
    let folder = folder();
    let bad = folder.path().join("bad.mtx");
    std::fs::write(&bad, "no banner").unwrap();
    let mut seen = Vec::new();

    let error = load_one(folder.path()).unwrap_err();
    let loaded = load(
        &[folder.path().to_owned()],
        LoadOptions {
            skip_bad: true,
            progress: Some(&mut |done, total| seen.push((done, total))),
            ..LoadOptions::default()
        },
    )
    .unwrap();

    assert!(error.to_string().contains("bad.mtx"), "{error}");
    assert_eq!(loaded.batch.nitems(), 3);
    assert_eq!(loaded.skipped.len(), 1);
    assert_eq!(loaded.skipped[0].0, bad);
    assert_eq!(seen.len(), 4);
    assert_eq!(seen[3].0, seen[3].1);
}

#[test]
fn a_single_uniform_file_stays_uniform_and_an_empty_batch_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let full = uniform(&[1.0, 2.0]);
    let empty = uniform(&[]);

    for batch in [full, empty] {
        let batch = Batch::Uniform(batch);
        write_batch(&path, &batch, &vec![3.0; batch.row_offset(batch.nitems())]).unwrap();
        let loaded = load_one(&path).unwrap();
        assert_eq!(loaded.batch, batch);
        assert_eq!(loaded.names.len(), batch.nitems());
    }
}

#[test]
fn what_cannot_be_loaded_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("nothing")).unwrap();
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("text"), "hello\n").unwrap();
    let cases: [(&[PathBuf], &str); 5] = [
        (&[], "at least one file"),
        (&[path("missing")], "missing: No such file"),
        (&[path("nothing")], "at least one Matrix Market"),
        (&[path("empty")], "found an empty file"),
        (&[path("text")], "found `hello\\n`"),
    ];
    for (paths, expected) in cases {
        let error = load(paths, LoadOptions::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let all_bad = load(&[path("text")], LoadOptions { skip_bad: true, ..Default::default() });
    assert!(all_bad.unwrap_err().to_string().contains("1 bad files"));
}
