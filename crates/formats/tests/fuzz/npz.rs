//! Fuzzes the reader of `.npz` matrices; see `sparsebatch_testing::fuzz`.

use std::io::{Cursor, Read, Write};
use std::path::Path;

use sparsebatch_formats::io::{MemoryLimit, Packing, read_npz_from, write_arrays, write_npz};
use sparsebatch_formats::{Csr, CsrPattern};
use sparsebatch_testing::fuzz;

const TOKENS: [&[u8]; 18] = [
    b"<f4",
    b"<i8",
    b"<u8",
    b"|i1",
    b"|u1",
    b"<c8",
    b">f8",
    b"|b1",
    b"|S0",
    b"<U3",
    b"|O",
    b"csc",
    b"coo",
    b"(3,)",
    b"(1000000000000000000,)",
    b"(4294967296, 4294967296)",
    b"True",
    b"PK\x01\x02",
];

fn seeds() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seed");
    let a = Csr::try_new(2, 3, vec![0, 1, 3], vec![0, 0, 2], vec![2.0, 1.0, 3.0]).unwrap();
    let mut seeds = Vec::new();
    write_npz(&path, &a).unwrap();
    seeds.push(std::fs::read(&path).unwrap());
    write_npz(&path, &a.cast::<f32>()).unwrap();
    seeds.push(std::fs::read(&path).unwrap());
    for (format, first, second) in
        [("csr", "indices", "indptr"), ("csc", "indices", "indptr"), ("coo", "row", "col")]
    {
        write_arrays(&path, Packing::Stored, |npz| {
            npz.add_strings("format", &[format])?;
            npz.add_i64("shape", &[3, 3])?;
            npz.add_i32(first, &[2, 0, 2, 1])?;
            npz.add_i64(second, &[0, 1, 2, if format == "coo" { 0 } else { 4 }])?;
            npz.add_i64("data", &[1, 2, 3, 4])
        })
        .unwrap();
        seeds.push(std::fs::read(&path).unwrap());
    }
    seeds
}

/// What is accepted is a valid matrix.
fn check(bytes: &[u8]) -> bool {
    let memory = MemoryLimit::bytes(fuzz::MEMORY);
    let matrix = match read_npz_from(Cursor::new(bytes), Path::new("fuzz"), memory) {
        Ok(matrix) => matrix,
        Err(error) => {
            fuzz::assert_names(&error, "fuzz");
            return false;
        }
    };
    let (row_ptr, col_idx) = (matrix.row_ptr().to_vec(), matrix.col_idx().to_vec());
    CsrPattern::try_new(matrix.nrows(), matrix.ncols(), row_ptr, col_idx).unwrap();
    true
}

/// The arrays of a seed one after the other, outside of any archive.
fn arrays(archive: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut bytes = Vec::new();
    for number in 0..zip.len() {
        zip.by_index(number).unwrap().read_to_end(&mut bytes).unwrap();
    }
    bytes
}

/// Packs the arrays again, with right checksums, so that the mutations reach the readers of arrays
/// and of the matrix.
fn check_arrays(bytes: &[u8]) -> bool {
    const MAGIC: &[u8] = b"\x93NUMPY";
    let mut starts: Vec<usize> =
        (0..bytes.len()).filter(|&at| bytes[at..].starts_with(MAGIC)).collect();
    starts.push(bytes.len());
    // The order in which `write_npz` and the seeds above write them.
    let written_by_us = bytes.windows(3).any(|word| word == b"csr") && bytes.contains(&b'S');
    let orders = [
        ["indices", "indptr", "format", "shape", "data"].map(|name| vec![name]),
        [
            vec!["format"],
            vec!["shape"],
            vec!["indices", "row"],
            vec!["indptr", "col"],
            vec!["data"],
        ],
    ];
    let order = &orders[usize::from(!written_by_us)];
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (names, piece) in order.iter().zip(starts.windows(2)) {
        for name in names {
            zip.start_file(format!("{name}.npy"), options).unwrap();
            zip.write_all(&bytes[piece[0]..piece[1]]).unwrap();
        }
    }
    check(zip.finish().unwrap().get_ref())
}

#[test]
fn fuzz_npz_arrays() {
    let seeds: Vec<_> = seeds().iter().map(|seed| arrays(seed)).collect();
    fuzz::run("npz arrays", &seeds, &TOKENS, check_arrays);
}

#[test]
fn fuzz_npz() {
    fuzz::run("npz", &seeds(), &TOKENS, check);
}
