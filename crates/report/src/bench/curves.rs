//! Curves of rates over the batch size.

use serde_json::{Value, json};
use sparsebatch_rows::Row;

use super::group::{Group, columns, is_ours, roles};
use crate::page::{Chart, Figure};
use crate::table::number;

/// The figure of a group; `None` if no case has two batch sizes.
pub(crate) fn figure(group: &Group) -> Option<Figure> {
    let rows: Vec<&Row> =
        group.newest().into_iter().filter(|row| group.rate(row).is_some()).collect();
    let mut cases: Vec<&str> = Vec::new();
    for row in &rows {
        if !cases.contains(&&*row.case) {
            cases.push(&row.case);
        }
    }
    let mut drawn: Vec<&Row> = Vec::new();
    let mut charts = Vec::new();
    for case in cases {
        let of_case: Vec<&Row> = rows.iter().filter(|row| row.case == case).copied().collect();
        if of_case.iter().any(|row| row.batch != of_case[0].batch) {
            charts.push(chart(group, case, &of_case, &mut drawn));
        }
    }
    if charts.is_empty() {
        return None;
    }
    let what = if group.is_solves {
        "Microseconds per system against the systems of a batch: lower is better. Of each method and \
         preconditioner the fastest configuration that solved every system."
    } else {
        "Rate in GFLOP/s against the systems of a batch: higher is better."
    };
    Some(Figure {
        title: "By size of the batch".to_owned(),
        caption: format!("{what} Both axes are logarithmic."),
        table: columns(group, &drawn),
        charts,
        absent: String::new(),
    })
}

fn chart<'a>(group: &Group, case: &str, rows: &[&'a Row], drawn: &mut Vec<&'a Row>) -> Chart {
    let mut names: Vec<(String, bool)> = Vec::new();
    for row in rows {
        let name = (group.contender(row), is_ours(row));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // The automatic choice comes first and has the strongest colour.
    let is_choice = |name: &str| {
        rows.iter().any(|row| is_ours(row) && row.automatic && group.contender(row) == name)
    };
    names.sort_by_key(|(name, is_ours)| (!is_ours, !is_choice(name)));
    let roles = roles(&names);
    let series: Vec<Value> = names
        .iter()
        .map(|(name, _)| {
            let mut fastest: Vec<&Row> = Vec::new();
            for row in rows.iter().filter(|row| group.contender(row) == *name) {
                match fastest.iter_mut().find(|found| found.batch == row.batch) {
                    Some(found) if row.median_ms < found.median_ms => *found = row,
                    Some(_) => {}
                    None => fastest.push(row),
                }
            }
            fastest.sort_by_key(|row| row.batch);
            let points: Vec<Value> = fastest
                .iter()
                .map(|row| {
                    drawn.push(row);
                    json!([row.batch, number(group.rate(row)), drawn.len() - 1])
                })
                .collect();
            json!({
                "type": "line", "name": name, "role": roles[name], "rows": true, "data": points,
            })
        })
        .collect();
    let option = json!({
        "xAxis": { "type": "log", "name": "systems" },
        "yAxis": { "type": "log", "name": group.unit() },
        "series": series,
    });
    Chart { name: case.to_owned(), height: 440, option }
}
