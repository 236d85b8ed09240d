//! Fuzzes the reader of `.batch` files; see `sparsebatch_testing::fuzz`.

use std::path::Path;

use sparsebatch_formats::io::{read_batch_from, write_batch};
use sparsebatch_formats::{Batch, BatchCsr, BatchValues, Csr, RaggedCsr};
use sparsebatch_testing::fuzz;

fn seeds() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seed");
    let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 3.0]).unwrap();
    let b = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![5.0]).unwrap();
    let empty = Csr::zeros(0, 0).unwrap();
    let uniform = BatchCsr::try_new(a.pattern().clone(), 2, BatchValues::ItemMajor(vec![1.5; 6]));
    let batches: [Batch<f64>; 5] = [
        a.clone().into(),
        uniform.unwrap().into(),
        [a, b].into_iter().collect(),
        RaggedCsr::new().into(),
        BatchCsr::shared(empty, 3).into(),
    ];
    let bytes = batches.iter().map(|batch| {
        let rhs = vec![1.0; batch.row_offset(batch.nitems())];
        write_batch(&path, batch, &rhs).unwrap();
        std::fs::read(&path).unwrap()
    });
    bytes.collect()
}

/// What is accepted is consistent, and writing it gives the same bytes.
fn check(bytes: &[u8]) -> bool {
    let file = match read_batch_from(bytes, bytes.len() as u64, Path::new("fuzz")) {
        Ok(file) => file,
        Err(error) => {
            fuzz::assert_names(&error, "fuzz");
            return false;
        }
    };
    let nitems = file.batch.nitems();
    assert_eq!(file.rhs.len(), file.batch.row_offset(nitems));
    for item in 0..nitems.min(100) {
        let pattern = file.batch.pattern(item);
        assert_eq!(pattern.row_ptr().len(), pattern.nrows() + 1);
    }
    true
}

#[test]
fn fuzz_batch() {
    fuzz::run("batch", &seeds(), &[b"BATCH001", b"RAGGED01"], check);
}
