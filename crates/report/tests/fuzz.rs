//! Fuzzes the reader of histories, and the pages and comparisons of accepted files of rows. In a
//! process of its own, whose memory is watched. See `sparsebatch_testing::fuzz`.

use std::path::Path;

use sparsebatch_report::{DEFAULT_THRESHOLD, History, bench_page, compare};
use sparsebatch_rows::RowFile;
use sparsebatch_testing::fuzz;

const ROWS: &str = include_str!("../../rows/tests/data/rows.jsonl");
const HEADER: &str = "item,iteration,residual\n";

/// Cells, and what breaks lines.
const CELLS: [&[u8]; 17] = [
    b"0",
    b"1",
    b"+1",
    b"-1",
    b"18446744073709551615",
    b"18446744073709551616",
    b"nan",
    b"-inf",
    b"1e400",
    b"1e-400",
    b"-0.0",
    b",",
    b"\n",
    b"\r\n",
    b"\n3,0,1e0\n3,1,5e-1\n",
    b"\xff",
    b"\xef\xbb\xbf",
];

/// What stands in lines of JSON.
const VALUES: [&[u8]; 18] = [
    b"null",
    b"true",
    b"0",
    b"1e-320",
    b"-1.5",
    b"1.7976931348623157e308",
    b"18446744073709551615",
    b"9007199254740993",
    b"\"\"",
    b"</script><script>",
    b"<!--",
    b"\\u0000\\n\\u2028",
    b"solvers",
    b"sparsebatch",
    b"cuSPARSE",
    b"cpu",
    b"\"round_ms\":[1,null,2.5],",
    b"\"schema\":1,\"gap\":{\"case\":\"c\",",
];

fn seeds_of_histories() -> Vec<Vec<u8>> {
    let long: String = (0..40).map(|k| format!("7,{k},{:e}\n", 0.5_f64.powi(k))).collect();
    let seeds = [
        format!("{HEADER}0,0,1e0\n0,1,1e-3\n2,0,5e-1\n"),
        format!("{HEADER}\r\n5,0,NaN\r\n\r\n6,0,inf"),
        format!("{HEADER}{long}8,0,0\n"),
    ];
    seeds.into_iter().map(String::into_bytes).collect()
}

/// Whether two histories are the same; any NaN is like another.
fn same(a: &History, b: &History) -> bool {
    let bits = |history: &History| -> Vec<(u64, Vec<u64>)> {
        let of = |value: &f64| if value.is_nan() { 0 } else { value.to_bits() + 1 };
        let systems = history.systems.iter();
        systems.map(|(item, residuals)| (*item, residuals.iter().map(of).collect())).collect()
    };
    a.name == b.name && bits(a) == bits(b)
}

/// The page of files, whose scripts are its own, whatever stands in rows.
fn page(files: &[RowFile], histories: &[History], scripts: usize) {
    let html = bench_page(files, histories).html();
    assert_eq!(
        (html.matches("<script").count(), html.matches("</script").count()),
        (scripts, scripts)
    );
}

fn scripts() -> usize {
    bench_page(&[], &[]).html().matches("<script").count()
}

/// What is accepted is the same when it is written and read again, and a page can be made of it.
fn check_history(path: &Path, scripts: usize, bytes: &[u8]) -> bool {
    std::fs::write(path, bytes).unwrap();
    let history = match History::read(path) {
        Ok(history) => history,
        Err(error) => {
            fuzz::assert_names(&error, "history.csv");
            return false;
        }
    };
    let mut text = HEADER.to_owned();
    for (item, residuals) in &history.systems {
        for (iteration, residual) in residuals.iter().enumerate() {
            text += &format!("{item},{iteration},{residual:e}\n");
        }
    }
    std::fs::write(path, text).unwrap();
    assert!(same(&History::read(path).unwrap(), &history));
    page(&[], &[history], scripts);
    true
}

fn seeds_of_rows() -> Vec<Vec<u8>> {
    let lines: Vec<&str> = ROWS.lines().collect();
    lines.chunks(4).map(|lines| lines.join("\n").into_bytes()).collect()
}

/// Of what is accepted a page can be made, and it can be compared with other rows.
fn check_rows(path: &Path, others: &RowFile, scripts: usize, bytes: &[u8]) -> bool {
    std::fs::write(path, bytes).unwrap();
    let Ok(file) = sparsebatch_rows::read(path) else { return false };
    for (a, b) in [(&file, others), (others, &file)] {
        if let Err(error) = compare(a, b, DEFAULT_THRESHOLD) {
            fuzz::assert_names(&error, "jsonl");
        }
    }
    if let Ok(with_itself) = compare(&file, &file, DEFAULT_THRESHOLD) {
        assert_eq!((with_itself.faster.len(), with_itself.slower.len()), (0, 0));
    }
    page(&[file], &[], scripts);
    true
}

#[test]
fn fuzz_history() {
    let folder = tempfile::tempdir().unwrap();
    let (path, scripts) = (folder.path().join("history.csv"), scripts());
    fuzz::run("history", &seeds_of_histories(), &CELLS, |bytes| {
        check_history(&path, scripts, bytes)
    });
}

#[test]
fn fuzz_pages() {
    let folder = tempfile::tempdir().unwrap();
    let (path, scripts) = (folder.path().join("rows.jsonl"), scripts());
    std::fs::write(&path, ROWS).unwrap();
    let others = sparsebatch_rows::read(&path).unwrap();
    fuzz::run("pages", &seeds_of_rows(), &VALUES, |bytes| {
        check_rows(&path, &others, scripts, bytes)
    });
}
