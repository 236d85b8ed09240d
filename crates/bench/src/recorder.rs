//! Records rows and gaps: as lines of a report, in a file of JSON lines, and in the summary at the
//! end.

use std::io::Write;
use std::path::Path;

use crate::energy::Joules;
use crate::part::PartFile;
use crate::{BenchError, Outcome, phases};
use sparsebatch_rows::{Gap, GapLine, Row, Run, summary};

/// Collects and prints the rows of a run.
///
/// During the run, rows and gaps are appended to `FILE.part` ([`PartFile`]). `FILE` is written at
/// the end, when the second bandwidth is known.
pub(crate) struct Recorder<'a> {
    run: Run,
    report: &'a mut dyn Write,
    output: Option<PartFile>,
    rows: Vec<Row>,
    gaps: Vec<Gap>,
    /// Copy bandwidth of each device at the end of the run.
    copies_at_end: Vec<(Option<String>, f64)>,
}

impl<'a> Recorder<'a> {
    /// Starts a run.
    ///
    /// # Errors
    /// As [`PartFile::claim`].
    pub(crate) fn new(
        run: Run,
        output: Option<&Path>,
        report: &'a mut dyn Write,
    ) -> Result<Self, BenchError> {
        let output = output.map(PartFile::claim).transpose()?;
        let kept = output.as_ref().and_then(|part| part.kept.clone());
        let (rows, gaps, copies_at_end) = Default::default();
        let mut recorder = Self { run, report, output, rows, gaps, copies_at_end };
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
        if let Some(kept) = kept {
            recorder.note(&format!("{} has what an earlier run left", kept.display()))?;
        }
        Ok(recorder)
    }

    /// The fields that all rows share.
    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// Prints a line.
    pub(crate) fn note(&mut self, line: &str) -> Result<(), BenchError> {
        writeln!(self.report, "{line}")
            .and_then(|()| self.report.flush())
            .map_err(BenchError::Print)
    }

    /// Records and prints a measurement.
    pub(crate) fn row(&mut self, row: Row) -> Result<(), BenchError> {
        let mut figures = if row.operation == "spmv" { of_product(&row) } else { of_solve(&row) };
        if let Some(joules) = row.energy_j {
            figures += &format!("  {joules:.4e} J");
        }
        self.note(&format!(
            "{:<22} {:>6} {:<12} {:<38} {:>10.5} ms {figures}",
            row.case, row.batch, row.library, row.configuration, row.median_ms
        ))?;
        self.append(&row)?;
        self.rows.push(row);
        Ok(())
    }

    /// Records a measurement with its energy; an unknown energy is recorded as a gap.
    pub(crate) fn row_with_energy(&mut self, row: Row, joules: Joules) -> Result<(), BenchError> {
        let reason = match joules {
            None => return self.row(row),
            Some(Ok(joules)) => return self.row(Row { energy_j: Some(joules), ..row }),
            Some(Err(reason)) => reason,
        };
        let configuration = format!("{}, energy", row.configuration);
        let gap = Gap::new(&row.case, &row.library, &configuration, reason);
        self.row(row)?;
        self.gap(gap)
    }

    /// Appends a line to the file.
    fn append(&mut self, line: &impl serde::Serialize) -> Result<(), BenchError> {
        match &mut self.output {
            None => Ok(()),
            Some(part) => part.append(&line_of(line)),
        }
    }

    /// Records and prints a gap.
    pub(crate) fn gap(&mut self, gap: Gap) -> Result<(), BenchError> {
        let word = if gap.is_fault { "FAULT" } else { "not measured" };
        self.note(&format!(
            "{:<22} {:>6} {:<12} {:<38} {word}: {}",
            gap.case, "", gap.library, gap.configuration, gap.reason
        ))?;
        self.append(&GapLine::new(&self.run, gap.clone()))?;
        self.gaps.push(gap);
        Ok(())
    }

    /// Stores the copy bandwidth of a device at the end of the run.
    pub(crate) fn copy_at_end(&mut self, device: Option<&str>, gb_per_s: f64) {
        self.copies_at_end.push((device.map(str::to_owned), gb_per_s));
    }

    /// Ends the run: prints the summary and writes the file.
    ///
    /// # Errors
    /// When printing or writing fails.
    pub(crate) fn finish(mut self) -> Result<Outcome, BenchError> {
        for row in &mut self.rows {
            let machine = &mut row.machine;
            let of = |(device, _): &&(Option<String>, f64)| *device == machine.device;
            let found = self.copies_at_end.iter().find(of).map(|(_, copy)| *copy);
            // Skips rows of figures recorded elsewhere, which have no bandwidth.
            if machine.copy_gb_per_s > 0.0 {
                machine.copy_gb_per_s_end = found;
            }
        }
        let is_product = |row: &Row| row.operation == "spmv";
        let products: Vec<Row> = self.rows.iter().filter(|row| is_product(row)).cloned().collect();
        let has_solves = products.len() < self.rows.len();
        if !products.is_empty() || !has_solves {
            self.note(&summary::text(&products))?;
        }
        if has_solves {
            self.note(&sparsebatch_rows::solves::summary::text(&self.rows))?;
        }
        let mut closing = format!("{} rows", self.rows.len());
        let faults = self.gaps.iter().filter(|gap| gap.is_fault).count();
        closing += &format!(", {} not measured, {faults} faults", self.gaps.len() - faults);
        for (_, copy) in &self.copies_at_end {
            closing += &format!("; copy {copy:.0} GB/s at the end");
        }
        self.note(&closing)?;
        self.note(&format!("took {}", phases::line()))?;
        if let Some(part) = self.output.take() {
            let gaps = self.gaps.iter().map(|gap| line_of(&GapLine::new(&self.run, gap.clone())));
            let lines = self.rows.iter().map(line_of).chain(gaps);
            part.finish(&lines.map(|line| line + "\n").collect::<String>())?;
        }
        Ok(Outcome { run: self.run.id, rows: self.rows, gaps: self.gaps })
    }
}

/// The printed figures of a product.
fn of_product(row: &Row) -> String {
    let share = row.share_of_copy.unwrap_or(f64::NAN);
    let gflops = row.gflops.unwrap_or(f64::NAN);
    let plan = row.plan_ms.map_or_else(String::new, |plan| {
        format!("  plan {plan:.2} ms, {:.1} products", plan / row.median_ms)
    });
    format!("{gflops:>7.1} GFLOP/s share {share:.3}{plan}")
}

/// The printed figures of a solve.
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

/// A row or gap as JSON. NaN and infinities become null.
fn line_of(line: &impl serde::Serialize) -> String {
    serde_json::to_string(line).expect("a line has neither maps with odd keys nor failing parts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::begin;
    use sparsebatch_rows::{Machine, SCHEMA};

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
            round_ms: Vec::new(),
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
            energy_j: None,
            machine: run.machine.clone(),
            run: run.id.clone(),
            date: run.date.clone(),
            commit: run.commit.clone(),
        }
    }

    #[test]
    fn the_file_appears_at_the_end_with_gaps_and_the_second_bandwidth_of_each_device() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        let on = |device: &str| Machine {
            device: Some(device.to_owned()),
            copy_gb_per_s: 1.0,
            ..Machine::default()
        };
        let run = begin("single", on("a GPU"));
        let mut report = Vec::new();
        let mut recorder = Recorder::new(run.clone(), Some(&path), &mut report).unwrap();
        let gap = Gap {
            case: "all".to_owned(),
            library: "cuSPARSE".to_owned(),
            configuration: "all".to_owned(),
            reason: "no GPU".to_owned(),
            is_fault: false,
        };

        recorder.row(row(&run)).unwrap();
        recorder.gap(gap.clone()).unwrap();
        recorder.row(Row { machine: on("a processor"), ..row(&run) }).unwrap();
        let part_path = folder.path().join("rows.jsonl.part");
        let part = sparsebatch_rows::read(&part_path).unwrap();
        assert_eq!((part.rows.len(), part.gaps.len(), path.exists()), (2, 1, false));
        recorder.copy_at_end(Some("a GPU"), 4000.0);
        recorder.copy_at_end(Some("a processor"), 20.0);
        let outcome = recorder.finish().unwrap();

        let read = sparsebatch_rows::read(&path).unwrap();
        assert_eq!(read.rows, outcome.rows);
        assert_eq!((read.gaps, read.partial), (vec![gap], None));
        let ends = outcome.rows.iter().map(|row| row.machine.copy_gb_per_s_end);
        assert_eq!(ends.collect::<Vec<_>>(), [Some(4000.0), Some(20.0)]);
        assert!(!part_path.exists());
    }
}
