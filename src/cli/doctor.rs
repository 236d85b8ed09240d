//! `sparsebatch doctor`.

use std::fmt::Write;

use serde::Serialize;
use sparsebatch::cpu::SpmvPlan;
use sparsebatch::generate::{Family, Problem, Stencil, laplace};
use sparsebatch::io::{LoadOptions, load, write_batch};
use sparsebatch::{Csr, FormatChoice, KernelChoice, Method, SolveOptions, SpmvOptions, solve};
use sparsebatch_bench::processor::available_memory;

use super::doctor_warm::{self, DoctorArgs};
use super::error::CliError;
use super::output::{self, SCHEMA, bytes, one_line};
use super::{Exit, Global, doctor_gpu};

#[derive(Serialize)]
struct Report {
    schema: u32,
    command: &'static str,
    version: &'static str,
    cpu: String,
    architecture: &'static str,
    instruction_sets: Vec<&'static str>,
    cores: usize,
    threads: usize,
    memory_available: Option<usize>,
    #[serde(flatten)]
    gpu: doctor_gpu::Report,
    tests: Vec<Test>,
}

#[derive(Serialize)]
struct Test {
    name: &'static str,
    passed: bool,
    detail: String,
}

/// Runs the command.
///
/// # Errors
/// An internal failure when a self-test fails.
pub(crate) fn run(args: &DoctorArgs, global: Global) -> Result<Exit, CliError> {
    if let Some(architecture) = args.architecture() {
        return doctor_warm::run(args, architecture, global);
    }
    let (gpu, device) = doctor_gpu::examine();
    let mut tests = vec![("product", product()), ("solve", solving()), ("files", files())];
    if let Some(device) = device {
        tests.push(("gpu", doctor_gpu::one_matrix(&device)));
        tests.push(("gpu-batch", doctor_gpu::batch(&device)));
        tests.push(("gpu-solve", doctor_gpu::solves(&device)));
    }
    let report = Report {
        schema: SCHEMA,
        command: "doctor",
        version: env!("CARGO_PKG_VERSION"),
        cpu: cpu_model(),
        architecture: std::env::consts::ARCH,
        instruction_sets: instruction_sets(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        threads: rayon::current_num_threads(),
        memory_available: available_memory(),
        gpu,
        tests: tests
            .into_iter()
            .map(|(name, result)| Test {
                name,
                passed: result.is_ok(),
                detail: result.unwrap_or_else(|failure| failure),
            })
            .collect(),
    };
    output::result(global, &report, || report.text())?;
    match report.tests.iter().find(|test| !test.passed) {
        None => Ok(Exit::Done),
        Some(test) => Err(CliError::Internal(format!("self-test {}: {}", test.name, test.detail))),
    }
}

impl Report {
    fn text(&self) -> String {
        let sets = self.instruction_sets.join(" ");
        let mut lines = vec![
            ("version", format!("sparsebatch {}", self.version)),
            ("cpu", format!("{} ({}, {} cores)", self.cpu, self.architecture, self.cores)),
            ("instructions", if sets.is_empty() { "baseline".to_owned() } else { sets }),
            ("threads", format!("{} (--threads or RAYON_NUM_THREADS change it)", self.threads)),
            (
                "memory",
                self.memory_available.map_or("not reported by this system".to_owned(), |m| {
                    format!("{} available", bytes(m))
                }),
            ),
        ];
        lines.extend(self.gpu.lines());
        let mut text = String::new();
        for (key, value) in lines {
            writeln!(text, "{key:<13} {}", one_line(&value))
                .expect("writing to a string cannot fail");
        }
        for test in &self.tests {
            let verdict = if test.passed { "passed" } else { "FAILED" };
            writeln!(text, "test {:<10} {verdict}: {}", test.name, one_line(&test.detail))
                .expect("writing to a string cannot fail");
        }
        text
    }
}

/// The processor's name, as the system reports it.
pub(super) fn cpu_model() -> String {
    let model = || {
        let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    model().unwrap_or_else(|| "not reported by this system".to_owned())
}

/// The instruction sets of this processor that kernels can use.
fn instruction_sets() -> Vec<&'static str> {
    let mut sets = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! detect {
            ($($name:tt),*) => {
                $(if std::arch::is_x86_feature_detected!($name) { sets.push($name); })*
            };
        }
        detect!("sse4.2", "avx", "avx2", "fma", "avx512f", "avx512vl");
    }
    #[cfg(target_arch = "aarch64")]
    sets.push("neon");
    sets
}

/// Tests the product of a 7-point Laplacian by ones in every format: the row sums, small integers,
/// are exact in any order.
fn product() -> Result<String, String> {
    let a = laplace(Stencil::Point7, &[9, 8, 7]).map_err(|e| e.to_string())?;
    let sums = row_sums(&a);
    let x = vec![1.0; a.ncols()];
    let formats = [
        FormatChoice::Csr,
        FormatChoice::Coo,
        FormatChoice::Ell,
        FormatChoice::Dia,
        FormatChoice::Hyb,
        FormatChoice::SellP,
    ];
    for format in formats {
        let options = SpmvOptions::default().format(format).kernel(KernelChoice::Auto);
        let plan = SpmvPlan::new(&a, &options).map_err(|e| e.to_string())?;
        let mut y = vec![f64::NAN; a.nrows()];
        plan.apply(1.0, &x, 0.0, &mut y).map_err(|e| e.to_string())?;
        if y != sums {
            return Err(format!("{} differs from the row sums", plan.explain().format));
        }
    }
    Ok(format!("all {} formats agree on {} rows", formats.len(), a.nrows()))
}

/// The row sums, which are the product with ones.
pub(super) fn row_sums(a: &Csr<f64>) -> Vec<f64> {
    let pattern = a.view().pattern();
    (0..a.nrows()).map(|row| a.values()[pattern.row(row)].iter().sum()).collect()
}

/// Tests CG and BiCGStab on the systems of a benchmark family.
fn solving() -> Result<String, String> {
    let made =
        Problem::new(Family::Tri, 64).and_then(|p| p.batch(50)).map_err(|e| e.to_string())?;
    let mut worst = 0.0f64;
    for method in [Method::Cg, Method::BiCgStab] {
        let options = SolveOptions::new().method(method);
        let solution = solve(&made.batch, &made.rhs, None, &options).map_err(|e| e.to_string())?;
        let report = solution.report;
        if !report.all_converged() {
            return Err(format!("{method}: {} of 50 systems converged", report.converged()));
        }
        worst = worst.max(report.max_relative_residual().unwrap_or(0.0));
    }
    Ok(format!("CG and BiCGStab solve 50 systems to {worst:.1e}"))
}

/// Tests files: writes a batch to the folder for temporary files and reads it again.
fn files() -> Result<String, String> {
    let made =
        Problem::new(Family::Rand9, 54).and_then(|p| p.batch(3)).map_err(|e| e.to_string())?;
    let name = format!("sparsebatch-doctor-{}.batch", std::process::id());
    let path = std::env::temp_dir().join(name);
    write_batch(&path, &made.batch, &made.rhs).map_err(|e| e.to_string())?;
    let read = load(std::slice::from_ref(&path), LoadOptions::default());
    let removed = std::fs::remove_file(&path);
    let read = read.map_err(|e| e.to_string())?;
    removed.map_err(|e| e.to_string())?;
    if read.batch == made.batch && read.rhs.as_ref() == Some(&made.rhs) {
        Ok("a batch is read as it was written".to_owned())
    } else {
        Err("a batch was read differently than it was written".to_owned())
    }
}
