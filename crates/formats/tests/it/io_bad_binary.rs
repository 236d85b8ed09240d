//! Every bad binary file gets one clear error: which file, where, what was expected, what was
//! found.

use std::path::Path;

use sparsebatch_formats::io::{
    BatchIndex, MemoryLimit, Packing, read_batch, read_batch_from, read_matrix_market, read_npz,
    read_npz_array, read_npz_from, read_vector, write_arrays, write_batch,
};
use sparsebatch_formats::{Batch, BatchCsr, Csr, FormatError};
use sparsebatch_testing::read_xref;

/// A uniform file with the given header sizes and body.
fn uniform(sizes: [u64; 3], body: &[u8]) -> Vec<u8> {
    let mut bytes = b"BATCH001".to_vec();
    sizes.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
    bytes.extend(body);
    bytes
}

#[test]
fn batch_headers_that_lie_are_refused() {
    // One system [5]: row_ptr 0 1, column 0, value 5, rhs 1.
    let mut body = Vec::new();
    [0i32, 1, 0].iter().for_each(|x| body.extend(x.to_le_bytes()));
    [5.0f64, 1.0].iter().for_each(|x| body.extend(x.to_le_bytes()));
    let good = uniform([1, 1, 1], &body);
    assert!(read_batch_from(&good[..], good.len() as u64, Path::new("f")).is_ok());
    let mut pointer = good.clone();
    pointer[32] = 1;
    let mut column = good.clone();
    column[40] = 7;
    let mut ragged = b"RAGGED01".to_vec();
    [1u64, 1, 1].iter().for_each(|x| ragged.extend(x.to_le_bytes()));
    ragged.extend(&body);
    let mut ragged_column = ragged.clone();
    ragged_column[40] = 7;
    let huge = [b"RAGGED01".as_slice(), &u64::MAX.to_le_bytes()].concat();
    let cases: [(Vec<u8>, &str); 14] = [
        (Vec::new(), "header: expected at least 16 bytes, found 0"),
        (good[..12].to_vec(), "header: expected at least 16 bytes, found 12"),
        (good[..24].to_vec(), "header: expected at least 32 bytes, found 24"),
        (
            [b"BATCH002", &good[8..]].concat(),
            "first 8 bytes: expected BATCH001 or RAGGED01, found BATCH002",
        ),
        (
            good[..good.len() - 1].to_vec(),
            "file length: expected 60 bytes for nbatch 1, nrows 1, nnz 1, found 59",
        ),
        ([&good[..], b"x"].concat(), "found 61"),
        (uniform([u64::MAX, 1, 1], &body), "file length: expected"),
        (uniform([1, 1 << 31, 1], &body), "nrows: expected at most 2147483647, found 2147483648"),
        (uniform([1, 1, u64::MAX], &body), "nnz: expected at most 2147483647"),
        (uniform([1 << 60, 0, 0], &0i32.to_le_bytes()), "nbatch: expected at most 67840"),
        (pointer, "row_ptr[0] is 1, expected 0"),
        (column, "col_idx[0] is 7, expected an index in 0..1"),
        (huge, "file length: expected at least 295147905179352825856 bytes"),
        (ragged_column, "item 0: expected a valid CSR pattern, found col_idx[0] is 7"),
    ];
    for (bytes, expected) in cases {
        let error = read_batch_from(&bytes[..], bytes.len() as u64, Path::new("f")).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}\ninstead of\n{expected}");
    }
    let file = read_batch_from(&ragged[..], ragged.len() as u64, Path::new("f")).unwrap();
    assert_eq!(file.rhs, [1.0]);
}

#[test]
fn a_broken_item_is_found_by_who_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.batch");
    let one = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![2.0]).unwrap();
    let two = Csr::try_new(2, 2, vec![0, 1, 2], vec![0, 1], vec![4.0, 8.0]).unwrap();
    let batch: Batch<f64> = [one, two].into_iter().collect();
    write_batch(&path, &batch, &[1.0; 3]).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // 16 bytes, two sizes of two items, 28 bytes of item 0, row_ptr of item 1.
    bytes[16 + 32 + 28 + 12] = 7;
    std::fs::write(&path, &bytes).unwrap();
    let mut index = BatchIndex::open(&path, MemoryLimit::available()).unwrap();

    assert_eq!(index.read_items(0..1).unwrap().rhs, [1.0]);
    let error = index.read_items(1..2).unwrap_err().to_string();
    assert!(
        error.contains("item 1: expected a valid CSR pattern, found col_idx[0] is 7"),
        "{error}"
    );
    let error = index.read_items(1..3).unwrap_err().to_string();
    assert!(error.contains("1..3 of 2"), "{error}");
    let mut limited = BatchIndex::open(&path, MemoryLimit::bytes(80)).unwrap();
    assert!(limited.read_items(0..1).is_ok());
    let error = limited.read_items(1..2).unwrap_err();
    assert!(matches!(error.innermost(), FormatError::MemoryLimit { .. }), "{error}");
    let sizes = BatchIndex::open(&path, MemoryLimit::bytes(40)).unwrap_err();
    assert!(matches!(sizes.innermost(), FormatError::MemoryLimit { .. }), "{sizes}");
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let short = BatchIndex::open(&path, MemoryLimit::available()).unwrap_err().to_string();
    assert!(short.contains("file length"), "{short}");
}

#[test]
fn what_a_batch_file_cannot_hold_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.batch");
    let wide: Batch<f64> = Csr::try_new(1, 2, vec![0, 1], vec![1], vec![1.0]).unwrap().into();
    let square: Batch<f64> = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![1.0]).unwrap().into();

    assert!(matches!(write_batch(&path, &wide, &[1.0]), Err(FormatError::Parameter { .. })));
    assert!(matches!(write_batch(&path, &square, &[1.0; 2]), Err(FormatError::Length { .. })));
    assert!(matches!(
        write_batch(folder.path().join("no/x"), &square, &[1.0]),
        Err(FormatError::Io { .. })
    ));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn npz_archives_that_are_no_matrix_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npz");
    // Format, shape, and the arrays of a compressed matrix.
    type Parts<'a> = (&'a str, &'a [i64], &'a [i64], &'a [i64], &'a [f64]);
    let write = |(format, shape, indices, indptr, data): Parts<'_>| {
        write_arrays(&path, Packing::Stored, |npz| {
            npz.add_strings("format", &[format])?;
            npz.add_i64("shape", shape)?;
            npz.add_i64("indices", indices)?;
            npz.add_i64("indptr", indptr)?;
            npz.add_f64("data", data)
        })
        .unwrap();
        read_npz_from(std::fs::File::open(&path).unwrap(), &path, MemoryLimit::bytes(1 << 20))
    };
    assert_eq!(write(("csr", &[1, 2], &[1], &[0, 1], &[3.0])).unwrap().values(), [3.0]);
    let cases: [(Parts<'_>, &str); 11] = [
        (("bsr", &[1, 2], &[1], &[0, 1], &[3.0]), "sparse format `bsr` is not supported"),
        (("csr", &[1], &[1], &[0, 1], &[3.0]), "shape: expected two dimensions, found 1"),
        (("csr", &[-1, 2], &[1], &[0, 1], &[3.0]), "found [-1, 2]"),
        (("csr", &[1, 1 << 31], &[1], &[0, 1], &[3.0]), "shape: expected two dimensions"),
        (
            ("csc", &[2_000_000_000, 1], &[1], &[0, 1], &[3.0]),
            "a matrix of 2000000000 rows and 1 entries would take",
        ),
        (
            ("coo", &[2_000_000_000, 1], &[1], &[0, 1], &[3.0]),
            "archive: expected an array `row`, found none",
        ),
        (("csr", &[1, 2], &[2], &[0, 1], &[3.0]), "indices[0] is 2, expected an index in 0..2"),
        (("csr", &[1, 2], &[-1], &[0, 1], &[3.0]), "indices[0] is -1"),
        (("csr", &[1, 2], &[1], &[0, 2], &[3.0]), "indptr[1] is 2, expected a value in 0..=1"),
        (("csr", &[1, 2], &[1], &[0, 1, 1], &[3.0]), "indptr has 3 entries, expected 2"),
        (("csr", &[1, 2], &[1], &[0, 1], &[3.0, 4.0]), "data has 2 entries, expected 1"),
    ];
    for (parts, expected) in cases {
        let error = write(parts).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}\ninstead of\n{expected}");
    }
}

#[test]
fn broken_archives_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npz");
    write_arrays(&path, Packing::Stored, |npz| npz.add_f64("x", &[1.0; 40])).unwrap();
    let whole = std::fs::read(&path).unwrap();
    assert_eq!(read_npz_array(&path, "x").unwrap().len(), 40);
    let replace = |from: &str, to: &str| {
        let at = whole.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    let mut data = whole.clone();
    data[250] ^= 1;
    let cases: [(Vec<u8>, &str); 7] = [
        (whole[..whole.len() / 2].to_vec(), "x.npz"),
        (data, "x: expected whole data, found Invalid checksum"),
        (
            replace("(40,)", "(41,)"),
            "x: expected whole data, 328 bytes of 41 elements, found 320 bytes",
        ),
        (replace("(40,), ", "(9223372036854775807, 9223372036854775807), }"), "x: expected a size"),
        (replace("<f8", "<c8"), "found type `<c8`"),
        (replace("'descr'", "'other'"), "expected a header with descr"),
        (b"PK\x03\x04 nonsense".to_vec(), "expected a ZIP archive"),
    ];
    for (bytes, expected) in cases {
        std::fs::write(&path, bytes).unwrap();
        let error = read_npz_array(&path, "x").unwrap_err();
        assert!(error.to_string().contains(expected), "{error}\ninstead of\n{expected}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    std::fs::write(&path, &whole).unwrap();
    let error = read_npz_array(&path, "y").unwrap_err();
    assert!(error.to_string().contains("expected an array `y`, found none"), "{error}");
}

#[test]
fn missing_files_and_folders_are_errors_of_every_reader() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().join("missing"), folder.path().to_owned()] {
        let errors = [
            read_matrix_market(&path).unwrap_err(),
            read_vector(&path).unwrap_err(),
            read_npz(&path).unwrap_err(),
            read_batch(&path).unwrap_err(),
            read_xref(&path).unwrap_err(),
        ];
        for error in errors {
            assert!(
                matches!(&error, FormatError::Io { path: named, .. } if *named == path),
                "{error}"
            );
        }
    }
}

#[test]
fn batches_without_systems_or_rows_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.batch");
    let empty: Batch<f64> = sparsebatch_formats::RaggedCsr::new().into();
    let no_rows = Batch::Uniform(BatchCsr::shared(Csr::zeros(0, 0).unwrap(), 3));
    for batch in [empty, no_rows] {
        write_batch(&path, &batch, &[]).unwrap();
        assert_eq!(read_batch(&path).unwrap().batch.nitems(), batch.nitems());
    }
}
