//! What bad input gets: one clear line, exit code 2, no output file.

use crate::common::{ALPHA13, Folder, SPD, diagonal_batch, finished, root, run};

const HEADER: &str = "%%MatrixMarket matrix coordinate real general\n";

/// Solves a file with this content, asks for all outputs, and checks the refusal.
fn refused(name: &str, content: impl AsRef<[u8]>, parts: &[&str]) {
    let folder = Folder::new();
    folder.file(name, content);
    let args = ["solve", name, "--output", "x.npz", "--history", "r.csv", "--json"];

    let run = folder.run(&args);

    let parts = [&[name], parts].concat();
    run.assert_bad_input(&parts);
    assert_eq!(folder.names(), [name], "no output may be left");
}

#[test]
fn a_missing_file_is_named() {
    run(&["solve", "no/such.mtx"]).assert_bad_input(&["no/such.mtx", "No such file"]);
}

#[test]
fn an_empty_file_is_refused() {
    refused("empty.mtx", "", &["empty"]);
}

#[test]
fn an_empty_folder_is_refused() {
    let folder = Folder::new();
    folder.run(&["solve", "."]).assert_bad_input(&["."]);
}

#[test]
fn a_wrong_banner_and_unknown_content_are_refused() {
    refused("a.mtx", "%%MatrixMarkt matrix coordinate real general\n1 1 1\n1 1 1\n", &[]);
    refused(
        "a.mtx",
        "%%MatrixMarket matrix coordinat real general\n1 1 1\n1 1 1\n",
        &["a.mtx:1:", "expected", "found"],
    );
    refused("a.bin", [0u8, 1, 2, 3, 4, 5, 6, 7, 8, 9], &["expected"]);
}

#[test]
fn truncated_text_is_refused() {
    refused("a.mtx", HEADER, &["expected"]);
    refused("a.mtx", format!("{HEADER}2 2\n"), &["a.mtx:2:", "expected"]);
    refused("a.mtx", format!("{HEADER}2 2 2\n1 1 1\n"), &["expected", "found"]);
    refused("a.mtx", format!("{HEADER}2 2 2\n1 1 1\n2 2\n"), &["a.mtx:4:", "expected"]);
}

#[test]
fn truncated_batches_are_refused() {
    let whole = diagonal_batch(&[([2.0, 4.0], [2.0, 8.0])]);
    for keep in [9, 20, 32, 60, whole.len() - 1] {
        refused("p.batch", &whole[..keep], &["expected"]);
    }
    refused("p.batch", [&whole[..], b"x"].concat(), &["expected"]);
}

#[test]
fn sizes_that_lie_are_refused_without_taking_memory() {
    refused("a.mtx", format!("{HEADER}3 3 1000000000000000000\n1 1 1\n"), &["1000000000000000000"]);
    refused("a.mtx", format!("{HEADER}2000000000 2000000000 1\n1 1 1\n"), &["2000000000"]);
    refused("a.mtx", format!("{HEADER}9999999999 9999999999 1\n1 1 1\n"), &["9999999999"]);
    refused("a.mtx", format!("{HEADER}-3 3 1\n1 1 1\n"), &["a.mtx:2:", "-3"]);
    refused("a.mtx", format!("{HEADER}2 2 1\n1 1 1\n2 2 1\n"), &["a.mtx:4:"]);
    for size in [u64::MAX, 1 << 62, 1 << 31] {
        for position in [8, 16, 24] {
            let mut bytes = diagonal_batch(&[([2.0, 4.0], [2.0, 8.0])]);
            bytes[position..position + 8].copy_from_slice(&size.to_le_bytes());
            refused("p.batch", bytes, &["expected"]);
        }
    }
}

#[test]
fn indices_outside_are_refused_by_line_and_column() {
    refused("a.mtx", format!("{HEADER}2 2 1\n0 1 1\n"), &["a.mtx:3:1", "found"]);
    refused("a.mtx", format!("{HEADER}2 2 1\n1 3 1\n"), &["a.mtx:3:3", "found"]);
    refused("a.mtx", format!("{HEADER}2 2 1\n1 99999999999 1\n"), &["a.mtx:3:3"]);
    let mut bytes = diagonal_batch(&[([2.0, 4.0], [2.0, 8.0])]);
    bytes[32 + 12..32 + 16].copy_from_slice(&7i32.to_le_bytes());
    refused("p.batch", bytes, &["col"]);
}

#[test]
fn a_number_beyond_f64_is_refused() {
    refused("a.mtx", format!("{HEADER}1 1 1\n1 1 1e400\n"), &["a.mtx:3:5", "1e400"]);
}

#[test]
fn complex_is_refused_by_name() {
    refused(
        "a.mtx",
        "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n",
        &["complex"],
    );
    refused("a.mtx", "%%MatrixMarket matrix array complex hermitian\n1 1\n1 0\n", &["complex"]);
}

#[test]
fn a_matrix_that_is_not_square_is_refused_by_solve_alone() {
    let wide = format!("{HEADER}2 3 2\n1 1 1\n2 3 1\n");
    refused("wide.mtx", &wide, &["2 x 3", "square"]);
    let folder = Folder::new();
    folder.file("wide.mtx", &wide);
    assert_eq!(folder.run(&["info", "wide.mtx"]).code, 0);
    assert_eq!(folder.run(&["spmv", "wide.mtx"]).code, 0);
}

#[test]
fn vectors_of_other_lengths_are_refused() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    folder.file("v.mtx", "%%MatrixMarket matrix array real general\n2 1\n1\n2\n");
    folder.file("wide.mtx", "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n");

    for option in ["--rhs", "--x0"] {
        folder.run(&["solve", "a.mtx", option, "v.mtx"]).assert_bad_input(&["v.mtx", "2", "3"]);
        folder.run(&["solve", "a.mtx", option, "wide.mtx"]).assert_bad_input(&["wide.mtx"]);
        folder.run(&["solve", "a.mtx", option, "no.mtx"]).assert_bad_input(&["no.mtx"]);
    }
    folder.run(&["spmv", "a.mtx", "--x", "v.mtx"]).assert_bad_input(&["v.mtx", "2", "3"]);
}

#[test]
fn a_batch_of_no_systems_is_refused() {
    refused("p.batch", diagonal_batch(&[]), &["no systems"]);
}

#[test]
fn duplicates_are_summed_and_special_values_are_data() {
    let folder = Folder::new();
    folder.file("d.mtx", format!("{HEADER}1 1 2\n1 1 1\n1 1 3\n"));
    folder.file("n.mtx", format!("{HEADER}1 1 1\n1 1 nan\n"));

    assert_eq!(folder.run(&["info", "d.mtx", "--json"]).json()["nnz"], 1);
    assert_eq!(folder.run(&["solve", "d.mtx"]).code, 0);
    let nan = folder.run(&["solve", "n.mtx", "--json"]);
    assert_eq!((nan.code, &nan.json()["status"]), (3, &serde_json::json!({"NonFinite": 1})));
}

#[test]
fn unknown_option_values_list_the_allowed_ones() {
    let table: [(&str, &str, &[&str]); 11] = [
        ("--lu-form", "by-row", &["by-pattern", "by-system"]),
        ("--solver", "gmres", &["auto", "cg", "bicgstab", "lu"]),
        ("--precond", "amg", &["none", "jacobi", "block-jacobi", "ilu0", "ic0"]),
        ("--order", "rcm", &["natural", "min-degree", "multicolor"]),
        ("--precond-precision", "f16", &["working", "f32"]),
        ("--inner-precision", "f16", &["auto", "working"]),
        ("--precision", "f16", &["f64", "f32"]),
        ("--backend", "tpu", &["auto", "cpu", "gpu"]),
        ("--format", "bsr", &["csr", "coo", "ell", "dia", "hyb", "sellp"]),
        ("--kernel", "magic", &["fused", "rows", "csr-i"]),
        ("--rhs", "random:x", &["random:SEED"]),
    ];
    for (option, value, allowed) in table {
        let run = run(&["solve", ALPHA13, option, value]);
        run.assert_bad_input(&[&[option, value], allowed].concat());
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    let table = [
        ("--rtol", "-1"),
        ("--rtol", "nan"),
        ("--atol", "x"),
        ("--floor", "-2"),
        ("--max-iters", "-1"),
        ("--threads", "0"),
        ("--replicate", "0"),
        ("--perturb", "inf:1"),
        ("--block-size", "129"),
    ];
    for (option, value) in table {
        let option_value = format!("{option}={value}");
        run(&["solve", ALPHA13, &option_value]).assert_bad_input(&[option]);
    }
    let copies = u64::MAX.to_string();
    run(&["solve", ALPHA13, "--replicate", &copies]).assert_bad_input(&["memory"]);
}

#[test]
fn more_threads_than_any_machine_has_are_refused() {
    let threads = [("RAYON_NUM_THREADS", std::path::Path::new("1000000"))];
    for args in [&["solve", ALPHA13][..], &["info", ALPHA13], &["doctor"]] {
        let refused = crate::common::run_with(&threads, args);
        refused.assert_bad_input(&["RAYON_NUM_THREADS is 1000000, expected at most 1024"]);
    }
}

#[test]
fn usage_errors_are_one_line() {
    run(&["solve"]).assert_bad_input(&["INPUT"]);
    run(&["bench"]).assert_bad_input(&["bench"]);
    run(&["solve", ALPHA13, "--reprot", "x"]).assert_bad_input(&["--reprot"]);
    run(&["solve", ALPHA13, "-q", "-v"]).assert_bad_input(&["--quiet"]);
    run(&["generate", "fractal", "x.mtx"]).assert_bad_input(&["fractal"]);
    run(&["solve", ALPHA13, "--kernel", "fused", "--format", "ell"]).assert_bad_input(&["fused"]);
    run(&["solve", ALPHA13, "--kernel", "csr-i", "--format", "ell"]).assert_bad_input(&["kernel"]);
}

#[test]
fn unwritable_outputs_are_refused_before_anything_is_read() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    folder.file("file", "");
    for path in ["no/x.npz", "file/x.npz"] {
        // The input does not exist: the output is looked at first.
        folder.run(&["solve", "gone.mtx", "--output", path]).assert_bad_input(&[path]);
        folder.run(&["solve", "a.mtx", "--history", path]).assert_bad_input(&[path]);
        folder.run(&["convert", "a.mtx", path]).assert_bad_input(&[path]);
        folder.run(&["info", "a.mtx", "--plot", path]).assert_bad_input(&[path]);
    }
    folder.run(&["solve", "a.mtx", "--history", "."]).assert_bad_input(&["."]);
    folder.run(&["solve", "a.mtx", "--output", "x.txt"]).assert_bad_input(&["x.txt", ".npz"]);
    folder.run(&["solve", "a.mtx", "--output", "x.batch"]).assert_bad_input(&["x.batch"]);
    assert_eq!(folder.names(), ["a.mtx", "file"]);
}

#[test]
fn several_solutions_do_not_fit_a_matrix_market_file() {
    let folder = Folder::new();
    folder.file("p.batch", diagonal_batch(&[([2.0, 4.0], [2.0, 8.0]); 2]));

    folder.run(&["solve", "p.batch", "--output", "x.mtx"]).assert_bad_input(&["2 systems", ".npz"]);

    assert_eq!(folder.names(), ["p.batch"]);
}

#[test]
fn one_bad_file_in_a_folder_is_bad_input_unless_skipped() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    folder.file("bad.mtx", format!("{HEADER}2 2 1\n0 1 1\n"));

    folder.run(&["solve", "."]).assert_bad_input(&["bad.mtx:3:1"]);
    let skipped = folder.run(&["solve", ".", "--skip-bad", "--json"]);

    assert_eq!(skipped.code, 0, "{skipped:?}");
    assert!(skipped.stderr.contains("bad.mtx:3:1"), "{skipped:?}");
    let json = skipped.json();
    assert_eq!(json["systems"], 1);
    assert!(json["skipped"][0]["file"].as_str().unwrap().ends_with("bad.mtx"));
    folder.run(&["solve", "bad.mtx", "--skip-bad"]).assert_bad_input(&["bad.mtx"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_stdout_that_cannot_be_written_is_an_internal_failure() {
    use std::process::{Command, Stdio};
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sparsebatch"))
        .args(["info", ALPHA13])
        .current_dir(root())
        .stdout(Stdio::from(full))
        .output()
        .unwrap();

    let run = finished(output);

    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
}
