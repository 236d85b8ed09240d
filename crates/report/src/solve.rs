//! The page of one solve.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::history::{self, History};
use crate::page::{Block, Chart, Figure, Page, Section, TableBlock};
use crate::table::{Table, number};

/// Most bars of a histogram.
const BARS: u64 = 40;

/// Most systems listed in the table; further ones are only counted.
const LISTED: usize = 10_000;

/// The name of the status of a system that was solved.
const CONVERGED: &str = "Converged";

/// The contents of the page of a solve.
#[derive(Clone, Debug, Default)]
pub struct Solve {
    /// The inputs in words.
    pub input: String,
    /// Names and values: solver, device, times and the like.
    pub facts: Vec<(String, String)>,
    /// Notes on inputs that were left out, such as bad files.
    pub notes: Vec<String>,
    /// Named parts of the total time, in milliseconds.
    pub times_ms: Vec<(String, f64)>,
    /// The systems.
    pub systems: Vec<SolvedSystem>,
    /// Residuals by iteration, if they were recorded.
    pub history: Option<History>,
}

/// The outcome of one system.
#[derive(Clone, Debug, Default)]
pub struct SolvedSystem {
    /// Name of the system.
    pub name: String,
    /// Number of rows.
    pub rows: usize,
    /// Number of stored entries.
    pub nnz: usize,
    /// Final status.
    pub status: String,
    /// Iterations summed over all rungs (schemes that were tried).
    pub iterations: u32,
    /// Number of restarts.
    pub restarts: u32,
    /// `||b - A x|| / ||b||`, recomputed.
    pub relative_residual: f64,
    /// The rung (scheme) that produced the result.
    pub rung: String,
}

/// The page of a solve: the number of systems by status, iterations, residuals, rungs, times, the
/// systems that did not converge, and histories.
pub fn solve_page(solve: &Solve) -> Page {
    let count = solve.systems.len();
    let converged = solve.systems.iter().filter(|s| s.status == CONVERGED).count();
    let figure = |figure: Figure| Block::Figure(Box::new(figure));
    let section = |title: &str, blocks: Vec<Block>| Section { title: title.to_owned(), blocks };
    Page {
        title: "A solve by sparsebatch".to_owned(),
        lead: format!("{}: {converged} of {count} systems converged.", solve.input),
        sections: vec![
            section(
                "Summary",
                vec![
                    Block::Facts(solve.facts.clone()),
                    Block::Notes("Left out".to_owned(), solve.notes.clone()),
                    Block::Table(endings(solve)),
                ],
            ),
            section("Systems that did not converge", vec![unconverged(solve)]),
            section("Iterations", vec![figure(iterations(solve))]),
            section("Residuals", vec![figure(residuals(solve))]),
            section("Times", vec![figure(times(solve))]),
            section("Convergence histories", vec![figure(histories(solve))]),
            section("All systems", vec![Block::Table(all(solve))]),
        ],
    }
}

/// The number of systems by status and rung.
fn endings(solve: &Solve) -> TableBlock {
    let mut groups: BTreeMap<(bool, &str, &str), Vec<&SolvedSystem>> = BTreeMap::new();
    for system in &solve.systems {
        let key = (system.status != CONVERGED, &*system.status, &*system.rung);
        groups.entry(key).or_default().push(system);
    }
    let largest = |systems: &Vec<&SolvedSystem>| {
        let residuals = systems.iter().map(|system| system.relative_residual);
        residuals.filter(|residual| residual.is_finite()).reduce(f64::max)
    };
    let mean = |systems: &Vec<&SolvedSystem>| {
        let sum: f64 = systems.iter().map(|system| f64::from(system.iterations)).sum();
        Some(sum / systems.len() as f64)
    };
    TableBlock {
        title: "How systems ended".to_owned(),
        caption: "Residuals are ‖b - A x‖ / ‖b‖, recomputed from the solution.".to_owned(),
        table: Table::new()
            .texts("status", groups.keys().map(|(_, status, _)| *status))
            .texts("solved by", groups.keys().map(|(_, _, rung)| *rung))
            .numbers("systems", groups.values().map(|systems| Some(systems.len() as f64)))
            .numbers("mean iterations", groups.values().map(mean))
            .numbers("max residual", groups.values().map(largest)),
    }
}

fn table(systems: &[(usize, &SolvedSystem)]) -> Table {
    let texts = |text: fn(&SolvedSystem) -> &str| systems.iter().map(move |s| text(s.1).to_owned());
    let numbers = |number: fn(&SolvedSystem) -> f64| systems.iter().map(move |s| Some(number(s.1)));
    Table::new()
        .numbers("system", systems.iter().map(|system| Some(system.0 as f64)))
        .texts("name", texts(|system| &system.name))
        .numbers("rows", numbers(|system| system.rows as f64))
        .numbers("entries", numbers(|system| system.nnz as f64))
        .texts("status", texts(|system| &system.status))
        .numbers("iterations", numbers(|system| f64::from(system.iterations)))
        .numbers("restarts", numbers(|system| f64::from(system.restarts)))
        .numbers("relative residual", numbers(|system| system.relative_residual))
        .texts("solved by", texts(|system| &system.rung))
}

fn unconverged(solve: &Solve) -> Block {
    let failed: Vec<(usize, &SolvedSystem)> =
        solve.systems.iter().enumerate().filter(|(_, s)| s.status != CONVERGED).collect();
    if failed.is_empty() {
        return Block::Text("Every system converged.".to_owned());
    }
    let shown = &failed[..failed.len().min(LISTED)];
    Block::Table(TableBlock {
        title: "Not converged".to_owned(),
        caption: counted(failed.len(), shown.len()),
        table: table(shown),
    })
}

fn all(solve: &Solve) -> TableBlock {
    let systems: Vec<(usize, &SolvedSystem)> =
        solve.systems.iter().enumerate().take(LISTED).collect();
    TableBlock {
        title: "Systems".to_owned(),
        caption: counted(solve.systems.len(), systems.len()),
        table: table(&systems),
    }
}

fn counted(count: usize, shown: usize) -> String {
    let systems = if count == 1 { "1 system".to_owned() } else { format!("{count} systems") };
    if shown < count {
        format!("{systems}, the first {shown} are shown.")
    } else {
        format!("{systems}.")
    }
}

/// The statuses that occur, converged first.
fn statuses(solve: &Solve) -> Vec<&str> {
    let mut found: Vec<&str> = solve.systems.iter().map(|system| &*system.status).collect();
    found.sort_by_key(|status| (*status != CONVERGED, *status));
    found.dedup();
    found
}

/// A stacked histogram: for each status, the number of systems in each bin.
fn histogram(
    solve: &Solve,
    labels: &[String],
    bin: impl Fn(&SolvedSystem) -> Option<usize>,
    name: &str,
) -> (Table, Option<Chart>) {
    let mut table = Table::new().texts(name, labels.iter().cloned());
    let mut series: Vec<Value> = Vec::new();
    for (place, status) in statuses(solve).into_iter().enumerate() {
        let mut counts = vec![0u64; labels.len()];
        for system in solve.systems.iter().filter(|system| system.status == status) {
            if let Some(count) = bin(system).and_then(|bin| counts.get_mut(bin)) {
                *count += 1;
            }
        }
        let role = match place {
            _ if status == CONVERGED => "ours".to_owned(),
            place => format!("peer-{}", place.saturating_sub(1)),
        };
        let points: Vec<Value> = counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(bin, count)| json!([bin, count, bin]))
            .collect();
        series.push(json!({
            "type": "bar", "name": status, "role": role, "rows": true, "stack": "systems",
            "data": points,
        }));
        table = table.numbers(status, counts.iter().map(|&count| Some(count as f64)));
    }
    let chart = (!labels.is_empty()).then(|| Chart {
        name: name.to_owned(),
        height: 360,
        option: json!({
            "xAxis": { "type": "category", "name": name, "data": labels },
            "yAxis": { "type": "value", "name": "systems", "minInterval": 1 },
            "series": series,
        }),
    });
    (table, chart)
}

fn iterations(solve: &Solve) -> Figure {
    let counts = || solve.systems.iter().map(|system| u64::from(system.iterations));
    let least = counts().min().unwrap_or(0);
    let span = counts().max().unwrap_or(0) - least + 1;
    let width = span.div_ceil(BARS);
    let bins = if solve.systems.is_empty() { 0 } else { span.div_ceil(width) };
    let labels: Vec<String> = (0..bins)
        .map(|bin| {
            let from = least + bin * width;
            if width == 1 { from.to_string() } else { format!("{from}-{}", from + width - 1) }
        })
        .collect();
    let bin =
        |system: &SolvedSystem| Some(((u64::from(system.iterations) - least) / width) as usize);
    let (table, chart) = histogram(solve, &labels, bin, "iterations");
    Figure {
        title: "Iterations".to_owned(),
        caption: "Systems by their iterations, those of all rungs summed.".to_owned(),
        table,
        charts: chart.into_iter().collect(),
        absent: "There are no systems.".to_owned(),
    }
}

/// The decade of a residual; `None` for zero and for values that are not finite.
fn decade(residual: f64) -> Option<i32> {
    (residual > 0.0 && residual.is_finite()).then(|| residual.log10().floor() as i32)
}

fn residuals(solve: &Solve) -> Figure {
    let decades = || solve.systems.iter().filter_map(|system| decade(system.relative_residual));
    let zero = solve.systems.iter().any(|system| system.relative_residual == 0.0);
    let odd = solve.systems.iter().any(|system| !system.relative_residual.is_finite());
    let mut labels: Vec<String> = Vec::new();
    if zero {
        labels.push("0".to_owned());
    }
    let first = labels.len();
    let least = decades().min();
    if let (Some(least), Some(most)) = (least, decades().max()) {
        labels.extend((least..=most).map(|decade| format!("1e{decade} to 1e{}", decade + 1)));
    }
    if odd {
        labels.push("not finite".to_owned());
    }
    let last = labels.len().saturating_sub(1);
    let bin = |system: &SolvedSystem| match decade(system.relative_residual) {
        Some(decade) => usize::try_from(decade - least?).ok().map(|bin| first + bin),
        None if system.relative_residual == 0.0 => Some(0),
        None => Some(last),
    };
    let (table, chart) = histogram(solve, &labels, bin, "relative residual");
    Figure {
        title: "Residuals".to_owned(),
        caption: "Systems by ‖b - A x‖ / ‖b‖, recomputed from the solution.".to_owned(),
        table,
        charts: chart.into_iter().collect(),
        absent: "There are no systems.".to_owned(),
    }
}

fn times(solve: &Solve) -> Figure {
    let names: Vec<String> = solve.times_ms.iter().map(|time| time.0.clone()).collect();
    let points: Vec<Value> = solve
        .times_ms
        .iter()
        .enumerate()
        .map(|(place, time)| json!([number(Some(time.1)), place, place]))
        .collect();
    let option = json!({
        "yAxis": { "type": "category", "inverse": true, "data": names },
        "xAxis": { "type": "value", "name": "milliseconds" },
        "series": [{ "type": "bar", "name": "time", "role": "ours", "rows": true, "data": points }],
    });
    Figure {
        title: "Times".to_owned(),
        caption: "Milliseconds; the total holds everything but this page.".to_owned(),
        table: Table::new()
            .texts("part", names)
            .numbers("milliseconds", solve.times_ms.iter().map(|time| Some(time.1))),
        charts: vec![Chart { name: "Times".to_owned(), height: 230, option }],
        absent: String::new(),
    }
}

fn histories(solve: &Solve) -> Figure {
    let mut figure = history::figure(solve.history.as_slice());
    figure.absent =
        "Residuals were not kept; give `solve` the option --history FILE.csv.".to_owned();
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(status: &str, iterations: u32, relative_residual: f64) -> SolvedSystem {
        SolvedSystem {
            status: status.to_owned(),
            iterations,
            relative_residual,
            ..SolvedSystem::default()
        }
    }

    fn numbers(table: &Table, column: usize) -> Value {
        table.to_json()["columns"][column]["numbers"].clone()
    }

    #[test]
    fn histograms_count_every_system_once() {
        let systems = vec![
            system("Converged", 3, 2e-11),
            system("Converged", 90, 0.0),
            system("NonFinite", 3, f64::NAN),
        ];
        let solve = Solve { systems, ..Solve::default() };

        let figure = iterations(&solve);
        // 88 iteration counts in bins of three.
        assert_eq!(figure.table.len(), 30);
        let residuals = residuals(&solve).table;
        let words = residuals.to_json()["columns"][0]["words"].clone();
        assert_eq!(words, json!(["0", "1e-11 to 1e-10", "not finite"]));
        assert_eq!(numbers(&residuals, 1), json!([1, 1, 0]));
        assert_eq!(numbers(&residuals, 2), json!([0, 0, 1]));
        let most = vec![system("Converged", 0, 0.0), system("MaxIterations", u32::MAX, 1.0)];
        assert_eq!(iterations(&Solve { systems: most, ..Solve::default() }).table.len(), 40);
    }

    #[test]
    fn a_solve_of_no_system_has_a_page() {
        let html = solve_page(&Solve::default()).html();

        assert!(html.contains("There are no systems.") && html.contains("0 of 0 systems"));
    }

    #[test]
    fn systems_that_did_not_converge_are_listed() {
        let mut systems = vec![system("Converged", 1, 0.0); 3];
        systems.push(system("MaxIterations", 1000, 1e-3));
        let solve = Solve { systems, ..Solve::default() };

        let Block::Table(block) = unconverged(&solve) else { panic!("expected a table") };

        assert_eq!(numbers(&block.table, 0), json!([3]));
    }
}
