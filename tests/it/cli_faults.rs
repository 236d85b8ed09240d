//! Inputs that the command line once got wrong: what `solve` says of singular systems, of neighbours and of numbers far
//! from 1. Inputs are made here; those of the folder of faults are tried where they are there.

use serde_json::Value;
use sparsebatch_testing::shared_dir;

use crate::common::{Folder, run};

fn coordinate(n: usize, entries: &[(usize, usize, f64)]) -> String {
    let head = "%%MatrixMarket matrix coordinate real general";
    let mut text = format!("{head}\n{n} {n} {}\n", entries.len());
    for (row, col, value) in entries {
        text += &format!("{row} {col} {value:e}\n");
    }
    text
}

fn vector(values: &[f64]) -> String {
    let mut text = format!("%%MatrixMarket matrix array real general\n{} 1\n", values.len());
    values.iter().for_each(|value| text += &format!("{value:e}\n"));
    text
}

/// The path of so many points: rows sum to 0.
fn path(n: usize) -> String {
    let mut entries = Vec::new();
    for row in 1..=n {
        let neighbours = usize::from(row > 1) + usize::from(row < n);
        entries.push((row, row, neighbours as f64));
        if row > 1 {
            entries.push((row, row - 1, -1.0));
        }
        if row < n {
            entries.push((row, row + 1, -1.0));
        }
    }
    coordinate(n, &entries)
}

#[test]
fn a_system_without_a_solution_never_converges() {
    let folder = Folder::new();
    folder.file("a.mtx", coordinate(2, &[(1, 1, 1.0), (1, 2, 1.0), (2, 1, 1.0), (2, 2, 1.0)]));
    folder.file("b.vec", vector(&[1.0, 2.0]));
    // Of rank 2, with a pivot of rounding size: x is of 1e16, and b - A x rounds to 0.
    let mut entries = Vec::new();
    for (k, value) in [1.0, 3.0, 2.0, 3.0, 1.0, 1.0, 7.0, 5.0, 4.0].into_iter().enumerate() {
        entries.push((k / 3 + 1, k % 3 + 1, value / 3.0));
    }
    folder.file("c.mtx", coordinate(3, &entries));
    folder.file("d.vec", vector(&[1.0, 1.0, 0.0]));
    for (a, b) in [("a.mtx", "b.vec"), ("c.mtx", "d.vec")] {
        for solver in ["auto", "cg", "bicgstab", "lu"] {
            for more in [&[][..], &["--floor", "4"], &["--no-fallback"]] {
                let args = [&["solve", a, "--rhs", b, "--solver", solver, "--json"], more].concat();

                let run = folder.run(&args);

                assert_eq!(run.code, 3, "{a} {solver} {more:?}: {run:?}");
                assert_eq!(run.json()["converged"], 0);
            }
        }
    }
}

#[test]
fn a_singular_system_with_solutions_is_solved_and_said_to_have_many() {
    let folder = Folder::new();
    folder.file("a.mtx", path(10));
    let mut b = [0.0; 10];
    (b[0], b[9]) = (1.0, -1.0);
    folder.file("b.vec", vector(&b));

    let run = folder.run(&["solve", "a.mtx", "--rhs", "b.vec", "--json"]);

    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(run.json()["singular"], 1, "{run:?}");
    let text = folder.run(&["solve", "a.mtx", "--rhs", "b.vec"]).stdout;
    assert!(text.contains("one of many"), "{text}");
}

#[test]
fn what_stays_unsolved_names_what_may_help() {
    let folder = Folder::new();
    folder.file("a.mtx", path(10));
    folder.file("swap.mtx", coordinate(2, &[(1, 2, 2.0), (2, 1, 4.0)]));

    let singular = folder.run(&["solve", "a.mtx"]);
    let alone = folder.run(&["solve", "swap.mtx", "--solver", "cg", "--no-fallback"]);
    let solved = folder.run(&["solve", "swap.mtx", "--solver", "cg"]);

    assert_eq!((singular.code, alone.code, solved.code), (3, 3, 0));
    assert!(singular.stdout.contains("the matrix is singular"), "{}", singular.stdout);
    assert!(alone.stdout.contains("no fallback was allowed"), "{}", alone.stdout);
}

#[test]
fn a_neighbour_changes_nothing() {
    let folder = Folder::new();
    folder.file("one/a.mtx", path(12).replace("1 1 1e0", "1 1 1.5e0"));
    folder.file("two/a.mtx", path(12).replace("1 1 1e0", "1 1 1.5e0"));
    folder.file("two/b.mtx", coordinate(1, &[(1, 1, f64::NAN)]));
    folder.file("two/c.mtx", coordinate(2, &[(1, 2, 2.0), (2, 1, 4.0)]));

    let alone = folder.run(&["solve", "one", "-v", "--json"]).json();
    let beside = folder.run(&["solve", "two", "-v", "--json"]).json();

    for field in ["status", "iterations", "residual_norm", "rung"] {
        assert_eq!(alone["items"][0][field], beside["items"][0][field], "{field}");
    }
}

#[test]
fn f32_reaches_as_far_as_f64_does() {
    let folder = Folder::new();
    folder.file("a.mtx", coordinate(2, &[(1, 1, 2.0), (2, 2, 2.0)]));
    for (name, scale) in [("tiny", 1e-50), ("huge", 1e39)] {
        folder.file("b.vec", vector(&[scale, scale]));

        let run = folder.run(&[
            "solve",
            "a.mtx",
            "--rhs",
            "b.vec",
            "--precision",
            "f32",
            "--output",
            "x.mtx",
            "--json",
        ]);

        assert_eq!(run.code, 0, "{name}: {run:?}");
        let x = sparsebatch::io::read_vector(folder.path().join("x.mtx")).unwrap();
        assert!((x[0] / (0.5 * scale) - 1.0).abs() < 1e-6, "{name}: {x:?}");
    }
}

#[test]
fn solves_are_invariant_to_powers_of_two() {
    let folder = Folder::new();
    let mut found: Vec<Value> = Vec::new();
    for exponent in [0, -100, 80] {
        let scale = 2f64.powi(exponent);
        let mut entries = Vec::new();
        for row in 1..=32usize {
            entries.push((row, row, 4.0 * scale));
            if row > 1 {
                entries.push((row, row - 1, -1.25 * scale));
            }
            if row < 32 {
                entries.push((row, row + 1, -scale));
            }
        }
        folder.file("a.mtx", coordinate(32, &entries));
        for precision in ["f32", "f64"] {
            let run = folder.run(&[
                "solve",
                "a.mtx",
                "--solver",
                "bicgstab",
                "--precond",
                "none",
                "--precision",
                precision,
                "--no-fallback",
                "--json",
                "-v",
            ]);
            assert_eq!(run.code, 0, "{exponent} {precision}: {run:?}");
            found.push(run.json()["items"][0]["iterations"].clone());
        }
    }
    assert!(found.chunks(2).all(|pair| pair == &found[..2]), "{found:?}");
}

#[test]
fn cg_says_indefinite_of_a_negative_definite_matrix() {
    let folder = Folder::new();
    folder.file("a.mtx", coordinate(2, &[(1, 1, -2.0), (1, 2, 0.5), (2, 1, 0.5), (2, 2, -3.0)]));
    for precond in ["none", "jacobi", "block-jacobi", "ilu0", "ic0"] {
        let run = folder.run(&[
            "solve",
            "a.mtx",
            "--solver",
            "cg",
            "--precond",
            precond,
            "--no-fallback",
            "--json",
        ]);
        assert_eq!(run.json()["status"], serde_json::json!({"Indefinite": 1}), "{precond}");
    }
}

/// A file of the folder of faults with its options, and the exit code that is right.
const FAULTS: &[(&[&str], i32)] = &[
    (
        &[
            "two_by_two_inconsistent.mtx",
            "--rhs",
            "two_by_two_inconsistent_b.vec",
            "--solver",
            "cg",
            "--floor",
            "4",
        ],
        3,
    ),
    (&["neumann8x8.mtx", "--floor", "1"], 3),
    (&["neumann8x8.mtx", "--floor", "1", "--fallback"], 3),
    (&["chain10_neumann.mtx", "--rhs", "chain10_neumann_b.vec", "--fallback"], 0),
    (&["chain10_neumann.mtx", "--rhs", "chain10_neumann_b.vec"], 0),
    (&["bcspwr02.mtx", "--rhs", "bcspwr02_b.vec", "--fallback"], 0),
    (&["can___24.mtx"], 0),
    (&["bcspwr01.mtx"], 0),
    (&["nonsingular_called_singular.mtx"], 0),
    (&["neighbour"], 0),
    (&["alone"], 0),
    (&["diag2.mtx", "--rhs", "diag2_tiny_b.vec", "--precision", "f32"], 0),
    (&["diag2.mtx", "--rhs", "diag2_huge_b.vec", "--precision", "f32"], 0),
    (
        &[
            "tri32_1e25.mtx",
            "--precision",
            "f32",
            "--solver",
            "bicgstab",
            "--precond",
            "none",
            "--no-fallback",
        ],
        0,
    ),
    (
        &[
            "tri32_1e-30.mtx",
            "--precision",
            "f32",
            "--solver",
            "bicgstab",
            "--precond",
            "none",
            "--no-fallback",
        ],
        0,
    ),
    (&["scaled1e160.mtx", "--solver", "bicgstab", "--precond", "none", "--no-fallback"], 0),
    (&["scaled1e-160.mtx", "--solver", "bicgstab", "--precond", "none", "--no-fallback"], 0),
    (&["singular_a.mtx", "--rhs", "singular_b.mtx"], 3),
    (&["luck_2_1009.batch"], 3),
    // They have solutions, which are found now that A is scaled; no residual of 0.1 passes for one.
    (&["floor_inf.batch", "--solver", "bicgstab", "--floor", "4"], 0),
    (&["floor_inf2.batch", "--solver", "bicgstab", "--floor", "4"], 0),
    (&["singular2_floor.mtx", "--fallback", "--floor", "4"], 3),
    (&["neighbour_a.batch"], 0),
    (&["neighbour_a.batch", "neighbour_nan.batch"], 3),
];

#[test]
fn faults_that_were_found_are_mended() {
    let Some(shared) = shared_dir() else { return };
    let faults = shared.join("faults");
    let mut wrong = Vec::new();
    for (args, code) in FAULTS {
        let with_folder: Vec<String> = args
            .iter()
            .map(|arg| match arg.contains('.') || *arg == "neighbour" || *arg == "alone" {
                true => faults.join(arg).to_string_lossy().into_owned(),
                false => (*arg).to_owned(),
            })
            .collect();
        let mut all = vec!["solve"];
        all.extend(with_folder.iter().map(String::as_str));
        let run = run(&all);
        if run.code != *code {
            wrong.push(format!("{args:?}: expected {code}, found {}: {}", run.code, run.stdout));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
