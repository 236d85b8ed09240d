//! What came out of a solve on a GPU: [`DeviceReport`].

use std::ops::Deref;
use std::sync::OnceLock;

use sparsebatch_solve_core::Status;

use crate::gpu::HostOutcomes;
use crate::report::{BatchReport, SystemReport};

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
    Listed(BatchReport),
    /// All systems converged by the first method, as the device says. `frame` lists no systems.
    Unlisted {
        outcomes: HostOutcomes,
        frame: Box<BatchReport>,
        listed: OnceLock<Box<BatchReport>>,
    },
}

impl DeviceReport {
    /// The report of systems that the first method solved; `frame` lists none.
    pub(super) fn unlisted(outcomes: HostOutcomes, frame: BatchReport) -> Self {
        Self(Form::Unlisted { outcomes, frame: Box::new(frame), listed: OnceLock::new() })
    }

    /// Number of systems.
    pub fn nsystems(&self) -> usize {
        match &self.0 {
            Form::Listed(report) => report.systems.len(),
            Form::Unlisted { outcomes, .. } => outcomes.slices().len(),
        }
    }

    /// Systems that converged.
    pub fn converged(&self) -> usize {
        match &self.0 {
            Form::Listed(report) => report.converged(),
            Form::Unlisted { outcomes, .. } => outcomes.slices().len(),
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
            Form::Unlisted { outcomes, .. } => outcomes.slices().status(system),
        }
    }

    /// The report with its list.
    pub fn into_report(self) -> BatchReport {
        match self.0 {
            Form::Listed(report) => report,
            Form::Unlisted { outcomes, frame, listed } => {
                *listed.into_inner().unwrap_or_else(|| Box::new(list(&outcomes, *frame)))
            }
        }
    }
}

impl From<BatchReport> for DeviceReport {
    fn from(report: BatchReport) -> Self {
        Self(Form::Listed(report))
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
        }
    }
}

/// Lists the systems of a report that has none.
fn list(outcomes: &HostOutcomes, frame: BatchReport) -> BatchReport {
    let slices = outcomes.slices();
    let systems = (0..slices.len()).map(|system| SystemReport::first(slices.outcome(system)));
    BatchReport { systems: systems.collect(), ..frame }
}
