//! `sparsebatch solve`: results, outputs, exit codes.

use crate::common::{ALPHA13, Folder, Run, SPD, diagonal_batch, root, run};
use serde_json::Value;
use sparsebatch::io::{read_npz_array, read_vector};

#[test]
fn json_of_the_example_batch_holds_every_field_of_the_contract() {
    let run = run(&["solve", ALPHA13, "--solver", "bicgstab", "--precond", "jacobi", "--json"]);

    assert_eq!(run.code, 0, "{run:?}");
    let json = run.json();
    assert_eq!(json["schema"], 2);
    assert_eq!(json["command"], "solve");
    assert_eq!((&json["systems"], &json["rows"]), (&48.into(), &624.into()));
    assert_eq!(json["converged"], 48);
    assert_eq!(json["status"], serde_json::json!({"Converged": 48}));
    assert!(json["max_relative_residual"].as_f64().unwrap() <= 1e-10);
    assert!(json["max_relative_residual_all"].as_f64().unwrap() <= 1e-10);
    assert_eq!(json["accepted_by_floor"], 0);
    for part in ["min", "mean", "max"] {
        assert!(json["iterations"][part].is_number(), "{part}");
    }
    assert_eq!(json["rungs"], serde_json::json!({"first": 48}));
    assert!(["cpu", "gpu"].contains(&json["backend"].as_str().unwrap()), "{run:?}");
    assert!(json["backend_reason"].as_str().unwrap().contains("GPU"), "{run:?}");
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!((&runs[0]["rung"], &runs[0]["systems"]), (&"first".into(), &48.into()));
    for (field, of_all) in [("backend", "backend"), ("kernel", "kernel")] {
        assert_eq!(runs[0][field], json[of_all]);
    }
    assert_eq!(json["solver"], "bicgstab");
    assert_eq!(json["preconditioner"], "jacobi");
    for text in ["device", "format", "kernel", "reason", "rhs", "precision", "version"] {
        assert!(json[text].is_string(), "{text}");
    }
    for time in ["read", "plan", "solve", "total"] {
        assert!(json["times_ms"][time].as_f64().unwrap() >= 0.0, "{time}");
    }
    assert_eq!(json["items"], Value::Null);
    assert_eq!(json["unconverged"], serde_json::json!([]));
}

#[test]
fn the_table_tells_systems_statuses_and_residual() {
    let run = run(&["solve", ALPHA13]);

    assert_eq!(run.code, 0, "{run:?}");
    for part in ["48 systems", "converged", "48 of 48", "Converged", "iterations", "times"] {
        assert!(run.stdout.contains(part), "{part}: {run:?}");
    }
    assert_eq!(run.stderr, "", "no progress without a terminal");
}

#[test]
fn quiet_prints_nothing_and_verbose_a_line_per_system() {
    let quiet = run(&["solve", ALPHA13, "-q"]);
    let verbose = run(&["solve", ALPHA13, "-v", "--json"]);

    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    let items = verbose.json()["items"].clone();
    assert_eq!(items.as_array().unwrap().len(), 48);
    assert_eq!(items[7]["item"], 7);
    assert_eq!(items[7]["status"], "Converged");
}

#[test]
fn solutions_and_history_are_written() {
    let folder = Folder::new();
    folder.file("p.batch", diagonal_batch(&[([2.0, 4.0], [2.0, 8.0]), ([5.0, 1.0], [10.0, 3.0])]));

    let run = folder.run(&[
        "solve",
        "p.batch",
        "--solver",
        "cg",
        "--output",
        "x.npz",
        "--history",
        "r.csv",
    ]);

    assert_eq!(run.code, 0, "{run:?}");
    let x = read_npz_array(folder.path().join("x.npz"), "x").unwrap();
    let offsets = read_npz_array(folder.path().join("x.npz"), "offsets").unwrap();
    for (found, expected) in x.iter().zip([1.0, 2.0, 2.0, 3.0]) {
        assert!((found - expected).abs() < 1e-9, "{x:?}");
    }
    assert_eq!(offsets, [0.0, 2.0, 4.0]);
    let history = std::fs::read_to_string(folder.path().join("r.csv")).unwrap();
    let mut lines = history.lines();
    assert_eq!(lines.next(), Some("item,iteration,residual"));
    let rows: Vec<Vec<f64>> =
        lines.map(|l| l.split(',').map(|cell| cell.parse().unwrap()).collect()).collect();
    let first = |item: f64| rows.iter().find(|row| row[0] == item).unwrap();
    assert_eq!(first(0.0)[1], 0.0);
    assert!((first(0.0)[2] - 68f64.sqrt()).abs() < 1e-12, "{rows:?}");
    assert!((first(1.0)[2] - 109f64.sqrt()).abs() < 1e-12, "{rows:?}");
    assert_eq!(folder.names(), ["p.batch", "r.csv", "x.npz"]);
}

#[test]
fn one_system_can_be_written_as_matrix_market_and_read_as_guess() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);

    let first = folder.run(&["solve", "a.mtx", "--output", "x.mtx", "--rhs", "random:3"]);
    let again = folder.run(&["solve", "a.mtx", "--rhs", "random:3", "--x0", "x.mtx", "--json"]);

    assert_eq!(first.code, 0, "{first:?}");
    assert_eq!(read_vector(folder.path().join("x.mtx")).unwrap().len(), 3);
    assert_eq!(again.json()["iterations"]["max"], 0, "{again:?}");
    assert_eq!(again.json()["rhs"], "random:3");
}

#[test]
fn lu_does_not_fail_by_a_guess_that_it_does_not_need() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    folder.file("x0.mtx", "%%MatrixMarket matrix array real general\n3 1\nnan\ninf\nnan\n");
    let solve = ["solve", "a.mtx", "--backend", "cpu", "--rhs", "ones", "--json"];

    let lu = folder.run(&[&solve[..], &["--solver", "lu", "--x0", "x0.mtx"]].concat());
    let without = folder.run(&[&solve[..], &["--solver", "lu"]].concat());

    assert_eq!((lu.code, without.code), (0, 0), "{lu:?}");
    let residual = |run: &Run| run.json()["max_relative_residual"].clone();
    assert_eq!(residual(&lu), residual(&without));
}

#[test]
fn blocks_of_block_jacobi_have_up_to_128_rows() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    for size in ["1", "33", "128"] {
        let run = folder.run(&[
            "solve",
            "a.mtx",
            "--solver",
            "cg",
            "--precond",
            "block-jacobi",
            "--block-size",
            size,
        ]);
        assert_eq!(run.code, 0, "{run:?}");
    }
}

#[test]
fn right_hand_sides_come_from_where_they_are_asked_for() {
    let folder = Folder::new();
    folder.file("a.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 2\n2 2 4\n");
    folder.file("b.mtx", "%%MatrixMarket matrix array real general\n2 1\n6\n20\n");
    let solved = |rhs: &[&str]| {
        let run = folder.run(&[&["solve", "a.mtx", "--output", "x.npz"], rhs].concat());
        assert_eq!(run.code, 0, "{run:?}");
        read_npz_array(folder.path().join("x.npz"), "x").unwrap()
    };

    let close = |x: Vec<f64>, y: [f64; 2]| x.iter().zip(y).all(|(x, y)| (x - y).abs() < 1e-9);
    assert!(close(solved(&[]), [0.5, 0.25]));
    assert!(close(solved(&["--rhs", "ones"]), [0.5, 0.25]));
    assert!(close(solved(&["--rhs", "b.mtx"]), [3.0, 5.0]));
    folder.run(&["solve", "a.mtx", "--rhs", "file"]).assert_bad_input(&["--rhs file"]);
}

#[test]
fn a_system_with_nan_ends_nonfinite_and_its_neighbours_are_solved() {
    let folder = Folder::new();
    folder.file(
        "p.batch",
        diagonal_batch(&[([2.0, 4.0], [2.0, 8.0]), ([f64::NAN, 1.0], [1.0, 1.0])]),
    );

    let run = folder.run(&["solve", "p.batch", "--output", "x.npz", "--json"]);

    assert_eq!(run.code, 3, "{run:?}");
    let json = run.json();
    assert_eq!(json["status"], serde_json::json!({"Converged": 1, "NonFinite": 1}));
    assert_eq!(json["unconverged"][0]["item"], 1);
    assert_eq!(json["unconverged"][0]["status"], "NonFinite");
    assert_eq!(json["unconverged"][0]["relative_residual"], Value::Null);
    assert!(folder.path().join("x.npz").exists(), "results are written with exit code 3");
}

#[test]
fn without_enough_iterations_the_summary_names_the_systems() {
    let run = run(&["solve", "examples/data/ragged", "--max-iters", "1", "--no-fallback"]);

    assert_eq!(run.code, 3, "{run:?}");
    let summary = run.stdout.lines().find(|l| l.starts_with("not converged (")).unwrap();
    assert!(summary.contains("rand9_30.mtx"), "{summary}");
    assert!(summary.contains("MaxIterations"), "{summary}");
}

#[test]
fn a_singular_system_is_called_so_by_lu() {
    let folder = Folder::new();
    folder.file(
        "s.mtx",
        "%%MatrixMarket matrix coordinate real general\n2 2 4\n1 1 1\n1 2 1\n2 1 1\n2 2 1\n",
    );
    folder.file("b.mtx", "%%MatrixMarket matrix array real general\n2 1\n1\n2\n");

    let run = folder.run(&["solve", "s.mtx", "--solver", "lu", "--rhs", "b.mtx", "--json"]);

    assert_eq!(run.code, 3, "{run:?}");
    assert_eq!(run.json()["status"], serde_json::json!({"Singular": 1}));
    assert_eq!(run.json()["max_relative_residual"], Value::Null);
}

#[test]
fn a_zero_right_hand_side_needs_no_iterations() {
    let folder = Folder::new();
    folder.file("p.batch", diagonal_batch(&[([2.0, 4.0], [0.0, 0.0])]));

    let run = folder.run(&["solve", "p.batch", "--json", "-v"]);

    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(run.json()["iterations"]["max"], 0);
    assert_eq!(run.json()["items"][0]["relative_residual"], 0.0);
}

#[test]
fn copies_are_solved_and_perturbed_reproducibly() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    let solved = |output: &str, extra: &[&str]| {
        let args = ["solve", "a.mtx", "--json", "--replicate", "5", "--output", output];
        let run = folder.run(&[&args, extra].concat());
        assert_eq!(run.json()["systems"], 5, "{run:?}");
        read_npz_array(folder.path().join(output), "x").unwrap()
    };

    let plain = solved("a.npz", &[]);
    let perturbed = solved("b.npz", &["--perturb", "1e-3:7"]);
    let again = solved("c.npz", &["--perturb", "1e-3:7"]);

    assert!(plain.chunks(3).all(|x| x == &plain[..3]));
    assert_ne!(perturbed[..3], perturbed[3..6]);
    assert_eq!(perturbed, again);
    assert!(perturbed.iter().zip(&plain).all(|(p, x)| (p - x).abs() < 1e-2));
}

#[test]
fn f32_and_one_thread_and_plans_solve_too() {
    let options: [&[&str]; 5] = [
        &["--precision", "f32", "--rtol", "1e-4"],
        &["--threads", "1"],
        &["--kernel", "rows"],
        &["--format", "ell"],
        &["--kernel", "fused", "--backend", "cpu"],
    ];
    for extra in options {
        let run = run(&[&["solve", ALPHA13, "--solver", "bicgstab", "--json"], extra].concat());
        assert_eq!(run.code, 0, "{extra:?}: {run:?}");
        assert_eq!(run.json()["converged"], 48, "{extra:?}");
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let folder = Folder::new();
    let data = root().join(ALPHA13);
    let solved = |threads: &str| {
        let args = ["solve", data.to_str().unwrap(), "--threads", threads, "--output", "x.npz"];
        assert_eq!(folder.run(&args).code, 0);
        std::fs::read(folder.path().join("x.npz")).unwrap()
    };

    assert_eq!(solved("1"), solved("3"));
}

#[test]
fn a_memory_limit_is_checked_and_concerns_the_gpu_alone() {
    for size in ["0", "8GB", "0.1", "lots"] {
        let refused = run(&["solve", ALPHA13, "--gpu-memory", size]);
        refused.assert_bad_input(&["--gpu-memory", "expected a size such as 8GiB"]);
    }
    let run = run(&["solve", ALPHA13, "--backend", "cpu", "--gpu-memory", "1KiB", "--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let rungs = run.json()["runs"].clone();
    assert_eq!((&rungs[0]["device_bytes"], &rungs[0]["chunks"]), (&0.into(), &1.into()));
}

#[test]
fn the_cpu_solves_where_it_is_asked_for() {
    let run = run(&["solve", ALPHA13, "--backend", "cpu", "--json"]);

    let json = run.json();
    assert_eq!((run.code, &json["backend"]), (0, &"cpu".into()), "{run:?}");
    assert_eq!(json["backend_reason"], "asked for");
    assert_eq!(
        (&json["runs"][0]["chunks"], &json["runs"][0]["cpu_reason"]),
        (&1.into(), &Value::Null)
    );
}

#[test]
fn composed_products_report_their_cost() {
    let run = run(&["solve", ALPHA13, "--kernel", "csr-i", "--solver", "bicgstab", "--json"]);

    let cost = &run.json()["product_cost"];
    assert!(cost["products"].as_u64().unwrap() > 0, "{run:?}");
    assert!(cost["share_of_solve"].as_f64().unwrap() <= 1.0);
}

#[test]
fn the_ladder_solves_what_the_first_rung_does_not() {
    let args = ["solve", "examples/data/ragged", "--max-iters", "1", "--fallback", "--json"];
    let run = run(&args);

    assert_eq!(run.code, 0, "{run:?}");
    let rungs = run.json()["rungs"].as_object().unwrap().clone();
    assert!(rungs.keys().any(|rung| rung != "first"), "{rungs:?}");
    let json = run.json();
    let runs = json["runs"].as_array().unwrap();
    assert!(runs.len() > 1 && runs[0]["rung"] == "first", "{runs:?}");
    for later in &runs[1..] {
        assert!(later["systems"].as_u64().unwrap() < json["systems"].as_u64().unwrap() + 1);
        assert!(later["kernel"].is_string() && later["backend"].is_string(), "{later}");
    }
}

#[test]
fn plans_are_pinned_to_what_another_run_exported() {
    let folder = Folder::new();
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let batch = root().join(ALPHA13);
    let solve = ["solve", "--backend", "cpu", batch.to_str().unwrap(), "-q"];
    let first = ["--output", "a.npz", "--export-plan", "plan.txt"];

    let exported = folder.run(&[&solve[..], &first].concat());
    let pinned = ["--output", "b.npz", "--pin-plan", "plan.txt"];
    let pinned = folder.run(&[&solve[..], &pinned].concat());

    assert_eq!((exported.code, pinned.code), (0, 0), "{exported:?} {pinned:?}");
    assert_eq!(read("a.npz"), read("b.npz"));
    let text = String::from_utf8(read("plan.txt")).unwrap();
    assert!(text.starts_with("sparsebatch plan 1\nversion "), "{text}");
}

#[test]
fn pins_that_cannot_be_kept_end_the_command() {
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    let version = env!("CARGO_PKG_VERSION");
    let gpu = "gpu capability=9.0 multiprocessors=132 block_threads=1024 \
               multiprocessor_threads=2048 block_shared_bytes=232448 \
               multiprocessor_shared_bytes=233472 l2_bytes=62914560\n";
    let of = |version: &str, rest: &str| format!("sparsebatch plan 1\nversion {version}\n{rest}");
    let own = sparsebatch::cpu_instruction_sets().pop().unwrap();
    for (text, expected) in [
        ("something else".to_owned(), "first line is `sparsebatch plan 1`"),
        (of("0.0.1", "cpu avx512\n"), "pinned to version 0.0.1"),
        (of(version, "cpu none\n"), "pinned to instructions none"),
        (of(version, &format!("cpu {own}\n{gpu}")), "pinned to backend GPU, here it is CPU"),
    ] {
        folder.file("plan.txt", &text);
        let run = folder.run(&["solve", "--backend", "cpu", "a.mtx", "--pin-plan", "plan.txt"]);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains("--pin-plan plan.txt: "), "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?}");
    }
    let absent = folder.run(&["solve", "a.mtx", "--pin-plan", "absent.txt"]);
    assert_eq!(absent.code, 2, "{absent:?}");
    let over = ["--pin-plan", "plan.txt", "--export-plan", "plan.txt"];
    let over = folder.run(&[&["solve", "a.mtx"][..], &over].concat());
    assert!(over.code == 2 && over.stderr.contains("is also --pin-plan"), "{over:?}");
}
