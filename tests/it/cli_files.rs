//! Files as they are in the world, and memory in proportion to them.

use std::time::{Duration, Instant};

use serde_json::Value;
use sparsebatch::io::{read_npz_array, write_arrays};
use sparsebatch_testing::shared_dir;

use crate::common::{ALPHA13, Folder, SPD, diagonal_batch, run, run_on};

const HEADER: &str = "%%MatrixMarket matrix coordinate real general\n";
const ARRAY: &str = "%%MatrixMarket matrix array real general\n";

/// A 2 x 2 system [2 0; 0 4] x = (2, 8) in two files: x = (1, 2).
fn tamu(folder: &Folder) {
    folder.file("sys.mtx", format!("{HEADER}2 2 2\n1 1 2\n2 2 4\n"));
    folder.file("sys_b.mtx", format!("{ARRAY}2 1\n2\n8\n"));
}

fn solution(folder: &Folder, args: &[&str]) -> (Value, Vec<f64>) {
    let all = [&["solve", "--json", "--output", "x.npz"], args].concat();
    let run = folder.run(&all);
    assert_eq!(run.code, 0, "{run:?}");
    (run.json(), read_npz_array(folder.path().join("x.npz"), "x").unwrap())
}

fn near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
    }
}

#[test]
fn a_right_hand_side_beside_its_matrix_is_solved_with() {
    let folder = Folder::new();
    tamu(&folder);

    for args in [&["."][..], &[".", "--skip-bad"], &["sys.mtx", "sys_b.mtx"]] {
        let (json, x) = solution(&folder, args);

        assert_eq!((&json["systems"], &json["rhs"]), (&1.into(), &"file".into()), "{args:?}");
        assert_eq!(json["skipped"], serde_json::json!([]), "{args:?}");
        near(&x, &[1.0, 2.0]);
        std::fs::remove_file(folder.path().join("x.npz")).unwrap();
    }
    let (_, x) = solution(&folder, &["sys.mtx"]);
    near(&x, &[0.5, 0.25]);
    std::fs::remove_file(folder.path().join("x.npz")).unwrap();
    let info = folder.run(&["info", ".", "--json"]).json();
    assert_eq!((&info["systems"], &info["right_hand_sides"]), (&1.into(), &true.into()));
    assert_eq!(folder.run(&["convert", ".", "s.batch", "-q"]).code, 0);
    let converted = folder.run(&["solve", "s.batch", "--json"]).json();
    assert_eq!(converted["rhs"], "file");
}

#[test]
fn rectangular_matrices_are_skipped_by_solve() {
    let folder = Folder::new();
    folder.file("rect.mtx", format!("{HEADER}3 2 3\n1 1 1\n2 2 1\n3 1 1\n"));
    folder.file("square.mtx", format!("{HEADER}2 2 2\n1 1 1\n2 2 1\n"));

    folder.run(&["solve", "."]).assert_bad_input(&["rect.mtx", "square", "3 x 2"]);
    let skipped = folder.run(&["solve", ".", "--skip-bad", "--json"]);

    assert_eq!(skipped.code, 0, "{skipped:?}");
    assert_eq!(skipped.json()["systems"], 1);
    assert!(skipped.json()["skipped"][0]["error"].as_str().unwrap().contains("3 x 2"));
    assert_eq!(folder.run(&["spmv", ".", "--json"]).json()["systems"], 2);
}

#[test]
fn standard_input_is_an_input_of_any_kind() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    assert_eq!(folder.run(&["convert", "a.mtx", "a.npz", "-q"]).code, 0);
    assert_eq!(folder.run(&["convert", "a.mtx", "a.mtx.gz", "-q"]).code, 0);
    assert_eq!(folder.run(&["convert", "a.mtx", "a.batch", "-q"]).code, 0);

    let expected = folder.run(&["solve", "a.mtx", "--json"]).json();
    for name in ["a.mtx", "a.mtx.gz", "a.npz", "a.batch"] {
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        let found = run_on(folder.path(), &bytes, &["solve", "-", "--json"]);

        assert_eq!(found.code, 0, "{name}: {found:?}");
        let json = found.json();
        assert_eq!(json["iterations"], expected["iterations"], "{name}");
        assert_eq!(json["input"], "standard input", "{name}");
    }
    let rhs = format!("{ARRAY}3 1\n3\n2\n3\n");
    let args = ["solve", "a.mtx", "--rhs", "-", "--output", "x.npz", "-q"];
    assert_eq!(run_on(folder.path(), rhs.as_bytes(), &args).code, 0);
    near(&read_npz_array(folder.path().join("x.npz"), "x").unwrap(), &[1.0; 3]);
    let wide = ARRAY.to_owned() + "2 2\n1\n2\n3\n4\n";
    run_on(folder.path(), wide.as_bytes(), &args).assert_bad_input(&["standard input", "2 x 2"]);
    run_on(folder.path(), b"", &["solve", "-"]).assert_bad_input(&["standard input", "empty"]);
    run_on(folder.path(), b"x", &["solve", "-", "-"]).assert_bad_input(&["at most once"]);
    run_on(folder.path(), &SPD.as_bytes()[..80], &["info", "-"])
        .assert_bad_input(&["standard input:", "expected"]);
}

/// An `.npy` file of little-endian f64.
fn npy(shape: &str, values: &[f64]) -> Vec<u8> {
    let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

#[test]
fn numpy_arrays_are_matrices_and_vectors() {
    let folder = Folder::new();
    folder.file("A.npy", npy("(2, 2)", &[2.0, 0.0, 1.0, 4.0]));
    folder.file("b.npy", npy("(2,)", &[2.0, 9.0]));

    let (_, x) = solution(&folder, &["."]);
    near(&x, &[1.0, 2.0]);
    let (_, x) = solution(&folder, &["A.npy", "--rhs", "b.npy", "--x0", "b.npy"]);
    near(&x, &[1.0, 2.0]);

    folder.file("two.batch", diagonal_batch(&[([2.0, 4.0], [2.0, 8.0]); 2]));
    folder.file("rows.npy", npy("(2, 2)", &[2.0, 4.0, 6.0, 8.0]));
    folder.file("columns.npy", npy("(4, 1)", &[2.0, 4.0, 6.0, 8.0]));
    for name in ["rows.npy", "columns.npy"] {
        let (_, x) = solution(&folder, &["two.batch", "--rhs", name]);
        near(&x, &[1.0, 1.0, 3.0, 2.0]);
    }
    folder.file("three.batch", diagonal_batch(&[([2.0, 4.0], [2.0, 8.0]); 3]));
    folder.file("turned.npy", npy("(2, 3)", &[1.0; 6]));
    folder.run(&["solve", "three.batch", "--rhs", "turned.npy"]).assert_bad_input(&[
        "turned.npy",
        "shape 2 x 3",
        "3 x 2",
    ]);
    folder.file("cube.npy", npy("(1, 1, 1)", &[1.0]));
    folder.run(&["info", "cube.npy"]).assert_bad_input(&["cube.npy", "one or two dimensions"]);
    folder.run(&["spmv", "A.npy", "--x", "cube.npy"]).assert_bad_input(&["1 operands", "2"]);
}

#[test]
fn a_hypersparse_right_hand_side_is_one_of_all_systems() {
    let folder = Folder::new();
    let sparse = format!("{HEADER}320000 1 2\n1 1 1\n319999 1 1\n");
    folder.file("sparse.mtx", sparse);
    assert_eq!(
        folder.run(&["generate", "tri", "--n", "32", "--batch", "10000", "t.batch", "-q"]).code,
        0
    );

    let info = folder.run(&["info", "sparse.mtx", "--json"]);
    assert_eq!(info.code, 0, "{info:?}");
    assert_eq!((&info.json()["rows"], &info.json()["nnz"]), (&320_000.into(), &2.into()));
    let (json, x) = solution(&folder, &["t.batch", "--rhs", "sparse.mtx"]);
    assert_eq!(json["converged"], 10_000);
    assert!(x[32..320_000 - 32].iter().all(|&x| x == 0.0));
    assert!(x[0] != 0.0 && x[319_998] != 0.0);
}

#[test]
fn systems_of_empty_rows_are_refused_in_no_time_and_memory() {
    let folder = Folder::new();
    folder.file("a.mtx", format!("{HEADER}64000000 64000000 1\n1 1 1\n"));
    let start = Instant::now();

    folder.run(&["solve", "a.mtx"]).assert_bad_input(&["a.mtx", "64000000", "empty"]);

    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn memory_is_limited_and_what_exceeds_it_is_bad_input() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    folder.file("x.npy", npy("(1000,)", &[1.0; 1000]));
    folder.file("rows.mtx", format!("{HEADER}5000000 1 1\n1 1 1\n"));

    for command in ["solve", "spmv", "info"] {
        folder.run(&[command, "a.mtx", "--max-memory", "100B"]).assert_bad_input(&[
            "a.mtx",
            "memory",
            "100",
            "--max-memory",
        ]);
    }
    folder.run(&["convert", "rows.mtx", "o.npz", "--max-memory", "8MiB"]).assert_bad_input(&[
        "rows.mtx",
        "5000000 rows",
        "8388608",
    ]);
    folder
        .run(&["solve", "a.mtx", "--rhs", "x.npy", "--max-memory", "2000"])
        .assert_bad_input(&["x.npy", "1000 elements"]);
    for command in ["solve", "spmv"] {
        folder
            .run(&[command, "a.mtx", "--replicate", "100000", "--max-memory", "16MiB"])
            .assert_bad_input(&["--replicate 100000", "memory"]);
        let enough = folder.run(&[command, "a.mtx", "--max-memory", "64KiB", "-q"]);
        assert_eq!(enough.code, 0, "{enough:?}");
    }
    let dense = npy("(64, 64)", &[1.0; 64 * 64]);
    folder.file("dense.npy", dense);
    for command in ["solve", "spmv"] {
        folder
            .run(&[command, "dense.npy", "--max-memory", "100KiB"])
            .assert_bad_input(&["a plan for 1 system, 64 x 64, 4096 entries", "memory"]);
    }
    assert_eq!(folder.names(), ["a.mtx", "dense.npy", "rows.mtx", "x.npy"]);
}

#[test]
fn copies_beyond_all_memory_are_refused_at_once() {
    let start = Instant::now();
    for copies in ["100000000000", "18446744073709551615"] {
        for more in [&[][..], &["--perturb", "1e-6:1"]] {
            let args = [&["solve", ALPHA13, "--replicate", copies][..], more].concat();
            run(&args).assert_bad_input(&["--replicate", "memory"]);
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10));
}

/// The address space of a process is limited by `ulimit -v`: what exceeds it is told before.
#[cfg(target_os = "linux")]
#[test]
fn a_limited_address_space_is_what_is_available() {
    let folder = Folder::new();
    folder.file("rows.mtx", format!("{HEADER}1000000000 1 1\n1 1 1\n"));
    let script = format!("ulimit -v 2000000; {} info rows.mtx", env!("CARGO_BIN_EXE_sparsebatch"));

    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.path())
        .output()
        .unwrap();

    crate::common::finished(output).assert_bad_input(&["1000000000 rows", "--max-memory"]);
}

#[cfg(unix)]
#[test]
fn pipes_are_refused_by_every_command() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("p.mtx")).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo");
    std::fs::create_dir(folder.path().join("from")).unwrap();
    let pipe = folder.path().join("from/pwtk.mtx");
    assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
    std::os::unix::fs::symlink("p.mtx", folder.path().join("p.csv")).unwrap();

    let commands: [&[&str]; 11] = [
        &["solve", "p.mtx"],
        &["solve", "."],
        &["solve", "a.mtx", "--rhs", "p.mtx"],
        &["solve", "a.mtx", "--x0", "p.mtx"],
        &["spmv", "p.mtx"],
        &["info", "p.mtx"],
        &["convert", "p.mtx", "o.npz"],
        &["report", "p.mtx", "-o", "o.html"],
        &["report", "p.csv", "-o", "o.html"],
        &["compare", "p.mtx", "p.mtx"],
        &["corpus", "fetch", "--list", "pwtk", "--into", "c", "--from", "from"],
    ];
    for command in commands {
        let start = Instant::now();
        folder.run(command).assert_bad_input(&["is a pipe or a device"]);
        assert!(start.elapsed() < Duration::from_secs(20), "{command:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn endless_devices_are_refused_by_every_command() {
    let commands: [&[&str]; 6] = [
        &["solve", "/dev/zero"],
        &["solve", ALPHA13, "--rhs", "/dev/zero"],
        &["info", "/dev/urandom"],
        &["report", "/dev/zero", "-o", "o.html"],
        &["compare", "/dev/zero", "/dev/zero"],
        &["bench", "table", "/dev/zero"],
    ];
    for command in commands {
        run(command).assert_bad_input(&["is a pipe or a device"]);
    }
}

#[test]
fn a_thread_too_many_is_refused() {
    run(&["solve", ALPHA13, "--threads", "1025"]).assert_bad_input(&["--threads", "1024"]);
}

#[test]
fn an_archive_of_other_lengths_is_told_by_its_headers() {
    let folder = Folder::new();
    write_arrays(folder.path().join("a.npz"), Default::default(), |npz| {
        npz.add_bytes("format", b"csr")?;
        npz.add_i64("shape", &[2, 2])?;
        npz.add_i64("indices", &[0, 1])?;
        npz.add_i64("indptr", &[0, 1, 2])?;
        npz.add_f64("data", &[1.0, 2.0, 3.0])
    })
    .unwrap();

    folder.run(&["info", "a.npz"]).assert_bad_input(&["a.npz", "data has 3 entries, expected 2"]);
}

/// Inputs that the library got wrong on 25 November 2026.
#[test]
fn the_files_of_the_faults_are_read() {
    let Some(faults) = shared_dir().map(|folder| folder.join("faults")).filter(|f| f.is_dir())
    else {
        eprintln!("skipped: no folder of faults");
        return;
    };
    let at = |name: &str| faults.join(name).display().to_string();
    let table = [
        ("one_percent.mtx", 3, 3),
        ("symmetric_upper.mtx", 3, 5),
        ("skew_zero_diagonal.mtx", 3, 5),
        ("matlab_array_skew.mtx", 3, 6),
        ("hermitian_real.mtx", 3, 5),
        ("fortran_D.mtx", 3, 4),
        ("sparse_rhs_320000.mtx", 320_000, 2),
    ];
    for (name, rows, nnz) in table {
        let info = run(&["info", &at(name), "--json"]);
        assert_eq!(info.code, 0, "{info:?}");
        let json = info.json();
        assert_eq!((&json["rows"], &json["nnz"]), (&rows.into(), &nnz.into()), "{name}");
    }
    for args in [&["solve", "tamu"][..], &["solve", "tamu", "--skip-bad"]] {
        let folder = Folder::new();
        let path = folder.path().join("x.npz");
        let tamu = at(args[1]);
        let all = [&["solve", &tamu, "--output", path.to_str().unwrap()], &args[2..]].concat();
        assert_eq!(run(&all).code, 0);
        near(&read_npz_array(&path, "x").unwrap(), &[1.0, 2.0]);
    }
    let mixed = run(&["solve", &at("mixed"), "--skip-bad", "--json"]);
    assert_eq!((mixed.code, &mixed.json()["systems"]), (0, &1.into()), "{mixed:?}");
    run(&["solve", &at("rows64M_2kB.mtx.gz")]).assert_bad_input(&["rows64M_2kB", "64000000"]);
}
