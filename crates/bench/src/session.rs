//! A run on a device: what both suites do alike.

use std::io::Write;
use std::path::Path;

use sparsebatch_spmv_gpu::device::{Bandwidth, availability, measure_bandwidth};
use sparsebatch_spmv_gpu::{Device, Executor, GpuError, Value};

use crate::contender::{Contender, Multiply, Operands, Timed};
use crate::cusparse::{Format, HostCsr, Library, Matrix};
use crate::recorder::{Gap, Recorder};
use crate::row::{Machine, Row, Run, SCHEMA};
use crate::summary::OURS;
use crate::timing::{Pace, Timing, copies, time};
use crate::{BenchError, Outcome};

/// The name of the peer in rows.
pub(crate) const CUSPARSE: &str = "cuSPARSE";

/// A device, the peer on it, and where rows go.
pub(crate) struct Session<'a> {
    pub(crate) device: Device,
    pub(crate) library: Option<Library>,
    recorder: Recorder<'a>,
}

/// What is multiplied.
pub(crate) struct Problem<'a> {
    pub(crate) case: &'a str,
    pub(crate) experiment: Option<&'a str>,
    pub(crate) batch: usize,
    pub(crate) nrows: usize,
    pub(crate) ncols: usize,
    pub(crate) nnz: usize,
    /// What is wrong with an answer.
    pub(crate) oracle: &'a dyn Fn(&[f64]) -> Option<String>,
}

impl Problem<'_> {
    /// See [`Row`].
    pub(crate) fn useful_bytes(&self) -> f64 {
        10.0 * self.nnz as f64 + 18.0 * self.nrows as f64 + 8.0 * self.ncols as f64
    }
}

/// What a plan costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Bytes that a product moves at least.
    pub(crate) bytes_moved: u64,
    /// From arrays on the device to the plan, where it says so.
    pub(crate) plan_ms: Option<f64>,
}

impl From<u64> for Costs {
    fn from(bytes_moved: u64) -> Self {
        Self { bytes_moved, plan_ms: None }
    }
}

/// What multiplies.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) library: &'static str,
    pub(crate) configuration: String,
    pub(crate) automatic: bool,
    pub(crate) precision: &'static str,
    /// Useful bytes, where they are not those of products in f64.
    pub(crate) useful_bytes: Option<f64>,
}

impl Label {
    /// One of ours.
    pub(crate) fn ours(configuration: impl Into<String>, automatic: bool) -> Self {
        Self::of(OURS, configuration.into(), automatic)
    }

    /// One of the peer's.
    pub(crate) fn peer(configuration: impl Into<String>) -> Self {
        Self::of(CUSPARSE, configuration.into(), false)
    }

    fn of(library: &'static str, configuration: String, automatic: bool) -> Self {
        Self { library, configuration, automatic, precision: "f64", useful_bytes: None }
    }
}

impl<'a> Session<'a> {
    /// Starts a run: finds device and peer, measures the bandwidth, prints what was found.
    ///
    /// # Errors
    /// The reason why there is no GPU; an output that cannot be written.
    pub(crate) fn start(
        suite: &'static str,
        peers: bool,
        output: Option<&Path>,
        report: &'a mut dyn Write,
    ) -> Result<Self, BenchError> {
        availability()?;
        let device = Device::new(0)?;
        let bandwidth = measure_bandwidth(&device)?;
        let found = peers.then(|| Library::load(&device));
        let machine = Machine {
            cusparse: found.as_ref().and_then(|found| found.as_ref().ok()).map(Library::version),
            ..machine(&device, bandwidth)
        };
        let mut recorder = Recorder::new(Run::new(suite, machine), output, report)?;
        let library = match found {
            None => None,
            Some(Ok(library)) => Some(library),
            Some(Err(reason)) => {
                let (case, configuration) = ("all".to_owned(), "all".to_owned());
                let library = CUSPARSE.to_owned();
                recorder.gap(Gap { case, library, configuration, reason, is_fault: false })?;
                None
            }
        };
        Ok(Self { device, library, recorder })
    }

    /// Prints a line.
    pub(crate) fn note(&mut self, line: &str) -> Result<(), BenchError> {
        self.recorder.note(line)
    }

    /// Takes a case that cannot be measured at all.
    pub(crate) fn absent(&mut self, case: &str, reason: &str) -> Result<(), BenchError> {
        let (library, configuration) = (OURS.to_owned(), "all".to_owned());
        let (case, reason) = (case.to_owned(), reason.to_owned());
        self.recorder.gap(Gap { case, library, configuration, reason, is_fault: false })
    }

    /// Takes the matrices of a published table that are not there.
    pub(crate) fn absent_of(
        &mut self,
        table: &[&str],
        is_there: impl Fn(&str) -> bool,
    ) -> Result<(), BenchError> {
        let missing = table.iter().filter(|name| !is_there(name));
        missing.copied().try_for_each(|name| {
            self.absent(name, "not in a folder of --matrices; corpus fetch gets it")
        })
    }

    /// How products of a problem are issued.
    pub(crate) fn pace(&self, problem: &Problem<'_>) -> Pace {
        Pace::of(problem.useful_bytes(), self.recorder.run().machine.copy_gb_per_s)
    }

    /// Vectors for a problem, in as many copies as its data need not to stay in the cache.
    pub(crate) fn operands(&self, problem: &Problem<'_>, x: &[f64]) -> Result<Operands, GpuError> {
        let copies = copies(problem.useful_bytes(), self.device.info().l2_bytes);
        Operands::new(&self.device, x, problem.nrows, copies)
    }

    /// Checks a contender, times it and takes the row; a refusal or a wrong answer becomes a gap.
    /// Returns the plans of what was measured.
    ///
    /// # Errors
    /// When the device is lost, and when the row cannot be printed or written.
    pub(crate) fn measure<P: Multiply<T>, T: Value, C: Into<Costs>>(
        &mut self,
        problem: &Problem<'_>,
        label: &Label,
        pace: Pace,
        contender: Result<Contender<'_, P, T>, GpuError>,
        costs: impl FnOnce(&P) -> C,
    ) -> Result<Option<Vec<P>>, BenchError> {
        let measured = contender.and_then(|mut contender| {
            // The first and the last copy.
            for copy in (0..contender.copies()).step_by((contender.copies() - 1).max(1)) {
                if let Some(wrong) = (problem.oracle)(&contender.answer(copy)?) {
                    return Ok(Err(format!("wrong answer: {wrong}")));
                }
            }
            let timing = time(&mut contender, pace)?;
            Ok(Ok((timing, contender.copies(), costs(contender.plan()).into(), contender)))
        });
        let (reason, is_fault) = match measured {
            Ok(Ok((timing, copies, costs, contender))) => {
                if let Some(reason) = &timing.refused {
                    let name = &label.configuration;
                    self.note(&format!("{:<22} {name} is not recorded: {reason}", problem.case))?;
                }
                let row = self.row(problem, label, &timing, copies, costs);
                self.recorder.row(row)?;
                return Ok(Some(contender.into_plans()));
            }
            Ok(Err(wrong)) => (wrong, true),
            Err(error @ GpuError::ContextLost { .. }) => return Err(error.into()),
            Err(error) => {
                let refusal = matches!(
                    error,
                    GpuError::Format { .. }
                        | GpuError::InvalidArgument { .. }
                        | GpuError::OutOfMemory { .. }
                );
                (error.to_string(), !refusal && label.library == OURS)
            }
        };
        self.recorder.gap(Gap {
            case: problem.case.to_owned(),
            library: label.library.to_owned(),
            configuration: label.configuration.clone(),
            reason,
            is_fault,
        })?;
        Ok(None)
    }

    /// Measures every format and algorithm of cuSPARSE on one matrix, if the library is here.
    ///
    /// # Errors
    /// As [`Session::measure`].
    pub(crate) fn measure_formats(
        &mut self,
        problem: &Problem<'_>,
        prefix: &str,
        matrix: &HostCsr<'_>,
        operands: &mut Operands,
    ) -> Result<(), BenchError> {
        let Some(library) = self.library.clone() else { return Ok(()) };
        let pace = self.pace(problem);
        for format in Format::ALL {
            let uploaded = library.upload(matrix, format, operands.copies());
            for &algorithm in format.algorithms() {
                let contender = uploaded.as_ref().map_err(GpuError::clone).and_then(|uploaded| {
                    Contender::new(operands, |copy| library.matrix(&uploaded[copy], algorithm))
                });
                let label = Label::peer(format!("{prefix}{}", algorithm.name()));
                self.measure(problem, &label, pace, contender, Matrix::bytes_moved)?;
            }
        }
        Ok(())
    }

    fn row(
        &self,
        problem: &Problem<'_>,
        label: &Label,
        timing: &Timing,
        copies: usize,
        Costs { bytes_moved, plan_ms }: Costs,
    ) -> Row {
        let run = self.recorder.run();
        let seconds = timing.median_ms * 1e-3;
        let share = |bytes: f64| Some(bytes / seconds / 1e9 / run.machine.copy_gb_per_s);
        Row {
            schema: SCHEMA,
            suite: run.suite.to_owned(),
            experiment: problem.experiment.map(str::to_owned),
            case: problem.case.to_owned(),
            library: label.library.to_owned(),
            configuration: label.configuration.clone(),
            automatic: label.automatic,
            backend: None,
            operation: "spmv".to_owned(),
            preconditioner: None,
            precision: label.precision.to_owned(),
            batch: problem.batch as u64,
            n: problem.nrows as u64,
            nnz: problem.nnz as u64,
            rows: problem.nrows as u64,
            columns: problem.ncols as u64,
            median_ms: timing.median_ms,
            min_ms: timing.min_ms,
            max_ms: timing.max_ms,
            wall_ms: None,
            rounds: timing.rounds as u64,
            products: timing.products as u64,
            timing: if timing.recorded { "graph" } else { "events" }.to_owned(),
            copies: copies as u64,
            share_of_copy: share(label.useful_bytes.unwrap_or(problem.useful_bytes())),
            share_moved: share(bytes_moved as f64),
            bytes_moved: Some(bytes_moved),
            plan_ms,
            gflops: Some(2.0 * problem.nnz as f64 / seconds / 1e9),
            mean_iterations: None,
            max_relative_residual: None,
            converged: None,
            device_bytes: None,
            share_of_fitting: None,
            machine: run.machine.clone(),
            run: run.id.clone(),
            date: run.date.clone(),
            commit: run.commit.clone(),
        }
    }

    /// Ends the run. What was measured is kept when it ended early.
    ///
    /// # Errors
    /// Why it ended early; what printing or writing reports.
    pub(crate) fn finish(self, ended: Result<(), BenchError>) -> Result<Outcome, BenchError> {
        let copy = match &ended {
            Ok(()) => measure_bandwidth(&self.device).ok().map(|found| found.copy_gb_per_s),
            Err(_) => None,
        };
        let outcome = self.recorder.finish(copy)?;
        ended.map(|()| outcome)
    }
}

/// A device as rows describe it, without peers.
pub(crate) fn machine(device: &Device, bandwidth: Bandwidth) -> Machine {
    Machine {
        copy_gb_per_s: bandwidth.copy_gb_per_s,
        read_gb_per_s: Some(bandwidth.read_gb_per_s),
        ..Machine::of_device(device)
    }
}

impl Machine {
    /// A GPU, without bandwidths and libraries.
    pub fn of_device(device: &Device) -> Self {
        let info = device.info();
        Self {
            device: Some(info.name.clone()),
            driver: driver(),
            cuda: Some(info.driver_version.to_string()),
            cores: cores(),
            l2_bytes: Some(info.l2_bytes),
            ..Self::default()
        }
    }
}

/// Processor cores.
pub(crate) fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

/// The version of the driver, where the system tells it.
fn driver() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    version_in(&text)
}

/// The first word of digits and points with at least one of each.
fn version_in(text: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_found_in_its_own_words() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release\n";

        assert_eq!(version_in(text).as_deref(), Some("580.95.05"));
        assert_eq!(version_in("none"), None);
        assert_eq!(version_in(""), None);
    }

    #[test]
    fn useful_bytes_are_those_of_the_row() {
        let problem = Problem {
            case: "",
            experiment: None,
            batch: 1,
            nrows: 10,
            ncols: 5,
            nnz: 100,
            oracle: &|_| None,
        };

        assert_eq!(problem.useful_bytes(), 1000.0 + 180.0 + 40.0);
    }
}
