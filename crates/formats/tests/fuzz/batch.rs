//! Fuzzes the reader of `.batch` files; see `sparsebatch_testing::fuzz`.

use std::path::Path;

use sparsebatch_formats::io::{BatchFile, BatchIndex, MemoryLimit, read_batch_from, write_batch};
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
    check_items(bytes, &file);
    true
}

/// Items read at their offsets are those of the whole file.
fn check_items(bytes: &[u8], file: &BatchFile) {
    let temporary = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(temporary.path(), bytes).unwrap();
    let mut index = BatchIndex::open(temporary.path(), MemoryLimit::available()).unwrap();
    let nitems = file.batch.nitems();
    assert_eq!(index.nitems(), nitems);
    for items in [0..nitems, 0..nitems / 2, nitems / 2..nitems] {
        let part = index.read_items(items.clone()).unwrap();
        let rows = file.batch.row_offset(items.start)..file.batch.row_offset(items.end);
        let bits = |numbers: &[f64]| numbers.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&part.rhs), bits(&file.rhs[rows]));
        let (mut own, mut whole) = (Vec::new(), Vec::new());
        for (k, item) in items.enumerate().take(100) {
            assert_eq!(part.batch.pattern(k).row_ptr(), file.batch.pattern(item).row_ptr());
            assert_eq!(part.batch.pattern(k).col_idx(), file.batch.pattern(item).col_idx());
            part.batch.copy_values(k, &mut own);
            file.batch.copy_values(item, &mut whole);
            assert_eq!(bits(&own), bits(&whole));
        }
    }
}

#[test]
fn fuzz_batch() {
    fuzz::run("batch", &seeds(), &[b"BATCH001", b"RAGGED01"], check);
}
