//! `sparsebatch report`, `compare` and `solve --report`.

use crate::common::{ALPHA13, Folder, SPD, diagonal_batch, root, run};
use serde_json::Value;

const ROWS: &str = "crates/rows/tests/data/rows.jsonl";

fn rows() -> String {
    std::fs::read_to_string(root().join(ROWS)).expect("the fixture")
}

/// The data that a page draws.
fn data(html: &str) -> Value {
    let start = "<script type=\"application/json\" id=\"data\">";
    let (_, rest) = html.split_once(start).expect("the page holds data");
    let (json, _) = rest.split_once("</script>").expect("its end");
    serde_json::from_str(json).expect("it is JSON")
}

/// The titles of figures and tables.
fn titles(data: &Value, kind: &str) -> Vec<String> {
    let list = data[kind].as_array().expect("a list");
    list.iter().map(|one| one["title"].as_str().expect("a title").to_owned()).collect()
}

fn column<'a>(table: &'a Value, name: &str) -> &'a Value {
    let columns = table["columns"].as_array().expect("columns");
    columns.iter().find(|column| column["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn a_report_is_one_page_with_figures_and_tables() {
    let folder = Folder::new();
    folder.file("rows.jsonl", rows());

    let done = folder.run(&["report", "rows.jsonl", "-o", "report.html"]);

    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    assert!(done.stdout.starts_with("report.html: 17 rows, "), "{done:?}");
    let html = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    let data = data(&html);
    let figures = titles(&data, "figures");
    for wanted in ["By case", "Performance profile"] {
        assert!(figures.iter().any(|title| title == wanted), "{wanted}: {figures:?}");
    }
    assert!(figures[0].starts_with("Roofline of "), "{figures:?}");
    let tables = titles(&data, "tables");
    assert!(tables.contains(&"At a glance".to_owned()), "{tables:?}");
    let all = data["tables"].as_array().unwrap().last().unwrap();
    assert_eq!((&all["title"], &all["table"]["length"]), (&"Rows".into(), &17.into()));
    assert!(html.contains("There are none: rows hold no histories."));
}

#[test]
fn every_row_of_the_results_is_in_the_page() {
    let folder = Folder::new();
    let results = std::fs::read_dir(root().join("benches/results")).unwrap();
    let mut files: Vec<String> =
        results.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned()).collect();
    files.retain(|file| file.ends_with(".jsonl"));
    files.sort();
    let is_row = |line: &&str| !line.is_empty() && !line.contains("\"gap\":");
    let count: usize = files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap().lines().filter(is_row).count())
        .sum();
    let page = folder.path().join("all.html");

    let mut arguments = vec!["report".to_owned(), "--json".to_owned()];
    arguments.extend(files);
    arguments.extend(["--output".to_owned(), page.to_str().unwrap().to_owned()]);
    let report = run(&arguments).json();

    assert_eq!(report["rows"], count);
    let html = std::fs::read_to_string(page).unwrap();
    assert_eq!(report["bytes"], html.len());
    let data = data(&html);
    let figures = titles(&data, "figures");
    assert!(figures.iter().any(|title| title == "By size of the batch"), "{figures:?}");
    let tables = data["tables"].as_array().unwrap();
    let all = tables.iter().find(|table| table["title"] == "Rows").unwrap();
    assert_eq!(all["table"]["length"], count);
}

#[test]
fn a_page_of_ten_thousand_rows_stays_below_five_megabytes() {
    let folder = Folder::new();
    let fixture = rows();
    let mut lines = String::new();
    for count in 0..10_000usize {
        let line = fixture.lines().nth(count % 17).unwrap();
        let mut row: Value = serde_json::from_str(line).unwrap();
        row["case"] = format!("matrix {}", count / 10).into();
        row["median_ms"] = (0.1 + count as f64 / 7.0).into();
        lines += &format!("{row}\n");
    }
    folder.file("rows.jsonl", lines);

    let report = folder.run(&["report", "--json", "rows.jsonl", "-o", "r.html"]).json();

    assert_eq!(report["rows"], 10_000);
    assert!(report["bytes"].as_u64().unwrap() < 5_000_000, "{report}");
}

#[test]
fn a_file_cut_short_is_reported_as_partial() {
    let folder = Folder::new();
    let text = rows();
    folder.file("rows.jsonl", &text[..text.len() - 30]);

    let done = folder.run(&["report", "rows.jsonl", "-o", "r.html"]);

    assert_eq!(done.code, 0, "{done:?}");
    let note =
        "note: rows.jsonl is partial: it ends in the middle of line 17; kept 16 whole rows\n";
    assert_eq!(done.stderr, note);
    let html = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(html.contains("rows.jsonl is partial: it ends in the middle of line 17"));
    let table = folder.run(&["bench", "table", "rows.jsonl"]);
    assert_eq!((table.code, table.stderr.as_str()), (0, note));
    let json = folder.run(&["report", "--json", "-q", "rows.jsonl", "-o", "r.html"]).json();
    assert_eq!((&json["partial"][0]["rows"], &json["rows"]), (&16.into(), &16.into()));
}

#[test]
fn files_that_are_no_rows_are_refused() {
    let folder = Folder::new();
    let first = rows().lines().next().unwrap().to_owned();
    let refused = |content: &[u8], parts: &[&str]| {
        folder.file("rows.jsonl", content);
        for command in [
            &["report", "rows.jsonl", "-o", "r.html"][..],
            &["compare", "rows.jsonl", "rows.jsonl"],
            &["bench", "table", "rows.jsonl"],
        ] {
            folder.run(command).assert_bad_input(parts);
        }
    };

    refused(b"", &["rows.jsonl: expected rows of a bench, found an empty file"]);
    refused(b"{\"answer\":42}\n", &["rows.jsonl:1: expected a row of a bench", "missing field"]);
    refused(b"<html>\n", &["rows.jsonl:1: expected a row of a bench"]);
    refused(b"\xff\xfe\n", &["rows.jsonl:1: expected UTF-8"]);
    let mixed = format!("{first}\n{}\n", first.replacen("\"schema\":1", "\"schema\":3", 1));
    refused(mixed.as_bytes(), &["rows.jsonl:2: expected rows of schema 1 to 2, found schema 3"]);
    assert_eq!(folder.names(), ["rows.jsonl"]);
}

#[test]
fn pages_are_checked_to_be_writable_first() {
    let folder = Folder::new();
    folder.file("rows.jsonl", rows());
    let report = |output: &str| folder.run(&["report", "rows.jsonl", "-o", output]);

    report("r.txt").assert_bad_input(&["--output r.txt", "expected .html"]);
    report("nowhere/r.html").assert_bad_input(&["nowhere/r.html"]);
    folder.run(&["report", "rows.jsonl"]).assert_bad_input(&["--output"]);
    folder.run(&["report", "-o", "r.html"]).assert_bad_input(&["<FILE>"]);
    folder.run(&["report", "no.jsonl", "-o", "r.html"]).assert_bad_input(&["no.jsonl"]);
    folder.file("a.mtx", SPD);
    folder.run(&["solve", "a.mtx", "--report", "r"]).assert_bad_input(&["--report r", ".html"]);
    assert_eq!(folder.names(), ["a.mtx", "rows.jsonl"]);
}

#[test]
fn names_in_rows_do_not_become_elements() {
    let folder = Folder::new();
    let evil = "</script><img src=x onerror=alert(1)>";
    let text: String = rows()
        .lines()
        .map(|line| {
            let mut row: Value = serde_json::from_str(line).unwrap();
            for field in ["case", "configuration", "commit", "suite"] {
                row[field] = format!("{}{evil}", row[field].as_str().unwrap()).into();
            }
            row["machine"]["device"] = evil.into();
            format!("{row}\n")
        })
        .collect();
    folder.file("rows.jsonl", text);

    let done = folder.run(&["report", "rows.jsonl", "-o", "r.html"]);

    assert_eq!(done.code, 0, "{done:?}");
    let html = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(!html.contains("<img"));
    let data = data(&html);
    let all = &data["tables"].as_array().unwrap().last().unwrap()["table"];
    assert!(column(all, "case")["words"][0].as_str().unwrap().ends_with(evil));
}

#[test]
fn missing_and_odd_numbers_are_gaps() {
    let folder = Folder::new();
    let text: String = rows()
        .lines()
        .enumerate()
        .map(|(count, line)| {
            let mut row: Value = serde_json::from_str(line).unwrap();
            row["gflops"] = Value::Null;
            row["share_of_copy"] = Value::Null;
            if count == 0 {
                row["median_ms"] = Value::Null;
            }
            format!("{row}\n")
        })
        .collect();
    folder.file("rows.jsonl", text);

    let done = folder.run(&["report", "rows.jsonl", "-o", "r.html"]);

    assert_eq!(done.code, 0, "{done:?}");
    let html = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    let data = data(&html);
    let all = &data["tables"].as_array().unwrap().last().unwrap()["table"];
    assert_eq!(column(all, "median ms")["numbers"][0], Value::Null);
    assert!(all["columns"].as_array().unwrap().iter().all(|column| column["name"] != "GFLOP/s"));
    assert!(html.contains("No row of a product tells its share"));
}

#[test]
fn histories_are_drawn_beside_rows() {
    let folder = Folder::new();
    folder.file("rows.jsonl", rows());
    folder.file("a.mtx", SPD);
    let solve = ["solve", "a.mtx", "--solver", "cg", "--backend", "cpu", "--history", "h.csv"];
    assert_eq!(folder.run(&solve).code, 0);

    let done = folder.run(&["report", "rows.jsonl", "h.csv", "-o", "r.html"]);

    assert_eq!(done.code, 0, "{done:?}");
    let html = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    let figures = titles(&data(&html), "figures");
    assert!(figures.contains(&"Convergence histories".to_owned()), "{figures:?}");
    folder.file("h.csv", "item,iteration,residual\n0,0\n");
    let refused = folder.run(&["report", "rows.jsonl", "h.csv", "-o", "r.html"]);
    refused.assert_bad_input(&["h.csv:2: expected item, iteration and residual"]);
}

#[test]
fn a_solve_has_a_page() {
    let folder = Folder::new();
    let input = root().join(ALPHA13);
    let solve = [
        "solve",
        input.to_str().unwrap(),
        "--solver",
        "bicgstab",
        "--backend",
        "cpu",
        "--history",
        "h.csv",
        "--report",
        "solve.html",
    ];

    let done = folder.run(&solve);

    assert_eq!(done.code, 0, "{done:?}");
    let html = std::fs::read_to_string(folder.path().join("solve.html")).unwrap();
    let data = data(&html);
    let expected = ["Iterations", "Residuals", "Times", "Convergence histories"];
    assert_eq!(titles(&data, "figures"), expected);
    assert!(html.contains("Every system converged."));
    let systems = &data["tables"].as_array().unwrap().last().unwrap()["table"];
    let counts: u64 = data["figures"][0]["table"]["columns"][1]["numbers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|count| count.as_u64().unwrap())
        .sum();
    assert_eq!(systems["length"], counts);
}

#[test]
fn the_page_of_a_solve_lists_what_did_not_converge() {
    let folder = Folder::new();
    folder.file(
        "x.batch",
        diagonal_batch(&[([1.0, 2.0], [1.0, 1.0]), ([1.0, f64::NAN], [1.0, 1.0])]),
    );

    let done = folder.run(&["solve", "x.batch", "--backend", "cpu", "--report", "solve.html"]);

    assert_eq!(done.code, 3, "{done:?}");
    let html = std::fs::read_to_string(folder.path().join("solve.html")).unwrap();
    assert!(html.contains("1 of 2 systems converged."));
    let data = data(&html);
    assert_eq!(titles(&data, "tables"), ["How systems ended", "Not converged", "Systems"]);
    assert_eq!(column(&data["tables"][1]["table"], "status")["words"][0], "NonFinite");
    assert!(html.contains("Residuals were not kept"));
}

/// The fixture with the times of our rows multiplied.
fn scaled(factor: f64) -> String {
    rows()
        .lines()
        .map(|line| {
            let mut row: Value = serde_json::from_str(line).unwrap();
            if row["library"] == "sparsebatch" {
                for field in ["median_ms", "min_ms", "max_ms"] {
                    row[field] = (row[field].as_f64().unwrap() * factor).into();
                }
            }
            format!("{row}\n")
        })
        .collect()
}

#[test]
fn a_comparison_of_equal_files_finds_nothing() {
    let folder = Folder::new();
    folder.file("a.jsonl", rows());

    let done = folder.run(&["compare", "a.jsonl", "a.jsonl"]);

    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("0 faster, 0 slower"), "{}", done.stdout);
    assert!(done.stdout.ends_with("no regression\n"), "{}", done.stdout);
    assert!(done.stdout.contains("1.000 x"), "{}", done.stdout);
}

#[test]
fn a_regression_beyond_the_threshold_is_code_4() {
    let folder = Folder::new();
    folder.file("a.jsonl", rows());
    folder.file("b.jsonl", scaled(3.0));

    let slower = folder.run(&["compare", "a.jsonl", "b.jsonl"]);
    let faster = folder.run(&["compare", "b.jsonl", "a.jsonl"]);
    let allowed = folder.run(&["compare", "a.jsonl", "b.jsonl", "--threshold", "300"]);

    assert_eq!((slower.code, slower.stderr.as_str()), (4, ""), "{slower:?}");
    assert!(slower.stdout.contains("0.333 x") && slower.stdout.contains("regression"));
    assert_eq!(faster.code, 0, "{faster:?}");
    assert!(faster.stdout.contains("3.000 x"), "{}", faster.stdout);
    assert_eq!(allowed.code, 0, "{allowed:?}");
    let json = folder.run(&["compare", "--json", "a.jsonl", "b.jsonl"]);
    assert_eq!(json.code, 4);
    let object = json.json();
    assert_eq!(object["regressions"], object["slower"].as_array().unwrap().len());
    assert_eq!(object["threshold_percent"], 5.0);
    assert!((object["suites"][0]["speed"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-12);
}

#[test]
fn a_regression_is_found_although_one_round_was_fast() {
    let folder = Folder::new();
    folder.file("a.jsonl", rows());
    let edited = |edit: &dyn Fn(&mut Value)| -> String {
        let rows = scaled(3.0);
        let lines = rows.lines().map(|line| {
            let mut row: Value = serde_json::from_str(line).unwrap();
            if row["library"] == "sparsebatch" {
                edit(&mut row);
            }
            format!("{row}\n")
        });
        lines.collect()
    };
    folder.file(
        "b.jsonl",
        edited(&|row| row["min_ms"] = (row["min_ms"].as_f64().unwrap() / 4.0).into()),
    );

    let done = folder.run(&["compare", "a.jsonl", "b.jsonl"]);

    assert_eq!((done.code, done.stderr.as_str()), (4, ""), "{done:?}");
}

#[test]
fn a_comparison_that_could_find_nothing_is_refused() {
    let folder = Folder::new();
    folder.file("a.jsonl", rows());
    let edited = |edit: &dyn Fn(&mut Value)| -> String {
        let rows = rows();
        let lines = rows.lines().map(|line| {
            let mut row: Value = serde_json::from_str(line).unwrap();
            edit(&mut row);
            format!("{row}\n")
        });
        lines.collect()
    };
    folder.file("other.jsonl", edited(&|row| row["case"] = "another".into()));
    folder.file("timeless.jsonl", edited(&|row| row["median_ms"] = Value::Null));
    let solves = |converged: Value| {
        edited(&|row| {
            row["operation"] = "cg".into();
            row["converged"] = converged.clone();
        })
    };
    folder.file("solved.jsonl", solves(1.into()));
    folder.file("silent.jsonl", solves(Value::Null));
    let refused = |a: &str, b: &str, parts: &[&str]| {
        folder.run(&["compare", a, b]).assert_bad_input(parts);
        folder.run(&["compare", a, b, "--json"]).assert_bad_input(parts);
    };

    refused("a.jsonl", "other.jsonl", &["a.jsonl and other.jsonl", "in both"]);
    refused("a.jsonl", "timeless.jsonl", &["timeless.jsonl: expected rows with a time"]);
    refused("timeless.jsonl", "a.jsonl", &["timeless.jsonl: expected rows with a time"]);
    refused("solved.jsonl", "silent.jsonl", &["silent.jsonl: expected `converged`"]);
    assert_eq!(folder.run(&["compare", "solved.jsonl", "solved.jsonl"]).code, 0);
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_refused() {
    let folder = Folder::new();
    folder.file("a.jsonl", rows());
    let fifo = folder.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.is_ok_and(|status| status.success()));
    for name in ["fifo", "fifo.csv"] {
        let _ = std::fs::rename(&fifo, folder.path().join(name));
        let report = folder.run(&["report", name, "-o", "r.html"]);
        report.assert_bad_input(&[name, "is a pipe or a device"]);
    }
    for name in ["fifo.csv", "/dev/zero"] {
        let parts = [name, "is a pipe or a device"];
        folder.run(&["compare", "a.jsonl", name]).assert_bad_input(&parts);
        folder.run(&["compare", name, "a.jsonl"]).assert_bad_input(&parts);
        folder.run(&["bench", "table", name]).assert_bad_input(&parts);
    }
}

#[test]
fn other_machines_and_rows_of_one_file_are_named() {
    let folder = Folder::new();
    folder.file("a.jsonl", rows());
    let text = rows();
    let shorter = &text[..text.trim_end().rfind('\n').unwrap() + 1];
    folder.file("b.jsonl", shorter.replace("GPU of the fixture", "another GPU"));

    let done = folder.run(&["compare", "a.jsonl", "b.jsonl"]);

    assert!(done.stdout.contains("the machines differ: "), "{}", done.stdout);
    assert!(done.stdout.contains("only in a, 1 row:\n"), "{}", done.stdout);
}

#[test]
fn comparisons_refuse_odd_thresholds() {
    for threshold in ["much", "-1", "inf", "nan"] {
        let option = format!("--threshold={threshold}");
        run(&["compare", ROWS, ROWS, &option]).assert_bad_input(&["--threshold", "per cent"]);
    }
    run(&["compare", ROWS]).assert_bad_input(&["B.jsonl"]);
}
