//! A run of solves: contenders are checked, timed and become rows.

use std::cell::RefCell;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use rayon::prelude::*;
use sparsebatch_cuda::device::measure_bandwidth;
use sparsebatch_cuda::{Device, Executor, GpuError};
use sparsebatch_formats::Scalar;
use sparsebatch_solvers::gpu::GpuTuning;
use sparsebatch_solvers::{
    Engine, Gpu, InnerPrecision, Method, Preconditioner, SolveError, SolveOptions,
};

use super::clock::time;
use super::gpu::{DeviceSystems, GpuSolve, is_soon_made, plan};
use super::host::HostSolve;
use super::rows::{Label, judge, preconditioner, unsolved};
use super::systems::Systems;
use super::{Real, Solve};
use crate::begin;
use crate::cublas::{self, DenseLu};
use crate::energy::EnergyMeter;
use crate::phases::Phase::{Ceilings, Checking, Compiling, Measuring, Planning, Uploading};
use crate::phases::timed;
use crate::recorder::Recorder;
use crate::session::{self, Bench, Effort, Host, Parts, Target, machine};
use crate::timing::copies;
use crate::{BenchError, Outcome as Measured};
use sparsebatch_rows::solves::reference::Reference;
use sparsebatch_rows::summary::OURS;
use sparsebatch_rows::{Gap, Machine, Row};

/// The name of the peer in rows.
pub(crate) const CUBLAS: &str = "cuBLAS";

/// What is measured of it, in words.
const DENSE_LU: &str = "dense LU";

/// The GPU, the peer on it, the processor, and where rows go.
pub(crate) struct SolveSession<'a> {
    device: Option<Device>,
    cublas: Option<cublas::Library>,
    host: Option<Host>,
    /// What joules of the GPU are counted by.
    meter: Option<EnergyMeter>,
    /// The experiment of the rows that follow.
    experiment: Option<&'static str>,
    /// Whether a solve is measured that iterates in the working precision though it need not: where no other does.
    repeats: bool,
    recorder: Recorder<'a>,
}

/// A batch with its name.
pub(crate) struct Problem<'a, T: Real> {
    case: &'a str,
    systems: &'a Systems<T>,
    /// On the GPU, while solvers there follow each other.
    uploaded: RefCell<Option<DeviceSystems<T>>>,
}

impl<'a, T: Real> Problem<'a, T> {
    /// A batch under a name.
    pub(crate) fn new(case: &'a str, systems: &'a Systems<T>) -> Self {
        Self { case, systems, uploaded: RefCell::new(None) }
    }
}

impl<'a> SolveSession<'a> {
    /// Starts a run: finds what it runs on, and prints that. Without a GPU our solvers there and,
    /// with `peers`, cuBLAS become gaps.
    ///
    /// # Errors
    /// The reason why a GPU cannot be used; an output that cannot be written.
    pub(crate) fn start(
        suite: &'static str,
        target: &Target,
        peers: bool,
        output: Option<&Path>,
        report: &'a mut dyn Write,
    ) -> Result<Self, BenchError> {
        let host = target.host.then(|| Host::new(Effort::default()));
        let (mut device, mut found, mut gpu) = (None, None, None);
        if target.no_gpu.is_none() {
            let first = Device::new(0)?;
            found = peers.then(|| cublas::Library::load(&first));
            let version = found.as_ref().and_then(|found| found.as_ref().ok());
            let cublas = version.map(cublas::Library::version);
            gpu = Some(Machine {
                cublas,
                ..machine(&first, timed(Ceilings, || measure_bandwidth(&first))?)
            });
            device = Some(first);
        }
        let on = gpu.or(host.as_ref().map(|host| host.machine().clone())).unwrap_or_default();
        let mut recorder = Recorder::new(begin(suite, on), output, report)?;
        if let Some(reason) = &target.no_gpu {
            recorder.gap(Gap::new("all", OURS, "all solvers of the GPU", reason))?;
            if peers {
                recorder.gap(Gap::new("all", CUBLAS, DENSE_LU, reason))?;
            }
        } else if let Some(host) = &host {
            recorder.note(&format!("and on {}", host.described()))?;
        }
        let cublas = Self::peer(found, &mut recorder)?;
        Ok(Self { device, cublas, host, meter: None, experiment: None, repeats: false, recorder })
    }

    /// Goes on with solves where a run has measured products.
    ///
    /// # Errors
    /// When a gap cannot be printed or written.
    pub(crate) fn of(bench: Bench<'a>, peers: bool) -> Result<Self, BenchError> {
        let Parts { mut recorder, device, meter, host } = bench.into_parts();
        let found = device.as_ref().filter(|_| peers).map(cublas::Library::load);
        let cublas = Self::peer(found, &mut recorder)?;
        Ok(Self { device, cublas, host, meter, experiment: None, repeats: true, recorder })
    }

    /// Names the experiment of the rows that follow.
    pub(crate) fn experiment(&mut self, experiment: Option<&'static str>) {
        self.experiment = experiment;
    }

    /// The peer, or a gap.
    fn peer(
        found: Option<Result<cublas::Library, String>>,
        recorder: &mut Recorder<'_>,
    ) -> Result<Option<cublas::Library>, BenchError> {
        match found.transpose() {
            Ok(library) => Ok(library),
            Err(reason) => {
                recorder.gap(Gap::new("all", CUBLAS, DENSE_LU, reason))?;
                Ok(None)
            }
        }
    }

    /// Prints a line.
    pub(crate) fn note(&mut self, line: &str) -> Result<(), BenchError> {
        self.recorder.note(line)
    }

    /// Takes a recorded figure as a row.
    pub(crate) fn reference(
        &mut self,
        reference: &Reference,
        source: &str,
    ) -> Result<(), BenchError> {
        let row = reference.row(self.recorder.run(), source);
        self.recorder.row(row)
    }

    /// Whether the GPU is measured.
    pub(crate) fn has_gpu(&self) -> bool {
        self.device.is_some()
    }

    /// Compiles the kernels of our solvers of some systems at the same time, if the GPU is measured, by
    /// making their plans, and prints how long that took. What is refused here is refused again, and a
    /// gap, where it is measured.
    ///
    /// # Errors
    /// When the line cannot be printed.
    pub(crate) fn compile<T: Real>(
        &mut self,
        jobs: &[(&Systems<T>, SolveOptions)],
    ) -> Result<(), BenchError> {
        let Some(device) = self.device.clone() else { return Ok(()) };
        let begin = Instant::now();
        let is_made = |(systems, options): &&(&Systems<T>, SolveOptions)| {
            is_soon_made(systems, options, device.info())
                && plan(&device, systems, options, None).is_ok()
        };
        let count = timed(Compiling, || jobs.par_iter().filter(is_made).count());
        let seconds = begin.elapsed().as_secs_f64();
        let precision = <T as Scalar>::NAME;
        self.note(&format!("{count} solvers for {precision} compiled in {seconds:.1} s"))
    }

    /// Measures our solver on the GPU, if it is asked for.
    ///
    /// # Errors
    /// When the device is lost, and when the row cannot be printed or written.
    pub(crate) fn gpu<T: Real>(
        &mut self,
        problem: &Problem<'_, T>,
        options: &SolveOptions,
        tuning: Option<&GpuTuning>,
    ) -> Result<(), BenchError> {
        let Some(device) = self.device.clone() else { return Ok(()) };
        let systems = problem.systems;
        let (mut plan_ms, mut is_other) = (None, true);
        let mut configuration = match tuning {
            None => options.method.name().to_owned(),
            Some(tuning) => format!("{} {}", options.method, shape(tuning)),
        };
        let contender = timed(Planning, || {
            // The first one compiles.
            drop(plan(&device, systems, options, tuning)?);
            let begin = Instant::now();
            let plan = plan(&device, systems, options, tuning)?;
            plan_ms = Some(begin.elapsed().as_secs_f64() * 1e3);
            configuration = plan.configuration();
            is_other = self.repeats || is_first(options) || plan.is_mixed();
            if let Some(tuning) = tuning {
                configuration.extend(limits(tuning).map(|limit| format!(" {limit}")));
            }
            let mut uploaded = problem.uploaded.borrow_mut();
            if uploaded.is_none() {
                let copies = copies(systems.bytes() as f64, device.info().l2_bytes);
                let made = timed(Uploading, || DeviceSystems::new(&device, systems, copies))?;
                *uploaded = Some(made);
            }
            GpuSolve::new(&device, plan, uploaded.as_ref().expect("made above"))
        });
        // What would be the solve in the working precision once more.
        if !is_other {
            return Ok(());
        }
        let automatic = tuning.is_none() && options.engine == Engine::Fused;
        let label = Label { library: OURS, backend: Some("gpu"), automatic, options };
        let finish = |_: &GpuSolve<T>, row: &mut Row| {
            (row.configuration, row.plan_ms) = (configuration.clone(), plan_ms);
        };
        self.measure(problem, &label, contender, Some(&device), &configuration, finish)
    }

    /// Measures our solver on the GPU with everything on the host: copies there and back are part of
    /// the time. Its rate is held against `fitting_ms` where that is given. Returns the median.
    ///
    /// # Errors
    /// As [`SolveSession::gpu`].
    pub(crate) fn end_to_end<T: Real>(
        &mut self,
        problem: &Problem<'_, T>,
        options: &SolveOptions,
        (name, experiment): (&str, Option<&str>),
        gpu: impl FnOnce(Device) -> Gpu,
        fitting_ms: Option<f64>,
    ) -> Result<Option<f64>, BenchError> {
        let Some(device) = self.device.clone() else { return Ok(None) };
        problem.uploaded.take();
        let begin = Instant::now();
        let contender =
            timed(Planning, || HostSolve::on_gpu(gpu(device), problem.systems, options));
        let plan_ms = Some(begin.elapsed().as_secs_f64() * 1e3);
        let label = Label { library: OURS, backend: Some("gpu"), automatic: true, options };
        let mut median_ms = None;
        let finish = |solve: &HostSolve<'_, T>, row: &mut Row| {
            median_ms = Some(row.median_ms);
            row.experiment = experiment.map(str::to_owned);
            (row.configuration, row.plan_ms) = (format!("{name}: {}", solve.pieces()), plan_ms);
            row.device_bytes = solve.device_bytes();
            row.share_of_fitting = fitting_ms.map(|fitting_ms| fitting_ms / row.median_ms);
        };
        self.measure(problem, &label, contender, None, name, finish)?;
        Ok(median_ms)
    }

    /// Measures our solver on the CPU, if it is asked for.
    ///
    /// # Errors
    /// As [`SolveSession::gpu`].
    pub(crate) fn cpu<T: Real>(
        &mut self,
        problem: &Problem<'_, T>,
        options: &SolveOptions,
    ) -> Result<(), BenchError> {
        if self.host.is_none() {
            return Ok(());
        }
        let begin = Instant::now();
        let contender = timed(Planning, || HostSolve::on_cpu(problem.systems, options));
        let plan_ms = Some(begin.elapsed().as_secs_f64() * 1e3);
        let label = Label { library: OURS, backend: Some("cpu"), automatic: true, options };
        let refused = format!("cpu {}", options.method);
        let finish = |solve: &HostSolve<'_, T>, row: &mut Row| {
            (row.configuration, row.plan_ms) = (solve.configuration(), plan_ms);
        };
        self.measure(problem, &label, contender, None, &refused, finish)
    }

    /// Measures the dense batched LU of cuBLAS, if the library is here. What it solves is counted by
    /// the test of solutions, with a rounding floor.
    ///
    /// # Errors
    /// As [`SolveSession::gpu`].
    pub(crate) fn dense_lu<T: cublas::Element + Real>(
        &mut self,
        problem: &Problem<'_, T>,
        floor: f64,
    ) -> Result<(), BenchError> {
        let (Some(device), Some(library)) = (self.device.clone(), self.cublas.clone()) else {
            return Ok(());
        };
        problem.uploaded.take();
        let contender = timed(Uploading, || DenseLu::new(&device, &library, problem.systems));
        let contender = contender.map_err(SolveError::from);
        let options = &SolveOptions::new().method(Method::Lu).floor(floor);
        let label = Label { library: CUBLAS, backend: None, automatic: false, options };
        let refused = cublas::CONFIGURATION;
        let finish = |_: &DenseLu<T>, row: &mut Row| row.configuration = refused.to_owned();
        self.measure(problem, &label, contender, Some(&device), refused, finish)
    }

    /// Checks a contender, times it and takes the row that `finish` completes; a refusal or a wrong
    /// answer becomes a gap.
    fn measure<T: Real, S: Solve<T>>(
        &mut self,
        problem: &Problem<'_, T>,
        label: &Label<'_>,
        contender: Result<S, SolveError>,
        device: Option<&Device>,
        refused: &str,
        finish: impl FnOnce(&S, &mut Row),
    ) -> Result<(), BenchError> {
        let meter = match (label.backend, &self.host) {
            (Some("cpu"), host) => host.as_ref().and_then(|host| host.meter.as_ref()),
            _ => self.meter.as_ref(),
        };
        let measured = contender.and_then(|mut contender| {
            let judged = timed(Checking, || judge(problem.systems, &mut contender, label.options))?;
            let judged = match judged {
                Ok(judged) => judged,
                Err(wrong) => return Ok(Err(wrong)),
            };
            let timing = timed(Measuring, || time(&mut contender, device))?;
            let joules = timed(Measuring, || {
                EnergyMeter::measure(
                    meter,
                    timing.timing.median_ms,
                    &mut contender,
                    |contender, turn| {
                        contender.restore(turn)?;
                        contender.solve(turn)
                    },
                    |_| Ok::<_, SolveError>(device.map_or(Ok(()), Executor::synchronize)?),
                )
            })?;
            let run = self.recorder.run();
            let host = self.host.as_ref().filter(|_| label.backend == Some("cpu"));
            let machine = host.map_or(&run.machine, Host::machine);
            let case = (problem.case, problem.systems);
            let mut row = label.row(run, machine, case, &timing, &judged);
            row.experiment = self.experiment.map(str::to_owned);
            row.copies = contender.copies() as u64;
            finish(&contender, &mut row);
            Ok(Ok((row, joules, judged.outcomes)))
        });
        let (reason, is_fault) = match measured {
            Ok(Ok((row, joules, outcomes))) => {
                self.recorder.row_with_energy(row, joules)?;
                if let Some(line) = outcomes.as_deref().and_then(unsolved) {
                    self.note(&format!("{:<22} {line}", problem.case))?;
                }
                return Ok(());
            }
            Ok(Err(wrong)) => (format!("wrong answer: {wrong}"), true),
            Err(SolveError::Gpu(error @ GpuError::ContextLost { .. })) => return Err(error.into()),
            Err(error) => (error.to_string(), label.library == OURS && !is_refusal(&error)),
        };
        self.recorder.gap(Gap {
            case: format!("{} x {}", problem.case, problem.systems.batch.nitems()),
            library: label.library.to_owned(),
            configuration: match preconditioner(label.options) {
                Some(preconditioner) => format!("{refused} {preconditioner}"),
                None => refused.to_owned(),
            },
            reason,
            is_fault,
        })
    }

    /// Ends the run. What was measured is kept when it ended early.
    ///
    /// # Errors
    /// Why it ended early; what printing or writing reports.
    pub(crate) fn finish(mut self, ended: Result<(), BenchError>) -> Result<Measured, BenchError> {
        if ended.is_ok() {
            let found = timed(Ceilings, || measure_bandwidth(self.device.as_ref()?).ok());
            if let Some(found) = found {
                let device = self.device.as_ref().map(|device| device.info().name.clone());
                self.recorder.copy_at_end(device.as_deref(), found.copy_gb_per_s);
            }
            if let Some(host) = &self.host {
                host.measure_again(&mut self.recorder);
            }
        }
        let outcome = self.recorder.finish()?;
        ended.map(|()| outcome)
    }
}

/// Whether a solve is the first of those that differ by the precision of iterations: in the working one, or with
/// a preconditioner of its own choice, which is measured in one alone.
pub(crate) fn is_first(options: &SolveOptions) -> bool {
    options.inner_precision == InnerPrecision::Working
        || options.preconditioner == Preconditioner::Auto
}

/// Whether a solver says that it is not for this, or that memory is short.
fn is_refusal(error: &SolveError) -> bool {
    match error {
        SolveError::Gpu(error) => session::is_refusal(error),
        SolveError::Unsupported { .. } | SolveError::Option { .. } => true,
        _ => false,
    }
}

/// A shape that was asked for.
fn shape(tuning: &GpuTuning) -> String {
    let group = tuning.group.map(|(threads, rows)| format!("{threads}x{rows}"));
    let place = tuning.values.map(|place| place.key().to_owned());
    group.into_iter().chain(place).chain(limits(tuning)).collect::<Vec<_>>().join(",")
}

/// What was asked for beside threads, rows and places.
fn limits(tuning: &GpuTuning) -> impl Iterator<Item = String> {
    let vectors = tuning.vectors.map(|vectors| format!("v{vectors}"));
    let cluster = tuning.cluster.map(|cluster| format!("c{cluster}"));
    let resident = tuning.resident.map(|resident| format!("r{resident}"));
    vectors.into_iter().chain(resident).chain(cluster)
}
