//! Compares our products and solves on a GPU with those on the processor in the same run.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::row::Row;
use crate::statistics::geomean;
use crate::summary::{OURS, cell};

/// Our rows of one batch in one run.
#[derive(Clone, Debug)]
pub struct Versus<'a> {
    /// The first row, which names the case.
    pub first: &'a Row,
    /// Fastest on the processor, on all cores.
    pub cpu: Option<&'a Row>,
    /// Fastest on the GPU, with all data on the GPU.
    pub gpu: Option<&'a Row>,
    /// Fastest on the GPU, with vectors on the host.
    pub vectors: Option<&'a Row>,
    /// Fastest on the GPU, with all data on the host.
    pub whole: Option<&'a Row>,
}

impl Versus<'_> {
    /// How many times a row is faster than the processor.
    pub fn speed_up(&self, row: Option<&Row>) -> Option<f64> {
        Some(self.cpu?.median_ms / row?.median_ms)
    }
}

/// Groups our rows by run and batch, in the order of their first rows, and keeps the fastest on
/// each side.
pub fn versus(rows: &[Row]) -> Vec<Versus<'_>> {
    let mut places = BTreeMap::new();
    let mut found: Vec<Versus<'_>> = Vec::new();
    for row in rows.iter().filter(|row| row.library == OURS && row.median_ms.is_finite()) {
        let key = (
            [&row.run, &row.suite, &row.case, &row.operation, &row.precision],
            (&row.experiment, &row.preconditioner),
            (row.batch, row.n),
        );
        let place = *places.entry(key).or_insert_with(|| {
            found.push(Versus { first: row, cpu: None, gpu: None, vectors: None, whole: None });
            found.len() - 1
        });
        let versus = &mut found[place];
        let slot = match (row.backend.as_deref(), &*row.timing) {
            (Some("cpu"), _) => &mut versus.cpu,
            (_, "wall") if row.configuration.contains("vectors from") => &mut versus.vectors,
            (_, "wall") => &mut versus.whole,
            _ => &mut versus.gpu,
        };
        if slot.is_none_or(|known| row.median_ms < known.median_ms) {
            *slot = Some(row);
        }
    }
    found
}

/// A line for each batch, and geometric means.
pub fn text(rows: &[Row]) -> String {
    let found = versus(rows);
    let mut text = format!(
        "\n{:<28} {:>7} {:<9} {:>11} {:>11} {:>7} {:>11} {:>7} {:>11} {:>7}\n",
        "case", "batch", "what", "CPU ms", "GPU ms", "x", "vectors ms", "x", "all ms", "x"
    );
    let ms = |row: Option<&Row>| cell(row.map(|row| row.median_ms), 5);
    for versus in &found {
        let Versus { first, cpu, gpu, vectors, whole } = versus;
        let ratio = |row: &Option<&Row>| cell(versus.speed_up(*row), 2);
        let line = writeln!(
            text,
            "{:<28} {:>7} {:<9} {:>11} {:>11} {:>7} {:>11} {:>7} {:>11} {:>7}",
            first.case,
            first.batch,
            first.operation,
            ms(*cpu),
            ms(*gpu),
            ratio(gpu),
            ms(*vectors),
            ratio(vectors),
            ms(*whole),
            ratio(whole),
        );
        line.expect("writing to a string does not fail");
    }
    let mean = |name: &str, of: fn(&Versus<'_>) -> Option<f64>| {
        let mean = geomean(found.iter().filter_map(of))?;
        Some(format!("{name} {mean:.2} x"))
    };
    let means = [
        mean("data on the GPU", |versus| versus.speed_up(versus.gpu)),
        mean("vectors on the host", |versus| versus.speed_up(versus.vectors)),
        mean("all on the host", |versus| versus.speed_up(versus.whole)),
    ];
    let means: Vec<String> = means.into_iter().flatten().collect();
    let means = match means.as_slice() {
        [] => "nothing was measured on both".to_owned(),
        means => means.join("; "),
    };
    text + "\nGPU over CPU, geomean: " + &means
}
