//! A run of products on a GPU.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use sparsebatch_cuda::device::{Bandwidth, availability, measure_bandwidth};
use sparsebatch_cuda::{Device, Executor, GpuError, KernelKey, Value};
use sparsebatch_formats::generate::random;
use sparsebatch_formats::{Batch, Csr, CsrPattern, Pattern, Scalar, UniformBatch, View};
use sparsebatch_spmv_gpu::single::SingleExplain;
use sparsebatch_spmv_gpu::{PackedOptions, PackedPlan, SingleOptions, SinglePlan};

use super::{CUSPARSE, Costs, Label, Measured, Problem, host_cores};
use crate::begin;
use crate::contender::{Contender, Multiply, Operand, Operands, Timed};
use crate::cusparse::{CusparseLibrary, Format, HostCsr, Matrix};
use crate::energy::EnergyMeter;
use crate::parallel;
use crate::phases::Phase::{Ceilings, Checking, Compiling, Measuring, Planning, Uploading};
use crate::phases::timed;
use crate::recorder::Recorder;
use crate::timing::{Pace, copies, time};
use crate::{BenchError, Outcome};
use sparsebatch_rows::summary::OURS;
use sparsebatch_rows::{Gap, Machine};

/// Most entries of a pattern whose kernels are compiled beforehand.
const COMPILED_VALUES: usize = 1 << 22;

/// Assumed slots per entry of a matrix before its conversion.
const PADDED: usize = 2;

/// Rows of the small matrix whose plans compile the kernels.
const SMALL: usize = 256;

/// A device, the peer on it, and the recorder of rows.
pub(crate) struct Session<'a> {
    pub(crate) device: Device,
    pub(crate) library: Option<CusparseLibrary>,
    /// The energy meter, if energy is measured.
    pub(crate) meter: Option<EnergyMeter>,
    pub(super) recorder: Recorder<'a>,
}

impl<'a> Session<'a> {
    /// Starts a run: finds device and peer, measures the bandwidth, prints a summary of them.
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
        let bandwidth = timed(Ceilings, || measure_bandwidth(&device))?;
        let found = peers.then(|| CusparseLibrary::load(&device));
        let machine = Machine {
            cusparse: found
                .as_ref()
                .and_then(|found| found.as_ref().ok())
                .map(CusparseLibrary::version),
            ..machine(&device, bandwidth)
        };
        let mut recorder = Recorder::new(begin(suite, machine), output, report)?;
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
        Ok(Self { device, library, meter: None, recorder })
    }

    /// Prints a line.
    pub(crate) fn note(&mut self, line: &str) -> Result<(), BenchError> {
        self.recorder.note(line)
    }

    /// The pace at which products of a problem are issued.
    pub(crate) fn pace(&self, problem: &Problem<'_>) -> Pace {
        Pace::of(problem.useful_bytes(), self.recorder.run().machine.copy_gb_per_s)
    }

    /// Vectors for a problem, in enough copies to keep its data out of the cache.
    pub(crate) fn operands<T: Value>(
        &self,
        problem: &Problem<'_>,
        x: &[T],
    ) -> Result<Operands<T>, GpuError> {
        let copies = copies(problem.useful_bytes_in::<T>(), self.device.info().l2_bytes);
        timed(Uploading, || Operands::new(&self.device, x, problem.nrows, copies))
    }

    /// Checks a contender, times it and records the row; a refusal or a wrong answer becomes a gap.
    /// Returns the plans if the contender was measured.
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
        let meter = self.meter.as_ref();
        let measured = contender.and_then(|mut contender| {
            // Checks the first and the last copy.
            for copy in (0..contender.copies()).step_by((contender.copies() - 1).max(1)) {
                let wrong = timed(Checking, || {
                    contender.answer(copy).map(|answer| (problem.oracle)(&answer))
                })?;
                if let Some(wrong) = wrong {
                    return Ok(Err(format!("wrong answer: {wrong}")));
                }
            }
            let timing = timed(Measuring, || time(&mut contender, pace))?;
            let joules = timed(Measuring, || {
                EnergyMeter::measure(
                    meter,
                    timing.median_ms,
                    &mut contender,
                    |contender, turn| contender.product(turn),
                    |contender| contender.device().synchronize(),
                )
            })?;
            let costs = costs(contender.plan()).into();
            Ok(Ok((timing, contender.copies(), costs, joules, contender)))
        });
        let (reason, is_fault) = match measured {
            Ok(Ok((timing, copies, costs, joules, contender))) => {
                if let Some(reason) = &timing.refused {
                    let name = &label.configuration;
                    self.note(&format!("{:<22} {name} is not recorded: {reason}", problem.case))?;
                }
                let measured = Measured { timing: &timing, copies, costs, backend: None };
                let run = self.recorder.run();
                let row = problem.row(run, &run.machine, label, &measured);
                self.recorder.row_with_energy(row, joules)?;
                return Ok(Some(contender.into_plans()));
            }
            Ok(Err(wrong)) => (wrong, true),
            Err(error @ GpuError::ContextLost { .. }) => return Err(error.into()),
            Err(error) => {
                let refusal = is_refusal(&error);
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

    /// Compiles kernels in parallel. Errors are ignored here: the measurement reports them again.
    pub(crate) fn prepare(&self, keys: &[KernelKey]) {
        timed(Compiling, || self.device.prepare(keys)).ok();
    }

    /// Compiles the kernels of plans for `T` in parallel, by making the plans of a small matrix,
    /// and prints the time. A plan refused here is refused again, and recorded as a gap, when it is
    /// measured.
    ///
    /// # Errors
    /// When the line cannot be printed.
    pub(crate) fn compile<T: Value>(
        &mut self,
        options: &[SingleOptions],
    ) -> Result<(), BenchError> {
        let Ok(matrix) = random(SMALL, SMALL, 4, 1).map(|matrix| matrix.cast::<T>()) else {
            return Ok(());
        };
        let (begin, device) = (Instant::now(), &self.device);
        let made = |options| SinglePlan::new(device, matrix.view(), options).is_ok();
        let count = timed(Compiling, || parallel::map(options.len(), |at| made(&options[at])));
        let count = count.into_iter().filter(|&is_made| is_made).count();
        let seconds = begin.elapsed().as_secs_f64();
        self.note(&format!("{count} plans for {} compiled in {seconds:.1} s", <T as Scalar>::NAME))
    }

    /// As [`Session::compile`], for the default kernels of uniform batches, except those with large
    /// patterns.
    ///
    /// # Errors
    /// As [`Session::compile`].
    pub(crate) fn compile_batches<'b>(
        &mut self,
        batches: impl IntoIterator<Item = &'b Batch<f64>>,
    ) -> Result<(), BenchError> {
        // Kernels do not depend on values, so all entries are 1.
        let like = |batch: &Batch<f64>| match batch {
            Batch::Uniform(batch) if batch.pattern().nnz() <= COMPILED_VALUES => {
                let matrix =
                    Csr::from_parts(Arc::clone(batch.pattern()), vec![1.0; batch.pattern().nnz()]);
                let batch = UniformBatch::shared(matrix.ok()?, batch.nitems());
                Some(Batch::Uniform(batch))
            }
            Batch::Uniform(_) | Batch::Ragged(_) => None,
        };
        let batches: Vec<Batch<f64>> = batches.into_iter().filter_map(like).collect();
        let (begin, device) = (Instant::now(), &self.device);
        let is_made = |at: usize| {
            PackedPlan::new(device.clone(), &batches[at], PackedOptions::default()).is_ok()
        };
        let made = timed(Compiling, || parallel::map(batches.len(), is_made));
        let count = made.into_iter().filter(|&is_made| is_made).count();
        let seconds = begin.elapsed().as_secs_f64();
        self.note(&format!("{count} plans of batches compiled in {seconds:.1} s"))
    }

    /// Measures our plans on one matrix, each converted once for all copies. Plans are made in
    /// parallel, as many at a time as the device has room for. Returns the [`SingleExplain`] of
    /// each plan that was measured.
    ///
    /// # Errors
    /// As [`Session::measure`].
    pub(crate) fn measure_singles<T: Value>(
        &mut self,
        problem: &Problem<'_>,
        matrix: View<'_, CsrPattern, T>,
        contenders: &[(Label, SingleOptions)],
        operands: &mut Operands<T>,
    ) -> Result<Vec<Option<SingleExplain>>, BenchError> {
        let (pace, device, copies) = (self.pace(problem), self.device.clone(), operands.copies());
        let one = size_of::<T>() + size_of::<i32>();
        let room = device.free_memory()? / 4 / (copies * PADDED * problem.nnz * one).max(1) as u64;
        let at_once = (room as usize).clamp(1, rayon::current_num_threads());
        let make = |options| SinglePlan::several(&device, matrix, options, copies);
        let mut explained = Vec::with_capacity(contenders.len());
        for group in contenders.chunks(at_once) {
            let plans = timed(Planning, || parallel::map(group.len(), |at| make(&group[at].1)));
            let mut plans = VecDeque::from(plans);
            for (label, options) in group {
                let plan = match plans.pop_front() {
                    // The plans after it hold the memory that it needs: frees them and tries again.
                    Some(Err(GpuError::OutOfMemory { .. })) => {
                        plans.iter_mut().for_each(|plan| {
                            *plan = Err(GpuError::OutOfMemory { needed: 0, free: 0 });
                        });
                        timed(Planning, || make(options))
                    }
                    Some(plan) => plan,
                    None => make(options),
                };
                let label = label.clone().in_precision::<T>(problem.useful_bytes_in::<T>());
                let contender = plan.map(|plans| Contender::of(operands, plans));
                let bytes = |plan: &SinglePlan<_, T>| plan.explain().bytes_moved(false) as u64;
                let plans = self.measure(problem, &label, pace, contender, bytes)?;
                explained.push(plans.and_then(|plans| Some(plans.first()?.explain().clone())));
            }
        }
        Ok(explained)
    }

    /// Measures cuSPARSE on one matrix as [`Session::measure_formats`] does, with vectors of its own,
    /// which are made only if the library was found.
    ///
    /// # Errors
    /// As [`Session::measure`].
    pub(crate) fn measure_peer_of<T: Value>(
        &mut self,
        problem: &Problem<'_>,
        matrix: View<'_, CsrPattern, T>,
        x: &[T],
    ) -> Result<(), BenchError> {
        if self.library.is_none() {
            return Ok(());
        }
        let mut operands = self.operands(problem, x)?;
        let host = HostCsr::single(matrix.pattern(), matrix.values());
        self.measure_formats(problem, "", &host, None, &mut operands)
    }

    /// Measures every format and algorithm of cuSPARSE on one matrix, if the library was found.
    /// With one copy, the values may be on the device already.
    ///
    /// # Errors
    /// As [`Session::measure`].
    pub(crate) fn measure_formats<T: Value>(
        &mut self,
        problem: &Problem<'_>,
        prefix: &str,
        matrix: &HostCsr<'_, T>,
        values: Option<&Operand<T>>,
        operands: &mut Operands<T>,
    ) -> Result<(), BenchError> {
        let Some(library) = self.library.clone() else { return Ok(()) };
        let (pace, copies) = (self.pace(problem), operands.copies());
        let mut entries = Some(timed(Planning, || library.entries(matrix, values, copies)));
        for format in Format::ALL {
            let uploaded = timed(Planning, || match (format, &entries) {
                (Format::Csr | Format::Coo, Some(entries)) => {
                    let entries = entries.as_ref().map_err(GpuError::clone)?;
                    library.of_entries(matrix, format, entries)
                }
                _ => {
                    entries = None;
                    library.in_slices(matrix, copies)
                }
            });
            for &algorithm in format.algorithms() {
                let contender = uploaded.as_ref().map_err(GpuError::clone).and_then(|uploaded| {
                    timed(Planning, || {
                        Contender::new(operands, |copy| library.matrix(&uploaded[copy], algorithm))
                    })
                });
                let label = Label::peer(format!("{prefix}{}", algorithm.name()));
                let label = label.in_precision::<T>(problem.useful_bytes_in::<T>());
                self.measure(problem, &label, pace, contender, Matrix::bytes_moved)?;
            }
        }
        Ok(())
    }

    /// Ends the run. The rows so far are kept when it ended early.
    ///
    /// # Errors
    /// The reason why it ended early; an error of printing or writing.
    pub(crate) fn finish(mut self, ended: Result<(), BenchError>) -> Result<Outcome, BenchError> {
        if ended.is_ok()
            && let Ok(found) = timed(Ceilings, || measure_bandwidth(&self.device))
        {
            let device = self.device.info().name.clone();
            self.recorder.copy_at_end(Some(&device), found.copy_gb_per_s);
        }
        let outcome = self.recorder.finish()?;
        ended.map(|()| outcome)
    }
}

/// Whether an error is a refusal: an unsupported format or argument, or too little memory.
pub(crate) fn is_refusal(error: &GpuError) -> bool {
    matches!(
        error,
        GpuError::Format { .. } | GpuError::InvalidArgument { .. } | GpuError::OutOfMemory { .. }
    )
}

/// A device as rows describe it, without peers.
pub(crate) fn machine(device: &Device, bandwidth: Bandwidth) -> Machine {
    Machine {
        copy_gb_per_s: bandwidth.copy_gb_per_s,
        read_gb_per_s: Some(bandwidth.read_gb_per_s),
        ..machine_of(device)
    }
}

/// A GPU as rows describe it, without bandwidths and libraries.
pub fn machine_of(device: &Device) -> Machine {
    let info = device.info();
    Machine {
        device: Some(info.name.clone()),
        driver: driver(),
        cuda: Some(info.driver_version.to_string()),
        cores: host_cores(),
        l2_bytes: Some(info.l2_bytes),
        ..Machine::default()
    }
}

/// The version of the driver, if the system tells.
fn driver() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    version_in(&text)
}

/// The first word of the first line that has only digits and points, with at least one point.
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
}
