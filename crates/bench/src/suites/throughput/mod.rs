//! The suite `throughput`: the experiments of Bell and Garland 2009 (doi 10.1145/1654059.1654078),
//! by the formats and kernels that they compare, in f64 and f32, beside cuSPARSE or, on the
//! processor, other crates, in f64.

mod cases;
mod ffi;
mod products;
mod strided;

use std::io::Write;
use std::path::PathBuf;

use sparsebatch_corpus::List;
use sparsebatch_cuda::{KernelKey, Value};
use sparsebatch_spmv_gpu::SingleOptions;

pub use self::cases::ThroughputExperiment;
use self::cases::{Subject, ThroughputCase, generated};
pub use super::Size;
use super::matrices::{MatrixSource, made};
use super::single::Configuration;
use super::{check_names, files, wanted};
use crate::session::{Backend, Bench, Target};
use crate::{BenchError, Outcome};
use sparsebatch_rows::summary::OURS;

/// Options of the suite.
#[derive(Clone, Debug, Default)]
pub struct Throughput {
    /// Cases by name; all when empty.
    pub cases: Vec<String>,
    /// Our kernels; when empty those of the source and their equivalents on the processor.
    pub kernels: Vec<Configuration>,
    /// Size of the generated matrices.
    pub size: Size,
    /// One experiment; all when absent.
    pub experiment: Option<ThroughputExperiment>,
    /// Folders with unstructured matrices.
    pub matrices: Vec<PathBuf>,
    /// Whether f32 is left out.
    pub no_f32: bool,
    /// The devices to measure; when absent the GPU if there is one, else the processor.
    pub backend: Option<Backend>,
    /// Whether cuSPARSE and other crates are left out.
    pub no_peer: bool,
    /// The file that the rows are written to.
    pub output: Option<PathBuf>,
}

/// Runs the suite. Prints a line per measurement to `report`.
///
/// # Errors
/// Unknown names, folders that cannot be read, [`ThroughputExperiment::Unstructured`] alone without a folder,
/// an output that cannot be written, and the reason why there is no GPU, if one was requested, or
/// why it was lost. A file that cannot be read is a gap.
pub fn throughput(options: &Throughput, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    let cases = all_cases(options)?;
    check_names("--case", &options.cases, cases.iter().map(|case| &case.name))?;
    let target = Target::of(options.backend)?;
    let (effort, peers) = (options.size.effort(), !options.no_peer);
    let output = options.output.as_deref();
    let mut bench = Bench::start("throughput", &target, effort, peers, output, report)?;
    let ended = (|| {
        let has_files =
            options.experiment.is_none_or(|one| one == ThroughputExperiment::Unstructured);
        if has_files && options.cases.is_empty() {
            bench.absent_of(List::BellGarland.members(), |name| {
                cases.iter().any(|case| case.name == name)
            })?;
        }
        let cases = || cases.iter().filter(|case| wanted(&options.cases, &case.name));
        let mut experiments: Vec<ThroughputExperiment> =
            cases().map(|case| case.experiment).collect();
        experiments.dedup();
        bench.without_gpu(&target, contenders(&experiments, options))?;
        bench.compile_both(&kernels(&experiments, options), !options.no_f32)?;
        if target.host && experiments.iter().any(|one| one.has_gathers()) {
            let reason = "a processor reads x through its caches";
            bench.gap("all", OURS, "cpu-csr, x not cached", reason)?;
        }
        if let Some(session) = bench.gpu() {
            session.prepare(&own_kernels(&experiments, !options.no_f32));
        }
        let sources: Vec<MatrixSource> = cases().filter_map(ThroughputCase::source).collect();
        let mut matrices = made(&sources, |_| true, options.size);
        for case in cases() {
            match &case.subject {
                Subject::Strided { count, stride } => {
                    strided::measure::<f64>(&mut bench, case, *count, *stride)?;
                    if !options.no_f32 {
                        strided::measure::<f32>(&mut bench, case, *count, *stride)?;
                    }
                }
                Subject::Matrix(_) => match matrices.next() {
                    Some((_, Ok(matrix))) => products::measure(&mut bench, case, &matrix, options)?,
                    Some((_, Err(error))) => {
                        bench.gap(&case.name, "all", "all", &error.to_string())?;
                    }
                    None => {}
                },
            }
        }
        Ok(())
    })();
    bench.finish(ended)
}

/// The names of our contenders on a GPU, each once.
fn contenders(experiments: &[ThroughputExperiment], options: &Throughput) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for &experiment in experiments {
        names.extend(match experiment {
            ThroughputExperiment::Strided => strided::NAMES.map(str::to_owned).to_vec(),
            _ => products::on_gpu_by(experiment, options).iter().map(ToString::to_string).collect(),
        });
        if experiment.has_gathers() {
            names.extend(products::GATHERS.map(|gather| gather.name()));
        }
    }
    let mut found = Vec::new();
    names.retain(|name| {
        !found.contains(name) && {
            found.push(name.clone());
            true
        }
    });
    names
}

/// The kernels of `throughput.cu` that a GPU is measured by.
fn own_kernels(experiments: &[ThroughputExperiment], in_f32: bool) -> Vec<KernelKey> {
    fn of<T: Value>(experiments: &[ThroughputExperiment]) -> Vec<KernelKey> {
        let axpy = experiments.contains(&ThroughputExperiment::Strided).then(ffi::axpy_key::<T>);
        let has_gathers = experiments.iter().any(|one| one.has_gathers());
        let gathers = products::GATHERS.iter().filter(|_| has_gathers);
        axpy.into_iter().chain(gathers.map(|gather| gather.key::<T>())).collect()
    }
    let mut keys = of::<f64>(experiments);
    if in_f32 {
        keys.extend(of::<f32>(experiments));
    }
    keys
}

/// Our plans that a GPU is measured by, each once.
fn kernels(experiments: &[ThroughputExperiment], options: &Throughput) -> Vec<SingleOptions> {
    let of_matrices = experiments.iter().filter(|&&one| one != ThroughputExperiment::Strided);
    let mut found: Vec<Configuration> = Vec::new();
    for configuration in of_matrices.flat_map(|&one| products::on_gpu_by(one, options)) {
        if !found.contains(&configuration) {
            found.push(configuration);
        }
    }
    found.into_iter().filter_map(Configuration::options).collect()
}

fn all_cases(options: &Throughput) -> Result<Vec<ThroughputCase>, BenchError> {
    let experiments = match options.experiment {
        Some(ThroughputExperiment::Unstructured) if options.matrices.is_empty() => {
            return Err(BenchError::Option {
                option: "--matrices",
                expected: "a folder with the matrices of fig13".to_owned(),
                found: "absent".to_owned(),
            });
        }
        Some(one) => vec![one],
        None => ThroughputExperiment::ALL.to_vec(),
    };
    let mut cases: Vec<ThroughputCase> =
        experiments.iter().flat_map(|&one| generated(one, options.size)).collect();
    if experiments.contains(&ThroughputExperiment::Unstructured) {
        for folder in &options.matrices {
            for (name, path) in files(folder)? {
                cases.retain(|case| case.name != name);
                let source = MatrixSource::file(name, path);
                cases.push(ThroughputCase::of_matrix(ThroughputExperiment::Unstructured, source));
            }
        }
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_gpu_is_measured_by_is_named_once() {
        let names = contenders(&ThroughputExperiment::ALL, &Throughput::default());

        for name in ["axpy", "axpy unaligned", "auto", "dia", "plain csr-vector, x not cached"] {
            assert_eq!(names.iter().filter(|found| *found == name).count(), 1, "{name}");
        }
        let kernels = vec!["csr-scalar".parse().unwrap(), "cpu-csr".parse().unwrap()];
        let named = Throughput { kernels, ..Throughput::default() };
        assert_eq!(contenders(&[ThroughputExperiment::Dense], &named), ["csr-scalar"]);
        let own =
            |experiments: &[ThroughputExperiment], in_f32| own_kernels(experiments, in_f32).len();
        assert_eq!(
            (own(&ThroughputExperiment::ALL, true), own(&[ThroughputExperiment::Strided], false)),
            (10, 1)
        );
        let all = super::kernels(&ThroughputExperiment::ALL, &Throughput::default());
        assert_eq!(
            (all.len(), super::kernels(&[ThroughputExperiment::Strided], &named).len()),
            (7, 0)
        );
    }

    #[test]
    fn the_kernels_compile_for_every_architecture() {
        use sparsebatch_cuda::device::nvrtc::{Program, compile};
        use sparsebatch_cuda::testing::nvrtc_or_skip;
        if nvrtc_or_skip().is_none() {
            return;
        }
        let mut expressions = Vec::new();
        for value in ["double", "float"] {
            expressions.push(format!("axpy_strided<{value}>"));
            for lanes in [1, 32] {
                let gather = |cached| format!("csr_gather<{value}, {lanes}, {cached}>");
                expressions.extend([gather(true), gather(false)]);
            }
        }
        let expressions: Vec<&str> = expressions.iter().map(String::as_str).collect();
        for architecture in ["sm_75", "sm_90", "sm_120"] {
            let program = Program {
                name: "throughput.cu",
                source: &ffi::THROUGHPUT.program(),
                expressions: &expressions,
                architecture,
                options: &[],
            };

            let compiled = compile(&program).unwrap();

            assert_eq!(compiled.kernels.len(), 10);
            let spilled = |kernel: &&_| spills(kernel) > 0;
            assert_eq!(compiled.kernels.iter().filter(spilled).count(), 0, "{architecture}");
        }
    }

    fn spills(kernel: &sparsebatch_cuda::device::nvrtc::CompiledKernel) -> u32 {
        kernel.resources.map_or(0, |resources| resources.spill_store_bytes)
    }
}
