//! Where rows go: lines on a report, a file of JSON lines, the summary at the end.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::row::{Row, Run};
use crate::{BenchError, Outcome, solves, summary};

/// What could not be measured, and why.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Gap {
    /// The case.
    pub case: String,
    /// Ours, or the peer.
    pub library: String,
    /// Kernel and format.
    pub configuration: String,
    /// The reason, one sentence.
    pub reason: String,
    /// Whether an answer was wrong or the device failed, rather than a format not fitting.
    pub is_fault: bool,
}

/// Collects and prints the rows of a run.
///
/// While the run lasts they are appended to `FILE.part`, which becomes `FILE` at the end, when the
/// second bandwidth is known.
pub(crate) struct Recorder<'a> {
    run: Run,
    report: &'a mut dyn Write,
    output: Option<(PathBuf, File)>,
    rows: Vec<Row>,
    gaps: Vec<Gap>,
}

/// The file that rows are appended to while a run lasts.
fn part_of(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

impl<'a> Recorder<'a> {
    /// Starts a run.
    ///
    /// # Errors
    /// When the file beside `output` cannot be written.
    pub(crate) fn new(
        run: Run,
        output: Option<&Path>,
        report: &'a mut dyn Write,
    ) -> Result<Self, BenchError> {
        let output = match output {
            None => None,
            Some(path) => {
                let part = part_of(path);
                let file = File::create(&part).map_err(BenchError::io(&part))?;
                Some((path.to_owned(), file))
            }
        };
        let mut recorder = Self { run, report, output, rows: Vec::new(), gaps: Vec::new() };
        let machine = &recorder.run.machine;
        let mut line = recorder.run.suite.to_owned();
        line += &format!(" on {}", machine.device.as_deref().unwrap_or("?"));
        if let Some(driver) = &machine.driver {
            line += &format!(", driver {driver}");
        }
        if let Some(read) = machine.read_gb_per_s {
            line += &format!(": copy {:.0} GB/s, read {read:.0} GB/s", machine.copy_gb_per_s);
        }
        line += &format!("; commit {}, {}", recorder.run.commit, recorder.run.date);
        recorder.note(&line)?;
        Ok(recorder)
    }

    /// What all rows share.
    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// Prints a line.
    pub(crate) fn note(&mut self, line: &str) -> Result<(), BenchError> {
        writeln!(self.report, "{line}")
            .and_then(|()| self.report.flush())
            .map_err(BenchError::Print)
    }

    /// Takes a measurement.
    pub(crate) fn row(&mut self, row: Row) -> Result<(), BenchError> {
        let figures = if row.operation == "spmv" { of_product(&row) } else { of_solve(&row) };
        self.note(&format!(
            "{:<22} {:>6} {:<12} {:<38} {:>10.5} ms {figures}",
            row.case, row.batch, row.library, row.configuration, row.median_ms
        ))?;
        if let Some((path, file)) = &mut self.output {
            writeln!(file, "{}", line_of(&row)).map_err(BenchError::io(part_of(path)))?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Takes what could not be measured.
    pub(crate) fn gap(&mut self, gap: Gap) -> Result<(), BenchError> {
        let word = if gap.is_fault { "FAULT" } else { "not measured" };
        self.note(&format!(
            "{:<22} {:>6} {:<12} {:<38} {word}: {}",
            gap.case, "", gap.library, gap.configuration, gap.reason
        ))?;
        self.gaps.push(gap);
        Ok(())
    }

    /// Ends the run: prints the summary and writes the file.
    ///
    /// # Errors
    /// When printing or writing fails.
    pub(crate) fn finish(mut self, copy_at_end: Option<f64>) -> Result<Outcome, BenchError> {
        for row in &mut self.rows {
            // Not of a processor or of figures from elsewhere.
            if row.machine.copy_gb_per_s > 0.0 {
                row.machine.copy_gb_per_s_end = copy_at_end;
            }
        }
        let is_solves = self.rows.iter().any(|row| row.operation != "spmv");
        let text = if is_solves { solves::summary::text } else { summary::text }(&self.rows);
        self.note(&text)?;
        let mut closing = format!("{} rows", self.rows.len());
        let faults = self.gaps.iter().filter(|gap| gap.is_fault).count();
        closing += &format!(", {} not measured, {faults} faults", self.gaps.len() - faults);
        if let Some(copy) = copy_at_end {
            closing += &format!("; copy {copy:.0} GB/s at the end");
        }
        self.note(&closing)?;
        if let Some((path, file)) = self.output.take() {
            drop(file);
            let part = part_of(&path);
            let lines: String = self.rows.iter().map(|row| line_of(row) + "\n").collect();
            std::fs::write(&part, lines).map_err(BenchError::io(&part))?;
            std::fs::rename(&part, &path).map_err(BenchError::io(&path))?;
        }
        Ok(Outcome { run: self.run.id, rows: self.rows, gaps: self.gaps })
    }
}

/// The figures of a product.
fn of_product(row: &Row) -> String {
    let share = row.share_of_copy.unwrap_or(f64::NAN);
    let gflops = row.gflops.unwrap_or(f64::NAN);
    let plan = row.plan_ms.map_or_else(String::new, |plan| {
        format!("  plan {plan:.2} ms, {:.1} products", plan / row.median_ms)
    });
    format!("{gflops:>7.1} GFLOP/s share {share:.3}{plan}")
}

/// The figures of a solve.
fn of_solve(row: &Row) -> String {
    let mut text =
        format!("{:>8} {:<6}", row.operation, row.preconditioner.as_deref().unwrap_or(""));
    if let Some(wall) = row.wall_ms {
        text += &format!(" wall {wall:.5} ms");
    }
    if let Some(iterations) = row.mean_iterations {
        text += &format!("  {iterations:.1} iterations");
    }
    if let Some(residual) = row.max_relative_residual {
        text += &format!("  residual {residual:.1e}");
    }
    if let Some(bytes) = row.device_bytes {
        text += &format!("  {:.1} MiB", bytes as f64 / f64::from(1 << 20));
    }
    if let Some(share) = row.share_of_fitting {
        text += &format!("  {:.1} % of the rate without a limit", 100.0 * share);
    }
    match row.converged {
        Some(converged) if converged < row.batch => text + &format!("  {converged} CONVERGED"),
        _ => text,
    }
}

/// A row as JSON. NaN and infinities become null.
fn line_of(row: &Row) -> String {
    serde_json::to_string(row).expect("a row has neither maps with odd keys nor failing parts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Machine, SCHEMA};

    pub(crate) fn row(run: &Run) -> Row {
        Row {
            schema: SCHEMA,
            suite: run.suite.to_owned(),
            experiment: None,
            case: "a".to_owned(),
            library: "sparsebatch".to_owned(),
            configuration: "packed".to_owned(),
            automatic: true,
            backend: None,
            operation: "spmv".to_owned(),
            preconditioner: None,
            precision: "f64".to_owned(),
            batch: 1,
            n: 1,
            nnz: 1,
            rows: 1,
            columns: 1,
            median_ms: 1.0,
            min_ms: 1.0,
            max_ms: 1.0,
            wall_ms: None,
            rounds: 11,
            products: 1,
            timing: "events".to_owned(),
            copies: 1,
            share_of_copy: Some(0.5),
            share_moved: Some(0.5),
            bytes_moved: Some(1),
            plan_ms: None,
            gflops: Some(1.0),
            mean_iterations: None,
            max_relative_residual: None,
            converged: None,
            device_bytes: None,
            share_of_fitting: None,
            machine: run.machine.clone(),
            run: run.id.clone(),
            date: run.date.clone(),
            commit: run.commit.clone(),
        }
    }

    #[test]
    fn the_file_appears_at_the_end_with_the_second_bandwidth() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        let machine = Machine { copy_gb_per_s: 1.0, ..Machine::default() };
        let run = Run::new("single", machine);
        let mut report = Vec::new();
        let mut recorder = Recorder::new(run.clone(), Some(&path), &mut report).unwrap();

        recorder.row(row(&run)).unwrap();
        assert!(!path.exists() && part_of(&path).exists());
        let outcome = recorder.finish(Some(4000.0)).unwrap();

        let lines = std::fs::read_to_string(&path).unwrap();
        let read: Row = serde_json::from_str(lines.trim()).unwrap();
        assert_eq!(read, outcome.rows[0]);
        assert_eq!(read.machine.copy_gb_per_s_end, Some(4000.0));
        assert!(!part_of(&path).exists());
    }
}
