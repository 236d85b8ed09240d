//! Fuzzes the reader of Matrix Market files, plain and gzip; see `sparsebatch_testing::fuzz`.

use std::io::Write;
use std::path::Path;

use sparsebatch_formats::CsrPattern;
use sparsebatch_formats::io::{MemoryLimit, read_dense_from, read_matrix_market_from};
use sparsebatch_testing::fuzz;

const TEXTS: [&str; 14] = [
    "%%MatrixMarket matrix coordinate real general\n% comment\n3 2 4\n1 1 1.5\n2 2 -2e3\n3 1 .25\n1 1 1\n",
    "%%MatrixMarket matrix coordinate real symmetric\r\n3 3 3\r\n1 1 4\r\n3 1 -1.25E-01\r\n3 3 nan\r\n",
    "%%MATRIXMARKET MATRIX COORDINATE INTEGER SKEW-SYMMETRIC\n\n2 2 1\n  2\t1   -7  \n",
    "%%MatrixMarket matrix coordinate pattern general\n2 3 2\n1 3\n2 1\n",
    "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3.0000000000000001\n-inf\n",
    "%%MatrixMarket matrix array integer symmetric\n2 2\n1\n2\n3\n",
    "%%MatrixMarket matrix array real skew-symmetric\n3 3\n1\n2\n3\n",
    "%%MatrixMarket matrix array real general\n4 1\n1\n2\n3\n4",
    "%%MatrixMarket matrix coordinate real general\n0 0 0\n",
    "\u{feff} \n%MatrixMarket matrix coordinate real hermitian\n  % note\n3 3 3\n1 3 4.0D+00\n2 1 .5q-3\n2 2 1.5-101\n",
    "%%MatrixMarket matrix array real skew-symmetric\n3 3\n0\n1\n2\n0\n3\n-0\n",
    "%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 3\n1 1 0\n1 2 4\n3 1 5\n",
    "%%MatrixMarket vector coordinate integer general\n5 2\n2 7\n5 -1\n",
    "%%MatrixMarket vector array real general\n2 1\n1\n2\n",
];

const TOKENS: [&[u8]; 29] = [
    b"1 1 1\n",
    b"0",
    b"-1",
    b"2147483647",
    b"2147483648",
    b"1000000000000000000",
    b"99999999999999999999999",
    b"1e400",
    b"1e-400",
    b"nan",
    b"-Infinity",
    b"\n",
    b"\r\n",
    b"%",
    b" ",
    b"\t",
    b"complex",
    b"hermitian",
    b"symmetric",
    b"skew-symmetric",
    b"pattern",
    b"integer",
    b"array",
    b"vector",
    b"1.5d3",
    b"-2Q-7",
    b"1.25+200",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
];

fn seeds() -> Vec<Vec<u8>> {
    let plain = TEXTS.iter().map(|text| text.as_bytes().to_vec());
    let packed = TEXTS[..2].iter().map(|text| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    });
    plain.chain(packed).collect()
}

/// What is accepted is a valid matrix, and the dense reader sees the same numbers.
fn check(bytes: &[u8]) -> bool {
    let path = Path::new("fuzz");
    let memory = MemoryLimit::bytes(fuzz::MEMORY);
    let dense = read_dense_from(bytes, path, memory);
    let matrix = match read_matrix_market_from(bytes, path, memory) {
        Ok(matrix) => matrix,
        Err(error) => {
            fuzz::assert_names(&error, "fuzz");
            assert!(dense.is_err());
            return false;
        }
    };
    let (nrows, ncols) = (matrix.nrows(), matrix.ncols());
    let (row_ptr, col_idx) = (matrix.row_ptr().to_vec(), matrix.col_idx().to_vec());
    CsrPattern::try_new(nrows, ncols, row_ptr, col_idx).unwrap();
    if let Ok(dense) = dense {
        assert_eq!((dense.nrows, dense.ncols), (nrows, ncols));
        let mut left = dense.values;
        for row in 0..nrows {
            for k in matrix.row_ptr()[row] as usize..matrix.row_ptr()[row + 1] as usize {
                let value = matrix.values()[k];
                let place = &mut left[matrix.col_idx()[k] as usize * nrows + row];
                assert!(*place == value || place.is_nan() && value.is_nan());
                *place = 0.0;
            }
        }
        assert!(left.iter().all(|&value| value == 0.0));
    }
    true
}

#[test]
fn fuzz_matrix_market() {
    fuzz::run("matrix market", &seeds(), &TOKENS, check);
}
