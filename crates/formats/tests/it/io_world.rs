//! Files as they are in the world: what others write a little differently is read as they mean it.

use std::io::{Cursor, Read, Write};
use std::path::Path;

use sparsebatch_formats::io::{
    FileKind, MemoryLimit, detect, load_array, read_dense_from, read_matrix_market_from,
    read_npz_from, read_vector,
};
use sparsebatch_formats::{Csr, FormatError};

fn read(text: impl AsRef<[u8]>) -> Csr<f64> {
    let text = text.as_ref();
    read_matrix_market_from(text, Path::new("f"), MemoryLimit::available())
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(text)))
}

/// The entries of a matrix, row by row: row, column, value, from 1.
fn entries(matrix: &Csr<f64>) -> Vec<(usize, i32, f64)> {
    let rows = matrix.row_ptr().windows(2).enumerate();
    rows.flat_map(|(row, ends)| {
        (ends[0] as usize..ends[1] as usize)
            .map(move |k| (row + 1, matrix.col_idx()[k] + 1, matrix.values()[k]))
    })
    .collect()
}

#[test]
fn the_banner_may_have_one_per_cent_sign_and_stand_after_blanks_and_a_byte_order_mark() {
    const REST: &str = "MatrixMarket matrix coordinate real general\n2 2 2\n1 1 4\n2 1 -1\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    for start in ["%%", "%", " \t%%", "\n\r\n%%", "\u{feff}%%", "\u{feff}\n  %", "\u{feff} %"] {
        let text = format!("{start}{REST}");

        assert_eq!(entries(&read(&text)), [(1, 1, 4.0), (2, 1, -1.0)], "{start:?}");
        std::fs::write(&path, &text).unwrap();
        assert_eq!(detect(&path).unwrap(), FileKind::MatrixMarket, "{start:?}");
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        std::fs::write(&path, packed.finish().unwrap()).unwrap();
        assert_eq!(detect(&path).unwrap(), FileKind::MatrixMarketGzip, "{start:?}");
    }
    std::fs::write(&path, b"\xff\xfe%\0%\0M\0a\0").unwrap();
    let error = detect(&path).unwrap_err().to_string();
    assert!(error.contains("found text in UTF-16"), "{error}");
}

#[test]
fn comments_may_be_indented() {
    let text = "%%MatrixMarket matrix coordinate integer general\n  % one\n\t% two\n1 2 1\n % 1 1 3\n1 2 7\n  %\n";

    assert_eq!(entries(&read(text)), [(1, 2, 7.0)]);
}

#[test]
fn symmetric_entries_may_stand_on_either_side() {
    let upper =
        "%%MatrixMarket matrix coordinate real symmetric\n3 3 4\n1 1 4\n2 2 5\n3 3 6\n1 3 -1\n";
    let both = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 3\n1 2\n3 1\n2 2\n";
    let skew = "%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 2\n1 2 5\n3 1 7\n";

    assert_eq!(
        entries(&read(upper)),
        [(1, 1, 4.0), (1, 3, -1.0), (2, 2, 5.0), (3, 1, -1.0), (3, 3, 6.0)]
    );
    let places: Vec<_> = entries(&read(both)).iter().map(|&(row, col, _)| (row, col)).collect();
    assert_eq!(places, [(1, 2), (1, 3), (2, 1), (2, 2), (3, 1)]);
    assert_eq!(entries(&read(skew)), [(1, 2, 5.0), (1, 3, -7.0), (2, 1, -5.0), (3, 1, 7.0)]);
    let dense = read_dense_from(skew.as_bytes(), Path::new("f"), MemoryLimit::available());
    assert_eq!(dense.unwrap().values, [0.0, -5.0, 7.0, 5.0, 0.0, 0.0, -7.0, 0.0, 0.0]);
}

#[test]
fn zeros_on_a_skew_diagonal_are_harmless() {
    let text = "%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 4\n1 1 0\n2 2 0\n3 3 -0\n3 1 -1\n";

    let matrix = read(text);

    assert_eq!(
        entries(&matrix),
        [(1, 1, 0.0), (1, 3, 1.0), (2, 2, 0.0), (3, 1, -1.0), (3, 3, 0.0)]
    );
}

#[test]
fn a_skew_symmetric_array_may_have_its_diagonal() {
    const ARRAY: &str = "%%MatrixMarket matrix array real skew-symmetric\n";
    let of_matlab = format!("{ARRAY}3 3\n0\n1\n2\n0\n3\n0\n");
    let without = format!("{ARRAY}3 3\n1\n2\n3\n");
    let expected =
        [(1, 2, -1.0), (1, 3, -2.0), (2, 1, 1.0), (2, 3, -3.0), (3, 1, 2.0), (3, 2, 3.0)];

    assert_eq!(entries(&read(of_matlab)), expected);
    assert_eq!(entries(&read(without)), expected);
    assert_eq!(read(format!("{ARRAY}1 1\n0\n")), read(format!("{ARRAY}1 1\n")));
    assert_eq!(read(format!("{ARRAY}0 0\n")).nrows(), 0);
}

#[test]
fn a_real_hermitian_matrix_is_symmetric() {
    let text = |symmetry: &str| {
        read(format!("%%MatrixMarket matrix coordinate real {symmetry}\n2 2 2\n1 1 4\n2 1 -1\n"))
    };

    assert_eq!(text("hermitian"), text("symmetric"));
}

#[test]
fn exponents_of_fortran_are_exponents() {
    let text = "%%MatrixMarket matrix coordinate real general\n3 3 5\n1 1 4.0D+00\n2 2 5.0d0\n3 3 0.6D+01\n1 3 -1.0Q+00\n2 1 0.5-101\n";

    assert_eq!(
        entries(&read(text)),
        [(1, 1, 4.0), (1, 3, -1.0), (2, 1, 0.5e-101), (2, 2, 5.0), (3, 3, 6.0)]
    );
}

#[test]
fn vectors_are_matrices_of_one_column() {
    let coordinate = "%%MatrixMarket vector coordinate real general\n4 2\n1 1.5\n3 -2\n";
    let array = "%%MatrixMarket vector array integer general\n2\n7\n0\n";
    let with_columns = "%%MatrixMarket vector array integer general\n2 1\n7\n0\n";

    assert_eq!(read(coordinate).nrows(), 4);
    assert_eq!(entries(&read(coordinate)), [(1, 1, 1.5), (3, 1, -2.0)]);
    assert_eq!(entries(&read(array)), [(1, 1, 7.0), (2, 1, 0.0)]);
    assert_eq!(read(with_columns), read(array));
}

#[test]
fn a_vector_is_one_column_or_one_row_of_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v");
    let vector = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read_vector(&path).unwrap()
    };

    let row = "%%MatrixMarket matrix array real general\n1 3\n1\n2\n3\n";
    let hypersparse =
        "%%MatrixMarket matrix coordinate real general\n320000 1 2\n1 1 1\n319999 1 2\n";
    assert_eq!(vector(row), [1.0, 2.0, 3.0]);
    let long = vector(hypersparse);
    assert_eq!((long.len(), long[0], long[319_998]), (320_000, 1.0, 2.0));
    assert_eq!(long.iter().sum::<f64>(), 3.0);
}

#[test]
fn a_matrix_may_have_more_empty_rows_than_bytes() {
    let matrix = read(
        "%%MatrixMarket matrix coordinate real general\n1000000 2147483647 1\n999999 2147483647 5\n",
    );

    assert_eq!((matrix.nrows(), matrix.ncols()), (1_000_000, i32::MAX as usize));
    assert_eq!(entries(&matrix), [(999_999, i32::MAX, 5.0)]);
}

#[test]
fn a_text_that_is_nearly_all_comments_comes_to_an_end() {
    /// The same lines again and again, as some devices give.
    struct Endless(Vec<u8>);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.as_slice().read(buffer)
        }
    }
    let line = format!("%{}\n", "-".repeat(510));
    let texts = [
        "%%MatrixMarket matrix coordinate real general\n",
        "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n",
        "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 1\n",
    ];
    for text in texts {
        let stream = text.as_bytes().chain(Endless(line.repeat(100).into_bytes()));

        let error = read_matrix_market_from(stream, Path::new("f"), MemoryLimit::bytes(1 << 20));

        let error = error.unwrap_err().to_string();
        assert!(error.contains("expected at most 67108864 bytes of comments"), "{error}");
    }
}

/// An archive with these members, each a type, a shape as Python writes it, and data.
fn npz(members: &[(&str, &str, &str, Vec<u8>)]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, descr, shape, data) in members {
        zip.start_file(format!("{name}.npy"), options).unwrap();
        zip.write_all(&npy(descr, shape, data)).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

fn f64s(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn indices_of_npz_matrices_may_be_any_integers() {
    let numbers = |descr: &str, values: &[u8]| -> Vec<u8> {
        let size: usize = descr[2..].parse().unwrap();
        let number = |&value: &u8| {
            let mut bytes = vec![0; size];
            bytes[if descr.starts_with('>') { size - 1 } else { 0 }] = value;
            bytes
        };
        values.iter().flat_map(number).collect()
    };
    let expected = Csr::try_new(2, 3, vec![0, 1, 3], vec![2, 0, 1], vec![1.0, 2.0, 3.0]).unwrap();
    for descr in ["|u1", "|i1", "<u2", "<i2", "<u4", ">i4", "<u8", ">u8", "<i8"] {
        let read = |indices: &[u8]| {
            let bytes = npz(&[
                ("format", "|S3", "()", b"csr".to_vec()),
                ("shape", descr, "(2,)", numbers(descr, &[2, 3])),
                ("indices", descr, "(3,)", numbers(descr, indices)),
                ("indptr", descr, "(3L,)", numbers(descr, &[0, 1, 3])),
                ("data", "<f8", "(3,)", f64s(&[1.0, 2.0, 3.0])),
            ]);
            read_npz_from(Cursor::new(bytes), Path::new("f"), MemoryLimit::available())
        };

        assert_eq!(read(&[2, 0, 1]).unwrap(), expected, "{descr}");
        let error = read(&[2, 0, 3]).unwrap_err().to_string();
        assert_eq!(error, "f: indices[2] is 3, expected an index in 0..3", "{descr}");
    }
}

#[test]
fn complex_numbers_are_called_complex() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    std::fs::write(&path, npy("<c16", "(1,)", &[0; 16])).unwrap();

    let error = load_array(&path, "x", MemoryLimit::available()).unwrap_err().to_string();

    assert!(error.contains("found type `<c16` (complex numbers)"), "{error}");
    std::fs::write(&path, npy("|O", "(1,)", b"anything")).unwrap();
    let error = load_array(&path, "x", MemoryLimit::available()).unwrap_err().to_string();
    assert!(error.contains("found type `|O`"), "{error}");
}

#[test]
fn arrays_come_from_every_kind_of_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let load = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        load_array(&path, "b", MemoryLimit::bytes(1 << 20))
    };

    let npy_bytes = npy(">f4", "(2, 1)", &[2.5f32.to_be_bytes(), (-1f32).to_be_bytes()].concat());
    let archive = npz(&[("b", "<f8", "(2,)", f64s(&[2.5, -1.0]))]);
    let text = "%%MatrixMarket matrix coordinate real general\n1 2 2\n1 1 2.5\n1 2 -1\n";
    for (bytes, shape) in [(&npy_bytes[..], &[2, 1][..]), (&archive, &[2]), (text.as_bytes(), &[2])]
    {
        let array = load(bytes).unwrap();
        assert_eq!((&array.shape[..], &array.values[..]), (shape, &[2.5, -1.0][..]));
    }
    let missing = npz(&[("x", "<f8", "(1,)", f64s(&[1.0]))]);
    assert!(load(&missing).unwrap_err().to_string().contains("an array `b`, found none"));
    assert!(load(b"BATCH001").unwrap_err().to_string().contains("found a batch of matrices"));
    assert!(load(b"hello").unwrap_err().to_string().contains("content: expected Matrix Market"));
    let cut = &npy_bytes[..npy_bytes.len() - 1];
    assert!(load(cut).unwrap_err().to_string().contains("8 bytes of 2 elements, found 7 bytes"));
}

#[test]
fn what_exceeds_the_memory_allowed_is_refused_before_it_is_taken() {
    let memory = MemoryLimit::bytes(1000);
    let is_limit = |error: FormatError| {
        assert!(matches!(error.innermost(), FormatError::MemoryLimit { .. }), "{error}");
    };
    let path = Path::new("f");
    let rows = "%%MatrixMarket matrix coordinate real general\n250 1 1\n1 1 1\n";
    let places = "%%MatrixMarket matrix coordinate real general\n30 30 1\n1 1 1\n";
    let arrays = npz(&[
        ("format", "|S3", "()", b"csr".to_vec()),
        ("shape", "<i8", "(2,)", vec![1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        ("indices", "|u1", "(100,)", vec![0; 100]),
        ("indptr", "|u1", "(2,)", vec![0, 100]),
        ("data", "|u1", "(100,)", vec![1; 100]),
    ]);

    is_limit(read_matrix_market_from(rows.as_bytes(), path, memory).unwrap_err());
    is_limit(read_dense_from(places.as_bytes(), path, memory).unwrap_err());
    is_limit(read_npz_from(Cursor::new(&arrays), path, memory).unwrap_err());
    let enough = MemoryLimit::bytes(1300);
    assert!(read_matrix_market_from(rows.as_bytes(), path, enough).is_ok());
    assert_eq!(read_npz_from(Cursor::new(&arrays), path, enough).unwrap().values(), [100.0]);
}
