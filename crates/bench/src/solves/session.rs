//! A run of solves: contenders are checked, timed and become rows.

use std::cell::RefCell;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use sparsebatch_cuda::device::measure_bandwidth;
use sparsebatch_cuda::{Device, Executor, GpuError};
use sparsebatch_formats::Scalar;
use sparsebatch_solvers::gpu::GpuTuning;
use sparsebatch_solvers::{
    Backend, Engine, InnerPrecision, LuForm, Method, Preconditioner, SolveError, SolveOptions,
};

use super::clock::time;
use super::gpu::{DeviceSystems, GpuSolve, is_soon_made, plan};
use super::host::HostSolve;
use super::resident::ResidentSolves;
use super::rows::{SolveLabel, judge, preconditioner, unsolved};
use super::systems::Systems;
use super::thomas::{self, ThomasLoop};
use super::{Real, Solve};
use crate::begin;
use crate::cublas::{self, DenseLu};
use crate::cusparse::{self, BandedCall, BandedPeer, CusparseLibrary};
use crate::energy::EnergyMeter;
use crate::parallel;
use crate::phases::Phase::{Ceilings, Checking, Compiling, Measuring, Planning, Uploading};
use crate::phases::timed;
use crate::recorder::Recorder;
use crate::session::{self, Bench, Effort, Host, Parts, Target, machine};
use crate::timing::copies;
use crate::{BenchError, Outcome as Measured};
use sparsebatch_rows::solves::reference::Reference;
use sparsebatch_rows::summary::OURS;
use sparsebatch_rows::{Gap, Machine, Row};
use sparsebatch_solve_core::ArgumentError;

/// The name of the peer in rows.
pub(crate) const CUBLAS: &str = "cuBLAS";

/// The names of the peers of banded solves in rows.
pub(crate) const CUSPARSE: &str = "cuSPARSE";
pub(crate) const PLAIN_LOOP: &str = "plain loop";

/// Configuration name of the peer in gaps.
const DENSE_LU: &str = "dense LU";

/// The GPU, the peer on it, the processor, and the recorder of rows.
pub(crate) struct SolveSession<'a> {
    device: Option<Device>,
    cublas: Option<cublas::CublasLibrary>,
    /// The peer of banded solves, or why it is not there; `None` where peers are left out.
    cusparse: Option<Result<CusparseLibrary, String>>,
    host: Option<Host>,
    /// The energy meter of the GPU, if energy is measured.
    meter: Option<EnergyMeter>,
    /// The experiment of the rows that follow.
    experiment: Option<&'static str>,
    /// Whether to measure a solve with another inner precision even if its plan iterates in the
    /// working precision: set where no other solve covers that.
    repeats: bool,
    recorder: Recorder<'a>,
}

/// A named batch.
pub(crate) struct SolveProblem<'a, T: Real> {
    case: &'a str,
    systems: &'a Systems<T>,
    /// The batch on the GPU, kept while consecutive solvers run there.
    uploaded: RefCell<Option<DeviceSystems<T>>>,
}

impl<'a, T: Real> SolveProblem<'a, T> {
    /// Names a batch.
    pub(crate) fn new(case: &'a str, systems: &'a Systems<T>) -> Self {
        Self { case, systems, uploaded: RefCell::new(None) }
    }

    pub(crate) fn case(&self) -> &str {
        self.case
    }
}

impl<'a> SolveSession<'a> {
    /// Starts a run: finds its devices and prints them. Without a GPU, our GPU solvers and, with
    /// `peers`, cuBLAS become gaps.
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
        let (mut device, mut found, mut gpu, mut cusparse) = (None, None, None, None);
        if target.no_gpu.is_none() {
            let first = Device::new(0)?;
            found = peers.then(|| cublas::CublasLibrary::load(&first));
            let version = found.as_ref().and_then(|found| found.as_ref().ok());
            let cublas = version.map(cublas::CublasLibrary::version);
            cusparse = peers.then(|| CusparseLibrary::load(&first));
            let banded = cusparse.as_ref().and_then(|found| found.as_ref().ok());
            gpu = Some(Machine {
                cublas,
                cusparse: banded.map(CusparseLibrary::version),
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
        let (meter, experiment, repeats) = (None, None, false);
        Ok(Self { device, cublas, cusparse, host, meter, experiment, repeats, recorder })
    }

    /// Continues a run of products with solves.
    ///
    /// # Errors
    /// When a gap cannot be printed or written.
    pub(crate) fn of(bench: Bench<'a>, peers: bool) -> Result<Self, BenchError> {
        let Parts { mut recorder, device, meter, host } = bench.into_parts();
        let found = device.as_ref().filter(|_| peers).map(cublas::CublasLibrary::load);
        let cublas = Self::peer(found, &mut recorder)?;
        let (cusparse, experiment, repeats) = (None, None, true);
        Ok(Self { device, cublas, cusparse, host, meter, experiment, repeats, recorder })
    }

    /// Sets the experiment of the rows that follow.
    pub(crate) fn experiment(&mut self, experiment: Option<&'static str>) {
        self.experiment = experiment;
    }

    /// Returns the peer, or records a gap.
    fn peer(
        found: Option<Result<cublas::CublasLibrary, String>>,
        recorder: &mut Recorder<'_>,
    ) -> Result<Option<cublas::CublasLibrary>, BenchError> {
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

    /// Records a figure measured elsewhere as a row.
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

    /// Compiles the kernels of our GPU solvers for `jobs` in parallel, if the GPU is measured, by
    /// making their plans, and prints the time. A plan refused here is refused again, and recorded
    /// as a gap, when it is measured.
    ///
    /// # Errors
    /// When the line cannot be printed.
    pub(crate) fn compile<T: Real>(
        &mut self,
        jobs: &[(&Systems<T>, SolveOptions)],
    ) -> Result<(), BenchError> {
        let Some(device) = self.device.clone() else { return Ok(()) };
        let begin = Instant::now();
        let is_made = |at: usize| {
            let (systems, options) = &jobs[at];
            is_soon_made(systems, options, device.info())
                && plan(&device, systems, options, None).is_ok()
        };
        let made = timed(Compiling, || parallel::map(jobs.len(), is_made));
        let count = made.into_iter().filter(|&is_made| is_made).count();
        let seconds = begin.elapsed().as_secs_f64();
        let precision = <T as Scalar>::NAME;
        self.note(&format!("{count} solvers for {precision} compiled in {seconds:.1} s"))
    }

    /// Measures our solver on the GPU, if the GPU is measured.
    ///
    /// # Errors
    /// When the device is lost, and when the row cannot be printed or written.
    pub(crate) fn gpu<T: Real>(
        &mut self,
        problem: &SolveProblem<'_, T>,
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
            // The first plan compiles the kernels; the second is timed.
            drop(plan(&device, systems, options, tuning)?);
            let begin = Instant::now();
            let plan = plan(&device, systems, options, tuning)?;
            plan_ms = Some(begin.elapsed().as_secs_f64() * 1e3);
            configuration = plan.configuration();
            let is_by_system = options.lu_form == LuForm::BySystem;
            if is_by_system {
                configuration.push_str(" by-system");
            }
            is_other = self.repeats || is_first(options) || plan.is_mixed() || is_by_system;
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
        // Skips a solve that would repeat the one in the working precision.
        if !is_other {
            return Ok(());
        }
        let automatic = tuning.is_none() && options.engine == Engine::Fused;
        let label = SolveLabel { library: OURS, backend: Some("gpu"), automatic, options };
        let finish = |_: &GpuSolve<T>, row: &mut Row| {
            (row.configuration, row.plan_ms) = (configuration.clone(), plan_ms);
        };
        self.measure(problem, &label, contender, Some(&device), &configuration, finish)
    }

    /// Measures our solver on the GPU with all data on the host: copies there and back are part of
    /// the time. If `fitting_ms` is given, the row has the ratio of `fitting_ms` to the median.
    /// Returns the median.
    ///
    /// # Errors
    /// As [`SolveSession::gpu`].
    pub(crate) fn end_to_end<T: Real>(
        &mut self,
        problem: &SolveProblem<'_, T>,
        options: &SolveOptions,
        (name, experiment): (&str, Option<&str>),
        backend: impl FnOnce(Device) -> Result<Backend, SolveError>,
        fitting_ms: Option<f64>,
    ) -> Result<Option<f64>, BenchError> {
        let Some(device) = self.device.clone() else { return Ok(None) };
        problem.uploaded.take();
        let begin = Instant::now();
        let contender =
            timed(Planning, || HostSolve::on(&backend(device)?, problem.systems, options));
        let plan_ms = Some(begin.elapsed().as_secs_f64() * 1e3);
        let label = SolveLabel { library: OURS, backend: Some("gpu"), automatic: true, options };
        let mut median_ms = None;
        let finish = |solve: &HostSolve<'_, T>, row: &mut Row| {
            median_ms = Some(row.median_ms);
            row.experiment = experiment.map(str::to_owned);
            (row.configuration, row.plan_ms) = (format!("{name}: {}", solve.chunks()), plan_ms);
            row.device_bytes = solve.device_bytes();
            row.share_of_fitting = fitting_ms.map(|fitting_ms| fitting_ms / row.median_ms);
        };
        self.measure(problem, &label, contender, None, name, finish)?;
        Ok(median_ms)
    }

    /// Measures solves of data that lies on several GPUs at once, by the host's clock. The row has
    /// the systems of one GPU. Returns the median.
    ///
    /// # Errors
    /// As [`SolveSession::gpu`].
    pub(crate) fn resident<T: Real>(
        &mut self,
        problem: &SolveProblem<'_, T>,
        options: &SolveOptions,
        (name, experiment): (&str, &str),
        make: impl FnOnce() -> Result<ResidentSolves<T>, SolveError>,
    ) -> Result<Option<f64>, BenchError> {
        problem.uploaded.take();
        let begin = Instant::now();
        let contender = timed(Planning, make);
        let plan_ms = Some(begin.elapsed().as_secs_f64() * 1e3);
        let label = SolveLabel { library: OURS, backend: Some("gpu"), automatic: true, options };
        let mut median_ms = None;
        let finish = |solve: &ResidentSolves<T>, row: &mut Row| {
            median_ms = Some(row.median_ms);
            row.experiment = Some(experiment.to_owned());
            row.configuration = format!("{name}: {}", solve.configuration());
            row.plan_ms = plan_ms;
        };
        self.measure(problem, &label, contender, None, name, finish)?;
        Ok(median_ms)
    }

    /// Measures our solver on the CPU, if the CPU is measured.
    ///
    /// # Errors
    /// As [`SolveSession::gpu`].
    pub(crate) fn cpu<T: Real>(
        &mut self,
        problem: &SolveProblem<'_, T>,
        options: &SolveOptions,
    ) -> Result<(), BenchError> {
        if self.host.is_none() {
            return Ok(());
        }
        let begin = Instant::now();
        let contender = timed(Planning, || HostSolve::on_cpu(problem.systems, options));
        let plan_ms = Some(begin.elapsed().as_secs_f64() * 1e3);
        let label = SolveLabel { library: OURS, backend: Some("cpu"), automatic: true, options };
        let refused = format!("cpu {}", options.method);
        let finish = |solve: &HostSolve<'_, T>, row: &mut Row| {
            (row.configuration, row.plan_ms) = (solve.configuration(), plan_ms);
        };
        self.measure(problem, &label, contender, None, &refused, finish)
    }

    /// Measures the dense batched LU of cuBLAS, if the library was found. Its solved systems are
    /// those that pass the test of solutions, with the rounding floor `floor`.
    ///
    /// # Errors
    /// As [`SolveSession::gpu`].
    pub(crate) fn dense_lu<T: cublas::Element + Real>(
        &mut self,
        problem: &SolveProblem<'_, T>,
        floor: f64,
    ) -> Result<(), BenchError> {
        let (Some(device), Some(library)) = (self.device.clone(), self.cublas.clone()) else {
            return Ok(());
        };
        problem.uploaded.take();
        let contender = timed(Uploading, || DenseLu::new(&device, &library, problem.systems));
        let contender = contender.map_err(SolveError::from);
        let options = &SolveOptions::new().method(Method::Lu).floor(floor);
        let label = SolveLabel { library: CUBLAS, backend: None, automatic: false, options };
        let refused = cublas::CONFIGURATION;
        let finish = |_: &DenseLu<T>, row: &mut Row| row.configuration = refused.to_owned();
        self.measure(problem, &label, contender, Some(&device), refused, finish)
    }

    /// Measures the peers of banded solves: cuSPARSE's solvers of tridiagonal or pentadiagonal
    /// systems, and Thomas' algorithm on the CPU. Their solved systems are those that pass the test
    /// of solutions.
    ///
    /// # Errors
    /// As [`SolveSession::gpu`].
    pub(crate) fn banded_peers<T: cusparse::Diagonals + Real>(
        &mut self,
        problem: &SolveProblem<'_, T>,
        floor: Option<f64>,
    ) -> Result<(), BenchError> {
        let half_width = cusparse::half_width(problem.systems.batch.pattern(0));
        let options = &SolveOptions::new().method(Method::Banded).floor(floor);
        if self.host.is_some() && half_width == 1 {
            let contender = ThomasLoop::new(problem.systems);
            let backend = Some("cpu");
            let label = SolveLabel { library: PLAIN_LOOP, backend, automatic: false, options };
            let refused = thomas::CONFIGURATION;
            let finish = |_: &ThomasLoop<'_, T>, row: &mut Row| {
                row.configuration = refused.to_owned();
            };
            self.measure(problem, &label, contender, None, refused, finish)?;
        }
        let (Some(device), Some(found)) = (self.device.clone(), self.cusparse.clone()) else {
            return Ok(());
        };
        problem.uploaded.take();
        for call in BandedCall::of(half_width) {
            let contender = timed(Uploading, || match &found {
                Ok(library) => BandedPeer::new(&device, library, *call, problem.systems),
                Err(reason) => Err(GpuError::InvalidArgument {
                    name: "cuSPARSE",
                    expected: "the library".to_owned(),
                    found: reason.clone(),
                }),
            });
            let contender = contender.map_err(SolveError::from);
            let label = SolveLabel { library: CUSPARSE, backend: None, automatic: false, options };
            let finish =
                |_: &BandedPeer<T>, row: &mut Row| row.configuration = call.name().to_owned();
            self.measure(problem, &label, contender, Some(&device), call.name(), finish)?;
        }
        Ok(())
    }

    /// Checks a contender, times it and records the row that `finish` completes; a refusal or a
    /// wrong answer becomes a gap.
    fn measure<T: Real, S: Solve<T>>(
        &mut self,
        problem: &SolveProblem<'_, T>,
        label: &SolveLabel<'_>,
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

    /// Ends the run. The rows so far are kept when it ended early.
    ///
    /// # Errors
    /// The reason why it ended early; an error of printing or writing.
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

/// Whether a solve is the first of those that differ only in what a GPU does: it iterates in the
/// working precision, or chooses its preconditioner itself, which is measured in one precision
/// only, and its sparse LU has a plan for each pattern.
pub(crate) fn is_first(options: &SolveOptions) -> bool {
    let is_usual = options.inner_precision == InnerPrecision::Working
        || options.preconditioner == Preconditioner::Auto;
    is_usual && options.lu_form == LuForm::ByPattern
}

/// Whether an error is a refusal: an unsupported case or option, or too little memory.
fn is_refusal(error: &SolveError) -> bool {
    match error {
        SolveError::Gpu(error) => session::is_refusal(error),
        SolveError::Unsupported { .. } | SolveError::Argument(ArgumentError::OutOfRange { .. }) => {
            true
        }
        _ => false,
    }
}

/// The requested shape of the kernel, as text.
fn shape(tuning: &GpuTuning) -> String {
    let group = tuning.group.map(|(threads, rows)| format!("{threads}x{rows}"));
    let place = tuning.values.map(|place| place.key().to_owned());
    group.into_iter().chain(place).chain(limits(tuning)).collect::<Vec<_>>().join(",")
}

/// The requested vectors, resident blocks and cluster size, as text.
fn limits(tuning: &GpuTuning) -> impl Iterator<Item = String> {
    let vectors = tuning.vectors.map(|vectors| format!("v{vectors}"));
    let cluster = tuning.cluster.map(|cluster| format!("c{cluster}"));
    let resident = tuning.resident.map(|resident| format!("r{resident}"));
    vectors.into_iter().chain(resident).chain(cluster)
}
