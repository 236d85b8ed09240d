//! The report of `doctor` on the GPU.

use std::path::{Path, PathBuf};

use serde::Serialize;
use sparsebatch::generate::{Stencil, laplace};
use sparsebatch::gpu::device::cache::DiskCache;
use sparsebatch::gpu::device::{availability, library};
use sparsebatch::gpu::{CudaVersion, Device, Executor, GpuError};
use sparsebatch::gpu::{PackedOptions, PackedPlan, SingleOptions, SinglePlan};
use sparsebatch::{Backend, Batch, Gpu, Method, RaggedCsr, SolveOptions, solve_on};

use super::doctor::row_sums;
use super::gpu::ORDINAL;
use super::output::{bytes, counted};

/// The GPU and the libraries that it needs, each with the reason if it is missing.
#[derive(Serialize)]
pub(super) struct Report {
    /// The GPU in words, or `none: ` and the reason.
    gpu: String,
    gpu_device: Option<GpuDevice>,
    driver: Driver,
    nvrtc: Nvrtc,
    cache: String,
}

#[derive(Serialize)]
struct GpuDevice {
    ordinal: usize,
    name: String,
    compute_capability: String,
    architecture: String,
    multiprocessors: u32,
    memory_bytes: u64,
    memory_free_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Driver {
    /// The newest CUDA version that the driver supports.
    cuda: Option<String>,
    /// The driver's own version.
    release: Option<String>,
    gpus: usize,
    problem: Option<String>,
}

#[derive(Serialize)]
struct Nvrtc {
    version: Option<String>,
    path: Option<PathBuf>,
    problem: Option<String>,
}

/// Examines everything; also returns the GPU if it can be used.
pub(super) fn examine() -> (Report, Option<Device>) {
    let device = Device::new(ORDINAL);
    let cache = DiskCache::from_env();
    let cache = match (cache.folder(), cache.refusal()) {
        (Ok(folder), None) => folder.display().to_string(),
        (Ok(folder), Some(why)) => format!("none: {} is not used, {why}", folder.display()),
        (Err(reason), _) => format!("none: {reason}"),
    };
    let report = Report {
        gpu: match &device {
            Ok(device) => described(device),
            Err(error) => format!("none: {error}"),
        },
        gpu_device: device.as_ref().ok().map(GpuDevice::of),
        driver: Driver::of(availability::driver()),
        nvrtc: Nvrtc::of(library::nvrtc()),
        cache,
    };
    (report, device.ok())
}

impl Report {
    /// The keys and values of the text report.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let driver = match (&self.driver.cuda, &self.driver.problem) {
            (Some(cuda), _) => {
                let release = self.driver.release.as_deref().unwrap_or("of unknown version");
                format!("{release}, CUDA {cuda}, {}", counted(self.driver.gpus, "GPU"))
            }
            (None, problem) => self.none(problem),
        };
        let nvrtc = match (&self.nvrtc.version, &self.nvrtc.path) {
            (Some(version), Some(path)) => format!("{version}, {}", path.display()),
            (Some(version), None) => format!("{version}, where the system's loader found it"),
            (None, _) => self.none(&self.nvrtc.problem),
        };
        vec![
            ("gpu", self.gpu.clone()),
            ("driver", driver),
            ("nvrtc", nvrtc),
            ("cache", format!("{} (compiled kernels)", self.cache)),
        ]
    }

    /// The reason why something is missing, unless the line of the GPU states it already.
    fn none(&self, problem: &Option<String>) -> String {
        match problem {
            Some(problem) if !self.gpu.ends_with(problem) => format!("none: {problem}"),
            _ => "none".to_owned(),
        }
    }
}

fn described(device: &Device) -> String {
    let info = device.info();
    let (major, minor) = info.compute_capability;
    format!(
        "{}, compute capability {major}.{minor}, {} multiprocessors, {}",
        info.name,
        info.multiprocessors,
        bytes(info.memory_bytes as usize)
    )
}

impl GpuDevice {
    fn of(device: &Device) -> Self {
        let info = device.info();
        let (major, minor) = info.compute_capability;
        Self {
            ordinal: info.ordinal,
            name: info.name.clone(),
            compute_capability: format!("{major}.{minor}"),
            architecture: device.architecture().to_owned(),
            multiprocessors: info.multiprocessors,
            memory_bytes: info.memory_bytes,
            memory_free_bytes: device.memory().ok().map(|memory| memory.free_bytes),
        }
    }
}

impl Driver {
    fn of(found: Result<(CudaVersion, usize), GpuError>) -> Self {
        match found {
            Ok((version, gpus)) => Self {
                cuda: Some(version.to_string()),
                release: std::fs::read_to_string("/proc/driver/nvidia/version")
                    .ok()
                    .and_then(|text| release(&text)),
                gpus,
                problem: None,
            },
            Err(error) => {
                Self { cuda: None, release: None, gpus: 0, problem: Some(error.to_string()) }
            }
        }
    }
}

impl Nvrtc {
    fn of(found: Result<library::NvrtcInfo, GpuError>) -> Self {
        match found {
            Ok(info) => Self {
                version: Some(info.version.to_string()),
                path: info.path.or_else(|| {
                    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
                    mapped(&maps, "libnvrtc.so")
                }),
                problem: None,
            },
            Err(error) => Self { version: None, path: None, problem: Some(error.to_string()) },
        }
    }
}

/// The version in the kernel module's text: the first word of numbers separated by points.
fn release(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.contains('.') && word.split('.').all(|n| !n.is_empty() && n.parse::<u32>().is_ok())
    };
    Some(text.lines().next()?.split_whitespace().find(is_version)?.to_owned())
}

/// The path of a library that this process has loaded.
fn mapped(maps: &str, library: &str) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        let path = Path::new(&line[line.find('/')?..]);
        path.file_name()?.to_str()?.starts_with(library).then(|| path.to_owned())
    })
}

/// Tests a Laplacian times ones: the row sums, small integers, are exact in any order.
pub(super) fn one_matrix(device: &Device) -> Result<String, String> {
    let a = laplace(Stencil::Point7, &[9, 8, 7]).map_err(|e| e.to_string())?;
    let multiply = || {
        let options = SingleOptions::default();
        let mut plan = SinglePlan::new(device, a.view(), &options)?;
        let x = device.upload(&vec![1.0; a.ncols()])?;
        let mut y = device.upload(&vec![f64::NAN; a.nrows()])?;
        plan.apply(1.0, &x, 0.0, &mut y)?;
        Ok((plan.explain().kernel, device.download(&y)?))
    };
    let (kernel, y) = multiply().map_err(|error: GpuError| error.to_string())?;
    verdict(&y, &row_sums(&a), format!("{kernel} agrees on {} rows", a.nrows()))
}

/// The same test with a batch of Laplacians of several sizes.
pub(super) fn batch(device: &Device) -> Result<String, String> {
    let (mut systems, mut expected) = (RaggedCsr::new(), Vec::new());
    for size in 1..=12 {
        let a = laplace(Stencil::Point5, &[size, 2 * size]).map_err(|e| e.to_string())?;
        systems.push(a.view());
        expected.extend(row_sums(&a));
    }
    let nitems = systems.nitems();
    let batch = Batch::Ragged(systems);
    let multiply = || {
        let plan = PackedPlan::new(device.clone(), &batch, PackedOptions::default())?;
        let x = device.upload(&vec![1.0; expected.len()])?;
        let mut y = device.upload(&vec![f64::NAN; expected.len()])?;
        plan.apply(1.0, &x, 0.0, &mut y)?;
        device.download(&y)
    };
    let y = multiply().map_err(|error: GpuError| error.to_string())?;
    verdict(&y, &expected, format!("the packed product agrees on {nitems} systems"))
}

/// Tests solves with Laplacians of two sizes, whose solutions are ones.
pub(super) fn solves(device: &Device) -> Result<String, String> {
    let sizes = [4, 6].map(|size| laplace(Stencil::Point5, &[size, size]));
    let matrices: Vec<_> =
        sizes.into_iter().collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let b: Vec<f64> = matrices.iter().flat_map(row_sums).collect();
    let batch = Batch::from_iter(matrices);
    let options = SolveOptions::new().method(Method::Cg);
    let backend = Backend::Gpu(Gpu::new(device.clone()));
    let solution = solve_on(&backend, &batch, &b, None, &options).map_err(|e| e.to_string())?;
    let report = &solution.report;
    match solution.x.iter().map(|x| (x - 1.0).abs()).fold(0.0, f64::max) {
        error if report.all_converged() && error < 1e-8 => {
            Ok(format!("{} systems solved by {}", report.systems.len(), report.kernel))
        }
        error => Err(format!("{:?}, error {error:.1e}", report.status_counts())),
    }
}

fn verdict(found: &[f64], expected: &[f64], agreed: String) -> Result<String, String> {
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None if found.len() == expected.len() => Ok(agreed),
        None => Err(format!("{} rows, expected {}", found.len(), expected.len())),
        Some(row) => Err(format!("row {row} is {}, expected {}", found[row], expected[row])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_of_a_driver_is_read() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23\nGCC";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release";

        assert_eq!(release(closed).as_deref(), Some("570.86.15"));
        assert_eq!(release(open).as_deref(), Some("580.65.06"));
        assert_eq!(release("none"), None);
    }

    #[test]
    fn a_loaded_library_is_found_by_its_name() {
        let maps = "7f00-7f01 r-xp 0 00:00 1  /usr/lib/libc.so.6\n\
                    7f02-7f03 r-xp 0 00:00 2  /opt/cuda/lib64/libnvrtc.so.13.0.48\n";

        assert_eq!(
            mapped(maps, "libnvrtc.so"),
            Some(PathBuf::from("/opt/cuda/lib64/libnvrtc.so.13.0.48"))
        );
        assert_eq!(mapped(maps, "libcuda.so"), None);
    }

    #[test]
    fn a_wrong_row_fails_the_test() {
        assert_eq!(verdict(&[1.0], &[1.0], "fine".to_owned()), Ok("fine".to_owned()));
        assert!(verdict(&[1.0, f64::NAN], &[1.0, 2.0], String::new()).is_err());
        assert!(verdict(&[1.0], &[1.0, 2.0], String::new()).is_err());
    }
}
