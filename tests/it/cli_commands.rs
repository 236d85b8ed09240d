//! `spmv`, `info`, `convert`, `generate`, `doctor`.

use crate::common::{ALPHA13, Folder, SPD, diagonal_batch, root, run};
use sparsebatch::io::{LoadOptions, load, read_batch, read_matrix_market, read_npz_array};

#[test]
fn help_and_version_go_to_stdout() {
    for command in ["solve", "spmv", "info", "convert", "generate", "doctor"] {
        let help = run(&[command, "--help"]);
        assert_eq!((help.code, help.stderr.as_str()), (0, ""), "{command}");
        assert!(help.stdout.contains("Usage: sparsebatch"), "{command}");
    }
    let version = run(&["--version"]);
    assert_eq!(version.stdout, concat!("sparsebatch ", env!("CARGO_PKG_VERSION"), "\n"));
    let nothing = run::<&str>(&[]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (2, ""));
}

#[test]
fn every_kernel_multiplies_a_matrix_correctly() {
    let folder = Folder::new();
    folder.run(&["generate", "laplace", "--stencil", "5", "--grid", "40x30", "l.mtx"]);
    for precision in ["f64", "f32"] {
        let args = ["spmv", "l.mtx", "--backend", "cpu", "--kernel", "all", "--json"];
        let run = folder.run(&[&args[..], &["--precision", precision]].concat());

        assert_eq!(run.code, 0, "{run:?}");
        let json = run.json();
        assert_eq!(
            (&json["backend"], &json["backend_reason"]),
            (&"cpu".into(), &"asked for".into())
        );
        assert!(json["baseline_ms"].as_f64().unwrap() > 0.0);
        assert_eq!(json["nnz"], 5860);
        assert!(json["copy_gb_s"].as_f64().unwrap() > 0.0);
        let kernels = json["kernels"].as_array().unwrap();
        assert_eq!(kernels.len(), 9);
        for kernel in kernels {
            assert_eq!(kernel["correct"], true, "{kernel}");
            assert!(kernel["worst_error"].as_f64().unwrap() <= 1.0, "{kernel}");
            for figure in [
                "median_ms",
                "min_ms",
                "gflops",
                "gb_s",
                "share_of_copy",
                "bytes_moved",
                "plan_bytes",
                "plan_ms",
            ] {
                assert!(kernel[figure].as_f64().unwrap() > 0.0, "{figure}: {kernel}");
            }
            assert!(kernel["useful_bytes"].as_u64() <= kernel["bytes_moved"].as_u64(), "{kernel}");
            assert!(kernel["padding"].is_u64() && kernel["compile_ms"].is_null(), "{kernel}");
            assert!(!kernel["explain"].as_str().unwrap().is_empty(), "{kernel}");
        }
    }
}

#[test]
fn products_of_a_batch_are_written() {
    let folder = Folder::new();
    folder.file("p.batch", diagonal_batch(&[([2.0, 4.0], [0.0; 2]), ([5.0, 1.0], [0.0; 2])]));

    let run = folder.run(&["spmv", "p.batch", "--x", "ones", "--output", "y.npz"]);

    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(read_npz_array(folder.path().join("y.npz"), "y").unwrap(), [2.0, 4.0, 5.0, 1.0]);
    assert!(run.stdout.contains("correct"), "{run:?}");
}

#[test]
fn nan_in_x_reaches_the_rows_that_store_the_column_in_every_format() {
    let folder = Folder::new();
    // [1 2 .; . . 3; . . 4]: row 2 has no entry on the main diagonal, which is occupied.
    let a = "%%MatrixMarket matrix coordinate real general\n3 3 4\n1 1 1\n1 2 2\n2 3 3\n3 3 4\n";
    folder.file("a.mtx", a);
    folder.file("x.mtx", "%%MatrixMarket matrix array real general\n3 1\n1\nnan\n1\n");
    for format in ["csr", "coo", "ell", "dia", "hyb", "sellp"] {
        let output = format!("{format}.npz");
        let run = folder.run(&[
            "spmv",
            "a.mtx",
            "--x",
            "x.mtx",
            "--backend",
            "cpu",
            "--format",
            format,
            "--output",
            &output,
        ]);
        assert_eq!(run.code, 0, "{run:?}");
        let y = read_npz_array(folder.path().join(&output), "y").unwrap();
        assert!(y[0].is_nan() && y[1..] == [3.0, 4.0], "{format}: {y:?}");
    }
}

#[test]
fn kernels_are_listed_with_commas_and_explained() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    let args = ["spmv", "a.mtx", "--backend", "cpu", "--kernel", "rows,csr-i", "--format", "csr"];

    let run = folder.run(&[&args[..], &["--explain"]].concat());

    assert_eq!(run.code, 0, "{run:?}");
    for kernel in ["rows", "csr-i"] {
        let line = format!("csr by {kernel}: asked for by name; ");
        assert!(run.stdout.lines().any(|found| found.starts_with(&line)), "{line}: {run:?}");
    }
    let refused = |list: &str, output: &[&str], parts: &[&str]| {
        let args = [&["spmv", "a.mtx", "--kernel", list][..], output].concat();
        folder.run(&args).assert_bad_input(parts);
    };
    refused("rows,all", &[], &["rows,all", "all by itself"]);
    refused("rows,csr-i", &["--output", "y.npz"], &["one kernel", "rows,csr-i"]);
    refused("all", &["--output", "y.npz"], &["one kernel"]);
    refused("rows,magic", &[], &["magic", "csr-smart", "packed", "batch-csr-i"]);
    refused("csr-i", &["--format", "ell"], &["csr-i", "format ell"]);
}

#[test]
fn copies_of_a_matrix_are_a_batch() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    let args = ["spmv", "a.mtx", "--x", "ones", "--replicate", "3", "--output", "y.npz", "--json"];

    let run = folder.run(&args);

    assert_eq!(run.code, 0, "{run:?}");
    let json = run.json();
    assert_eq!((&json["systems"], &json["nnz"]), (&3.into(), &21.into()));
    let y = read_npz_array(folder.path().join("y.npz"), "y").unwrap();
    assert_eq!(y, [3.0, 2.0, 3.0].repeat(3));
}

#[test]
fn a_format_that_blows_up_is_refused_by_name_and_skipped_among_all() {
    let folder = Folder::new();
    let args = ["generate", "pareto", "--rows", "20000", "--min-len", "2", "p.npz", "-q"];
    assert_eq!(folder.run(&args).code, 0);

    let spmv = ["spmv", "p.npz", "--backend", "cpu"];
    let dia = folder.run(&[&spmv[..], &["--format", "dia"]].concat());
    dia.assert_bad_input(&["dia", "limit"]);
    let all = folder.run(&[&spmv[..], &["--kernel", "all", "--json"]].concat());

    assert_eq!(all.code, 0, "{all:?}");
    let json = all.json();
    let of = |format: &str| {
        let kernels = json["kernels"].as_array().unwrap().clone();
        kernels.into_iter().find(|k| k["format"] == format).unwrap()
    };
    assert!(of("dia")["refused"].as_str().unwrap().contains("limit"));
    assert_eq!(of("csr")["correct"], true);
}

#[test]
fn info_tells_sizes_symmetry_and_choice() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);

    let run = folder.run(&["info", "a.mtx", "--json", "--plot", "a.svg"]);

    let json = run.json();
    let item = &json["items"][0];
    assert_eq!((&item["rows"], &item["columns"], &item["nnz"]), (&3.into(), &3.into(), &7.into()));
    assert_eq!(item["symmetric"], true);
    assert_eq!((&item["lower_bandwidth"], &item["upper_bandwidth"]), (&1.into(), &1.into()));
    assert_eq!(item["bytes"]["csr"], 16 + 28 + 56);
    assert_eq!(item["bytes"]["coo"], 7 * 16);
    assert_eq!(json["choice"]["format"], "csr");
    assert!(!json["choice"]["why"].as_str().unwrap().is_empty());
    let svg = std::fs::read_to_string(folder.path().join("a.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("3 x 3, 7 entries"), "{svg}");
}

#[test]
fn info_lists_the_systems_of_a_folder() {
    let text = run(&["info", "examples/data/ragged"]);
    let json = run(&["info", "examples/data/ragged", "--json"]).json();

    assert!(text.stdout.contains("trefethen_20.mtx"), "{text:?}");
    assert_eq!(json["kind"], "ragged");
    assert_eq!((&json["systems"], &json["symmetric_systems"]), (&6.into(), &5.into()));
    run(&["info", "examples/data/ragged", "--plot", "/dev/null"]).assert_bad_input(&["6 systems"]);
}

#[test]
fn a_matrix_survives_every_file_format() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    let a = read_matrix_market(folder.path().join("a.mtx")).unwrap();

    for (from, to) in
        [("a.mtx", "b.npz"), ("b.npz", "c.mtx.gz"), ("c.mtx.gz", "d.batch"), ("d.batch", "e.mtx")]
    {
        let run = folder.run(&["convert", from, to]);
        assert_eq!(run.code, 0, "{run:?}");
    }

    assert_eq!(read_matrix_market(folder.path().join("e.mtx")).unwrap(), a);
    // Known by its content, not by its ending.
    std::fs::rename(folder.path().join("c.mtx.gz"), folder.path().join("x.npz")).unwrap();
    folder.run(&["convert", "x.npz", "y.mtx"]);
    assert_eq!(read_matrix_market(folder.path().join("y.mtx")).unwrap(), a);
}

#[test]
fn items_of_a_batch_keep_values_and_right_hand_sides() {
    let folder = Folder::new();
    let systems = [([1.0, 2.0], [3.0, 4.0]), ([5.0, 6.0], [7.0, 8.0]), ([9.0, 1.0], [2.0, 3.0])];
    folder.file("p.batch", diagonal_batch(&systems));

    let run = folder.run(&["convert", "p.batch", "q.batch", "--items", "0..3:2"]);

    assert_eq!(run.code, 0, "{run:?}");
    let expected = diagonal_batch(&[systems[0], systems[2]]);
    assert_eq!(std::fs::read(folder.path().join("q.batch")).unwrap(), expected);
    folder.run(&["convert", "p.batch", "q.batch", "--items", "2..4"]).assert_bad_input(&["4", "3"]);
}

#[test]
fn outputs_that_cannot_hold_the_systems_are_refused() {
    let folder = Folder::new();
    folder.file("p.batch", diagonal_batch(&[([1.0, 2.0], [3.0, 4.0]); 2]));
    folder.file("wide.mtx", "%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 1\n");

    folder.run(&["convert", "p.batch", "q.mtx"]).assert_bad_input(&["2 systems", ".batch"]);
    folder.run(&["convert", "p.batch", "q.npz"]).assert_bad_input(&["2 systems"]);
    folder.run(&["convert", "wide.mtx", "q.batch"]).assert_bad_input(&["2 x 3", "square"]);
    folder.run(&["convert", "wide.mtx", "q.dat"]).assert_bad_input(&["q.dat", ".npz"]);
    assert_eq!(folder.names(), ["p.batch", "wide.mtx"]);
}

#[test]
fn every_family_is_generated_with_its_known_size() {
    let folder = Folder::new();
    let table: [(&str, usize, usize); 12] = [
        ("tri --n 32 --batch 3 a.batch", 3, 3 * 94),
        ("lap2d --n 256 --batch 2 a.batch", 2, 2 * (5 * 256 - 4 * 16)),
        ("rand9 --n 54 --batch 2 a.batch", 2, 2 * 9 * 54),
        ("mix --batch 4 a.batch", 4, 0),
        ("mix_spd --batch 4 a.batch", 4, 0),
        ("laplace --stencil 7 --grid 4x5x6 a.mtx", 1, 7 * 120 - 2 * (30 + 24 + 20)),
        ("trefethen --n 8 a.npz", 1, 8 + 2 * (7 + 6 + 4)),
        ("banded --n 10 --bands 3 a.mtx", 1, 28),
        ("pareto --rows 100 --min-len 4 --shape 1.5 a.mtx", 1, 0),
        ("dense --rows 7 --cols 5 a.mtx", 1, 35),
        ("random --rows 20 --cols 30 --row-len 4 a.mtx.gz", 1, 80),
        ("spd --n 12 a.batch", 1, 0),
    ];
    for (words, systems, nnz) in table {
        let args: Vec<&str> = ["generate"].into_iter().chain(words.split(' ')).collect();
        let run = folder.run(&[&args[..], &["--json"]].concat());
        assert_eq!(run.code, 0, "{words}: {run:?}");
        let json = run.json();
        let path = folder.path().join(json["output"].as_str().unwrap());
        let loaded = load(std::slice::from_ref(&path), LoadOptions::default()).unwrap();
        assert_eq!(loaded.batch.nitems(), systems, "{words}");
        assert_eq!(json["nnz"], loaded.batch.total_nnz(), "{words}");
        if nnz > 0 {
            assert_eq!(loaded.batch.total_nnz(), nnz, "{words}");
        }
    }
    folder.run(&["generate", "lap2d", "--n", "7", "b.batch"]).assert_bad_input(&["7"]);
    folder
        .run(&["generate", "laplace", "--stencil", "6", "--grid", "4", "b.mtx"])
        .assert_bad_input(&["6"]);
    folder
        .run(&["generate", "tri", "--n", "9999999999", "b.batch"])
        .assert_bad_input(&["9999999999"]);
}

#[test]
fn generated_problems_have_their_checksum() {
    let folder = Folder::new();
    folder.run(&["generate", "tri", "--n", "32", "--batch", "100", "p.batch"]);

    let file = read_batch(folder.path().join("p.batch")).unwrap();

    let sparsebatch::Batch::Uniform(batch) = &file.batch else { panic!("tri is a uniform batch") };
    let checksum = sparsebatch::generate::checksum(batch, &file.rhs).unwrap();
    assert_eq!(checksum, 0xb1e4_4d90_23a8_3199);
}

#[test]
fn the_doctor_finds_this_build_healthy() {
    let run = run(&["doctor", "--json"]);

    assert_eq!(run.code, 0, "{run:?}");
    let json = run.json();
    let tests = json["tests"].as_array().unwrap();
    let none = json["gpu"].as_str().unwrap().starts_with("none: ");
    assert_eq!(tests.len(), if none { 3 } else { 5 });
    assert_eq!(json["gpu_device"].is_null(), none);
    assert!(tests.iter().all(|test| test["passed"] == true), "{tests:?}");
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_sparsebatch"))
        .args(["info", ALPHA13, "--json"])
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());

    let output = child.wait_with_output().unwrap();

    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
