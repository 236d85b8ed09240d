//! Pages in headless Chromium: `scripts/report-browser.py` looks at figures, layout, tables and
//! links. Skipped, with the reason, where the browser or what drives it is missing; with
//! `SPARSEBATCH_REQUIRE_BROWSER` set that is a failure. `SPARSEBATCH_SCREENSHOTS` names a folder
//! for pictures.

use std::path::Path;
use std::process::Command;

use crate::common::{ALPHA13, Folder, root};
use serde_json::Value;

/// What is missing to run the script.
fn missing() -> Option<String> {
    let works = |program: &str, argument: &[&str]| {
        Command::new(program).args(argument).output().is_ok_and(|run| run.status.success())
    };
    let chromium = ["chromium", "chromium-browser"];
    if !chromium.iter().any(|name| works(name, &["--version"])) {
        return Some("chromium is not on the path".to_owned());
    }
    if !works("chromedriver", &["--version"]) {
        return Some("chromedriver is not on the path".to_owned());
    }
    if !works("python3", &["-c", "import selenium"]) {
        return Some("python3 has no module selenium".to_owned());
    }
    None
}

/// Whether to go on; prints why not.
fn ready() -> bool {
    let Some(reason) = missing() else { return true };
    assert!(std::env::var_os("SPARSEBATCH_REQUIRE_BROWSER").is_none(), "{reason}");
    println!("skipped: {reason}");
    false
}

/// Opens a page at two widths in light and dark.
fn look(page: &Path, name: &str) {
    let html = std::fs::read_to_string(page).unwrap();
    let figures = html.matches("data-figure=\"").count();
    let mut command = Command::new("python3");
    command.arg(root().join("scripts/report-browser.py")).arg(page).arg(figures.to_string());
    if let Some(folder) = std::env::var_os("SPARSEBATCH_SCREENSHOTS") {
        command.arg(Path::new(&folder).join(name));
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(&format!("{figures} figures")), "{text}");
}

#[test]
fn the_page_of_ten_thousand_rows_is_drawn() {
    if !ready() {
        return;
    }
    let folder = Folder::new();
    let mut rows: Vec<Value> = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir(root().join("benches/results"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"))
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let lines = text.lines().filter(|line| !line.is_empty());
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.extend(lines.filter(|line| line["gap"].is_null()));
    }
    let lines: String = (0..10_000)
        .map(|count| {
            let mut row = rows[count % rows.len()].clone();
            if count >= rows.len() {
                let case = row["case"].as_str().unwrap();
                row["case"] = format!("{case} <b>{}</b>", count / rows.len()).into();
            }
            format!("{row}\n")
        })
        .collect();
    folder.file("rows.jsonl", lines);
    let input = root().join(ALPHA13);
    let solve = ["solve", input.to_str().unwrap(), "--backend", "cpu", "--solver", "bicgstab"];
    assert_eq!(folder.run(&[&solve[..], &["--history", "h.csv"]].concat()).code, 0);
    let report = ["report", "--json", "rows.jsonl", "h.csv", "-o", "r.html"];

    let report = folder.run(&report).json();

    assert_eq!((&report["rows"], &report["histories"]), (&10_000.into(), &1.into()));
    look(&folder.path().join("r.html"), "bench");
}

#[test]
fn the_page_of_a_solve_is_drawn() {
    if !ready() {
        return;
    }
    let folder = Folder::new();
    let input = root().join(ALPHA13);
    let solve = [
        "solve",
        input.to_str().unwrap(),
        "--backend",
        "cpu",
        "--solver",
        "bicgstab",
        "--precond",
        "none",
        "--max-iters",
        "12",
        "--history",
        "h.csv",
        "--report",
        "r.html",
    ];

    let done = folder.run(&solve);

    // Some have not converged after so few iterations.
    assert_eq!(done.code, 3, "{done:?}");
    look(&folder.path().join("r.html"), "solve");
}
