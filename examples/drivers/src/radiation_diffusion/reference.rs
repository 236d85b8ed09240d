//! The reference files, and the comparison with them.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{Error, positive};

/// Allowed error relative to the value,
const RELATIVE: f64 = 1e-2;
/// or absolute.
const ABSOLUTE: f64 = 1e-4;

/// The file of the grey wave.
#[derive(Debug, Deserialize)]
pub struct SuOlson {
    /// One case for each `eps` and time.
    pub cases: Vec<GreyCase>,
}

/// The grey wave at a time.
#[derive(Debug, Deserialize)]
pub struct GreyCase {
    pub epsilon: f64,
    pub tau: f64,
    pub x: Vec<f64>,
    #[serde(rename = "U")]
    pub u: Vec<f64>,
    #[serde(rename = "V")]
    pub v: Vec<f64>,
}

/// The file of the multigroup wave.
#[derive(Debug, Deserialize)]
pub struct Multigroup {
    pub(crate) epsilon: f64,
    pub(crate) kappa: Vec<f64>,
    pub(crate) w: Vec<f64>,
    /// One case for each time.
    pub(crate) cases: Vec<GroupCase>,
}

/// The multigroup wave at a time.
#[derive(Debug, Deserialize)]
pub(crate) struct GroupCase {
    pub(crate) tau: f64,
    pub(crate) x: Vec<f64>,
    /// Radiation, point by point, and group by group within a point.
    #[serde(rename = "U_g")]
    pub(crate) u: Vec<Vec<f64>>,
    #[serde(rename = "V")]
    pub(crate) v: Vec<f64>,
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::input(format!("{}: {error}", path.display())))?;
    serde_json::from_str(&text)
        .map_err(|error| Error::input(format!("{}: {error}", path.display())))
}

/// Refuses cases without points, with arrays that differ in length, or with invalid positions,
/// times or energies.
fn check(
    path: &Path,
    case: usize,
    tau: f64,
    x: &[f64],
    values: &[(&str, &[f64])],
) -> Result<(), Error> {
    let fail =
        |text: String| Err(Error::input(format!("{}: cases[{case}]: {text}", path.display())));
    positive(&format!("{}: cases[{case}]: tau", path.display()), tau)?;
    if x.is_empty() {
        return fail("x is empty, expected at least one place".to_owned());
    }
    for &(name, values) in values {
        if values.len() != x.len() {
            return fail(format!("{name} has {} values, expected {}", values.len(), x.len()));
        }
        if let Some(value) = values.iter().find(|v| !(v.is_finite() && **v >= 0.0)) {
            return fail(format!("{name} holds {value}, expected finite numbers, not negative"));
        }
    }
    match x.iter().find(|x| !(x.is_finite() && **x >= 0.0)) {
        Some(x) => fail(format!("x holds {x}, expected finite numbers, not negative")),
        None => Ok(()),
    }
}

impl SuOlson {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`Error::Input`], which states the file and the position in it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file: Self = read(path)?;
        for (index, case) in file.cases.iter().enumerate() {
            positive(&format!("{}: cases[{index}]: epsilon", path.display()), case.epsilon)?;
            check(path, index, case.tau, &case.x, &[("U", &case.u), ("V", &case.v)])?;
        }
        if file.cases.is_empty() {
            return Err(Error::input(format!("{}: no cases", path.display())));
        }
        Ok(file)
    }

    /// The values of `eps`, in the order of the file.
    pub fn epsilons(&self) -> Vec<f64> {
        let mut found = Vec::new();
        for case in &self.cases {
            if !found.contains(&case.epsilon) {
                found.push(case.epsilon);
            }
        }
        found
    }

    /// The times, ascending.
    pub fn times(&self) -> Vec<f64> {
        ascending(self.cases.iter().map(|case| case.tau))
    }

    /// The case for the study of convergence: the least `eps` of the file at the time nearest to 1.
    pub fn typical(&self) -> Option<&GreyCase> {
        let least = self.cases.iter().map(|case| case.epsilon).min_by(f64::total_cmp)?;
        let of_least = || self.cases.iter().filter(|case| case.epsilon == least);
        let tau = nearest_to_1(of_least().map(|case| case.tau))?;
        of_least().find(|case| case.tau == tau)
    }
}

impl Multigroup {
    /// The case for the study of convergence: the time nearest to 1.
    pub(crate) fn typical(&self) -> Option<&GroupCase> {
        let tau = nearest_to_1(self.cases.iter().map(|case| case.tau))?;
        self.cases.iter().find(|case| case.tau == tau)
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`Error::Input`], which states the file and the position in it.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let file: Self = read(path)?;
        positive(&format!("{}: epsilon", path.display()), file.epsilon)?;
        for (index, case) in file.cases.iter().enumerate() {
            check(path, index, case.tau, &case.x, &[("V", &case.v)])?;
            if case.u.len() != case.x.len() || case.u.iter().any(|u| u.len() != file.kappa.len()) {
                return Err(Error::input(format!(
                    "{}: cases[{index}]: U_g is not {} places x {} groups",
                    path.display(),
                    case.x.len(),
                    file.kappa.len()
                )));
            }
            for g in 0..file.kappa.len() {
                check(path, index, case.tau, &case.x, &[("U_g", &case.group(g))])?;
            }
        }
        if file.cases.is_empty() {
            return Err(Error::input(format!("{}: no cases", path.display())));
        }
        Ok(file)
    }

    /// The times, ascending.
    pub(crate) fn times(&self) -> Vec<f64> {
        ascending(self.cases.iter().map(|case| case.tau))
    }
}

impl GroupCase {
    /// The radiation of one group, point by point.
    pub(crate) fn group(&self, g: usize) -> Vec<f64> {
        self.u.iter().map(|u| u[g]).collect()
    }
}

fn ascending(times: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    times
}

/// Whether two times agree to rounding: a ray of opacity `chi` at `tau` is the reference at
/// `chi tau`.
pub(crate) fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

/// The comparison of a wave with its reference.
#[derive(Clone, Debug)]
pub struct Agreement {
    /// The time in units of the reference.
    pub tau: f64,
    /// The quantity and ray.
    pub label: String,
    /// Number of compared points.
    pub points: usize,
    /// Largest error.
    pub error: f64,
    /// Largest ratio of the error to the allowed error; at most 1 to pass.
    pub ratio: f64,
}

impl Agreement {
    /// Compares the values of a ray at its `centres` with the reference at the points `x`.
    ///
    /// # Errors
    /// [`Error::Input`] when the mesh does not reach a point, or has less than 4 cells.
    pub fn new(
        tau: f64,
        label: String,
        centres: &[f64],
        values: &[f64],
        x: &[f64],
        reference: &[f64],
    ) -> Result<Self, Error> {
        let (mut error, mut ratio) = (0.0f64, 0.0f64);
        for (&x, &expected) in x.iter().zip(reference) {
            let found = interpolate(centres, values, x)?;
            let off = (found - expected).abs();
            error = worse(error, off);
            ratio = worse(ratio, off / (RELATIVE * expected.abs()).max(ABSOLUTE));
        }
        Ok(Self { tau, label, points: x.len(), error, ratio })
    }

    /// Whether every point is within the allowed error.
    pub fn passes(&self) -> bool {
        self.ratio <= 1.0
    }
}

/// The larger of two errors; NaN counts as infinite.
fn worse(worst: f64, error: f64) -> f64 {
    if error.is_nan() { f64::INFINITY } else { worst.max(error) }
}

/// The time nearest to 1 on a logarithmic scale, the earlier of two.
fn nearest_to_1(times: impl Iterator<Item = f64>) -> Option<f64> {
    let distance = |tau: &f64| tau.ln().abs();
    ascending(times).into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// Interpolates at `x` by the cubic through the four nearest centres, so that interpolation adds
/// nothing to an error of order 2.
///
/// # Errors
/// [`Error::Input`] beyond the last centre, and for less than four centres.
pub(crate) fn interpolate(centres: &[f64], values: &[f64], x: f64) -> Result<f64, Error> {
    let n = centres.len();
    if n < 4 {
        return Err(Error::input(format!("{n} cells cannot be compared, expected at least 4")));
    }
    if x > centres[n - 1] {
        return Err(Error::input(format!(
            "the domain ends at {}, expected more than the last place of the reference, {x}",
            centres[n - 1]
        )));
    }
    let first = centres.partition_point(|&c| c < x).saturating_sub(2).min(n - 4);
    let nodes = first..first + 4;
    let basis = |i: usize| -> f64 {
        let others = nodes.clone().filter(|&j| j != i);
        others.map(|j| (x - centres[j]) / (centres[i] - centres[j])).product()
    };
    Ok(nodes.clone().map(|i| basis(i) * values[i]).sum())
}
