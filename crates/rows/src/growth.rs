//! Laws of growth: exponents fitted to the times of the suite `scaling`.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::row::Row;
use crate::summary::cell;

/// The suite whose rows are fitted.
pub const SUITE: &str = "scaling";

/// A power law: time grows as size to the power of the exponent.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// What grows: `batch`, `rows`, `entries`.
    pub axis: String,
    /// The family of matrices.
    pub family: String,
    /// GPU or processor.
    pub device: String,
    /// `spmv`, or the method.
    pub operation: String,
    /// The library that multiplies or solves.
    pub library: String,
    /// Number of sizes measured.
    pub points: usize,
    /// The smallest and the largest size.
    pub range: [f64; 2],
    /// Milliseconds at these two sizes.
    pub ms: [f64; 2],
    /// The exponent over all points.
    pub exponent: Option<f64>,
    /// The exponent over the larger points, beyond the middle of the range on a logarithmic scale.
    pub exponent_large: Option<f64>,
}

/// The size of a row along the axis of its experiment.
fn size(row: &Row) -> Option<f64> {
    let size = match row.experiment.as_deref()? {
        "batch" => row.batch,
        // Rows of one system.
        "rows" if row.operation == "spmv" => row.n / row.batch.max(1),
        "rows" => row.n,
        "entries" => row.nnz,
        _ => return None,
    };
    (size > 0).then_some(size as f64)
}

/// The slope of the least-squares line through `points`; `None` unless two of them differ in x.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let product: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    (points.len() > 1 && spread > 0.0).then(|| product / spread)
}

/// The laws of the newest run of each series, in the order of their first rows.
pub fn growths(rows: &[Row]) -> Vec<Growth> {
    let mut places = BTreeMap::new();
    let mut series: Vec<Vec<&Row>> = Vec::new();
    for row in rows.iter().filter(|row| row.suite == SUITE && row.median_ms > 0.0) {
        let family = family(row);
        let key = (&row.experiment, family, &row.machine.device, &row.operation, &row.library);
        let place = *places.entry(key).or_insert_with(|| {
            series.push(Vec::new());
            series.len() - 1
        });
        series[place].push(row);
    }
    series.iter().filter_map(|rows| growth(rows)).collect()
}

fn family(row: &Row) -> &str {
    row.case.split(' ').next().unwrap_or(&row.case)
}

fn growth(rows: &[&Row]) -> Option<Growth> {
    let newest = rows.iter().map(|row| &row.date).max()?;
    let of_run = rows.iter().filter(|row| row.date == *newest && row.median_ms.is_finite());
    let mut points: Vec<(f64, f64)> =
        of_run.filter_map(|row| Some((size(row)?, row.median_ms))).collect();
    // Of several rows of one size, the fastest stays.
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    points.dedup_by_key(|point| point.0);
    let (first, last) = (*points.first()?, *points.last()?);
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let middle = 0.5 * (first.0.ln() + last.0.ln());
    let large: Vec<(f64, f64)> =
        logs.iter().copied().filter(|point| point.0 >= middle - 1e-9).collect();
    let row = rows[0];
    Some(Growth {
        axis: row.experiment.clone()?,
        family: family(row).to_owned(),
        device: row.machine.device.clone().unwrap_or_else(|| "unknown".to_owned()),
        operation: row.operation.clone(),
        library: row.library.clone(),
        points: points.len(),
        range: [first.0, last.0],
        ms: [first.1, last.1],
        exponent: slope(&logs),
        exponent_large: slope(&large),
    })
}

/// A line for each law.
pub fn text(rows: &[Row]) -> String {
    let mut text = format!(
        "\n{:<8} {:<8} {:<9} {:<40} {:>6} {:>10} {:>10} {:>11} {:>11} {:>8} {:>8}\n",
        "grows", "family", "what", "on", "points", "from", "to", "ms", "ms", "exponent", "beyond"
    );
    for growth in growths(rows) {
        let line = writeln!(
            text,
            "{:<8} {:<8} {:<9} {:<40} {:>6} {:>10} {:>10} {:>11.5} {:>11.5} {:>8} {:>8}",
            growth.axis,
            growth.family,
            growth.operation,
            growth.device,
            growth.points,
            growth.range[0],
            growth.range[1],
            growth.ms[0],
            growth.ms[1],
            cell(growth.exponent, 2),
            cell(growth.exponent_large, 2),
        );
        line.expect("writing to a string does not fail");
    }
    text + "\nTime grows as size to the power of the exponent; beyond: over the upper half of the range."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_power_law_is_its_exponent() {
        let points: Vec<(f64, f64)> = [1.0f64, 10.0, 100.0, 1000.0]
            .iter()
            .map(|x| (x.ln(), (3.0 * x.powf(1.5)).ln()))
            .collect();

        assert!((slope(&points).unwrap() - 1.5).abs() < 1e-12);
        assert_eq!(slope(&points[..1]), None);
        assert_eq!(slope(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(slope(&[]), None);
    }
}
