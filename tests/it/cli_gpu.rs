//! Products and solves on a GPU, and what is said where there is none.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{ALPHA13, Folder, Run, SPD, diagonal_batch, root, run, run_with};
use serde_json::Value;
use sparsebatch::gpu::SingleKernel;
use sparsebatch::gpu::testing::{device_or_skip, devices_or_skip};
use sparsebatch::io::{read_npz_array, read_vector};
use sparsebatch_testing::shared_dir;

/// A driver that gives these answers, in a folder of its own.
struct FakeDriver {
    folder: Folder,
}

impl FakeDriver {
    /// `None`, after saying so, without a C compiler.
    fn new(version: u32, init: u32, gpus: u32) -> Option<Self> {
        let folder = Folder::new();
        let source = folder.file(
            "driver.c",
            format!(
                "int cuDriverGetVersion(int *version) {{ *version = {version}; return 0; }}\n\
                 int cuInit(unsigned flags) {{ return {init}; }}\n\
                 int cuDeviceGetCount(int *count) {{ *count = {gpus}; return 0; }}\n\
                 int cuGetErrorName(int e, const char **s) {{ *s = \"FAKE\"; return 0; }}\n\
                 int cuGetErrorString(int e, const char **s) {{ *s = \"fake\"; return 0; }}\n"
            ),
        );
        let library = folder.path().join("libcuda.so.1");
        let compiler = Command::new("cc")
            .args(["-shared", "-fPIC", "-w", "-o"])
            .args([&library, &source])
            .status();
        if !compiler.is_ok_and(|status| status.success()) {
            println!("skipped: no C compiler");
            return None;
        }
        std::fs::copy(&library, folder.path().join("libcuda.so")).unwrap();
        Some(Self { folder })
    }

    fn run(&self, args: &[&str]) -> Run {
        let variables = [
            ("LD_LIBRARY_PATH", self.folder.path()),
            ("SPARSEBATCH_NVRTC", Path::new("/no/libnvrtc.so")),
        ];
        run_with(&variables, args)
    }

    /// What `spmv`, `solve` and `doctor` say.
    fn assert_reason(&self, parts: &[&str]) {
        let holds = |value: &Value, part| value.as_str().unwrap().contains(part);
        for command in ["spmv", "solve"] {
            self.run(&[command, ALPHA13, "--backend", "gpu"])
                .assert_bad_input(&[&["--backend gpu: "], parts].concat());
            let auto = self.run(&[command, ALPHA13, "--json"]);
            assert_eq!(auto.code, 0, "{auto:?}");
            assert_eq!(auto.json()["backend"], "cpu");
            for part in parts {
                assert!(holds(&auto.json()["backend_reason"], part), "{part}: {auto:?}");
            }
        }
        let doctor = self.run(&["doctor", "--json"]);
        assert_eq!(doctor.code, 0, "{doctor:?}");
        for part in parts {
            assert!(holds(&doctor.json()["gpu"], part), "{part}: {doctor:?}");
        }
    }
}

#[test]
fn lists_of_gpus_that_are_not_there_are_bad_usage() {
    for (list, found) in [
        ("", "expected all, or numbers of GPUs such as 0,1, found \"\""),
        ("0;1", "found \"0;1\""),
        ("2,2", "expected each GPU once, found 2 twice"),
    ] {
        run(&["solve", ALPHA13, "--gpus", list]).assert_bad_input(&["--gpus", found]);
    }
    run(&["solve", ALPHA13, "--gpus", "0,1", "--backend", "cpu"])
        .assert_bad_input(&["--gpus asks for GPUs, expected --backend gpu, found cpu"]);
    if let Some(driver) = FakeDriver::new(13_000, 0, 2) {
        // The first GPU is opened first, and lacks a compiler.
        driver.run(&["solve", ALPHA13, "--gpus", "all"]).assert_bad_input(&["--gpus: NVRTC"]);
        driver
            .run(&["solve", ALPHA13, "--gpus", "7"])
            .assert_bad_input(&["--gpus: no GPU number 7, the driver shows 2"]);
    }
    if let Some(driver) = FakeDriver::new(13_000, 100, 0) {
        for list in ["0", "all"] {
            driver
                .run(&["solve", ALPHA13, "--gpus", list])
                .assert_bad_input(&["--gpus: no GPU number 0"]);
        }
    }
}

#[test]
fn several_gpus_are_in_the_report() {
    let Some(_) = devices_or_skip(2) else { return };
    let folder = Folder::new();
    generated(&folder, "tri --n 128 --batch 20000 t.batch");
    let solve = |gpus: &str, to: &str| {
        folder.run(&["solve", "t.batch", "--gpus", gpus, "--output", to, "--json"]).json()
    };
    let (one, two) = (solve("1", "one.npz"), solve("0,1", "two.npz"));
    assert_eq!(two["converged"], 20_000, "{two}");
    let gpus = two["runs"][0]["gpus"].as_array().unwrap();
    assert_eq!(gpus.iter().map(|gpu| gpu["systems"].as_u64().unwrap()).sum::<u64>(), 20_000);
    assert!(gpus.len() == 2 && gpus.iter().all(|gpu| gpu["lost"].is_null()), "{two}");
    assert_eq!(one["runs"][0]["gpus"].as_array().unwrap().len(), 0, "{one}");
    let bytes = |name| std::fs::read(folder.path().join(name)).unwrap();
    assert!(bytes("one.npz") == bytes("two.npz"), "other solutions");
}

#[test]
fn an_old_driver_is_named_with_what_is_needed() {
    let Some(driver) = FakeDriver::new(12_040, 0, 1) else { return };

    driver.assert_reason(&["supports CUDA 12.4, but 12.8 is needed", "update the driver"]);
}

#[test]
fn a_driver_without_a_gpu_is_told_from_none() {
    let Some(driver) = FakeDriver::new(13_000, 100, 0) else { return };

    driver.assert_reason(&["no GPU number 0", "CUDA_VISIBLE_DEVICES"]);
}

#[test]
fn a_missing_compiler_comes_with_what_to_install() {
    let Some(driver) = FakeDriver::new(13_000, 0, 1) else { return };

    driver.assert_reason(&["NVRTC", "/no/libnvrtc.so", "pip install nvidia-cuda-nvrtc"]);
    let json = driver.run(&["doctor", "--json"]).json();
    assert_eq!((&json["driver"]["cuda"], &json["driver"]["gpus"]), (&"13.0".into(), &1.into()));
    assert!(json["nvrtc"]["version"].is_null());
    assert!(json["nvrtc"]["problem"].as_str().unwrap().contains("pip install"));
}

#[test]
fn a_driver_that_fails_is_a_fault_when_a_gpu_was_asked_for() {
    let Some(driver) = FakeDriver::new(13_000, 999, 1) else { return };

    for command in ["spmv", "solve"] {
        let asked = driver.run(&[command, ALPHA13, "--backend", "gpu"]);
        let auto = driver.run(&[command, ALPHA13, "--json"]);

        assert_eq!((asked.code, asked.stdout.as_str()), (1, ""), "{asked:?}");
        assert!(asked.stderr.contains("cuInit failed with code 999"), "{asked:?}");
        assert_eq!(auto.code, 0, "{auto:?}");
        assert!(auto.json()["backend_reason"].as_str().unwrap().contains("cuInit"), "{auto:?}");
    }
}

#[test]
fn without_a_gpu_its_kernels_are_refused_with_the_reason() {
    let Some(driver) = FakeDriver::new(13_000, 100, 0) else { return };

    for kernel in ["batch-csr-i", "packed,batch-ell"] {
        driver.run(&["spmv", ALPHA13, "--kernel", kernel]).assert_bad_input(&[
            kernel,
            "runs on a GPU only",
            "no GPU number 0",
        ]);
    }
    run(&["spmv", ALPHA13, "--kernel", "packed", "--backend", "cpu"]).assert_bad_input(&[
        "packed",
        "GPU only",
        "asked for",
    ]);
    run(&["spmv", ALPHA13, "--kernel", "csr-smart", "--backend", "cpu"])
        .assert_bad_input(&["no kernel csr-smart", "rows"]);
}

#[test]
fn the_doctor_says_where_compiled_kernels_are_kept() {
    let kept = run_with(&[("SPARSEBATCH_CACHE", Path::new("/tmp/kernels"))], &["doctor", "--json"]);
    let off = run_with(&[("SPARSEBATCH_CACHE", Path::new("off"))], &["doctor", "--json"]);

    assert_eq!(kept.json()["cache"], "/tmp/kernels");
    assert_eq!(off.json()["cache"], "none: SPARSEBATCH_CACHE is off");
}

/// The rows of a run on the GPU, all of them correct or refused.
fn rows(folder: &Folder, args: &[&str]) -> Vec<Value> {
    let run = folder.run(&[&["spmv", "--backend", "gpu", "--json"], args].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let json = run.json();
    assert_eq!(json["backend"], "gpu");
    assert!(json["copy_gb_s"].as_f64().unwrap() > 0.0 && json["copy_bytes"].as_u64() > Some(0));
    let rows = json["kernels"].as_array().unwrap().clone();
    for row in rows.iter().filter(|row| row["refused"].is_null()) {
        assert_eq!(row["correct"], true, "{row}");
        for figure in [
            "median_ms",
            "min_ms",
            "max_ms",
            "gflops",
            "gb_s",
            "share_of_copy",
            "bytes_moved",
            "plan_ms",
            "plan_bytes",
            "plan_products",
        ] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure}: {row}");
        }
        assert!(row["compile_ms"].is_number() && row["padding"].is_u64(), "{row}");
        assert!(row["useful_bytes"].as_u64() <= row["bytes_moved"].as_u64(), "{row}");
        assert!(!row["explain"].as_str().unwrap().contains('\n'), "{row}");
    }
    rows
}

fn row<'a>(rows: &'a [Value], kernel: &str) -> &'a Value {
    rows.iter().find(|row| row["kernel"] == kernel).unwrap_or_else(|| panic!("{kernel}: {rows:?}"))
}

fn generated(folder: &Folder, words: &str) {
    let args: Vec<&str> = ["generate", "-q"].into_iter().chain(words.split(' ')).collect();
    assert_eq!(folder.run(&args).code, 0, "{words}");
}

#[test]
fn every_kernel_of_one_matrix_is_checked_and_timed() {
    let Some(_) = device_or_skip() else { return };
    let folder = Folder::new();
    generated(&folder, "laplace --stencil 5 --grid 300x200 l.mtx");
    for precision in ["f64", "f32"] {
        let rows = rows(&folder, &["l.mtx", "--kernel", "all", "--precision", precision]);

        assert_eq!(rows.len(), SingleKernel::ALL.len());
        assert!(rows.iter().all(|row| row["refused"].is_null() && row["repeatable"] == true));
        assert!(row(&rows, "dia")["padding"].as_u64() > Some(0));
        assert_eq!(row(&rows, "csr-scalar")["padding"], 0);
    }
    let chosen = rows(&folder, &["l.mtx"]);
    assert_eq!(chosen.len(), 1);
    assert!(!chosen[0]["why"].as_str().unwrap().is_empty());
    assert_eq!(rows(&folder, &["l.mtx", "--format", "hyb"])[0]["kernel"], "hyb");
    assert_eq!(rows(&folder, &["l.mtx", "--kernel", "csr-vector,packed"]).len(), 2);
}

#[test]
fn every_kernel_of_a_batch_is_checked_and_timed() {
    let Some(_) = device_or_skip() else { return };
    let folder = Folder::new();
    generated(&folder, "mix --batch 300 m.batch");
    generated(&folder, "rand9 --n 54 --batch 200 u.batch");
    folder.file("a.mtx", SPD);
    for input in [&["m.batch"][..], &["u.batch"], &["a.mtx", "--replicate", "50"]] {
        let rows = rows(&folder, &[input, &["--kernel", "all"]].concat());

        assert_eq!(rows.len(), 8);
        assert!(rows.iter().all(|row| row["refused"].is_null()), "{rows:?}");
        assert_eq!(row(&rows, "batch-coo")["repeatable"], false);
        assert_eq!(row(&rows, "packed")["repeatable"], true);
    }
    assert_eq!(rows(&folder, &["m.batch"])[0]["kernel"], "packed");
    let refused = folder.run(&["spmv", "m.batch", "--backend", "gpu", "--kernel", "csr-smart"]);
    refused.assert_bad_input(&["csr-smart multiplies one matrix", "packed"]);
}

#[test]
fn what_does_not_suit_the_gpu_is_a_row_among_all_and_an_error_by_name() {
    let Some(_) = device_or_skip() else { return };
    let folder = Folder::new();
    generated(&folder, "pareto --rows 20000 --min-len 2 p.npz");
    generated(&folder, "tri --n 70000 --batch 2 t.batch");
    let gpu = |args: &[&str]| folder.run(&[&["spmv", "--backend", "gpu"], args].concat());

    let scattered = rows(&folder, &["p.npz", "--kernel", "all"]);
    let large = rows(&folder, &["t.batch", "--kernel", "all"]);
    let chosen = rows(&folder, &["t.batch"]);

    assert!(row(&scattered, "dia")["refused"].as_str().unwrap().contains("limit"));
    assert!(row(&scattered, "csr-balanced")["refused"].is_null());
    // 70,000 rows have no room in shared memory: they are cut into pieces.
    assert!(row(&large, "packed")["refused"].is_null());
    assert!(row(&large, "batch-csr-i")["refused"].is_null());
    assert_eq!(chosen[0]["kernel"], "packed");
    gpu(&["p.npz", "--kernel", "dia"]).assert_bad_input(&["--kernel dia", "limit"]);
}

#[test]
fn products_of_the_gpu_are_written() {
    let Some(_) = device_or_skip() else { return };
    let folder = Folder::new();
    folder.file("a.mtx", SPD);
    folder.file("p.batch", diagonal_batch(&[([2.0, 4.0], [0.0; 2]), ([5.0, 1.0], [0.0; 2])]));
    let path = |name: &str| -> PathBuf { folder.path().join(name) };

    rows(&folder, &["a.mtx", "--x", "ones", "--output", "y.mtx"]);
    rows(&folder, &["p.batch", "--x", "ones", "--output", "y.npz", "--precision", "f32"]);

    assert_eq!(read_vector(path("y.mtx")).unwrap(), [3.0, 2.0, 3.0]);
    assert_eq!(read_npz_array(path("y.npz"), "y").unwrap(), [2.0, 4.0, 5.0, 1.0]);
}

#[test]
fn auto_takes_the_gpu_unless_only_the_cpu_has_the_kernel() {
    let Some(_) = device_or_skip() else { return };

    let auto = run(&["spmv", ALPHA13, "--json"]).json();
    let rows = run(&["spmv", ALPHA13, "--kernel", "rows", "--json"]).json();
    let text = run(&["spmv", ALPHA13, "--explain"]);

    assert_eq!((&auto["backend"], &rows["backend"]), (&"gpu".into(), &"cpu".into()));
    assert!(rows["backend_reason"].as_str().unwrap().contains("no kernel rows"));
    assert!(text.stdout.contains("gpu (there is a GPU)"), "{text:?}");
    assert!(
        text.stdout.contains("packed by packed: the packed product is the default"),
        "{text:?}"
    );
}

/// What `solve` with CG prints as JSON.
fn solved(folder: &Folder, backend: &str, args: &[&str]) -> Value {
    let cg = ["solve", "--solver", "cg", "--precond", "jacobi", "--json", "--backend", backend];
    let run = folder.run(&[&cg, args].concat());
    assert_eq!(run.code, 0, "{args:?}: {run:?}");
    run.json()
}

#[test]
fn solves_of_the_gpu_agree_with_those_of_the_cpu() {
    let Some(_) = device_or_skip() else { return };
    let folder = Folder::new();
    generated(&folder, "tri --n 32 --batch 300 t.batch");
    generated(&folder, "mix-spd --batch 200 m.batch");
    folder.file("a.mtx", SPD);
    for input in [&["t.batch"][..], &["m.batch"], &["a.mtx"], &["t.batch", "--precision", "f32"]] {
        let gpu = solved(&folder, "gpu", &[input, &["--output", "gpu.npz"]].concat());
        let cpu = solved(&folder, "cpu", &[input, &["--output", "cpu.npz"]].concat());

        assert_eq!((&gpu["backend"], &gpu["backend_reason"]), (&"gpu".into(), &"asked for".into()));
        assert_eq!((&gpu["status"], &gpu["rungs"]), (&cpu["status"], &cpu["rungs"]));
        let mean = |json: &Value| json["iterations"]["mean"].as_f64().unwrap();
        assert!((mean(&gpu) - mean(&cpu)).abs() <= 0.1 * mean(&cpu), "{gpu} {cpu}");
        let x = |name: &str| read_npz_array(folder.path().join(name), "x").unwrap();
        let close = if input.contains(&"f32") { 1e-3 } else { 1e-6 };
        let agrees = |(g, c): (&f64, &f64)| (g - c).abs() <= close * (1.0 + c.abs());
        assert!(x("gpu.npz").iter().zip(&x("cpu.npz")).all(agrees), "{input:?}");
    }
    assert_eq!(solved(&folder, "auto", &["t.batch"])["backend_reason"], "there is a GPU");
}

/// The sample that is part of the repository, and every set that is not.
#[test]
fn the_sample_and_every_set_are_solved_on_the_gpu_by_auto() {
    let Some(_) = device_or_skip() else { return };
    let mut inputs = vec![root().join(ALPHA13)];
    if let Some(shared) = shared_dir() {
        for (folder, ending) in [("matrices/batch", "batch"), ("astro", "bin")] {
            let files = std::fs::read_dir(shared.join(folder)).unwrap();
            let files = files.map(|file| file.unwrap().path());
            // Beside the systems of astrophysics are solutions.
            let is_set = |file: &PathBuf| {
                file.extension().is_some_and(|found| found == ending)
                    && !file.file_name().unwrap().to_string_lossy().starts_with("xref")
            };
            inputs.extend(files.filter(is_set));
        }
    }
    for input in inputs {
        let input = input.to_str().unwrap();
        let choices = ["--backend", "auto", "--solver", "auto", "--fallback", "--floor", "4"];

        let run = run(&[&["solve", input, "--json"][..], &choices].concat());

        assert_eq!(run.code, 0, "{run:?}");
        let json = run.json();
        assert_eq!(json["converged"], json["systems"], "{input}: {json}");
        assert_eq!(json["backend"], "gpu", "{input}: {json}");
    }
}

#[test]
fn solves_that_the_gpu_cannot_do_are_refused_or_left_to_the_cpu() {
    let Some(_) = device_or_skip() else { return };
    let folder = Folder::new();
    generated(&folder, "tri --n 32 --batch 20 t.batch");
    let args = ["solve", "t.batch", "--solver", "cg", "--format", "dia", "--json"];

    let asked = folder.run(&[&args[..], &["--backend", "gpu"]].concat());
    asked.assert_bad_input(&["--backend gpu: ", "format", "not supported on the GPU"]);
    let auto = folder.run(&args).json();

    assert_eq!((&auto["backend"], &auto["runs"][0]["backend"]), (&"cpu".into(), &"cpu".into()));
    for reason in [&auto["backend_reason"], &auto["runs"][0]["cpu_reason"]] {
        assert!(reason.as_str().unwrap().contains("format"), "{auto}");
    }
}

#[test]
fn histories_and_products_by_name_run_on_the_gpu() {
    let Some(_) = device_or_skip() else { return };
    let folder = Folder::new();
    generated(&folder, "tri --n 32 --batch 20 t.batch");
    let args = ["solve", "t.batch", "--solver", "cg", "--backend", "gpu", "--json"];

    let history = folder.run(&[&args[..], &["--history", "r.csv"]].concat()).json();
    let csr_i = folder.run(&[&args[..], &["--format", "csr", "--kernel", "csr-i"]].concat()).json();

    assert_eq!(history["kernel"], "composed cg over packed");
    let reason = history["runs"][0]["composed_reason"].as_str().unwrap();
    assert!(reason.contains("residual history"), "{reason}");
    let rows = std::fs::read_to_string(folder.path().join("r.csv")).unwrap().lines().count();
    let iterations = 20.0 * history["iterations"]["mean"].as_f64().unwrap();
    assert_eq!(rows, 21 + iterations.round() as usize);
    assert_eq!((&csr_i["format"], &csr_i["converged"]), (&"csr".into(), &20.into()));
    assert_eq!(csr_i["kernel"], "composed cg over batch-csr-i");
    assert!(csr_i["product_cost"]["products"].as_u64() > Some(10), "{csr_i}");
}

#[test]
fn the_doctor_tests_the_gpu() {
    let Some(_) = device_or_skip() else { return };

    let run = run(&["doctor", "--json"]);

    assert_eq!(run.code, 0, "{run:?}");
    let json = run.json();
    for name in ["gpu", "gpu-batch", "gpu-solve"] {
        let tests = json["tests"].as_array().unwrap();
        let test = tests.iter().find(|test| test["name"] == name).unwrap();
        assert_eq!(test["passed"], true, "{test}");
    }
    assert!(json["gpu_device"]["memory_bytes"].as_u64() > Some(0), "{json}");
    assert!(json["nvrtc"]["version"].is_string() && json["nvrtc"]["path"].is_string(), "{json}");
}

/// Also where the solve that is chosen iterates in the working precision, as it does where systems are few.
#[test]
fn solves_of_the_gpu_are_measured_from_one_system_on() {
    let Some(_) = device_or_skip() else { return };
    let folder = Folder::new();
    let suite = ["bench", "scaling", "--size", "small", "--backend", "gpu", "--case", "tri"];

    let run = folder.run(&[&suite, &["--experiment", "batch", "--output", "s.jsonl"][..]].concat());

    assert_eq!(run.code, 0, "{}", run.stderr);
    let text = std::fs::read_to_string(folder.path().join("s.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let batches: Vec<u64> = rows
        .filter(|row| row["operation"] == "cg" && row["backend"] == "gpu")
        .map(|row| row["batch"].as_u64().unwrap())
        .collect();
    assert!(batches.len() > 2 && batches[0] == 1, "{batches:?}");
}
