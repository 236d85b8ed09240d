//! How a solve ended: [`Report`].

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use sparsebatch::gpu::DeviceReport;
use sparsebatch::{BatchReport, Rung, Status, SystemReport};

use crate::context::Context;
use crate::ffi::SB_INACTIVE;

/// The report of a solve.
pub(crate) struct Report {
    pub(crate) context: Arc<Context>,
    report: AnyReport,
    /// The systems that the solve left out, ascending.
    inactive: Arc<[usize]>,
    pub(crate) fallback: bool,
}

/// The report of a solve on the host or on a device, which lists its systems when it is asked.
pub(crate) type AnyReport = Arc<DeviceReport>;

impl Report {
    pub(crate) fn new(
        context: Arc<Context>,
        report: AnyReport,
        inactive: Arc<[usize]>,
        fallback: bool,
    ) -> Self {
        Self { context, report, inactive, fallback }
    }

    pub(crate) fn is_active(&self, system: usize) -> bool {
        self.inactive.binary_search(&system).is_err()
    }

    /// The systems that the solve left out, ascending.
    pub(crate) fn inactive(&self) -> &[usize] {
        &self.inactive
    }

    /// How each system ended, as codes of C.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = u8> {
        let systems = self.systems().iter().enumerate();
        systems.map(|(system, report)| match self.is_active(system) {
            true => report.outcome.status as u8,
            false => SB_INACTIVE,
        })
    }

    /// The number of active systems that converged.
    pub(crate) fn converged(&self) -> usize {
        self.statuses().filter(|&status| status == Status::Converged as u8).count()
    }

    /// The report of the active systems alone.
    fn of_active(&self) -> Cow<'_, BatchReport> {
        let report = self.get();
        if self.inactive.is_empty() {
            return Cow::Borrowed(report);
        }
        let mut own = report.clone();
        let mut system = 0..own.systems.len();
        own.systems.retain(|_| system.next().is_some_and(|system| self.is_active(system)));
        Cow::Owned(own)
    }

    pub(crate) fn get(&self) -> &BatchReport {
        &self.report
    }

    pub(crate) fn systems(&self) -> &[SystemReport] {
        &self.get().systems
    }

    /// What ran, where, and how it went, in lines.
    pub(crate) fn text(&self) -> String {
        let report = self.of_active();
        let (systems, converged) = (report.systems.len(), report.converged());
        let mut text = format!("{converged} of {systems} systems converged\n");
        let left_out = self.systems().len() - systems;
        let mut line = |name: &str, value: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name}: {value}");
        };
        if left_out > 0 {
            line("not active", format!("{left_out} systems"));
        }
        line("solver", format!("{} ({})", report.scheme, report.reason));
        line("backend", format!("{} ({})", report.backend, report.device));
        line("kernel", format!("{} {}", report.format, report.kernel));
        let counts = |counts: Vec<(String, usize)>| -> String {
            let counts: Vec<String> =
                counts.into_iter().map(|(name, count)| format!("{name} {count}")).collect();
            counts.join(", ")
        };
        let named = |(status, count): (Status, usize)| (status.to_string(), count);
        line("statuses", counts(report.status_counts().into_iter().map(named).collect()));
        let named = |(rung, count): (Rung, usize)| (rung.to_string(), count);
        line("rungs", counts(report.rung_counts().into_iter().map(named).collect()));
        let (least, mean, most) = report.iterations();
        line("iterations", format!("{least} least, {mean:.1} mean, {most} most"));
        if let Some(residual) = report.max_relative_residual() {
            line("largest relative residual of converged systems", format!("{residual:.1e}"));
        }
        if let Some(reason) = report.cpu_reason() {
            line("on the CPU", reason.to_owned());
        }
        let all = self.systems();
        let has_failed = |&system: &usize| {
            all[system].outcome.status != Status::Converged && self.is_active(system)
        };
        if let Some(system) = (0..all.len()).find(has_failed) {
            let advice = all[system].advice(self.fallback).unwrap_or("nothing");
            let status = all[system].outcome.status;
            line("first that failed", format!("system {system}, {status}; try: {advice}"));
        }
        line("plan", format!("{:.3} ms", 1e3 * report.plan_time.as_secs_f64()));
        line("solve", format!("{:.3} ms", 1e3 * report.solve_time.as_secs_f64()));
        text
    }
}
