//! A run of products on a GPU, the processor, or both.

use std::io::Write;
use std::path::Path;

use sparsebatch_cuda::{Device, Value};
use sparsebatch_formats::Batch;
use sparsebatch_spmv_gpu::SingleOptions;

use super::{CUSPARSE, Effort, Host, HostSession, Session, Target};
use crate::begin;
use crate::energy::EnergyMeter;
use crate::recorder::Recorder;
use crate::{BenchError, Outcome};
use sparsebatch_rows::Gap;
use sparsebatch_rows::summary::OURS;

/// A run on the devices of a [`Target`].
pub(crate) struct Bench<'a> {
    place: Place<'a>,
    /// Whether the GPU is left out from now on.
    without_gpu: bool,
    host: Option<Host>,
}

/// The owner of the recorder of rows.
enum Place<'a> {
    Gpu(Session<'a>),
    Host(Recorder<'a>),
}

/// The parts of a [`Bench`] for another kind of session: its recorder, GPU, meter and processor.
pub(crate) struct Parts<'a> {
    pub(crate) recorder: Recorder<'a>,
    pub(crate) device: Option<Device>,
    pub(crate) meter: Option<EnergyMeter>,
    pub(crate) host: Option<Host>,
}

impl<'a> Bench<'a> {
    /// Starts a run: measures bandwidths and prints the devices found. Without a GPU, our GPU
    /// kernels and, with `peers`, cuSPARSE become gaps.
    ///
    /// # Errors
    /// The reason why a GPU cannot be used; an output that cannot be written.
    pub(crate) fn start(
        suite: &'static str,
        target: &Target,
        effort: Effort,
        peers: bool,
        output: Option<&Path>,
        report: &'a mut dyn Write,
    ) -> Result<Self, BenchError> {
        let Some(reason) = &target.no_gpu else {
            let session = Session::start(suite, peers, output, report)?;
            let mut place = Place::Gpu(session);
            let host = target.host.then(|| Host::new(effort));
            if let Some(host) = &host {
                place.recorder().note(&format!("and on {}", host.described()))?;
            }
            return Ok(Self { place, without_gpu: false, host });
        };
        let mut bench = Self::on_host(suite, effort, output, report)?;
        bench.gap("all", OURS, "all kernels of the GPU", reason)?;
        if peers {
            bench.gap("all", CUSPARSE, "all", reason)?;
        }
        Ok(bench)
    }

    /// Starts a run of cases that are measured on the processor only.
    ///
    /// # Errors
    /// An output that cannot be written.
    pub(crate) fn on_host(
        suite: &'static str,
        effort: Effort,
        output: Option<&Path>,
        report: &'a mut dyn Write,
    ) -> Result<Self, BenchError> {
        let host = Host::new(effort);
        let recorder = Recorder::new(begin(suite, host.machine().clone()), output, report)?;
        Ok(Self { place: Place::Host(recorder), without_gpu: true, host: Some(host) })
    }

    /// The GPU, if it is measured.
    pub(crate) fn gpu(&mut self) -> Option<&mut Session<'a>> {
        match &mut self.place {
            Place::Gpu(session) if !self.without_gpu => Some(session),
            Place::Gpu(_) | Place::Host(_) => None,
        }
    }

    /// Stops measuring the GPU.
    pub(crate) fn leave_gpu_out(&mut self) {
        self.without_gpu = true;
    }

    /// The processor itself, if it is measured, mutable.
    pub(crate) fn processor(&mut self) -> &mut Option<Host> {
        &mut self.host
    }

    /// The processor, if it is measured.
    pub(crate) fn host(&mut self) -> Option<HostSession<'_, 'a>> {
        let host = self.host.as_ref()?;
        Some(HostSession { host, recorder: self.place.recorder() })
    }

    /// Records a gap that is no fault.
    pub(crate) fn gap(
        &mut self,
        case: &str,
        library: &str,
        configuration: &str,
        reason: &str,
    ) -> Result<(), BenchError> {
        self.place.recorder().gap(Gap::new(case, library, configuration, reason))
    }

    /// Compiles the kernels for `options` and values of `T`, if the GPU is measured.
    ///
    /// # Errors
    /// An error of printing.
    pub(crate) fn compile<T: Value>(
        &mut self,
        options: &[SingleOptions],
    ) -> Result<(), BenchError> {
        self.gpu().map_or(Ok(()), |session| session.compile::<T>(options))
    }

    /// Compiles the kernels for `options` in f64 and, with `in_f32`, in f32, if the GPU is
    /// measured.
    ///
    /// # Errors
    /// An error of printing.
    pub(crate) fn compile_both(
        &mut self,
        options: &[SingleOptions],
        in_f32: bool,
    ) -> Result<(), BenchError> {
        self.compile::<f64>(options)?;
        if in_f32 { self.compile::<f32>(options) } else { Ok(()) }
    }

    /// Compiles the kernels that multiply `batches`, if the GPU is measured.
    ///
    /// # Errors
    /// An error of printing.
    pub(crate) fn compile_batches<'b>(
        &mut self,
        batches: impl IntoIterator<Item = &'b Batch<f64>>,
    ) -> Result<(), BenchError> {
        self.gpu().map_or(Ok(()), |session| session.compile_batches(batches))
    }

    /// Records our contenders that a run without a GPU leaves out as gaps.
    ///
    /// # Errors
    /// An error of printing or writing.
    pub(crate) fn without_gpu<S: AsRef<str>>(
        &mut self,
        target: &Target,
        configurations: impl IntoIterator<Item = S>,
    ) -> Result<(), BenchError> {
        let Some(reason) = &target.no_gpu else { return Ok(()) };
        let mut configurations = configurations.into_iter();
        configurations.try_for_each(|name| self.gap("all", OURS, name.as_ref(), reason))
    }

    /// Records the matrices of a published table that are not in the folder as gaps.
    ///
    /// # Errors
    /// As [`Bench::gap`].
    pub(crate) fn absent_of(
        &mut self,
        table: &[&str],
        is_there: impl Fn(&str) -> bool,
    ) -> Result<(), BenchError> {
        let reason = "not in a folder of --matrices; corpus fetch gets it";
        let mut missing = table.iter().filter(|name| !is_there(name));
        missing.try_for_each(|name| self.gap(name, OURS, "all", reason))
    }

    /// Records `gap` if there is one.
    pub(crate) fn missing(&mut self, gap: Option<Gap>) -> Result<(), BenchError> {
        gap.map_or(Ok(()), |gap| self.place.recorder().gap(gap))
    }

    /// Takes the run apart, for solves in the same run.
    pub(crate) fn into_parts(self) -> Parts<'a> {
        let host = self.host;
        match self.place {
            Place::Gpu(session) => {
                let Session { device, meter, recorder, .. } = session;
                let device = (!self.without_gpu).then_some(device);
                Parts { recorder, device, meter, host }
            }
            Place::Host(recorder) => Parts { recorder, device: None, meter: None, host },
        }
    }

    /// Ends the run. The rows so far are kept when it ended early.
    ///
    /// # Errors
    /// The reason why it ended early; an error of printing or writing.
    pub(crate) fn finish(mut self, ended: Result<(), BenchError>) -> Result<Outcome, BenchError> {
        if let (Ok(()), Some(host)) = (&ended, &self.host) {
            host.measure_again(self.place.recorder());
        }
        match self.place {
            Place::Gpu(session) => session.finish(ended),
            Place::Host(recorder) => {
                let outcome = recorder.finish()?;
                ended.map(|()| outcome)
            }
        }
    }
}

impl<'a> Place<'a> {
    fn recorder(&mut self) -> &mut Recorder<'a> {
        match self {
            Self::Gpu(session) => &mut session.recorder,
            Self::Host(recorder) => recorder,
        }
    }
}
