//! How a solve ended: [`Report`].

use std::fmt::Write;
use std::sync::Arc;

use sparsebatch::gpu::DeviceReport;
use sparsebatch::{BatchReport, Rung, Status, SystemReport};

use crate::context::Context;

/// The report of a solve.
pub(crate) struct Report {
    pub(crate) context: Arc<Context>,
    report: AnyReport,
    pub(crate) fallback: bool,
}

/// The report of a solve on the host or on a device, which lists its systems when it is asked.
pub(crate) type AnyReport = Arc<DeviceReport>;

impl Report {
    pub(crate) fn new(context: Arc<Context>, report: AnyReport, fallback: bool) -> Self {
        Self { context, report, fallback }
    }

    pub(crate) fn get(&self) -> &BatchReport {
        &self.report
    }

    pub(crate) fn systems(&self) -> &[SystemReport] {
        &self.get().systems
    }

    /// What ran, where, and how it went, in lines.
    pub(crate) fn text(&self) -> String {
        let report = self.get();
        let (systems, converged) = (report.systems.len(), report.converged());
        let mut text = format!("{converged} of {systems} systems converged\n");
        let mut line = |name: &str, value: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name}: {value}");
        };
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
        let failed = report.systems.iter().position(|s| s.outcome.status != Status::Converged);
        if let Some(system) = failed {
            let advice = report.systems[system].advice(self.fallback).unwrap_or("nothing");
            let status = report.systems[system].outcome.status;
            line("first that failed", format!("system {system}, {status}; try: {advice}"));
        }
        line("plan", format!("{:.3} ms", 1e3 * report.plan_time.as_secs_f64()));
        line("solve", format!("{:.3} ms", 1e3 * report.solve_time.as_secs_f64()));
        text
    }
}
