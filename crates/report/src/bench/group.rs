//! Rows of one suite and experiment on one device, in one precision.

use std::collections::{BTreeMap, HashMap};

use sparsebatch_rows::Row;
use sparsebatch_rows::solves::reference::RECORDED;
use sparsebatch_rows::solves::summary::is_solved;
use sparsebatch_rows::summary::OURS;

/// A group of rows that are shown together.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The suite.
    pub(crate) suite: String,
    /// The published experiment.
    pub(crate) experiment: Option<String>,
    /// GPU or processor.
    pub(crate) device: String,
    /// `f64` or `f32`.
    pub(crate) precision: String,
    /// Whether the rows are of solves; else they are of products.
    pub(crate) is_solves: bool,
    /// All rows.
    pub(crate) rows: Vec<Row>,
}

/// A problem on which a figure compares contenders: a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Problem {
    /// Name of the case.
    pub(crate) case: String,
    /// Number of systems.
    pub(crate) batch: u64,
}

/// The groups, in the order of their first rows, published experiments after the suites' own cases.
pub(crate) fn groups(rows: &[Row]) -> Vec<Group> {
    let device = |row: &Row| row.machine.device.clone().unwrap_or_else(|| "unknown".to_owned());
    // Figures recorded elsewhere are shown with the device of the run that includes them.
    let mut devices: HashMap<&str, String> = HashMap::new();
    for row in rows.iter().filter(|row| row.timing != RECORDED) {
        devices.entry(&row.run).or_insert_with(|| device(row));
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut places = HashMap::new();
    for row in rows {
        let device = match devices.get(row.run.as_str()) {
            Some(found) if row.timing == RECORDED => found.clone(),
            _ => device(row),
        };
        let is_solves = row.operation != "spmv";
        let key = (&row.suite, &row.experiment, device.clone(), &row.precision, is_solves);
        let place = *places.entry(key).or_insert_with(|| {
            groups.push(Group {
                suite: row.suite.clone(),
                experiment: row.experiment.clone(),
                device,
                precision: row.precision.clone(),
                is_solves,
                rows: Vec::new(),
            });
            groups.len() - 1
        });
        groups[place].rows.push(row.clone());
    }
    groups.sort_by_key(|group| group.experiment.is_some());
    groups
}

impl Group {
    /// The title: suite, experiment, device and precision.
    pub(crate) fn title(&self) -> String {
        let name = match &self.experiment {
            Some(experiment) => format!("{}, {experiment}", self.suite),
            None => self.suite.clone(),
        };
        format!("{name}: {}, {}", self.device, self.precision)
    }

    /// The newest row of each contender on each problem, among rows that have a time and left no
    /// system unsolved.
    pub(crate) fn newest(&self) -> Vec<&Row> {
        let mut order = Vec::new();
        let mut found: HashMap<_, &Row> = HashMap::new();
        for row in self.rows.iter().filter(|row| row.median_ms > 0.0 && is_solved(row)) {
            let key = (
                [&row.case, &row.library, &row.configuration, &row.operation],
                &row.preconditioner,
                &row.backend,
                row.batch,
            );
            let known = found.entry(key).or_insert_with(|| {
                order.push(key);
                row
            });
            if row.date >= known.date {
                *known = row;
            }
        }
        order.iter().map(|key| found[key]).collect()
    }

    /// The problems, in the order of their first rows.
    pub(crate) fn problems(rows: &[&Row]) -> Vec<Problem> {
        let mut found = Vec::new();
        for row in rows {
            let problem = Problem::of(row);
            if !found.contains(&problem) {
                found.push(problem);
            }
        }
        found
    }

    /// The unit of [`Group::rate`].
    pub(crate) fn unit(&self) -> &'static str {
        if self.is_solves { "microseconds per system" } else { "GFLOP/s" }
    }

    /// The rate of a row in figures: GFLOP/s of a product, microseconds per system of a solve.
    pub(crate) fn rate(&self, row: &Row) -> Option<f64> {
        let rate = if self.is_solves {
            1e3 * row.median_ms / row.batch.max(1) as f64
        } else {
            row.gflops.unwrap_or(2e-6 * row.nnz as f64 / row.median_ms)
        };
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// The contender's name across problems: library and configuration for products; library,
    /// method and preconditioner for solves, whose configuration depends on the problem.
    pub(crate) fn contender(&self, row: &Row) -> String {
        if !self.is_solves {
            return format!("{} {}", row.library, row.configuration);
        }
        let backend = row.backend.as_deref().filter(|backend| *backend == "cpu");
        let preconditioner =
            row.preconditioner.as_deref().filter(|name| !["none", "auto"].contains(name));
        let parts = [Some(&*row.library), Some(&*row.operation), preconditioner, backend];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

impl Problem {
    /// The problem of a row.
    pub(crate) fn of(row: &Row) -> Self {
        Self { case: row.case.clone(), batch: row.batch }
    }
}

/// Whether a row is ours.
pub(crate) fn is_ours(row: &Row) -> bool {
    row.library == OURS
}

/// Roles of names in charts: ours first, then the peers', numbered in order of appearance.
pub(crate) fn roles(names: &[(String, bool)]) -> BTreeMap<String, String> {
    let (mut ours, mut peers) = (0, 0);
    let mut roles = BTreeMap::new();
    for (name, is_ours) in names {
        let counter = if *is_ours { &mut ours } else { &mut peers };
        let role = match (is_ours, *counter) {
            (true, 0) => "ours".to_owned(),
            (true, count) => format!("ours-{count}"),
            (false, count) => format!("peer-{count}"),
        };
        *counter += 1;
        roles.insert(name.clone(), role);
    }
    roles
}

/// The table columns that figures have for each row.
pub(crate) fn columns(group: &Group, rows: &[&Row]) -> crate::table::Table {
    let texts = |text: fn(&Row) -> &str| rows.iter().map(move |row| text(row));
    let numbers = |number: fn(&Row) -> Option<f64>| rows.iter().map(move |row| number(row));
    crate::table::Table::new()
        .texts("case", texts(|row| &row.case))
        .numbers("batch", numbers(|row| Some(row.batch as f64)))
        .texts("library", texts(|row| &row.library))
        .texts("configuration", texts(|row| &row.configuration))
        .texts("operation", texts(|row| &row.operation))
        .texts("preconditioner", texts(|row| row.preconditioner.as_deref().unwrap_or("")))
        .numbers("median ms", numbers(|row| Some(row.median_ms)))
        .numbers("min ms", numbers(|row| Some(row.min_ms)))
        .numbers("max ms", numbers(|row| Some(row.max_ms)))
        .numbers(group.unit(), rows.iter().map(|row| group.rate(row)))
        .numbers("share of copy", numbers(|row| row.share_of_copy))
        .numbers("iterations", numbers(|row| row.mean_iterations))
        .texts("date", texts(|row| &row.date))
        .without_gaps()
}
