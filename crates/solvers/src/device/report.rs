//! What came out of a solve on a GPU: [`DeviceReport`].

use std::ops::Deref;
use std::sync::OnceLock;

use sparsebatch_solve_core::Status;

use crate::gpu::HostOutcomes;
use crate::report::{BatchReport, GpuRun, SystemReport};

/// The report of a solve whose data lies on a GPU: a [`BatchReport`] whose list of systems is made
/// when it is first asked for.
///
/// To list 10,000 systems takes as long as many a solve of them, and most programs only ask whether
/// all converged. The functions of this type answer without the list. Every field and function of
/// [`BatchReport`] can be reached, too, and the first one makes the list.
#[derive(Clone, Debug)]
pub struct DeviceReport(Form);

#[derive(Clone, Debug)]
enum Form {
    Listed(Box<BatchReport>),
    /// All systems converged by the first method, as the device says. `frame` lists no systems.
    Unlisted {
        outcomes: HostOutcomes,
        frame: Box<BatchReport>,
        listed: OnceLock<Box<BatchReport>>,
    },
    /// Reports of consecutive parts of a batch, at least one, each on a GPU of its own.
    Parts {
        parts: Vec<DeviceReport>,
        listed: OnceLock<Box<BatchReport>>,
    },
}

impl DeviceReport {
    /// One report of consecutive parts of a batch, at least one.
    pub(super) fn of_parts(parts: Vec<Self>) -> Self {
        debug_assert!(!parts.is_empty());
        Self(Form::Parts { parts, listed: OnceLock::new() })
    }

    /// The same report, which tells what one of several GPUs did. Its list was not made yet.
    pub(super) fn on_gpu(mut self, gpu: GpuRun) -> Self {
        let report = match &mut self.0 {
            Form::Listed(report) => report,
            Form::Unlisted { frame, .. } => frame,
            Form::Parts { .. } => return self,
        };
        if let Some(first) = report.runs.first_mut() {
            first.gpus = vec![gpu];
        }
        self
    }

    /// The report of systems that the first method solved; `frame` lists none.
    pub(super) fn unlisted(outcomes: HostOutcomes, frame: BatchReport) -> Self {
        Self(Form::Unlisted { outcomes, frame: Box::new(frame), listed: OnceLock::new() })
    }

    /// Number of systems.
    pub fn nsystems(&self) -> usize {
        match &self.0 {
            Form::Listed(report) => report.systems.len(),
            Form::Unlisted { outcomes, .. } => outcomes.len(),
            Form::Parts { parts, .. } => parts.iter().map(Self::nsystems).sum(),
        }
    }

    /// Systems that converged.
    pub fn converged(&self) -> usize {
        match &self.0 {
            Form::Listed(report) => report.converged(),
            Form::Unlisted { outcomes, .. } => outcomes.len(),
            Form::Parts { parts, .. } => parts.iter().map(Self::converged).sum(),
        }
    }

    /// Whether every system converged; true for an empty batch.
    pub fn all_converged(&self) -> bool {
        self.converged() == self.nsystems()
    }

    /// How a system ended.
    ///
    /// # Panics
    /// If there is no such system.
    pub fn status(&self, system: usize) -> Status {
        match &self.0 {
            Form::Listed(report) => report.systems[system].outcome.status,
            Form::Unlisted { outcomes, .. } => outcomes.status(system),
            Form::Parts { parts, .. } => {
                let mut system = system;
                for part in parts {
                    if system < part.nsystems() {
                        return part.status(system);
                    }
                    system -= part.nsystems();
                }
                panic!("there are {} systems in the report", self.nsystems());
            }
        }
    }

    /// The report with its list.
    pub fn into_report(self) -> BatchReport {
        match self.0 {
            Form::Listed(report) => *report,
            Form::Unlisted { outcomes, frame, listed } => {
                *listed.into_inner().unwrap_or_else(|| Box::new(list(&outcomes, *frame)))
            }
            Form::Parts { parts, listed } => {
                *listed.into_inner().unwrap_or_else(|| Box::new(merged(parts)))
            }
        }
    }
}

impl From<BatchReport> for DeviceReport {
    fn from(report: BatchReport) -> Self {
        Self(Form::Listed(Box::new(report)))
    }
}

impl From<DeviceReport> for BatchReport {
    fn from(report: DeviceReport) -> Self {
        report.into_report()
    }
}

impl Deref for DeviceReport {
    type Target = BatchReport;

    fn deref(&self) -> &BatchReport {
        match &self.0 {
            Form::Listed(report) => report,
            Form::Unlisted { outcomes, frame, listed } => {
                listed.get_or_init(|| Box::new(list(outcomes, BatchReport::clone(frame))))
            }
            Form::Parts { parts, listed } => listed.get_or_init(|| Box::new(merged(parts.clone()))),
        }
    }
}

/// Lists the systems of a report that has none.
fn list(outcomes: &HostOutcomes, frame: BatchReport) -> BatchReport {
    let systems = outcomes.outcomes().map(SystemReport::first);
    BatchReport { systems: systems.collect(), ..frame }
}

/// The report of all parts, of which there is one at least.
fn merged(parts: Vec<DeviceReport>) -> BatchReport {
    let merged = BatchReport::merged(parts.into_iter().map(DeviceReport::into_report));
    merged.unwrap_or_else(|| unreachable!("a report of no parts"))
}
