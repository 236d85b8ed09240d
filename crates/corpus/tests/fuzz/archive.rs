//! Archives of the collection.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use sparsebatch_corpus::{LOCK_FILE, Matrix, Origin, Status, list};
use sparsebatch_formats::io::read_matrix_market;
use sparsebatch_testing::fuzz;

use crate::{TEXT, fetch_one, matrix};

/// The same matrix as it is taken from real and from complex files.
static MATRICES: [Matrix; 2] =
    [matrix("fuzz", Origin::Collection), matrix("fuzz", Origin::RealParts)];

const COMPLEX: &str = "%%MatrixMarket matrix coordinate complex general\n3 3 4\n1 1 1.5 -2\n\
                       2 2 0 3e-1\n3 1 1 1\n3 3 2 0\n";

/// Bytes of a block of an archive, and where a header has size and checksum.
const BLOCK: usize = 512;
const SIZE: std::ops::Range<usize> = 124..136;
const CHECKSUM: std::ops::Range<usize> = 148..156;

const TOKENS: [&[u8]; 20] = [
    b"fuzz.mtx\0",
    b"fuzz/fuzz.mtx",
    b"../fuzz.mtx\0",
    b"/fuzz.mtx",
    b"a\nb\0",
    b"ustar\x0000",
    b"ustar  \0",
    b"00000000000\0",
    b"77777777777\0",
    b"00000000200\0",
    b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
    b"complex",
    b"real",
    b"0",
    b"2147483647",
    b"999999999999999999999",
    b"1.5",
    b"\n",
    b"%",
    b"\xff",
];

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An archive, not packed, of members of these kinds, names and contents.
fn archive(members: &[(tar::EntryType, &str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for &(kind, name, content) in members {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap()
}

fn seeds() -> Vec<Vec<u8>> {
    use tar::EntryType::{Directory, GNULongName, Regular, XHeader};
    let rhs = "%%MatrixMarket matrix array real general\n1 1\n1\n";
    let zeros =
        "%%MatrixMarket matrix coordinate real symmetric\n3 3 4\n1 1 1\n2 2 2\n3 1 3\n3 2 0\n";
    vec![
        archive(&[(Regular, "fuzz/fuzz.mtx", TEXT)]),
        archive(&[
            (Directory, "fuzz/", ""),
            (Regular, "fuzz/fuzz_b.mtx", rhs),
            (Regular, "fuzz/fuzz.mtx", TEXT),
        ]),
        archive(&[(Regular, "fuzz/fuzz.mtx", COMPLEX), (Regular, "fuzz/fuzz_b.mtx", rhs)]),
        archive(&[(Regular, "fuzz/fuzz.mtx", zeros)]),
        archive(&[
            (XHeader, "fuzz/attributes", "18 comment=a note\n"),
            (GNULongName, "././@LongLink", "fuzz/another\0"),
            (Regular, "fuzz/fuzz.mtx", TEXT),
        ]),
    ]
}

/// Corrects the checksums of headers, so that mutations reach the code behind that check.
fn mend(bytes: &mut [u8]) {
    let mut at = 0;
    while at + BLOCK <= bytes.len() {
        let header = &mut bytes[at..at + BLOCK];
        if header.iter().all(|&byte| byte == 0) {
            return;
        }
        header[CHECKSUM].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = String::from_utf8_lossy(&header[SIZE]).into_owned();
        let digits = digits.trim_matches(|c: char| c == ' ' || c == '\0');
        let Ok(size) = usize::from_str_radix(digits, 8) else { return };
        at = at.saturating_add(BLOCK).saturating_add(size.next_multiple_of(BLOCK));
    }
}

/// The files of a corpus that a user sees.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("single")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// What is accepted is the matrix of the catalogue, the same when it is fetched again, and what is
/// refused leaves nothing.
fn check_matrix(matrix: &'static Matrix, corpus: &Path, from: &Path) -> bool {
    let _ = std::fs::remove_file(corpus.join(LOCK_FILE));
    let outcome = fetch_one(matrix, corpus, from).unwrap();
    if let Some(error) = outcome.error {
        assert_eq!(outcome.status, Status::Failed);
        fuzz::assert_names(&error, "fuzz");
        assert_eq!(files(corpus), [""; 0]);
        assert!(!corpus.join(LOCK_FILE).exists());
        return false;
    }
    assert_eq!(outcome.status, Status::Copied);
    let (file, locked) = (outcome.file.unwrap(), outcome.locked.unwrap());
    assert_eq!(files(corpus), ["fuzz.mtx.gz"]);
    let read = read_matrix_market(&file).unwrap();
    assert_eq!((read.nrows(), read.ncols()), (3, 3));
    assert_eq!((locked.rows, locked.columns), (3, 3));
    assert_eq!(locked.nonzeros + locked.explicit_zeros, read.nnz() as u64);
    let there = list(&[matrix], corpus).unwrap().remove(0);
    assert_eq!((there.status, there.locked.as_ref()), (Status::There, Some(&locked)));
    std::fs::remove_file(&file).unwrap();
    let again = fetch_one(matrix, corpus, from).unwrap();
    assert_eq!((again.status, again.locked), (Status::Copied, Some(locked)));
    std::fs::remove_file(&file).unwrap();
    true
}

fn check(corpus: &Path, from: &Path, bytes: &[u8]) -> bool {
    std::fs::write(from.join("fuzz.tar.gz"), bytes).unwrap();
    let accepted = MATRICES.each_ref().map(|matrix| check_matrix(matrix, corpus, from));
    accepted.contains(&true)
}

/// Packs an archive, of which a quarter keep the checksums that they have.
fn check_unpacked(corpus: &Path, from: &Path, bytes: &[u8]) -> bool {
    let mut bytes = bytes.to_vec();
    if bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>() % 4 != 0 {
        mend(&mut bytes);
    }
    check(corpus, from, &packed(&bytes))
}

#[test]
fn fuzz_archive() {
    let (corpus, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let check = |bytes: &[u8]| check_unpacked(corpus.path(), from.path(), bytes);
    fuzz::run("archive", &seeds(), &TOKENS, check);
}

#[test]
fn fuzz_packed_archive() {
    let (corpus, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let seeds: Vec<Vec<u8>> = seeds().iter().map(|seed| packed(seed)).collect();
    let check = |bytes: &[u8]| check(corpus.path(), from.path(), bytes);
    fuzz::run("packed archive", &seeds, &[b"\x1f\x8b\x08", b"\0\0\0\0"], check);
}
