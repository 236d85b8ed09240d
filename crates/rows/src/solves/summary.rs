//! Compares the solves of one case, and gives figures over many cases.
//!
//! Iterative methods are compared method by method, each side with the better of no preconditioner
//! and Jacobi; other preconditioners are shown separately. A row with unsolved systems never
//! counts, so every row without them beats it; explicitly requested kernel shapes do not count
//! either. Recorded times are those of whole calls, so ours are compared by whole calls too:
//! [`Row::wall_ms`], where that was measured.

use std::collections::BTreeMap;

use sparsebatch_formats::generate::Family;

use super::families::{counts, family_name, is_family, members};
use super::reference::RECORDED;
use crate::row::Row;
use crate::statistics::{geomean, regret};
use crate::summary::{OURS, cell};

/// The largest relative residual of a recorded solve that counts: sparse or dense LU of the worst
/// systems leaves 6e-9 in f64.
fn recorded_limit(precision: &str) -> f64 {
    if precision == "f64" { 1e-7 } else { 1e-4 }
}

/// Batches of at least this many systems are large.
const LARGE: u64 = 10_000;

/// The solves of one case by one method, in one run.
#[derive(Clone, Debug)]
pub struct Solves<'a> {
    /// Our fastest row without a requested kernel shape: on the GPU, or on the CPU where nothing
    /// ran on the GPU.
    pub ours: Option<&'a Row>,
    /// The rows among which `ours` is the fastest.
    pub all_ours: Vec<&'a Row>,
    /// The fastest row with a requested kernel shape.
    pub shape: Option<&'a Row>,
    /// Our fastest row on the CPU, where `ours` is on the GPU.
    pub cpu: Option<&'a Row>,
    /// The fastest peer of the same run, by whatever method.
    pub peer: Option<&'a Row>,
    /// The fastest recorded figure: by the same method, by any for `auto`.
    pub recorded: Option<&'a Row>,
    /// The first of our rows, which names the case.
    pub first: &'a Row,
}

/// Geometric mean and worst of some ratios.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios {
    /// Number of ratios.
    pub count: usize,
    /// Their geometric mean.
    pub geomean: f64,
    /// The geometric mean by the device's clock, which sees neither launches nor waiting.
    pub device_geomean: f64,
    /// The case of the least ratio, and that ratio.
    pub worst: (String, f64),
}

/// Whether all systems are solved.
pub fn is_solved(row: &Row) -> bool {
    match row.converged {
        Some(converged) => converged == row.batch,
        None => {
            row.max_relative_residual.is_none_or(|found| found <= recorded_limit(&row.precision))
        }
    }
}

/// Milliseconds of a whole call where that was measured, else the median.
fn call_ms(row: &Row) -> f64 {
    row.wall_ms.unwrap_or(row.median_ms)
}

/// The key by which rows are compared, besides the method.
fn batch_of(row: &Row) -> (&str, &str, &str, u64, &str) {
    (&row.run, &row.date, &row.case, row.batch, &row.precision)
}

/// The preconditioner of a row, if it is one that is shown separately.
fn apart(row: &Row) -> Option<&str> {
    let simple = |name: &&str| !["none", "jacobi", "auto"].contains(name);
    row.preconditioner.as_deref().filter(simple)
}

fn is_ours(row: &Row) -> bool {
    row.library == OURS
}

fn is_recorded(row: &Row) -> bool {
    row.timing == RECORDED
}

/// The fastest of the rows that have a time and leave no system unsolved.
fn fastest<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    rows.filter(|row| row.median_ms.is_finite() && is_solved(row))
        .min_by(|a, b| a.median_ms.total_cmp(&b.median_ms))
}

impl Solves<'_> {
    /// How many times `ours` is faster than the recorded row, both by whole calls.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.recorded?.median_ms / call_ms(self.ours?))
    }

    /// The same ratio by the device's clock.
    fn device_ratio(&self) -> Option<f64> {
        Some(self.recorded?.median_ms / self.ours?.median_ms)
    }

    /// Case, batch and method.
    pub fn name(&self) -> String {
        let Row { case, batch, operation, precision, .. } = self.first;
        let mut name = format!("{case} x {batch} {operation}");
        for part in
            apart(self.first).into_iter().chain((precision != "f64").then_some(&**precision))
        {
            name += &format!(" {part}");
        }
        name
    }
}

/// Groups our solves by run, case and method, in the order of their first rows.
pub fn compare(rows: &[Row]) -> Vec<Solves<'_>> {
    let mut seen = BTreeMap::new();
    for row in rows.iter().filter(|row| is_ours(row) && row.operation != "spmv") {
        let next = seen.len();
        seen.entry((batch_of(row), &row.operation, apart(row))).or_insert((next, row));
    }
    let mut firsts: Vec<_> = seen.into_values().collect();
    firsts.sort_unstable_by_key(|&(place, _)| place);
    firsts.into_iter().map(|(_, first)| solves_of(rows, first)).collect()
}

fn solves_of<'a>(rows: &'a [Row], first: &'a Row) -> Solves<'a> {
    let batch: Vec<&Row> = rows.iter().filter(|row| batch_of(row) == batch_of(first)).collect();
    let like = |row: &&&Row| row.operation == first.operation && apart(row) == apart(first);
    let all_ours = |backend: &str, automatic: bool| {
        let on = |row: &&&Row| {
            is_ours(row) && row.automatic == automatic && row.backend.as_deref() == Some(backend)
        };
        batch.iter().filter(like).filter(on).copied().collect::<Vec<_>>()
    };
    let fastest_of = |rows: &[&'a Row]| fastest(rows.iter().copied());
    let gpu = batch.iter().filter(like).any(|row| row.backend.as_deref() == Some("gpu"));
    let recorded = |row: &&&Row| is_recorded(row) && (first.operation == "auto" || like(row));
    let left_to_itself = all_ours(if gpu { "gpu" } else { "cpu" }, true);
    Solves {
        ours: fastest_of(&left_to_itself),
        all_ours: left_to_itself,
        shape: fastest_of(&all_ours("gpu", false)),
        cpu: if gpu { fastest_of(&all_ours("cpu", true)) } else { None },
        peer: fastest(batch.iter().filter(|row| !is_ours(row) && !is_recorded(row)).copied()),
        recorded: fastest(batch.iter().filter(recorded).copied()),
        first,
    }
}

/// The ratios to recorded figures for the cases that `wanted` accepts.
pub fn ratios(cases: &[Solves<'_>], wanted: impl Fn(&Row) -> bool) -> Option<Ratios> {
    let taken = || cases.iter().filter(|case| wanted(case.first));
    let named = taken().filter_map(|case| Some((case.name(), case.ratio()?)));
    Some(Ratios {
        count: named.clone().count(),
        geomean: geomean(taken().filter_map(Solves::ratio))?,
        device_geomean: geomean(taken().filter_map(Solves::device_ratio))?,
        worst: named.min_by(|a, b| a.1.total_cmp(&b.1))?,
    })
}

/// Whether a row solves a generated family by CG or BiCGStab with a simple preconditioner.
fn is_iterative_family(row: &Row) -> bool {
    is_family(&row.case) && ["cg", "bicgstab"].contains(&&*row.operation) && apart(row).is_none()
}

/// Whether a row's iterations, or those of some of its systems, are in f32.
fn is_inner_single(row: &Row) -> bool {
    row.configuration.contains("f32 inner")
}

/// Our fastest rows on a mix, one for each preconditioner and precision of the iterations.
fn ways<'a>(mix: &Solves<'a>) -> Vec<&'a Row> {
    let way = |row: &Row| (row.preconditioner.clone(), is_inner_single(row));
    let mut ways: Vec<&'a Row> = Vec::new();
    for row in &mix.all_ours {
        if !ways.iter().any(|other| way(other) == way(row)) {
            let same = mix.all_ours.iter().filter(|other| way(other) == way(row));
            ways.extend(fastest(same.copied()));
        }
    }
    ways
}

/// Our fastest row on `case` with the preconditioner of `way`, and with iterations in f32 where
/// `way` has them and such rows exist.
fn fastest_like<'a>(case: &Solves<'a>, way: &Row) -> Option<&'a Row> {
    let rows = case.all_ours.iter().copied();
    let rows = || rows.clone().filter(|row| row.preconditioner == way.preconditioner);
    let single = is_inner_single(way) && rows().any(is_inner_single);
    fastest(rows().filter(|row| is_inner_single(row) == single))
}

/// For each preconditioner and precision of the iterations: the time of a mix over the sum over its
/// families of (number of systems x time per system in the family's largest uniform batch), or the
/// families that were not measured. All rows are of one method, run and preconditioner; those of a
/// family have iterations in f32 where the mix has them and the family has such rows. Empty where
/// the case is not a mix.
pub fn mix_ratios<'a>(
    cases: &[Solves<'_>],
    mix: &Solves<'a>,
) -> Vec<(&'a Row, Result<f64, Vec<String>>)> {
    let Some(members) = members(&mix.first.case) else {
        return Vec::new();
    };
    ways(mix).into_iter().map(|way| (way, mix_ratio(cases, members, way))).collect()
}

fn mix_ratio(
    cases: &[Solves<'_>],
    members: &[(Family, usize)],
    way: &Row,
) -> Result<f64, Vec<String>> {
    let (mut sum, mut missing) = (0.0, Vec::new());
    for (&member, count) in members.iter().zip(counts(members, way.batch)) {
        let name = family_name(member);
        let row = |row: &Row| {
            (&row.run, &row.operation, &row.precision, apart(row))
                == (&way.run, &way.operation, &way.precision, apart(way))
                && row.case == name
        };
        let largest = cases
            .iter()
            .filter(|case| row(case.first))
            .filter_map(|case| fastest_like(case, way))
            .max_by_key(|row| row.batch);
        match largest {
            _ if count == 0 => {}
            Some(row) => sum += count as f64 * row.median_ms / row.batch as f64,
            None => missing.push(name),
        }
    }
    if missing.is_empty() { Ok(way.median_ms / sum) } else { Err(missing) }
}

/// For each set (neither a family nor a mix), our fastest row and the fastest recorded one,
/// whatever the methods.
fn best_of_sets<'a>(cases: &[Solves<'a>]) -> Vec<Solves<'a>> {
    let mut sets: Vec<Solves<'a>> = Vec::new();
    let is_set = |row: &Row| !is_family(&row.case) && members(&row.case).is_none();
    for case in cases.iter().filter(|case| is_set(case.first)) {
        let same = |set: &&mut Solves<'a>| batch_of(set.first) == batch_of(case.first);
        let Some(set) = sets.iter_mut().find(same) else {
            sets.push(case.clone());
            continue;
        };
        let all = |a: Option<&'a Row>, b: Option<&'a Row>| fastest(a.into_iter().chain(b));
        set.all_ours.extend(&case.all_ours);
        set.ours = fastest(set.all_ours.iter().copied());
        set.first = set.ours.unwrap_or(set.first);
        set.recorded = all(set.recorded, case.recorded);
    }
    sets
}

/// Names the kernel and the preconditioner of a row.
fn configured(row: &Row) -> String {
    let chosen = row.preconditioner.as_deref().filter(|name| *name != "auto");
    [Some(&*row.configuration), chosen].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The headings of [`cells`].
pub const HEADINGS: [&str; 12] = [
    "case",
    "batch",
    "method",
    "best of ours",
    "ms",
    "call ms",
    "iterations",
    "recorded",
    "ms",
    "recorded / ours",
    "dense LU ms",
    "CPU ms",
];

/// The cells of a case, under [`HEADINGS`].
pub fn cells(case: &Solves<'_>) -> [String; 12] {
    let row = case.first;
    let mut method = row.operation.clone();
    for part in apart(row).into_iter().chain((row.precision != "f64").then_some(&*row.precision)) {
        method += &format!(" {part}");
    }
    let ours = case.ours.map_or_else(|| "not solved".to_owned(), configured);
    let recorded = case.recorded.map_or_else(
        || "-".to_owned(),
        |row| {
            let method = (row.operation != case.first.operation).then_some(&*row.operation);
            let parts = [Some(&*row.library), method, row.preconditioner.as_deref()];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
        },
    );
    let ms = |row: Option<&Row>| cell(row.map(|row| row.median_ms), 4);
    [
        row.case.clone(),
        row.batch.to_string(),
        method,
        ours,
        ms(case.ours),
        cell(case.ours.and_then(|row| row.wall_ms), 4),
        cell(case.ours.and_then(|row| row.mean_iterations), 1),
        recorded,
        ms(case.recorded),
        cell(case.ratio(), 2),
        ms(case.peer),
        ms(case.cpu),
    ]
}

/// The figures over all cases, a line each.
pub fn totals(cases: &[Solves<'_>]) -> Vec<String> {
    let mut lines = beside_recorded(cases);
    lines.extend(in_same_run("dense LU over ours", cases, |case| Some(case.peer?.median_ms)));
    lines.extend(in_same_run("CPU over GPU", cases, |case| Some(case.cpu?.median_ms)));
    lines.extend(cases.iter().filter_map(best_shape));
    for case in cases {
        lines.extend(mixes_beside_families(cases, case));
    }
    let unsolved: Vec<String> =
        cases.iter().filter(|case| case.ours.is_none()).map(Solves::name).collect();
    if !unsolved.is_empty() {
        lines.push(format!("with systems left unsolved: {}", unsolved.join(", ")));
    }
    lines
}

/// Ours beside the recorded figures: families by precision and size of the batch, then sets.
fn beside_recorded(cases: &[Solves<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |what: &str, ratios: Option<Ratios>| {
        if let Some(Ratios { count, geomean, device_geomean, worst: (worst, least) }) = ratios {
            lines.push(format!(
                "{what}, {count} cases, recorded over ours: geomean {geomean:.2} x, worst \
                 {least:.2} x ({worst}); geomean by the device's clock {device_geomean:.2} x"
            ));
        }
    };
    for precision in ["f64", "f32"] {
        let family = |row: &Row| is_iterative_family(row) && row.precision == precision;
        let large = ratios(cases, |row| family(row) && row.batch >= LARGE);
        add(&format!("{precision}, batches of 10,000 and more"), large);
        let small = ratios(cases, |row| family(row) && row.batch < LARGE);
        add(&format!("{precision}, smaller batches"), small);
    }
    let sets = best_of_sets(cases);
    add("sets, any method of ours over the best recorded", ratios(&sets, |_| true));
    lines.extend(sets.iter().filter_map(set_beside_recorded));
    lines
}

/// The time of a set beside the recorded one, where there are both.
fn set_beside_recorded(set: &Solves<'_>) -> Option<String> {
    let (ours, recorded, ratio) = (set.ours?, set.recorded?, set.ratio()?);
    Some(format!(
        "{} x {}: {} {} {:.4} ms, {} {:.4} ms, {ratio:.2} x",
        set.first.case,
        set.first.batch,
        ours.operation,
        ours.configuration,
        call_ms(ours),
        recorded.library,
        recorded.median_ms,
    ))
}

/// The geometric mean of `other` over our time, both of the same run; `None` where no case has
/// both.
fn in_same_run(
    what: &str,
    cases: &[Solves<'_>],
    other: fn(&Solves<'_>) -> Option<f64>,
) -> Option<String> {
    let ratio = |case: &Solves<'_>| Some(other(case)? / case.ours?.median_ms);
    let found: Vec<f64> = cases.iter().filter_map(ratio).collect();
    let mean = geomean(found.iter().copied())?;
    Some(format!("{what}, same run, {} cases: geomean {mean:.2} x", found.len()))
}

/// The best requested kernel shape beside the automatic one, where shapes were requested.
fn best_shape(case: &Solves<'_>) -> Option<String> {
    let (shape, ours) = (case.shape?, case.ours?);
    Some(format!(
        "{}: best shape {} {:.4} ms, by itself {} {:.4} ms, regret {:.1} %",
        case.name(),
        configured(shape),
        shape.median_ms,
        configured(ours),
        ours.median_ms,
        100.0 * regret(ours.median_ms, shape.median_ms).max(0.0),
    ))
}

/// The times of a mix beside the sum over its families, a line for each way of solving it.
fn mixes_beside_families(cases: &[Solves<'_>], case: &Solves<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for (way, ratio) in mix_ratios(cases, case) {
        let inner = if is_inner_single(way) { ", iterations in f32" } else { "" };
        let chosen = way.preconditioner.as_deref().unwrap_or("none");
        let found = match ratio {
            Ok(ratio) => format!("{ratio:.3} x the sum over its families"),
            Err(missing) => {
                format!("no sum over its families, not measured: {}", missing.join(", "))
            }
        };
        lines.push(format!("{} {chosen}{inner}: {found}", case.name()));
    }
    lines
}

/// The summary that ends a run.
pub fn text(rows: &[Row]) -> String {
    let cases = compare(rows);
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(cases.iter().map(cells));
    let widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |cells: &[String; 12]| {
        let padded = cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut text = String::from("\n");
    for cells in &lines {
        text += &(line(cells) + "\n");
    }
    text + "\n" + &totals(&cases).join("\n")
}
