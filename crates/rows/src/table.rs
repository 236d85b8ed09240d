//! Markdown tables made of JSON lines.

use std::fmt::Write;

use crate::file::RowFile;
use crate::row::Row;
use crate::summary::{Comparison, cell, compare, totals, totals_text};

/// The tables of several files: one for each suite, experiment and device, each case from its
/// newest run, preferring runs with a peer.
pub fn table(files: &[RowFile]) -> String {
    let rows: Vec<Row> = files.iter().flat_map(|file| &file.rows).cloned().collect();
    render(&rows)
}

/// The key of a table: suite, experiment and device.
fn section(row: &Row) -> (&str, Option<&str>, Option<&str>) {
    (&row.suite, row.experiment.as_deref(), row.machine.device.as_deref())
}

/// Whether two rows are of the same case, in any runs.
fn same_case(a: &Row, b: &Row) -> bool {
    section(a) == section(b)
        && (&a.case, a.batch, &a.operation, &a.preconditioner, &a.precision)
            == (&b.case, b.batch, &b.operation, &b.preconditioner, &b.precision)
}

/// The tables of `rows`: products, then solves.
pub fn render(rows: &[Row]) -> String {
    let solves = crate::solves::table::render(rows);
    products(rows).into_iter().chain(solves).collect::<Vec<_>>().join("\n")
}

/// For each case, its newest run; any run with a peer is preferred to one without.
pub fn newest<'a>(cases: &[Comparison<'a>]) -> Vec<Comparison<'a>> {
    let rank = |case: &Comparison<'_>| (case.peer.is_some(), case.first.date.clone());
    let newest = |case: &&Comparison<'_>| {
        let outdated =
            |other: &Comparison<'_>| same_case(other.first, case.first) && rank(other) > rank(case);
        !cases.iter().any(outdated)
    };
    cases.iter().filter(newest).cloned().collect()
}

fn products(rows: &[Row]) -> Vec<String> {
    let rows: Vec<Row> = rows.iter().filter(|row| row.operation == "spmv").cloned().collect();
    let newest = newest(&compare(&rows));
    let mut sections: Vec<_> = Vec::new();
    for case in &newest {
        if !sections.contains(&section(case.first)) {
            sections.push(section(case.first));
        }
    }
    let tables = sections.into_iter().map(|wanted| {
        let cases: Vec<Comparison<'_>> =
            newest.iter().filter(|case| section(case.first) == wanted).cloned().collect();
        one(&cases)
    });
    tables.collect()
}

/// The distinct texts of the rows in the order of their first occurrence, joined.
fn distinct(rows: &[&Row], text: impl Fn(&Row) -> String) -> String {
    let mut found: Vec<String> = Vec::new();
    for row in rows {
        let text = text(row);
        if !text.is_empty() && !found.contains(&text) {
            found.push(text);
        }
    }
    found.join(", ")
}

/// Title and machine of a table; `rows` are the first rows of its cases.
pub fn heading(rows: &[&Row]) -> String {
    let first = rows[0];
    let title = match &first.experiment {
        Some(experiment) => format!("{}, {experiment}", first.suite),
        None => first.suite.clone(),
    };
    let machine = &first.machine;
    let mut text = format!("## {title}\n\n{}", machine.device.as_deref().unwrap_or("unknown"));
    if let Some(driver) = &machine.driver {
        text += &format!(", driver {driver}");
    }
    if let Some(cusparse) = &machine.cusparse {
        text += &format!(", cuSPARSE {cusparse}");
    }
    if let Some(cublas) = &machine.cublas {
        text += &format!(", cuBLAS {cublas}");
    }
    if machine.copy_gb_per_s > 0.0 {
        text += &format!(", copy {:.0} GB/s", machine.copy_gb_per_s);
    }
    text += &format!(", measured {}", distinct(rows, |row| row.date.clone()));
    text + &format!(", commit {}.\n\n", distinct(rows, |row| row.commit.clone()))
}

fn one(cases: &[Comparison<'_>]) -> String {
    let firsts: Vec<&Row> = cases.iter().map(|case| case.first).collect();
    let mut text = heading(&firsts);
    let has = |value: fn(&Comparison<'_>) -> bool| cases.iter().any(value);
    let automatic = has(|case| case.automatic.is_some());
    let looped = has(|case| case.looped.is_some());
    let mut headings = vec!["case", "best of ours", "ms", "share"];
    if automatic {
        headings.extend(["automatic", "ms"]);
    }
    headings.extend(["best peer", "ms", "peer / ours"]);
    if looped {
        headings.push("loop / ours");
    }
    line(&mut text, headings.iter().map(|heading| (*heading).to_owned()));
    line(&mut text, headings.iter().map(|_| "---".to_owned()));
    for case in cases {
        let mut cells = vec![case.name()];
        cells.extend(named(case.best, false));
        cells.push(cell(case.best.and_then(|row| row.share_of_copy), 3));
        if automatic {
            cells.extend(named(case.automatic, false));
        }
        cells.extend(named(case.peer, true));
        cells.push(cell(case.automatic_ratio().or(case.best_ratio()), 2));
        if looped {
            cells.push(cell(case.looped_ratio(), 1));
        }
        line(&mut text, cells.into_iter());
    }
    text + "\n" + &totals_text(&totals(cases)) + ".\n"
}

/// Configuration and milliseconds of a row.
fn named(row: Option<&Row>, with_library: bool) -> [String; 2] {
    match row {
        None => ["-".to_owned(), "-".to_owned()],
        Some(row) if with_library => {
            [format!("{} {}", row.library, row.configuration), milliseconds(row.median_ms)]
        }
        Some(row) => [row.configuration.clone(), milliseconds(row.median_ms)],
    }
}

/// Four significant digits.
fn milliseconds(ms: f64) -> String {
    let digits = match ms {
        ..0.1 => 5,
        0.1..10.0 => 4,
        _ => 2,
    };
    format!("{ms:.digits$}")
}

/// Appends a line of a table.
pub fn line(text: &mut String, cells: impl Iterator<Item = String>) {
    let cells: Vec<String> = cells.map(|cell| cell.replace('|', "\\|")).collect();
    writeln!(text, "| {} |", cells.join(" | ")).expect("writing to a string does not fail");
}
