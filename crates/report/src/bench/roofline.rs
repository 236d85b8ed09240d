//! Roofline charts: rates against arithmetic intensity, below the measured bandwidth.

use std::collections::HashMap;

use serde_json::{Value, json};
use sparsebatch_rows::Row;

use super::group::{Group, Problem, columns, is_ours};
use crate::page::{Chart, Figure};
use crate::table::number;

/// The series and their colour roles; later series are drawn above earlier ones.
const SERIES: [(&str, &str); 4] = [
    ("other configurations", "rest"),
    ("peers, one call per system", "peer-1"),
    ("peers, best", "peer-0"),
    ("sparsebatch", "ours"),
];

/// Operations per useful byte, if the row states its useful bytes.
fn intensity(row: &Row) -> Option<f64> {
    let rate = row.share_of_copy? * row.machine.copy_gb_per_s;
    let intensity = row.gflops? / rate;
    (intensity.is_finite() && intensity > 0.0).then_some(intensity)
}

/// The figure of every device and precision with products and a measured bandwidth; without any,
/// one figure that states the reason.
pub(crate) fn figures(groups: &[Group]) -> Vec<Figure> {
    let mut devices: Vec<(&str, &str)> = Vec::new();
    for group in groups.iter().filter(|group| !group.is_solves) {
        let device = (&*group.device, &*group.precision);
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    let figures: Vec<Figure> = devices
        .into_iter()
        .filter_map(|device| {
            let of =
                |group: &&Group| !group.is_solves && (&*group.device, &*group.precision) == device;
            figure(device, &groups.iter().filter(of).collect::<Vec<_>>())
        })
        .collect();
    if !figures.is_empty() {
        return figures;
    }
    vec![Figure {
        title: "Roofline".to_owned(),
        caption: "Products against the measured bandwidth.".to_owned(),
        table: crate::Table::new(),
        charts: Vec::new(),
        absent: "No row of a product tells its share of a measured copy bandwidth.".to_owned(),
    }]
}

fn figure((device, precision): (&str, &str), groups: &[&Group]) -> Option<Figure> {
    let mut rows: Vec<&Row> = Vec::new();
    let mut charts = Vec::new();
    for group in groups {
        let drawn: Vec<&Row> =
            group.newest().into_iter().filter(|row| intensity(row).is_some()).collect();
        if drawn.is_empty() {
            continue;
        }
        charts.push(chart(group, &drawn, rows.len()));
        rows.extend(drawn);
    }
    let first = *groups.first()?;
    (!charts.is_empty()).then(|| Figure {
        title: format!("Roofline of {device}, {precision}"),
        caption:
            "Rate (GFLOP/s) against operations per useful byte: 10 bytes per entry, 2 per row, \
                  8 per element of x, 16 per element of y. The line is the bandwidth of a copy \
                  measured in the same run, the dashed one that of reading; products read far more \
                  than they write and may lie between. All products here are bound by memory, so \
                  that no other roof is near. For each case the choice of the library and the best \
                  peer stand out."
                .to_owned(),
        table: columns(first, &rows)
            .numbers("operations per useful byte", rows.iter().map(|row| intensity(row))),
        charts,
        absent: String::new(),
    })
}

fn chart(group: &Group, rows: &[&Row], offset: usize) -> Chart {
    let point = |place: usize| {
        let row = rows[place];
        json!([number(intensity(row)), number(row.gflops), offset + place])
    };
    let mut problems: HashMap<Problem, Vec<&Row>> = HashMap::new();
    for row in rows {
        problems.entry(Problem::of(row)).or_default().push(row);
    }
    let layers: Vec<usize> =
        rows.iter().map(|row| layer_of(&problems[&Problem::of(row)], row)).collect();
    let mut series: Vec<Value> = SERIES
        .iter()
        .enumerate()
        .map(|(layer, (name, role))| {
            let points: Vec<Value> =
                (0..rows.len()).filter(|&place| layers[place] == layer).map(point).collect();
            json!({
                "type": "scatter", "name": name, "role": role, "rows": true, "z": 2 + layer,
                "data": points,
            })
        })
        .filter(|series| series["data"].as_array().is_some_and(|points| !points.is_empty()))
        .collect();
    series.reverse();
    let intensities = || rows.iter().filter_map(|row| intensity(row));
    // The axis ends at powers of two, where its ticks are.
    let power = |exponent: f64| 2f64.powf(exponent);
    let from = power((0.99 * intensities().fold(f64::INFINITY, f64::min)).log2().floor());
    let to = power((1.01 * intensities().fold(0.0, f64::max)).log2().ceil());
    let machine = &rows[0].machine;
    let roofs =
        [("copy", Some(machine.copy_gb_per_s), false), ("read", machine.read_gb_per_s, true)];
    for (name, bandwidth, dashed) in roofs {
        if let Some(bandwidth) = bandwidth.filter(|bandwidth| *bandwidth > 0.0) {
            let line: Vec<[Value; 2]> =
                [from, to].map(|x| [number(Some(x)), number(Some(x * bandwidth))]).to_vec();
            series.push(json!({
                "type": "line", "name": format!("{name}, {bandwidth:.0} GB/s"), "role": "roof",
                "symbol": "none", "silent": true, "z": 1, "data": line,
                "lineStyle": { "type": if dashed { "dashed" } else { "solid" } },
            }));
        }
    }
    let name = match &group.experiment {
        Some(experiment) => format!("{}, {experiment}", group.suite),
        None => group.suite.clone(),
    };
    let option = json!({
        "xAxis": { "type": "log", "logBase": 2, "name": "operations per useful byte",
            "min": number(Some(from)), "max": number(Some(to)) },
        "yAxis": { "type": "log", "name": "GFLOP/s" },
        "series": series,
    });
    Chart { name, height: 460, option }
}

/// Index into [`SERIES`] of a row, among the rows of its problem.
fn layer_of(problem: &[&Row], row: &Row) -> usize {
    let is_loop = |row: &Row| row.configuration.starts_with("loop");
    let fastest = |kind: &dyn Fn(&Row) -> bool| {
        !problem.iter().any(|other| kind(other) && other.median_ms < row.median_ms)
    };
    if is_ours(row) {
        let has_choice = problem.iter().any(|other| is_ours(other) && other.automatic);
        let shown = if has_choice { row.automatic } else { fastest(&is_ours) };
        return if shown { 3 } else { 0 };
    }
    if is_loop(row) {
        return usize::from(fastest(&|row| !is_ours(row) && is_loop(row)));
    }
    if fastest(&|row| !is_ours(row) && !is_loop(row)) { 2 } else { 0 }
}
