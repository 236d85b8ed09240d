//! Compares cases: our fastest row, the automatic choice of the library, the fastest peer.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::row::Row;
use crate::statistics::{geomean, regret};

/// The library whose rows are ours.
pub const OURS: &str = "sparsebatch";

/// Launch-bound times that differ by less, in milliseconds, count as equal.
const EQUAL_MS: f64 = 0.0003;

/// The rows of one case of one run.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// Our fastest row.
    pub best: Option<&'a Row>,
    /// Our fastest row with the automatic choice: what a user gets who chooses nothing.
    pub automatic: Option<&'a Row>,
    /// The fastest peer.
    pub peer: Option<&'a Row>,
    /// The fastest peer among those that take one call per system.
    pub looped: Option<&'a Row>,
    /// The first row, which names the case.
    pub first: &'a Row,
}

/// Figures over several cases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Geometric mean of the peer's time over that of the automatic choice.
    pub automatic_ratio: Option<f64>,
    /// Geometric mean of the peer's time over that of our best.
    pub best_ratio: Option<f64>,
    /// The case with the least ratio to the peer, and that ratio: of the automatic choice, else of
    /// our best.
    pub worst: Option<(String, f64)>,
    /// What the automatic choice costs over our best, on average.
    pub mean_regret: Option<f64>,
    /// The case in which it costs most, and that cost.
    pub worst_regret: Option<(String, f64)>,
}

/// How many times `ours` is faster than `peer`; 1 where both are launch-bound and nearly equal.
pub fn ratio(ours: &Row, peer: &Row) -> f64 {
    let recorded = [ours, peer].iter().all(|row| row.timing == "graph");
    if recorded && (ours.median_ms - peer.median_ms).abs() < EQUAL_MS {
        return 1.0;
    }
    peer.median_ms / ours.median_ms
}

impl Comparison<'_> {
    /// The peer's time over that of the automatic choice.
    pub fn automatic_ratio(&self) -> Option<f64> {
        Some(ratio(self.automatic?, self.peer?))
    }

    /// The peer's time over that of our best.
    pub fn best_ratio(&self) -> Option<f64> {
        Some(ratio(self.best?, self.peer?))
    }

    /// The time of looped calls over that of the automatic choice, else of our best.
    pub fn looped_ratio(&self) -> Option<f64> {
        Some(ratio(self.automatic.or(self.best)?, self.looped?))
    }

    /// What the automatic choice costs over our best.
    pub fn regret(&self) -> Option<f64> {
        Some(regret(self.automatic?.median_ms, self.best?.median_ms))
    }

    /// The case, with its batch, precision and operation where they tell cases apart.
    pub fn name(&self) -> String {
        let row = self.first;
        let mut name = row.case.clone();
        if row.experiment.is_some() && (row.batch > 1 || row.suite == "flexible-batch") {
            name += &format!(" x {}", row.batch);
        }
        if row.precision != "f64" {
            name += &format!(" {}", row.precision);
        }
        if row.operation != "spmv" {
            name += &format!(" {}", row.operation);
        }
        name
    }
}

/// Groups rows by run and case, in the order of their first rows. Rows without a time are left out.
pub fn compare(rows: &[Row]) -> Vec<Comparison<'_>> {
    let mut places = BTreeMap::new();
    let mut cases: Vec<Comparison<'_>> = Vec::new();
    for row in rows.iter().filter(|row| row.median_ms.is_finite()) {
        let key = (
            [&row.suite, &row.case, &row.operation, &row.precision, &row.run, &row.date],
            &row.experiment,
            &row.preconditioner,
            // A processor and a GPU of the same run are compared separately.
            &row.machine.device,
            row.batch,
        );
        let place = *places.entry(key).or_insert_with(|| {
            let (best, automatic, peer, looped) = (None, None, None, None);
            cases.push(Comparison { best, automatic, peer, looped, first: row });
            cases.len() - 1
        });
        let case = &mut cases[place];
        let faster = |than: &Option<&Row>| than.is_none_or(|than| row.median_ms < than.median_ms);
        if row.library == OURS {
            if faster(&case.best) {
                case.best = Some(row);
            }
            if row.automatic && faster(&case.automatic) {
                case.automatic = Some(row);
            }
        } else {
            if faster(&case.peer) {
                case.peer = Some(row);
            }
            if row.configuration.starts_with("loop") && faster(&case.looped) {
                case.looped = Some(row);
            }
        }
    }
    cases
}

/// The figures over all cases.
pub fn totals(cases: &[Comparison<'_>]) -> Totals {
    let named = |value: fn(&Comparison<'_>) -> Option<f64>| {
        cases.iter().filter_map(move |case| Some((case.name(), value(case)?)))
    };
    let regrets: Vec<f64> = cases.iter().filter_map(Comparison::regret).collect();
    Totals {
        automatic_ratio: geomean(cases.iter().filter_map(Comparison::automatic_ratio)),
        best_ratio: geomean(cases.iter().filter_map(Comparison::best_ratio)),
        worst: named(|case| case.automatic_ratio().or(case.best_ratio()))
            .min_by(|a, b| a.1.total_cmp(&b.1)),
        mean_regret: (!regrets.is_empty())
            .then(|| regrets.iter().sum::<f64>() / regrets.len() as f64),
        worst_regret: named(|case| case.regret()).max_by(|a, b| a.1.total_cmp(&b.1)),
    }
}

/// Formats a number, or a dash for `None`.
pub fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// The summary that ends a run.
pub fn text(rows: &[Row]) -> String {
    let cases = compare(rows);
    let mut text = format!(
        "\n{:<28} {:<24} {:>10} {:>6} {:<18} {:>10} {:<35} {:>10} {:>7} {:>7}\n",
        "case",
        "best of ours",
        "ms",
        "share",
        "automatic",
        "ms",
        "best peer",
        "ms",
        "auto",
        "loops"
    );
    for case in &cases {
        let configuration =
            |row: Option<&Row>| row.map_or_else(|| "-".to_owned(), |row| row.configuration.clone());
        let ms = |row: Option<&Row>| cell(row.map(|row| row.median_ms), 5);
        let line = writeln!(
            text,
            "{:<28} {:<24} {:>10} {:>6} {:<18} {:>10} {:<35} {:>10} {:>7} {:>7}",
            case.name(),
            configuration(case.best),
            ms(case.best),
            cell(case.best.and_then(|row| row.share_of_copy), 3),
            configuration(case.automatic),
            ms(case.automatic),
            case.peer.map_or_else(|| "-".to_owned(), Row::contender),
            ms(case.peer),
            cell(case.automatic_ratio().or(case.best_ratio()), 2),
            cell(case.looped_ratio(), 1),
        );
        line.expect("writing to a string does not fail");
    }
    text + "\n" + &totals_text(&totals(&cases))
}

/// The totals in words, one line.
pub fn totals_text(totals: &Totals) -> String {
    let mut parts = Vec::new();
    let percent = |value: f64| format!("{:.1} %", 100.0 * value);
    if let Some(value) = totals.best_ratio {
        parts.push(format!("best of ours over best peer: geomean {value:.2} x"));
    }
    if let Some(value) = totals.automatic_ratio {
        parts.push(format!("automatic choice over best peer: geomean {value:.2} x"));
    }
    if let Some((case, value)) = &totals.worst {
        parts.push(format!("worst {value:.2} x ({case})"));
    }
    if let Some(value) = totals.mean_regret {
        parts.push(format!("regret of the automatic choice: mean {}", percent(value)));
    }
    if let Some((case, value)) = &totals.worst_regret {
        parts.push(format!("worst regret {} ({case})", percent(*value)));
    }
    if parts.is_empty() { "nothing to compare".to_owned() } else { parts.join("; ") }
}
