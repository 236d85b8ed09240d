//! The suite `throughput`: the experiments of Bell and Garland 2009 (doi 10.1145/1654059.1654078), by
//! the formats and kernels that they compare, in f64 and f32, beside cuSPARSE in f64.

mod cases;
mod ffi;

use std::io::Write;
use std::path::PathBuf;

use rayon::prelude::*;
use sparsebatch_corpus::List;
use sparsebatch_formats::Csr;
use sparsebatch_formats::generate::rng;
use sparsebatch_formats::testing::spmv_error;
use sparsebatch_spmv_gpu::{Executor, SinglePlan, Value};

pub use self::cases::Experiment;
use self::cases::{Case, Subject, generated};
use self::ffi::{Axpy, Gather};
pub use super::Size;
use super::matrices::Source;
use super::single::Configuration;
use super::{check_names, files, wanted};
use crate::contender::{Contender, Operands};
use crate::cusparse::HostCsr;
use crate::session::{Label, Problem, Session};
use crate::timing::copies;
use crate::{BenchError, Outcome};

/// Bytes that memory is accessed in at least.
const SECTOR: usize = 32;

/// What the suite shall measure.
#[derive(Clone, Debug, Default)]
pub struct Throughput {
    /// Cases by name; all when empty.
    pub cases: Vec<String>,
    /// Our kernels; when empty those of the source.
    pub kernels: Vec<Configuration>,
    /// How much is generated.
    pub size: Size,
    /// One experiment; all when absent.
    pub experiment: Option<Experiment>,
    /// Folders with unstructured matrices.
    pub matrices: Vec<PathBuf>,
    /// Whether f32 is left out.
    pub no_f32: bool,
    /// Whether cuSPARSE is left out.
    pub no_peer: bool,
    /// The file for the rows.
    pub output: Option<PathBuf>,
}

/// Runs the suite. Lines of what is measured go to `report`.
///
/// # Errors
/// Names that nothing answers to, folders that cannot be read, [`Experiment::Unstructured`] alone
/// without a folder, an output that cannot be written, and the reason why there is no GPU or it was
/// lost. A file that cannot be read is a gap.
pub fn throughput(options: &Throughput, report: &mut dyn Write) -> Result<Outcome, BenchError> {
    let cases = all_cases(options)?;
    check_names("--case", &options.cases, cases.iter().map(|case| &case.name))?;
    let output = options.output.as_deref();
    let mut session = Session::start("throughput", !options.no_peer, output, report)?;
    let ended = (|| {
        let has_files = options.experiment.is_none_or(|one| one == Experiment::Unstructured);
        if has_files && options.cases.is_empty() {
            session.absent_of(List::BellGarland.members(), |name| {
                cases.iter().any(|case| case.name == name)
            })?;
        }
        if session.library.is_some() && !options.no_f32 {
            session.note("cuSPARSE is measured in f64")?;
        }
        for case in cases.iter().filter(|case| wanted(&options.cases, &case.name)) {
            match &case.subject {
                Subject::Strided { count, stride } => {
                    strided::<f64>(&mut session, case, *count, *stride)?;
                    if !options.no_f32 {
                        session.note(&format!("{:<22} in f32:", case.name))?;
                        strided::<f32>(&mut session, case, *count, *stride)?;
                    }
                }
                Subject::Matrix(source) => match source.matrix() {
                    Ok(matrix) => products(&mut session, case, &matrix, options)?,
                    Err(error) => session.absent(&case.name, &error.to_string())?,
                },
            }
        }
        Ok(())
    })();
    session.finish(ended)
}

fn all_cases(options: &Throughput) -> Result<Vec<Case>, BenchError> {
    let experiments = match options.experiment {
        Some(Experiment::Unstructured) if options.matrices.is_empty() => {
            return Err(BenchError::Option {
                option: "--matrices",
                expected: "a folder with the matrices of fig13".to_owned(),
                found: "absent".to_owned(),
            });
        }
        Some(one) => vec![one],
        None => Experiment::ALL.to_vec(),
    };
    let mut cases: Vec<Case> =
        experiments.iter().flat_map(|&one| generated(one, options.size)).collect();
    if experiments.contains(&Experiment::Unstructured) {
        for folder in &options.matrices {
            for (name, path) in files(folder)? {
                cases.retain(|case| case.name != name);
                let source = Source::file(name, path);
                cases.push(Case::of_matrix(Experiment::Unstructured, source));
            }
        }
    }
    Ok(cases)
}

/// Figure 1: `y = x + y` over elements at a distance, from the first place on and from the second,
/// which is not aligned. The identity, as a product: an entry for each element.
fn strided<T: Value>(
    session: &mut Session<'_>,
    case: &Case,
    count: usize,
    stride: usize,
) -> Result<(), BenchError> {
    let len = (count - 1) * stride + 2;
    let mut x = vec![T::ZERO; len];
    for (place, value) in operand::<T>(count).into_iter().enumerate() {
        x[place * stride] = value;
        x[place * stride + 1] = -value;
    }
    let device = session.device.clone();
    // Three accesses an element, each of a whole sector where elements are far apart.
    let useful = (3 * size_of::<T>() * count) as f64;
    let moved = 3 * (count * (stride * size_of::<T>()).min(SECTOR.max(size_of::<T>()))) as u64;
    for (name, first) in [("axpy", 0), ("axpy unaligned", 1)] {
        let oracle = |y: &[f64]| {
            let expected = |place: usize| match place.checked_sub(first) {
                Some(offset) if offset % stride == 0 && offset / stride < count => {
                    x[place].to_f64()
                }
                _ => 0.0,
            };
            let wrong =
                (0..len).into_par_iter().find_first(|&place| y[place] != expected(place))?;
            Some(format!("place {wrong}: {:e}, expected {:e}", y[wrong], expected(wrong)))
        };
        let problem = Problem {
            case: &case.name,
            experiment: Some(case.experiment.name()),
            batch: 1,
            nrows: len,
            ncols: len,
            nnz: count,
            oracle: &oracle,
        };
        let pace = session.pace(&problem);
        let touched = (2 * size_of::<T>() * len) as f64;
        let copies = copies(touched, device.info().l2_bytes);
        let mut operands = Operands::new(&device, &x, len, copies)?;
        let contender =
            Contender::new(&mut operands, |_| Axpy::new::<T>(&device, count, stride, first));
        let label = labelled::<T>(Label::ours(name, false), useful);
        session.measure(&problem, &label, pace, contender, |_| moved)?;
    }
    Ok(())
}

/// All contenders on one matrix, in both precisions.
fn products(
    session: &mut Session<'_>,
    case: &Case,
    matrix: &Csr<f64>,
    options: &Throughput,
) -> Result<(), BenchError> {
    let kernels: Vec<Configuration> = match options.kernels.as_slice() {
        [] => case.experiment.kernels().into_iter().map(Configuration::Kernel).collect(),
        given => given.to_vec(),
    };
    one_precision(session, case, matrix, &kernels)?;
    if !options.no_f32 {
        session.note(&format!("{:<22} in f32:", case.name))?;
        one_precision(session, case, &matrix.cast::<f32>(), &kernels)?;
    }
    if session.library.is_none() {
        return Ok(());
    }
    session.note(&format!("{:<22} in f64:", case.name))?;
    let x = operand(matrix.ncols());
    let view = matrix.view();
    let oracle = |y: &[f64]| spmv_error(view, &x, y).map(|(row, e)| format!("row {row}: {e}"));
    let problem = problem(case, matrix, &oracle);
    let mut operands = session.operands(&problem, &x)?;
    let host = HostCsr::single(view.pattern(), view.values());
    session.measure_formats(&problem, "", &host, &mut operands)
}

fn problem<'a, T: Value>(
    case: &'a Case,
    matrix: &Csr<T>,
    oracle: &'a dyn Fn(&[f64]) -> Option<String>,
) -> Problem<'a> {
    Problem {
        case: &case.name,
        experiment: Some(case.experiment.name()),
        batch: 1,
        nrows: matrix.nrows(),
        ncols: matrix.ncols(),
        nnz: matrix.nnz(),
        oracle,
    }
}

/// Our kernels on one matrix.
fn one_precision<T: Value>(
    session: &mut Session<'_>,
    case: &Case,
    matrix: &Csr<T>,
    kernels: &[Configuration],
) -> Result<(), BenchError> {
    let view = matrix.view();
    let x: Vec<T> = operand(matrix.ncols());
    let oracle = |y: &[f64]| {
        // An answer in T is not changed by the way through f64.
        let y: Vec<T> = y.iter().map(|&value| T::from_f64(value)).collect();
        spmv_error(view, &x, &y).map(|(row, error)| format!("row {row}: {error}"))
    };
    let problem = problem(case, matrix, &oracle);
    let pace = session.pace(&problem);
    let device = session.device.clone();
    let useful = useful_bytes::<T>(matrix);
    let copies = copies(useful, device.info().l2_bytes);
    let mut operands = Operands::new(&device, &x, matrix.nrows(), copies)?;
    for &configuration in kernels {
        // Kernels of the processor are those of another suite.
        let Some(options) = configuration.options() else { continue };
        let contender = Contender::new(&mut operands, |_| SinglePlan::new(&device, view, &options));
        let label = Label::ours(configuration.to_string(), configuration.is_automatic());
        let bytes = |plan: &SinglePlan<_, T>| plan.explain().bytes_moved(false) as u64;
        session.measure(&problem, &labelled::<T>(label, useful), pace, contender, bytes)?;
    }
    if !case.experiment.has_gathers() {
        return Ok(());
    }
    for (lanes, rows) in [(1, "scalar"), (32, "vector")] {
        for (is_cached, place) in [(true, "cached"), (false, "not cached")] {
            let contender =
                Contender::new(&mut operands, |_| Gather::new(&device, view, lanes, is_cached));
            let name = format!("plain csr-{rows}, x {place}");
            let label = labelled::<T>(Label::ours(name, false), useful);
            session.measure(&problem, &label, pace, contender, Gather::bytes_moved)?;
        }
    }
    Ok(())
}

/// A vector of values uniform in [-1, 1), rounded to T.
fn operand<T: Value>(len: usize) -> Vec<T> {
    (0..len as u64).map(|place| T::from_f64(2.0 * rng::uniform(96, 0, place) - 1.0)).collect()
}

/// As of [`Row`](crate::Row), for values of any size: 2 bytes of index an entry and a row.
fn useful_bytes<T: Value>(matrix: &Csr<T>) -> f64 {
    let values = matrix.nnz() + 2 * matrix.nrows() + matrix.ncols();
    (size_of::<T>() * values + 2 * (matrix.nnz() + matrix.nrows())) as f64
}

fn labelled<T: Value>(label: Label, useful_bytes: f64) -> Label {
    let precision = if size_of::<T>() == 4 { "f32" } else { "f64" };
    Label { precision, useful_bytes: Some(useful_bytes), ..label }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::generate::banded;

    #[test]
    fn useful_bytes_in_f64_are_those_of_rows() {
        let case = Case::of_matrix(Experiment::Banded, Source::banded(10, 3));
        let matrix = banded(10, 3, 1).unwrap();

        assert_eq!(useful_bytes(&matrix), problem(&case, &matrix, &|_| None).useful_bytes());
        // 28 entries: 6 bytes each, and 10 rows of 2 + 4 + 8.
        assert_eq!(useful_bytes(&matrix.cast::<f32>()), 6.0 * 28.0 + 10.0 * 14.0);
    }

    #[test]
    fn the_kernels_compile_for_every_architecture() {
        use sparsebatch_spmv_gpu::device::nvrtc::{Program, compile};
        use sparsebatch_spmv_gpu::{kernels::program_of, testing::nvrtc_or_skip};
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
                source: &program_of("throughput", ffi::SOURCE.text()),
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

    fn spills(kernel: &sparsebatch_spmv_gpu::device::nvrtc::CompiledKernel) -> u32 {
        kernel.resources.map_or(0, |resources| resources.spill_store_bytes)
    }
}
