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
        "--no-fallback",
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

/// Follows all links that save a file, and leaves what they give in the page: for `--dump-dom`, which does not wait
/// for anything behind the page's `load`.
const PROBE: &str = r#"<script>
const saved = [];
window.Blob = class {
  constructor(parts, { type }) {
    const text = parts.join("");
    const fault = new DOMParser().parseFromString(text, "image/svg+xml").querySelector("parsererror");
    saved.push({ type, text, fault: fault && fault.textContent });
  }
};
URL.createObjectURL = () => "blob:kept";
document.addEventListener("click", (event) => event.preventDefault());
addEventListener("load", () => {
  for (const link of document.querySelectorAll("a[download]")) link.click();
  const json = JSON.stringify(saved).replace(/[<>&\u007f-\uffff]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  document.body.append(Object.assign(document.createElement("pre"), { id: "probe", textContent: json }));
});
</script>"#;

#[test]
fn what_a_page_saves_is_harmless_and_well_formed() {
    let chromium = ["chromium", "chromium-browser"].into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|run| run.status.success())
    });
    let Some(chromium) = chromium else {
        assert!(std::env::var_os("SPARSEBATCH_REQUIRE_BROWSER").is_none(), "no chromium");
        println!("skipped: chromium is not on the path");
        return;
    };
    let folder = Folder::new();
    let hostile = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "a\"b<c>&'d", "\u{1b}[2J", "plain"];
    let rows = std::fs::read_to_string(root().join("crates/rows/tests/data/rows.jsonl")).unwrap();
    let lines: String = rows
        .lines()
        .enumerate()
        .map(|(index, line)| {
            let mut row: Value = serde_json::from_str(line).unwrap();
            row["case"] = hostile[index / 2 % hostile.len()].into();
            row["configuration"] = hostile[(index / 2 + 3) % hostile.len()].into();
            format!("{row}\n")
        })
        .collect();
    folder.file("rows.jsonl", lines);
    assert_eq!(folder.run(&["report", "rows.jsonl", "-o", "r.html"]).code, 0);
    let page = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    let page = page.replacen("<style>", &format!("{PROBE}<style>"), 1);
    let path = folder.file("probed.html", page);

    let output = Command::new(chromium)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .arg("--dump-dom")
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();

    let dom = String::from_utf8_lossy(&output.stdout);
    let probe =
        dom.split_once("<pre id=\"probe\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (json, _) = probe.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let saved: Vec<Value> = serde_json::from_str(json).unwrap();
    let texts = |kind: &'static str| saved.iter().filter(move |file| file["type"] == kind);
    assert!(texts("text/csv").count() > 1 && texts("image/svg+xml").count() > 1, "{}", saved.len());
    for svg in texts("image/svg+xml") {
        assert_eq!(svg["fault"], Value::Null, "{}", svg["text"]);
    }
    let mut neutral = 0;
    for csv in texts("text/csv") {
        let text = csv["text"].as_str().unwrap();
        for cell in text.split([',', '\n']).map(|cell| cell.trim_start_matches('"')) {
            let is_number = cell.parse::<f64>().is_ok();
            assert!(
                is_number || !cell.starts_with(['=', '+', '-', '@', '\t', '\r']),
                "{cell:?}: {text}"
            );
            neutral += usize::from(cell.starts_with("'="));
        }
    }
    assert!(neutral > 0);
}
