//! The summary: runs and machines, and what is partial or missing.

use std::collections::BTreeMap;

use sparsebatch_rows::solves::reference::RECORDED;
use sparsebatch_rows::solves::summary::is_solved;
use sparsebatch_rows::statistics::geomean;
use sparsebatch_rows::{Gap, Machine, Row, RowFile, summary, table as products};

use super::group::{Group, Problem, is_ours};
use crate::page::{Block, Section, TableBlock};
use crate::table::Table;

/// Most gaps that are named; further ones are only counted.
const NAMED: usize = 40;

/// A run and its rows.
pub(crate) struct Run<'a> {
    first: &'a Row,
    machine: &'a Machine,
    rows: usize,
}

impl Run<'_> {
    /// Whether the run ended early: its copy bandwidth was measured at the start and not at the
    /// end.
    fn is_cut(&self) -> bool {
        let Machine { copy_gb_per_s, copy_gb_per_s_end, .. } = self.machine;
        // Older suites measured the bandwidth once, and their rows do not state the kind of timing.
        *copy_gb_per_s > 0.0 && copy_gb_per_s_end.is_none() && !self.first.timing.is_empty()
    }
}

/// The runs, in the order of their first rows.
pub(crate) fn runs(rows: &[Row]) -> Vec<Run<'_>> {
    let mut places = BTreeMap::new();
    let mut runs: Vec<Run<'_>> = Vec::new();
    for row in rows.iter().filter(|row| row.timing != RECORDED) {
        let key = (&row.run, &row.suite, &row.experiment, &row.date);
        let place = *places.entry(key).or_insert_with(|| {
            runs.push(Run { first: row, machine: &row.machine, rows: 0 });
            runs.len() - 1
        });
        runs[place].rows += 1;
    }
    runs
}

/// The section at the top of the page.
pub(crate) fn section(files: &[RowFile], rows: &[Row], groups: &[Group]) -> Section {
    let runs = runs(rows);
    let dates = || runs.iter().map(|run| day(&run.first.date));
    let span = match (dates().min(), dates().max()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (Some(first), _) => first.to_owned(),
        _ => "unknown".to_owned(),
    };
    let facts = vec![
        ("rows".to_owned(), rows.len().to_string()),
        ("runs".to_owned(), runs.len().to_string()),
        ("measured".to_owned(), span),
        ("machines".to_owned(), distinct(runs.iter().map(|run| device(run.machine).to_owned()))),
        ("commits".to_owned(), distinct(runs.iter().map(|run| run.first.commit.clone()))),
        ("libraries".to_owned(), libraries(rows)),
    ];
    let notes = notes(files, &runs, groups);
    let missing = if notes.is_empty() {
        Block::Text("Nothing is partial, and no peer is missing.".to_owned())
    } else {
        Block::Notes("Partial or missing".to_owned(), notes)
    };
    Section {
        title: "Summary".to_owned(),
        blocks: vec![
            Block::Facts(facts),
            Block::Table(at_a_glance(groups)),
            missing,
            Block::Table(run_table(&runs)),
        ],
    }
}

/// The opening sentence of a group's section.
pub(crate) fn of_group(group: &Group) -> String {
    let cases = distinct_count(group.rows.iter().map(|row| &row.case));
    let contenders = distinct_count(group.rows.iter().map(|row| group.contender(row)));
    let unsolved = group.rows.iter().filter(|row| !is_solved(row)).count();
    let unsolved = match unsolved {
        0 => String::new(),
        1 => " In 1 row systems were left unsolved; its time is not drawn.".to_owned(),
        count => {
            format!(" In {count} rows systems were left unsolved; their times are not drawn.")
        }
    };
    let what = if group.is_solves { "solves" } else { "products" };
    let counted = |count: usize, thing: &str| {
        if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
    };
    format!(
        "{} of {what}: {}, {}.{unsolved}",
        counted(group.rows.len(), "row"),
        counted(cases, "case"),
        counted(contenders, "contender"),
    )
}

fn day(date: &str) -> &str {
    date.split('T').next().unwrap_or(date)
}

fn device(machine: &Machine) -> &str {
    machine.device.as_deref().unwrap_or("unknown")
}

/// The distinct texts in order of appearance, joined; empty ones are left out.
fn distinct(texts: impl Iterator<Item = String>) -> String {
    let mut found: Vec<String> = Vec::new();
    for text in texts.filter(|text| !text.is_empty()) {
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found.join(", ")
}

fn distinct_count<T: Ord>(values: impl Iterator<Item = T>) -> usize {
    values.collect::<std::collections::BTreeSet<T>>().len()
}

/// The libraries, with the versions that the machines state.
fn libraries(rows: &[Row]) -> String {
    distinct(rows.iter().map(|row| {
        let Machine { cusparse, cublas, .. } = &row.machine;
        let version = match row.library.as_str() {
            "cuSPARSE" => cusparse.as_deref(),
            "cuBLAS" => cublas.as_deref(),
            _ => None,
        };
        version.map_or_else(|| row.library.clone(), |v| format!("{} {v}", row.library))
    }))
}

fn notes(files: &[RowFile], runs: &[Run<'_>], groups: &[Group]) -> Vec<String> {
    let mut notes: Vec<String> = files
        .iter()
        .filter_map(|file| {
            let partial = file.partial.as_ref()?;
            let rows = file.rows.len();
            Some(format!(
                "{} is partial: {partial}; its {rows} whole rows are shown.",
                file.path.display()
            ))
        })
        .collect();
    notes.extend(runs.iter().filter(|run| run.is_cut()).map(|run| {
        format!(
            "The run {} did not get to its end; its {} rows are shown.",
            run.first.run, run.rows
        )
    }));
    for group in groups {
        let title = group.title();
        if !group.rows.iter().any(is_ours) {
            notes.push(format!("{title}: no row of sparsebatch, only of peers."));
        } else if group.rows.iter().all(is_ours) {
            notes.push(format!("{title}: no peer was measured beside ours."));
        } else {
            notes.extend(absent_peers(group).map(|gap| format!("{title}: {gap}")));
        }
    }
    let gaps = gaps(files);
    notes.extend(gaps.iter().take(NAMED).map(|gap| {
        let word = if gap.is_fault { "fault" } else { "not measured" };
        format!("{word}: {}, {} {}: {}", gap.case, gap.library, gap.configuration, gap.reason)
    }));
    if gaps.len() > NAMED {
        let more = gaps.len() - NAMED;
        notes.push(format!("{more} more were not measured; the table of gaps has them all."));
    }
    notes
}

/// The gaps: faults first, then those of all cases.
fn gaps(files: &[RowFile]) -> Vec<&Gap> {
    let mut gaps: Vec<&Gap> = files.iter().flat_map(|file| &file.gaps).collect();
    gaps.sort_by_key(|gap| (!gap.is_fault, gap.case != "all"));
    gaps
}

/// The table of gaps; `None` if there are none.
pub(crate) fn gap_table(files: &[RowFile]) -> Option<TableBlock> {
    let gaps = gaps(files);
    if gaps.is_empty() {
        return None;
    }
    let texts = |text: fn(&Gap) -> &str| gaps.iter().map(move |gap| text(gap).to_owned());
    let table = Table::new()
        .texts("case", texts(|gap| &gap.case))
        .texts("library", texts(|gap| &gap.library))
        .texts("configuration", texts(|gap| &gap.configuration))
        .texts("reason", texts(|gap| &gap.reason))
        .texts("fault", texts(|gap| if gap.is_fault { "yes" } else { "" }));
    Some(TableBlock {
        title: "Gaps".to_owned(),
        caption: "What could not be measured, and why: missing devices, libraries, counters and \
                  matrices, and formats that do not suit a matrix. A fault is a wrong answer or a \
                  failure of the device."
            .to_owned(),
        table: table.without_gaps(),
    })
}

/// The peers of a group without rows in some of its cases, and the number of these cases.
fn absent_peers(group: &Group) -> impl Iterator<Item = String> {
    let problems = |wanted: &dyn Fn(&Row) -> bool| {
        distinct_count(
            group.rows.iter().filter(|row| wanted(row)).map(|row| (&row.case, row.batch)),
        )
    };
    let ours = problems(&is_ours);
    // Not every solution method suits every case, so a solver's peers are compared by library.
    let name = |row: &Row| if group.is_solves { row.library.clone() } else { group.contender(row) };
    let mut peers: Vec<String> = group.rows.iter().filter(|row| !is_ours(row)).map(name).collect();
    peers.sort();
    peers.dedup();
    let absent: Vec<String> = peers
        .into_iter()
        .filter_map(|peer| {
            let count = problems(&|row| !is_ours(row) && name(row) == peer);
            (count < ours).then(|| format!("{peer} in {count}"))
        })
        .collect();
    let text = match absent.as_slice() {
        [] => None,
        absent => Some(format!(
            "of {ours} batches these peers were measured in fewer: {}.",
            absent.join(", ")
        )),
    };
    text.into_iter()
}

/// For each batch, the fastest peer's time over ours, by any method, among solves that left no
/// system unsolved. Beside a figure recorded elsewhere, our time is that of one call, as that
/// figure is.
fn best_of_solves(group: &Group) -> Vec<(String, f64)> {
    let newest = group.newest();
    let fastest = |problem: &Problem, ours: bool| {
        let of = |row: &&&Row| Problem::of(row) == *problem && is_ours(row) == ours;
        newest.iter().filter(of).min_by(|a, b| a.median_ms.total_cmp(&b.median_ms))
    };
    let ratio = |problem: Problem| {
        let (ours, peer) = (fastest(&problem, true)?, fastest(&problem, false)?);
        let call = ours.wall_ms.filter(|_| peer.timing == RECORDED);
        let ratio = peer.median_ms / call.unwrap_or(ours.median_ms);
        Some((format!("{} x {}", problem.case, problem.batch), ratio))
    };
    Group::problems(&newest).into_iter().filter_map(ratio).collect()
}

/// The table with a line per group: our speed relative to the fastest peer.
fn at_a_glance(groups: &[Group]) -> TableBlock {
    struct Line {
        cases: usize,
        ratios: Vec<(String, f64)>,
        shares: Vec<f64>,
    }
    let line = |group: &Group| {
        if group.is_solves {
            let ratios = best_of_solves(group);
            let problems = distinct_count(group.rows.iter().map(Problem::of));
            return Line { cases: problems, ratios, shares: Vec::new() };
        }
        let cases = products::newest(&summary::compare(&group.rows));
        let ratio = |case: &summary::Comparison<'_>| case.automatic_ratio().or(case.best_ratio());
        let share = |case: &summary::Comparison<'_>| case.automatic.or(case.best)?.share_of_copy;
        Line {
            cases: cases.len(),
            ratios: cases.iter().filter_map(|c| Some((c.name(), ratio(c)?))).collect(),
            shares: cases.iter().filter_map(share).filter(|share| *share > 0.0).collect(),
        }
    };
    let lines: Vec<Line> = groups.iter().map(line).collect();
    let worst = |line: &Line| line.ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1)).cloned();
    let ratios = |line: &Line| geomean(line.ratios.iter().map(|ratio| ratio.1));
    let table = Table::new()
        .texts("suite", groups.iter().map(Group::title))
        .numbers("rows", groups.iter().map(|group| Some(group.rows.len() as f64)))
        .numbers("cases", lines.iter().map(|line| Some(line.cases as f64)))
        .numbers("beside a peer", lines.iter().map(|line| Some(line.ratios.len() as f64)))
        .numbers("best peer / ours, geomean", lines.iter().map(ratios))
        .numbers("worst", lines.iter().map(|line| Some(worst(line)?.1)))
        .texts("worst case", lines.iter().map(|line| worst(line).map_or(String::new(), |w| w.0)))
        .numbers(
            "share of copy, geomean",
            lines.iter().map(|line| geomean(line.shares.iter().copied())),
        );
    TableBlock {
        title: "At a glance".to_owned(),
        caption:
            "Time of the fastest peer over ours: above 1 ours is faster. Of products ours is what \
                  the library chose, within a run; of solves the fastest method of either that \
                  solved every system. A case is a batch. The share is of useful bytes over the \
                  measured bandwidth of a copy."
                .to_owned(),
        table,
    }
}

fn run_table(runs: &[Run<'_>]) -> TableBlock {
    let texts = |text: fn(&Run<'_>) -> String| runs.iter().map(text);
    let numbers = |number: fn(&Run<'_>) -> Option<f64>| runs.iter().map(number);
    let maybe = |text: &Option<String>| text.clone().unwrap_or_default();
    let machine = |text: fn(&Machine) -> &Option<String>| {
        runs.iter().map(move |run| maybe(text(run.machine)))
    };
    let table = Table::new()
        .texts("run", texts(|run| run.first.run.clone()))
        .texts("suite", texts(|run| run.first.suite.clone()))
        .texts(
            "experiment",
            runs.iter().map(|run| run.first.experiment.clone().unwrap_or_default()),
        )
        .texts("date", texts(|run| run.first.date.clone()))
        .texts("commit", texts(|run| run.first.commit.clone()))
        .numbers("rows", numbers(|run| Some(run.rows as f64)))
        .texts("state", texts(|run| if run.is_cut() { "partial" } else { "whole" }.to_owned()))
        .texts("device", texts(|run| device(run.machine).to_owned()))
        .texts("driver", machine(|machine| &machine.driver))
        .texts("CUDA", machine(|machine| &machine.cuda))
        .texts("cuSPARSE", machine(|machine| &machine.cusparse))
        .texts("cuBLAS", machine(|machine| &machine.cublas))
        .numbers("cores", numbers(|run| Some(run.machine.cores as f64)))
        .numbers(
            "copy GB/s, start",
            numbers(|run| Some(run.machine.copy_gb_per_s).filter(|rate| *rate > 0.0)),
        )
        .numbers("copy GB/s, end", numbers(|run| run.machine.copy_gb_per_s_end))
        .numbers("read GB/s", numbers(|run| run.machine.read_gb_per_s));
    TableBlock {
        title: "Runs and machines".to_owned(),
        caption: "A run is one call of a suite. Bandwidths count bytes read and bytes written."
            .to_owned(),
        table: table.without_gaps(),
    }
}
