//! The printed report of `spmv`.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::super::input::Systems;
use super::super::output::{SCHEMA, Skipped, Table, bytes, ms, one_line};
use super::run::{self, Measured, Outcome};

/// The part of the report that is known before the measurements.
#[derive(Serialize)]
pub(super) struct Context {
    /// The inputs in words.
    pub(super) input: String,
    /// Number of systems.
    pub(super) systems: usize,
    /// Rows of all systems.
    pub(super) rows: usize,
    /// Columns of all systems.
    pub(super) columns: usize,
    /// Entries of all systems.
    pub(super) nnz: usize,
    /// Type of the values.
    pub(super) precision: &'static str,
    /// The backend of the products.
    pub(super) backend: &'static str,
    /// The reason for the backend.
    pub(super) backend_reason: String,
    /// The device that computes.
    pub(super) device: String,
    /// Threads of the pool.
    pub(super) threads: usize,
    /// Time to read.
    pub(super) read_ms: f64,
    /// Files that were skipped.
    pub(super) skipped: Vec<Skipped>,
}

/// The JSON object.
#[derive(Serialize)]
pub(super) struct Report {
    schema: u32,
    command: &'static str,
    version: &'static str,
    #[serde(flatten)]
    context: Context,
    copy_gb_s: f64,
    copy_bytes: usize,
    baseline_ms: f64,
    kernels: Vec<Row>,
}

/// One format and kernel, as JSON.
#[derive(Serialize)]
struct Row {
    format: &'static str,
    kernel: &'static str,
    why: String,
    explain: Option<String>,
    repeatable: Option<bool>,
    correct: bool,
    worst_error: Option<f64>,
    repetitions: usize,
    median_ms: Option<f64>,
    min_ms: Option<f64>,
    max_ms: Option<f64>,
    gflops: Option<f64>,
    gb_s: Option<f64>,
    share_of_copy: Option<f64>,
    bytes_moved: Option<usize>,
    useful_bytes: Option<usize>,
    padding: Option<usize>,
    plan_bytes: Option<usize>,
    plan_ms: Option<f64>,
    plan_products: Option<f64>,
    break_even_products: Option<u64>,
    compile_ms: Option<f64>,
    refused: Option<String>,
}

impl Row {
    fn new(row: run::Row, nnz: usize, copy_gb_s: f64, baseline: Duration) -> Self {
        let (measured, refused) = match row.measured {
            Ok(measured) => (Some(measured), None),
            Err(refused) => (None, Some(refused)),
        };
        let m = measured.as_ref();
        let facts = m.map(|m| &m.facts);
        let label = facts.map_or(row.label, |facts| facts.label);
        let rate = |units: f64, m: &Measured| units / m.times.median.as_secs_f64() * 1e-9;
        let products = |m: &Measured| m.facts.cost.as_secs_f64() / m.times.median.as_secs_f64();
        Self {
            format: label.format,
            kernel: label.kernel,
            why: facts.map_or_else(String::new, |facts| facts.why.clone()),
            explain: facts.map(|facts| facts.explain.clone()),
            repeatable: facts.map(|facts| facts.repeatable),
            correct: m.is_some_and(|m| m.wrong.is_none()),
            worst_error: m.map(|m| m.worst_error),
            repetitions: m.map_or(0, |m| m.times.repetitions),
            median_ms: m.map(|m| ms(m.times.median)),
            min_ms: m.map(|m| ms(m.times.min)),
            max_ms: m.map(|m| ms(m.times.max)),
            gflops: m.map(|m| rate(2.0 * nnz as f64, m)),
            gb_s: m.map(|m| rate(m.facts.figures.product_bytes as f64, m)),
            share_of_copy: m.map(|m| rate(m.facts.figures.useful_bytes as f64, m) / copy_gb_s),
            bytes_moved: facts.map(|facts| facts.figures.product_bytes),
            useful_bytes: facts.map(|facts| facts.figures.useful_bytes),
            padding: facts.map(|facts| facts.figures.padding),
            plan_bytes: facts.map(|facts| facts.figures.plan_bytes),
            plan_ms: facts.map(|facts| ms(facts.cost)),
            plan_products: m.map(products),
            break_even_products: m
                .filter(|_| (label.format, label.kernel) != ("csr", "rows"))
                .and_then(|m| break_even(m.facts.cost, m.times.median, baseline)),
            compile_ms: facts.and_then(|facts| facts.compile).map(ms),
            refused,
        }
    }

    fn cells(&self, nnz: usize) -> Vec<String> {
        let missing = || "-".to_owned();
        let number =
            |value: Option<f64>, digits| value.map_or_else(missing, |v| format!("{v:.digits$}"));
        let percent = |share: Option<f64>, digits| {
            share.map_or_else(missing, |s| format!("{:.digits$} %", 100.0 * s))
        };
        let checked = match (&self.refused, self.correct, self.repeatable) {
            (Some(refused), ..) => format!("refused: {refused}"),
            (None, true, Some(false)) => "correct, varies by rounding".to_owned(),
            (None, true, _) => "correct".to_owned(),
            (None, false, _) => "WRONG".to_owned(),
        };
        vec![
            self.format.to_owned(),
            self.kernel.to_owned(),
            number(self.median_ms, 4),
            number(self.min_ms, 4),
            number(self.max_ms, 4),
            number(self.gflops, 2),
            number(self.gb_s, 1),
            percent(self.share_of_copy, 0),
            self.bytes_moved.map_or_else(missing, bytes),
            percent(self.padding.map(|slots| slots as f64 / nnz.max(1) as f64), 1),
            number(self.plan_ms, 2),
            number(self.plan_products, 1),
            self.break_even_products.map_or_else(missing, |products| products.to_string()),
            checked,
        ]
    }
}

/// The number of products after which a plan has paid for itself; `None` if its products are no
/// faster than the baseline's, which needs no plan.
fn break_even(cost: Duration, product: Duration, baseline: Duration) -> Option<u64> {
    let gain = baseline.as_secs_f64() - product.as_secs_f64();
    (gain > 0.0).then(|| (cost.as_secs_f64() / gain).ceil() as u64)
}

impl Outcome {
    /// The first product that differs from the reference, in words.
    pub(super) fn wrong(&self) -> Option<String> {
        self.rows.iter().find_map(|row| {
            let measured = row.measured.as_ref().ok()?;
            let wrong = measured.wrong.as_ref()?;
            Some(format!(
                "{} by {}: {wrong}",
                measured.facts.label.format, measured.facts.label.kernel
            ))
        })
    }
}

impl Report {
    /// The report of the measurements; `baseline` is the time of a product without a plan.
    pub(super) fn new(context: Context, outcome: Outcome, baseline: Duration) -> Self {
        let copy = outcome.copy;
        let row = |row| Row::new(row, context.nnz, copy.gb_s, baseline);
        Self {
            schema: SCHEMA,
            command: "spmv",
            version: env!("CARGO_PKG_VERSION"),
            copy_gb_s: copy.gb_s,
            copy_bytes: copy.bytes,
            baseline_ms: ms(baseline),
            kernels: outcome.rows.into_iter().map(row).collect(),
            context,
        }
    }

    /// The lines above the table, each with its key: input, device, and what products are compared
    /// with.
    fn head(&self, systems: &Systems) -> [(&'static str, String); 4] {
        let Context { input, backend, backend_reason, device, threads, precision, .. } =
            &self.context;
        [
            ("input", format!("{input}: {}", systems.described())),
            (
                "device",
                format!("{backend} ({backend_reason}), {device}, {threads} threads, {precision}"),
            ),
            (
                "copy",
                format!(
                    "{:.1} GB/s, bytes read plus bytes written, arrays of {}",
                    self.copy_gb_s,
                    bytes(self.copy_bytes)
                ),
            ),
            (
                "baseline",
                format!(
                    "{:.4} ms without a plan, by rows of CSR on {threads} CPU threads",
                    self.baseline_ms
                ),
            ),
        ]
    }

    /// The report as a table; with `explain` also each plan's own account.
    pub(super) fn text(&self, systems: &Systems, explain: bool) -> String {
        let mut text = String::new();
        for (key, value) in self.head(systems) {
            writeln!(text, "{key:<8} {}", one_line(&value))
                .expect("writing to a string cannot fail");
        }
        let mut table = Table::new(&[
            "format",
            "kernel",
            "time ms",
            "min ms",
            "max ms",
            "GFLOP/s",
            "GB/s",
            "share of copy",
            "bytes",
            "padding",
            "plan ms",
            "plan products",
            "pays off after",
            "checked",
        ]);
        for row in &self.kernels {
            table.row(row.cells(self.context.nnz));
        }
        text.push('\n');
        text.push_str(&table.render(true));
        if let [only] = self.kernels.as_slice() {
            writeln!(text, "\nchosen because {}", only.why)
                .expect("writing to a string cannot fail");
        }
        if explain {
            text.push('\n');
            for row in &self.kernels {
                let Some(account) = &row.explain else { continue };
                writeln!(text, "{account}").expect("writing to a string cannot fail");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_pays_for_itself_when_its_products_are_faster() {
        let ms = Duration::from_millis;

        assert_eq!(break_even(ms(50), ms(6), ms(10)), Some(13));
        assert_eq!(break_even(ms(50), ms(10), ms(10)), None);
    }
}
