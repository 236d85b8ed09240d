//! Fuzzes the reader of files of rows, in a process of its own: its memory is watched. See
//! `sparsebatch_testing::fuzz`.

use std::path::Path;

use serde_json::{Value, json};
use sparsebatch_rows::{Gap, Row, RowFile, SCHEMA, table};
use sparsebatch_testing::fuzz;

const ROWS: &str = include_str!("data/rows.jsonl");

/// What stands where it does in lines, and what breaks them.
const TOKENS: [&[u8]; 26] = [
    b"null",
    b"true",
    b"-1",
    b"1.5",
    b"1e400",
    b"1e-400",
    b"-0.0",
    b"1.7976931348623157e308",
    b"18446744073709551615",
    b"18446744073709551616",
    b"NaN",
    b"\"\"",
    b"\"\\u0000\\n\\ud83d\\ude00\"",
    b"\\ud83d",
    b"\"schema\":2,",
    b"\"schema\":1,",
    b"\"command\":\"bench\",",
    b"\"gap\":null,",
    b"\"round_ms\":[1,null,2.5],",
    b"[",
    b"{}",
    b"}",
    b"\n",
    b"\r\n",
    b"\xff",
    b"\xef\xbb\xbf",
];

fn gap() -> Gap {
    let text = |text: &str| text.to_owned();
    Gap {
        case: text("all"),
        library: text("cuSPARSE"),
        configuration: text("dia"),
        reason: text("too large"),
        is_fault: false,
    }
}

fn gap_line(gap: &Gap) -> Value {
    json!({ "schema": SCHEMA, "suite": "s", "run": "r", "date": "d", "gap": gap })
}

fn seeds() -> Vec<Vec<u8>> {
    let lines: Vec<&str> = ROWS.lines().collect();
    let gap = gap_line(&gap());
    let object = format!(
        "{{\"schema\":1,\"command\":\"bench\",\"rows\":[{}],\"gaps\":[{}]}}\n",
        lines[1], gap["gap"]
    );
    let of_older = r#"{"schema":1,"suite":"flexible-batch","case":"G2","library":"cuSPARSE",
        "configuration":"c","operation":"spmv","precision":"f64","batch":1,"nnz":2,"rows":1,
        "median_ms":null,"min_ms":0.5,"max_ms":2e-3,"gflops":1.0,"bytes_moved":3,
        "share_of_copy":0.5,"machine":{"gpu":"a GPU","driver":"13.0"},"date":"d","commit":"c"}"#;
    let seeds = [
        lines[0].to_owned(),
        lines[..3].join("\n") + "\n\n",
        format!("{gap}\r\n{}\n", lines[2]),
        format!("{gap}\n"),
        object,
        of_older.replace('\n', ""),
        format!("{}\n{}", lines[0], &lines[1][..200]),
    ];
    seeds.into_iter().map(String::into_bytes).collect()
}

/// Whether two values are equal except for the last digits of numbers, which the JSON parser does
/// not always preserve.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (Some(a), Some(b)) = (a.as_f64(), b.as_f64()) else { return false };
            (a - b).abs() <= 4.0 * f64::EPSILON * a.abs() + 1e-322
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && same(a.1, b.1))
        }
        _ => a == b,
    }
}

fn values(file: &RowFile) -> Vec<Value> {
    let rows = file.rows.iter().map(|row: &Row| serde_json::to_value(row).unwrap());
    rows.chain(file.gaps.iter().map(gap_line)).collect()
}

/// What is accepted is the same when it is written and read again, and a table can be made of it.
fn check(path: &Path, bytes: &[u8]) -> bool {
    std::fs::write(path, bytes).unwrap();
    let file = match sparsebatch_rows::read(path) {
        Ok(file) => file,
        Err(error) => {
            fuzz::assert_names(&error, "rows.jsonl");
            return false;
        }
    };
    assert!(!file.rows.is_empty() || !file.gaps.is_empty());
    let written = values(&file);
    let lines: String = written.iter().map(|value| format!("{value}\n")).collect();
    std::fs::write(path, lines).unwrap();
    let again = sparsebatch_rows::read(path).unwrap();
    assert_eq!(again.partial, None);
    let again = values(&again);
    assert_eq!(again.len(), written.len());
    for (a, b) in written.iter().zip(&again) {
        assert!(same(a, b), "{a} is read again as {b}");
    }
    table(&[file]);
    true
}

#[test]
fn fuzz_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    fuzz::run("rows", &seeds(), &TOKENS, |bytes| check(&path, bytes));
}
