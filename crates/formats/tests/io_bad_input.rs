//! Every bad input gets one clear error: which file, where, what was expected, what was found.

use std::io::Write;
use std::path::Path;

use sparsebatch_formats::io::{
    Packing, read_batch, read_batch_from, read_dense_from, read_matrix_market,
    read_matrix_market_from, read_npz, read_npz_array, read_vector, write_arrays, write_batch,
};
use sparsebatch_formats::testing::read_xref;
use sparsebatch_formats::{Batch, BatchCsr, Csr, FormatError};

fn refused(text: &str) -> String {
    let error = read_matrix_market_from(text.as_bytes(), Path::new("f")).expect_err(text);
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn matrix_market_errors_name_line_and_column() {
    const REAL: &str = "%%MatrixMarket matrix coordinate real general\n";
    const SYMMETRIC: &str = "%%MatrixMarket matrix coordinate real symmetric\n";
    const SKEW: &str = "%%MatrixMarket matrix coordinate real skew-symmetric\n";
    const ARRAY: &str = "%%MatrixMarket matrix array real general\n";
    let cases: [(&str, &str, &str); 47] = [
        (
            "",
            "",
            "f:1:1: expected %%MatrixMarket, found an empty file",
        ),
        (
            "",
            "\n1 1 1\n",
            "f:1:1: expected %%MatrixMarket, found the end of the line",
        ),
        ("", "1 1 1\n", "f:1:1: expected %%MatrixMarket, found `1`"),
        (
            "",
            " %%MatrixMarket matrix",
            "f:1:2: expected %%MatrixMarket",
        ),
        (
            "",
            "%%MatrixMarket tensor coordinate real general\n",
            "f:1:16: expected matrix, found `tensor`",
        ),
        (
            "",
            "%%MatrixMarket matrix sparse real general\n",
            "f:1:23: expected coordinate or array",
        ),
        (
            "",
            "%%MatrixMarket matrix coordinate float general\n",
            "f:1:34: expected real, integer or pattern",
        ),
        (
            "",
            "%%MatrixMarket matrix array pattern general\n",
            "f:1:29: expected real or integer",
        ),
        (
            "",
            "%%MatrixMarket matrix coordinate real\n",
            "f:1:38: expected general, symmetric or skew-symmetric, found the end of the line",
        ),
        (
            "",
            "%%MatrixMarket matrix coordinate real general more\n",
            "f:1:47: expected the end of the line, found `more`",
        ),
        (
            "",
            "%%MatrixMarket matrix coordinate pattern skew-symmetric\n",
            "f:1:42: expected general or symmetric",
        ),
        (
            "",
            "%%MatrixMarket matrix coordinate complex general\n",
            "f: `complex` is not supported",
        ),
        (
            "",
            "%%MatrixMarket matrix array Complex general\n",
            "f: `complex` is not supported",
        ),
        (
            "",
            "%%MatrixMarket matrix coordinate real Hermitian\n",
            "f: `hermitian` is not supported",
        ),
        (
            REAL,
            "",
            "f:2:1: expected a line with the numbers of rows, columns, entries, found the end of the file",
        ),
        (
            REAL,
            "% only a comment\n\n",
            "f:4:1: expected a line with the numbers",
        ),
        (
            REAL,
            "2 2\n",
            "f:2:4: expected the number of entries, found the end of the line",
        ),
        (
            REAL,
            "2 2 1 1\n",
            "f:2:7: expected the end of the line, found `1`",
        ),
        (
            REAL,
            "-2 2 1\n1 1 1\n",
            "f:2:1: expected the number of rows, found `-2`",
        ),
        (
            REAL,
            "2 two 1\n",
            "f:2:3: expected the number of columns, found `two`",
        ),
        (
            REAL,
            "2147483648 2 1\n1 1 1\n",
            "f:2:1: expected at most 2147483647 rows, found `2147483648`",
        ),
        (
            REAL,
            "2 2 1000000000000000000\n1 1 1\n",
            "f:2:5: expected at most 2147483647 entries",
        ),
        (
            REAL,
            "2 2 99999999999999999999999999\n1 1 1\n",
            "f:2:5: expected at most 2147483647 entries",
        ),
        (
            REAL,
            "2147483647 1 1\n1 1 1\n",
            "f:2:1: expected at most 69824 rows",
        ),
        (
            REAL,
            "1 2147483647 1\n1 1 1\n",
            "f:2:1: expected at most 69824 columns",
        ),
        (
            REAL,
            "2 2 2000000000\n1 1 1\n",
            "f:4:1: expected entry 2 of 2000000000, found the end of the file",
        ),
        (
            REAL,
            "2 2 2\n1 1 1\n1 2",
            "f:4:4: expected a number, found the end of the line",
        ),
        (
            REAL,
            "2 2 1\n1 1 1\n\n 2 2 2\n",
            "f:5:2: expected the end of the file after 1 entries, found `2`",
        ),
        (
            REAL,
            "2 2 0\n1 1 1\n",
            "f:3:1: expected the end of the file after 0 entries",
        ),
        (
            REAL,
            "2 2 1\n0 1 1\n",
            "f:3:1: expected a row index in 1..=2, found `0`",
        ),
        (
            REAL,
            "2 2 1\n1 0 1\n",
            "f:3:3: expected a column index in 1..=2, found `0`",
        ),
        (
            REAL,
            "2 2 1\n3 1 1\n",
            "f:3:1: expected a row index in 1..=2, found `3`",
        ),
        (
            REAL,
            "2 2 1\n1 -1 1\n",
            "f:3:3: expected a column index in 1..=2, found `-1`",
        ),
        (
            REAL,
            "2 2 1\n1 4294967297 1\n",
            "f:3:3: expected a column index in 1..=2, found `4294967297`",
        ),
        (
            REAL,
            "2 2 1\n1 18446744073709551617 1\n",
            "f:3:3: expected a column index in 1..=2",
        ),
        (
            REAL,
            "2 2 1\n1.0 1 1\n",
            "f:3:1: expected a row index in 1..=2, found `1.0`",
        ),
        (
            REAL,
            "2 2 1\n1 1 1e400\n",
            "f:3:5: expected a number in the range of f64, found `1e400`",
        ),
        (
            REAL,
            "2 2 1\n1 1 1.0d0\n",
            "f:3:5: expected a number, found `1.0d0`",
        ),
        (
            REAL,
            "2 2 1\n1 1 1 1\n",
            "f:3:7: expected the end of the line, found `1`",
        ),
        (
            SYMMETRIC,
            "2 3 1\n1 1 1\n",
            "f:2:1: expected as many rows as columns in a symmetric matrix, found 2 and 3",
        ),
        (
            SYMMETRIC,
            "2 2 1\n1 2 1\n",
            "f:3:3: expected an entry on or below the diagonal (row 1), found `2`",
        ),
        (
            SKEW,
            "2 2 1\n2 2 1\n",
            "f:3:3: expected an entry below the diagonal (row 2), found `2`",
        ),
        (ARRAY, "2 1\n1\n", "f:4:1: expected entry 2 of 2"),
        (
            ARRAY,
            "2 1\n1 2\n",
            "f:3:3: expected the end of the line, found `2`",
        ),
        (
            ARRAY,
            "100000 100000\n1\n",
            "f:2:1: expected at most 2147483647 entries, found 10000000000",
        ),
        (ARRAY, "0 2147483647\n", "f:2:1: expected at most"),
        (
            "%%MatrixMarket matrix coordinate integer general\n",
            "1 1 1\n1 1 1.5\n",
            "f:3:5: expected an integer, found `1.5`",
        ),
    ];
    for (banner, rest, expected) in cases {
        let found = refused(&format!("{banner}{rest}"));
        assert!(found.contains(expected), "{found}\ninstead of\n{expected}");
    }
}

#[test]
fn lines_are_counted_across_blocks_of_the_file() {
    let mut text = "%%MatrixMarket matrix coordinate real general\n3 3 100000\n".to_owned();
    for _ in 0..50_000 {
        text.push_str("1 1 1.25\r\n% note\n3 2 -1\n");
    }
    text.push_str(" 9 2 -1\n");

    let found = refused(&text);

    assert!(text.len() > 1 << 20);
    assert!(
        found.contains("f:150003:2: expected the end of the file after 100000 entries"),
        "{found}"
    );
}

#[test]
fn an_endless_line_is_refused() {
    let mut text = b"%%MatrixMarket matrix coordinate real general\n%".to_vec();
    text.resize(3 << 20, b'x');

    let error = read_matrix_market_from(&text[..], Path::new("f")).unwrap_err();

    assert!(
        error
            .to_string()
            .contains("expected a line of at most 1048576 bytes"),
        "{error}"
    );
}

#[test]
fn broken_gzip_is_refused() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder
        .write_all(b"%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n")
        .unwrap();
    let whole = encoder.finish().unwrap();
    assert!(read_matrix_market_from(&whole[..], Path::new("f")).is_ok());

    let mut flipped = whole.clone();
    flipped[20] ^= 0x55;
    for bytes in [
        &whole[..whole.len() - 3],
        &whole[..whole.len() / 2],
        &flipped,
    ] {
        let error = read_matrix_market_from(bytes, Path::new("f")).unwrap_err();
        assert!(
            matches!(error, FormatError::Io { .. } | FormatError::Parse { .. }),
            "{error}"
        );
    }
}

#[test]
fn vectors_with_several_columns_and_lying_places_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v.mtx");
    std::fs::write(
        &path,
        "%%MatrixMarket matrix array real general\n1 2\n1\n2\n",
    )
    .unwrap();
    let error = read_vector(&path).unwrap_err();
    assert!(
        error.to_string().contains("a 1 x 2 matrix as a vector"),
        "{error}"
    );

    let lying = "%%MatrixMarket matrix coordinate real general\n60000 60000 1\n1 1 1\n";
    let error = read_dense_from(lying.as_bytes(), Path::new("f")).unwrap_err();
    assert!(error.to_string().contains("3600000000"), "{error}");
}

/// A uniform file with the given header sizes and body.
fn uniform(sizes: [u64; 3], body: &[u8]) -> Vec<u8> {
    let mut bytes = b"BATCH001".to_vec();
    sizes
        .iter()
        .for_each(|size| bytes.extend(size.to_le_bytes()));
    bytes.extend(body);
    bytes
}

#[test]
fn batch_headers_that_lie_are_refused() {
    // One system [5]: row_ptr 0 1, column 0, value 5, rhs 1.
    let mut body = Vec::new();
    [0i32, 1, 0]
        .iter()
        .for_each(|x| body.extend(x.to_le_bytes()));
    [5.0f64, 1.0]
        .iter()
        .for_each(|x| body.extend(x.to_le_bytes()));
    let good = uniform([1, 1, 1], &body);
    assert!(read_batch_from(&good[..], good.len() as u64, Path::new("f")).is_ok());
    let mut pointer = good.clone();
    pointer[32] = 1;
    let mut column = good.clone();
    column[40] = 7;
    let mut ragged = b"RAGGED01".to_vec();
    [1u64, 1, 1]
        .iter()
        .for_each(|x| ragged.extend(x.to_le_bytes()));
    ragged.extend(&body);
    let mut ragged_column = ragged.clone();
    ragged_column[40] = 7;
    let huge = [b"RAGGED01".as_slice(), &u64::MAX.to_le_bytes()].concat();
    let cases: [(Vec<u8>, &str); 14] = [
        (Vec::new(), "header: expected at least 16 bytes, found 0"),
        (
            good[..12].to_vec(),
            "header: expected at least 16 bytes, found 12",
        ),
        (
            good[..24].to_vec(),
            "header: expected at least 32 bytes, found 24",
        ),
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
        (
            uniform([1, 1 << 31, 1], &body),
            "nrows: expected at most 2147483647, found 2147483648",
        ),
        (
            uniform([1, 1, u64::MAX], &body),
            "nnz: expected at most 2147483647",
        ),
        (
            uniform([1 << 60, 0, 0], &0i32.to_le_bytes()),
            "nbatch: expected at most 67840",
        ),
        (pointer, "row_ptr[0] is 1, expected 0"),
        (column, "col_idx[0] is 7, expected an index in 0..1"),
        (
            huge,
            "file length: expected at least 295147905179352825856 bytes",
        ),
        (
            ragged_column,
            "item 0: expected a valid CSR pattern, found col_idx[0] is 7",
        ),
    ];
    for (bytes, expected) in cases {
        let error = read_batch_from(&bytes[..], bytes.len() as u64, Path::new("f")).unwrap_err();
        assert!(
            error.to_string().contains(expected),
            "{error}\ninstead of\n{expected}"
        );
    }
    let file = read_batch_from(&ragged[..], ragged.len() as u64, Path::new("f")).unwrap();
    assert_eq!(file.rhs, [1.0]);
}

#[test]
fn what_a_batch_file_cannot_hold_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.batch");
    let wide: Batch<f64> = Csr::try_new(1, 2, vec![0, 1], vec![1], vec![1.0])
        .unwrap()
        .into();
    let square: Batch<f64> = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![1.0])
        .unwrap()
        .into();

    assert!(matches!(
        write_batch(&path, &wide, &[1.0]),
        Err(FormatError::Parameter { .. })
    ));
    assert!(matches!(
        write_batch(&path, &square, &[1.0; 2]),
        Err(FormatError::Length { .. })
    ));
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
        read_npz(&path)
    };
    assert_eq!(
        write(("csr", &[1, 2], &[1], &[0, 1], &[3.0]))
            .unwrap()
            .values(),
        [3.0]
    );
    let cases: [(Parts<'_>, &str); 11] = [
        (
            ("bsr", &[1, 2], &[1], &[0, 1], &[3.0]),
            "sparse format `bsr` is not supported",
        ),
        (
            ("csr", &[1], &[1], &[0, 1], &[3.0]),
            "shape: expected two dimensions",
        ),
        (("csr", &[-1, 2], &[1], &[0, 1], &[3.0]), "found [-1, 2]"),
        (
            ("csr", &[1, 1 << 31], &[1], &[0, 1], &[3.0]),
            "shape: expected two dimensions",
        ),
        (
            ("csr", &[1, 2_000_000_000], &[1], &[0, 1], &[3.0]),
            "columns: expected at most",
        ),
        (
            ("csc", &[2_000_000_000, 1], &[1], &[0, 1], &[3.0]),
            "rows: expected at most",
        ),
        (
            ("csr", &[1, 2], &[2], &[0, 1], &[3.0]),
            "indices[0] is 2, expected an index in 0..2",
        ),
        (("csr", &[1, 2], &[-1], &[0, 1], &[3.0]), "indices[0] is -1"),
        (
            ("csr", &[1, 2], &[1], &[0, 2], &[3.0]),
            "indptr[1] is 2, expected a value in 0..=1",
        ),
        (
            ("csr", &[1, 2], &[1], &[0, 1, 1], &[3.0]),
            "indptr has 3 entries, expected 2",
        ),
        (
            ("csr", &[1, 2], &[1], &[0, 1], &[3.0, 4.0]),
            "data has 2 entries, expected 1",
        ),
    ];
    for (parts, expected) in cases {
        let error = write(parts).unwrap_err();
        assert!(
            error.to_string().contains(expected),
            "{error}\ninstead of\n{expected}"
        );
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
        let at = whole
            .windows(from.len())
            .position(|w| w == from.as_bytes())
            .unwrap();
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    let mut data = whole.clone();
    data[250] ^= 1;
    let cases: [(Vec<u8>, &str); 7] = [
        (whole[..whole.len() / 2].to_vec(), "x.npz"),
        (data, "x: expected whole data, found Invalid checksum"),
        (replace("(40,)", "(41,)"), "x: expected whole data"),
        (
            replace("(40,), ", "(9223372036854775807, 9223372036854775807), }"),
            "x: expected a size",
        ),
        (replace("<f8", "<c8"), "found type `<c8`"),
        (
            replace("'descr'", "'other'"),
            "expected a header with descr",
        ),
        (b"PK\x03\x04 nonsense".to_vec(), "expected a ZIP archive"),
    ];
    for (bytes, expected) in cases {
        std::fs::write(&path, bytes).unwrap();
        let error = read_npz_array(&path, "x").unwrap_err();
        assert!(
            error.to_string().contains(expected),
            "{error}\ninstead of\n{expected}"
        );
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    std::fs::write(&path, &whole).unwrap();
    let error = read_npz_array(&path, "y").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("expected an array `y`, found none"),
        "{error}"
    );
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
