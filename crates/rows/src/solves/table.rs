//! Markdown tables of solves.

use super::summary::{HEADINGS, Solves, cells, compare, totals};
use crate::row::Row;
use crate::table::{heading, line};

/// The key of a table: suite and device.
fn section(row: &Row) -> (&str, Option<&str>) {
    (&row.suite, row.machine.device.as_deref())
}

/// For each case, its newest run; any run with recorded figures is preferred to one without.
pub fn newest<'a>(cases: &[Solves<'a>]) -> Vec<Solves<'a>> {
    let rank = |case: &Solves<'_>| (case.recorded.is_some(), case.first.date.clone());
    let newest = |case: &&Solves<'_>| {
        let same = |other: &&Solves<'_>| {
            section(other.first) == section(case.first) && other.name() == case.name()
        };
        !cases.iter().filter(same).any(|other| rank(other) > rank(case))
    };
    cases.iter().filter(newest).cloned().collect()
}

/// The tables of the solves among some rows: one for each suite and device, each case from the
/// newest run.
pub fn render(rows: &[Row]) -> Vec<String> {
    let newest = newest(&compare(rows));
    let mut sections: Vec<_> = Vec::new();
    for case in &newest {
        if !sections.contains(&section(case.first)) {
            sections.push(section(case.first));
        }
    }
    let table = |wanted| {
        let cases: Vec<Solves<'_>> =
            newest.iter().filter(|case| section(case.first) == wanted).cloned().collect();
        let firsts: Vec<&Row> = cases.iter().map(|case| case.first).collect();
        let mut text = heading(&firsts);
        line(&mut text, HEADINGS.iter().map(|heading| (*heading).to_owned()));
        line(&mut text, HEADINGS.iter().map(|_| "---".to_owned()));
        for case in &cases {
            line(&mut text, cells(case).into_iter());
        }
        let totals: String = totals(&cases).iter().map(|total| format!("\n- {total}")).collect();
        format!("{text}{totals}\n")
    };
    sections.into_iter().map(table).collect()
}
