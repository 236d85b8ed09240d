//! Bar charts by case: ours and each peer.

use std::collections::HashMap;

use serde_json::{Value, json};
use sparsebatch_rows::Row;

use super::group::{Group, Problem, columns, is_ours, roles};
use crate::page::{Chart, Figure};
use crate::table::number;

/// Most bars of a chart at a time; the reader scrolls through more cases.
const MOST: usize = 600;

/// The contenders that products with our kernels count for.
const AUTOMATIC: &str = "sparsebatch, automatic";
const BEST_KERNEL: &str = "sparsebatch, best of all kernels";

/// The name of the bar that a row belongs to.
fn bar(group: &Group, row: &Row) -> String {
    if is_ours(row) {
        return match (&row.backend, row.automatic, group.is_solves) {
            (Some(backend), _, true) if backend == "cpu" => "sparsebatch, CPU".to_owned(),
            (_, true, false) => AUTOMATIC.to_owned(),
            (_, false, false) => BEST_KERNEL.to_owned(),
            _ => "sparsebatch".to_owned(),
        };
    }
    if row.configuration.starts_with("loop") {
        return format!("{}, one call per system", row.library);
    }
    row.library.clone()
}

/// The figure of a group; `None` if no row has a rate.
pub(crate) fn figure(group: &Group) -> Option<Figure> {
    let rows = rows_of_largest_batches(group);
    let problems = Group::problems(&rows);
    let first = problems.first()?;
    let mut contenders = Contenders::of(group, &rows);
    if !contenders.best_kernel_differs(&problems) {
        contenders.names.retain(|(name, _)| name != BEST_KERNEL);
    }
    contenders.names.sort_by_key(|(name, is_ours)| (!is_ours, name.contains("best of all")));
    let drawn = contenders.draw(group, &problems);
    let bars_a_case = contenders.names.len();
    let cases = problems.len().min((MOST / bars_a_case).max(1));
    let several = problems.iter().any(|problem| problem.batch != first.batch);
    Some(Figure {
        title: "By case".to_owned(),
        caption: caption(group, (!several).then_some(first.batch)),
        charts: vec![Chart {
            name: "By case".to_owned(),
            height: (110 + cases * (10 + 9 * bars_a_case).max(20)).max(220),
            option: chart_option(group, &problems, cases, drawn.series),
        }],
        table: columns(group, &drawn.rows).texts("bar", drawn.bars),
        absent: String::new(),
    })
}

/// The rows with a rate. Of each case only the largest batch is shown; the curves show the others.
fn rows_of_largest_batches(group: &Group) -> Vec<&Row> {
    let rows: Vec<&Row> =
        group.newest().into_iter().filter(|row| group.rate(row).is_some()).collect();
    let mut largest: HashMap<&str, u64> = HashMap::new();
    for row in &rows {
        let batch = largest.entry(&row.case).or_default();
        *batch = row.batch.max(*batch);
    }
    rows.into_iter().filter(|row| largest[&*row.case] == row.batch).collect()
}

/// What a figure compares: each contender has a bar for each problem that it solved.
struct Contenders<'a> {
    /// The fastest row of each contender on each problem.
    best: HashMap<(String, Problem), &'a Row>,
    /// The name of each contender, and whether it is ours.
    names: Vec<(String, bool)>,
}

/// The bars of a figure, in the order in which they are drawn.
struct Drawn<'a> {
    /// A series of bars for each contender. A bar refers to its row by the row's index.
    series: Vec<Value>,
    /// The row behind each bar.
    rows: Vec<&'a Row>,
    /// The contender of each bar.
    bars: Vec<String>,
}

impl<'a> Contenders<'a> {
    /// The contenders of some rows.
    fn of(group: &Group, rows: &[&'a Row]) -> Self {
        let mut contenders = Self { best: HashMap::new(), names: Vec::new() };
        for row in rows {
            contenders.add(bar(group, row), row);
            if is_ours(row) && !group.is_solves && row.automatic {
                // The automatic choice counts among all kernels.
                contenders.add(BEST_KERNEL.to_owned(), row);
            }
        }
        contenders
    }

    /// Counts a row for the contender `name`.
    fn add(&mut self, name: String, row: &'a Row) {
        let found = self.best.entry((name.clone(), Problem::of(row))).or_insert(row);
        if row.median_ms < found.median_ms {
            *found = row;
        }
        let contender = (name, is_ours(row));
        if !self.names.contains(&contender) {
            self.names.push(contender);
        }
    }

    /// The fastest row of a contender on a problem.
    fn best(&self, name: &str, problem: &Problem) -> Option<&'a Row> {
        self.best.get(&(name.to_owned(), problem.clone())).copied()
    }

    /// Whether the best of all kernels is another row than the automatic choice on some problem. If
    /// only the automatic choice was measured, both are the same.
    fn best_kernel_differs(&self, problems: &[Problem]) -> bool {
        problems.iter().any(|problem| {
            match (self.best(BEST_KERNEL, problem), self.best(AUTOMATIC, problem)) {
                (Some(a), Some(b)) => !std::ptr::eq(a, b),
                (a, b) => a.is_some() != b.is_some(),
            }
        })
    }

    /// Draws the bars of all contenders. A bar is a rate and the place of its problem.
    fn draw(&self, group: &Group, problems: &[Problem]) -> Drawn<'a> {
        let roles = roles(&self.names);
        let mut drawn = Drawn { series: Vec::new(), rows: Vec::new(), bars: Vec::new() };
        for (name, _) in &self.names {
            let mut points = Vec::new();
            for (place, problem) in problems.iter().enumerate() {
                if let Some(row) = self.best(name, problem) {
                    points.push(json!([number(group.rate(row)), place, drawn.rows.len()]));
                    drawn.rows.push(row);
                    drawn.bars.push(name.clone());
                }
            }
            drawn.series.push(json!({
                "type": "bar", "name": name, "role": roles[name], "rows": true, "data": points,
            }));
        }
        drawn
    }
}

/// The options of the chart, which shows `cases` problems at a time.
fn chart_option(group: &Group, problems: &[Problem], cases: usize, series: Vec<Value>) -> Value {
    let several = problems.iter().any(|problem| problem.batch != problems[0].batch);
    let label = |Problem { case, batch }: &Problem| match several {
        true => format!("{case} x {batch}"),
        false => case.clone(),
    };
    let labels: Vec<String> = problems.iter().map(label).collect();
    let mut option = json!({
        "yAxis": { "type": "category", "inverse": true, "data": labels },
        "xAxis": { "type": if group.is_solves { "log" } else { "value" }, "name": group.unit() },
        "series": series,
    });
    if cases < problems.len() {
        option["dataZoom"] = json!([{
            "type": "slider", "yAxisIndex": 0, "startValue": 0, "endValue": cases - 1,
        }]);
    }
    option
}

/// The caption of the figure; `batch` is the size of all batches, if they have one size.
fn caption(group: &Group, batch: Option<u64>) -> String {
    let better = if group.is_solves {
        "Time per system, in microseconds on a logarithmic axis: shorter bars are better. A bar is \
         the fastest of a library's methods and preconditioners that solved every system."
    } else {
        "Rate in GFLOP/s, two operations per entry: longer bars are better. A bar of a peer is its \
         fastest configuration."
    };
    let batch = match batch {
        None => "Of each case the largest batch.".to_owned(),
        Some(1) => "Single matrices.".to_owned(),
        Some(batch) => format!("Batches of {batch}."),
    };
    format!("{better} {batch}")
}
