//! `sparsebatch bench` without a GPU: what it measures and refuses, and tables of rows measured
//! elsewhere.

use crate::common::{Folder, SPD, run};
use serde_json::Value;

const ROWS: &str = "crates/rows/tests/data/rows.jsonl";

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
    solvers("--case", "lap2d 33")
        .assert_bad_input(&["--case is lap2d 33, expected one of tri, tri 32"]);
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
    chunks("--chunk", "0.1").assert_bad_input(&["--chunk"]);
    chunks("--at-once", "0").assert_bad_input(&["--at-once", "1..=16"]);
    chunks("--backend", "cpu").assert_bad_input(&["--backend is cpu, expected gpu"]);
    chunks("--case", "lap2d 33").assert_bad_input(&["--case is lap2d 33"]);
    run(&["bench", "solvers", "--experiment", "gpus", "--gpus", "1,1"])
        .assert_bad_input(&["--gpus", "found 1 twice"]);
    run(&["bench", "solvers", "--experiment", "gpus", "--backend", "cpu"])
        .assert_bad_input(&["gpu with --experiment gpus"]);
    run(&["bench", "solvers", "--gpus", "all"]).assert_bad_input(&["--experiment"]);
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
    // The solvers of the GPU and cuBLAS.
    assert!(done.stdout.contains("2 rows, 2 not measured, 0 faults"), "{}", done.stdout);
    let table = folder.run(&["bench", "table", "rows.jsonl"]);
    assert!(table.stdout.contains("| tri 32 | 20 | cg | cpu cg, "), "{}", table.stdout);
    let object: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let row = &object["rows"][0];
    assert_eq!((&row["operation"], &row["converged"]), (&"lu".into(), &20.into()));
    assert_eq!((&row["n"], &row["backend"]), (&32.into(), &"cpu".into()));
}

#[test]
fn folders_of_matrices_are_checked() {
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
fn a_gpu_that_is_asked_for_and_absent_is_one_line_and_nothing_is_written() {
    if sparsebatch_cuda::device::availability().is_ok() {
        println!("skipped: there is a GPU");
        return;
    }
    let folder = Folder::new();
    let suites = ["single", "flexible-batch", "solvers", "throughput", "sell-p", "row-kernels"];
    for suite in suites {
        for backend in ["gpu", "both"] {
            let args = ["bench", suite, "--size", "small", "--backend", backend];

            let refused = folder.run(&[&args[..], &["--output", "rows.jsonl"]].concat());

            refused.assert_bad_input(&["bench needs a GPU: "]);
        }
    }
    folder
        .run(&["bench", "solvers", "--experiment", "chunks"])
        .assert_bad_input(&["bench needs a GPU: "]);
    run(&["bench", "single", "--backend", "tpu"]).assert_bad_input(&["tpu", "gpu, cpu, both"]);
    assert!(folder.names().is_empty());
}

/// The lines of a file of rows: rows, and gaps.
fn lines(folder: &Folder, name: &str) -> [Vec<Value>; 2] {
    let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let (gaps, rows) = lines.partition(|line: &Value| line.get("gap").is_some());
    [rows, gaps]
}

/// Asserts that a row has what every row of a suite has.
fn assert_row(row: &Value) {
    let text = ["suite", "case", "library", "configuration", "operation", "precision", "run"];
    assert!(text.iter().chain(&["date", "commit"]).all(|field| row[field].is_string()), "{row}");
    let numbers = ["schema", "batch", "n", "nnz", "rows", "columns", "median_ms", "min_ms"];
    assert!(numbers.iter().chain(&["max_ms"]).all(|field| row[field].is_number()), "{row}");
    let may_be_null = ["preconditioner", "share_of_copy", "bytes_moved", "gflops", "converged"];
    let more = ["mean_iterations", "max_relative_residual"];
    assert!(may_be_null.iter().chain(&more).all(|field| row.get(field).is_some()), "{row}");
    let machine = &row["machine"];
    assert!(machine["device"].is_string() && machine["cores"].as_u64() > Some(0), "{row}");
    assert!(machine["copy_gb_per_s"].as_f64() > Some(0.0), "{row}");
    assert!(machine["copy_gb_per_s_end"].as_f64() > Some(0.0), "{row}");
    let times = ["min_ms", "median_ms", "max_ms"].map(|field| row[field].as_f64().unwrap());
    assert!(times[0] > 0.0 && times[0] <= times[1] && times[1] <= times[2], "{row}");
}

#[test]
fn products_of_batches_are_measured_on_the_cpu() {
    let folder = Folder::new();
    let suite = ["bench", "flexible-batch", "--size", "small", "--backend", "cpu", "--items", "40"];
    let cases = ["--case", "hetero_generated_all", "--case", "tri 32", "--output", "rows.jsonl"];

    let done = folder.run(&[&suite[..], &cases].concat());

    assert_eq!(done.code, 0, "{}", done.stderr);
    let [rows, gaps] = lines(&folder, "rows.jsonl");
    rows.iter().for_each(assert_row);
    assert!(rows.iter().all(|row| row["backend"] == "cpu" && row["batch"] == 40));
    // Ours, and three crates in two loops and on the block-diagonal matrix, on two cases.
    assert_eq!(rows.len(), 2 * (1 + 3 * 3));
    let ours: Vec<&Value> = rows.iter().filter(|row| row["library"] == "sparsebatch").collect();
    assert!(ours.iter().all(|row| row["automatic"] == true && row["plan_ms"].is_number()));
    for library in ["sprs", "faer", "nalgebra-sparse"] {
        for configuration in ["loop csr", "loop csr, all threads", "block-diagonal csr"] {
            let of =
                |row: &&Value| row["library"] == library && row["configuration"] == configuration;
            assert_eq!(rows.iter().filter(of).count(), 2, "{library} {configuration}");
        }
    }
    let gaps: Vec<&Value> = gaps.iter().map(|line| &line["gap"]).collect();
    let named = |library: &str| gaps.iter().find(|gap| gap["library"] == library).unwrap();
    assert_eq!(named("cuSPARSE")["reason"], "left out by --backend cpu");
    assert_eq!(named("sparsebatch")["configuration"], "all kernels of the GPU");
    assert!(named("SuiteSparse collection")["reason"].as_str().unwrap().contains("G45"));
    let page = folder.run(&["report", "rows.jsonl", "-o", "page.html"]);
    assert_eq!(page.code, 0, "{}", page.stderr);
    let html = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(html.contains("left out by --backend cpu") && html.contains("hetero_generated_all"));
    let same = folder.run(&["compare", "rows.jsonl", "rows.jsonl", "--json"]);
    assert_eq!((same.code, &same.json()["matched"]), (0, &20.into()));
    let table = folder.run(&["bench", "table", "rows.jsonl"]);
    assert!(table.stdout.contains("| tri 32 | cpu-auto |"), "{}", table.stdout);
}

#[test]
fn products_of_single_matrices_are_measured_on_the_cpu() {
    let folder = Folder::new();
    let suite = ["bench", "single", "--size", "small", "--backend", "cpu", "--case", "pareto 4"];

    let done = folder.run(&[&suite[..], &["--output", "rows.jsonl"]].concat());
    let named = folder
        .run(&[&suite[..], &["--kernel", "cpu-csr,csr-vector", "--no-peer", "--json"]].concat());

    assert_eq!(done.code, 0, "{}", done.stderr);
    let [rows, gaps] = lines(&folder, "rows.jsonl");
    rows.iter().for_each(assert_row);
    let configurations: Vec<&str> =
        rows.iter().map(|row| row["configuration"].as_str().unwrap()).collect();
    for name in ["cpu-auto", "cpu-csr", "cpu-csr-i", "cpu-coo", "cpu-hyb", "cpu-sellp", "csr"] {
        assert!(configurations.contains(&name), "{name} in {configurations:?}");
    }
    let refused = gaps.iter().filter(|line| line["gap"]["configuration"] == "cpu-dia");
    assert!(refused.clone().all(|line| line["gap"]["is_fault"] == false));
    assert_eq!(refused.count(), 1);
    let named = named.json();
    assert_eq!(named["rows"].as_array().unwrap().len(), 1);
    let gaps = named["gaps"].as_array().unwrap();
    assert!(gaps.iter().any(|gap| gap["configuration"] == "csr-vector"), "{gaps:?}");
}

/// Rows by library and precision.
fn count(rows: &[Value], library: &str, precision: &str) -> usize {
    let of = |row: &&Value| row["library"] == library && row["precision"] == precision;
    rows.iter().filter(of).count()
}

/// The reason of a gap, by library and configuration.
fn reason<'a>(gaps: &'a [Value], library: &str, configuration: &str) -> &'a str {
    let gaps = gaps.iter().map(|line| &line["gap"]);
    let found = gaps
        .clone()
        .find(|gap| gap["library"] == library && gap["configuration"] == configuration)
        .unwrap_or_else(|| panic!("{library} {configuration} in {:?}", gaps.collect::<Vec<_>>()));
    found["reason"].as_str().unwrap()
}

#[test]
fn throughput_is_measured_on_the_cpu_in_both_precisions() {
    let folder = Folder::new();
    let suite = ["bench", "throughput", "--size", "small", "--backend", "cpu"];
    let cases = ["--case", "stride 8", "--case", "laplace 5-point 300x300"];
    let output = ["--output", "rows.jsonl"];

    let done = folder.run(&[&suite[..], &cases, &output].concat());

    assert_eq!(done.code, 0, "{}", done.stderr);
    let [rows, gaps] = lines(&folder, "rows.jsonl");
    rows.iter().for_each(assert_row);
    // Two beginnings on one thread and on all; the sequential product and eight kernels.
    for precision in ["f64", "f32"] {
        assert_eq!(count(&rows, "sparsebatch", precision), 2 * 2 + 1 + 8, "{precision}");
    }
    let experiment = |row: &Value| row["experiment"].as_str().unwrap().to_owned();
    assert!(rows.iter().all(|row| ["fig1", "fig11"].contains(&experiment(row).as_str())));
    for library in ["sprs", "faer", "nalgebra-sparse"] {
        assert_eq!((count(&rows, library, "f64"), count(&rows, library, "f32")), (1, 1));
    }
    for name in ["axpy unaligned", "csr-vector", "dia", "plain csr-vector, x not cached"] {
        assert_eq!(reason(&gaps, "sparsebatch", name), "left out by --backend cpu");
    }
    assert!(reason(&gaps, "sparsebatch", "cpu-csr, x not cached").contains("caches"));
    assert_eq!(reason(&gaps, "cuSPARSE", "all"), "left out by --backend cpu");
    let named = ["--case", "banded 4", "--kernel", "cpu-dia,ell", "--no-f32", "--no-peer"];
    let named = folder.run(&[&suite[..], &named, &["--json"]].concat()).json();
    assert_eq!(named["rows"].as_array().unwrap().len(), 1, "{named}");
    assert_eq!(named["rows"][0]["configuration"], "cpu-dia");
}

#[test]
fn one_matrix_and_batches_are_measured_in_the_precision_that_is_asked_for() {
    let folder = Folder::new();
    let on_cpu = ["--size", "small", "--backend", "cpu", "--output", "rows.jsonl"];
    let single = ["bench", "single", "--case", "banded 4", "--kernel", "cpu-csr"];
    let batch =
        ["bench", "flexible-batch", "--case", "balanced 8", "--items", "4", "--kernel", "cpu-csr"];
    for (suite, of_a_crate) in [(&single[..], 1), (&batch[..], 3)] {
        for (precision, other) in [("f32", "f64"), ("f64", "f32")] {
            let done = folder.run(&[suite, &on_cpu, &["--precision", precision]].concat());

            assert_eq!(done.code, 0, "{}", done.stderr);
            let [rows, _] = lines(&folder, "rows.jsonl");
            rows.iter().for_each(assert_row);
            for (library, expected) in [("sparsebatch", 1), ("faer", of_a_crate)] {
                let found = [precision, other].map(|precision| count(&rows, library, precision));
                assert_eq!(found, [expected, 0], "{library} {precision}");
            }
        }
    }
}

#[test]
fn shapes_of_sell_p_are_measured_on_the_cpu_with_their_padding() {
    let folder = Folder::new();
    let suite = ["bench", "sell-p", "--size", "small", "--backend", "cpu", "--case", "banded 16"];
    let shapes = ["--shape", "8x8,32x1x512", "--output", "rows.jsonl"];

    let done = folder.run(&[&suite[..], &shapes].concat());

    assert_eq!(done.code, 0, "{}", done.stderr);
    let [rows, gaps] = lines(&folder, "rows.jsonl");
    rows.iter().for_each(assert_row);
    // Two shapes on all threads and on one, the source's sequential, five other formats.
    for precision in ["f64", "f32"] {
        assert_eq!(count(&rows, "sparsebatch", precision), 2 * 2 + 1 + 5, "{precision}");
    }
    let named = |name: &str| rows.iter().filter(|row| row["configuration"] == name).count();
    for name in ["cpu-sell-p(8,8)", "cpu-sell-p(32,1,512), 1 thread", "cpu-seq-sell-p(8,8)"] {
        assert_eq!(named(name), 2, "{name}");
    }
    assert!(done.stdout.contains("slots an entry"), "{}", done.stdout);
    for name in ["sell-p(8,8)", "sell-p(32,1,512)", "hyb"] {
        assert_eq!(reason(&gaps, "sparsebatch", name), "left out by --backend cpu");
    }
    let page = folder.run(&["report", "rows.jsonl", "-o", "page.html"]);
    assert_eq!(page.code, 0, "{}", page.stderr);
}

#[test]
fn products_by_rows_are_measured_on_the_cpu_beside_other_crates() {
    let folder = Folder::new();
    folder.file("bad.mtx", "nothing");
    folder.file("spd.mtx", SPD);
    let suite = ["bench", "row-kernels", "--size", "small", "--backend", "cpu", "--matrices", "."];
    let cases = ["--case", "random 8 of 16384", "--case", "spd", "--case", "bad"];

    let done = folder.run(&[&suite[..], &cases, &["--output", "rows.jsonl"]].concat());

    assert_eq!(done.code, 0, "{}", done.stderr);
    let [rows, gaps] = lines(&folder, "rows.jsonl");
    rows.iter().for_each(assert_row);
    // The sequential product, and three kernels on all threads and on one; two matrices.
    for precision in ["f64", "f32"] {
        assert_eq!(count(&rows, "sparsebatch", precision), 2 * (1 + 3 * 2), "{precision}");
    }
    assert!(rows.iter().any(|row| row["configuration"] == "cpu-csr-i, 1 thread"));
    assert_eq!((count(&rows, "faer", "f64"), count(&rows, "faer", "f32")), (2, 2));
    for kernel in ["csr-scalar", "csr-unrolled", "csr-vector", "csr-tile", "auto"] {
        assert_eq!(reason(&gaps, "sparsebatch", kernel), "left out by --backend cpu");
    }
    let unread = gaps.iter().find(|line| line["gap"]["case"] == "bad").unwrap();
    assert_eq!(unread["gap"]["is_fault"], false);
    let few = ["--case", "spd", "--no-f32", "--no-peer", "--json"];
    let few = folder.run(&[&suite[..], &few].concat()).json();
    assert_eq!(few["rows"].as_array().unwrap().len(), 7);
    let usual = folder.run(&[&suite[..], &["--no-generated", "--json"]].concat()).json();
    let is_absent = |gap: &Value| gap["case"] == "cage14";
    assert!(usual["gaps"].as_array().unwrap().iter().any(is_absent));
    assert_eq!(usual["rows"].as_array().unwrap().len(), 0);
}

#[test]
fn the_suite_cpu_goes_through_threads_and_names_what_is_measured_apart() {
    let folder = Folder::new();
    folder.file("spd.mtx", SPD);
    let suite = ["bench", "cpu", "--size", "small", "--no-generated", "--matrices", "."];

    let done = folder.run(&[&suite[..], &["--threads", "1,2", "--output", "rows.jsonl"]].concat());

    assert_eq!(done.code, 0, "{}", done.stderr);
    let [rows, gaps] = lines(&folder, "rows.jsonl");
    rows.iter().for_each(assert_row);
    let of = |configuration: &str| {
        rows.iter().filter(|row| row["configuration"] == configuration).collect::<Vec<_>>()
    };
    assert_eq!(of("cpu-csr, 1 thread").len(), 1);
    assert_eq!(of("cpu-auto, 2 threads")[0]["automatic"], true);
    assert_eq!(of("cpu-auto, 1 thread")[0]["automatic"], false);
    assert_eq!(of("csr").len(), 3);
    let apart = |library: &str| {
        let of = |line: &&Value| line["gap"]["library"] == library;
        gaps.iter().find(of).unwrap()["gap"]["reason"].as_str().unwrap().to_owned()
    };
    for library in ["MKL", "Eigen", "SciPy"] {
        assert!(apart(library).contains("benches/peers/run.sh"));
    }
    folder.run(&suite[..5]).assert_bad_input(&["--matrices is none"]);
    run(&["bench", "cpu", "--backend", "gpu"]).assert_bad_input(&["--backend is gpu"]);
    run(&["bench", "cpu", "--threads", "0"]).assert_bad_input(&["--threads"]);
    run(&["bench", "cpu", "--kernel", "csr"]).assert_bad_input(&["one of cpu-auto, cpu-csr"]);
    run(&["bench", "cpu", "--case", "dense"]).assert_bad_input(&["--case is dense"]);
}

#[test]
fn gpu_vs_cpu_measures_the_cpu_and_names_the_gpu_and_mkl() {
    let folder = Folder::new();
    let suite = ["bench", "gpu-vs-cpu", "--size", "small", "--backend", "cpu", "--items", "30"];
    let cases = ["--case", "tri 32", "--case", "pareto 2", "--output", "rows.jsonl"];

    let done = folder.run(&[&suite[..], &cases].concat());

    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.contains("nothing was measured on both"), "{}", done.stdout);
    let [rows, gaps] = lines(&folder, "rows.jsonl");
    rows.iter().for_each(assert_row);
    let operations: Vec<&str> = rows.iter().map(|row| row["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, ["spmv", "spmv", "cg"]);
    assert_eq!((&rows[2]["converged"], &rows[2]["backend"]), (&30.into(), &"cpu".into()));
    let libraries: Vec<&str> =
        gaps.iter().map(|line| line["gap"]["library"].as_str().unwrap()).collect();
    assert!(libraries.contains(&"MKL") && libraries.contains(&"sparsebatch"), "{libraries:?}");
    run(&["bench", "gpu-vs-cpu", "--case", "tri 33"]).assert_bad_input(&["--case is tri 33"]);
    run(&["bench", "gpu-vs-cpu", "--items", "0"]).assert_bad_input(&["--items"]);
}

#[test]
fn one_matrix_is_measured_over_ranks_of_the_processor() {
    let folder = Folder::new();
    let suite = ["bench", "distributed", "--backend", "cpu", "--edge", "8", "--iterations", "5"];

    let done = folder.run(&[&suite[..], &["--output", "rows.jsonl"]].concat());

    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.contains("2 ranks, times as fast as one: "), "{}", done.stdout);
    let [rows, _] = lines(&folder, "rows.jsonl");
    rows.iter().for_each(assert_row);
    // One and two ranks: CG twice and pipelined, BiCGStab.
    for (operation, count) in [("spmv", 2), ("cg", 6), ("bicgstab", 2)] {
        let of = |row: &&Value| row["operation"] == operation;
        assert_eq!(rows.iter().filter(of).count(), count, "{operation}");
    }
    let distributed = |option: &str, value: &str| run(&["bench", "distributed", option, value]);
    distributed("--edge", "0").assert_bad_input(&["--edge is 0, expected 1 to 670"]);
    distributed("--case", "tri").assert_bad_input(&["--case is tri, expected --edge"]);
    distributed("--gpus", "0,0").assert_bad_input(&["expected each GPU once"]);
}

#[test]
fn scaling_fits_exponents_to_what_grows() {
    let folder = Folder::new();
    let suite = ["bench", "scaling", "--size", "small", "--backend", "cpu", "--most", "1100"];

    let done = folder.run(&[&suite[..], &["--output", "rows.jsonl"]].concat());

    assert_eq!(done.code, 0, "{}", done.stderr);
    let [rows, _] = lines(&folder, "rows.jsonl");
    rows.iter().for_each(assert_row);
    for (axis, points) in [("batch", 4), ("rows", 3), ("entries", 1)] {
        for operation in ["spmv", "cg"] {
            let of = |row: &&Value| row["experiment"] == axis && row["operation"] == operation;
            assert_eq!(rows.iter().filter(of).count(), points, "{axis} {operation}");
        }
    }
    let law = |axis: &str| done.stdout.lines().any(|line| line.starts_with(&format!("{axis} ")));
    assert!(law("batch") && law("rows") && law("entries"), "{}", done.stdout);
    let page = folder.run(&["report", "rows.jsonl", "-o", "page.html"]);
    assert_eq!(page.code, 0, "{}", page.stderr);
    let html = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(html.contains("Laws of growth"));
    let scaling = |option: &str, value: &str| run(&["bench", "scaling", option, value]);
    scaling("--experiment", "columns").assert_bad_input(&["columns", "batch, rows, entries"]);
    scaling("--case", "tri 32").assert_bad_input(&["--case is tri 32, expected one of tri"]);
    let none = ["bench", "scaling", "--case", "spd", "--experiment", "rows"];
    run(&none).assert_bad_input(&["--case is spd"]);
}

#[test]
fn energy_is_read_from_counters_or_is_a_gap() {
    let folder = Folder::new();
    let counters = folder.path().join("powercap/intel-rapl:0");
    std::fs::create_dir_all(&counters).unwrap();
    std::fs::write(counters.join("energy_uj"), "5000000\n").unwrap();
    std::fs::write(counters.join("max_energy_range_uj"), "262143328850\n").unwrap();
    let suite = ["bench", "energy", "--size", "small", "--backend", "cpu", "--items", "20"];
    let suite = [&suite[..], &["--case", "tri 128", "--output", "rows.jsonl"]].concat();

    let done = folder.run(&[&suite[..], &["--powercap", "powercap"]].concat());

    assert_eq!(done.code, 0, "{}", done.stderr);
    let [rows, _] = lines(&folder, "rows.jsonl");
    rows.iter().for_each(assert_row);
    assert_eq!(rows.len(), 2);
    // The counter stands still.
    assert!(rows.iter().all(|row| row["energy_j"] == 0.0), "{rows:?}");
    let none = folder.run(&[&suite[..], &["--powercap", "nowhere"]].concat());
    assert_eq!(none.code, 0, "{}", none.stderr);
    let [rows, gaps] = lines(&folder, "rows.jsonl");
    assert!(rows.is_empty());
    let rapl = gaps.iter().find(|line| line["gap"]["library"] == "RAPL").unwrap();
    assert!(rapl["gap"]["reason"].as_str().unwrap().contains("no intel-rapl counter in nowhere"));
    assert_eq!(reason(&gaps, "NVML", "energy of the GPU"), "left out by --backend cpu");
    let page = folder.run(&["report", "rows.jsonl", "-o", "page.html"]);
    assert_eq!(page.code, 0, "{}", page.stderr);
    let html = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(html.contains("no intel-rapl counter in nowhere"));
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
