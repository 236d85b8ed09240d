//! What file names may do to a terminal: nothing.

use std::path::Path;

use crate::common::{Folder, Run, SPD, run_with};

/// Clears the screen, sets a title, begins a command in one character, turns the text around, ends the line.
const NAME: &str = "a\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}1m\u{202e}\nb";

fn assert_harmless(done: &Run) {
    for text in [&done.stdout, &done.stderr] {
        let harmful = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
        assert!(!text.contains(harmful), "{text:?}");
    }
}

#[cfg(unix)]
#[test]
fn names_of_files_are_shown_as_text() {
    let folder = Folder::new();
    let name = format!("{NAME}.mtx");
    folder.file(&name, SPD);
    folder.file("singular.mtx", "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 0\n");
    let bad = format!("bad{NAME}.mtx");
    folder.file(&bad, "%%MatrixMarket matrix coordinate real general\n1 1 1\n2 1 0\n");
    let out = format!("out{NAME}.npz");
    let missing = format!("missing{NAME}.mtx");
    let page = format!("r{NAME}.html");
    let commands: &[&[&str]] = &[
        &["solve", &name, "-v"],
        &["solve", &name, "-v", "--json"],
        &["solve", &name, "singular.mtx", &bad, "--skip-bad", "-v"],
        &["solve", &missing],
        &["solve", &bad],
        &["solve", &name, "--output", &name],
        &["solve", &name, "--output", &missing],
        &["spmv", &name],
        &["info", &name, "-v"],
        &["info", &name, &name, "-v", "--json"],
        &["convert", &name, &out],
        &["convert", &name, &out, "--json"],
        &["report", &missing, "-o", &page],
        &["compare", &missing, &missing],
        &["bench", "table", &missing],
        &["corpus", "list", "--list", NAME],
        &["corpus", "list", "--list", "jgl011", "--into", NAME],
        &["solve", &name, NAME, NAME],
    ];

    for command in commands {
        let done = folder.run(command);

        assert_harmless(&done);
        assert!(done.stderr.lines().count() <= 1, "{done:?}");
        let text = format!("{}{}", done.stdout, done.stderr);
        assert!(text.contains("\\u{1b}[2J") || text.contains("\\u001b[2J"), "{command:?}: {text}");
    }
    // The parser of arguments leaves some of it out.
    assert_harmless(&folder.run(&["solve", &name, "--solver", NAME]));
}

#[cfg(unix)]
#[test]
fn variables_are_shown_as_text() {
    for arguments in [&["doctor"][..], &["doctor", "--json"]] {
        let cache = format!("/nowhere/{NAME}");
        let done = run_with(&[("SPARSEBATCH_CACHE", Path::new(&cache))], arguments);

        assert_harmless(&done);
        assert!(done.stdout.contains("[2J"), "{done:?}");
    }
}

#[test]
fn plots_are_well_formed_whatever_the_name() {
    let folder = Folder::new();
    let name = "a<b>&\"c'\u{1b}.mtx";
    folder.file(name, SPD);

    assert_eq!(folder.run(&["info", name, "--plot", "m.svg"]).code, 0);

    let svg = std::fs::read_to_string(folder.path().join("m.svg")).unwrap();
    assert!(svg.contains("a&lt;b&gt;&amp;"), "{svg}");
    assert!(svg.chars().all(|c| !c.is_control() || c == '\n'), "{svg}");
}
