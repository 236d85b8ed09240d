//! The lock file of a corpus.

use std::path::Path;

use serde_json::Value;
use sparsebatch_corpus::{LOCK_FILE, Locked, Matrix, Origin, Status, list};
use sparsebatch_testing::fuzz;

use crate::{TEXT, fetch_one, matrix};

static LOCKED: [Matrix; 2] =
    [matrix("first", Origin::Collection), matrix("second", Origin::RealParts)];
static OTHER: Matrix = matrix("other", Origin::Collection);

const TOKENS: [&[u8]; 18] = [
    b"null",
    b"0",
    b"-1",
    b"1.5",
    b"1e400",
    b"18446744073709551615",
    b"18446744073709551616",
    b"\"\"",
    b"\"/\"",
    b"..",
    b"\\u0000\\n\\u001b",
    b"\\ud83d",
    b"\"Fuzz/first\":",
    b"{}",
    b"[",
    b"}",
    b"\n",
    b"\xff",
];

/// Lock files: of nothing, of two matrices, and the same as older versions wrote them.
fn seeds(folder: &Path, from: &Path) -> Vec<Vec<u8>> {
    let lock = folder.join(LOCK_FILE);
    for matrix in LOCKED.iter().chain([&OTHER]) {
        std::fs::write(from.join(format!("{}.mtx", matrix.name)), TEXT).unwrap();
    }
    for matrix in &LOCKED {
        assert_eq!(fetch_one(matrix, folder, from).unwrap().status, Status::Copied);
    }
    let newest = std::fs::read_to_string(lock).unwrap();
    let is_new = |line: &&str| !line.contains("matrix_sha256");
    let older: Vec<&str> = newest.lines().filter(is_new).collect();
    let archive = format!("\"archive_sha256\": \"{}\",\n      \"from\"", "0123abcd".repeat(8));
    let with_archive = newest.replace("\"from\"", &archive);
    let empty = "{\"schema\":1,\"matrices\":{}}".to_owned();
    [empty, older.join("\n"), with_archive, newest].map(String::into_bytes).into()
}

fn locked(folder: &Path) -> Vec<Option<Locked>> {
    let refs: Vec<&'static Matrix> = LOCKED.iter().collect();
    list(&refs, folder).unwrap().into_iter().map(|outcome| outcome.locked).collect()
}

/// The names that a lock file has, where it is an object.
fn names(lock: &Path) -> Vec<String> {
    // A number beyond all, where nothing is looked for, is read as no value.
    let content = serde_json::from_slice(&std::fs::read(lock).unwrap()).unwrap_or(Value::Null);
    let matrices = content["matrices"].as_object();
    matrices.map(|names| names.keys().cloned().collect()).unwrap_or_default()
}

/// What is accepted is kept when another matrix is locked, and a matrix that is there is taken only
/// for what is locked of it.
fn check(folder: &Path, from: &Path, bytes: &[u8]) -> bool {
    let lock = folder.join(LOCK_FILE);
    std::fs::write(&lock, bytes).unwrap();
    if let Err(error) = list(&[], folder) {
        fuzz::assert_names(&error, LOCK_FILE);
        // It is not written over.
        let error = fetch_one(&OTHER, folder, from).unwrap_err();
        fuzz::assert_names(&error, LOCK_FILE);
        assert_eq!(std::fs::read(&lock).unwrap(), bytes);
        return false;
    }
    let (before, names_before) = (locked(folder), names(&lock));
    let outcome = fetch_one(&OTHER, folder, from).unwrap();
    match outcome.error {
        Some(error) => fuzz::assert_names(&error, "other"),
        None => std::fs::remove_file(outcome.file.unwrap()).unwrap(),
    }
    assert_eq!(locked(folder), before);
    let names_after = names(&lock);
    assert!(names_before.iter().all(|name| names_after.contains(name)));
    for (matrix, before) in LOCKED.iter().zip(before) {
        let outcome = fetch_one(matrix, folder, from).unwrap();
        let now = outcome.locked;
        match outcome.error {
            None => {
                assert_eq!(outcome.status, Status::There);
                assert!(before.is_none_or(|before| Some(before) == now));
            }
            Some(error) => {
                assert_eq!(outcome.status, Status::Failed);
                fuzz::assert_names(&error, matrix.name);
                assert!(before.is_some());
            }
        }
    }
    true
}

#[test]
fn fuzz_lock() {
    let (folder, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let seeds = seeds(folder.path(), from.path());
    fuzz::run("lock", &seeds, &TOKENS, |bytes| check(folder.path(), from.path(), bytes));
}
