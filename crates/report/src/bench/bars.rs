//! Bar charts by case: ours and each peer.

use std::collections::HashMap;

use serde_json::{Value, json};
use sparsebatch_rows::Row;

use super::group::{Group, Problem, columns, is_ours, roles};
use crate::page::{Chart, Figure};
use crate::table::number;

/// Most bars of a chart at a time; the reader scrolls through more cases.
const MOST: usize = 600;

/// The name of the bar that a row belongs to.
fn bar(group: &Group, row: &Row) -> String {
    if is_ours(row) {
        return match (&row.backend, row.automatic, group.is_solves) {
            (Some(backend), _, true) if backend == "cpu" => "sparsebatch, CPU".to_owned(),
            (_, true, false) => "sparsebatch, automatic".to_owned(),
            (_, false, false) => "sparsebatch, best of all kernels".to_owned(),
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
    let rows: Vec<&Row> =
        group.newest().into_iter().filter(|row| group.rate(row).is_some()).collect();
    // Only the largest batch of each case is shown; the curves show the others.
    let mut largest: HashMap<&str, u64> = HashMap::new();
    for row in &rows {
        let batch = largest.entry(&row.case).or_default();
        *batch = row.batch.max(*batch);
    }
    let rows: Vec<&Row> = rows.into_iter().filter(|row| largest[&*row.case] == row.batch).collect();
    let problems = Group::problems(&rows);
    if problems.is_empty() {
        return None;
    }
    let mut best: HashMap<(String, Problem), &Row> = HashMap::new();
    let mut names: Vec<(String, bool)> = Vec::new();
    for row in &rows {
        let is_best_kernel = is_ours(row) && !group.is_solves;
        let mut bars = vec![bar(group, row)];
        if is_best_kernel && row.automatic {
            // The automatic choice counts among all kernels.
            bars.push("sparsebatch, best of all kernels".to_owned());
        }
        for name in bars {
            let found = best.entry((name.clone(), Problem::of(row))).or_insert(row);
            if row.median_ms < found.median_ms {
                *found = row;
            }
            if !names.contains(&(name.clone(), is_ours(row))) {
                names.push((name, is_ours(row)));
            }
        }
    }
    // If only the automatic choice was measured, the best kernel is the same.
    let differs = |name: &str| {
        problems.iter().any(|problem| {
            let of = |name: &str| best.get(&(name.to_owned(), problem.clone()));
            match (of(name), of("sparsebatch, automatic")) {
                (Some(a), Some(b)) => !std::ptr::eq(*a, *b),
                (a, b) => a.is_some() != b.is_some(),
            }
        })
    };
    if !differs("sparsebatch, best of all kernels") {
        names.retain(|(name, _)| name != "sparsebatch, best of all kernels");
    }
    names.sort_by_key(|(name, is_ours)| (!is_ours, name.contains("best of all")));
    let roles = roles(&names);
    let mut drawn: Vec<&Row> = Vec::new();
    let mut bars: Vec<String> = Vec::new();
    let series: Vec<Value> = names
        .iter()
        .map(|(name, _)| {
            let mut points = Vec::new();
            for (place, problem) in problems.iter().enumerate() {
                if let Some(row) = best.get(&(name.clone(), problem.clone())) {
                    points.push(json!([number(group.rate(row)), place, drawn.len()]));
                    drawn.push(row);
                    bars.push(name.clone());
                }
            }
            json!({
                "type": "bar", "name": name, "role": roles[name], "rows": true, "data": points,
            })
        })
        .collect();
    let several = problems.iter().any(|problem| problem.batch != problems[0].batch);
    let labels: Vec<String> = problems
        .iter()
        .map(
            |Problem { case, batch }| {
                if several { format!("{case} x {batch}") } else { case.clone() }
            },
        )
        .collect();
    let mut option = json!({
        "yAxis": { "type": "category", "inverse": true, "data": labels },
        "xAxis": { "type": if group.is_solves { "log" } else { "value" }, "name": group.unit() },
        "series": series,
    });
    let cases = problems.len().min((MOST / names.len()).max(1));
    if cases < problems.len() {
        option["dataZoom"] = json!([{
            "type": "slider", "yAxisIndex": 0, "startValue": 0, "endValue": cases - 1,
        }]);
    }
    let better = if group.is_solves {
        "Time per system, in microseconds on a logarithmic axis: shorter bars are better. A bar is \
         the fastest of a library's methods and preconditioners that solved every system."
    } else {
        "Rate in GFLOP/s, two operations per entry: longer bars are better. A bar of a peer is its \
         fastest configuration."
    };
    let batch = if several {
        "Of each case the largest batch.".to_owned()
    } else {
        match problems[0].batch {
            1 => "Single matrices.".to_owned(),
            batch => format!("Batches of {batch}."),
        }
    };
    Some(Figure {
        title: "By case".to_owned(),
        caption: format!("{better} {batch}"),
        table: columns(group, &drawn).texts("bar", bars),
        charts: vec![Chart {
            name: "By case".to_owned(),
            height: (110 + cases * (10 + 9 * names.len()).max(20)).max(220),
            option,
        }],
        absent: String::new(),
    })
}
