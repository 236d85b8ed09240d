//! `sparsebatch bench` without a GPU: what it refuses, and tables of rows measured elsewhere.
#![cfg(feature = "cli")]

mod common;

use common::{Folder, run};

const ROWS: &str = "crates/bench/tests/data/rows.jsonl";

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let experiment = ["bench", "flexible-batch", "--experiment", "fig9"];
    run(&experiment).assert_bad_input(&["fig9", "fig3, fig4, fig5, fig6, fig7"]);
    let kernel = ["bench", "single", "--kernel", "csr-scalar,csr"];
    run(&kernel).assert_bad_input(&["--kernel is csr, expected all or one of csr-scalar"]);
    let kernel = ["bench", "flexible-batch", "--experiment", "fig4", "--kernel", "coo"];
    run(&kernel).assert_bad_input(&["--kernel is coo", "batch-coo"]);
    let case = ["bench", "single", "--case", "banded 4", "--case", "banded 5"];
    run(&case).assert_bad_input(&["--case is banded 5, expected one of laplace 3-point 1000000"]);
    run(&["bench", "solver"]).assert_bad_input(&["solver"]);
}

#[test]
fn matrices_must_be_there() {
    run(&["bench", "flexible-batch"]).assert_bad_input(&["--matrices is absent"]);
    let folder = Folder::new();
    folder
        .run(&["bench", "flexible-batch", "--matrices", "."])
        .assert_bad_input(&["--matrices is ., expected a folder with .mtx files"]);
    folder
        .run(&["bench", "single", "--matrices", "nowhere"])
        .assert_bad_input(&["nowhere", "No such file"]);
    folder.file("a.mtx", "nothing");
    folder.run(&["bench", "flexible-batch", "--matrices", "."]).assert_bad_input(&["a.mtx"]);
}

#[test]
fn without_a_gpu_the_reason_is_one_line_and_nothing_is_written() {
    if sparsebatch_spmv_gpu::device::availability().is_ok() {
        println!("skipped: there is a GPU");
        return;
    }
    let folder = Folder::new();

    let refused = folder.run(&["bench", "single", "--size", "small", "--output", "rows.jsonl"]);

    refused.assert_bad_input(&["bench needs a GPU: "]);
    assert!(folder.names().is_empty());
}

#[test]
fn tables_are_made_of_rows() {
    let done = run(&["bench", "table", ROWS]);

    let text = &done.stdout;
    assert!(text.starts_with("## flexible-batch\n"), "{text}");
    assert!(text.contains("## single\n"), "{text}");
}

#[test]
fn lines_that_are_no_rows_are_named() {
    let folder = Folder::new();
    folder.file("rows.jsonl", "\n{}\n");

    let refused = folder.run(&["bench", "table", "rows.jsonl"]);

    refused.assert_bad_input(&["rows.jsonl:2: expected a row of a bench", "missing field"]);
    run(&["bench", "table"]).assert_bad_input(&["FILE.jsonl"]);
}
