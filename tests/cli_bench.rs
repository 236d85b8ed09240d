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
    let solvers = |option: &str, value: &str| run(&["bench", "solvers", option, value]);
    solvers("--method", "cg,gmres").assert_bad_input(&["gmres", "auto cg bicgstab lu"]);
    solvers("--precond", "ilu").assert_bad_input(&["ilu", "none jacobi"]);
    solvers("--case", "tri 33")
        .assert_bad_input(&["--case is tri 33, expected one of tri, tri 32"]);
    solvers("--tuning", "32x4,32").assert_bad_input(&["--tuning is 32, expected shapes like 32x4"]);
    run(&["bench", "solvers", "--no-generated"]).assert_bad_input(&["--sets is absent"]);
    solvers("--batch", "0").assert_bad_input(&["--batch"]);
}

#[test]
fn the_suites_over_single_matrices_check_their_options() {
    let throughput = |option: &str, value: &str| run(&["bench", "throughput", option, value]);
    throughput("--experiment", "fig3").assert_bad_input(&[
        "--experiment is fig3, expected one of fig1, fig8, fig9, fig10, fig11",
    ]);
    throughput("--experiment", "fig13").assert_bad_input(&["--matrices is absent"]);
    throughput("--kernel", "csr").assert_bad_input(&["--kernel is csr, expected all or one of"]);
    throughput("--case", "stride 0")
        .assert_bad_input(&["--case is stride 0, expected one of stride 1, stride 2"]);
    throughput("--matrices", "nowhere").assert_bad_input(&["nowhere", "No such file"]);
    let sell_p = |option: &str, value: &str| run(&["bench", "sell-p", option, value]);
    sell_p("--shape", "8x8,8").assert_bad_input(&["--shape is 8, expected BxT or BxTxSIGMA"]);
    sell_p("--case", "cant")
        .assert_bad_input(&["--case is cant, expected one of Trefethen_20000, laplace 7-point"]);
    let row_kernels = |option: &str, value: &str| run(&["bench", "row-kernels", option, value]);
    row_kernels("--case", "random 3").assert_bad_input(&["expected one of random 1 of 131072"]);
    row_kernels("--matrices", "nowhere").assert_bad_input(&["nowhere", "No such file"]);
}

#[test]
fn the_experiment_of_chunks_checks_its_options() {
    let chunks = |option: &str, value: &str| {
        run(&["bench", "solvers", "--experiment", "chunks", option, value])
    };
    chunks("--data", "8GB").assert_bad_input(&["--data", "8GiB or 512MiB"]);
    chunks("--gpu-memory", "0").assert_bad_input(&["--gpu-memory"]);
    chunks("--piece", "0.1").assert_bad_input(&["--piece"]);
    chunks("--at-once", "0").assert_bad_input(&["--at-once", "1..=16"]);
    chunks("--backend", "cpu").assert_bad_input(&["--backend is cpu, expected gpu"]);
    chunks("--case", "tri 33").assert_bad_input(&["--case is tri 33"]);
    run(&["bench", "solvers", "--experiment", "pieces"]).assert_bad_input(&["pieces", "chunks"]);
    run(&["bench", "solvers", "--data", "1GiB"]).assert_bad_input(&["--experiment"]);
}

#[test]
fn files_of_solves_are_checked_before_anything_runs() {
    let folder = Folder::new();
    folder.run(&["bench", "solvers", "--sets", "."]).assert_bad_input(&["--sets is ."]);
    folder.run(&["bench", "solvers", "--reference", "a.csv"]).assert_bad_input(&["a.csv"]);
    folder.file("a.csv", "problem,ms\n");
    let refused = folder.run(&["bench", "solvers", "--reference", "a.csv"]);
    refused
        .assert_bad_input(&["a.csv:1: expected a row of a bench, found no header suite,problem"]);
}

#[test]
fn the_cpu_is_measured_without_a_gpu() {
    let folder = Folder::new();
    let cpu = ["bench", "solvers", "--backend", "cpu", "--case", "tri 32", "--batch", "20"];

    let done = folder.run(&[&cpu[..], &["--method", "cg", "--output", "rows.jsonl"]].concat());
    let json = folder.run(&[&cpu[..], &["--method", "lu", "--json"]].concat());

    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.contains("2 rows, 0 not measured, 0 faults"), "{}", done.stdout);
    let table = folder.run(&["bench", "table", "rows.jsonl"]);
    assert!(table.stdout.contains("| tri 32 | 20 | cg | cpu cg, "), "{}", table.stdout);
    let object: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let row = &object["rows"][0];
    assert_eq!((&row["operation"], &row["converged"]), (&"lu".into(), &20.into()));
    assert_eq!((&row["n"], &row["backend"]), (&32.into(), &"cpu".into()));
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

    for suite in ["single", "throughput", "sell-p", "row-kernels", "solvers"] {
        let refused = folder.run(&["bench", suite, "--size", "small", "--output", "rows.jsonl"]);
        refused.assert_bad_input(&["bench needs a GPU: "]);
    }
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
