//! The rows of the solver bench: a table for people, JSON lines for tools.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sparsebatch_solvers::cpu_instruction_sets;

use crate::rounds::{Samples, copy_bandwidth, median, median_ratio};
use crate::solve_case::{Checked, SolveCase};
use crate::solve_peers::Peer;

/// The project's target ratios of a peer's time to ours: case, library, ratio.
const TARGETS: [(&str, &str, f64); 9] = [
    ("tri 32", "sprs", 5.0),
    ("tri 32", "faer", 20.0),
    ("tri 32", "scalar CSR", 3.2),
    ("tri 128", "sprs", 4.5),
    ("tri 128", "faer", 10.0),
    ("tri 128", "scalar CSR", 2.4),
    ("lap2d 256", "sprs", 5.0),
    ("lap2d 256", "faer", 8.0),
    ("lap2d 256", "scalar CSR", 2.5),
];

/// One measurement.
pub(crate) struct Row {
    case: String,
    library: &'static str,
    configuration: &'static str,
    operation: &'static str,
    batch: usize,
    nrows: usize,
    nnz: usize,
    mean_iterations: Option<f64>,
    checked: Checked,
    samples: Samples,
    ratio: f64,
    cpu_ratio: f64,
}

impl Row {
    /// The row of `peer`, compared with `ours` round by round.
    pub(crate) fn new(
        case: &SolveCase,
        peer: &Peer<'_>,
        iterations: usize,
        checked: Checked,
        samples: Samples,
        ours: &Samples,
    ) -> Self {
        Self {
            case: case.name.clone(),
            library: peer.library,
            configuration: peer.configuration,
            operation: peer.operation,
            batch: case.nitems,
            nrows: case.nrows(),
            nnz: case.nnz(),
            mean_iterations: (!peer.is_direct()).then(|| iterations as f64 / case.nitems as f64),
            checked,
            ratio: median_ratio(&samples.wall, &ours.wall),
            cpu_ratio: median_ratio(&samples.cpu, &ours.cpu),
            samples,
        }
    }

    fn target(&self) -> Option<f64> {
        let is_mine = |t: &&(&str, &str, f64)| t.0 == self.case && t.1 == self.library;
        let target = TARGETS.iter().find(is_mine)?;
        (self.operation == "cg").then_some(target.2)
    }

    fn extremes(&self) -> (f64, f64) {
        let wall = || self.samples.wall.iter().copied();
        (wall().fold(f64::INFINITY, f64::min), wall().fold(0.0, f64::max))
    }

    /// Floating-point operations of the iterations of one call: products, dots and updates.
    fn flops(&self) -> Option<f64> {
        let (nnz, n) = (self.nnz as f64, self.nrows as f64);
        let per_iteration = match self.operation {
            "cg" => 2.0 * nnz + 10.0 * n,
            "bicgstab" => 4.0 * nnz + 22.0 * n,
            _ => return None,
        };
        Some(per_iteration * self.mean_iterations? * self.batch as f64)
    }

    fn json(&self, run: &Run) -> Value {
        let time = median(&self.samples.wall);
        let (min, max) = self.extremes();
        // Values, b and x are each read once and x is written once: the least that any method
        // moves.
        let bytes = 8 * self.batch * (self.nnz + 3 * self.nrows);
        json!({
            "schema": 1, "suite": "solvers", "case": self.case, "library": self.library,
            "configuration": self.configuration, "operation": self.operation,
            "preconditioner": "none", "precision": "f64", "batch": self.batch, "n": self.nrows,
            "nnz": self.nnz, "rows": self.nrows, "columns": self.nrows, "median_ms": time,
            "min_ms": min, "max_ms": max, "cpu_ms": number(median(&self.samples.cpu)),
            "rounds": self.samples.wall.len(), "ratio_to_ours": self.ratio,
            "cpu_ratio_to_ours": number(self.cpu_ratio),
            "systems_per_s": self.batch as f64 / time * 1e3, "share_of_copy": null,
            "bytes_moved": bytes, "gflops": self.flops().map(|flops| flops / time / 1e6),
            "mean_iterations": self.mean_iterations,
            "max_relative_residual": self.checked.max_relative_residual,
            "converged": self.checked.converged, "machine": run.machine, "run": run.id,
            "date": run.date, "commit": run.commit,
        })
    }
}

/// A number for JSON, which has no NaN.
fn number(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// Prints the rows, case by case.
pub(crate) fn print_table(rows: &[Row]) {
    let header = format!(
        "{:<10} {:<12} {:<9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>6} {:>6} {:>11} {:>9}",
        "case",
        "library",
        "method",
        "median ms",
        "min",
        "max",
        "cpu ms",
        "x ours",
        "cpu x",
        "target",
        "iters",
        "systems/s",
        "residual"
    );
    println!("\n{header}\n{}", "-".repeat(header.len()));
    let mut case = "";
    for row in rows {
        if !case.is_empty() && case != row.case {
            println!();
        }
        case = &row.case;
        let time = median(&row.samples.wall);
        let (min, max) = row.extremes();
        let optional = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        println!(
            "{:<10} {:<12} {:<9} {:>9.2} {:>9.2} {:>9.2} {:>9} {:>7.2} {:>7} {:>6} {:>6} {:>11.0} {:>9.1e}",
            row.case,
            row.library,
            row.operation,
            time,
            min,
            max,
            optional(number(median(&row.samples.cpu)), 2),
            row.ratio,
            optional(number(row.cpu_ratio), 2),
            optional(row.target(), 1),
            optional(row.mean_iterations, 1),
            row.batch as f64 / time * 1e3,
            row.checked.max_relative_residual,
        );
    }
    println!(
        "\nx ours: median over rounds of this row's time / the case's first row's, wall; cpu x: the \
         same in processor time of all threads."
    );
}

/// The fields that all rows of one run share.
pub(crate) struct Run {
    id: String,
    date: String,
    commit: String,
    machine: Value,
}

impl Run {
    pub(crate) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let date = utc(now.map_or(0, |time| time.as_secs()));
        let processor = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        Self {
            id: format!("solvers-{date}-{}", std::process::id()),
            date,
            commit: commit(),
            machine: json!({
                "device": processor, "driver": null,
                "instruction_set": cpu_instruction_sets().last(),
                "cores": std::thread::available_parallelism().map_or(1, usize::from),
                "threads": rayon::current_num_threads(), "copy_gb_per_s": copy_bandwidth(),
            }),
        }
    }

    /// Appends the rows to a file of JSON lines.
    pub(crate) fn append(&self, path: &Path, rows: &[Row]) -> io::Result<()> {
        let lines: String = rows.iter().map(|row| format!("{}\n", row.json(self))).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(lines.as_bytes())
    }
}

/// The measured commit, marked if the tree had changes.
fn commit() -> String {
    let describe =
        Command::new("git").args(["describe", "--always", "--dirty", "--exclude=*"]).output();
    match describe {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}

/// Formats seconds since 1970 as `YYYY-MM-DDTHH:MM:SSZ`.
fn utc(seconds: u64) -> String {
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| year.is_multiple_of(if year.is_multiple_of(100) { 400 } else { 4 });
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    let february = 28 + u64::from(leap(year));
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (day, hour, minute, second) = (days + 1, time / 3600, time / 60 % 60, time % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
