//! What files of rows are read as, and how those that are none are refused.

use std::path::Path;

use sparsebatch_rows::{Row, RowFile, RowsError};

const ROWS: &str = include_str!("../data/rows.jsonl");

/// Reads a file of that name and content.
fn read(name: &str, content: impl AsRef<[u8]>) -> Result<RowFile, RowsError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    sparsebatch_rows::read(&path)
}

fn refused(content: impl AsRef<[u8]>) -> RowsError {
    read("rows.jsonl", content).unwrap_err()
}

#[test]
fn all_rows_of_a_whole_file_are_read() {
    let found = read("rows.jsonl", ROWS).unwrap();

    assert_eq!(found.rows.len(), ROWS.lines().count());
    assert_eq!(found.partial, None);
    // The end of the last line may be missing.
    let found = read("rows.jsonl", ROWS.trim_end()).unwrap();
    assert_eq!((found.rows.len(), found.partial), (ROWS.lines().count(), None));
}

#[test]
fn of_a_file_cut_short_the_whole_lines_are_kept() {
    let lines: Vec<&str> = ROWS.lines().collect();
    let start = lines[0].len() + 1;
    for length in [start + 1, start + 20, start + lines[1].len() - 1] {
        let found = read("rows.jsonl", &ROWS[..length]).unwrap();

        assert_eq!(found.rows.len(), 1, "{length}");
        assert_eq!(found.partial.as_deref(), Some("it ends in the middle of line 2"), "{length}");
    }
    // In the middle of a character, too.
    let cut = [lines[0].as_bytes(), b"\n{\"schema\":1,\"suite\":\"\xc3"].concat();
    let found = read("rows.jsonl", cut).unwrap();
    assert_eq!((found.rows.len(), found.partial.is_some()), (1, true));
}

#[test]
fn what_a_run_left_is_partial() {
    let found = read("rows.jsonl.part", ROWS).unwrap();

    assert!(found.partial.unwrap().contains("did not get to its end"));
}

const GAP: &str = r#"{"schema":1,"suite":"single","run":"r","date":"d","gap":{"case":"all",
    "library":"cuSPARSE","configuration":"all","reason":"no GPU","is_fault":false}}"#;

#[test]
fn gaps_are_lines_among_rows_and_may_stand_alone() {
    let gap = GAP.replace('\n', "");
    let found = read("rows.jsonl", format!("{gap}\n{ROWS}{gap}\n")).unwrap();

    assert_eq!((found.rows.len(), found.gaps.len()), (ROWS.lines().count(), 2));
    assert_eq!((&*found.gaps[1].library, &*found.gaps[1].reason), ("cuSPARSE", "no GPU"));
    let alone = read("rows.jsonl", &gap).unwrap();
    assert_eq!((alone.rows.len(), alone.gaps.len(), alone.partial), (0, 1, None));
}

#[test]
fn gaps_of_other_shapes_are_refused() {
    let newer = GAP.replace('\n', "").replace("\"schema\":1", "\"schema\":3");
    assert!(matches!(refused(newer + "\n"), RowsError::Schema { found: 3, .. }));
    let nameless = r#"{"schema":1,"suite":"s","run":"r","date":"d","gap":{"case":"all"}}"#;
    assert!(matches!(refused(nameless), RowsError::Row { line: 1, .. }));
}

#[test]
fn a_file_without_rows_is_refused() {
    let found = |content: &str| refused(content).to_string();

    assert!(found("").ends_with("rows.jsonl: expected rows of a bench, found an empty file"));
    assert!(found("\n \n").ends_with("expected rows of a bench, found none"));
    assert!(
        found("{\"schema\":1,").ends_with("expected rows of a bench, found the beginning of one")
    );
    assert!(matches!(refused(""), RowsError::Empty { .. }));
}

#[test]
fn lines_that_are_no_rows_are_named() {
    let first = ROWS.lines().next().unwrap();
    let after = |line: &str| refused(format!("{first}\n{line}\n{first}\n")).to_string();

    assert!(after("{}").contains("rows.jsonl:2: expected a row of a bench, found missing field"));
    assert!(after("[1,2]").contains(":2: expected a row"), "{}", after("[1,2]"));
    assert!(after("{\"schema\":1,\"name\":\"x\"}").contains("missing field `suite`"));
    assert!(after("# a remark").contains(":2: expected a row"));
    // A cut line is only forgiven at the end.
    assert!(after("{\"schema\":1,\"su").contains(":2: expected a row"));
    assert!(refused(format!("{first}\n{{}}")).to_string().contains(":2: expected a row"));
    let deep = "[".repeat(100_000);
    assert!(matches!(refused(format!("{first}\n{deep}\n")), RowsError::Row { line: 2, .. }));
    let overflow = first.replacen("\"schema\":1", "\"schema\":1e400", 1);
    assert!(matches!(refused(overflow), RowsError::Row { line: 1, .. }));
}

#[test]
fn other_schemas_are_named_wherever_they_begin() {
    let first = ROWS.lines().next().unwrap();
    let other = first.replacen("\"schema\":1", "\"schema\":3", 1);

    let alone = refused(&other).to_string();
    let mixed = refused(format!("{first}\n{other}\n")).to_string();

    assert!(
        alone.ends_with("rows.jsonl:1: expected rows of schema 1 to 2, found schema 3"),
        "{alone}"
    );
    assert!(
        mixed.ends_with("rows.jsonl:2: expected rows of schema 1 to 2, found schema 3"),
        "{mixed}"
    );
}

#[test]
fn what_is_no_text_is_named() {
    let first = ROWS.lines().next().unwrap();
    let bytes = [first.as_bytes(), b"\n{\"schema\xff\n"].concat();

    let error = refused(bytes).to_string();

    assert!(
        error.ends_with("rows.jsonl:2: expected UTF-8, found another byte at column 9"),
        "{error}"
    );
    assert!(matches!(refused(b"\x1f\x8b\x08\x00"), RowsError::NotText { line: 1, byte: 2, .. }));
}

#[test]
fn the_object_of_a_bench_is_read_with_what_is_missing() {
    let first = ROWS.lines().next().unwrap();
    let object = format!(
        "{{\"schema\":1,\"command\":\"bench\",\"version\":\"0\",\"run\":\"r\",\"rows\":[{first}],\
         \"gaps\":[{{\"case\":\"G2\",\"library\":\"cuSPARSE\",\"configuration\":\"dia\",\
         \"reason\":\"too large\",\"is_fault\":false}}]}}\n"
    );

    let found = read("out.json", object).unwrap();

    assert_eq!((found.rows.len(), found.gaps[0].reason.as_str()), (1, "too large"));
}

#[test]
fn rows_of_another_schema_in_the_object_of_a_bench_are_refused() {
    let other = ROWS.lines().next().unwrap().replacen("\"schema\":1", "\"schema\":3", 1);
    let object = format!("{{\"schema\":1,\"command\":\"bench\",\"rows\":[{other}]}}\n");

    assert!(matches!(refused(object), RowsError::Schema { line: 1, found: 3, .. }));
}

#[test]
fn times_that_were_no_numbers_are_nan() {
    let row: Row = serde_json::from_str(ROWS.lines().next().unwrap()).unwrap();
    let line = serde_json::to_string(&Row { median_ms: f64::NAN, ..row }).unwrap();

    let found = read("rows.jsonl", line).unwrap();

    assert!(found.rows[0].median_ms.is_nan());
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = sparsebatch_rows::read(Path::new("/nowhere/rows.jsonl")).unwrap_err();

    assert!(matches!(error, RowsError::Io { .. }));
    assert!(sparsebatch_rows::read_all(&["/nowhere/rows.jsonl".into()]).is_err());
}
