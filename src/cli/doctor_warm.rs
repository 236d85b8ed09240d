//! `sparsebatch doctor --warm`: compiles kernels for a GPU that is not there.

use std::time::Instant;

use clap::{Args, Parser};
use rayon::prelude::*;
use serde::Serialize;
use sparsebatch::gpu::device::cache::DiskCache;
use sparsebatch::gpu::device::{compiled_for, nvrtc};
use sparsebatch::gpu::{DeviceInfo, GpuError, KernelKey, kernels_of};
use sparsebatch::{Rhs, SolveError};

use super::error::CliError;
use super::options::{Backend, Precision};
use super::output::{self, SCHEMA, counted};
use super::progress::Progress;
use super::solve::{Given, SolveArgs};
use super::{Exit, Global, pin};
use crate::cli::narrow::Narrow;

/// Options of `doctor`.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Compile the kernels that `solve` needs for these inputs on a GPU of --arch, which need not be
    /// there, into the folder of compiled kernels: inputs and options are those of `solve`
    #[arg(long, requires = "arch")]
    warm: bool,
    /// Architecture of the GPU, such as sm_90. Its other limits are those of an A100 (sm_80), or of
    /// an H100 or H200 (sm_90), or those of --pin-plan, which any GPU writes by --export-plan
    #[arg(long, value_name = "ARCH", requires = "warm")]
    arch: Option<String>,
    /// Inputs and options of `solve`
    #[arg(
        value_name = "INPUT",
        requires = "warm",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    solve: Vec<String>,
}

/// The command line of `solve` within that of `doctor`.
#[derive(Parser)]
#[command(name = "sparsebatch doctor --warm --arch ARCH")]
struct SolveLine {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    solve: SolveArgs,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    command: &'static str,
    version: &'static str,
    architecture: String,
    device: String,
    nvrtc: String,
    folder: String,
    kernels: Vec<Warmed>,
    seconds: f64,
}

/// A kernel, and whether it was compiled now.
#[derive(Serialize)]
struct Warmed {
    kernel: String,
    compiled: bool,
}

impl DoctorArgs {
    /// The architecture of `--warm`, which is asked for by both.
    pub(super) fn architecture(&self) -> Option<&str> {
        self.arch.as_deref().filter(|_| self.warm)
    }
}

/// Runs the command.
///
/// # Errors
/// Bad usage and input; where there is no NVRTC, or no folder to write to; what does not compile.
pub(super) fn run(args: &DoctorArgs, architecture: &str, global: Global) -> Result<Exit, CliError> {
    let start = Instant::now();
    let (solve, global) = solve_line(args, global)?;
    let (gpu, planned) = device(architecture, &solve)?;
    let nvrtc = nvrtc::version().map_err(refused)?.to_string();
    let compiled_for = compiled_for(&gpu).map_err(refused)?;
    let cache = DiskCache::from_env();
    let folder = writable(&cache)?;
    let kernels = kernels(&solve, &planned, global)?;
    let progress = Progress::start(global, format!("{} in all", counted(kernels.len(), "kernel")));
    let warmed = solve.machine.pool()?.install(|| warm(&cache, &kernels, &compiled_for))?;
    drop(progress);
    let report = Report {
        schema: SCHEMA,
        command: "doctor",
        version: env!("CARGO_PKG_VERSION"),
        architecture: compiled_for,
        device: planned.name,
        nvrtc,
        folder,
        kernels: warmed,
        seconds: start.elapsed().as_secs_f64(),
    };
    output::result(global, &report, || report.text(global))?;
    Ok(Exit::Done)
}

/// The options of the solve whose kernels are wanted.
fn solve_line(args: &DoctorArgs, global: Global) -> Result<(SolveArgs, Global), CliError> {
    let line = std::iter::once("sparsebatch").chain(args.solve.iter().map(String::as_str));
    let line = SolveLine::try_parse_from(line).map_err(|error| {
        let line = super::joined(&error.render().to_string());
        CliError::input(line.strip_prefix("error: ").unwrap_or(&line).to_owned())
    })?;
    let global = Global {
        json: global.json || line.global.json,
        quiet: global.quiet || line.global.quiet,
        verbose: global.verbose || line.global.verbose,
    };
    if line.solve.machine.backend == Backend::Cpu {
        return Err(CliError::input("--warm compiles for a GPU, expected no --backend cpu"));
    }
    if let Some(option) = line.solve.outputs().asked() {
        return Err(CliError::input(format!("--warm solves nothing, expected no {option}")));
    }
    Ok((line.solve, global))
}

/// The capability of an architecture such as `sm_90`.
fn capability(architecture: &str) -> Option<(u32, u32)> {
    let number: u32 = architecture.strip_prefix("sm_")?.parse().ok()?;
    Some((number / 10, number % 10))
}

/// The GPU that kernels are compiled for, and the limits that plans are made for.
fn device(architecture: &str, solve: &SolveArgs) -> Result<(DeviceInfo, DeviceInfo), CliError> {
    if let Some(path) = &solve.pin_plan {
        let read = pin::read(path)?;
        read.check_version().map_err(|error| pin::refused(path, &error))?;
        let Some(model) = read.device() else {
            return Err(CliError::input(format!(
                "--pin-plan {}: expected the pin of a GPU, found that of a CPU",
                path.display()
            )));
        };
        let planned = DeviceInfo::of_model(model);
        return match capability(architecture) {
            // A GPU may have the plans of a smaller one; its kernels are compiled for itself.
            Some(own) if own >= planned.compute_capability => {
                Ok((DeviceInfo { compute_capability: own, ..planned.clone() }, planned))
            }
            _ => Err(CliError::input(format!(
                "--arch {architecture}: expected {}, that of --pin-plan {}, or a newer one",
                planned.architecture(),
                path.display()
            ))),
        };
    }
    DeviceInfo::known(architecture).map(|info| (info.clone(), info)).ok_or_else(|| {
        CliError::input(format!(
            "--arch {architecture}: expected sm_80 or sm_90, or the limits of such a GPU by \
             --pin-plan FILE, which `sparsebatch solve --export-plan FILE` writes there"
        ))
    })
}

/// The folder of compiled kernels, if it may be used.
fn writable(cache: &DiskCache) -> Result<String, CliError> {
    let refused = |why: String| CliError::input(format!("--warm: no folder for kernels: {why}"));
    let folder = cache.folder().map_err(|reason| refused(reason.to_owned()))?.display().to_string();
    match cache.refusal() {
        None => Ok(folder),
        Some(why) => Err(refused(format!("{folder} is not used, {why}"))),
    }
}

/// The kernels of a solve on the GPU.
fn kernels(
    solve: &SolveArgs,
    info: &DeviceInfo,
    global: Global,
) -> Result<Vec<KernelKey>, CliError> {
    let options = solve.options()?;
    let or_cpu = solve.machine.backend == Backend::Auto;
    let Given { systems, b, x0, .. } = solve.read(global)?;
    let pool = solve.machine.pool()?;
    systems.check_plan(pool.current_num_threads())?;
    let (batch, x0) = (&systems.batch, x0.as_deref());
    let kernels = pool.install(|| match solve.machine.precision {
        Precision::F64 => kernels_of(info, batch, Rhs { b: &b, x0 }, &options, or_cpu),
        Precision::F32 => {
            let (narrow, options) = Narrow::new(batch, &b, x0, &options);
            let Narrow { batch, b, x0, .. } = &narrow;
            kernels_of(info, batch, Rhs { b, x0: x0.as_deref() }, &options, or_cpu)
        }
    });
    kernels.map_err(|error: SolveError| CliError::input(format!("--warm: {error}")))
}

/// Compiles what the folder lacks, on all threads.
fn warm(
    cache: &DiskCache,
    kernels: &[KernelKey],
    architecture: &str,
) -> Result<Vec<Warmed>, CliError> {
    let each = kernels.par_iter().map(|kernel| {
        let is_there = cache.has_kernel(kernel, architecture)?;
        if !is_there {
            cache.compile_kernel(kernel, architecture)?;
        }
        Ok((Warmed { kernel: kernel.to_string(), compiled: !is_there }, kernel))
    });
    let each = each.collect::<Result<Vec<_>, GpuError>>().map_err(refused)?;
    // What was compiled must be found: a full disk is an error here, where a solve would go on.
    for (_, kernel) in &each {
        if !cache.has_kernel(kernel, architecture).map_err(refused)? {
            let folder = cache.folder().map(|folder| folder.display().to_string());
            let folder = folder.unwrap_or_default();
            return Err(CliError::Internal(format!("--warm: {folder} does not keep {kernel}")));
        }
    }
    Ok(each.into_iter().map(|(warmed, _)| warmed).collect())
}

/// The error of a compiler that is missing, or of a kernel that does not compile.
fn refused(error: GpuError) -> CliError {
    match error {
        GpuError::NvrtcMissing { .. } => CliError::input(format!("--warm: {error}")),
        _ => CliError::Internal(format!("--warm: {error}")),
    }
}

impl Report {
    fn text(&self, global: Global) -> String {
        let compiled = self.kernels.iter().filter(|kernel| kernel.compiled).count();
        let mut text = format!(
            "{} for {} ({}), NVRTC {}: {compiled} compiled in {:.1} s, {} there before, in {}\n",
            counted(self.kernels.len(), "kernel"),
            self.architecture,
            self.device,
            self.nvrtc,
            self.seconds,
            self.kernels.len() - compiled,
            self.folder,
        );
        if global.verbose {
            for Warmed { kernel, compiled } in &self.kernels {
                text += &format!("{}  {kernel}\n", if *compiled { "compiled" } else { "there   " });
            }
        }
        text
    }
}
