//! The suite `solvers` on the CPU, and its rows compared.

use std::path::Path;

use serde_json::json;
use sparsebatch_bench::suites::solvers::{Backend, Precision};
use sparsebatch_bench::{Outcome, Solvers, solvers};
use sparsebatch_formats::generate::{Family, MIX, Problem, rng};
use sparsebatch_formats::io::write_batch;
use sparsebatch_rows::solves::summary::{compare, mix_ratios, ratios};
use sparsebatch_rows::{Row, table};
use sparsebatch_solvers::{Method, Preconditioner};

const HEADER: &str = "suite,problem,n,nnz,batch,precision,operation,preconditioner,peer,\
                      configuration,median_ms,mean_iterations,max_iterations,\
                      max_true_relative_residual";

/// A row of a solve on a GPU, of 1,000 systems that are all solved.
fn ours(case: &str, method: &str, preconditioner: &str, median_ms: f64, wall_ms: f64) -> Row {
    let row = json!({
        "schema": 1, "suite": "solvers", "case": case, "library": "sparsebatch",
        "configuration": "kernel", "automatic": true, "backend": "gpu", "operation": method,
        "preconditioner": preconditioner, "precision": "f64", "batch": 1000, "nnz": 1, "rows": 1,
        "median_ms": median_ms, "min_ms": median_ms, "max_ms": median_ms, "wall_ms": wall_ms,
        "timing": "events", "converged": 1000, "machine": { "device": "a GPU" }, "run": "r",
        "date": "d", "commit": "c"
    });
    serde_json::from_value(row).unwrap()
}

/// A recorded row beside them.
fn recorded(case: &str, method: &str, preconditioner: &str, median_ms: f64) -> Row {
    let mut row = ours(case, method, preconditioner, median_ms, median_ms);
    (row.library, row.automatic) = ("Ginkgo".to_owned(), false);
    (row.backend, row.wall_ms, row.converged) = (None, None, None);
    row.timing = "recorded".to_owned();
    row.max_relative_residual = Some(1e-11);
    row.machine.device = Some("recorded elsewhere".to_owned());
    row
}

#[test]
fn each_side_has_its_better_preconditioner_and_whole_calls_are_compared() {
    let rows = [
        ours("tri 32", "cg", "none", 0.8, 1.2),
        ours("tri 32", "cg", "jacobi", 0.7, 1.0),
        ours("tri 32", "cg", "ic0", 0.1, 0.2),
        recorded("tri 32", "cg", "none", 4.0),
        recorded("tri 32", "cg", "jacobi", 5.0),
        recorded("tri 32", "cg", "ic0", 1.0),
        recorded("tri 32", "bicgstab", "none", 2.0),
    ];

    let cases = compare(&rows);

    assert_eq!(cases.len(), 2);
    assert_eq!(cases[0].ours.unwrap().preconditioner.as_deref(), Some("jacobi"));
    assert_eq!(cases[0].recorded.unwrap().preconditioner.as_deref(), Some("none"));
    assert_eq!(cases[0].ratio(), Some(4.0));
    assert_eq!((cases[1].name().as_str(), cases[1].ratio()), ("tri 32 x 1000 cg ic0", Some(5.0)));
}

#[test]
fn solves_that_leave_systems_are_not_counted() {
    let mut rows = vec![
        ours("mid57", "bicgstab", "none", 0.1, 0.1),
        ours("mid57", "bicgstab", "jacobi", 0.5, 0.5),
        recorded("mid57", "bicgstab", "none", 1.0),
        recorded("mid57", "bicgstab", "jacobi", 3.0),
    ];
    rows[0].converged = Some(999);
    rows[2].max_relative_residual = Some(1e300);

    assert_eq!(compare(&rows)[0].ratio(), Some(6.0));
    rows[1].converged = Some(0);
    let cases = compare(&rows);
    assert!(cases[0].ours.is_none() && cases[0].ratio().is_none());
    assert!(ratios(&cases, |_| true).is_none());
}

#[test]
fn the_automatic_choice_is_held_against_every_method() {
    let mut lu = recorded("mid57", "lu", "none", 2.0);
    lu.preconditioner = None;
    let mut peer = ours("mid57", "lu", "none", 0.9, 0.9);
    (peer.library, peer.backend) = ("cuBLAS".to_owned(), None);
    let mut cpu = ours("mid57", "auto", "auto", 7.0, 7.0);
    cpu.backend = Some("cpu".to_owned());
    let bicgstab = recorded("mid57", "bicgstab", "none", 3.0);
    let rows = [ours("mid57", "auto", "auto", 0.5, 0.5), cpu, lu, bicgstab, peer];

    let cases = compare(&rows);

    assert_eq!(cases.len(), 1);
    assert_eq!(cases[0].recorded.unwrap().operation, "lu");
    assert_eq!(cases[0].ratio(), Some(4.0));
    assert_eq!(cases[0].cpu.unwrap().median_ms, 7.0);
    assert_eq!(cases[0].peer.unwrap().library, "cuBLAS");
}

#[test]
fn shapes_that_are_asked_for_are_shown_apart() {
    let mut rows = vec![
        ours("tri 32", "cg", "none", 1.0, 1.0),
        ours("tri 32", "cg", "none", 0.8, 0.8),
        ours("tri 32", "cg", "none", 0.5, 0.5),
        recorded("tri 32", "cg", "none", 4.0),
    ];
    for (row, name) in rows[1..3].iter_mut().zip(["cg(8x4)", "cg(16x2)"]) {
        (row.automatic, row.configuration) = (false, name.to_owned());
    }

    let cases = compare(&rows);

    assert_eq!((cases.len(), cases[0].ratio()), (1, Some(4.0)));
    assert_eq!(cases[0].shape.unwrap().configuration, "cg(16x2)");
    let text = table::render(&rows);
    let line = "tri 32 x 1000 cg: best shape cg(16x2) none 0.5000 ms, by itself kernel none \
                1.0000 ms, regret 100.0 %";
    assert!(text.contains(line), "{text}");
}

#[test]
fn ratios_have_their_mean_and_their_worst() {
    let mut rows = vec![
        ours("tri 32", "cg", "none", 0.5, 1.0),
        recorded("tri 32", "cg", "none", 2.0),
        ours("tri 64", "cg", "none", 1.0, 1.0),
        recorded("tri 64", "cg", "none", 8.0),
        ours("tri 64", "bicgstab", "none", 1.0, 1.0),
    ];
    let found = ratios(&compare(&rows), |row| row.operation == "cg").unwrap();

    assert_eq!((found.count, found.worst), (2, ("tri 32 x 1000 cg".to_owned(), 2.0)));
    assert!((found.geomean - 4.0).abs() < 1e-12);
    assert!((found.device_geomean - 32f64.sqrt()).abs() < 1e-12);
    rows.iter_mut().for_each(|row| row.batch = 20_000);
    rows.iter_mut()
        .filter(|row| row.converged.is_some())
        .for_each(|row| row.converged = Some(20_000));
    let text = table::render(&rows);
    let expected = "f64, batches of 10,000 and more, 2 cases, recorded over ours: geomean 4.00 x";
    assert!(text.contains(expected), "{text}");
    assert!(!text.contains("smaller batches"), "{text}");
}

#[test]
fn mixes_are_held_against_their_families() {
    let mut rows = vec![ours("mix_spd", "cg", "none", 6.0, 6.0)];
    (rows[0].batch, rows[0].converged) = (2, Some(2));
    let ratio = |rows: &[Row]| {
        let cases = compare(rows);
        let ratios = mix_ratios(&cases, &cases[0]).into_iter().map(|(_, ratio)| ratio);
        ratios.collect::<Vec<_>>()
    };
    let of = |item| MIX[(rng::mix(rng::key(99, item)) % 8) as usize];
    let name = |(family, nrows): (Family, usize)| format!("{} {nrows}", family.name());
    assert_ne!(of(0), of(1));

    assert_eq!(ratio(&rows)[0].as_ref().unwrap_err().len(), 2);
    for (item, ms) in [(0, 1000.0), (1, 3000.0)] {
        rows.push(ours(&name(of(item)), "cg", "none", ms, ms));
        rows.push(ours(&name(of(item)), "bicgstab", "none", 1.0, 1.0));
    }
    // 6 ms beside 1 x 1 ms + 1 x 3 ms.
    assert_eq!(ratio(&rows), [Ok(1.5)]);
    // The largest batch is what counts.
    let mut larger = ours(&name(of(0)), "cg", "none", 18_000.0, 1.0);
    (larger.batch, larger.converged) = (2000, Some(2000));
    rows.push(larger);
    assert_eq!(ratio(&rows), [Ok(0.5)]);
    // Each preconditioner and inner precision is compared with the same one of the family, or with
    // f64 where the family has no iterations in f32.
    for item in [0, 1] {
        rows.push(ours(&name(of(item)), "cg", "jacobi", 5.0, 5.0));
    }
    let mut single = rows[0].clone();
    single.configuration = "cg(16 threads x 2 rows, registers, f32 inner)".to_owned();
    single.median_ms = 3.0;
    rows.push(single.clone());
    assert_eq!(ratio(&rows), [Ok(0.5), Ok(0.25)]);
    single.case = name(of(1));
    single.median_ms = 500.0;
    (single.batch, single.converged) = (1000, Some(1000));
    rows.push(single);
    let found = ratio(&rows);
    assert_eq!(found, [Ok(0.5), Ok(3.0 / (9.0 + 0.5))]);
    let text = table::render(&rows);
    for line in ["cg none: 0.500 x", "cg none, iterations in f32: 0.316 x"] {
        let line = format!("mix_spd x 2 {line} the sum over its families");
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn tables_show_the_newest_run_and_its_machine() {
    let mut rows = vec![
        ours("tri 32", "cg", "none", 1.0, 2.0),
        recorded("tri 32", "cg", "none", 4.0),
        ours("tri 32", "cg", "none", 0.5, 0.5),
    ];
    (rows[2].run, rows[2].date) = ("later".to_owned(), "e".to_owned());

    // A run beside recorded figures tells more than a later one without.
    let text = table::render(&rows);

    assert!(text.starts_with("## solvers\n\na GPU, measured d, commit c.\n"), "{text}");
    let line = "| tri 32 | 1000 | cg | kernel none | 1.0000 | 2.0000 | - | Ginkgo none | 4.0000 | \
                2.00 | - | - |";
    assert!(text.contains(line), "{text}");
    assert_eq!(text.matches("| tri 32 |").count(), 1, "{text}");
    assert_eq!(text.matches("## ").count(), 1, "{text}");
}

fn run(options: &Solvers) -> (Outcome, String) {
    let mut report = Vec::new();
    let outcome = solvers(options, &mut report).unwrap();
    (outcome, String::from_utf8(report).unwrap())
}

/// Options of a suite in `folder`, with a set of small systems and figures recorded elsewhere.
fn with_sets_and_references(folder: &Path) -> Solvers {
    let sets = folder.join("sets");
    std::fs::create_dir(&sets).unwrap();
    let made = Problem::new(Family::Rand9, 20).unwrap().batch(3).unwrap();
    write_batch(sets.join("small.batch"), &made.batch, &made.rhs).unwrap();
    let reference = folder.join("other.csv");
    let lines = "solvers,tri,32,94,10,f64,cg,none,Ginkgo,ell,5.5,30,32,9.9e-11\n\
                 solvers,tri,32,94,10,f64,bicgstab,none,Ginkgo,ell,6.5,30,32,9.9e-11\n\
                 solvers,tri,32,94,11,f64,cg,none,Ginkgo,ell,5.5,30,32,9.9e-11\n\
                 files,small,20,180,10,f64,direct,-,cuDSS,refactor,1.5,,,1e-12\n";
    std::fs::write(&reference, format!("{HEADER}\n{lines}")).unwrap();
    Solvers {
        cases: ["tri 32", "mix_spd", "small"].map(str::to_owned).to_vec(),
        batches: vec![10],
        methods: vec![Method::Cg, Method::Auto],
        preconditioners: vec![Preconditioner::Jacobi],
        sets: vec![sets],
        backend: Some(Backend::Cpu),
        reference: Some(reference),
        output: Some(folder.join("rows.jsonl")),
        ..Solvers::default()
    }
}

#[test]
fn the_cpu_solves_families_mixes_and_sets() {
    let folder = tempfile::tempdir().unwrap();
    let options = with_sets_and_references(folder.path());

    let (outcome, report) = run(&options);

    let gaps: Vec<&str> = outcome.gaps.iter().map(|gap| &*gap.library).collect();
    assert_eq!(gaps, ["sparsebatch", "cuBLAS"], "what needs a GPU");
    let names: Vec<String> = outcome
        .rows
        .iter()
        .map(|row| format!("{} {} {} {}", row.case, row.operation, row.library, row.timing))
        .collect();
    let expected = [
        "tri 32 cg sparsebatch wall",
        "tri 32 auto sparsebatch wall",
        "tri 32 cg Ginkgo recorded",
        "mix_spd cg sparsebatch wall",
        "mix_spd auto sparsebatch wall",
        "small auto sparsebatch wall",
        "small lu cuDSS recorded",
    ];
    assert_eq!(names, expected);
    let tri = &outcome.rows[0];
    assert_eq!((tri.batch, tri.n, tri.nnz, tri.rows, tri.converged), (10, 32, 94, 320, Some(10)));
    assert_eq!(
        (tri.backend.as_deref(), tri.preconditioner.as_deref()),
        (Some("cpu"), Some("jacobi"))
    );
    assert!(tri.max_relative_residual.unwrap() <= 1.01e-10);
    assert!(tri.mean_iterations.unwrap() > 10.0 && tri.median_ms > 0.0);
    // Totals of a ragged batch.
    assert_eq!(outcome.rows[3].n, outcome.rows[3].rows);
    assert_eq!(outcome.rows[2].machine.device.as_deref(), Some("recorded in other.csv"));
    assert!(report.contains("recorded: ell"), "{report}");
    assert!(report.contains("no sum over its families, not measured: "), "{report}");
    let output = options.output.as_ref().unwrap();
    let lines: Vec<String> =
        outcome.rows.iter().map(|row| serde_json::to_string(row).unwrap() + "\n").collect();
    assert!(std::fs::read_to_string(output).unwrap().starts_with(&lines.concat()));
    let file = sparsebatch_rows::read(output).unwrap();
    assert_eq!(file.gaps, outcome.gaps);
    let text = table(&[file]);
    assert!(text.contains("| small | 10 | auto | cpu lu"), "{text}");
    let (sets, _) =
        run(&Solvers { cases: Vec::new(), no_generated: true, output: None, ..options });
    assert!(sets.rows.iter().all(|row| row.case == "small") && sets.rows.len() == 2);
}

#[test]
fn single_precision_is_solved_to_its_own_tolerance() {
    let options = Solvers {
        cases: vec!["rand9 54".to_owned()],
        batches: vec![5, 12],
        precision: Precision::F32,
        backend: Some(Backend::Cpu),
        ..Solvers::default()
    };

    let (outcome, _) = run(&options);

    let found: Vec<_> =
        outcome.rows.iter().map(|row| (row.batch, row.converged, &*row.precision)).collect();
    let (five, twelve) = ((5, Some(5), "f32"), (12, Some(12), "f32"));
    assert_eq!(found, [five, five, twelve, twelve]);
    let residual = outcome.rows[0].max_relative_residual.unwrap();
    assert!(residual > 1e-10 && residual < 1e-4, "{residual}");
}
