//! Every bad text file gets one clear error: which file, where, what was expected, what was found.

use std::io::Write;
use std::path::Path;

use sparsebatch_formats::FormatError;
use sparsebatch_formats::io::{MemoryLimit, read_dense_from, read_matrix_market_from, read_vector};

/// 1 MiB.
fn small() -> MemoryLimit {
    MemoryLimit::bytes(1 << 20)
}

fn refused(text: &str) -> String {
    refused_within(text, small())
}

fn refused_within(text: &str, memory: MemoryLimit) -> String {
    let error = read_matrix_market_from(text.as_bytes(), Path::new("f"), memory).expect_err(text);
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

const REAL: &str = "%%MatrixMarket matrix coordinate real general\n";
const SYMMETRIC: &str = "%%MatrixMarket matrix coordinate real symmetric\n";
const SKEW: &str = "%%MatrixMarket matrix coordinate real skew-symmetric\n";
const ARRAY: &str = "%%MatrixMarket matrix array real general\n";

/// A banner, the rest of the file, and a part of the expected error.
type BadFile = (&'static str, &'static str, &'static str);

/// Wrong banners.
const BANNERS: &[BadFile] = &[
    ("", "", "f:1:1: expected %%MatrixMarket, found an empty file"),
    ("", "\n\r\n", "f:3:1: expected %%MatrixMarket, found an empty file"),
    ("", "\n1 1 1\n", "f:2:1: expected %%MatrixMarket, found `1`"),
    ("", "1 1 1\n", "f:1:1: expected %%MatrixMarket, found `1`"),
    ("", "%%%MatrixMarket matrix", "f:1:1: expected %%MatrixMarket, found `%%%MatrixMarket`"),
    ("", " %%MatrixMarket matrix", "f:1:23: expected coordinate or array"),
    (
        "",
        "%%MatrixMarket tensor coordinate real general\n",
        "f:1:16: expected matrix or vector, found `tensor`",
    ),
    ("", "%%MatrixMarket matrix sparse real general\n", "f:1:23: expected coordinate or array"),
    (
        "",
        "%%MatrixMarket matrix coordinate float general\n",
        "f:1:34: expected real, integer or pattern",
    ),
    ("", "%%MatrixMarket matrix array pattern general\n", "f:1:29: expected real or integer"),
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
    ("", "%%MatrixMarket matrix coordinate complex general\n", "f: `complex` is not supported"),
    ("", "%%MatrixMarket matrix array Complex general\n", "f: `complex` is not supported"),
    (
        "",
        "%%MatrixMarket matrix coordinate complex hermitian\n",
        "f: `complex` is not supported, expected real, integer or pattern",
    ),
    (
        "",
        "%%MatrixMarket vector array real symmetric\n",
        "f:1:34: expected general (vector), found `symmetric`",
    ),
];

/// Wrong size lines, and entries of a vector.
const SIZES: &[BadFile] = &[
    (
        "%%MatrixMarket vector coordinate real general\n",
        "3\n",
        "f:2:2: expected the number of entries",
    ),
    (
        "%%MatrixMarket vector array real general\n",
        "3 2\n",
        "f:2:3: expected the end of the line, found `2`",
    ),
    (
        "%%MatrixMarket vector coordinate real general\n",
        "3 1\n4 1.5\n",
        "f:3:1: expected a row index in 1..=3, found `4`",
    ),
    (
        REAL,
        "",
        "f:2:1: expected a line with the numbers of rows, columns, entries, found the end of the file",
    ),
    (REAL, "% only a comment\n\n", "f:4:1: expected a line with the numbers"),
    (REAL, "2 2\n", "f:2:4: expected the number of entries, found the end of the line"),
    (REAL, "2 2 1 1\n", "f:2:7: expected the end of the line, found `1`"),
    (REAL, "-2 2 1\n1 1 1\n", "f:2:1: expected the number of rows, found `-2`"),
    (REAL, "2 two 1\n", "f:2:3: expected the number of columns, found `two`"),
    (
        REAL,
        "2147483648 2 1\n1 1 1\n",
        "f:2:1: expected at most 2147483647 rows, found `2147483648`",
    ),
    (REAL, "2 2 1000000000000000000\n1 1 1\n", "f:2:5: expected at most 2147483647 entries"),
    (REAL, "2 2 99999999999999999999999999\n1 1 1\n", "f:2:5: expected at most 2147483647 entries"),
    (
        REAL,
        "2147483647 1 1\n1 1 1\n",
        "f: a matrix of 2147483647 rows and 1 entries would take 8589934592 bytes of memory, \
         expected at most 1048576",
    ),
];

/// Wrong entries of a general matrix.
const ENTRIES: &[BadFile] = &[
    (
        REAL,
        "2 2 2000000000\n1 1 1\n",
        "f:4:1: expected entry 2 of 2000000000, found the end of the file",
    ),
    (REAL, "2 2 2\n1 1 1\n1 2", "f:4:4: expected a number, found the end of the line"),
    (
        REAL,
        "2 2 1\n1 1 1\n\n 2 2 2\n",
        "f:5:2: expected the end of the file after 1 entries, found `2`",
    ),
    (REAL, "2 2 0\n1 1 1\n", "f:3:1: expected the end of the file after 0 entries"),
    (REAL, "2 2 1\n0 1 1\n", "f:3:1: expected a row index in 1..=2, found `0`"),
    (REAL, "2 2 1\n1 0 1\n", "f:3:3: expected a column index in 1..=2, found `0`"),
    (REAL, "2 2 1\n3 1 1\n", "f:3:1: expected a row index in 1..=2, found `3`"),
    (REAL, "2 2 1\n1 -1 1\n", "f:3:3: expected a column index in 1..=2, found `-1`"),
    (
        REAL,
        "2 2 1\n1 4294967297 1\n",
        "f:3:3: expected a column index in 1..=2, found `4294967297`",
    ),
    (REAL, "2 2 1\n1 18446744073709551617 1\n", "f:3:3: expected a column index in 1..=2"),
    (REAL, "2 2 1\n1.0 1 1\n", "f:3:1: expected a row index in 1..=2, found `1.0`"),
    (REAL, "2 2 1\n1 1 1e400\n", "f:3:5: expected a number in the range of f64, found `1e400`"),
    (REAL, "2 2 1\n1 1 1.0d\n", "f:3:5: expected a number, found `1.0d`"),
    (REAL, "2 2 1\n1 1 1 1\n", "f:3:7: expected the end of the line, found `1`"),
];

/// Entries that contradict the symmetry of the banner.
const SYMMETRIES: &[BadFile] = &[
    (
        SYMMETRIC,
        "2 3 1\n1 1 1\n",
        "f:2:1: expected as many rows as columns in a symmetric matrix, found 2 and 3",
    ),
    (
        SYMMETRIC,
        "3 3 3\n1 3 1\n2 1 7\n3 1 1\n",
        "f: entries: expected each entry of a symmetric matrix on one side of its diagonal, \
         found both (3, 1) and (1, 3)",
    ),
    (
        SKEW,
        "2 2 1\n2 2 1\n",
        "f:3:5: expected 0 on the diagonal of a skew-symmetric matrix, found `1`",
    ),
    (
        "%%MatrixMarket matrix array real skew-symmetric\n",
        "2 2\n0\n5\n-1.5\n",
        "f: entries: expected zeros on the diagonal of a skew-symmetric matrix, or no diagonal, \
         found -1.5 in row 2",
    ),
    (
        "%%MatrixMarket matrix array real skew-symmetric\n",
        "3 3\n0\n1\n2\n3\n",
        "f:7:1: expected entry 5 of 6, found the end of the file",
    ),
];

/// Patterns, arrays and integers.
const OTHER_FIELDS: &[BadFile] = &[
    (
        "%%MatrixMarket matrix coordinate pattern general\n",
        "2 2 1\n1 1 5\n",
        "f:3:5: expected the end of the line, since a pattern has no values, found `5`",
    ),
    (ARRAY, "2 1\n1\n", "f:4:1: expected entry 2 of 2"),
    (ARRAY, "2 1\n1 2\n", "f:3:3: expected the end of the line, found `2`"),
    (ARRAY, "100000 100000\n1\n", "f:2:1: expected at most 2147483647 entries, found 10000000000"),
    (ARRAY, "2147483647 0\n", "f: a matrix of 2147483647 rows and 0 entries would take"),
    (
        "%%MatrixMarket matrix coordinate integer general\n",
        "1 1 1\n1 1 1.5\n",
        "f:3:5: expected an integer, found `1.5`",
    ),
];

#[test]
fn matrix_market_errors_name_line_and_column() {
    for (banner, rest, expected) in [BANNERS, SIZES, ENTRIES, SYMMETRIES, OTHER_FIELDS].concat() {
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

    let error = read_matrix_market_from(&text[..], Path::new("f"), small()).unwrap_err();

    assert!(error.to_string().contains("expected a line of at most 1048576 bytes"), "{error}");
}

#[test]
fn broken_gzip_is_refused() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n").unwrap();
    let whole = encoder.finish().unwrap();
    assert!(read_matrix_market_from(&whole[..], Path::new("f"), small()).is_ok());

    let mut flipped = whole.clone();
    flipped[20] ^= 0x55;
    for bytes in [&whole[..whole.len() - 3], &whole[..whole.len() / 2], &flipped] {
        let error = read_matrix_market_from(bytes, Path::new("f"), small()).unwrap_err();
        assert!(matches!(error, FormatError::Io { .. } | FormatError::Parse { .. }), "{error}");
    }
}

#[test]
fn vectors_of_several_columns_and_dense_matrices_beyond_memory_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v.mtx");
    std::fs::write(
        &path,
        "%%MatrixMarket matrix coordinate real general\n2147483647 2147483647 0\n",
    )
    .unwrap();
    let error = read_vector(&path).unwrap_err().to_string();
    let expected = "a 2147483647 x 2147483647 matrix as a vector is not supported, expected one column or one row";
    // With little memory the row pointers are too much already.
    assert!(error.contains(expected) || error.contains("would take 8589934592 bytes"), "{error}");
    std::fs::write(&path, "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n").unwrap();
    let error = read_vector(&path).unwrap_err();
    assert!(error.to_string().contains("a 2 x 2 matrix as a vector"), "{error}");

    let lying = "%%MatrixMarket matrix coordinate real general\n60000 60000 1\n1 1 1\n";
    let error = read_dense_from(lying.as_bytes(), Path::new("f"), small()).unwrap_err();
    let expected = "f: a dense matrix of 60000 rows and 60000 columns would take 28800000016 bytes";
    assert!(error.to_string().contains(expected), "{error}");
}
